//! Complete directories: this client made them and knows every name in them.
//!
//! A directory stays complete until another client changes its names. During the lease the client receives that
//! invalidation. Afterwards only the directory's time can prove it: if the time is from a change of this client, *made
//! while the directory was complete*, no other client has changed it since. The time of a later change proves nothing:
//! it hides a change by another client before it.

use super::MetadataCache;
use crate::cache::Asked;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use vazao_model::{Attributes, InodeId, Timestamp};

/// Names of directories that are known whole, all together: 8 bytes each, and their tables.
pub(super) const WHOLE_NAMES_MAX: usize = 1 << 20;

/// Times of this client's own last changes that are kept of a directory: attributes may be from before the last few.
const OWN_TIMES_MAX: usize = 32;

/// A directory of which every name is known.
pub(super) struct Whole {
    /// Hashes of the names.
    names: HashSet<u64>,
    /// When it was last known that no other client had changed them.
    asked: Asked,
    /// What changes of this client have made its time since, while it was known whole.
    own_times: VecDeque<Timestamp>,
}

impl Whole {
    fn add_time(&mut self, time: Option<Timestamp>) {
        if self.own_times.len() >= OWN_TIMES_MAX {
            self.own_times.pop_front();
        }
        self.own_times.extend(time);
    }
}

impl MetadataCache {
    /// This client has just made the directory: there is nothing in it.
    pub(crate) fn cache_empty(&self, asked: Asked, made: &Attributes) {
        let whole = Whole { names: HashSet::new(), asked, own_times: VecDeque::from([made.modified]) };
        let replaced = self.inode_shard(made.inode).whole.insert(made.inode, whole);
        self.count_names(0, replaced.map_or(0, |whole| whole.names.len()));
    }

    fn count_names(&self, more: usize, less: usize) {
        self.whole_names.fetch_add(more, Ordering::SeqCst);
        let minus = |names: usize| Some(names.saturating_sub(less));
        let _ = self.whole_names.fetch_update(Ordering::SeqCst, Ordering::SeqCst, minus);
    }

    /// Since when it is known that a whole directory does not have this name.
    pub(crate) fn cached_absence(&self, parent: InodeId, name: &[u8]) -> Option<Asked> {
        let shard = self.inode_shard(parent);
        let whole = shard.whole.get(&parent)?;
        (!whole.names.contains(&self.hash(parent, name))).then_some(whole.asked)
    }

    /// Since when a directory is known whole.
    pub(crate) fn whole_since(&self, directory: InodeId) -> Option<Asked> {
        self.inode_shard(directory).whole.get(&directory).map(|whole| whole.asked)
    }

    /// Since when a directory is known complete whose attributes, as an answer has just shown them, prove that no
    /// other client has changed its names after this client's last change. Setting a time back changes the ctime.
    pub(crate) fn whole_if_own(&self, shown: &Attributes) -> Option<Asked> {
        let shard = self.inode_shard(shown.inode);
        let whole = shard.whole.get(&shown.inode)?;
        let is_own = shown.changed == shown.modified && whole.own_times.contains(&shown.modified);
        is_own.then_some(whole.asked)
    }

    /// It was still whole when attributes were asked for that [`MetadataCache::whole_if_own`] has found to be its own.
    pub(crate) fn renew_whole(&self, asked: Asked, directory: InodeId) {
        if let Some(whole) = self.inode_shard(directory).whole.get_mut(&directory)
            && whole.asked.is_before(asked)
        {
            whole.asked = asked;
        }
    }

    /// Not every name of a directory is known any more, or it is gone.
    pub(crate) fn forget_whole(&self, directory: InodeId) {
        let whole = self.inode_shard(directory).whole.remove(&directory);
        self.count_names(0, whole.map_or(0, |whole| whole.names.len()));
    }

    /// A name has come to a directory, or gone from it, by this client, which gave the directory this time. To be
    /// called only while the directory may still be believed to be whole; otherwise it has to be forgotten.
    pub(crate) fn change_whole(&self, parent: InodeId, name: &[u8], is_there: bool, time: Option<Timestamp>) {
        let hash = self.hash(parent, name);
        let mut shard = self.inode_shard(parent);
        let Some(whole) = shard.whole.get_mut(&parent) else { return };
        let is_full = self.whole_names.load(Ordering::SeqCst) >= WHOLE_NAMES_MAX;
        let fits = match is_there {
            true => !is_full && whole.names.insert(hash),
            false => whole.names.remove(&hash),
        };
        whole.add_time(time);
        drop(shard);
        match fits {
            true => self.count_names(usize::from(is_there), usize::from(!is_there)),
            // Too many, or not as it was thought.
            false => self.forget_whole(parent),
        }
    }
}
