//! Which version of each inode the kernel was last shown, and whether it had extended attributes then.
//!
//! Close-to-open consistency rests on it. When a file is opened and its version differs from the one that the kernel
//! was shown, the kernel's attributes are invalidated, so that an old size does not cut the first read short. When it
//! is the same, the kernel may keep its pages. An inode that is not known here counts as changed, so eviction is always
//! safe.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use vazao_model::InodeId;

const SHARDS: usize = 64;

/// Entries of one shard; a full one is emptied. With 64 shards about 260,000 inodes and 10 MB.
const SHARD_ENTRIES_MAX: usize = 4096;

/// Longer than any answer is under way.
const DOUBTFUL_NS: u64 = 60_000_000_000;

/// The table.
#[derive(Debug)]
pub(crate) struct Told {
    shards: Box<[Mutex<HashMap<InodeId, Shown>>]>,
}

/// What was shown of an inode.
#[derive(Clone, Copy, Debug)]
struct Shown {
    version: u64,
    /// Until when the kernel may believe that it has no extended attributes.
    xattr_less_until_ns: u64,
    /// One was set here; until then an answer that knows nothing of it may still come in.
    doubtful_until_ns: u64,
}

impl Told {
    /// Nothing was shown yet.
    pub(crate) fn new() -> Told {
        Told { shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect() }
    }

    fn shard(&self, inode: InodeId) -> MutexGuard<'_, HashMap<InodeId, Shown>> {
        let index = (inode.0 % SHARDS as u64) as usize;
        self.shards[index].lock()
    }

    /// The kernel is shown `version` of `inode`, which it may believe to be without extended attributes until
    /// `xattr_less_until_ns`.
    pub(crate) fn show(&self, inode: InodeId, version: u64, xattr_less_until_ns: Option<u64>) {
        let mut shard = self.shard(inode);
        if shard.len() >= SHARD_ENTRIES_MAX && !shard.contains_key(&inode) {
            shard.clear();
        }
        let doubtful_until_ns = shard.get(&inode).map_or(0, |shown| shown.doubtful_until_ns);
        let is_doubtful = |until_ns: &u64| *until_ns <= doubtful_until_ns;
        let xattr_less_until_ns = xattr_less_until_ns.filter(|until_ns| !is_doubtful(until_ns)).unwrap_or(0);
        shard.insert(inode, Shown { version, xattr_less_until_ns, doubtful_until_ns });
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
        self.shard(inode).get(&inode).is_some_and(|shown| shown.version == version)
    }

    /// True when `inode` may be believed to have no extended attributes at `now_ns`.
    pub(crate) fn is_without_xattrs(&self, inode: InodeId, now_ns: u64) -> bool {
        let may_believe = |shown: &Shown| {
            let is_over = now_ns > shown.doubtful_until_ns || shown.doubtful_until_ns == 0;
            is_over && shown.xattr_less_until_ns > now_ns
        };
        self.shard(inode).get(&inode).is_some_and(may_believe)
    }

    /// `inode` gets an extended attribute at `now_ns`.
    pub(crate) fn forget_xattrs(&self, inode: InodeId, now_ns: u64) {
        let mut shard = self.shard(inode);
        let shown =
            shard.entry(inode).or_insert(Shown { version: 0, xattr_less_until_ns: 0, doubtful_until_ns: 0 });
        shown.xattr_less_until_ns = 0;
        shown.doubtful_until_ns = now_ns.saturating_add(DOUBTFUL_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_shown_last_is_current() {
        let told = Told::new();
        assert!(!told.is_current(InodeId(7), 1));
        told.show(InodeId(7), 1, None);
        assert!(told.is_current(InodeId(7), 1) && !told.is_current(InodeId(7), 2));
        told.show(InodeId(7), 2, None);
        assert!(!told.is_current(InodeId(7), 1));
    }

    #[test]
    fn extended_attributes_are_known_to_be_absent_for_a_while_and_until_one_is_set() {
        let told = Told::new();
        assert!(!told.is_without_xattrs(InodeId(7), 0));
        told.show(InodeId(7), 1, Some(500));
        assert!(told.is_without_xattrs(InodeId(7), 499) && !told.is_without_xattrs(InodeId(7), 500));
        told.forget_xattrs(InodeId(7), 600);
        told.show(InodeId(7), 2, Some(700));
        assert!(!told.is_without_xattrs(InodeId(7), 650));
        let later = 601 + DOUBTFUL_NS;
        told.show(InodeId(7), 2, Some(later + 9));
        assert!(told.is_without_xattrs(InodeId(7), later) && !told.is_without_xattrs(InodeId(7), later - 9));
        told.show(InodeId(7), 2, None);
        assert!(!told.is_without_xattrs(InodeId(7), 0) && told.is_current(InodeId(7), 2));
    }

    #[test]
    fn memory_is_bounded() {
        let told = Told::new();
        for number in 0..3 * (SHARDS * SHARD_ENTRIES_MAX) as u64 {
            told.show(InodeId(number), 1, None);
        }
        assert!(told.shards.iter().all(|shard| shard.lock().len() <= SHARD_ENTRIES_MAX));
    }
}
