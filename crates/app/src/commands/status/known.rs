//! What `vazao status` tells while the metadata service does not answer: the nodes that are known from before, and
//! whether each of them answers this machine now.
//!
//! Only the metadata service knows the members of a cluster. A cluster of `vazao up` has them in its directory; of
//! others the last `vazao status` of this user that succeeded has left a note.

use super::PROBE;
use crate::cluster::directory::{ClusterDirectory, NodePlace};
use crate::context::loopback_hint;
use crate::failure::{Failure, Outcome, without_advice};
use crate::format::{self, Lean};
use crate::node::config::NodeConfig;
use crate::node::files::replace;
use crate::output::Output;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use vazao_client::{Config, Error, Probe};
use vazao_meter::Clock;
use vazao_model::checksum::crc32c;
use vazao_model::{ClusterMap, Node, NodeId, Role};

/// A node that is known from before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct KnownNode {
    name: String,
    roles: Vec<String>,
    /// `None`: it does not run.
    address: Option<String>,
    /// As far as they are known.
    targets: Vec<String>,
}

/// The nodes of a cluster at some time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Known {
    /// Seconds since 1970.
    seen_seconds: u64,
    nodes: Vec<KnownNode>,
}

impl Known {
    fn of(map: &ClusterMap) -> Known {
        let node = |node: &Node| {
            let targets = map.targets.iter().filter(|target| target.node == node.id);
            KnownNode {
                name: node.name.clone(),
                roles: node.roles.iter().map(|role| role.name().to_owned()).collect(),
                address: Some(node.address.clone()),
                targets: targets.map(|target| target.id.to_string()).collect(),
            }
        };
        Known { seen_seconds: now_seconds(), nodes: map.nodes.iter().map(node).collect() }
    }

    fn in_directory(directory: &ClusterDirectory) -> Outcome<Known> {
        let node = |place: &NodePlace| {
            let config = NodeConfig::read(&place.config_file())?;
            let runs = place.process()?.is_some();
            Ok(KnownNode {
                name: place.name.clone(),
                roles: config.roles.iter().map(|role| Role::from(*role).name().to_owned()).collect(),
                address: place.notice().filter(|_| runs).map(|notice| notice.address),
                targets: Vec::new(),
            })
        };
        let nodes = directory.nodes()?.iter().map(node).collect::<Outcome<_>>()?;
        Ok(Known { seen_seconds: now_seconds(), nodes })
    }

    /// Those that can be asked, numbered by their places.
    fn nodes(&self) -> Vec<Node> {
        let node = |(number, known): (usize, &KnownNode)| {
            let address = known.address.clone()?;
            let id = NodeId(u32::try_from(number).ok()?);
            Some(Node { id, name: known.name.clone(), address, ..Node::default() })
        };
        self.nodes.iter().enumerate().filter_map(node).collect()
    }
}

fn now_seconds() -> u64 {
    vazao_meter::SystemClock.wall_ns() / 1_000_000_000
}

/// The note on a cluster, in the user's state directory; `None` where there is none. It is of one client.toml and the
/// addresses in it: another cluster at the same path has another note.
fn note_file(client_file: &Path, config: &Config) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home =
        variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")))?;
    let client_file = std::path::absolute(client_file).ok()?;
    let identity = format!("{} {}", client_file.display(), config.meta.join(" "));
    Some(home.join("vazao").join(format!("nodes-{:08x}.json", crc32c(identity.as_bytes()))))
}

/// Leaves a note of the nodes. That there is no place for it is no trouble: the note is only a help.
pub(super) fn keep(client_file: &Path, config: &Config, map: &ClusterMap) {
    let Some(path) = note_file(client_file, config) else { return };
    let Ok(text) = serde_json::to_string(&Known::of(map)) else { return };
    let made = path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok());
    if made && let Err(failure) = replace(&path, &format!("{text}\n")) {
        tracing::debug!(problem = failure.message(), "no note of the nodes was left");
    }
}

