//! The cluster: nodes, targets, their state, and the choice of targets for new layouts.
//!
//! Who belongs to the cluster is written down and has an epoch. Whether a node answers and how much space a target
//! has is what the last heartbeat said, in memory only. After a restart every member counts as heard from: a
//! service that was away must not take the others for dead.

use crate::context::Context;
use crate::fault::Outcome;
use crate::keys;
use crate::records::{MembershipRecord, NodeRecord, TargetRecord};
use prost::Message;
use std::collections::BTreeMap;
use std::ops::Range;
use vazao_model::{
    AreaInfo, ClusterMap, Code, Epoch, InodeId, Node, NodeId, NodeState, Role, Target, TargetId, TargetState,
    limits,
};
use vazao_wire::proto;
use vazao_wire::service::Fault;

const SILENT_NS: u64 = limits::NODE_SILENT_MS as u64 * 1_000_000;

/// Bytes of a node's name, and of its address.
const TEXT_BYTES_MAX: usize = 255;

/// Targets of one node: far more than disks fit into one.
const NODE_TARGETS_MAX: usize = 256;

/// Words on what is wrong with an area.
const TROUBLE_BYTES_MAX: usize = 1024;

/// Records read at a time.
const PAGE: usize = 512;

/// A target with less than this share of its space left gets new files only when there is no other.
const TIGHT_SHARE: u64 = 20;

#[derive(Clone, Debug)]
struct Member {
    record: NodeRecord,
    heard_ns: u64,
    /// What it exports, as its last heartbeat said.
    areas: Vec<AreaInfo>,
    /// Its machine since that was started, as its last heartbeat said; 0: not known.
    host: u64,
}

/// Sums over targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct VolumeSpace {
    pub(crate) capacity_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) used_bytes: u64,
}

/// The cluster as this service knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    cluster_id: u64,
    membership: MembershipRecord,
    nodes: BTreeMap<NodeId, Member>,
    targets: BTreeMap<TargetId, Target>,
    /// This service itself.
    own: NodeId,
}

/// What a registration changes in the records.
#[derive(Default)]
pub(crate) struct Joined {
    nodes: Vec<NodeId>,
    targets: Vec<TargetId>,
    /// The answer.
    pub(crate) response: proto::RegisterNodeResponse,
}

impl Joined {
    /// True when the membership is another one than before.
    pub(crate) fn is_change(&self) -> bool {
        !self.nodes.is_empty() || !self.targets.is_empty()
    }
}

impl Cluster {
    /// Reads the membership.
    pub(crate) fn load(context: &mut Context<'_>, cluster_id: u64, now_ns: u64) -> Outcome<Cluster> {
        let membership = context.read(keys::MEMBERSHIP, "membership")?.unwrap_or_default();
        let mut cluster = Cluster { cluster_id, membership, ..Cluster::default() };
        for (id, record) in load_records::<NodeRecord>(context, keys::nodes())? {
            cluster.nodes.insert(NodeId(id), Member { record, heard_ns: now_ns, areas: Vec::new(), host: 0 });
        }
        for (id, record) in load_records::<TargetRecord>(context, keys::targets())? {
            let id = TargetId(id);
            cluster.targets.insert(id, Target { id, node: NodeId(record.node), ..Target::default() });
        }
        Ok(cluster)
    }

    /// Checks a node's announcement and works it into a new state.
    pub(crate) fn joined(
        &self,
        request: &proto::RegisterNodeRequest,
        now_ns: u64,
    ) -> Outcome<(Cluster, Joined)> {
        self.check_request(request)?;
        let mut next = self.clone();
        let mut joined = Joined::default();
        let node = next.join_node(request, now_ns, &mut joined)?;
        for target in &request.targets {
            let id = next.join_target(request, node, target, now_ns, &mut joined)?;
            joined.response.targets.push(id.0);
        }
        next.mark_unreported(node, &joined.response.targets);
        next.membership.epoch += u64::from(joined.is_change());
        joined.response.cluster_id = self.cluster_id;
        joined.response.node = node.0;
        joined.response.epoch = next.membership.epoch;
        Ok((next, joined))
    }

