//! Flipped bits: what is read is right or an error, the service goes on, and what can be mended is.

use super::super::transaction::Writes;
use super::super::{Background, Engine, EngineError, EngineOptions};
use super::rebuild::PlainBackend;
use super::{CHECKPOINT_FILE, EmbeddedEngine, log};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_meter::{Accounts, ManualClock};

const RECORDS: u64 = 4000;

type Files = BTreeMap<String, Vec<u8>>;

fn open(disk: &MemoryDisk, overlay_bytes_max: usize) -> Result<Arc<dyn Engine>, EngineError> {
    EmbeddedEngine::open(options(disk, overlay_bytes_max))
}

fn options(disk: &MemoryDisk, overlay_bytes_max: usize) -> EngineOptions {
    EngineOptions {
        disk: Arc::new(disk.boot()),
        clock: Arc::new(ManualClock::default()),
        background: Background::Manual,
        overlay_bytes_max,
        // A small cache: pages are read from the file again and again.
        cache_bytes: 64 << 10,
        identity: 0xFEED_F00D_1234_5678,
        initial: Writes::new(),
        essential: Vec::new(),
        accounts: Arc::new(Accounts::new()),
    }
}

/// As a volume has them: many small records, some of which are longer than a page.
fn truth() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut random = StdRng::seed_from_u64(11);
    let record = |n: u64, random: &mut StdRng| {
        let kind = [b'D', b'I', b'T'][(n % 3) as usize];
        let mut key = vec![kind];
        key.extend(n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
        let length = if n.is_multiple_of(100) {
            random.random_range(4000..12_000)
        } else {
            random.random_range(8..200)
        };
        (key, (0..length).map(|_| random.random()).collect())
    };
    (0..RECORDS).map(|n| record(n, &mut random)).collect()
}

fn write(engine: &dyn Engine, records: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for (key, value) in records {
        let mut transaction = engine.begin();
        transaction.put(key.clone(), value.clone());
        transaction.commit().unwrap();
        engine.flush().unwrap();
    }
}

/// The files of a volume that was closed: everything is in the checkpoint.
fn closed_volume() -> Files {
    let disk = MemoryDisk::new(8);
    let engine = open(&disk, 40_000).unwrap();
    write(&*engine, &truth());
    engine.close().unwrap();
    drop(engine);
    disk.kill();
    files(&disk)
}

fn files(disk: &MemoryDisk) -> Files {
    let names = disk.list("").unwrap().into_iter().map(|entry| entry.name);
    names
        .map(|name| {
            let file = disk.open(&name, Open::ReadOnly).unwrap();
            let mut bytes = vec![0; file.length().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            (name, bytes)
        })
        .collect()
}

fn disk_with(files: &Files) -> MemoryDisk {
    let disk = MemoryDisk::new(1);
    for (name, bytes) in files {
        disk.open(name, Open::CreateNew).unwrap().write_at(bytes, 0).unwrap();
    }
    disk.sync_all().unwrap();
    disk
}

/// Reads everything by key and by range. Returns how many reads were errors.
fn read_all(engine: &dyn Engine, truth: &BTreeMap<Vec<u8>, Vec<u8>>, damage: &str) -> u64 {
    let mut errors = 0;
    for (key, value) in truth {
        match engine.begin().get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value), "{damage}: another value, or none"),
            Err(EngineError::Corrupt(_)) => errors += 1,
            Err(other) => panic!("{damage}: {other}"),
        }
    }
    let mut from = Vec::new();
    while let Ok(page) = engine.begin().scan(&from, &[255], 100) {
        let expected: Vec<_> =
            truth.range(from.clone()..).take(100).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(page, expected, "{damage}: a scan shows something else");
        let Some((last, _)) = page.last() else { return errors };
        from = [last.as_slice(), &[0]].concat();
    }
    errors + 1
}

