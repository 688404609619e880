//! What members of placement groups say of one another: who goes, who comes back, who leads.

use super::group_members::{Server, group, membership, seconds, servers};
use super::harness::{Inbox, World, options, send};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_model::cluster::membership::{Membership, Standing};
use vazao_model::error::has_remedy;
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::service::{Fault, Service};
use vazao_wire::{op, proto};

/// What a member says of a group in the epoch that this service has, before it is said what.
fn report(world: &World, server: &Server, id: GroupId) -> proto::MemberReport {
    let epoch = membership(world, id).epoch;
    let (target, process) = (server.target().0, server.process);
    proto::MemberReport { group: id.0, epoch, target, process, ..Default::default() }
}

fn accusation(world: &World, server: &Server, id: GroupId, silent: &[&Server]) -> proto::MemberReport {
    let silent = silent.iter().map(|server| server.target().0).collect();
    proto::MemberReport { silent, ..report(world, server, id) }
}

fn promotion(world: &World, server: &Server, id: GroupId, of: &Server) -> proto::MemberReport {
    let promote = proto::MemberPromotion { target: of.target().0, process: of.process, instead_of: 0 };
    proto::MemberReport { promote: Some(promote), ..report(world, server, id) }
}

fn lead(world: &World, server: &Server, id: GroupId, kept_power: bool) -> proto::MemberReport {
    proto::MemberReport { lead: Some(proto::MemberLead { kept_power }), ..report(world, server, id) }
}

fn sent(world: &World, server: &Server, reports: Vec<proto::MemberReport>) -> Inbox {
    let (node, run) = (server.request.node, server.request.run);
    send::<op::ReportMembers>(&world.service, &proto::ReportMembersRequest { node, run, reports })
}

fn answer(inbox: &Inbox) -> Result<Vec<proto::MemberOutcome>, Fault> {
    let (message, _) = inbox.take().expect("answered")?;
    Ok(proto::ReportMembersResponse::decode(message.as_slice()).expect("an answer decodes").outcomes)
}

/// What became of a report that accuses no member: it is decided at once.
fn at_once(world: &World, server: &Server, report: proto::MemberReport) -> String {
    let inbox = sent(world, server, vec![report]);
    world.service.settle_reports(Duration::ZERO);
    answer(&inbox).unwrap().remove(0).refused
}

/// What became of a report, after accusations were gathered.
fn outcome(world: &World, server: &Server, report: proto::MemberReport) -> proto::MemberOutcome {
    let inbox = sent(world, server, vec![report]);
    world.clock.advance(Duration::from_millis(100));
    world.service.settle_reports(Duration::ZERO);
    answer(&inbox).unwrap().remove(0)
}

fn targets(membership: &Membership) -> Vec<TargetId> {
    membership.current().map(|member| member.target).collect()
}

#[test]
fn accusations_are_gathered_and_of_two_that_accuse_each_other_the_later_goes() {
    let world = World::new();
    let all: [Server; 2] = servers(&world);
    let id = group(&world, &all);
    let of_second = sent(&world, &all[1], vec![accusation(&world, &all[1], id, &[&all[0]])]);
    world.clock.advance(Duration::from_millis(60));
    let of_first = sent(&world, &all[0], vec![accusation(&world, &all[0], id, &[&all[1]])]);
    world.clock.advance(Duration::from_millis(39));
    world.service.settle_reports(Duration::ZERO);
    assert!(of_first.take().is_none() && of_second.take().is_none(), "the other end may speak yet");
    assert_eq!(membership(&world, id).epoch, 1);
    world.clock.advance(Duration::from_millis(1));
    world.service.settle_reports(Duration::ZERO);
    let now = membership(&world, id);
    assert_eq!((now.epoch, targets(&now)), (2, vec![all[0].target()]));
    assert_eq!(now.member(all[1].target()).unwrap().standing, Standing::Lagging { since: 2 });
    let (first, second) = (answer(&of_first).unwrap().remove(0), answer(&of_second).unwrap().remove(0));
    assert_eq!(first.refused, "");
    assert!(second.refused.contains("t2 was taken out itself"), "{}", second.refused);
    for told in [first, second] {
        let (named, told) = vazao_wire::messages::members::membership(&told.now.unwrap()).unwrap();
        assert_eq!((named, told), (id, now.clone()));
    }
    world.assert_consistent();
}

