//! The cluster: nodes, targets, their state, and the choice of targets for new layouts. How nodes join is in
//! `joining`.
//!
//! - Membership is recorded and has an epoch. So is, for each target, the incarnation its disk must not be older
//!   than, and why it does not serve.
//! - Liveness of nodes and free space of targets come from the last heartbeat, in memory only.
//! - A heartbeat looks at the node's own entries only ([`Cluster::excerpt`]): its cost does not grow with the cluster.
//! - After a restart every member counts as just heard, except those recorded as silent: a service that was away must
//!   not take the others for dead.
//! - For as long after a restart nothing is final that only reports can tell: neither a recorded state in which a
//!   target does not serve, nor that there is no target ([`Cluster::is_unreported`], [`Cluster::is_settling`]).

use crate::membership::joining::Now;
use crate::membership::lagging;
use crate::placement::Groups;
use crate::schema::records::{GroupRecord, MembershipRecord, NodeRecord, TargetRecord};
use crate::schema::{groups, keys};
use crate::service::context::Context;
use crate::service::fault::Outcome;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use vazao_model::cluster::lagging::LaggingTarget;
use vazao_model::{
    AreaInfo, ClusterMap, Code, Epoch, GroupAway, GroupId, InodeId, Node, NodeId, NodeState, Role, Target,
    TargetId, TargetState, limits,
};
use vazao_wire::service::Fault;

pub(crate) const SILENT_NS: u64 = limits::NODE_SILENT_MS as u64 * 1_000_000;

const LOST_NS: u64 = limits::NODE_LOST_MS as u64 * 1_000_000;

/// Bytes of a node's name, of its address, and of a target's directory.
pub(crate) const TEXT_BYTES_MAX: usize = 255;

/// Records read at a time.
const PAGE: usize = 512;

/// A target with less than this share of its space left gets new files only when there is no other.
const TIGHT_SHARE: u64 = 20;

/// A node, and when it last reported.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) record: NodeRecord,
    pub(crate) heard_ns: u64,
    /// How long it was silent already when this service started.
    pub(crate) away_ns: u64,
    /// What it exports, as its last heartbeat said.
    pub(crate) areas: Vec<AreaInfo>,
    /// Its machine since that was started, as its last heartbeat said; 0: not known.
    pub(crate) host: u64,
    /// It keeps objects of placement groups apart, as its last heartbeat said.
    pub(crate) follows_groups: bool,
    /// What its primaries say of members that lag, as its last heartbeat said.
    pub(crate) lagging: Arc<lagging::Told>,
}

impl Member {
    fn silent_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.heard_ns).saturating_add(self.away_ns)
    }
}

/// A target: what is written down of it, and what is shown.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) record: TargetRecord,
    pub(crate) shown: Target,
    /// Its node has said how it is since this service started.
    pub(crate) is_reported: bool,
    /// When its present process was given leave to serve it; or when this service started, if that was later.
    pub(crate) leave_ns: u64,
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
    pub(crate) cluster_id: u64,
    pub(crate) membership: MembershipRecord,
    pub(crate) nodes: BTreeMap<NodeId, Member>,
    pub(crate) targets: BTreeMap<TargetId, Held>,
    /// Which node has a name.
    names: BTreeMap<String, NodeId>,
    /// The targets of each node, as recorded.
    of_node: BTreeMap<NodeId, BTreeSet<TargetId>>,
    pub(crate) groups: Arc<Groups>,
    /// This service itself.
    own: NodeId,
    /// When the service started.
    started_ns: u64,
}

