//! The embedded engine: a write-ahead log, recent changes in memory, and a checkpoint on disk.
//!
//! - Commit: the changes go into the overlay and into a batch of log records.
//! - `flush` writes the batch with one write: the commits survive the process. A sync, at the latest 10 ms later,
//!   makes them survive power loss.
//! - Checkpoint: a grown overlay is frozen, the log continues in a new file, and the frozen changes go into the
//!   checkpoint in one transaction.
//! - Reads look into overlay, frozen overlay, checkpoint, in this order.
//! - What survives is always a prefix of the commits.
//! - Lock order: `syncing`, `drafting`, `log`, `state`. Neither `log` nor `state` is held over a sync.
//! - A panic poisons the locks on purpose: a half-made change in memory must not reach the disk.

#![allow(clippy::disallowed_types, reason = "a panic must stop the engine")]

mod ages;
mod background;
mod base;
mod blocks;
mod checkpoint;
mod compact;
mod format;
mod health;
mod keeping;
mod log;
mod lost;
mod overlay;
mod rebuild;
mod record;
mod rewrite;
mod space;
mod survey;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use super::transaction::{Optimistic, ReadSet, Store, Writes};
use super::{
    Background, Commit, Engine, EngineError, EngineOptions, EngineResult, Figures, Health, Notice, Position,
    Transaction,
};
use ages::Ages;
use background::Threads;
use base::{Base, View};
use compact::Looked;
use keeping::Keeping;
use log::Log;
use overlay::{Layer, Overlay};
use space::Watch;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;
use vazao_disk::{Disk, DiskFile, Open};
use vazao_meter::{Accounts, Cause, Clock};

/// Unsynced commits are synced at the latest after this. The contract says 10 ms; the rest is for the sync itself.
const SYNC_EVERY_NS: u64 = 8_000_000;

/// Power loss takes no more than the commits of a stretch of this length: once the oldest unsynced commit is older,
/// changes are answered when they are durable (docs/semantics.md, "Durability").
const UNSYNCED_NS_MAX: u64 = 10_000_000;

/// A log file is not continued beyond this, even when the same few keys change again and again.
const LOG_BYTES_MAX: u64 = 32 << 20;

/// Commits wait for the checkpoint when the overlay has grown to this many times its limit.
const OVERLAY_PRESSURE: usize = 2;

/// Where the last sync took no longer than this, `flush` syncs by itself for a single waiting answer: waking the syncer
/// and being woken by it is a tenth of a whole fsync. A slower disk would hold up the other requests of the loop.
const SYNC_AT_ONCE_NS_MAX: u64 = 300_000;

/// Reads take microseconds. The wait for a reader times out after so many pauses: the first number for requests,
/// which all block meanwhile, the second for slices of a checkpoint, which other threads need.
const READERS_PAUSES: u32 = 1_000;
const SLICE_READERS_PAUSES: u32 = 50_000;
const READERS_PAUSE: Duration = Duration::from_micros(100);

/// Its file, once it is complete.
const CHECKPOINT_FILE: &str = "checkpoint";

const NO_PANIC: &str = "no code panics while it holds this lock";

/// What transactions see.
struct State {
    position: Position,
    active: Overlay,
    frozen: Option<Arc<Overlay>>,
    base: Arc<View>,
    /// Records of commits that are not in the log's hands yet.
    batch: Vec<u8>,
    /// Bytes of log that the active overlay has taken.
    logged_bytes: u64,
}

impl State {
    /// Changes of `start <= key < end` that are in memory only, the newest layer first.
    fn changes(&self, start: &[u8], end: &[u8]) -> Vec<Layer<'_>> {
        let layers = [Some(&self.active), self.frozen.as_deref()].into_iter().flatten();
        layers.map(|layer| Box::new(layer.range(start, end)) as Layer<'_>).collect()
    }
}