#[test]
fn a_server_that_others_outside_of_the_group_accuse_too_goes_first() {
    let world = World::new();
    let all: [Server; 4] = servers(&world);
    let together = |others: [usize; 2]| world.service.make_group(&others.map(|at| all[at].target())).unwrap();
    let [id, with_third, with_fourth] = [[0, 1], [0, 2], [3, 0]].map(together);
    let accuses = |by: usize, id: GroupId, of: usize| {
        sent(&world, &all[by], vec![accusation(&world, &all[by], id, &[&all[of]])])
    };
    let inboxes =
        [accuses(0, id, 1), accuses(1, id, 0), accuses(2, with_third, 0), accuses(3, with_fourth, 0)];
    world.clock.advance(Duration::from_millis(100));
    world.service.settle_reports(Duration::ZERO);
    let refused = inboxes.map(|inbox| answer(&inbox).unwrap().remove(0).refused);
    assert!(refused[0].contains("t1 was taken out itself"), "{refused:?}");
    assert_eq!(refused[1..], ["", "", ""]);
    for (id, left) in [(id, 1), (with_third, 2), (with_fourth, 3)] {
        assert_eq!(targets(&membership(&world, id)), [all[left].target()]);
    }
    world.assert_consistent();
}

#[test]
fn what_is_late_or_of_no_member_that_counts_changes_nothing_and_is_answered_with_the_record() {
    let world = World::new();
    let mut all: [Server; 4] = servers(&world);
    let id = group(&world, &all[..3]);
    let good = accusation(&world, &all[0], id, &[&all[1]]);
    let refused = |report: proto::MemberReport, word: &str| {
        let before = membership(&world, id);
        let outcome = outcome(&world, &all[0], report);
        assert!(outcome.refused.contains(word), "{word}: {}", outcome.refused);
        assert_eq!(membership(&world, id), before);
        outcome.now
    };
    let told =
        refused(proto::MemberReport { epoch: 2, ..good.clone() }, "is in epoch 1: ask for its members");
    assert_eq!(told.unwrap().epoch, 1);
    refused(proto::MemberReport { process: 77, ..good.clone() }, "process 77 of t1 is none that runs");
    refused(proto::MemberReport { target: 3, ..good.clone() }, "t3 is no target of n2; register it first");
    let other = proto::MemberReport { target: 4, process: all[3].process, ..good.clone() };
    refused(other, "t4 is no member");
    let none =
        refused(proto::MemberReport { group: id.0 + 1, ..good.clone() }, "is no placement group of several");
    assert_eq!(none, None);
    let plain = proto::MemberReport { group: GroupId::FIRST, ..good.clone() };
    refused(plain, "is no placement group of several");
    // The first two are put out: what the third says of them later counts, what they say does not.
    assert_eq!(outcome(&world, &all[0], good.clone()).refused, "");
    assert!(outcome(&world, &all[0], good.clone()).refused.contains("is in epoch 2"), "the same again");
    let of_lagging = outcome(&world, &all[1], accusation(&world, &all[1], id, &[&all[0]]));
    assert!(of_lagging.refused.contains("t2 is not current"), "{}", of_lagging.refused);
    all[2].start(&world);
    let not_entered = outcome(&world, &all[2], accusation(&world, &all[2], id, &[&all[0]]));
    assert!(not_entered.refused.contains("is in no epoch yet"), "{}", not_entered.refused);
    world.assert_consistent();
}

