//! File locks across clients: flock(2) and fcntl(2).
//!
//! The metadata service decides, and keeps them in memory. What this client holds it knows as well: after a restart of
//! the service it says so, and has its locks back. Who waits stands in a queue there; that its turn has come is told
//! like a change, and asked for from time to time. Between saying all it holds and a single lock or unlock there must
//! be an order: the one is done by a writer, the other by a reader of one lock.

use crate::core::Context;
use crate::meta::MetaService;
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vazao_model::limits::LOCK_POLL_MS;
use vazao_model::locks::{LockKind, LockMode, LockRange, RangeLocks};
use vazao_model::{Code, InodeId, Knowledge};
use vazao_wire::{op, proto};

/// How often a waiter looks whether it is to give up.
const LOOK: Duration = Duration::from_millis(100);

/// Pause while locks are taken back after a restart.
const EARLY: Duration = Duration::from_millis(50);

/// What is to be locked, and by whom.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LockPlace {
    /// The file.
    pub inode: InodeId,
    /// Which kind of lock.
    pub kind: LockKind,
    /// Who, among those of this client.
    pub owner: u64,
}

/// A conflicting lock of another owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Obstacle {
    /// What it covers.
    pub range: LockRange,
    /// How.
    pub mode: LockMode,
    /// Its process, where that is one of this client's; 0 otherwise.
    pub process: u32,
}

type File = (InodeId, LockKind);

/// What is locked of one file.
#[derive(Default)]
struct Held {
    locks: RangeLocks<u64>,
    /// The process that each owner has locked by last.
    processes: HashMap<u64, u32>,
}

impl Held {
    fn has(&self, owner: u64) -> bool {
        self.locks.iter().any(|held| held.owner == owner)
    }

    /// `process` counts where something is locked: an unlock does not carry it.
    fn set(&mut self, owner: u64, range: LockRange, mode: Option<LockMode>, process: u32) {
        self.locks.set(owner, range, mode);
        if !self.has(owner) {
            self.processes.remove(&owner);
        } else if mode.is_some() {
            self.processes.insert(owner, process);
        }
    }
}

/// Losses of locks that are remembered one by one.
const LOSSES_MAX: usize = 4096;

/// The locks lost to other clients, of all kinds, in order.
#[derive(Default)]
struct Losses {
    /// How many there were; changed while `latest` is held.
    count: AtomicU64,
    /// The files of the latest of them.
    latest: Mutex<VecDeque<InodeId>>,
}

impl Losses {
    fn note(&self, inode: InodeId) {
        let mut latest = self.latest.lock();
        latest.push_back(inode);
        if latest.len() > LOSSES_MAX {
            latest.pop_front();
        }
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// True when one on the file came after the first `count`, or it is not known any more.
    fn has_since(&self, inode: InodeId, count: u64) -> bool {
        let latest = self.latest.lock();
        let since = (self.count.load(Ordering::SeqCst) - count) as usize;
        since > latest.len() || latest.iter().rev().take(since).any(|lost| *lost == inode)
    }
}

/// Locks of this client, and those it waits for.
pub struct Locks {
    context: Arc<Context>,
    meta: Arc<MetaService>,
    held: Mutex<HashMap<File, Held>>,
    /// Shared by a change of one lock, exclusive for the reclaim of all.
    telling: RwLock<()>,
    /// The service may not know what is held.
    must_tell: AtomicBool,
    /// There was a lock once, so that the service waits for this client after a restart.
    has_locked: AtomicBool,
    /// The session in which the service knows what is held here, or did before a restart.
    told_in: AtomicU64,
    last_waiter: AtomicU64,
    /// Locks lost to other clients, until their former owner unlocks or closes.
    lost: Mutex<HashSet<LockPlace>>,
    has_lost: AtomicBool,
    losses: Losses,
    /// Waiters whose turn has come.
    called: Mutex<HashSet<u64>>,
    calling: Condvar,
}

fn lock_message(place: LockPlace, range: LockRange, mode: Option<LockMode>, process: u32) -> proto::Lock {
    proto::Lock {
        inode: place.inode.0,
        kind: place.kind as u32,
        owner: place.owner,
        first: range.first,
        last: range.last,
        mode: match mode {
            None => 0,
            Some(LockMode::Shared) => 1,
            Some(LockMode::Exclusive) => 2,
        },
        process,
    }
}

/// What the service says to a wish.
enum Answer {
    Granted { version: u64, changes: u64 },
    Waits,
    TooEarly,
}

/// A lock as it was granted: the version of the inode then, and the number of the change to have heard of before.
pub(crate) struct Granted {
    pub(crate) version: u64,
    pub(crate) changes: u64,
}

impl Locks {
    pub(crate) fn new(context: Arc<Context>, meta: Arc<MetaService>) -> Locks {
        Locks {
            context,
            meta,
            held: Mutex::default(),
            telling: RwLock::default(),
            must_tell: AtomicBool::new(false),
            has_locked: AtomicBool::new(false),
            told_in: AtomicU64::new(0),
            last_waiter: AtomicU64::new(0),
            lost: Mutex::default(),
            has_lost: AtomicBool::new(false),
            losses: Losses::default(),
            called: Mutex::default(),
            calling: Condvar::new(),
        }
    }

