//! `vazao status`: nodes, targets, space, and what to do about each trouble.

use crate::cli::Results;
use crate::cluster::directory::ClusterDirectory;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::{self, Lean};
use crate::output::Output;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use vazao_model::{AreaInfo, ClusterMap, Node, NodeState, Role, Target, TargetState};

/// From this share of a target's space in use on, somebody should know.
const NEARLY_FULL_SHARE: f64 = 0.95;

/// Arguments of `vazao status`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao status\n  vazao status --check || mail -s 'vazao in trouble' root\n\nUSED is what is not available: files of the volume, other files on the same disks, and the space kept in reserve."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Exit with 1 when there is any trouble
    #[arg(long)]
    check: bool,
}

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Trouble {
    thing: String,
    what: String,
    remedy: String,
}

/// Shows it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let file = context.cluster_file()?;
    let start = start_command(&file);
    let client = context.client().map_err(|failure| with_start(failure, &start))?;
    let map = client.refresh_map()?;
    let space = client.space()?;
    client.close()?;
    let troubles = troubles(&map, &start);
    let mut output = Output::new(arguments.results.json);
    if output.json {
        output.value(&to_json(&map, space, &troubles))?;
    } else {
        show(&mut output, &map, space, &troubles)?;
    }
    output.finish()?;
    if arguments.check && !troubles.is_empty() { Err(Failure::Reported) } else { Ok(()) }
}

/// How a node of this cluster is started.
fn start_command(client_file: &Path) -> String {
    let directory = client_file.parent().and_then(|parent| ClusterDirectory::open(parent).ok());
    match directory {
        Some(directory) => format!("`vazao up --dir {} --detach`", directory.root().display()),
        None => "`vazao serve --config NODE.toml` on its machine".to_owned(),
    }
}

fn with_start(failure: Failure, start: &str) -> Failure {
    match failure {
        Failure::Failed(message) => Failure::Failed(format!(
            "{message}; if the metadata service is not running, start it with {start}"
        )),
        other => other,
    }
}

fn troubles(map: &ClusterMap, start: &str) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for node in map.nodes.iter().filter(|node| node.state == NodeState::Silent) {
        troubles.push(Trouble {
            thing: format!("node {}", node.name),
            what: format!(
                "at {} has not reported for {}",
                node.address,
                format::duration(node.silent_ms * 1_000_000)
            ),
            remedy: format!("start it with {start}; if it runs, look at the network and its log"),
        });
    }
    troubles.extend(areas(map).filter_map(|(node, area)| area_trouble(node, area)));
    troubles.extend(map.targets.iter().filter_map(|target| target_trouble(map, target)));
    if map.targets.is_empty() {
        troubles.push(Trouble {
            thing: "the volume".to_owned(),
            what: "has no targets: only small files can be kept".to_owned(),
            remedy: format!("start a data server: {start}"),
        });
    }
    troubles
}

/// All areas with their nodes.
pub(super) fn areas(map: &ClusterMap) -> impl Iterator<Item = (&Node, &AreaInfo)> {
    map.nodes.iter().flat_map(|node| node.areas.iter().map(move |area| (node, area)))
}

fn area_trouble(node: &Node, area: &AreaInfo) -> Option<Trouble> {
    (!area.trouble.is_empty()).then(|| Trouble {
        thing: format!("area {} of {}", area.name, node.name),
        what: format!("cannot be used: {}", area.trouble),
        remedy: "mount or make its directory, or take it out with `vazao area remove` on its machine"
            .to_owned(),
    })
}

/// A table of all areas; empty where there are none.
pub(super) fn area_table(map: &ClusterMap) -> String {
    let head = [("AREA", Lean::Left), ("ACCESS", Lean::Left), ("STATE", Lean::Left)];
    let row = |(node, area): (&Node, &AreaInfo)| {
        let access = if area.read_only { "read-only" } else { "read-write" };
        let state = match node.state {
            NodeState::Silent => "its node is silent",
            NodeState::Up if area.trouble.is_empty() => "serving",
            NodeState::Up => "failed",
        };
        vec![format!("{}:/{}", node.name, area.name), access.to_owned(), state.to_owned()]
    };
    let rows: Vec<Vec<String>> = areas(map).map(row).collect();
    if rows.is_empty() { String::new() } else { format::table(&head, &rows) }
}

/// An area for programs.
pub(super) fn area_json(area: &AreaInfo) -> serde_json::Value {
    json!({"name": area.name, "read_only": area.read_only, "trouble": area.trouble})
}

fn target_trouble(map: &ClusterMap, target: &Target) -> Option<Trouble> {
    let node = map.node(target.node).map_or("an unknown node", |node| node.name.as_str());
    let thing = format!("target {} of {node}", target.id);
    let nearly_full = used(target) as f64 >= NEARLY_FULL_SHARE * target.capacity_bytes as f64;
    match state(target) {
        TargetState::Failed => Some(Trouble {
            thing,
            what: format!("failed: {}", target.trouble),
            remedy: "check the disk (dmesg, smartctl); once it is sound, restart the node, else restore its files from copies".to_owned(),
        }),
        TargetState::Full => Some(Trouble {
            thing,
            what: "is full: reads go on, new data is refused".to_owned(),
            remedy: "remove something, enlarge its file system or add data servers".to_owned(),
        }),
        TargetState::Serving if nearly_full && target.capacity_bytes > 0 => Some(Trouble {
            thing,
            what: format!("is nearly full: {} left", format::size(target.available_bytes)),
            remedy: "remove something, enlarge its file system or add data servers".to_owned(),
        }),
        TargetState::Serving => None,
    }
}

fn used(target: &Target) -> u64 {
    target.capacity_bytes.saturating_sub(target.available_bytes)
}

