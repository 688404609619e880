//! Zones in `vazao status`: who is in them, what room they have, and what is wrong with them.

use super::State;
use super::troubles::Trouble;
use crate::context::unknown_zone;
use crate::format::{self, Lean};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use vazao_model::{ClusterMap, Node, NodeState, Target};

/// The nodes of one zone and their targets.
struct ZoneView<'a> {
    name: &'a str,
    nodes: Vec<&'a Node>,
    targets: Vec<&'a Target>,
}

impl ZoneView<'_> {
    /// Targets that take new files.
    fn with_room(&self) -> usize {
        let is_up = |target: &Target| {
            self.nodes.iter().any(|node| node.id == target.node && node.state == NodeState::Up)
        };
        self.targets.iter().filter(|target| target.has_room() && is_up(target)).count()
    }

    /// Size, used, available. A file system that holds several targets counts once.
    fn bytes(&self) -> [u64; 3] {
        let mut seen = BTreeSet::new();
        let is_first = |target: &&&Target| target.file_system == 0 || seen.insert(target.file_system);
        let add = |sum: [u64; 3], target: &&Target| {
            let own = [target.capacity_bytes, target.used_bytes, target.available_bytes];
            [0, 1, 2].map(|at| sum[at].saturating_add(own[at]))
        };
        self.targets.iter().filter(is_first).fold([0; 3], add)
    }
}

fn zones(map: &ClusterMap) -> Vec<ZoneView<'_>> {
    let zone = |name| {
        let mut nodes: Vec<&Node> = map.nodes.iter().filter(|node| node.zone == name).collect();
        // Their numbers come from the order in which they registered.
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let targets = map.targets.iter().filter(|target| map.zone_of(target.id) == name).collect();
        ZoneView { name, nodes, targets }
    };
    map.zones().into_iter().map(zone).collect()
}

/// A table of all zones; empty where there are none.
pub(super) fn table(map: &ClusterMap) -> String {
    let head = [
        ("ZONE", Lean::Left),
        ("NODES", Lean::Right),
        ("TARGETS", Lean::Right),
        ("WITH ROOM", Lean::Right),
        ("SIZE", Lean::Right),
        ("USED", Lean::Right),
        ("AVAILABLE", Lean::Right),
    ];
    let row = |zone: &ZoneView<'_>| {
        let counts = [zone.nodes.len(), zone.targets.len(), zone.with_room()].map(|n| n.to_string());
        [vec![zone.name.to_owned()], counts.to_vec(), zone.bytes().map(format::human).to_vec()].concat()
    };
    let rows: Vec<Vec<String>> = zones(map).iter().map(row).collect();
    if rows.is_empty() { String::new() } else { format::table(&head, &rows) }
}

/// The same for programs.
pub(super) fn to_json(map: &ClusterMap) -> Vec<Value> {
    let one = |zone: &ZoneView<'_>| {
        let [capacity_bytes, used_bytes, available_bytes] = zone.bytes();
        json!({
            "name": zone.name,
            "nodes": zone.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
            "targets": zone.targets.iter().map(|target| target.id.0).collect::<Vec<_>>(),
            "targets_with_room": zone.with_room(),
            "capacity_bytes": capacity_bytes, "used_bytes": used_bytes, "available_bytes": available_bytes,
        })
    };
    zones(map).iter().map(one).collect()
}

/// What is wrong with zones.
pub(super) fn troubles(state: &State) -> Vec<Trouble> {
    let full = zones(&state.map).into_iter().filter(|zone| !zone.targets.is_empty() && zone.with_room() == 0);
    let full = full.map(|zone| Trouble {
        thing: format!("zone {}", zone.name),
        what: format!(
            "has no target with room ({} in all): files that are to lie in it go to other zones",
            zone.targets.len()
        ),
        remedy: format!(
            "make room there, or add a data server with zone = \"{}\" in its node.toml; `vazao layout FILE` names files \
             that went elsewhere",
            zone.name
        ),
    });
    full.chain(own_zone(state)).collect()
}

/// Of a client whose zone has no node.
fn own_zone(state: &State) -> Option<Trouble> {
    let (zone, map) = (&state.zone, &state.map);
    (!zone.is_empty() && !map.zones().contains(&zone.as_str())).then(|| Trouble {
        thing: "this client".to_owned(),
        what: format!("{}: files placed near their writer go everywhere", unknown_zone(map, zone)),
        remedy: format!(
            "correct zone in its client.toml (or --zone), or write zone = \"{zone}\" in node.toml of nodes near it"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vazao_model::{NodeId, TargetId, TargetState};

    fn node(id: u32, zone: &str) -> Node {
        Node { id: NodeId(id), name: format!("n{id}"), zone: zone.to_owned(), ..Node::default() }
    }

    fn target(id: u32, node: u32, state: TargetState) -> Target {
        let (capacity_bytes, available_bytes, file_system) = (100, 50, 7);
        let node = NodeId(node);
        Target {
            id: TargetId(id),
            node,
            state,
            capacity_bytes,
            available_bytes,
            file_system,
            ..Target::default()
        }
    }

    fn state(zone: &str) -> State {
        let map = ClusterMap {
            nodes: vec![node(1, ""), node(2, "rio"), node(3, "bra"), node(4, "rio")],
            targets: vec![
                target(1, 1, TargetState::Serving),
                target(2, 2, TargetState::Serving),
                target(3, 3, TargetState::Full),
                target(4, 4, TargetState::Serving),
            ],
            ..ClusterMap::default()
        };
        let (space, probes, metadata) = (Default::default(), Vec::new(), None);
        State { map: Arc::new(map), space, probes, metadata, zone: zone.to_owned() }
    }

    #[test]
    fn a_zone_counts_its_nodes_targets_and_disks() {
        let shown = to_json(&state("").map);
        assert_eq!((&shown[0]["name"], &shown[0]["targets_with_room"]), (&json!("bra"), &json!(0)));
        assert_eq!((&shown[1]["nodes"], &shown[1]["targets"]), (&json!(["n2", "n4"]), &json!([2, 4])));
        assert_eq!(shown[1]["capacity_bytes"], 100, "both targets are on one disk");
        assert!(table(&state("").map).contains("rio"));
        assert_eq!(table(&ClusterMap { nodes: vec![node(1, "")], ..ClusterMap::default() }), "");
    }

    #[test]
    fn a_zone_without_room_and_one_without_a_node_are_troubles() {
        let found = troubles(&state("oslo"));
        assert_eq!(found[0].thing, "zone bra");
        assert!(found[1].what.contains("no node is in zone oslo (zones of nodes: bra, rio)"), "{found:?}");
        assert_eq!((found.len(), troubles(&state("rio")).len()), (2, 1));
    }
}
