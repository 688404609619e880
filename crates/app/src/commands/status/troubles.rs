//! What is not as it should be, and what to do about it.

use super::State;
use crate::format;
use serde::Serialize;
use vazao_client::MetadataReport;
use vazao_model::{AreaInfo, ClusterMap, Code, Node, NodeState, Refusal, Target, TargetState};

/// From this share of a target's space used on, it is reported.
const NEARLY_FULL_SHARE: f64 = 0.95;

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trouble {
    pub(super) thing: String,
    pub(super) what: String,
    pub(super) remedy: String,
}

/// All troubles. `start` is how a node of this cluster is started.
pub(super) fn troubles(state: &State, start: &str) -> Vec<Trouble> {
    let map = &*state.map;
    let mut troubles: Vec<Trouble> = metadata_trouble(map).into_iter().collect();
    troubles.extend(state.metadata.as_ref().and_then(metadata_damage));
    troubles.extend(map.nodes.iter().filter_map(|node| node_trouble(state, node, start)));
    troubles.extend(map.refusals.iter().map(refusal));
    troubles.extend(super::areas(map).filter_map(|(node, area)| area_trouble(node, area)));
    troubles.extend(map.targets.iter().flat_map(|target| target_troubles(map, target)));
    troubles.extend(super::copies::trouble(map));
    troubles.extend(super::zones::troubles(state));
    if map.targets.is_empty() {
        troubles.push(Trouble {
            thing: "the volume".to_owned(),
            what: "has no targets: only small files can be kept".to_owned(),
            remedy: format!("start a data server: {start}"),
        });
    }
    troubles
}

fn metadata_trouble(map: &ClusterMap) -> Option<Trouble> {
    (!map.trouble.is_empty()).then(|| Trouble {
        thing: "the metadata".to_owned(),
        what: format!("is not served: {}", map.trouble),
        remedy: "look at what was restored, and when, before anything is accepted".to_owned(),
    })
}

fn refusal(refusal: &Refusal) -> Trouble {
    let ago = format::duration(refusal.ago_ms * 1_000_000);
    Trouble {
        thing: format!("node {}", refusal.name),
        what: format!("at {} was refused {ago} ago: {}", refusal.address, refusal.why),
        remedy: "its own log says the same; this is shown for an hour after it last tried".to_owned(),
    }
}

/// What the metadata service knows of a node, together with the node's answer to this machine.
fn node_trouble(state: &State, node: &Node, start: &str) -> Option<Trouble> {
    let ago = format::duration(node.silent_ms * 1_000_000);
    let is_silent = node.state == NodeState::Silent;
    let (what, remedy) = match (is_silent, state.failure(node.id)) {
        (false, None) => return None,
        (true, None) => (
            format!("has not reported to the metadata service for {ago}, but answers here"),
            "look at the network between the two, and at its log".to_owned(),
        ),
        (true, Some(failure)) if failure.code == Code::Timeout => (
            format!("has not reported for {ago} and does not answer: it hangs, or its machine is gone"),
            format!(
                "see what it waits for (its log, dmesg), end its process if it does not go on, and start it again: {start}"
            ),
        ),
        (true, Some(failure)) => (
            format!("has not reported for {ago}: {}", failure.detail),
            format!("start it with {start}; if it runs, look at the network and its log"),
        ),
        (false, Some(failure)) if failure.code == Code::Timeout => (
            format!(
                "has not answered for {}, though it reported {ago} ago: it hangs, or the network to it does",
                format::duration(super::PROBE.as_nanos() as u64)
            ),
            format!(
                "see what it waits for (its log, dmesg); end its process if it does not go on, and start it again: {start}"
            ),
        ),
        (false, Some(failure)) => (
            format!("reported {ago} ago, but: {}", failure.detail),
            format!(
                "look at the network between it and this machine; if it has ended, start it with {start}"
            ),
        ),
    };
    Some(Trouble {
        thing: format!("node {}", node.name),
        what: format!("at {} {what}", node.address),
        remedy,
    })
}

/// Damage that a check has found, or that was met without one.
fn metadata_damage(report: &MetadataReport) -> Option<Trouble> {
    let mut what = Vec::new();
    if !report.places.is_empty() {
        // One damaged block shows up as itself and as the records in it: their number says nothing.
        what.push("is damaged".to_owned());
    }
    if report.lost_ranges > 0 {
        what.push(format!(
            "has lost {} with damaged places",
            format::count(report.lost_ranges, "range of records", "ranges of records")
        ));
    }
    if report.damaged > 0 {
        what.push(format!(
            "cannot show {}",
            format::count(report.damaged, "file or directory", "files or directories")
        ));
    }
    let thing = || "the metadata".to_owned();
    if !what.is_empty() {
        let remedy = super::super::metadata::check::REMEDY.to_owned();
        return Some(Trouble { thing: thing(), what: what.join(", "), remedy });
    }
    report.mended.first().map(|mended| Trouble {
        thing: thing(),
        what: format!("was damaged, and was mended: {mended}"),
        remedy: "check the disk of the metadata directory (dmesg, smartctl)".to_owned(),
    })
}

