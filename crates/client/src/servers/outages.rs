//! What is known to be out: targets that do not serve, and nodes that have been silent for so long that waiting for
//! them is in vain. An error that is known comes at once; it ends as soon as the metadata service says otherwise.
//!
//! A server is always tried before it counts as out, because the metadata service may be the one that is cut off;
//! then it is not tried again for a while, unless the map changes.

use super::{Routes, Server, Servers};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vazao_model::limits::NODE_SILENT_MS;
use vazao_model::{ClusterMap, Code, GroupId, Node, NodeState, TargetId, TargetState};
use vazao_wire::service::Fault;

const NS_A_MS: u64 = 1_000_000;

/// An attempt at a server that counts as silent is given this long.
const TRY_NS: u64 = 1_000_000_000;

/// What was found to be out is not tried for this long.
const UNTRIED_NS: u64 = 5_000_000_000;

/// Groups that are noted; those beyond are tried each time.
const NOTED_MAX: usize = 4096;

/// Groups that were tried in vain, and until when they are not tried again.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// How many there are: looked at before every request.
    count: AtomicUsize,
    until_ns: Mutex<HashMap<GroupId, u64>>,
    /// When the present map came.
    map_ns: AtomicU64,
}

impl Outages {
    fn note(&self, group: GroupId, until_ns: u64) {
        let mut noted = self.until_ns.lock();
        if noted.len() < NOTED_MAX || noted.contains_key(&group) {
            noted.insert(group, until_ns);
        }
        self.count.store(noted.len(), Ordering::Relaxed);
    }

    fn forget(&self, group: GroupId) {
        let mut noted = self.until_ns.lock();
        noted.remove(&group);
        self.count.store(noted.len(), Ordering::Relaxed);
    }

    fn is_noted(&self, group: GroupId, now_ns: u64) -> bool {
        self.count.load(Ordering::Relaxed) > 0
            && self.until_ns.lock().get(&group).is_some_and(|until_ns| now_ns < *until_ns)
    }
}

/// Milliseconds for which a node has been silent, when the map came `age_ms` ago; `None`: it is up.
fn silent_ms(node: &Node, age_ms: u64) -> Option<u64> {
    (node.state == NodeState::Silent).then(|| node.silent_ms.saturating_add(age_ms))
}

/// Why a node cannot be waited for, if so: it has been silent for `lost_ms`.
fn lost_node(node: &Node, age_ms: u64, lost_ms: u64) -> Option<Fault> {
    let silent_ms = silent_ms(node, age_ms).filter(|silent_ms| *silent_ms >= lost_ms)?;
    let detail = format!(
        "node {} ({}) has not reported for {} s and does not answer: it is down or cut off; start it again or see \
         `vazao status`",
        node.name,
        node.address,
        silent_ms / 1000
    );
    Some(Fault::new(Code::Unreachable, detail))
}

/// Why a target cannot be waited for, if so.
fn outage(map: &ClusterMap, target: TargetId, age_ms: u64, lost_ms: u64) -> Option<Fault> {
    let target = map.target(target)?;
    let node = map.node(target.node)?;
    if target.state.is_readable() || target.is_unreported {
        return lost_node(node, age_ms, lost_ms);
    }
    let detail = format!(
        "target {} of {} is {}: {}; see `vazao status`",
        target.id,
        node.name,
        target.state.name(),
        target.trouble
    );
    let code = if target.state == TargetState::Hung { Code::Hung } else { Code::TargetFailed };
    Some(Fault::new(code, detail))
}

impl Servers {
    /// A server that is back within this time was only late: never less than a caller was ready to wait.
    fn lost_ms(&self) -> u64 {
        u64::from(self.context.options.deadline_ms.max(NODE_SILENT_MS))
    }

    /// A map has come.
    pub(super) fn note_map(&self) {
        self.outages.map_ns.store(self.context.clock.now_ns(), Ordering::Relaxed);
    }

    pub(crate) fn map_age_ns(&self) -> u64 {
        self.context.clock.now_ns().saturating_sub(self.outages.map_ns.load(Ordering::Relaxed))
    }

    /// True for a group that was tried in vain a moment ago.
    pub(crate) fn was_out(&self, group: GroupId) -> bool {
        self.outages.is_noted(group, self.context.clock.now_ns())
    }

    /// Why `group` is not worth waiting for, as far as the map says; `None`: it may only be late. Of several members
    /// all have to be out, but for those in `unfit`, which a caller cannot do with.
    pub(crate) fn outage(&self, group: GroupId, unfit: &[TargetId]) -> Option<Fault> {
        let age_ms = self.map_age_ns() / NS_A_MS;
        let routes = self.routes();
        let of = |target| outage(&routes.map, target, age_ms, self.lost_ms());
        let fault = match routes.members(group) {
            None => routes.target(group).and_then(of),
            Some(members) => {
                let fit = members.iter().filter(|member| !unfit.contains(&member.target));
                let faults: Option<Vec<Fault>> = fit.map(|member| of(member.target)).collect();
                faults.and_then(|faults| faults.into_iter().next())
            }
        };
        if !unfit.is_empty() {
            // Others can do with those.
            return fault;
        }
        match fault {
            Some(_) if self.was_out(group) => {}
            Some(_) => self.outages.note(group, self.context.clock.now_ns().saturating_add(UNTRIED_NS)),
            None => self.outages.forget(group),
        }
        fault
    }

