//! A metadata disk without room: growth is refused in time, removals are not, and nothing answered is lost.

use super::harness::{Servers, TOP, World, call, options};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::{Disk, MemoryDisk};
use vazao_model::{Code, FileKind};
use vazao_wire::{op, proto};

/// Creates files until that is refused; returns their number.
fn fill(world: &World) -> usize {
    for count in 0..100_000 {
        match world.make(TOP, &format!("f{count}"), FileKind::File) {
            Ok(_) => {}
            Err(Code::NoSpace) => return count,
            Err(other) => panic!("file {count}: {other}"),
        }
    }
    panic!("the disk is never full")
}

/// Removing tens of thousands of files takes longer than a session lives by itself.
fn renew(world: &World) {
    let request = proto::RenewSessionRequest { session: world.session, ..Default::default() };
    world.call::<op::RenewSession>(&request).unwrap();
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
    for (seed, mebibytes, ends) in [(1, 8, 0), (2, 12, 0), (3, 9, 7), (4, 8, 40)] {
        let disk = MemoryDisk::new(seed);
        disk.set_capacity(mebibytes << 20);
        let mut world = World::on(Arc::new(disk.boot()), options("embedded"));
        for round in 0..3 {
            let count = fill(&world);
            // The checkpoint's file never shrinks: later rounds may find that there is no room for more. What is
            // promised is that everything can be removed.
            assert!(round > 0 || count >= 100, "seed {seed}: {count} files");
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
