//! Entries made to agree with the data again, where an unclean stop or a failed write may have parted them; and blocks
//! that fail them replaced by those of a good copy, or, where there is none, made to fail as all others do.
//!
//! A chunk of a placement group's object may have been harmed in another way than in blocks while no server had it. As
//! it is opened, what its entries still say is kept, so that its blocks can be repaired one by one: a file that was cut
//! gets zeros in the place of what it has lost; a header that has rotted is made anew, as the file's name says as well
//! which chunk it is of. Where the entries themselves are gone the object is made anew ([`Target::let_go`]).

use super::damage::Place;
use super::restore::SoundBlock;
use crate::object::attempts::Passed;
use crate::object::names::{self, Part};
use crate::object::sidecar::{ENTRY_BYTES, Header, REGIONS, entry_at};
use crate::object::sums;
use crate::object::{Body, Files, Mode, Stop, blocks, sums_length};
use crate::ops::Segment;
use crate::targets::Target;
use std::io;
use std::ops::{Range, RangeInclusive};
use vazao_model::checksum::crc32c;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, GroupId, ObjectId};
use vazao_wire::service::Fault;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Which marks are suspect, at the moment a chunk is opened.
pub(crate) struct Suspects {
    epochs: Option<RangeInclusive<u32>>,
    current: u32,
}

impl Suspects {
    /// Those of `target`.
    pub(crate) fn of(target: &Target) -> Suspects {
        // In this order: whatever is marked before `current` is read is within it.
        let epochs = target.epochs.suspects();
        Suspects { epochs, current: target.epochs.current() }
    }

    /// Whether any are.
    pub(crate) fn any(&self) -> bool {
        self.epochs.is_some()
    }

    /// Whether a region with this mark may be torn. A mark of 0 stands in a header that never reached the disk.
    pub(crate) fn includes(&self, mark: u32) -> bool {
        self.epochs.as_ref().is_some_and(|epochs| mark == 0 || epochs.contains(&mark))
    }

    /// Whether such a mark can have been written at all.
    fn is_possible(&self, mark: u32) -> bool {
        self.includes(mark) || (1..=self.current).contains(&mark)
    }
}

impl Target {
    /// Checks what can be checked without reading the data, and repairs regions that may be torn.
    pub(crate) fn check_and_repair(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &mut Files,
        header: Option<Header>,
        suspects: &Suspects,
    ) -> Result<(), Fault> {
        let path = names::path(id, chunk, Part::Sums);
        if !files.marks.iter().all(|&mark| suspects.is_possible(mark)) {
            // Where something is suspect, nothing says whether this chunk is.
            if id.group == GroupId(0) || suspects.any() {
                return Err(self.corrupt(id, chunk, Part::Sums, "a mark lies in the future"));
            }
            make_header(self, (id, chunk), files, header, suspects)?;
        }
        let regions: Vec<usize> = (0..REGIONS).filter(|&r| suspects.includes(files.marks[r])).collect();
        let length = files.sums.length().map_err(|e| self.read_fault(&path, &e))?;
        let expected = sums_length(files.length);
        if regions.is_empty() {
            return match length > expected {
                true if id.group == GroupId(0) => {
                    Err(self.corrupt(id, chunk, Part::Data, "the data is shorter than its checksums"))
                }
                true => stand_in_for_end(self, (id, chunk), files, length),
                // The other way round is a file whose end is zeros.
                false => Ok(()),
            };
        }
        if length > expected {
            // Perhaps the data has lost its end.
            self.take_for_right(id, chunk, files.length..u64::MAX)?;
            files.sums.set_length(expected).map_err(|e| self.write_fault(&path, &e))?;
        }
        // Without a header all names are looked for, also by the next process where this one gets no further.
        let last_chunk = header.map_or(if chunk == 0 { u64::MAX } else { 0 }, |h| h.last_chunk);
        let count = regions.len();
        let mut repaired = 0;
        for region in regions {
            repaired += self.repair_region(id, chunk, files, region, last_chunk)?;
        }
        if repaired > 0 {
            tracing::warn!(target_id = self.id().0, object = %id, chunk, "repaired {repaired} blocks of {count} unsynced regions");
        }
        self.note_repair(repaired);
        Ok(())
    }