/// The engine, shared with its threads.
pub(super) struct Core {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    accounts: Arc<Accounts>,
    identity: u64,
    overlay_bytes_max: usize,
    manual: bool,
    cache_bytes: usize,
    base: RwLock<Arc<Base>>,
    /// Damage prevents changes to the present checkpoint: it has to be rebuilt.
    must_rebuild: AtomicBool,
    /// Records that every start needs.
    essential: Vec<Range<Vec<u8>>>,
    keeping: Keeping,
    state: RwLock<State>,
    log: Mutex<Log>,
    /// One sync at a time.
    syncing: Mutex<()>,
    /// One thread at a time makes the next file of the log.
    drafting: Mutex<()>,
    written: AtomicU64,
    durable: AtomicU64,
    ages: Ages,
    checkpoint_turn: Mutex<()>,
    /// Former states of the checkpoint that a reader may still hold.
    former: Mutex<Vec<Weak<View>>>,
    waiting: Mutex<BTreeMap<(Position, u64), Notice>>,
    notices: AtomicU64,
    /// The log could not be written: commits are refused until it can.
    log_failing: AtomicBool,
    /// Free space, as seen last.
    watch: Watch,
    looked: Looked,
    failed: RwLock<Option<EngineError>>,
    /// Damage that was found and mended.
    mended: Mutex<Vec<String>>,
    synced_ns: AtomicU64,
    /// How long the last sync took.
    sync_took_ns: AtomicU64,
    log_bytes: AtomicU64,
    syncs: AtomicU64,
    checkpoints: AtomicU64,
    threads: Threads,
    lock_file: Mutex<Option<Arc<dyn DiskFile>>>,
}

/// See the module.
pub(crate) struct EmbeddedEngine {
    core: Arc<Core>,
}

impl EmbeddedEngine {
    /// Opens the directory, or creates the files in an empty one.
    pub(crate) fn open(options: EngineOptions) -> EngineResult<Arc<dyn Engine>> {
        let core = Arc::new(Core::open(options)?);
        core.look_at_space();
        core.sync_log()?;
        if !core.manual {
            background::start(&core)?;
        }
        Ok(Arc::new(EmbeddedEngine { core }))
    }
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        self.core.threads.stop();
    }
}

fn open_base(disk: &Arc<dyn Disk>, options: &mut EngineOptions) -> EngineResult<(Arc<Base>, u64)> {
    if let Some(format) = format::read(&**disk)? {
        let identity = format.identity;
        if format.is_before_checksums {
            rebuild::convert(disk, identity, options)?;
        }
        rebuild::remove_plain(&**disk)?;
        return Ok((open_checkpoint(disk, identity, options.cache_bytes)?, identity));
    }
    if log::is_in_use(&**disk)? {
        let text =
            "there are log files but no FORMAT file: restore it from a backup, or choose an empty directory";
        return Err(EngineError::Refused(text.to_owned()));
    }
    // Without commits nothing was ever answered: whatever is here is a creation that was interrupted.
    match disk.remove(CHECKPOINT_FILE) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(EngineError::io(CHECKPOINT_FILE, e));
        }
        _ => {}
    }
    let created = Base::open(disk, CHECKPOINT_FILE, Open::CreateNew, options.identity, options.cache_bytes)?;
    created.initialize(std::mem::take(&mut options.initial))?;
    log::create_first(&**disk, options.identity)?;
    disk.sync_directory("").map_err(|e| EngineError::io("the metadata directory", e))?;
    format::write(&**disk, options.identity)?;
    Ok((created, options.identity))
}

fn open_checkpoint(disk: &Arc<dyn Disk>, identity: u64, cache_bytes: usize) -> EngineResult<Arc<Base>> {
    let missing = |error| match error {
        EngineError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            EngineError::Corrupt(format!("{CHECKPOINT_FILE} is missing: restore it from a backup"))
        }
        other => other,
    };
    rebuild::put_back(&**disk)?;
    rebuild::remove_draft(&**disk)?;
    if rewrite::is_unsure(&**disk)? {
        rewrite::write_again(&**disk, CHECKPOINT_FILE).map_err(missing)?;
    }
    Base::open(disk, CHECKPOINT_FILE, Open::Existing, identity, cache_bytes).map_err(missing)
}

