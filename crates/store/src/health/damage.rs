//! Damage that was found on a target and is still there: what `vazao status` counts, and what is repaired from another
//! copy where there is one.
//!
//! It is kept in memory. A place leaves the list when its object is removed, or when a later look finds it sound, as
//! after it was written anew. A target that is started again counts from nothing, and finds the damage when it is read.

use crate::object::names::{self, Part};
use crate::object::{Mode, Stop};
use crate::targets::Target;
use parking_lot::{Mutex, MutexGuard};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, GroupId, ObjectId};
use vazao_wire::service::Fault;

/// Places kept. Beyond this many the disk is not to be trusted anyway, and the count says at least so.
const PLACES_MAX: usize = 4096;

/// Places looked at again in a tick: at most this many blocks are read.
const LOOKS_PER_TICK: usize = 8;

/// A place that could not be repaired from another copy is tried again after this time, then after twice as long, and
/// so on up to this.
const AGAIN_NS: u64 = 1_000_000_000;
const AGAIN_NS_MAX: u64 = 64 * AGAIN_NS;

/// Where no other member could be asked: they agree on an epoch soon, or connect.
const BRIEFLY_NS: u64 = 100_000_000;
const BRIEFLY_NS_MAX: u64 = 2_000_000_000;

/// What to do, where no other copy is good.
pub(crate) const REMEDY: &str = "; restore the file from a copy";

/// What is damaged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// The whole object is not there.
    Missing,
    /// A file of a chunk cannot be used at all.
    Chunk(u64),
    /// A block (of the object) does not match its checksum.
    Block(u64),
}

/// The damage of a target.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    places: BTreeMap<(ObjectId, Place), Tries>,
    /// The place looked at last.
    looked_at: Option<(ObjectId, Place)>,
    /// The place that was last tried to be repaired.
    tried: Option<(ObjectId, Place)>,
}

/// How often a place could not be repaired.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    failed: u32,
    not_before_ns: u64,
}

/// How much of it there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DamageCounts {
    /// Blocks, and chunks of which nothing can be read.
    pub(crate) corrupt_blocks: u64,
    /// Objects.
    pub(crate) missing_objects: u64,
}

impl Damage {
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock()
    }

    /// What is known of as a process starts.
    pub(crate) fn begun(missing: &[ObjectId]) -> Damage {
        let damage = Damage::default();
        missing.iter().for_each(|object| _ = damage.add(*object, Place::Missing));
        damage
    }

    /// Notes a place. True when it was not known.
    pub(crate) fn add(&self, object: ObjectId, place: Place) -> bool {
        let mut found = self.lock();
        if found.places.len() >= PLACES_MAX {
            return false;
        }
        match found.places.entry((object, place)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(Tries::default());
                true
            }
        }
    }

    /// Forgets what was noted of an object that is no more.
    pub(crate) fn forget(&self, object: ObjectId) {
        let mut found = self.lock();
        if !found.places.is_empty() {
            found.places.retain(|(of, _), _| *of != object);
        }
    }

    /// The groups of objects that are missing.
    pub(crate) fn groups_with_missing(&self) -> BTreeSet<GroupId> {
        let found = self.lock();
        let missing = found.places.keys().filter(|(_, place)| *place == Place::Missing);
        missing.map(|(object, _)| object.group).collect()
    }

    /// A place is damaged no more.
    pub(crate) fn remove(&self, key: (ObjectId, Place)) {
        self.lock().places.remove(&key);
    }

    /// The next place that is to be repaired from another copy, of those that may.
    pub(crate) fn next_to_repair(
        &self,
        now_ns: u64,
        may_be_repaired: impl Fn(ObjectId, Place) -> bool,
    ) -> Option<(ObjectId, Place)> {
        let mut found = self.lock();
        if found.places.is_empty() {
            return None;
        }
        let is_due = |((object, place), tries): &(&(ObjectId, Place), &Tries)| {
            tries.not_before_ns <= now_ns && may_be_repaired(*object, *place)
        };
        let after = found.tried.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = found.places.range((after, Bound::Unbounded));
        let next = later.find(is_due).or_else(|| found.places.iter().find(is_due)).map(|(key, _)| *key);
        found.tried = next.or(found.tried);
        next
    }

    /// A place could not be repaired, as no member that may have it could be asked.
    pub(crate) fn put_off_briefly(&self, key: (ObjectId, Place), now_ns: u64) {
        if let Some(tries) = self.lock().places.get_mut(&key) {
            let wait_ns = (BRIEFLY_NS << tries.failed.min(8)).min(BRIEFLY_NS_MAX);
            *tries = Tries { failed: tries.failed + 1, not_before_ns: now_ns.saturating_add(wait_ns) };
        }
    }

    /// A place could not be repaired now.
    pub(crate) fn put_off(&self, key: (ObjectId, Place), now_ns: u64) {
        if let Some(tries) = self.lock().places.get_mut(&key) {
            let wait_ns = AGAIN_NS.saturating_mul(1 << tries.failed.min(16)).min(AGAIN_NS_MAX);
            *tries = Tries { failed: tries.failed + 1, not_before_ns: now_ns.saturating_add(wait_ns) };
        }
    }

    /// What is known now.
    pub(crate) fn counts(&self) -> DamageCounts {
        let found = self.lock();
        let missing = found.places.keys().filter(|(_, place)| *place == Place::Missing).count() as u64;
        DamageCounts { corrupt_blocks: found.places.len() as u64 - missing, missing_objects: missing }
    }

    /// The next place to look at again; `None` when there is none after the last one.
    fn next(&self) -> Option<(ObjectId, Place)> {
        let mut found = self.lock();
        let after = found.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        found.looked_at = found.places.range((after, Bound::Unbounded)).next().map(|(key, _)| *key);
        found.looked_at
    }
}

