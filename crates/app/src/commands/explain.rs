//! `vazao explain`: the copies of a file's bytes, what each missing one waits for, and what the loss of each data
//! server would do.

use super::layout::{copies_json, copies_table, slot_bytes};
use crate::cli::Results;
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::format;
use crate::location::place::{Place, places};
use crate::location::{patterns, show_volume};
use crate::output::Output;
use clap::Args;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use vazao_client::Client;
use vazao_model::{AwayMember, ClusterMap, FileKind, Layout, TargetId, TargetState, VolumePath};

/// Arguments of `vazao explain`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao explain vz:/safe/a.db           where its copies are, and what each server's loss would do\n  vazao explain --json vz:/safe/*.db    the same for programs\n\nWhat new files of a directory get: `vazao layout vz:/safe`. All that lacks copies: `vazao status`."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Files
    #[arg(value_name = "vz:/PATH", required = true)]
    paths: Vec<OsString>,
}

/// Explains each.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let paths = places(&arguments.paths)?;
    let client = context.client()?;
    let paths = patterns::expand(&client, paths)?;
    let mut output = Output::new(arguments.results.json);
    let outcome = output.each(&paths, |output, path| match path {
        Place::Volume(path) => one(&client, output, path),
        Place::Area(_) => {
            let place = path.show();
            Err(Failure::new(format!("{place}: lies in a directory of its node, which has no other copy")))
        }
    });
    output.finish()?;
    client.close()?;
    outcome
}

fn one(client: &Client, output: &mut Output, path: &VolumePath) -> Outcome {
    let place = show_volume(path);
    let attributes = client.resolve(path, true).at(&place)?;
    match attributes.kind {
        FileKind::File => {}
        FileKind::Directory => {
            let quoted = format::shell_quoted(&place);
            let text = format!("is a directory; `vazao layout {quoted}` shows what new files in it get");
            return Err(Failure::new(format!("{place}: {text}")));
        }
        other => return Err(Failure::new(format!("{place}: is a {} and has no bytes", format::kind(other)))),
    }
    let size = attributes.size;
    let Some(layout) = client.layout(attributes.inode).at(&place)? else {
        if output.json {
            return output.value(&json!({"path": place, "size": size, "inline": true}));
        }
        let text = "kept with its metadata: lost only with the metadata service's disk";
        return output.line(&format!("{place}: {}, {text}", format::size(size)));
    };
    let map = client.map();
    let losses = losses(&layout, size, &map);
    let waits = waits(&layout, &map);
    let harmed = harmed(&layout, &map);
    if output.json {
        let mut value = to_json(&layout, size, &losses, &waits, &map);
        value["path"] = json!(place);
        value["damaged_targets"] = json!(harmed.iter().map(ToString::to_string).collect::<Vec<_>>());
        return output.value(&value);
    }
    let slots = format::count(u64::from(layout.width()), "slot", "slots");
    output.line(&format!("{place}: {} in {slots}", format::size(size)))?;
    output.text(&copies_table(&layout, &map))?;
    output.text("\n")?;
    waits.iter().try_for_each(|(_, wait)| output.line(&wait.words))?;
    harmed.iter().try_for_each(|target| output.line(&harm(*target, &place, &map)))?;
    losses.iter().try_for_each(|(node, loss)| output.line(&loss.words(node)))
}

/// What a file has no more of once a data server's disks are lost.
#[derive(Default, PartialEq, Eq, Debug)]
struct Loss {
    /// Slots of which it has the only copy that counts.
    lost: Vec<u32>,
    /// Their bytes.
    bytes: u64,
    /// Slots of which others have copies.
    fewer: Vec<u32>,
}

impl Loss {
    fn words(&self, node: &str) -> String {
        let list = |slots: &[u32]| {
            let numbers: Vec<String> = slots.iter().map(ToString::to_string).collect();
            format!("{} {}", if slots.len() == 1 { "slot" } else { "slots" }, numbers.join(", "))
        };
        let fewer = match self.fewer.is_empty() {
            true => String::new(),
            false => format!("{} one copy fewer", list(&self.fewer)),
        };
        match (self.lost.is_empty(), self.fewer.is_empty()) {
            (true, _) => format!("without {node}: nothing is lost; {fewer}"),
            (false, is_all) => {
                let lost = format!("{} LOST, {}", list(&self.lost), format::size(self.bytes));
                let fewer = if is_all { String::new() } else { format!("; {fewer}") };
                format!("without {node}: {lost}{fewer}")
            }
        }
    }
}

