//! Nodes that were not taken in: kept for a while, so that `vazao status` and the node that they claim to be can say
//! so.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use vazao_model::{NodeId, Refusal};

/// So many are kept; the one that was tried last the longest time ago goes first.
const REFUSALS_MAX: usize = 16;

/// How long one is shown after it was last tried.
const SHOWN_NS: u64 = 3_600_000_000_000;

/// How long the node whose identity was claimed is notified of the claim.
const TOLD_NS: u64 = 60_000_000_000;

#[derive(Clone, Debug)]
struct Refused {
    name: String,
    address: String,
    why: String,
    /// The member whose identity it claimed.
    claimed: Option<NodeId>,
    tried_ns: u64,
}

/// All of them, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    all: Mutex<VecDeque<Refused>>,
}

impl Refusals {
    fn all(&self) -> MutexGuard<'_, VecDeque<Refused>> {
        self.all.lock()
    }

    /// Notes that `name` at `address` was refused. True when that is news.
    pub(crate) fn note(
        &self,
        name: &str,
        address: &str,
        why: &str,
        claimed: Option<NodeId>,
        now_ns: u64,
    ) -> bool {
        let is_same = |known: &Refused| known.name == name && known.address == address;
        let mut all = self.all();
        let before = all.len();
        all.retain(|known| !is_same(known) && now_ns.saturating_sub(known.tried_ns) < SHOWN_NS);
        let is_news = all.len() == before;
        if all.len() >= REFUSALS_MAX {
            all.pop_front();
        }
        let (name, address, why) = (name.to_owned(), address.to_owned(), why.to_owned());
        all.push_back(Refused { name, address, why, claimed, tried_ns: now_ns });
        is_news
    }

    /// Forgets one that has been taken in.
    pub(crate) fn forget(&self, name: &str, address: &str) {
        self.all().retain(|known| known.name != name || known.address != address);
    }

    /// For the map.
    pub(crate) fn shown(&self, now_ns: u64) -> Vec<Refusal> {
        let all = self.all();
        let recent = all.iter().filter(|known| now_ns.saturating_sub(known.tried_ns) < SHOWN_NS);
        let shown = recent.map(|known| Refusal {
            name: known.name.clone(),
            address: known.address.clone(),
            why: known.why.clone(),
            ago_ms: now_ns.saturating_sub(known.tried_ns) / 1_000_000,
        });
        shown.collect()
    }

    /// Warnings for the member `node` about claims to its identity.
    pub(crate) fn warnings(&self, node: NodeId, now_ns: u64) -> Vec<String> {
        let all = self.all();
        let recent = all
            .iter()
            .filter(|known| known.claimed == Some(node) && now_ns.saturating_sub(known.tried_ns) < TOLD_NS);
        let told = recent.map(|known| {
            format!(
                "another process, {:?} at {}, claims to be this node and was refused: it has a copy of a directory of this \
                 node; stop it",
                known.name, known.address
            )
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn one_is_news_once_and_its_victim_is_told_for_a_minute() {
        let refusals = Refusals::default();
        assert!(refusals.note("data1", "b:2", "in use", Some(NodeId(2)), S));
        assert!(!refusals.note("data1", "b:2", "in use", Some(NodeId(2)), 2 * S));
        assert_eq!(refusals.shown(5 * S).len(), 1);
        assert_eq!(refusals.shown(5 * S)[0].ago_ms, 3_000);
        assert!(refusals.warnings(NodeId(2), 5 * S)[0].contains("b:2"));
        assert!(refusals.warnings(NodeId(3), 5 * S).is_empty());
        assert!(refusals.warnings(NodeId(2), 70 * S).is_empty());
        assert_eq!(refusals.shown(70 * S).len(), 1);
        assert!(refusals.shown(4_000 * S).is_empty());
    }

    #[test]
    fn they_are_bounded_and_one_that_is_taken_in_is_forgotten() {
        let refusals = Refusals::default();
        for number in 0..100 {
            refusals.note("data1", &format!("b:{number}"), "in use", None, S);
        }
        let shown = refusals.shown(S);
        assert_eq!((shown.len(), shown[REFUSALS_MAX - 1].address.as_str()), (REFUSALS_MAX, "b:99"));
        refusals.forget("data1", "b:99");
        assert_eq!(refusals.shown(S).len(), REFUSALS_MAX - 1);
    }
}