    /// Repairs one region and marks it with the present epoch. Returns how many entries were wrong.
    fn repair_region(
        &self,
        id: ObjectId,
        chunk: u64,
        files: &mut Files,
        region: usize,
        last_chunk: u64,
    ) -> Result<u64, Fault> {
        let path = names::path(id, chunk, Part::Sums);
        // A region at a time, so that the end of the epoch is not held up for the whole chunk.
        let pass = self.enter()?;
        let blocks_each = self.region_bytes() / BLOCK_BYTES as u64;
        let first = region as u64 * blocks_each;
        let last = if region == REGIONS - 1 { u64::MAX } else { first + blocks_each };
        let range = first..last.min(blocks(files.length));
        let mut unnoted = Ok(());
        let mut suspect = |block: u64| {
            unnoted = self.take_for_right(id, chunk, block * BLOCK..(block + 1) * BLOCK);
            unnoted.is_ok()
        };
        let repaired = recompute(files, range, &mut suspect).map_err(|e| self.read_fault(&path, &e))?;
        unnoted?;
        files.marks[region] = pass.epoch();
        // Not synced: until the next checkpoint the mark is suspect after a power loss, the old one or the new one.
        let header = Header { object: id, chunk, last_chunk, marks: files.marks };
        files.sums.write_at(&header.encode(), 0).map_err(|e| self.write_fault(&path, &e))?;
        Ok(repaired)
    }

    /// Notes that bytes of a chunk are taken for right as they are found: here, and for the next process, before an
    /// entry says so.
    pub(crate) fn take_for_right(&self, id: ObjectId, chunk: u64, range: Range<u64>) -> Result<(), Fault> {
        if id.group == GroupId(0) {
            return Ok(());
        }
        let start = chunk.saturating_mul(self.chunk_bytes);
        self.suspect.add(id, start.saturating_add(range.start)..start.saturating_add(range.end));
        self.note_suspect()
    }

    /// Makes the entries of blocks that a failed write may have touched agree with the data. When that fails as
    /// well, the target cannot be trusted any more.
    pub(crate) fn mend(&self, id: ObjectId, chunk: u64, files: &Files, range: Range<u64>) {
        let mend = || {
            let length = files.data.length()?;
            if files.sums.length()? > sums_length(length) {
                files.sums.set_length(sums_length(length))?;
            }
            recompute(files, range.start..range.end.min(blocks(length)), &mut |_| true).map(drop)
        };
        if let Err(error) = mend() {
            self.fail(format!("{}: a write failed half-way: {error}", names::path(id, chunk, Part::Data)));
        }
    }
}

