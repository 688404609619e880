//! How a data server joins a cluster and reports to it.

use crate::error::OpenError;
use crate::options::MissingTarget;
use crate::service::DataService;
use crate::targets::Target;
use crate::targets::identity::Identity;
use crate::targets::space::Reported;
use crate::targets::{Groups, Lookup, Targets};
use std::sync::Arc;
use vazao_model::{Code, NodeId, TargetId, TargetState};
use vazao_wire::op::RegisterNode;
use vazao_wire::proto::{self, HistoryMark};
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, call, source};

/// Reports that may follow one another at once: two start a target, a third serves one that an operator has accepted.
const REPORTS_MAX: usize = 4;

/// What came of a registration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Registered {
    /// The metadata service waits for another report before all targets are served.
    pub must_register_again: bool,
    /// What the operator of this node should know.
    pub warnings: Vec<String>,
}

/// Refuses targets that do not belong together, or not here.
pub(crate) fn check_identities(targets: &[Arc<Target>], cluster_id: Option<u64>) -> Result<(), OpenError> {
    let mut expected = cluster_id.unwrap_or(0);
    let mut node = 0;
    for (index, target) in targets.iter().enumerate() {
        let identity = target.identity();
        if let Some(other) = targets[..index].iter().find(|other| other.identity().uuid == identity.uuid) {
            return Err(OpenError::Twice { label: target.label.clone(), other: other.label.clone() });
        }
        if identity.cluster_id != 0 {
            if expected != 0 && identity.cluster_id != expected {
                let (label, found) = (target.label.clone(), identity.cluster_id);
                return Err(OpenError::OtherCluster { label, found, expected });
            }
            expected = identity.cluster_id;
        }
        if identity.node != 0 {
            if node != 0 && identity.node != node {
                let (label, found) = (target.label.clone(), identity.node);
                return Err(OpenError::OtherNode { label, found, expected: node });
            }
            node = identity.node;
        }
        let has_same_id = |other: &&Arc<Target>| identity.id.0 != 0 && other.id() == identity.id;
        if let Some(other) = targets[..index].iter().find(has_same_id) {
            let (label, other) = (target.label.clone(), other.label.clone());
            return Err(OpenError::SameId { label, other, id: identity.id });
        }
    }
    Ok(())
}

impl DataService {
    /// Sets where the server is reached, once its port is known.
    pub fn set_address(&self, address: &str) {
        *self.address.write() = address.to_owned();
    }

    /// The node id it was given; `None` before it joined a cluster.
    pub fn node(&self) -> Option<NodeId> {
        self.targets.iter().map(|t| t.identity().node).find(|&n| n != 0).map(NodeId)
    }

    /// The cluster it belongs to; `None` before it joined one.
    pub fn cluster_id(&self) -> Option<u64> {
        let of_targets = self.targets.iter().map(|t| t.identity().cluster_id).find(|&c| c != 0);
        of_targets.or(self.options.cluster_id)
    }

    /// Ids of its targets, in the order they were given; 0 for those that have none yet.
    pub fn target_ids(&self) -> Vec<TargetId> {
        self.targets.iter().map(|t| t.id()).collect()
    }

    /// What it announces itself with, and repeats as its heartbeat.
    pub fn registration(&self) -> proto::RegisterNodeRequest {
        let mut targets: Vec<proto::Target> = self.targets.iter().map(announced).collect();
        targets.extend(self.missing_targets().into_iter().map(announced_missing));
        let lagging = self.told_of_lagging();
        proto::RegisterNodeRequest {
            cluster_id: self.cluster_id().unwrap_or(0),
            node: self.node().map_or(0, |n| n.0),
            name: self.options.name.clone(),
            address: self.address.read().clone(),
            roles: self.options.roles.iter().map(|r| *r as u32).collect(),
            targets,
            areas: Vec::new(),
            host: self.options.host,
            run: self.options.run,
            seen: Some(self.latest_mark()),
            epoch: self.groups.read().known_epoch(self.latest_mark().run),
            follows_groups: true,
            zone: self.options.zone.clone(),
            source: String::new(),
            lagging: lagging.members,
            catching_up: lagging.works,
        }
    }

    /// The latest that it was told of the history of the metadata.
    pub(crate) fn latest_mark(&self) -> HistoryMark {
        *self.mark.lock()
    }

