//! One file on its way into the volume.

use super::names::part_name;
use super::{Arrivals, Held, parent_of, shown};
use crate::control::Underway;
use crate::grid::{BlockSet, Grid, Work, zero_checksum};
use crate::outgoing::{Destination, Manner, Surroundings, begin_request, changed, id_of};
use crate::receive::journal::{self, Journal};
use crate::source::{Source, Version, of_client};
use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vazao_client::{Changes, Client, File, NewInode, OpenMode, RenameMode, SetTime};
use vazao_model::checksum::{combine, crc32c};
use vazao_model::{Attributes, Code, FileKind, InodeId, VolumePath};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Threads that read the source and hand its bytes to the client, which sends them in parallel anyway.
const WRITERS: usize = 4;

/// Bytes read and written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Written blocks are noted when there are so many: two for each writer, as at most are sent again after a death.
const NOTED_BLOCKS: usize = 2 * WRITERS;

/// Fewer are noted after this.
const NOTED_AFTER: Duration = Duration::from_secs(1);

/// Writing stops while so many are not noted: the rest would be memory, or sent again.
const UNNOTED_MAX: usize = 2 * NOTED_BLOCKS;

/// How often a thread that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// What beginning led to.
pub(crate) enum Begun {
    /// Blocks are to be written.
    Ready(Arc<VolumeCopy>),
    /// It is there, whole and under its name.
    Complete,
}

/// A file being written.
pub(crate) struct VolumeCopy {
    source: Arc<dyn Source>,
    around: Surroundings,
    client: Client,
    parent: InodeId,
    name: Vec<u8>,
    part: Vec<u8>,
    shown: String,
    version: Version,
    manner: Manner,
    /// Set-id and sticky bits.
    bits: u32,
    grid: Grid,
    file: File,
    journal: Mutex<Option<Journal>>,
    journal_path: PathBuf,
    work: Mutex<Work>,
    written: Mutex<Written>,
    changed: Condvar,
    _held: Held,
}

impl std::fmt::Debug for VolumeCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VolumeCopy({} to {})", self.source.shown(), self.shown)
    }
}

/// What the writers have written and the journal does not have yet.
#[derive(Default)]
struct Written {
    blocks: Vec<(usize, u32)>,
    writers: usize,
    fault: Option<Fault>,
}

/// Refuses to replace what no copy replaces.
fn check_replaceable(there: Option<&Attributes>, manner: Manner, shown: &str) -> Result<(), Fault> {
    match there.map(|there| there.kind) {
        None => Ok(()),
        Some(_) if manner.no_replace => Err(Fault::new(Code::Exists, shown)),
        Some(FileKind::File | FileKind::Symlink) => Ok(()),
        Some(FileKind::Directory) => Err(Fault::new(Code::IsDirectory, shown)),
        Some(_) => Err(Fault::new(Code::Invalid, format!("{shown}: is no regular file"))),
    }
}

/// Who a file belongs to, and the set-id bits that go with that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) bits: u32,
}

/// Begins a copy, or finds out how far it got before.
pub(crate) fn begin(
    arrivals: &Arc<Arrivals>,
    client: &Client,
    source: Arc<dyn Source>,
    around: Surroundings,
    to: &VolumePath,
    manner: Manner,
    owner: Owner,
) -> Result<Begun, Fault> {
    let version = source.version()?;
    let path = to.to_bytes();
    let destination = Destination { node: String::new(), address: String::new(), area: String::new(), path };
    let id = id_of(&*source, &around.node, &version, &destination);
    let shown = shown(to);
    let held = arrivals.hold(id, &shown)?;
    let (parent, name) = parent_of(client, to)?;
    let there = match client.lookup(parent, &name) {
        Ok(there) => Some(there),
        Err(error) if error.code == Code::NotFound => None,
        Err(error) => return Err(of_client(error, &shown)),
    };
    let part = part_name(&id, &name);
    let request = begin_request(&*source, &around, &destination, &version, manner);
    let journal_path = arrivals.journal(&id);
    let no_replace = manner.no_replace;
    let place = PartPlace {
        client,
        parent,
        name: &name,
        part: &part,
        shown: &shown,
        journal_path: &journal_path,
        no_replace,
    };
    let opened = match place.resume(&request, there.as_ref())? {
        Some(Found::Complete) => return Ok(Begun::Complete),
        Some(Found::Part(opened)) => *opened,
        None => {
            check_replaceable(there.as_ref(), manner, &shown)?;
            place.start(&request, owner)?
        }
    };
    let grid = Grid::of(version.size);
    let (mut finished, mut checksums) = (BlockSet::new(grid.blocks()), vec![0; grid.blocks()]);
    for (block, checksum) in opened.blocks {
        finished.insert(block);
        checksums[block] = checksum;
    }
    let client = client.clone();
    Ok(Begun::Ready(Arc::new(VolumeCopy {
        file: opened.file,
        journal: Mutex::new(opened.journal),
        work: Mutex::new(Work::new(grid, finished, checksums)),
        written: Mutex::default(),
        changed: Condvar::new(),
        _held: held,
        source,
        around,
        client,
        parent,
        name,
        part,
        shown,
        version,
        manner,
        bits: owner.bits,
        grid,
        journal_path,
    })))
}

