//! Which version of each inode the kernel was last shown.
//!
//! Close-to-open rests on it: when a file is opened and its version is another one than the kernel was shown, the
//! kernel is told to drop its attributes, so that an old size does not cut the first read short; when it is the same,
//! the kernel may keep its pages. What is not known here counts as changed, so forgetting is always safe.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vazao_model::InodeId;

const SHARDS: usize = 64;

/// Entries of one shard; a full one is emptied. With 64 shards about 260,000 inodes and 10 MB.
const SHARD_ENTRIES_MAX: usize = 4096;

/// The table.
#[derive(Debug)]
pub(crate) struct Told {
    shards: Box<[Mutex<HashMap<InodeId, u64>>]>,
}

impl Told {
    /// Nothing was shown yet.
    pub(crate) fn new() -> Told {
        Told { shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect() }
    }

    fn shard(&self, inode: InodeId) -> MutexGuard<'_, HashMap<InodeId, u64>> {
        let index = (inode.0 % SHARDS as u64) as usize;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is shown `version` of `inode`.
    pub(crate) fn show(&self, inode: InodeId, version: u64) {
        let mut shard = self.shard(inode);
        if shard.len() >= SHARD_ENTRIES_MAX && !shard.contains_key(&inode) {
            shard.clear();
        }
        shard.insert(inode, version);
    }

    /// The kernel has been told to forget `inode`.
    pub(crate) fn forget(&self, inode: InodeId) {
        self.shard(inode).remove(&inode);
    }

    /// Every inode that the kernel may remember; forgotten here from now on.
    pub(crate) fn take_all(&self) -> Vec<InodeId> {
        (0..SHARDS as u64).flat_map(|n| std::mem::take(&mut *self.shard(InodeId(n))).into_keys()).collect()
    }

    /// True when `version` of `inode` is what the kernel was shown last.
    pub(crate) fn is_current(&self, inode: InodeId, version: u64) -> bool {
        self.shard(inode).get(&inode) == Some(&version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_shown_last_is_current() {
        let told = Told::new();
        assert!(!told.is_current(InodeId(7), 1));
        told.show(InodeId(7), 1);
        assert!(told.is_current(InodeId(7), 1) && !told.is_current(InodeId(7), 2));
        told.show(InodeId(7), 2);
        assert!(!told.is_current(InodeId(7), 1));
    }

    #[test]
    fn memory_is_bounded() {
        let told = Told::new();
        for number in 0..3 * (SHARDS * SHARD_ENTRIES_MAX) as u64 {
            told.show(InodeId(number), 1);
        }
        assert!(
            told.shards.iter().all(|shard| shard.lock().expect("not poisoned").len() <= SHARD_ENTRIES_MAX)
        );
    }
}
