//! Defects of servers that share placement groups: what one of them sends goes through [`Sending`], what it is sent
//! through [`Receiving`], and reports to the metadata service through [`Hasty`].

use super::{Defect, changed, swallowed};
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use vazao_meta::MetaService;
use vazao_meter::Clock;
use vazao_model::GroupId;
use vazao_model::cluster::membership::{Change, Membership};
use vazao_store::DataService;
use vazao_wire::messages::members::group_members;
use vazao_wire::service::{Deferred, Fault, Request, Responder, Service};
use vazao_wire::transport::{Pending, Presence, Transport};
use vazao_wire::{Method, proto};

/// The server whose disks an fsync does without.
const UNSYNCED: &str = "data2:7070";

/// For so long nothing of what was decided is durable.
const HASTY_NS: u64 = 2_000_000_000;

/// Has `change` change the addresses of the objects that a changing request or a sync names.
fn addressed(method: Method, message: &[u8], mut change: impl FnMut(&mut proto::ObjectAddress)) -> Vec<u8> {
    let change = &mut change;
    match method {
        Method::Write => {
            changed(message, |it: &mut proto::WriteRequest| it.object.iter_mut().for_each(change))
        }
        Method::WriteList => {
            changed(message, |it: &mut proto::WriteListRequest| it.object.iter_mut().for_each(change))
        }
        Method::TruncateObject => {
            changed(message, |it: &mut proto::TruncateObjectRequest| it.object.iter_mut().for_each(change))
        }
        Method::PunchObject => {
            changed(message, |it: &mut proto::PunchObjectRequest| it.object.iter_mut().for_each(change))
        }
        Method::SyncObjects => {
            changed(message, |it: &mut proto::SyncObjectsRequest| it.objects.iter_mut().for_each(change))
        }
        Method::RemoveObjects => {
            changed(message, |it: &mut proto::RemoveObjectsRequest| it.objects.iter_mut().for_each(change))
        }
        Method::FenceObjects => {
            changed(message, |it: &mut proto::FenceObjectsRequest| it.objects.iter_mut().for_each(change))
        }
        _ => message.to_vec(),
    }
}

/// What the primary of a group says with a request that it passes on.
fn forward_of(method: Method, message: &[u8]) -> Option<proto::Forward> {
    let mut forward = None;
    addressed(method, message, |address| forward = address.forward.take());
    forward
}

/// What a server sends to others.
pub(crate) struct Sending {
    pub(crate) inner: Arc<dyn Transport>,
    /// Where the server itself is.
    pub(crate) own: String,
    pub(crate) defect: Defect,
}

impl Transport for Sending {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let forward = forward_of(method, message);
        let send = |address: &str| self.inner.submit(address, method, message, attachment, deadline_ns);
        match (self.defect, method) {
            (Defect::UnawaitedForwards, _) if forward.as_ref().is_some_and(|it| it.number != 0) => {
                drop(send(address));
                swallowed(&proto::WriteResponse::default())
            }
            (Defect::UnsyncedMember, Method::SyncObjects) if forward.is_some() && address == UNSYNCED => {
                swallowed(&proto::SyncObjectsResponse::default())
            }
            // It compares with itself.
            (Defect::UncomparedMember, Method::CompareBlocks) => send(&self.own),
            _ => send(address),
        }
    }

    fn presence(&self, address: &str, deadline_ns: u64) -> Presence {
        self.inner.presence(address, deadline_ns)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

/// What a server is sent.
pub(crate) struct Receiving {
    service: Arc<DataService>,
    defect: Defect,
    /// The latest epoch that was heard of in each group, and the latest stream in it.
    latest: Mutex<BTreeMap<u32, (u64, u64)>>,
}

impl Receiving {
    pub(crate) fn new(service: Arc<DataService>, defect: Defect) -> Receiving {
        Receiving { service, defect, latest: Mutex::default() }
    }

    /// Makes a forward one of the epoch that the member knows.
    fn raise_epoch(&self, group: u32, forward: &mut proto::Forward) {
        let known = self.service.memberships().into_iter().find(|it| it.group.0 == group);
        let known = known.map_or(0, |known| known.record.epoch);
        let mut latest = self.latest.lock();
        let latest = latest.entry(group).or_default();
        *latest = (*latest).max((known, 0));
        if forward.epoch < known {
            (forward.epoch, forward.stream) = *latest;
        }
        *latest = (*latest).max((forward.epoch, forward.stream));
    }

    /// Makes a forward one of the latest stream.
    fn raise_stream(&self, group: u32, forward: &mut proto::Forward) {
        let mut latest = self.latest.lock();
        let latest = latest.entry(group).or_default();
        *latest = (*latest).max((forward.epoch, forward.stream));
        if forward.epoch == latest.0 {
            forward.stream = latest.1;
        }
    }

    /// Grants by the rule, and does not remember it.
    fn grant(&self, question: &proto::MemberQuestion) -> proto::MemberGrant {
        let is_asked =
            |it: &vazao_store::MemberView| (it.group.0, it.target.0) == (question.group, question.of);
        let Some(known) = self.service.memberships().into_iter().find(is_asked) else {
            return proto::MemberGrant::default();
        };
        let counts = |target: u32, process: u64| {
            let member = known.record.members.iter().find(|member| member.target.0 == target);
            known.counting.iter().any(|it| it.0 == target) && member.is_some_and(|it| it.run == process)
        };
        let granted = question.epoch == known.record.epoch
            && counts(question.of, known.process)
            && counts(question.target, question.process);
        let is_newer = known.record.epoch > question.epoch;
        let newer = is_newer.then(|| group_members(known.group, &known.record));
        proto::MemberGrant { granted, newer, out: false }
    }
}

impl Service for Receiving {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let on_forward = |address: &mut proto::ObjectAddress| {
            let Some(forward) = &mut address.forward else { return };
            match self.defect {
                Defect::StaleEpochs => self.raise_epoch(address.group, forward),
                Defect::StaleStreams => self.raise_stream(address.group, forward),
                Defect::UnlistedForwards => forward.number = 0,
                _ => {}
            }
        };
        if (self.defect, request.method) == (Defect::UnwaitedGrants, Method::KeepAlive) {
            let asked = proto::KeepAliveRequest::decode(request.message).expect("another server's request");
            let grants = asked.questions.iter().map(|question| self.grant(question)).collect();
            return responder.reply(&proto::KeepAliveResponse { grants }.encode_to_vec());
        }
        let message = addressed(request.method, request.message, on_forward);
        self.service.handle(Request { message: &message, ..request }, responder);
    }

    fn flush(&self) -> Result<(), Fault> {
        self.service.flush()
    }
}

