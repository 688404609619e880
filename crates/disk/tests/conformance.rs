//! What every disk does alike: one suite, run over the real disk and the one in memory.
#![allow(clippy::unwrap_used, reason = "a test that panics fails, which is what it should do then")]

use std::io::ErrorKind;
use vazao_disk::{Disk, MemoryDisk, Open, RealDisk};

/// Runs each function of the suite over both disks, as `real::…` and `memory::…`.
macro_rules! conformance {
    ($($name:ident)*) => {
        mod real {
            $(#[test] fn $name() {
                let directory = tempfile::tempdir().expect("a temporary directory");
                super::$name(&super::RealDisk::open(directory.path()).expect("the directory exists"));
            })*
        }
        mod memory {
            $(#[test] fn $name() { super::$name(&super::MemoryDisk::new(1)); })*
        }
    };
}

conformance! {
    what_was_written_is_read
    a_read_is_short_only_at_the_end
    a_cached_read_is_a_read
    a_write_beyond_the_end_leaves_zeros_and_no_storage_between
    a_shortened_file_does_not_show_its_old_end_again
    a_hole_reads_as_zeros_and_gives_its_storage_back
    data_is_found_between_holes
    a_file_is_opened_as_it_was_asked_for
    a_file_for_reading_refuses_changes
    offsets_that_no_kernel_addresses_are_refused
    missing_names_and_wrong_types_are_told_apart
    paths_that_leave_the_root_are_refused
    directories_are_created_with_those_above
    a_list_shows_names_and_types
    a_rename_replaces
    an_open_file_survives_its_name
    a_file_knows_whether_it_has_a_name
    removing_and_renaming_what_is_not_there_fails
    a_lock_excludes_other_handles_until_it_is_closed
    the_root_can_be_synced_and_listed
    everything_is_synced_at_once
    space_is_reported
    several_threads_may_use_one_file
}

fn a_file_knows_whether_it_has_a_name(disk: &dyn Disk) {
    write_all(disk, "f", b"1");
    let file = disk.open("f", Open::Existing).unwrap();
    assert!(file.is_named().unwrap());
    disk.rename("f", "g").unwrap();
    assert!(file.is_named().unwrap());
    write_all(disk, "other", b"2");
    disk.rename("other", "g").unwrap();
    assert!(!file.is_named().unwrap(), "replaced");
    let file = disk.open("g", Open::Existing).unwrap();
    disk.remove("g").unwrap();
    assert!(!file.is_named().unwrap(), "removed");
    file.write_at(b"3", 0).unwrap();
    file.sync().unwrap();
    disk.check_place().unwrap();
}

/// A directory that was removed, renamed or replaced takes every write and every sync with success.
#[test]
fn a_real_directory_that_is_not_where_it_was_opened_is_noticed() {
    let below = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (below.path().join("d"), below.path().join("e"));
    for lose in 0..3 {
        std::fs::create_dir(&path).unwrap();
        let disk = RealDisk::open(&path).unwrap();
        let file = disk.open("f", Open::Create).unwrap();
        disk.check_place().unwrap();
        match lose {
            0 => std::fs::remove_dir_all(&path).unwrap(),
            1 => std::fs::rename(&path, &elsewhere).unwrap(),
            _ => {
                std::fs::rename(&path, &elsewhere).unwrap();
                std::fs::create_dir(&path).unwrap();
            }
        }
        file.write_at(b"x", 0).unwrap();
        file.sync().unwrap();
        let error = disk.check_place().unwrap_err();
        assert!(
            error.kind() == ErrorKind::NotFound && error.to_string().contains("/d was removed"),
            "{error}"
        );
        let _ = std::fs::remove_dir_all(&path);
        let _ = std::fs::remove_dir_all(&elsewhere);
    }
}