impl Core {
    fn open(mut options: EngineOptions) -> EngineResult<Core> {
        let disk = Arc::clone(&options.disk);
        let lock_file = format::lock(&*disk)?;
        let (base, identity) = open_base(&disk, &mut options)?;
        let view = base.view()?;
        let recovered = log::recover(&*disk, identity, view.applied)?;
        if recovered.cut_bytes > 0 {
            tracing::info!(bytes = recovered.cut_bytes, "cut a torn tail off the log");
        }
        let position = recovered.position;
        let log = Log::start(Arc::clone(&disk), identity, position, recovered.files)?;
        let state = State {
            position,
            active: recovered.overlay,
            frozen: None,
            base: Arc::new(view),
            batch: Vec::new(),
            logged_bytes: 0,
        };
        Ok(Core {
            synced_ns: AtomicU64::new(options.clock.now_ns()),
            disk,
            clock: options.clock,
            accounts: options.accounts,
            identity,
            overlay_bytes_max: options.overlay_bytes_max.max(1),
            manual: options.background == Background::Manual,
            cache_bytes: options.cache_bytes,
            base: RwLock::new(base),
            must_rebuild: AtomicBool::new(false),
            essential: options.essential,
            keeping: Keeping::default(),
            state: RwLock::new(state),
            log: Mutex::new(log),
            syncing: Mutex::new(()),
            drafting: Mutex::new(()),
            written: AtomicU64::new(position),
            durable: AtomicU64::new(0),
            ages: Ages::default(),
            checkpoint_turn: Mutex::new(()),
            former: Mutex::default(),
            waiting: Mutex::new(BTreeMap::new()),
            notices: AtomicU64::new(0),
            log_failing: AtomicBool::new(false),
            watch: Watch::default(),
            looked: Looked::default(),
            failed: RwLock::new(None),
            mended: Mutex::default(),
            sync_took_ns: AtomicU64::new(u64::MAX),
            log_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            threads: Threads::default(),
            lock_file: Mutex::new(Some(lock_file)),
        })
    }

    fn base(&self) -> Arc<Base> {
        Arc::clone(&self.base.read().expect(NO_PANIC))
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        match self.state.try_read() {
            Ok(state) => state,
            Err(_) => self.held_up(|| self.state.read().expect(NO_PANIC)),
        }
    }

    fn state_to_change(&self) -> RwLockWriteGuard<'_, State> {
        match self.state.try_write() {
            Ok(state) => state,
            Err(_) => self.held_up(|| self.state.write().expect(NO_PANIC)),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        match self.log.try_lock() {
            Ok(log) => log,
            Err(_) => self.held_up(|| self.log.lock().expect(NO_PANIC)),
        }
    }

    /// Waits for a lock that another thread holds.
    fn held_up<T>(&self, wait: impl FnOnce() -> T) -> T {
        let started_ns = self.clock.now_ns();
        let guard = wait();
        self.accounts.charge(Cause::Lock, self.clock.now_ns().saturating_sub(started_ns));
        guard
    }

    // ---- failures ----

    fn check(&self) -> EngineResult<()> {
        match &*self.failed.read().expect(NO_PANIC) {
            Some(stopped @ (EngineError::Stopped(_) | EngineError::Failed(_))) => Err(stopped.clone()),
            Some(error) => Err(EngineError::Failed(error.to_string())),
            None => Ok(()),
        }
    }

    /// Stops the engine: after a failed fsync the contents of the disk are unknown, so nothing can be promised any
    /// more.
    fn fail(&self, error: &EngineError) {
        tracing::error!(%error, "the metadata engine stops");
        self.failed.write().expect(NO_PANIC).get_or_insert_with(|| error.clone());
        let waiting = std::mem::take(&mut *self.waiting.lock().expect(NO_PANIC));
        waiting.into_values().for_each(|notice| notice(Err(error.clone())));
        self.threads.report_progress();
    }

    // ---- the log ----