    /// The same of a node by its name.
    pub(crate) fn loss(&self, name: &str) -> Option<Fault> {
        let map = &self.routes().map;
        let node = map.nodes.iter().find(|node| node.name == name)?;
        lost_node(node, self.map_age_ns() / NS_A_MS, self.lost_ms())
    }

    /// True when the metadata service has heard of `server` at this address since `since_ns`.
    pub(crate) fn was_heard_since(&self, server: &Server, since_ns: u64) -> bool {
        let map = &self.routes().map;
        let map_ns = self.outages.map_ns.load(Ordering::Relaxed);
        map.node(server.node).is_some_and(|node| {
            let heard_ns = map_ns.saturating_sub(node.silent_ms.saturating_mul(NS_A_MS));
            node.address == server.address && node.state == NodeState::Up && heard_ns > since_ns
        })
    }

    /// A group has answered.
    pub(crate) fn is_back(&self, group: GroupId) {
        if self.outages.count.load(Ordering::Relaxed) > 0 {
            self.outages.forget(group);
        }
    }

    /// Until when an attempt at `group`, which may wait until `until_ns`, is worth it: one at a silent node until that
    /// counts as lost.
    pub(crate) fn attempt_until_ns(&self, group: GroupId, until_ns: u64) -> u64 {
        self.attempt_at_until_ns(|routes| routes.target(group), until_ns)
    }

    /// The same of an attempt at one member of a group.
    pub(crate) fn attempt_at_until_ns(
        &self,
        target: impl FnOnce(&Routes) -> Option<TargetId>,
        until_ns: u64,
    ) -> u64 {
        let routes = self.routes.read();
        if !routes.has_silent {
            return until_ns;
        }
        let map = &routes.map;
        let target = target(&routes).and_then(|target| map.target(target));
        let node = target.and_then(|target| map.node(target.node));
        let Some(silent_ms) = node.and_then(|node| silent_ms(node, self.map_age_ns() / NS_A_MS)) else {
            return until_ns;
        };
        let left_ns = self.lost_ms().saturating_sub(silent_ms).saturating_mul(NS_A_MS);
        until_ns.min(self.context.clock.now_ns().saturating_add(left_ns.max(TRY_NS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{NodeId, Target};

    fn map(silent_ms: u64, state: TargetState) -> ClusterMap {
        let is_silent = silent_ms >= u64::from(NODE_SILENT_MS);
        let node = Node {
            id: NodeId(1),
            name: "data1".to_owned(),
            state: if is_silent { NodeState::Silent } else { NodeState::Up },
            silent_ms,
            ..Node::default()
        };
        let trouble = "its disk is an older copy".to_owned();
        let target = Target { id: TargetId(3), node: NodeId(1), state, trouble, ..Target::default() };
        ClusterMap { nodes: vec![node], targets: vec![target], ..ClusterMap::default() }
    }

    fn code(silent_ms: u64, state: TargetState, age_ms: u64) -> Option<Code> {
        outage(&map(silent_ms, state), TargetId(3), age_ms, 30_000).map(|fault| fault.code)
    }

    #[test]
    fn a_node_is_lost_once_it_has_been_silent_for_as_long_as_a_caller_waits() {
        assert_eq!(code(0, TargetState::Serving, 0), None);
        assert_eq!(code(29_000, TargetState::Serving, 500), None, "it may be back");
        assert_eq!(code(29_000, TargetState::Serving, 1_000), Some(Code::Unreachable));
        assert_eq!(
            code(2_000, TargetState::Serving, 90_000),
            None,
            "an old map says nothing of one that was up"
        );
    }

    #[test]
    fn a_target_that_does_not_serve_is_known_at_once_with_its_cause() {
        for state in [TargetState::Failed, TargetState::Stale, TargetState::Missing] {
            assert_eq!(code(0, state, 0), Some(Code::TargetFailed), "{state:?}");
        }
        assert_eq!(code(0, TargetState::Hung, 0), Some(Code::Hung));
        assert_eq!(code(0, TargetState::Full, 0), None, "it can be read");
        let fault = outage(&map(0, TargetState::Stale), TargetId(3), 0, 30_000).expect("is out");
        assert!(fault.detail.contains("t3 of data1 is stale: its disk is an older copy"), "{fault}");
        assert_eq!(
            outage(&map(0, TargetState::Stale), TargetId(4), 0, 30_000),
            None,
            "of one that it does not know"
        );
    }
}
