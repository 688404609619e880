//! Open inodes: all handles of one inode in one client share their state through it.

use crate::file::{OpenInode, Unfinished};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use vazao_model::{Attributes, InodeId};

/// Closed files of which it is remembered what is unfinished, and up to which version they were changed; those closed
/// first are forgotten first.
const CLOSED_MAX: usize = 10_000;

/// Contents of small files that are remembered with them. The metadata service makes its changes durable within
/// milliseconds: this is more than one client writes in such a time.
const CLOSED_CONTENTS_BYTES_MAX: usize = 8 << 20;

/// The inodes that have handles.
#[derive(Default)]
pub(crate) struct Registry {
    inodes: Mutex<HashMap<InodeId, Weak<OpenInode>>>,
    unfinished: Mutex<Closed>,
    left: Mutex<Left>,
    /// Inodes that removals under way have said not to be open here.
    leaving: Mutex<HashMap<InodeId, usize>>,
}

/// Files that were changed and closed: an open that was answered before the last report about them was carried out, and
/// arrives only now, knows nothing of that.
#[derive(Default)]
struct Left {
    /// The version last heard of, and the client's count of answers then.
    last: HashMap<InodeId, (u64, u64)>,
    order: VecDeque<InodeId>,
}

/// Files that were closed without an fsync, or with writes and reports that had failed: an fsync that comes later,
/// through another handle, still covers what was written.
#[derive(Default)]
struct Closed {
    /// Each with its number in `order`.
    files: HashMap<InodeId, (u64, Unfinished)>,
    order: BTreeMap<u64, InodeId>,
    next: u64,
    contents_bytes: usize,
}

impl Closed {
    fn insert(&mut self, inode: InodeId, rest: Unfinished) {
        self.take(inode);
        self.next += 1;
        self.contents_bytes += rest.contents_bytes();
        self.files.insert(inode, (self.next, rest));
        self.order.insert(self.next, inode);
        while self.files.len() > CLOSED_MAX || self.contents_bytes > CLOSED_CONTENTS_BYTES_MAX {
            let Some(oldest) = self.order.first_key_value().map(|(_, inode)| *inode) else { return };
            self.take(oldest);
        }
    }

    fn take(&mut self, inode: InodeId) -> Option<Unfinished> {
        let (number, rest) = self.files.remove(&inode)?;
        self.order.remove(&number);
        self.contents_bytes -= rest.contents_bytes();
        Some(rest)
    }
}

