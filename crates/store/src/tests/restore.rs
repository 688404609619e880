//! A target's part in repairs from copies: what is replaced, what is left alone, what is not read meanwhile.

use super::{CHUNK, Rig, address, data_path, pattern, sums_path};
use crate::health::damage::{Damage, Place};
use crate::health::restore::SoundBlock;
use crate::object::Stop;
use crate::replication::{own_blocks, sound_blocks};
use crate::service::{DataService, fault};
use std::sync::Arc;
use vazao_disk::{Disk, Open};
use vazao_model::checksum::crc32c;
use vazao_model::{Code, InodeId, ObjectId};
use vazao_wire::{op, proto};

const BLOCK: u64 = 64 * 1024;

/// The last block has 777 bytes.
const LENGTH: usize = CHUNK as usize + 65_536 + 777;

/// An object that is on its disk.
fn rig() -> Rig {
    let mut rig = Rig::new(1);
    rig.write(1, 0, &pattern(1, LENGTH)).expect("writes");
    rig.service.close();
    rig.restart();
    rig
}

fn good(bytes: &[u8]) -> SoundBlock {
    SoundBlock { bytes: bytes.to_vec(), checksum: crc32c(bytes) }
}

fn restore(rig: &Rig, offset: u64, bytes: &[u8]) -> Result<bool, vazao_wire::service::Fault> {
    let target = Arc::clone(rig.service.targets.iter().next().expect("it has one"));
    let restored: Result<bool, Stop> = target.restore_block((&address(1)).into(), offset, &good(bytes), None);
    restored.map_err(fault)
}

fn block(offset: u64) -> Vec<u8> {
    let bytes = pattern(1, LENGTH);
    bytes[offset as usize..LENGTH.min((offset + BLOCK) as usize)].to_vec()
}

#[test]
fn a_block_that_matches_its_checksum_is_left_as_it_is() {
    let rig = rig();
    assert!(!restore(&rig, 0, &pattern(9, BLOCK as usize)).expect("it is sound"));
    assert!(!restore(&rig, 2 * CHUNK, &pattern(9, BLOCK as usize)).expect("there is none"));
    assert_eq!(rig.read_all(1).expect("reads"), Some(pattern(1, LENGTH)));
    assert_eq!(rig.service.registration().targets[0].repaired, 0);
}

#[test]
fn a_damaged_block_is_replaced_also_the_last_one_and_one_whose_checksum_is_damaged() {
    for (path, at, offset) in [
        (data_path(1, 0), 70_000, BLOCK),
        (data_path(1, 1), 65_536 + 5, CHUNK + BLOCK),
        (sums_path(1, 1), 128 + 4, CHUNK + BLOCK),
        (sums_path(1, 0), 128, 0),
    ] {
        let mut rig = rig();
        rig.disk.corrupt(&path, at, 0x10).expect("is there");
        assert!(restore(&rig, offset, &block(offset)).expect("repairs"), "{path}");
        assert_eq!(rig.read_all(1).expect("reads"), Some(pattern(1, LENGTH)));
        let told = &rig.service.registration().targets[0];
        assert_eq!((told.repaired, told.corrupt_blocks), (1, 0));
        rig.service.close();
        rig.restart();
        assert_eq!(rig.read_all(1).expect("reads"), Some(pattern(1, LENGTH)), "it lasts");
    }
}

#[test]
fn bytes_that_are_not_all_of_the_block_replace_nothing() {
    let rig = rig();
    let last = CHUNK + BLOCK;
    rig.disk.corrupt(&data_path(1, 1), 65_536 + 5, 0x10).expect("is there");
    assert_eq!(restore(&rig, last, &block(last)[..700]).expect_err("other ends").code, Code::Unavailable);
    assert_eq!(rig.read(1, last, 10).expect_err("still damaged").code, Code::Corrupt);
}

#[test]
fn a_last_block_that_is_damaged_may_have_been_cut_and_is_as_long_as_the_good_one_again() {
    let mut rig = rig();
    let last = CHUNK + BLOCK;
    let (whole, length) = (block(last), block(last).len() as u64);
    let data = rig.disk.open(&data_path(1, 1), Open::Existing).expect("is there");
    data.set_length(BLOCK + length - 7).expect("is cut");
    rig.service.close();
    rig.restart();
    assert_eq!(rig.read(1, last, 10).expect_err("damaged").code, Code::Corrupt);
    assert!(restore(&rig, last, &whole).expect("repairs"));
    assert_eq!(rig.read_all(1).expect("reads"), Some(pattern(1, LENGTH)));
    rig.service.close();
    rig.restart();
    assert_eq!(rig.read_all(1).expect("reads"), Some(pattern(1, LENGTH)), "it lasts");
}

