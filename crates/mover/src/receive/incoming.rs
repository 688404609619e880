//! One file that arrives: under a temporary name, block by block, until it is whole.

use super::journal::Journal;
use crate::grid::{BlockSet, Grid, whole_checksum, zero_checksum};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use vazao_area::{AreaFile, Inside};
use vazao_meter::{Cause, Clock};
use vazao_model::Code;
use vazao_model::checksum::{combine, crc32c, first_mismatch, piece_lengths};
use vazao_model::limits::BLOCK_BYTES;
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Parts of a block that arrive by themselves are whole numbers of these, but for the end of the file.
const UNIT_BYTES: u64 = 4096;

/// What arrives in order is given to the disk in pieces of this: long enough for a disk that moves its heads.
const WRITE_OUT_BYTES: u64 = 4 << 20;

/// Bytes read at once when a block or file is read back.
const READ_BYTES: usize = 1 << 20;

/// A block of which parts are there.
#[derive(Debug)]
struct OpenBlock {
    units: BlockSet,
    /// Checksums of its whole 64 KiB pieces, in so far as they came whole.
    pieces: Vec<Option<u32>>,
}

#[derive(Debug)]
struct State {
    finished: BlockSet,
    checksums: Vec<u32>,
    open: HashMap<usize, OpenBlock>,
    journal: Option<Journal>,
    ended: bool,
}

/// A file that arrives.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) begin: proto::CopyBeginRequest,
    pub(super) token: [u8; 16],
    pub(super) target: Inside,
    pub(super) part: Inside,
    pub(super) journal_path: Option<PathBuf>,
    grid: Grid,
    file: AreaFile,
    state: Mutex<State>,
    received_bytes: AtomicU64,
    disk_ns: AtomicU64,
    used_ns: AtomicU64,
    connections: AtomicUsize,
    claimed: AtomicBool,
}

/// What an arrival begins with.
pub(super) struct Start {
    pub(super) begin: proto::CopyBeginRequest,
    pub(super) token: [u8; 16],
    pub(super) target: Inside,
    pub(super) part: Inside,
    pub(super) journal_path: Option<PathBuf>,
    pub(super) grid: Grid,
    pub(super) file: AreaFile,
    pub(super) journal: Option<Journal>,
    /// Blocks that are there, with their checksums.
    pub(super) blocks: Vec<(usize, u32)>,
}