fn roles(node: &Node) -> String {
    node.roles.iter().map(|role| Role::name(*role)).collect::<Vec<_>>().join("+")
}

fn node_state(node: &Node) -> &'static str {
    if node.state == NodeState::Up { "up" } else { "silent" }
}

/// A target that reports itself serving and has nothing left refuses new data as much as a full one.
fn state(target: &Target) -> TargetState {
    let spent = target.available_bytes == 0 && target.capacity_bytes > 0;
    if target.state == TargetState::Serving && spent { TargetState::Full } else { target.state }
}

fn target_state(target: &Target) -> &'static str {
    match state(target) {
        TargetState::Serving => "serving",
        TargetState::Full => "full",
        TargetState::Failed => "failed",
    }
}

fn show(
    output: &mut Output,
    map: &ClusterMap,
    space: vazao_client::VolumeSpace,
    troubles: &[Trouble],
) -> Outcome {
    output.line(&format!("cluster {:016x}, membership {}", map.cluster_id, map.epoch))?;
    let head = [
        ("NODE", Lean::Left),
        ("ROLES", Lean::Left),
        ("ADDRESS", Lean::Left),
        ("STATE", Lean::Left),
        ("REPORTED", Lean::Right),
    ];
    let rows: Vec<Vec<String>> = map
        .nodes
        .iter()
        .map(|node| {
            let ago = format!("{} ago", format::duration(node.silent_ms * 1_000_000));
            vec![node.name.clone(), roles(node), node.address.clone(), node_state(node).to_owned(), ago]
        })
        .collect();
    output.line("")?;
    output.text(&format::table(&head, &rows))?;
    let head = [
        ("TARGET", Lean::Left),
        ("NODE", Lean::Left),
        ("STATE", Lean::Left),
        ("SIZE", Lean::Right),
        ("USED", Lean::Right),
        ("AVAILABLE", Lean::Right),
    ];
    let rows: Vec<Vec<String>> = map
        .targets
        .iter()
        .map(|target| {
            let node =
                map.node(target.node).map_or_else(|| target.node.to_string(), |node| node.name.clone());
            let sizes = [target.capacity_bytes, used(target), target.available_bytes].map(format::human);
            [vec![target.id.to_string(), node, target_state(target).to_owned()], sizes.to_vec()].concat()
        })
        .collect();
    output.line("")?;
    output.text(&format::table(&head, &rows))?;
    let areas = area_table(map);
    if !areas.is_empty() {
        output.text(&format!("\n{areas}"))?;
    }
    output.line(&format!(
        "\nvolume vz: {} files and directories, {} of {} available",
        space.inodes,
        format::size(space.available_bytes),
        format::size(space.capacity_bytes)
    ))?;
    if troubles.is_empty() {
        return output.line("no trouble");
    }
    for trouble in troubles {
        output.line(&format!("TROUBLE: {} {}\n  -> {}", trouble.thing, trouble.what, trouble.remedy))?;
    }
    Ok(())
}

fn to_json(map: &ClusterMap, space: vazao_client::VolumeSpace, troubles: &[Trouble]) -> serde_json::Value {
    let nodes: Vec<serde_json::Value> = map
        .nodes
        .iter()
        .map(|node| {
            let roles: Vec<&str> = node.roles.iter().map(|role| role.name()).collect();
            let areas: Vec<serde_json::Value> = node.areas.iter().map(area_json).collect();
            json!({"areas": areas, "id": node.id.0, "name": node.name, "roles": roles, "address": node.address, "state": node_state(node), "silent_ms": node.silent_ms})
        })
        .collect();
    let targets: Vec<serde_json::Value> = map
        .targets
        .iter()
        .map(|target| {
            let node = map.node(target.node).map(|node| node.name.clone());
            json!({
                "id": target.id.0, "node": node, "state": target_state(target), "trouble": target.trouble,
                "capacity_bytes": target.capacity_bytes, "available_bytes": target.available_bytes,
            })
        })
        .collect();
    json!({
        "cluster_id": format!("{:016x}", map.cluster_id),
        "epoch": map.epoch.0,
        "nodes": nodes,
        "targets": targets,
        "volume": {
            "capacity_bytes": space.capacity_bytes,
            "available_bytes": space.available_bytes,
            "inodes": space.inodes,
        },
        "troubles": troubles,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{NodeId, TargetId};

    #[test]
    fn each_trouble_names_its_thing_and_a_remedy() {
        let node = |id, state| Node { id: NodeId(id), name: format!("data{id}"), state, ..Node::default() };
        let target = |id, state| Target {
            id: TargetId(id),
            node: NodeId(1),
            state,
            capacity_bytes: 100,
            available_bytes: 50,
            trouble: "write error".to_owned(),
            ..Target::default()
        };
        let map = ClusterMap {
            nodes: vec![node(1, NodeState::Up), node(2, NodeState::Silent)],
            targets: vec![
                target(1, TargetState::Serving),
                target(2, TargetState::Full),
                target(3, TargetState::Failed),
                Target { available_bytes: 4, ..target(4, TargetState::Serving) },
            ],
            ..ClusterMap::default()
        };
        let found = troubles(&map, "`start`");
        let things: Vec<&str> = found.iter().map(|trouble| trouble.thing.as_str()).collect();
        assert_eq!(things, ["node data2", "target t2 of data1", "target t3 of data1", "target t4 of data1"]);
        assert!(found[0].remedy.contains("`start`") && found[2].what.contains("write error"));
    }

    #[test]
    fn a_cluster_without_targets_is_in_trouble() {
        assert_eq!(troubles(&ClusterMap::default(), "x").len(), 1);
    }
}