    /// The turn of a waiter has come.
    pub(crate) fn call(&self, waiter: u64) {
        self.called.lock().insert(waiter);
        self.calling.notify_all();
    }

    /// An owner that no lock had before.
    pub fn new_owner(&self) -> u64 {
        self.last_waiter.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The service may have forgotten what is held here.
    pub(crate) fn must_tell(&self) {
        self.must_tell.store(true, Ordering::SeqCst);
    }

    fn note(&self, place: LockPlace, range: LockRange, mode: Option<LockMode>, process: u32) {
        let mut held = self.held.lock();
        let file = (place.inode, place.kind);
        let of_file = held.entry(file).or_default();
        of_file.set(place.owner, range, mode, process);
        if of_file.locks.is_empty() {
            held.remove(&file);
        }
    }

    /// Another client has had a lock since it was last known to be held here.
    pub(crate) fn note_lost(&self, place: LockPlace) {
        self.lost.lock().insert(place);
        self.has_lost.store(true, Ordering::SeqCst);
    }

    /// True when `place`'s owner has locked any of the file.
    pub fn has(&self, place: LockPlace) -> bool {
        let held = self.held.lock();
        held.get(&(place.inode, place.kind)).is_some_and(|file| file.has(place.owner))
    }

    /// True when any owner of this client has locked any of the file, by either call.
    pub fn has_any(&self, inode: InodeId) -> bool {
        self.has_any_of(inode, &[LockKind::Flock, LockKind::Range])
    }

    /// True when any owner of this client has a lock of one of these kinds on the file.
    pub(crate) fn has_any_of(&self, inode: InodeId, kinds: &[LockKind]) -> bool {
        let held = self.held.lock();
        kinds.iter().any(|kind| held.contains_key(&(inode, *kind)))
    }

    /// True when there was ever a lock.
    pub(crate) fn has_locked(&self) -> bool {
        self.has_locked.load(Ordering::SeqCst)
    }

    /// How many locks were lost so far.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.count.load(Ordering::SeqCst)
    }

    /// True when a lock on the file may have been lost since there were `losses`.
    pub(crate) fn has_lost_since(&self, inode: InodeId, losses: u64) -> bool {
        self.losses() != losses && self.losses.has_since(inode, losses)
    }

    /// Fails with `Io` when a lock of one of these is lost: another client has had it since, and may have changed what
    /// it protected. That ends when its owner lets go of it, also by closing the file.
    pub fn check(&self, places: impl IntoIterator<Item = LockPlace>) -> Result<()> {
        if !self.has_lost.load(Ordering::SeqCst) {
            return Ok(());
        }
        let lost = self.lost.lock();
        match places.into_iter().find(|place| lost.contains(place)) {
            None => Ok(()),
            Some(place) => {
                let detail = "a lock on it is lost, as this client was cut off for too long; close the file";
                Err(Error::new(Code::Io, format!("{}: {detail}", place.inode)))
            }
        }
    }

    /// The lock that conflicts with a wanted one, if any.
    pub fn test(&self, place: LockPlace, range: LockRange, mode: LockMode) -> Result<Option<Obstacle>> {
        let lock = Some(lock_message(place, range, Some(mode), 0));
        let request = proto::TestLockRequest { session: self.meta.session.id(), lock };
        let response = self.meta.ask::<op::TestLock>(&request)?;
        Ok(response.held.map(|held| Obstacle {
            range: LockRange { first: held.first, last: held.last },
            mode: if held.mode == 1 { LockMode::Shared } else { LockMode::Exclusive },
            process: held.process,
        }))
    }

    /// The owner of a lock that may be lost has closed the file.
    pub fn forget_lost(&self, place: LockPlace) {
        if self.has_lost.load(Ordering::SeqCst) {
            let mut lost = self.lost.lock();
            lost.remove(&place);
            self.has_lost.store(!lost.is_empty(), Ordering::SeqCst);
        }
    }

