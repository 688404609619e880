//! A metadata disk without room: growth is refused in time, removals are not, and nothing answered is lost.

use super::harness::{Servers, TOP, World, call, options};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_model::{Code, FileKind};
use vazao_wire::{op, proto};

/// Creates files until that is refused; returns how many were not there before.
fn fill(world: &World) -> usize {
    let mut made = 0;
    for number in 0..100_000 {
        match world.make(TOP, &format!("f{number}"), FileKind::File) {
            Ok(_) => made += 1,
            Err(Code::Exists) => {}
            Err(Code::NoSpace) => return made,
            Err(other) => panic!("file {number}: {other}"),
        }
    }
    panic!("the disk is never full")
}

/// Removing tens of thousands of files takes longer than a session lives by itself.
fn renew(world: &World) {
    let request = proto::RenewSessionRequest { session: world.session, ..Default::default() };
    world.call::<op::RenewSession>(&request).unwrap();
}

/// Removes everything but each `kept`th file.
fn empty(world: &World, kept: usize) {
    for (n, name) in world.names(TOP).iter().enumerate() {
        if n % 1_000 == 0 {
            renew(world);
        }
        if n % kept > 0 {
            world.remove(TOP, name, false).unwrap_or_else(|e| panic!("file {n}: {e}"));
            world.clock.advance(Duration::from_millis(2));
        }
    }
}

/// What the service does by itself in some seconds.
fn maintain(world: &World) {
    for _ in 0..5 {
        world.clock.advance(Duration::from_secs(1));
        world.service.tick(&Servers::default());
    }
}

fn used(disk: &MemoryDisk) -> u64 {
    disk.space().unwrap().used_bytes
}

#[test]
fn growth_is_refused_in_time_and_everything_can_be_removed_and_created_again() {
    let disk = MemoryDisk::new(1);
    disk.set_capacity(8 << 20);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let count = fill(&world);
    assert!(count > 300, "{count} files");
    for refused in 0..2_000 {
        assert_eq!(world.make(TOP, &format!("more {refused}"), FileKind::File), Err(Code::NoSpace));
    }
    let request = proto::CreateRequest { parent: TOP.0, name: b"x".to_vec(), kind: 1, ..Default::default() };
    let fault = world.try_call::<op::Create>(&request).unwrap_err();
    assert!(fault.detail.contains("metadata disk") && fault.detail.contains("make room"), "{fault}");
    assert_eq!(world.names(TOP).len(), count);
    let f = vazao_model::InodeId(world.lookup(TOP, "f0").unwrap().inode);
    world.open(f).unwrap();
    renew(&world);
    for n in 0..count {
        if n % 1_000 == 0 {
            renew(&world);
        }
        world.remove(TOP, &format!("f{n}"), false).unwrap_or_else(|e| panic!("file {n} of {count}: {e}"));
        world.clock.advance(Duration::from_millis(5));
    }
    let servers = Servers::default();
    (0..3).for_each(|_| {
        world.clock.advance(Duration::from_secs(1));
        world.service.tick(&servers);
    });
    world.directory(TOP, "d");
    disk.kill();
    drop(world);
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(again.names(TOP), ["d"]);
    again.assert_consistent();
}

/// `rm` of everything on a full disk ended after 3,062 of 10,646 files with an input/output error.
#[test]
fn everything_can_be_removed_from_a_full_disk_again_and_again_over_kills_and_losses_of_power() {
    for (seed, mebibytes, ends) in [(1, 4, 0), (2, 6, 0), (3, 5, 7), (4, 4, 40)] {
        let disk = MemoryDisk::new(seed);
        disk.set_capacity(mebibytes << 20);
        let mut world = World::on(Arc::new(disk.boot()), options("embedded"));
        let mut first = 0;
        for round in 0..3 {
            let count = fill(&world);
            first = first.max(count);
            assert!(
                count >= 100 && count * 10 >= first * 8,
                "seed {seed}, round {round}: {count} of {first} files"
            );
            for n in 0..count {
                if ends > 0 && n % (count / ends).max(1) == 0 {
                    world.call::<op::Sync>(&proto::SyncRequest {}).unwrap();
                    if n % 2 == 0 {
                        disk.kill()
                    } else {
                        disk.crash()
                    }
                    world = world.started_again(&disk, options("embedded"));
                }
                if n % 1_000 == 0 {
                    renew(&world);
                }
                let place = format!("seed {seed}, round {round}, file {n} of {count}");
                world.remove(TOP, &format!("f{n}"), false).unwrap_or_else(|e| panic!("{place}: {e}"));
                world.clock.advance(Duration::from_millis(2));
            }
            assert_eq!(world.names(TOP), Vec::<String>::new());
            let servers = Servers::default();
            (0..3).for_each(|_| {
                world.clock.advance(Duration::from_secs(1));
                world.service.tick(&servers);
            });
            world.assert_consistent();
        }
    }
}