/// What was decided and is not durable.
#[derive(Default)]
struct Decided {
    records: BTreeMap<GroupId, Membership>,
    /// The reports that led to it.
    reports: Vec<Vec<u8>>,
    since_ns: u64,
}

/// A metadata service that answers accusations before what follows from them is durable.
pub(crate) struct Hasty {
    service: Arc<MetaService>,
    clock: Arc<dyn Clock>,
    decided: Mutex<Decided>,
}

/// Where answers go that were given already.
struct Nowhere;

impl Responder for Nowhere {
    fn reply(&mut self, _message: &[u8]) {}

    fn try_reply_with(
        &mut self,
        _message: &[u8],
        _length: usize,
        _fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        true
    }

    fn fail(&mut self, _fault: &Fault) {}

    fn defer(&mut self) -> Deferred {
        Deferred::new(|_| ())
    }
}

impl Hasty {
    pub(crate) fn new(service: Arc<MetaService>, clock: Arc<dyn Clock>) -> Hasty {
        Hasty { service, clock, decided: Mutex::default() }
    }

    /// What an accusation leads to, if it counts.
    fn outcome(&self, decided: &mut Decided, report: &proto::MemberReport) -> Option<proto::MemberOutcome> {
        let group = GroupId(report.group);
        let known = decided.records.get(&group).cloned().or_else(|| self.service.record_of_group(group))?;
        let is_of = |target: u32| known.current().find(|member| member.target.0 == target);
        let counts = is_of(report.target).is_some_and(|member| member.run == report.process);
        let gone = report.silent.iter().filter_map(|target| is_of(*target)).map(|member| member.target);
        let next = known.changed(report.epoch, Change::PutOut(gone.collect())).ok().filter(|_| counts);
        let refused = if next.is_some() { String::new() } else { "it does not count".to_owned() };
        let now = next.clone().unwrap_or(known);
        decided.records.extend(next.map(|next| (group, next)));
        Some(proto::MemberOutcome { now: Some(group_members(group, &now)), refused })
    }

    /// Has the service itself decide, and keep it.
    fn settle(&self, request: &Request<'_>) {
        let Decided { reports, .. } = std::mem::take(&mut *self.decided.lock());
        for message in reports {
            let report =
                Request { method: Method::ReportMembers, message: &message, attachment: &[], ..*request };
            self.service.handle(report, &mut Nowhere);
        }
    }
}

impl Service for Hasty {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let reports = match request.method {
            Method::ReportMembers => proto::ReportMembersRequest::decode(request.message).ok(),
            _ => None,
        };
        let only_accuses =
            |it: &proto::ReportMembersRequest| it.reports.iter().all(|it| !it.silent.is_empty());
        let (is_accusation, is_other) = (
            reports.as_ref().is_some_and(only_accuses),
            reports.as_ref().is_some_and(|it| !only_accuses(it)),
        );
        let now_ns = self.clock.now_ns();
        let is_over = now_ns.saturating_sub(self.decided.lock().since_ns) >= HASTY_NS;
        if is_over || is_other {
            self.settle(&request);
        }
        let Some(accusation) = reports.filter(|_| is_accusation) else {
            return self.service.handle(request, responder);
        };
        let mut decided = self.decided.lock();
        if decided.reports.is_empty() {
            decided.since_ns = now_ns;
        }
        decided.reports.push(request.message.to_vec());
        let outcome = |report: &proto::MemberReport| self.outcome(&mut decided, report).unwrap_or_default();
        let outcomes = accusation.reports.iter().map(outcome).collect();
        responder.reply(&proto::ReportMembersResponse { outcomes }.encode_to_vec());
    }

    fn flush(&self) -> Result<(), Fault> {
        Service::flush(&*self.service)
    }
}
