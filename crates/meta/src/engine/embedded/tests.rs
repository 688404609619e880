//! The embedded engine's promises, broken into by kills, power loss, damage and failing disks.

use super::super::transaction::Writes;
use super::super::{Background, Commit, Engine, EngineError, EngineOptions};
use super::{EmbeddedEngine, log, record};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::{Disk, MemoryDisk, Open, Operations};
use vazao_meter::{Accounts, ManualClock};

const IDENTITY: u64 = 0xFEED_F00D_1234_5678;

fn options(disk: &MemoryDisk, clock: &Arc<ManualClock>, overlay_bytes_max: usize) -> EngineOptions {
    EngineOptions {
        disk: Arc::new(disk.boot()),
        clock: clock.clone(),
        background: Background::Manual,
        overlay_bytes_max,
        cache_bytes: 1 << 20,
        identity: IDENTITY,
        initial: Writes::new(),
        essential: Vec::new(),
        accounts: Arc::new(Accounts::new()),
    }
}

fn open(disk: &MemoryDisk, overlay_bytes_max: usize) -> Result<Arc<dyn Engine>, EngineError> {
    EmbeddedEngine::open(options(disk, &Arc::new(ManualClock::default()), overlay_bytes_max))
}

/// Commit number `n`, which says so under a key of its own and under one that all commits share.
fn commit(engine: &dyn Engine, n: u64) -> u64 {
    let mut transaction = engine.begin();
    transaction.put(b"last".to_vec(), n.to_be_bytes().to_vec());
    transaction.put(format!("key {:03}", n % 300).into_bytes(), n.to_be_bytes().to_vec());
    if n.is_multiple_of(7) {
        transaction.delete(format!("key {:03}", (n / 2) % 300).into_bytes());
    }
    match transaction.commit().unwrap() {
        Commit::Done(position) => position,
        Commit::Conflict => panic!("blind writes conflict"),
    }
}

/// What the engine must hold after commits `1..=n`.
fn expected(n: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut model = BTreeMap::new();
    for n in 1..=n {
        model.insert(b"last".to_vec(), n.to_be_bytes().to_vec());
        model.insert(format!("key {:03}", n % 300).into_bytes(), n.to_be_bytes().to_vec());
        if n.is_multiple_of(7) {
            model.remove(format!("key {:03}", (n / 2) % 300).as_bytes());
        }
    }
    model.into_iter().collect()
}

/// The commit after which this state was; panics when it is none.
fn last_commit(engine: &dyn Engine) -> u64 {
    let state = engine.begin().scan(&[], &[255], 10_000).unwrap();
    let last = state.iter().find(|(key, _)| key == b"last");
    let n = last.map_or(0, |(_, value)| u64::from_be_bytes(value.clone().try_into().unwrap()));
    assert_eq!(state, expected(n), "the state is not that after commit {n}");
    n
}

#[test]
fn a_closed_engine_opens_with_everything_and_refuses_work_in_between() {
    let disk = MemoryDisk::new(1);
    let engine = open(&disk, 1000).unwrap();
    (1..=100).for_each(|n| assert_eq!(commit(&*engine, n), n));
    engine.close().unwrap();
    assert!(matches!(engine.flush(), Err(EngineError::Stopped(_))));
    let again = open(&disk, 1000).unwrap();
    assert_eq!(last_commit(&*again), 100);
}

#[test]
fn two_engines_never_have_one_directory() {
    let disk = MemoryDisk::new(1);
    let _engine = open(&disk, 1000).unwrap();
    let second = open(&disk, 1000);
    assert!(matches!(second.err(), Some(EngineError::Refused(text)) if text.contains("in use")));
}