/// Where a part lies and what is known of it.
struct PartPlace<'a> {
    client: &'a Client,
    parent: InodeId,
    name: &'a [u8],
    part: &'a [u8],
    shown: &'a str,
    journal_path: &'a std::path::Path,
    /// What has the name by then stays.
    no_replace: bool,
}

/// A part that is open.
struct OpenPart {
    file: File,
    journal: Option<Journal>,
    /// Blocks that are there, all below the number that there are.
    blocks: Vec<(usize, u32)>,
}

enum Found {
    Part(Box<OpenPart>),
    Complete,
}

impl PartPlace<'_> {
    fn about(&self, error: vazao_client::Error) -> Fault {
        of_client(error, self.shown)
    }

    /// A fault of the daemon's own disk.
    fn own(&self, error: &std::io::Error) -> Fault {
        let why = format!("{}: noting what has arrived, in the daemon's own directory: {error}", self.shown);
        Fault::new(Code::Io, why)
    }

    /// Begins from nothing.
    fn start(&self, request: &proto::CopyBeginRequest, owner: Owner) -> Result<OpenPart, Fault> {
        let Owner { uid, gid, .. } = owner;
        // No other user may see the data before it has the permissions that are meant for it.
        let new = NewInode { kind: FileKind::File, mode: 0o600, uid, gid, ..NewInode::default() };
        let made = match self.client.create_file(self.parent, self.part, &new, true) {
            Err(error) if error.code == Code::Exists => {
                self.client.unlink(self.parent, self.part).map_err(|error| self.about(error))?;
                self.client.create_file(self.parent, self.part, &new, true)
            }
            other => other,
        };
        let (attributes, file) = made.map_err(|error| self.about(error))?;
        let mut journal = None;
        // A file of one block has nothing to go on from.
        if request.size > request.block_bytes {
            file.set_length(request.size).map_err(|error| self.about(error))?;
            let identity = proto::FileIdentity { device: 0, inode: attributes.inode.0, born_ns: 0 };
            let record = proto::ArrivalRecord { begin: Some(request.clone()), part: Some(identity), boot: 0 };
            journal = Some(Journal::create(self.journal_path, &record).map_err(|error| self.own(&error))?);
        }
        Ok(OpenPart { file, journal, blocks: Vec::new() })
    }

    /// What lies under a name; `None` where nothing does.
    fn at(&self, name: &[u8]) -> Result<Option<Attributes>, Fault> {
        match self.client.lookup(self.parent, name) {
            Ok(there) => Ok(Some(there)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(self.about(error)),
        }
    }

    /// Goes on where the journal says that something is there.
    fn resume(
        &self,
        request: &proto::CopyBeginRequest,
        there: Option<&Attributes>,
    ) -> Result<Option<Found>, Fault> {
        let Some(found) = journal::load(self.journal_path) else { return Ok(None) };
        let is_it = |there: &Attributes| found.record.part.is_some_and(|part| part.inode == there.inode.0);
        let part = self.at(self.part)?.filter(is_it);
        if found.ended {
            let modified = request.modified.map(vazao_model::Timestamp::from);
            let is_whole =
                |there: &Attributes| there.size == request.size && Some(there.modified) == modified;
            if there.is_some_and(|there| is_it(there) && is_whole(there)) {
                return Ok(Some(Found::Complete));
            }
            if part.as_ref().is_some_and(is_whole) {
                let mode = if self.no_replace { RenameMode::NoReplace } else { RenameMode::Replace };
                let renamed = self.client.rename(self.parent, self.part, self.parent, self.name, mode);
                return renamed.map(|()| Some(Found::Complete)).map_err(|error| self.about(error));
            }
            return Ok(None);
        }
        let same = |begin: &proto::CopyBeginRequest| {
            (begin.size, begin.block_bytes) == (request.size, request.block_bytes)
        };
        let Some(part) = part.filter(|_| found.record.begin.as_ref().is_some_and(same)) else {
            return Ok(None);
        };
        let mode = OpenMode { read: true, write: true, truncate: false };
        let file = self.client.open_file(part.inode, mode).map_err(|error| self.about(error))?;
        let grid = Grid { size: request.size, block_bytes: request.block_bytes };
        let holds = |&(block, checksum): &(usize, u32)| {
            let is_there = || read_checksum(&file, grid.start(block), grid.length(block));
            block < grid.blocks() && is_there().is_ok_and(|sum| sum == checksum)
        };
        let blocks = found.blocks.iter().copied().filter(holds).collect();
        let journal =
            Journal::reopen(self.journal_path, found.whole_bytes).map_err(|error| self.own(&error))?;
        Ok(Some(Found::Part(Box::new(OpenPart { file, journal: Some(journal), blocks }))))
    }
}

