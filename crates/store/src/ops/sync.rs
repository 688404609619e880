//! SyncObjects: what was written to objects survives power loss from here on.
//!
//! Only the data is synced, not the sidecar: until the next checkpoint its entries can be computed again from the data,
//! because the regions are marked (docs/on-disk.md). That halves what an fsync costs.

use crate::object::names::{self, Bucket, Part};
use crate::object::{Mode, Object, Stop, internal};
use crate::targets::Target;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_disk::DiskFile;
use vazao_meter::Cause;
use vazao_model::ObjectId;

impl Target {
    /// Syncs one object. False when it is missing, which is no error here: most likely it was removed, and whether the
    /// file should have it the metadata service knows.
    pub(crate) fn sync(&self, id: ObjectId) -> Result<bool, Stop> {
        self.check()?;
        let object = self.cache.get(id);
        let _syncing = object.syncing.lock();
        let body = self.open_to_read(&object, 0..=0, Mode::Blocking)?;
        let is_dirty = |chunk: &crate::object::Chunk| chunk.dirty.load(Ordering::Acquire);
        let chunks: Vec<u64> = body.chunks.iter().filter(|(_, c)| is_dirty(c)).map(|(i, _)| *i).collect();
        drop(body);
        for index in chunks {
            self.sync_chunk(&object, index)?;
        }
        let body = self.open_to_read(&object, 0..=0, Mode::Blocking)?;
        let exists = body.exists();
        let names_changed = body.names_dirty.swap(false, Ordering::AcqRel);
        drop(body);
        if names_changed && let Err(fault) = self.sync_directory(Bucket::of(id)) {
            object.read(self).names_dirty.store(true, Ordering::Release);
            return Err(fault.into());
        }
        self.check_place()?;
        Ok(exists)
    }

    /// Syncs one chunk where it was written to. After an error it counts as not synced, so that the next sync of the
    /// object does not succeed without it.
    fn sync_chunk(&self, object: &Object, index: u64) -> Result<(), Stop> {
        let body = self.open_to_read(object, index..=index, Mode::Blocking)?;
        // A chunk may have been cut off meanwhile.
        let Some(chunk) = body.chunks.get(&index) else { return Ok(()) };
        if !chunk.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let data = chunk.files.as_ref().map(|files| Arc::clone(&files.data));
        drop(body);
        let synced = match data {
            Some(data) => self.sync_data(object, index, &data),
            None => Err(internal("a chunk that is not open is synced").into()),
        };
        if synced.is_err()
            && let Some(chunk) = object.read(self).chunks.get(&index)
        {
            chunk.dirty.store(true, Ordering::Release);
        }
        synced
    }

    fn sync_data(&self, object: &Object, index: u64, data: &Arc<dyn DiskFile>) -> Result<(), Stop> {
        let id = object.id;
        let synced = self.timed(Cause::Disk, || data.sync());
        synced.map_err(|e| self.sync_fault(&names::path(id, index, Part::Data), &e))?;
        let body = self.open_to_read(object, index..=index, Mode::Blocking)?;
        let now = body.chunks.get(&index).and_then(|chunk| chunk.files.as_ref());
        if now.is_some_and(|now| Arc::ptr_eq(&now.data, data)) {
            // Removed by a request, or removed and made anew, it would not be this one. A sync succeeds also for a
            // file that has lost its name.
            self.check_named(object, index, &**data)?;
        }
        Ok(())
    }
}