    /// Names the service's own node, which is always up.
    pub(crate) fn set_own(&mut self, node: NodeId) {
        self.own = node;
    }

    fn check_request(&self, request: &proto::RegisterNodeRequest) -> Outcome<()> {
        let refuse = |text: String| Err(Fault::new(Code::Invalid, text));
        if request.cluster_id != 0 && request.cluster_id != self.cluster_id {
            return refuse(format!(
                "node {:?} belongs to cluster {:016x}, this is cluster {:016x}: check the address of the \
                 metadata service, or give the node an empty directory",
                request.name, request.cluster_id, self.cluster_id
            ));
        }
        if request.name.is_empty() || request.name.len() > TEXT_BYTES_MAX {
            return refuse(format!("node name {:?}: 1 to {TEXT_BYTES_MAX} bytes", request.name));
        }
        if request.address.is_empty() || request.address.len() > TEXT_BYTES_MAX {
            return refuse(format!("address {:?} of node {:?}", request.address, request.name));
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
        let mut known: Vec<u32> = request.targets.iter().map(|t| t.id).filter(|&id| id != 0).collect();
        known.sort_unstable();
        if let Some(twice) = known.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("node {:?} names target t{} twice", request.name, twice[0]));
        }
        Ok(())
    }

    /// Finds or makes the node. A node without an id whose name is known is that node: the answer to its first
    /// registration was lost, or its directory is new.
    fn join_node(
        &mut self,
        request: &proto::RegisterNodeRequest,
        now_ns: u64,
        joined: &mut Joined,
    ) -> Outcome<NodeId> {
        let record = NodeRecord {
            name: request.name.clone(),
            address: request.address.clone(),
            roles: request.roles.iter().copied().filter(|&r| Role::from_number(r).is_some()).collect(),
        };
        let named = self.nodes.iter().find(|(_, m)| m.record.name == request.name).map(|(id, _)| *id);
        let id = match (request.node, named) {
            (0, None) => self.next_node(),
            (0, Some(id)) => id,
            (node, _) if !self.nodes.contains_key(&NodeId(node)) => {
                let text =
                    format!("node {:?} says it is n{node}, which is not in this cluster", request.name);
                return Err(Fault::new(Code::Invalid, text));
            }
            (node, named) if named.is_none_or(|named| named.0 == node) => NodeId(node),
            (node, Some(other)) => {
                let text = format!("node n{node} wants the name {:?} of node {other}", request.name);
                return Err(Fault::new(Code::Invalid, text));
            }
            (node, None) => NodeId(node),
        };
        if let Some(member) = self.nodes.get(&id) {
            let moved = member.record.address != record.address;
            if request.node == 0 && moved && now_ns.saturating_sub(member.heard_ns) < SILENT_NS {
                let text = format!(
                    "the name {:?} is in use by node {id} at {}: give every node its own name",
                    request.name, member.record.address
                );
                return Err(Fault::new(Code::Invalid, text));
            }
        }
        if self.nodes.get(&id).is_none_or(|member| member.record != record) {
            joined.nodes.push(id);
        }
        let areas = request.areas.iter().cloned().map(AreaInfo::from).collect();
        self.nodes.insert(id, Member { record, heard_ns: now_ns, areas, host: request.host });
        Ok(id)
    }

    fn next_node(&mut self) -> NodeId {
        self.membership.last_node += 1;
        NodeId(self.membership.last_node)
    }

    fn join_target(
        &mut self,
        request: &proto::RegisterNodeRequest,
        node: NodeId,
        target: &proto::Target,
        now_ns: u64,
        joined: &mut Joined,
    ) -> Outcome<TargetId> {
        let id = if target.id == 0 {
            self.membership.last_target += 1;
            TargetId(self.membership.last_target)
        } else {
            TargetId(target.id)
        };
        let holder = self.targets.get(&id).map(|held| held.node);
        let refuse = |why: String| {
            Err(Fault::new(Code::Invalid, format!("target {id} of node {:?}: {why}", request.name)))
        };
        match holder {
            None if target.id != 0 => return refuse("not in this cluster".to_owned()),
            Some(other) if other != node && self.is_up(other, now_ns) => {
                return refuse(format!(
                    "node {other}, which is up, holds it: never copy a target's directory"
                ));
            }
            _ => {}
        }
        if holder != Some(node) {
            joined.targets.push(id);
        }
        let mut held = Target::from(target.clone());
        (held.id, held.node) = (id, node);
        held.trouble = held.trouble.chars().take(TEXT_BYTES_MAX).collect();
        self.targets.insert(id, held);
        Ok(id)
    }

    /// What its node no longer reports cannot be served.
    fn mark_unreported(&mut self, node: NodeId, reported: &[u32]) {
        for (id, held) in self.targets.iter_mut().filter(|(_, held)| held.node == node) {
            if !reported.contains(&id.0) {
                held.state = TargetState::Failed;
                held.trouble = "its node does not report it any more".to_owned();
            }
        }
    }

    /// Writes what a registration changed.
    pub(crate) fn write(&self, context: &mut Context<'_>, joined: &Joined) -> Outcome<()> {
        let before: MembershipRecord = context.read(keys::MEMBERSHIP, "membership")?.unwrap_or_default();
        if before.epoch >= self.membership.epoch {
            return Err(Fault::new(Code::Conflict, "the membership changed meanwhile"));
        }
        context.write(keys::MEMBERSHIP.to_vec(), &self.membership);
        for id in &joined.nodes {
            context.write(keys::node(*id), &self.nodes[id].record);
        }
        for id in &joined.targets {
            context.write(keys::target(*id), &TargetRecord { node: self.targets[id].node.0 });
        }
        Ok(())
    }

    fn is_up(&self, node: NodeId, now_ns: u64) -> bool {
        node == self.own
            || self.nodes.get(&node).is_some_and(|m| now_ns.saturating_sub(m.heard_ns) < SILENT_NS)
    }

    /// Where a target is served, while its node answers. `None`: unknown or silent.
    pub(crate) fn address_of(&self, target: TargetId, now_ns: u64) -> Option<&str> {
        let held = self.targets.get(&target)?;
        let up = self.is_up(held.node, now_ns);
        self.nodes.get(&held.node).filter(|_| up).map(|member| member.record.address.as_str())
    }

    /// Targets that can be asked at present, and where.
    pub(crate) fn served(&self, now_ns: u64) -> Vec<(TargetId, String)> {
        let working = self.targets.values().filter(|held| held.state != TargetState::Failed);
        working.filter_map(|held| Some((held.id, self.address_of(held.id, now_ns)?.to_owned()))).collect()
    }

    /// True for a target of this cluster.
    pub(crate) fn knows(&self, target: TargetId) -> bool {
        self.targets.contains_key(&target)
    }

    /// Targets for a file's stripes: `width` of them, or with 0 all, as far as they serve. Neighbouring slots lie on
    /// different nodes, each file begins elsewhere, and targets that are nearly full come last.
    pub(crate) fn choose(&self, inode: InodeId, width: u32, now_ns: u64) -> Outcome<Vec<TargetId>> {
        let mut usable = self.usable(inode, now_ns, |_| true);
        if usable.is_empty() {
            // A silent node may only be late: after a start of this service all of them are, until they report.
            let may_come = self.targets.values().any(|held| !self.is_up(held.node, now_ns));
            let code = if may_come { Code::Unavailable } else { Code::NoSpace };
            return Err(Fault::new(code, self.why_none_serves(now_ns)));
        }
        let wanted = if width == 0 { limits::STRIPE_WIDTH_MAX } else { width as usize };
        usable.truncate(wanted.min(limits::STRIPE_WIDTH_MAX));
        Ok(usable)
    }

    /// A target on the machine `host` for all of a file; `None` where none serves there.
    pub(crate) fn choose_near(&self, inode: InodeId, host: u64, now_ns: u64) -> Outcome<Option<TargetId>> {
        let is_near = |member: &Member| host != 0 && member.host == host;
        Ok(self.usable(inode, now_ns, is_near).first().copied())
    }

    /// Targets that serve, on nodes of which `is_wanted` is true, in the order in which a file takes them.
    fn usable(&self, inode: InodeId, now_ns: u64, is_wanted: impl Fn(&Member) -> bool) -> Vec<TargetId> {
        let mut of_node: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut usable: Vec<(usize, NodeId, TargetId)> = Vec::new();
        for (&id, held) in &self.targets {
            let is_wanted = self.nodes.get(&held.node).is_some_and(&is_wanted);
            if held.state == TargetState::Serving && self.is_up(held.node, now_ns) && is_wanted {
                let turn = of_node.entry(held.node).or_default();
                usable.push((*turn, held.node, id));
                *turn += 1;
            }
        }
        usable.sort_unstable();
        if let Some(first) = inode.0.checked_rem(usable.len() as u64) {
            usable.rotate_left(first as usize);
        }
        usable.sort_by_key(|(_, _, id)| is_tight(&self.targets[id]));
        usable.into_iter().map(|(_, _, id)| id).collect()
    }

    fn why_none_serves(&self, now_ns: u64) -> String {
        if self.targets.is_empty() {
            return "no data server has joined the cluster yet".to_owned();
        }
        let reasons = self.targets.iter().take(8).map(|(id, held)| {
            let why = match held.state {
                _ if !self.is_up(held.node, now_ns) => format!("node {} is silent", held.node),
                TargetState::Full => "full".to_owned(),
                _ => format!("failed: {}", held.trouble),
            };
            format!("{id} ({why})")
        });
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        format!("no target serves: {reasons}; remove files or add a target")
    }

    /// Space over targets that serve; a file system that holds several of them counts once.
    pub(crate) fn space(&self) -> VolumeSpace {
        let mut shared: BTreeMap<u64, VolumeSpace> = BTreeMap::new();
        let mut total = VolumeSpace::default();
        for held in self.targets.values().filter(|held| held.state != TargetState::Failed) {
            let left = if held.state == TargetState::Serving { held.available_bytes } else { 0 };
            let place = match held.file_system {
                0 => &mut VolumeSpace::default(),
                id => shared.entry(id).or_default(),
            };
            count(&mut total.capacity_bytes, &mut place.capacity_bytes, held.capacity_bytes);
            count(&mut total.available_bytes, &mut place.available_bytes, left);
            count(&mut total.used_bytes, &mut place.used_bytes, held.used_bytes);
        }
        total
    }

    /// The map for clients.
    pub(crate) fn map(&self, now_ns: u64) -> ClusterMap {
        let nodes = self.nodes.iter().map(|(&id, member)| Node {
            id,
            name: member.record.name.clone(),
            address: member.record.address.clone(),
            roles: member.record.roles.iter().filter_map(|&r| Role::from_number(r)).collect(),
            state: if self.is_up(id, now_ns) { NodeState::Up } else { NodeState::Silent },
            silent_ms: if id == self.own { 0 } else { now_ns.saturating_sub(member.heard_ns) / 1_000_000 },
            areas: member.areas.clone(),
        });
        ClusterMap {
            cluster_id: self.cluster_id,
            epoch: Epoch(self.membership.epoch),
            nodes: nodes.collect(),
            targets: self.targets.values().cloned().collect(),
        }
    }
}

/// Adds to `total` what a report says beyond those of the same file system: they differ by what changed between them.
fn count(total: &mut u64, counted: &mut u64, reported: u64) {
    *total = total.saturating_add(reported.saturating_sub(*counted));
    *counted = reported.max(*counted);
}

/// Whether so little is left that new files had better go elsewhere.
fn is_tight(target: &Target) -> bool {
    target.available_bytes < target.capacity_bytes / TIGHT_SHARE
}

fn load_records<R: Message + Default>(
    context: &mut Context<'_>,
    mut range: Range<Vec<u8>>,
) -> Outcome<Vec<(u32, R)>> {
    let mut records = Vec::new();
    loop {
        let page = context.scan(&range, PAGE)?;
        for (key, value) in &page {
            let id = keys::number(key, 0).and_then(|id| u32::try_from(id).ok());
            let record = R::decode(value.as_slice()).ok();
            let (Some(id), Some(record)) = (id, record) else {
                return Err(Fault::new(Code::Corrupt, "a record of the cluster's membership"));
            };
            records.push((id, record));
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range.start = keys::after(last),
            _ => return Ok(records),
        }
    }
}
