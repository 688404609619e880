//! One target: a directory on one disk, with everything the server knows about it.

use super::boot;
use super::cache::Cache;
use super::epochs::{self, Epochs, Pass};
use super::failure;
use super::fetching::{self, Fetching, Source};
use super::identity::{self, Identity};
use super::incarnation::{self, Incarnation, Moment};
use super::space::Room;
use super::standing::Standing;
use super::unkept::{Unkept, is_out_of_descriptors};
use super::waits::Waits;
use crate::error::OpenError;
use crate::health::damage::Damage;
use crate::health::restore::Restores;
use crate::health::scrub::Scrub;
use crate::health::suspect::SuspectBytes;
use crate::health::sweep::Sweep;
use crate::latest::Latest;
use crate::object::attempts::Attempts;
use crate::object::freezes::ObjectFreezes;
use crate::object::names::{Bucket, Directories};
use crate::options::Options;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vazao_disk::{Disk, DiskFile};
use vazao_meter::{Accounts, Cause, Clock};
use vazao_model::limits::HEARTBEAT_MS;
use vazao_model::{Code, GroupId, ObjectId, TargetId, TargetState};
use vazao_wire::proto::HistoryMark;
use vazao_wire::service::Fault;

/// After the disk itself said that it is full, the target counts as full until there is room for this much.
const REFUSED_BYTES: u64 = 1 << 20;

/// A target that is written to advances its incarnation this often: so much of the past an older copy can hide.
const ADVANCE_NS: u64 = HEARTBEAT_MS as u64 * 1_000_000;

/// How far the metadata's history has come is noted this often where nothing is written.
const MARK_NS: u64 = 20_000_000_000;

/// A target of this server.
pub(crate) struct Target {
    /// Its directory, for people.
    pub(crate) label: String,
    pub(crate) disk: Arc<dyn Disk>,
    /// What the disk calls this start of the machine, or the directory that began empty during it: what was written
    /// under another number and not synced may be lost.
    pub(crate) boot: u64,
    /// Whatever the processes before this one had answered is there, also what was not synced; once its groups know of
    /// a loss, that is over.
    kept_power: AtomicBool,
    /// So is whatever its processes from this number on have answered; 0: not known.
    kept_from: AtomicU64,
    /// Taken for each decision what BOOT says, with the writing.
    noting: Mutex<Noting>,
    /// The number of this process among those of the target.
    process: u64,
    /// Placement groups of which files were removed beneath the server and let go of.
    pub(super) lost_names: Mutex<BTreeSet<GroupId>>,
    /// It began empty in the place of a lost one, or its last process left an object that is not whole; its groups may
    /// have it in their records as it was before.
    must_not_lead: AtomicBool,
    /// Another directory has taken its place: it is none of this server's targets any more.
    is_retired: AtomicBool,
    pub(crate) epochs: Epochs,
    pub(crate) incarnation: Incarnation,
    /// What the metadata service has said of it.
    pub(crate) standing: Standing,
    /// It was asked to become a new target although others of its node are missing.
    pub(crate) is_meant: bool,
    pub(crate) cache: Cache,
    pub(crate) chunk_bytes: u64,
    pub(crate) room: Room,
    pub(crate) damage: Damage,
    pub(crate) restores: Restores,
    pub(crate) freezes: ObjectFreezes,
    pub(crate) attempts: Attempts,
    /// What it knows of the latest that its placement groups' primaries say.
    pub(crate) latest_of_groups: OnceLock<Arc<Latest>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) accounts: Arc<Accounts>,
    /// A write-back is being started.
    pub(crate) is_writing_back: Arc<AtomicBool>,
    pub(crate) waits: Waits,
    pub(crate) sweep: Mutex<Sweep>,
    /// Held by the one that sweeps a group before its turn.
    pub(crate) sweeping_group: Mutex<()>,
    pub(crate) suspect: SuspectBytes,
    pub(crate) scrub: Scrub,
    /// When the present epoch was first seen with writes; 0: it has none.
    pub(crate) dirty_since_ns: AtomicU64,
    /// The incarnation could not be written: nothing is written to objects until it can. What had been written before
    /// such a time could otherwise pass for all that there is, in a copy of the disk made then.
    is_unmarked: AtomicBool,
    identity: Mutex<Identity>,
    /// The id within `identity`, read with every request.
    id: AtomicU32,
    directories: Directories,
    failure: OnceLock<String>,
    /// Held from its opening to its end.
    lock: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Held while TARGET is written.
    storing_identity: Mutex<()>,
}

