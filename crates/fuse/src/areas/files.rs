//! Open files: each a channel, and what all those of one inode have in flight.

use super::Areas;
use super::table::Spot;
use crate::filesystem::arguments::Opened;
use crate::filesystem::privileges::mode_without_set_id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vazao_client::Result;
use vazao_client::area::{AreaChanges, Channel, ChannelOptions, FileIdentity, WriteBehindBuffer, Writer};
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

impl OpenFile {
    /// True when something was written since this was asked last.
    pub(super) fn take_changed(&self) -> bool {
        self.is_changed.swap(false, Ordering::Relaxed)
    }
}

impl Areas {
    pub(super) fn file(&self, handle: u64) -> Result<Arc<OpenFile>> {
        self.files.get(handle).ok_or_else(|| Code::BadHandle.into())
    }

    /// Asks through an open file, once all that is in flight to it has landed.
    pub(super) fn with_settled<T>(&self, handle: u64, work: impl FnOnce(&Channel) -> Result<T>) -> Result<T> {
        let open = self.file(handle)?;
        self.ask(&open.node, || {
            open.shared.behind.settle();
            work(open.writer.channel())
        })
    }

    /// Asks by way of an open file, where an error may be that of a write which was taken over.
    pub(super) fn ask_writer<T>(&self, open: &OpenFile, question: impl FnOnce() -> Result<T>) -> Result<T> {
        match open.writer.has_failed() {
            true => self.tell_writer(open, question),
            false => self.ask(&open.node, question),
        }
    }

    /// The same for what the node need not have answered when it is over.
    pub(super) fn tell_writer<T>(&self, open: &OpenFile, message: impl FnOnce() -> Result<T>) -> Result<T> {
        let (began_ns, has_failed) = (self.clock.now_ns(), open.writer.has_failed());
        let message = || match message() {
            // Maybe long ago: it says nothing of the node as it is now.
            Err(error) if has_failed => Ok(Err(error)),
            other => other.map(Ok),
        };
        // Who waits for room waits for answers.
        let has_answered = || open.shared.behind.has_answered_since(began_ns);
        self.circuit_breaker.tell(&*self.clock, &open.node, message, has_answered)?
    }

    /// An open file that is about to be written to. `clear_set_id`: the caller may not keep set-id bits. The node
    /// would keep them when its daemon runs as root.
    pub(super) fn writing(&self, handle: u64, clear_set_id: bool) -> Result<Arc<OpenFile>> {
        let open = self.changing(handle)?;
        if clear_set_id && open.shared.set_id.swap(false, Ordering::Relaxed) {
            let cleared = self.clear_set_id(open.inode);
            cleared.inspect_err(|_| open.shared.set_id.store(true, Ordering::Relaxed))?;
        }
        Ok(open)
    }

    fn clear_set_id(&self, inode: InodeId) -> Result<()> {
        let spot = self.spot(inode)?;
        let (attributes, _) = self.stat(&spot)?;
        self.without_set_id(&spot, attributes).map(drop)
    }

    /// Takes set-id bits from what has these attributes, and returns those that it has then.
    pub(super) fn without_set_id(&self, spot: &Spot, attributes: Attributes) -> Result<Attributes> {
        let Some(mode) = mode_without_set_id(&attributes) else { return Ok(attributes) };
        let changes = AreaChanges { mode: Some(mode), ..AreaChanges::default() };
        self.ask_area(spot, |area| area.set_attributes(&spot.path, &changes))
    }

    /// Files already open must look again before the next write.
    pub(super) fn remember_set_id(&self, inode: InodeId) {
        if let Some(shared) = self.shared.lock().get(&inode) {
            shared.set_id.store(true, Ordering::Relaxed);
        }
    }

    /// An open file that is about to be changed.
    pub(super) fn changing(&self, handle: u64) -> Result<Arc<OpenFile>> {
        let open = self.file(handle)?;
        open.is_changed.store(true, Ordering::Relaxed);
        self.changed(open.inode);
        Ok(open)
    }

    /// A file was changed through this mount.
    pub(super) fn changed(&self, inode: InodeId) {
        let now_ns = self.clock.now_ns();
        self.table.lock().changed(inode, now_ns);
    }

    /// Waits for what is in flight to a file.
    pub(super) fn settle(&self, inode: InodeId) {
        let shared = self.shared.lock().get(&inode).cloned();
        if let Some(shared) = shared {
            shared.behind.settle();
        }
    }

    /// The same by its name.
    pub(super) fn settle_place(&self, spot: &Spot) {
        let number = self.table.lock().number(spot);
        number.into_iter().for_each(|inode| self.settle(inode));
    }

    /// What lies at a place, once all that is in flight to it has landed.
    pub(super) fn stat_settled(&self, spot: &Spot) -> Result<(Attributes, FileIdentity)> {
        self.ask_area(spot, |area| {
            self.settle_place(spot);
            area.stat_identified(&spot.path, false)
        })
    }

    /// Opens a file, `inode` where that is known. Its attributes come as the node has them.
    pub(super) fn open_channel(
        &self,
        spot: &Spot,
        inode: Option<InodeId>,
        options: &ChannelOptions,
    ) -> Result<(Channel, Attributes)> {
        self.ask_area(spot, |area| {
            match inode {
                Some(inode) => self.settle(inode),
                None => self.settle_place(spot),
            }
            let channel = area.open(&spot.path, options)?;
            let attributes = channel.stat()?;
            Ok((channel, attributes))
        })
    }

    /// Keeps an open file.
    pub(super) fn opened(&self, spot: &Spot, channel: Channel, attributes: Attributes) -> Opened {
        let inode = attributes.inode;
        let (behind, set_id, opens) = (self.write_back.file(), AtomicBool::new(false), AtomicUsize::new(0));
        let mut all = self.shared.lock();
        let shared = all.entry(inode).or_insert_with(|| Arc::new(Shared { behind, set_id, opens }));
        let shared = Arc::clone(shared);
        if mode_without_set_id(&attributes).is_some() {
            shared.set_id.store(true, Ordering::Relaxed);
        }
        shared.opens.fetch_add(1, Ordering::Relaxed);
        drop(all);
        let writer = Writer::new(channel, Arc::clone(&shared.behind));
        let (node, is_changed) = (Arc::clone(&spot.node), AtomicBool::new(false));
        let handle = self.files.insert(OpenFile { node, inode, writer, shared, is_changed });
        Opened { handle, attributes }
    }

    /// An open file is closed for good. What was written through pages after its last flush is waited for.
    pub(super) fn released(&self, open: &Arc<OpenFile>) -> Result<()> {
        let settled = open.writer.settle();
        // Before the in-flight state is dropped: a listing that was begun meanwhile has the size before the write.
        if open.shared.behind.has_landed() {
            self.changed(open.inode);
        }
        if let Err(error) = &settled {
            tracing::warn!(inode = open.inode.0, %error, "written and lost, after the last close");
            self.lost.note(format!("inode {}: {error}", open.inode.0));
        }
        let mut all = self.shared.lock();
        if open.shared.opens.fetch_sub(1, Ordering::Relaxed) == 1 {
            all.remove(&open.inode);
        }
        drop(all);
        settled
    }
}
