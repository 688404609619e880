//! SyncObjects: what was written to objects survives power loss from here on.
//!
//! Only the data is synced, not the sidecar: until the next checkpoint its entries can be computed again from the data,
//! because the regions are marked (docs/on-disk.md). That halves what an fsync costs.

use crate::names::{self, Bucket, Part};
use crate::object::{Mode, Stop, internal};
use crate::target::Target;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use vazao_meter::Cause;
use vazao_model::ObjectId;

impl Target {
    /// Syncs one object. One that is missing is no error: it was removed.
    pub(crate) fn sync(&self, id: ObjectId) -> Result<(), Stop> {
        self.check()?;
        let object = self.cache.get(id);
        let _syncing = object.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let body = self.open_to_read(&object, 0..=0, Mode::Blocking)?;
        let is_dirty = |chunk: &crate::object::Chunk| chunk.dirty.load(Ordering::Acquire);
        let chunks: Vec<u64> = body.chunks.iter().filter(|(_, c)| is_dirty(c)).map(|(i, _)| *i).collect();
        drop(body);
        for index in chunks {
            let body = self.open_to_read(&object, index..=index, Mode::Blocking)?;
            // A chunk may have been cut off meanwhile.
            let Some(chunk) = body.chunks.get(&index) else { continue };
            if !chunk.dirty.swap(false, Ordering::AcqRel) {
                continue;
            }
            let files = chunk.files.as_ref().ok_or_else(|| internal("a chunk that is not open is synced"))?;
            let data = Arc::clone(&files.data);
            drop(body);
            let synced = self.timed(Cause::Disk, || data.sync());
            synced.map_err(|e| self.sync_fault(&names::path(id, index, Part::Data), &e))?;
        }
        let body = self.open_to_read(&object, 0..=0, Mode::Blocking)?;
        let names_changed = body.names_dirty.swap(false, Ordering::AcqRel);
        drop(body);
        if names_changed {
            self.sync_directory(Bucket::of(id))?;
        }
        Ok(())
    }
}
