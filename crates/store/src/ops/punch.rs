//! PunchObject: a range of an object reads as zeros, and its storage is free again. The length stays.

use crate::object::attempts::Terms;
use crate::object::names::{self, Part};
use crate::object::sidecar::{ENTRY_BYTES, entry_at};
use crate::object::sums;
use crate::object::{Body, Files, Mode, Stop, blocks, internal};
use crate::targets::Target;
use crate::targets::epochs::Pass;
use std::io;
use std::ops::Range;
use vazao_meter::Cause;
use vazao_model::ObjectId;
use vazao_model::checksum::crc32c;
use vazao_model::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What punching changes in a sidecar: entries of whole blocks become those of zeros, one at each end is recomputed.
struct NewEntries {
    first: u64,
    bytes: Vec<u8>,
}

impl Target {
    /// Makes `length` bytes at `offset` zeros, as far as the object reaches; one that is missing stays so, unless it
    /// must exist.
    pub(crate) fn punch(&self, id: ObjectId, offset: u64, length: u64, terms: Terms) -> Result<(), Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let mut body = object.write(self);
        self.admit(id, terms)?;
        self.open_chunks(id, &mut body, 0..=0)?;
        self.demand(id, &body, terms.must_exist)?;
        let end = offset.saturating_add(length).min(body.length);
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset / self.chunk_bytes, (end - 1) / self.chunk_bytes);
        let chunks: Vec<u64> = body.chunks.range(first..=last).map(|(index, _)| *index).collect();
        for chunk in chunks {
            self.open_chunks(id, &mut body, chunk..=chunk)?;
            let start = chunk * self.chunk_bytes;
            let range = offset.saturating_sub(start)..(end - start).min(self.chunk_bytes);
            let pass = self.enter()?;
            self.punch_chunk(id, &mut body, chunk, range, &pass)?;
            body.trim();
        }
        Ok(())
    }

    /// `range`: bytes of the chunk.
    fn punch_chunk(
        &self,
        id: ObjectId,
        body: &mut Body,
        chunk: u64,
        range: Range<u64>,
        pass: &Pass<'_>,
    ) -> Result<(), Stop> {
        let closed = || Stop::from(internal("a chunk that is not open is punched"));
        let length = body.files(chunk).ok_or_else(closed)?.length;
        let range = range.start..range.end.min(length);
        if range.is_empty() {
            return Ok(());
        }
        self.mark(id, body, chunk, range.clone(), pass, Mode::Blocking)?;
        let state = body.chunks.get_mut(&chunk).ok_or_else(closed)?;
        *state.dirty.get_mut() = true;
        let files = state.files.as_ref().ok_or_else(closed)?;
        let entries = self.punched_entries(id, chunk, files, &range)?;
        let punched = self.timed(Cause::Disk, || punch_files(files, &range, &entries));
        if let Err(error) = punched {
            let fault = self.write_fault(&names::path(id, chunk, Part::Data), &error);
            self.mend(id, chunk, files, entries.first..blocks(range.end));
            body.forget();
            return Err(fault.into());
        }
        Ok(())
    }

    fn punched_entries(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &Files,
        range: &Range<u64>,
    ) -> Result<NewEntries, Stop> {
        let first = range.start / BLOCK;
        let count = blocks(range.end) - first;
        let mut bytes = vec![0; (count * ENTRY_BYTES) as usize];
        for block in [first, first + count - 1] {
            let block_end = ((block + 1) * BLOCK).min(files.length);
            let gone = range.start.max(block * BLOCK)..range.end.min(block_end);
            if gone.start == block * BLOCK && gone.end == block_end {
                continue;
            }
            let entry = self.entry_without(id, chunk, files, block, gone)?;
            let at = ((block - first) * ENTRY_BYTES) as usize;
            bytes[at..at + ENTRY_BYTES as usize].copy_from_slice(&entry);
        }
        Ok(NewEntries { first, bytes })
    }

    /// The entry of a block of which the bytes `gone` (of the chunk) become zeros and others stay.
    fn entry_without(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &Files,
        block: u64,
        gone: Range<u64>,
    ) -> Result<[u8; ENTRY_BYTES as usize], Stop> {
        let mut old = vec![0; (gone.end - gone.start) as usize];
        self.read_file(id, chunk, Part::Data, files, &mut old, gone.start, Mode::Blocking)?;
        let mut entry = [0; ENTRY_BYTES as usize];
        self.read_file(id, chunk, Part::Sums, files, &mut entry, entry_at(block), Mode::Blocking)?;
        let start = (gone.start % BLOCK) as usize;
        let change = sums::replaced(crc32c(&old), sums::zeros(old.len()), start, old.len());
        Ok((u32::from_le_bytes(entry) ^ change).to_le_bytes())
    }
}

/// The sidecar may be shorter than the entries: what it does not hold counts as zeros, and it must not become longer
/// than the data's blocks, which it does not.
fn punch_files(files: &Files, range: &Range<u64>, entries: &NewEntries) -> io::Result<()> {
    files.sums.write_at(&entries.bytes, entry_at(entries.first))?;
    files.data.punch_hole(range.start, range.end - range.start)
}
