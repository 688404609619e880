//! A target that placement groups lack, in words and for programs: which bytes have fewer copies meanwhile, and when it
//! will have caught up. Bytes are the primaries' estimates.

use crate::format;
use serde_json::{Value, json};
use vazao_meter::bottleneck::Resource;
use vazao_model::cluster::lagging::{CatchUpLimit, CatchUpWait, LaggingTarget, ShortBytes};
use vazao_model::{ClusterMap, NodeId, TargetId};

/// A target that groups lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lacking<'a> {
    /// The longest time, over its groups.
    pub(super) ago_ms: u64,
    /// Of how many groups.
    pub(super) groups: usize,
    /// Its server has reported since: its copies are compared with the others' until they count again.
    pub(super) is_back: bool,
    /// What the primaries of its groups say of it; `None`: nothing yet.
    pub(super) known: Option<&'a LaggingTarget>,
}

/// What is said of it, as a sentence without its end.
pub(super) fn words(map: &ClusterMap, target: TargetId, it: &Lacking<'_>) -> String {
    let groups = format::count(it.groups as u64, "placement group", "placement groups");
    match (it.is_back, it.known) {
        (true, None) => format!("{target} is back and catches up, {groups} left"),
        (true, Some(known)) if known.left_bytes == 0 => {
            let compared = if is_all(it, known) { ", all of their bytes compared" } else { "" };
            format!("{target} catches up, {groups} left{compared}")
        }
        (true, Some(known)) => format!("{target} catches up, {}", left(map, it, known)),
        (false, None) => lost(target, it),
        (false, Some(known)) => format!("{}: {}", lost(target, it), short(it, known)),
    }
}