/// By the names of the data servers that hold something of it. Slots without a byte are nothing to lose.
fn losses(layout: &Layout, size: u64, map: &ClusterMap) -> BTreeMap<String, Loss> {
    let mut losses: BTreeMap<String, Loss> = BTreeMap::new();
    for slot in 0..layout.width() {
        let bytes = slot_bytes(layout, slot, size);
        let Some(group) = layout.groups.get(slot as usize).filter(|_| bytes > 0) else { continue };
        let nodes: Vec<String> =
            map.members(*group).into_iter().map(|target| node_name(target, map)).collect();
        for node in &nodes {
            let loss = losses.entry(node.clone()).or_default();
            if nodes.iter().all(|other| other == node) {
                if loss.lost.last() != Some(&slot) {
                    loss.lost.push(slot);
                    loss.bytes += bytes;
                }
            } else if loss.fewer.last() != Some(&slot) {
                loss.fewer.push(slot);
            }
        }
    }
    losses
}

fn node_name(target: TargetId, map: &ClusterMap) -> String {
    let node = map.target(target).and_then(|target| map.node(target.node));
    node.map_or_else(|| target.to_string(), |node| node.name.clone())
}

/// Targets with copies that have damage which is known of, of this file or of others.
fn harmed(layout: &Layout, map: &ClusterMap) -> BTreeSet<TargetId> {
    let is_harmed = |target: &TargetId| {
        map.target(*target).is_some_and(|target| target.corrupt_blocks + target.missing_objects > 0)
    };
    layout.groups.iter().flat_map(|group| map.members(*group)).filter(is_harmed).collect()
}

fn harm(target: TargetId, place: &str, map: &ClusterMap) -> String {
    format!(
        "{target} on {} has damage: what follows holds where its copies of this file are whole, which `vazao scrub --compare \
         {}` tells",
        node_name(target, map),
        format::shell_quoted(place)
    )
}

/// Why a copy does not count, and what comes next.
struct Wait {
    /// `catching_up`, `lost` or `leaving`.
    state: &'static str,
    words: String,
}

/// Of each target with copies that do not count.
fn waits(layout: &Layout, map: &ClusterMap) -> BTreeMap<TargetId, Wait> {
    let away = layout.groups.iter().filter_map(|group| map.away(*group)).flat_map(|away| &away.members);
    away.map(|member| (member.target, wait(member, map))).collect()
}

fn wait(member: &AwayMember, map: &ClusterMap) -> Wait {
    let (target, node) = (member.target, node_name(member.target, map));
    let since = format::duration(member.ago_ms.saturating_mul(1_000_000));
    if member.is_leaving {
        let words = format!("{target} on {node} is not wanted any more: its copies do not count");
        return Wait { state: "leaving", words };
    }
    if map.is_back(member) {
        let words = format!(
            "{target} on {node} is back after it was away, and catches up: its copies count again once they are the same \
             as the others"
        );
        return Wait { state: "catching_up", words };
    }
    let what = match map.target(target).map(|target| target.state) {
        Some(TargetState::Missing) => "its directory is missing",
        Some(TargetState::Failed) => "its disk failed",
        Some(TargetState::Stale) => "its disk is older than what was recorded of it",
        Some(TargetState::Hung) => "its disk answers nothing",
        _ => "its server does not answer",
    };
    let words = format!(
        "{target} on {node} has been away for {since} ({what}): its copies do not count until it is back and has caught \
         up; no copies are made elsewhere instead (`vazao status` says what to do)"
    );
    Wait { state: "lost", words }
}

