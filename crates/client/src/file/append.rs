//! Appending: at the end of the file as all clients know it.
//!
//! Only one client appends at a time: the one that holds a lock on the file's end. It keeps it, so that appending alone
//! costs nothing more, until another one wants it; then it reports what it has written and lets go.

use super::inode::OpenInode;
use crate::locks::LockPlace;
use crate::{Error, Result};
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::locks::{LockKind, LockMode, LockRange};
use vazao_wire::interrupt;

impl OpenInode {
    fn end_place(&self, owner: u64) -> LockPlace {
        LockPlace { inode: self.id, kind: LockKind::Append, owner }
    }

    /// Takes over bytes to be written at the end; returns where that was.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64> {
        let deadline_ns = self.core.context.deadline_ns();
        let _turn = self.end.turn();
        if !self.end.is_held() || !self.core.cache.hears_of_changes() {
            self.take_end(deadline_ns)?;
        }
        let offset = self.lock().size;
        let written = self.write(bytes.into(), offset, &mut None);
        // Without an invalidation stream this client is not notified that others want it.
        if self.end.is_wanted() || !self.core.cache.hears_of_changes() {
            self.give_end_back();
        }
        written.map(|()| offset)
    }

    /// Waits for the lock, and looks where the end is.
    fn take_end(&self, deadline_ns: u64) -> Result<()> {
        let is_late = || interrupt::is_raised() || self.core.context.clock.now_ns() >= deadline_ns;
        let held_by = self.end.held_by();
        let owner = if held_by == 0 { self.core.locks.new_owner() } else { held_by };
        let place = self.end_place(owner);
        let locked = self.core.lock(place, LockRange::WHOLE, LockMode::Exclusive, 0, Some(&is_late));
        if let Err(error) = locked {
            if matches!(error.code, Code::Interrupted | Code::Locked) && !interrupt::is_raised() {
                let detail =
                    "another client appends to it and does not let go; is it gone? Its lock ends 60 s after";
                return Err(Error::new(Code::Timeout, format!("{}: {detail}", self.id)));
            }
            return Err(error);
        }
        if self.end.hold(owner) {
            // Others have appended where the records from before lie.
            let detail =
                format!("{}: the lock on its end was lost with records that were not stored", self.id);
            self.give_up(&Error::new(Code::Io, detail));
        }
        if !self.lock().is_clean() {
            self.flush(false)?;
        }
        if self.must_look_again() {
            self.look_again(deadline_ns)?;
        }
        Ok(())
    }

    /// Reports what was written, and releases it. The caller has the turn, or there is no other user any more.
    fn give_end_back(&self) {
        self.end.set_wanted(false);
        if !self.end.is_held() {
            return;
        }
        if let Err(error) = self.flush(false) {
            // Reported later it would lie over what others append now.
            self.give_up(&error);
            tracing::warn!(inode = %self.id, %error, "what was appended could not be stored before others append");
        }
        self.unlock_end();
    }

    fn unlock_end(&self) {
        let owner = self.end.let_go();
        if owner != 0
            && let Err(error) = self.core.locks.unlock(self.end_place(owner), LockRange::WHOLE)
        {
            tracing::debug!(inode = %self.id, %error, "the lock on appending will be given back later");
        }
    }

    /// Whether this client has the end of the file to itself.
    pub(crate) fn holds_end(&self) -> bool {
        self.end.is_held()
    }

    /// The last handle is gone, after everything was flushed.
    pub(crate) fn leave_end(&self) {
        if self.end.is_held() {
            let _turn = self.end.turn();
            self.unlock_end();
        }
    }

    /// Another client wants to append. An append in progress here releases the end when it is done; otherwise a thread
    /// does, because the receiver of the notification must go on receiving.
    pub(crate) fn begin_giving_end_back(self: Arc<OpenInode>) {
        if !self.end.is_held() {
            self.core.locks.must_tell();
        }
        self.end.set_wanted(true);
        let inode = self.id;
        let work = move || {
            let _turn = self.end.turn();
            if self.end.is_wanted() {
                self.give_end_back();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("vazao-append".to_owned()).spawn(work) {
            tracing::warn!(%inode, %error, "no thread to let others append");
        }
    }
}
