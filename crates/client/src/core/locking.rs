//! Locks as a caller has them: what their last holder has changed is seen, and a lock that is lost is told of.

use crate::Result;
use crate::core::Core;
use crate::locks::{Granted, LockPlace};
use crate::meta::LockHolder;
use std::time::Duration;
use vazao_model::InodeId;
use vazao_model::locks::{LockKind, LockMode, LockRange};

/// After a lock was granted, changes made before are waited for this long.
const CHANGES_NS_MAX: u64 = 1_000_000_000;

/// How often is looked whether they have come.
const CHANGES_PAUSE: Duration = Duration::from_micros(100);

impl Core {
    /// A lock was granted: what its last holder changed must be seen from now on.
    fn see_changes(&self, inode: InodeId, version: u64, changes: u64) {
        let deadline_ns = self.context.clock.now_ns() + CHANGES_NS_MAX;
        while !self.cache.has_received(changes) && self.context.clock.now_ns() < deadline_ns {
            self.context.clock.sleep(CHANGES_PAUSE);
        }
        if !self.cache.has_received(changes) {
            // Which names and files they are about is not known: nothing is believed any more.
            self.forget_answers();
        }
        if let Some(open) = self.registry.find(inode)
            && version != 0
            && open.is_other_version(version)
        {
            open.note_changed_elsewhere();
            self.tell_listener(inode);
        }
    }

    /// Tells the service all locks that are held here, if it may have forgotten.
    pub(crate) fn tell_locks(&self) -> Result<()> {
        self.locks.tell(&|place| self.lock_lost(place))
    }

    fn lock_lost(&self, place: LockPlace) {
        if let Some(open) = self.registry.find(place.inode) {
            open.lose_lock();
        }
        if place.kind != LockKind::Append {
            self.locks.note_lost(place);
            // What the kernel has of it must be asked for, to be refused.
            self.tell_listener(place.inode);
        } else if let Some(open) = self.registry.find(place.inode) {
            open.end.lose(place.owner);
        }
    }

    /// [`crate::Locks`], and sees what the last holder has changed.
    pub(crate) fn lock(
        &self,
        place: LockPlace,
        range: LockRange,
        mode: LockMode,
        process: u32,
        give_up: Option<&dyn Fn() -> bool>,
        until_ns: u64,
    ) -> Result<()> {
        let Granted { version, changes } = self.locks.lock(place, range, mode, process, give_up, until_ns)?;
        self.see_changes(place.inode, version, changes);
        Ok(())
    }
}

impl LockHolder for Core {
    fn has_locked(&self) -> bool {
        self.locks.has_locked()
    }

    fn holds(&self, inode: InodeId) -> bool {
        self.locks.has_any_of(inode, &[LockKind::Range, LockKind::Flock, LockKind::Append])
    }

    fn losses(&self) -> u64 {
        self.locks.losses()
    }

    fn has_lost_since(&self, inode: InodeId, losses: u64) -> bool {
        self.locks.has_lost_since(inode, losses)
    }

    fn are_told(&self, session: u64) -> bool {
        self.locks.are_told(session)
    }

    fn tell(&self) -> Result<()> {
        self.tell_locks()
    }

    fn check(&self, inode: InodeId) -> Result<()> {
        self.registry.find(inode).map_or(Ok(()), |open| open.check_lock())
    }
}
