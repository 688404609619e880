//! Registration: a node's announcement, checked and worked into a new state of the cluster. No I/O and no clock in
//! here.
//!
//! - A node is identified by its id, which its targets or its own files keep, or by its name.
//! - A target is identified by its id, and before it has one by the random number of its directory.
//! - Neither identity is given to a second process while the first may be alive (`claims`).
//! - No disk is served that is older than its recorded incarnation (`incarnations`).

use crate::membership::claims::Holder;
use crate::membership::cluster::{Cluster, Held, Member, SILENT_NS, TEXT_BYTES_MAX};
use crate::membership::incarnations::{Judgement, Said, judge};
use crate::membership::lagging;
use crate::schema::records::{MembershipRecord, NodeRecord, TargetRecord};
use crate::schema::{groups, keys};
use crate::service;
use crate::service::context::Context;
use crate::service::fault::Outcome;
use std::sync::Arc;
use vazao_model::{
    AreaInfo, Code, GroupId, NodeId, Role, Target, TargetId, TargetState, Timestamp, limits, zone,
};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Targets of one node: far more than disks fit into one.
const NODE_TARGETS_MAX: usize = 256;

/// Words on what is wrong with an area, or with a target.
const TROUBLE_BYTES_MAX: usize = 1024;

/// Bytes of a target's random number.
pub(crate) const UUID_BYTES: usize = 16;

const SERVE: u32 = 1;
const ADVANCE: u32 = 2;
const STALE: u32 = 3;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Monotonic.
    pub(crate) ns: u64,
    /// Unix time.
    pub(crate) wall_seconds: u64,
}

/// What a registration changes in the records.
#[derive(Default)]
pub(crate) struct Joined {
    nodes: Vec<NodeId>,
    targets: Vec<TargetId>,
    pub(crate) groups: Vec<GroupId>,
    /// The membership is another one than before.
    is_new_membership: bool,
    /// The answer grants something exclusive (new ids, leave to serve): it must not leave before the grant is
    /// durable.
    pub(crate) must_be_durable: bool,
    /// The answer.
    pub(crate) response: proto::RegisterNodeResponse,
}

impl Joined {
    /// True when there is something to write.
    pub(crate) fn is_change(&self) -> bool {
        !self.nodes.is_empty() || !self.targets.is_empty() || !self.groups.is_empty()
    }
}

impl Cluster {
    /// Works a node's announcement into an excerpt that is to be merged ([`Cluster::merge`]) once it is written.
    /// `names_targets`: those of the node that it does not name are missing.
    pub(crate) fn joined(
        &self,
        request: &proto::RegisterNodeRequest,
        names_targets: bool,
        now: Now,
    ) -> Outcome<(Cluster, Joined)> {
        self.check_request(request)?;
        let named = request.targets.iter().filter_map(|target| self.known_target(target));
        let known = self.identify(request)?;
        let mut next = self.excerpt(known, named);
        let mut joined = Joined::default();
        let node = next.join_node(known, request, now, &mut joined)?;
        self.check_new_targets(request, node)?;
        for target in &request.targets {
            let id = next.join_target(request, node, target, now, &mut joined)?;
            joined.response.targets.push(id.0);
        }
        if names_targets {
            next.mark_unreported(node, now, &mut joined);
        }
        let entered = next.enter_processes(self, &joined.response.targets, now);
        joined.is_new_membership |= !entered.is_empty();
        joined.groups.extend(entered);
        if request.follows_groups {
            next.make_groups(&mut joined);
        }
        next.membership.epoch += u64::from(joined.is_new_membership);
        joined.must_be_durable |= joined.is_new_membership;
        if request.follows_groups && request.epoch != next.membership.epoch {
            let targets = &joined.response.targets;
            let told = next.groups.told(|target| targets.contains(&target.0));
            joined.response.groups = told.iter().map(Into::into).collect();
        }
        joined.response.cluster_id = self.cluster_id;
        joined.response.node = node.0;
        joined.response.epoch = next.membership.epoch;
        Ok((next, joined))
    }