/// The checksum of a range as the data servers have it; what is not there counts as other bytes.
fn read_checksum(file: &File, start: u64, length: u64) -> vazao_client::Result<u32> {
    let mut buffer = vec![0; PIECE_BYTES.min(usize::try_from(length).unwrap_or(PIECE_BYTES))];
    let (mut sum, mut done) = (crc32c(&[]), 0);
    while done < length {
        let wanted = (length - done).min(buffer.len() as u64) as usize;
        let count = file.read_at(&mut buffer[..wanted], start + done)?;
        if count == 0 {
            return Err(vazao_client::Error::new(Code::Corrupt, "the file ends too early"));
        }
        sum = combine(sum, crc32c(&buffer[..count]), count as u64);
        done += count as u64;
    }
    Ok(sum)
}

impl Underway for VolumeCopy {
    fn finished_bytes(&self) -> u64 {
        self.work.lock().finished_bytes()
    }
}

impl VolumeCopy {
    fn about(&self, error: vazao_client::Error) -> Fault {
        of_client(error, &self.shown)
    }

    /// Writes all blocks that are not there yet; returns when the data servers have them. What was written until a
    /// failure is noted.
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let writers = WRITERS.min(self.grid.blocks());
        self.written.lock().writers = writers;
        std::thread::scope(|scope| {
            for _ in 0..writers {
                let writer = std::thread::Builder::new().name("into-volume".to_owned());
                if let Err(error) = writer.spawn_scoped(scope, || self.write_blocks()) {
                    self.writer_ended(Err(Fault::new(Code::Overloaded, format!("{}: {error}", self.shown))));
                }
            }
            self.note_blocks()
        })?;
        match self.written.lock().fault.take() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn writer_ended(&self, outcome: Result<(), Fault>) {
        let mut written = self.written.lock();
        written.writers -= 1;
        if let Err(fault) = outcome {
            written.fault.get_or_insert(fault);
        }
        drop(written);
        self.changed.notify_all();
    }

    fn write_blocks(&self) {
        let mut buffer = vec![0; PIECE_BYTES.min(self.grid.size as usize)];
        let outcome = loop {
            if !self.wait_for_room() {
                break Ok(());
            }
            let taken = self.work.lock().take();
            let Some(block) = taken else { break Ok(()) };
            match self.write_block(block, &mut buffer) {
                Ok(checksum) => {
                    self.written.lock().blocks.push((block, checksum));
                    self.changed.notify_all();
                }
                Err(fault) => break Err(fault),
            }
        };
        self.writer_ended(outcome);
    }

    /// Waits while too much is not noted; false once another writer failed.
    fn wait_for_room(&self) -> bool {
        let mut written = self.written.lock();
        while written.fault.is_none() && written.blocks.len() >= UNNOTED_MAX {
            self.changed.wait(&mut written);
        }
        written.fault.is_none()
    }

    /// Returns the block's checksum, computed from the memory that was handed to the client.
    fn write_block(&self, block: usize, buffer: &mut [u8]) -> Result<u32, Fault> {
        let (start, length) = (self.grid.start(block), self.grid.length(block));
        if self.source.next_data(start)?.is_none_or(|data| data >= start + length) {
            // The length of a part of several blocks was set when it was begun.
            if self.grid.blocks() == 1 {
                self.file.set_length(length).map_err(|error| self.about(error))?;
            }
            return Ok(zero_checksum(length));
        }
        let (clock, counts) = (&self.around.clock, &self.around.counts);
        let (mut sum, mut done) = (crc32c(&[]), 0);
        while done < length {
            let piece = &mut buffer[..(length - done).min(PIECE_BYTES as u64) as usize];
            self.around.wait_for_limit(piece.len() as u64)?;
            let started_ns = clock.now_ns();
            if self.source.read_at(piece, start + done)? < piece.len() {
                return Err(changed(self.source.shown()));
            }
            let read_ns = clock.now_ns();
            counts.read_ns.add(read_ns.saturating_sub(started_ns));
            self.file.write_at(piece, start + done).map_err(|error| self.about(error))?;
            counts.send_ns.add(clock.now_ns().saturating_sub(read_ns));
            counts.sent_bytes.add(piece.len() as u64);
            sum = combine(sum, crc32c(piece), piece.len() as u64);
            done += piece.len() as u64;
        }
        Ok(sum)
    }

