//! A copy that was harmed while no server had it: nothing but its checksums, or nothing at all, says what it should be.

use crate::damage::{BLOCK, LENGTH, Rig, files, rig, rig_of};
use std::collections::BTreeSet;
use vazao_disk::{Disk, Open};
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_sim::network::End;

/// What has happened to a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    /// A byte of its second block.
    Rot,
    /// The checksum of that.
    Sum,
    /// Its data ends here.
    Cut(u64),
    /// The header of its sidecar.
    Header,
    /// The last mark in it.
    Mark,
    /// Its sidecar is empty.
    EmptySums,
    /// Or not there.
    NoSums,
}

/// Those of which the checksums are left.
const WITH_SUMS: [Harm; 7] =
    [Harm::Rot, Harm::Sum, Harm::Cut(0), Harm::Cut(5), Harm::Cut(BLOCK as u64), Harm::Header, Harm::Mark];

const WITHOUT_SUMS: [Harm; 2] = [Harm::EmptySums, Harm::NoSums];

fn harm(rig: &Rig, member: usize, harm: Harm) {
    let disk = rig.cluster.disk(member);
    let path = |end| files(&disk, "groups", end).remove(0);
    let cut = |end, length| {
        let file = disk.open(&path(end), Open::Existing).expect("is there");
        file.set_length(length).expect("is there");
    };
    match harm {
        Harm::Rot => rig.rot(member, BLOCK as u64 + 5),
        Harm::Sum => disk.corrupt(&path(".sums"), 128 + 4, 0x55).expect("is there"),
        Harm::Cut(length) => cut(".data", length),
        Harm::Header => disk.corrupt(&path(".sums"), 10, 0x55).expect("is there"),
        Harm::Mark => disk.corrupt(&path(".sums"), 64 + 15 * 4 + 3, 0x55).expect("is there"),
        Harm::EmptySums => cut(".sums", 0),
        Harm::NoSums => disk.remove(&path(".sums")).expect("is there"),
    }
}

/// Everything that was written is on disk, and known to be: nothing is suspect after a kill.
pub(crate) fn settle(rig: &Rig) {
    rig.rest();
    rig.rest();
}

/// What could not be used at all was left for good, and its other copies were read.
#[test]
fn a_copy_that_was_harmed_while_its_server_was_away_is_whole_again() {
    for (copies, index) in [(2, 0), (2, 1), (3, 0), (3, 2)] {
        for (at, what) in WITH_SUMS.into_iter().chain(WITHOUT_SUMS).enumerate() {
            let mut rig = rig(copies);
            settle(&rig);
            let member = rig.members()[index];
            let which = format!("{what:?}, member {index} of {copies}");
            rig.cluster.end(member, End::Kill);
            harm(&rig, member, what);
            rig.rest();
            assert_eq!(rig.members().len(), copies as usize, "{which}");
            assert_eq!(rig.read(), rig.bytes, "{which}");
            if at % 2 == index % 2 {
                rig.file.write_at(&[7; 100], 10).unwrap_or_else(|error| panic!("{which}: {error}"));
                rig.file.sync().unwrap_or_else(|error| panic!("{which}: {error}"));
                rig.bytes[10..110].fill(7);
            }
            rig.report(member, BLOCK as u64, false);
            rig.rest();
            let _ = rig.found(true);
            rig.rest();
            rig.all_are_whole();
            let (damaged, missing, _) = rig.told(member);
            assert_eq!((damaged, missing), (0, 0), "{which}");
        }
    }
}

/// When all servers had been away, the first one back led alone. Where its copy was damaged no client could read it,
/// though another one was whole; and as that one could not be made like it, it never counted again, in no file of its
/// group.
#[test]
fn a_copy_that_was_harmed_while_all_servers_were_away_is_repaired_from_one_that_does_not_count_yet() {
    for what in WITH_SUMS {
        let mut has_led = BTreeSet::new();
        for seed in 3..5 {
            let rig = rig_of(2, seed);
            settle(&rig);
            let members = rig.members();
            let member = members[(seed % 2) as usize];
            for member in &members {
                rig.cluster.end(*member, End::Kill);
            }
            harm(&rig, member, what);
            has_led.insert(first_to_lead(&rig) == member);
            assert_eq!(rig.read(), rig.bytes, "{what:?}, {seed}");
            rig.rest();
            assert_eq!(rig.members().len(), 2, "{what:?}, {seed}");
            let _ = rig.found(true);
            rig.rest();
            rig.all_are_whole();
        }
        assert_eq!(has_led.len(), 2, "{what:?}: it is to be led by either of them");
    }
}

/// The one that leads once all have started again.
fn first_to_lead(rig: &Rig) -> usize {
    rig.cluster.clock().sleep(std::time::Duration::from_secs(2));
    rig.members()[0]
}