#[test]
fn another_format_and_lost_files_are_refused_with_a_clear_word() {
    let disk = MemoryDisk::new(1);
    open(&disk, 1000).unwrap().close().unwrap();
    let format = disk.open("FORMAT", Open::Existing).unwrap();
    let text = String::from_utf8(read_file(&disk, "FORMAT")).unwrap();
    let lines = text.replace("format 2", "format 9");
    let lines = lines.split_inclusive('\n').take(3).collect::<String>();
    let newer = format!("{lines}check {:08x}\n", vazao_model::checksum::crc32c(lines.as_bytes()));
    format.write_at(newer.as_bytes(), 0).unwrap();
    assert!(matches!(open(&disk, 1000).err(), Some(EngineError::Refused(t)) if t.contains("\"9\"")));
    format.write_at(text.as_bytes(), 0).unwrap();

    disk.rename("checkpoint", "elsewhere").unwrap();
    assert!(matches!(open(&disk, 1000).err(), Some(EngineError::Corrupt(t)) if t.contains("checkpoint")));
    disk.rename("elsewhere", "checkpoint").unwrap();
    disk.remove("FORMAT").unwrap();
    assert!(matches!(open(&disk, 1000).err(), Some(EngineError::Refused(t)) if t.contains("FORMAT")));
}

/// Names and contents of the logs. Opening a checkpoint changes it.
fn logs(disk: &MemoryDisk) -> BTreeMap<String, Vec<u8>> {
    log_files(disk).into_iter().map(|name| (name.clone(), read_file(disk, &name))).collect()
}

fn read_file(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name, Open::ReadOnly).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_lost_or_overwritten_log_is_refused_and_left_as_it_is() {
    for (lives, overlay) in [(1, 1 << 20), (2, 1 << 20), (1, 2000)] {
        let prepare = || {
            let disk = MemoryDisk::new(4);
            for life in 0..lives {
                let engine = open(&disk, overlay).unwrap();
                for n in life * 50 + 1..=life * 50 + 50 {
                    commit(&*engine, n);
                    engine.flush().unwrap();
                }
                engine.sync().unwrap();
                drop(engine);
                disk.kill();
            }
            disk
        };
        let names = log_files(&prepare());
        let last = names.last().unwrap();
        let mut random = StdRng::seed_from_u64(1);
        for length in [0, 1, 4096, 300_000] {
            for byte in [0, random.random_range(1..=255)] {
                let disk = prepare();
                let file = disk.open(last, Open::Existing).unwrap();
                file.set_length(0).unwrap();
                file.write_at(&vec![byte; length], 0).unwrap();
                let before = logs(&disk);
                let refused = open(&disk, overlay).err();
                assert!(matches!(&refused, Some(EngineError::Corrupt(t)) if t.contains(last)), "{refused:?}");
                assert!(logs(&disk) == before, "{last} was changed");
            }
        }
        let disk = prepare();
        names.iter().for_each(|name| disk.remove(name).unwrap());
        let before = logs(&disk);
        let refused = open(&disk, overlay).err();
        assert!(matches!(&refused, Some(EngineError::Corrupt(t)) if t.contains("backup")), "{refused:?}");
        assert!(logs(&disk) == before, "there are new logs");
    }
}

#[test]
fn a_creation_that_was_interrupted_anywhere_is_begun_again() {
    for power_loss in [false, true] {
        for count in 0..200 {
            let disk = MemoryDisk::new(count);
            disk.fail_after(count, ErrorKind::Other);
            let with = EngineOptions {
                initial: Writes::from([(b"volume".to_vec(), Some(b"one".to_vec()))]),
                ..options(&disk, &Arc::new(ManualClock::default()), 1000)
            };
            let again = EngineOptions { disk: Arc::new(disk.clone()), ..with.clone() };
            drop(EmbeddedEngine::open(with));
            if power_loss {
                disk.crash()
            } else {
                disk.kill()
            }
            disk.clear_faults();
            let engine = EmbeddedEngine::open(again).unwrap_or_else(|e| panic!("after {count}: {e}"));
            assert_eq!(engine.begin().get(b"volume").unwrap(), Some(b"one".to_vec()), "after {count}");
        }
    }
}

