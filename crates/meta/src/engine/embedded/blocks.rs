//! The checkpoint's file: blocks of 4 KiB, each verified against its checksum when it is read.
//!
//! redb computes checksums of its pages and looks at them after a crash only. This layer lies below redb, so that a
//! flipped bit is noticed wherever it lies: in a value, in a key, in an inner page, in redb's own bookkeeping. A block
//! that does not match is never given out; redb gets a page instead that ends every descent with an error, for an error
//! of the read itself would make redb refuse all later ones.
//!
//! ```text
//! header | header again | checksums, 1024 blocks | checksums, 1024 blocks | …      (docs/on-disk.md, "The checkpoint")
//! ```
//!
//! Crash safety rests on redb never changing a block in place that a durable state uses: an entry and its block are
//! both durable before such a state is. The header is the exception; it is one sector, and there are two of it.

use super::super::{EngineError, EngineResult};
use super::CHECKPOINT_FILE;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vazao_disk::DiskFile;
use vazao_model::checksum::crc32c;

/// The unit of checksums: a page of redb, or a part of one.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// Blocks behind one block of checksums.
const GROUP_BLOCKS: u64 = BLOCK_BYTES / ENTRY_BYTES;
const ENTRY_BYTES: u64 = 4;

/// The header's copies come first.
const HEADER_COPIES: u64 = 2;

/// Every disk we know of writes that much whole or not at all.
const SECTOR_BYTES: usize = 512;

/// "VZCHECK", 2.
const MAGIC: [u8; 8] = *b"VZCHECK\x02";

/// Bytes of the header before those of redb's own: mark, identity, sequence, boot, length.
const HEADER_FIXED_BYTES: usize = 36;

/// redb's header takes 320.
const INNER_BYTES_MAX: usize = SECTOR_BYTES - HEADER_FIXED_BYTES - 4;

/// CRC-32C of a block of zeros. A test recomputes it.
const ZERO_BLOCK: u32 = 0x98F9_4189;

/// The entry of a block that an unclean stop left torn: nothing may be read there.
const NO_CONTENTS: u32 = u32::MAX;

/// A read that does not match is done again: memory and cables fail as well.
const ATTEMPTS: usize = 2;

/// Damaged blocks that are remembered. Beyond that many the disk is not to be trusted anyway.
const DAMAGED_MAX: usize = 4096;

const NO_PANIC: &str = "no code panics while it holds this lock";

/// The header as it was last written.
#[derive(Default)]
struct Header {
    sequence: u64,
    /// During which boot of the machine ([`vazao_disk::Disk::boot_id`]) it is in use; [`CLOSED`]: it was closed.
    boot: u64,
    /// What redb wrote at offset 0.
    inner: Vec<u8>,
}

/// In place of a boot: everything is durable, and nothing was written since.
const CLOSED: u64 = u64::MAX;

/// See the module. Offsets are those that redb sees.
pub(super) struct BlockFile {
    file: Arc<dyn DiskFile>,
    identity: u64,
    boot: u64,
    header: Mutex<Header>,
    /// The entry of each block, for whole groups.
    entries: RwLock<Vec<u32>>,
    /// Groups whose entries are not in the file yet.
    dirty: Mutex<BTreeSet<u64>>,
    /// Held while a block and its entry are changed.
    writing: Mutex<()>,
    damaged: Mutex<BTreeMap<u64, String>>,
    /// What was wrong with copies of the header that were written again.
    mended: Mutex<Vec<String>>,
    /// Replaced by another file: nothing is to be written any more.
    is_retired: AtomicBool,
    /// A change failed: what the file holds is not known.
    has_failed: AtomicBool,
}

/// The entry of a block with these contents.
fn entry_of(block: &[u8]) -> u32 {
    match crc32c(block) ^ ZERO_BLOCK {
        // Taken; a neighbour is as good, for both sides compute it here.
        NO_CONTENTS => NO_CONTENTS - 1,
        entry => entry,
    }
}