impl Target {
    /// Looks at some of the known damage again.
    pub(crate) fn review_damage(&self) {
        for _ in 0..LOOKS_PER_TICK {
            let Some((object, place)) = self.damage.next() else { return };
            if let Ok(false) = self.is_damaged(object, place) {
                self.damage.remove((object, place));
                tracing::info!(target_id = self.id().0, %object, ?place, "damage found earlier is no more");
            }
        }
    }

    /// Notes what a reader says it found, once it has been seen here too.
    pub(crate) fn note_reported(&self, object: ObjectId, place: Place) -> Result<bool, Stop> {
        let is_damaged = self.is_damaged(object, place)?;
        if is_damaged && place == Place::Missing {
            self.note_missing(object);
        }
        Ok(is_damaged)
    }

    /// Notes that an object is missing here.
    pub(crate) fn note_missing(&self, object: ObjectId) {
        if self.damage.add(object, Place::Missing) {
            tracing::error!(target_id = self.id().0, %object, "an object that a file has bytes in is missing");
        }
    }

    /// Whether an object is missing here, or not whole, or will not be found by the next process.
    pub(crate) fn is_missing(&self, id: ObjectId) -> Result<bool, Stop> {
        let is_unnamed = || self.cache.find(id).is_some_and(|object| object.is_unnamed());
        Ok(!self.extent(id)?.0 || is_unnamed() || self.restores.check_finished(id).is_err())
    }

    /// Whether a place is damaged at present. Errors: it cannot be told.
    pub(crate) fn is_damaged(&self, id: ObjectId, place: Place) -> Result<bool, Stop> {
        let looked = match place {
            Place::Missing => return self.is_missing(id),
            Place::Chunk(chunk) => {
                let object = self.cache.get(id);
                let _blocking = object.begin(Mode::Blocking)?;
                self.open_to_read(&object, chunk..=chunk, Mode::Blocking).map(drop)
            }
            Place::Block(block) => {
                // A part of a block is verified before it is answered.
                let offset = block.saturating_mul(BLOCK_BYTES as u64);
                self.read(id, offset, 1, Mode::Blocking, &mut |_, _, _| true)
            }
        };
        match looked {
            Ok(()) => Ok(false),
            Err(Stop::Fault(fault)) if fault.code == Code::Corrupt => Ok(true),
            Err(stop) => Err(stop),
        }
    }

    /// A file of a chunk that cannot be used.
    pub(crate) fn corrupt(&self, object: ObjectId, chunk: u64, part: Part, what: &str) -> Fault {
        self.note_corrupt(object, Place::Chunk(chunk), &names::path(object, chunk, part), what)
    }

    /// A block of a chunk whose bytes do not match.
    pub(crate) fn corrupt_block(&self, object: ObjectId, chunk: u64, block: u64) -> Fault {
        let blocks_before = chunk.saturating_mul(self.chunk_bytes / BLOCK_BYTES as u64);
        let place = Place::Block(blocks_before.saturating_add(block));
        let path = names::path(object, chunk, Part::Data);
        self.note_corrupt(object, place, &path, &format!("block {block} does not match its checksum"))
    }

    fn note_corrupt(&self, object: ObjectId, place: Place, path: &str, what: &str) -> Fault {
        let detail = format!("{self}, object {object}, file {path}: {what}{REMEDY}");
        if self.damage.add(object, place) {
            tracing::error!(%detail, "corruption found");
        }
        Fault::new(Code::Corrupt, detail)
    }
}
