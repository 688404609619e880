//! The state of a cluster as tables, and as JSON.

use super::troubles::{Trouble, state};
use super::{State, area_json, area_table, copies, zones};
use crate::format::{self, Lean};
use serde_json::json;
use vazao_model::{ClusterMap, Node, NodeState, Refusal, Role, Target};

fn roles(node: &Node) -> String {
    node.roles.iter().map(|role| Role::name(*role)).collect::<Vec<_>>().join("+")
}

fn node_state(state: &State, node: &Node) -> &'static str {
    match (node.state, state.failure(node.id)) {
        (NodeState::Silent, _) => "silent",
        (NodeState::Up, Some(_)) => "no answer",
        (NodeState::Up, None) => "up",
    }
}

fn target_state(target: &Target) -> &'static str {
    state(target).name()
}

fn node_table(state: &State) -> String {
    let mut head = vec![
        ("NODE", Lean::Left),
        ("ROLES", Lean::Left),
        ("ADDRESS", Lean::Left),
        ("STATE", Lean::Left),
        ("REPORTED", Lean::Right),
        ("ANSWERS IN", Lean::Right),
    ];
    // A cluster without zones looks as it did before there were any.
    let has_zones = !state.map.zones().is_empty();
    head.extend(has_zones.then_some(("ZONE", Lean::Left)));
    let row = |node: &Node| {
        let ago = format!("{} ago", format::duration(node.silent_ms * 1_000_000));
        let answers = state.answered_ns(node.id).map_or_else(|| "-".to_owned(), format::duration);
        let (name, address) = (node.name.clone(), node.address.clone());
        let mut row = vec![name, roles(node), address, node_state(state, node).to_owned(), ago, answers];
        row.extend(has_zones.then(|| format::or_dash(&node.zone)));
        row
    };
    format::table(&head, &state.map.nodes.iter().map(row).collect::<Vec<_>>())
}

fn target_table(state: &State) -> String {
    let head = [
        ("TARGET", Lean::Left),
        ("NODE", Lean::Left),
        ("STATE", Lean::Left),
        ("SIZE", Lean::Right),
        ("USED", Lean::Right),
        ("AVAILABLE", Lean::Right),
        ("DAMAGE", Lean::Right),
    ];
    let row = |target: &Target| {
        let node = state.map.node(target.node);
        let node = node.map_or_else(|| target.node.to_string(), |node| node.name.clone());
        let sizes = [target.capacity_bytes, target.used_bytes, target.available_bytes].map(format::human);
        let damage = target.corrupt_blocks + target.missing_objects;
        let damage = if damage == 0 { "none".to_owned() } else { damage.to_string() };
        let state = target_state(target).to_owned();
        [vec![target.id.to_string(), node, state], sizes.to_vec(), vec![damage]].concat()
    };
    format::table(&head, &state.map.targets.iter().map(row).collect::<Vec<_>>())
}

/// What was damaged and is not any more; empty where nothing was.
fn repaired(map: &ClusterMap) -> String {
    let repaired: Vec<&Target> = map.targets.iter().filter(|target| target.repaired > 0).collect();
    if repaired.is_empty() {
        return String::new();
    }
    let sum: u64 = repaired.iter().map(|target| target.repaired).sum();
    let each: Vec<String> =
        repaired.iter().map(|target| format!("{}: {}", target.id, target.repaired)).collect();
    format!("repaired from a copy: {sum} ({}); check these disks (dmesg, smartctl)\n", each.join(", "))
}

/// As people read it.
pub(super) fn text(state: &State, troubles: &[Trouble]) -> String {
    let (map, space) = (&*state.map, &state.space);
    let more = [zones::table(map), area_table(map)].into_iter().filter(|table| !table.is_empty());
    let more: String = more.map(|table| format!("\n{table}")).collect();
    let mut text = format!(
        "cluster {:016x}, membership {}\n\n{}\n{}{more}",
        map.cluster_id,
        map.epoch,
        node_table(state),
        target_table(state)
    );
    text += &format!(
        "\nvolume vz: {} files and directories; disks of its targets: {} used, by others too, {} of {} available\n",
        space.inodes,
        format::size(space.used_bytes),
        format::size(space.available_bytes),
        format::size(space.capacity_bytes)
    );
    if let Some(well) = copies::all_is_well(map) {
        text += &format!("{well}\n");
    }
    text += &repaired(map);
    if troubles.is_empty() {
        return text + "no trouble\n";
    }
    for trouble in troubles {
        text += &format!("TROUBLE: {} {}\n  -> {}\n", trouble.thing, trouble.what, trouble.remedy);
    }
    text
}

fn node_json(state: &State, node: &Node) -> serde_json::Value {
    let roles: Vec<&str> = node.roles.iter().map(|role| role.name()).collect();
    let areas: Vec<serde_json::Value> = node.areas.iter().map(area_json).collect();
    json!({
        "areas": areas, "id": node.id.0, "name": node.name, "roles": roles, "address": node.address,
        "state": node_state(state, node), "silent_ms": node.silent_ms,
        "answered_us": state.answered_ns(node.id).map(|ns| ns / 1000),
        "zone": Some(&node.zone).filter(|zone| !zone.is_empty()),
        "no_answer": state.failure(node.id).map(ToString::to_string),
    })
}

fn target_json(state: &State, target: &Target) -> serde_json::Value {
    json!({
        "id": target.id.0, "node": state.map.node(target.node).map(|node| node.name.clone()),
        "state": target_state(target), "trouble": target.trouble,
        "capacity_bytes": target.capacity_bytes, "used_bytes": target.used_bytes,
        "available_bytes": target.available_bytes, "reserve_bytes": target.reserve_bytes,
        "corrupt_blocks": target.corrupt_blocks, "missing_objects": target.missing_objects,
        "repaired_from_copies": target.repaired,
        "directory": target.directory, "incarnation": target.incarnation,
    })
}

fn refusal_json(refusal: &Refusal) -> serde_json::Value {
    let Refusal { name, address, why, ago_ms } = refusal;
    json!({"name": name, "address": address, "why": why, "ago_ms": ago_ms})
}

/// The same for programs.
pub(super) fn to_json(state: &State, troubles: &[Trouble]) -> serde_json::Value {
    let map = &*state.map;
    let nodes: Vec<serde_json::Value> = map.nodes.iter().map(|node| node_json(state, node)).collect();
    let targets: Vec<serde_json::Value> =
        map.targets.iter().map(|target| target_json(state, target)).collect();
    json!({
        "cluster_id": format!("{:016x}", map.cluster_id),
        "epoch": map.epoch.0,
        "nodes": nodes,
        "targets": targets,
        "zones": zones::to_json(map),
        "copies": copies::to_json(map),
        "refused": map.refusals.iter().map(refusal_json).collect::<Vec<_>>(),
        "volume": {
            "capacity_bytes": state.space.capacity_bytes,
            "used_bytes": state.space.used_bytes,
            "available_bytes": state.space.available_bytes,
            "inodes": state.space.inodes,
        },
        "troubles": troubles,
    })
}
