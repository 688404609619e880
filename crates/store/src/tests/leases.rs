//! What a server learns of its groups of several members, from a metadata service that says what the test wants.

use super::{Rig, address};
use crate::{MemberView, Peers, Replacement, begin_replacement};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_meter::Clock;
use vazao_model::checksum::piece_checksums;
use vazao_model::cluster::membership::{Change, Membership};
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::inline::InlineTransport;
use vazao_wire::messages::members::group_members;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::transport::{Pending, Transport};
use vazao_wire::{Method, op, proto};

const META: &str = "meta:1";

/// Says that target 1 has this process, and what its groups are; a page has one.
#[derive(Default)]
pub(super) struct Told {
    process: u64,
    pub(super) epoch: u64,
    /// What registration tells of groups.
    pub(super) maps: Vec<proto::Group>,
    pub(super) groups: Vec<proto::GroupMembers>,
    /// Requests for groups.
    asked: usize,
    /// How often an operator went on with an older copy of its metadata.
    lineage: u64,
    /// It does not know what groups are.
    is_old: bool,
    /// What was reported, and what is answered to that.
    reports: Vec<proto::MemberReport>,
    now: Option<proto::GroupMembers>,
}

pub(super) struct Meta(pub(super) Mutex<Told>);

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
                    groups: told.maps.clone(),
                    mark: Some(proto::HistoryMark { lineage: told.lineage, ..Default::default() }),
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
                let server = |target| proto::MemberServer { target, node: 2, address: OTHER.to_owned() };
                let servers = [2, 3].map(server).into();
                responder.reply(&proto::GetGroupsResponse { groups, more, servers }.encode_to_vec());
            }
            Method::ReportMembers => {
                let request = proto::ReportMembersRequest::decode(request.message).expect("decodes");
                let outcome = proto::MemberOutcome { now: told.now.clone(), ..Default::default() };
                let outcomes = vec![outcome; request.reports.len()];
                told.reports.extend(request.reports);
                responder.reply(&proto::ReportMembersResponse { outcomes }.encode_to_vec());
            }
            _ => responder.fail(&Fault::new(Code::Unsupported, "another request")),
        }
    }
}

pub(super) fn rig() -> (Rig, Arc<Meta>) {
    let rig = Rig::new(1);
    let meta = Arc::new(Meta(Mutex::new(Told { process: 5, epoch: 1, ..Told::default() })));
    rig.transport.serve(META, Arc::clone(&meta) as _);
    (rig, meta)
}

pub(super) fn beat(rig: &Rig) -> Vec<MemberView> {
    rig.service.heartbeat(&*rig.transport, META, u64::MAX).expect("is registered");
    rig.service.memberships()
}

fn pair(process: u64) -> Membership {
    Membership::new(&[(TargetId(1), process), (TargetId(2), 9)]).expect("legal")
}

/// The group of this number after the first one.
pub(super) fn group(number: u32) -> GroupId {
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
    assert!(views[0].may_acknowledge, "nor is there one that it or a process before it has granted");
    // An answer that is older than what is known.
    told(3, &pair(5));
    assert_eq!(beat(&rig)[0].record.epoch, 2);
    // Another process has other leases, and is in no epoch until its record comes.
    meta.0.lock().process = 6;
    let views = beat(&rig);
    assert_eq!((views[0].process, views[0].record.epoch, meta.0.lock().asked), (6, 1, 4));
    assert!(!views[0].may_serve);
}