/// A checkpoint in slices is cut short at every point: what was answered and synced is there, whole.
#[test]
fn power_lost_between_the_slices_of_a_checkpoint_leaves_a_whole_tree() {
    for seed in 0..30 {
        let disk = MemoryDisk::new(seed);
        disk.set_capacity(3 << 20);
        let world = World::on(Arc::new(disk.boot()), options("embedded"));
        let count = fill(&world);
        world.call::<op::Sync>(&proto::SyncRequest {}).unwrap();
        disk.fail_after(40 + 37 * seed, ErrorKind::Other);
        let mut removed = 0;
        while removed < count && world.remove(TOP, &format!("f{removed}"), false).is_ok() {
            removed += 1;
            world.clock.advance(Duration::from_millis(2));
        }
        disk.crash();
        disk.clear_faults();
        drop(world);
        // After a failed sync the start writes the checkpoint again, beside the one that is there.
        disk.set_capacity(8 << 20);
        let again = World::on(Arc::new(disk.boot()), options("embedded"));
        again.assert_consistent();
        let names = again.names(TOP);
        let gone = (0..count).take_while(|n| !names.contains(&format!("f{n}"))).count();
        assert_eq!(
            names.len(),
            count - gone,
            "seed {seed}: a removal that came later, but not one before it"
        );
        assert!(gone <= removed + 1, "seed {seed}: {gone} files are gone, {removed} were removed");
    }
}

/// A metadata disk that was full once refused new files for ever after: the pages of removed records stayed in the
/// checkpoint's file.
#[test]
fn a_full_disk_that_was_emptied_takes_new_files_again() {
    for mebibytes in [2, 3, 4, 6] {
        let disk = MemoryDisk::new(mebibytes);
        disk.set_capacity(mebibytes << 20);
        let world = World::on(Arc::new(disk.boot()), options("embedded"));
        let first = fill(&world);
        for round in 0..4 {
            empty(&world, 20);
            maintain(&world);
            let count = fill(&world);
            assert!(count * 10 >= first * 8, "{mebibytes} MiB, round {round}: {count} files after {first}");
            world.assert_consistent();
        }
    }
}

/// The same, with files of another program taking all room that was left before anything was removed.
#[test]
fn new_files_work_again_on_a_disk_that_others_had_filled_to_the_last_byte() {
    let disk = MemoryDisk::new(5);
    disk.set_capacity(6 << 20);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let first = fill(&world);
    let left = disk.space().unwrap().available_bytes;
    let others = disk.boot().open("others", Open::Create).unwrap();
    others.write_at(&vec![1; (left - (640 << 10)) as usize], 0).unwrap();
    empty(&world, 20);
    maintain(&world);
    drop(others);
    disk.boot().remove("others").unwrap();
    let count = fill(&world);
    assert!(count * 10 >= first * 8, "{count} files after {first}");
    world.assert_consistent();
}

/// How long the checkpoint's file is, and what it takes.
fn checkpoint(disk: &MemoryDisk) -> String {
    let file = disk.boot().open("checkpoint", Open::ReadOnly).unwrap();
    format!("checkpoint of {} bytes takes {}", file.length().unwrap(), file.allocated_bytes().unwrap())
}

/// Operations of the disk so far.
fn operations(disk: &MemoryDisk) -> u64 {
    let all = disk.operations();
    all.reads + all.writes + all.syncs
}

