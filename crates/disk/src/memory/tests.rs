//! The accidents of the disk in memory, and its contents against a plain vector of bytes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::ErrorKind;

fn bytes_of(disk: &MemoryDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(path, Open::ReadOnly).ok()?;
    let mut bytes = vec![0; file.length().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

fn write_synced(disk: &MemoryDisk, path: &str, bytes: &[u8]) {
    let file = disk.open(path, Open::Create).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

fn used_bytes(disk: &MemoryDisk) -> u64 {
    let space = disk.space().unwrap();
    space.capacity_bytes - space.available_bytes
}

/// Counts the outcomes of `story` over many seeds.
fn outcomes<T: Ord>(story: impl Fn(MemoryDisk) -> T) -> BTreeMap<T, u32> {
    let mut counts = BTreeMap::new();
    for seed in 0..200 {
        *counts.entry(story(MemoryDisk::new(seed))).or_default() += 1;
    }
    counts
}

#[test]
fn an_image_has_what_the_disk_had_and_goes_its_own_way() {
    let disk = MemoryDisk::new(1);
    disk.create_directory("a/b").unwrap();
    write_synced(&disk, "a/b/f", b"then");
    disk.open("hole", Open::Create).unwrap().write_at(&[7], 5 << 20).unwrap();
    let image = disk.image().unwrap();
    write_synced(&disk, "a/b/f", b"now!");
    image.crash();
    assert_eq!(bytes_of(&image, "a/b/f"), Some(b"then".to_vec()), "all of it is durable");
    assert_eq!(bytes_of(&image, "hole").map(|bytes| bytes.len()), Some((5 << 20) + 1));
    assert_eq!(bytes_of(&disk, "a/b/f"), Some(b"now!".to_vec()));
}

#[test]
fn a_crash_kills_open_handles_but_not_the_disk() {
    let disk = MemoryDisk::new(1);
    let booted = disk.boot();
    let file = booted.open("f", Open::Create).unwrap();
    disk.crash();
    assert_eq!(file.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(file.length().unwrap_err().raw_os_error(), Some(5));
    assert_eq!(file.read_cached_at(&mut [0], 0).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(booted.list("").unwrap_err().raw_os_error(), Some(5));
    assert_eq!(booted.space().unwrap_err().raw_os_error(), Some(5));
    disk.list("").unwrap();
    disk.boot().open("f", Open::Create).unwrap().write_at(b"x", 0).unwrap();
}

#[test]
fn a_kill_loses_nothing_and_frees_locks() {
    let disk = MemoryDisk::new(1);
    let file = disk.open("f", Open::Create).unwrap();
    file.write_at(b"unsynced", 0).unwrap();
    assert!(file.try_lock().unwrap());
    disk.kill();
    assert!(file.try_lock().is_err());
    assert_eq!(bytes_of(&disk, "f").unwrap(), b"unsynced");
    let again = disk.open("f", Open::Existing).unwrap();
    assert!(again.try_lock().unwrap());
    drop(file);
    assert!(!disk.open("f", Open::Existing).unwrap().try_lock().unwrap(), "an old handle freed a new lock");
}

#[test]
fn what_a_killed_process_left_unsynced_can_still_be_lost() {
    let seen = outcomes(|disk| {
        write_synced(&disk, "f", b"old");
        disk.sync_directory("").unwrap();
        disk.open("f", Open::Existing).unwrap().write_at(b"new", 0).unwrap();
        disk.kill();
        disk.crash();
        bytes_of(&disk, "f").unwrap()
    });
    assert!(seen.contains_key(&b"old"[..]) && seen.contains_key(&b"new"[..]), "{seen:?}");
}

#[test]
fn unsynced_writes_are_kept_dropped_reordered_and_torn() {
    let seen = outcomes(|disk| {
        write_synced(&disk, "f", &[0; 2048]);
        disk.sync_directory("").unwrap();
        let file = disk.open("f", Open::Existing).unwrap();
        file.write_at(&[1; 1024], 0).unwrap();
        file.write_at(&[2; 1024], 1024).unwrap();
        disk.crash();
        let bytes = bytes_of(&disk, "f").unwrap();
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|&b| b == sector[0])));
        bytes.into_iter().step_by(512).collect::<Vec<u8>>()
    });
    for expected in [[1, 1, 2, 2], [0, 0, 0, 0], [0, 0, 2, 2], [1, 1, 0, 0], [0, 1, 2, 2], [1, 0, 0, 0]] {
        assert!(seen.contains_key(&expected[..]), "{expected:?} never seen in {seen:?}");
    }
}

#[test]
fn names_survive_in_the_order_they_were_made() {
    let seen = outcomes(|disk| {
        for name in ["a", "b", "c"] {
            write_synced(&disk, name, b"contents");
        }
        disk.rename("a", "d").unwrap();
        disk.crash();
        let names: Vec<String> = disk.list("").unwrap().into_iter().map(|e| e.name).collect();
        names.concat()
    });
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["", "a", "ab", "abc", "bcd"], "{seen:?}");
}

#[test]
fn a_name_can_survive_without_its_contents() {
    let seen = outcomes(|disk| {
        disk.open("f", Open::Create).unwrap().write_at(b"x", 0).unwrap();
        disk.sync_directory("").unwrap();
        disk.crash();
        bytes_of(&disk, "f")
    });
    assert!(seen.contains_key(&Some(vec![])) && seen.contains_key(&Some(b"x".to_vec())), "{seen:?}");
    assert!(!seen.contains_key(&None));
}

#[test]
fn a_synced_file_in_an_unsynced_directory_can_vanish() {
    let seen = outcomes(|disk| {
        disk.create_directory("d/e").unwrap();
        disk.sync_directory("").unwrap();
        write_synced(&disk, "d/e/f", b"x");
        disk.sync_directory("d/e").unwrap();
        disk.crash();
        (disk.list("d").is_ok(), bytes_of(&disk, "d/e/f").is_some())
    });
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&(true, false), &(true, true)], "{seen:?}");
}