    /// Groups for those of the node's targets that lead none and can be used.
    fn make_groups(&mut self, joined: &mut Joined) {
        let is_without = |id: &TargetId| {
            let is_usable = self.targets.get(id).is_some_and(|held| held.shown.state.is_readable());
            is_usable && !self.groups.has_leader(*id)
        };
        let targets = joined.response.targets.iter().copied().map(TargetId);
        let without: Vec<TargetId> = targets.filter(is_without).collect();
        if without.is_empty() {
            return;
        }
        let (groups, MembershipRecord { last_target, groups: made, .. }) =
            (Arc::make_mut(&mut self.groups), &mut self.membership);
        let new = without.into_iter().map(|id| groups.make_for(id, *last_target as usize, made));
        joined.groups.extend(new.flatten());
        joined.is_new_membership = true;
    }

    /// Refuses requests that make no sense, from any node.
    pub(crate) fn check_request(&self, request: &proto::RegisterNodeRequest) -> Outcome<()> {
        let refuse = |text: String| Err(Fault::new(Code::Invalid, text));
        if request.cluster_id != 0 && request.cluster_id != self.cluster_id {
            return refuse(format!(
                "node {:?} belongs to cluster {:016x}, this is cluster {:016x}: check the address of the \
                 metadata service, and whether its disk is mounted; or give the node an empty directory",
                request.name, request.cluster_id, self.cluster_id
            ));
        }
        if request.name.is_empty() || request.name.len() > TEXT_BYTES_MAX {
            return refuse(format!("node name {:?}: 1 to {TEXT_BYTES_MAX} bytes", request.name));
        }
        if request.address.is_empty() || request.address.len() > TEXT_BYTES_MAX {
            return refuse(format!("address {:?} of node {:?}", request.address, request.name));
        }
        if !request.zone.is_empty()
            && let Err(why) = zone::check_name(&request.zone)
        {
            return refuse(format!("node {:?}: {why}", request.name));
        }
        if request.targets.len() > NODE_TARGETS_MAX {
            return refuse(format!("node {:?} with {} targets", request.name, request.targets.len()));
        }
        if request.areas.len() > limits::NODE_AREAS_MAX {
            return refuse(format!("node {:?} with {} areas", request.name, request.areas.len()));
        }
        let long = |area: &proto::Area| {
            area.name.len() > limits::AREA_NAME_BYTES_MAX || area.trouble.len() > TROUBLE_BYTES_MAX
        };
        if let Some(bad) = request.areas.iter().find(|area| area.name.is_empty() || long(area)) {
            return refuse(format!("node {:?} with an area {:.80?}", request.name, bad.name));
        }
        let is_odd = |uuid: &[u8]| !uuid.is_empty() && uuid.len() != UUID_BYTES;
        if request.targets.iter().any(|target| is_odd(&target.uuid)) {
            return refuse(format!("node {:?} with a target's uuid of another length", request.name));
        }
        let mut known: Vec<u32> = request.targets.iter().map(|t| t.id).filter(|&id| id != 0).collect();
        known.sort_unstable();
        if let Some(twice) = known.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("node {:?} names target t{} twice", request.name, twice[0]));
        }
        Ok(())
    }

    /// Which member the announcement is of; `None`: a new one. A node without an id whose name is known is that node:
    /// the answer to its first registration was lost, or its directory is new.
    fn identify(&self, request: &proto::RegisterNodeRequest) -> Outcome<Option<NodeId>> {
        let named = self.named(&request.name);
        let refuse = |text: String| Err(Fault::new(Code::Invalid, text));
        match (request.node, named) {
            (0, named) => Ok(named),
            (node, _) if !self.nodes.contains_key(&NodeId(node)) => {
                refuse(format!("node {:?} says it is n{node}, which is not in this cluster", request.name))
            }
            (node, Some(other)) if other.0 != node => {
                refuse(format!("node n{node} wants the name {:?} of node {other}", request.name))
            }
            (node, _) => Ok(Some(NodeId(node))),
        }
    }

    /// The member that an announcement claims to be.
    pub(crate) fn claimed(&self, request: &proto::RegisterNodeRequest) -> Option<NodeId> {
        let is_ours = request.cluster_id == 0 || request.cluster_id == self.cluster_id;
        self.identify(request).ok().flatten().filter(|_| is_ours)
    }

    /// The other process that has the identity which this one announces.
    pub(crate) fn holder(&self, request: &proto::RegisterNodeRequest, now: Now) -> Option<Holder> {
        let node = self.claimed(request)?;
        let record = &self.nodes.get(&node)?.record;
        let is_another = record.run != 0 && request.run != 0 && record.run != request.run;
        is_another.then(|| Holder {
            node,
            run: record.run,
            address: record.address.clone(),
            is_up: self.is_up(node, now.ns),
            held_seconds: now.wall_seconds.saturating_sub(record.since_seconds),
        })
    }

    /// Finds or makes the node.
    fn join_node(
        &mut self,
        known: Option<NodeId>,
        request: &proto::RegisterNodeRequest,
        now: Now,
        joined: &mut Joined,
    ) -> Outcome<NodeId> {
        let id = known.unwrap_or_else(|| self.next_node());
        let before = self.nodes.get(&id);
        let known = before.map(|member| &member.record);
        let is_same = known.is_some_and(|record| record.run == request.run);
        let record = NodeRecord {
            name: request.name.clone(),
            address: request.address.clone(),
            roles: request.roles.iter().copied().filter(|&r| Role::from_number(r).is_some()).collect(),
            run: request.run,
            since_seconds: known.filter(|_| is_same).map_or(now.wall_seconds, |known| known.since_seconds),
            silent_since_seconds: 0,
            zone: request.zone.clone(),
        };
        if let Some(member) = before {
            let is_moved = member.record.address != record.address;
            let cannot_be_told_apart = member.record.run == 0 || request.run == 0;
            let is_fresh = now.ns.saturating_sub(member.heard_ns) < SILENT_NS;
            if request.node == 0 && is_moved && cannot_be_told_apart && is_fresh {
                let text = format!(
                    "the name {:?} is in use by node {id} at {}: give every node its own name",
                    request.name, member.record.address
                );
                return Err(Fault::new(Code::Invalid, text));
            }
        }
        if known != Some(&record) {
            joined.nodes.push(id);
            joined.is_new_membership = true;
        }
        let areas = request.areas.iter().cloned().map(AreaInfo::from).collect();
        let member = Member {
            record,
            heard_ns: now.ns,
            away_ns: 0,
            areas,
            host: request.host,
            follows_groups: request.follows_groups,
            lagging: Arc::new(lagging::Told::of(request)),
        };
        self.nodes.insert(id, member);
        Ok(id)
    }

    fn next_node(&mut self) -> NodeId {
        self.membership.last_node += 1;
        NodeId(self.membership.last_node)
    }

    /// Refuses directories without an id in the place of targets that a node had: an unmounted disk leaves an empty
    /// directory, which becomes a new target by itself.
    fn check_new_targets(&self, request: &proto::RegisterNodeRequest, node: NodeId) -> Outcome<()> {
        let is_new = |target: &proto::Target| {
            target.id == 0 && !target.uuid.is_empty() && self.target_with(&target.uuid).is_none()
        };
        let Some(new) = request.targets.iter().find(|target| is_new(target) && !target.is_meant) else {
            return Ok(());
        };
        let is_named = |id: TargetId, held: &Held| {
            request.targets.iter().any(|target| {
                target.id == id.0 || (!target.uuid.is_empty() && target.uuid == held.record.uuid)
            })
        };
        let lost = self.targets.iter().find(|(id, held)| {
            held.record.node == node.0 && !held.record.uuid.is_empty() && !is_named(**id, held)
        });
        let Some((id, held)) = lost else { return Ok(()) };
        let (was, now) = (&held.record.directory, &new.directory);
        let text = format!(
            "node {:?} had target {id} in {was}, which it does not report, and has a new one in {now}: mount the disk of \
             {id}; if that is gone for good, start the node with --new-target {now}",
            request.name
        );
        Err(Fault::new(Code::NotPermitted, text))
    }

    fn target_with(&self, uuid: &[u8]) -> Option<TargetId> {
        let mut all = self.targets.iter();
        all.find(|(_, held)| !uuid.is_empty() && held.record.uuid == uuid).map(|(id, _)| *id)
    }

    /// The target that is announced, where it has an id.
    fn known_target(&self, target: &proto::Target) -> Option<TargetId> {
        if target.id == 0 { self.target_with(&target.uuid) } else { Some(TargetId(target.id)) }
    }

    fn join_target(
        &mut self,
        request: &proto::RegisterNodeRequest,
        node: NodeId,
        target: &proto::Target,
        now: Now,
        joined: &mut Joined,
    ) -> Outcome<TargetId> {
        let id = self.known_target(target).unwrap_or_else(|| {
            self.membership.last_target += 1;
            TargetId(self.membership.last_target)
        });
        let before = self.targets.get(&id).map(|held| held.record.clone());
        if target.state == TargetState::Missing as u32 {
            self.note_missing(node, id, &target.trouble, now, joined);
            joined.response.verdicts.push(proto::Verdict::default());
            return Ok(id);
        }
        let refuse = |why: String| {
            let (directory, name) = (&target.directory, &request.name);
            Err(Fault::new(Code::Invalid, format!("target {id} ({directory}) of node {name:?}: {why}")))
        };
        if let Some(why) = before.as_ref().and_then(|record| why_former(record, target)) {
            // Of what is recorded of the target nothing changes: that is about the directory in its place.
            joined.response.verdicts.push(proto::Verdict { what: STALE, why, ..Default::default() });
            return Ok(id);
        }
        if let Some(why) = self.why_not_of(node, target, before.as_ref(), now) {
            return refuse(why);
        }
        let mut record =
            before.clone().unwrap_or_else(|| TargetRecord { node: node.0, ..Default::default() });
        let said = Said { run: request.run, found: target.found, written: target.incarnation };
        let judgement = judge(&mut record, said);
        let verdict = verdict(judgement, id, &record, target);
        let mut shown = Target { id, node, ..Target::from(target.clone()) };
        if judgement == Judgement::Stale {
            if record.node != node.0 {
                return refuse(verdict.why);
            }
            (shown.state, shown.trouble) = (TargetState::Stale, verdict.why.clone());
        } else {
            record.node = node.0;
            record.directory = target.directory.chars().take(TEXT_BYTES_MAX).collect();
            if !target.uuid.is_empty() {
                record.uuid.clone_from(&target.uuid);
            }
        }
        let given = |record: &TargetRecord| (record.node, record.run, record.process);
        let is_same = |known: &TargetRecord| given(known) == given(&record);
        joined.is_new_membership |= before.as_ref().is_none_or(|known| known.node != record.node);
        joined.must_be_durable |= !before.as_ref().is_some_and(is_same);
        joined.response.verdicts.push(verdict);
        self.keep_target(id, record, shown, now, joined);
        Ok(id)
    }

    /// Why a node cannot have a target that it names, if so.
    fn why_not_of(
        &self,
        node: NodeId,
        target: &proto::Target,
        record: Option<&TargetRecord>,
        now: Now,
    ) -> Option<String> {
        let Some(record) = record else {
            return (target.id != 0).then(|| "not in this cluster".to_owned());
        };
        let holder = NodeId(record.node);
        if holder != node && self.is_up(holder, now.ns) {
            return Some(format!("node {holder}, which is up, holds it: never copy a target's directory"));
        }
        let is_same = record.uuid.is_empty() || target.uuid.is_empty() || record.uuid == target.uuid;
        (!is_same).then(|| format!("another directory, {}, was given this id", record.directory))
    }

    /// Takes over what was said of a target, and has the record written where that changes it.
    fn keep_target(
        &mut self,
        id: TargetId,
        mut record: TargetRecord,
        mut shown: Target,
        now: Now,
        joined: &mut Joined,
    ) {
        shown.trouble = shown.trouble.chars().take(TROUBLE_BYTES_MAX / 4).collect();
        shown.incarnation = record.incarnation;
        shown.directory.clone_from(&record.directory);
        let is_readable = shown.state.is_readable();
        record.state = if is_readable { TargetState::Serving } else { shown.state } as u32;
        record.trouble = if is_readable { String::new() } else { shown.trouble.clone() };
        if self.targets.get(&id).map(|held| &held.record) != Some(&record) {
            record.seen_seconds = now.wall_seconds;
            joined.targets.push(id);
        }
        let same = self.targets.get(&id).filter(|held| held.record.process == record.process);
        let leave_ns = same.map_or(now.ns, |held| held.leave_ns);
        self.targets.insert(id, Held { record, shown, is_reported: true, leave_ns });
    }

    /// A node reports that a target of its own is missing. A target that another node has by now is left alone.
    fn note_missing(&mut self, node: NodeId, id: TargetId, why: &str, now: Now, joined: &mut Joined) {
        let Some(held) = self.targets.get(&id).filter(|held| held.record.node == node.0).cloned() else {
            return;
        };
        let trouble = if why.is_empty() { "its node does not report it any more" } else { why };
        let shown = Target { state: TargetState::Missing, trouble: trouble.to_owned(), ..held.shown };
        self.keep_target(id, held.record, shown, now, joined);
    }

    /// What its node no longer reports cannot be served.
    fn mark_unreported(&mut self, node: NodeId, now: Now, joined: &mut Joined) {
        let reported = joined.response.targets.clone();
        let of_node = self.targets.iter().filter(|(_, held)| held.record.node == node.0);
        let gone: Vec<TargetId> = of_node.map(|(id, _)| *id).filter(|id| !reported.contains(&id.0)).collect();
        gone.into_iter().for_each(|id| self.note_missing(node, id, "", now, joined));
    }

    /// Takes over the parts of a registration that need no record, when the record could not be written: that the
    /// node is alive, and what its targets report. Nothing is taken from a process that is not the recorded one: it
    /// has no leave to serve.
    pub(crate) fn hear(&mut self, request: &proto::RegisterNodeRequest, next: &Cluster, joined: &Joined) {
        let node = NodeId(joined.response.node);
        let is_recorded = |known: &NodeRecord| (known.run, &known.address) == (request.run, &request.address);
        let Some(member) = self.nodes.get_mut(&node).filter(|member| is_recorded(&member.record)) else {
            return;
        };
        if let Some(heard) = next.nodes.get(&node) {
            *member = Member { record: member.record.clone(), ..heard.clone() };
        }
        for (id, said) in &next.targets {
            let is_same = |held: &&mut Held| (held.record.node, held.record.run) == (node.0, said.record.run);
            if let Some(held) = self.targets.get_mut(id).filter(is_same) {
                held.shown = Target { incarnation: held.record.incarnation, ..said.shown.clone() };
                held.is_reported = true;
            }
        }
    }

    /// Writes what a registration changed, whose excerpt this is.
    pub(crate) fn write(&self, context: &mut Context<'_>, joined: &Joined) -> Outcome<()> {
        if joined.is_new_membership {
            self.write_membership(context)?;
        }
        for id in &joined.nodes {
            context.write(keys::node(*id), &self.nodes[id].record);
        }
        for id in &joined.targets {
            context.write(keys::target(*id), &self.targets[id].record);
        }
        self.write_groups(context, &joined.groups)
    }

    /// Writes the membership of this excerpt, which has a new epoch.
    pub(crate) fn write_membership(&self, context: &mut Context<'_>) -> Outcome<()> {
        let before: MembershipRecord = context.read(keys::MEMBERSHIP, "membership")?.unwrap_or_default();
        if before.epoch >= self.membership.epoch {
            return Err(Fault::new(Code::Conflict, "the membership changed meanwhile"));
        }
        context.write(keys::MEMBERSHIP.to_vec(), &self.membership);
        Ok(())
    }

    /// Writes the records of some groups, and the schema that they need.
    pub(crate) fn write_groups(&self, context: &mut Context<'_>, ids: &[GroupId]) -> Outcome<()> {
        for id in ids {
            let Some(group) = self.groups.get(*id) else { continue };
            context.write(keys::group(*id), &groups::record(*id, group));
            service::note_groups(context, !group.membership.is_plain())?;
        }
        Ok(())
    }
}

