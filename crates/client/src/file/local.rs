//! Reads past the server: which parts of a file can be taken from files of this machine, and taking them.

use super::inode::OpenInode;
use super::objects::object_address;
use super::read::{Block, View};
use crate::data::{LocalFile, addressed};
use crate::servers::Server;
use std::ops::Range;
use std::sync::Arc;
use vazao_meter::Cause;
use vazao_model::limits::BLOCK_BYTES;

/// A smaller file is read from its server: asking for its descriptors would take as long as asking for its bytes.
const FILE_BYTES_MIN: u64 = 1 << 20;

/// A range within one transfer, and the file of this machine that it is in.
pub(super) struct LocalPart {
    pub(super) range: Range<u64>,
    file: Arc<LocalFile>,
    /// Where the range begins in the chunk.
    chunk_offset: u64,
    /// Slot and where the range begins in its object.
    place: (u32, u64),
    server: Arc<Server>,
}

impl LocalPart {
    /// Whether it is read by calls of `length` bytes that are smaller than what has to be verified for each of them.
    pub(super) fn is_read_in_bits(&self, length: usize) -> bool {
        length < BLOCK_BYTES && self.range.end - self.range.start > length as u64
    }
}

/// The file of this machine that a range within one transfer can be read from at once.
pub(super) fn find_local(open: &OpenInode, view: &View, range: &Range<u64>) -> Option<LocalPart> {
    if view.size < FILE_BYTES_MIN {
        return None;
    }
    let (slot, object_offset) = view.layout.distribution.locate(range.start, view.layout.width());
    let object = object_address(open.id.0, &view.layout, slot)?;
    let server = open.core.servers.server(addressed(&object))?;
    let length = range.end - range.start;
    let (file, chunk_offset) = open.core.data.local_file(&object, object_offset)?;
    let is_within_chunk = chunk_offset + length <= server.door.chunk_bytes();
    (is_within_chunk && file.is_cached(chunk_offset, length)).then(|| LocalPart {
        range: range.clone(),
        file,
        chunk_offset,
        place: (slot, object_offset),
        server,
    })
}

/// Reads a part that is used in small bits as a whole. `None` when the server has to be asked.
pub(super) fn load_local(open: &OpenInode, part: &LocalPart) -> Option<Block> {
    let mut bytes = open.core.pool.take((part.range.end - part.range.start) as usize);
    let is_good = copy_local(open, part, part.range.start, &mut bytes);
    is_good.then(|| Block::verified(part.range.clone(), part.place, bytes.into_buffer()))
}

/// Copies verified bytes at file offset `offset`. False when the server has to be asked.
pub(super) fn copy_local(open: &OpenInode, part: &LocalPart, offset: u64, buffer: &mut [u8]) -> bool {
    let started_ns = open.core.context.clock.now_ns();
    let in_part = offset - part.range.start;
    let is_good = part.file.is_valid(started_ns) && part.file.read(buffer, part.chunk_offset + in_part);
    if is_good {
        part.server.counters.bytes_local.add(buffer.len() as u64);
    }
    open.core.context.counters.accounts.charge(Cause::Compute, open.core.context.clock.now_ns() - started_ns);
    is_good
}
