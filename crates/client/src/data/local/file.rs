//! The files of a chunk, read from the page cache and verified.
//!
//! There is no lock between this reader and the server's writers, and none is needed: bytes and entry of a block are
//! read one after the other and count only when they agree. A block that is being overwritten, cut or punched does not
//! agree with its entry, and neither does a damaged one; which of them it is, the server finds out.
//!
//! Entries are remembered: bytes that agree with what was their entry are bytes that were there, and bytes that do not
//! are compared with the entry read anew. Bytes themselves are never remembered.

use super::entries::{Entries, LOADED_AT_ONCE};
use rustix::fs::{fstat, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};
use std::cell::RefCell;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vazao_model::checksum::crc32c;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::sidecar::{ENTRY_BYTES, entry_at, stored};
use vazao_wire::local::Visit;

/// Whether the server lives and the object exists is looked at this often: how late a reader learns that they do not.
const CHECK_NS: u64 = 1_000_000;

/// Blocks read at once: few enough to be still in the processor's cache when they are verified.
const BLOCKS_AT_ONCE: usize = 4;

/// `f_type` of a file system in memory (statfs(2)), whose reads never wait and do not know `RWF_NOWAIT`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

thread_local! {
    /// A block of which only a part is wanted.
    static EDGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A chunk whose files this process has open.
#[derive(Debug)]
pub(crate) struct LocalFile {
    data: OwnedFd,
    sums: OwnedFd,
    /// Refuses to wait for a disk: a call that hangs in the kernel knows no deadline.
    flags: ReadWriteFlags,
    visit: Arc<Visit>,
    checked_ns: AtomicU64,
    is_void: AtomicBool,
    entries: Entries,
    /// The last read found its bytes in the page cache, so that the next one likely will.
    is_warm: AtomicBool,
}

impl LocalFile {
    /// Takes over what was handed out. `None` on a file system where a read could wait for its disk.
    pub(crate) fn new(files: [OwnedFd; 2], visit: Arc<Visit>, now_ns: u64) -> Option<LocalFile> {
        let [data, sums] = files;
        let is_memory = fstatfs(&data).is_ok_and(|status| status.f_type as u64 == TMPFS_MAGIC);
        let flags = if is_memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
        let (checked_ns, is_void) = (AtomicU64::new(now_ns), AtomicBool::new(false));
        let (entries, is_warm) = (Entries::default(), AtomicBool::new(false));
        let file = LocalFile { data, sums, flags, visit, checked_ns, is_void, entries, is_warm };
        let known = read_some(&file.data, &mut [0], 0, flags);
        (!matches!(known, Err(Errno::OPNOTSUPP | Errno::NOSYS))).then_some(file)
    }

    /// False once the server is gone or the object was removed, from a millisecond after that at the latest.
    pub(crate) fn is_valid(&self, now_ns: u64) -> bool {
        if self.is_void.load(Ordering::Relaxed) {
            return false;
        }
        if now_ns.saturating_sub(self.checked_ns.load(Ordering::Relaxed)) < CHECK_NS {
            return true;
        }
        self.checked_ns.store(now_ns, Ordering::Relaxed);
        let is_linked = fstat(&self.data).is_ok_and(|status| status.st_nlink > 0);
        if is_linked && self.visit.is_alive() {
            return true;
        }
        self.is_void.store(true, Ordering::Relaxed);
        false
    }

    /// Whether `length` bytes at `offset` of the chunk look as if they could be read at once. The kernel is asked only
    /// after a read that could not: asking costs a fifth of reading a block.
    pub(crate) fn is_cached(&self, offset: u64, length: u64) -> bool {
        if self.is_warm.load(Ordering::Relaxed) {
            return true;
        }
        let last = offset + length.saturating_sub(1);
        read_some(&self.data, &mut [0], last, self.flags).is_ok()
    }

    /// Reads bytes at `offset` of the chunk, zeros where it has none. False, with anything in `buffer`, when they are
    /// not in the page cache or do not match their checksums.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> bool {
        let is_good = self.read_range(buffer, offset);
        if self.is_warm.load(Ordering::Relaxed) != is_good {
            self.is_warm.store(is_good, Ordering::Relaxed);
        }
        is_good
    }

    fn read_range(&self, buffer: &mut [u8], offset: u64) -> bool {
        let mut position = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let in_block = (position % BLOCK_BYTES as u64) as usize;
            let whole_blocks = if in_block == 0 { rest.len() / BLOCK_BYTES } else { 0 };
            let length = match whole_blocks {
                0 => rest.len().min(BLOCK_BYTES - in_block),
                count => count.min(BLOCKS_AT_ONCE) * BLOCK_BYTES,
            };
            let (now, later) = rest.split_at_mut(length);
            let is_good = match whole_blocks {
                0 => self.read_part(now, position, in_block),
                _ => self.read_blocks(now, position),
            };
            if !is_good {
                return false;
            }
            position += length as u64;
            rest = later;
        }
        true
    }

    /// Whole blocks, straight to where they belong.
    fn read_blocks(&self, buffer: &mut [u8], position: u64) -> bool {
        let first = position / BLOCK_BYTES as u64;
        self.read_file(&self.data, buffer, position)
            && (first..).zip(buffer.chunks(BLOCK_BYTES)).all(|(block, bytes)| self.agrees(block, bytes))
    }

    /// Whether bytes are those that an entry of their block was made of.
    fn agrees(&self, block: u64, bytes: &[u8]) -> bool {
        let entry = stored(crc32c(bytes));
        self.entries.get(block) == Some(entry) || self.load_entry(block) == Some(entry)
    }

    /// Reads the entry of a block, and with it those that the following blocks need.
    fn load_entry(&self, block: u64) -> Option<u32> {
        let mut bytes = [0; LOADED_AT_ONCE * ENTRY_BYTES as usize];
        if !self.read_file(&self.sums, &mut bytes, entry_at(block)) {
            return None;
        }
        let mut entries = bytes.chunks_exact(ENTRY_BYTES as usize).filter_map(|entry| entry.try_into().ok());
        let loaded = entries.next().map(u32::from_le_bytes)?;
        self.entries.put(block, loaded);
        (block + 1..)
            .zip(entries)
            .for_each(|(block, entry)| self.entries.put(block, u32::from_le_bytes(entry)));
        Some(loaded)
    }

    /// A part of one block, all of which has to be read to be verified.
    fn read_part(&self, buffer: &mut [u8], position: u64, in_block: usize) -> bool {
        EDGE.with_borrow_mut(|edge| {
            edge.resize(BLOCK_BYTES, 0);
            let is_good = self.read_blocks(edge, position - in_block as u64);
            if is_good {
                buffer.copy_from_slice(&edge[in_block..in_block + buffer.len()]);
            }
            is_good
        })
    }

    /// Fills `buffer`, with zeros beyond the end of the file. False when the file cannot be read without waiting.
    fn read_file(&self, file: &OwnedFd, buffer: &mut [u8], offset: u64) -> bool {
        let mut done = 0;
        while done < buffer.len() {
            match read_some(file, &mut buffer[done..], offset + done as u64, self.flags) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) => return false,
            }
        }
        buffer[done..].fill(0);
        true
    }
}

fn read_some(file: &OwnedFd, buffer: &mut [u8], offset: u64, flags: ReadWriteFlags) -> Result<usize, Errno> {
    retry_on_intr(|| preadv2(file, &mut [IoSliceMut::new(buffer)], offset, flags))
}