/// A client that knew of a new group waited for the server's next heartbeat.
#[test]
fn a_server_that_is_asked_for_a_group_that_it_does_not_know_is_to_report_at_once() {
    let (rig, meta) = rig();
    beat(&rig);
    assert!(!rig.service.must_report(), "nothing was asked for");
    let asks: [(&str, &dyn Fn()); 3] = [
        ("a client", &|| {
            let object = Some(proto::ObjectAddress { group: group(2).0, target: 0, ..address(1) });
            let stat = proto::StatObjectRequest { object };
            rig.ask::<op::StatObject>(&stat, &[]).expect_err("it does not know it");
        }),
        ("its primary", &|| {
            let forward = Some(proto::Forward { epoch: 1, number: 1, ..Default::default() });
            let object = Some(proto::ObjectAddress { group: group(2).0, forward, target: 0, ..address(1) });
            let request =
                proto::WriteRequest { object, checksums: piece_checksums(0, &[7; 9]), ..Default::default() };
            rig.ask::<op::Write>(&request, &[7; 9]).expect_err("it does not know it");
        }),
        ("another member", &|| drop(ask(&rig, question(1, 9)))),
    ];
    for (who, ask) in asks {
        rig.clock.advance(std::time::Duration::from_secs(5));
        ask();
        assert!(rig.service.must_report(), "{who}");
        beat(&rig);
        assert!(!rig.service.must_report(), "{who}: once");
    }
    // Of other servers' members it will never know.
    rig.clock.advance(std::time::Duration::from_secs(5));
    ask(&rig, proto::MemberQuestion { of: 2, ..question(1, 9) });
    assert!(!rig.service.must_report());
    meta.0.lock().groups = vec![group_members(group(2), &pair(5))];
    meta.0.lock().epoch = 2;
    beat(&rig);
    ask(&rig, question(1, 9));
    assert!(!rig.service.must_report(), "it knows it by now");
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

pub(super) const OTHER: &str = "other:1";

fn ask(rig: &Rig, question: proto::MemberQuestion) -> proto::MemberGrant {
    let request = proto::KeepAliveRequest { questions: vec![question] };
    rig.ask::<op::KeepAlive>(&request, &[]).expect("is answered").0.grants.remove(0)
}

fn question(epoch: u64, process: u64) -> proto::MemberQuestion {
    proto::MemberQuestion { group: group(2).0, epoch, target: 2, process, of: 1 }
}

#[test]
fn a_lease_is_granted_to_the_process_in_the_record_that_knows_the_same_epoch() {
    let (rig, meta) = rig();
    assert_eq!(ask(&rig, question(1, 9)), proto::MemberGrant::default(), "it knows no such group");
    let next = pair(5).changed(1, Change::Add { target: TargetId(3), run: 1 }).expect("legal");
    meta.0.lock().groups = vec![group_members(group(2), &next)];
    beat(&rig);
    let granted = ask(&rig, question(2, 9));
    assert_eq!(granted, proto::MemberGrant { granted: true, ..Default::default() });
    for (question, why) in [
        (question(1, 9), "an older epoch"),
        (question(3, 9), "a newer epoch"),
        (question(2, 8), "another process"),
        (proto::MemberQuestion { target: 3, process: 1, ..question(2, 1) }, "one that lags"),
        (proto::MemberQuestion { target: 4, ..question(2, 9) }, "no member"),
        (proto::MemberQuestion { of: 2, ..question(2, 9) }, "another server's member"),
    ] {
        assert!(!ask(&rig, question).granted, "{why}");
    }
    let newer = ask(&rig, question(1, 9)).newer.expect("a later record is told");
    assert_eq!(newer, group_members(group(2), &next));
    let questions = vec![question(2, 9); 1_025];
    let fault = rig.ask::<op::KeepAlive>(&proto::KeepAliveRequest { questions }, &[]).expect_err("too many");
    assert_eq!(fault.code, Code::BadRequest);
}

/// Another server, which answers what the test wants, `None`: nothing; and how often it was asked.
struct Other(Mutex<Option<proto::MemberGrant>>, AtomicUsize);

impl Service for Other {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let asked = proto::KeepAliveRequest::decode(request.message).expect("decodes");
        self.1.fetch_add(1, Ordering::Relaxed);
        match &*self.0.lock() {
            Some(grant) => {
                let grants = vec![grant.clone(); asked.questions.len()];
                responder.reply(&proto::KeepAliveResponse { grants }.encode_to_vec());
            }
            None => responder.fail(&Code::Unreachable.into()),
        }
    }
}

/// A server whose member 1 has leases of member 2, on another server.
fn two() -> (Rig, Arc<Meta>, Arc<Other>, Peers) {
    let (rig, meta) = rig();
    meta.0.lock().groups = vec![group_members(group(2), &pair(5))];
    let grant = proto::MemberGrant { granted: true, ..Default::default() };
    let other = Arc::new(Other(Mutex::new(Some(grant)), AtomicUsize::new(0)));
    rig.transport.serve(OTHER, Arc::clone(&other) as _);
    beat(&rig);
    let mut peers = Peers::default();
    turns(&rig, &mut peers, 5_000);
    assert!(rig.service.memberships()[0].may_serve);
    (rig, meta, other, peers)
}

pub(super) fn turns(rig: &Rig, peers: &mut Peers, milliseconds: u64) {
    for _ in 0..milliseconds / Peers::TURN.as_millis() as u64 {
        rig.clock.advance(Peers::TURN);
        peers.turn(&rig.service, &*rig.transport, META);
    }
}

