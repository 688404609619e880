//! Entries made to agree with the data again, where an unclean stop or a failed write may have parted them; and blocks
//! that rotted replaced by those of a good copy.

use super::damage::Place;
use super::restore::SoundBlock;
use crate::object::attempts::Passed;
use crate::object::names::{self, Part};
use crate::object::sidecar::{ENTRY_BYTES, Header, REGIONS, entry_at};
use crate::object::sums;
use crate::object::{Files, Mode, Stop, blocks, sums_length};
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
            return Err(self.corrupt(id, chunk, Part::Sums, "a mark lies in the future"));
        }
        let regions: Vec<usize> = (0..REGIONS).filter(|&r| suspects.includes(files.marks[r])).collect();
        let length = files.sums.length().map_err(|e| self.read_fault(&path, &e))?;
        let expected = sums_length(files.length);
        if regions.is_empty() {
            // The other way round is a file whose end is zeros.
            return if length > expected {
                Err(self.corrupt(id, chunk, Part::Data, "the data is shorter than its checksums"))
            } else {
                Ok(())
            };
        }
        if length > expected {
            // Perhaps the data has lost its end.
            self.take_for_right(id, chunk, files.length..u64::MAX)?;
            files.sums.set_length(expected).map_err(|e| self.write_fault(&path, &e))?;
        }
        let last_chunk = header.map_or(0, |h| h.last_chunk);
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
    /// Replaces the block at `offset` where it fails its checksum. False: it does not. Errors: `good` is shorter than
    /// the block is here, or longer than one that is not the last; the disk.
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
        let length = good.bytes.len();
        let here = body.length.saturating_sub(offset).min(BLOCK);
        // A last block that is damaged may have been cut.
        let was_cut = (1..BLOCK).contains(&here) && here < length as u64;
        if here != length as u64 && !was_cut {
            let text = format!("object {id}: its copies have different ends at the moment");
            return Err(Fault::new(Code::Unavailable, text).into());
        }
        self.check_marked()?;
        let pass = self.enter()?;
        let segment = Segment { chunk, offset: block * BLOCK, length };
        let checksums = [good.checksum];
        self.write_segment(id, &mut body, segment, &checksums, &good.bytes, &pass, Mode::Blocking)?;
        body.length = body.length.max(offset + length as u64);
        self.damage.remove((id, Place::Block(offset / BLOCK)));
        self.restores.count_block();
        tracing::warn!(target_id = self.id().0, object = %id, offset, "a damaged block was repaired from a copy");
        Ok(true)
    }

    fn is_sound(&self, id: ObjectId, chunk: u64, files: &Files, block: u64) -> Result<bool, Stop> {
        let mut entry = [0; ENTRY_BYTES as usize];
        self.read_file(id, chunk, Part::Sums, files, &mut entry, entry_at(block), Mode::Blocking)?;
        let entry = u32::from_le_bytes(entry);
        match self.verify_block(id, chunk, files, block, entry, Mode::Blocking, &mut Vec::new()) {
            Ok(()) => Ok(true),
            Err(Stop::Fault(fault)) if fault.code == Code::Corrupt => Ok(false),
            Err(stop) => Err(stop),
        }
    }
}

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