/// Why a directory is not served that was its target's before another one took its place.
fn why_former(record: &TargetRecord, target: &proto::Target) -> Option<String> {
    let is_former = !record.former.is_empty() && record.former == target.uuid;
    is_former.then(|| {
        format!(
            "it was given up: {} took its place, and what is here is not served any more; take this directory out of its \
             node's configuration",
            record.directory
        )
    })
}

fn verdict(
    judgement: Judgement,
    id: TargetId,
    record: &TargetRecord,
    target: &proto::Target,
) -> proto::Verdict {
    match judgement {
        Judgement::Serve => {
            let (incarnation, process) = (record.incarnation, record.process);
            proto::Verdict { what: SERVE, incarnation, process, ..Default::default() }
        }
        Judgement::Advance(incarnation) => {
            proto::Verdict { what: ADVANCE, incarnation, ..Default::default() }
        }
        Judgement::Stale => {
            let of = match target.found_seconds {
                0 => "older than any record".to_owned(),
                seconds => format!("of {}", Timestamp::from_seconds(seconds)),
            };
            let why = format!(
                "its disk is an older copy, {of} (incarnation {} where {} was recorded at {}): what was written since is \
                 not on it. Put the right disk back, or see `vazao target accept-old {id}`",
                target.found,
                record.incarnation,
                Timestamp::from_seconds(record.seen_seconds)
            );
            proto::Verdict { what: STALE, incarnation: record.incarnation, why, process: 0 }
        }
    }
}