#[test]
fn a_move_between_directories_is_never_half_done() {
    let seen = outcomes(|disk| {
        disk.create_directory("a").unwrap();
        disk.create_directory("b").unwrap();
        disk.sync_directory("").unwrap();
        for name in ["a/1", "a/2", "b/3"] {
            write_synced(&disk, name, name.as_bytes());
        }
        disk.sync_directory("a").unwrap();
        disk.rename("a/1", "b/1").unwrap();
        disk.rename("b/3", "a/3").unwrap();
        disk.rename("a/2", "b/2").unwrap();
        disk.crash();
        ["a/1", "b/1", "a/2", "b/2", "a/3", "b/3"].map(|path| disk.open(path, Open::ReadOnly).is_ok())
    });
    assert!(seen.len() >= 4, "{seen:?}");
    for [a1, b1, a2, b2, a3, b3] in seen.into_keys() {
        assert!(a1 != b1 && a2 != b2 && !(a3 && b3));
    }
}

#[test]
fn syncing_one_directory_completes_the_moves_into_it() {
    for seed in 0..100 {
        let disk = MemoryDisk::new(seed);
        disk.create_directory("a").unwrap();
        disk.create_directory("b").unwrap();
        disk.sync_directory("").unwrap();
        write_synced(&disk, "a/f", b"x");
        disk.rename("a/f", "b/f").unwrap();
        disk.sync_directory("b").unwrap();
        disk.crash();
        assert_eq!(bytes_of(&disk, "b/f").unwrap(), b"x");
        assert_eq!(bytes_of(&disk, "a/f"), None);
    }
}

#[test]
fn after_a_failed_sync_a_later_one_promises_nothing() {
    let seen = outcomes(|disk| {
        write_synced(&disk, "f", b"old");
        disk.sync_directory("").unwrap();
        let file = disk.open("f", Open::Existing).unwrap();
        file.write_at(b"new", 0).unwrap();
        disk.fail_syncs("f", ErrorKind::Other);
        assert!(file.sync().is_err());
        disk.clear_faults();
        file.sync().unwrap();
        assert_eq!(bytes_of(&disk, "f").unwrap(), b"new", "the page cache still shows it");
        disk.crash();
        bytes_of(&disk, "f").unwrap()
    });
    assert!(seen.contains_key(&b"old"[..]) && seen.contains_key(&b"new"[..]), "{seen:?}");
}