/// One life of an engine on `disk`: commits, flushes, syncs at random, and ends with a kill or power loss, by chance
/// in the middle of an operation. Returns (flushed, synced, committed).
fn live(disk: &MemoryDisk, random: &mut StdRng, from: u64) -> Option<(u64, u64, u64)> {
    let clock = Arc::new(ManualClock::default());
    if random.random_bool(0.5) {
        disk.fail_after(random.random_range(0..400), ErrorKind::Other);
    }
    let overlay = random.random_range(500..20_000);
    let engine = EmbeddedEngine::open(options(disk, &clock, overlay)).ok()?;
    let (mut flushed, mut synced, mut committed) = (from, from, from);
    assert_eq!(last_commit_if_readable(&*engine).unwrap_or(from), from);
    for _ in 0..random.random_range(1..120) {
        for _ in 0..random.random_range(1..6) {
            let n = committed + 1;
            let mut transaction = engine.begin();
            transaction.put(b"last".to_vec(), n.to_be_bytes().to_vec());
            transaction.put(format!("key {:03}", n % 300).into_bytes(), n.to_be_bytes().to_vec());
            if n.is_multiple_of(7) {
                transaction.delete(format!("key {:03}", (n / 2) % 300).into_bytes());
            }
            if transaction.commit().is_err() {
                return Some((flushed, synced, committed));
            }
            committed = n;
        }
        if random.random_bool(0.8) {
            if engine.flush().is_err() {
                return Some((flushed, synced, committed));
            }
            flushed = committed;
        }
        if random.random_bool(0.15) {
            if engine.sync().is_err() {
                return Some((flushed, synced, committed));
            }
            (flushed, synced) = (committed, committed);
        }
        if random.random_bool(0.1) {
            clock.advance(Duration::from_millis(20));
            let _ = engine.maintain();
        }
        synced = synced.max(durable_commit(&*engine, flushed));
    }
    if random.random_bool(0.1) && engine.close().is_ok() {
        return Some((committed, committed, committed));
    }
    Some((flushed, synced, committed))
}

/// Positions count commits, so the durable one is the last durable commit as far as it was flushed.
fn durable_commit(engine: &dyn Engine, flushed: u64) -> u64 {
    engine.figures().durable.min(flushed)
}

fn last_commit_if_readable(engine: &dyn Engine) -> Option<u64> {
    engine.begin().scan(&[], &[255], 1).ok()?;
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| last_commit(engine))).ok()
}

/// Six lives on one disk. Returns the last commit after each, and how many operations the disk saw.
fn history(seed: u64) -> Vec<(u64, Operations)> {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = MemoryDisk::new(seed);
    let mut known = 0;
    let mut history = Vec::new();
    for _ in 0..6 {
        let lived = live(&disk, &mut random, known);
        let power_loss = random.random_bool(0.5);
        if power_loss {
            disk.crash()
        } else {
            disk.kill()
        }
        disk.clear_faults();
        let (at_least, at_most) = match lived {
            Some((_, synced, committed)) if power_loss => (synced, committed),
            Some((flushed, _, committed)) => (flushed, committed),
            // It did not get through its start; opening had synced what there was.
            None => (known, known),
        };
        let engine = open(&disk, 1 << 20).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let n = last_commit(&*engine);
        // Blocks that were being written are not damage, whatever became of them.
        assert_eq!(engine.scrub(&mut |_, _| true).ok(), Some(true), "seed {seed}");
        let health = engine.health();
        assert!(health.damaged.is_empty() && health.mended.is_empty(), "seed {seed}: {health:?}");
        assert!(n >= at_least, "seed {seed}: commit {n} is the last, {at_least} was promised");
        assert!(n <= at_most, "seed {seed}: commit {n} was never made, {at_most} was the last");
        known = n;
        drop(engine);
        if random.random_bool(0.5) {
            disk.crash()
        } else {
            disk.kill()
        }
        history.push((n, disk.operations()));
    }
    history
}

#[test]
fn flushed_commits_survive_kills_and_synced_ones_power_loss_and_what_survives_is_a_prefix() {
    for seed in 0..400 {
        history(seed);
    }
}

#[test]
fn a_seed_decides_everything_without_threads() {
    for seed in 1000..1020 {
        assert_eq!(history(seed), history(seed), "seed {seed}");
    }
}

fn log_files(disk: &MemoryDisk) -> Vec<String> {
    let names = disk.list("").unwrap().into_iter().map(|entry| entry.name);
    let mut names: Vec<String> = names.filter(|name| name.starts_with("log-")).collect();
    names.sort();
    names
}

fn length(disk: &MemoryDisk, name: &str) -> u64 {
    disk.open(name, Open::ReadOnly).unwrap().length().unwrap()
}

