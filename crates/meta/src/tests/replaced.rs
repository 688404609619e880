//! An empty directory in the place of a lost target: it lags everywhere with nothing, until a current member has filled
//! it, and what was lost is never its directory again.

use super::group_members::{Server, group, membership, seconds, servers};
use super::harness::{World, call, options, send};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_model::cluster::membership::{Membership, Standing};
use vazao_model::error::has_remedy;
use vazao_model::{Code, GroupId, TargetId, TargetState};
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

const OLD: [u8; 16] = [1; 16];
const NEW: [u8; 16] = [2; 16];

/// Servers whose first one's target has a directory with a number.
fn numbered<const N: usize>(world: &World) -> [Server; N] {
    let mut all: [Server; N] = servers(world);
    all[0].request.targets[0].uuid = OLD.to_vec();
    all[0].report(world);
    all
}

/// Its directory is gone.
fn lose(world: &World, server: &mut Server) {
    server.request.targets[0].state = TargetState::Missing as u32;
    server.report(world);
}

fn wish(server: &Server, lose_last_copies: bool) -> proto::ReplaceTargetRequest {
    let (target, node, uuid) = (server.target().0, server.request.node, NEW.to_vec());
    proto::ReplaceTargetRequest { target, node, uuid, directory: "/new".to_owned(), lose_last_copies }
}

fn replace(
    world: &World,
    request: &proto::ReplaceTargetRequest,
) -> Result<proto::ReplaceTargetResponse, Fault> {
    world.try_call::<op::ReplaceTarget>(request)
}

/// The next process of its server finds the new directory, in which nothing is.
fn start_empty(world: &World, server: &mut Server) {
    server.request.targets[0].state = TargetState::Serving as u32;
    server.request.targets[0].uuid = NEW.to_vec();
    server.request.targets[0].directory = "/new".to_owned();
    server.empty();
    server.start(world);
}

fn lead(world: &World, server: &Server, id: GroupId) -> String {
    let report = proto::MemberReport {
        group: id.0,
        epoch: membership(world, id).epoch,
        target: server.target().0,
        process: server.process,
        lead: Some(proto::MemberLead { kept_power: true }),
        ..Default::default()
    };
    let (node, run) = (server.request.node, server.request.run);
    let request = proto::ReportMembersRequest { node, run, reports: vec![report] };
    let inbox = send::<op::ReportMembers>(&world.service, &request);
    world.clock.advance(Duration::from_millis(100));
    world.service.settle_reports(Duration::ZERO);
    let (message, _) = inbox.take().expect("answered").expect("decided");
    let answer = proto::ReportMembersResponse::decode(message.as_slice()).expect("decodes");
    answer.outcomes[0].refused.clone()
}

fn current(membership: &Membership) -> Vec<u32> {
    membership.current().map(|member| member.target.0).collect()
}

fn standing(membership: &Membership, server: &Server) -> Standing {
    membership.member(server.target()).expect("a member").standing
}

#[test]
fn a_replacement_lags_with_nothing_in_all_of_its_groups_and_keeps_its_number() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut all: [Server; 3] = numbered(&world);
    let (first, second) = (group(&world, &all), group(&world, &all[..2]));
    let before = all[0].process;
    lose(&world, &mut all[0]);
    let done = replace(&world, &wish(&all[0], false)).expect("others have everything");
    assert_eq!((done.groups, done.older_groups), (2, 0));
    // Power is lost as soon as it was answered.
    disk.crash();
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    for id in [first, second] {
        let now = membership(&world, id);
        assert_eq!((standing(&now, &all[0]), now.losses), (Standing::Lagging { since: 0 }, 0));
    }
    all[1..].iter_mut().for_each(|other| drop(other.report(&world)));
    start_empty(&world, &mut all[0]);
    assert!(all[0].process > before, "a later incarnation than any that the lost one had");
    assert_eq!(all[0].target(), TargetId(1));
    let now = membership(&world, first);
    let member = now.member(all[0].target()).copied().expect("a member");
    assert_eq!((member.run, member.standing), (all[0].process, Standing::Lagging { since: 0 }));
    assert_eq!(current(&now), [2, 3]);
    assert!(!lead(&world, &all[0], first).is_empty());
    // The answer was lost, and it is asked again: nothing more happens.
    assert_eq!(replace(&world, &wish(&all[0], false)).expect("as before").groups, 0);
    assert_eq!(membership(&world, first), now);
    world.assert_consistent();
}

