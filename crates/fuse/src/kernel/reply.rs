//! Answers as the device takes them: one run of bytes, in a buffer that each thread reuses.

use super::abi::{self, OUT_HEADER_BYTES};
use super::lent::Afterwards;
use std::time::Duration;
use vazao_client::{Asked, VolumeSpace};
use vazao_model::{Attributes, FileKind, InodeId, limits};

/// What `stat` shows as the size for efficient I/O; `cp`, `cat` and `tar` take it as their buffer's size, and it is the
/// largest request the kernel sends.
const PREFERRED_IO_BYTES: u32 = 1024 * 1024;

/// Unit in which space is counted.
const SPACE_UNIT_BYTES: u64 = 4096;

/// Inodes shown as free: there is no limit to show, and zero would look like a full volume.
const FREE_INODES_SHOWN: u64 = u32::MAX as u64;

/// Bytes of a directory entry before its name.
const ENTRY_HEADER_BYTES: usize = 24;
/// Bytes of node and attributes before an entry with attributes.
const ENTRY_OUT_BYTES: usize = 128;

/// An inode as it is shown to the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    /// Its node number; differs from the inode's for a mounted subdirectory's root.
    pub(crate) node: u64,
    pub(crate) attributes: &'a Attributes,
    /// How long the kernel may believe the attributes.
    pub(crate) attribute_timeout: Duration,
    /// How long the kernel may believe the name.
    pub(crate) entry_timeout: Duration,
}

/// An answer under construction. What follows its header begins on a page boundary: the kernel copies page by page.
#[derive(Debug)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    /// Where the part after the header begins, and where it ends so far.
    start: usize,
    end: usize,
    unique: u64,
    errno: i32,
    /// The memory is borrowed and keeps its length.
    is_lent: bool,
    /// What does not fit into lent memory lands here, and makes the answer an error.
    overflow: Vec<u8>,
    /// When what it shows was asked for.
    pub(crate) asked: Asked,
    /// Inodes that the kernel is shown by it, where that is counted.
    pub(crate) entered: Vec<InodeId>,
    /// What may be left until it has been sent.
    pub(crate) afterwards: Afterwards,
}