    /// Writes all commits so far into the log.
    fn write_log(&self) -> EngineResult<()> {
        self.check()?;
        if self.written.load(Ordering::Acquire) >= self.state().position
            && !self.log_failing.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        let started_ns = self.clock.now_ns();
        let mut log = self.log();
        log.spacious = !self.watch.is_tight();
        self.write_batch(&mut log)?;
        let is_full = self.must_rotate(&log);
        drop(log);
        // A new file is synced before it is used, for which no event loop waits.
        match self.manual {
            true if is_full => self.rotate_full(),
            false if is_full => self.threads.wake_checkpointer(),
            _ => {}
        }
        self.look_at_space_in_time();
        self.accounts.charge(Cause::Disk, self.clock.now_ns().saturating_sub(started_ns));
        Ok(())
    }

    fn write_batch(&self, log: &mut Log) -> EngineResult<()> {
        {
            let mut state = self.state_to_change();
            log.last = state.position;
            if log.pending.is_empty() {
                std::mem::swap(&mut log.pending, &mut state.batch);
            } else {
                log.pending.append(&mut state.batch);
            }
        }
        let written = log.write();
        self.log_failing.store(written.is_err(), Ordering::Relaxed);
        self.log_bytes.fetch_add(written?, Ordering::Relaxed);
        self.written.store(log.last, Ordering::Release);
        Ok(())
    }

    fn must_rotate(&self, log: &Log) -> bool {
        let state = self.state();
        let full = state.active.bytes() > self.overlay_bytes_max
            || log.bytes() > LOG_BYTES_MAX
            || (log.bytes() > space::WORTHWHILE_BYTES || log.has_old()) && self.watch.would_help();
        full && state.frozen.is_none() && !state.active.is_empty()
    }

    /// True when there is enough room to write the changes that are in the log alone into the checkpoint, and it is for
    /// them that there is no more; or `at_any_size`.
    fn would_help(&self, at_any_size: bool) -> bool {
        let state = self.state();
        let is_wanted = at_any_size || self.watch.is_short();
        is_wanted && self.watch.would_help() && state.frozen.is_none() && !state.active.is_empty()
    }

    /// Rotates a full log. After an error the next flush tries again: everything is written.
    fn rotate_full(&self) {
        if let Err(error) = self.rotate_if(|log| self.must_rotate(log)) {
            tracing::warn!(%error, "the log goes on in its present file");
        }
    }

    /// What the checkpointer does when it is woken.
    fn rotate_and_checkpoint(&self) -> EngineResult<()> {
        self.rotate_full();
        self.checkpoint()
    }

    /// Rotates the log if `is_due`. The new file is made before the log is locked, which would hold up requests.
    fn rotate_if(&self, is_due: impl Fn(&Log) -> bool) -> EngineResult<()> {
        if !is_due(&self.log()) {
            return Ok(());
        }
        let _one = self.drafting.lock().expect(NO_PANIC);
        let next = log::draft(&*self.disk, self.identity)?;
        let mut log = self.log();
        log.prepare(next);
        if is_due(&log) { self.rotate(&mut log) } else { Ok(()) }
    }

    /// Freezes the overlay and continues the log in the new file.
    fn rotate(&self, log: &mut Log) -> EngineResult<()> {
        loop {
            self.write_batch(log)?;
            let mut state = self.state_to_change();
            // The border between the files has to be that between the overlays.
            if state.batch.is_empty() {
                log.rotate()?;
                state.frozen = Some(Arc::new(std::mem::take(&mut state.active)));
                state.logged_bytes = 0;
                break;
            }
        }
        self.threads.wake_checkpointer();
        Ok(())
    }

    /// Makes everything that is written durable.
    fn sync_log(&self) -> EngineResult<()> {
        let turn = self.syncing.lock().expect(NO_PANIC);
        self.sync_in_turn(turn)
    }

    /// The same without blocking: if another thread is syncing, the syncer is woken to sync again.
    fn sync_log_unless_busy(&self) -> EngineResult<()> {
        match self.syncing.try_lock() {
            Ok(turn) => self.sync_in_turn(turn),
            Err(_) => {
                self.threads.wake_syncer(true);
                Ok(())
            }
        }
    }