/// An empty disk went on alone with nothing when the members that had everything were away for longer than 30 s.
#[test]
fn a_replacement_never_leads_however_long_all_others_are_away() {
    let world = World::new();
    let mut all: [Server; 2] = numbered(&world);
    let id = group(&world, &all);
    lose(&world, &mut all[0]);
    seconds(&world, 60);
    lose(&world, &mut all[0]);
    replace(&world, &wish(&all[0], false)).expect("the record's current member is waited for");
    start_empty(&world, &mut all[0]);
    for _ in 0..6 {
        seconds(&world, 20);
        all[0].report(&world);
        assert!(!lead(&world, &all[0], id).is_empty());
        let now = membership(&world, id);
        assert_eq!((current(&now), now.losses), (vec![2], 0));
    }
    all[1].start(&world);
    seconds(&world, 6);
    assert_eq!(lead(&world, &all[1], id), "", "it has everything");
    assert_eq!(standing(&membership(&world, id), &all[0]), Standing::Lagging { since: 0 });
    world.assert_consistent();
}

#[test]
fn the_last_good_copy_is_given_up_with_consent_only_and_an_older_one_goes_on() {
    let world = World::new();
    let mut all: [Server; 2] = numbered(&world);
    let id = group(&world, &all);
    let put_out = proto::MemberReport {
        group: id.0,
        epoch: 1,
        target: all[0].target().0,
        process: all[0].process,
        silent: vec![2],
        ..Default::default()
    };
    let request = proto::ReportMembersRequest {
        node: all[0].request.node,
        run: all[0].request.run,
        reports: vec![put_out],
    };
    let _answered = send::<op::ReportMembers>(&world.service, &request);
    seconds(&world, 1);
    world.service.settle_reports(Duration::ZERO);
    lose(&world, &mut all[0]);
    let before = membership(&world, id);
    assert_eq!(current(&before), [1]);
    let refused = replace(&world, &wish(&all[0], false)).expect_err("the only good copy");
    assert_eq!(refused.code, Code::NotPermitted);
    assert!(refused.detail.contains("only good copy of 1 placement group"), "{refused}");
    assert!(refused.detail.contains("--yes-lose-last-copies"), "{refused}");
    assert_eq!(membership(&world, id), before, "nothing has changed");
    let done = replace(&world, &wish(&all[0], true)).expect("that is meant");
    assert_eq!((done.groups, done.older_groups), (1, 1));
    let now = membership(&world, id);
    assert_eq!((current(&now), now.losses), (vec![2], 1), "writers are told");
    // The second one is lost before the first one has anything: then there is nothing to go on with.
    start_empty(&world, &mut all[0]);
    all[1].request.targets[0].uuid = vec![7; 16];
    lose(&world, &mut all[1]);
    let other = proto::ReplaceTargetRequest { uuid: vec![8; 16], ..wish(&all[1], true) };
    let refused = replace(&world, &other).expect_err("an empty one never goes on");
    assert!(refused.detail.contains("the only copy of 1 placement group is on it"), "{refused}");
    assert_eq!(membership(&world, id).current().count(), 1);
    world.assert_consistent();
}

#[test]
fn what_is_not_lost_or_not_its_own_is_not_replaced() {
    let world = World::new();
    let mut all: [Server; 2] = numbered(&world);
    let id = group(&world, &all);
    let refused = |request: &proto::ReplaceTargetRequest, code, word: &str| {
        let fault = replace(&world, request).expect_err("refused");
        assert!(fault.code == code && fault.detail.contains(word), "{fault}");
        assert!(has_remedy(&fault.detail) || code == Code::BadRequest, "{fault}");
    };
    let good = wish(&all[0], true);
    refused(&good, Code::Invalid, "serves, so it is not lost");
    lose(&world, &mut all[0]);
    let of = |node| proto::ReplaceTargetRequest { node, ..good.clone() };
    refused(&of(all[1].request.node), Code::Invalid, "is of node data1");
    refused(&proto::ReplaceTargetRequest { target: 9, ..good.clone() }, Code::NotFound, "vazao status");
    refused(&proto::ReplaceTargetRequest { uuid: vec![1], ..good.clone() }, Code::BadRequest, "number");
    assert_eq!(membership(&world, id).epoch, 1);
    assert!(replace(&world, &good).is_ok());
}

#[test]
fn the_lost_directory_is_not_taken_back_and_its_node_goes_on() {
    let world = World::new();
    let mut all: [Server; 2] = numbered(&world);
    let old = all[0].disk_of();
    lose(&world, &mut all[0]);
    replace(&world, &wish(&all[0], false)).expect("lost");
    start_empty(&world, &mut all[0]);
    let mut back = all[0].request.clone();
    (back.targets[0].uuid, back.targets[0].found) = (OLD.to_vec(), old + 1_000);
    let verdict =
        call::<op::RegisterNode>(&world.service, &back).expect("its node is taken in").verdicts.remove(0);
    assert_eq!(verdict.what, 3, "{verdict:?}");
    assert!(verdict.why.contains("/new took its place") && has_remedy(&verdict.why), "{}", verdict.why);
    let verdict = all[0].report(&world).verdicts.remove(0);
    assert_eq!((verdict.what, verdict.process), (1, all[0].process), "the one in its place serves on");
    world.assert_consistent();
}
