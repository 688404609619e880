//! Invalidation queue: passes changes by other clients on to the kernel's caches.
//!
//! A thread of its own notifies the kernel, never one that answers requests. That would deadlock: to drop a name or a
//! page the kernel takes locks that a request in flight may hold, and that request may wait for the very thread. The
//! client's notification thread only puts changes into a queue here. A page whose eviction waits for a silent server
//! delays nothing but the notifications queued behind it.

use super::moves::{Moves, Name};
use super::notifier::Notifier;
use super::told::Told;
use crate::kernel::nodes::Nodes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use vazao_client::Listener;
use vazao_meter::Clock;
use vazao_model::InodeId;

/// Race: an answer made just before may bring the kernel an inode that it did not know. The inode is invalidated once
/// more after this long. Answers made later are marked as not to be cached.
const AGAIN_NS: u64 = 200_000_000;

/// A new holder of a lock waits this long, at most, until the kernel has processed earlier invalidations.
const SETTLE_NS_MAX: u64 = 1_000_000_000;

/// Timeout of an idle wait; nothing happens when it has passed.
const IDLE_NS: u64 = 3_600_000_000_000;

/// Beyond this many the queue is replaced by one invalidation of everything, which is quicker, too.
const QUEUED_MAX: usize = 16_384;

#[derive(Debug)]
enum Notice {
    Attributes(InodeId),
    Contents(InodeId),
    /// Attributes of an inode that the kernel did not know a while ago.
    Again(InodeId),
    Entry(InodeId, Vec<u8>),
    Everything,
}

#[derive(Debug, Default)]
struct Queue {
    notices: VecDeque<Notice>,
    /// Inodes to be invalidated again, and when.
    again: VecDeque<(u64, InodeId)>,
    /// Notices put in, and passed on, since the beginning.
    added: u64,
    told: u64,
    is_ended: bool,
}

/// The queue, and the notifier that it drains into.
pub(crate) struct Notices {
    nodes: Nodes,
    told: Arc<Told>,
    notifier: Box<dyn Notifier>,
    clock: Arc<dyn Clock>,
    moves: Moves,
    queue: Mutex<Queue>,
    added: Condvar,
    progress: Condvar,
}

impl Notices {
    pub(crate) fn new(nodes: Nodes, told: Arc<Told>, notifier: Box<dyn Notifier>) -> Notices {
        let clock = vazao_meter::clock::system();
        Notices {
            nodes,
            told,
            notifier,
            moves: Moves::new(Arc::clone(&clock)),
            clock,
            queue: Mutex::default(),
            added: Condvar::new(),
            progress: Condvar::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    fn add(&self, notice: Notice) {
        let mut queue = self.queue();
        if queue.notices.len() >= QUEUED_MAX {
            queue.notices.clear();
            queue.notices.push_back(Notice::Everything);
        }
        queue.notices.push_back(notice);
        queue.added += 1;
        drop(queue);
        self.added.notify_one();
    }

    /// Renames `from` to `to`, or exchanges them, by `work`.
    pub(crate) fn renaming<T>(&self, from: Name, to: Name, is_exchange: bool, work: impl FnOnce() -> T) -> T {
        let moving = self.moves.begin(from, to, is_exchange);
        let outcome = work();
        for (parent, name) in self.moves.end(moving) {
            self.add(Notice::Entry(parent, name));
        }
        outcome
    }

    /// Passes notices on to the kernel, until [`Notices::end`].
    pub(crate) fn run(&self) {
        while let Some(notice) = self.next() {
            if let Some(unknown) = self.tell(&notice) {
                self.repeat_later(unknown);
            }
            self.count_told();
        }
    }

    /// When the queue is empty every notice ever put in has been passed on.
    fn count_told(&self) {
        let mut queue = self.queue();
        queue.told = queue.added - (queue.notices.len() as u64).min(queue.added);
        drop(queue);
        self.progress.notify_all();
    }

    /// Waits until the kernel has been notified of everything put in so far, but no longer than [`SETTLE_NS_MAX`]:
    /// dropping a page may block until a server has answered.
    pub(crate) fn settle(&self) {
        let deadline_ns = self.clock.now_ns() + SETTLE_NS_MAX;
        let mut queue = self.queue();
        let until = queue.added;
        while queue.told < until && !queue.is_ended {
            let left_ns = deadline_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 {
                return;
            }
            self.progress.wait_for(&mut queue, Duration::from_nanos(left_ns));
        }
    }

    /// The next notice, blocking until there is one; `None` after [`Notices::end`].
    fn next(&self) -> Option<Notice> {
        let mut queue = self.queue();
        loop {
            if queue.is_ended {
                return None;
            }
            if let Some(notice) = queue.notices.pop_front() {
                return Some(notice);
            }
            let now_ns = self.clock.now_ns();
            let wait_ns = match queue.again.front() {
                Some((at_ns, _)) if *at_ns <= now_ns => {
                    return queue.again.pop_front().map(|(_, inode)| Notice::Again(inode));
                }
                Some((at_ns, _)) => at_ns - now_ns,
                None => IDLE_NS,
            };
            self.added.wait_for(&mut queue, Duration::from_nanos(wait_ns));
        }
    }

    fn repeat_later(&self, inode: InodeId) {
        let mut queue = self.queue();
        if queue.again.len() < QUEUED_MAX {
            queue.again.push_back((self.clock.now_ns() + AGAIN_NS, inode));
        } else {
            // More than can be remembered one by one.
            queue.again.clear();
            queue.notices.push_back(Notice::Everything);
        }
    }

    /// Ends [`Notices::run`] and every wait: the kernel takes no more notifications.
    pub(crate) fn end(&self) {
        self.queue().is_ended = true;
        self.added.notify_all();
    }

    /// Notifies the kernel. Returns an inode that it does not know and may be about to learn of.
    fn tell(&self, notice: &Notice) -> Option<InodeId> {
        let node = |inode: InodeId| self.nodes.node(inode);
        let unknown = |inode: InodeId, is_known: bool| (!is_known).then_some(inode);
        match notice {
            Notice::Attributes(inode) => unknown(*inode, self.notifier.invalidate_attributes(node(*inode)?)),
            Notice::Contents(inode) => unknown(*inode, self.notifier.invalidate_contents(node(*inode)?)),
            Notice::Again(inode) => {
                self.notifier.invalidate_attributes(node(*inode)?);
                None
            }
            Notice::Entry(parent, name) => {
                self.notifier.invalidate_entry(node(*parent)?, name);
                None
            }
            Notice::Everything => {
                self.notifier.invalidate_entries();
                for node in self.told.take_all().into_iter().filter_map(node) {
                    self.notifier.invalidate_attributes(node);
                }
                None
            }
        }
    }
}

impl Listener for Notices {
    fn inode_changed(&self, inode: InodeId, contents: bool) {
        self.told.forget(inode);
        self.add(if contents { Notice::Contents(inode) } else { Notice::Attributes(inode) });
    }

    fn entry_changed(&self, parent: InodeId, name: &[u8]) {
        let name = (parent, name.to_vec());
        let others = self.moves.hear(&name);
        for (parent, name) in std::iter::once(name).chain(others) {
            self.add(Notice::Entry(parent, name));
        }
    }

    fn forget(&self) {
        self.add(Notice::Everything);
    }
}

#[cfg(test)]
#[path = "notices_tests.rs"]
mod tests;
