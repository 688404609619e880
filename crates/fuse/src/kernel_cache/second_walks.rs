//! Second walks of a path: the kernel makes one when an inode turns out to be gone, and asks for each name in it again.
//!
//! It does so once, and the program gets `ESTALE` when what the second walk finds is gone as well. A file that is
//! replaced all the time mostly is. On a local disk that cannot happen: there an inode outlives its name for as long as
//! the kernel looks at it. Hence what the second walk finds is held open from its look-up until the kernel opens it,
//! and a moment at most ([why](../../../../docs/decisions/second-walks.md)).
//!
//! The kernel is made to walk again by `ESTALE`, also where an open would succeed: for about a millisecond it may
//! believe that a name leads to a file that another client has removed or replaced. While such a file is open here its
//! inode is kept; what is written to it then goes with its last descriptor. A descriptor that is opened again through
//! `/proc/self/fd` has no name to be asked for: the kernel repeats the same open, which is let through.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_model::InodeId;

/// Walks that are remembered; of one beyond that nothing is held.
const WALKS_MAX: usize = 256;

/// A second walk follows the first one at once, however busy the machine is.
const LASTS_NS: u64 = 1_000_000_000;

/// A thread's walk.
#[derive(Debug)]
struct Walk {
    began_ns: u64,
    /// What was gone.
    gone: InodeId,
    /// What was found instead, and the handle it is held by.
    held: Option<(InodeId, u64)>,
}

/// The second walks of one mount, by the thread that walks.
#[derive(Debug, Default)]
pub(crate) struct SecondWalks {
    walks: Mutex<HashMap<u32, Walk>>,
    /// Their number, so that a request takes no lock while there are none.
    count: AtomicUsize,
}

/// How an open goes on that is of a second walk, or of none.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// The file may be opened though it has no name any more.
    pub(crate) may_be_nameless: bool,
    /// To be released once it is open.
    pub(crate) held: Option<u64>,
}

impl SecondWalks {
    /// `thread` is told at `now_ns` that `inode` is gone. Returns what was held for it before.
    #[must_use]
    pub(crate) fn begin(&self, thread: u32, gone: InodeId, now_ns: u64) -> Option<u64> {
        let mut walks = self.walks.lock();
        if thread == 0 || (walks.len() >= WALKS_MAX && !walks.contains_key(&thread)) {
            return None;
        }
        let before = walks.insert(thread, Walk { began_ns: now_ns, gone, held: None });
        self.count.store(walks.len(), Ordering::Relaxed);
        before.and_then(|walk| walk.held).map(|(_, handle)| handle)
    }

    /// True while `thread` may be on a second walk.
    pub(crate) fn is_under_way(&self, thread: u32) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.walks.lock().contains_key(&thread)
    }

    /// What the walk of `thread` has found, held by a handle. Returns a handle that is not needed any more: that of
    /// what it has found before, or this one where no walk is under way.
    #[must_use]
    pub(crate) fn hold(&self, thread: u32, inode: InodeId, handle: u64) -> Option<u64> {
        match self.walks.lock().get_mut(&thread) {
            Some(walk) => walk.held.replace((inode, handle)).map(|(_, before)| before),
            None => Some(handle),
        }
    }

    /// `thread` opens `inode`, which ends its walk.
    pub(crate) fn end(&self, thread: u32, inode: InodeId) -> Ended {
        let mut ended = Ended { may_be_nameless: false, held: None };
        if self.count.load(Ordering::Relaxed) == 0 {
            return ended;
        }
        let mut walks = self.walks.lock();
        if let Some(walk) = walks.remove(&thread) {
            let found = walk.held.map(|(found, _)| found);
            ended.may_be_nameless = walk.gone == inode || found == Some(inode);
            ended.held = walk.held.map(|(_, handle)| handle);
        }
        self.count.store(walks.len(), Ordering::Relaxed);
        ended
    }

    /// Forgets walks that are over at `now_ns`. Returns what was held for them.
    pub(crate) fn expire(&self, now_ns: u64) -> Vec<u64> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut walks = self.walks.lock();
        let is_over = |walk: &Walk| now_ns.saturating_sub(walk.began_ns) > LASTS_NS;
        let over = walks.extract_if(|_, walk| is_over(walk));
        let held = over.filter_map(|(_, walk)| walk.held).map(|(_, handle)| handle).collect();
        self.count.store(walks.len(), Ordering::Relaxed);
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InodeId = InodeId(7);
    const B: InodeId = InodeId(8);

    fn begin(walks: &SecondWalks, thread: u32, gone: InodeId) {
        assert_eq!(walks.begin(thread, gone, 0), None);
    }

    fn may_open(walks: &SecondWalks, thread: u32, inode: InodeId) -> bool {
        walks.end(thread, inode).may_be_nameless
    }

    #[test]
    fn an_open_that_was_refused_is_let_through_when_the_same_thread_repeats_it() {
        let walks = SecondWalks::default();
        assert!(!may_open(&walks, 1, A));
        begin(&walks, 1, A);
        assert!(!may_open(&walks, 2, A));
        assert!(may_open(&walks, 1, A));
        assert!(!may_open(&walks, 1, A), "another open");
        begin(&walks, 1, A);
        assert!(!may_open(&walks, 1, B), "another inode");
    }

    #[test]
    fn what_a_second_walk_finds_last_is_held_until_it_is_opened() {
        let walks = SecondWalks::default();
        assert_eq!(walks.hold(1, A, 10), Some(10), "no walk is under way");
        begin(&walks, 1, A);
        assert!(walks.is_under_way(1) && !walks.is_under_way(2));
        assert_eq!(walks.hold(1, A, 11), None);
        assert_eq!(walks.hold(1, B, 12), Some(11));
        assert_eq!(walks.end(1, B), Ended { may_be_nameless: true, held: Some(12) });
        assert!(!walks.is_under_way(1));
        begin(&walks, 1, A);
        assert_eq!(walks.hold(1, B, 13), None);
        assert_eq!(walks.begin(1, B, 0), Some(13));
    }

    #[test]
    fn a_walk_that_does_not_end_is_forgotten_and_memory_is_bounded() {
        let walks = SecondWalks::default();
        begin(&walks, 1, A);
        assert_eq!(walks.hold(1, B, 12), None);
        assert!(walks.expire(LASTS_NS).is_empty());
        assert_eq!(walks.expire(LASTS_NS + 1), [12]);
        assert!(!walks.is_under_way(1));
        (1..3 * WALKS_MAX as u32).for_each(|thread| begin(&walks, thread, A));
        assert_eq!(walks.count.load(Ordering::Relaxed), WALKS_MAX);
        begin(&walks, 0, A);
        assert!(!walks.is_under_way(0), "nothing is known of who asks");
    }
}
