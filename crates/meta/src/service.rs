//! The metadata service: opens the volume, runs transactions, answers requests, and does background work in `tick`.

use crate::answer::{Settled, deliver};
use crate::claims::Claims;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::dispatch;
use crate::engine::{self, Background, Commit, Engine, EngineError, EngineOptions, Position, Writes};
use crate::fault::Outcome;
use crate::history::History;
use crate::integrity::{Integrity, This};
use crate::invalidation_hub::InvalidationHub;
use crate::joining::Now;
use crate::keys::{self, NAME_HASH_BITS};
use crate::locks::Locks;
use crate::member_watch::MemberWatch;
use crate::metrics::Metrics;
use crate::names::NameHash;
use crate::numbers::{self, InodeNumbers};
use crate::once::{self, Repeatable};
use crate::opens::Opens;
use crate::ops;
use crate::orphan_objects::OrphanObjects;
use crate::proposals::Proposals;
use crate::random::Random;
use crate::reclaim::Reclaimer;
use crate::records::{InodeRecord, NumberRecord, TimeRecord, VolumeRecord};
use crate::refusals::Refusals;
use crate::sessions::{self, Sessions};
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use vazao_disk::Disk;
use vazao_meter::measures::Work;
use vazao_meter::{Accounts, Cause, Clock, Exposition};
use vazao_model::ids::ROOT;
use vazao_model::{Code, FileKind, InodeId, Role, SessionId, TargetId, limits};
use vazao_wire::proto;
use vazao_wire::service::{Fault, Request, RequestId, Responder, Service};
use vazao_wire::transport::Transport;
use vazao_wire::{Method, Operation};

/// Version of keys and records.
const SCHEMA: u32 = 1;

/// Runs of one operation before its caller gets a retry error. Each conflict means that another operation succeeded.
const ATTEMPTS_MAX: u32 = 100;

thread_local! {
    /// The last commit that an answer of this thread rests on since its last flush.
    static ANSWERED: Cell<Position> = const { Cell::new(0) };
}

/// How a metadata service is opened.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// `embedded`, or `memory` for a volume that ends with the process.
    pub engine: String,
    /// Name of this node in the cluster map.
    pub name: String,
    /// Address that clients and data servers reach it at.
    pub address: String,
    /// What this process does. With [`Role::Data`] it reports its targets itself, soon after it serves.
    pub roles: Vec<Role>,
    /// Threads for syncs and checkpoints, or none.
    pub background: Background,
    /// Seed of all randomness, for simulation; `None` takes the kernel's.
    pub seed: Option<u64>,
    /// A checkpoint starts when changes in memory exceed this many bytes.
    pub overlay_bytes_max: usize,
    /// Memory for pages of the checkpoint.
    pub cache_bytes: usize,
    /// Bits of a name's hash, at most 62; tests use fewer to make collisions.
    pub name_hash_bits: u32,
    /// A random number of this start of the process, which distinguishes this node from a copy; 0: none.
    pub run: u64,
    /// Objects that no file has are removed when they were found so at two times that lie this far apart.
    pub orphan_grace_ms: u32,
}

impl Default for MetaOptions {
    fn default() -> MetaOptions {
        MetaOptions {
            engine: "embedded".to_owned(),
            name: "meta".to_owned(),
            address: "127.0.0.1:0".to_owned(),
            roles: vec![Role::Meta],
            background: Background::Threads,
            seed: None,
            overlay_bytes_max: 24 << 20,
            cache_bytes: 48 << 20,
            name_hash_bits: NAME_HASH_BITS,
            run: 0,
            // After this no request that was under way when its file went can still arrive.
            orphan_grace_ms: limits::DEADLINE_MS_MAX,
        }
    }
}

/// An engine's power epoch as answers have it: few bytes, which differ as good as always.
fn start_of(power_epoch: u64) -> u32 {
    if power_epoch == 0 { 0 } else { ((power_epoch >> 32) as u32 ^ power_epoch as u32).max(1) }
}

