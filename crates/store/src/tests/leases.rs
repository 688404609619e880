//! What a server learns of its groups of several members, from a metadata service that says what the test wants.

use super::Rig;
use crate::MemberView;
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use vazao_model::cluster::membership::{Change, Membership};
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::messages::members::group_members;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::{Method, proto};

const META: &str = "meta:1";

/// Says that target 1 has this process, and what its groups are; a page has one.
#[derive(Default)]
struct Told {
    process: u64,
    epoch: u64,
    groups: Vec<proto::GroupMembers>,
    /// Requests for groups.
    asked: usize,
    /// It does not know what groups are.
    is_old: bool,
}

struct Meta(Mutex<Told>);

impl Service for Meta {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let mut told = self.0.lock();
        match request.method {
            Method::RegisterNode => {
                let verdict = proto::Verdict { what: 1, process: told.process, ..Default::default() };
                let answer = proto::RegisterNodeResponse {
                    cluster_id: 7,
                    node: 1,
                    targets: vec![1],
                    verdicts: vec![verdict],
                    epoch: told.epoch,
                    ..Default::default()
                };
                responder.reply(&answer.encode_to_vec());
            }
            Method::GetGroups if !told.is_old => {
                told.asked += 1;
                let asked = proto::GetGroupsRequest::decode(request.message).expect("decodes");
                let behind: Vec<_> = told.groups.iter().filter(|it| it.group > asked.after).collect();
                let groups = behind.iter().take(1).map(|&group| group.clone()).collect();
                let more = behind.len() > 1;
                responder
                    .reply(&proto::GetGroupsResponse { groups, more, ..Default::default() }.encode_to_vec());
            }
            _ => responder.fail(&Fault::new(Code::Unsupported, "another request")),
        }
    }
}

fn rig() -> (Rig, Arc<Meta>) {
    let rig = Rig::new(1);
    let meta = Arc::new(Meta(Mutex::new(Told { process: 5, epoch: 1, ..Told::default() })));
    rig.transport.serve(META, Arc::clone(&meta) as _);
    (rig, meta)
}

fn beat(rig: &Rig) -> Vec<MemberView> {
    rig.service.heartbeat(&*rig.transport, META, u64::MAX).expect("is registered");
    rig.service.memberships()
}

fn pair(process: u64) -> Membership {
    Membership::new(&[(TargetId(1), process), (TargetId(2), 9)]).expect("legal")
}

/// The group of this number after the first one.
fn group(number: u32) -> GroupId {
    GroupId(GroupId::FIRST + number)
}

#[test]
fn a_server_keeps_its_process_and_the_records_of_groups_with_several_members_alone() {
    let (rig, meta) = rig();
    let alone = Membership::new(&[(TargetId(1), 0)]).expect("legal");
    let of = |number, record: &Membership| group_members(group(number), record);
    meta.0.lock().groups = vec![of(1, &alone), of(2, &pair(5)), of(3, &alone), of(4, &pair(5))];
    let views = beat(&rig);
    assert_eq!(views.iter().map(|view| view.group).collect::<Vec<_>>(), [group(2), group(4)]);
    for view in views {
        assert_eq!((view.target, view.process, &view.record), (TargetId(1), 5, &pair(5)));
        assert!(!view.may_serve && !view.may_acknowledge, "the other member has granted nothing");
    }
}

#[test]
fn records_are_asked_for_once_for_each_membership_and_for_each_process() {
    let (rig, meta) = rig();
    meta.0.lock().groups = vec![group_members(group(2), &pair(5))];
    (0..3).for_each(|_| drop(beat(&rig)));
    assert_eq!(meta.0.lock().asked, 1);
    let next = pair(5).changed(1, Change::PutOut(vec![TargetId(2)])).expect("legal");
    let told = |epoch, record: &Membership| {
        let mut told = meta.0.lock();
        (told.epoch, told.groups) = (epoch, vec![group_members(group(2), record)]);
    };
    told(2, &next);
    let views = beat(&rig);
    assert_eq!((views[0].record.epoch, meta.0.lock().asked), (2, 2));
    assert!(views[0].may_serve, "the only current member needs no lease");
    assert!(!views[0].may_acknowledge, "the process before it may have granted one");
    rig.clock.advance(std::time::Duration::from_millis(2_021));
    assert!(beat(&rig)[0].may_acknowledge, "which has ended by now");
    // An answer that is older than what is known.
    told(3, &pair(5));
    assert_eq!(beat(&rig)[0].record.epoch, 2);
    // Another process has other leases, and is in no epoch until its record comes.
    meta.0.lock().process = 6;
    let views = beat(&rig);
    assert_eq!((views[0].process, views[0].record.epoch, meta.0.lock().asked), (6, 1, 4));
    assert!(!views[0].may_serve);
}

#[test]
fn groups_that_a_target_has_left_are_forgotten() {
    let (rig, meta) = rig();
    meta.0.lock().groups = vec![group_members(group(2), &pair(5)), group_members(group(3), &pair(5))];
    assert_eq!(beat(&rig).len(), 2);
    let mut told = meta.0.lock();
    told.epoch = 2;
    told.groups.remove(0);
    drop(told);
    let views = beat(&rig);
    assert_eq!(views.iter().map(|view| view.group).collect::<Vec<_>>(), [group(3)]);
}

#[test]
fn a_record_that_is_damaged_spoils_no_registration_and_is_asked_for_again() {
    let (rig, meta) = rig();
    meta.0.lock().groups = vec![proto::GroupMembers { epoch: 0, ..group_members(group(2), &pair(5)) }];
    assert_eq!(beat(&rig), []);
    meta.0.lock().groups = vec![group_members(group(2), &pair(5))];
    assert_eq!(beat(&rig).len(), 1);
}

#[test]
fn a_metadata_service_from_before_groups_is_no_trouble() {
    let (rig, meta) = rig();
    meta.0.lock().is_old = true;
    assert_eq!(beat(&rig), []);
    assert_eq!(rig.service.memberships(), []);
}