impl Cluster {
    /// Reads the membership.
    pub(crate) fn load(context: &mut Context<'_>, cluster_id: u64, now: Now) -> Outcome<Cluster> {
        let membership = context.read(keys::MEMBERSHIP, "membership")?.unwrap_or_default();
        let mut cluster = Cluster { cluster_id, membership, started_ns: now.ns, ..Cluster::default() };
        for (id, record) in load_records::<NodeRecord>(context, keys::nodes(), "a node")? {
            let away_seconds = match record.silent_since_seconds {
                0 => 0,
                since => now.wall_seconds.saturating_sub(since),
            };
            let away_ns = away_seconds.saturating_mul(1_000_000_000);
            let member = Member {
                record,
                heard_ns: now.ns,
                away_ns,
                areas: Vec::new(),
                host: 0,
                follows_groups: false,
                lagging: Arc::default(),
            };
            cluster.keep_node(NodeId(id), member);
        }
        for (id, record) in load_records::<TargetRecord>(context, keys::targets(), "a target")? {
            let shown = Target {
                id: TargetId(id),
                node: NodeId(record.node),
                // 0: written before states were.
                state: if record.state == 0 {
                    TargetState::Serving
                } else {
                    TargetState::from_number(record.state)
                },
                trouble: record.trouble.clone(),
                directory: record.directory.clone(),
                incarnation: record.incarnation,
                ..Target::default()
            };
            cluster.keep(TargetId(id), Held { record, shown, is_reported: false, leave_ns: now.ns });
        }
        let kept = load_records::<GroupRecord>(context, keys::groups(), "a placement group")?;
        let kept = kept.into_iter().map(|(id, record)| (GroupId(id), record));
        let kept: Outcome<Vec<_>> = kept.map(|(id, record)| Ok((id, groups::group(id, &record)?))).collect();
        cluster.groups = Arc::new(Groups::new(kept?));
        Ok(cluster)
    }

    fn keep_node(&mut self, id: NodeId, member: Member) {
        let name = member.record.name.clone();
        if let Some(before) = self.nodes.insert(id, member).filter(|before| before.record.name != name) {
            self.names.remove(&before.record.name);
        }
        self.names.insert(name, id);
    }

    fn keep(&mut self, id: TargetId, held: Held) {
        let node = NodeId(held.record.node);
        if let Some(before) = self.targets.insert(id, held)
            && let Some(others) = self.of_node.get_mut(&NodeId(before.record.node))
        {
            others.remove(&id);
        }
        self.of_node.entry(node).or_default().insert(id);
    }

    /// The member of this name.
    pub(crate) fn named(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// What an announcement of `node` can change: the node and its targets, and `named` ones that others have by now,
    /// with those nodes; and the placement groups. Copied, so that a change is prepared without a lock on the rest.
    pub(crate) fn excerpt(&self, node: Option<NodeId>, named: impl Iterator<Item = TargetId>) -> Cluster {
        let own = node.and_then(|node| self.of_node.get(&node)).into_iter().flatten().copied();
        let targets: BTreeMap<TargetId, Held> =
            own.chain(named).filter_map(|id| Some((id, self.targets.get(&id)?.clone()))).collect();
        let holders = targets.values().map(|held| NodeId(held.record.node)).chain(node);
        let nodes = holders.filter_map(|id| Some((id, self.nodes.get(&id)?.clone()))).collect();
        let (cluster_id, membership, own) = (self.cluster_id, self.membership, self.own);
        let groups = Arc::clone(&self.groups);
        Cluster { cluster_id, membership, nodes, targets, groups, own, ..Cluster::default() }
    }

    /// Takes a changed excerpt over.
    pub(crate) fn merge(&mut self, changed: Cluster) {
        (self.membership, self.groups) = (changed.membership, changed.groups);
        changed.nodes.into_iter().for_each(|(id, member)| self.keep_node(id, member));
        changed.targets.into_iter().for_each(|(id, held)| self.keep(id, held));
    }

    /// Names the service's own node, which is always up.
    pub(crate) fn set_own(&mut self, node: NodeId) {
        self.own = node;
    }

    /// Nodes that have fallen silent, and whose records do not say so yet: an excerpt that does.
    pub(crate) fn fallen_silent(&self, now: Now) -> Cluster {
        let is_news = |id: NodeId, member: &Member| {
            id != self.own && member.record.silent_since_seconds == 0 && member.silent_ns(now.ns) >= SILENT_NS
        };
        let fallen = self.nodes.iter().filter(|(id, member)| is_news(**id, member));
        let note = |(&id, member): (&NodeId, &Member)| {
            let (mut member, seconds) = (member.clone(), member.silent_ns(now.ns) / 1_000_000_000);
            member.record.silent_since_seconds = now.wall_seconds.saturating_sub(seconds).max(1);
            (id, member)
        };
        let nodes = fallen.map(note).collect();
        Cluster { nodes, ..self.excerpt(None, std::iter::empty()) }
    }

    pub(crate) fn is_up(&self, node: NodeId, now_ns: u64) -> bool {
        node == self.own || self.nodes.get(&node).is_some_and(|m| m.silent_ns(now_ns) < SILENT_NS)
    }

    /// True for a node that is silent and may be only late.
    fn may_come(&self, node: NodeId, now_ns: u64) -> bool {
        !self.is_up(node, now_ns) && self.nodes.get(&node).is_some_and(|m| m.silent_ns(now_ns) < LOST_NS)
    }

    /// True for as long after the start as a node may take to report before it counts as silent.
    fn is_settling(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.started_ns) < SILENT_NS
    }

