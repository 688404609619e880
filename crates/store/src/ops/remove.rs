//! RemoveObjects: all files of objects whose file is gone. Done again it does nothing; what the primary of a placement
//! group has given up since does nothing, either, as the same object may have been made again.

use crate::fan_out::Asked;
use crate::object::attempts::Passed;
use crate::object::names::{self, Bucket, Part};
use crate::object::sidecar::{Found, Header};
use crate::object::{Mode, Stop};
use crate::targets::Target;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use vazao_disk::Open;
use vazao_model::{Code, ObjectId};
use vazao_wire::service::Fault;

impl Target {
    /// Removes objects and makes that durable. Returns how many there were.
    pub(crate) fn remove(&self, objects: &[Asked]) -> Result<u64, Stop> {
        let (mut removed, mut buried) = (0, false);
        let mut buckets = BTreeSet::new();
        for &(id, passed) in objects {
            self.check()?;
            if self.remove_object(id, passed)? {
                removed += 1;
                buckets.insert(Bucket::of(id));
            }
            buried |= self.bury(id);
        }
        // Only now may the requester forget about them.
        for bucket in buckets {
            self.sync_directory(bucket)?;
        }
        if buried {
            self.store_freezes()?;
        }
        Ok(removed)
    }

    fn remove_object(&self, id: ObjectId, passed: Option<Passed>) -> Result<bool, Stop> {
        let object = self.cache.get(id);
        let blocking = object.begin(Mode::Blocking)?;
        let mut body = object.write(self);
        passed.map_or(Ok(()), |passed| self.check_passed(passed))?;
        let is_again = self.freezes.is_going(id);
        let chunks: Vec<u64> = match body.known && !is_again {
            true => body.chunks.keys().copied().collect(),
            false => self.chunks_to_remove(id)?,
        };
        let mut existed = false;
        if chunks.len() > 1 {
            self.hide(id)?;
        }
        if !chunks.is_empty() {
            let _pass = self.enter_to_remove()?;
            body.forget();
            // Chunk 0 goes last: while it is there, the others are found.
            for &chunk in chunks.iter().rev() {
                existed |= self.remove_chunk(id, chunk)?;
            }
        }
        body.forget();
        body.known = true;
        self.damage.forget(id);
        self.restores.end_object(id);
        drop(body);
        drop(blocking);
        self.cache.release(object);
        self.end_fetching(id)?;
        Ok(existed)
    }

    /// Removes the files of an object of which a chunk cannot be used, to make it anew. It is unfinished before any of
    /// them is gone, also for the next process. Errors: the chunk can be used; no member counts any more that has the
    /// object, as `is_elsewhere` says, and it may have been changed here alone.
    pub(crate) fn let_go(
        &self,
        id: ObjectId,
        chunk: u64,
        is_elsewhere: &dyn Fn() -> bool,
    ) -> Result<(), Stop> {
        let was_unfinished = self.restores.check_finished(id).is_err();
        self.begin_object(id)?;
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let mut body = object.write(self);
        let opened = self.open_chunks(id, &mut body, chunk..=chunk);
        let is_unusable = opened.as_ref().is_err_and(|fault| fault.code == Code::Corrupt);
        let begun = match is_unusable && is_elsewhere() {
            true => self.chunks_to_remove(id).and_then(|chunks| Ok((chunks, self.enter_to_remove()?))),
            false => opened
                .and_then(|()| Err(Fault::new(Code::Unavailable, format!("object {id} can be used by now")))),
        };
        let (chunks, _pass) = begun.inspect_err(|_| {
            if !was_unfinished {
                self.restores.end_object(id);
            }
        })?;
        body.forget();
        self.damage.forget(id);
        self.note_missing(id);
        for &chunk in chunks.iter().rev() {
            if chunk == 0 && chunks.len() > 1 {
                // While it is there, the others are found.
                self.sync_directory(Bucket::of(id))?;
            }
            self.remove_chunk(id, chunk)?;
        }
        tracing::warn!(target_id = self.id().0, object = %id, chunk, "an object that cannot be used is made anew");
        Ok(self.sync_directory(Bucket::of(id))?)
    }

    /// The chunks of an object that may be in any condition, in ascending order.
    fn chunks_to_remove(&self, id: ObjectId) -> Result<Vec<u64>, Fault> {
        let path = names::path(id, 0, Part::Sums);
        let header = self.disk.open(&path, Open::ReadOnly).and_then(|file| Header::read(&*file));
        match header {
            Ok(Found::Valid(header)) if header.last_chunk == 0 => return Ok(vec![0]),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let data = self.disk.open(&names::path(id, 0, Part::Data), Open::ReadOnly);
                if data.is_err_and(|e| e.kind() == ErrorKind::NotFound) {
                    return Ok(Vec::new());
                }
            }
            _ => {}
        }
        let mut chunks = self.list_chunks(id)?;
        if chunks.first() != Some(&0) {
            chunks.insert(0, 0);
        }
        Ok(chunks)
    }
}
