//! The metadata cache: attributes, names, and complete directories that this client made.
//!
//! An entry is valid only as long as [`crate::invalidations`] allows: it is kept with the time of its request, its
//! lease starts then, and changes by other clients invalidate it. Changes by this client are announced here before they
//! are sent, and end when they are answered ([`MetadataCache::begin`], [`Change`]). Answers to requests from before the
//! end of such a change are not cached. When two changes overlapped, their order is unknown, and the entry is evicted.
//!
//! The times of a directory are an exception, as every name that comes or goes changes them: answers to such changes
//! bring the new time, and the later one counts.

mod complete_directories;

use crate::cache::Asked;
use complete_directories::Whole;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vazao_model::{Attributes, InodeId, Timestamp};

/// Enough that threads rarely want the same lock.
const SHARDS: usize = 64;

/// Things in one shard; a full one is emptied. With 64 shards 262,144 names and as many inodes, at most 90 MB.
const SHARD_THINGS_MAX: usize = 4096;

/// Places for the numbers of changes. Things that share one are forgotten together.
const SLOTS: usize = 4096;

/// Something a change touches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Thing {
    /// Attributes, or what an inode is.
    Inode(InodeId),
    /// Where a name leads.
    Name(InodeId, Vec<u8>),
    /// The times of a directory: a name in it comes or goes.
    Times(InodeId),
}

/// Changes of this client of the things in one place.
#[derive(Clone, Copy, Default)]
struct Slot {
    under_way: u32,
    /// Number of the last one that ended.
    ended: u64,
    /// Until then the service may still carry out a change with an unknown outcome.
    doubtful_until_ns: u64,
}

#[derive(Clone, Debug)]
struct Known<T> {
    value: T,
    asked: Asked,
}

/// A directory and a name in it.
type Entry = (InodeId, Box<[u8]>);

#[derive(Default)]
struct Shard {
    inodes: HashMap<InodeId, Known<Attributes>>,
    names: HashMap<Entry, Known<Option<InodeId>>>,
    whole: HashMap<InodeId, Whole>,
    /// The latest times that answers to this client's changes have brought, of directories whose attributes may be
    /// asked for right now, and the number of the last such change.
    times: HashMap<InodeId, (Timestamp, u64)>,
}

/// The cache.
///
/// - Lock order: a slot before a shard. No lock is held while a request is sent.
/// - An answer is cached only if no change of its thing was in flight or ended since its request ([`Slot`]).
/// - `forgot_at` rejects all answers to requests from before an eviction of everything.
pub(crate) struct MetadataCache {
    shards: Box<[Mutex<Shard>]>,
    slots: Box<[Mutex<Slot>]>,
    /// Numbers the changes of this client.
    changes: AtomicU64,
    /// Nothing asked before this many changes is taken over.
    forgot_at: AtomicU64,
    whole_names: AtomicUsize,
    hasher: RandomState,
}

impl Default for MetadataCache {
    fn default() -> MetadataCache {
        MetadataCache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            slots: (0..SLOTS).map(|_| Mutex::default()).collect(),
            changes: AtomicU64::new(0),
            forgot_at: AtomicU64::new(0),
            whole_names: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }
    }
}

/// How long after its call was given up a change may still be carried out.
const DOUBT_NS: u64 = 60_000_000_000;

/// A change under way, which ends in one of four ways; dropped without any of them it may come at any time.
pub(crate) struct Change {
    memory: Arc<MetadataCache>,
    things: Vec<Thing>,
    began: u64,
    is_over: bool,
}

impl MetadataCache {
    fn hash(&self, inode: InodeId, name: &[u8]) -> u64 {
        self.hasher.hash_one((inode.0, name))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[(hash % SHARDS as u64) as usize].lock()
    }