fn area_trouble(node: &Node, area: &AreaInfo) -> Option<Trouble> {
    (!area.trouble.is_empty()).then(|| Trouble {
        thing: format!("area {} of {}", area.name, node.name),
        what: format!("cannot be used: {}", area.trouble),
        remedy: format!(
            "mount or make its directory, or take it out with `vazao area remove {} --node {}` on its machine",
            area.name, node.name
        ),
    })
}

fn target_troubles(map: &ClusterMap, target: &Target) -> Vec<Trouble> {
    let node = map.node(target.node).map_or("an unknown node", |node| node.name.as_str());
    let trouble = |(what, remedy): (String, &str)| Trouble {
        thing: format!("target {} of {node}", target.id),
        what,
        remedy: remedy.replace("TARGET", &target.id.to_string()),
    };
    let found = [space_trouble(target), corrupt_blocks(target), missing_objects(target)];
    found.into_iter().flatten().map(trouble).collect()
}

fn space_trouble(target: &Target) -> Option<(String, &'static str)> {
    let room = "remove something, enlarge its file system or add data servers";
    let left = target.available_bytes as f64;
    let nearly_full = left <= (1.0 - NEARLY_FULL_SHARE) * target.capacity_bytes as f64;
    match state(target) {
        TargetState::Failed => Some((
            format!("failed: {}", target.trouble),
            "check the disk (dmesg, smartctl); once it is sound, restart the node; else `vazao target replace TARGET DIR` makes its copies again on another one",
        )),
        TargetState::Stale => Some((
            format!("is stale and serves nothing: {}", target.trouble),
            "put the right disk back and restart its node; if that is lost, `vazao target accept-old TARGET` lists what may be old",
        )),
        TargetState::Missing => Some((
            format!("is missing: {}", target.trouble),
            "mount its disk; the running node takes it back, another is started again. If it is lost, `vazao target replace TARGET DIR` makes its copies again; `vazao target files TARGET --lost` lists what has none",
        )),
        TargetState::Hung => Some((format!("does not answer: {}", target.trouble), HUNG_REMEDY)),
        TargetState::Full => {
            Some((format!("is full: reads go on, new data is refused{}", why_full(target)), room))
        }
        // Its server says so before it gives up waiting.
        TargetState::Serving if !target.trouble.is_empty() => {
            Some((format!("is slow: {}", target.trouble), HUNG_REMEDY))
        }
        TargetState::Serving if nearly_full && target.capacity_bytes > 0 => {
            Some((format!("is nearly full: {} left", format::size(target.available_bytes)), room))
        }
        TargetState::Serving => None,
    }
}

const HUNG_REMEDY: &str = "see what lies beneath it (mount, dmesg); it is used again as soon as its disk answers, and until then other targets go on";

fn why_full(target: &Target) -> String {
    match (target.trouble.as_str(), target.reserve_bytes) {
        ("", 0) => String::new(),
        ("", reserve) => format!(" (only its reserve of {} is left)", format::size(reserve)),
        (why, _) => format!(" ({why})"),
    }
}

fn corrupt_blocks(target: &Target) -> Option<(String, &'static str)> {
    (target.corrupt_blocks > 0).then(|| {
        (
            format!(
                "has {} that cannot be read",
                format::count(target.corrupt_blocks, "damaged block", "damaged blocks")
            ),
            "its log names the files' inodes; check the disk (dmesg, smartctl), then restore these files from copies or remove them",
        )
    })
}

fn missing_objects(target: &Target) -> Option<(String, &'static str)> {
    (target.missing_objects > 0).then(|| {
        (
            format!("lacks {} of files", format::count(target.missing_objects, "object", "objects")),
            "`vazao scrub --compare` names the files; was its directory replaced or cleaned? Restore these files from copies or remove them",
        )
    })
}