/// Where the last record of a log ends; zeros follow.
fn end_of_records(disk: &MemoryDisk, name: &str) -> u64 {
    let file = disk.open(name, Open::ReadOnly).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let mut end = 0;
    while let Some((start, record)) = record::find(&bytes, end, IDENTITY) {
        end = start + record.bytes;
    }
    assert!(bytes[end..].iter().all(|byte| *byte == 0), "something else follows the records");
    end as u64
}

#[test]
fn a_sync_does_not_change_the_length_of_the_log() {
    let disk = MemoryDisk::new(3);
    let engine = open(&disk, 1 << 20).unwrap();
    let file = disk.open(&log_files(&disk)[0], Open::Existing).unwrap();
    commit(&*engine, 1);
    engine.flush().unwrap();
    let filled = file.length().unwrap();
    for n in 2..=50 {
        commit(&*engine, n);
        engine.sync().unwrap();
        assert_eq!(file.length().unwrap(), filled, "after commit {n}");
    }
}

#[test]
fn the_zeros_at_the_end_of_the_log_are_no_torn_tail() {
    let disk = MemoryDisk::new(3);
    let engine = open(&disk, 1 << 20).unwrap();
    commit(&*engine, 1);
    engine.sync().unwrap();
    drop(engine);
    disk.kill();
    let recovered = log::recover(&disk, IDENTITY, 0).unwrap();
    assert_eq!((recovered.position, recovered.cut_bytes), (1, 0));
    let name = &log_files(&disk)[0];
    assert_eq!(length(&disk, name), end_of_records(&disk, name));
}

#[test]
fn damage_to_what_was_synced_is_reported_wherever_it_lies() {
    let offsets = {
        let disk = MemoryDisk::new(5);
        prepare_log(&disk);
        end_of_records(&disk, &log_files(&disk)[0])
    };
    for offset in 0..offsets {
        let disk = MemoryDisk::new(5);
        let (promised, last_mark) = prepare_log(&disk);
        let name = log_files(&disk)[0].clone();
        disk.corrupt(&name, offset, 0x40).unwrap();
        match open(&disk, 1 << 20) {
            Err(EngineError::Corrupt(text)) => assert!(text.contains(&name), "{text}"),
            Err(other) => panic!("byte {offset}: {other}"),
            // Only a mark can be lost without loss of a commit.
            Ok(engine) => {
                assert!(last_commit(&*engine) >= promised, "byte {offset}: synced commits are gone silently");
                assert!(offset >= last_mark, "byte {offset} is part of a synced commit");
            }
        }
    }
}

/// Ten synced commits and their mark. Returns the last commit, and where the last record begins.
fn prepare_log(disk: &MemoryDisk) -> (u64, u64) {
    let engine = open(disk, 1 << 20).unwrap();
    let name = log_files(disk)[0].clone();
    // Two marks of opening come first; nothing is lost when they are damaged, so the test begins after them.
    (1..=10).for_each(|n| {
        commit(&*engine, n);
    });
    engine.sync().unwrap();
    drop(engine);
    disk.kill();
    let total = end_of_records(disk, &name);
    rewrite_without_first_marks(disk, &name);
    (10, total - 3 * record::HEADER_BYTES as u64)
}

fn rewrite_without_first_marks(disk: &MemoryDisk, name: &str) {
    let file = disk.open(name, Open::Existing).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let rest = bytes.split_off(2 * record::HEADER_BYTES);
    let marks = bytes.chunks(record::HEADER_BYTES).map(|mark| record::parse(mark, IDENTITY).unwrap());
    assert!(marks.into_iter().all(|mark| mark.writes.is_empty()));
    file.set_length(0).unwrap();
    file.write_at(&rest, 0).unwrap();
    file.sync().unwrap();
}

#[test]
fn a_torn_tail_is_cut_and_what_is_written_after_it_is_found_again() {
    for cut in 1..200 {
        let disk = MemoryDisk::new(9);
        let engine = open(&disk, 1 << 20).unwrap();
        commit(&*engine, 1);
        engine.sync().unwrap();
        (2..=5).for_each(|n| {
            commit(&*engine, n);
        });
        engine.flush().unwrap();
        drop(engine);
        disk.kill();
        let name = log_files(&disk)[0].clone();
        let file = disk.open(&name, Open::Existing).unwrap();
        file.set_length(end_of_records(&disk, &name) - cut).unwrap();
        let engine = open(&disk, 1 << 20).unwrap();
        let n = last_commit(&*engine);
        assert!((1..5).contains(&n), "cut {cut}: {n}");
        commit(&*engine, n + 1);
        engine.flush().unwrap();
        drop(engine);
        disk.kill();
        assert_eq!(last_commit(&*open(&disk, 1 << 20).unwrap()), n + 1);
    }
}