/// Of 22 damaged checkpoints 16 returned other contents of small files than were written, without an error or a line
/// in the log: redb checks its checksums only after an unclean stop.
#[test]
fn a_flipped_bit_anywhere_in_the_checkpoint_is_an_error_or_nothing() {
    let sound = closed_volume();
    let truth = truth();
    let mut random = StdRng::seed_from_u64(5);
    let (mut noticed, mut refused, mut harmless) = (0, 0, 0);
    let mut at = 0;
    while at < sound[CHECKPOINT_FILE].len() {
        let disk = disk_with(&sound);
        let bit = 1u8 << random.random_range(0..8);
        disk.corrupt(CHECKPOINT_FILE, at as u64, bit).unwrap();
        let damage = format!("bit {bit:#04x} of byte {at}");
        match open(&disk, 40_000) {
            Ok(engine) => match read_all(&*engine, &truth, &damage) {
                0 => harmless += 1,
                _ => {
                    assert_eq!(engine.health().damaged.len(), 1, "{damage}");
                    noticed += 1;
                }
            },
            Err(EngineError::Corrupt(_)) => refused += 1,
            Err(other) => panic!("{damage}: {other}"),
        }
        // A number that shares no factor with the size of a page or a record.
        at += 5077;
    }
    println!("{noticed} noticed, {refused} refused at the start, {harmless} harmless");
    assert!(noticed > 100, "{noticed} noticed, {refused} refused, {harmless} harmless");
    assert!(refused < noticed / 10, "{noticed} noticed, {refused} refused, {harmless} harmless");
}

/// The bytes whose flip makes reads fail and does not keep the volume from opening.
fn bytes_of_records(sound: &Files, count: usize) -> Vec<u64> {
    let mut random = StdRng::seed_from_u64(77);
    let mut found = Vec::new();
    while found.len() < count {
        let at = random.random_range(20_000..sound[CHECKPOINT_FILE].len() as u64);
        let disk = disk_with(sound);
        disk.corrupt(CHECKPOINT_FILE, at, 4).unwrap();
        if open(&disk, 40_000).is_ok_and(|engine| read_all(&*engine, &truth(), "probe") > 0) {
            found.push(at);
        }
    }
    found
}

/// What is there after `more` was written over `truth()`: each is right or an error, and the new ones are right.
fn check_after(engine: &dyn Engine, more: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
    for (key, value) in more {
        assert_eq!(engine.begin().get(key).unwrap().as_ref(), Some(value), "written after the damage");
    }
    let mut all = truth();
    all.extend(more.clone());
    read_all(engine, &all, "after")
}

/// A checkpoint could not be written any more where a page was damaged, and the whole service stopped.
#[test]
fn the_service_goes_on_with_a_damaged_checkpoint_and_keeps_apart_what_was_lost() {
    let sound = closed_volume();
    for seed in 0..6 {
        let disk = disk_with(&sound);
        for at in bytes_of_records(&sound, 1 + seed % 3) {
            disk.corrupt(CHECKPOINT_FILE, at, 4).unwrap();
        }
        let engine = open(&disk, 40_000).unwrap();
        let lost_before = read_all(&*engine, &truth(), "before");
        let mut more = BTreeMap::new();
        for (n, key) in truth().into_keys().enumerate().filter(|(n, _)| n % 7 == seed) {
            more.insert(key.clone(), n.to_be_bytes().to_vec());
            more.insert([key.as_slice(), b"new"].concat(), vec![7; 30]);
        }
        write(&*engine, &more);
        engine.maintain().unwrap();
        assert!(engine.figures().checkpoints > 0, "none was written");
        let lost = check_after(&*engine, &more);
        let health = engine.health();
        assert!(health.lost_ranges > 0 && health.damaged.is_empty(), "seed {seed}: {health:?}");
        assert!(lost > 0 && lost <= lost_before, "seed {seed}: {lost} of {lost_before}");
        engine.close().unwrap();
        drop(engine);
        disk.kill();
        let again = open(&disk, 40_000).unwrap();
        assert_eq!(check_after(&*again, &more), lost, "seed {seed}");
        assert_eq!(again.health().lost_ranges, health.lost_ranges);
        assert!(walk(&*again) == known(&*again, &more), "seed {seed}: another set of keys is listed");
    }
}