impl Registry {
    /// True when nothing is open, which spares a lookup before each unlink.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.lock().is_empty()
    }

    /// The shared state of an open inode.
    pub(crate) fn find(&self, inode: InodeId) -> Option<Arc<OpenInode>> {
        self.inodes.lock().get(&inode).and_then(Weak::upgrade)
    }

    /// The numbers of all of them.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.inodes.lock().keys().map(|inode| inode.0).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<OpenInode>> {
        self.inodes.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Counts a new handle of `inode`, whose state comes from `make` if this is the only one. The flag is true when it
    /// was there already. `None`: what `make` would begin with, of version `version` and asked for at `asked_at`, has
    /// been overtaken by what this client changed since.
    pub(crate) fn enter(
        &self,
        inode: InodeId,
        version: u64,
        asked_at: u64,
        make: impl FnOnce() -> Arc<OpenInode>,
    ) -> Option<(Arc<OpenInode>, bool)> {
        let mut inodes = self.inodes.lock();
        if let Some(found) = inodes.get(&inode).and_then(Weak::upgrade)
            && found.add_handle()
        {
            return Some((found, true));
        }
        if self.is_leaving(inode) {
            return None;
        }
        let left = self.left.lock().last.get(&inode).copied();
        if left.is_some_and(|(left_version, left_at)| version < left_version && asked_at < left_at) {
            return None;
        }
        let made = make();
        inodes.insert(inode, Arc::downgrade(&made));
        Some((made, false))
    }

    /// Counts a handle of `inode` less. True when that was the last one.
    pub(crate) fn leave(&self, inode: &Arc<OpenInode>) -> bool {
        let mut inodes = self.inodes.lock();
        if !inode.drop_handle() {
            return false;
        }
        // A state that came after this one may have the place already.
        if inodes.get(&inode.id).is_some_and(|there| std::ptr::eq(there.as_ptr(), Arc::as_ptr(inode))) {
            inodes.remove(&inode.id);
        }
        // While the registry is locked, so that an open that follows finds them.
        if !inode.is_unlinked() {
            self.keep_unfinished(inode);
            self.keep_version(inode);
        }
        true
    }

    /// Remembers up to which version an inode was changed here.
    fn keep_version(&self, inode: &OpenInode) {
        let state = inode.lock();
        if state.is_changed_here() {
            self.keep_left(inode.id, state.attributes.version, inode.core.count_answer());
        }
    }

    /// Remembers that an inode has ended, as of the client's count of answers.
    pub(crate) fn keep_ended(&self, inode: InodeId, answers: u64) {
        self.keep_left(inode, u64::MAX, answers);
    }

    fn keep_left(&self, inode: InodeId, version: u64, answers: u64) {
        let mut left = self.left.lock();
        if left.last.insert(inode, (version, answers)).is_none() {
            left.order.push_back(inode);
        }
        if left.order.len() > CLOSED_MAX
            && let Some(oldest) = left.order.pop_front()
        {
            left.last.remove(&oldest);
        }
    }

    /// Remembers what is not finished of an inode that has lost its last handle.
    fn keep_unfinished(&self, inode: &OpenInode) {
        let rest = inode.lock().take_unfinished();
        if !rest.is_empty() {
            self.unfinished.lock().insert(inode.id, rest);
        }
    }

    /// What [`Registry::keep_unfinished`] has remembered.
    pub(crate) fn take_unfinished(&self, inode: InodeId) -> Unfinished {
        self.unfinished.lock().take(inode).unwrap_or_default()
    }

    /// A removal is about to say whether an inode is open here: true when it is. Otherwise no handle of it begins until
    /// [`Registry::end_removal`].
    pub(crate) fn begin_removal(&self, inode: InodeId) -> bool {
        // Held until the removal is noted: an open that comes in between either is here, or finds the note.
        let inodes = self.inodes.lock();
        let found = inodes.get(&inode).and_then(Weak::upgrade);
        if found.is_none() {
            *self.leaving.lock().entry(inode).or_default() += 1;
        }
        drop(inodes);
        found.is_some()
    }

    pub(crate) fn end_removal(&self, inode: InodeId) {
        let mut leaving = self.leaving.lock();
        if let Some(count) = leaving.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                leaving.remove(&inode);
            }
        }
    }

    /// True while a removal is under way that has said that it is not open here.
    pub(crate) fn is_leaving(&self, inode: InodeId) -> bool {
        self.leaving.lock().contains_key(&inode)
    }

    /// Notes that an inode has no name any more; false when it is not open here.
    pub(crate) fn mark_unlinked(&self, inode: InodeId) -> bool {
        let found = self.find(inode);
        if let Some(open) = &found {
            open.mark_unlinked();
        }
        found.is_some()
    }

    /// The metadata service asks about an inode without a name; false when it is not open here. One that has got its
    /// name meanwhile stays as it is.
    pub(crate) fn hold_unlinked(&self, inode: InodeId) -> bool {
        let found = self.find(inode);
        if let Some(open) = found.as_ref().filter(|open| !open.was_named()) {
            open.mark_unlinked();
        }
        found.is_some()
    }

    /// What the server said of an inode, with what is known better here. `asked_at` is the client's count of answers
    /// from before the request was sent.
    pub(crate) fn merge(&self, attributes: Attributes, asked_at: u64) -> Attributes {
        match self.find(attributes.inode) {
            Some(open) => open.merge(attributes, asked_at),
            None => attributes,
        }
    }
}
