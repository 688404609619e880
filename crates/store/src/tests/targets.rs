//! Several targets in one server: one more while it runs, one that fails.

use super::{Rig, address, pattern};
use crate::{MissingTarget, OpenError, Options};
use std::io::ErrorKind;
use std::sync::Arc;
use vazao_disk::{Disk, MemoryDisk};
use vazao_model::checksum::piece_checksums;
use vazao_model::{Code, GroupId, TargetState};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// A server with a second target, which has the id 2, and that target's disk.
fn rig() -> (Rig, MemoryDisk) {
    let rig = Rig::new(1);
    let second = MemoryDisk::new(2);
    rig.service.add_target(Arc::new(second.boot()) as Arc<dyn Disk>, "/second").expect("opens");
    assert_eq!(ids(&rig), [1, 0], "announced without an id first");
    register(&rig, &[1]).expect("the answer to what was asked before it was there");
    register(&rig, &[1, 2]).expect("and now it has one");
    (rig, second)
}

fn ids(rig: &Rig) -> Vec<u32> {
    rig.service.registration().targets.iter().map(|target| target.id).collect()
}

fn register(rig: &Rig, targets: &[u32]) -> Result<(), Fault> {
    rig.service.set_registration(0, &answer(targets.to_vec(), vec![])).map(|_| ())
}

fn answer(targets: Vec<u32>, verdicts: Vec<proto::Verdict>) -> proto::RegisterNodeResponse {
    proto::RegisterNodeResponse { cluster_id: 7, node: 1, targets, verdicts, epoch: 1, ..Default::default() }
}

fn write(rig: &Rig, target: u32, bytes: &[u8]) -> Result<(), Fault> {
    let object = proto::ObjectAddress { target, ..address(1) };
    let checksums = piece_checksums(0, bytes);
    let request = proto::WriteRequest {
        object: Some(object),
        offset: 0,
        checksums,
        sync: false,
        must_exist: false,
        lent: None,
    };
    rig.write_response(&request, bytes).map(|_| ())
}

#[test]
fn a_target_that_is_added_takes_objects_and_is_the_same_after_a_restart() {
    let (rig, second) = rig();
    write(&rig, 2, &pattern(1, 100_000)).expect("writes");
    rig.service.close();
    rig.disk.kill();
    second.kill();
    let disk = |disk: &MemoryDisk, label: &str| (Arc::new(disk.boot()) as Arc<dyn Disk>, label.to_owned());
    let disks = vec![disk(&rig.disk, "/disk"), disk(&second, "/second")];
    let again = crate::DataService::open(disks, super::options(), rig.clock.clone()).expect("opens");
    let found: Vec<u32> = again.registration().targets.iter().map(|target| target.id).collect();
    assert_eq!(found, [1, 2]);
}