#[test]
fn reports_that_make_no_sense_are_refused_with_what_to_do() {
    let world = World::new();
    let all: [Server; 2] = servers(&world);
    let id = group(&world, &all);
    let good = accusation(&world, &all[0], id, &[&all[1]]);
    let (node, run) = (all[0].request.node, all[0].request.run);
    let refused = |node: u32, run: u64, reports: Vec<proto::MemberReport>| {
        let request = proto::ReportMembersRequest { node, run, reports };
        let fault = send::<op::ReportMembers>(&world.service, &request).take().expect("at once").unwrap_err();
        assert!(has_remedy(&fault.detail), "{fault}");
        fault.code
    };
    assert_eq!(refused(99, run, vec![good.clone()]), Code::Invalid);
    assert_eq!(refused(node, run + 1, vec![good.clone()]), Code::InUse);
    assert_eq!(refused(node, 0, vec![good.clone()]), Code::InUse);
    assert_eq!(refused(node, run, vec![good.clone(); 1025]), Code::BadRequest);
    assert_eq!(refused(node, run, vec![report(&world, &all[0], id)]), Code::BadRequest);
    let both = proto::MemberReport { lead: Some(proto::MemberLead::default()), ..good.clone() };
    assert_eq!(refused(node, run, vec![both]), Code::BadRequest);
    let itself = proto::MemberReport { silent: vec![1], ..good.clone() };
    assert_eq!(refused(node, run, vec![itself]), Code::BadRequest);
    let many = proto::MemberReport { silent: vec![2; 10], ..good };
    assert_eq!(refused(node, run, vec![many]), Code::BadRequest);
    assert_eq!(membership(&world, id).epoch, 1);
    let none = sent(&world, &all[0], Vec::new());
    world.service.settle_reports(Duration::ZERO);
    assert_eq!(answer(&none).unwrap(), []);
}

#[test]
fn a_member_that_has_caught_up_is_promoted_by_the_primary_and_a_promotion_can_be_given_up() {
    let world = World::new();
    let all: [Server; 3] = servers(&world);
    let id = group(&world, &all);
    assert_eq!(outcome(&world, &all[1], accusation(&world, &all[1], id, &[&all[0]])).refused, "");
    assert_eq!(targets(&membership(&world, id)), [all[1].target(), all[2].target()]);
    let promote = promotion(&world, &all[1], id, &all[0]);
    let by_another = outcome(&world, &all[2], promotion(&world, &all[2], id, &all[0]));
    assert!(by_another.refused.contains("t3 is not the primary"), "{}", by_another.refused);
    // Given up, so the late request for it is refused.
    assert_eq!(outcome(&world, &all[1], accusation(&world, &all[1], id, &[&all[0]])).refused, "");
    assert_eq!(membership(&world, id).epoch, 3);
    assert!(outcome(&world, &all[1], promote).refused.contains("is in epoch 3"));
    assert_eq!(at_once(&world, &all[1], promotion(&world, &all[1], id, &all[0])), "");
    let now = membership(&world, id);
    assert_eq!((now.epoch, targets(&now)), (4, [1, 2, 0].map(|at| all[at].target()).to_vec()));
    world.assert_consistent();
}

#[test]
fn a_process_leads_where_no_other_one_is_left_and_after_a_loss_of_power_later() {
    for (kept_power, after, losses) in [(true, 5, 0), (false, 30, 1)] {
        let world = World::new();
        let mut all: [Server; 2] = servers(&world);
        let id = group(&world, &all);
        seconds(&world, 1);
        all[1].start(&world);
        let asked = |server: &Server| at_once(&world, server, lead(&world, server, id, kept_power));
        assert!(asked(&all[1]).contains("t1 may be left: ask again"));
        for _ in 1..after {
            seconds(&world, 1);
            assert_ne!(asked(&all[1]), "", "{kept_power}");
        }
        seconds(&world, 1);
        assert_eq!(asked(&all[1]), "", "{kept_power}");
        let now = membership(&world, id);
        assert_eq!((now.epoch, targets(&now), now.losses), (2, vec![all[1].target()], losses));
        assert_eq!(now.primary().unwrap().run, all[1].process);
        world.assert_consistent();
    }
}