/// What this process has noted in BOOT.
#[derive(Default)]
struct Noting {
    /// The next process may hold bytes for right that have rotted.
    has_suspect: bool,
}

impl Target {
    /// From now on it refuses what comes from the primary of an earlier epoch, or in an earlier stream.
    pub(crate) fn follow(&self, latest: &Arc<Latest>) {
        // Once: it belongs to one server.
        let _ = self.latest_of_groups.set(Arc::clone(latest));
    }

    /// Whether all is there that was answered before this process, as far as its groups do not know of a loss.
    pub(crate) fn kept_power(&self) -> bool {
        self.kept_power.load(Ordering::Acquire)
    }

    /// Of its processes from this number on all is there that they have answered; 0: that is not known.
    pub(crate) fn kept_from(&self) -> u64 {
        match self.restores.is_unfinished() {
            true => 0,
            false => self.kept_from.load(Ordering::Acquire),
        }
    }

    /// All of its groups have this process, of this number, in their records: what was lost before is known to them.
    pub(crate) fn begin_anew(&self, process: u64) -> Result<(), Fault> {
        let _noting = self.noting.lock();
        self.check()?;
        boot::begin_anew(&*self.disk, process).map_err(|error| self.write_fault(boot::FILE, &error))?;
        self.kept_from.store(process, Ordering::Release);
        self.kept_power.store(true, Ordering::Release);
        self.must_not_lead.store(false, Ordering::Release);
        Ok(())
    }

    /// Bytes of a group are taken for right as they were found after an unclean stop. The next process would not find
    /// them again: it is compared whole where its group has not compared this one by then.
    pub(crate) fn note_suspect(&self) -> Result<(), Fault> {
        let noted = {
            let mut noting = self.noting.lock();
            let noted = if noting.has_suspect { Ok(()) } else { boot::doubt(&*self.disk, self.process) };
            noting.has_suspect |= noted.is_ok();
            noted
        };
        // Where the target fails that is noted, too.
        noted.map_err(|error| self.write_fault(boot::FILE, &error))
    }

    /// All objects that were being made anew are whole.
    pub(crate) fn end_objects(&self) -> Result<(), Fault> {
        let noting = self.noting.lock();
        let noted = match (self.kept_power(), self.kept_from.load(Ordering::Acquire)) {
            (true, kept_from) => {
                let kept_from = if noting.has_suspect { self.process } else { kept_from };
                boot::begin_anew(&*self.disk, kept_from)
            }
            (false, _) => boot::begin_lost(&*self.disk),
        };
        noted.map_err(|error| self.write_fault(boot::FILE, &error))
    }

    /// Not all is there that was answered: its disk failed, or is an older copy. Errors: BOOT does not say so.
    pub(crate) fn lose(&self) -> Result<(), Fault> {
        let _noting = self.noting.lock();
        self.kept_from.store(0, Ordering::Release);
        self.kept_power.store(false, Ordering::Release);
        boot::lose(&*self.disk).map_err(|error| self.write_fault(boot::FILE, &error))
    }

    /// An object is made anew. Errors: the target's groups do not know yet what was lost with power; BOOT cannot be
    /// written.
    pub(crate) fn begin_object(&self, id: ObjectId) -> Result<(), Fault> {
        self.restores.begin_object(id, || {
            let _noting = self.noting.lock();
            if !self.kept_power() {
                let text = format!("object {id} is made anew once all placement groups know of this process");
                return Err(Fault::new(Code::Unavailable, text));
            }
            boot::begin_object(&*self.disk).map_err(|error| self.write_fault(boot::FILE, &error))
        })
    }

    /// Objects that are not here are fetched from members that lag.
    pub(crate) fn begin_fetching(&self, objects: &[(ObjectId, Vec<Source>)]) -> Result<(), Fault> {
        if objects.is_empty() {
            return Ok(());
        }
        let noted = self.restores.fetching.add(&*self.disk, objects);
        noted.map_err(|error| self.write_fault(fetching::FILE, &error))?;
        self.restores.begin_fetching(objects.iter().map(|(object, _)| *object));
        Ok(())
    }

    /// All of one is durable here, or it is no more.
    pub(crate) fn end_fetching(&self, id: ObjectId) -> Result<(), Fault> {
        match self.restores.fetching.remove(&*self.disk, id) {
            // Of one that is no more that need not be known.
            Err(error) if error.kind() == ErrorKind::StorageFull && self.exists(id).is_ok_and(|is| !is) => {
                Ok(())
            }
            noted => noted.map_err(|error| self.write_fault(fetching::FILE, &error)),
        }
    }