/// `fuse_out_header` of an answer with `length` bytes after it.
pub(crate) fn header(errno: i32, unique: u64, length: usize) -> [u8; OUT_HEADER_BYTES] {
    let total = u32::try_from(OUT_HEADER_BYTES + length).expect("bounded by the request's 32-bit length");
    let mut header = [0; OUT_HEADER_BYTES];
    header[0..4].copy_from_slice(&total.to_ne_bytes());
    header[4..8].copy_from_slice(&errno.to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    header
}

impl Reply {
    /// An empty answer with room for `capacity` bytes after the header.
    pub(crate) fn with_capacity(capacity: usize) -> Reply {
        let page = rustix::param::page_size();
        let bytes = vec![0; OUT_HEADER_BYTES + page + capacity];
        let after_header = bytes.as_ptr() as usize + OUT_HEADER_BYTES;
        let start = OUT_HEADER_BYTES + after_header.next_multiple_of(page) - after_header;
        Reply::over(bytes, start, false)
    }

    /// An empty answer whose part after the header is made in `bytes[start..]`, which is not left for other memory.
    pub(crate) fn in_memory(bytes: Vec<u8>, start: usize) -> Reply {
        Reply::over(bytes, start, true)
    }

    fn over(bytes: Vec<u8>, start: usize, is_lent: bool) -> Reply {
        Reply {
            bytes,
            start,
            end: start,
            unique: 0,
            errno: 0,
            is_lent,
            overflow: Vec::new(),
            asked: Asked::default(),
            entered: Vec::new(),
            afterwards: Afterwards::default(),
        }
    }

    /// The memory, and where in it the part after the header begins.
    pub(crate) fn into_memory(self) -> (Vec<u8>, usize) {
        (self.bytes, self.start)
    }

    /// Starts the answer to request `unique`.
    pub(crate) fn start(&mut self, unique: u64) {
        (self.end, self.unique, self.errno) = (self.start, unique, 0);
        self.overflow.clear();
        self.entered.clear();
    }

    /// Makes it an error, dropping what was there.
    pub(crate) fn fail(&mut self, errno: i32) {
        (self.end, self.errno) = (self.start, -errno);
        self.overflow.clear();
    }

    /// Makes it an unasked message of kind `code`.
    pub(crate) fn start_notification(&mut self, code: i32) {
        (self.end, self.unique, self.errno) = (self.start, 0, code);
    }

    /// Room for `length` bytes at the end, to be filled in place; [`Reply::keep`] says how many it became.
    pub(crate) fn space(&mut self, length: usize) -> &mut [u8] {
        let needed = self.end + length;
        if self.bytes.len() < needed {
            if self.is_lent {
                self.overflow.resize(length, 0);
                return &mut self.overflow;
            }
            self.bytes.resize(needed, 0);
        }
        &mut self.bytes[self.end..needed]
    }

    /// Takes the first `length` bytes of the space into the answer.
    pub(crate) fn keep(&mut self, length: usize) {
        self.end = (self.end + length).min(self.bytes.len());
    }

    /// Bytes after the header so far.
    pub(crate) fn length(&self) -> usize {
        self.end - self.start
    }

    /// The part after the header.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// What the header says: errno (negative), the request, and the length of what follows.
    pub(crate) fn outcome(&self) -> (i32, u64, usize) {
        match self.overflow.is_empty() {
            true => (self.errno, self.unique, self.length()),
            false => (-abi::errno::IO, self.unique, 0),
        }
    }

    /// The finished answer, header and all.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let header = header(self.errno, self.unique, self.length());
        self.bytes[self.start - OUT_HEADER_BYTES..self.start].copy_from_slice(&header);
        &self.bytes[self.start - OUT_HEADER_BYTES..self.end]
    }

    /// Appends bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
        self.keep(bytes.len());
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }

    /// Appends a number.
    pub(crate) fn put_u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    /// Appends a number.
    pub(crate) fn put_u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    /// `fuse_attr`.
    fn put_attributes(&mut self, a: &Attributes) {
        self.put_u64(a.inode.0);
        self.put_u64(a.size);
        self.put_u64(a.allocated_bytes.div_ceil(512));
        for time in [a.accessed, a.modified, a.changed] {
            self.put_u64(time.seconds as u64);
        }
        for time in [a.accessed, a.modified, a.changed] {
            self.put_u32(time.nanoseconds);
        }
        self.put_u32(type_bits(a.kind) | (a.mode & 0o7777));
        for field in [a.links, a.uid, a.gid, a.device, PREFERRED_IO_BYTES, 0] {
            self.put_u32(field);
        }
    }

    /// `fuse_attr_out`.
    pub(crate) fn put_attributes_out(&mut self, shown: Shown<'_>) {
        self.put_u64(shown.attribute_timeout.as_secs());
        self.put_u32(shown.attribute_timeout.subsec_nanos());
        self.put_u32(0);
        self.put_attributes(shown.attributes);
    }

    /// `fuse_entry_out`. The generation is always 0, as inode ids are never reused.
    pub(crate) fn put_entry_out(&mut self, shown: Shown<'_>) {
        self.put_u64(shown.node);
        self.put_u64(0);
        self.put_u64(shown.entry_timeout.as_secs());
        self.put_u64(shown.attribute_timeout.as_secs());
        self.put_u32(shown.entry_timeout.subsec_nanos());
        self.put_u32(shown.attribute_timeout.subsec_nanos());
        self.put_attributes(shown.attributes);
    }

    /// `fuse_entry_out` that says: there is no such name, and that may be believed for `timeout`.
    pub(crate) fn put_no_entry_out(&mut self, timeout: Duration) {
        self.put_u64(0);
        self.put_u64(0);
        self.put_u64(timeout.as_secs());
        self.put_u64(0);
        self.put_u32(timeout.subsec_nanos());
        self.put_u32(0);
        self.put(&[0; ENTRY_OUT_BYTES - 40]);
    }

    /// `fuse_open_out`.
    pub(crate) fn put_open_out(&mut self, handle: u64, flags: u32) {
        self.put_u64(handle);
        self.put_u32(flags);
        self.put_u32(0);
    }

    /// `fuse_write_out` and `fuse_getxattr_out`: a length.
    pub(crate) fn put_length_out(&mut self, length: u32) {
        self.put_u32(length);
        self.put_u32(0);
    }

    /// `fuse_lk_out`: the range's last byte is included.
    pub(crate) fn put_lock_out(&mut self, first: u64, last: u64, kind: u32, process: u32) {
        self.put_u64(first);
        self.put_u64(last);
        self.put_u32(kind);
        self.put_u32(process);
    }

    /// `fuse_statfs_out`.
    pub(crate) fn put_space_out(&mut self, space: VolumeSpace) {
        // df(1) takes what is not free as used; what is free and not available is the reserve.
        let free = space.capacity_bytes.saturating_sub(space.used_bytes).max(space.available_bytes);
        self.put_u64(space.capacity_bytes / SPACE_UNIT_BYTES);
        self.put_u64(free / SPACE_UNIT_BYTES);
        self.put_u64(space.available_bytes / SPACE_UNIT_BYTES);
        self.put_u64(space.inodes.saturating_add(FREE_INODES_SHOWN));
        self.put_u64(FREE_INODES_SHOWN);
        let name_bytes = limits::NAME_BYTES_MAX as u32;
        for field in [SPACE_UNIT_BYTES as u32, name_bytes, SPACE_UNIT_BYTES as u32, 0, 0, 0, 0, 0, 0, 0] {
            self.put_u32(field);
        }
    }

    /// `fuse_dirent`, after `fuse_entry_out` where `shown` is given, unless it would make the answer longer than
    /// `limit`: then false. An empty `shown` means an entry whose attributes the kernel shall not keep (`.`, `..`).
    pub(crate) fn put_directory_entry(
        &mut self,
        entry: DirectoryEntry<'_>,
        shown: Option<Option<Shown<'_>>>,
        limit: usize,
    ) -> bool {
        let unpadded = ENTRY_HEADER_BYTES + entry.name.len();
        let padded = unpadded.next_multiple_of(8);
        let plus = if shown.is_some() { ENTRY_OUT_BYTES } else { 0 };
        if self.length() + plus + padded > limit {
            return false;
        }
        match shown {
            Some(Some(shown)) => self.put_entry_out(shown),
            Some(None) => self.put(&[0; ENTRY_OUT_BYTES]),
            None => {}
        }
        self.put_u64(entry.inode);
        self.put_u64(entry.cookie);
        self.put_u32(entry.name.len() as u32);
        self.put_u32(type_bits(entry.kind) >> 12);
        self.put(entry.name);
        self.put(&[0; 8][..padded - unpadded]);
        true
    }

    /// `fuse_init_out`.
    pub(crate) fn put_init_out(&mut self, init: InitAnswer) {
        let (low, high) = (init.capabilities as u32, (init.capabilities >> 32) as u32);
        for field in [abi::MAJOR, abi::MINOR, init.read_ahead_bytes, low] {
            self.put_u32(field);
        }
        self.put_u16(init.background_max);
        self.put_u16(init.background_max / 4 * 3);
        self.put_u32(init.write_bytes_max);
        // Times are kept to the nanosecond.
        self.put_u32(1);
        self.put_u16(init.pages_max);
        self.put_u16(0);
        self.put_u32(high);
        self.put(&[0; 28]);
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryEntry<'a> {
    pub(crate) inode: u64,
    /// Where the listing continues after it.
    pub(crate) cookie: u64,
    pub(crate) kind: FileKind,
    pub(crate) name: &'a [u8],
}

/// What INIT is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InitAnswer {
    pub(crate) read_ahead_bytes: u32,
    pub(crate) capabilities: u64,
    /// Read-ahead and direct requests the kernel keeps in flight.
    pub(crate) background_max: u16,
    pub(crate) write_bytes_max: u32,
    pub(crate) pages_max: u16,
}

/// The type bits of `st_mode`.
fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::File => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}
