//! What is asked of nodes about files that may be open here: what is in flight to them comes first.
//!
//! Brings together the nodes (`servers`), the open files and the table of names, so it is a child of the mount itself.

use super::Areas;
use super::open_files::OpenFile;
use super::table::Spot;
use crate::filesystem::arguments::{Caller, Opened};
use crate::filesystem::privileges::{has_set_id, mode_without_set_id};
use std::sync::Arc;
use vazao_client::Result;
use vazao_client::area::{AreaChanges, Channel, ChannelOptions, FileIdentity};
use vazao_model::{Attributes, InodeId};

impl Areas {
    /// Asks through an open file, once all that is in flight to it has landed.
    pub(super) fn with_settled<T>(&self, handle: u64, work: impl FnOnce(&Channel) -> Result<T>) -> Result<T> {
        let open = self.files.get(handle)?;
        self.servers.ask(&open.node, || {
            open.shared.behind.settle();
            work(open.writer.channel())
        })
    }

    /// Asks by way of an open file, where an error may be that of a write which was taken over.
    pub(super) fn ask_writer<T>(&self, open: &OpenFile, question: impl FnOnce() -> Result<T>) -> Result<T> {
        match open.writer.has_failed() {
            true => self.tell_writer(open, question),
            false => self.servers.ask(&open.node, question),
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
        self.servers.tell(&open.node, message, has_answered)?
    }

    /// An open file that is about to be written to. `unprivileged`: who may not keep set-id bits. The node
    /// would keep them when its daemon runs as root.
    pub(super) fn writing(&self, handle: u64, unprivileged: Option<Caller>) -> Result<Arc<OpenFile>> {
        let open = self.changing(handle)?;
        if let Some(caller) = unprivileged
            && open.shared.take_set_id()
        {
            let left = self.clear_set_id(open.inode, caller);
            // What this caller may keep the next one may not.
            if left.as_ref().map_or(true, has_set_id) {
                open.shared.may_have_set_id();
            }
            left?;
        }
        Ok(open)
    }

    fn clear_set_id(&self, inode: InodeId, caller: Caller) -> Result<Attributes> {
        let spot = self.spot(inode)?;
        let (attributes, _) = self.servers.stat(&spot)?;
        self.without_set_id(&spot, attributes, caller)
    }

    /// Takes set-id bits from what has these attributes, and returns those that it has then.
    pub(super) fn without_set_id(
        &self,
        spot: &Spot,
        attributes: Attributes,
        caller: Caller,
    ) -> Result<Attributes> {
        let Some(mode) = mode_without_set_id(&attributes, caller) else { return Ok(attributes) };
        let changes = AreaChanges { mode: Some(mode), ..AreaChanges::default() };
        self.servers.ask_area(spot, |area| area.set_attributes(&spot.path, &changes))
    }

    /// An open file that is about to be changed.
    pub(super) fn changing(&self, handle: u64) -> Result<Arc<OpenFile>> {
        let open = self.files.get(handle)?;
        open.note_changed();
        self.changed(open.inode);
        Ok(open)
    }

    /// A file was changed through this mount.
    pub(super) fn changed(&self, inode: InodeId) {
        let now_ns = self.clock.now_ns();
        self.table.lock().changed(inode, now_ns);
    }

    /// Waits for what is in flight to the file of a name.
    pub(super) fn settle_place(&self, spot: &Spot) {
        let number = self.table.lock().number(spot);
        number.into_iter().for_each(|inode| self.files.settle(inode));
    }

    /// What lies at a place, once all that is in flight to it has landed.
    pub(super) fn stat_settled(&self, spot: &Spot) -> Result<(Attributes, FileIdentity)> {
        self.servers.ask_area(spot, |area| {
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
        self.servers.ask_area(spot, |area| {
            match inode {
                Some(inode) => self.files.settle(inode),
                None => self.settle_place(spot),
            }
            let channel = area.open(&spot.path, options)?;
            let attributes = channel.stat()?;
            Ok((channel, attributes))
        })
    }

    /// Keeps an open file.
    pub(super) fn opened(&self, spot: &Spot, channel: Channel, attributes: Attributes) -> Opened {
        let handle = self.files.insert(&spot.node, channel, &attributes);
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
        self.files.closed(open);
        settled
    }
}