    /// Keeps the ids that the metadata service gave, and serves what it has agreed to. `asked_epoch` is the one of the
    /// request that was answered: the answer has groups only where it differs from the service's. Errors: an answer
    /// that does not fit this server, of another cluster or with other ids than it has; an id that cannot be stored.
    pub fn set_registration(
        &self,
        asked_epoch: u64,
        response: &proto::RegisterNodeResponse,
    ) -> Result<Registered, Fault> {
        let refuse = |what: String| Err(Fault::new(Code::BadRequest, format!("registration: {what}")));
        let missing: Vec<u32> = self.missing_targets().iter().map(|missing| missing.id).collect();
        let none = proto::Verdict::default();
        let verdicts = response.verdicts.iter().chain(std::iter::repeat(&none));
        let answers: Vec<(u32, &proto::Verdict)> =
            response.targets.iter().copied().zip(verdicts).filter(|(id, _)| !missing.contains(id)).collect();
        // A target that was added since the request asks for its id with the next one.
        let (asked_min, asked_max) =
            (self.targets.iter().filter(|t| t.id().0 != 0).count(), self.targets.len());
        let is_asked_for = (asked_min..=asked_max).contains(&answers.len());
        let has_all = is_asked_for && !(answers.is_empty() && missing.is_empty());
        if !has_all || response.cluster_id == 0 || response.node == 0 {
            return refuse(format!("ids for {} of {asked_max} targets", answers.len()));
        }
        if let Some(ours) = self.cluster_id().filter(|&ours| ours != response.cluster_id) {
            return refuse(format!("cluster {:016x}, but ours is {ours:016x}", response.cluster_id));
        }
        if let Some(mark) = response.mark {
            *self.mark.lock() = mark;
        }
        let is_judged = !response.verdicts.is_empty();
        let mut registered = Registered { must_register_again: false, warnings: response.warnings.clone() };
        let mut kept: Vec<TargetId> = Vec::new();
        for (target, &(id, verdict)) in self.targets.iter().zip(&answers) {
            let mut identity = target.identity();
            if id == 0 || (identity.id.0 != 0 && identity.id.0 != id) {
                return refuse(format!("{target} is called t{id}"));
            }
            (identity.cluster_id, identity.node, identity.id) =
                (response.cluster_id, response.node, TargetId(id));
            identity.has_groups |= response.groups.iter().any(|group| group.members.contains(&id));
            // A failed target keeps reporting, and writes nothing.
            if !target.is_failed() {
                match target.keep_identity(identity) {
                    Ok(()) => {}
                    // It asks for its id again.
                    Err(fault) if fault.code == Code::Hung => {
                        registered.warnings.push(fault.to_string());
                        continue;
                    }
                    Err(fault) => return Err(fault),
                }
                match target.obey(verdict, is_judged, self.latest_mark()) {
                    Ok(must_register_again) => registered.must_register_again |= must_register_again,
                    Err(fault) if fault.code == Code::BadRequest => return Err(fault),
                    // Its disk is full, hangs or failed: it is not served, the others are.
                    Err(fault) => registered.warnings.push(fault.to_string()),
                }
            }
            if verdict.what == SERVE {
                self.leases.set_process(identity.id, verdict.process);
            }
            kept.push(identity.id);
        }
        let told_by = self.latest_mark().run;
        if response.epoch != asked_epoch {
            // An epoch is known only when all that was told with it was kept. Groups of a target that is missing, or
            // that could not write down that it has some, are told again: its return is no change of the membership,
            // so no later answer would have them.
            let is_whole = missing.is_empty() && kept.len() == answers.len();
            *self.groups.write() = Groups::new((response.epoch, is_whole), told_by, &response.groups, &kept);
        }
        Ok(registered)
    }

    /// True when it is to report at once: it was asked for a placement group that it does not know.
    pub fn must_report(&self) -> bool {
        self.unknown_groups.is_due(self.shell.clock().now_ns())
    }

    /// Reports to the metadata service at `meta_address`. To be called every `limits::HEARTBEAT_MS`, and when it
    /// [must](DataService::must_report).
    pub fn heartbeat(
        &self,
        transport: &dyn Transport,
        meta_address: &str,
        deadline_ns: u64,
    ) -> Result<Registered, Fault> {
        self.heartbeat_with(transport, meta_address, deadline_ns, &|_| ())
    }

    /// The same with what `complete` adds to the request. A target that starts is served after the second report, which
    /// follows at once: the first says what is on its disk, the second that its new incarnation is durable there.
    pub fn heartbeat_with(
        &self,
        transport: &dyn Transport,
        meta_address: &str,
        deadline_ns: u64,
        complete: &dyn Fn(&mut proto::RegisterNodeRequest),
    ) -> Result<Registered, Fault> {
        let question = self.unknown_groups.begin();
        let reported = self.report_until_served(transport, meta_address, deadline_ns, complete);
        if let Some(group) = question {
            let is_known = self.leases.member(group).is_some()
                || matches!(self.groups.read().lookup(group), Lookup::Member(_));
            self.unknown_groups.end(is_known, self.shell.clock().now_ns());
        }
        reported
    }

