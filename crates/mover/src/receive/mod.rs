//! The receiving side: files that arrive in this node's areas.
//!
//! A copy is known by its id, which the sender makes of the source's place and version and of the destination. Its
//! bytes go to a temporary name beside the final one. A journal in the daemon's own directory says which blocks are
//! there. The number of files at once is bounded (backpressure): a sender above the bound must retry, and waits in its
//! own queue.

mod batch;
mod conversation;
mod ftp;
mod incoming;
pub(crate) mod journal;
mod port;
mod strangers;

pub(crate) use incoming::{Held, Incoming};
pub(crate) use port::DataPort;

use crate::grid::Grid;
use incoming::Start;
use journal::{Found, Journal, hex};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vazao_area::{AreaService, Inside, InsideStatus};
use vazao_meter::{Cause, Clock, Counter};
use vazao_model::{Code, FileKind};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// A file without a sender is closed after this; what has arrived stays.
const IDLE_NS_MAX: u64 = 20_000_000_000;

/// An abandoned partial file is removed after this.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A completed copy is known for this long, for a sender that lost the answer: its retry is idempotent.
const KEPT_ENDED: Duration = Duration::from_secs(24 * 3600);

/// Copies that ended and whose answer may have been lost.
const ENDED_MAX: usize = 4096;

/// What the receiver counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) received_bytes: Counter,
    pub(crate) files: Counter,
    pub(crate) refused: Counter,
}

#[derive(Default)]
struct Table {
    arriving: HashMap<[u8; 16], Arc<Incoming>>,
    /// Small files that are written just now: one sent again, because its sender died and is back, would take the
    /// temporary name from under the first.
    small: HashSet<[u8; 16]>,
    /// Those that are made or found again just now: two beginnings of one copy do not cross.
    beginning: HashSet<[u8; 16]>,
    /// Ended ones, the latest last.
    ended: std::collections::VecDeque<[u8; 16]>,
}

/// Files that arrive at this node.
pub(crate) struct Receiver {
    area: Arc<AreaService>,
    node: String,
    directory: PathBuf,
    arriving_max: usize,
    boot: u64,
    table: Mutex<Table>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("node", &self.node).finish_non_exhaustive()
    }
}

/// What a beginning is answered with.
pub(crate) enum Begun {
    /// It arrives.
    Arriving(Arc<Incoming>),
    /// It is there.
    Complete,
}

fn random() -> Result<[u8; 16], Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Fault::new(Code::Internal, format!("taking a random number: {e}")))?;
    Ok(bytes)
}

/// The id of a copy in a request.
pub(super) fn id_of(bytes: &[u8]) -> Result<[u8; 16], Fault> {
    bytes
        .try_into()
        .map_err(|_| Fault::new(Code::BadRequest, format!("a copy's id of {} bytes", bytes.len())))
}

/// Half of the kernel's random boot id (random(4)): another one after the machine lost power.
fn boot_id() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

