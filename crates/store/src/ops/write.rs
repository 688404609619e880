//! Write: bytes into an object, with the checksums that the writer computed over its own memory.

use crate::object::attempts::Terms;
use crate::object::names::{self, Part};
use crate::object::sidecar::{ENTRY_BYTES, entry_at};
use crate::object::sums;
use crate::object::{Body, Files, Mode, Stop, blocks, internal};
use crate::ops::{Segment, check_range, segments};
use crate::targets::Target;
use crate::targets::epochs::Pass;
use crate::targets::space::Taken;
use std::cell::RefCell;
use vazao_meter::Cause;
use vazao_model::checksum::{crc32c, first_mismatch, piece_count, piece_lengths};
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, BLOCK_BYTES};
use vazao_model::{Code, ObjectId};
use vazao_wire::service::Fault;

/// Entries that one write can change.
const ENTRIES_MAX: usize = ATTACHMENT_BYTES_MAX / BLOCK_BYTES + 1;

/// What a new object costs beyond its bytes: two inodes and their first blocks.
const NEW_OBJECT_BYTES: u64 = 12 * 1024;

/// A page of the kernel's cache, below which a write may have to read first.
const PAGE_BYTES: u64 = 4096;

thread_local! {
    static OLD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Refuses bytes that are not what the writer sent, and lengths beyond the limits.
pub(crate) fn check(
    target: &Target,
    id: ObjectId,
    offset: u64,
    checksums: &[u32],
    bytes: &[u8],
) -> Result<(), Fault> {
    check_range(id, offset, bytes.len() as u64)?;
    if bytes.len() > ATTACHMENT_BYTES_MAX {
        return Err(Fault::new(Code::BadRequest, format!("a write of {} bytes", bytes.len())));
    }
    if checksums.len() != piece_count(offset, bytes.len()) {
        let detail = format!("{} checksums for {} bytes at {offset}", checksums.len(), bytes.len());
        return Err(Fault::new(Code::BadRequest, detail));
    }
    match target.timed(Cause::Compute, || first_mismatch(offset, bytes, checksums)) {
        None => Ok(()),
        // Sent again it may arrive whole, which is what this code asks for.
        Some(piece) => {
            let detail = format!("{target}, object {id}: piece {piece} was damaged in transit");
            Err(Fault::new(Code::Disconnected, detail))
        }
    }
}

impl Target {
    /// Writes checked bytes. Returns the length of the object.
    pub(crate) fn write(
        &self,
        id: ObjectId,
        offset: u64,
        checksums: &[u32],
        bytes: &[u8],
        mode: Mode,
        terms: Terms,
    ) -> Result<u64, Stop> {
        let object = self.object(id, mode)?;
        let _blocking = object.begin(mode)?;
        let mut body = object.write_as(self, mode)?;
        self.admit(id, terms)?;
        let end = offset + bytes.len() as u64;
        let range = offset / self.chunk_bytes..=end.saturating_sub(1).max(offset) / self.chunk_bytes;
        if mode == Mode::Blocking {
            self.open_chunks(id, &mut body, range.clone())?;
            if !body.chunks.contains_key(range.end()) {
                self.open_chunks(id, &mut body, 0..=0)?;
            }
        } else if range.start() != range.end() || body.files(*range.start()).is_none() {
            return Err(Stop::Wait);
        }
        self.demand(id, &body, terms.must_exist)?;
        if bytes.is_empty() && body.exists() {
            return Ok(body.length);
        }
        self.check_marked()?;
        let _room = self.take_room(&body, end, bytes.len() as u64, mode)?;
        let pass = match mode {
            Mode::Fast => self.epochs.try_enter().ok_or(Stop::Wait)?,
            Mode::Blocking => self.enter()?,
        };
        self.write_segments(id, &mut body, offset, checksums, bytes, &pass, mode)?;
        if !bytes.is_empty() {
            body.length = body.length.max(end);
        }
        if mode == Mode::Blocking {
            body.trim();
        }
        Ok(body.length)
    }

    /// Growth stops before the disk is full. What an object already has room for goes on to the disk.
    fn take_room(&self, body: &Body, end: u64, length: u64, mode: Mode) -> Result<Option<Taken<'_>>, Stop> {
        if end <= body.length && body.exists() {
            return Ok(None);
        }
        let wanted = length + if body.exists() { 0 } else { NEW_OBJECT_BYTES };
        if mode == Mode::Fast {
            // Otherwise the disk has to be asked.
            return self.room.try_take(wanted).map(Some).ok_or(Stop::Wait);
        }
        match self.room.take(&*self.disk, wanted) {
            Ok(None) => Err(self.no_space().into()),
            Ok(taken) => Ok(taken),
            Err(error) => Err(self.read_fault("", &error).into()),
        }
    }

    fn write_segments(
        &self,
        id: ObjectId,
        body: &mut Body,
        offset: u64,
        checksums: &[u32],
        bytes: &[u8],
        pass: &Pass<'_>,
        mode: Mode,
    ) -> Result<(), Stop> {
        if bytes.is_empty() {
            return Ok(self.create_chunk(id, body, 0, pass)?);
        }
        let (mut bytes, mut checksums) = (bytes, checksums);
        for segment in segments(offset, bytes.len(), self.chunk_bytes) {
            let (now, later) = bytes.split_at(segment.length);
            let (sums_now, sums_later) = checksums.split_at(piece_count(segment.offset, segment.length));
            self.write_segment(id, body, segment, sums_now, now, pass, mode)?;
            (bytes, checksums) = (later, sums_later);
        }
        Ok(())
    }

    pub(crate) fn write_segment(
        &self,
        id: ObjectId,
        body: &mut Body,
        segment: Segment,
        checksums: &[u32],
        bytes: &[u8],
        pass: &Pass<'_>,
        mode: Mode,
    ) -> Result<(), Stop> {
        let Segment { chunk, offset, length } = segment;
        let end = offset + length as u64;
        if !body.chunks.contains_key(&chunk) {
            self.create_chunk(id, body, chunk, pass)?;
        }
        let mut entries = [0; ENTRIES_MAX * ENTRY_BYTES as usize];
        let closed = || Stop::from(internal("a chunk that is not open is written to"));
        let files = body.files(chunk).ok_or_else(closed)?;
        let entries = self.new_entries(id, files, segment, checksums, bytes, mode, &mut entries)?;
        self.mark(id, body, chunk, offset..end, pass, mode)?;
        let chunk_state = body.chunks.get_mut(&chunk).ok_or_else(closed)?;
        *chunk_state.dirty.get_mut() = true;
        let files = chunk_state.files.as_mut().ok_or_else(closed)?;
        let first = offset / BLOCK_BYTES as u64;
        let written = self.timed(Cause::Disk, || {
            files.sums.write_at(entries, entry_at(first))?;
            files.data.write_at(bytes, offset)
        });
        if let Err(error) = written {
            let fault = self.write_fault(&names::path(id, chunk, Part::Data), &error);
            self.mend(id, chunk, files, first..blocks(end));
            body.forget();
            return Err(fault.into());
        }
        files.length = files.length.max(end);
        files.behind.note(offset..end);
        self.write_back(id, chunk, &files.data, &mut files.behind);
        Ok(())
    }

    /// The entries of the blocks that a segment touches, as they will be after it.
    fn new_entries<'e>(
        &self,
        id: ObjectId,
        files: &Files,
        segment: Segment,
        checksums: &[u32],
        bytes: &[u8],
        mode: Mode,
        entries: &'e mut [u8],
    ) -> Result<&'e [u8], Stop> {
        let mut position = segment.offset;
        let mut done = 0;
        let slots = entries.chunks_exact_mut(ENTRY_BYTES as usize);
        for ((length, &checksum), slot) in
            piece_lengths(segment.offset, bytes.len()).zip(checksums).zip(slots)
        {
            let entry = if length == BLOCK_BYTES {
                sums::stored(checksum)
            } else {
                self.changed_entry(id, segment.chunk, files, position, length, checksum, mode)?
            };
            slot.copy_from_slice(&entry.to_le_bytes());
            position += length as u64;
            done += ENTRY_BYTES as usize;
        }
        entries.get(..done).ok_or_else(|| internal("more pieces than a write can have").into())
    }

    /// The entry of a block after a part of it is replaced by bytes with `checksum`.
    fn changed_entry(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &Files,
        position: u64,
        length: usize,
        checksum: u32,
        mode: Mode,
    ) -> Result<u32, Stop> {
        let block = position / BLOCK_BYTES as u64;
        let start = (position % BLOCK_BYTES as u64) as usize;
        if start == 0 && position + length as u64 >= files.length {
            // All that there is of the block is replaced: what it was is of no matter, nor whether it was damaged.
            return Ok(sums::placed(checksum, 0, length));
        }
        let mut entry = [0; ENTRY_BYTES as usize];
        self.read_file(id, chunk, Part::Sums, files, &mut entry, entry_at(block), mode)?;
        let present = files.length.saturating_sub(position).min(length as u64) as usize;
        let old = if present == 0 {
            sums::zeros(length)
        } else {
            OLD.with_borrow_mut(|old| {
                old.resize(BLOCK_BYTES, 0);
                let old = &mut old[..length];
                old[present..].fill(0);
                let (there, _) = old.split_at_mut(present);
                self.read_file(id, chunk, Part::Data, files, there, position, mode)?;
                Ok::<u32, Stop>(crc32c(old))
            })?
        };
        if mode == Mode::Fast {
            self.probe(id, chunk, files, position, length)?;
        }
        Ok(u32::from_le_bytes(entry) ^ sums::replaced(old, checksum, start, length))
    }

    /// Makes sure that the page before an unaligned write is in the page cache: the kernel would have to read it.
    fn probe(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &Files,
        position: u64,
        length: usize,
    ) -> Result<(), Stop> {
        for edge in [position, position + length as u64] {
            if !edge.is_multiple_of(PAGE_BYTES) && edge < files.length {
                self.read_file(id, chunk, Part::Data, files, &mut [0], edge, Mode::Fast)?;
            }
        }
        if !position.is_multiple_of(PAGE_BYTES) && position > 0 && position - 1 < files.length {
            self.read_file(id, chunk, Part::Data, files, &mut [0], position - 1, Mode::Fast)?;
        }
        Ok(())
    }
}