fn read_all(disk: &dyn Disk, path: &str) -> Vec<u8> {
    let file = disk.open(path, Open::ReadOnly).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn write_all(disk: &dyn Disk, path: &str, bytes: &[u8]) {
    let file = disk.open(path, Open::Create).unwrap();
    file.set_length(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

fn open_error(disk: &dyn Disk, path: &str, how: Open) -> ErrorKind {
    match disk.open(path, how) {
        Ok(_) => panic!("{path} opened as {how:?}"),
        Err(error) => error.kind(),
    }
}

fn what_was_written_is_read(disk: &dyn Disk) {
    let file = disk.open("f", Open::CreateNew).unwrap();
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    file.write_at(&bytes, 0).unwrap();
    file.write_at(b"across a page", 4090).unwrap();
    let mut expected = bytes;
    expected[4090..4103].copy_from_slice(b"across a page");
    file.sync().unwrap();
    assert_eq!(read_all(disk, "f"), expected);
}

fn a_read_is_short_only_at_the_end(disk: &dyn Disk) {
    write_all(disk, "f", &[7; 10_000]);
    let file = disk.open("f", Open::Existing).unwrap();
    let mut buffer = vec![0; 8_000];
    assert_eq!(file.read_at(&mut buffer, 1_000).unwrap(), 8_000);
    assert_eq!(file.read_at(&mut buffer, 5_000).unwrap(), 5_000);
    assert_eq!(file.read_at(&mut buffer, 10_000).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    assert_eq!(file.read_at(&mut [], 3).unwrap(), 0);
}

fn a_cached_read_is_a_read(disk: &dyn Disk) {
    write_all(disk, "f", b"just written, so it is in the cache");
    let file = disk.open("f", Open::ReadOnly).unwrap();
    let mut buffer = vec![0; 100];
    for _ in 0..2 {
        assert_eq!(file.read_cached_at(&mut buffer, 5).unwrap(), Some(30));
        assert_eq!(&buffer[..30], b"written, so it is in the cache");
    }
    assert_eq!(file.read_cached_at(&mut buffer, 35).unwrap(), Some(0));
}

fn a_write_beyond_the_end_leaves_zeros_and_no_storage_between(disk: &dyn Disk) {
    let file = disk.open("f", Open::Create).unwrap();
    file.write_at(b"end", 1 << 30).unwrap();
    assert_eq!(file.length().unwrap(), (1 << 30) + 3);
    let mut buffer = [1; 6];
    assert_eq!(file.read_at(&mut buffer, (1 << 30) - 3).unwrap(), 6);
    assert_eq!(&buffer, b"\0\0\0end");
    file.sync().unwrap();
    let allocated_bytes = file.allocated_bytes().unwrap();
    assert!((1..1 << 20).contains(&allocated_bytes), "{allocated_bytes} bytes allocated");
}

fn a_shortened_file_does_not_show_its_old_end_again(disk: &dyn Disk) {
    write_all(disk, "f", &[9; 10_000]);
    let file = disk.open("f", Open::Existing).unwrap();
    file.set_length(5_000).unwrap();
    assert_eq!(file.length().unwrap(), 5_000);
    file.set_length(9_000).unwrap();
    let mut expected = vec![9; 5_000];
    expected.resize(9_000, 0);
    assert_eq!(read_all(disk, "f"), expected);
}

fn a_hole_reads_as_zeros_and_gives_its_storage_back(disk: &dyn Disk) {
    let bytes = vec![7; 1 << 20];
    write_all(disk, "f", &bytes);
    let file = disk.open("f", Open::Existing).unwrap();
    file.sync().unwrap();
    let before = file.allocated_bytes().unwrap();
    file.punch_hole(100_001, 800_000).unwrap();
    file.sync().unwrap();
    let mut expected = bytes;
    expected[100_001..900_001].fill(0);
    assert_eq!(read_all(disk, "f"), expected);
    assert!(file.allocated_bytes().unwrap() <= before - 700_000, "no storage came back");
    file.punch_hole(1_000_000, u64::MAX / 4).unwrap();
    file.punch_hole(1 << 30, 1 << 20).unwrap();
    assert_eq!(file.length().unwrap(), 1 << 20, "a hole does not change the length");
    expected[1_000_000..].fill(0);
    assert_eq!(read_all(disk, "f"), expected);
    assert!(disk.open("f", Open::ReadOnly).unwrap().punch_hole(0, 10).is_err());
}

fn data_is_found_between_holes(disk: &dyn Disk) {
    let file = disk.open("f", Open::Create).unwrap();
    assert_eq!(file.next_data(0).unwrap(), None);
    file.write_at(&[1; 65536], 1 << 20).unwrap();
    file.write_at(&[1; 100], 1 << 22).unwrap();
    file.set_length(1 << 24).unwrap();
    let first = file.next_data(0).unwrap().unwrap();
    assert!(first.start <= 1 << 20 && first.start > 0, "{first:?}");
    assert!(first.end >= (1 << 20) + 65536 && first.end < 1 << 22, "{first:?}");
    assert_eq!(file.next_data((1 << 20) + 10).unwrap().unwrap().start, (1 << 20) + 10);
    let second = file.next_data(first.end).unwrap().unwrap();
    assert!(second.start > first.end && second.start <= 1 << 22, "{second:?}");
    assert!(second.end >= (1 << 22) + 100 && second.end < 1 << 24, "{second:?}");
    assert_eq!(file.next_data(second.end).unwrap(), None);
    assert_eq!(file.next_data(1 << 40).unwrap(), None);
    file.punch_hole(1 << 20, 65536).unwrap();
    assert!(file.next_data(0).unwrap().unwrap().start > 1 << 21);
}

fn a_file_is_opened_as_it_was_asked_for(disk: &dyn Disk) {
    assert_eq!(open_error(disk, "f", Open::Existing), ErrorKind::NotFound);
    assert_eq!(open_error(disk, "f", Open::ReadOnly), ErrorKind::NotFound);
    disk.open("f", Open::CreateNew).unwrap().write_at(b"x", 0).unwrap();
    assert_eq!(open_error(disk, "f", Open::CreateNew), ErrorKind::AlreadyExists);
    assert_eq!(disk.open("f", Open::Create).unwrap().length().unwrap(), 1, "Create must not empty the file");
    assert_eq!(disk.open("f", Open::Existing).unwrap().length().unwrap(), 1);
}

fn a_file_for_reading_refuses_changes(disk: &dyn Disk) {
    write_all(disk, "f", b"abc");
    let file = disk.open("f", Open::ReadOnly).unwrap();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.set_length(0).is_err());
    assert_eq!(read_all(disk, "f"), b"abc");
}

fn offsets_that_no_kernel_addresses_are_refused(disk: &dyn Disk) {
    let file = disk.open("f", Open::Create).unwrap();
    assert!(file.write_at(b"x", u64::MAX).is_err());
    assert!(file.write_at(b"x", 1 << 63).is_err());
    assert!(file.set_length(u64::MAX).is_err());
    assert!(file.read_at(&mut [0], u64::MAX).is_err());
    assert_eq!(file.length().unwrap(), 0);
}

fn missing_names_and_wrong_types_are_told_apart(disk: &dyn Disk) {
    disk.create_directory("d").unwrap();
    write_all(disk, "f", b"");
    assert_eq!(open_error(disk, "d", Open::Existing), ErrorKind::IsADirectory);
    assert_eq!(open_error(disk, "f/x", Open::Create), ErrorKind::NotADirectory);
    assert_eq!(open_error(disk, "none/x", Open::Create), ErrorKind::NotFound);
    assert_eq!(disk.list("f").unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(disk.list("none").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.sync_directory("none").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.create_directory("f").unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(disk.create_directory("f/x").unwrap_err().kind(), ErrorKind::NotADirectory);
}

fn paths_that_leave_the_root_are_refused(disk: &dyn Disk) {
    write_all(disk, "f", b"");
    for bad in ["../f", "/etc/passwd", "d/../../f"] {
        assert_eq!(open_error(disk, bad, Open::Create), ErrorKind::InvalidInput);
        assert_eq!(disk.create_directory(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(disk.remove(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(disk.rename("f", bad).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(disk.list(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

fn directories_are_created_with_those_above(disk: &dyn Disk) {
    disk.create_directory("a/b/c").unwrap();
    disk.create_directory("a/b").unwrap();
    write_all(disk, "a/b/c/f", b"deep");
    assert_eq!(read_all(disk, "a/b/c/f"), b"deep");
}

fn a_list_shows_names_and_types(disk: &dyn Disk) {
    disk.create_directory("d/sub").unwrap();
    write_all(disk, "d/file", b"");
    let mut entries = disk.list("d").unwrap();
    entries.sort();
    let shown: Vec<(&str, bool)> = entries.iter().map(|e| (e.name.as_str(), e.is_directory)).collect();
    assert_eq!(shown, [("file", false), ("sub", true)]);
    assert!(disk.list("d/sub").unwrap().is_empty());
}

fn a_rename_replaces(disk: &dyn Disk) {
    disk.create_directory("d").unwrap();
    write_all(disk, "f", b"new");
    write_all(disk, "d/f", b"old");
    disk.rename("f", "d/f").unwrap();
    assert_eq!(read_all(disk, "d/f"), b"new");
    disk.rename("d/f", "d/f").unwrap();
    disk.rename("d/f", "d/g").unwrap();
    assert_eq!(disk.list("d").unwrap().len(), 1);
    assert_eq!(open_error(disk, "f", Open::Existing), ErrorKind::NotFound);
    disk.create_directory("empty").unwrap();
    assert_eq!(disk.rename("d/g", "empty").unwrap_err().kind(), ErrorKind::IsADirectory);
}

fn an_open_file_survives_its_name(disk: &dyn Disk) {
    write_all(disk, "f", b"still here");
    let file = disk.open("f", Open::Existing).unwrap();
    disk.remove("f").unwrap();
    write_all(disk, "f", b"another");
    let mut buffer = [0; 10];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10);
    assert_eq!(&buffer, b"still here");
    file.write_at(b"!", 10).unwrap();
    assert_eq!(read_all(disk, "f"), b"another");
}

fn removing_and_renaming_what_is_not_there_fails(disk: &dyn Disk) {
    assert_eq!(disk.remove("f").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.rename("f", "g").unwrap_err().kind(), ErrorKind::NotFound);
    disk.create_directory("d").unwrap();
    assert_eq!(disk.remove("d").unwrap_err().kind(), ErrorKind::IsADirectory);
}

fn a_lock_excludes_other_handles_until_it_is_closed(disk: &dyn Disk) {
    let first = disk.open("lock", Open::Create).unwrap();
    let second = disk.open("lock", Open::Create).unwrap();
    assert!(first.try_lock().unwrap());
    assert!(first.try_lock().unwrap());
    assert!(!second.try_lock().unwrap());
    drop(disk.open("lock", Open::Existing).unwrap());
    assert!(!second.try_lock().unwrap(), "closing a handle without the lock freed it");
    drop(first);
    assert!(second.try_lock().unwrap());
}

fn the_root_can_be_synced_and_listed(disk: &dyn Disk) {
    write_all(disk, "f", b"");
    for root in ["", "."] {
        disk.sync_directory(root).unwrap();
        assert_eq!(disk.list(root).unwrap().len(), 1);
        disk.create_directory(root).unwrap();
    }
}

fn everything_is_synced_at_once(disk: &dyn Disk) {
    disk.sync_all().unwrap();
    disk.create_directory("d/e").unwrap();
    write_all(disk, "d/e/f", b"x");
    disk.sync_all().unwrap();
    assert_eq!(read_all(disk, "d/e/f"), b"x");
}

fn space_is_reported(disk: &dyn Disk) {
    let space = disk.space().unwrap();
    assert!(space.capacity_bytes >= space.available_bytes + space.used_bytes);
    assert!(space.available_bytes > 0);
}

fn several_threads_may_use_one_file(disk: &dyn Disk) {
    let file = disk.open("f", Open::Create).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let file = file.clone();
            scope.spawn(move || {
                for round in 0..64u64 {
                    file.write_at(&[thread; 1000], (round * 4 + u64::from(thread)) * 1000).unwrap();
                }
            });
        }
    });
    let bytes = read_all(disk, "f");
    assert!(bytes.iter().enumerate().all(|(at, &byte)| usize::from(byte) == at / 1000 % 4));
}