    /// True for a target that did not serve before this service started, and may by now.
    fn is_unreported(&self, held: &Held, now_ns: u64) -> bool {
        !held.is_reported && !held.shown.state.is_readable() && self.is_settling(now_ns)
    }

    /// An operator goes on with an older copy of a target, which was found with `incarnation`: an excerpt whose record
    /// says so. Errors: it is not stale, or was found with another one by now.
    pub(crate) fn accept_old(&self, id: TargetId, incarnation: u64) -> Outcome<Cluster> {
        let refuse = |code, text: String| Err(Fault::new(code, format!("target {id}: {text}")));
        let mut excerpt = self.excerpt(None, std::iter::once(id));
        let Some(held) = excerpt.targets.get_mut(&id) else {
            return refuse(
                Code::NotFound,
                "not in this cluster; `vazao status` shows the targets".to_owned(),
            );
        };
        if held.shown.state != TargetState::Stale {
            let state = held.shown.state.name();
            return refuse(Code::Invalid, format!("is {state}, not stale: there is nothing to accept"));
        }
        if held.shown.found != incarnation {
            let found = held.shown.found;
            return refuse(
                Code::Invalid,
                format!("has incarnation {found} by now, not {incarnation}: look again"),
            );
        }
        held.record.accepted_from = Some(incarnation);
        Ok(excerpt)
    }

    /// Where a target is served, while its node answers. `None`: unknown or silent.
    pub(crate) fn address_of(&self, target: TargetId, now_ns: u64) -> Option<&str> {
        let node = self.targets.get(&target)?.shown.node;
        let up = self.is_up(node, now_ns);
        self.nodes.get(&node).filter(|_| up).map(|member| member.record.address.as_str())
    }

    /// Targets that can be asked at present, and where.
    pub(crate) fn served(&self, now_ns: u64) -> Vec<(TargetId, String)> {
        let working = self.shown().filter(|target| target.state.is_readable());
        working
            .filter_map(|target| Some((target.id, self.address_of(target.id, now_ns)?.to_owned())))
            .collect()
    }

    fn shown(&self) -> impl Iterator<Item = &Target> {
        self.targets.values().map(|held| &held.shown)
    }

    /// True for a target of this cluster.
    pub(crate) fn knows(&self, target: TargetId) -> bool {
        self.targets.contains_key(&target)
    }

    /// Targets for a file's stripes: `width` of them, or with 0 all, as far as they serve. Neighbouring slots lie on
    /// different nodes, each file begins elsewhere, and targets that are nearly full come last. With a `zone` they are
    /// of that one, as long as one of its targets has room, and of all zones otherwise.
    pub(crate) fn choose(
        &self,
        inode: InodeId,
        width: u32,
        zone: Option<&str>,
        now_ns: u64,
    ) -> Outcome<Vec<TargetId>> {
        let zone = zone.filter(|zone| self.has_room_in(zone, now_ns));
        let mut usable = self.usable(inode, now_ns, |member, target| is_within(zone, member, target));
        if usable.is_empty() {
            return Err(self.none_serves(now_ns));
        }
        let wanted = if width == 0 { limits::STRIPE_WIDTH_MAX } else { width as usize };
        usable.truncate(wanted.min(limits::STRIPE_WIDTH_MAX));
        Ok(usable)
    }

    pub(crate) fn none_serves(&self, now_ns: u64) -> Fault {
        Fault::new(self.code_of_none(now_ns), self.why_none_serves(now_ns))
    }

    /// What to do when no target serves: a node that is silent or has not reported yet may only be late, and a full
    /// target may be emptied.
    fn code_of_none(&self, now_ns: u64) -> Code {
        let may_be_reported = |held: &Held| self.is_unreported(held, now_ns);
        let may_answer = |target: &Target| target.state.is_readable() || target.state == TargetState::Hung;
        let may_come = |target: &Target| self.may_come(target.node, now_ns) && may_answer(target);
        let is_full = |target: &Target| self.is_up(target.node, now_ns) && target.state == TargetState::Full;
        match () {
            () if self.targets.is_empty() && self.is_settling(now_ns) => Code::Unavailable,
            () if self.targets.values().any(may_be_reported) => Code::Unavailable,
            () if self.shown().any(may_come) => Code::Unavailable,
            () if self.targets.is_empty() || self.shown().any(is_full) => Code::NoSpace,
            () => Code::TargetFailed,
        }
    }

