//! An object in memory: which chunks it has, which of their files are open, and how they are opened and created.

pub(crate) mod attempts;
pub(crate) mod freezes;
pub(crate) mod lent;
pub(crate) mod names;
pub(crate) mod sidecar;
pub(crate) mod sums;

use self::names::{Bucket, Part};
use self::sidecar::{Found, Header, Marks, REGIONS};
use crate::health::repair::Suspects;
use crate::targets::Target;
use crate::targets::cache::OpenChunk;
use crate::targets::epochs::Pass;
use crate::targets::write_back::WriteBackTracker;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vazao_disk::{DiskFile, Open};
use vazao_meter::Cause;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, GroupId, ObjectId};
use vazao_wire::service::Fault;

/// Chunks that one object keeps open between requests.
const OPEN_CHUNKS_MAX: usize = 8;

/// A loop thread that finds an object locked by another one tries again for about as long as a large write into the
/// page cache takes, and then leaves the request to the target's own threads. It spins: where others want its core,
/// giving that away takes milliseconds each time, and the loop's other connections would wait for a disk that hangs.
const TRIES: usize = 200;
const SPINS: usize = 64;

/// Why an operation did not finish.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It would have to wait for a disk, which was not allowed. Nothing has been changed.
    Wait,
    /// It failed.
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

/// Whether an operation may wait for a disk, and close files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// No: it runs in a loop thread.
    Fast,
    /// Yes.
    Blocking,
}

/// The open files of a chunk.
pub(crate) struct Files {
    pub(crate) data: Arc<dyn DiskFile>,
    pub(crate) sums: Arc<dyn DiskFile>,
    /// Of the data file.
    pub(crate) length: u64,
    /// As in the sidecar.
    pub(crate) marks: Marks,
    pub(crate) behind: WriteBackTracker,
    _count: OpenChunk,
}

/// A chunk that exists.
pub(crate) struct Chunk {
    pub(crate) files: Option<Files>,
    /// May have contents that would not survive power loss.
    pub(crate) dirty: AtomicBool,
}

/// What is known of an object.
#[derive(Default)]
pub(crate) struct Body {
    /// The disk has been looked at.
    pub(crate) known: bool,
    /// Of the object.
    pub(crate) length: u64,
    /// The chunks that exist; chunk 0 does when any does.
    pub(crate) chunks: BTreeMap<u64, Chunk>,
    /// As in the sidecar of chunk 0.
    last_chunk: u64,
    /// Names may have changed since the directory was last synced.
    pub(crate) names_dirty: AtomicBool,
}

/// An object that is or was lately in use.
pub(crate) struct Object {
    pub(crate) id: ObjectId,
    body: RwLock<Body>,
    /// Held by the one who syncs, so that a second request for it returns only when the first one's is done.
    pub(crate) syncing: Mutex<()>,
    /// Blocking operations under way: a loop thread then does not wait for the lock.
    blocking: AtomicU32,
    pub(crate) last_use: AtomicU64,
    /// A file of it that is open was seen to have no name in its directory any more.
    is_unnamed: AtomicBool,
}

/// Counts a blocking operation for as long as it lives.
pub(crate) struct Blocking<'a>(&'a AtomicU32);

impl Drop for Blocking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Object {
    /// An object of which nothing is known yet.
    pub(crate) fn new(id: ObjectId) -> Object {
        let body = RwLock::new(Body::default());
        Object {
            id,
            body,
            syncing: Mutex::new(()),
            blocking: AtomicU32::new(0),
            last_use: AtomicU64::new(0),
            is_unnamed: AtomicBool::new(false),
        }
    }

    /// Notes that a file of it has lost its name: what is written to it will not be found again.
    pub(crate) fn set_unnamed(&self) {
        self.is_unnamed.store(true, Ordering::Release);
    }

