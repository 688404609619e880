//! Files of an object with other copies that were harmed while no server had them: what can be used of them still is,
//! and what cannot is never taken for right.

use super::{CHUNK, Rig, address, data_path, pattern, sums_path};
use crate::health::damage::Place;
use crate::health::restore::SoundBlock;
use crate::service::fault;
use crate::targets::Target;
use std::sync::Arc;
use vazao_disk::{Disk, Open};
use vazao_model::checksum::crc32c;
use vazao_model::{Code, ObjectId};

const BLOCK: u64 = 64 * 1024;

/// One of a placement group.
const INODE: u64 = 2;

/// The last block has 1000 bytes.
const LENGTH: usize = 3 * CHUNK as usize - 65_536 + 1000;

/// An object of three chunks, all of it synced.
fn rig() -> Rig {
    let mut rig = Rig::new(1);
    rig.write(INODE, 0, &pattern(1, LENGTH)).expect("writes");
    rig.service.close();
    rig.restart();
    rig
}

fn target(rig: &Rig) -> Arc<Target> {
    Arc::clone(rig.service.targets.iter().next().expect("it has one"))
}

fn id() -> ObjectId {
    (&address(INODE)).into()
}

fn cut(rig: &Rig, path: &str, length: u64) {
    rig.disk.boot().open(path, Open::Existing).and_then(|file| file.set_length(length)).expect("is there");
}

/// The blocks of the object that cannot be read.
fn damaged(rig: &Rig) -> Vec<u64> {
    let length = rig.stat(INODE).expect("opens").length;
    let is_damaged = |block: &u64| match rig.read(INODE, block * BLOCK, 1) {
        Ok(read) => {
            assert_eq!(read.bytes[0], pattern(1, LENGTH)[(block * BLOCK) as usize]);
            false
        }
        Err(fault) => fault.code == Code::Corrupt,
    };
    (0..length.div_ceil(BLOCK)).filter(is_damaged).collect()
}

#[test]
fn of_a_file_that_was_cut_the_blocks_that_are_gone_are_damaged_and_no_holes() {
    for (chunk, length, is_gone, end) in [
        (0, 0, vec![0, 1, 2, 3], LENGTH as u64),
        (1, BLOCK + 10, vec![5, 6, 7], LENGTH as u64),
        // How long the last block was nothing says.
        (2, 2 * BLOCK, vec![10, 11], 3 * CHUNK),
    ] {
        let mut rig = rig();
        cut(&rig, &data_path(INODE, chunk), length);
        for _ in 0..2 {
            assert_eq!(damaged(&rig), is_gone, "chunk {chunk}");
            assert_eq!(rig.stat(INODE).expect("opens").length, end);
            let ranges = rig.ranges(INODE, 1000).expect("opens");
            for block in &is_gone {
                let has_data =
                    ranges.iter().any(|it| it.start < (block + 1) * BLOCK && it.end > block * BLOCK);
                assert!(has_data, "block {block} passes for zeros: {ranges:?}");
            }
            rig.service.close();
            rig.restart();
        }
    }
}

/// What a program writes into a part of such a block would pass for all of it, with zeros behind.
#[test]
fn the_last_block_of_a_file_that_was_cut_is_as_long_as_it_was_once_it_is_repaired() {
    let rig = rig();
    cut(&rig, &data_path(INODE, 2), 2 * BLOCK);
    let last = 11 * BLOCK;
    rig.write(INODE, last, &[9; 100]).expect("writes");
    rig.write(INODE, last, &[9; 200]).expect("writes");
    assert_eq!(damaged(&rig), [10, 11]);
    let mut bytes = pattern(1, LENGTH)[last as usize..].to_vec();
    bytes[..200].fill(9);
    let good = SoundBlock { checksum: crc32c(&bytes), bytes };
    assert!(target(&rig).restore_block(id(), last, &good, None).map_err(fault).expect("restores"));
    assert_eq!(rig.stat(INODE).expect("opens").length, LENGTH as u64);
    assert_eq!(rig.read(INODE, last, 70_000).expect("is sound").bytes, good.bytes);
}

