//! Blocks that fail their checksum are replaced by those of a good copy, and a missing object is made anew from one.
//!
//! This is what a target knows of it; the block itself `repair.rs` replaces. Whose copy is good, and that no change
//! comes in between, `replication/restore.rs` sees to.
//!
//! - Only a block that fails its own checksum is replaced. That is looked at under the object's lock, in the moment in
//!   which it is written.
//! - An object that is made anew is *unfinished* until it has everything. Nothing of it is read meanwhile, as zeros
//!   would pass for its bytes; changes are carried out. The file BOOT says so: a process that starts anew catches up
//!   first as a member of its groups, and until then leads none.
//! - One that a primary *fetches* from a member that lags is unfinished, too, also for the next process
//!   ([`Fetching`]). That leads all the same: it may be the only one that can. The primary writes nothing else into the
//!   object meanwhile.

use crate::targets::fetching::Fetching;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_model::{Code, ObjectId};
use vazao_wire::service::Fault;

/// What was restored on a target since its server started, and what is being restored.
#[derive(Debug, Default)]
pub(crate) struct Restores {
    /// Held by the one that restores: one place at a time, also of a disk that is bad as a whole.
    pub(crate) one_at_a_time: Mutex<()>,
    blocks: AtomicU64,
    objects: AtomicU64,
    unfinished: Mutex<BTreeSet<ObjectId>>,
    /// Some of these.
    pub(crate) fetching: Fetching,
    /// BOOT says that there are some. Taken before `unfinished`.
    is_noted: Mutex<bool>,
}

/// A block that matches its checksum; of the last one of an object what there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SoundBlock {
    pub(crate) bytes: Vec<u8>,
    pub(crate) checksum: u32,
}

impl Restores {
    /// Of a process that starts; `fetching`: what the one before it fetched.
    pub(crate) fn begun(fetching: Fetching) -> Restores {
        let unfinished = Mutex::new(fetching.objects().into_iter().collect());
        Restores { unfinished, fetching, ..Restores::default() }
    }

    /// Objects are not whole, and are fetched.
    pub(crate) fn begin_fetching(&self, objects: impl Iterator<Item = ObjectId>) {
        self.unfinished.lock().extend(objects);
    }

    /// Blocks and objects that were restored.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.blocks.load(Ordering::Relaxed), self.objects.load(Ordering::Relaxed))
    }

    /// An object is made anew. `note`: has BOOT say so.
    pub(crate) fn begin_object(
        &self,
        id: ObjectId,
        note: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut is_noted = self.is_noted.lock();
        if !*is_noted {
            note()?;
            *is_noted = true;
        }
        self.unfinished.lock().insert(id);
        Ok(())
    }

    /// Whether some are not whole, or BOOT says so still.
    pub(crate) fn is_unfinished(&self) -> bool {
        *self.is_noted.lock()
    }

    /// Takes back what BOOT says, once no object is unfinished but those that are fetched, of which FETCHING says so.
    pub(crate) fn review(&self, take_back: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        let mut is_noted = self.is_noted.lock();
        let is_fetched = |object: &ObjectId| self.fetching.sources(*object).is_some();
        if *is_noted && self.unfinished.lock().iter().all(is_fetched) {
            take_back()?;
            *is_noted = false;
        }
        Ok(())
    }

    /// It has everything, or is no more.
    pub(crate) fn end_object(&self, id: ObjectId) -> bool {
        self.unfinished.lock().remove(&id)
    }

    /// A block was damaged, and counts as restored.
    pub(crate) fn count_block(&self) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// It was missing, and counts as restored.
    pub(crate) fn count_object(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// Refuses to read an object that does not have everything yet.
    pub(crate) fn check_finished(&self, id: ObjectId) -> Result<(), Fault> {
        match self.unfinished.lock().contains(&id) {
            true => Err(Fault::new(
                Code::Unavailable,
                format!("object {id} is being made anew here; read another copy"),
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::fetching::Source;
    use vazao_disk::MemoryDisk;
    use vazao_model::cluster::serving::HadAll;
    use vazao_model::{GroupId, InodeId, TargetId};

    /// Two members that fetched from one another, one of which had made another object anew, waited for each other:
    /// while BOOT says so a member is no source.
    #[test]
    fn what_is_fetched_leaves_nothing_said_of_objects_that_are_whole() {
        let object =
            |inode: u64| ObjectId { inode: InodeId(inode), generation: 1, slot: 0, group: GroupId(300) };
        let disk = MemoryDisk::new(1);
        let fetching = Fetching::open(&disk).expect("it answers").expect("it is whole");
        fetching
            .add(
                &disk,
                &[(object(1), vec![Source { target: TargetId(2), had_all: HadAll { run: 3, since: 7 } }])],
            )
            .expect("kept");
        let restores = Restores::begun(fetching);
        assert!(restores.check_finished(object(1)).is_err() && !restores.is_unfinished());
        restores.begin_object(object(2), || Ok(())).expect("noted");
        restores.review(|| panic!("one is not whole")).expect("nothing is noted");
        assert!(restores.is_unfinished());
        assert!(restores.end_object(object(2)));
        restores.review(|| Ok(())).expect("noted");
        assert!(!restores.is_unfinished() && restores.check_finished(object(1)).is_err());
    }
}