    /// A target on the machine `host` for all of a file; `None` where none serves there, or not in the zone that
    /// [`Cluster::choose`] would take.
    pub(crate) fn choose_near(
        &self,
        inode: InodeId,
        host: u64,
        zone: Option<&str>,
        now_ns: u64,
    ) -> Option<TargetId> {
        let zone = zone.filter(|zone| self.has_room_in(zone, now_ns));
        let is_near = |member: &Member, target: &Target| {
            host != 0 && member.host == host && is_within(zone, member, target)
        };
        self.usable(inode, now_ns, is_near).first().copied()
    }

    /// True while a new file finds a target in the zone.
    pub(crate) fn has_room_in(&self, zone: &str, now_ns: u64) -> bool {
        let is_in = |target: &Target| {
            let member = self.nodes.get(&target.node).filter(|_| self.is_up(target.node, now_ns));
            member.is_some_and(|member| is_within(Some(zone), member, target))
        };
        self.shown().any(is_in)
    }

    /// True when the primaries of these groups are in the zone.
    pub(crate) fn is_in_zone(&self, groups: &[GroupId], zone: &str) -> bool {
        let is_in = |target: &TargetId| {
            let node = self.targets.get(target).and_then(|held| self.nodes.get(&held.shown.node));
            node.is_some_and(|member| member.record.zone == zone)
        };
        groups.iter().all(|group| self.primary_of(*group).as_ref().is_some_and(is_in))
    }

    /// The zones that have targets, whatever their state.
    pub(crate) fn zones(&self) -> BTreeSet<&str> {
        let zone = |target: &Target| Some(self.nodes.get(&target.node)?.record.zone.as_str());
        self.shown().filter_map(zone).filter(|zone| !zone.is_empty()).collect()
    }

    /// The groups that the objects of a file's slots go to, which are to lie on `targets`: of a server that knows
    /// no groups its targets alone.
    pub(crate) fn groups_on(&self, inode: InodeId, targets: &[TargetId]) -> Vec<GroupId> {
        let follows = |target: &TargetId| {
            let node = self.targets.get(target).and_then(|held| self.nodes.get(&held.shown.node));
            node.is_some_and(|member| member.follows_groups)
        };
        let group = |(target, slot): (&TargetId, u64)| match follows(target) {
            true => self.groups.led_by(*target, inode.0.wrapping_add(slot << 32)),
            false => GroupId::of(*target),
        };
        targets.iter().zip(0..).map(group).collect()
    }

    /// The target that orders the changes of a group's objects. `None`: there is no such group.
    pub(crate) fn primary_of(&self, group: GroupId) -> Option<TargetId> {
        self.groups.current(group)?.first().copied()
    }

    /// Targets that serve, and of which `is_wanted` is true, in the order in which a file takes them.
    pub(crate) fn usable(
        &self,
        inode: InodeId,
        now_ns: u64,
        is_wanted: impl Fn(&Member, &Target) -> bool,
    ) -> Vec<TargetId> {
        let mut of_node: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut usable: Vec<(usize, NodeId, TargetId)> = Vec::new();
        for target in self.shown() {
            let is_wanted = self.nodes.get(&target.node).is_some_and(|member| is_wanted(member, target));
            if target.state == TargetState::Serving && self.is_up(target.node, now_ns) && is_wanted {
                let turn = of_node.entry(target.node).or_default();
                usable.push((*turn, target.node, target.id));
                *turn += 1;
            }
        }
        usable.sort_unstable();
        if let Some(first) = inode.0.checked_rem(usable.len() as u64) {
            usable.rotate_left(first as usize);
        }
        // Behind all others those whose servers wait for their disks: they may hang.
        usable.sort_by_key(|(_, _, id)| {
            let shown = &self.targets[id].shown;
            (!shown.trouble.is_empty(), is_tight(shown))
        });
        usable.into_iter().map(|(_, _, id)| id).collect()
    }