    /// True for one of which its groups may count on objects that it lacks, or parts of them.
    pub(crate) fn must_not_lead(&self) -> bool {
        self.must_not_lead.load(Ordering::Acquire)
    }

    /// Another directory takes its place. Nothing that is under way finds it any more.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        self.fail_without_note("another directory has taken its place".to_owned());
    }

    /// True once that has happened.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Opens or formats the target in `disk`.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        label: &str,
        options: &Options,
        share: usize,
        clock: &Arc<dyn Clock>,
        accounts: &Arc<Accounts>,
    ) -> Result<Target, OpenError> {
        let (identity, lock) = identity::open_or_format(&*disk, label, options.chunk_bytes)?;
        let place = |source| OpenError::Io { path: label.to_owned(), source };
        let damaged = |file: &str| OpenError::Damaged { path: format!("{label}/{file}") };
        let epochs = Epochs::open(&*disk).map_err(place)?;
        let epochs = epochs.ok_or_else(|| damaged(epochs::STATE))?;
        let incarnation = Incarnation::open(&*disk).map_err(place)?;
        let incarnation = incarnation.ok_or_else(|| damaged(incarnation::FILE))?;
        let room = Room::new(&*disk, options.reserve_bytes).map_err(place)?;
        let freezes = ObjectFreezes::load(&*disk).map_err(place)?;
        let failure = OnceLock::new();
        if let Some(reason) = failure::read(&*disk).map_err(place)? {
            tracing::error!(directory = %label, %reason, "target failed earlier and stays out of service");
            let remedy =
                format!("check the disk, restart the machine, then remove {label}/{}", failure::FILE);
            let _ = failure.set(format!("{reason} (noted earlier; to use it again: {remedy})"));
        }
        let next = incarnation.found().0 + 1;
        let start = boot::start(&*disk, epochs.suspects().is_none(), next).map_err(place)?;
        let sweep = Mutex::new(Sweep::new(epochs.suspects().is_some()));
        let fetching = Fetching::open(&*disk).map_err(place)?;
        let fetching = fetching.ok_or_else(|| damaged(fetching::FILE))?;
        Ok(Target {
            label: label.to_owned(),
            boot: identity.boot_of(&*disk),
            kept_power: AtomicBool::new(start.kept_power),
            kept_from: AtomicU64::new(start.kept_from),
            noting: Mutex::default(),
            process: next,
            lost_names: Mutex::default(),
            must_not_lead: AtomicBool::new(start.must_not_lead),
            is_retired: AtomicBool::new(false),
            disk,
            epochs,
            incarnation,
            standing: Standing::default(),
            is_meant: options.meant.iter().any(|meant| meant == label),
            cache: Cache::new((options.open_chunks_max / share.max(1)).max(1)),
            chunk_bytes: options.chunk_bytes,
            room,
            damage: Damage::begun(&fetching.objects()),
            restores: Restores::begun(fetching),
            sweeping_group: Mutex::default(),
            suspect: SuspectBytes::default(),
            freezes,
            attempts: Attempts::default(),
            latest_of_groups: OnceLock::new(),
            clock: Arc::clone(clock),
            accounts: Arc::clone(accounts),
            is_writing_back: Arc::default(),
            waits: Waits::new(label, options, clock),
            sweep,
            scrub: Scrub::new(Arc::clone(clock)),
            dirty_since_ns: AtomicU64::new(0),
            is_unmarked: AtomicBool::new(false),
            id: AtomicU32::new(identity.id.0),
            identity: Mutex::new(identity),
            storing_identity: Mutex::default(),
            directories: Directories::default(),
            failure,
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Its id; 0 before it has one.
    pub(crate) fn id(&self) -> TargetId {
        TargetId(self.id.load(Ordering::Relaxed))
    }

    fn lock_identity(&self) -> MutexGuard<'_, Identity> {
        self.identity.lock()
    }

    /// What its TARGET file says.
    pub(crate) fn identity(&self) -> Identity {
        *self.lock_identity()
    }

    /// Changes what its TARGET file says, durably.
    pub(crate) fn set_identity(&self, new: Identity) -> Result<(), Fault> {
        // Not the lock of the identity itself: reports need that while the disk may hang.
        let _one = self.storing_identity.lock();
        if self.identity() != new {
            new.store(&*self.disk).map_err(|e| self.write_fault("TARGET", &e))?;
            *self.lock_identity() = new;
            self.id.store(new.id.0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The LOCK file; `None` once the target has ended.
    pub(crate) fn lock_file(&self) -> Option<Arc<dyn DiskFile>> {
        self.lock.lock().clone()
    }

    /// Makes everything durable, so that the next start finds a clean target, and lets another process have
    /// it. It takes as long as the disk does.
    pub(crate) fn end(&self, mark: HistoryMark) {
        self.scrub.finish();
        self.waits.stop();
        if self.check().is_ok() {
            self.checkpoint();
            self.end_incarnation(mark);
        }
        drop(self.lock.lock().take());
    }

    /// Asks the disk for something that its kernel cannot answer from memory, nor while it is frozen.
    pub(crate) fn ask_disk(&self) {
        let Some(lock) = self.lock_file() else { return };
        // What comes of it does not matter, only that something does.
        let _ = lock.length().and_then(|length| lock.set_length(length));
        self.epochs.probe();
    }

    /// Writes an incarnation that the metadata service has asked for. Errors: the disk is full, or failed, and with it
    /// the target.
    pub(crate) fn raise_incarnation(&self, incarnation: u64, mark: HistoryMark) -> Result<(), Fault> {
        let raised = self.incarnation.raise(&*self.disk, incarnation, self.moment(mark));
        raised.map_err(|e| self.record_fault(incarnation::FILE, &e))
    }

    /// Advances the incarnation when the target was changed, every now and then; `mark` is noted along, and once in a
    /// while without a change. While that cannot be written, nothing else is.
    pub(crate) fn tick_incarnation(&self, mark: HistoryMark) {
        let now = self.moment(mark);
        let age_ns = self.incarnation.age_ns(now.ns);
        let kept = if age_ns >= ADVANCE_NS && self.epochs.take_change() {
            // What was changed is still to be told of.
            self.incarnation.advance(&*self.disk, now).inspect_err(|_| self.epochs.note_change())
        } else if age_ns >= MARK_NS {
            self.incarnation.note_mark(&*self.disk, now)
        } else {
            return;
        };
        let fault = kept.map_err(|e| self.record_fault(incarnation::FILE, &e));
        let is_news = self.is_unmarked.swap(fault.is_err(), Ordering::AcqRel) != fault.is_err();
        match fault {
            Ok(()) if is_news => tracing::info!(target_id = self.id().0, "the target takes writes again"),
            Err(fault) if is_news => {
                tracing::warn!(%fault, "the target takes no writes until its incarnation can be written")
            }
            _ => {}
        }
    }

    /// Refuses writes while the incarnation cannot be written.
    pub(crate) fn check_marked(&self) -> Result<(), Fault> {
        if !self.is_unmarked.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.room.is_full() {
            return Err(self.no_space());
        }
        Err(Fault::new(Code::Overloaded, format!("{self}: {} cannot be written yet", incarnation::FILE)))
    }

    /// Advances the incarnation for what was changed since the last time.
    pub(crate) fn end_incarnation(&self, mark: HistoryMark) {
        if !self.epochs.take_change() {
            return;
        }
        if let Err(error) = self.incarnation.advance(&*self.disk, self.moment(mark)) {
            let fault = self.record_fault(incarnation::FILE, &error);
            tracing::warn!(%fault, "a copy of the target made in the last seconds would pass for it");
        }
    }

    fn moment(&self, mark: HistoryMark) -> Moment {
        let wall_seconds = self.clock.wall_ns() / 1_000_000_000;
        Moment { ns: self.clock.now_ns(), wall_seconds, mark }
    }

    /// Its state as the cluster sees it.
    pub(crate) fn state(&self) -> TargetState {
        match self.failure.get() {
            Some(_) => TargetState::Failed,
            None if self.standing.stale().is_some() => TargetState::Stale,
            None if self.waits.hangs().is_some() => TargetState::Hung,
            None if self.room.is_full() => TargetState::Full,
            None => TargetState::Serving,
        }
    }

    /// Why it failed, is stale, does not answer or is full; empty otherwise.
    pub(crate) fn trouble(&self) -> String {
        match (self.failure.get(), self.standing.stale()) {
            (Some(reason), _) => reason.clone(),
            (None, Some(why)) => why,
            (None, None) if self.waits.trouble().is_some() => self.waits.trouble().unwrap_or_default(),
            (None, None) if self.room.is_full() => self.room.why_full(),
            (None, None) => String::new(),
        }
    }

    /// Takes the target out of service until an operator puts it back: over restarts too, because the page cache may
    /// go on showing what the disk has lost. A disk that cannot even note that keeps the note to this process.
    pub(crate) fn fail(&self, reason: String) {
        if self.failure.set(reason.clone()).is_ok() {
            let note = failure::write(&*self.disk, &reason);
            if let Err(error) = note {
                tracing::error!(directory = %self.label, %error, "cannot write {}", failure::FILE);
            }
            if let Err(fault) = self.lose() {
                tracing::error!(directory = %self.label, %fault, "cannot write {}", boot::FILE);
            }
            tracing::error!(target_id = self.id().0, directory = %self.label, %reason, "target failed: it serves nothing from now on");
        }
    }

    /// The same until the server's next start only.
    pub(crate) fn fail_without_note(&self, reason: String) {
        if self.failure.set(reason.clone()).is_ok() {
            tracing::error!(target_id = self.id().0, directory = %self.label, %reason, "target failed: it serves nothing from now on");
        }
    }

    /// True once its disk has failed.
    pub(crate) fn is_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Refuses work on a target that has failed, or that is not to be served.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match self.failure.get() {
            None => self.standing.check(self),
            Some(reason) => Err(Fault::new(Code::TargetFailed, format!("{self}: {reason}"))),
        }
    }

    /// A read of `path` failed. It condemns the file, not the disk.
    pub(crate) fn read_fault(&self, path: &str, error: &io::Error) -> Fault {
        let code = if is_out_of_descriptors(error) { Code::Overloaded } else { Code::Io };
        Fault::new(code, format!("{self}, file {path}: {error}"))
    }

    /// A change of `path` failed: full, or the disk is not to be trusted with anything any more.
    pub(crate) fn write_fault(&self, path: &str, error: &io::Error) -> Fault {
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            self.room.set_full(REFUSED_BYTES);
            return self.no_space();
        }
        if is_out_of_descriptors(error) {
            return self.read_fault(path, error);
        }
        self.sync_fault(path, error)
    }

    /// A sync of `path` failed. Even a full disk is a failure here: what was answered before may be lost.
    pub(crate) fn sync_fault(&self, path: &str, error: &io::Error) -> Fault {
        self.fail(format!("{path}: {error}"));
        Fault::new(Code::TargetFailed, format!("{self}, file {path}: {error}"))
    }

    /// STATE or INCARNATION could not be kept.
    pub(crate) fn record_fault(&self, path: &str, error: &Unkept) -> Fault {
        match error {
            Unkept::Write(error) => self.write_fault(path, error),
            Unkept::Sync(error) => self.sync_fault(path, error),
        }
    }

    /// The fault of a full target.
    pub(crate) fn no_space(&self) -> Fault {
        let why = self.room.why_full();
        Fault::new(Code::NoSpace, format!("{self} is full: {why}; remove files, or add a target"))
    }

    /// Leave to write in the present epoch.
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Fault> {
        self.epochs.enter().map_err(|e| self.record_fault(epochs::STATE, &e))
    }

    /// Leave to remove files. That goes on where a full disk has no room to announce the epoch: what a loss of power
    /// then leaves of them is removed by the repeated request.
    pub(crate) fn enter_to_remove(&self) -> Result<Pass<'_>, Fault> {
        self.enter().or_else(|fault| match fault.code {
            Code::NoSpace => Ok(self.epochs.enter_unannounced()),
            _ => Err(fault),
        })
    }

    /// Runs `work` and charges its time to `cause`.
    pub(crate) fn timed<T>(&self, cause: Cause, work: impl FnOnce() -> T) -> T {
        let start = self.clock.now_ns();
        let result = work();
        self.accounts.charge(cause, self.clock.now_ns().saturating_sub(start));
        result
    }

    /// Makes sure that a leaf directory is there.
    pub(crate) fn make_directory(&self, bucket: Bucket) -> Result<(), Fault> {
        let make = |path: &str| self.disk.create_directory(path).map_err(|e| self.write_fault(path, &e));
        self.directories.make(bucket, make)
    }

    /// Makes the names in a leaf directory durable, and its own.
    pub(crate) fn sync_directory(&self, bucket: Bucket) -> Result<(), Fault> {
        let sync = |path: &str| {
            let synced = self.timed(Cause::Disk, || self.disk.sync_directory(path));
            synced.map_err(|error| match is_out_of_descriptors(&error) {
                // The directory could not even be opened.
                true => self.read_fault(path, &error),
                false => self.sync_fault(path, &error),
            })
        };
        self.directories.sync(bucket, sync)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "target {} ({})", self.id(), self.label)
    }
}
