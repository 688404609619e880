//! Which operations fail on purpose, and how many there were.
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What an operation does to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Looks at contents or names.
    Read,
    /// Changes contents or names.
    Write,
    /// Makes changes durable.
    Sync,
}

/// Counts of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operations {
    /// Reads of files, and lists and plain opens.
    pub reads: u64,
    /// Writes and length changes of files, and changes of names.
    pub writes: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    planned: Mutex<Planned>,
    /// Saves the lock above as long as nothing is planned.
    any_planned: AtomicBool,
    uncached: AtomicBool,
    is_replaced: AtomicBool,
    /// Syncs of files whose path contains this do not end.
    held: Mutex<Option<String>>,
    /// One is being held, or they go on.
    turned: Condvar,
    holding: AtomicU64,
    /// Nothing that needs the disk ends.
    hangs: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
}

#[derive(Debug, Default)]
struct Planned {
    after: Option<(u64, io::ErrorKind)>,
    paths: Vec<(Access, String, io::ErrorKind)>,
}

impl Faults {
    /// Counts an operation and fails it when that is planned.
    pub(super) fn check(&self, access: Access, path: &str) -> io::Result<()> {
        let counter = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
            Access::Sync => &self.syncs,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if !self.any_planned.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.planned.lock().next(access, path) {
            Some(kind) => Err(io::Error::new(kind, format!("fault injected into {access:?} of {path}"))),
            None => Ok(()),
        }
    }

    pub(super) fn fail_after(&self, count: u64, kind: io::ErrorKind) {
        self.planned.lock().after = Some((count, kind));
        self.any_planned.store(true, Ordering::Release);
    }

    pub(super) fn fail_path(&self, access: Access, part: &str, kind: io::ErrorKind) {
        self.planned.lock().paths.push((access, part.to_string(), kind));
        self.any_planned.store(true, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        *self.planned.lock() = Planned::default();
        self.any_planned.store(false, Ordering::Release);
    }

    pub(super) fn set_cached(&self, cached: bool) {
        self.uncached.store(!cached, Ordering::Relaxed);
    }

    pub(super) fn is_cached(&self) -> bool {
        !self.uncached.load(Ordering::Relaxed)
    }

    pub(super) fn set_replaced(&self, is_replaced: bool) {
        self.is_replaced.store(is_replaced, Ordering::Relaxed);
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Holds syncs, or lets all of them go on.
    pub(super) fn hold_syncs(&self, part: Option<&str>) {
        *self.held.lock() = part.map(str::to_owned);
        self.turned.notify_all();
    }

    /// Comes back when the sync of this path may go on. Called before the disk's life is looked at: it may end
    /// meanwhile.
    pub(super) fn wait_while_held(&self, path: &str) {
        let mut held = self.held.lock();
        if held.as_ref().is_none_or(|part| !path.contains(part.as_str())) {
            return;
        }
        self.holding.fetch_add(1, Ordering::Relaxed);
        self.turned.notify_all();
        while held.as_ref().is_some_and(|part| path.contains(part.as_str())) {
            self.turned.wait(&mut held);
        }
        self.holding.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes the disk hang, or answer again.
    pub(super) fn set_hanging(&self, hangs: bool) {
        let held = self.held.lock();
        self.hangs.store(hangs, Ordering::Release);
        drop(held);
        self.turned.notify_all();
    }

    /// Comes back once the disk does not hang. Called before the disk's life is looked at, as
    /// [`Faults::wait_while_held`].
    pub(super) fn wait_while_hanging(&self) {
        if !self.hangs.load(Ordering::Acquire) {
            return;
        }
        let mut held = self.held.lock();
        self.holding.fetch_add(1, Ordering::Relaxed);
        self.turned.notify_all();
        while self.hangs.load(Ordering::Acquire) {
            self.turned.wait(&mut held);
        }
        self.holding.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many operations are being held.
    pub(super) fn holding(&self) -> u64 {
        self.holding.load(Ordering::Relaxed)
    }

    /// Waits until a sync is being held.
    pub(super) fn await_held(&self) {
        let mut held = self.held.lock();
        while self.holding.load(Ordering::Relaxed) == 0 {
            self.turned.wait(&mut held);
        }
    }

    pub(super) fn operations(&self) -> Operations {
        Operations {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
        }
    }
}

impl Planned {
    fn next(&mut self, access: Access, path: &str) -> Option<io::ErrorKind> {
        match &mut self.after {
            Some((0, kind)) => return Some(*kind),
            Some((left, _)) => *left -= 1,
            None => {}
        }
        // A disk that cannot write cannot make anything durable either.
        let hits = |planned: Access| planned == access || (planned, access) == (Access::Write, Access::Sync);
        self.paths.iter().find(|(planned, part, _)| hits(*planned) && path.contains(part)).map(|f| f.2)
    }
}
