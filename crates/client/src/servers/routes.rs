//! Which server holds which placement group, as the cluster map last said.

use super::door::LocalDoor;
use super::pace::Pace;
use crate::statistics::ServerCounters;
use std::collections::HashMap;
use std::sync::Arc;
use vazao_model::{ClusterMap, Group, GroupId, NodeId, NodeState, TargetId};

/// A data server as requests see it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) node: NodeId,
    pub(crate) address: String,
    name: String,
    pub(crate) counters: Arc<ServerCounters>,
    /// How its objects are read without it, where that is possible.
    pub(crate) door: Arc<LocalDoor>,
    /// How far away it is.
    pub(crate) pace: Arc<Pace>,
}

impl Server {
    /// The node's name.
    pub(crate) fn node_name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "data server {} ({})", self.name, self.address)
    }
}

/// A current member of a placement group of several.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) target: TargetId,
    pub(crate) server: Arc<Server>,
    /// It does not answer, as far as the metadata service knows.
    pub(crate) is_out: bool,
}

/// A placement group that is not a target alone.
#[derive(Debug)]
struct Shared {
    primary: TargetId,
    /// Those that are known, the primary first.
    members: Arc<[Member]>,
    /// It never had another one, and all is as with a target alone. Where one of several is left there may be others
    /// before this client knows.
    is_alone: bool,
}

/// The cluster map, indexed.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) map: Arc<ClusterMap>,
    /// Some node of it is silent.
    pub(crate) has_silent: bool,
    servers: HashMap<NodeId, Arc<Server>>,
    targets: HashMap<TargetId, Arc<Server>>,
    shared: HashMap<GroupId, Shared>,
}

impl Routes {
    /// Routes by `map`; servers that were known keep their counters.
    pub(crate) fn new(map: ClusterMap, before: &Routes) -> Routes {
        let mut servers = HashMap::new();
        for node in &map.nodes {
            let counters = before.servers.get(&node.id).map(|s| Arc::clone(&s.counters)).unwrap_or_default();
            let (address, name) = (node.address.clone(), node.name.clone());
            let known = before.servers.get(&node.id).filter(|s| s.address == address);
            let (door, pace) = known.map(|s| (Arc::clone(&s.door), Arc::clone(&s.pace))).unwrap_or_default();
            servers.insert(node.id, Arc::new(Server { node: node.id, address, name, counters, door, pace }));
        }
        let targets: HashMap<TargetId, Arc<Server>> = map
            .targets
            .iter()
            .filter_map(|target| Some((target.id, Arc::clone(servers.get(&target.node)?))))
            .collect();
        let shared = |group: &Group| {
            let members = group.members.iter().filter_map(|target| member(&map, &targets, *target)).collect();
            let is_alone = group.members.len() == 1 && !group.is_agreed;
            Some((group.id, Shared { primary: *group.members.first()?, members, is_alone }))
        };
        let shared = map.groups.iter().filter_map(shared).collect();
        let has_silent = map.nodes.iter().any(|node| node.state == NodeState::Silent);
        Routes { map: Arc::new(map), has_silent, servers, targets, shared }
    }

    /// The target that changes in a group go to. `None`: the map does not have the group.
    pub(crate) fn target(&self, group: GroupId) -> Option<TargetId> {
        group.target().or_else(|| self.shared.get(&group).map(|shared| shared.primary))
    }

    /// The current members of a group of several; as far as this map knows, it may be one that is left.
    pub(crate) fn members(&self, group: GroupId) -> Option<&Arc<[Member]>> {
        self.shared.get(&group).filter(|shared| !shared.is_alone).map(|shared| &shared.members)
    }

    /// The primary's server of a group, and the members where it has several.
    pub(crate) fn route(&self, group: GroupId) -> (Option<Arc<Server>>, Option<Arc<[Member]>>) {
        let (target, members) = match group.target() {
            Some(target) => (Some(target), None),
            None => match self.shared.get(&group) {
                Some(shared) => {
                    let members = (!shared.is_alone).then(|| Arc::clone(&shared.members));
                    (Some(shared.primary), members)
                }
                None => (None, None),
            },
        };
        (target.and_then(|target| self.targets.get(&target).cloned()), members)
    }

    /// The server of a group's primary.
    pub(crate) fn server(&self, group: GroupId) -> Option<&Arc<Server>> {
        self.targets.get(&self.target(group)?)
    }

    /// All servers that were sent something or read past, in the order of their ids.
    pub(crate) fn used_servers(&self) -> Vec<&Arc<Server>> {
        let is_used = |s: &&Arc<Server>| s.counters.requests.get() > 0 || s.counters.bytes_local.get() > 0;
        let mut used: Vec<_> = self.servers.values().filter(is_used).collect();
        used.sort_by_key(|s| s.node);
        used
    }
}

/// A target of the map as a member; `None`: its node is not known.
fn member(map: &ClusterMap, servers: &HashMap<TargetId, Arc<Server>>, id: TargetId) -> Option<Member> {
    let (target, server) = (map.target(id)?, Arc::clone(servers.get(&id)?));
    let is_silent = map.node(target.node).is_some_and(|node| node.state == NodeState::Silent);
    let is_out = is_silent || !(target.state.is_readable() || target.is_unreported);
    Some(Member { target: id, server, is_out })
}