#[test]
fn a_header_that_has_rotted_is_made_anew_and_no_chunk_is_forgotten() {
    for (chunk, at) in [(0, 10), (1, 10), (0, 64 + 3), (2, 64 + 3)] {
        let mut rig = rig();
        rig.disk.corrupt(&sums_path(INODE, chunk), at, 0x55).expect("is there");
        for _ in 0..3 {
            let all = rig.read_all(INODE).expect("opens");
            assert_eq!(all, Some(pattern(1, LENGTH)), "chunk {chunk}, byte {at}");
            rig.restart();
        }
    }
}

/// Which entries an unclean stop may have left behind only the header says.
#[test]
fn after_an_unclean_stop_a_header_that_has_rotted_is_not_made_anew() {
    for at in [10, 64 + 3] {
        let mut rig = rig();
        rig.write(INODE, 2 * CHUNK, &pattern(2, 100)).expect("writes");
        rig.disk.kill();
        rig.disk.corrupt(&sums_path(INODE, 0), at, 0x55).expect("is there");
        for _ in 0..2 {
            rig.start_again();
            let refused = rig.read_all(INODE).expect_err("nothing says what is right");
            assert_eq!(refused.code, Code::Corrupt, "byte {at}");
            rig.disk.kill();
        }
    }
}

/// Zeros have the entry 0, and so has a block of which the entry is gone.
#[test]
fn bytes_of_another_copy_are_good_where_the_checksum_or_the_bytes_here_say_so() {
    let mut rig = rig();
    rig.write(INODE, 2 * BLOCK, &[0; BLOCK as usize]).expect("writes");
    rig.service.close();
    rig.restart();
    let noted = |rig: &Rig, offset: u64, bytes: &[u8]| {
        let is_noted = target(rig).is_noted(id(), offset, bytes).map_err(fault).expect("opens");
        is_noted || target(rig).is_here(id(), offset, bytes).map_err(fault).expect("opens")
    };
    let block = |at: u64| pattern(1, LENGTH)[at as usize..LENGTH.min((at + BLOCK) as usize)].to_vec();
    rig.disk.corrupt(&data_path(INODE, 0), BLOCK + 5, 0x55).expect("is there");
    assert!(noted(&rig, BLOCK, &block(BLOCK)), "its data has rotted");
    assert!(!noted(&rig, BLOCK, &block(0)));
    for at in [128, 128 + 4 * 2] {
        rig.disk.corrupt(&sums_path(INODE, 0), at, 0x55).expect("is there");
    }
    assert!(noted(&rig, 0, &block(0)), "its checksum has rotted");
    assert!(!noted(&rig, 0, &block(BLOCK)));
    assert!(!noted(&rig, 2 * BLOCK, &[0; BLOCK as usize]), "what a disk has lost is zeros, too");
    rig.disk.corrupt(&sums_path(INODE, 2), 128 + 4 * 3, 0x55).expect("is there");
    assert!(noted(&rig, 11 * BLOCK, &block(11 * BLOCK)), "a short one");
    assert!(!noted(&rig, 11 * BLOCK, &block(11 * BLOCK)[..900]));
    rig.service.close();
    cut(&rig, &sums_path(INODE, 0), 128 + 4);
    rig.restart();
    assert!(!noted(&rig, 2 * BLOCK, &[0; BLOCK as usize]));
    assert!(!noted(&rig, 3 * BLOCK, &[0; BLOCK as usize]));
    assert!(noted(&rig, 3 * BLOCK, &block(3 * BLOCK)), "its checksum is gone, and both have this");
    target(&rig).lose_block(id(), 20 * BLOCK, BLOCK as usize, 7, None).map_err(fault).expect("is there");
    let (path, mut stands_in) = (data_path(INODE, 5), vec![0; BLOCK as usize]);
    rig.disk
        .boot()
        .open(&path, Open::Existing)
        .and_then(|it| it.read_at(&mut stands_in, 0))
        .expect("is there");
    assert!(!noted(&rig, 20 * BLOCK, &stands_in), "no program has written that");
}