#[test]
fn contents_that_imitate_records_are_not_taken_for_records() {
    let disk = MemoryDisk::new(4);
    let engine = open(&disk, 1 << 20).unwrap();
    let mut imitation = Vec::new();
    let lie = Writes::from([(b"last".to_vec(), Some(b"liar".to_vec()))]);
    record::append(&mut imitation, IDENTITY ^ 1, 3, 3, &lie);
    let mut transaction = engine.begin();
    transaction.put(b"contents".to_vec(), imitation);
    transaction.commit().unwrap();
    engine.flush().unwrap();
    drop(engine);
    disk.kill();
    let name = log_files(&disk)[0].clone();
    let file = disk.open(&name, Open::Existing).unwrap();
    file.set_length(end_of_records(&disk, &name) - 1).unwrap();
    assert_eq!(last_commit(&*open(&disk, 1 << 20).unwrap()), 0);
}

#[test]
fn flush_syncs_by_itself_for_one_waiting_answer_and_leaves_several_to_the_syncer() {
    for waiting in 1..=3 {
        let disk = MemoryDisk::new(6);
        let threads = Background::Threads;
        let engine = EmbeddedEngine::open(EngineOptions {
            background: threads,
            ..options(&disk, &Arc::new(ManualClock::default()), 1 << 20)
        });
        let engine = engine.unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        for n in 1..=waiting {
            let (position, sender) = (commit(&*engine, n), sender.clone());
            let notice = move |durable: Result<(), _>| {
                durable.unwrap();
                sender.send(std::thread::current().id()).unwrap();
            };
            engine.when_durable(position, Box::new(notice));
        }
        engine.flush().unwrap();
        let is_here = |_| receiver.recv().unwrap() == std::thread::current().id();
        assert_eq!((1..=waiting).all(is_here), waiting == 1, "{waiting} waiting");
        disk.crash();
        drop(engine);
        assert_eq!(last_commit(&*open(&disk, 1 << 20).unwrap()), waiting);
    }
}

#[test]
fn a_failed_sync_stops_the_engine_for_good() {
    let disk = MemoryDisk::new(2);
    let engine = open(&disk, 1 << 20).unwrap();
    commit(&*engine, 1);
    disk.fail_syncs("log-", ErrorKind::Other);
    let (sender, receiver) = std::sync::mpsc::channel();
    engine.when_durable(engine.figures().position, Box::new(move |d| sender.send(d.is_err()).unwrap()));
    assert!(engine.flush().is_err());
    assert_eq!(receiver.try_recv(), Ok(true));
    assert!(engine.health().failure.is_some_and(|why| why.contains("sync")));
    disk.clear_faults();
    assert!(matches!(engine.sync(), Err(EngineError::Failed(_))));
    let mut transaction = engine.begin();
    transaction.put(b"k".to_vec(), b"v".to_vec());
    assert!(matches!(transaction.commit(), Err(EngineError::Failed(_))));
}

/// The directory was removed under the running service: every fsync went on returning 0, and nothing said otherwise.
#[test]
fn a_directory_or_file_that_is_not_where_it_was_opened_stops_the_engine() {
    /// What takes a directory or a file away.
    type Loss = fn(&MemoryDisk);
    let losses: [(&str, Loss); 4] = [
        ("directory", |disk| disk.set_replaced(true)),
        ("log-", |disk| disk.remove(log_files(disk).last().unwrap()).unwrap()),
        ("checkpoint", |disk| disk.remove("checkpoint").unwrap()),
        ("LOCK", |disk| disk.remove("LOCK").unwrap()),
    ];
    for (name, lose) in losses {
        for is_dirty in [true, false] {
            let disk = MemoryDisk::new(2);
            let engine = open(&disk, 1 << 20).unwrap();
            commit(&*engine, 1);
            engine.sync().unwrap();
            engine.intact().unwrap();
            lose(&disk);
            if is_dirty {
                commit(&*engine, 2);
                engine.flush().unwrap();
                assert!(engine.sync().is_err(), "{name}");
            }
            let error = engine.intact().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("backup"), "{error}");
            assert_eq!(error.matches("earlier failure").count(), 1, "{error}");
            assert!(engine.health().failure.is_some_and(|why| why.contains(name)));
            assert!(matches!(engine.maintain(), Err(EngineError::Failed(_))), "{name}");
            let mut transaction = engine.begin();
            transaction.put(b"k".to_vec(), b"v".to_vec());
            assert!(matches!(transaction.commit(), Err(EngineError::Failed(_))), "{name}");
        }
    }
}

