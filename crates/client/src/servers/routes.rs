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

/// The cluster map, indexed.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub(crate) map: Arc<ClusterMap>,
    /// Some node of it is silent.
    pub(crate) has_silent: bool,
    servers: HashMap<NodeId, Arc<Server>>,
    targets: HashMap<TargetId, Arc<Server>>,
    /// The primaries of placement groups that are not a target alone.
    primaries: HashMap<GroupId, TargetId>,
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
        let targets = map
            .targets
            .iter()
            .filter_map(|target| Some((target.id, Arc::clone(servers.get(&target.node)?))))
            .collect();
        let primary = |group: &Group| Some((group.id, *group.members.first()?));
        let primaries = map.groups.iter().filter_map(primary).collect();
        let has_silent = map.nodes.iter().any(|node| node.state == NodeState::Silent);
        Routes { map: Arc::new(map), has_silent, servers, targets, primaries }
    }

    /// The target that requests to a group go to. `None`: the map does not have the group.
    pub(crate) fn target(&self, group: GroupId) -> Option<TargetId> {
        group.target().or_else(|| self.primaries.get(&group).copied())
    }

    /// The server of a group.
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
