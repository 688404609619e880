//! The cluster map: which nodes there are, what they do, which targets they hold.

pub mod accusations;
pub mod lagging;
pub mod lease;
pub mod membership;
pub mod serving;

use crate::ids::{Epoch, GroupId, NodeId, TargetId};
use lagging::LaggingTarget;
use std::collections::BTreeSet;

/// What a node does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Role {
    /// Serves metadata.
    Meta = 1,
    /// Serves data.
    Data = 2,
    /// Exports directories of its own machine in place.
    Area = 3,
}

impl Role {
    /// The role with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Role> {
        match number {
            1 => Some(Role::Meta),
            2 => Some(Role::Data),
            3 => Some(Role::Area),
            _ => None,
        }
    }

    /// Its name in configuration files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Role::Meta => "meta",
            Role::Data => "data",
            Role::Area => "area",
        }
    }
}

/// Whether a node answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum NodeState {
    /// Reported within the last [`crate::limits::NODE_SILENT_MS`].
    #[default]
    Up = 1,
    /// Has not reported for longer.
    Silent = 2,
}

/// Whether a target can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum TargetState {
    /// Reads and writes.
    #[default]
    Serving = 1,
    /// Reads; new data is refused because only its reserve is left.
    Full = 2,
    /// A disk error was seen: serves nothing until an operator acts.
    Failed = 3,
    /// Its disk is older than what was recorded of it: serves nothing until an operator acts.
    Stale = 4,
    /// Its node is there and its directory is not: serves nothing until its disk is back.
    Missing = 5,
    /// Its disk answers nothing: requests for it wait or fail until it does.
    Hung = 6,
}

impl TargetState {
    /// The state with this number; an unknown one is taken as failed, the safe reading.
    pub fn from_number(number: u32) -> TargetState {
        match number {
            1 => TargetState::Serving,
            2 => TargetState::Full,
            4 => TargetState::Stale,
            5 => TargetState::Missing,
            6 => TargetState::Hung,
            _ => TargetState::Failed,
        }
    }

    /// True where what it has can be read.
    pub fn is_readable(self) -> bool {
        matches!(self, TargetState::Serving | TargetState::Full)
    }

    /// Its name in tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            TargetState::Serving => "serving",
            TargetState::Full => "full",
            TargetState::Failed => "failed",
            TargetState::Stale => "stale",
            TargetState::Missing => "missing",
            TargetState::Hung => "hung",
        }
    }
}

/// One directory on one disk of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Its id.
    pub id: TargetId,
    /// The node that holds it.
    pub node: NodeId,
    /// Its state at the last report.
    pub state: TargetState,
    /// Size of its file system.
    pub capacity_bytes: u64,
    /// Space left on it, after the reserve.
    pub available_bytes: u64,
    /// Why it failed or is full, for people; empty otherwise.
    pub trouble: String,
    /// The same number for all targets on one file system; 0 where that is not known.
    pub file_system: u64,
    /// Bytes in use on its file system by all programs. Reserves are neither used nor available.
    pub used_bytes: u64,
    /// What its server leaves alone, so that removals and repairs find room.
    pub reserve_bytes: u64,
    /// Blocks found damaged since its server started, and neither written anew nor removed since.
    pub corrupt_blocks: u64,
    /// Objects found missing where a file has bytes in them.
    pub missing_objects: u64,
    /// Blocks and objects repaired from another copy since its server started.
    pub repaired: u64,
    /// Where it lies on its node, for people.
    pub directory: String,
    /// The last incarnation that the metadata service has recorded of it.
    pub incarnation: u64,
    /// The incarnation that its server found on its disk when it started: less than the recorded one if it is stale.
    pub found: u64,
    /// Unix time at which that was written; 0 where that is not known.
    pub found_seconds: u64,
    /// Its state is the recorded one, in which it does not serve, and it may by now: the metadata service has just
    /// started, and its node has not reported yet.
    pub is_unreported: bool,
}

impl Target {
    /// True where new data may go: it serves, and has something left. Its size is 0 before its first report.
    pub fn has_room(&self) -> bool {
        let is_spent = self.available_bytes == 0 && self.capacity_bytes > 0;
        self.state == TargetState::Serving && !is_spent
    }
}

/// A placement group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    /// Its id, which is no target's.
    pub id: GroupId,
    /// Version of its membership.
    pub epoch: u64,
    /// The targets with copies of its objects; the first one is the primary.
    pub members: Vec<TargetId>,
    /// Its members agree on a record and serve by leases of one another: none does by the map alone.
    pub is_agreed: bool,
}

