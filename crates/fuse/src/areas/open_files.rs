//! Open files: each a channel, and what all those of one inode have in flight.

use crate::filesystem::handles::Handles;
use crate::filesystem::privileges::has_set_id;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vazao_client::area::{Channel, WriteBackTracker, WriteBehindBuffer, Writer};
use vazao_client::{Client, Result};
use vazao_model::{Attributes, Code, InodeId};

/// What all open files of one inode share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) behind: Arc<WriteBehindBuffer>,
    /// Set-id bits are there for writing to clear, as far as this mount knows.
    set_id: AtomicBool,
    /// How many they are; changes under the lock of the table of these.
    opens: AtomicUsize,
}

/// An open file.
pub(super) struct OpenFile {
    pub(super) node: Arc<str>,
    pub(super) inode: InodeId,
    pub(super) writer: Arc<Writer>,
    pub(super) shared: Arc<Shared>,
    /// Something was written since the last flush.
    is_changed: AtomicBool,
}

impl Shared {
    pub(super) fn may_have_set_id(&self) {
        self.set_id.store(true, Ordering::Relaxed);
    }

    /// True when set-id bits may be there; this caller clears them.
    pub(super) fn take_set_id(&self) -> bool {
        self.set_id.swap(false, Ordering::Relaxed)
    }
}

impl OpenFile {
    pub(super) fn note_changed(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// True when something was written since this was asked last.
    pub(super) fn take_changed(&self) -> bool {
        self.is_changed.swap(false, Ordering::Relaxed)
    }
}

/// All open files of a mount.
///
/// Lock order: the table of what they share is held for a moment and nothing is asked or waited for under it.
pub(super) struct OpenFiles {
    handles: Handles<OpenFile>,
    /// What all open files of an inode share.
    shared: Mutex<HashMap<InodeId, Arc<Shared>>>,
    write_back: Arc<WriteBackTracker>,
}

impl OpenFiles {
    pub(super) fn new(client: &Client) -> OpenFiles {
        OpenFiles { handles: Handles::new(), shared: Mutex::default(), write_back: client.writes_behind() }
    }

    pub(super) fn get(&self, handle: u64) -> Result<Arc<OpenFile>> {
        self.handles.get(handle).ok_or_else(|| Code::BadHandle.into())
    }

    /// Keeps an open file, and returns its handle.
    pub(super) fn insert(&self, node: &Arc<str>, channel: Channel, attributes: &Attributes) -> u64 {
        let inode = attributes.inode;
        let (behind, set_id, opens) = (self.write_back.file(), AtomicBool::new(false), AtomicUsize::new(0));
        let mut all = self.shared.lock();
        let shared = all.entry(inode).or_insert_with(|| Arc::new(Shared { behind, set_id, opens }));
        let shared = Arc::clone(shared);
        if has_set_id(attributes) {
            shared.may_have_set_id();
        }
        shared.opens.fetch_add(1, Ordering::Relaxed);
        drop(all);
        let writer = Writer::new(channel, Arc::clone(&shared.behind));
        let (node, is_changed) = (Arc::clone(node), AtomicBool::new(false));
        self.handles.insert(OpenFile { node, inode, writer, shared, is_changed })
    }

    /// Takes the handle away. What the file shares stays until [`OpenFiles::closed`].
    pub(super) fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.handles.remove(handle)
    }

    /// The same of all.
    pub(super) fn drain(&self) -> Vec<Arc<OpenFile>> {
        self.handles.drain()
    }

    /// A removed file has nothing in flight any more: what it shares goes with the last of its inode.
    pub(super) fn closed(&self, open: &OpenFile) {
        let mut all = self.shared.lock();
        if open.shared.opens.fetch_sub(1, Ordering::Relaxed) == 1 {
            all.remove(&open.inode);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }

    /// What the open files of an inode share; `None` where none is open.
    pub(super) fn shared(&self, inode: InodeId) -> Option<Arc<Shared>> {
        self.shared.lock().get(&inode).cloned()
    }

    /// Waits for what is in flight to a file.
    pub(super) fn settle(&self, inode: InodeId) {
        if let Some(shared) = self.shared(inode) {
            shared.behind.settle();
        }
    }

    /// No inode is remembered.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shared.lock().is_empty()
    }
}
