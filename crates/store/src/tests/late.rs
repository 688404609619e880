//! Changes that were sent again, and whose earlier form arrives after newer ones.

use super::{Rig, address, pattern};
use crate::object::attempts::Passed;
use crate::service::fault;
use vazao_model::checksum::piece_checksums;
use vazao_model::{Code, GroupId};
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

const LENGTH: usize = 100_000;

fn object(change: u64, attempt: u32) -> Option<proto::ObjectAddress> {
    Some(proto::ObjectAddress { change, attempt, ..address(1) })
}

fn write(rig: &Rig, change: u64, attempt: u32, seed: u64) -> Result<(), Fault> {
    let bytes = pattern(seed, LENGTH);
    let (object, checksums) = (object(change, attempt), piece_checksums(0, &bytes));
    let request = proto::WriteRequest { object, checksums, ..Default::default() };
    rig.write_response(&request, &bytes).map(drop)
}

/// Sends one change of each kind.
fn send(rig: &Rig, kind: usize, attempt: u32) -> Result<(), Fault> {
    let (object, bytes) = (object(7, attempt), pattern(1, 500));
    let checksums = piece_checksums(0, &bytes);
    match kind {
        0 => {
            let request = proto::WriteRequest { object, checksums, ..Default::default() };
            rig.write_response(&request, &bytes).map(drop)
        }
        1 => {
            let ranges = vec![proto::ByteRange { offset: 0, length: 500 }];
            let request = proto::WriteListRequest { object, ranges, checksums, must_exist: true };
            rig.ask::<op::WriteList>(&request, &bytes).map(drop)
        }
        2 => {
            let request = proto::TruncateObjectRequest { object, length: 500, must_exist: true };
            rig.call::<op::TruncateObject>(&request).map(drop)
        }
        3 => {
            let request = proto::PunchObjectRequest { object, offset: 0, length: 500, must_exist: true };
            rig.call::<op::PunchObject>(&request).map(drop)
        }
        _ => {
            let request = proto::CopyObjectRangeRequest {
                source: Some(address(2)),
                object,
                length: 500,
                must_exist: true,
                ..Default::default()
            };
            rig.call::<op::CopyObjectRange>(&request).map(drop)
        }
    }
}

/// A server was stopped for 15 s with a write in its socket. The write was sent again over another connection, its
/// writer wrote something newer, and then the server read what lay in the socket: the file had the old bytes, synced
/// and for ever.
#[test]
fn an_earlier_form_of_a_change_that_was_sent_again_changes_nothing() {
    for kind in 0..5 {
        let rig = Rig::new(1);
        rig.write(2, 0, &pattern(9, 500)).expect("writes");
        write(&rig, 1, 0, 2).expect("writes");
        send(&rig, kind, 1).expect("the repetition is carried out");
        write(&rig, 2, 0, 3).expect("writes");
        let late = send(&rig, kind, 0).map_err(|fault| fault.code);
        assert_eq!(late, Err(Code::Conflict), "kind {kind}");
        assert!(rig.read_all(1).expect("reads") == Some(pattern(3, LENGTH)), "kind {kind}");
        // What is not a repetition goes on as ever, also of the same sender and to the same place.
        write(&rig, 8, 0, 4).expect("writes");
        send(&rig, kind, 2).expect("a later attempt");
    }
}

#[test]
fn a_first_form_that_comes_before_its_repetition_is_carried_out() {
    let rig = Rig::new(1);
    write(&rig, 1, 0, 2).expect("writes");
    write(&rig, 1, 1, 2).expect("writes again");
    assert!(rig.read_all(1).expect("reads") == Some(pattern(2, LENGTH)));
}

/// A removal did not look at it. A primary evens out an object whose first write has failed by removing it; where the
/// removal waited in the queue of a member's disk until that was given up and the object written anew, it took the new
/// one from that copy alone. Seeds of the simulation in which removals came twice led to it.
#[test]
fn a_removal_that_its_primary_has_given_up_removes_nothing() {
    let rig = Rig::new(1);
    rig.write(1, 0, &pattern(1, 500)).expect("writes");
    let (target, id, group) = (&rig.service.targets[0], (&address(1)).into(), GroupId(9));
    let asked = |epoch, stream| [(id, Some(Passed { group, epoch, stream }))];
    rig.service.leases.latest.hear((target.id(), group), 3, 5);
    for (epoch, stream) in [(3, 4), (2, 6)] {
        let late = target.remove(&asked(epoch, stream)).map_err(|stop| fault(stop).code);
        assert_eq!(late, Err(Code::WrongEpoch), "epoch {epoch}, stream {stream}");
        assert!(rig.read_all(1).expect("reads") == Some(pattern(1, 500)));
    }
    assert_eq!(target.remove(&asked(3, 5)).map_err(|stop| fault(stop).code), Ok(1));
    assert_eq!(rig.read_all(1).expect("reads"), None);
}