impl Incoming {
    pub(super) fn new(start: Start, now_ns: u64) -> Incoming {
        let Start { begin, token, target, part, journal_path, grid, file, journal, blocks } = start;
        let mut finished = BlockSet::new(grid.blocks());
        let mut checksums = vec![0; grid.blocks()];
        for (block, checksum) in blocks {
            if let Some(place) = checksums.get_mut(block) {
                *place = checksum;
                finished.insert(block);
            }
        }
        let state = State { finished, checksums, open: HashMap::new(), journal, ended: false };
        Incoming {
            begin,
            token,
            target,
            part,
            journal_path,
            grid,
            file,
            state: Mutex::new(state),
            received_bytes: AtomicU64::new(0),
            disk_ns: AtomicU64::new(0),
            used_ns: AtomicU64::new(now_ns),
            connections: AtomicUsize::new(0),
            claimed: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A sender has shown interest.
    pub(crate) fn touch(&self, now_ns: u64) {
        self.used_ns.store(now_ns, Ordering::Relaxed);
    }

    /// None has for `silent_ns`, and no connection is open.
    pub(super) fn is_idle(&self, now_ns: u64, silent_ns: u64) -> bool {
        let silent = now_ns.saturating_sub(self.used_ns.load(Ordering::Relaxed));
        self.connections.load(Ordering::Relaxed) == 0 && silent > silent_ns
    }

    /// A connection begins or ends.
    pub(super) fn count_connection(&self, begins: bool) {
        match begins {
            true => self.connections.fetch_add(1, Ordering::Relaxed),
            false => self.connections.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// What data connections show.
    pub(crate) fn token(&self) -> [u8; 16] {
        self.token
    }

    /// As messages show it.
    pub(crate) fn shown(&self) -> String {
        self.target.shown()
    }

    /// The area that it arrives in.
    pub(super) fn place(&self) -> &str {
        self.target.area()
    }

    /// Bytes received by this daemon, and nanoseconds that its disk took.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.received_bytes.load(Ordering::Relaxed), self.disk_ns.load(Ordering::Relaxed))
    }

    /// The bits and checksums of what is there; empty where nothing is.
    pub(crate) fn arrived(&self) -> (usize, Vec<u8>) {
        let state = self.state();
        if state.finished.is_empty() {
            return (0, Vec::new());
        }
        let mut bytes = state.finished.to_bytes();
        for block in (0..self.grid.blocks()).filter(|&block| state.finished.has(block)) {
            bytes.extend_from_slice(&state.checksums[block].to_le_bytes());
        }
        (state.finished.len(), bytes)
    }

    /// How it is cut.
    pub(super) fn grid(&self) -> Grid {
        self.grid
    }

    /// Whether a block is whole.
    pub(super) fn has(&self, block: usize) -> bool {
        self.state().finished.has(block)
    }

    /// Takes the right to write by FTP, which one session at a time has; false where another has it.
    pub(super) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::SeqCst)
    }

    /// Gives it back.
    pub(super) fn unclaim(&self) {
        self.claimed.store(false, Ordering::SeqCst);
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<u64, Fault> {
        let end = offset.checked_add(length).filter(|&end| end <= self.grid.size);
        end.ok_or_else(|| {
            let size = self.grid.size;
            let why = format!("{}: {length} bytes at {offset} of a file of {size}", self.shown());
            Fault::new(Code::BadRequest, why)
        })
    }

    /// Verifies and writes bytes. Calls `finished` with the offset of each block that is whole and ends here.
    pub(crate) fn write(
        &self,
        offset: u64,
        bytes: &[u8],
        checksums: &[u32],
        clock: &dyn Clock,
        finished: &mut dyn FnMut(u64),
    ) -> Result<u64, Fault> {
        if first_mismatch(offset, bytes, checksums).is_some() {
            let why = format!(
                "{}: bytes at {offset} arrived with another checksum than they were sent with",
                self.shown()
            );
            return Err(Fault::new(Code::Corrupt, why));
        }
        self.put(offset, bytes, checksums, clock, finished)
    }

    /// Writes bytes of which `checksums` were computed here; that they are what was sent has to be known otherwise
    /// before the last ones of a block are put.
    pub(super) fn put(
        &self,
        offset: u64,
        bytes: &[u8],
        checksums: &[u32],
        clock: &dyn Clock,
        finished: &mut dyn FnMut(u64),
    ) -> Result<u64, Fault> {
        let end = self.check_range(offset, bytes.len() as u64)?;
        let is_cut =
            !offset.is_multiple_of(UNIT_BYTES) || (end != self.grid.size && !end.is_multiple_of(UNIT_BYTES));
        if is_cut {
            let why = format!("{}: bytes at {offset} that are cut within {UNIT_BYTES}", self.shown());
            return Err(Fault::new(Code::BadRequest, why));
        }
        let _waiting = self.target.begin("a write of a copy")?;
        self.received_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let (started_ns, cpu_ns) = (clock.now_ns(), thread_cpu_ns());
        let written = self.target.during(Cause::DiskWrite, || {
            self.file.write_all_at(bytes, offset)?;
            self.write_out(offset, end);
            Ok(())
        });
        // What went into copying to the page cache is the processor's.
        let copied_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        let disk_ns = clock.now_ns().saturating_sub(started_ns).saturating_sub(copied_ns);
        self.disk_ns.fetch_add(disk_ns, Ordering::Relaxed);
        written.map_err(|error: std::io::Error| self.target.fault_of(&error))?;
        self.note(offset, bytes.len(), checksums, finished)?;
        Ok(disk_ns)
    }

    /// Has the disk begin with what has come together up to `end`: the sync at the end of the copy would find all of
    /// the file still to be written, while nothing arrives any more.
    fn write_out(&self, offset: u64, end: u64) {
        let (first, last) = (offset / WRITE_OUT_BYTES, end / WRITE_OUT_BYTES);
        if first < last {
            let start = first * WRITE_OUT_BYTES;
            self.part.begin_writing_range(&self.file, start, last * WRITE_OUT_BYTES - start);
        }
    }

    /// Marks what was written, block by block.
    fn note(
        &self,
        offset: u64,
        length: usize,
        checksums: &[u32],
        finished: &mut dyn FnMut(u64),
    ) -> Result<(), Fault> {
        let mut at = offset;
        // Locked to the end: another connection that brings the same block sees it open or finished, nothing between.
        let mut state = self.state();
        for (piece, &checksum) in piece_lengths(offset, length).zip(checksums) {
            let block = self.grid.block_of(at);
            if !state.finished.has(block) && self.note_piece(&mut state, block, at, piece, checksum) {
                let open = state.open.remove(&block);
                let checksum = match open.and_then(|open| self.checksum_of(block, &open)) {
                    Some(checksum) => checksum,
                    None => self.read_checksum(block)?,
                };
                self.finish(&mut state, block, checksum)?;
            }
            at += piece as u64;
            // Reported to the connection that sends the block's end: another connection, cut since, may have brought
            // the block before.
            if at == self.grid.start(block) + self.grid.length(block) && state.finished.has(block) {
                finished(self.grid.start(block));
            }
        }
        Ok(())
    }

    /// True when the piece makes its block whole.
    fn note_piece(&self, state: &mut State, block: usize, at: u64, length: usize, checksum: u32) -> bool {
        let units = self.grid.length(block).div_ceil(UNIT_BYTES) as usize;
        let pieces = self.grid.length(block).div_ceil(BLOCK_BYTES as u64) as usize;
        let open = state
            .open
            .entry(block)
            .or_insert_with(|| OpenBlock { units: BlockSet::new(units), pieces: vec![None; pieces] });
        let within = at - self.grid.start(block);
        let first = (within / UNIT_BYTES) as usize;
        let count = (length as u64).div_ceil(UNIT_BYTES) as usize;
        (first..first + count).for_each(|unit| {
            open.units.insert(unit);
        });
        let index = (within / BLOCK_BYTES as u64) as usize;
        let is_whole_piece = within.is_multiple_of(BLOCK_BYTES as u64)
            && (length == BLOCK_BYTES || within + length as u64 == self.grid.length(block));
        if let Some(place) = open.pieces.get_mut(index) {
            *place = is_whole_piece.then_some(checksum);
        }
        open.units.len() == units
    }

    fn checksum_of(&self, block: usize, open: &OpenBlock) -> Option<u32> {
        let lengths = piece_lengths(0, usize::try_from(self.grid.length(block)).ok()?);
        let mut sum = crc32c(&[]);
        for (length, piece) in lengths.zip(&open.pieces) {
            sum = combine(sum, (*piece)?, length as u64);
        }
        Some(sum)
    }

    /// The checksum of a block as the file has it.
    pub(super) fn read_checksum(&self, block: usize) -> Result<u32, Fault> {
        read_checksum(&self.file, self.grid.start(block), self.grid.length(block))
            .map_err(|error| self.target.fault_of(&error))
    }

    fn finish(&self, state: &mut State, block: usize, checksum: u32) -> Result<(), Fault> {
        if !state.finished.insert(block) {
            return Ok(());
        }
        state.checksums[block] = checksum;
        let Some(journal) = &mut state.journal else { return Ok(()) };
        journal.append(block, checksum).map_err(|error| {
            let why =
                format!("{}: noting what has arrived, in the daemon's own directory: {error}", self.shown());
            Fault::new(Code::Io, why)
        })
    }

    /// A range of whole blocks that are zeros; the file is born with them.
    pub(crate) fn zeros(&self, offset: u64, length: u64, finished: &mut dyn FnMut(u64)) -> Result<(), Fault> {
        let end = self.check_range(offset, length)?;
        let block_bytes = self.grid.block_bytes;
        if !offset.is_multiple_of(block_bytes) || (end != self.grid.size && !end.is_multiple_of(block_bytes))
        {
            let why = format!("{}: zeros at {offset} that are no whole blocks", self.shown());
            return Err(Fault::new(Code::BadRequest, why));
        }
        let whole = zero_checksum(block_bytes);
        let mut at = offset;
        while at < end {
            let block = self.grid.block_of(at);
            let bytes = self.grid.length(block);
            self.finish(
                &mut self.state(),
                block,
                if bytes == block_bytes { whole } else { zero_checksum(bytes) },
            )?;
            finished(at);
            at += bytes;
        }
        Ok(())
    }

    /// Checks that all is there and as it was sent, makes it durable and gives it its name.
    pub(super) fn end(&self, request: &proto::CopyEndRequest) -> Result<(), Fault> {
        let mut state = self.state();
        if state.ended {
            return Ok(());
        }
        let (have, all) = (state.finished.len(), self.grid.blocks());
        if have != all {
            let why = format!("{}: {have} of {all} blocks have arrived", self.shown());
            return Err(Fault::new(Code::Stale, why));
        }
        if whole_checksum(&state.checksums) != request.checksum {
            let why = format!("{}: the whole file has another checksum than was sent", self.shown());
            return Err(Fault::new(Code::Corrupt, why));
        }
        self.part.finish(&self.file, self.begin.mode, self.begin.modified)?;
        let synced = self.target.during(Cause::DiskSync, || self.file.sync_all());
        synced.map_err(|error| self.target.fault_of(&error))?;
        if request.read_back {
            self.part.forget_cached(&self.file);
            self.read_back(&state)?;
        }
        if let Some(journal) = &mut state.journal {
            journal.end().map_err(|error| self.target.fault_of(&error))?;
        }
        self.part.rename(&self.target)?;
        state.ended = true;
        Ok(())
    }

    fn read_back(&self, state: &State) -> Result<(), Fault> {
        for block in 0..self.grid.blocks() {
            if self.read_checksum(block)? != state.checksums[block] {
                let why = format!("{}: read back otherwise than it was written", self.shown());
                return Err(Fault::new(Code::Corrupt, why));
            }
        }
        Ok(())
    }

    /// Removes what has arrived.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        if !state.ended {
            let _ = self.part.remove();
        }
        state.ended = true;
        if let Some(path) = &self.journal_path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What this thread has used of a processor.
fn thread_cpu_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (spent.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(spent.tv_nsec as u64)
}

/// The checksum of a range of a file, with zeros where it ends too early.
pub(super) fn read_checksum(file: &File, start: u64, length: u64) -> std::io::Result<u32> {
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(length).unwrap_or(READ_BYTES))];
    let (mut sum, mut done) = (crc32c(&[]), 0);
    while done < length {
        let wanted = (length - done).min(buffer.len() as u64) as usize;
        let count = file.read_at(&mut buffer[..wanted], start + done)?;
        if count == 0 {
            return Ok(combine(sum, zero_checksum(length - done), length - done));
        }
        sum = combine(sum, crc32c(&buffer[..count]), count as u64);
        done += count as u64;
    }
    Ok(sum)
}

/// A connection that keeps its file from being forgotten.
pub(crate) struct Held {
    incoming: Arc<Incoming>,
}

impl Held {
    pub(super) fn new(incoming: Arc<Incoming>) -> Held {
        incoming.count_connection(true);
        Held { incoming }
    }
}

impl std::ops::Deref for Held {
    type Target = Incoming;
    fn deref(&self) -> &Incoming {
        &self.incoming
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.incoming.count_connection(false);
    }
}
