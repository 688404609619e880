//! Objects in use, and how many files they may keep open.

use crate::object::Object;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vazao_model::{GroupId, ObjectId};

/// The objects of one target that have been used lately. There is never more than one [`Object`] of one id, so its
/// lock is the lock of the object.
pub(crate) struct Cache {
    objects: RwLock<HashMap<ObjectId, Arc<Object>>>,
    uses: AtomicU64,
    open_chunks: Arc<AtomicUsize>,
    open_chunks_max: usize,
}

/// Counts one open pair of files for as long as it lives.
pub(crate) struct OpenChunk(Arc<AtomicUsize>);

impl Drop for OpenChunk {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Cache {
    /// A cache that keeps about `open_chunks_max` pairs of files open.
    pub(crate) fn new(open_chunks_max: usize) -> Cache {
        let open_chunks = Arc::new(AtomicUsize::new(0));
        Cache { objects: RwLock::default(), uses: AtomicU64::new(0), open_chunks, open_chunks_max }
    }

    /// The object with this id, which may not exist on disk.
    pub(crate) fn get(&self, id: ObjectId) -> Arc<Object> {
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        if let Some(object) = self.objects.read().get(&id) {
            object.last_use.store(now, Ordering::Relaxed);
            return Arc::clone(object);
        }
        self.trim(1);
        let mut objects = self.objects.write();
        let object = objects.entry(id).or_insert_with(|| Arc::new(Object::new(id)));
        object.last_use.store(now, Ordering::Relaxed);
        Arc::clone(object)
    }

    /// The object with this id, where it is known here. Nothing is closed for it.
    pub(crate) fn find(&self, id: ObjectId) -> Option<Arc<Object>> {
        let objects = self.objects.read();
        let object = objects.get(&id)?;
        object.last_use.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(object))
    }

    /// Those of a placement group of which a file was seen to have lost its name.
    pub(crate) fn unnamed(&self, group: GroupId) -> Vec<Arc<Object>> {
        let objects = self.objects.read();
        objects.values().filter(|object| object.id.group == group && object.is_unnamed()).cloned().collect()
    }

    /// Evicts an object that only the caller holds: one that has been removed and will not come back.
    pub(crate) fn release(&self, object: Arc<Object>) {
        let mut objects = self.objects.write();
        if Arc::strong_count(&object) == 2 {
            objects.remove(&object.id);
        }
    }

    /// Counts a pair of files that is about to be opened.
    pub(crate) fn open_chunk(&self) -> OpenChunk {
        self.trim(0);
        self.open_chunks.fetch_add(1, Ordering::Relaxed);
        OpenChunk(Arc::clone(&self.open_chunks))
    }

    /// Pairs of files open now.
    pub(crate) fn open_chunks(&self) -> usize {
        self.open_chunks.load(Ordering::Relaxed)
    }

    /// Forgets the eighth of the objects that has not been used for longest, when there are too many. An object that
    /// is in use stays: a second one of its id would have a lock of its own.
    fn trim(&self, wanted: usize) {
        let mut objects = self.objects.write();
        if objects.len() + wanted <= self.open_chunks_max && self.open_chunks() < self.open_chunks_max {
            return;
        }
        let mut idle: Vec<(u64, ObjectId)> = objects
            .iter()
            .filter(|(_, object)| Arc::strong_count(object) == 1)
            .map(|(id, object)| (object.last_use.load(Ordering::Relaxed), *id))
            .collect();
        idle.sort_unstable();
        let count = (self.open_chunks_max / 8).max(1).min(idle.len());
        let forgotten: Vec<_> = idle[..count].iter().filter_map(|(_, id)| objects.remove(id)).collect();
        drop(objects);
        // Closing files takes time that others need not wait for.
        drop(forgotten);
    }
}