#[test]
fn a_write_of_all_of_a_last_block_needs_nothing_of_what_it_was() {
    let rig = rig();
    let last = CHUNK + BLOCK;
    rig.disk.corrupt(&data_path(1, 1), 65_536 + 5, 0x10).expect("is there");
    rig.write(1, last, &block(last)).expect("writes");
    assert_eq!(rig.read_all(1).expect("reads"), Some(pattern(1, LENGTH)));
}

#[test]
fn blocks_are_told_apart_in_sound_ones_and_damaged_ones_also_where_the_last_one_is_damaged() {
    let rig = rig();
    rig.disk.corrupt(&data_path(1, 1), 65_536 + 5, 0x10).expect("is there");
    rig.disk.corrupt(&data_path(1, 0), 5, 0x10).expect("is there");
    let target = rig.service.targets.iter().next().expect("it has one");
    let blocks = sound_blocks(target, (&address(1)).into(), 0..1 << 20).expect("reads");
    let sound: Vec<bool> = blocks.iter().map(Option::is_some).collect();
    assert_eq!(sound, [false, true, true, true, true, false]);
    assert_eq!(blocks[1].as_ref().map(|it| &it.bytes), Some(&block(BLOCK)));
    assert_eq!(rig.service.registration().targets[0].corrupt_blocks, 2, "both are noted");
}

/// A primary that lost an object while it compared it with a lagging member, and made it anew from a third one, took
/// the part that it had by then for all of it: the member counted without the rest.
#[test]
fn blocks_of_an_object_that_is_made_anew_are_not_what_others_are_to_have() {
    let rig = rig();
    let (target, id): (_, ObjectId) = (&rig.service.targets[0], (&address(1)).into());
    let read = || own_blocks(target, id, 0..BLOCK).map(|blocks| blocks.len()).map_err(|fault| fault.code);
    assert_eq!(read(), Ok(1));
    target.begin_object(id).expect("noted");
    assert_eq!(read(), Err(Code::Unavailable));
    let told = DataService::compare_blocks(target, id, 0..0, false).expect("reads").0;
    assert!(told.exists && told.unfinished, "nor is anything fetched from it: {told:?}");
    target.restores.end_object(id);
    assert_eq!(read(), Ok(1));
}

#[test]
fn only_a_primary_has_blocks_replaced() {
    let rig = rig();
    let bytes = pattern(9, 65_536);
    let request = proto::RestoreBlockRequest {
        object: Some(address(1)),
        checksum: crc32c(&bytes),
        ..Default::default()
    };
    let refused = rig.ask::<op::RestoreBlock>(&request, &bytes).expect_err("no member");
    assert_eq!(refused.code, Code::BadRequest);
}

#[test]
fn a_place_that_cannot_be_repaired_is_tried_later_and_later_and_others_get_their_turn() {
    let id = |inode| ObjectId {
        inode: InodeId(inode),
        generation: 1,
        slot: 0,
        group: vazao_model::GroupId(1 << 20),
    };
    let (one, other) = ((id(1), Place::Block(1)), (id(2), Place::Missing));
    let damage = Damage::default();
    assert_eq!(damage.next_to_repair(0, |_, _| true), None);
    for (object, place) in [one, other] {
        assert!(damage.add(object, place));
    }
    assert_eq!(damage.next_to_repair(0, |_, _| false), None, "they have one copy");
    let next = |now_ns| damage.next_to_repair(now_ns, |_, _| true);
    assert_eq!([next(0), next(0), next(0)], [Some(one), Some(other), Some(one)]);
    damage.put_off(one, 0);
    assert_eq!([next(1), next(1)], [Some(other); 2]);
    damage.remove(other);
    let second = 1_000_000_000;
    let mut now_ns = 0;
    for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
        assert_eq!(next(now_ns + seconds * second - 1), None);
        now_ns += seconds * second;
        assert_eq!(next(now_ns), Some(one));
        damage.put_off(one, now_ns);
    }
}