    fn sync_in_turn(&self, _turn: MutexGuard<'_, ()>) -> EngineResult<()> {
        self.check()?;
        let started_ns = self.clock.now_ns();
        let unsynced = self.log().unsynced();
        let written = self.written.load(Ordering::Acquire).min(unsynced.last);
        if let Err(error) = unsynced.sync(&*self.disk) {
            self.fail(&error);
            return Err(error);
        }
        // A sync succeeds even when the directory has been removed or replaced, so the place is checked before
        // anything counts as durable.
        self.check_place()?;
        self.durable.fetch_max(written, Ordering::AcqRel);
        let mut log = self.log();
        log.spacious = !self.watch.is_tight();
        log.synced(&unsynced, written, self.identity);
        drop(log);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let now_ns = self.clock.now_ns();
        self.synced_ns.store(now_ns, Ordering::Relaxed);
        self.sync_took_ns.store(now_ns.saturating_sub(started_ns), Ordering::Relaxed);
        self.accounts.charge(Cause::Disk, now_ns.saturating_sub(started_ns));
        self.notify_durable();
        Ok(())
    }

    fn notify_durable(&self) {
        let durable = self.durable.load(Ordering::Acquire);
        self.ages.settle(durable);
        let ready = {
            let mut waiting = self.waiting.lock().expect(NO_PANIC);
            let later = waiting.split_off(&(durable + 1, 0));
            std::mem::replace(&mut *waiting, later)
        };
        ready.into_values().for_each(|notice| notice(Ok(())));
    }

    /// Answers that wait for a sync.
    fn waiting_count(&self) -> usize {
        self.waiting.lock().expect(NO_PANIC).len()
    }

    /// How long the syncer may still wait: so that the oldest commit is durable in time if the sync takes as long as
    /// the last one did.
    fn sync_timeout(&self) -> Duration {
        let took_ns = match self.sync_took_ns.load(Ordering::Relaxed) {
            u64::MAX => 0,
            took_ns => took_ns,
        };
        let waited_ns = self.ages.oldest_ns(self.clock.now_ns());
        Duration::from_nanos(SYNC_EVERY_NS.saturating_sub(took_ns).saturating_sub(waited_ns))
    }

    fn is_sync_quick(&self) -> bool {
        self.sync_took_ns.load(Ordering::Relaxed) <= SYNC_AT_ONCE_NS_MAX
    }

    /// What the syncer does when it is time: nothing when `flush` has done it.
    fn sync_if_dirty(&self) -> EngineResult<()> {
        if self.is_dirty() { self.sync_log() } else { Ok(()) }
    }

    fn is_dirty(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.durable.load(Ordering::Acquire)
    }

    // ---- commits ----

    fn log_failing(&self) -> bool {
        self.log_failing.load(Ordering::Relaxed)
    }

    /// The checkpoint is so far behind that committers have to wait (backpressure). With little room this begins
    /// earlier: the changes must stay so few that the next checkpoint fits.
    fn is_too_far(&self, state: &State) -> bool {
        let limit = self.overlay_bytes_max * OVERLAY_PRESSURE;
        let is_much = match self.watch.is_low() {
            true => {
                state.active.bytes() > space::LOW_OVERLAY_BYTES_MAX.min(limit)
                    || state.logged_bytes > space::LOW_LOG_BYTES_MAX
            }
            false => state.active.bytes() > limit,
        };
        is_much && state.frozen.as_ref().is_some_and(|frozen| self.fits(frozen))
    }

    /// Blocks while the checkpoint is too far behind.
    fn catch_up_with_checkpoint(&self) -> EngineResult<()> {
        self.check()?;
        self.writable()?;
        if !self.is_too_far(&self.state()) {
            return Ok(());
        }
        let started_ns = self.clock.now_ns();
        if self.manual {
            self.checkpoint()?;
        } else {
            self.threads.wait_while(|| self.check().is_ok() && self.is_too_far(&self.state()));
        }
        self.accounts.charge(Cause::Commit, self.clock.now_ns().saturating_sub(started_ns));
        self.check()
    }

