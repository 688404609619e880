//! Appending: at the end of the file as all clients know it.
//!
//! Only one client appends at a time: the one that holds a lock on the file's end. It keeps it, so that appending alone
//! costs nothing more, until another one wants it; then it reports what it has written and lets go.

use super::inode::OpenInode;
use super::{commit, look, write};
use crate::locks::LockPlace;
use crate::{Error, Result};
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::locks::{LockKind, LockMode, LockRange};
use vazao_wire::interrupt;

fn end_place(open: &OpenInode, owner: u64) -> LockPlace {
    LockPlace { inode: open.id, kind: LockKind::Append, owner }
}

/// Takes over bytes to be written at the end; returns where that was.
pub(crate) fn append(open: &OpenInode, bytes: &[u8]) -> Result<u64> {
    let deadline_ns = open.core.context.deadline_ns();
    let _turn = open.end.turn();
    if !open.end.is_held() || !open.core.cache.hears_of_changes() {
        take_end(open, deadline_ns)?;
    }
    let offset = open.lock().size;
    let written = write::write(open, bytes.into(), offset, &mut None);
    // Without an invalidation stream this client is not notified that others want it.
    if open.end.is_wanted() || !open.core.cache.hears_of_changes() {
        give_end_back(open);
    }
    written.map(|()| offset)
}

/// Waits for the lock, and looks where the end is.
fn take_end(open: &OpenInode, deadline_ns: u64) -> Result<()> {
    let is_late = || interrupt::is_raised() || open.core.context.clock.now_ns() >= deadline_ns;
    let held_by = open.end.held_by();
    let owner = if held_by == 0 { open.core.locks.new_owner() } else { held_by };
    let place = end_place(open, owner);
    let locked = open.core.lock(place, LockRange::WHOLE, LockMode::Exclusive, 0, Some(&is_late), deadline_ns);
    if let Err(error) = locked {
        if matches!(error.code, Code::Interrupted | Code::Locked) && !interrupt::is_raised() {
            let detail =
                "another client appends to it and does not let go; is it gone? Its lock ends 60 s after";
            return Err(Error::new(Code::Timeout, format!("{}: {detail}", open.id)));
        }
        return Err(error);
    }
    if open.end.hold(owner) {
        // Others have appended where the records from before lie.
        let detail = format!("{}: the lock on its end was lost with records that were not stored", open.id);
        commit::give_up(open, &Error::new(Code::Io, detail));
    }
    if !open.lock().is_clean() {
        commit::flush(open, false)?;
    }
    if let Some(changes) = open.must_look_again() {
        look::look_again(open, deadline_ns)?;
        open.looked_again(changes);
    }
    Ok(())
}

/// Reports what was written, and releases it. The caller has the turn, or there is no other user any more.
fn give_end_back(open: &OpenInode) {
    open.end.set_wanted(false);
    if !open.end.is_held() {
        return;
    }
    if let Err(error) = commit::flush(open, false) {
        // Reported later it would lie over what others append now.
        commit::give_up(open, &error);
        tracing::warn!(inode = %open.id, %error, "what was appended could not be stored before others append");
    }
    unlock_end(open);
}

fn unlock_end(open: &OpenInode) {
    let owner = open.end.let_go();
    if owner != 0
        && let Err(error) = open.core.locks.unlock(end_place(open, owner), LockRange::WHOLE)
    {
        tracing::debug!(inode = %open.id, %error, "the lock on appending will be given back later");
    }
}

/// Whether this client has the end of the file to itself.
pub(crate) fn holds_end(open: &OpenInode) -> bool {
    open.end.is_held()
}

/// The last handle is gone, after everything was flushed.
pub(crate) fn leave_end(open: &OpenInode) {
    if open.end.is_held() {
        let _turn = open.end.turn();
        unlock_end(open);
    }
}

/// Another client wants to append. An append in progress here releases the end when it is done; otherwise a thread
/// does, because the receiver of the notification must go on receiving.
pub(crate) fn begin_giving_end_back(open: Arc<OpenInode>) {
    if !open.end.is_held() {
        open.core.locks.must_tell();
    }
    open.end.set_wanted(true);
    let inode = open.id;
    let work = move || {
        let _turn = open.end.turn();
        if open.end.is_wanted() {
            give_end_back(&open);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("vazao-append".to_owned()).spawn(work) {
        tracing::warn!(%inode, %error, "no thread to let others append");
    }
}