    /// Waits until the turn of `waiter` may have come, or something else is to be looked after.
    fn await_call(&self, waiter: u64) -> bool {
        let mut called = self.called.lock();
        if !called.contains(&waiter) && self.context.options.background {
            self.calling.wait_for(&mut called, LOOK);
        } else if !called.contains(&waiter) {
            // No thread of its own hears the call, and a simulated clock moves only in sleeps.
            drop(called);
            self.context.clock.sleep(LOOK);
            called = self.called.lock();
        }
        called.remove(&waiter)
    }
}

impl Locks {
    /// True when the service knows in `session` what is held here.
    pub(crate) fn are_told(&self, session: u64) -> bool {
        !self.has_locked.load(Ordering::SeqCst) || self.told_in.load(Ordering::SeqCst) == session
    }

    /// Tells the service all that is held here, if it may have forgotten, or the session is another one. `is_lost` is
    /// told of each lock that another client has had since.
    pub(crate) fn tell(&self, is_lost: &dyn Fn(LockPlace)) -> Result<()> {
        let is_due = || self.must_tell.load(Ordering::SeqCst) || !self.are_told(self.meta.session.id());
        if !self.has_locked.load(Ordering::SeqCst) || !is_due() {
            return Ok(());
        }
        let _alone = self.telling.write();
        if !is_due() {
            return Ok(());
        }
        self.must_tell.store(false, Ordering::SeqCst);
        let told = self.tell_all(is_lost);
        if told.is_err() {
            self.must_tell();
        }
        told
    }

    /// The caller holds `telling` alone.
    fn tell_all(&self, is_lost: &dyn Fn(LockPlace)) -> Result<()> {
        let places: Vec<(LockPlace, LockRange, LockMode, u32)> = {
            let held = self.held.lock();
            let of_file = |(&(inode, kind), file): (&File, &Held)| {
                let place = move |owner| LockPlace { inode, kind, owner };
                let process = |owner| file.processes.get(&owner).copied().unwrap_or(0);
                let told = file.locks.iter().map(|l| (place(l.owner), l.range, l.mode, process(l.owner)));
                told.collect::<Vec<_>>()
            };
            held.iter().flat_map(of_file).collect()
        };
        let locks = places
            .iter()
            .map(|(place, range, mode, process)| lock_message(*place, *range, Some(*mode), *process));
        let session = self.meta.session.id();
        let former = self.told_in.load(Ordering::SeqCst);
        let request = proto::ReclaimLocksRequest { session, locks: locks.collect(), former };
        let response = self.meta.ask::<op::ReclaimLocks>(&request)?;
        for (place, range, ..) in response.lost.iter().filter_map(|&number| places.get(number as usize)) {
            tracing::error!(
                inode = %place.inode,
                "a lock is lost: this client was cut off for so long that another one has it now"
            );
            is_lost(*place);
            self.losses.note(place.inode);
            self.note(*place, *range, None, 0);
        }
        // Only now: what was written under those that are lost is not to be reported.
        self.told_in.store(session, Ordering::SeqCst);
        Ok(())
    }

