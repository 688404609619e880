//! The metadata service: opens the volume, runs transactions, answers requests, and does background work in `tick`.

use crate::answer::{Settled, deliver};
use crate::backpressure::{self, unless_behind};
use crate::claims::Claims;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::dispatch;
use crate::engine::{self, Background, Commit, Engine, EngineError, EngineOptions, Position, Writes};
use crate::fault::Outcome;
use crate::history::History;
use crate::integrity::{Integrity, This};
use crate::joining::Now;
use crate::keys::{self, NAME_HASH_BITS};
use crate::member_watch::MemberWatch;
use crate::metrics::Metrics;
use crate::names::NameHash;
use crate::numbers::{self, InodeNumbers};
use crate::once::{self, Repeatable};
use crate::ops;
use crate::orphan_objects::OrphanObjects;
use crate::part::PartState;
use crate::random::Random;
use crate::reclaim::Reclaimer;
use crate::records::{InodeRecord, NumberRecord, TimeRecord, VolumeRecord};
use crate::refusals::Refusals;
use crate::sessions::{self, Sessions};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use prost::Message;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_disk::Disk;
use vazao_meter::measures::Work;
use vazao_meter::{Accounts, Cause, Clock, Exposition};
use vazao_model::ids::ROOT;
use vazao_model::{Code, FileKind, GroupId, InodeId, Role, SessionId, TargetId, limits};
use vazao_wire::pool::Pool;
use vazao_wire::proto;
use vazao_wire::service::{Answer, Fault, Request, RequestId, Responder, Service};
use vazao_wire::shell::{self, Shell};
use vazao_wire::transport::Transport;
use vazao_wire::{Method, Operation};

/// Version of keys and records while there are no placement groups, which older programs do not know.
const SCHEMA_WITHOUT_GROUPS: u32 = 1;