fn to_json(
    layout: &Layout,
    size: u64,
    losses: &BTreeMap<String, Loss>,
    waits: &BTreeMap<TargetId, Wait>,
    map: &ClusterMap,
) -> Value {
    let slot = |(slot, group): (usize, &vazao_model::GroupId)| {
        json!({
            "slot": slot, "bytes": slot_bytes(layout, slot as u32, size), "group": group.to_string(),
            "copies": map.copies(*group), "members": copies_json(*group, map),
        })
    };
    let loss = |(node, loss): (&String, &Loss)| json!({"node": node, "lost_slots": loss.lost, "lost_bytes": loss.bytes, "fewer_copies_slots": loss.fewer});
    let wait = |(target, wait): (&TargetId, &Wait)| {
        json!({
            "target": target.to_string(), "node": node_name(*target, map), "state": wait.state, "why": wait.words,
        })
    };
    json!({
        "size": size,
        "inline": false,
        "slots": layout.groups.iter().enumerate().map(slot).collect::<Vec<_>>(),
        "away": waits.iter().map(wait).collect::<Vec<_>>(),
        "without": losses.iter().map(loss).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{Group, GroupAway, GroupId, Node, NodeId, NodeState, Target};

    const FIRST: u32 = GroupId::FIRST;

    /// Groups 5 (t2, t1), 6 (t1; t3 is away) and 7 (t3 alone); of target 3 the server is silent.
    fn map() -> ClusterMap {
        let node = |id: u32| Node {
            id: NodeId(id),
            name: format!("data{id}"),
            state: if id == 3 { NodeState::Silent } else { NodeState::Up },
            ..Node::default()
        };
        let target = |id: u32| Target { id: TargetId(id), node: NodeId(id), ..Target::default() };
        let group = |id: u32, members: &[u32]| {
            let members = members.iter().copied().map(TargetId).collect();
            Group { id: GroupId(FIRST + id), epoch: 2, members, is_agreed: true }
        };
        let member = AwayMember { target: TargetId(3), is_leaving: false, ago_ms: 72_000 };
        ClusterMap {
            nodes: (1..4).map(node).collect(),
            targets: (1..4).map(target).collect(),
            groups: vec![group(5, &[2, 1]), group(6, &[1]), group(7, &[3])],
            away: vec![GroupAway { id: GroupId(FIRST + 6), copies: 2, members: vec![member] }],
            ..ClusterMap::default()
        }
    }

    fn layout(groups: &[u32]) -> Layout {
        let groups = groups.iter().map(|id| GroupId(FIRST + id)).collect();
        let layout = Layout::striped(1, 65536, groups).expect("valid");
        Layout { written_slots: u64::MAX, ..layout }
    }

    #[test]
    fn the_loss_of_a_server_costs_what_only_it_has() {
        let layout = layout(&[5, 6, 7]);
        let losses = losses(&layout, 3 * 65536, &map());
        let words: Vec<String> = losses.iter().map(|(node, loss)| loss.words(node)).collect();
        let expected = [
            "without data1: slot 1 LOST, 64.0 KiB; slot 0 one copy fewer",
            "without data2: nothing is lost; slot 0 one copy fewer",
            "without data3: slot 2 LOST, 64.0 KiB",
        ];
        assert_eq!(words, expected);
    }

    /// Of a block that is damaged on all copies it was said that nothing is lost.
    #[test]
    fn targets_with_damage_are_named_before_what_holds_without_it() {
        let mut map = map();
        let layout = layout(&[5, 6]);
        assert!(harmed(&layout, &map).is_empty());
        map.targets[1].missing_objects = 1;
        map.targets[2].corrupt_blocks = 1;
        assert_eq!(Vec::from_iter(harmed(&layout, &map)), [TargetId(2)], "t3 has nothing of it that counts");
        let words = harm(TargetId(2), "vz:/a b", &map);
        assert!(words.starts_with("t2 on data2 has damage") && words.ends_with("tells"), "{words}");
    }

    #[test]
    fn a_slot_without_a_byte_is_nothing_to_lose() {
        let losses = losses(&layout(&[5, 6, 7]), 100, &map());
        assert_eq!(losses.keys().collect::<Vec<_>>(), ["data1", "data2"]);
        assert_eq!(losses["data1"], Loss { fewer: vec![0], ..Loss::default() });
    }

    #[test]
    fn a_copy_that_does_not_count_waits_for_its_server_or_catches_up() {
        let mut map = map();
        let layout = layout(&[5, 6]);
        let lost = waits(&layout, &map);
        assert_eq!(lost.len(), 1);
        let wait = &lost[&TargetId(3)];
        assert!(wait.words.starts_with("t3 on data3 has been away for "), "{}", wait.words);
        assert!(wait.words.contains("(its server does not answer)"), "{}", wait.words);
        map.nodes[2].state = NodeState::Up;
        let back = waits(&layout, &map);
        assert_eq!(back[&TargetId(3)].state, "catching_up");
        let shown = to_json(&layout, 65536, &losses(&layout, 65536, &map), &back, &map);
        assert_eq!(shown["away"][0]["state"], "catching_up");
        assert_eq!(shown["slots"][1]["members"][1]["target"], "t3");
        assert_eq!(
            shown["without"][1],
            json!({
                "node": "data2", "lost_slots": [], "lost_bytes": 0, "fewer_copies_slots": [0],
            })
        );
    }
}