/// The first change of a new group waited for leases of processes that there never were.
#[test]
fn a_member_of_a_new_group_waits_for_no_former_process_where_it_is_known_that_none_was_a_member() {
    let acknowledges = |process: u64, lineage: u64, is_back: bool| {
        let (rig, meta) = rig();
        let grant = proto::MemberGrant { granted: true, ..Default::default() };
        let other = Other(Mutex::new(Some(grant)), AtomicUsize::new(0));
        rig.transport.serve(OTHER, Arc::new(other) as _);
        meta.0.lock().lineage = lineage;
        let all = vec![group_members(group(2), &pair(process))];
        let told = [Some(all.clone()), is_back.then(Vec::new), is_back.then_some(all)];
        for (groups, epoch) in told.into_iter().flatten().zip(1..) {
            let mut told = meta.0.lock();
            (told.groups, told.epoch) = (groups, epoch);
            drop(told);
            beat(&rig);
        }
        let mut peers = Peers::default();
        turns(&rig, &mut peers, 300);
        let acknowledges = rig.service.memberships()[0].may_acknowledge;
        assert_eq!(rig.service.memberships()[0].may_serve, process == 5, "by its leases it may");
        turns(&rig, &mut peers, 2_100);
        assert_eq!(
            rig.service.memberships()[0].may_acknowledge,
            process == 5,
            "everything has ended by then"
        );
        acknowledges
    };
    assert!(acknowledges(5, 0, false));
    assert!(!acknowledges(4, 0, false), "made with the process before, which is not this one");
    assert!(!acknowledges(5, 1, false), "the number may be that of a group of metadata that was given up");
    assert!(!acknowledges(5, 0, true), "it may have granted something when it was a member before");
}

/// A member that had just begun to count was asked up to half a second later: nothing was read or changed until then.
#[test]
fn a_lease_that_is_missing_is_asked_for_at_once() {
    let (rig, _, other, mut peers) = two();
    let grant = |granted| *other.0.lock() = Some(proto::MemberGrant { granted, ..Default::default() });
    for later in 0..5 {
        grant(false);
        turns(&rig, &mut peers, 2_100 + 100 * later);
        assert!(!rig.service.memberships()[0].may_serve);
        grant(true);
        turns(&rig, &mut peers, 200);
        assert!(rig.service.memberships()[0].may_serve, "{later}");
        // Those that are held are asked for as seldom as ever.
        let before = other.1.load(Ordering::Relaxed);
        turns(&rig, &mut peers, 5_000);
        assert_eq!(other.1.load(Ordering::Relaxed) - before, 10);
    }
}

#[test]
fn a_server_that_answers_nothing_is_reported_after_a_second_and_again_until_it_is_decided() {
    let (rig, meta, other, mut peers) = two();
    *other.0.lock() = None;
    // The last answer came half a second before at the earliest.
    turns(&rig, &mut peers, 500);
    assert_eq!(meta.0.lock().reports, []);
    let waits = |_: &u32| {
        turns(&rig, &mut peers, 100);
        meta.0.lock().reports.is_empty()
    };
    let waited = (0..).take_while(waits).count();
    assert!(waited < 6, "{waited} turns");
    let report = proto::MemberReport {
        group: group(2).0,
        epoch: 1,
        target: 1,
        process: 5,
        silent: vec![2],
        ..Default::default()
    };
    assert_eq!(meta.0.lock().reports, vec![report.clone()]);
    turns(&rig, &mut peers, 500);
    assert_eq!(meta.0.lock().reports, [report.clone(), report.clone()]);
    turns(&rig, &mut peers, 500);
    assert!(!rig.service.memberships()[0].may_serve, "its lease has ended");
    // The answer has the next record.
    let next = pair(5).changed(1, Change::PutOut(vec![TargetId(2)])).expect("legal");
    meta.0.lock().now = Some(group_members(group(2), &next));
    turns(&rig, &mut peers, 5_000);
    let view = rig.service.memberships().remove(0);
    assert!(view.may_serve && view.record == next);
    assert_eq!(meta.0.lock().reports.len(), 4, "nothing more is said of one that is out");
}