/// What is known, and from where.
fn find(client_file: &Path, config: &Config) -> Option<(Known, String)> {
    let directory = client_file.parent().and_then(|parent| ClusterDirectory::open(parent).ok());
    if let Some(known) = directory.as_ref().and_then(|directory| Known::in_directory(directory).ok()) {
        return Some((known, format!("its directory {}", directory?.root().display())));
    }
    let text = fs::read_to_string(note_file(client_file, config)?).ok()?;
    let known: Known = serde_json::from_str(&text).ok()?;
    let ago = now_seconds().saturating_sub(known.seen_seconds);
    let ago = format::duration(ago.saturating_mul(1_000_000_000));
    Some((known, format!("`vazao status` of {ago} ago")))
}

/// Shows what can be known without the metadata service. Always fails: the cluster is in trouble.
pub(super) fn show(
    mut output: Output,
    client_file: &Path,
    config: &Config,
    error: Error,
    start: &str,
) -> Outcome {
    let remedy = format!("if the metadata service is not running, start it with {start}");
    let known = find(client_file, config);
    let probes = match &known {
        Some((known, _)) => config.probe(&known.nodes(), PROBE)?,
        None => Vec::new(),
    };
    if output.json {
        let trouble = json!({"thing": "the cluster", "what": without_advice(&error), "remedy": remedy});
        let nodes = known.as_ref().map(|(known, _)| json_of(known, &probes)).unwrap_or_default();
        let seen = known.as_ref().map(|(known, _)| known.seen_seconds);
        output.value(&json!({
            "nodes": nodes, "targets": [], "nodes_seen_seconds": seen, "troubles": [trouble],
        }))?;
    } else if let Some((known, origin)) = &known {
        output.line(&format!("the metadata service does not answer; these are the nodes of {origin}:\n"))?;
        output.text(&table(known, &probes))?;
        output.line("")?;
    } else {
        let nothing = "which nodes the cluster has is known to its metadata service only; no `vazao status` on this machine \
                       has seen them before";
        output.line(nothing)?;
    }
    output.finish()?;
    // Of a client.toml that was copied here that is a second cause, not a second remedy.
    let hint = loopback_hint(client_file, config).map(|hint| format!("; {hint}")).unwrap_or_default();
    Err(Failure::new(format!("{}; {remedy}{hint}", without_advice(&error))))
}

/// Its answer: nanoseconds, or why there is none.
fn answer(number: usize, known: &KnownNode, probes: &[Probe]) -> Result<u64, String> {
    let id = u32::try_from(number).ok();
    match (&known.address, probes.iter().find(|probe| Some(probe.node.0) == id)) {
        (None, _) => Err("does not run".to_owned()),
        (Some(_), Some(probe)) => probe.answer.clone().map_err(|error| error.to_string()),
        (Some(_), None) => Err("was not asked".to_owned()),
    }
}

fn table(known: &Known, probes: &[Probe]) -> String {
    let head = [
        ("NODE", Lean::Left),
        ("ROLES", Lean::Left),
        ("ADDRESS", Lean::Left),
        ("TARGETS", Lean::Left),
        ("ANSWERS IN", Lean::Left),
    ];
    let row = |(number, node): (usize, &KnownNode)| {
        let dash = || "-".to_owned();
        let targets = if node.targets.is_empty() { dash() } else { node.targets.join(" ") };
        let answer = answer(number, node, probes).map_or_else(|why| why, format::duration);
        vec![
            node.name.clone(),
            node.roles.join("+"),
            node.address.clone().unwrap_or_else(dash),
            targets,
            answer,
        ]
    };
    format::table(&head, &known.nodes.iter().enumerate().map(row).collect::<Vec<_>>())
}

fn json_of(known: &Known, probes: &[Probe]) -> Vec<Value> {
    let node = |(number, node): (usize, &KnownNode)| {
        let answer = answer(number, node, probes);
        json!({
            "name": node.name, "roles": node.roles, "address": node.address, "targets": node.targets,
            "answered_us": answer.as_ref().ok().map(|ns| ns / 1000), "no_answer": answer.as_ref().err(),
        })
    };
    known.nodes.iter().enumerate().map(node).collect()
}
