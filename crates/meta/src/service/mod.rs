//! The metadata service: opens a volume and has all that its requests share.
//!
//! A request comes in at [`requests`], is decoded and sent to its operation by [`dispatch`], runs as one transaction
//! ([`transactions`], which a [`context`] goes through) and is answered when what it rests on is durable enough
//! ([`answer`]). [`upkeep`] is done without a request.
//!
//! Lock order: `cluster_changing` before `cluster`. The first is held while a change is written, the second never.

pub(crate) mod answer;
pub(crate) mod backpressure;
pub(crate) mod context;
mod dispatch;
pub(crate) mod fault;
pub(crate) mod metrics;
pub(crate) mod once;
pub(crate) mod random;
mod requests;
pub(crate) mod transactions;
mod upkeep;
mod volume;

use self::context::Context;
use self::fault::Outcome;
use self::metrics::Metrics;
use self::random::Random;
use self::volume::{new_volume, open_volume, start_of};
pub(crate) use self::volume::{note_groups, schema_of_groups};
use crate::engine::{self, Background, Engine, EngineOptions, Position};
use crate::integrity::{Integrity, This};
use crate::membership::claims::Claims;
use crate::membership::cluster::Cluster;
use crate::membership::history::History;
use crate::membership::joining::Now;
use crate::membership::lagging;
use crate::membership::member_watch::MemberWatch;
use crate::membership::refusals::Refusals;
use crate::membership::reports::Reports;
use crate::objects::orphan_objects::OrphanObjects;
use crate::objects::reclaim::Reclaimer;
use crate::part::PartState;
use crate::schema::keys::{self, NAME_HASH_BITS};
use crate::schema::names::NameHash;
use crate::schema::numbers::{self, InodeNumbers};
use crate::schema::records::NumberRecord;
use crate::sessions::{self, Sessions};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use vazao_disk::Disk;
use vazao_meter::measures::Work;
use vazao_meter::{Accounts, Cause, Clock, Exposition};
use vazao_model::zone::Line;
use vazao_model::zone::ZoneRanges;
use vazao_model::{GroupId, InodeId, Role, TargetId, limits};
use vazao_wire::pool::Pool;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::shell::Shell;

/// How a metadata service is opened.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// `embedded`, or `memory` for a volume that ends with the process.
    pub engine: String,
    /// Name of this node in the cluster map.
    pub name: String,
    /// Address that clients and data servers reach it at.
    pub address: String,
    /// The zone that this node is in; empty: that of its address.
    pub zone: String,
    /// Zones of nodes and clients that name none.
    pub zones: ZoneRanges,
    /// Lines between zones that carry little.
    pub lines: Vec<Line>,
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
            zone: String::new(),
            zones: ZoneRanges::default(),
            lines: Vec::new(),
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
    /// Position of the last change of placement groups: what is told of them rests on it.
    groups_changed_at: AtomicU64,
    /// Held while the cluster is changed, also while the change is written: readers do not wait for that.
    cluster_changing: Mutex<()>,
    /// The random number of this start of the process, as for nodes.
    run: u64,
    claims: Claims,
    refusals: Refusals,
    reports: Reports,
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
    zones: ZoneRanges,
    lines: Vec<Line>,
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
            reports: Reports::default(),
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
            groups_changed_at: AtomicU64::new(0),
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
            zones: options.zones.clone(),
            lines: options.lines.clone(),
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
            zone: options.zone.clone(),
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
        write: impl Fn(&mut Context<'_>, &Cluster) -> Outcome<()>,
    ) -> Outcome<Position> {
        let _one = self.cluster_changing.lock();
        let changed = change(&self.cluster())?;
        let (written, position) = self.transact(None, |context| write(context, &changed))?;
        written?;
        if !Arc::ptr_eq(&changed.groups, &self.cluster().groups) {
            self.groups_changed(position);
        }
        self.cluster.write().merge(changed);
        Ok(position)
    }

    /// Placement groups have changed at this position. To be called before anything of it is shown.
    fn groups_changed(&self, position: Position) {
        self.groups_changed_at.fetch_max(position, Ordering::AcqRel);
    }

    /// The position that has to be durable before anything of placement groups is told to their members: after a power
    /// loss this service would make another epoch of the same number.
    pub(crate) fn groups_changed_at(&self) -> Position {
        self.groups_changed_at.load(Ordering::Acquire)
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

    pub(crate) fn reports(&self) -> &Reports {
        &self.reports
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn now(&self) -> Now {
        Now { ns: self.clock.now_ns(), wall_seconds: self.clock.wall_ns() / 1_000_000_000 }
    }

    pub(crate) fn map_message(&self) -> proto::ClusterMap {
        let now = self.now();
        let mut map = self.cluster().map(now);
        map.refusals = self.refusals.shown(now.ns);
        map.trouble = self.history.trouble();
        (&map).into()
    }

    pub(crate) fn choose_targets(
        &self,
        inode: InodeId,
        width: u32,
        zone: Option<&str>,
    ) -> Outcome<Vec<TargetId>> {
        self.cluster().choose(inode, width, zone, self.clock.now_ns())
    }

    /// The groups on `targets` for the slots of a file; without `follows`, for clients that know none, those targets
    /// alone.
    pub(crate) fn groups_on(&self, inode: InodeId, targets: &[TargetId], follows: bool) -> Vec<GroupId> {
        match follows {
            true => self.cluster().groups_on(inode, targets),
            false => targets.iter().copied().map(GroupId::of).collect(),
        }
    }

    pub(crate) fn choose_target_near(
        &self,
        inode: InodeId,
        host: u64,
        zone: Option<&str>,
    ) -> Option<TargetId> {
        self.cluster().choose_near(inode, host, zone, self.clock.now_ns())
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

    /// Works a node's announcement into the membership; `names_targets`: what it does not name is missing. The position
    /// is that of the change, if others have to wait for it.
    pub(crate) fn take_in(
        &self,
        request: &proto::RegisterNodeRequest,
        names_targets: bool,
    ) -> Outcome<(proto::RegisterNodeResponse, Option<Position>)> {
        let _one = self.cluster_changing.lock();
        let request = &self.in_its_zone(request);
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
            if !joined.groups.is_empty() {
                self.groups_changed(position);
            }
        }
        if !joined.response.groups.is_empty() {
            changed_at = changed_at.max(Some(self.groups_changed_at()));
        }
        self.cluster.write().merge(next);
        Ok((joined.response, changed_at))
    }

    // ---- for the daemon ----

    /// The zone of an address, which may come with a port; empty: in none.
    pub(crate) fn zone_at(&self, address: &str) -> String {
        self.zones.zone_at(address).unwrap_or_default().to_owned()
    }

    /// Lines between zones that carry little.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// What a node announces, with the zone of its address where it names none.
    fn in_its_zone(&self, request: &proto::RegisterNodeRequest) -> proto::RegisterNodeRequest {
        let mut request = request.clone();
        if request.zone.is_empty() {
            let address = if request.source.is_empty() { &request.address } else { &request.source };
            request.zone = self.zone_at(address);
        }
        request
    }

    /// The id of the cluster, given at creation.
    pub fn cluster_id(&self) -> u64 {
        self.cluster().cluster_id
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
        let (cluster, now) = (self.cluster(), self.now());
        lagging::expose(&cluster.lagging(&cluster.groups.away(now.wall_seconds), now.ns), exposition);
    }
}