fn lost(target: TargetId, it: &Lacking<'_>) -> String {
    let seconds = it.ago_ms / 1000;
    format!("{target} lost {:02}:{:02}:{:02} ago", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Whether something is known of all its groups.
fn is_all(it: &Lacking<'_>, known: &LaggingTarget) -> bool {
    known.groups as usize >= it.groups
}

fn at_least(it: &Lacking<'_>, known: &LaggingTarget) -> &'static str {
    if is_all(it, known) { "" } else { "at least " }
}

/// Which bytes have how many copies.
fn short(it: &Lacking<'_>, known: &LaggingTarget) -> String {
    let with_bytes: Vec<&ShortBytes> = known.short.iter().filter(|short| short.bytes > 0).collect();
    if with_bytes.is_empty() {
        return if is_all(it, known) {
            "nothing lies in its placement groups"
        } else {
            "bytes not known yet"
        }
        .to_owned();
    }
    let words = |short: &&ShortBytes| {
        format!("{} have {} of {} copies", format::size(short.bytes), short.copies, short.of)
    };
    let each: Vec<String> = with_bytes.iter().map(words).collect();
    format!("{}{}", at_least(it, known), each.join(", "))
}

/// What is left of one that catches up.
fn left(map: &ClusterMap, it: &Lacking<'_>, known: &LaggingTarget) -> String {
    let left = format!("{}{} left", at_least(it, known), format::size(known.left_bytes));
    let Some(left_ms) = known.left_ms.filter(|_| known.bytes_per_second > 0) else {
        return format!("{left}, none compared in the last seconds");
    };
    let limit = known.limit.map(|limit| format!("; limit: {}", limit_words(map, known.target, limit)));
    let (rate, time) = (format::rate(known.bytes_per_second as f64), remaining(left_ms));
    format!("{left} at {rate}, {time}{}", limit.unwrap_or_default())
}

/// How long it will take, in whole seconds: it is an estimate.
fn remaining(milliseconds: u64) -> String {
    let seconds = milliseconds.div_ceil(1000);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

fn name(map: &ClusterMap, node: Option<NodeId>) -> String {
    let known = node.map(|node| map.node(node).map_or_else(|| node.to_string(), |node| node.name.clone()));
    known.unwrap_or_else(|| "its node".to_owned())
}

/// The node of a target that lags.
fn node_of(map: &ClusterMap, target: TargetId) -> Option<NodeId> {
    map.target(target).map(|target| target.node)
}

fn limit_words(map: &ClusterMap, target: TargetId, limit: CatchUpLimit) -> String {
    let (primary, theirs) = (name(map, limit.primary), name(map, node_of(map, target)));
    let place = match limit.wait {
        CatchUpWait::OwnDisk => format!("disk of {primary}"),
        CatchUpWait::OwnCpu => format!("cpu of {primary}"),
        CatchUpWait::TheirDisk => format!("disk of {theirs}"),
        CatchUpWait::TheirCpu => format!("cpu of {theirs}"),
        CatchUpWait::Network => format!("network between {primary} and {theirs}"),
        CatchUpWait::Programs => format!("{primary} makes way for programs"),
    };
    format!("{place}, {}% of the time", limit.percent)
}

fn limit_json(map: &ClusterMap, target: TargetId, limit: CatchUpLimit) -> Value {
    let resource = match limit.wait {
        CatchUpWait::OwnDisk | CatchUpWait::TheirDisk => Resource::Disk,
        CatchUpWait::OwnCpu | CatchUpWait::TheirCpu => Resource::Cpu,
        CatchUpWait::Network => Resource::Network,
        CatchUpWait::Programs => Resource::Caller,
    };
    let node = if limit.wait.is_theirs() { node_of(map, target) } else { limit.primary };
    json!({
        "resource": resource.name(), "node": name(map, node), "share": f64::from(limit.percent) / 100.0,
        "text": limit_words(map, target, limit),
    })
}

/// The same for programs. What is not known is null.
pub(super) fn to_json(map: &ClusterMap, target: TargetId, it: &Lacking<'_>) -> Value {
    let short = |short: &ShortBytes| json!({"copies": short.copies, "of": short.of, "bytes": short.bytes});
    let known = it.known;
    json!({
        "target": target.to_string(), "lost_ms": it.ago_ms, "groups": it.groups, "catches_up": it.is_back,
        "known_groups": known.map_or(0, |known| known.groups),
        "bytes": known.map(LaggingTarget::bytes),
        "bytes_by_copies": known.map(|known| known.short.iter().map(short).collect::<Vec<_>>()),
        "left_bytes": known.map(|known| known.left_bytes),
        "bytes_per_second": known.map(|known| known.bytes_per_second),
        "left_ms": known.and_then(|known| known.left_ms),
        "limit": known.and_then(|known| known.limit).map(|limit| limit_json(map, target, limit)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{Node, Target};

    const GIB: u64 = 1 << 30;

    fn map() -> ClusterMap {
        let node = |id: u32| Node { id: NodeId(id), name: format!("data{id}"), ..Node::default() };
        let target =
            |id: u32, node: u32| Target { id: TargetId(id), node: NodeId(node), ..Target::default() };
        let (nodes, targets) = (vec![node(1), node(5)], vec![target(1, 1), target(3, 5)]);
        ClusterMap { nodes, targets, ..ClusterMap::default() }
    }

    fn known(left_bytes: u64, rate: u64, left_ms: Option<u64>) -> LaggingTarget {
        let short = vec![ShortBytes { copies: 1, of: 2, bytes: 214 * GIB }];
        let (target, bytes_per_second) = (TargetId(3), rate);
        LaggingTarget { target, groups: 2, short, left_bytes, bytes_per_second, left_ms, limit: None }
    }

    fn shown(is_back: bool, known: &LaggingTarget, groups: usize) -> String {
        words(&map(), TargetId(3), &Lacking { ago_ms: 72_000, groups, is_back, known: Some(known) })
    }

    #[test]
    fn of_a_lost_target_the_bytes_are_said_that_have_fewer_copies() {
        let mut lost = known(214 * GIB, 0, None);
        assert_eq!(shown(false, &lost, 2), "t3 lost 00:01:12 ago: 214.0 GiB have 1 of 2 copies");
        assert_eq!(shown(false, &lost, 3), "t3 lost 00:01:12 ago: at least 214.0 GiB have 1 of 2 copies");
        let bytes = |copies, bytes| ShortBytes { copies, of: 3, bytes };
        lost.short = vec![bytes(1, 10 * GIB), bytes(2, 1 << 20)];
        assert_eq!(
            shown(false, &lost, 2),
            "t3 lost 00:01:12 ago: 10.0 GiB have 1 of 3 copies, 1.0 MiB have 2 of 3 copies"
        );
        lost.short = vec![bytes(1, 0)];
        assert_eq!(shown(false, &lost, 2), "t3 lost 00:01:12 ago: nothing lies in its placement groups");
        assert_eq!(shown(false, &lost, 3), "t3 lost 00:01:12 ago: bytes not known yet");
    }

    #[test]
    fn of_one_that_is_back_it_is_said_what_is_left_how_fast_that_goes_and_what_limits_it() {
        let rate = 180 << 20;
        let mut back = known(3 * GIB + GIB / 10, rate, Some(17_600));
        assert_eq!(shown(true, &back, 2), "t3 catches up, 3.1 GiB left at 180.0 MiB/s, 18 s");
        back.limit = Some(CatchUpLimit { wait: CatchUpWait::TheirDisk, primary: None, percent: 63 });
        let words = "t3 catches up, at least 3.1 GiB left at 180.0 MiB/s, 18 s; limit: disk of data5, 63% of the time";
        assert_eq!(shown(true, &back, 3), words);
        assert_eq!(
            shown(true, &known(9, 0, None), 2),
            "t3 catches up, 9 B left, none compared in the last seconds"
        );
        assert_eq!(
            shown(true, &known(0, rate, Some(0)), 2),
            "t3 catches up, 2 placement groups left, all of their bytes compared"
        );
        let words = "t3 catches up, 3 placement groups left";
        assert_eq!(shown(true, &known(0, 0, None), 3), words, "of one group nothing is known");
    }

    #[test]
    fn each_limit_names_its_place() {
        let of = |wait: CatchUpWait| {
            let primary = (!wait.is_theirs()).then_some(NodeId(1));
            let limit = CatchUpLimit { wait, primary, percent: 90 };
            let json = limit_json(&map(), TargetId(3), limit);
            let words = limit_words(&map(), TargetId(3), limit).replace(", 90% of the time", "");
            (words, json["resource"].clone(), json["node"].clone())
        };
        let expect =
            |words: &str, resource: &str, node: &str| (words.to_owned(), json!(resource), json!(node));
        assert_eq!(of(CatchUpWait::OwnDisk), expect("disk of data1", "disk", "data1"));
        assert_eq!(of(CatchUpWait::OwnCpu), expect("cpu of data1", "cpu", "data1"));
        assert_eq!(of(CatchUpWait::TheirDisk), expect("disk of data5", "disk", "data5"));
        assert_eq!(of(CatchUpWait::TheirCpu), expect("cpu of data5", "cpu", "data5"));
        let network = "network between data1 and data5";
        assert_eq!(of(CatchUpWait::Network), expect(network, "network", "data1"));
        assert_eq!(of(CatchUpWait::Programs), expect("data1 makes way for programs", "caller", "data1"));
    }

    #[test]
    fn programs_get_the_same_and_null_for_what_is_not_known() {
        let back = known(7, 9, Some(778));
        let it = Lacking { ago_ms: 5, groups: 2, is_back: true, known: Some(&back) };
        let value = to_json(&map(), TargetId(3), &it);
        assert_eq!((&value["bytes"], &value["left_bytes"]), (&json!(214 * GIB), &json!(7)));
        assert_eq!((&value["bytes_per_second"], &value["left_ms"]), (&json!(9), &json!(778)));
        assert_eq!(value["bytes_by_copies"], json!([{"copies": 1, "of": 2, "bytes": 214 * GIB}]));
        let value = to_json(&map(), TargetId(3), &Lacking { known: None, ..it });
        assert!(
            ["bytes", "left_bytes", "bytes_per_second", "limit"].iter().all(|field| value[*field].is_null())
        );
    }

    #[test]
    fn times_are_whole_and_grow_with_their_units() {
        let shown = [0, 1, 119_000, 119_001, 7_199_000, 7_200_000].map(remaining);
        assert_eq!(shown, ["0 s", "1 s", "119 s", "2 min", "120 min", "2 h"]);
    }
}
