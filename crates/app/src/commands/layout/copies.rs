//! Which copies a file's stripes have, and on which hosts.

use crate::format::{self, Lean};
use serde_json::{Value, json};
use vazao_model::{ClusterMap, GroupId, Layout, TargetId};

/// A member of the placement group of a stripe.
struct Holder {
    target: TargetId,
    /// `primary`, `current`, `lagging` or `leaving`.
    state: &'static str,
    /// Milliseconds since it was current, of one that is not.
    ago_ms: Option<u64>,
}

/// The members of a group: those that are current, the primary first, then the others.
fn holders(group: GroupId, map: &ClusterMap) -> Vec<Holder> {
    let current = |(at, target): (usize, TargetId)| {
        let state = if at == 0 { "primary" } else { "current" };
        Holder { target, state, ago_ms: None }
    };
    let away = map.away(group).into_iter().flat_map(|away| &away.members);
    let away = away.map(|member| {
        let state = if member.is_leaving { "leaving" } else { "lagging" };
        Holder { target: member.target, state, ago_ms: Some(member.ago_ms) }
    });
    map.members(group).into_iter().enumerate().map(current).chain(away).collect()
}

fn host(target: TargetId, map: &ClusterMap) -> String {
    let node = map.target(target).and_then(|target| map.node(target.node));
    node.map_or_else(|| "unknown".to_owned(), |node| node.name.clone())
}

/// A table of all copies where a stripe is to have several; else nothing.
pub(super) fn text(layout: &Layout, map: &ClusterMap) -> String {
    match layout.groups.iter().any(|group| map.copies(*group) > 1) {
        true => format!("\n{}", table(layout, map)),
        false => String::new(),
    }
}

/// A table of all copies, a line for each.
pub(crate) fn table(layout: &Layout, map: &ClusterMap) -> String {
    let head = [
        ("SLOT", Lean::Right),
        ("GROUP", Lean::Left),
        ("COPIES", Lean::Left),
        ("TARGET", Lean::Left),
        ("NODE", Lean::Left),
        ("COPY", Lean::Left),
    ];
    let mut rows = Vec::new();
    for (slot, &group) in layout.groups.iter().enumerate() {
        let copies = format!("{} of {}", map.members(group).len(), map.copies(group));
        for (at, holder) in holders(group, map).into_iter().enumerate() {
            let first = |text: String| if at == 0 { text } else { String::new() };
            let since = holder.ago_ms.map(|ago_ms| {
                format!("{} for {}", holder.state, format::duration(ago_ms.saturating_mul(1_000_000)))
            });
            let state = since.unwrap_or_else(|| holder.state.to_owned());
            let (target, node) = (holder.target.to_string(), host(holder.target, map));
            let of_group = [first(slot.to_string()), first(group.to_string()), first(copies.clone())];
            rows.push([of_group.to_vec(), vec![target, node, state]].concat());
        }
    }
    format::table(&head, &rows)
}

/// The members of a group for programs.
pub(crate) fn json(group: GroupId, map: &ClusterMap) -> Vec<Value> {
    let member = |holder: Holder| {
        json!({
            "target": holder.target.to_string(), "node": host(holder.target, map), "state": holder.state,
            "away_ms": holder.ago_ms,
        })
    };
    holders(group, map).into_iter().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{AwayMember, Group, GroupAway, Node, NodeId, Target};

    fn map() -> ClusterMap {
        let node = |id: u32| Node { id: NodeId(id), name: format!("data{id}"), ..Node::default() };
        let target = |id: u32| Target { id: TargetId(id), node: NodeId(id), ..Target::default() };
        let group = |id: u32, members: &[u32]| {
            let members = members.iter().copied().map(TargetId).collect();
            Group { id: GroupId(GroupId::FIRST + id), epoch: 2, members, is_agreed: true }
        };
        let member = AwayMember { target: TargetId(3), is_leaving: false, ago_ms: 72_000 };
        ClusterMap {
            nodes: (1..4).map(node).collect(),
            targets: (1..4).map(target).collect(),
            groups: vec![group(0, &[1]), group(5, &[2, 1]), group(6, &[1])],
            away: vec![GroupAway { id: GroupId(GroupId::FIRST + 6), copies: 2, members: vec![member] }],
            ..ClusterMap::default()
        }
    }

    fn layout(groups: &[u32]) -> Layout {
        let groups = groups.iter().map(|id| GroupId(GroupId::FIRST + id)).collect();
        Layout::striped(1, 65536, groups).expect("valid")
    }

    #[test]
    fn each_copy_is_shown_with_its_host_and_whether_it_lags() {
        let shown = text(&layout(&[5, 6]), &map());
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["0", "g5", "2", "of", "2", "t2", "data2", "primary"]), "{shown}");
        assert!(lines.contains(&vec!["t1", "data1", "current"]), "{shown}");
        assert!(lines.contains(&vec!["1", "g6", "1", "of", "2", "t1", "data1", "primary"]), "{shown}");
        assert!(shown.contains("lagging for "), "{shown}");
        let members = json(GroupId(GroupId::FIRST + 6), &map());
        assert_eq!(
            members[1],
            json!({"target": "t3", "node": "data3", "state": "lagging", "away_ms": 72_000})
        );
    }

    #[test]
    fn of_files_with_one_copy_nothing_more_is_shown() {
        assert_eq!(text(&layout(&[0]), &map()), "");
    }
}