    fn report_until_served(
        &self,
        transport: &dyn Transport,
        meta_address: &str,
        deadline_ns: u64,
        complete: &dyn Fn(&mut proto::RegisterNodeRequest),
    ) -> Result<Registered, Fault> {
        let report = || {
            let retired = self.targets.retired();
            let mut request = self.registration();
            complete(&mut request);
            request.source = source(transport, meta_address);
            let response = call::<RegisterNode>(transport, meta_address, &request, deadline_ns)?;
            // Race: a directory that took the place of a target meanwhile must not be given that one's leave to serve.
            let others =
                || Fault::new(Code::Unavailable, "a target was replaced meanwhile; it is reported again");
            let registered =
                self.targets.if_same(retired, || self.set_registration(request.epoch, &response));
            Ok::<_, Fault>((registered.ok_or_else(others)??, response.epoch))
        };
        let (mut registered, mut epoch) = report()?;
        for _ in 1..REPORTS_MAX {
            if !registered.must_register_again {
                break;
            }
            (registered, epoch) = report()?;
        }
        if let Err(fault) = self.learn_groups(transport, meta_address, deadline_ns, epoch) {
            tracing::debug!(%fault, "records of placement groups are asked for again");
        }
        Ok(registered)
    }
}

fn announced(target: &Arc<Target>) -> proto::Target {
    let Reported { space, reserve_bytes } = target.room.reported();
    let damage = target.damage.counts();
    let (found, found_seconds) = target.incarnation.found();
    proto::Target {
        id: target.id().0,
        node: 0,
        state: target.state() as u32,
        capacity_bytes: space.capacity_bytes,
        available_bytes: space.available_bytes,
        trouble: target.trouble(),
        file_system: space.file_system,
        used_bytes: space.used_bytes,
        reserve_bytes,
        corrupt_blocks: damage.corrupt_blocks,
        missing_objects: damage.missing_objects,
        repaired: target.restores.counts().0 + target.restores.counts().1,
        uuid: target.identity().uuid.to_be_bytes().to_vec(),
        directory: target.label.clone(),
        incarnation: target.incarnation.written(),
        found,
        found_seconds,
        is_meant: target.is_meant,
        is_unreported: false,
    }
}

fn announced_missing(missing: MissingTarget) -> proto::Target {
    proto::Target {
        id: missing.id,
        state: TargetState::Missing as u32,
        trouble: missing.why,
        uuid: missing.uuid.to_be_bytes().to_vec(),
        directory: missing.directory,
        ..Default::default()
    }
}

/// The latest moment of the metadata's history that any of the targets has noted.
pub(crate) fn latest_mark(targets: &Targets) -> HistoryMark {
    let marks = targets.iter().map(|target| target.incarnation.mark());
    marks.max_by_key(|mark| (mark.lineage, mark.start, mark.position)).unwrap_or_default()
}

/// What the metadata service can say of a target.
const SERVE: u32 = 1;
const ADVANCE: u32 = 2;
const STALE: u32 = 3;

impl Target {
    /// Writes down who it is, where that is news. The disk is waited for only for a while: others are to be reported.
    fn keep_identity(self: &Arc<Target>, identity: Identity) -> Result<(), Fault> {
        if self.identity() == identity {
            return Ok(());
        }
        self.waits.in_time(self, Target::waits, move |target| target.set_identity(identity))
    }

    /// Does what the metadata service has said of it. True when it has to be told that it is done. `is_judged`: it has
    /// judged any target.
    fn obey(
        self: &Arc<Target>,
        verdict: &proto::Verdict,
        is_judged: bool,
        mark: HistoryMark,
    ) -> Result<bool, Fault> {
        match verdict.what {
            // The request called it missing; it was added since. The next answer judges it.
            0 if is_judged => {}
            // A service that knows nothing of incarnations has no objection.
            0 | SERVE => self.standing.serve(),
            ADVANCE => {
                let incarnation = verdict.incarnation;
                let raise = move |target: &Target| {
                    if target.incarnation.is_behind(incarnation) {
                        // An older copy, which was accepted.
                        target.lose()?;
                    }
                    target.raise_incarnation(incarnation, mark)
                };
                self.waits.in_time(self, Target::waits, raise)?;
            }
            STALE if self.standing.refuse(&verdict.why) => {
                tracing::error!(target_id = self.id().0, directory = %self.label, "stale: {}", verdict.why);
            }
            STALE => {}
            other => {
                let text =
                    format!("registration: verdict {other} on {self}; use the same version everywhere");
                return Err(Fault::new(Code::BadRequest, text));
            }
        }
        Ok(verdict.what == ADVANCE)
    }
}