    /// Locks a range for `place`'s owner, in whatever way it held it before. Waits, when `give_up` is given, until the
    /// lock is free or `give_up` says true. No question is tried beyond `until_ns`, nor for longer than a deadline.
    /// Errors: `Locked`, `Deadlock`, `NoLocks`, `Interrupted`.
    pub(crate) fn lock(
        &self,
        place: LockPlace,
        range: LockRange,
        mode: LockMode,
        process: u32,
        give_up: Option<&dyn Fn() -> bool>,
        until_ns: u64,
    ) -> Result<Granted> {
        let lock = lock_message(place, range, Some(mode), process);
        let waiter = match give_up {
            Some(_) => self.new_owner(),
            None => 0,
        };
        let mut is_giving_up = false;
        loop {
            let deadline_ns = self.context.deadline_ns().min(until_ns);
            match self.ask_lock_until(place, &lock, waiter, range, deadline_ns) {
                Ok(Answer::Granted { version, changes }) => {
                    return Ok(Granted { version, changes });
                }
                Ok(_) => {}
                // A waiter for a lock also retries while the service does not answer.
                // So does one that must not get it yet, as others take theirs back after a restart.
                Err(error)
                    if give_up.is_some_and(|give_up| !give_up())
                        && (is_absence(error.code) || error.code == Code::Locked) =>
                {
                    self.context.clock.sleep(LOOK);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let Some(give_up) = give_up else { return Err(Code::Locked.into()) };
            if is_giving_up {
                return Err(Error::new(Code::Interrupted, format!("{}: waiting for a lock", place.inode)));
            }
            is_giving_up = !self.await_turn(waiter, give_up) && self.cancel(lock, waiter)?;
            if is_giving_up {
                return Err(Error::new(Code::Interrupted, format!("{}: waiting for a lock", place.inode)));
            }
        }
    }

    /// One request for one lock. It excludes a reclaim of all locks meanwhile (race).
    fn ask_lock(
        &self,
        place: LockPlace,
        lock: &proto::Lock,
        waiter: u64,
        range: LockRange,
        deadline_ns: u64,
    ) -> Result<Answer> {
        let _one = self.telling.read();
        let mode = match lock.mode {
            0 => None,
            1 => Some(LockMode::Shared),
            _ => Some(LockMode::Exclusive),
        };
        let session = self.meta.session.id();
        match mode {
            None => self.note(place, range, None, 0),
            // Also when it is refused: after a restart the service waits for every client that has asked for a lock.
            Some(_) if !self.has_locked.swap(true, Ordering::SeqCst) => {
                self.told_in.store(session, Ordering::SeqCst)
            }
            Some(_) => {}
        }
        let request = proto::SetLockRequest { session, lock: Some(*lock), waiter };
        let response = match self.meta.ask_until::<op::SetLock>(&request, deadline_ns) {
            Ok(response) => response,
            Err(error) => {
                // The service may have granted it, and a caller that gave up must not hold it.
                self.must_tell();
                return Err(error);
            }
        };
        let refuse = |code: Code, what: &str| Err(Error::new(code, format!("{}: {what}", place.inode)));
        match response.verdict {
            0 => {
                if mode.is_some() {
                    self.note(place, range, mode, lock.process);
                }
                Ok(Answer::Granted { version: response.version, changes: response.changes })
            }
            1 => Ok(Answer::Waits),
            2 => refuse(Code::Locked, "another owner has locked it"),
            3 => refuse(Code::Deadlock, "who has locked it waits for the one who asks"),
            4 => refuse(Code::NoLocks, "the metadata service keeps no more locks, or no more of this client"),
            5 => Ok(Answer::TooEarly),
            other => refuse(Code::BadRequest, &format!("verdict {other} about a lock")),
        }
    }

    /// [`Core::ask_lock`], in a new session when the present one has ended, and again while others take theirs back.
    fn ask_lock_until(
        &self,
        place: LockPlace,
        lock: &proto::Lock,
        waiter: u64,
        range: LockRange,
        deadline_ns: u64,
    ) -> Result<Answer> {
        loop {
            let session = self.meta.session.id();
            match self.ask_lock(place, lock, waiter, range, deadline_ns) {
                Ok(Answer::TooEarly) if self.context.clock.now_ns() < deadline_ns => {
                    self.context.clock.sleep(EARLY)
                }
                Ok(Answer::TooEarly) => {
                    let detail = "locks are being taken back after a restart of the metadata service";
                    return Err(Error::new(Code::Locked, format!("{}: {detail}", place.inode)));
                }
                Err(error) if error.code == Code::SessionExpired && lock.mode != 0 => {
                    self.meta.open_session(session, deadline_ns)?;
                    self.must_tell();
                }
                // With its session the service has forgotten what it held.
                Err(error) if error.code == Code::SessionExpired => {
                    return Ok(Answer::Granted { version: 0, changes: 0 });
                }
                other => return other,
            }
        }
    }
}

impl Locks {
    /// True when it is time to ask again, false when the waiter gives up.
    fn await_turn(&self, waiter: u64, give_up: &dyn Fn() -> bool) -> bool {
        let poll_ns = self.context.clock.now_ns() + u64::from(LOCK_POLL_MS) * 1_000_000;
        while self.context.clock.now_ns() < poll_ns {
            if self.await_call(waiter) {
                return true;
            }
            if give_up() {
                return false;
            }
        }
        true
    }

    /// A waiter gives up; false when it may have its lock already.
    fn cancel(&self, lock: proto::Lock, waiter: u64) -> Result<bool> {
        let session = self.meta.session.id();
        let request = proto::CancelLockRequest { session, lock: Some(lock), waiter };
        match self.meta.ask::<op::CancelLock>(&request) {
            Ok(response) => Ok(response.was_waiting),
            Err(error) if error.code == Code::SessionExpired => Ok(true),
            Err(error) => {
                // Should it be granted after all, it is let go when the service hears what is held here.
                self.must_tell();
                tracing::debug!(%error, "a waiter for a lock could not be taken back");
                Ok(true)
            }
        }
    }

    /// Lets go of a range. What was written under the lock is to be flushed before.
    pub(crate) fn unlock(&self, place: LockPlace, range: LockRange) -> Result<()> {
        self.forget_lost(place);
        let lock = lock_message(place, range, None, 0);
        self.ask_lock_until(place, &lock, 0, range, self.context.deadline_ns()).map(|_| ())
    }
}

/// True when a service that does not answer is the reason.
fn is_absence(code: Code) -> bool {
    matches!(code.knowledge(), Knowledge::Silence | Knowledge::NotYet)
}