/// A target that reports itself serving and has nothing left refuses new data as much as a full one.
pub(super) fn state(target: &Target) -> TargetState {
    let spent = target.available_bytes == 0 && target.capacity_bytes > 0;
    if target.state == TargetState::Serving && spent { TargetState::Full } else { target.state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vazao_client::{Error, Probe};
    use vazao_model::{NodeId, TargetId};

    fn node(id: u32, state: NodeState) -> Node {
        Node { id: NodeId(id), name: format!("data{id}"), state, ..Node::default() }
    }

    fn target(id: u32, state: TargetState) -> Target {
        Target {
            id: TargetId(id),
            node: NodeId(1),
            state,
            capacity_bytes: 100,
            available_bytes: 50,
            trouble: if state == TargetState::Failed { "write error".to_owned() } else { String::new() },
            ..Target::default()
        }
    }

    fn found(map: ClusterMap, probes: Vec<Probe>) -> Vec<Trouble> {
        let (map, space, zone) = (Arc::new(map), Default::default(), String::new());
        troubles(&State { map, space, probes, metadata: None, zone }, "`start`")
    }

    #[test]
    fn each_trouble_names_its_thing_and_a_remedy() {
        let map = ClusterMap {
            nodes: vec![node(1, NodeState::Up), node(2, NodeState::Silent)],
            targets: vec![
                target(1, TargetState::Serving),
                target(2, TargetState::Full),
                target(3, TargetState::Failed),
                Target { available_bytes: 4, ..target(4, TargetState::Serving) },
                Target { corrupt_blocks: 1, missing_objects: 2, ..target(5, TargetState::Serving) },
            ],
            ..ClusterMap::default()
        };
        let gone = Error::new(Code::Unreachable, "cannot connect to h:1: refused");
        let found = found(map, vec![Probe { node: NodeId(2), answer: Err(gone) }]);
        let things: Vec<&str> = found.iter().map(|trouble| trouble.thing.as_str()).collect();
        let targets =
            ["target t2 of data1", "target t3 of data1", "target t4 of data1", "target t5 of data1"];
        assert_eq!(things[0], "node data2");
        assert_eq!(things[1..5], targets);
        assert!(found[0].remedy.contains("`start`") && found[0].what.contains("refused"), "{found:?}");
        assert!(found[2].what.contains("write error"), "{found:?}");
        assert!(
            found[4].what.contains("1 damaged block ") && found[5].what.contains("2 objects"),
            "{found:?}"
        );
    }

    #[test]
    fn a_target_whose_disk_is_slow_or_hangs_is_named_with_what_it_waits_for() {
        let silent = |state, trouble: &str| Target { trouble: trouble.to_owned(), ..target(1, state) };
        let map = ClusterMap {
            nodes: vec![node(1, NodeState::Up)],
            targets: vec![
                silent(TargetState::Serving, "no answer for 5 s"),
                silent(TargetState::Hung, "no answer for 20 s"),
            ],
            ..ClusterMap::default()
        };
        let found = found(map, Vec::new());
        assert_eq!(found[0].what, "is slow: no answer for 5 s");
        assert_eq!(found[1].what, "does not answer: no answer for 20 s");
        assert!(found.iter().all(|trouble| trouble.remedy.contains("dmesg")), "{found:?}");
    }

    #[test]
    fn a_node_that_reports_and_does_not_answer_hangs() {
        let map = ClusterMap { nodes: vec![node(1, NodeState::Up)], ..ClusterMap::default() };
        let late = || Error::new(Code::Timeout, "h:1 has not answered within the deadline");
        let hung = found(map, vec![Probe { node: NodeId(1), answer: Err(late()) }]);
        assert!(hung[0].what.contains("has not answered for 2.0 s"), "{hung:?}");
    }

    #[test]
    fn copies_that_were_refused_old_disks_and_old_metadata_are_shown_with_what_to_do() {
        let refusal = Refusal {
            name: "data1".to_owned(),
            address: "h:9".to_owned(),
            why: "n2 is served by another process, at h:1".to_owned(),
            ago_ms: 12_000,
        };
        let map = ClusterMap {
            targets: vec![target(1, TargetState::Stale), target(2, TargetState::Missing)],
            refusals: vec![refusal],
            trouble: "its directory is an older copy".to_owned(),
            ..ClusterMap::default()
        };
        let found = found(map, Vec::new());
        assert!(found[0].thing == "the metadata" && found[0].what.contains("older copy"), "{found:?}");
        assert!(found[1].what.contains("at h:9 was refused 12.0 s ago: n2 is served"), "{found:?}");
        assert!(found[2].what.contains("stale") && found[2].remedy.contains("accept-old t1"), "{found:?}");
        assert!(
            found[3].what.contains("is missing") && found[3].remedy.contains("vazao target replace t2 DIR"),
            "{found:?}"
        );
    }

    #[test]
    fn a_cluster_without_targets_is_in_trouble() {
        assert_eq!(found(ClusterMap::default(), Vec::new()).len(), 1);
    }

    #[test]
    fn a_target_with_only_its_reserve_left_says_so() {
        let full = Target { available_bytes: 0, reserve_bytes: 1 << 20, ..target(1, TargetState::Serving) };
        let full = Target { trouble: String::new(), ..full };
        let (what, _) = space_trouble(&full).expect("trouble");
        assert!(what.contains("reserve of 1"), "{what}");
    }
}