/// Where a block lies in the file.
fn place(block: u64) -> u64 {
    (HEADER_COPIES + block + block / GROUP_BLOCKS + 1) * BLOCK_BYTES
}

/// Where the checksums of a group lie.
fn entries_place(group: u64) -> u64 {
    (HEADER_COPIES + group * (GROUP_BLOCKS + 1)) * BLOCK_BYTES
}

/// The file's length for so many blocks.
fn length_for(blocks: u64) -> u64 {
    (HEADER_COPIES + blocks + blocks.div_ceil(GROUP_BLOCKS)) * BLOCK_BYTES
}

/// The blocks of a file of this length.
fn blocks_in(length: u64) -> u64 {
    let rest = (length / BLOCK_BYTES).saturating_sub(HEADER_COPIES);
    rest - rest.div_ceil(GROUP_BLOCKS + 1)
}

/// Fills a page with what redb takes for a branch whose children cannot exist: it reports that as corruption, in
/// whatever tree it meets it, and neither finds a key there nor takes one for missing.
fn fill_with_dead_end(page: &mut [u8]) {
    const BRANCH: u8 = 2;
    const KEYS: u8 = 1;
    const CHILDREN: std::ops::Range<usize> = 8..56;
    // Zeros up to byte 256; keys of a fixed size begin at 56, with a byte that all their types know.
    const KEY_END: std::ops::Range<usize> = 56..60;
    page.fill(0);
    let Some(start) = page.get_mut(..BLOCK_BYTES as usize) else { return };
    (start[0], start[2]) = (BRANCH, KEYS);
    start[KEY_END].copy_from_slice(&256u32.to_le_bytes());
    // Page numbers of order 31, which redb refuses, with checksums that fit nothing.
    start[CHILDREN].fill(0xFF);
}

/// Fills a page with what redb takes for a leaf without records.
fn fill_with_nothing(page: &mut [u8]) {
    const LEAF: u8 = 1;
    page.fill(0);
    page[..1].fill(LEAF);
}

impl BlockFile {
    /// An empty file. `boot` is the present one, 0 when that is not known.
    pub(super) fn create(file: Arc<dyn DiskFile>, identity: u64, boot: u64) -> BlockFile {
        BlockFile {
            file,
            identity,
            boot,
            header: Mutex::default(),
            entries: RwLock::default(),
            dirty: Mutex::default(),
            writing: Mutex::default(),
            damaged: Mutex::default(),
            mended: Mutex::default(),
            is_retired: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// A file that is there. Errors: its header is damaged in both places, or another volume's.
    pub(super) fn open(file: Arc<dyn DiskFile>, identity: u64, boot: u64) -> EngineResult<BlockFile> {
        let opened = BlockFile::create(file, identity, boot);
        *opened.header() = opened.load_header()?;
        *opened.entries_to_change() = opened.load_entries()?;
        Ok(opened)
    }

    fn header(&self) -> MutexGuard<'_, Header> {
        self.header.lock().expect(NO_PANIC)
    }

    fn entries(&self) -> RwLockReadGuard<'_, Vec<u32>> {
        self.entries.read().expect(NO_PANIC)
    }