/// One that lags has what was written before it went, and its blocks match their checksums, too.
#[test]
fn a_damaged_block_is_not_replaced_by_an_older_one_and_its_group_has_all_members_again() {
    let mut rig = rig(2);
    settle(&rig);
    let members = rig.members();
    rig.cluster.pause(members[1], vazao_sim::clock::Pause::Stopped, std::time::Duration::from_secs(60));
    rig.cluster.clock().sleep(std::time::Duration::from_secs(10));
    assert_eq!(rig.members(), [members[0]]);
    rig.file.write_at(&[7; BLOCK], BLOCK as u64).expect("one has it");
    rig.file.sync().expect("one has it");
    rig.bytes[BLOCK..2 * BLOCK].fill(7);
    rig.rot(members[0], BLOCK as u64 + 5);
    rig.cluster.clock().sleep(std::time::Duration::from_secs(70));
    assert_eq!(rig.members().len(), 2, "one block must not leave all files of the group with one copy");
    let mut block = vec![0; BLOCK];
    let read = rig.file.read_at(&mut block, BLOCK as u64).map_err(|error| error.code);
    assert_eq!(read, Err(Code::Corrupt), "it is nowhere: {:?}", &block[..3]);
    assert_eq!([rig.copy(members[0]), rig.copy(members[1])], [None, None]);
    // Whichever of them is left.
    for member in &members {
        rig.cluster.end(*member, End::Kill);
        rig.rest();
        assert_eq!(rig.members().len(), 2);
        let read = rig.file.read_at(&mut block, BLOCK as u64).map_err(|error| error.code);
        assert_eq!(read, Err(Code::Corrupt), "it is nowhere: {:?}", &block[..3]);
    }
    let mut others = vec![0; BLOCK];
    rig.file.read_at(&mut others, 0).expect("damage of one block is that of no other");
    assert_eq!(others, rig.bytes[..BLOCK]);
    let written = rig.bytes[BLOCK..2 * BLOCK].to_vec();
    rig.file.write_at(&written, BLOCK as u64).expect("whole blocks need nothing of what was there");
    rig.file.sync().expect("fair weather");
    rig.rest();
    assert_eq!(rig.read(), rig.bytes);
    rig.all_are_whole();
}

/// A cut of bytes that are gone left the checksum of their block as it was, which an older copy matches.
#[test]
fn what_was_cut_off_or_written_over_in_a_damaged_block_does_not_come_back_with_a_member_that_was_away() {
    for is_cut in [true, false] {
        let mut rig = rig(2);
        settle(&rig);
        let members = rig.members();
        rig.cluster.pause(members[1], vazao_sim::clock::Pause::Stopped, std::time::Duration::from_secs(60));
        rig.cluster.clock().sleep(std::time::Duration::from_secs(10));
        assert_eq!(rig.members(), [members[0]]);
        settle(&rig);
        rig.cluster.end(members[0], End::Kill);
        harm(&rig, members[0], Harm::Cut(BLOCK as u64));
        rig.rest();
        match is_cut {
            true => {
                rig.file.set_length(BLOCK as u64 + 40).expect("one counts");
                rig.file.set_length(LENGTH as u64).expect("one counts");
                rig.bytes[BLOCK + 40..].fill(0);
            }
            false => {
                rig.file.write_at(&[0; 3000], BLOCK as u64 + 40).expect("one counts");
                rig.bytes[BLOCK + 40..BLOCK + 3040].fill(0);
            }
        }
        rig.file.sync().expect("one counts");
        rig.cluster.clock().sleep(std::time::Duration::from_secs(70));
        assert_eq!(rig.members().len(), 2, "{is_cut}");
        for offset in [0, BLOCK, 2 * BLOCK] {
            let mut block = vec![0; BLOCK.min(LENGTH - offset)];
            match rig.file.read_at(&mut block, offset as u64) {
                Ok(count) => assert!(block[..count] == rig.bytes[offset..][..count], "{is_cut}, {offset}"),
                Err(error) => assert_eq!((error.code, offset), (Code::Corrupt, BLOCK), "{is_cut}"),
            }
        }
    }
}

/// How long the object is that ends in such a block was not known, and the member that was longer never counted again.
#[test]
fn a_last_block_that_is_lost_keeps_no_member_from_counting() {
    let mut rig = rig(2);
    settle(&rig);
    let members = rig.members();
    rig.cluster.pause(members[1], vazao_sim::clock::Pause::Stopped, std::time::Duration::from_secs(60));
    rig.cluster.clock().sleep(std::time::Duration::from_secs(10));
    rig.file.set_length(BLOCK as u64 + 500).expect("one counts");
    rig.file.write_at(&[7; 100], BLOCK as u64).expect("one counts");
    rig.file.sync().expect("one counts");
    rig.bytes.truncate(BLOCK + 500);
    rig.bytes[BLOCK..BLOCK + 100].fill(7);
    rig.rot(members[0], BLOCK as u64 + 5);
    rig.cluster.clock().sleep(std::time::Duration::from_secs(70));
    assert_eq!(rig.members().len(), 2);
    let mut block = vec![0; BLOCK];
    assert_eq!(rig.file.read_at(&mut block, BLOCK as u64).map_err(|error| error.code), Err(Code::Corrupt));
    let written = rig.bytes[BLOCK..].to_vec();
    rig.file.write_at(&written, BLOCK as u64).expect("all that there is of it");
    rig.file.sync().expect("fair weather");
    rig.rest();
    let _ = rig.found(true);
    rig.rest();
    rig.all_are_whole();
}