    /// Whether a file of it has lost its name, and is still the one that is used.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.is_unnamed.load(Ordering::Acquire)
    }

    /// Lets go of files that have lost their names, so that what is used is what the next process would find.
    pub(crate) fn forget_unnamed(&self, target: &Target) {
        if self.is_unnamed() {
            let mut body = self.write(target);
            body.forget();
            self.is_unnamed.store(false, Ordering::Release);
        }
    }

    /// Announces work under the lock, or says that a loop thread had better not wait for it.
    pub(crate) fn begin(&self, mode: Mode) -> Result<Option<Blocking<'_>>, Stop> {
        match mode {
            Mode::Fast if self.blocking.load(Ordering::Relaxed) > 0 => Err(Stop::Wait),
            Mode::Fast => Ok(None),
            Mode::Blocking => {
                self.blocking.fetch_add(1, Ordering::Relaxed);
                Ok(Some(Blocking(&self.blocking)))
            }
        }
    }

    /// Tries for as long as another loop thread holds a lock; one that it does not get soon is held by a
    /// thread that waits for the disk.
    fn soon<G>(&self, try_lock: impl Fn() -> Option<G>) -> Result<G, Stop> {
        for _ in 0..TRIES {
            match try_lock() {
                Some(guard) => return Ok(guard),
                None if self.blocking.load(Ordering::Relaxed) > 0 => break,
                None => (0..SPINS).for_each(|_| std::hint::spin_loop()),
            }
        }
        Err(Stop::Wait)
    }

    /// Takes the lock for writing, in a loop thread only where that does not take long.
    pub(crate) fn write_as(&self, target: &Target, mode: Mode) -> Result<RwLockWriteGuard<'_, Body>, Stop> {
        match mode {
            Mode::Fast => self.soon(|| self.body.try_write()),
            Mode::Blocking => Ok(self.write(target)),
        }
    }

    /// Takes the lock for reading.
    pub(crate) fn read(&self, target: &Target) -> RwLockReadGuard<'_, Body> {
        match self.body.try_read() {
            Some(body) => body,
            None => target.timed(Cause::Lock, || self.body.read()),
        }
    }

    /// Takes the lock for writing.
    pub(crate) fn write(&self, target: &Target) -> RwLockWriteGuard<'_, Body> {
        match self.body.try_write() {
            Some(body) => body,
            None => target.timed(Cause::Lock, || self.body.write()),
        }
    }
}

impl Body {
    /// Whether the object is there.
    pub(crate) fn exists(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// The open files of a chunk; `None` when the chunk does not exist or is closed.
    pub(crate) fn files(&self, chunk: u64) -> Option<&Files> {
        self.chunks.get(&chunk)?.files.as_ref()
    }

    /// Whether all chunks in the range that exist are open.
    pub(crate) fn is_open(&self, chunks: RangeInclusive<u64>) -> bool {
        self.known && self.chunks.range(chunks).all(|(_, chunk)| chunk.files.is_some())
    }

    /// Forgets everything, so that the next one looks at the disk again.
    pub(crate) fn forget(&mut self) {
        *self = Body::default();
    }

    /// Closes chunks beyond the number that an object keeps open. Chunk 0 and the last one stay.
    pub(crate) fn trim(&mut self) {
        let last = self.chunks.last_key_value().map_or(0, |(index, _)| *index);
        let open = self.chunks.values().filter(|c| c.files.is_some()).count();
        let closable = self.chunks.iter_mut().filter(|(i, c)| **i != 0 && **i != last && c.files.is_some());
        for (_, chunk) in closable.take(open.saturating_sub(OPEN_CHUNKS_MAX)) {
            chunk.files = None;
        }
    }

    /// The header that the sidecar of `chunk` has to have.
    pub(crate) fn header(&self, object: ObjectId, chunk: u64, marks: Marks) -> Header {
        Header { object, chunk, last_chunk: if chunk == 0 { self.last_chunk } else { 0 }, marks }
    }
}

impl Target {
    /// The object with this id. One that was not used lately has to be looked for on the disk.
    pub(crate) fn object(&self, id: ObjectId, mode: Mode) -> Result<Arc<Object>, Stop> {
        match mode {
            Mode::Fast => self.cache.find(id).ok_or(Stop::Wait),
            Mode::Blocking => Ok(self.cache.get(id)),
        }
    }