/// The keys that a walk over everything meets. Where a range fails it goes on behind that.
fn walk(engine: &dyn Engine) -> BTreeSet<Vec<u8>> {
    let (mut from, mut seen) = (Vec::new(), BTreeSet::new());
    loop {
        let mut last = from.clone();
        let page = engine.begin().visit(&from, &[255], 64, &mut |key, _| {
            last = [key, &[0]].concat();
            seen.insert(key.to_vec());
        });
        from = match page {
            Ok(64) => last,
            Ok(_) => return seen,
            Err(_) => {
                let next = engine.next_reachable(&last, &[255]);
                assert!(next > last, "the walk stands still");
                next
            }
        };
    }
}

/// The keys of `truth()` and `more` that can be read.
fn known(engine: &dyn Engine, more: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeSet<Vec<u8>> {
    let keys: BTreeSet<_> = truth().into_keys().chain(more.keys().cloned()).collect();
    keys.into_iter().filter(|key| engine.begin().get(key).is_ok_and(|value| value.is_some())).collect()
}

/// A volume some of whose records were lost with a damaged page.
fn with_losses() -> (MemoryDisk, Arc<dyn Engine>) {
    let sound = closed_volume();
    let disk = disk_with(&sound);
    disk.corrupt(CHECKPOINT_FILE, bytes_of_records(&sound, 1)[0], 4).unwrap();
    let engine = open(&disk, 40_000).unwrap();
    read_all(&*engine, &truth(), "before");
    write(&*engine, &BTreeMap::from([(b"Z".to_vec(), vec![1; 50_000])]));
    write(&*engine, &BTreeMap::from([(b"Z".to_vec(), vec![2; 50_000])]));
    engine.maintain().unwrap();
    assert!(engine.health().lost_ranges > 0);
    (disk, engine)
}

/// Keys that were written anew in a lost range were read, but no range showed them: objects of files that were removed
/// stayed for ever when their reclaim records lay in one.
#[test]
fn what_is_written_in_a_lost_range_is_listed_and_what_is_removed_there_stays_absent() {
    let (disk, engine) = with_losses();
    let lost: Vec<_> = truth().into_keys().filter(|key| engine.begin().get(key).is_err()).collect();
    assert!(lost.len() > 4, "{}", lost.len());
    let more: BTreeMap<_, _> = lost.iter().step_by(2).map(|key| (key.clone(), vec![9; 50])).collect();
    write(&*engine, &more);
    let removed = &lost[1];
    let mut transaction = engine.begin();
    transaction.delete(removed.clone());
    transaction.commit().unwrap();
    let check = |engine: &dyn Engine, when: &str| {
        let seen = walk(engine);
        assert!(more.keys().all(|key| seen.contains(key)), "{when}: one that was written is not listed");
        assert_eq!(seen.len(), known(engine, &more).len() + 1, "{when}: the walk, beside Z");
        assert_eq!(engine.begin().get(removed).unwrap(), None, "{when}: removed");
        assert!(engine.begin().get(&lost[3]).is_err(), "{when}: nobody has written it");
        let both = engine.begin().scan(&lost[0], &[removed.as_slice(), &[0]].concat(), 9);
        assert!(both.is_err(), "{when}: there may have been keys between the two");
        let one = engine.begin().scan(&lost[0], &[lost[0].as_slice(), &[0]].concat(), 9).unwrap();
        assert_eq!(one, [(lost[0].clone(), vec![9; 50])], "{when}");
    };
    check(&*engine, "in memory");
    engine.close().unwrap();
    drop(engine);
    disk.kill();
    check(&*open(&disk, 40_000).unwrap(), "in the checkpoint");
}

/// A disk that did not answer for a while must not cost what it has.
#[test]
fn what_can_be_read_again_is_not_lost() {
    let disk = disk_with(&closed_volume());
    let engine = open(&disk, 40_000).unwrap();
    disk.fail_reads(CHECKPOINT_FILE, std::io::ErrorKind::Other);
    let unreadable = truth().keys().filter(|key| engine.begin().get(key).is_err()).count();
    assert!(unreadable > 3_000, "{unreadable}");
    disk.clear_faults();
    let more = truth().into_keys().step_by(5).map(|key| (key, vec![9; 50])).collect();
    write(&*engine, &more);
    assert_eq!(check_after(&*engine, &more), 0);
    let health = engine.health();
    assert!(health.damaged.is_empty() && health.lost_ranges == 0, "{health:?}");
}

#[test]
fn a_damaged_checkpoint_waits_for_room_to_be_written_anew() {
    let sound = closed_volume();
    let disk = disk_with(&sound);
    disk.corrupt(CHECKPOINT_FILE, bytes_of_records(&sound, 1)[0], 4).unwrap();
    let used: usize = sound.values().map(Vec::len).sum();
    disk.set_capacity(used as u64 + (3 << 20));
    let engine = open(&disk, 40_000).unwrap();
    let mut refused = None;
    for (key, _) in truth() {
        if let Err(error) = engine.room() {
            refused = Some(error);
            break;
        }
        write(&*engine, &BTreeMap::from([(key, vec![1; 100])]));
    }
    let refused = refused.expect("growth is refused");
    assert!(matches!(&refused, EngineError::Full(text) if text.contains("damaged")), "{refused}");
    let readable =
        truth().keys().filter(|key| engine.begin().get(key).is_ok_and(|value| value.is_some())).count();
    assert!(readable > 3500, "{readable} while it waits");
    disk.set_capacity(1 << 30);
    engine.maintain().unwrap();
    engine.room().unwrap();
    assert!(engine.health().lost_ranges > 0);
}

#[test]
fn a_scrub_mends_log_and_format_and_names_damage_that_only_the_disk_has() {
    let disk = disk_with(&closed_volume());
    let engine = open(&disk, 1 << 20).unwrap();
    let more = BTreeMap::from([(b"in the log".to_vec(), b"alone".to_vec())]);
    write(&*engine, &more);
    engine.sync().unwrap();
    assert!(engine.scrub(&mut |_, _| true).unwrap());
    let health = engine.health();
    assert!(health.damaged.is_empty() && health.mended.is_empty(), "{health:?}");

    let last_log = files(&disk).into_keys().rfind(|name| name.starts_with("log-0")).unwrap();
    disk.corrupt(&last_log, 70, 1).unwrap();
    disk.corrupt("FORMAT", 22, 1).unwrap();
    let mut bytes = 0;
    assert!(
        engine
            .scrub(&mut |read, _| {
                bytes += read;
                true
            })
            .unwrap()
    );
    assert!(bytes > 500_000, "{bytes}");
    let health = engine.health();
    assert_eq!((health.damaged.len(), health.mended.len()), (0, 2), "{health:?}");
    let at = bytes_of_records(&closed_volume(), 1)[0];
    disk.corrupt(CHECKPOINT_FILE, at, 1).unwrap();
    assert!(engine.scrub(&mut |_, _| true).unwrap());
    assert_eq!(engine.health().damaged.len(), 1);
    // The log's contents are in the checkpoint now, so that power loss cannot take them.
    disk.crash();
    drop(engine);
    let again = open(&disk, 1 << 20).unwrap();
    assert_eq!(again.begin().get(b"in the log").unwrap(), Some(b"alone".to_vec()));
}

/// A flipped bit of the header was repaired with no trace but a line in the service's log: the health report said
/// that all was well.
#[test]
fn a_damaged_copy_of_the_header_is_mended_and_told_of() {
    for (copy, is_running) in [(0, false), (1, false), (0, true), (1, true)] {
        let disk = disk_with(&closed_volume());
        let flip = || disk.corrupt(CHECKPOINT_FILE, copy * 4096 + 50, 1).unwrap();
        if !is_running {
            flip();
        }
        let engine = open(&disk, 40_000).unwrap();
        if is_running {
            flip();
        }
        for _ in 0..2 {
            assert!(engine.scrub(&mut |_, _| true).unwrap());
            let mended = engine.health().mended;
            assert!(mended.len() == 1 && mended[0].contains("headers of checkpoint"), "{mended:?}");
        }
        assert_eq!(read_all(&*engine, &truth(), "header"), 0);
        let bytes = &files(&disk)[CHECKPOINT_FILE];
        assert_eq!(bytes[..512], bytes[4096..4608], "the copies differ");
    }
}

#[test]
fn a_draft_that_a_crash_left_goes_with_the_next_start() {
    let disk = disk_with(&closed_volume());
    disk.open("checkpoint.new", Open::Create).unwrap().write_at(&[1; 100_000], 0).unwrap();
    disk.sync_all().unwrap();
    open(&disk, 40_000).unwrap();
    assert!(disk.open("checkpoint.new", Open::ReadOnly).is_err(), "it takes room for ever");
}

/// After a write that failed redb refuses every read, which is no damage.
#[test]
fn what_cannot_be_read_after_a_failed_write_is_not_called_damaged() {
    let disk = disk_with(&closed_volume());
    let engine = open(&disk, 40_000).unwrap();
    write(&*engine, &BTreeMap::from([(b"key".to_vec(), vec![1; 30_000])]));
    disk.fail_writes(CHECKPOINT_FILE, std::io::ErrorKind::Other);
    write(&*engine, &BTreeMap::from([(b"other".to_vec(), vec![1; 30_000])]));
    let mut transaction = engine.begin();
    transaction.put(b"third".to_vec(), b"value".to_vec());
    transaction.commit().unwrap();
    assert!(engine.flush().is_err() && engine.health().failure.is_some());
    let mut failed = 0;
    for key in truth().into_keys() {
        let end = [key.as_slice(), &[0]].concat();
        match engine.begin().scan(&key, &end, 10) {
            Ok(pairs) => assert_eq!(pairs.len(), 1),
            Err(EngineError::Io { .. } | EngineError::Failed(_)) => failed += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(failed > 0, "nothing failed: the test shows nothing");
}

/// Enough for several pages.
fn few() -> BTreeMap<Vec<u8>, Vec<u8>> {
    truth().into_iter().step_by(20).collect()
}

/// A directory as format 1 had it: the checkpoint a plain redb database.
fn volume_of_format_1(commits_in_log: u64) -> MemoryDisk {
    const IDENTITY: u64 = 0xFEED_F00D_1234_5678;
    let disk = MemoryDisk::new(2);
    let records: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("records");
    let progress: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("progress");
    let file = disk.open("base.redb", Open::CreateNew).unwrap();
    let database = redb::Database::builder().create_with_backend(PlainBackend(file)).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(records).unwrap();
        for (key, value) in few() {
            table.insert(key.as_slice(), value.as_slice()).unwrap();
        }
        transaction.open_table(progress).unwrap().insert("applied", 40).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let log = disk.open(&log::file_name(41), Open::CreateNew).unwrap();
    let mut bytes = Vec::new();
    super::record::append(&mut bytes, IDENTITY, 0, 0, &Writes::new());
    for n in 41..41 + commits_in_log {
        let writes = Writes::from([(format!("logged {n}").into_bytes(), Some(vec![n as u8]))]);
        super::record::append(&mut bytes, IDENTITY, n, 40, &writes);
    }
    log.write_at(&bytes, 0).unwrap();
    let lines = format!("vazao metadata\nformat 1\nidentity {IDENTITY:016x}\n");
    let text = format!("{lines}check {:08x}\n", vazao_model::checksum::crc32c(lines.as_bytes()));
    disk.open("FORMAT", Open::CreateNew).unwrap().write_at(text.as_bytes(), 0).unwrap();
    disk.sync_all().unwrap();
    disk
}

#[test]
fn a_directory_of_format_1_is_converted_wherever_that_is_interrupted() {
    for power_loss in [false, true] {
        for count in (0..).step_by(3) {
            let disk = volume_of_format_1(3);
            disk.fail_after(count, std::io::ErrorKind::Other);
            let is_done = open(&disk, 1 << 20).is_ok();
            if power_loss {
                disk.crash()
            } else {
                disk.kill()
            }
            disk.clear_faults();
            let engine = open(&disk, 1 << 20).unwrap_or_else(|e| panic!("after {count}: {e}"));
            let mut all = few();
            all.extend((41..44u8).map(|n| (format!("logged {n}").into_bytes(), vec![n])));
            assert_eq!(read_all(&*engine, &all, &format!("interrupted after {count}")), 0);
            assert!(engine.scrub(&mut |_, _| true).unwrap() && engine.health().damaged.is_empty());
            assert!(disk.open("base.redb", Open::ReadOnly).is_err(), "the old checkpoint is still there");
            if is_done {
                break;
            }
        }
    }
}

/// The draft of a conversion that was killed took the room that the next start asked for before it removed the draft.
#[test]
fn a_conversion_has_the_room_that_an_interrupted_one_took() {
    let disk = volume_of_format_1(3);
    let needed = 2 * disk.space().unwrap().used_bytes + (3 << 20);
    disk.set_capacity(disk.space().unwrap().used_bytes + needed);
    disk.open("checkpoint.new", Open::Create).unwrap().write_at(&vec![1; needed as usize / 2], 0).unwrap();
    disk.sync_all().unwrap();
    let engine = open(&disk, 1 << 20).unwrap();
    assert!(few().into_iter().all(|(key, value)| engine.begin().get(&key).unwrap() == Some(value)));
}

#[test]
fn what_is_damaged_or_has_no_room_is_not_converted() {
    let disk = volume_of_format_1(0);
    disk.set_capacity(disk.space().unwrap().used_bytes + (1 << 20));
    assert!(
        matches!(open(&disk, 1 << 20).err(), Some(EngineError::Full(text)) if text.contains("MiB of room"))
    );
    disk.set_capacity(1 << 30);
    let length = files(&disk)["base.redb"].len() as u64;
    (8 << 10..length).step_by(4 << 10).for_each(|at| disk.corrupt("base.redb", at + 300, 1).unwrap());
    let refused = open(&disk, 1 << 20).err();
    assert!(
        matches!(&refused, Some(EngineError::Corrupt(text)) if text.contains("base.redb is damaged")),
        "{refused:?}"
    );
}

/// A byte of the checkpoint that takes more than `share` of all records with it, and leaves some if `some`.
fn byte_above(sound: &Files, share: f64, some: bool) -> u64 {
    let count = truth().len();
    let is_above = |at: &u64| {
        let disk = disk_with(sound);
        disk.corrupt(CHECKPOINT_FILE, *at, 4).unwrap();
        let Ok(engine) = open(&disk, 40_000) else { return false };
        let lost = truth().keys().filter(|key| engine.begin().get(key).is_err()).count();
        lost as f64 > share * count as f64 && (lost == count) != some
    };
    let length = sound[CHECKPOINT_FILE].len() as u64;
    // The 20th byte of a page is within the numbers of a branch's children, or in those of a leaf.
    (3..length / 4096).map(|block| block * 4096 + 20).find(is_above).expect("there is one")
}

/// A flipped bit in an inner page cost all records below it with the next checkpoint, at worst the whole volume, though
/// the page was still in memory.
#[test]
fn records_below_a_damaged_inner_page_that_is_still_in_memory_are_not_lost() {
    let sound = closed_volume();
    let disk = disk_with(&sound);
    let engine =
        EmbeddedEngine::open(EngineOptions { cache_bytes: 1 << 20, ..options(&disk, 40_000) }).unwrap();
    assert_eq!(read_all(&*engine, &truth(), "nothing"), 0);
    disk.corrupt(CHECKPOINT_FILE, byte_above(&sound, 0.9, false), 4).unwrap();
    assert!(engine.scrub(&mut |_, _| true).unwrap());
    assert!(!engine.health().damaged.is_empty());
    let more = BTreeMap::from([(b"new".to_vec(), vec![1; 100])]);
    write(&*engine, &more);
    engine.close().unwrap();
    drop(engine);
    disk.kill();
    let again = open(&disk, 40_000).unwrap();
    assert_eq!((check_after(&*again, &more), again.health().lost_ranges), (0, 0));
    assert!(!files(&disk).contains_key("checkpoint.damaged"));
}

/// A checkpoint without the records that each start reads took the place of the damaged one, of which a restore could
/// have had the others.
#[test]
fn a_damaged_checkpoint_is_kept_when_too_much_would_be_lost() {
    let sound = closed_volume();
    let some = bytes_of_records(&sound, 1)[0];
    let disk = disk_with(&sound);
    disk.corrupt(CHECKPOINT_FILE, some, 4).unwrap();
    let probe = open(&disk, 40_000).unwrap();
    let key = truth().into_keys().find(|key| probe.begin().get(key).is_err()).unwrap();
    drop(probe);
    let essential = vec![key.clone()..[key.as_slice(), &[0]].concat()];
    for (at, essential) in [(some, essential), (byte_above(&sound, 0.3, false), Vec::new())] {
        let disk = disk_with(&sound);
        disk.corrupt(CHECKPOINT_FILE, at, 4).unwrap();
        let (clock, is_mended) = (Arc::new(ManualClock::default()), essential.is_empty());
        let with = EngineOptions { essential, clock: clock.clone(), ..options(&disk, 40_000) };
        let engine = EmbeddedEngine::open(with).unwrap();
        let readable = truth().keys().filter(|key| engine.begin().get(key).is_ok()).count();
        let more = BTreeMap::from_iter((0..1000u64).map(|n| (n.to_be_bytes().to_vec(), vec![1; 100])));
        write(&*engine, &more);
        engine.maintain().unwrap();
        assert_eq!(engine.health().lost_ranges, 0, "it was replaced");
        let names = files(&disk).into_keys().filter(|name| name.starts_with(CHECKPOINT_FILE));
        assert_eq!(names.collect::<Vec<_>>(), [CHECKPOINT_FILE]);
        assert_eq!(truth().keys().filter(|key| engine.begin().get(key).is_ok()).count(), readable);
        let refused = engine.room().unwrap_err().to_string();
        assert!(
            refused.contains("is not written anew") && engine.health().damaged[0] == refused,
            "{refused}"
        );
        if is_mended {
            disk.corrupt(CHECKPOINT_FILE, at, 4).unwrap();
            clock.advance(std::time::Duration::from_secs(601));
            engine.maintain().unwrap();
            engine.room().unwrap();
            assert_eq!(check_after(&*engine, &more), 0, "the disk gives it back");
        }
        engine.close().unwrap();
        drop(engine);
        disk.kill();
        let again = open(&disk, 1 << 20).unwrap();
        assert!(more.iter().all(|(key, value)| again.begin().get(key).unwrap().as_ref() == Some(value)));
    }
}

/// What was lost with the damaged checkpoint was gone from the disk with it.
#[test]
fn a_checkpoint_of_which_records_are_lost_is_kept_beside_its_successor() {
    let mut sound = closed_volume();
    let disk = disk_with(&sound);
    disk.corrupt(CHECKPOINT_FILE, bytes_of_records(&sound, 1)[0], 4).unwrap();
    for _ in 0..2 {
        let engine = open(&disk, 40_000).unwrap();
        write(&*engine, &BTreeMap::from([(b"new".to_vec(), vec![1; 50_000])]));
        assert!(read_all(&*engine, &truth(), "one page") > 0);
        engine.close().unwrap();
        assert!(engine.health().lost_ranges > 0);
        disk.kill();
        assert!(files(&disk)["checkpoint.damaged"].len() > 500_000);
    }
    // A crash before the new one had its name.
    let old = sound.remove(CHECKPOINT_FILE).unwrap();
    sound.extend([("checkpoint.damaged".to_owned(), old), ("checkpoint.new".to_owned(), vec![1; 9000])]);
    let disk = disk_with(&sound);
    assert_eq!(read_all(&*open(&disk, 40_000).unwrap(), &truth(), "put back"), 0);
    let names = files(&disk).into_keys().filter(|name| name.starts_with(CHECKPOINT_FILE));
    assert_eq!(names.collect::<Vec<_>>(), [CHECKPOINT_FILE]);
}