/// The metadata service of one volume.
pub struct MetaService {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    names: NameHash,
    random: Random,
    numbers: Arc<InodeNumbers>,
    boot: u64,
    /// The engine's power epoch as answers have it; 0: none.
    start: u32,
    last_stamp_ns: AtomicU64,
    inodes_in_use: AtomicI64,
    inodes_written: AtomicI64,
    cluster: Mutex<Cluster>,
    /// The random number of this start of the process, as for nodes.
    run: u64,
    claims: Claims,
    refusals: Refusals,
    member_watch: MemberWatch,
    history: History,
    sessions: Sessions,
    opens: Opens,
    invalidations: InvalidationHub,
    locks: Locks,
    metrics: Metrics,
    reclaimer: Reclaimer,
    orphan_objects: OrphanObjects,
    integrity: Integrity,
    background: Background,
    this: This,
    /// The last logged failure of each background task.
    tick_failures: Mutex<BTreeMap<&'static str, String>>,
    proposals: Proposals,
}

impl std::fmt::Debug for MetaService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaService").field("boot", &self.boot).finish_non_exhaustive()
    }
}

impl MetaService {
    /// Opens the volume on `disk`, or creates it there when the directory is empty. Errors: the directory is in use by
    /// another process, of another format, damaged, or the disk fails.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: MetaOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<MetaService>, Fault> {
        let random = Random::new(options.seed);
        let metrics = Metrics::new();
        let engine_options = EngineOptions {
            disk,
            clock: Arc::clone(&clock),
            background: options.background,
            overlay_bytes_max: options.overlay_bytes_max,
            cache_bytes: options.cache_bytes,
            identity: random.number()?,
            initial: new_volume(&random, &*clock)?,
            essential: keys::essential(),
            accounts: Arc::clone(&metrics.accounts),
        };
        let engine = engine::open(&options.engine, engine_options)?;
        let volume = open_volume(&*engine)?;
        let found = engine.figures().position;
        let bits = options.name_hash_bits.clamp(1, NAME_HASH_BITS);
        let boot = numbers::count_boot(&*engine)?;
        // The same seed must not give the same session ids after a restart.
        let random = Random::new(options.seed.map(|seed| seed.rotate_left(32) ^ boot));
        let mut service = MetaService {
            run: options.run,
            claims: Claims::default(),
            refusals: Refusals::default(),
            member_watch: MemberWatch::default(),
            history: History::default(),
            names: NameHash::new(&volume.name_key, bits)?,
            boot,
            start: start_of(engine.power_epoch()),
            numbers: InodeNumbers::open(&*engine)?,
            engine,
            random,
            last_stamp_ns: AtomicU64::new(0),
            inodes_in_use: AtomicI64::new(0),
            inodes_written: AtomicI64::new(0),
            cluster: Mutex::new(Cluster::default()),
            sessions: Sessions::default(),
            opens: Opens::new(boot),
            invalidations: InvalidationHub::default(),
            locks: Locks::default(),
            metrics,
            reclaimer: Reclaimer::default(),
            orphan_objects: OrphanObjects::new(options.orphan_grace_ms),
            integrity: Integrity::new(Arc::clone(&clock)),
            background: options.background,
            clock,
            this: This::new(),
            tick_failures: Mutex::default(),
            proposals: Proposals::default(),
        };
        service.history = service.begin_history(found)?;
        service.load(volume.cluster_id, &options)?;
        service.engine.sync()?;
        let service = Arc::new(service);
        let _ = service.this.set(Arc::downgrade(&service));
        Ok(service)
    }

    /// Notes this start, which found so many commits.
    fn begin_history(&self, found: Position) -> Outcome<History> {
        let run = self.random.number()?;
        let begin = |context: &mut Context<'_>| History::begin(context, self.boot, run, found);
        self.transact(None, begin)?.0
    }

    /// Reads what is kept in memory, and enters this node into the map.
    fn load(&self, cluster_id: u64, options: &MetaOptions) -> Outcome<()> {
        let now = self.now();
        let now_ns = now.ns;
        let (loaded, _) = self.transact(None, |context| {
            let cluster = Cluster::load(context, cluster_id, now)?;
            let used: Option<NumberRecord> = context.read(keys::INODES_IN_USE, "inodes in use")?;
            let open = sessions::load(context)?;
            let with_locks = sessions::with_locks(context, &open)?;
            Ok((cluster, used.map_or(1, |used| used.value), open, with_locks))
        })?;
        let (cluster, used, open, with_locks) = loaded?;
        self.locks.await_sessions(with_locks, now_ns);
        self.inodes_in_use.store(i64::try_from(used).unwrap_or(i64::MAX), Ordering::Relaxed);
        open.into_iter().for_each(|session| self.sessions.grant(session, now_ns));
        *self.cluster() = cluster;
        let request = proto::RegisterNodeRequest {
            cluster_id,
            node: self.node_named(&options.name),
            name: options.name.clone(),
            address: options.address.clone(),
            roles: options.roles.iter().map(|role| *role as u32).collect(),
            run: options.run,
            ..Default::default()
        };
        let names_targets = !options.roles.contains(&Role::Data);
        let (own, _) = self.take_in(&request, names_targets)?;
        self.cluster().set_own(vazao_model::NodeId(own.node));
        Ok(())
    }

    fn node_named(&self, name: &str) -> u32 {
        let map = self.cluster().map(0);
        map.nodes.iter().find(|node| node.name == name).map_or(0, |node| node.id.0)
    }

    // ---- what operations use ----

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn names(&self) -> &NameHash {
        &self.names
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(crate) fn opens(&self) -> &Opens {
        &self.opens
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(crate) fn invalidations(&self) -> &InvalidationHub {
        &self.invalidations
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn reclaimer(&self) -> &Reclaimer {
        &self.reclaimer
    }

    pub(crate) fn orphan_objects(&self) -> &OrphanObjects {
        &self.orphan_objects
    }

    pub(crate) fn integrity(&self) -> &Integrity {
        &self.integrity
    }

    pub(crate) fn background(&self) -> Background {
        self.background
    }

    /// For a thread of its own.
    pub(crate) fn own_reference(&self) -> &This {
        &self.this
    }

    pub(crate) fn proposals(&self) -> &Proposals {
        &self.proposals
    }

    /// The first inode number that was certainly not given out yet.
    pub(crate) fn unused_inodes(&self) -> InodeId {
        self.numbers.unused()
    }

    /// Whether this start of the service, or one before, can have given out a generation.
    pub(crate) fn may_have_been_given(&self, generation: u32) -> bool {
        numbers::boot_of(generation) <= self.boot
    }

    /// What answers about inodes say of the engine's power epoch.
    pub(crate) fn start(&self) -> u32 {
        self.start
    }

    pub(crate) fn boot(&self) -> u64 {
        self.boot
    }

    pub(crate) fn random_number(&self) -> Outcome<u64> {
        self.random.number()
    }

    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock()
    }

    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn now(&self) -> Now {
        Now { ns: self.clock.now_ns(), wall_seconds: self.clock.wall_ns() / 1_000_000_000 }
    }

    pub(crate) fn map_message(&self) -> proto::ClusterMap {
        let now_ns = self.clock.now_ns();
        let mut map = self.cluster().map(now_ns);
        map.refusals = self.refusals.shown(now_ns);
        map.trouble = self.history.trouble();
        (&map).into()
    }

    pub(crate) fn choose_targets(&self, inode: InodeId, width: u32) -> Outcome<Vec<TargetId>> {
        self.cluster().choose(inode, width, self.clock.now_ns())
    }

    pub(crate) fn choose_target_near(&self, inode: InodeId, host: u64) -> Outcome<Option<TargetId>> {
        self.cluster().choose_near(inode, host, self.clock.now_ns())
    }

    pub(crate) fn next_inode(&self) -> Outcome<InodeId> {
        self.numbers.next(&*self.engine)
    }

    /// Wall time that strictly increases while the service runs.
    pub(crate) fn stamp_ns(&self) -> u64 {
        let wall = self.clock.wall_ns();
        let next = |last: u64| Some(wall.max(last + 1));
        let last = self.last_stamp_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.map_or(wall, |last| wall.max(last + 1))
    }

    pub(crate) fn count_inodes(&self, delta: i64) {
        self.inodes_in_use.fetch_add(delta, Ordering::Relaxed);
    }

    /// Inodes in use. After a crash it may be off by what was created or removed since the last tick.
    pub(crate) fn inodes_in_use(&self) -> u64 {
        self.inodes_in_use.load(Ordering::Relaxed).max(1).unsigned_abs()
    }

    /// Runs `work` as one transaction, again and again until nothing it read changed under it. A failed `work` writes
    /// nothing, and its failure is a true one.
    pub(crate) fn transact<T>(
        &self,
        caller: Option<SessionId>,
        mut work: impl FnMut(&mut Context<'_>) -> Outcome<T>,
    ) -> Outcome<(Outcome<T>, Position)> {
        for _ in 0..ATTEMPTS_MAX {
            let mut context = Context::begin(self, caller);
            let outcome = work(&mut context);
            if outcome.is_err() {
                context.discard_writes();
            }
            let wrote = context.wrote;
            match context.commit()? {
                Commit::Done(position) => {
                    if wrote {
                        ANSWERED.set(ANSWERED.get().max(position));
                    }
                    return Ok((outcome, position));
                }
                Commit::Conflict => self.metrics.conflicts.add(1),
            }
        }
        Err(Fault::new(Code::Conflict, format!("{ATTEMPTS_MAX} attempts of one transaction")))
    }

    /// Answers a request that changes nothing.
    pub(crate) fn view<O: Operation>(
        &self,
        message: &[u8],
        run: fn(&mut Context<'_>, &O::Request) -> Outcome<O::Response>,
    ) -> Outcome<Vec<u8>> {
        let request = decode::<O>(message)?;
        let (outcome, _) = self.transact(None, |context| run(context, &request))?;
        outcome.map(|response| response.encode_to_vec())
    }

    /// [`MetaService::view`] by an operation that makes its message itself.
    pub(crate) fn view_encoded<O: Operation>(
        &self,
        message: &[u8],
        run: fn(&mut Context<'_>, &O::Request) -> Outcome<Vec<u8>>,
    ) -> Outcome<Vec<u8>> {
        let request = decode::<O>(message)?;
        self.transact(None, |context| run(context, &request))?.0
    }

    /// Answers a request that may have been answered before.
    pub(crate) fn change<O: Operation>(
        &self,
        message: &[u8],
        run: fn(&mut Context<'_>, &O::Request) -> Outcome<O::Response>,
    ) -> Outcome<Settled>
    where
        O::Request: Repeatable,
    {
        self.engine.writable()?;
        let request = decode::<O>(message)?;
        let once = request.once().copied();
        let caller = once.as_ref().map(|once| SessionId(once.session));
        let seat = once.as_ref().map_or(0, |once| once.seat);
        let (mut wait, mut wrote) = (false, false);
        let (answer, position) = self.transact(caller, |context| {
            context.seat = seat;
            if let Some(once) = &once
                && let Some(first) = once::replay(context, once, O::METHOD)?
            {
                // Whether the first answer had to wait is not known any more.
                wait = true;
                return Ok(first);
            }
            let answer = run(context, &request).map(|response| response.encode_to_vec());
            if answer.is_err() {
                context.discard_writes();
            }
            wait = context.answer_when_durable;
            if let Some(once) = &once
                && !context.no_room
            {
                once::remember(context, once, O::METHOD, &answer);
            }
            wrote = context.wrote;
            Ok(answer)
        })?;
        ANSWERED.set(ANSWERED.get().max(position));
        // Backpressure: what is answered before it is durable never adds up to more than the contract allows.
        wait |= wrote && self.engine.is_behind();
        Ok(Settled { answer: answer?, durable_at: wait.then_some(position) })
    }

    /// Works a node's announcement into the membership; `names_targets`: what it does not name is missing. The position
    /// is that of the change, if others have to wait for it.
    pub(crate) fn take_in(
        &self,
        request: &proto::RegisterNodeRequest,
        names_targets: bool,
    ) -> Outcome<(proto::RegisterNodeResponse, Option<Position>)> {
        let mut cluster = self.cluster();
        let (next, joined) = cluster.joined(request, names_targets, self.now())?;
        let mut changed_at = None;
        if joined.is_change() {
            let written = self.transact(None, |context| next.write(context, &joined));
            let position = match written.and_then(|(written, position)| written.map(|()| position)) {
                Ok(position) => position,
                Err(fault) => {
                    cluster.hear(request, &next, &joined);
                    return Err(fault);
                }
            };
            changed_at = joined.must_be_durable.then_some(position);
        }
        *cluster = next;
        Ok((joined.response, changed_at))
    }

    // ---- for the daemon ----

    /// The id of the cluster, given at creation.
    pub fn cluster_id(&self) -> u64 {
        self.cluster().map(0).cluster_id
    }

    /// Settles claims to identities, which nodes that have just started wait for. Blocks up to `timeout` for a
    /// claim, and probes through `transport` whether the holders are gone. To be called in a loop; false: again soon.
    pub fn settle_claims(&self, transport: &dyn Transport, timeout: Duration) -> bool {
        self.claims.wait(timeout);
        self.claims.settle(transport)
    }

    /// Logs which nodes have fallen silent or report again, and which targets stop or begin to serve. To be called
    /// every second or so, not by the thread that calls [`MetaService::tick`]: that one waits for data servers.
    pub fn watch_members(&self) {
        self.member_watch.look(&self.cluster(), self.clock.now_ns());
    }

    /// What has to be done from time to time, every second or so: sessions that ran out, objects of deleted files
    /// (through `transport`), and without background threads the engine's own work. Waits for data servers; failures
    /// are logged and tried again by the next tick.
    pub fn tick(&self, transport: &dyn Transport) {
        let now_ns = self.clock.now_ns();
        self.logged("maintenance", self.engine.maintain().map_err(Fault::from));
        self.logged("note of silent nodes", ops::cluster::note_silent(self));
        if self.history.is_behind() {
            // Nothing of an older copy may reach the data servers.
            return self.logged("log", self.engine.flush().map_err(Fault::from));
        }
        for session in self.sessions.expired(now_ns) {
            tracing::info!(%session, "session expired");
            self.logged("end of a session", crate::ops::session::end(self, session));
        }
        self.invalidations.tick(now_ns, |session| self.sessions.is_known(session));
        self.logged("count of inodes", self.write_inodes_in_use());
        self.logged("clean-up of conversions", crate::conversions::run(self, transport));
        self.logged("removal of objects", crate::reclaim::run(self, transport));
        self.logged("search for objects without a file", crate::orphan_objects::run(self, transport));
        self.logged("log", self.engine.flush().map_err(Fault::from));
    }

    /// Logs a failure once, until it is another one or over.
    fn logged(&self, what: &'static str, outcome: Outcome<()>) {
        let mut failures = self.tick_failures.lock();
        match outcome {
            Ok(()) => {
                if failures.remove(what).is_some() {
                    tracing::info!("{what} succeeded again");
                }
            }
            Err(fault) => {
                let text = fault.to_string();
                if failures.get(what) != Some(&text) {
                    tracing::warn!(error = text, "{what} failed, to be tried again");
                    failures.insert(what, text);
                }
            }
        }
    }

    fn write_inodes_in_use(&self) -> Outcome<()> {
        let value = self.inodes_in_use();
        let written = i64::try_from(value).unwrap_or(i64::MAX);
        if self.inodes_written.swap(written, Ordering::Relaxed) == written {
            return Ok(());
        }
        let key = keys::INODES_IN_USE.to_vec();
        let (done, _) = self.transact(None, |context| {
            context.write(key.clone(), &NumberRecord { value });
            Ok(())
        })?;
        done
    }

    /// Makes everything durable, writes a checkpoint and releases the directory. Later requests are refused.
    pub fn close(&self) -> Result<(), Fault> {
        self.integrity.finish();
        self.write_inodes_in_use()?;
        Ok(self.engine.close()?)
    }

    /// What clients last reported of themselves. Asking makes them report with their next renewals.
    pub fn clients(&self) -> Vec<proto::Measures> {
        self.sessions.reports(self.clock.now_ns())
    }

    /// What was done: operations by duration.
    pub fn work(&self) -> Work {
        self.metrics.work()
    }

    /// Where this service's time went.
    pub fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(&self.metrics.accounts)
    }

    /// Adds this service's counters and histograms to a page of metrics.
    pub fn expose(&self, exposition: &mut Exposition) {
        self.metrics.expose(exposition);
        let figures = self.engine.figures();
        let mut gauge = |name: &str, help: &str, value: f64| exposition.gauge(name, help, &[], value);
        gauge("vazao_meta_sessions", "Clients with a lease.", self.sessions.count() as f64);
        gauge("vazao_meta_watchers", "Clients that remember answers.", self.invalidations.count() as f64);
        gauge("vazao_meta_locks", "Locks of clients, and waiters for them.", self.locks.count() as f64);
        gauge("vazao_meta_inodes", "Inodes in use.", self.inodes_in_use() as f64);
        gauge("vazao_meta_overlay_bytes", "Changes not yet in a checkpoint.", figures.overlay_bytes as f64);
        let unsynced = figures.position.saturating_sub(figures.durable);
        gauge("vazao_meta_unsynced_commits", "Commits that power loss would take.", unsynced as f64);
        let health = self.engine.health();
        let damaged = health.damaged.len() as f64;
        gauge("vazao_meta_damaged_blocks", "Blocks of the checkpoint known to be damaged.", damaged);
        let lost = health.lost_ranges as f64;
        gauge("vazao_meta_lost_ranges", "Ranges of records that were lost with damaged blocks.", lost);
        let mut counter =
            |name: &str, help: &str, value: u64| exposition.counter(name, help, &[], value as f64);
        counter("vazao_meta_commits_total", "Commits since the volume was created.", figures.position);
        counter("vazao_meta_log_bytes_total", "Bytes written to the log.", figures.log_bytes);
        counter("vazao_meta_syncs_total", "Syncs of the log.", figures.syncs);
        counter("vazao_meta_checkpoints_total", "Checkpoints finished.", figures.checkpoints);
    }
}

impl Service for MetaService {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let started_ns = self.clock.now_ns();
        if request.method == Method::WatchChanges && !self.history.is_behind() {
            return ops::watch::run(self, request.message, responder);
        }
        let checked = self.history.check(request.method);
        let settled = checked
            .and_then(|()| dispatch::run(self, request.method, request.message))
            .unwrap_or_else(|fault| Settled::now(Err(fault)));
        let failed = settled.answer.is_err();
        if let Err(fault) = &settled.answer
            && matches!(fault.code, Code::Corrupt | Code::Io | Code::Internal)
        {
            let id = RequestId(request.id);
            tracing::error!(request = %id, method = request.method.name(), error = %fault, "failed");
        }
        deliver(&*self.engine, settled, responder);
        let spent_ns = self.clock.now_ns().saturating_sub(started_ns);
        self.metrics.record(request.method, spent_ns, failed);
        self.metrics.accounts.charge(Cause::Compute, spent_ns);
    }

    /// While the log cannot be written, changes are refused and other answers may leave. Only those of this thread
    /// that rest on commits which are not written have to be withheld. The same after a failure, so that its cause gets
    /// out: whatever changes something is refused then, and what changes nothing, as an open, goes on.
    fn flush(&self) -> Result<(), Fault> {
        let answered = ANSWERED.take();
        match self.engine.flush() {
            Err(EngineError::Failed(_)) if answered <= self.engine.written() => Ok(()),
            Err(EngineError::Io { .. } | EngineError::Full(_))
                if self.engine.writable().is_err() && answered <= self.engine.written() =>
            {
                Ok(())
            }
            flushed => Ok(flushed?),
        }
    }
}

/// Decodes a request's arguments.
pub(crate) fn decode<O: Operation>(message: &[u8]) -> Outcome<O::Request> {
    O::Request::decode(message)
        .map_err(|e| Fault::new(Code::BadRequest, format!("arguments of {}: {e}", Method::name(O::METHOD))))
}

/// The volume's record.
fn open_volume(engine: &dyn Engine) -> Outcome<VolumeRecord> {
    let bytes = engine.begin().get(keys::VOLUME)?.ok_or_else(|| {
        let text = "the metadata directory holds no volume record: its checkpoint or log is lost. Put the directory \
                    aside and restore it from a backup; only if it never held a volume, begin with an empty one";
        Fault::new(Code::Corrupt, text)
    })?;
    let volume = VolumeRecord::decode(bytes.as_slice())
        .map_err(|e| Fault::new(Code::Corrupt, format!("volume record: {e}")))?;
    if volume.schema != SCHEMA {
        let text = format!("metadata of schema {}: this program reads schema {SCHEMA}", volume.schema);
        return Err(Fault::new(Code::VersionMismatch, text));
    }
    Ok(volume)
}

/// What a new volume begins with: its record and the root directory.
fn new_volume(random: &Random, clock: &dyn Clock) -> Outcome<Writes> {
    let name_key = [random.number()?.to_le_bytes(), random.number()?.to_le_bytes()].concat();
    let volume = VolumeRecord { cluster_id: random.number()?, name_key, schema: SCHEMA };
    let now_ns = clock.wall_ns();
    let now =
        TimeRecord { seconds: (now_ns / 1_000_000_000) as i64, nanoseconds: (now_ns % 1_000_000_000) as u32 };
    let root = InodeRecord {
        kind: FileKind::Directory.number(),
        mode: 0o755,
        links: 1,
        parent: ROOT.0,
        accessed: Some(now),
        changed: Some(now),
        version: 1,
        ..InodeRecord::default()
    };
    let times = crate::records::DirectoryTimes { modified: Some(now), changed: Some(now), version: now_ns };
    Ok(Writes::from([
        (keys::VOLUME.to_vec(), Some(volume.encode_to_vec())),
        (keys::inode(ROOT), Some(root.encode_to_vec())),
        (keys::times(ROOT), Some(times.encode_to_vec())),
    ]))
}
