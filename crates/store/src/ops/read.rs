//! Read: bytes of an object with a checksum for each piece.
//!
//! A whole block goes out with its stored checksum, unverified: the reader verifies, end to end. A part of a block has
//! a checksum of its own, which is only worth something when the whole block has been verified here.

use crate::health::repair;
use crate::object::names::{self, Part};
use crate::object::sidecar::{ENTRY_BYTES, entry_at};
use crate::object::sums;
use crate::object::{Body, Files, Mode, Stop};
use crate::ops::{Segment, check_range, segments};
use crate::targets::Target;
use prost::Message;
use std::cell::RefCell;
use std::io;
use vazao_meter::Cause;
use vazao_model::checksum::{crc32c, piece_count};
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, BLOCK_BYTES};
use vazao_model::{Code, ObjectId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Where the answer goes: message, length of the attachment, and what fills it. Like `Responder::try_reply_with`.
pub(crate) type Emit<'a> =
    &'a mut dyn FnMut(&[u8], usize, &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>) -> bool;

#[derive(Default)]
struct Scratch {
    /// The first and the last block, where only a part of them is wanted.
    edges: [Vec<u8>; 2],
    entries: Vec<u8>,
    message: Vec<u8>,
    response: proto::ReadResponse,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Refuses a request beyond the limits.
pub(crate) fn check(id: ObjectId, offset: u64, length: u32) -> Result<(), Fault> {
    if length as usize > ATTACHMENT_BYTES_MAX {
        return Err(Fault::new(Code::BadRequest, format!("a read of {length} bytes")));
    }
    check_range(id, offset, 0)
}

impl Target {
    /// Reads, and answers through `emit`.
    pub(crate) fn read(
        &self,
        id: ObjectId,
        offset: u64,
        length: u32,
        mode: Mode,
        emit: Emit<'_>,
    ) -> Result<(), Stop> {
        let object = self.object(id, mode)?;
        let _blocking = object.begin(mode)?;
        let end = offset.saturating_add(u64::from(length));
        let chunks = offset / self.chunk_bytes..=end.saturating_sub(1).max(offset) / self.chunk_bytes;
        let body = self.open_to_read(&object, chunks, mode)?;
        let end = end.min(body.length).max(offset);
        SCRATCH.with_borrow_mut(|scratch| self.read_range(id, &body, offset..end, mode, scratch, emit))
    }

    fn read_range(
        &self,
        id: ObjectId,
        body: &Body,
        range: std::ops::Range<u64>,
        mode: Mode,
        scratch: &mut Scratch,
        emit: Emit<'_>,
    ) -> Result<(), Stop> {
        let Scratch { edges, entries, message, response } = scratch;
        response.object_length = body.length;
        response.missing = !body.exists();
        response.checksums.clear();
        let length = (range.end - range.start) as usize;
        self.gather(id, body, &range, mode, edges, entries, &mut response.checksums)?;
        message.clear();
        // Writing to a vector cannot fail.
        let _ = response.encode(message);
        let mut fill = |buffer: &mut [u8]| {
            let filled = self.timed(Cause::Disk, || self.fill(id, body, &range, mode, edges, buffer));
            match filled {
                Ok(()) => Ok(true),
                Err(Stop::Wait) => Ok(false),
                Err(Stop::Fault(fault)) => Err(fault),
            }
        };
        if emit(message, length, &mut fill) { Ok(()) } else { Err(Stop::Wait) }
    }

    /// Collects the checksum of each piece; reads and verifies the blocks of which only a part is wanted.
    fn gather(
        &self,
        id: ObjectId,
        body: &Body,
        range: &std::ops::Range<u64>,
        mode: Mode,
        edges: &mut [Vec<u8>; 2],
        entries: &mut Vec<u8>,
        checksums: &mut Vec<u32>,
    ) -> Result<(), Stop> {
        let length = (range.end - range.start) as usize;
        for segment in segments(range.start, length, self.chunk_bytes) {
            let first = segment.offset / BLOCK;
            let count = piece_count(segment.offset, segment.length);
            entries.clear();
            entries.resize(count * ENTRY_BYTES as usize, 0);
            let files = body.files(segment.chunk);
            if let Some(files) = files {
                let at = entry_at(first);
                self.read_file(id, segment.chunk, Part::Sums, files, entries, at, mode)?;
            }
            for (index, entry) in entries.chunks_exact(ENTRY_BYTES as usize).enumerate() {
                let entry = entry.try_into().map_or(0, u32::from_le_bytes);
                let block = first + index as u64;
                let piece = piece_of(&segment, block);
                let checksum = match files {
                    _ if piece.len() == BLOCK_BYTES => sums::stored(entry),
                    None => sums::zeros(piece.len()),
                    Some(files) => {
                        let edge = &mut edges[usize::from(!checksums.is_empty())];
                        self.verify_block(id, segment.chunk, files, block, entry, mode, edge)?;
                        crc32c(&edge[piece])
                    }
                };
                checksums.push(checksum);
            }
        }
        Ok(())
    }

    /// Reads a block into `edge`, padded with zeros, and compares it with its entry.
    pub(crate) fn verify_block(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &Files,
        block: u64,
        entry: u32,
        mode: Mode,
        edge: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let start = block * BLOCK;
        let present = files.length.saturating_sub(start).min(BLOCK) as usize;
        edge.resize(BLOCK_BYTES, 0);
        edge[present..].fill(0);
        self.read_file(id, chunk, Part::Data, files, &mut edge[..present], start, mode)?;
        if self.timed(Cause::Compute, || sums::placed(crc32c(&edge[..present]), 0, present)) == entry {
            return Ok(());
        }
        Err(self.corrupt_block(id, chunk, block).into())
    }

    /// Puts the bytes of `range` into `buffer`, whole blocks straight from the file.
    fn fill(
        &self,
        id: ObjectId,
        body: &Body,
        range: &std::ops::Range<u64>,
        mode: Mode,
        edges: &[Vec<u8>; 2],
        buffer: &mut [u8],
    ) -> Result<(), Stop> {
        let mut rest = buffer;
        let mut is_first = true;
        for segment in segments(range.start, (range.end - range.start) as usize, self.chunk_bytes) {
            let (mut now, later) = rest.split_at_mut(segment.length);
            rest = later;
            let Some(files) = body.files(segment.chunk) else {
                now.fill(0);
                is_first = false;
                continue;
            };
            let mut at = segment.offset;
            while !now.is_empty() {
                let in_block = (at % BLOCK) as usize;
                let whole = if in_block == 0 { now.len() / BLOCK_BYTES * BLOCK_BYTES } else { 0 };
                let count = if whole > 0 { whole } else { now.len().min(BLOCK_BYTES - in_block) };
                let (piece, after) = now.split_at_mut(count);
                if whole > 0 {
                    self.read_padded(id, segment.chunk, files, piece, at, mode)?;
                } else {
                    let edge = &edges[usize::from(!is_first)];
                    piece.copy_from_slice(&edge[in_block..in_block + count]);
                }
                is_first = false;
                at += count as u64;
                now = after;
            }
        }
        Ok(())
    }

    /// Reads data, with zeros beyond the end of the file.
    fn read_padded(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &Files,
        buffer: &mut [u8],
        offset: u64,
        mode: Mode,
    ) -> Result<(), Stop> {
        let present = files.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (there, beyond) = buffer.split_at_mut(present);
        beyond.fill(0);
        self.read_file(id, chunk, Part::Data, files, there, offset, mode)
    }

    /// Reads a part of a file of a chunk. What a file lacks of it stands for zeros.
    pub(crate) fn read_file(
        &self,
        id: ObjectId,
        chunk: u64,
        part: Part,
        files: &Files,
        buffer: &mut [u8],
        offset: u64,
        mode: Mode,
    ) -> Result<(), Stop> {
        if buffer.is_empty() {
            return Ok(());
        }
        let file = if part == Part::Data { &files.data } else { &files.sums };
        let read = match mode {
            Mode::Fast => file.read_cached_at(buffer, offset),
            Mode::Blocking => file.read_at(buffer, offset).map(Some),
        };
        let fault = |error: io::Error| Stop::from(self.read_fault(&names::path(id, chunk, part), &error));
        let count = read.map_err(fault)?.ok_or(Stop::Wait)?;
        if count < buffer.len() && part == Part::Data {
            // A cached read may be cut short by a page that is not cached.
            if mode == Mode::Fast {
                return Err(Stop::Wait);
            }
            repair::lengthen(files).map_err(fault)?;
            tracing::error!(target_id = self.id().0, object = %id, chunk, "a file was cut beneath the server");
        }
        if let Some(beyond) = buffer.get_mut(count..) {
            beyond.fill(0);
        }
        Ok(())
    }
}

/// The part of `block` that a segment covers.
fn piece_of(segment: &Segment, block: u64) -> std::ops::Range<usize> {
    let start = segment.offset.saturating_sub(block * BLOCK).min(BLOCK) as usize;
    let end = (segment.offset + segment.length as u64).saturating_sub(block * BLOCK).min(BLOCK) as usize;
    start..end.max(start)
}
