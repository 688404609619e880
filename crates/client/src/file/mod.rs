//! An open file.
//!
//! Small contents live in the inode record and in memory here; larger ones are striped over objects.
//!
//! [`inode`] has the state of an open file: attributes and length, and four parts that own theirs: [`layout_state`]
//! (where the contents are), [`write_buffer`] (what no server has acknowledged), [`sync_ledger`] (what an fsync has yet
//! to make durable), [`report_ledger`] (what the metadata service is to be told). What is done with it is in modules of
//! functions, each of which knows those before it only: [`objects`] (requests to data servers); [`write_out`] and
//! [`moved`] (the write buffer's way to them, also while a file is converted); [`sync`]; [`outgrow`]; [`commit`] and
//! [`length`]; then reads, writes, copies, holes, zeros and appends.
//!
//! Lock order: the length gate, then the turn at reporting (`committing`), then the state.

mod append;
mod commit;
mod convert;
mod copy;
mod end;
mod hand_off_mutex;
mod holes;
mod inline;
mod inode;
mod kept_writes;
mod layout_state;
mod length;
mod list;
mod local;
mod look;
mod lost_ranges;
mod missing;
mod moved;
mod objects;
mod opens;
mod outgrow;
mod payload;
mod read;
mod read_ahead;
mod readers;
mod registry;
mod replaced;
mod report_ledger;
mod shown;
mod staging;
mod strides;
mod sync;
mod sync_ledger;
mod unfinished;
mod unsent;
mod unstored;
mod unsynced;
mod window;
mod write;
mod write_buffer;
mod write_out;
mod zero;

pub(crate) use append::begin_giving_end_back;
pub(crate) use commit::flush;
pub use convert::{Convert, Converted};
pub use holes::Seek;
pub(crate) use inode::{FreshInode, OpenInode};
pub(crate) use kept_writes::KeptBudget;
pub(crate) use length::set_length;
pub use list::Strided;
pub(crate) use objects::object_address;
pub(crate) use opens::{Opens, TOLD_MAX};
pub use payload::SharedBytes;
pub(crate) use payload::SharedSlice;
pub(crate) use registry::Registry;
pub(crate) use unfinished::Unfinished;
pub use unsent::Unsent;
pub use unstored::Unstored;

use crate::core::Core;
use crate::meta::Completion;
use crate::{Error, OpenMode, Result};
use parking_lot::Mutex;
use payload::Payload;
use read_ahead::ReadAhead;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use unsent::Later;
use vazao_model::{Attributes, Code, InodeId};
use vazao_wire::{interrupt, op, proto};

/// An open file: striped reads and writes at explicit offsets, from any number of threads.
///
/// Handles of one client on one inode share its size and unwritten data, so that a read sees the writes before it.
/// Dropping a file closes it, but only [`File::close`] tells whether that went well.
pub struct File {
    shared: Arc<OpenInode>,
    mode: OpenMode,
    ahead: Mutex<ReadAhead>,
    failures_reported: AtomicU64,
    is_closed: bool,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({})", self.shared.id)
    }
}

impl File {
    /// A handle on the inode that an open or a create has shown; `None` when that has been overtaken by what this
    /// client has changed and closed since.
    pub(crate) fn open(core: &Arc<Core>, fresh: FreshInode, mode: OpenMode) -> Option<File> {
        let (inode, version) = (fresh.attributes.inode, fresh.attributes.version);
        let asked_at = fresh.asked_at;
        let mut fresh = Some(fresh);
        let (shared, was_open) = core.registry.enter(inode, version, asked_at, || {
            let fresh = fresh.take().expect("called at most once, and not taken before");
            Arc::new(OpenInode::new(Arc::clone(core), fresh))
        })?;
        if let (true, Some(fresh)) = (was_open, fresh) {
            shared.absorb_open(fresh);
        }
        let (failures, _) = shared.lock().sync.lost().count();
        Some(File {
            shared,
            mode,
            ahead: Mutex::default(),
            failures_reported: AtomicU64::new(failures),
            is_closed: false,
        })
    }