/// The latest version.
const SCHEMA: u32 = 2;

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
    cluster: RwLock<Cluster>,
    /// Held while the cluster is changed, also while the change is written: readers do not wait for that.
    cluster_changing: Mutex<()>,
    /// The random number of this start of the process, as for nodes.
    run: u64,
    claims: Claims,
    refusals: Refusals,
    member_watch: MemberWatch,
    history: History,
    sessions: Sessions,
    part: PartState,
    shell: Arc<Shell>,
    metrics: Metrics,
    reclaimer: Reclaimer,
    orphan_objects: OrphanObjects,
    integrity: Integrity,
    background: Background,
    /// Threads for changes that wait until the engine has caught up.
    waiters: Pool,
    this: This,
    /// The last logged failure of each background task.
    tick_failures: Mutex<BTreeMap<&'static str, String>>,
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
        let shell = Shell::new("vazao_meta", Arc::clone(&clock));
        let engine_options = EngineOptions {
            disk,
            clock: Arc::clone(&clock),
            background: options.background,
            overlay_bytes_max: options.overlay_bytes_max,
            cache_bytes: options.cache_bytes,
            identity: random.number()?,
            initial: new_volume(&random, &*clock)?,
            essential: keys::essential(),
            accounts: Arc::clone(shell.accounts()),
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
            cluster: RwLock::default(),
            cluster_changing: Mutex::default(),
            sessions: Sessions::default(),
            part: PartState::new(boot),
            shell,
            metrics: Metrics::default(),
            reclaimer: Reclaimer::default(),
            orphan_objects: OrphanObjects::new(options.orphan_grace_ms),
            integrity: Integrity::new(Arc::clone(&clock)),
            background: options.background,
            waiters: backpressure::waiters(&clock),
            clock,
            this: This::new(),
            tick_failures: Mutex::default(),
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
        self.part.resume(&open, with_locks, now_ns);
        self.inodes_in_use.store(i64::try_from(used).unwrap_or(i64::MAX), Ordering::Relaxed);
        open.into_iter().for_each(|session| self.sessions.grant(session, now_ns));
        *self.cluster.write() = cluster;
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
        self.cluster.write().set_own(vazao_model::NodeId(own.node));
        Ok(())
    }

    fn node_named(&self, name: &str) -> u32 {
        self.cluster().named(name).map_or(0, |node| node.0)
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

    /// What the owner of the inodes keeps in memory.
    pub(crate) fn part(&self) -> &PartState {
        &self.part
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

    /// The cluster at present; to be let go before anything else is done.
    pub(crate) fn cluster(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read()
    }

    /// Changes the cluster by an excerpt once `write` has put it into the records. Returns the position of the change.
    pub(crate) fn change_cluster(
        &self,
        change: impl FnOnce(&Cluster) -> Outcome<Cluster>,
        write: impl Fn(&mut Context<'_>, &Cluster),
    ) -> Outcome<Position> {
        let _one = self.cluster_changing.lock();
        let changed = change(&self.cluster())?;
        let (written, position) = self.transact(None, |context| {
            write(context, &changed);
            Ok(())
        })?;
        written?;
        self.cluster.write().merge(changed);
        Ok(position)
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

    /// The groups on `targets` for the slots of a file; without `follows`, for clients that know none, those targets
    /// alone.
    pub(crate) fn groups_on(&self, inode: InodeId, targets: &[TargetId], follows: bool) -> Vec<GroupId> {
        match follows {
            true => self.cluster().groups_on(inode, targets),
            false => targets.iter().copied().map(GroupId::of).collect(),
        }
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
                None => backpressure::wait(&*self.engine)?,
                Some(Commit::Done(position)) => {
                    if wrote {
                        ANSWERED.set(ANSWERED.get().max(position));
                    }
                    return Ok((outcome, position));
                }
                Some(Commit::Conflict) => self.metrics.conflicts.add(1),
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
        let _one = self.cluster_changing.lock();
        let (next, joined) = self.cluster().joined(request, names_targets, self.now())?;
        let mut changed_at = None;
        if joined.is_change() {
            let written = self.transact(None, |context| next.write(context, &joined));
            let position = match written.and_then(|(written, position)| written.map(|()| position)) {
                Ok(position) => position,
                Err(fault) => {
                    self.cluster.write().hear(request, &next, &joined);
                    return Err(fault);
                }
            };
            changed_at = joined.must_be_durable.then_some(position);
        }
        self.cluster.write().merge(next);
        Ok((joined.response, changed_at))
    }

    // ---- for the daemon ----

    /// The id of the cluster, given at creation.
    pub fn cluster_id(&self) -> u64 {
        self.cluster().cluster_id
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
        let now_ns = self.clock.now_ns();
        // A log that is slow to be written must not hold up the cluster's lock.
        let map = self.cluster().map(now_ns);
        self.member_watch.look(&map, now_ns);
    }

    /// What has to be done from time to time, every second or so: sessions that ran out, objects of deleted files
    /// (through `transport`), and without background threads the engine's own work. Waits for data servers; failures
    /// are logged and tried again by the next tick.
    pub fn tick(&self, transport: &dyn Transport) {
        let now_ns = self.clock.now_ns();
        self.logged("maintenance", self.engine.maintain().map_err(Fault::from));
        // Event loops must not wait for its lock: where the engine is behind, the next tick notes them.
        let noted = unless_behind(|| ops::cluster::note_silent(self));
        self.logged("note of silent nodes", noted.unwrap_or(Ok(())));
        if self.history.is_behind() {
            // Nothing of an older copy may reach the data servers.
            return self.logged("log", self.engine.flush().map_err(Fault::from));
        }
        for session in self.sessions.expired(now_ns) {
            tracing::info!(%session, "session expired");
            self.logged("end of a session", crate::ops::session::end(self, session));
        }
        self.part.invalidations.tick(now_ns, |session| self.sessions.is_known(session));
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
        self.waiters.stop(Duration::MAX);
        self.write_inodes_in_use()?;
        Ok(self.engine.close()?)
    }

    /// What clients last reported of themselves. Asking makes them report with their next renewals.
    pub fn clients(&self) -> Vec<proto::Measures> {
        self.sessions.reports(self.clock.now_ns())
    }

    /// What was done: operations by duration.
    pub fn work(&self) -> Work {
        self.shell.work()
    }

    /// Where this service's time went.
    pub fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(self.shell.accounts())
    }

    /// Adds this service's counters and histograms to a page of metrics.
    pub fn expose(&self, exposition: &mut Exposition) {
        let causes = [Cause::Disk, Cause::Lock, Cause::Compute, Cause::Commit];
        self.shell.expose(&causes, exposition);
        self.metrics.expose(exposition);
        self.part.expose(exposition);
        let figures = self.engine.figures();
        let mut gauge = |name: &str, help: &str, value: f64| exposition.gauge(name, help, &[], value);
        gauge("vazao_meta_sessions", "Clients with a lease.", self.sessions.count() as f64);
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
        self.shell.serve(&request, responder, |responder| {
            let Some(settled) = unless_behind(|| self.settle(&request)) else {
                return self.settle_later(&request, responder);
            };
            deliver(&*self.engine, settled, responder);
            Ok(())
        });
        let spent_ns = self.clock.now_ns().saturating_sub(started_ns);
        self.shell.accounts().charge(Cause::Compute, spent_ns);
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

impl MetaService {
    /// Carries a request out.
    fn settle(&self, request: &Request<'_>) -> Settled {
        let checked = self.history.check(request.method);
        let settled = checked.and_then(|()| dispatch::run(self, request.method, request.message));
        let settled = settled.unwrap_or_else(|fault| Settled { answer: Err(fault), durable_at: None });
        let _ = settled.answer.as_ref().inspect_err(|fault| log_failure(request, fault));
        settled
    }

    /// Has a request carried out by a thread that may wait until the engine has caught up. Errors: too many wait.
    fn settle_later(&self, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let stopped = || Fault::new(Code::Unavailable, "the metadata service is stopping");
        let service = self.this.get().and_then(Weak::upgrade).ok_or_else(stopped)?;
        let (call, id, message) = (request.call(), request.id, request.message.to_vec());
        self.waiters.defer(call, message.len(), responder, move || {
            let (method, deadline_ns) = (call.method, call.deadline_ns);
            service.settle_now(&Request { method, id, message: &message, attachment: &[], deadline_ns })
        })
    }

    /// Carries a request out and waits for whatever it takes.
    fn settle_now(&self, request: &Request<'_>) -> Answer {
        let settled = loop {
            self.engine.catch_up()?;
            if let Some(settled) = unless_behind(|| self.settle(request)) {
                break settled;
            }
        };
        // What was committed may be lost, and is not refused: the client asks again, and gets the remembered answer.
        let unsure = |fault: Fault| Fault::new(Code::Unavailable, fault.to_string());
        self.flush().map_err(unsure)?;
        if settled.durable_at.is_some() {
            self.engine.sync().map_err(|error| unsure(error.into()))?;
        }
        settled.answer.map(|message| (message, Vec::new()))
    }
}

/// Logs what no client is the cause of.
fn log_failure(request: &Request<'_>, fault: &Fault) {
    if matches!(fault.code, Code::Corrupt | Code::Io | Code::Internal) {
        let id = RequestId(request.id);
        tracing::error!(request = %id, method = request.method.name(), error = %fault, "failed");
    }
}

/// Decodes a request's arguments.
pub(crate) fn decode<O: Operation>(message: &[u8]) -> Outcome<O::Request> {
    shell::decode_message(O::METHOD, message)
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
    if !(SCHEMA_WITHOUT_GROUPS..=SCHEMA).contains(&volume.schema) {
        let text = format!(
            "metadata of schema {}: this program reads {SCHEMA_WITHOUT_GROUPS} to {SCHEMA}; use the version of vazao \
             that wrote it, or a newer one",
            volume.schema
        );
        return Err(Fault::new(Code::VersionMismatch, text));
    }
    Ok(volume)
}

/// There are placement groups from now on.
pub(crate) fn note_groups(context: &mut Context<'_>) -> Outcome<()> {
    let volume = context.read::<VolumeRecord>(keys::VOLUME, "volume")?;
    if let Some(volume) = volume.filter(|volume| volume.schema == SCHEMA_WITHOUT_GROUPS) {
        context.write(keys::VOLUME.to_vec(), &VolumeRecord { schema: SCHEMA, ..volume });
    }
    Ok(())
}

/// What a new volume begins with: its record and the root directory.
fn new_volume(random: &Random, clock: &dyn Clock) -> Outcome<Writes> {
    let name_key = [random.number()?.to_le_bytes(), random.number()?.to_le_bytes()].concat();
    let volume = VolumeRecord { cluster_id: random.number()?, name_key, schema: SCHEMA_WITHOUT_GROUPS };
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
