//! A member that was away gets what it missed, and nothing else of it is looked at where it has lost nothing.

use crate::damage::{BLOCK, LENGTH, Rig, rig};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_sim::clock::Pause;
use vazao_sim::network::End;

/// How a member is away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Away {
    Paused,
    Killed,
    PowerLost,
}

/// Changes the file in all ways while a member is away, and has that one back.
fn be_away(rig: &mut Rig, member: usize, away: Away) {
    match away {
        Away::Paused => rig.cluster.pause(member, Pause::Stopped, Duration::from_secs(10)),
        Away::Killed => rig.cluster.end(member, End::Kill),
        Away::PowerLost => rig.cluster.end(member, End::PowerLoss),
    }
    let mut write = |at: usize, bytes: &[u8]| {
        rig.file.write_at(bytes, at as u64).expect("the others have it");
        rig.bytes.resize(rig.bytes.len().max(at + bytes.len()), 0);
        rig.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    };
    write(100, &[1; 50]);
    write(3 * BLOCK - 10, &[2; 20]);
    write(5 * BLOCK, &[3; 2 * BLOCK]);
    rig.file.set_length(9 * BLOCK as u64).expect("the others have it");
    rig.file.set_length(6 * BLOCK as u64).expect("the others have it");
    rig.file.set_length(8 * BLOCK as u64 + 7).expect("the others have it");
    rig.bytes.truncate(6 * BLOCK);
    rig.bytes.resize(8 * BLOCK + 7, 0);
    rig.file.sync().expect("the others have it");
    assert!(rig.members().len() < 2 || away != Away::Paused, "it counts although it is away");
    rig.rest();
    rig.rest();
    assert_eq!(rig.members().len(), 2, "{away:?}: it counts again");
}

/// The copy of the other member, which has what the file has.
fn other(rig: &Rig, member: usize) -> Vec<u8> {
    let other = rig.members().into_iter().find(|other| *other != member).expect("there are two");
    let copy = rig.copy(other).expect("sound");
    assert!(rig.bytes.starts_with(&copy) && rig.bytes[copy.len()..].iter().all(|byte| *byte == 0));
    copy
}

#[test]
fn a_member_that_kept_everything_gets_what_it_missed_and_no_more() {
    for away in [Away::Paused, Away::Killed] {
        for index in 0..2 {
            let mut rig = rig(2);
            let member = rig.members()[index];
            // With this the others hear that what was before is complete: it need not be evened out.
            rig.file.write_at(&rig.bytes[..9], 0).expect("fair weather");
            rig.file.sync().expect("fair weather");
            // Which only a comparison of everything would find.
            rig.change_behind(member, BLOCK as u64 + 5, b"untouched");
            be_away(&mut rig, member, away);
            let (mut copy, other) = (rig.copy(member).expect("sound"), other(&rig, member));
            let untouched = BLOCK + 5..BLOCK + 14;
            assert_eq!(&copy[untouched.clone()], b"untouched", "{away:?}, member {index}: it was compared");
            copy[untouched.clone()].copy_from_slice(&other[untouched]);
            assert!(copy == other, "{away:?}, member {index}");
        }
    }
}

#[test]
fn a_member_that_lost_power_is_compared() {
    for index in 0..2 {
        let mut rig = rig(2);
        let member = rig.members()[index];
        rig.change_behind(member, BLOCK as u64 + 5, b"untouched");
        be_away(&mut rig, member, Away::PowerLost);
        // Where it led, another one does now.
        assert!(rig.copy(member) == Some(other(&rig, member)), "member {index}");
    }
}

/// What was missed before a second absence counts in the third one as well.
#[test]
fn a_member_that_is_away_again_and_again_gets_all_of_it() {
    let mut rig = rig(2);
    for round in 0..12_usize {
        let member = rig.members()[round % 2];
        rig.cluster.end(member, if round % 5 == 4 { End::PowerLoss } else { End::Kill });
        for at in 0..6 {
            let offset = (round * 7919 + at * 31) % (LENGTH - 100);
            rig.file.write_at(&[round as u8; 100], offset as u64).expect("the other one has it");
            rig.bytes[offset..offset + 100].fill(round as u8);
            rig.cluster.clock().sleep(Duration::from_millis(300));
        }
        rig.file.sync().expect("the other one has it");
        rig.rest();
        assert_eq!(rig.members().len(), 2, "round {round}");
        rig.all_are_whole();
    }
}

/// A walk always began with the first lagging member of the record, also with one that stayed away.
#[test]
fn a_member_that_stays_away_keeps_no_other_waiting() {
    for (dead, back) in [(1, 2), (2, 1)] {
        let rig = rig(3);
        let members = rig.members();
        rig.cluster.pause(members[dead], Pause::Stopped, Duration::from_secs(120));
        rig.rest();
        assert_eq!(rig.members().len(), 2, "it is away");
        rig.cluster.end(members[back], End::Kill);
        rig.file.write_at(&[1; 50], 100).expect("the first one has it");
        rig.rest();
        rig.rest();
        assert_eq!(rig.members(), [members[0], members[back]]);
    }
}
