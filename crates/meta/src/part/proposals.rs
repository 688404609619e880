//! Proposed layouts: for files with inline contents, not installed yet (`ops/layout.rs`).
//!
//! The client copies the contents to objects of the proposed layout before it asks for the installation. No record
//! names that layout meanwhile, so these objects look like orphan objects. The search for those treats an object of a
//! proposal in this table as known, and a layout is installed only while its proposal is in the table. A proposal
//! that was dropped, by timeout, by the limit or by a restart of the service, is never installed, so the search may
//! remove its objects.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use vazao_model::InodeId;

/// How long a client may take to copy: at most the inline contents of one file.
pub(crate) const PROPOSAL_NS: u64 = 60_000_000_000;

/// Limit of proposals; beyond it the older half is dropped, and its clients copy once more.
const PROPOSALS_MAX: usize = 65_536;

/// The proposals that may still be installed, each with the moment when it is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    ends_ns: Mutex<BTreeMap<(InodeId, u32), u64>>,
}

impl Proposals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(InodeId, u32), u64>> {
        self.ends_ns.lock()
    }

    /// Remembers a proposal.
    pub(crate) fn note(&self, inode: InodeId, generation: u32, now_ns: u64) {
        let mut proposals = self.lock();
        if proposals.len() >= PROPOSALS_MAX {
            let mut ends: Vec<u64> = proposals.values().copied().collect();
            let median = ends.len() / 2;
            let newest_forgotten = *ends.select_nth_unstable(median).1;
            proposals.retain(|_, ends_ns| *ends_ns > newest_forgotten);
        }
        proposals.insert((inode, generation), now_ns.saturating_add(PROPOSAL_NS));
    }

    /// Whether a layout may still be installed. Forgets it if its time is over.
    pub(crate) fn knows(&self, inode: InodeId, generation: u32, now_ns: u64) -> bool {
        let mut proposals = self.lock();
        let ends_ns = proposals.get(&(inode, generation)).copied();
        let is_over = ends_ns.is_some_and(|ends_ns| now_ns >= ends_ns);
        if is_over {
            proposals.remove(&(inode, generation));
        }
        ends_ns.is_some() && !is_over
    }

    /// Forgets a proposal that is being installed or refused. True when it could still be installed.
    pub(crate) fn take(&self, inode: InodeId, generation: u32, now_ns: u64) -> bool {
        let is_known = self.knows(inode, generation, now_ns);
        self.lock().remove(&(inode, generation));
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_known_until_it_is_taken_or_its_time_is_over() {
        let proposals = Proposals::default();
        proposals.note(InodeId(7), 3, 1_000);
        assert!(proposals.knows(InodeId(7), 3, 1_000 + PROPOSAL_NS - 1));
        assert!(!proposals.knows(InodeId(7), 4, 1_000));
        assert!(!proposals.knows(InodeId(7), 3, 1_000 + PROPOSAL_NS));
        assert!(!proposals.knows(InodeId(7), 3, 1_000), "what was forgotten stays forgotten");
        proposals.note(InodeId(7), 5, 1_000);
        assert!(proposals.take(InodeId(7), 5, 1_000));
        assert!(!proposals.take(InodeId(7), 5, 1_000));
    }

    #[test]
    fn beyond_the_bound_the_older_half_is_forgotten() {
        let proposals = Proposals::default();
        (0..=PROPOSALS_MAX as u64).for_each(|i| proposals.note(InodeId(i), 1, i));
        assert!(proposals.lock().len() <= PROPOSALS_MAX / 2 + 1);
        assert!(proposals.knows(InodeId(PROPOSALS_MAX as u64), 1, 0));
        assert!(!proposals.knows(InodeId(0), 1, 0));
    }
}