impl Receiver {
    /// A receiver for the areas of node `node` that keeps its journals in `directory`.
    pub(crate) fn open(
        area: Arc<AreaService>,
        node: &str,
        directory: &Path,
        arriving_max: usize,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Receiver> {
        let directory = directory.join("arriving");
        std::fs::create_dir_all(&directory)?;
        Ok(Receiver {
            area,
            node: node.to_owned(),
            directory,
            arriving_max,
            boot: boot_id(),
            table: Mutex::default(),
            clock,
            metrics: Metrics::default(),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// The node's name.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// A file without a name, on the disk of an area or, where that is empty, of the daemon's own directory.
    pub(crate) fn scratch(&self, area: &str) -> Result<File, Fault> {
        let name = format!(".vazao-probe-{}.part", hex(&random()?[..8]));
        if !area.is_empty() {
            let inside = self.area.inside(area, name.as_bytes(), true)?;
            let waiting = inside.begin("a file to measure with")?;
            let (file, _) = inside.create()?;
            inside.remove()?;
            drop(waiting);
            return file.try_clone().map_err(|error| self.scratch_fault(area, &error));
        }
        let path = self.directory.join(name);
        let mut options = File::options();
        let made = options.read(true).write(true).create_new(true).open(&path);
        let unnamed = made.and_then(|file| std::fs::remove_file(&path).map(|()| file));
        unnamed.map_err(|error| self.scratch_fault(area, &error))
    }

    /// A fault of such a file.
    pub(crate) fn scratch_fault(&self, area: &str, error: &std::io::Error) -> Fault {
        let code = match error.kind() {
            std::io::ErrorKind::StorageFull => Code::NoSpace,
            _ => Code::Io,
        };
        let place = if area.is_empty() { String::new() } else { format!(", area {area:.64}") };
        Fault::new(code, format!("node {}{place}: a file to measure the disk with: {error}", self.node))
    }

    /// Files that arrive at present.
    pub(crate) fn arriving(&self) -> usize {
        self.table().arriving.len()
    }

    /// The copy that a request or connection is about.
    pub(crate) fn find(&self, id: &[u8], token: &[u8]) -> Result<Held, Fault> {
        let id = id_of(id)?;
        let found = self.table().arriving.get(&id).cloned();
        let incoming = found.filter(|incoming| incoming.token == token).ok_or_else(|| {
            let why = format!("node {}: knows no copy {}; begin it again", self.node, hex(&id));
            Fault::new(Code::BadHandle, why)
        })?;
        incoming.touch(self.clock.now_ns());
        Ok(Held::new(incoming))
    }

    /// A copy begins or goes on.
    pub(crate) fn begin(&self, request: proto::CopyBeginRequest) -> Result<Begun, Fault> {
        let id = id_of(&request.copy)?;
        let target = self.target(&request)?;
        let _one = self.hold_beginning(id)?;
        let there = self.table().arriving.get(&id).cloned();
        if let Some(there) = there {
            there.touch(self.clock.now_ns());
            if !request.fresh {
                return Ok(Begun::Arriving(there));
            }
            there.forget();
            self.table().arriving.remove(&id);
        }
        let found = target.status()?;
        // This one is among those that begin.
        let full = {
            let table = self.table();
            table.arriving.len() + table.beginning.len() > self.arriving_max
        };
        if full {
            self.metrics.refused.add(1);
            let why =
                format!("node {}: {} files arrive already (`copies_in_max`)", self.node, self.arriving_max);
            return Err(Fault::new(Code::Overloaded, why));
        }
        let incoming = match self.resume(&id, &request, &target, found.as_ref())? {
            Some(Begun::Complete) => return Ok(Begun::Complete),
            Some(Begun::Arriving(incoming)) => incoming,
            None => {
                self.check_replaceable(&request, &target, found.as_ref())?;
                self.start(&id, request, target)?
            }
        };
        self.table().arriving.insert(id, Arc::clone(&incoming));
        Ok(Begun::Arriving(incoming))
    }

    /// The final name, when such a file may be put there.
    fn target(&self, request: &proto::CopyBeginRequest) -> Result<Inside, Fault> {
        let target = self.area.inside(&request.area, &request.path, true)?;
        if Grid::checked(request.size, request.block_bytes).is_none() {
            let (size, block) = (request.size, request.block_bytes);
            let why = format!("{}: {size} bytes in blocks of {block}", target.shown());
            return Err(Fault::new(Code::BadRequest, why));
        }
        Ok(target)
    }

    fn check_replaceable(
        &self,
        request: &proto::CopyBeginRequest,
        target: &Inside,
        found: Option<&InsideStatus>,
    ) -> Result<(), Fault> {
        let Some(found) = found else { return Ok(()) };
        if request.source_node == self.node && request.source_identity == Some(found.identity) {
            let why = format!("{}: is the file to be copied itself", target.shown());
            return Err(Fault::new(Code::Invalid, why));
        }
        match FileKind::from_number(found.attributes.kind) {
            _ if request.no_replace => Err(Fault::new(Code::Exists, target.shown())),
            Some(FileKind::File | FileKind::Symlink) => Ok(()),
            Some(FileKind::Directory) => Err(Fault::new(Code::IsDirectory, target.shown())),
            _ => Err(Fault::new(Code::Invalid, format!("{}: is no regular file", target.shown()))),
        }
    }

    fn part(&self, id: &[u8; 16], target: &Inside) -> Result<Inside, Fault> {
        target.beside(&format!(".vazao-{}.part", hex(&id[..4])))
    }

    /// Begins from nothing.
    fn start(
        &self,
        id: &[u8; 16],
        begin: proto::CopyBeginRequest,
        target: Inside,
    ) -> Result<Arc<Incoming>, Fault> {
        let part = self.part(id, &target)?;
        if part.status()?.is_some() {
            part.remove()?;
        }
        let (file, status) = part.create()?;
        let grid = Grid { size: begin.size, block_bytes: begin.block_bytes };
        file.set_len(grid.size).map_err(|error| target.fault_of(&error))?;
        let own = |error: std::io::Error| {
            let why = format!("node {}: {}: {error}", self.node, self.directory.display());
            Fault::new(Code::Io, why)
        };
        // A file of one block has nothing to go on from.
        let (mut journal, mut journal_path) = (None, None);
        if grid.blocks() > 1 {
            let path = journal::path_of(&self.directory, id);
            let record = proto::ArrivalRecord {
                begin: Some(begin.clone()),
                part: Some(status.identity),
                boot: self.boot,
            };
            journal = Some(Journal::create(&path, &record).map_err(own)?);
            journal_path = Some(path);
        }
        let token = random()?;
        let blocks = Vec::new();
        let start = Start { begin, token, target, part, journal_path, grid, file, journal, blocks };
        Ok(Arc::new(Incoming::new(start, self.clock.now_ns())))
    }

    /// Goes on where the journal says that something is there.
    fn resume(
        &self,
        id: &[u8; 16],
        request: &proto::CopyBeginRequest,
        target: &Inside,
        there: Option<&InsideStatus>,
    ) -> Result<Option<Begun>, Fault> {
        let path = journal::path_of(&self.directory, id);
        let Some(found) = journal::load(&path) else { return Ok(None) };
        if request.fresh {
            let _ = std::fs::remove_file(&path);
            return Ok(None);
        }
        let part = self.part(id, target)?;
        if found.ended {
            return Ok(self.resume_ended(&found, &part, target, there));
        }
        let Ok((file, status)) = part.open(true) else { return Ok(None) };
        let is_same =
            found.record.part == Some(status.identity)
                && found.record.begin.as_ref().is_some_and(|begin| {
                    (begin.size, begin.block_bytes) == (request.size, request.block_bytes)
                });
        if !is_same {
            return Ok(None);
        }
        let grid = Grid { size: request.size, block_bytes: request.block_bytes };
        let blocks = self.believed(&found, grid, &file);
        let journal = Journal::reopen(&path, found.whole_bytes).ok();
        let start = Start {
            begin: request.clone(),
            token: random()?,
            target: target.clone(),
            part,
            journal_path: Some(path),
            grid,
            file,
            journal,
            blocks,
        };
        Ok(Some(Begun::Arriving(Arc::new(Incoming::new(start, self.clock.now_ns())))))
    }

    /// It was whole: the death came before or after it had its name.
    fn resume_ended(
        &self,
        found: &Found,
        part: &Inside,
        target: &Inside,
        there: Option<&InsideStatus>,
    ) -> Option<Begun> {
        let begin = found.record.begin.as_ref()?;
        // A program may have written to it since.
        let is_it = |status: &InsideStatus| {
            let (size, modified) = (status.attributes.size, status.attributes.modified);
            Some(status.identity) == found.record.part && (size, modified) == (begin.size, begin.modified)
        };
        if there.is_some_and(is_it) {
            return Some(Begun::Complete);
        }
        let is_there = part.status().ok().flatten().is_some_and(|status| is_it(&status));
        (is_there && part.rename(target).is_ok()).then_some(Begun::Complete)
    }

    /// Blocks of a journal that can be relied on.
    fn believed(&self, found: &Found, grid: Grid, file: &std::fs::File) -> Vec<(usize, u32)> {
        let is_same_boot = found.record.boot == self.boot && self.boot != 0;
        let read = |block: usize| incoming::read_checksum(file, grid.start(block), grid.length(block));
        let holds = |&(block, checksum): &(usize, u32)| {
            block < grid.blocks() && (is_same_boot || read(block).is_ok_and(|sum| sum == checksum))
        };
        found.blocks.iter().copied().filter(holds).collect()
    }

    /// The copy is whole.
    pub(crate) fn end(&self, request: &proto::CopyEndRequest) -> Result<proto::CopyEndResponse, Fault> {
        let id = id_of(&request.copy)?;
        let held = match self.find(&request.copy, &request.token) {
            // Said before, and the answer was lost.
            Err(_) if self.table().ended.contains(&id) => return Ok(proto::CopyEndResponse::default()),
            other => other?,
        };
        held.end(request)?;
        let mut table = self.table();
        table.arriving.remove(&id);
        table.ended.push_back(id);
        while table.ended.len() > ENDED_MAX {
            table.ended.pop_front();
        }
        drop(table);
        self.metrics.files.add(1);
        let (received_bytes, disk_ns) = held.counts();
        Ok(proto::CopyEndResponse { received_bytes, disk_ns })
    }

    /// The copy is given up.
    pub(crate) fn abort(&self, request: &proto::CopyAbortRequest) -> Result<(), Fault> {
        let id = id_of(&request.copy)?;
        let removed = self.table().arriving.remove(&id);
        match removed {
            Some(incoming) if request.forget => incoming.forget(),
            _ => {}
        }
        Ok(())
    }

    /// Keeps a copy from being begun twice at once.
    fn hold_beginning(&self, id: [u8; 16]) -> Result<Beginning<'_>, Fault> {
        match self.table().beginning.insert(id) {
            true => Ok(Beginning { receiver: self, id }),
            false => {
                let why = format!("node {}: this file is being begun; come again", self.node);
                Err(Fault::new(Code::Overloaded, why))
            }
        }
    }

    /// Where a copy arrives; `None` for one that is not known.
    pub(crate) fn area_of(&self, id: &[u8]) -> Option<String> {
        let id = id_of(id).ok()?;
        self.table().arriving.get(&id).map(|incoming| incoming.place().to_owned())
    }

    /// The areas of this node.
    pub(crate) fn areas(&self) -> &Arc<AreaService> {
        &self.area
    }

    /// Keeps a small file from being written twice at once.
    fn hold_small(&self, id: [u8; 16]) -> Result<SmallHeld<'_>, Fault> {
        match self.table().small.insert(id) {
            true => Ok(SmallHeld { receiver: self, id }),
            false => {
                let why = format!("node {}: this file arrives already; come again", self.node);
                Err(Fault::new(Code::Overloaded, why))
            }
        }
    }

    /// A small file at once.
    pub(crate) fn whole(&self, request: proto::CopyWholeRequest, bytes: &[u8]) -> Result<u64, Fault> {
        let begin = request.begin.unwrap_or_default();
        let id = id_of(&begin.copy)?;
        let target = self.target(&begin)?;
        if begin.size != bytes.len() as u64 || vazao_model::checksum::crc32c(bytes) != request.checksum {
            let why = format!("{}: arrived with another checksum than it was sent with", target.shown());
            return Err(Fault::new(Code::Corrupt, why));
        }
        let _held = self.hold_small(id)?;
        let found = target.status()?;
        self.check_replaceable(&begin, &target, found.as_ref())?;
        let part = self.part(&id, &target)?;
        let started_ns = self.clock.now_ns();
        let (file, _) = match part.create() {
            Err(fault) if fault.code == Code::Exists => {
                part.remove()?;
                part.create()?
            }
            other => other?,
        };
        let written = write_whole(&part, &file, &begin, bytes).and_then(|()| part.rename(&target));
        if let Err(fault) = written {
            let _ = part.remove();
            return Err(fault);
        }
        self.metrics.files.add(1);
        self.metrics.received_bytes.add(bytes.len() as u64);
        Ok(self.clock.now_ns().saturating_sub(started_ns))
    }

    /// Closes idle files and removes abandoned parts.
    pub(crate) fn tick(&self) {
        let now_ns = self.clock.now_ns();
        self.table().arriving.retain(|_, incoming| !incoming.is_idle(now_ns, IDLE_NS_MAX));
    }

    /// Removes abandoned parts; to be called now and then.
    pub(crate) fn sweep(self: &Arc<Receiver>) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let wall = Duration::from_nanos(self.clock.wall_ns());
        for entry in entries.flatten() {
            let modified = entry.metadata().and_then(|m| m.modified()).ok();
            let since_epoch = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let age = since_epoch.map_or(Duration::ZERO, |at| wall.saturating_sub(at));
            if age > KEPT_ENDED {
                self.sweep_one(&entry.path(), age > KEPT);
            }
        }
    }

    fn sweep_one(self: &Arc<Receiver>, path: &Path, is_old: bool) {
        let Some(found) = journal::load(path) else {
            let _ = std::fs::remove_file(path);
            return;
        };
        if !found.ended && !is_old {
            return;
        }
        let begin = found.record.begin.unwrap_or_default();
        if let (false, Ok(id)) = (found.ended, id_of(&begin.copy)) {
            if self.table().arriving.contains_key(&id) {
                return;
            }
            // By the area's own threads: its file system may hang. Where they do not come to it the next sweep does.
            let (receiver, path, area) = (Arc::clone(self), path.to_owned(), begin.area.clone());
            let is_there = self.area.areas().iter().any(|known| known.name == begin.area);
            let remove = move || receiver.remove_part(id, &begin, found.record.part, &path);
            match is_there {
                true => {
                    let _ = self.area.run_for_copies(&area, "removing what was given up", remove);
                }
                false => remove(),
            }
            return;
        }
        let _ = std::fs::remove_file(path);
    }

    /// Removes the part of an abandoned copy, if it is still that part, and its journal.
    fn remove_part(
        &self,
        id: [u8; 16],
        begin: &proto::CopyBeginRequest,
        part_identity: Option<proto::FileIdentity>,
        journal: &Path,
    ) {
        let target = self.area.inside(&begin.area, &begin.path, true);
        if let Ok(part) = target.and_then(|target| self.part(&id, &target)) {
            let is_it = |status: InsideStatus| Some(status.identity) == part_identity;
            if part.status().ok().flatten().is_some_and(is_it) {
                let _ = part.remove();
            }
        }
        let _ = std::fs::remove_file(journal);
    }
}

/// A copy that is being begun.
struct Beginning<'a> {
    receiver: &'a Receiver,
    id: [u8; 16],
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.receiver.table().beginning.remove(&self.id);
    }
}

/// A small file that is being written.
struct SmallHeld<'a> {
    receiver: &'a Receiver,
    id: [u8; 16],
}

impl Drop for SmallHeld<'_> {
    fn drop(&mut self) {
        self.receiver.table().small.remove(&self.id);
    }
}

fn write_whole(
    part: &Inside,
    file: &std::fs::File,
    begin: &proto::CopyBeginRequest,
    bytes: &[u8],
) -> Result<(), Fault> {
    use std::os::unix::fs::FileExt;
    part.during(Cause::DiskWrite, || file.write_all_at(bytes, 0)).map_err(|error| part.fault_of(&error))?;
    part.finish(file, begin.mode, begin.modified)?;
    part.during(Cause::DiskSync, || file.sync_all()).map_err(|error| part.fault_of(&error))
}
