//! Damage that was found is counted once, shows in the registration, and leaves the count when it is gone.

use super::{CHUNK, Rig, address, data_path, pattern};
use vazao_disk::Disk;
use vazao_model::{GroupId, InodeId, ObjectId};
use vazao_wire::{op, proto};

/// Corrupt blocks and missing objects, as the cluster is told.
fn counts(rig: &Rig) -> (u64, u64) {
    let target = &rig.service.registration().targets[0];
    (target.corrupt_blocks, target.missing_objects)
}

fn report(rig: &Rig, inode: u64, offset: u64, missing: bool) -> bool {
    let request = proto::ReportDamageRequest { object: Some(address(inode)), offset, missing };
    rig.call::<op::ReportDamage>(&request).expect("answered").damaged
}

/// A clean object of three chunks.
fn rig() -> Rig {
    let mut rig = Rig::new(1);
    rig.write(1, 0, &pattern(1, 3 * CHUNK as usize)).expect("writes");
    rig.service.close();
    rig.restart();
    rig
}

#[test]
fn a_corrupt_block_counts_once_until_it_is_written_anew() {
    let rig = rig();
    rig.disk.corrupt(&data_path(1, 1), 70_000, 0x10).expect("is there");
    for _ in 0..3 {
        rig.read(1, CHUNK + 66_000, 10).expect_err("rotten");
    }
    assert_eq!(counts(&rig), (1, 0));
    rig.service.tick();
    rig.service.tick();
    assert_eq!(counts(&rig), (1, 0), "still there");
    rig.write(1, CHUNK + 65_536, &pattern(2, 65_536)).expect("writes");
    rig.service.tick();
    rig.service.tick();
    assert_eq!(counts(&rig), (0, 0));
}

#[test]
fn a_whole_block_is_verified_by_its_reader_who_reports_it() {
    let rig = rig();
    rig.disk.corrupt(&data_path(1, 0), 70_000, 0x10).expect("is there");
    assert!(rig.read_unverified(1, 65_536, 65_536).expect("reads").1.is_some());
    assert_eq!(counts(&rig), (0, 0), "sent as it is");
    assert!(report(&rig, 1, 65_536, false));
    assert!(!report(&rig, 1, 0, false), "a false alarm does not count");
    assert_eq!(counts(&rig), (1, 0));
    rig.remove(1).expect("removes");
    assert_eq!(counts(&rig), (0, 0), "went with its object");
}

#[test]
fn a_missing_object_counts_until_its_file_is_removed() {
    let rig = rig();
    assert!(!report(&rig, 1, 0, true), "it is there");
    assert!(report(&rig, 2, 0, true));
    rig.service.tick();
    assert_eq!(counts(&rig), (0, 1));
    rig.remove(2).expect("nothing there");
    assert_eq!(counts(&rig), (0, 0));
}

#[test]
fn a_chunk_that_cannot_be_opened_counts_and_the_whole_range_of_places_is_looked_at_again() {
    let rig = rig();
    let saved = rig.disk.open(&data_path(1, 2), vazao_disk::Open::Existing).expect("is there");
    let length = saved.length().expect("known");
    saved.set_length(1000).expect("cuts");
    rig.read(1, 0, 10).expect_err("shortened");
    for block in 1..=20 {
        assert!(report(&rig, 100 + block, 0, true));
    }
    assert_eq!(counts(&rig), (1, 20));
    saved.set_length(length).expect("extends");
    for block in 1..=20 {
        rig.write(100 + block, 0, b"restored").expect("writes");
    }
    for _ in 0..6 {
        rig.service.tick();
    }
    assert_eq!(counts(&rig).1, 0);
}

/// What the first process after a kill took for right the next one does not find again: it is compared whole, unless
/// the group has compared it meanwhile.
#[test]
fn what_was_taken_for_right_after_a_kill_is_in_doubt_in_the_next_process() {
    let mut rig = rig();
    let from = |rig: &Rig| rig.service.targets[0].kept_from();
    let first = from(&rig);
    let object = ObjectId { inode: InodeId(1), generation: 1, slot: 0, group: GroupId(0) };
    rig.service.targets[0].take_for_right(object, 0, 0..10).expect("noted");
    rig.restart();
    assert_eq!(from(&rig), first, "one that has no copies");
    let object = ObjectId { group: GroupId(GroupId::FIRST), ..object };
    rig.service.targets[0].take_for_right(object, 0, 0..10).expect("noted");
    assert_eq!(from(&rig), first, "this one says what it is");
    rig.service.targets[0].end_objects().expect("noted");
    rig.restart();
    let next = from(&rig);
    assert!(next > first, "{next}");
    rig.restart();
    assert_eq!(from(&rig), next, "nothing since");
}