    fn inode_shard(&self, inode: InodeId) -> MutexGuard<'_, Shard> {
        self.shard(self.hash(inode, &[]))
    }

    fn slot(&self, inode: InodeId, name: &[u8]) -> MutexGuard<'_, Slot> {
        let hash = self.hash(inode, name);
        self.slots[(hash >> 32) as usize % SLOTS].lock()
    }

    fn slot_of(&self, thing: &Thing) -> MutexGuard<'_, Slot> {
        match thing {
            Thing::Inode(inode) | Thing::Times(inode) => self.slot(*inode, &[]),
            Thing::Name(parent, name) => self.slot(*parent, name),
        }
    }

    /// How many changes of this client have ended.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Evicts everything: it is not known what a change has touched.
    pub(crate) fn forget_all(&self) {
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        self.forgot_at.fetch_max(number, Ordering::SeqCst);
        self.shards.iter().for_each(|shard| *shard.lock() = Shard::default());
        self.whole_names.store(0, Ordering::SeqCst);
    }

    /// A change of `things` is about to be sent.
    pub(crate) fn begin(self: &Arc<MetadataCache>, things: Vec<Thing>) -> Change {
        for thing in things.iter().filter(|thing| !matches!(thing, Thing::Times(_))) {
            self.slot_of(thing).under_way += 1;
        }
        Change { memory: Arc::clone(self), things, began: self.changes(), is_over: false }
    }

    /// True when no change of this client came in between.
    fn is_settled(&self, slot: &Slot, asked: Asked) -> bool {
        let forgot_at = self.forgot_at.load(Ordering::SeqCst);
        slot.under_way == 0 && slot.ended.max(forgot_at) <= asked.own && slot.doubtful_until_ns <= asked.at_ns
    }

    /// An answer has shown attributes.
    pub(crate) fn cache_attributes(&self, asked: Asked, attributes: &Attributes) {
        let slot = self.slot(attributes.inode, &[]);
        if !self.is_settled(&slot, asked) {
            return;
        }
        let mut shard = self.inode_shard(attributes.inode);
        let mut value = attributes.clone();
        if let Some(&(time, number)) = shard.times.get(&attributes.inode)
            && number > asked.own
        {
            // The answer may be from before that change or from after it.
            if value.modified > time {
                return;
            }
            (value.modified, value.changed) = (time, value.changed.max(time));
        }
        if shard.inodes.len() >= SHARD_THINGS_MAX && !shard.inodes.contains_key(&value.inode) {
            shard.inodes.clear();
        }
        let is_newer = shard.inodes.get(&value.inode).is_none_or(|known| known.asked.is_before(asked));
        if is_newer {
            shard.inodes.insert(value.inode, Known { value, asked });
        }
    }

    /// An answer has shown where a name leads, or that it leads nowhere.
    pub(crate) fn cache_name(&self, asked: Asked, parent: InodeId, name: &[u8], leads: Option<InodeId>) {
        let slot = self.slot(parent, name);
        if !self.is_settled(&slot, asked) {
            return;
        }
        let mut shard = self.shard(self.hash(parent, name));
        if shard.names.len() >= SHARD_THINGS_MAX {
            shard.names.clear();
        }
        shard.names.insert((parent, name.into()), Known { value: leads, asked });
    }

    /// What is known of a name's inode, and since when.
    pub(crate) fn cached_attributes(&self, inode: InodeId) -> Option<(Attributes, Asked)> {
        let shard = self.inode_shard(inode);
        shard.inodes.get(&inode).map(|known| (known.value.clone(), known.asked))
    }

    /// Where a name leads, as far as it is known on its own.
    pub(crate) fn cached_name(&self, parent: InodeId, name: &[u8]) -> Option<(Option<InodeId>, Asked)> {
        let shard = self.shard(self.hash(parent, name));
        shard.names.get(&(parent, name.into())).map(|known| (known.value, known.asked))
    }

    /// Evicts all names that lead to an inode, and its attributes. No answer to a request from before is cached.
    pub(crate) fn forget_names(&self, inode: InodeId) {
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        self.forgot_at.fetch_max(number, Ordering::SeqCst);
        self.shards.iter().for_each(|shard| shard.lock().names.retain(|_, known| known.value != Some(inode)));
        self.inode_shard(inode).inodes.remove(&inode);
    }

    fn forget_thing(&self, thing: &Thing) {
        match thing {
            Thing::Inode(inode) | Thing::Times(inode) => {
                let mut shard = self.inode_shard(*inode);
                shard.inodes.remove(inode);
                shard.times.remove(inode);
            }
            Thing::Name(parent, name) => {
                self.shard(self.hash(*parent, name)).names.remove(&(*parent, name.as_slice().into()));
            }
        }
    }

    /// An answer to a change of the names in a directory has brought its new time.
    fn advance(&self, directory: InodeId, time: Timestamp, began: u64, number: u64) {
        let mut slot = self.slot(directory, &[]);
        let mut shard = self.inode_shard(directory);
        if slot.under_way > 0 || slot.ended > began {
            // Its times may have been set meanwhile, before or after this.
            slot.ended = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
            shard.inodes.remove(&directory);
            shard.times.remove(&directory);
            return;
        }
        if shard.times.len() >= SHARD_THINGS_MAX {
            // What is being asked just now would be taken over without the times forgotten here.
            self.forgot_at.fetch_max(self.changes.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            shard.times.clear();
        }
        let (latest, last) = shard.times.entry(directory).or_insert((time, number));
        (*latest, *last) = ((*latest).max(time), (*last).max(number));
        let latest = *latest;
        let Some(known) = shard.inodes.get_mut(&directory) else { return };
        if known.asked.own <= began {
            (known.value.modified, known.value.changed) = (latest, latest);
        } else if known.value.modified <= latest {
            (known.value.modified, known.value.changed) = (latest, known.value.changed.max(latest));
        } else {
            shard.inodes.remove(&directory);
        }
    }
}