    fn entries_to_change(&self) -> RwLockWriteGuard<'_, Vec<u32>> {
        self.entries.write().expect(NO_PANIC)
    }

    fn damaged(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.damaged.lock().expect(NO_PANIC)
    }

    fn set_dirty(&self, group: u64) {
        self.dirty.lock().expect(NO_PANIC).insert(group);
    }

    // ---- the header ----

    fn render_header(&self, header: &Header) -> [u8; SECTOR_BYTES] {
        let mut sector = [0; SECTOR_BYTES];
        sector[..8].copy_from_slice(&MAGIC);
        sector[8..16].copy_from_slice(&self.identity.to_le_bytes());
        sector[16..24].copy_from_slice(&header.sequence.to_le_bytes());
        sector[24..32].copy_from_slice(&header.boot.to_le_bytes());
        sector[32..36].copy_from_slice(&(header.inner.len() as u32).to_le_bytes());
        sector[HEADER_FIXED_BYTES..HEADER_FIXED_BYTES + header.inner.len()].copy_from_slice(&header.inner);
        let check = crc32c(&sector[..SECTOR_BYTES - 4]);
        sector[SECTOR_BYTES - 4..].copy_from_slice(&check.to_le_bytes());
        sector
    }

    /// One copy, if it is whole.
    fn parse_header(&self, sector: &[u8]) -> Result<Header, String> {
        let (bytes, check) = sector.split_last_chunk().ok_or("is too short")?;
        if u32::from_le_bytes(*check) != crc32c(bytes) {
            return Err("does not match its checksum".to_owned());
        }
        if !bytes.starts_with(&MAGIC) {
            return Err("is of another kind".to_owned());
        }
        let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        if number(8) != Some(self.identity) {
            return Err("is that of another volume".to_owned());
        }
        let length = bytes.get(32..36).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
        let end = HEADER_FIXED_BYTES + length.ok_or("is too short")? as usize;
        let inner = bytes.get(HEADER_FIXED_BYTES..end).ok_or("is too short")?.to_vec();
        Ok(Header { sequence: number(16).unwrap_or(0), boot: number(24).unwrap_or(0), inner })
    }

    fn read_header(&self, copy: u64) -> Result<Header, String> {
        let mut sector = [0; SECTOR_BYTES];
        match self.file.read_at(&mut sector, copy * BLOCK_BYTES) {
            Ok(SECTOR_BYTES) => self.parse_header(&sector),
            Ok(_) => Err("is missing".to_owned()),
            Err(error) => Err(format!("cannot be read: {error}")),
        }
    }

    /// The newer of the whole copies: both are written by each change, so at rest they are the same.
    fn load_header(&self) -> EngineResult<Header> {
        let copies = [self.read_header(0), self.read_header(1)];
        let [first, second] = copies;
        match (first, second) {
            (Ok(first), Ok(second)) => Ok(if first.sequence >= second.sequence { first } else { second }),
            (Err(why), Ok(header)) | (Ok(header), Err(why)) => {
                self.mend_header(&header, &why).map_err(|e| EngineError::io(CHECKPOINT_FILE, e))?;
                Ok(header)
            }
            (Err(first), Err(second)) => {
                let why = if first == second {
                    format!("each {first}")
                } else {
                    format!("the one {first}, the other {second}")
                };
                Err(EngineError::Corrupt(format!(
                    "both headers of {CHECKPOINT_FILE} are damaged ({why}): put the metadata directory aside and \
                     restore it from a backup"
                )))
            }
        }
    }

    /// One copy is damaged and the other is whole: both are written as they have to be.
    fn mend_header(&self, header: &Header, why: &str) -> io::Result<()> {
        let what = format!("one of the two headers of {CHECKPOINT_FILE} {why}; it was written again");
        tracing::error!("{what}");
        self.mended.lock().expect(NO_PANIC).push(what);
        self.write_copies(header)
    }

    /// Copies of the header that were damaged and written again since it was opened.
    pub(super) fn mended(&self) -> Vec<String> {
        self.mended.lock().expect(NO_PANIC).clone()
    }

    /// Writes both copies. They are durable with the next sync.
    fn write_header(&self, inner: &[u8]) -> io::Result<()> {
        if inner.len() > INNER_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut header = self.header();
        *header = Header { sequence: header.sequence + 1, boot: self.boot, inner: inner.to_vec() };
        self.write_copies(&header)
    }

    fn write_copies(&self, header: &Header) -> io::Result<()> {
        let sector = self.render_header(header);
        (0..HEADER_COPIES).try_for_each(|copy| self.file.write_at(&sector, copy * BLOCK_BYTES))
    }

    /// True when power was lost since it was last opened, or may have been: some of what was not synced may be there.
    /// redb makes a header durable before it changes anything else, so no use goes unnoticed.
    pub(super) fn has_lost_power(&self) -> bool {
        let boot = self.header().boot;
        boot != CLOSED && (boot != self.boot || boot == 0)
    }

    /// Notes that redb has closed its database and nothing is left to be written.
    pub(super) fn close(&self) -> io::Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier change of it failed"));
        }
        self.sync()?;
        {
            let mut header = self.header();
            (header.sequence, header.boot) = (header.sequence + 1, CLOSED);
            self.write_copies(&header)?;
        }
        self.file.sync()
    }

    // ---- the checksums ----

    fn load_entries(&self) -> EngineResult<Vec<u32>> {
        let length = self.file.length().map_err(|e| EngineError::io(CHECKPOINT_FILE, e))?;
        let blocks = blocks_in(length);
        let mut entries = Vec::with_capacity((blocks.div_ceil(GROUP_BLOCKS) * GROUP_BLOCKS) as usize);
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        for group in 0..blocks.div_ceil(GROUP_BLOCKS) {
            match self.file.read_at(&mut bytes, entries_place(group)) {
                Ok(count) if count == bytes.len() => {
                    let (chunks, _) = bytes.as_chunks();
                    entries.extend(chunks.iter().map(|entry| u32::from_le_bytes(*entry)));
                }
                other => {
                    let why =
                        other.err().map_or("is cut".to_owned(), |error| format!("cannot be read: {error}"));
                    tracing::error!(
                        "a block of checksums of {CHECKPOINT_FILE} {why}; 4 MiB cannot be verified"
                    );
                    self.note_damage(group * GROUP_BLOCKS, format!("its block of checksums {why}"));
                    entries.resize(entries.len() + GROUP_BLOCKS as usize, NO_CONTENTS);
                }
            }
        }
        // A cut that was not finished leaves entries behind the end, where a longer file has zeros later.
        let (group, used) = (blocks / GROUP_BLOCKS, blocks as usize);
        if entries.get(used..).is_some_and(|rest| rest.iter().any(|entry| *entry != 0)) {
            entries[used..].fill(0);
            self.set_dirty(group);
        }
        Ok(entries)
    }

    /// Writes the entries that have changed. They are durable with the next sync.
    fn write_entries(&self) -> io::Result<()> {
        let dirty = std::mem::take(&mut *self.dirty.lock().expect(NO_PANIC));
        for group in &dirty {
            let written = self.write_group(*group);
            if written.is_err() {
                self.dirty.lock().expect(NO_PANIC).extend(dirty);
                return written;
            }
        }
        Ok(())
    }

    fn write_group(&self, group: u64) -> io::Result<()> {
        let first = (group * GROUP_BLOCKS) as usize;
        let bytes: Vec<u8> = match self.entries().get(first..first + GROUP_BLOCKS as usize) {
            Some(entries) => entries.iter().flat_map(|entry| entry.to_le_bytes()).collect(),
            // Cut off since.
            None => return Ok(()),
        };
        self.file.write_at(&bytes, entries_place(group))
    }

    // ---- what redb asks for ----

    /// Length in bytes, without headers and checksums.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(blocks_in(self.file.length()?) * BLOCK_BYTES)
    }

    /// Bytes of storage in use.
    pub(super) fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }

    /// Bytes of the file that take no storage.
    pub(super) fn hole_bytes(&self) -> io::Result<u64> {
        Ok(self.file.length()?.saturating_sub(self.file.allocated_bytes()?))
    }

    /// Cuts or extends, with zeros.
    pub(super) fn set_length(&self, length: u64) -> io::Result<()> {
        self.noting_failure(|| self.resize(length))
    }

    fn noting_failure(&self, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.check_not_retired()?;
        change().inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed))
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        let blocks = length / BLOCK_BYTES;
        let groups = blocks.div_ceil(GROUP_BLOCKS);
        let _writing = self.writing.lock().expect(NO_PANIC);
        let mut entries = self.entries_to_change();
        let groups_before = entries.len() as u64 / GROUP_BLOCKS;
        if let Some(rest) = entries.get_mut(blocks as usize..) {
            rest.fill(0);
        }
        entries.resize((groups * GROUP_BLOCKS) as usize, 0);
        drop(entries);
        self.damaged().retain(|block, _| *block < blocks);
        self.file.set_length(length_for(blocks))?;
        // Storage for checksums is taken now: a full disk must not fail the sync that needs them.
        let zeros = [0; BLOCK_BYTES as usize];
        (groups_before..groups).try_for_each(|group| self.file.write_at(&zeros, entries_place(group)))?;
        if groups > 0 {
            self.set_dirty(groups - 1);
        }
        Ok(())
    }

    /// Makes all that was written durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.noting_failure(|| {
            self.write_entries()?;
            self.file.sync()
        })
    }

    /// Writes whole blocks, or the header.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.noting_failure(|| self.put(offset, data))
    }

    fn put(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset == 0 {
            return self.write_header(data);
        }
        if !offset.is_multiple_of(BLOCK_BYTES) || !(data.len() as u64).is_multiple_of(BLOCK_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let _writing = self.writing.lock().expect(NO_PANIC);
        for (first, blocks) in runs(offset / BLOCK_BYTES, data.len()) {
            let bytes = &data[blocks];
            self.file.write_at(bytes, place(first))?;
            let mut entries = self.entries_to_change();
            for (entry, block) in
                entries.iter_mut().skip(first as usize).zip(bytes.chunks(BLOCK_BYTES as usize))
            {
                *entry = entry_of(block);
            }
            drop(entries);
            self.set_dirty(first / GROUP_BLOCKS);
        }
        let mut damaged = self.damaged();
        if !damaged.is_empty() {
            let end = (offset + data.len() as u64) / BLOCK_BYTES;
            damaged.retain(|block, _| !(offset / BLOCK_BYTES..end).contains(block));
        }
        Ok(())
    }

    /// Reads whole blocks, or the header. What is damaged reads as a page that redb calls corrupted.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if !self.read_sound(offset, out)? {
            fill_with_dead_end(out);
        }
        Ok(())
    }

    /// The same, but what is damaged reads as a page without records, which redb passes over. False when it is.
    pub(super) fn read_or_nothing(&self, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        let is_sound = self.read_sound(offset, out)?;
        if !is_sound {
            fill_with_nothing(out);
        }
        Ok(is_sound)
    }

    /// False, with anything in `out`, when a block of them is damaged.
    fn read_sound(&self, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        if offset == 0 {
            let header = self.header();
            let inner = header.inner.get(..out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(inner);
            return Ok(true);
        }
        if !offset.is_multiple_of(BLOCK_BYTES) || !(out.len() as u64).is_multiple_of(BLOCK_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut is_whole = true;
        for (first, blocks) in runs(offset / BLOCK_BYTES, out.len()) {
            is_whole &= self.read_run(first, &mut out[blocks]);
        }
        Ok(is_whole)
    }

    /// Reads blocks of one group; false when one of them is damaged.
    fn read_run(&self, first: u64, out: &mut [u8]) -> bool {
        let mut found = Ok(());
        for _ in 0..ATTEMPTS {
            found = match self.file.read_at(out, place(first)) {
                Ok(count) if count == out.len() => self.verify(first, out),
                Ok(_) => Err((first, "the file is too short".to_owned())),
                Err(error) => Err((first, format!("it cannot be read: {error}"))),
            };
            if found.is_ok() {
                return true;
            }
        }
        if let Err((block, why)) = found {
            self.note_damage(block, why);
        }
        false
    }

    /// Compares blocks with their entries. The first that differs, and how.
    fn verify(&self, first: u64, bytes: &[u8]) -> Result<(), (u64, String)> {
        let entries = self.entries();
        let entries = entries.get(first as usize..).unwrap_or_default();
        for (index, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            let found = entry_of(block);
            match entries.get(index) {
                Some(expected) if *expected == found => {}
                Some(&NO_CONTENTS) => {
                    return Err((
                        first + index as u64,
                        "it was torn by an unclean stop or is damaged".to_owned(),
                    ));
                }
                _ => return Err((first + index as u64, "it does not match its checksum".to_owned())),
            }
        }
        Ok(())
    }

    fn note_damage(&self, block: u64, why: String) {
        let mut damaged = self.damaged();
        if damaged.len() < DAMAGED_MAX && !damaged.contains_key(&block) {
            tracing::error!(
                at_byte = place(block),
                "{CHECKPOINT_FILE} is damaged: {why}; `vazao metadata check` says which files it concerns"
            );
            damaged.insert(block, why);
        }
    }

    /// Its name was removed, or given to another file.
    pub(super) fn is_nameless(&self) -> io::Result<bool> {
        // It may be retired between two looks: only one that is still in use afterwards is lost.
        Ok(!self.file.is_named()? && !self.is_retired())
    }

    /// See [`BlockFile::retire`].
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    fn check_not_retired(&self) -> io::Result<()> {
        match self.is_retired() {
            true => Err(io::Error::other("replaced by another checkpoint")),
            false => Ok(()),
        }
    }

    /// Another file has taken its place: what redb still wants to write goes nowhere.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    // ---- looking for damage ----

    /// Damaged blocks that are known: where they lie in the file, and what is wrong with them.
    pub(super) fn known_damage(&self) -> Vec<(u64, String)> {
        self.damaged().iter().map(|(block, why)| (place(*block), why.clone())).collect()
    }

    /// Damaged blocks that are known.
    pub(super) fn damage(&self) -> BTreeMap<u64, String> {
        self.damaged().clone()
    }

    /// Goes back to what was known before; what is read again is found again.
    pub(super) fn set_damage(&self, known: BTreeMap<u64, String>) {
        *self.damaged() = known;
    }

    /// Whether any damage is known.
    pub(super) fn has_damage(&self) -> bool {
        !self.damaged().is_empty()
    }

    /// So much is damaged that the disk is not to be trusted with anything.
    pub(super) fn is_ruined(&self) -> bool {
        self.damaged().len() >= DAMAGED_MAX
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> io::Result<u64> {
        Ok(blocks_in(self.file.length()?))
    }

    /// Reads up to `count` blocks from `first` on from the disk itself and notes those that do not match. Block 0
    /// stands for the headers.
    pub(super) fn scrub(&self, first: u64, count: u64) -> io::Result<()> {
        let first = if first == 0 { self.scrub_headers().max(1) } else { first };
        let end = (first + count).min(self.blocks()?);
        let mut block = vec![0; BLOCK_BYTES as usize];
        for number in first..end {
            if number == first || number.is_multiple_of(GROUP_BLOCKS) {
                self.file.drop_cached(place(number), (end - number) * BLOCK_BYTES);
            }
            if self.is_sound(number, &mut block).is_ok() {
                continue;
            }
            // It may just be being written.
            let _writing = self.writing.lock().expect(NO_PANIC);
            if let Err(why) = self.is_sound(number, &mut block) {
                self.note_damage(number, why);
            }
            // What a reader met stays noted even if it can be read now: redb may still have what stood in for it.
        }
        Ok(())
    }

    /// A block that was cut off since is sound.
    fn is_sound(&self, number: u64, block: &mut [u8]) -> Result<(), String> {
        if number >= self.blocks().map_err(|error| format!("its length cannot be read: {error}"))? {
            return Ok(());
        }
        if self.entries().get(number as usize).is_none_or(|entry| *entry == NO_CONTENTS) {
            return Ok(());
        }
        match self.file.read_at(block, place(number)) {
            Ok(count) if count == block.len() => self.verify(number, block).map_err(|(_, why)| why),
            Ok(_) => Err("the file is too short".to_owned()),
            Err(error) => Err(format!("it cannot be read: {error}")),
        }
    }

    /// Returns 1, the block to go on with.
    fn scrub_headers(&self) -> u64 {
        let expected = self.header();
        self.file.drop_cached(0, HEADER_COPIES * BLOCK_BYTES);
        let damage = (0..HEADER_COPIES).find_map(|copy| match self.read_header(copy) {
            Ok(found) if found.sequence == expected.sequence && found.inner == expected.inner => None,
            Ok(_) => Some("is not the last one".to_owned()),
            Err(why) => Some(why),
        });
        // What is in memory is sound, so this damage can be mended at once.
        if let Some(why) = damage
            && let Err(error) = self.mend_header(&expected, &why)
        {
            tracing::error!(%error, "the headers of {CHECKPOINT_FILE} cannot be written");
        }
        1
    }

    /// After an unclean stop, handles torn writes: no block that was being written is in use by a durable state. One
    /// that does not match its entry is marked empty, so that it is not reported as damage later. A damaged block that
    /// was in use stays an error for its readers. Returns the number of torn blocks.
    pub(super) fn give_up_torn(&self) -> io::Result<u64> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut torn = 0;
        for number in 1..self.blocks()? {
            let is_read =
                matches!(self.file.read_at(&mut block, place(number)), Ok(count) if count == block.len());
            if is_read && self.verify(number, &block).is_err() {
                if let Some(entry) = self.entries_to_change().get_mut(number as usize) {
                    *entry = NO_CONTENTS;
                }
                self.set_dirty(number / GROUP_BLOCKS);
                torn += 1;
            }
        }
        Ok(torn)
    }
}

/// Cuts blocks where groups end: the first block of each run, and its bytes.
fn runs(mut first: u64, length: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = length - at;
        if left == 0 {
            return None;
        }
        let in_group = (GROUP_BLOCKS - first % GROUP_BLOCKS) * BLOCK_BYTES;
        let bytes = left.min(in_group as usize);
        let run = (first, at..at + bytes);
        first += bytes as u64 / BLOCK_BYTES;
        at += bytes;
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_disk::{Disk, MemoryDisk, Open};

    #[test]
    fn each_block_has_a_place_of_its_own_and_the_length_tells_their_number() {
        assert_eq!(ZERO_BLOCK, crc32c(&[0; BLOCK_BYTES as usize]));
        let mut next = entries_place(0);
        for block in 0..3 * GROUP_BLOCKS {
            if block.is_multiple_of(GROUP_BLOCKS) {
                assert_eq!(entries_place(block / GROUP_BLOCKS), next);
                next += BLOCK_BYTES;
            }
            assert_eq!(place(block), next);
            next += BLOCK_BYTES;
            assert_eq!((length_for(block + 1), blocks_in(next)), (next, block + 1));
        }
        assert_eq!((blocks_in(0), blocks_in(HEADER_COPIES * BLOCK_BYTES)), (0, 0));
    }

    fn filled(blocks: u64) -> (MemoryDisk, BlockFile) {
        let disk = MemoryDisk::new(1);
        let file = BlockFile::create(disk.open("f", Open::CreateNew).unwrap(), 7, 1);
        file.set_length(blocks * BLOCK_BYTES).unwrap();
        file.write(0, b"inner header").unwrap();
        (1..blocks).for_each(|n| file.write(n * BLOCK_BYTES, &[n as u8 | 1; BLOCK_BYTES as usize]).unwrap());
        file.sync().unwrap();
        (disk, file)
    }

    #[test]
    fn what_is_read_was_written_or_is_a_dead_end() {
        let (disk, file) = filled(GROUP_BLOCKS + 10);
        drop(file);
        let file = BlockFile::open(disk.open("f", Open::Existing).unwrap(), 7, 1).unwrap();
        let first = GROUP_BLOCKS - 2;
        let mut out = vec![0; 4 * BLOCK_BYTES as usize];
        file.read(first * BLOCK_BYTES, &mut out).unwrap();
        for (index, block) in out.chunks(BLOCK_BYTES as usize).enumerate() {
            assert!(block.iter().all(|byte| *byte == (first + index as u64) as u8 | 1));
        }
        disk.corrupt("f", place(GROUP_BLOCKS) + 4095, 0x80).unwrap();
        file.read(first * BLOCK_BYTES, &mut out).unwrap();
        let mut expected = vec![9; out.len()];
        fill_with_dead_end(&mut expected);
        assert!(out == expected, "a page of which one block is damaged");
        assert_eq!(file.known_damage().len(), 1);
        // Written anew it is sound again.
        file.write(GROUP_BLOCKS * BLOCK_BYTES, &[5; BLOCK_BYTES as usize]).unwrap();
        file.read(GROUP_BLOCKS * BLOCK_BYTES, &mut out[..BLOCK_BYTES as usize]).unwrap();
        assert!(out[..BLOCK_BYTES as usize].iter().all(|byte| *byte == 5) && file.known_damage().is_empty());
    }

    #[test]
    fn a_disk_that_does_not_read_a_block_does_not_keep_others_from_being_read() {
        let (disk, file) = filled(5);
        disk.fail_reads("f", io::ErrorKind::Other);
        let mut out = [0; BLOCK_BYTES as usize];
        file.read(2 * BLOCK_BYTES, &mut out).unwrap();
        assert_eq!(file.known_damage().len(), 1);
        disk.clear_faults();
        file.read(3 * BLOCK_BYTES, &mut out).unwrap();
        assert_eq!(out, [3; BLOCK_BYTES as usize]);
    }

    #[test]
    fn one_header_is_enough_and_is_mended_and_none_is_refused() {
        for copy in 0..HEADER_COPIES {
            let (disk, file) = filled(3);
            disk.corrupt("f", copy * BLOCK_BYTES + 30, 1).unwrap();
            drop(file);
            let open = || BlockFile::open(disk.open("f", Open::Existing).unwrap(), 7, 1);
            let file = open().unwrap();
            let mut inner = [0; 12];
            file.read(0, &mut inner).unwrap();
            assert_eq!(&inner, b"inner header");
            assert!(file.read_header(copy).is_ok() && file.mended().len() == 1, "not mended when opened");
            disk.corrupt("f", copy * BLOCK_BYTES + 30, 1).unwrap();
            file.scrub(0, 1).unwrap();
            assert!(file.read_header(copy).is_ok() && file.mended().len() == 2, "not mended by a scrub");
            file.scrub(0, 1).unwrap();
            assert_eq!(file.mended().len(), 2, "nothing is left to mend");
            (0..HEADER_COPIES).for_each(|copy| disk.corrupt("f", copy * BLOCK_BYTES + 30, 1).unwrap());
            assert!(
                matches!(open().err(), Some(EngineError::Corrupt(text)) if text.contains("both headers"))
            );
        }
        let (disk, _) = filled(3);
        let other = BlockFile::open(disk.open("f", Open::Existing).unwrap(), 8, 1);
        assert!(matches!(other.err(), Some(EngineError::Corrupt(text)) if text.contains("another volume")));
    }

    /// A scrub looked at the last blocks while redb cut them off, and called the file damaged for being too short.
    #[test]
    fn a_block_that_was_cut_off_is_not_damaged() {
        let (_, file) = filled(10);
        file.set_length(5 * BLOCK_BYTES).unwrap();
        let mut block = vec![0; BLOCK_BYTES as usize];
        assert_eq!([4, 5, 9].map(|number| file.is_sound(number, &mut block)), [Ok(()), Ok(()), Ok(())]);
    }

    #[test]
    fn a_scrub_finds_what_nobody_reads() {
        let (disk, file) = filled(GROUP_BLOCKS + 10);
        for block in [1, GROUP_BLOCKS - 1, GROUP_BLOCKS + 9] {
            disk.corrupt("f", place(block) + 17, 4).unwrap();
        }
        (0..GROUP_BLOCKS + 10).step_by(100).for_each(|first| file.scrub(first, 100).unwrap());
        assert_eq!(file.known_damage().len(), 3);
    }
}