#[test]
fn a_format_file_that_is_lost_is_written_again() {
    let disk = MemoryDisk::new(2);
    let engine = open(&disk, 1 << 20).unwrap();
    let sound = read_file(&disk, "FORMAT");
    disk.remove("FORMAT").unwrap();
    engine.maintain().unwrap();
    assert_eq!(read_file(&disk, "FORMAT"), sound);
    assert_eq!(engine.health().mended.len(), 1);
}

#[test]
fn a_full_disk_refuses_commits_until_there_is_room_and_loses_none() {
    let disk = MemoryDisk::new(2);
    let engine = open(&disk, 1 << 20).unwrap();
    commit(&*engine, 1);
    engine.flush().unwrap();
    disk.fail_writes("log-", ErrorKind::StorageFull);
    commit(&*engine, 2);
    assert!(engine.flush().is_err());
    let mut transaction = engine.begin();
    transaction.put(b"k".to_vec(), b"v".to_vec());
    assert!(matches!(transaction.commit(), Err(EngineError::Full(_))));
    disk.clear_faults();
    engine.flush().unwrap();
    commit(&*engine, 3);
    engine.flush().unwrap();
    drop(engine);
    disk.kill();
    assert_eq!(last_commit(&*open(&disk, 1 << 20).unwrap()), 3);
}

#[test]
fn old_logs_are_removed_after_a_checkpoint_and_a_small_set_of_keys_does_not_grow_the_log() {
    let disk = MemoryDisk::new(2);
    let engine = open(&disk, 2000).unwrap();
    for n in 1..=2000 {
        commit(&*engine, n);
        engine.flush().unwrap();
    }
    assert!(engine.figures().checkpoints > 10);
    assert!(log_files(&disk).len() <= 3, "{:?}", log_files(&disk));
    assert_eq!(last_commit(&*engine), 2000);
}

#[test]
fn damaged_checkpoints_are_errors_and_never_panics() {
    let sound = || {
        let disk = MemoryDisk::new(8);
        let engine = open(&disk, 2000).unwrap();
        (1..=300).for_each(|n| {
            commit(&*engine, n);
            engine.flush().unwrap();
        });
        engine.close().unwrap();
        disk
    };
    let bytes = length(&sound(), "checkpoint");
    let mut random = StdRng::seed_from_u64(1);
    std::panic::set_hook(Box::new(|_| {}));
    for _ in 0..60 {
        let disk = sound();
        for _ in 0..random.random_range(1..200) {
            let offset = random.random_range(0..bytes);
            disk.corrupt("checkpoint", offset, random.random_range(1..=255)).unwrap();
        }
        if let Ok(engine) = open(&disk, 2000) {
            let _ = engine.begin().scan(&[], &[255], 10_000);
            let _ = engine.begin().get(b"key 100");
            let _ = engine.close();
        }
    }
    let _ = std::panic::take_hook();
}

fn writes() -> impl Strategy<Value = Writes> {
    let key = prop::collection::vec(any::<u8>(), 1..20);
    let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..50));
    prop::collection::btree_map(key, value, 1..6)
}

