//! One area: its root, how a path in it is opened, and the threads that wait for its file system.
//!
//! Nothing else waits for that: opening the root, closing files and looking whether it still answers happen in the
//! area's own threads too, so that a file system that hangs holds up its own area only.

use crate::export::{AreaConfig, mount_point};
use crate::fault;
use crate::open_file::AreaFile;
use crate::options::Options;
use crate::owner::Owner;
use crate::path::AreaPath;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vazao_meter::machine::{DiskWatch, DiskWatches};
use vazao_meter::{Cause, Clock};
use vazao_model::Code;
use vazao_model::limits::AREA_HANGS_MS;
use vazao_wire::lane::{Lane, LaneOptions};
use vazao_wire::pool::PoolState;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::watchdog::{Silence, UnderWay, Watchdog};

/// The kernel gives up with `EAGAIN` when a directory is moved while a path through it is walked; it will hardly be
/// moved so often in a row.
const OPEN_ATTEMPTS_MAX: usize = 64;

/// Files that may wait to be closed: a part of those that channels may have open, for there may be several areas.
const CLOSING_PART: usize = 4;
const CLOSING_MIN: usize = 16;
const CLOSING_MAX: usize = 1024;

/// Operations that threads of copies may have under way on an area that hangs: each holds its thread.
const STUCK_MAX: usize = 16;

/// What all areas of a node are made with.
pub(crate) struct Surroundings {
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) disks: Arc<DiskWatches>,
}

#[cfg(test)]
impl Surroundings {
    /// Of areas that do everything in the caller's thread.
    pub(crate) fn without_threads() -> Surroundings {
        let clock = vazao_meter::clock::system();
        let options = Options { threads: 0, ..Options::default() };
        Surroundings { options, disks: DiskWatches::new(Arc::clone(&clock)), clock }
    }
}

/// What an area has once its directory is open.
#[derive(Debug)]
struct Opened {
    root: OwnedFd,
    /// `None` where no disk of this machine is behind it.
    disk: Option<Arc<DiskWatch>>,
}

/// The threads of an area.
#[derive(Debug)]
struct Lanes {
    /// Carries out requests.
    requests: Lane,
    /// Carries out what belongs to copies: their syncs take long, and no reader waits behind them.
    copies: Lane,
    /// Closes unused files, each by a job of its own: one that is stuck delays no other.
    closing: Lane,
}

/// A directory of this machine under a name.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) name: String,
    pub(crate) read_only: bool,
    node: String,
    owner: Option<Owner>,
    path: PathBuf,
    mounted_at: Option<PathBuf>,
    opened: OnceLock<Opened>,
    /// Why it is not open; empty before that is known.
    trouble: Mutex<String>,
    is_opening: AtomicBool,
    is_probing: AtomicBool,
    /// Taken out of the configuration, or changed there.
    closed: AtomicBool,
    watchdog: Arc<Watchdog>,
    /// `None`: everything happens in the caller's thread.
    lanes: Option<Lanes>,
    /// Files that may wait to be closed before no further one is opened.
    closing_max: usize,
}

/// What a thread of a copy does on an area's file system; it counts as under way for as long as this lives.
#[must_use = "dropped at once it counts as ended"]
pub struct Waiting<'a>(#[allow(dead_code, reason = "counts until it is dropped")] UnderWay<'a>);

impl std::fmt::Debug for Waiting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiting")
    }
}

fn lane_options(options: &Options, jobs_max: usize, bytes_max: usize) -> LaneOptions {
    let threads = options.threads;
    LaneOptions {
        threads,
        threads_more: 2 * threads,
        jobs_max,
        bytes_max,
        hangs_ms: AREA_HANGS_MS,
        is_probed: false,
    }
}