/// A disk that was full and has a twentieth of its files left, and how many they were at first.
fn emptied(capacity: u64) -> (MemoryDisk, usize) {
    let disk = MemoryDisk::new(0);
    disk.set_capacity(capacity);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let first = fill(&world);
    empty(&world, 20);
    world.call::<op::Sync>(&proto::SyncRequest {}).unwrap();
    (disk, first)
}

/// A copy of `disk` with a service on it that was started there.
fn copy_of(disk: &MemoryDisk, capacity: u64) -> (MemoryDisk, World) {
    let copy = disk.image().unwrap();
    copy.set_capacity(capacity);
    let world = World::on(Arc::new(copy.boot()), options("embedded"));
    (copy, world)
}

/// Compaction is cut short at every operation of the disk, by the process's death and by loss of power.
#[test]
fn a_compaction_that_is_cut_short_anywhere_leaves_a_whole_tree_and_is_made_up_for() {
    // Emptied, it has to have less room than the reserve: redb itself gives back much or little, as it comes. In the
    // middle of such sizes a compaction that was cut short has the room to begin again.
    let sizes = (0..12).map(|step| (3 << 20) + step * (64 << 10));
    let compacted = sizes.filter_map(|capacity| {
        let (disk, first) = emptied(capacity);
        let (copy, world) = copy_of(&disk, capacity);
        let (before, allocated) = (operations(&copy), used(&copy));
        maintain(&world);
        let needed = operations(&copy) - before;
        (used(&copy) < allocated / 2).then_some((disk, capacity, first, needed))
    });
    let mut compacted: Vec<_> = compacted.collect();
    assert!(!compacted.is_empty(), "no size of the disk makes it compact");
    let (disk, capacity, first, needed) = compacted.swap_remove(compacted.len() / 2);
    for (number, after) in (0..needed).step_by((needed / 30).max(1) as usize).enumerate() {
        let (disk, world) = copy_of(&disk, capacity);
        let names = world.names(TOP);
        disk.fail_after(after, ErrorKind::Other);
        maintain(&world);
        if number % 2 == 0 {
            disk.kill();
        } else {
            disk.crash();
        }
        disk.clear_faults();
        drop(world);
        let again = World::on(Arc::new(disk.boot()), options("embedded"));
        again.assert_consistent();
        assert_eq!(again.names(TOP), names, "cut short after {after} operations");
        maintain(&again);
        for number in 0..first / 4 {
            let make = || again.make(TOP, &format!("new {number}"), FileKind::File);
            // The service looks at the room left each second, and so may the test.
            let made = make().or_else(|_| {
                maintain(&again);
                make()
            });
            let health = || again.service.engine().health();
            let state =
                || format!("{} of {capacity} bytes used, {}; {:?}", used(&disk), checkpoint(&disk), health());
            assert!(
                made.is_ok(),
                "cut short after {after}: {made:?} for new file {number} of {first}; {}",
                state()
            );
        }
    }
}

#[test]
fn a_larger_disk_is_used_at_once() {
    let disk = MemoryDisk::new(1);
    disk.set_capacity(3 << 20);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    fill(&world);
    disk.set_capacity(30 << 20);
    world.directory(TOP, "d");
}

#[test]
fn reads_are_answered_while_the_log_cannot_be_written_and_changes_get_no_space() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    world.file(TOP, "before");
    disk.fail_writes("log-", ErrorKind::StorageFull);
    let request = proto::CreateRequest { parent: TOP.0, name: b"x".to_vec(), kind: 1, ..Default::default() };
    // The commit is made and cannot be written: this one answer is withheld.
    assert!(call::<op::Create>(&world.service, &request).is_err());
    assert!(world.lookup(TOP, "before").is_ok());
    assert!(world.names(TOP).contains(&"before".to_owned()));
    let inode = proto::CreateRequest { name: b"y".to_vec(), ..request };
    for _ in 0..3 {
        assert_eq!(world.call::<op::Create>(&inode).map(|_| ()), Err(Code::NoSpace));
    }
    disk.clear_faults();
    world.directory(TOP, "after");
    disk.kill();
    drop(world);
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    let names = again.names(TOP);
    assert!(["before", "after"].iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    assert!(!names.contains(&"y".to_owned()), "a refused file is there");
    again.assert_consistent();
    assert!(disk.space().is_ok());
}