/// A server that was frozen for a little more than a second was accused, came to itself and was granted a lease anew;
/// then it was put out all the same, and its group waited for the end of that grant: up to 3.4 s instead of 2.
#[test]
fn a_member_that_is_accused_of_silence_is_granted_nothing_until_that_is_decided() {
    let (rig, meta, other, mut peers) = two();
    *other.0.lock() = None;
    assert!(ask(&rig, question(1, 9)).granted);
    while meta.0.lock().reports.is_empty() {
        assert!(ask(&rig, question(1, 9)).granted, "it is not accused yet");
        turns(&rig, &mut peers, 100);
    }
    assert!(!ask(&rig, question(1, 9)).granted);
    // The metadata service has answered, and did not put it out.
    turns(&rig, &mut peers, 100);
    assert!(ask(&rig, question(1, 9)).granted);
    // One that does not answer holds nothing up for long.
    meta.0.lock().reports.clear();
    while meta.0.lock().reports.is_empty() {
        turns(&rig, &mut peers, 100);
    }
    assert!(!ask(&rig, question(1, 9)).granted);
    rig.clock.advance(Duration::from_millis(500));
    assert!(ask(&rig, question(1, 9)).granted);
}

#[test]
fn a_member_whose_disk_answers_nothing_is_reported_at_once() {
    let (rig, meta, other, mut peers) = two();
    *other.0.lock() = Some(proto::MemberGrant { out: true, ..Default::default() });
    turns(&rig, &mut peers, 700);
    assert_eq!(meta.0.lock().reports.first().map(|report| report.silent.clone()), Some(vec![2]));
}

/// A primary of three that was frozen noted on waking that a member had carried nothing out, and led no more. As the
/// new primary had that member count again, the old one accused it, for minutes, each time half a second later.
#[test]
fn a_member_that_failed_in_another_epoch_is_accused_no_more() {
    let (rig, meta, _other, mut peers) = two();
    let key = (TargetId(1), group(2));
    let failed_for = |now_ns: u64| rig.service.leases.failed_for(key, TargetId(2), now_ns * 1_000_000_000);
    assert_eq!((failed_for(7), failed_for(11)), (0, 4_000_000_000));
    assert_eq!(failed_for(60), 0, "it did not fail all the time");
    rig.service.leases.note_failing(key, TargetId(2), 1);
    let out = pair(5).changed(1, Change::PutOut(vec![TargetId(2)])).expect("legal");
    meta.0.lock().now = Some(group_members(group(2), &out));
    turns(&rig, &mut peers, 1_000);
    assert_eq!(meta.0.lock().reports.first().map(|report| report.silent.clone()), Some(vec![2]));
    let promote = Change::Promote { target: TargetId(2), run: 9, by: (TargetId(1), 5), instead_of: None };
    let again = out.changed(out.epoch, promote).expect("legal");
    meta.0.lock().reports.clear();
    rig.service.leases.learn(key.0, key.1, &group_members(group(2), &again));
    turns(&rig, &mut peers, 5_000);
    assert_eq!(meta.0.lock().reports, []);
    rig.service.leases.note_failing(key, TargetId(2), again.epoch);
    turns(&rig, &mut peers, 1_000);
    assert!(!meta.0.lock().reports.is_empty(), "it fails again");
}

/// A network in which no connection stands to some addresses; to ask them holds up the one that asks.
pub(super) struct Connecting {
    pub(super) carrier: Arc<InlineTransport>,
    pub(super) gone: Mutex<Vec<&'static str>>,
}

impl Transport for Connecting {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        assert!(!self.gone.lock().contains(&address), "{address} holds up the others");
        self.carrier.submit(address, method, message, attachment, deadline_ns)
    }

    fn is_ready(&self, address: &str) -> bool {
        !self.gone.lock().contains(&address)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.carrier.clock()
    }
}

#[test]
fn a_server_without_a_connection_is_not_waited_for_and_counts_as_silent() {
    let (rig, meta, _other, mut peers) = two();
    let network = Connecting { carrier: Arc::clone(&rig.transport), gone: Mutex::new(vec![OTHER, META]) };
    let mut turns = |milliseconds: u64| {
        for _ in 0..milliseconds / Peers::TURN.as_millis() as u64 {
            rig.clock.advance(Peers::TURN);
            peers.turn(&rig.service, &network, META);
        }
    };
    turns(3_000);
    assert!(!rig.service.memberships()[0].may_serve, "its lease has ended");
    assert_eq!(meta.0.lock().reports, [], "nor is the metadata service waited for");
    *network.gone.lock() = vec![OTHER];
    turns(100);
    assert_eq!(meta.0.lock().reports.first().map(|report| report.silent.clone()), Some(vec![2]));
    network.gone.lock().clear();
    turns(5_000);
    assert!(rig.service.memberships()[0].may_serve, "it is asked once it is connected");
}