    fn why_none_serves(&self, now_ns: u64) -> String {
        if self.targets.is_empty() {
            return "no data server has joined the cluster yet".to_owned();
        }
        let reasons = self.shown().take(8).map(|target| {
            let why = match target.state {
                _ if !self.is_up(target.node, now_ns) => format!("node {} is silent", target.node),
                TargetState::Full => "full".to_owned(),
                state => format!("{}: {}", state.name(), target.trouble),
            };
            format!("{} ({why})", target.id)
        });
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        let remedy = match self.code_of_none(now_ns) {
            Code::NoSpace => "remove files, or add a target; `vazao df` and `vazao status` show the space",
            _ => "see `vazao status`",
        };
        format!("no target serves: {reasons}; {remedy}")
    }

    /// Space over targets that serve; a file system that holds several of them counts once.
    pub(crate) fn space(&self) -> VolumeSpace {
        let mut shared: BTreeMap<u64, VolumeSpace> = BTreeMap::new();
        let mut total = VolumeSpace::default();
        for held in self.shown().filter(|target| target.state.is_readable()) {
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

    /// Targets that lag in the groups that are `away`, as far as nodes that are up and lead these have said.
    pub(crate) fn lagging(&self, away: &[GroupAway], now_ns: u64) -> Vec<LaggingTarget> {
        let up = self.nodes.iter().filter(|(node, _)| self.is_up(**node, now_ns));
        let led_copies = |node: NodeId, group| {
            let current = self.groups.current(group)?;
            let primary = self.targets.get(current.first()?)?;
            (primary.record.node == node.0).then_some(current.len())
        };
        let told = up.map(|(node, member)| (*node, &*member.lagging));
        lagging::summed_up(told, &lagging::Groups { away, led_copies })
    }

    /// The map for clients.
    pub(crate) fn map(&self, now: Now) -> ClusterMap {
        let now_ns = now.ns;
        let nodes = self.nodes.iter().map(|(&id, member)| Node {
            id,
            name: member.record.name.clone(),
            address: member.record.address.clone(),
            roles: member.record.roles.iter().filter_map(|&r| Role::from_number(r)).collect(),
            state: if self.is_up(id, now_ns) { NodeState::Up } else { NodeState::Silent },
            silent_ms: if id == self.own { 0 } else { member.silent_ns(now_ns) / 1_000_000 },
            areas: member.areas.clone(),
            zone: member.record.zone.clone(),
        });
        let targets = self
            .targets
            .values()
            .map(|held| Target { is_unreported: self.is_unreported(held, now_ns), ..held.shown.clone() });
        let away = self.groups.away(now.wall_seconds);
        ClusterMap {
            cluster_id: self.cluster_id,
            epoch: Epoch(self.membership.epoch),
            nodes: nodes.collect(),
            targets: targets.collect(),
            groups: self.groups.told(|_| true),
            lagging: self.lagging(&away, now_ns),
            away,
            ..ClusterMap::default()
        }
    }
}

/// Adds to `total` what a report says beyond those of the same file system: they differ by what changed between them.
fn count(total: &mut u64, counted: &mut u64, reported: u64) {
    *total = total.saturating_add(reported.saturating_sub(*counted));
    *counted = reported.max(*counted);
}

/// Whether a target of this node may take a file that is to lie in `zone`, if in any.
pub(crate) fn is_within(zone: Option<&str>, member: &Member, target: &Target) -> bool {
    zone.is_none_or(|zone| member.record.zone == zone && target.has_room())
}

/// Whether so little is left that new files had better go elsewhere.
pub(crate) fn is_tight(target: &Target) -> bool {
    target.available_bytes < target.capacity_bytes / TIGHT_SHARE
}

/// The records of a range by their numbers; `what` each is of, for people.
fn load_records<R: Message + Default>(
    context: &mut Context<'_>,
    mut range: Range<Vec<u8>>,
    what: &str,
) -> Outcome<Vec<(u32, R)>> {
    let mut records = Vec::new();
    loop {
        let page = context.scan(&range, PAGE)?;
        for (key, value) in &page {
            let id = keys::number(key, 0).and_then(|id| u32::try_from(id).ok());
            let record = R::decode(value.as_slice()).ok();
            let (Some(id), Some(record)) = (id, record) else {
                return Err(Fault::new(
                    Code::Corrupt,
                    format!("a record of the cluster's membership: {what}"),
                ));
            };
            records.push((id, record));
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range.start = keys::after(last),
            _ => return Ok(records),
        }
    }
}
