//! Says in the log when a node falls silent or reports again, and when a target stops or begins to serve.
//!
//! Each change is said once. What was silent or did not serve already when this service started is said with its first
//! look. Nothing here waits: a data server that is gone must not hold up the word that it is.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use vazao_model::{ClusterMap, Node, NodeId, NodeState, Target, TargetId, TargetState};

/// A change to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
enum News {
    /// The node has not reported for this long, and counts as silent.
    Silent { node: String, address: String, silent_ms: u64, targets: String },
    /// It reports again, after this long.
    Back { node: String, address: String, silent_ms: u64 },
    /// The target is in another state than before.
    Target { target: TargetId, node: String, state: TargetState, trouble: String },
}

/// What was told last.
#[derive(Debug, Default)]
struct Told {
    /// Silent nodes: when their silence began.
    silent_since_ns: BTreeMap<NodeId, i128>,
    /// Targets that do not serve, and in which state they are.
    targets: BTreeMap<TargetId, TargetState>,
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub(crate) struct MemberWatch {
    told: Mutex<Told>,
}

impl MemberWatch {
    /// Looks at the members and logs what is new of them.
    pub(crate) fn look(&self, map: &ClusterMap, now_ns: u64) {
        for news in self.told.lock().news(map, now_ns) {
            log(news);
        }
    }
}

impl Told {
    fn news(&mut self, map: &ClusterMap, now_ns: u64) -> Vec<News> {
        let nodes: Vec<News> = map.nodes.iter().filter_map(|node| self.of_node(map, node, now_ns)).collect();
        let targets = map.targets.iter().filter_map(|target| self.of_target(map, target));
        nodes.into_iter().chain(targets).collect()
    }

    fn of_node(&mut self, map: &ClusterMap, node: &Node, now_ns: u64) -> Option<News> {
        let heard_ns = i128::from(now_ns) - i128::from(node.silent_ms) * 1_000_000;
        let (name, address) = (node.name.clone(), node.address.clone());
        if node.state == NodeState::Up {
            let since_ns = self.silent_since_ns.remove(&node.id)?;
            let silent_ms = u64::try_from((heard_ns - since_ns) / 1_000_000).unwrap_or(0);
            return Some(News::Back { node: name, address, silent_ms });
        }
        if self.silent_since_ns.contains_key(&node.id) {
            return None;
        }
        self.silent_since_ns.insert(node.id, heard_ns);
        let of_node = map.targets.iter().filter(|target| target.node == node.id);
        let targets = of_node.map(|target| target.id.to_string()).collect::<Vec<_>>().join(" ");
        Some(News::Silent { node: name, address, silent_ms: node.silent_ms, targets })
    }

    fn of_target(&mut self, map: &ClusterMap, target: &Target) -> Option<News> {
        let before = self.targets.get(&target.id).copied().unwrap_or(TargetState::Serving);
        // A target that is nearly full comes and goes with every file.
        let state = if target.state == TargetState::Full { TargetState::Serving } else { target.state };
        if before == state {
            return None;
        }
        match state {
            TargetState::Serving => self.targets.remove(&target.id),
            state => self.targets.insert(target.id, state),
        };
        let node = map.node(target.node).map_or_else(|| target.node.to_string(), |node| node.name.clone());
        Some(News::Target { target: target.id, node, state, trouble: target.trouble.clone() })
    }
}

fn log(news: News) {
    match news {
        News::Silent { node, address, silent_ms, targets } => {
            let silent_s = silent_ms / 1000;
            tracing::warn!(node, address, silent_s, targets, "a node has fallen silent");
        }
        News::Back { node, address, silent_ms } => {
            let silent_s = silent_ms / 1000;
            tracing::info!(node, address, silent_s, "a node reports again");
        }
        News::Target { target, node, state: TargetState::Serving, .. } => {
            tracing::info!(%target, node, "a target serves again");
        }
        News::Target { target, node, state, trouble } => {
            tracing::warn!(%target, node, state = state.name(), trouble, "the state of a target has changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn map(silent_ms: u64, state: TargetState) -> ClusterMap {
        let is_up = silent_ms < 10_000;
        let node = Node {
            id: NodeId(2),
            name: "data1".to_owned(),
            address: "h:1".to_owned(),
            state: if is_up { NodeState::Up } else { NodeState::Silent },
            silent_ms,
            ..Node::default()
        };
        let target = Target { id: TargetId(3), node: NodeId(2), state, ..Target::default() };
        ClusterMap { nodes: vec![node], targets: vec![target], ..ClusterMap::default() }
    }

    /// The log of the metadata service said nothing of a data server that died, nor that it was back.
    #[test]
    fn a_node_that_falls_silent_and_one_that_is_back_are_told_once() {
        let mut told = Told::default();
        let mut look =
            |second: u64, silent_ms| told.news(&map(silent_ms, TargetState::Serving), second * SECOND_NS);
        assert_eq!(look(100, 9_900), []);
        let [News::Silent { silent_ms: 10_900, ref targets, .. }] = look(101, 10_900)[..] else {
            panic!("not told")
        };
        assert_eq!(targets, "t3");
        assert_eq!(look(102, 11_900), []);
        // It has reported 400 ms before this look: it was silent from 90.1 s to 129.6 s.
        let [News::Back { silent_ms: 39_500, .. }] = look(130, 400)[..] else { panic!("not told") };
        assert_eq!(look(131, 1_400), []);
        assert_eq!(look(200, 70_400).len(), 1, "the next time");
    }

    #[test]
    fn a_target_that_does_not_serve_is_told_with_each_state_once() {
        let mut told = Told::default();
        let mut look = |state| told.news(&map(0, state), SECOND_NS);
        assert_eq!(look(TargetState::Full), []);
        assert_eq!(look(TargetState::Hung).len(), 1);
        assert_eq!(look(TargetState::Hung), []);
        assert_eq!(look(TargetState::Failed).len(), 1);
        let [News::Target { state: TargetState::Serving, .. }] = look(TargetState::Serving)[..] else {
            panic!("not told")
        };
        assert_eq!(look(TargetState::Serving), []);
    }
}