#[test]
fn a_registration_without_a_target_that_was_announced_is_refused() {
    let (rig, _) = rig();
    for wrong in [vec![], vec![1], vec![1, 2, 3], vec![2, 1]] {
        assert!(register(&rig, &wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(ids(&rig), [1, 2]);
}

#[test]
fn a_disk_that_fails_takes_its_target_out_and_leaves_the_others() {
    let (rig, second) = rig();
    second.fail_writes(".data", ErrorKind::Other);
    let fault = write(&rig, 2, &pattern(1, 100_000)).expect_err("fails");
    assert_eq!(fault.code, Code::TargetFailed);
    write(&rig, 1, &pattern(1, 100_000)).expect("the other target goes on");
    let targets = rig.service.registration().targets;
    assert_eq!(targets[0].state, TargetState::Serving as u32);
    assert_eq!(targets[1].state, TargetState::Failed as u32);
    assert!(targets[1].trouble.contains(".data"), "{}", targets[1].trouble);
    assert_eq!(rig.service.failed_targets(), 1);
    // It keeps its place among the others while it is out of service.
    register(&rig, &[1, 2]).expect("goes on reporting");
}

#[test]
fn a_target_of_another_cluster_or_one_that_is_served_already_is_not_added() {
    let (rig, second) = rig();
    let twice = rig.service.add_target(Arc::new(second.boot()) as Arc<dyn Disk>, "/second");
    assert!(twice.is_err());
    let foreign = MemoryDisk::new(3);
    let other = super::start(&foreign, &super::options(), &rig.clock).expect("opens");
    let response = proto::RegisterNodeResponse {
        cluster_id: 8,
        node: 1,
        targets: vec![1],
        epoch: 1,
        ..Default::default()
    };
    assert!(other.set_registration(0, &response).is_err(), "it belongs to cluster 7");
    other.close();
    foreign.kill();
    let stranger = MemoryDisk::new(4);
    let disks = vec![(Arc::new(stranger.boot()) as Arc<dyn Disk>, "/other".to_owned())];
    let other = crate::DataService::open(disks, super::options(), rig.clock.clone()).expect("opens");
    other.set_registration(0, &response).expect("joins cluster 8");
    other.close();
    drop(other);
    stranger.kill();
    let added = rig.service.add_target(Arc::new(stranger.boot()) as Arc<dyn Disk>, "/other");
    assert!(matches!(added, Err(OpenError::OtherCluster { .. })), "{added:?}");
    assert_eq!(ids(&rig), [1, 2], "the others go on");
}

/// A server whose second target, with the id 2, is missing, and that target's disk.
fn rig_with_one_missing() -> (Rig, MemoryDisk) {
    let second = MemoryDisk::new(2);
    let disks = || vec![(Arc::new(second.boot()) as Arc<dyn Disk>, "/second".to_owned())];
    let before = crate::DataService::open(disks(), super::options(), Rig::new(1).clock).expect("opens");
    before.set_registration(0, &answer(vec![2], vec![])).expect("has its id");
    second.kill();
    let name = crate::inspect(&second, "/second").expect("readable").expect("a target");
    let missing =
        MissingTarget { id: 2, uuid: name.uuid, directory: "/second".into(), why: "not mounted".into() };
    (Rig::with(MemoryDisk::new(1), Options { missing: vec![missing], ..super::options() }), second)
}

/// Added while the answer to a heartbeat that called it missing was under way, it was served unjudged: an older copy
/// took writes for two seconds.
#[test]
fn a_target_that_comes_back_is_not_served_before_it_was_judged() {
    let (rig, second) = rig_with_one_missing();
    rig.service.add_target(Arc::new(second.boot()) as Arc<dyn Disk>, "/second").expect("opens");
    let verdict = |what| proto::Verdict { what, ..Default::default() };
    for (what, code) in [(0, Err(Code::Unavailable)), (1, Ok(()))] {
        let response = answer(vec![1, 2], vec![verdict(1), verdict(what)]);
        rig.service.set_registration(0, &response).expect("fits");
        assert_eq!(write(&rig, 2, &pattern(1, 1000)).map_err(|fault| fault.code), code);
    }
}

/// What the metadata service says to a report that knows `asked_epoch`: the groups only where that is not its own.
fn told(asked_epoch: u64, verdicts: [u32; 2]) -> proto::RegisterNodeResponse {
    const EPOCH: u64 = 5;
    let group = |number: u32, member: u32| proto::Group {
        id: GroupId::FIRST + number,
        epoch: 1,
        members: vec![member],
        ..Default::default()
    };
    let groups = if asked_epoch == EPOCH { vec![] } else { vec![group(0, 1), group(1, 2)] };
    let verdicts = verdicts.map(|what| proto::Verdict { what, ..Default::default() });
    proto::RegisterNodeResponse { epoch: EPOCH, groups, ..answer(vec![1, 2], verdicts.to_vec()) }
}

/// Writes to the group of the first or the second target.
fn write_group(rig: &Rig, number: u32) -> Result<(), Code> {
    let object = proto::ObjectAddress { target: 0, group: GroupId::FIRST + number, ..address(1) };
    let bytes = pattern(1, 1000);
    let request = proto::WriteRequest {
        object: Some(object),
        offset: 0,
        checksums: piece_checksums(0, &bytes),
        sync: false,
        must_exist: false,
        lent: None,
    };
    rig.write_response(&request, &bytes).map(|_| ()).map_err(|fault| fault.code)
}

/// A disk that was mounted after its server had started without it could neither be read nor written until something
/// else changed the membership: the server called the epoch known although it had thrown the groups of the missing
/// target away, and was not told them again.
#[test]
fn the_groups_of_a_target_that_comes_back_are_asked_for_until_they_are_kept() {
    let (rig, second) = rig_with_one_missing();
    rig.service.set_registration(0, &told(0, [1, 0])).expect("fits");
    let asked_epoch = rig.service.registration().epoch;
    assert_eq!(asked_epoch, 0, "groups of the missing target are to be told again");
    assert_eq!(write_group(&rig, 0), Ok(()), "the other target is served meanwhile");
    rig.service.add_target(Arc::new(second.boot()) as Arc<dyn Disk>, "/second").expect("opens");
    rig.service.set_registration(asked_epoch, &told(asked_epoch, [1, 1])).expect("fits");
    assert_eq!((write_group(&rig, 0), write_group(&rig, 1)), (Ok(()), Ok(())));
    assert_eq!(rig.service.registration().epoch, 5, "known, now that all is kept");
}

/// The epoch that was asked with was worked out anew when the answer came: where it had changed between, an answer
/// without groups took those of all targets away.
#[test]
fn an_answer_is_understood_by_the_epoch_of_its_own_request() {
    let (rig, _second) = rig();
    rig.service.set_registration(0, &told(0, [1, 1])).expect("fits");
    let asked_epoch = rig.service.registration().epoch;
    // Meanwhile an answer to a report of another thread: by another process of the service, which was not told of.
    let mark = Some(proto::HistoryMark { run: 3, ..Default::default() });
    let other = proto::RegisterNodeResponse { mark, ..told(asked_epoch, [1, 1]) };
    rig.service.set_registration(asked_epoch, &other).expect("fits");
    assert_eq!(rig.service.registration().epoch, 0, "that one has to tell all");
    rig.service.set_registration(asked_epoch, &told(asked_epoch, [1, 1])).expect("fits");
    assert_eq!((write_group(&rig, 0), write_group(&rig, 1)), (Ok(()), Ok(())));
}
