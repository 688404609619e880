//! Locks over a restart of the service.

use super::harness::{TOP, World, call, options};
use std::io::ErrorKind;
use std::sync::Arc;
use vazao_disk::MemoryDisk;
use vazao_model::limits::LOCKED_INODES_KEPT;
use vazao_wire::{op, proto};

const GRANTED: u32 = 0;
const TAKEN: u32 = 2;
const TOO_EARLY: u32 = 5;
const FREE: u32 = 0;
const EXCLUSIVE: u32 = 2;

fn lock(inode: u64, mode: u32) -> Option<proto::Lock> {
    Some(proto::Lock { inode, kind: 1, owner: 1, first: 0, last: u64::MAX, mode, process: 1 })
}

fn set(world: &World, inode: u64, mode: u32) -> u32 {
    let request = proto::SetLockRequest { session: world.session, lock: lock(inode, mode), waiter: 0 };
    world.call::<op::SetLock>(&request).unwrap().verdict
}

/// A client whose list of files was full locked one more before it had taken back its locks: the list became that file
/// alone, and another client got a lock that the first one still had.
#[test]
fn a_full_list_of_locked_files_is_kept_until_the_locks_have_been_taken_back() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let held = 100;
    assert_eq!(set(&world, held, EXCLUSIVE), GRANTED);
    for inode in held + 1..held + LOCKED_INODES_KEPT as u64 {
        assert_eq!((set(&world, inode, EXCLUSIVE), set(&world, inode, FREE)), (GRANTED, GRANTED));
    }
    world.service.close().unwrap();
    let world = world.started_again(&disk, options("embedded"));
    set(&world, 1_000, EXCLUSIVE);
    let other = world.another_client();
    assert_eq!(set(&other, held, EXCLUSIVE), TOO_EARLY);
    let locks = lock(held, EXCLUSIVE).into_iter().collect();
    let request = proto::ReclaimLocksRequest { session: world.session, locks, former: 0 };
    world.call::<op::ReclaimLocks>(&request).unwrap();
    assert_eq!((set(&world, 1_000, EXCLUSIVE), set(&other, 1_001, EXCLUSIVE)), (GRANTED, GRANTED));
}

/// A neighbour that had more than 128 files locked held up new locks on all files after a restart: an append to a file
/// that it had never touched was ETIMEDOUT.
#[test]
fn who_has_hundreds_of_files_locked_holds_up_those_alone_after_a_restart() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let held = 100..1_100;
    assert!(held.clone().all(|inode| set(&world, inode, EXCLUSIVE) == GRANTED));
    // Files that it has locked before are given up again.
    for inode in 2_000..2_000 + 2 * held.end {
        assert_eq!((set(&world, inode, EXCLUSIVE), set(&world, inode, FREE)), (GRANTED, GRANTED));
    }
    world.service.close().unwrap();
    let world = world.started_again(&disk, options("embedded"));
    let other = world.another_client();
    assert_eq!(set(&other, 50, EXCLUSIVE), GRANTED, "a file that it never had");
    assert!(held.clone().all(|inode| set(&other, inode, EXCLUSIVE) == TOO_EARLY));
    let free = (2_000..2_000 + 2 * held.end).filter(|inode| set(&other, *inode, EXCLUSIVE) == GRANTED);
    assert!(free.count() >= 1_000, "most of what it has let go of is free");
}

/// Locks of a session that ended went to the next client first, and its record, by which its reports are refused, went
/// later: a report that came in between lay over what the next holder had written.
#[test]
fn no_client_gets_a_lock_while_reports_of_its_former_holder_are_still_taken() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let file = world.file(TOP, "f");
    assert_eq!(set(&world, file.0, EXCLUSIVE), GRANTED);
    let other = world.another_client();
    assert_eq!(set(&other, file.0, EXCLUSIVE), TAKEN);
    let close = proto::CloseSessionRequest { session: world.session };
    disk.fail_writes("log-", ErrorKind::StorageFull);
    let request = proto::CreateRequest { parent: TOP.0, name: b"x".to_vec(), kind: 1, ..Default::default() };
    // The commit is made and cannot be written; those after it are refused.
    assert!(call::<op::Create>(&world.service, &request).is_err());
    assert!(world.call::<op::CloseSession>(&close).is_err(), "its record cannot go");
    assert_eq!(set(&other, file.0, EXCLUSIVE), TAKEN);
    disk.clear_faults();
    world.call::<op::CloseSession>(&close).unwrap();
    assert_eq!(set(&other, file.0, EXCLUSIVE), GRANTED);
}