#[test]
fn what_was_synced_with_the_whole_disk_survives() {
    for seed in 0..50 {
        let disk = MemoryDisk::new(seed);
        disk.create_directory("d/e").unwrap();
        disk.open("d/e/f", Open::Create).unwrap().write_at(b"x", 0).unwrap();
        disk.rename("d/e/f", "d/g").unwrap();
        disk.sync_all().unwrap();
        disk.remove("d/g").unwrap();
        disk.kill();
        disk.crash();
        assert!(disk.list("d/e").unwrap().is_empty());
        assert!(bytes_of(&disk, "d/g").is_none_or(|bytes| bytes == b"x"));
    }
}

#[test]
fn a_failed_sync_of_the_whole_disk_names_its_file() {
    let disk = MemoryDisk::new(1);
    disk.create_directory("d").unwrap();
    disk.open("d/f", Open::Create).unwrap();
    disk.fail_syncs("d/f", ErrorKind::TimedOut);
    let error = disk.sync_all().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("d/f"), "{error}");
}

#[test]
fn the_same_seed_has_the_same_accidents() {
    let story = |seed| {
        let disk = MemoryDisk::new(seed);
        for round in 0..20u8 {
            let file = disk.open(&format!("f{}", round % 7), Open::Create).unwrap();
            file.write_at(&vec![round; 3000], u64::from(round) * 100).unwrap();
            if round % 5 == 0 {
                disk.crash();
            }
        }
        disk.crash();
        (0..7).map(|n| bytes_of(&disk, &format!("f{n}"))).collect::<Vec<_>>()
    };
    assert_eq!(story(42), story(42));
    assert_ne!(story(42), story(43));
}

#[test]
fn operations_fail_after_the_given_number() {
    let disk = MemoryDisk::new(1);
    disk.fail_after(2, ErrorKind::Other);
    let file = disk.open("f", Open::Create).unwrap();
    file.write_at(b"x", 0).unwrap();
    assert_eq!(file.write_at(b"y", 0).unwrap_err().kind(), ErrorKind::Other);
    assert!(file.sync().is_err() && file.read_at(&mut [0], 0).is_err() && disk.list("").is_err());
    disk.clear_faults();
    assert_eq!(bytes_of(&disk, "f").unwrap(), b"x");
}