impl Area {
    /// An area that is not open yet.
    pub(crate) fn new(config: &AreaConfig, around: &Surroundings) -> Area {
        let Surroundings { options, clock, .. } = around;
        let place = format!("area {} of node {}", config.name, options.name);
        let watchdog = Arc::new(Watchdog::new(&place, Arc::clone(clock)));
        let lane = |name: &str, jobs_max, bytes_max| {
            let options = lane_options(options, jobs_max, bytes_max);
            Lane::new(name, options, Arc::clone(&watchdog), Arc::clone(clock))
        };
        let lanes = (options.threads > 0).then(|| Lanes {
            requests: lane("area", options.jobs_max, options.job_bytes_max),
            copies: lane("arriving", options.jobs_max, options.copy_bytes_max),
            // What is open must be closed: opening is what is refused.
            closing: lane("closing", usize::MAX, usize::MAX),
        });
        Area {
            name: config.name.clone(),
            read_only: config.read_only,
            node: options.name.clone(),
            owner: config.owner,
            path: config.path.clone(),
            mounted_at: config.mounted_at.clone(),
            opened: OnceLock::new(),
            trouble: Mutex::default(),
            is_opening: AtomicBool::new(false),
            is_probing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            watchdog,
            lanes,
            closing_max: (options.descriptors_max / CLOSING_PART).clamp(CLOSING_MIN, CLOSING_MAX),
        }
    }

    /// Has the directory opened; `done` is dropped when that is over, one way or the other.
    pub(crate) fn begin_opening(self: &Arc<Area>, disks: &Arc<DiskWatches>, done: Option<Sender<()>>) {
        if self.is_usable() || self.is_opening.swap(true, Ordering::AcqRel) {
            return;
        }
        let (area, disks) = (Arc::clone(self), Arc::clone(disks));
        let open = move || {
            let opened = area.open(&disks);
            let trouble = opened.as_ref().err().cloned().unwrap_or_default();
            *area.trouble.lock() = trouble;
            if let Ok(opened) = opened {
                let _ = area.opened.set(opened);
            }
            area.is_opening.store(false, Ordering::Release);
            drop(done);
        };
        match &self.lanes {
            None => open(),
            Some(lanes) if lanes.requests.run("opening its directory", open) => {}
            // The next tick tries again.
            Some(_) => self.is_opening.store(false, Ordering::Release),
        }
    }

