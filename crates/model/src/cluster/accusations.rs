//! Which members of a placement group go when servers say of one another that they are silent.
//!
//! The authority gathers what it is told for [`GATHER_NS`], as both ends of a link that is cut notice it at about the
//! same time, and the first to report need not be the one that is well. It cannot tell a cut from a dead server, nor
//! need it: whichever goes, those that stay wait for its lease to end.

use crate::ids::{NodeId, TargetId};
use std::collections::BTreeSet;

/// For how long the authority gathers accusations before it decides.
pub const GATHER_NS: u64 = 100_000_000;

/// The members that go, the first one first. `current`: the current members with the nodes that serve them, the primary
/// first. `accusations`: who says of whom that it is silent; of all groups, as a node whose link is dead is accused by
/// nodes that share no group with one another.
///
/// Of two that accuse each other the one goes that more nodes accuse, else the later in the list. What a node says that
/// has gone counts no longer. Only members that stay take another out, so one always stays.
pub fn resolve(current: &[(TargetId, NodeId)], accusations: &BTreeSet<(NodeId, NodeId)>) -> Vec<TargetId> {
    let (mut staying, mut gone) = (current.to_vec(), Vec::new());
    let mut silent = BTreeSet::new();
    loop {
        let accuses = |by: NodeId, of: NodeId| by != of && accusations.contains(&(by, of));
        let weight = |of: NodeId| {
            accusations
                .iter()
                .filter(|(by, accused)| *accused == of && by != &of && !silent.contains(by))
                .count()
        };
        let accused =
            |(_, (_, of)): &(usize, &(TargetId, NodeId))| staying.iter().any(|(_, by)| accuses(*by, *of));
        let next = staying.iter().enumerate().filter(accused).max_by_key(|(at, (_, of))| (weight(*of), *at));
        let Some((at, _)) = next else { return gone };
        let (target, node) = staying.remove(at);
        silent.insert(node);
        gone.push(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Members on nodes of the same numbers.
    fn gone(current: &[u32], accusations: &[(u32, u32)]) -> Vec<u32> {
        let current: Vec<_> = current.iter().map(|id| (TargetId(*id), NodeId(*id))).collect();
        let accusations = accusations.iter().map(|(by, of)| (NodeId(*by), NodeId(*of))).collect();
        resolve(&current, &accusations).into_iter().map(|target| target.0).collect()
    }

    #[test]
    fn a_silent_member_goes_and_its_own_accusations_count_no_longer() {
        assert_eq!(gone(&[1, 2], &[(1, 2)]), [2]);
        assert_eq!(gone(&[1, 2], &[(2, 1)]), [1], "the primary, too");
        assert_eq!(gone(&[1, 2, 3], &[(1, 2), (3, 2), (2, 1), (2, 3)]), [2]);
        // 1 and 2 cannot hear each other, and 3, whose link is dead, makes two of the accusations of 1.
        assert_eq!(gone(&[1, 2, 3], &[(1, 2), (2, 1), (3, 1), (1, 3), (7, 3), (8, 3)]), [3, 2]);
    }

    #[test]
    fn of_two_that_accuse_each_other_the_later_goes() {
        assert_eq!(gone(&[1, 2], &[(1, 2), (2, 1)]), [2]);
        assert_eq!(gone(&[2, 1, 3], &[(1, 2), (2, 1)]), [1]);
    }

    #[test]
    fn a_node_that_nodes_outside_of_the_group_accuse_too_goes_first() {
        assert_eq!(gone(&[1, 2], &[(1, 2), (2, 1), (7, 1), (8, 1)]), [1]);
        assert_eq!(gone(&[1, 2], &[(7, 1), (8, 1)]), [0; 0], "no member accuses it");
    }

    proptest! {
        #[test]
        fn one_always_stays_and_none_goes_that_no_member_accused(
            count in 1usize..=3,
            accusations in proptest::collection::btree_set((1u32..6, 1u32..6), 0..20),
        ) {
            let members: Vec<u32> = (1..=count as u32).collect();
            let accusations: Vec<(u32, u32)> = accusations.into_iter().collect();
            let gone = gone(&members, &accusations);
            let staying: Vec<u32> = members.iter().copied().filter(|id| !gone.contains(id)).collect();
            prop_assert!(!staying.is_empty());
            for id in &gone {
                prop_assert!(accusations.iter().any(|(by, of)| by != of && of == id && members.contains(by)));
            }
            for (by, of) in accusations {
                prop_assert!(by == of || !staying.contains(&by) || !staying.contains(&of), "nothing is left open");
            }
        }
    }
}