    /// What of it is not stored; `None`: nothing.
    pub fn unstored(&self) -> Option<Unstored> {
        self.shared.unstored()
    }

    /// Which inode.
    pub fn inode(&self) -> InodeId {
        self.shared.id
    }

    /// Its attributes, unwritten changes of this client included.
    pub fn attributes(&self) -> Result<Attributes> {
        self.shared.fetch_attributes()
    }

    /// The same without asking the metadata service: as it showed them last, which right after opening is just now.
    pub fn known_attributes(&self) -> Attributes {
        self.shared.known_attributes()
    }

    /// Grows with each report of changes to the metadata service: attributes shown before it may be others after it.
    pub fn reports(&self) -> u64 {
        self.shared.reports()
    }

    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if !self.mode.read {
            return Err(self.bad_handle("reading"));
        }
        let read = read::read(&self.shared, &self.ahead, buffer, offset)?;
        self.shared.core.context.counters.bytes_read.add(read as u64);
        Ok(read)
    }

    /// Writes all of `bytes` at `offset`. An error of an earlier write that was under way may come out here, once; then
    /// nothing of `bytes` was taken.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_payload(bytes.into(), offset, &mut None)
    }

    /// [`File::write_at`] that leaves the sending to the caller, which can answer the writer before:
    /// `Some` sends when it is dropped, which must be soon. Reads, flush and close of this client wait for it.
    pub fn write_later(&self, bytes: &[u8], offset: u64) -> Result<Option<Unsent>> {
        self.payload_later(bytes.into(), offset)
    }

    /// [`File::write_at`] of the part `range` of bytes that the caller shares instead of lending them: transfers that
    /// they cover wholly are sent from where they are, without a copy. They are let go when the servers have them.
    pub fn write_shared(&self, bytes: &SharedBytes, range: Range<usize>, offset: u64) -> Result<()> {
        self.write_payload((&self.shared_slice(bytes, range)?).into(), offset, &mut None)
    }

    /// [`File::write_later`] of shared bytes.
    pub fn write_shared_later(
        &self,
        bytes: &SharedBytes,
        range: Range<usize>,
        offset: u64,
    ) -> Result<Option<Unsent>> {
        self.payload_later((&self.shared_slice(bytes, range)?).into(), offset)
    }

    fn shared_slice(&self, bytes: &SharedBytes, range: Range<usize>) -> Result<SharedSlice> {
        let length = (**bytes).as_ref().len();
        if range.start > range.end || range.end > length {
            let detail = format!("{}: {range:?} of {length} shared bytes", self.shared.id);
            return Err(Error::new(Code::Invalid, detail));
        }
        Ok(SharedSlice::new(Arc::clone(bytes), range))
    }

    fn payload_later(&self, payload: Payload<'_>, offset: u64) -> Result<Option<Unsent>> {
        let mut in_flight = Vec::new();
        let written = self.write_payload(payload, offset, &mut Some(&mut in_flight));
        // Also after an error: what has been taken over by then is sent.
        let unsent = Unsent::new(&self.shared, in_flight);
        written.map(|()| unsent)
    }

    fn write_payload(&self, payload: Payload<'_>, offset: u64, later: &mut Later<'_>) -> Result<()> {
        if !self.mode.write {
            return Err(self.bad_handle("writing"));
        }
        self.report_failure()?;
        write::write(&self.shared, payload, offset, later)?;
        self.shared.core.context.counters.bytes_written.add(payload.bytes().len() as u64);
        Ok(())
    }

    /// Writes all of `bytes` at the end of the file, wherever other clients have moved it; returns where that was. Two
    /// clients that append lose nothing of each other. Errors as in [`File::write_at`]; `Timeout` when another client
    /// appends and cannot be reached.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        if !self.mode.write {
            return Err(self.bad_handle("writing"));
        }
        self.report_failure()?;
        let offset = append::append(&self.shared, bytes)?;
        self.shared.core.context.counters.bytes_written.add(bytes.len() as u64);
        Ok(offset)
    }

    /// Writes out everything and tells the metadata service: other clients that open the file see it. Fails as long as
    /// anything written through this client could not be stored and has not been written again or cut off.
    pub fn flush(&self) -> Result<()> {
        self.finish_writes(false)
    }

    /// True when [`File::begin_flush`] needs no thread, unless the metadata service is slow.
    pub fn can_begin_flush(&self) -> bool {
        commit::can_begin_flush(&self.shared)
    }

    /// The first half of [`File::flush`], asynchronous; [`File::end_flush`] is the other one.
    pub fn begin_flush(&self, then: Completion<()>) {
        commit::begin_flush(&self.shared, then);
    }

    /// Whether everything written so far is stored; `written`: what has become of the first half.
    pub fn end_flush(&self, written: Result<()>) -> Result<()> {
        // An earlier failure explains more than what followed from it.
        self.report_failure()?;
        self.shared.check_losses().and(written)
    }

    /// True when a read needs no server: the contents are here, and as far as known what they are.
    pub fn is_at_hand(&self) -> bool {
        self.shared.is_at_hand()
    }

    /// True when a write up to `end` needs no server: it goes into the contents that are here.
    pub fn takes_at_once(&self, end: u64) -> bool {
        self.shared.takes_at_once(end)
    }

    /// [`File::flush`], and all of it survives power loss.
    pub fn sync(&self) -> Result<()> {
        self.finish_writes(true)
    }

    /// True when there is nothing that [`File::flush`] or [`File::close`] would have to wait for, or to report.
    pub fn is_idle(&self) -> bool {
        commit::is_idle(&self.shared, self.failures_reported.load(Ordering::SeqCst))
    }

    /// Cuts or extends with zeros.
    pub fn set_length(&self, length: u64) -> Result<()> {
        if !self.mode.write {
            return Err(self.bad_handle("writing"));
        }
        length::set_length(&self.shared, length)?;
        self.report_failure()
    }

    /// The first offset at or after `offset` that lies in data, or in a hole; the end of the file counts as a hole.
    /// `None` when there is no data any more, or `offset` is not before the end.
    pub fn seek(&self, seek: Seek, offset: u64) -> Result<Option<u64>> {
        holes::seek(&self.shared, seek, offset)
    }

    /// Copies up to `length` bytes at `from` of another file, or of this one where the ranges do not overlap, to `to`;
    /// returns how many, which may be fewer: 0 at the other file's end. Data that lies on one server is copied there.
    pub fn copy_from(&self, source: &File, from: u64, to: u64, length: u64) -> Result<u64> {
        if !self.mode.write || !source.mode.read {
            return Err(self.bad_handle("copying"));
        }
        self.report_failure()?;
        copy::copy_from(&self.shared, &source.shared, &source.ahead, from, to, length)
    }

    /// Makes a range a hole, as far as it lies within the file: it reads as zeros and takes no space. The file's length
    /// stays as it is.
    pub fn zero(&self, range: Range<u64>) -> Result<()> {
        if !self.mode.write {
            return Err(self.bad_handle("writing"));
        }
        zero::zero(&self.shared, range)?;
        self.report_failure()
    }

    /// [`File::flush`], then closes.
    pub fn close(mut self) -> Result<()> {
        self.finish().map_err(|(error, _)| error)
    }

    /// [`File::close`] that tells what is lost when it fails: a closed file no longer knows.
    pub fn close_or_tell(mut self) -> std::result::Result<(), (Error, Option<Unstored>)> {
        self.finish()
    }

    /// [`File::flush`] before a lock is let go. What cannot be reported now is given up: the next holder of the lock
    /// may write over it, and a later report would put the old bytes back.
    pub fn flush_under_lock(&self) -> Result<()> {
        let reported = interrupt::killable(|| commit::flush_or_leave(&self.shared, false));
        if let Err(error) = &reported
            && error.code != Code::Interrupted
        {
            commit::give_up(&self.shared, error);
        }
        self.end_flush(reported)
    }

    /// Gives up what was written through any handle and is not reported, because a lock on the file is lost: its holder
    /// may have written over it. False where everything is reported.
    pub fn give_up_unreported(&self, error: &Error) -> bool {
        let gave_up = commit::give_up(&self.shared, error);
        if gave_up {
            tracing::warn!(inode = %self.inode(), %error, "what was written under it is given up");
        }
        gave_up
    }

    fn finish_writes(&self, sync: bool) -> Result<()> {
        self.end_flush(interrupt::killable(|| commit::flush_or_leave(&self.shared, sync)))
    }

    fn finish(&mut self) -> std::result::Result<(), (Error, Option<Unstored>)> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        let is_last_of_unlinked = self.shared.is_unlinked() && self.shared.handle_count() == 1;
        let flushed = if is_last_of_unlinked {
            // No reader can reach it any more.
            commit::discard(&self.shared);
            self.report_failure()
        } else {
            self.finish_writes(false)
        };
        let unstored = if flushed.is_err() { self.unstored() } else { None };
        let released = self.shared.leave();
        flushed.and(released).map_err(|error| (error, unstored))
    }

    /// The failure of an acknowledged write, once for each handle.
    fn report_failure(&self) -> Result<()> {
        let state = self.shared.lock();
        let (count, failure) = state.sync.lost().count();
        let reported = self.failures_reported.swap(count, Ordering::SeqCst);
        match failure {
            Some(error) if reported < count => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn bad_handle(&self, what: &str) -> Error {
        Error::new(Code::BadHandle, format!("{} is not open for {what}", self.shared.id))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.ahead.lock().cancel();
        if let Err((error, _)) = self.finish() {
            tracing::warn!(inode = %self.shared.id, %error, "a file was dropped with data that could not be written");
        }
    }
}

impl OpenInode {
    /// Fails while the file is not what was written. A program that got the error from a write or an earlier fsync may
    /// not have understood: the kernel makes a short count of the error of a write it has cut into several.
    pub(crate) fn check_losses(&self) -> Result<()> {
        let state = self.lock();
        state.sync.lost().outstanding(state.size).cloned().map_or(Ok(()), Err)
    }

    /// Asks the metadata service, and adds what is known better here.
    pub(crate) fn fetch_attributes(&self) -> Result<Attributes> {
        let request = proto::GetAttributesRequest { inode: self.id.0, seat: self.core.cache.seat() };
        let asked_at = self.core.answers();
        let response = self.core.meta.ask::<op::GetAttributes>(&request)?;
        let fresh = FreshInode::new(response.inode, asked_at)?;
        Ok(self.merge(fresh.attributes, asked_at))
    }

    /// The same without asking: as last heard.
    pub(crate) fn known_attributes(&self) -> Attributes {
        let last_heard = self.lock().attributes.clone();
        self.merge(last_heard, self.core.answers())
    }

    /// Counts a handle less; with the last one the metadata service may forget an unlinked inode.
    fn leave(self: &Arc<OpenInode>) -> Result<()> {
        if !self.core.registry.leave(self) {
            return Ok(());
        }
        // Only now: of two handles that are closed at the same time each would take the other one for the last.
        append::leave_end(self);
        if !self.is_unlinked() {
            return Ok(());
        }
        let request = proto::ReleaseRequest { session: self.core.meta.session.id(), inodes: vec![self.id.0] };
        match self.core.meta.ask::<op::Release>(&request) {
            // With its session the metadata service has forgotten what it held.
            Err(error) if error.code == Code::SessionExpired => Ok(()),
            other => other.map(|_| ()),
        }
    }
}