    /// Notes blocks as they come, until all writers have ended and nothing is left.
    fn note_blocks(&self) -> Result<(), Fault> {
        let clock = &self.around.clock;
        let mut noted_ns = clock.now_ns();
        loop {
            let mut written = self.written.lock();
            let is_over = written.writers == 0;
            let is_late = clock.now_ns().saturating_sub(noted_ns) >= NOTED_AFTER.as_nanos() as u64;
            let enough = if is_late { 1 } else { NOTED_BLOCKS };
            if !is_over && written.blocks.len() < enough {
                self.changed.wait_for(&mut written, LOOK);
                continue;
            }
            let blocks = std::mem::take(&mut written.blocks);
            drop(written);
            self.changed.notify_all();
            noted_ns = clock.now_ns();
            if let Err(fault) = self.note(&blocks) {
                // The writers stop, and wait for nothing.
                self.written.lock().fault.get_or_insert(fault.clone());
                self.changed.notify_all();
                return Err(fault);
            }
            if is_over {
                return Ok(());
            }
        }
    }

    fn note(&self, blocks: &[(usize, u32)]) -> Result<(), Fault> {
        if blocks.is_empty() {
            return Ok(());
        }
        let started_ns = self.around.clock.now_ns();
        self.file.flush().map_err(|error| self.about(error))?;
        self.around.counts.confirm_ns.add(self.around.clock.now_ns().saturating_sub(started_ns));
        let mut journal = self.journal.lock();
        for &(block, checksum) in blocks {
            if let Some(journal) = &mut *journal {
                journal.append(block, checksum).map_err(|error| self.own(&error))?;
            }
            self.work.lock().finish(block, checksum);
        }
        Ok(())
    }

    fn own(&self, error: &std::io::Error) -> Fault {
        let why = format!("{}: noting what has arrived, in the daemon's own directory: {error}", self.shown);
        Fault::new(Code::Io, why)
    }

    /// All is written: has it made durable and gives it its name. Errors: the source changed meanwhile.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        if !self.work.lock().is_finished() {
            return Err(Fault::new(
                Code::Interrupted,
                format!("{}: not all blocks were written", self.shown),
            ));
        }
        if self.source.version()? != self.version {
            return Err(changed(self.source.shown()));
        }
        let started_ns = self.around.clock.now_ns();
        self.file.sync().map_err(|error| self.about(error))?;
        if self.manner.read_back {
            self.read_back()?;
        }
        let modified = Some(SetTime::At(self.version.modified));
        let changes = Changes { mode: Some(self.source.mode() | self.bits), modified, ..Changes::default() };
        self.client.set_attributes(self.file.inode(), &changes).map_err(|error| self.about(error))?;
        if let Some(journal) = &mut *self.journal.lock() {
            journal.end().map_err(|error| self.own(&error))?;
        }
        let mode = if self.manner.no_replace { RenameMode::NoReplace } else { RenameMode::Replace };
        let renamed = self.client.rename(self.parent, &self.part, self.parent, &self.name, mode);
        renamed.map_err(|error| self.about(error))?;
        self.around.counts.disk_ns.add(self.around.clock.now_ns().saturating_sub(started_ns));
        Ok(())
    }

    /// Compares what the data servers have with what was read.
    fn read_back(&self) -> Result<(), Fault> {
        let mode = OpenMode { read: true, ..OpenMode::default() };
        let file = self.client.open_file(self.file.inode(), mode).map_err(|error| self.about(error))?;
        let work = self.work.lock();
        for block in 0..self.grid.blocks() {
            self.around.control.check(self.around.clock.now_ns())?;
            let read = read_checksum(&file, self.grid.start(block), self.grid.length(block));
            if read.map_err(|error| self.about(error))? != work.checksum_of(block) {
                let why = format!("{}: read back otherwise than it was written", self.shown);
                return Err(Fault::new(Code::Corrupt, why));
            }
        }
        Ok(())
    }

    /// Removes what has arrived.
    pub(crate) fn forget(&self) {
        // One that is gone already, or that a slow sweep finds: nothing more can be done here.
        let _ = self.client.unlink(self.parent, &self.part);
        let _ = std::fs::remove_file(&self.journal_path);
    }
}