impl Change {
    /// It was answered, and brought `time` as the time of the directories it touched. The moment as of which its answer
    /// may be remembered; `None` when it overlapped with another change of the same things.
    pub(crate) fn done(mut self, asked: Asked, time: Option<Timestamp>) -> Option<Asked> {
        self.end(time).map(|own| asked.after(own))
    }

    fn end(&mut self, time: Option<Timestamp>) -> Option<u64> {
        self.is_over = true;
        let number = self.memory.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let mut is_alone = true;
        for thing in &self.things {
            match (thing, time) {
                (Thing::Times(directory), Some(time)) => {
                    self.memory.advance(*directory, time, self.began, number);
                }
                (Thing::Times(_), None) => {
                    self.memory.slot_of(thing).ended = number;
                    self.memory.forget_thing(thing);
                }
                _ => {
                    let mut slot = self.memory.slot_of(thing);
                    is_alone &= slot.under_way == 1 && slot.ended <= self.began;
                    slot.under_way = slot.under_way.saturating_sub(1);
                    slot.ended = slot.ended.max(number);
                    drop(slot);
                    self.memory.forget_thing(thing);
                }
            }
        }
        is_alone.then_some(number)
    }

    /// It was refused: nothing has changed.
    pub(crate) fn refused(mut self) {
        self.is_over = true;
        for thing in self.things.iter().filter(|thing| !matches!(thing, Thing::Times(_))) {
            let mut slot = self.memory.slot_of(thing);
            slot.under_way = slot.under_way.saturating_sub(1);
        }
    }
}

impl Change {
    /// Its call was given up at `now_ns`, and its outcome is unknown: the server may have carried it out, or may still
    /// do so.
    pub(crate) fn lost(mut self, now_ns: u64) {
        self.doubt(now_ns.saturating_add(DOUBT_NS));
    }

    fn doubt(&mut self, until_ns: u64) {
        for thing in &self.things {
            let mut slot = self.memory.slot_of(thing);
            slot.doubtful_until_ns = slot.doubtful_until_ns.max(until_ns);
        }
        self.end(None);
        for thing in &self.things {
            if let Thing::Name(parent, _) = thing {
                self.memory.forget_whole(*parent);
            }
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if !self.is_over {
            self.doubt(u64::MAX);
        }
    }
}

#[cfg(test)]
#[path = "metadata_cache_tests.rs"]
mod tests;