    /// The lock for reading, with the chunks open.
    pub(crate) fn open_to_read<'o>(
        &self,
        object: &'o Object,
        chunks: RangeInclusive<u64>,
        mode: Mode,
    ) -> Result<RwLockReadGuard<'o, Body>, Stop> {
        let body = match mode {
            Mode::Fast => object.soon(|| object.body.try_read())?,
            Mode::Blocking => object.read(self),
        };
        if body.is_open(chunks.clone()) {
            return Ok(body);
        }
        drop(body);
        if mode == Mode::Fast {
            return Err(Stop::Wait);
        }
        let mut body = object.write(self);
        body.trim();
        self.open_chunks(object.id, &mut body, chunks)?;
        Ok(RwLockWriteGuard::downgrade(body))
    }

    /// Makes `body` known and opens those of `chunks` that exist.
    pub(crate) fn open_chunks(
        &self,
        id: ObjectId,
        body: &mut Body,
        chunks: RangeInclusive<u64>,
    ) -> Result<(), Fault> {
        if !body.known {
            self.look_up(id, body)?;
        }
        let closed: Vec<u64> = body
            .chunks
            .range(chunks)
            .filter(|(_, chunk)| chunk.files.is_none())
            .map(|(index, _)| *index)
            .collect();
        for index in closed {
            self.open_known(id, body, index)?;
        }
        Ok(())
    }

    /// Finds out which chunks an object has and how long it is.
    fn look_up(&self, id: ObjectId, body: &mut Body) -> Result<(), Fault> {
        body.forget();
        if self.freezes.is_going(id) {
            body.known = true;
            return Ok(());
        }
        let Some((files, header)) = self.open_pair(id, 0)? else {
            body.known = true;
            return Ok(());
        };
        let others = match header {
            Some(header) if header.last_chunk == 0 => Vec::new(),
            _ => self.list_chunks(id)?,
        };
        body.last_chunk = header.map_or(0, |h| h.last_chunk).max(others.iter().copied().max().unwrap_or(0));
        body.names_dirty = AtomicBool::new(self.is_dirty(&files.marks));
        self.insert(body, 0, files);
        for index in others.into_iter().filter(|&index| index != 0) {
            body.chunks.insert(index, Chunk { files: None, dirty: AtomicBool::new(true) });
        }
        if header.is_none() {
            self.write_header(id, body, 0)?;
        }
        let last = body.chunks.last_key_value().map_or(0, |(index, _)| *index);
        if last != 0 {
            self.open_known(id, body, last)?;
        }
        let tail = body.files(last).map_or(0, |files| files.length);
        body.length = last.saturating_mul(self.chunk_bytes).saturating_add(tail);
        body.known = true;
        Ok(())
    }

    /// Whether the region marks leave open that something would not survive power loss.
    fn is_dirty(&self, marks: &Marks) -> bool {
        let stable = self.epochs.stable();
        self.epochs.suspects().is_some() || marks.iter().any(|&mark| mark > stable)
    }

    fn insert(&self, body: &mut Body, index: u64, files: Files) {
        let dirty = AtomicBool::new(self.is_dirty(&files.marks));
        body.chunks.insert(index, Chunk { files: Some(files), dirty });
    }

    fn open_known(&self, id: ObjectId, body: &mut Body, index: u64) -> Result<(), Fault> {
        let Some((files, _)) = self.open_pair(id, index)? else {
            return Err(self.corrupt(id, index, Part::Data, "the file has disappeared"));
        };
        if self.is_dirty(&files.marks) {
            body.names_dirty = AtomicBool::new(true);
        }
        self.insert(body, index, files);
        Ok(())
    }

    /// Indices of the chunks that an object has, by the names in its directory.
    pub(crate) fn list_chunks(&self, id: ObjectId) -> Result<Vec<u64>, Fault> {
        let bucket = Bucket::of(id);
        let path = bucket.path();
        let entries = match self.disk.list(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.read_fault(&path, &error)),
        };
        let mut chunks: Vec<u64> = entries
            .iter()
            .filter_map(|entry| bucket.parse(&entry.name))
            .filter(|(object, _, part)| *object == id && *part == Part::Data)
            .map(|(_, chunk, _)| chunk)
            .collect();
        chunks.sort_unstable();
        Ok(chunks)
    }

    /// Opens the files of a chunk, repairing what an unclean stop may have torn. `None` when it does not exist; the
    /// header is `None` when it had been lost.
    fn open_pair(&self, id: ObjectId, chunk: u64) -> Result<Option<(Files, Option<Header>)>, Fault> {
        let count = self.cache.open_chunk();
        let path = names::path(id, chunk, Part::Data);
        let data = match self.disk.open(&path, Open::Existing) {
            Ok(data) => data,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.read_fault(&path, &error)),
        };
        let length = data.length().map_err(|e| self.read_fault(&path, &e))?.min(self.chunk_bytes);
        let suspects = Suspects::of(self);
        let sums = self.open_sums(id, chunk, &suspects)?;
        let header = self.read_header(id, chunk, &*sums, &suspects)?;
        let marks = header.map_or([0; REGIONS], |h| h.marks);
        let behind = WriteBackTracker::default();
        let mut files = Files { data, sums, length, marks, behind, _count: count };
        self.check_and_repair(id, chunk, &mut files, header, &suspects)?;
        Ok(Some((files, header)))
    }

    fn open_sums(&self, id: ObjectId, chunk: u64, suspects: &Suspects) -> Result<Arc<dyn DiskFile>, Fault> {
        let path = names::path(id, chunk, Part::Sums);
        match self.disk.open(&path, Open::Existing) {
            Ok(sums) => Ok(sums),
            Err(error) if error.kind() == ErrorKind::NotFound && suspects.any() => {
                self.disk.open(&path, Open::Create).map_err(|e| self.write_fault(&path, &e))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(self.corrupt(id, chunk, Part::Sums, "the checksums are missing"))
            }
            Err(error) => Err(self.read_fault(&path, &error)),
        }
    }

    fn read_header(
        &self,
        id: ObjectId,
        chunk: u64,
        sums: &dyn DiskFile,
        suspects: &Suspects,
    ) -> Result<Option<Header>, Fault> {
        let path = names::path(id, chunk, Part::Sums);
        match Header::read(sums).map_err(|e| self.read_fault(&path, &e))? {
            Found::Valid(header) if header.is_of(id, chunk) => Ok(Some(header)),
            Found::Valid(header) => {
                let what = format!("the checksums are those of {} chunk {}", header.object, header.chunk);
                Err(self.corrupt(id, chunk, Part::Sums, &what))
            }
            Found::Absent if suspects.any() => Ok(None),
            // Of an object with other copies what the entries say can be compared with those.
            Found::Absent | Found::Damaged
                if id.group != GroupId(0)
                    && !suspects.any()
                    && sums.length().map_err(|e| self.read_fault(&path, &e))? > sidecar::entry_at(0) =>
            {
                Ok(None)
            }
            Found::Absent => Err(self.corrupt(id, chunk, Part::Sums, "the header is missing")),
            Found::Damaged => Err(self.corrupt(id, chunk, Part::Sums, "the header is damaged")),
        }
    }

    /// Writes the header of an open chunk, without syncing it.
    pub(crate) fn write_header(&self, id: ObjectId, body: &Body, chunk: u64) -> Result<(), Fault> {
        let Some(files) = body.files(chunk) else { return Ok(()) };
        let bytes = body.header(id, chunk, files.marks).encode();
        let written = files.sums.write_at(&bytes, 0);
        written.map_err(|e| self.write_fault(&names::path(id, chunk, Part::Sums), &e))
    }

    /// Creates a chunk that does not exist, and chunk 0 with it. All its regions carry the present epoch.
    pub(crate) fn create_chunk(
        &self,
        id: ObjectId,
        body: &mut Body,
        chunk: u64,
        pass: &Pass<'_>,
    ) -> Result<(), Fault> {
        if chunk != 0 {
            if !body.exists() {
                self.create_chunk(id, body, 0, pass)?;
            }
            self.announce_chunk(id, body, chunk)?;
        }
        self.make_directory(Bucket::of(id))?;
        body.names_dirty = AtomicBool::new(true);
        let files = self.create_pair(id, body, chunk, pass.epoch())?;
        body.chunks.insert(chunk, Chunk { files: Some(files), dirty: AtomicBool::new(true) });
        Ok(())
    }

    /// Notes durably in chunk 0 that chunks up to `chunk` may exist: without that note they would not be looked for.
    fn announce_chunk(&self, id: ObjectId, body: &mut Body, chunk: u64) -> Result<(), Fault> {
        if body.last_chunk >= chunk {
            return Ok(());
        }
        body.last_chunk = chunk;
        self.write_header(id, body, 0)?;
        if let Some(files) = body.files(0) {
            let synced = self.timed(Cause::Disk, || files.sums.sync());
            synced.map_err(|e| self.sync_fault(&names::path(id, 0, Part::Sums), &e))?;
        }
        self.sync_directory(Bucket::of(id))
    }

    fn create_pair(&self, id: ObjectId, body: &Body, chunk: u64, epoch: u32) -> Result<Files, Fault> {
        let count = self.cache.open_chunk();
        let marks = [epoch; REGIONS];
        let path = names::path(id, chunk, Part::Sums);
        let header = body.header(id, chunk, marks).encode();
        let sums = self.create_sums(&path).and_then(|sums| sums.write_at(&header, 0).map(|()| sums));
        let sums = sums.map_err(|e| self.write_fault(&path, &e))?;
        let path = names::path(id, chunk, Part::Data);
        let data = self.disk.open(&path, Open::CreateNew).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                self.corrupt(id, chunk, Part::Data, "a file that no header speaks of is in the way")
            }
            _ => self.write_fault(&path, &error),
        })?;
        Ok(Files { data, sums, length: 0, marks, behind: WriteBackTracker::default(), _count: count })
    }

    /// A new sidecar. What a removal that was cut short has left is emptied, durably: its marks may call
    /// the chunk clean.
    fn create_sums(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.disk.open(path, Open::CreateNew) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let sums = self.disk.open(path, Open::Existing)?;
                sums.set_length(0)?;
                sums.sync()?;
                Ok(sums)
            }
            result => result,
        }
    }

    /// Marks the regions of `range` (bytes of the chunk) with the present epoch, durably, before they are written to.
    pub(crate) fn mark(
        &self,
        id: ObjectId,
        body: &mut Body,
        chunk: u64,
        range: std::ops::Range<u64>,
        pass: &Pass<'_>,
        mode: Mode,
    ) -> Result<(), Stop> {
        let regions = self.regions(range);
        let Some(files) = body.chunks.get_mut(&chunk).and_then(|c| c.files.as_mut()) else {
            return Err(internal("a chunk that is not open is marked").into());
        };
        if files.marks[regions.clone()].iter().all(|&mark| mark == pass.epoch()) {
            return Ok(());
        }
        if mode == Mode::Fast {
            return Err(Stop::Wait);
        }
        let before = files.marks;
        files.marks[regions].fill(pass.epoch());
        let written = self.write_header(id, body, chunk).and_then(|()| {
            let Some(files) = body.files(chunk) else { return Ok(()) };
            let synced = self.timed(Cause::Disk, || files.sums.sync());
            synced.map_err(|e| self.sync_fault(&names::path(id, chunk, Part::Sums), &e))
        });
        if let (Err(_), Some(files)) = (&written, body.chunks.get_mut(&chunk).and_then(|c| c.files.as_mut()))
        {
            files.marks = before;
        }
        Ok(written?)
    }

    /// The regions of a chunk that a range of its bytes touches.
    pub(crate) fn regions(&self, range: std::ops::Range<u64>) -> std::ops::Range<usize> {
        let region = |offset: u64| ((offset / self.region_bytes()) as usize).min(REGIONS - 1);
        if range.is_empty() {
            return 0..0;
        }
        region(range.start)..region(range.end - 1) + 1
    }

    /// Bytes of a region: a sixteenth of a chunk, at least one block.
    pub(crate) fn region_bytes(&self) -> u64 {
        (self.chunk_bytes / REGIONS as u64).next_multiple_of(BLOCK_BYTES as u64).max(BLOCK_BYTES as u64)
    }
}

/// A state that our own code excludes.
pub(crate) fn internal(what: &str) -> Fault {
    Fault::new(Code::Internal, what)
}

/// Number of blocks that `length` bytes of a chunk reach into.
pub(crate) fn blocks(length: u64) -> u64 {
    length.div_ceil(BLOCK_BYTES as u64)
}

/// Length of a sidecar whose last entry is that of the last block of `length` bytes.
pub(crate) fn sums_length(length: u64) -> u64 {
    sidecar::entry_at(blocks(length))
}