impl Target {
    /// Replaces the block at `offset` where it fails its checksum. False: it does not. The last one is as long as
    /// `good` then: longer where it was cut, shorter where all of a block stood for an end that had been cut off.
    /// Errors: of another one `good` has not the length; the disk.
    pub(crate) fn restore_block(
        &self,
        id: ObjectId,
        offset: u64,
        good: &SoundBlock,
        passed: Option<Passed>,
    ) -> Result<bool, Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let mut body = object.write(self);
        passed.map_or(Ok(()), |passed| self.check_passed(passed))?;
        let (chunk, block) = (offset / self.chunk_bytes, offset % self.chunk_bytes / BLOCK);
        self.open_chunks(id, &mut body, chunk..=chunk)?;
        let Some(files) = body.files(chunk) else { return Ok(false) };
        if self.is_sound(id, chunk, files, block)? {
            return Ok(false);
        }
        let start = block * BLOCK;
        let (here, good_length) = (body.length.saturating_sub(offset).min(BLOCK), good.bytes.len() as u64);
        let is_last = body.length <= offset + BLOCK;
        // A last block that is damaged may have been cut, or stand for an end that was.
        let was_cut = is_last && here > 0 && here < good_length;
        let stands_in = is_last && here == BLOCK;
        if here != good_length && !was_cut && !stands_in {
            let text = format!("object {id}: its copies have different ends at the moment");
            return Err(Fault::new(Code::Unavailable, text).into());
        }
        self.check_marked()?;
        let pass = self.enter()?;
        if here > good_length {
            self.mark(id, &mut body, chunk, start..start + here, &pass, Mode::Blocking)?;
            self.cut_last_block(id, &mut body, chunk, start + good_length)?;
        }
        let segment = Segment { chunk, offset: start, length: good.bytes.len() };
        let checksums = [good.checksum];
        self.write_segment(id, &mut body, segment, &checksums, &good.bytes, &pass, Mode::Blocking)?;
        body.length = body.length.max(offset + good_length);
        self.damage.remove((id, Place::Block(offset / BLOCK)));
        self.restores.count_block();
        tracing::warn!(target_id = self.id().0, object = %id, offset, "a damaged block was repaired from a copy");
        Ok(true)
    }

    /// Cuts an object within its last block, which is damaged: its entry stays as it is.
    fn cut_last_block(&self, id: ObjectId, body: &mut Body, chunk: u64, end: u64) -> Result<(), Stop> {
        if let Some(files) = body.chunks.get_mut(&chunk).and_then(|it| it.files.as_mut()) {
            let cut = files.data.set_length(end);
            cut.map_err(|e| self.write_fault(&names::path(id, chunk, Part::Data), &e))?;
            files.length = end;
            body.length = chunk * self.chunk_bytes + end;
        }
        Ok(())
    }

    /// Whether these bytes of another copy, and zeros up to a whole block, are those that the block at `offset`, which
    /// is damaged, is to have by its checksum.
    pub(crate) fn is_noted(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<bool, Stop> {
        let (entry, _) = self.noted(id, offset)?;
        // 0 is that of zeros, and of a block of which the entry is gone.
        Ok(entry != 0 && entry == sums::placed(crc32c(bytes), 0, bytes.len()))
    }

    /// Whether they are what is here, so that it is the checksum that has rotted. Of zeros that is not said, which a
    /// disk has as well for what it has lost, nor of what stands for an end that was cut off.
    pub(crate) fn is_here(&self, id: ObjectId, offset: u64, bytes: &[u8]) -> Result<bool, Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let (chunk, start) = (offset / self.chunk_bytes, offset % self.chunk_bytes);
        let body = self.open_to_read(&object, chunk..=chunk, Mode::Blocking)?;
        let Some(files) = body.files(chunk) else { return Ok(false) };
        let mut here = vec![0; BLOCK_BYTES];
        let present = files.length.saturating_sub(start).min(BLOCK) as usize;
        self.read_file(id, chunk, Part::Data, files, &mut here[..present], start, Mode::Blocking)?;
        let (same, others) = here.split_at(bytes.len().min(BLOCK_BYTES));
        let is_same = same == bytes && others.iter().all(|byte| *byte == 0);
        let end = bytes.len().saturating_sub(16)..bytes.len();
        let stands_in = end.len() == 16 && NO_DATA.get(end.clone()) == bytes.get(end);
        Ok(is_same && !stands_in && bytes.iter().any(|byte| *byte != 0))
    }

    /// The entry of the block at `offset`, and how many bytes it has.
    pub(crate) fn noted(&self, id: ObjectId, offset: u64) -> Result<(u32, u32), Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let (chunk, block) = (offset / self.chunk_bytes, offset % self.chunk_bytes / BLOCK);
        let body = self.open_to_read(&object, chunk..=chunk, Mode::Blocking)?;
        let entry = body.files(chunk).map_or(Ok(0), |files| self.entry(id, chunk, files, block))?;
        Ok((entry, body.length.saturating_sub(offset).min(BLOCK) as u32))
    }

    /// Has the block at `offset`, of so many bytes, fail its checksum, as no copy of it is good: `entry` is the one
    /// that it has elsewhere. One that matches that is good, and stays so.
    pub(crate) fn lose_block(
        &self,
        id: ObjectId,
        offset: u64,
        length: usize,
        entry: u32,
        passed: Option<Passed>,
    ) -> Result<(), Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let mut body = object.write(self);
        passed.map_or(Ok(()), |passed| self.check_passed(passed))?;
        let (chunk, block) = (offset / self.chunk_bytes, offset % self.chunk_bytes / BLOCK);
        self.open_chunks(id, &mut body, chunk..=chunk)?;
        if !body.exists() {
            return Err(Fault::new(Code::NotFound, format!("object {id}")).into());
        }
        let (start, end) = (block * BLOCK, block * BLOCK + length as u64);
        let here = body.files(chunk).map_or(0, |files| files.length).max(start);
        let checksum = self.checksum_of(id, &body, chunk, start)?;
        let is_good = entry != 0 && checksum == entry;
        self.check_marked()?;
        let pass = self.enter()?;
        if here < end && !is_good {
            let bytes = no_data(here..end);
            let segment = Segment { chunk, offset: here, length: bytes.len() };
            self.write_segment(id, &mut body, segment, &[crc32c(bytes)], bytes, &pass, Mode::Blocking)?;
            body.length = body.length.max(offset + length as u64);
        }
        self.mark(id, &mut body, chunk, start..start + BLOCK, &pass, Mode::Blocking)?;
        let is_last = body.length <= offset + BLOCK;
        if !is_good && is_last && body.length > offset + length as u64 {
            self.cut_last_block(id, &mut body, chunk, end)?;
        }
        let right = self.checksum_of(id, &body, chunk, start)?;
        let entry = if entry == 0 { !right } else { entry };
        let Some(chunk_state) = body.chunks.get_mut(&chunk) else { return Ok(()) };
        *chunk_state.dirty.get_mut() = true;
        let Some(files) = chunk_state.files.as_ref() else { return Ok(()) };
        let written = files.sums.write_at(&entry.to_le_bytes(), entry_at(block));
        written.map_err(|e| self.write_fault(&names::path(id, chunk, Part::Sums), &e))?;
        if entry != right {
            self.corrupt_block(id, chunk, block);
        }
        Ok(())
    }

    /// The entry that the block at `start` of an open chunk would have by its bytes.
    fn checksum_of(&self, id: ObjectId, body: &Body, chunk: u64, start: u64) -> Result<u32, Stop> {
        let Some(files) = body.files(chunk) else { return Ok(0) };
        let mut bytes = vec![0; files.length.saturating_sub(start).min(BLOCK) as usize];
        self.read_file(id, chunk, Part::Data, files, &mut bytes, start, Mode::Blocking)?;
        Ok(sums::placed(crc32c(&bytes), 0, bytes.len()))
    }

    fn entry(&self, id: ObjectId, chunk: u64, files: &Files, block: u64) -> Result<u32, Stop> {
        let mut entry = [0; ENTRY_BYTES as usize];
        self.read_file(id, chunk, Part::Sums, files, &mut entry, entry_at(block), Mode::Blocking)?;
        Ok(u32::from_le_bytes(entry))
    }

    fn is_sound(&self, id: ObjectId, chunk: u64, files: &Files, block: u64) -> Result<bool, Stop> {
        let entry = self.entry(id, chunk, files, block)?;
        match self.verify_block(id, chunk, files, block, entry, Mode::Blocking, &mut Vec::new()) {
            Ok(()) => Ok(true),
            Err(Stop::Fault(fault)) if fault.code == Code::Corrupt => Ok(false),
            Err(stop) => Err(stop),
        }
    }
}

