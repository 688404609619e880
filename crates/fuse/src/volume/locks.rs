//! Locks of the mount's processes, which other mounts see.
//!
//! The kernel says "the owner closes the file" with each close (fcntl(2)'s locks go then) and "the file is closed" with
//! the last one (flock(2)'s go, and those of open file descriptions). Of the first kind only files opened for writing
//! hear: a close that cannot have written anything is not told to the door. What was locked through such a descriptor
//! goes with its last close.

use super::{OpenFile, VolumeFilesystem};
use crate::filesystem::arguments::LockWish;
use std::sync::Arc;
use vazao_client::{Client, LockPlace, Obstacle, Result, interrupt};
use vazao_model::locks::{LockKind, LockRange};

impl OpenFile {
    pub(super) fn place(&self, owner: u64, is_flock: bool) -> LockPlace {
        let kind = if is_flock { LockKind::Flock } else { LockKind::Range };
        LockPlace { inode: self.file.inode(), kind, owner }
    }
}

impl VolumeFilesystem {
    /// What stands against a lock.
    pub(super) fn test_lock(&self, wish: &LockWish) -> Result<Option<Obstacle>> {
        let open = self.file(wish.handle)?;
        let Some(mode) = wish.mode else { return Ok(None) };
        self.client.locks().test(open.place(wish.owner, wish.is_flock), wish.range, mode)
    }

    /// Locks or lets go; with `waits`, waits for the lock until the request is interrupted.
    pub(super) fn set_lock(&self, wish: &LockWish, waits: bool) -> Result<()> {
        let open = self.file(wish.handle)?;
        let place = open.place(wish.owner, wish.is_flock);
        let Some(mode) = wish.mode else {
            // The next holder must see what was written under this lock.
            let flushed = self.give_up_if_lost(&open).and_then(|()| open.file.flush_under_lock());
            return self.client.unlock(place, wish.range).and(flushed);
        };
        open.locked(wish.owner, wish.is_flock);
        let give_up = || interrupt::is_raised();
        let give_up = waits.then_some(&give_up as &dyn Fn() -> bool);
        self.client.lock(place, wish.range, mode, wish.process, give_up)
    }

    /// An open file whose contents are wanted. Errors: a lock taken through it is lost (`EIO`, as on NFS).
    pub(super) fn locked_file(&self, handle: u64) -> Result<Arc<OpenFile>> {
        let open = self.file(handle)?;
        self.check_locks(&open)?;
        Ok(open)
    }

    fn check_locks(&self, open: &OpenFile) -> Result<()> {
        let owners = open.owners().clone();
        self.client.locks().check(owners.into_iter().map(|(owner, is_flock)| open.place(owner, is_flock)))
    }

    /// Before anything of an open file is reported: what was written under a lock that is lost must not be, for its
    /// holder may have written there since. Errors: something is given up for that.
    pub(super) fn give_up_if_lost(&self, open: &OpenFile) -> Result<()> {
        match self.check_locks(open) {
            Err(error) if open.file.give_up_unreported(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// A process closes a descriptor: its fcntl(2) locks of the file go.
    pub(super) fn unlock_closed(&self, handle: u64, owner: u64) -> Result<()> {
        let open = self.file(handle)?;
        open.forget_owner(owner);
        unlock_all(&self.client, open.place(owner, false))
    }

    /// Releases the remaining locks that were taken through an open file, at its last close.
    pub(super) fn unlock_released(&self, open: &OpenFile) -> Result<()> {
        let mut outcome = Ok(());
        for (owner, is_flock) in open.take_owners() {
            outcome = outcome.and(unlock_all(&self.client, open.place(owner, is_flock)));
        }
        outcome
    }
}

/// Lets go of all that an owner has locked of a file. Waits for nothing where that is nothing.
pub(super) fn unlock_all(client: &Client, place: LockPlace) -> Result<()> {
    client.locks().forget_lost(place);
    if !client.locks().has(place) {
        return Ok(());
    }
    client.unlock(place, LockRange::WHOLE)
}
