//! Open inodes: all handles of one inode in one client share their state through it.

use crate::core::locked;
use crate::file::OpenInode;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use vazao_model::{Attributes, InodeId};

/// The inodes that have handles.
#[derive(Default)]
pub(crate) struct Registry {
    inodes: Mutex<HashMap<InodeId, Weak<OpenInode>>>,
}

impl Registry {
    /// True when nothing is open, which spares a lookup before each unlink.
    pub(crate) fn is_empty(&self) -> bool {
        locked(&self.inodes).is_empty()
    }

    /// The shared state of an open inode.
    pub(crate) fn find(&self, inode: InodeId) -> Option<Arc<OpenInode>> {
        locked(&self.inodes).get(&inode).and_then(Weak::upgrade)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<OpenInode>> {
        locked(&self.inodes).values().filter_map(Weak::upgrade).collect()
    }

    /// Counts a new handle of `inode`, whose state comes from `make` if this is the only one. The flag is true when it
    /// was there already.
    pub(crate) fn enter(
        &self,
        inode: InodeId,
        make: impl FnOnce() -> Arc<OpenInode>,
    ) -> (Arc<OpenInode>, bool) {
        let mut inodes = locked(&self.inodes);
        if let Some(found) = inodes.get(&inode).and_then(Weak::upgrade)
            && found.add_handle()
        {
            return (found, true);
        }
        let made = make();
        inodes.insert(inode, Arc::downgrade(&made));
        (made, false)
    }

    /// Counts a handle of `inode` less. True when that was the last one.
    pub(crate) fn leave(&self, inode: &Arc<OpenInode>) -> bool {
        let mut inodes = locked(&self.inodes);
        if !inode.drop_handle() {
            return false;
        }
        // A state that came after this one may have the place already.
        if inodes.get(&inode.id).is_some_and(|there| std::ptr::eq(there.as_ptr(), Arc::as_ptr(inode))) {
            inodes.remove(&inode.id);
        }
        true
    }

    /// Notes that an inode has no name any more; false when it is not open here.
    pub(crate) fn mark_unlinked(&self, inode: InodeId) -> bool {
        let found = self.find(inode);
        if let Some(open) = &found {
            open.mark_unlinked();
        }
        found.is_some()
    }

    /// What the server said of an inode, with what is known better here. `asked_at` is the client's count of answers from
    /// before the request was sent.
    pub(crate) fn merge(&self, attributes: Attributes, asked_at: u64) -> Attributes {
        match self.find(attributes.inode) {
            Some(open) => open.merge(attributes, asked_at),
            None => attributes,
        }
    }
}
