//! Which files programs may store into through a mapping, and how the pages that they have changed are written back.
//!
//! The kernel tells nothing of mappings. A shared mapping that can be stored into takes an open file for reading and
//! writing, and the kernel keeps that open for as long as the mapping is there. What is stored stays in the kernel's
//! pages until it writes them back, by itself after half a minute or so. The servers cannot know it before: where they
//! have a hole there may be data. When the kernel is told that a range of a file has changed, it writes the pages of
//! that range which were stored into before it drops them.

use super::notifier::Notifier;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use vazao_model::InodeId;

/// So many write-backs are under way at most. Each is waited for by a thread that answers requests, and needs others of
/// these for the kernel's writes.
const UNDER_WAY_MAX: usize = 4;

/// So long one is waited for: pages go to a server that answers in less.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The files of one mount that may be mapped so.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    open: Mutex<Open>,
    under_way: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Open {
    inodes: HashMap<u64, InodeId>,
    handles: HashMap<InodeId, usize>,
}

/// One of the write-backs under way.
struct Turn(Arc<AtomicUsize>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Mappings {
    /// A file was opened for reading and writing.
    pub(crate) fn opened(&self, handle: u64, inode: InodeId) {
        let mut open = self.open.lock();
        if open.inodes.insert(handle, inode).is_none() {
            *open.handles.entry(inode).or_default() += 1;
        }
    }

    /// A handle is gone, and all mappings through it.
    pub(crate) fn released(&self, handle: u64) {
        let mut open = self.open.lock();
        let Some(inode) = open.inodes.remove(&handle) else { return };
        if let Some(count) = open.handles.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                open.handles.remove(&inode);
            }
        }
    }

    /// True when there may be pages of `inode` that were stored into and not written back.
    pub(crate) fn may_be_mapped(&self, inode: InodeId) -> bool {
        self.open.lock().handles.contains_key(&inode)
    }

    /// Has the kernel write back what was stored into pages of `node` from `offset` on. False when that takes too
    /// long, or too many of these are under way.
    pub(crate) fn write_back(&self, notifier: &Arc<dyn Notifier>, node: u64, offset: u64) -> bool {
        let turn = Turn(Arc::clone(&self.under_way));
        if self.under_way.fetch_add(1, Ordering::SeqCst) >= UNDER_WAY_MAX {
            return false;
        }
        let notifier = Arc::clone(notifier);
        let (done, end) = mpsc::sync_channel(1);
        // A thread of its own: the kernel waits for the answers to its writes, for as long as servers take.
        let work = move || {
            notifier.invalidate_pages_from(node, offset);
            drop(turn);
            let _ = done.send(());
        };
        let started = std::thread::Builder::new().name("fuse-pages".to_owned()).spawn(work);
        started.is_ok() && end.recv_timeout(WAIT_MAX).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_be_mapped_while_any_of_its_handles_is_open() {
        let mappings = Mappings::default();
        let may_be = || [7, 8].map(|inode| mappings.may_be_mapped(InodeId(inode)));
        mappings.opened(1, InodeId(7));
        mappings.opened(2, InodeId(7));
        mappings.opened(3, InodeId(8));
        mappings.released(1);
        mappings.released(3);
        mappings.released(4);
        assert_eq!(may_be(), [true, false]);
        mappings.released(2);
        assert_eq!(may_be(), [false, false]);
        assert!(mappings.open.lock().inodes.is_empty());
    }

    /// A kernel that waits until it is told to go on.
    struct Stuck(Mutex<mpsc::Receiver<()>>);

    impl Notifier for Stuck {
        fn invalidate_attributes(&self, _node: u64) -> bool {
            true
        }
        fn invalidate_contents(&self, _node: u64) -> bool {
            true
        }
        fn invalidate_pages_from(&self, _node: u64, _offset: u64) {
            let _ = self.0.lock().recv_timeout(Duration::from_secs(60));
        }
        fn invalidate_entry(&self, _parent: u64, _name: &[u8]) {}
        fn invalidate_entries(&self) {}
    }

    #[test]
    fn a_kernel_that_does_not_come_back_is_not_waited_for_for_ever_nor_by_many() {
        let mappings = Mappings::default();
        let (go_on, told) = mpsc::channel();
        let stuck: Arc<dyn Notifier> = Arc::new(Stuck(Mutex::new(told)));
        std::thread::scope(|scope| {
            let waiters: Vec<_> =
                (0..UNDER_WAY_MAX).map(|_| scope.spawn(|| mappings.write_back(&stuck, 7, 0))).collect();
            assert!(waiters.into_iter().all(|waiter| !waiter.join().expect("no panic")));
        });
        assert!(!mappings.write_back(&stuck, 7, 0), "all of them are under way still");
        (0..UNDER_WAY_MAX).for_each(|_| go_on.send(()).expect("they listen"));
        vazao_testing::waiting::wait_until("they have ended", || {
            mappings.under_way.load(Ordering::SeqCst) == 0
        });
        go_on.send(()).expect("it is there");
        assert!(mappings.write_back(&stuck, 7, 0));
    }
}