/// Marks of a sidecar whose header has rotted: where nothing is suspect, what the entries say holds.
fn make_header(
    target: &Target,
    (id, chunk): (ObjectId, u64),
    files: &mut Files,
    header: Option<Header>,
    suspects: &Suspects,
) -> Result<(), Fault> {
    let path = names::path(id, chunk, Part::Sums);
    tracing::error!(target_id = target.id().0, file = path, "a header had rotted, and is made anew");
    let pass = target.enter()?;
    for mark in files.marks.iter_mut().filter(|mark| !suspects.is_possible(**mark)) {
        *mark = pass.epoch();
    }
    let last_chunk = match (chunk, header) {
        (0, Some(header)) => header.last_chunk,
        // It is looked for by its name, and written then.
        (0, None) => return Ok(()),
        _ => 0,
    };
    let header = Header { object: id, chunk, last_chunk, marks: files.marks };
    files.sums.write_at(&header.encode(), 0).map_err(|e| target.write_fault(&path, &e))
}

/// Has something stand for an end that was cut off while no server ran. How long the last block was is not known: it is
/// whole until it is repaired, so that what is written into a part of it does not pass for all of it.
fn stand_in_for_end(
    target: &Target,
    (id, chunk): (ObjectId, u64),
    files: &mut Files,
    sums_length: u64,
) -> Result<(), Fault> {
    let path = names::path(id, chunk, Part::Data);
    let count = sums_length.saturating_sub(entry_at(0)) / ENTRY_BYTES;
    let length = (count * BLOCK).min(target.chunk_bytes);
    if length > files.length {
        tracing::error!(target_id = target.id().0, file = path, "a file was cut while no server had it");
        files.length = length;
        let first = chunk.saturating_mul(target.chunk_bytes / BLOCK);
        for block in lengthen(files).map_err(|e| target.write_fault(&path, &e))? {
            // Repaired without being read first.
            target.damage.add(id, Place::Block(first.saturating_add(block)));
        }
    }
    Ok(())
}