/// What came between the sync of a member that has everything and the moment from which the syncs of programs wait for
/// it was lost with its power, although it had been synced at the others.
#[test]
fn a_member_that_has_caught_up_syncs_again_once_it_counts() {
    let (mut rig, meta) = rig();
    let lags = pair(5).changed(1, Change::PutOut(vec![TargetId(1)])).expect("legal");
    meta.0.lock().groups = vec![group_members(group(2), &lags)];
    beat(&rig);
    let catch_up = |rig: &Rig, step| {
        let (group, epoch) = (group(2).0, 2);
        let request = proto::CatchUpRequest { group, epoch, target: 1, step, ..Default::default() };
        rig.call::<op::CatchUp>(&request).expect("it lags");
    };
    let write = |rig: &Rig, inode| {
        let forward = Some(proto::Forward { epoch: 2, ..Default::default() });
        let object = Some(proto::ObjectAddress { forward, ..address(inode) });
        let checksums = piece_checksums(0, &[7; 100]);
        let request = proto::WriteRequest { object, checksums, ..Default::default() };
        rig.write_response(&request, &[7; 100]).expect("it is a member");
    };
    catch_up(&rig, 1);
    write(&rig, 2);
    catch_up(&rig, 2);
    write(&rig, 8);
    catch_up(&rig, 3);
    rig.crash();
    for inode in [2, 8] {
        assert_eq!(rig.read_all(inode).expect("reads"), Some(vec![7; 100]), "object {inode}");
    }
}

fn asks_to_lead(meta: &Meta) -> bool {
    std::mem::take(&mut meta.0.lock().reports).iter().any(|report| report.lead.is_some())
}

/// An empty disk in the place of a lost one would have gone on alone, as its machine had "kept its power".
#[test]
fn a_target_that_began_empty_asks_to_lead_nothing_before_its_groups_know_of_it() {
    let empty = MemoryDisk::new(3);
    let (node, id, chunk_bytes) = (1, 1, super::CHUNK);
    let replacement = Replacement { cluster_id: 7, node, id, uuid: 2, replaces: 1, chunk_bytes };
    begin_replacement(&empty.boot(), "/disk", replacement).expect("it is empty");
    for (disk, may_lead) in [(MemoryDisk::new(1), true), (empty, false)] {
        let mut rig = Rig::with(disk, super::options());
        let meta = Arc::new(Meta(Mutex::new(Told { process: 6, epoch: 1, ..Told::default() })));
        rig.transport.serve(META, Arc::clone(&meta) as _);
        // The record is of the process before it.
        meta.0.lock().groups = vec![group_members(group(2), &pair(5))];
        beat(&rig);
        turns(&rig, &mut Peers::default(), 3_000);
        assert_eq!(asks_to_lead(&meta), may_lead);
        rig.restart();
        beat(&rig);
        turns(&rig, &mut Peers::default(), 3_000);
        assert_eq!(asks_to_lead(&meta), may_lead, "nor does its next process");
        // The record has it as one with nothing, and then as one that was filled.
        let lost = pair(5).changed(1, Change::Lost(TargetId(1))).expect("legal");
        let entered = lost.changed(2, Change::Started { target: TargetId(1), run: 6 }).expect("legal");
        let told = |epoch, process, record: &Membership| {
            let mut told = meta.0.lock();
            (told.epoch, told.process, told.groups) = (epoch, process, vec![group_members(group(2), record)]);
        };
        told(2, 6, &entered);
        beat(&rig);
        let by = (TargetId(2), 9);
        let filled = Change::Promote { target: TargetId(1), run: 6, by, instead_of: None };
        told(3, 7, &entered.changed(3, filled).expect("legal"));
        rig.restart();
        beat(&rig);
        turns(&rig, &mut Peers::default(), 3_000);
        assert!(asks_to_lead(&meta), "it has everything");
    }
}

/// The part of an object that had been made anew would have been served as all of it.
#[test]
fn a_target_whose_object_was_not_whole_when_it_ended_asks_to_lead_nothing() {
    for is_whole in [false, true] {
        let (mut rig, meta) = rig();
        meta.0.lock().groups = vec![group_members(group(2), &pair(5))];
        beat(&rig);
        let (target, id) = (Arc::clone(&rig.service.targets[0]), (&address(8)).into());
        target.begin_object(id).expect("noted");
        if is_whole {
            assert!(target.restores.end_object(id));
            target.restores.review(|| target.end_objects()).expect("noted");
        }
        drop(target);
        rig.restart();
        meta.0.lock().process = 6;
        beat(&rig);
        turns(&rig, &mut Peers::default(), 3_000);
        assert_eq!(asks_to_lead(&meta), is_whole);
    }
}