    fn is_stale(&self, state: &State, reads: &ReadSet) -> bool {
        let started = reads.started;
        if state.position == started {
            return false;
        }
        // Changes that went into the checkpoint since have lost their positions, so a conflict cannot be ruled out.
        if state.base.applied > started {
            return true;
        }
        let layers = || [Some(&state.active), state.frozen.as_deref()].into_iter().flatten();
        let changed = |key: &[u8]| layers().find_map(|l| l.get(key)).is_some_and(|c| c.position > started);
        reads.keys().any(changed)
            || reads.ranges().iter().any(|(start, end)| {
                layers().any(|layer| layer.range(start, end).any(|(_, change)| change.position > started))
            })
    }
}

impl Store for Core {
    fn position(&self) -> Position {
        self.state().position
    }

    fn read(&self, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        let base = {
            let state = self.state();
            let layers = [Some(&state.active), state.frozen.as_deref()];
            if let Some(change) = layers.into_iter().flatten().find_map(|layer| layer.get(key)) {
                return Ok(change.value.as_deref().map(<[u8]>::to_vec));
            }
            Arc::clone(&state.base)
        };
        // A concurrent commit that changes the key is detected as a conflict when the transaction ends.
        base.get(key).map_err(|error| self.check().err().unwrap_or(error))
    }

    fn read_range(
        &self,
        start: &[u8],
        end: &[u8],
        take: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> EngineResult<()> {
        let state = self.state();
        state.base.read_range(state.changes(start, end), (start, end), take)
    }

    fn is_far_behind(&self) -> EngineResult<bool> {
        if self.manual {
            self.catch_up_with_checkpoint()?;
        }
        // A failure is what the commit says.
        Ok(!self.manual && self.check().is_ok() && !self.log_failing() && self.is_too_far(&self.state()))
    }

    #[cfg(test)]
    fn catch_up(&self) -> EngineResult<()> {
        self.catch_up_with_checkpoint()
    }

    fn apply(&self, reads: &ReadSet, writes: Writes) -> EngineResult<Commit> {
        if writes.is_empty() {
            let state = self.state();
            let stale = self.is_stale(&state, reads);
            return Ok(if stale { Commit::Conflict } else { Commit::Done(state.position) });
        }
        self.check()?;
        self.writable()?;
        let durable = self.durable.load(Ordering::Acquire);
        let mut state = self.state_to_change();
        if self.is_stale(&state, reads) {
            return Ok(Commit::Conflict);
        }
        state.position += 1;
        let position = state.position;
        let before = state.batch.len();
        record::append(&mut state.batch, self.identity, position, durable, &writes);
        state.logged_bytes += (state.batch.len() - before) as u64;
        state.active.apply(position, writes);
        self.ages.note(position, self.clock.now_ns());
        Ok(Commit::Done(position))
    }
}

impl Engine for EmbeddedEngine {
    fn begin(&self) -> Box<dyn Transaction + '_> {
        Box::new(Optimistic::begin(&*self.core))
    }

    fn flush(&self) -> EngineResult<()> {
        let core = &self.core;
        core.write_log()?;
        if core.manual {
            return self.do_background_work(false);
        }
        if core.is_dirty() {
            let waiting = core.waiting_count();
            if waiting == 1 && core.is_sync_quick() {
                return core.sync_log_unless_busy();
            }
            core.threads.wake_syncer(waiting > 0);
        }
        Ok(())
    }

    fn sync(&self) -> EngineResult<()> {
        self.core.write_log()?;
        self.core.sync_log()
    }