    fn open(&self, disks: &DiskWatches) -> Result<Opened, String> {
        if let (Some(owner), false) = (self.owner, self.read_only) {
            owner.check()?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let shown = self.path.display();
        let root = openat(CWD, &self.path, flags, Mode::empty())
            .map_err(|e| format!("{shown}: {}", std::io::Error::from(e)))?;
        if let Some(expected) = &self.mounted_at {
            let found = mount_point(&self.path).map_err(|e| format!("{shown}: {e}"))?;
            if found != *expected {
                return Err(format!(
                    "{shown}: the file system of {} is not mounted (it lies on {} now): mount it; if that is meant, take the area \
                     out and add it again",
                    expected.display(),
                    found.display()
                ));
            }
        }
        Ok(Opened { root, disk: disks.of(&self.path) })
    }

    /// True once its directory is open.
    pub(crate) fn is_usable(&self) -> bool {
        self.opened.get().is_some()
    }

    /// What is wrong with it, for people; `None` when nothing is.
    pub(crate) fn trouble(&self) -> Option<String> {
        let hangs = self.watchdog.trouble();
        if self.is_usable() || hangs.is_some() {
            return hangs;
        }
        let trouble = self.trouble.lock().clone();
        let waits = || format!("{}: not opened yet", self.path.display());
        Some(if trouble.is_empty() { waits() } else { trouble })
    }

    /// How long nothing has come back from its file system although something is waited for.
    pub(crate) fn silent_ns(&self) -> u64 {
        self.watchdog.silence().map_or(0, |silence| silence.ns)
    }

    /// Refuses an area whose directory is not there, or not yet.
    pub(crate) fn check_usable(&self) -> Result<(), Fault> {
        if self.is_usable() {
            return Ok(());
        }
        let is_unknown = self.trouble.lock().is_empty();
        let code = if is_unknown { Code::Hung } else { Code::NotFound };
        let trouble = self.trouble().unwrap_or_default();
        Err(Fault::new(code, format!("area {:?} of node {}: {trouble}", self.name, self.node)))
    }

    /// Why it counts as hanging: nothing has returned for so long that its waiters get an error.
    pub(crate) fn hangs(&self) -> Option<String> {
        self.watchdog.is_silent(AREA_HANGS_MS).then(|| self.trouble()).flatten()
    }

    /// A thread begins something that may wait for the file system. Errors: it hangs, and enough threads wait for it.
    pub(crate) fn begin(&self, what: &'static str) -> Result<Waiting<'_>, Fault> {
        let hangs_ns = u64::from(AREA_HANGS_MS) * 1_000_000;
        let is_enough = |silence: &Silence| silence.under_way >= STUCK_MAX && silence.ns >= hangs_ns;
        match self.watchdog.silence().filter(is_enough) {
            None => Ok(Waiting(self.watchdog.begin(what))),
            Some(_) => {
                let trouble = self.trouble().unwrap_or_default();
                Err(Fault::new(Code::Hung, format!("area {} of node {}: {trouble}", self.name, self.node)))
            }
        }
    }

    /// True when nothing has ended for so long although something is under way.
    pub(crate) fn is_silent(&self, milliseconds: u32) -> bool {
        self.watchdog.is_silent(milliseconds)
    }

    /// The threads for requests, and those for copies.
    pub(crate) fn lane(&self, is_copy: bool) -> Option<&Lane> {
        self.lanes.as_ref().map(|lanes| if is_copy { &lanes.copies } else { &lanes.requests })
    }

    /// The threads that requests wait for.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().flat_map(|lanes| [&lanes.requests, &lanes.copies])
    }

    /// The threads that close files.
    pub(crate) fn closing(&self) -> Option<&Lane> {
        self.lanes.as_ref().map(|lanes| &lanes.closing)
    }

    /// Looks after it; to be called about once a second. It never waits.
    pub(crate) fn tick(self: &Arc<Area>, disks: &Arc<DiskWatches>) {
        self.watchdog.tell();
        self.look_after_threads();
        self.begin_opening(disks, None);
    }

    fn look_after_threads(self: &Arc<Area>) {
        self.lanes().chain(self.closing()).for_each(Lane::tick);
        if self.watchdog.is_silent(AREA_HANGS_MS) {
            self.probe();
        }
    }

    /// Probes whether a file system that hangs answers again: its waiters may be waiting for an answer that was
    /// lost. One thread at a time does.
    fn probe(self: &Arc<Area>) {
        if self.lanes.is_none() || !self.is_usable() || self.is_probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let area = Arc::clone(self);
        let look = move || {
            if let Some(opened) = area.opened.get() {
                let _under_way = area.watchdog.begin("a look at its root");
                // What it says does not matter, only that it does: not from what the kernel remembers.
                let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
                let _ = statx(&opened.root, "", flags, StatxFlags::BASIC_STATS);
            }
            area.is_probing.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("probe".to_owned()).spawn(look).is_err() {
            self.is_probing.store(false, Ordering::Release);
        }
    }

    /// Its file system hangs, as far as one can tell from here.
    #[cfg(test)]
    pub(crate) fn is_never_probed(&self) {
        self.is_probing.store(true, Ordering::Release);
    }

    /// A file opened here, which is closed by the area's own threads.
    pub(crate) fn keep(self: &Arc<Area>, file: OwnedFd) -> AreaFile {
        AreaFile::new(file, Arc::clone(self))
    }

    /// Has a file closed: that may wait for the file system.
    pub(crate) fn discard(&self, file: OwnedFd) {
        match self.closing() {
            None => drop(file),
            // A file that is not taken is closed here.
            Some(lane) => {
                let _ = lane.run("closing a file", move || drop(file));
            }
        }
    }

    /// Refuses to open a file while too many wait to be closed: where closing takes longer than opening they would use
    /// up the descriptors of the daemon.
    pub(crate) fn check_closing(&self) -> Result<(), Fault> {
        if self.closing().is_none_or(|lane| lane.state().queued < self.closing_max) {
            return Ok(());
        }
        let why = format!("area {} of node {}: too many files wait to be closed", self.name, self.node);
        Err(Fault::new(Code::Overloaded, why))
    }

    /// Runs `work`, which may wait for the area's disk, and counts that. Returns its result.
    pub(crate) fn during<T>(&self, cause: Cause, work: impl FnOnce() -> T) -> T {
        match self.opened.get().and_then(|opened| opened.disk.as_ref()) {
            Some(disk) => disk.during(cause, work).0,
            None => work(),
        }
    }

    /// False once the area is not exported any more.
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// It is not exported any more: channels into it end, and requests that wait for a thread are answered. Files are
    /// closed as before.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for lane in self.lanes() {
            let _ = lane.stop(Duration::ZERO);
        }
    }