#[test]
fn faults_hit_the_paths_they_are_meant_for() {
    let disk = MemoryDisk::new(1);
    let (log, data) = (disk.open("log", Open::Create).unwrap(), disk.open("data", Open::Create).unwrap());
    disk.fail_writes("log", ErrorKind::StorageFull);
    assert_eq!(log.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::StorageFull);
    assert!(log.sync().is_err() && log.set_length(1).is_err() && disk.remove("log").is_err());
    assert_eq!(log.read_at(&mut [0], 0).unwrap(), 0);
    data.write_at(b"x", 0).unwrap();
    disk.fail_reads("data", ErrorKind::TimedOut);
    assert_eq!(data.read_at(&mut [0], 0).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(data.read_cached_at(&mut [0], 0).unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_full_disk_says_so_and_space_comes_back() {
    let disk = MemoryDisk::new(1);
    disk.set_capacity(8192);
    let file = disk.open("f", Open::Create).unwrap();
    file.write_at(&[1; 5000], 0).unwrap();
    let error = file.write_at(&[1; 5000], 8192).unwrap_err();
    assert_eq!((error.raw_os_error(), error.kind()), (Some(28), ErrorKind::StorageFull));
    file.write_at(&[2; 8192], 0).unwrap();
    assert_eq!(disk.space().unwrap().available_bytes, 0);
    file.set_length(10).unwrap();
    assert_eq!(used_bytes(&disk), 4096);
    disk.remove("f").unwrap();
    assert_eq!(used_bytes(&disk), 4096, "the file is still open");
    drop(file);
    assert_eq!(used_bytes(&disk), 0);
}

#[test]
fn a_replaced_file_frees_its_space() {
    let disk = MemoryDisk::new(1);
    write_synced(&disk, "a", &[1; 4096]);
    write_synced(&disk, "b", &[1; 4096 * 3]);
    disk.rename("a", "b").unwrap();
    assert_eq!(used_bytes(&disk), 4096);
    disk.sync_directory("").unwrap();
    disk.crash();
    assert_eq!(used_bytes(&disk), 4096);
}

#[test]
fn corruption_is_silent_and_survives_a_crash() {
    let disk = MemoryDisk::new(1);
    write_synced(&disk, "f", b"abc");
    disk.sync_directory("").unwrap();
    disk.corrupt("f", 1, 0xFF).unwrap();
    assert_eq!(bytes_of(&disk, "f").unwrap(), [b'a', b'b' ^ 0xFF, b'c']);
    disk.crash();
    assert_eq!(bytes_of(&disk, "f").unwrap(), [b'a', b'b' ^ 0xFF, b'c']);
    assert!(disk.corrupt("f", 3, 1).is_err());
    assert!(disk.corrupt("g", 0, 1).is_err());
}

#[test]
fn an_uncached_disk_declines_cached_reads() {
    let disk = MemoryDisk::new(1);
    write_synced(&disk, "f", b"abc");
    let file = disk.open("f", Open::ReadOnly).unwrap();
    disk.set_cached(false);
    assert_eq!(file.read_cached_at(&mut [0; 3], 0).unwrap(), None);
    assert_eq!(file.read_at(&mut [0; 3], 0).unwrap(), 3);
    disk.set_cached(true);
    assert_eq!(file.read_cached_at(&mut [0; 3], 0).unwrap(), Some(3));
}

#[test]
fn operations_are_counted() {
    let disk = MemoryDisk::new(1);
    let file = disk.open("f", Open::Create).unwrap();
    file.write_at(b"abc", 0).unwrap();
    file.read_at(&mut [0; 3], 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory("").unwrap();
    assert_eq!(disk.operations(), Operations { reads: 1, writes: 2, syncs: 2 });
}

#[test]
fn sparse_files_cost_their_pages_only() {
    let disk = MemoryDisk::new(1);
    let file = disk.open("f", Open::Create).unwrap();
    file.set_length(1 << 50).unwrap();
    file.write_at(b"x", 1 << 49).unwrap();
    assert_eq!(file.allocated_bytes().unwrap(), 4096);
    file.sync().unwrap();
    assert_eq!(file.length().unwrap(), 1 << 50);
}

#[test]
fn much_unsynced_data_is_written_back_without_being_asked() {
    let disk = MemoryDisk::new(3);
    let file = disk.open("f", Open::Create).unwrap();
    disk.sync_directory("").unwrap();
    let block = vec![7; 1 << 20];
    for index in 0..40 {
        file.write_at(&block, index << 20).unwrap();
    }
    disk.crash();
    let bytes = bytes_of(&disk, "f").unwrap();
    assert!(bytes.len() >= 24 << 20 && bytes[..24 << 20].iter().all(|&b| b == 7));
}

#[test]
fn crashes_under_busy_threads_leave_the_accounts_right() {
    let disk = MemoryDisk::new(5);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (disk, is_over) = (disk.clone(), &is_over);
            scope.spawn(move || {
                for round in (thread..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let _ = disturb(&disk, round);
                }
            });
        }
        for round in 0..60 {
            if round % 2 == 0 {
                disk.crash()
            } else {
                disk.kill()
            }
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    disk.kill();
    let allocated_bytes =
        |entry: &DiskEntry| disk.open(&entry.name, Open::ReadOnly).unwrap().allocated_bytes().unwrap();
    assert_eq!(used_bytes(&disk), disk.list("").unwrap().iter().map(allocated_bytes).sum::<u64>());
}

/// A few operations; the disk may go away under each.
fn disturb(disk: &MemoryDisk, round: u64) -> io::Result<()> {
    let file = disk.open(&format!("f{}", round % 5), Open::Create)?;
    file.write_at(&[1; 5000], round % 7 * 3000)?;
    file.sync()?;
    file.set_length(round % 11 * 1000)?;
    disk.rename(&format!("f{}", round % 5), &format!("f{}", round % 3))?;
    disk.sync_all()?;
    disk.remove(&format!("f{}", round % 4))
}

/// What a random client does to one file.
#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    SetLength(u64),
    Sync,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write =
        (0u64..20_000, prop::collection::vec(any::<u8>(), 0..6000)).prop_map(|(o, b)| Step::Write(o, b));
    let step = prop_oneof![
        6 => write, 2 => (0u64..25_000).prop_map(Step::SetLength), 2 => Just(Step::Sync), 1 => Just(Step::Kill)
    ];
    prop::collection::vec(step, 1..30)
}

/// The model's side of a step.
fn apply_to_model(model: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write(_, bytes) if bytes.is_empty() => {}
        Step::Write(offset, bytes) => {
            let end = *offset as usize + bytes.len();
            model.resize(model.len().max(end), 0);
            model[*offset as usize..end].copy_from_slice(bytes);
        }
        Step::SetLength(length) => model.resize(*length as usize, 0),
        Step::Sync | Step::Kill => {}
    }
}

fn apply_to_disk(disk: &MemoryDisk, file: &mut Arc<dyn DiskFile>, step: &Step) {
    match step {
        Step::Write(offset, bytes) => file.write_at(bytes, *offset).unwrap(),
        Step::SetLength(length) => file.set_length(*length).unwrap(),
        Step::Sync => file.sync().unwrap(),
        Step::Kill => {
            disk.kill();
            *file = disk.open("f", Open::Existing).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn reads_agree_with_a_vector_of_bytes(steps in steps()) {
        let disk = MemoryDisk::new(1);
        let mut file = disk.open("f", Open::Create).unwrap();
        let mut model = Vec::new();
        for step in &steps {
            apply_to_disk(&disk, &mut file, step);
            apply_to_model(&mut model, step);
            prop_assert_eq!(&bytes_of(&disk, "f").unwrap(), &model);
            prop_assert_eq!(used_bytes(&disk), file.allocated_bytes().unwrap());
        }
    }

    #[test]
    fn synced_contents_survive_every_crash(seed in any::<u64>(), steps in steps()) {
        let disk = MemoryDisk::new(seed);
        let mut file = disk.open("f", Open::Create).unwrap();
        disk.sync_directory("").unwrap();
        let mut model = Vec::new();
        for step in &steps {
            apply_to_disk(&disk, &mut file, step);
            apply_to_model(&mut model, step);
        }
        file.sync().unwrap();
        disk.crash();
        prop_assert_eq!(&bytes_of(&disk, "f").unwrap(), &model);
        prop_assert_eq!(used_bytes(&disk), disk.open("f", Open::ReadOnly).unwrap().allocated_bytes().unwrap());
    }

    /// Each byte after a crash is one that some unsynced step, or the last sync, could have left there.
    #[test]
    fn a_crash_invents_no_bytes(seed in any::<u64>(), before in steps(), after in steps()) {
        let disk = MemoryDisk::new(seed);
        let mut file = disk.open("f", Open::Create).unwrap();
        disk.sync_directory("").unwrap();
        let mut model = Vec::new();
        for step in &before {
            apply_to_disk(&disk, &mut file, step);
            apply_to_model(&mut model, step);
        }
        file.sync().unwrap();
        let mut possible: Vec<Vec<u8>> = model.iter().map(|&byte| vec![byte, 0]).collect();
        for step in after.iter().filter(|step| !matches!(step, Step::Sync)) {
            apply_to_disk(&disk, &mut file, step);
            if let Step::Write(offset, bytes) = step {
                possible.resize(possible.len().max(*offset as usize + bytes.len()), vec![0]);
                bytes.iter().zip(&mut possible[*offset as usize..]).for_each(|(b, place)| place.push(*b));
            }
        }
        disk.crash();
        for (at, byte) in bytes_of(&disk, "f").unwrap().into_iter().enumerate() {
            prop_assert!(possible.get(at).map_or(byte == 0, |p| p.contains(&byte)), "byte {byte} at {at}");
        }
    }
}