#[test]
fn a_block_that_is_lost_everywhere_fails_its_checksum_until_it_is_written_anew() {
    for entry in [0, 7] {
        let mut rig = rig();
        rig.truncate(INODE, CHUNK + BLOCK + 5).expect("cuts");
        let lose = |rig: &Rig, offset| {
            target(rig)
                .lose_block(id(), offset, BLOCK as usize, entry, None)
                .map_err(fault)
                .expect("is there")
        };
        // Within, at its end, and behind that.
        for block in [1, 5, 7] {
            lose(&rig, block * BLOCK);
        }
        assert_eq!(rig.stat(INODE).expect("opens").length, 8 * BLOCK);
        let is_damaged = |rig: &Rig, block: u64| rig.read(INODE, block * BLOCK, 1).is_err();
        for _ in 0..2 {
            let found: Vec<u64> = (0..8).filter(|block| is_damaged(&rig, *block)).collect();
            assert_eq!(found, [1, 5, 7], "{entry}");
            rig.service.close();
            rig.restart();
        }
        rig.write(INODE, 4 * BLOCK, &pattern(2, 4 * BLOCK as usize)).expect("writes");
        assert_eq!((0..8).filter(|block| is_damaged(&rig, *block)).collect::<Vec<_>>(), [1]);
    }
}

/// Its primary could not ask this member for it, and has a part of it, or what stands for it.
#[test]
fn a_block_that_is_lost_elsewhere_and_good_here_stays_as_it_is() {
    let rig = rig();
    let last = 11 * BLOCK;
    for (offset, length) in [(BLOCK, BLOCK), (last, 300), (last, BLOCK)] {
        let (entry, _) = target(&rig).noted(id(), offset).map_err(fault).expect("opens");
        target(&rig).lose_block(id(), offset, length as usize, entry, None).map_err(fault).expect("is there");
        assert_eq!(damaged(&rig), Vec::<u64>::new(), "it matches what it should be");
        assert_eq!(rig.read_all(INODE).expect("opens"), Some(pattern(1, LENGTH)));
    }
}

#[test]
fn a_lost_block_cuts_nothing_that_goes_on_behind_it() {
    let rig = rig();
    for (offset, lost_bytes) in [(CHUNK, 5), (11 * BLOCK, 5)] {
        target(&rig).lose_block(id(), offset, lost_bytes, 7, None).map_err(fault).expect("is there");
    }
    assert_eq!(damaged(&rig), [4, 11]);
    assert_eq!(rig.stat(INODE).expect("opens").length, 11 * BLOCK + 5, "as long as the primary's");
}

/// An object that is let go of is unfinished before any of it is gone.
#[test]
fn an_object_is_let_go_of_where_a_chunk_cannot_be_used_and_is_not_read_until_it_is_whole() {
    let rig = rig();
    let target = target(&rig);
    let refused = target.let_go(id(), 1, &|| true).map_err(fault).expect_err("it can be used");
    assert_eq!(refused.code, Code::Unavailable);
    assert!(target.restores.check_finished(id()).is_ok());
    let rig = self::rig();
    rig.disk.boot().remove(&sums_path(INODE, 1)).expect("is there");
    let target = self::target(&rig);
    assert!(target.is_damaged(id(), Place::Chunk(1)).map_err(fault).expect("can be told"));
    target.let_go(id(), 1, &|| false).map_err(fault).expect_err("no other member has it");
    assert!(target.restores.check_finished(id()).is_ok());
    target.let_go(id(), 1, &|| true).map_err(fault).expect("removes");
    assert!(!rig.stat(INODE).expect("opens").exists);
    assert!(target.restores.check_finished(id()).is_err(), "it is being made anew");
    let counts = rig.service.registration().targets[0].clone();
    assert_eq!((counts.corrupt_blocks, counts.missing_objects), (0, 1));
    for chunk in 0..3 {
        assert!(rig.disk.boot().open(&data_path(INODE, chunk), Open::ReadOnly).is_err());
    }
}