/// Puts bytes in the place of an end that was cut off, in blocks that have an entry, and says in which. They fail their
/// checksums, also in the next process, as any other damage of blocks does. Holes would pass for zeros with programs
/// that ask where there is data; and zeros written over zeros would leave an entry that an older copy matches.
pub(crate) fn lengthen(files: &Files) -> io::Result<Vec<u64>> {
    let present = files.data.length()?;
    let mut damaged = Vec::new();
    if present >= files.length {
        return Ok(damaged);
    }
    files.data.set_length(files.length)?;
    for block in present / BLOCK..blocks(files.length) {
        let mut entry = [0; ENTRY_BYTES as usize];
        files.sums.read_at(&mut entry, entry_at(block))?;
        if entry != [0; ENTRY_BYTES as usize] {
            let start = present.max(block * BLOCK);
            let end = files.length.min((block + 1) * BLOCK);
            files.data.write_at(no_data(start..end), start)?;
            damaged.push(block);
        }
    }
    Ok(damaged)
}

/// What stands for bytes of one block.
fn no_data(range: Range<u64>) -> &'static [u8] {
    let start = (range.start % BLOCK) as usize;
    NO_DATA.get(start..start + (range.end - range.start) as usize).unwrap_or(&NO_DATA)
}

/// Bytes that no program has written.
static NO_DATA: [u8; BLOCK_BYTES] = {
    let mut bytes = [0; BLOCK_BYTES];
    let (mut at, mut state) = (0, 0x9E37_79B9_u32);
    while at < BLOCK_BYTES {
        // Xorshift: never 0.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes[at] = (state >> 24) as u8 | 1;
        at += 1;
    }
    bytes
};

/// Entries read and written at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// Computes the entries of `range` (blocks of the chunk) from the data, and writes those that differ; returns how many.
/// `differs` is told of each before it is written; false: it ends there.
fn recompute(files: &Files, range: Range<u64>, differs: &mut dyn FnMut(u64) -> bool) -> io::Result<u64> {
    let mut repaired = 0;
    let mut block = vec![0; BLOCK_BYTES];
    let mut entries = vec![0; ENTRIES_AT_ONCE * ENTRY_BYTES as usize];
    let mut first = range.start;
    while first < range.end {
        let count = (range.end - first).min(ENTRIES_AT_ONCE as u64) as usize;
        let entries = &mut entries[..count * ENTRY_BYTES as usize];
        let found = files.sums.read_at(entries, entry_at(first))?;
        entries[found..].fill(0);
        let mut differing: Option<Range<usize>> = None;
        for (index, entry) in entries.chunks_exact_mut(ENTRY_BYTES as usize).enumerate() {
            let length = files.data.read_at(&mut block, (first + index as u64) * BLOCK_BYTES as u64)?;
            let right = sums::placed(crc32c(&block[..length]), 0, length).to_le_bytes();
            if entry != right {
                if !differs(first + index as u64) {
                    return Ok(repaired);
                }
                entry.copy_from_slice(&right);
                repaired += 1;
                differing = Some(differing.map_or(index, |d| d.start)..index + 1);
            }
        }
        if let Some(Range { start, end }) = differing {
            let bytes = &entries[start * ENTRY_BYTES as usize..end * ENTRY_BYTES as usize];
            files.sums.write_at(bytes, entry_at(first + start as u64))?;
        }
        first += count as u64;
    }
    Ok(repaired)
}