    /// Looks after one that is not exported any more. False once nothing waits for its file system.
    pub(crate) fn tick_closed(self: &Arc<Area>) -> bool {
        self.look_after_threads();
        self.lanes().chain(self.closing()).any(|lane| lane.state() != PoolState::default())
    }

    /// Refuses a change to a read-only area.
    pub(crate) fn check_writable(&self, path: &AreaPath) -> Result<(), Fault> {
        if !self.read_only {
            return Ok(());
        }
        Err(Fault::new(Code::ReadOnly, format!("{}: the area is exported read-only", path.show(&self.name))))
    }

    /// A file was made: it becomes its owner's.
    pub(crate) fn made_file(&self, file: &OwnedFd) -> Result<(), Errno> {
        self.owner.map_or(Ok(()), |owner| owner.give_file(file))
    }

    /// A directory or a link was made under a path: it becomes its owner's.
    pub(crate) fn made(&self, path: &AreaPath, kind: FileType) -> Result<(), Errno> {
        let Some(owner) = self.owner else { return Ok(()) };
        let inode = self.open_beneath(path.relative(), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
        owner.give_made(&inode, kind)
    }

    /// Opens what lies at `relative` beneath the root. No link, however it is swapped meanwhile, leads out.
    pub(crate) fn open_beneath(&self, relative: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let Some(Opened { root, .. }) = self.opened.get() else { return Err(Errno::TIMEDOUT) };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..OPEN_ATTEMPTS_MAX {
            match openat2(root, relative, flags | OFlags::CLOEXEC, mode, how) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens a path for a request.
    pub(crate) fn open_path(&self, path: &AreaPath, flags: OFlags) -> Result<OwnedFd, Fault> {
        self.open_beneath(path.relative(), flags, Mode::empty())
            .map_err(|error| fault::of_path(error, &path.show(&self.name)))
    }

    /// Opens the directory that a path's last name is in, and returns it with that name.
    pub(crate) fn open_parent<'p>(&self, path: &'p AreaPath) -> Result<(OwnedFd, &'p [u8]), Fault> {
        let shown = || path.show(&self.name);
        let (parent, name) = path.split().ok_or_else(|| {
            Fault::new(Code::NotPermitted, format!("{}: the root of an area stays as it is", shown()))
        })?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = self
            .open_beneath(parent, flags, Mode::empty())
            .map_err(|error| fault::of_path(error, &shown()))?;
        Ok((directory, name))
    }

    /// What others are told of it.
    pub(crate) fn announcement(&self) -> proto::Area {
        let trouble = self.trouble().unwrap_or_default().chars().take(TROUBLE_CHARACTERS_MAX).collect();
        proto::Area { name: self.name.clone(), read_only: self.read_only, trouble }
    }
}

/// Of what is wrong with an area others are told so much.
const TROUBLE_CHARACTERS_MAX: usize = 250;

impl Drop for Area {
    fn drop(&mut self) {
        let Some(lanes) = self.lanes.take() else { return };
        if lanes.closing.state().queued > 0 {
            // The last owner must not block. Without a thread the files are closed here.
            let _ = std::thread::Builder::new().name("closing".to_owned()).spawn(move || drop(lanes));
        }
    }
}
