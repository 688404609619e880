//! TruncateObject: cuts an object. It never grows one: a file's length is the metadata's business.

use crate::object::attempts::Terms;
use crate::object::names::{self, Bucket, Part};
use crate::object::sidecar::{ENTRY_BYTES, entry_at};
use crate::object::sums;
use crate::object::{Body, Files, Mode, Stop, blocks, internal, sums_length};
use crate::targets::Target;
use crate::targets::epochs::Pass;
use std::io;
use vazao_meter::Cause;
use vazao_model::ObjectId;
use vazao_model::checksum::crc32c;
use vazao_model::limits::BLOCK_BYTES;
use vazao_wire::service::Fault;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Target {
    /// Cuts an object to `length`; one that is shorter stays as it is, and so does a missing one unless it must exist.
    pub(crate) fn truncate(&self, id: ObjectId, length: u64, terms: Terms) -> Result<(), Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let mut body = object.write(self);
        self.admit(id, terms)?;
        let last = length.saturating_sub(1) / self.chunk_bytes;
        let tail = length - last * self.chunk_bytes;
        self.open_chunks(id, &mut body, last..=last)?;
        self.demand(id, &body, terms.must_exist)?;
        if !body.exists() || length >= body.length {
            return Ok(());
        }
        self.open_chunks(id, &mut body, 0..=0)?;
        let pass = self.enter()?;
        // Whatever fails half-way: the next one looks at the disk again.
        let cut = self.cut(id, &mut body, last, tail, &pass);
        match cut {
            Ok(()) => body.length = length,
            Err(_) => body.forget(),
        }
        body.trim();
        cut
    }

    fn cut(&self, id: ObjectId, body: &mut Body, last: u64, tail: u64, pass: &Pass<'_>) -> Result<(), Stop> {
        let beyond: Vec<u64> = body.chunks.range(last + 1..).map(|(index, _)| *index).collect();
        if !beyond.is_empty() {
            self.settle_end(id, body, last, tail, pass)?;
        }
        for &index in beyond.iter().rev() {
            body.chunks.remove(&index);
            self.remove_chunk(id, index)?;
        }
        if !beyond.is_empty() {
            // At once, because no mark would tell a later sync of the object that names have changed.
            self.sync_directory(Bucket::of(id))?;
        }
        let closed = || Stop::from(internal("a chunk that is not open is cut"));
        let old_length = body.files(last).ok_or_else(closed)?.length;
        self.mark(id, body, last, tail..old_length, pass, Mode::Blocking)?;
        let chunk = body.chunks.get_mut(&last).ok_or_else(closed)?;
        *chunk.dirty.get_mut() = true;
        let files = chunk.files.as_mut().ok_or_else(closed)?;
        let entry = self.tail_entry(id, last, files, tail)?;
        if let Err(error) = self.timed(Cause::Disk, || cut_files(files, tail, entry)) {
            let fault = self.write_fault(&names::path(id, last, Part::Data), &error);
            self.mend(id, last, files, tail / BLOCK..blocks(old_length));
            return Err(fault.into());
        }
        files.length = tail;
        Ok(())
    }

    /// Makes the chunk that is to carry the object's length at least so long, durably: once the chunks beyond it are
    /// gone, nothing else says how long the object was.
    fn settle_end(
        &self,
        id: ObjectId,
        body: &mut Body,
        last: u64,
        tail: u64,
        pass: &Pass<'_>,
    ) -> Result<(), Stop> {
        if !body.chunks.contains_key(&last) {
            self.create_chunk(id, body, last, pass)?;
        }
        let Some(chunk) = body.chunks.get_mut(&last) else { return Ok(()) };
        let Some(files) = chunk.files.as_mut() else { return Ok(()) };
        let path = names::path(id, last, Part::Data);
        if files.length < tail {
            files.data.set_length(tail).map_err(|e| self.write_fault(&path, &e))?;
            files.length = tail;
        }
        self.timed(Cause::Disk, || files.data.sync()).map_err(|e| self.sync_fault(&path, &e))?;
        if *body.names_dirty.get_mut() {
            self.sync_directory(Bucket::of(id))?;
        }
        Ok(())
    }

    /// The entry of the block that the new end lies in, when bytes of it are cut off.
    fn tail_entry(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &Files,
        tail: u64,
    ) -> Result<Option<[u8; ENTRY_BYTES as usize]>, Stop> {
        let block_end = tail.next_multiple_of(BLOCK).min(files.length);
        if block_end <= tail {
            return Ok(None);
        }
        let mut removed = vec![0; (block_end - tail) as usize];
        self.read_file(id, chunk, Part::Data, files, &mut removed, tail, Mode::Blocking)?;
        let mut entry = [0; ENTRY_BYTES as usize];
        self.read_file(id, chunk, Part::Sums, files, &mut entry, entry_at(tail / BLOCK), Mode::Blocking)?;
        let (start, length) = ((tail % BLOCK) as usize, removed.len());
        let change = sums::replaced(crc32c(&removed), sums::zeros(length), start, length);
        Ok(Some((u32::from_le_bytes(entry) ^ change).to_le_bytes()))
    }

    /// Removes the files of a chunk; those that are gone already are no error. True when there was data.
    pub(crate) fn remove_chunk(&self, id: ObjectId, chunk: u64) -> Result<bool, Fault> {
        let mut existed = false;
        for part in [Part::Data, Part::Sums] {
            let path = names::path(id, chunk, part);
            match self.timed(Cause::Disk, || self.disk.remove(&path)) {
                Ok(()) => existed |= part == Part::Data,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.write_fault(&path, &error)),
            }
        }
        Ok(existed)
    }
}

fn cut_files(files: &Files, tail: u64, entry: Option<[u8; ENTRY_BYTES as usize]>) -> io::Result<()> {
    if let Some(entry) = entry {
        files.sums.write_at(&entry, entry_at(tail / BLOCK))?;
    }
    if files.sums.length()? > sums_length(tail) {
        files.sums.set_length(sums_length(tail))?;
    }
    files.data.set_length(tail)
}