proptest! {
    #[test]
    fn a_record_is_read_back_and_no_change_of_it_is(
        writes in writes(), position in 1u64.., at in any::<prop::sample::Index>(), xor in 1u8..,
    ) {
        let mut bytes = vec![7; 3];
        record::append(&mut bytes, IDENTITY, position, position - 1, &writes);
        let (start, found) = record::find(&bytes, 0, IDENTITY).unwrap();
        prop_assert_eq!((start, found.position, found.durable), (3, position, position - 1));
        prop_assert_eq!(&found.writes, &writes);
        let at = 3 + at.index(bytes.len() - 3);
        bytes[at] ^= xor;
        prop_assert!(record::find(&bytes, 0, IDENTITY).is_none_or(|(_, other)| other != found));
        prop_assert!(record::parse(&bytes[3..], IDENTITY).is_none());
    }

    #[test]
    fn any_bytes_are_parsed_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = record::find(&bytes, 0, IDENTITY);
        bytes.splice(0..0, *b"VZR1");
        prop_assert!(record::find(&bytes, 0, IDENTITY).is_none());
    }

    #[test]
    fn a_directory_with_any_log_opens_or_is_reported(
        bytes in prop::collection::vec(any::<u8>(), 0..300), seed in any::<u64>(),
    ) {
        let disk = MemoryDisk::new(1);
        open(&disk, 1 << 20).unwrap().close().unwrap();
        let mut contents = bytes;
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..random.random_range(0..5) {
            let writes = Writes::from([(vec![random.next_u32() as u8], None)]);
            record::append(&mut contents, IDENTITY, random.random_range(0..6), random.random_range(0..6), &writes);
        }
        disk.open(&log::file_name(random.random_range(0..4)), Open::Create).unwrap().write_at(&contents, 0).unwrap();
        let _ = open(&disk, 1 << 20);
    }
}

/// Readers go on, and find everything, while the checkpoint is compacted under them again and again.
#[test]
fn reads_go_on_while_the_checkpoint_gives_back_what_it_does_not_use() {
    let disk = MemoryDisk::new(9);
    disk.set_capacity(4 << 20);
    let clock = vazao_meter::clock::system();
    let options = EngineOptions {
        clock,
        background: Background::Threads,
        ..options(&disk, &Arc::new(ManualClock::default()), 64 << 10)
    };
    let engine = EmbeddedEngine::open(options).unwrap();
    let write = |key: String, value: Option<Vec<u8>>| {
        let mut transaction = engine.begin();
        match value {
            Some(value) => transaction.put(key.into_bytes(), value),
            None => transaction.delete(key.into_bytes()),
        }
        assert!(matches!(transaction.commit(), Ok(Commit::Done(_))));
        engine.flush().unwrap();
    };
    (0..50).for_each(|n| write(format!("kept {n:02}"), Some(vec![n; 300])));
    let ended = std::sync::atomic::AtomicBool::new(false);
    // As once a second in a service. Checkpoints are another thread's work and come when that thread does.
    let has_room_after = |rounds: u32| {
        (0..rounds).any(|_| {
            engine.maintain().unwrap();
            vazao_meter::clock::system().sleep(Duration::from_millis(5));
            engine.room().is_ok()
        })
    };
    let rounds = || {
        let taken = || disk.open("checkpoint", Open::ReadOnly).unwrap().allocated_bytes().unwrap();
        let mut shrunk = 0;
        for _ in 0..3 {
            let mut filled = 0;
            while engine.room().is_ok() || has_room_after(40) {
                write(format!("filling {filled:06}"), Some(vec![1; 2000]));
                filled += 1;
            }
            let before = taken();
            (0..filled).for_each(|n| write(format!("filling {n:06}"), None));
            // How much of it depends on where in the file the last pages lie; that there is some must not.
            assert!(has_room_after(12_000), "no room a minute after all was removed");
            shrunk += u32::from(taken() < before);
        }
        shrunk
    };
    let shrunk = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    let kept = engine.begin().scan(b"kept", b"keqt", 100).unwrap();
                    assert_eq!(kept.len(), 50);
                    let one = engine.begin().get(b"kept 07").unwrap();
                    assert_eq!(one, Some(vec![7; 300]));
                }
            });
        }
        // The readers must end whatever becomes of the rounds: the scope waits for them.
        let shrunk = std::panic::catch_unwind(std::panic::AssertUnwindSafe(rounds));
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        shrunk
    });
    let shrunk = shrunk.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert!(shrunk > 0, "the file was never made smaller");
    engine.close().unwrap();
}
