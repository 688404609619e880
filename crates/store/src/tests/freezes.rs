//! Fences through the service: what a converter and the clients of a file see of them.

use super::{CHUNK, Rig, address, pattern};
use std::io::ErrorKind;
use vazao_model::Code;
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

const WATCH: u32 = 1;
const SEAL: u32 = 2;
const LIFT: u32 = 3;

fn fence(rig: &Rig, step: u32) -> Result<bool, Fault> {
    let request = proto::FenceObjectsRequest { objects: vec![address(1)], token: 5, step };
    rig.call::<op::FenceObjects>(&request).map(|response| response.changed)
}

#[test]
fn a_sealed_object_refuses_every_change_also_after_power_loss_and_is_read_as_ever() {
    let mut rig = Rig::new(1);
    rig.write(1, 0, &pattern(1, 300_000)).expect("writes");
    rig.sync(1).expect("syncs");
    assert!(fence(&rig, SEAL).expect("asks"), "nobody watched");
    fence(&rig, WATCH).expect("watches");
    rig.write(1, 0, &pattern(1, 1_000)).expect("a watched object is written to");
    assert!(fence(&rig, SEAL).expect("asks"), "it was changed");
    fence(&rig, WATCH).expect("watches anew");
    assert!(!fence(&rig, SEAL).expect("seals"));
    for _ in 0..2 {
        let refused = [rig.write(1, 0, &[1]).map(drop), rig.truncate(1, 5), rig.punch(1, 0, 5)];
        assert!(refused.iter().all(|r| r.as_ref().is_err_and(|f| f.code == Code::Converting)), "{refused:?}");
        assert_eq!(rig.read_all(1).expect("reads"), Some(pattern(1, 300_000)));
        rig.crash();
    }
    fence(&rig, LIFT).expect("lifts");
    rig.write(1, 0, &[1]).expect("writes");
    assert_eq!(fence(&rig, 4).map_err(|fault| fault.code), Err(Code::BadRequest));
}

#[test]
fn what_must_exist_is_not_made_and_not_passed_over() {
    let rig = Rig::new(1);
    let (object, must_exist) = (Some(address(1)), true);
    let cut = proto::TruncateObjectRequest { object: object.clone(), length: 5, must_exist };
    assert_eq!(rig.call::<op::TruncateObject>(&cut).map_err(|fault| fault.code), Err(Code::NotFound));
    let punch = proto::PunchObjectRequest { object: object.clone(), offset: 0, length: 5, must_exist };
    assert_eq!(rig.call::<op::PunchObject>(&punch).map_err(|fault| fault.code), Err(Code::NotFound));
    let write = proto::WriteRequest { object, must_exist, ..Default::default() };
    assert_eq!(rig.write_response(&write, &[]).map_err(|fault| fault.code), Err(Code::NotFound));
    assert!(rig.read(1, 0, 1).expect("reads").missing);
}

/// Chunks are removed one after the other, the first one last. A server that was ended in between showed those that
/// were left as an object with holes, to clients that still had the file's old layout.
#[test]
fn a_sealed_object_whose_removal_was_interrupted_is_whole_or_missing() {
    let whole = pattern(3, 4 * CHUNK as usize - 5);
    for count in 0..60 {
        let mut rig = Rig::new(count);
        rig.write(1, 0, &whole).expect("writes");
        rig.sync(1).expect("syncs");
        fence(&rig, WATCH).expect("watches");
        assert!(!fence(&rig, SEAL).expect("seals"));
        rig.disk.fail_after(count, ErrorKind::Other);
        let removed = rig.remove(1);
        rig.disk.clear_faults();
        if count % 2 == 0 {
            rig.restart()
        } else {
            rig.crash()
        }
        match rig.read_all(1) {
            Ok(found) => assert!(found.is_none_or(|bytes| bytes == whole), "after {count}: {removed:?}"),
            Err(fault) => assert_eq!(fault.code, Code::TargetFailed, "after {count}: {fault}"),
        }
        if rig.remove(1).is_ok() {
            assert!(rig.read(1, 0, 1).expect("reads").missing && rig.list(10).expect("lists").is_empty());
            let late = rig.write(1, 0, &[1]).map_err(|fault| fault.code);
            assert_eq!(late, Err(Code::NotFound), "nobody would read it");
        }
    }
}