/// A directory that a node exports in place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AreaInfo {
    /// Its name, unique on its node.
    pub name: String,
    /// Nothing in it can be changed through its node.
    pub read_only: bool,
    /// Why it cannot be used at present, for people; empty otherwise.
    pub trouble: String,
}

/// A node that was not taken into the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Refusal {
    /// What it calls itself.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// Why, for people.
    pub why: String,
    /// Milliseconds since it was last tried.
    pub ago_ms: u64,
}

/// One daemon.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Its name from the configuration, unique in the cluster.
    pub name: String,
    /// Where it is reached: `host:port`.
    pub address: String,
    /// What it does.
    pub roles: Vec<Role>,
    /// Whether it answers.
    pub state: NodeState,
    /// Milliseconds since it last reported.
    pub silent_ms: u64,
    /// What it exports, as last reported.
    pub areas: Vec<AreaInfo>,
    /// The zone it is in, as its configuration says; empty: in none.
    pub zone: String,
}

/// What a placement group lacks that was made with several copies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupAway {
    /// Its id.
    pub id: GroupId,
    /// Copies that it was made with.
    pub copies: u32,
    /// Members that are not current.
    pub members: Vec<AwayMember>,
}

/// A member of a placement group that is not current.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AwayMember {
    /// Where its objects are.
    pub target: TargetId,
    /// It is not wanted any more; else it lags.
    pub is_leaving: bool,
    /// Milliseconds since it was current, or was made a member.
    pub ago_ms: u64,
}

/// The whole cluster as the metadata service knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterMap {
    /// Random id given at creation: daemons and clients of another cluster are refused by it.
    pub cluster_id: u64,
    /// Version of the membership.
    pub epoch: Epoch,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// All targets.
    pub targets: Vec<Target>,
    /// All placement groups that are not a target alone, by their ids.
    pub groups: Vec<Group>,
    /// What groups lack that were made with several copies, by their ids.
    pub away: Vec<GroupAway>,
    /// How far the members among these lag that a primary has told of, by their ids.
    pub lagging: Vec<LaggingTarget>,
    /// Nodes that were not taken in, the latest last.
    pub refusals: Vec<Refusal>,
    /// Why the metadata is not served, for people; empty otherwise.
    pub trouble: String,
}

impl ClusterMap {
    /// The target with this id.
    pub fn target(&self, id: TargetId) -> Option<&Target> {
        self.targets.iter().find(|t| t.id == id)
    }

    /// True where a target can be asked for what it has: its node is up, and reports it as one that can be read.
    pub fn can_be_asked(&self, id: TargetId) -> bool {
        let Some(target) = self.target(id) else { return false };
        let is_up = |node: &Node| node.state == NodeState::Up;
        target.state.is_readable() && !target.is_unreported && self.node(target.node).is_some_and(is_up)
    }

    /// True where a member that was put out can be asked, and its node has reported since: it catches up.
    pub fn is_back(&self, member: &AwayMember) -> bool {
        let node = self.target(member.target).and_then(|target| self.node(target.node));
        self.can_be_asked(member.target) && node.is_some_and(|node| node.silent_ms < member.ago_ms)
    }

    /// The targets that hold the objects of a group. Empty: it is not known.
    pub fn members(&self, group: GroupId) -> Vec<TargetId> {
        let of_record = || {
            let at = self.groups.binary_search_by_key(&group, |group| group.id).ok()?;
            Some(self.groups[at].members.clone())
        };
        group.target().map(|target| vec![target]).or_else(of_record).unwrap_or_default()
    }

    /// What a group lacks; `None`: nothing, or the group is not known.
    pub fn away(&self, group: GroupId) -> Option<&GroupAway> {
        let at = self.away.binary_search_by_key(&group, |away| away.id).ok()?;
        self.away.get(at)
    }

    /// Copies that a group was made with.
    pub fn copies(&self, group: GroupId) -> usize {
        self.away(group).map_or_else(|| self.members(group).len().max(1), |away| away.copies as usize)
    }

    /// The zone of a target's node; empty: none, or the target is not known.
    pub fn zone_of(&self, target: TargetId) -> &str {
        let node = self.target(target).and_then(|target| self.node(target.node));
        node.map_or("", |node| node.zone.as_str())
    }

    /// The zones that nodes are in, sorted.
    pub fn zones(&self) -> Vec<&str> {
        let zones = self.nodes.iter().map(|node| node.zone.as_str()).filter(|zone| !zone.is_empty());
        zones.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|n| n.id == id)
    }
}