    fn when_durable(&self, position: Position, notice: Notice) {
        if let Err(error) = self.core.check() {
            return notice(Err(error));
        }
        let number = self.core.notices.fetch_add(1, Ordering::Relaxed);
        let (clock, accounts) = (Arc::clone(&self.core.clock), Arc::clone(&self.core.accounts));
        let started_ns = clock.now_ns();
        let notice: Notice = Box::new(move |outcome| {
            accounts.charge(Cause::Commit, clock.now_ns().saturating_sub(started_ns));
            notice(outcome);
        });
        self.core.waiting.lock().expect(NO_PANIC).insert((position, number), notice);
        // Race: the commit may have become durable before the waiter was entered.
        self.core.notify_durable();
    }

    fn catch_up(&self) -> EngineResult<()> {
        self.core.catch_up_with_checkpoint()
    }

    fn room(&self) -> EngineResult<()> {
        self.core.room()
    }

    fn writable(&self) -> EngineResult<()> {
        self.core.writable()
    }

    fn power_epoch(&self) -> u64 {
        self.core.disk.boot_id()
    }

    fn is_behind(&self) -> bool {
        self.core.ages.oldest_ns(self.core.clock.now_ns()) > UNSYNCED_NS_MAX
    }

    fn intact(&self) -> EngineResult<()> {
        self.core.check_place()
    }

    fn written(&self) -> Position {
        self.core.written.load(Ordering::Acquire)
    }

    fn maintain(&self) -> EngineResult<()> {
        self.core.check_place()?;
        self.core.scrub_format()?;
        self.core.look_at_space();
        self.core.write_log()?;
        if self.core.manual {
            self.do_background_work(true)?;
        }
        self.core.make_room()
    }

    fn close(&self) -> EngineResult<()> {
        let core = &self.core;
        core.threads.stop();
        core.write_log()?;
        core.sync_log()?;
        core.checkpoint_all()?;
        core.sync_log()?;
        *core.failed.write().expect(NO_PANIC) =
            Some(EngineError::Stopped("the engine was closed".to_owned()));
        core.base().close();
        core.lock_file.lock().expect(NO_PANIC).take();
        Ok(())
    }

    fn scrub(&self, go_on: &mut dyn FnMut(u64, u64) -> bool) -> EngineResult<bool> {
        self.core.scrub(go_on)
    }

    fn health(&self) -> Health {
        self.core.health()
    }

    fn next_reachable(&self, start: &[u8], end: &[u8]) -> Vec<u8> {
        let view = Arc::clone(&self.core.state().base);
        let next = view.next_reachable(start, end);
        let Some((lost_start, lost_end)) = view.lost_behind(start, &next) else { return next };
        let state = self.core.state();
        let in_memory = state.changes(&lost_start, &lost_end).into_iter();
        in_memory.filter_map(|mut layer| layer.next().map(|(key, _)| key.to_vec())).min().unwrap_or(next)
    }

    fn figures(&self) -> Figures {
        let core = &self.core;
        let state = core.state();
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        Figures {
            position: state.position,
            durable: core.durable.load(Ordering::Acquire),
            overlay_bytes: (state.active.bytes() + frozen) as u64,
            log_bytes: core.log_bytes.load(Ordering::Relaxed),
            syncs: core.syncs.load(Ordering::Relaxed),
            checkpoints: core.checkpoints.load(Ordering::Relaxed),
        }
    }
}

impl EmbeddedEngine {
    /// The background threads' work, for the manual mode: a sync when a request waits for it or, if `timed`, when it
    /// is due, and a checkpoint.
    fn do_background_work(&self, timed: bool) -> EngineResult<()> {
        let core = &self.core;
        let due = core.clock.now_ns().saturating_sub(core.synced_ns.load(Ordering::Relaxed)) >= SYNC_EVERY_NS;
        if core.is_dirty() && (core.waiting_count() > 0 || timed && due) {
            core.sync_log()?;
        }
        // One flush after the overlay was frozen, so that all three layers are read in between.
        let state = core.state();
        let frozen_since = state.frozen.as_ref().map(|frozen| frozen.last());
        let position = state.position;
        drop(state);
        if frozen_since.is_some_and(|last| position > last) {
            core.checkpoint()?;
        }
        Ok(())
    }
}