#[test]
fn no_process_leads_while_another_one_is_left() {
    let world = World::new();
    let mut all: [Server; 2] = servers(&world);
    let id = group(&world, &all);
    seconds(&world, 1);
    all[1].start(&world);
    seconds(&world, 60);
    all[0].report(&world);
    let refused = at_once(&world, &all[1], lead(&world, &all[1], id, true));
    assert!(refused.contains("t1 of the group serves; catch up from it"), "{refused}");
    assert_eq!(membership(&world, id).epoch, 1);
}

#[test]
fn the_only_current_member_leads_again_at_once() {
    let world = World::new();
    let mut all: [Server; 2] = servers(&world);
    let id = group(&world, &all);
    assert_eq!(outcome(&world, &all[0], accusation(&world, &all[0], id, &[&all[1]])).refused, "");
    all[0].start(&world);
    assert_eq!(membership(&world, id).epoch, 2, "it is never taken out");
    assert_eq!(at_once(&world, &all[0], lead(&world, &all[0], id, false)), "");
    let now = membership(&world, id);
    assert_eq!((now.epoch, now.losses, targets(&now)), (3, 1, vec![all[0].target()]));
    world.assert_consistent();
}

#[test]
fn a_decision_is_durable_before_it_is_answered() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let all: [Server; 2] = servers(&world);
    let id = group(&world, &all);
    assert_eq!(outcome(&world, &all[0], accusation(&world, &all[0], id, &[&all[1]])).refused, "");
    let decided = membership(&world, id);
    assert_eq!(decided.epoch, 2);
    disk.crash();
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(membership(&again, id), decided);
    again.assert_consistent();
}

#[test]
fn the_groups_of_a_target_are_told_in_pages_with_where_their_members_are() {
    let world = World::new();
    let all: [Server; 3] = servers(&world);
    let ids = [group(&world, &all), group(&world, &all[1..])];
    let get = |target: u32, after: u32, limit: u32| {
        world.try_call::<op::GetGroups>(&proto::GetGroupsRequest { target, after, limit })
    };
    let all_of_second = get(2, 0, 0).unwrap();
    assert_eq!((all_of_second.groups.len(), all_of_second.more), (64 + 2, false));
    let page = get(2, ids[0].0 - 1, 1).unwrap();
    assert_eq!((page.groups.len(), page.more), (1, true));
    let (id, told) = vazao_wire::messages::members::membership(&page.groups[0]).unwrap();
    assert_eq!((id, told), (ids[0], membership(&world, ids[0])));
    let places: Vec<_> = page.servers.iter().map(|s| (s.target, s.node, s.address.as_str())).collect();
    assert_eq!(places, [(1, 2, "data1:1"), (2, 3, "data2:1"), (3, 4, "data3:1")]);
    let last = get(2, ids[0].0, 1).unwrap();
    assert_eq!((last.groups[0].group, last.more), (ids[1].0, false));
    assert_eq!(get(1, ids[0].0, 0).unwrap().groups, []);
    let unknown = get(9, 0, 0).unwrap_err();
    assert!(unknown.code == Code::NotFound && has_remedy(&unknown.detail), "{unknown}");
}

#[test]
fn a_record_that_is_not_durable_is_not_told() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut all: [Server; 2] = servers(&world);
    let id = group(&world, &all);
    seconds(&world, 1);
    all[1].start(&world);
    seconds(&world, 1);
    all[0].report(&world);
    // The heartbeat that enters it is not flushed.
    let entering = send::<op::RegisterNode>(&world.service, &all[1].request);
    assert_eq!(membership(&world, id).epoch, 2);
    let request = proto::GetGroupsRequest { target: 1, ..Default::default() };
    let asked = send::<op::GetGroups>(&world.service, &request);
    let reporting = send::<op::RegisterNode>(&world.service, &all[0].request);
    let is_answered = [&entering, &asked, &reporting].map(|inbox| inbox.take().is_some());
    assert_eq!(is_answered, [false; 3], "power loss may take it back");
    world.service.flush().unwrap();
    let (message, _) = super::harness::answer_of(&asked).expect("answered").unwrap();
    let told = proto::GetGroupsResponse::decode(message.as_slice()).unwrap();
    assert!(told.groups.iter().any(|group| (group.group, group.epoch) == (id.0, 2)));
}
