//! Appending: at the end of the file as all clients know it.
//!
//! Only one client appends at a time: the one that holds a lock on the file's end. It keeps it, so that appending alone
//! costs nothing more, until another one wants it; then it reports what it has written and lets go.

use super::inode::OpenInode;
use crate::core::Core;
use crate::locks::LockPlace;
use crate::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vazao_model::locks::{LockKind, LockMode, LockRange};
use vazao_model::{Code, InodeId};
use vazao_wire::interrupt;

/// The lock on one file's end.
///
/// Each time that it is taken it has an owner of its own at the metadata service. A release that arrives late, because
/// its connection broke or its caller was killed, then names an owner that is gone, and cannot take the lock from
/// its next owner: an open of the same file in the same client, for example.
#[derive(Default)]
pub(crate) struct End {
    /// One append of this client at a time.
    turn: Mutex<()>,
    /// The owner by which it is held; 0: it is not.
    held_by: AtomicU64,
    is_wanted: AtomicBool,
    /// Another client has had it since it was last held here.
    is_lost: AtomicBool,
}

impl End {
    fn is_held(&self) -> bool {
        self.held_by.load(Ordering::SeqCst) != 0
    }

    /// The metadata service has given the lock of `owner` to another client.
    pub(crate) fn lose(&self, owner: u64) {
        if self.held_by.compare_exchange(owner, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.is_lost.store(true, Ordering::SeqCst);
        }
    }
}

impl OpenInode {
    fn end_place(&self, owner: u64) -> LockPlace {
        LockPlace { inode: self.id, kind: LockKind::Append, owner }
    }

    /// Takes over bytes to be written at the end; returns where that was.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64> {
        let deadline_ns = self.core.deadline_ns();
        let _turn = self.end.turn.lock();
        if !self.end.is_held() || !self.core.hears_of_changes() {
            self.take_end(deadline_ns)?;
        }
        let offset = self.lock().size;
        let written = self.write(bytes.into(), offset, &mut None);
        // Without an invalidation stream this client is not notified that others want it.
        if self.end.is_wanted.load(Ordering::SeqCst) || !self.core.hears_of_changes() {
            self.give_end_back();
        }
        written.map(|()| offset)
    }

    /// Waits for the lock, and looks where the end is.
    fn take_end(&self, deadline_ns: u64) -> Result<()> {
        let is_late = || interrupt::is_raised() || self.core.clock.now_ns() >= deadline_ns;
        let held_by = self.end.held_by.load(Ordering::SeqCst);
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
        self.end.held_by.store(owner, Ordering::SeqCst);
        if self.end.is_lost.swap(false, Ordering::SeqCst) {
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
        self.end.is_wanted.store(false, Ordering::SeqCst);
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
        let owner = self.end.held_by.swap(0, Ordering::SeqCst);
        if owner != 0
            && let Err(error) = self.core.unlock(self.end_place(owner), LockRange::WHOLE)
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
            let _turn = self.end.turn.lock();
            self.unlock_end();
        }
    }
}

impl Core {
    /// Another client wants to append. An append in progress here releases it at its end; otherwise a thread does,
    /// because the receiver of the notification must go on receiving.
    pub(crate) fn give_end_back(&self, inode: InodeId) {
        let Some(open) = self.registry.find(inode) else {
            // It was let go, or that is under way. Should the release have been lost, the service hears what is held.
            self.locks.must_tell();
            return;
        };
        if !open.end.is_held() {
            self.locks.must_tell();
        }
        open.end.is_wanted.store(true, Ordering::SeqCst);
        let work = move || give_back_unless_done(&open);
        if let Err(error) = std::thread::Builder::new().name("vazao-append".to_owned()).spawn(work) {
            tracing::warn!(%inode, %error, "no thread to let others append");
        }
    }
}

fn give_back_unless_done(open: &Arc<OpenInode>) {
    let _turn = open.end.turn.lock();
    if open.end.is_wanted.load(Ordering::SeqCst) {
        open.give_end_back();
    }
}
