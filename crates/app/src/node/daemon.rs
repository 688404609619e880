//! The daemon: opens what its roles need, serves, keeps itself known to the metadata service, and ends in order.

use super::areas::Areas;
use super::calls;
use super::config::{NodeConfig, RoleName, any_port};
use super::disk::disk;
use super::files::{self, Notice};
use super::measures::{Counted, MeasureService, Measuring};
use super::membership::{Place, Refusals, Register};
use super::memory::{self, MemoryFile, Plan};
use super::metrics::{self, Observed};
use super::opening;
use super::pauses::Pauses;
use super::router::Router;
use super::settings::Settings;
use super::targets::AddedTargets;
use crate::failure::{At, Failure, Outcome};
use crate::signals::{self, Stop};
use parking_lot::Mutex;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{info, warn};
use vazao_area::AreaService;
use vazao_client::Client;
use vazao_luarpc::Running;
use vazao_meta::{MetaOptions, MetaService};
use vazao_meter::{Clock, Exposition, Measures};
use vazao_model::Role;
use vazao_model::limits::{HEARTBEAT_MS, STOP_MS_MAX};
use vazao_model::zone::ZoneRanges;
use vazao_mover::Mover;
use vazao_store::DataService;
use vazao_wire::inline::InlineTransport;
use vazao_wire::key::ClusterKey;
use vazao_wire::local::{LocalServer, LocalService};
use vazao_wire::proto;
use vazao_wire::service::Service;
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};
use vazao_wire::transport::Transport;

/// After a failed registration the next try comes this soon, and each further one twice as late.
const RETRY_FIRST_MS: u64 = 100;

/// A registration is over, one way or the other, within this time.
const REGISTER_MS_MAX: u64 = 5_000;

/// How often a data server looks whether targets have become full, or whether it was asked for a placement group that
/// it does not know.
const NEWS_MS: u64 = 20;

/// One that is not final and no trouble either is repeated this soon.
const SOON_MS: u64 = 20;

/// Claims to identities are waited for this long at a time, and asked about again this often.
const CLAIM: Duration = Duration::from_millis(500);

/// After its transport was hung up everything that waited for an answer has noticed within this time.
const HUNG_UP_MS: u64 = 500;

/// A node that stops waits for the answer to its last report this long.
const LAST_REPORT_MS_MAX: u64 = 1_000;

/// Background work of the services gets its turn this often.
const TICK_MS: u64 = 1_000;

/// A thread whose wait was ended has noticed by then.
const JOIN_NS_MAX: u64 = 500_000_000;

/// The background work of one service, and the name of its thread.
type Tick = (&'static str, fn(&Node));

/// The parts of a running node.
pub(super) struct Node {
    name: String,
    /// Where the metadata service is, unless it is here.
    metadata: Vec<String>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) transport: Arc<TcpTransport>,
    /// For leases: nothing large is before them in a connection of their own.
    pub(super) leases_transport: Arc<TcpTransport>,
    /// For its last word: the first one is hung up by then.
    last_transport: Arc<TcpTransport>,
    meta: Option<Arc<MetaService>>,
    pub(super) data: Option<Arc<DataService>>,
    area: Arc<AreaService>,
    mover: Arc<Mover>,
    areas: Areas,
    targets: AddedTargets,
    missing: opening::Missing,
    measures: Arc<MeasureService>,
    /// Of remote calls, once they are answered.
    calls: OnceLock<Arc<calls::Statistics>>,
    pub(super) server: Mutex<Server>,
    /// Where clients of this machine are handed descriptors.
    door: Option<Mutex<LocalServer>>,
    /// Targets that had failed when visitors were last looked at.
    failed_targets: AtomicUsize,
    /// Why the last registration failed; `None` once one succeeded.
    unregistered: Mutex<Option<String>>,
    /// The metadata service that it registered with last.
    pub(super) registered_at: Mutex<String>,
    /// What the metadata service had to say to the operator, last time.
    warned: Mutex<Vec<String>>,
    /// Where the process that starts the node reads it.
    trouble_file: PathBuf,
    /// The metadata service will never take this node in: why.
    refused: Mutex<Option<String>>,
    /// Over when the node is to stop.
    pauses: Pauses,
}

/// One to serve with, one for leases, one for the last word.
fn transports(key: &ClusterKey, clock: &Arc<dyn Clock>) -> [Arc<TcpTransport>; 3] {
    let serves = TransportOptions::default();
    let alone = TransportOptions { connections_max: 1, ..serves };
    [serves, alone, alone].map(|options| TcpTransport::new(key.clone(), options, Arc::clone(clock)))
}

/// Runs a node until a signal comes.
pub(crate) fn run(config: &NodeConfig, settings: &Settings) -> Outcome {
    let stop = Stop::on_signals(signals::OF_DAEMONS)?;
    if settings.until_stdin_closes {
        stop_with_stdin(&stop)?;
    }
    let key = key(config, settings)?;
    let lock = opening::lock(settings)?;
    let memory = Arc::new(MemoryFile::load(&settings.state)?);
    opening::check_metadata(config, settings, &memory)?;
    let plan = opening::data_plan(config, settings, &memory)?;
    let run = getrandom::u64().map_err(|e| Failure::new(format!("the kernel's random numbers: {e}")))?;
    let clock = vazao_meter::clock::system();
    let router = Arc::new(Router::new(config.has(RoleName::Meta), config.has(RoleName::Data)));
    let server = listen(config, key.clone(), Arc::clone(&router), &clock)?;
    let address = server.address();
    let advertised = config.advertise.clone().unwrap_or_else(|| address.to_string());
    let areas = Areas::new(config.area.clone(), &settings.directory, Arc::clone(&memory));
    let [transport, leases_transport, last_transport] = transports(&key, &clock);
    let measures = MeasureService::new(&config.name, &clock);
    let data = open_data(config, &plan, &advertised, run, &transport, &measures)?;
    let area = open_area(config, &areas, run, &clock)?;
    let mover = open_mover(config, settings, &area, &transport, &advertised)?;
    let node = Arc::new(Node {
        name: config.name.clone(),
        metadata: config.metadata.clone(),
        meta: open_meta(config, &advertised, run, &clock, &measures)?,
        door: data.as_ref().and_then(|data| open_door(config, data, key, &clock)).map(Mutex::new),
        failed_targets: AtomicUsize::new(data.as_ref().map_or(0, |data| data.failed_targets())),
        data,
        area,
        mover,
        areas,
        targets: AddedTargets::new(&settings.directory, plan.given()),
        missing: opening::Missing::default(),
        measures: Arc::clone(&measures),
        calls: OnceLock::new(),
        clock,
        transport,
        leases_transport,
        last_transport,
        server: Mutex::new(server),
        unregistered: Mutex::new(Some("not registered yet".to_owned())),
        registered_at: Mutex::default(),
        warned: Mutex::default(),
        trouble_file: files::trouble_file(&settings.state),
        refused: Mutex::new(None),
        pauses: Pauses::default(),
    });
    node.hangs_up_after(&stop);
    node.remember_volume(config, settings, &memory)?;
    measures.fill(Arc::downgrade(&(Arc::clone(&node) as Arc<dyn Counted>)));
    node.serve_by(&router);
    let (notice, answering) = open_ports(config, &node, &advertised)?;
    info!(name = config.name, %address, "serving");
    let threads = start_threads(&node, config, &memory, &advertised, &stop)?;
    let notice_path = settings.state.join("running.json");
    wait(&node, &stop, &notice, &notice_path)?;
    info!("stopping");
    answering.into_iter().for_each(stop_answering);
    let closed = node.close(threads);
    // The next start has to say for itself that it is ready.
    let _ = std::fs::remove_file(&notice_path);
    let _ = std::fs::remove_file(&node.trouble_file);
    drop(lock);
    info!("stopped");
    let refused = node.refused.lock().take();
    closed.and(refused.map_or(Ok(()), |why| Err(Failure::new(format!("node {}: {why}", config.name)))))
}

/// Opens the ports beside that of `listen`. Returns what the node tells of all of them.
fn open_ports(config: &NodeConfig, node: &Arc<Node>, advertised: &str) -> Outcome<(Notice, Option<Running>)> {
    let metrics = serve_metrics(config, node)?;
    let answering = answer_calls(config, node, advertised)?;
    let luarpc = answering.as_ref().map(|running| running.address().to_string());
    let notice = Notice { pid: std::process::id(), address: advertised.to_owned(), metrics, luarpc };
    Ok((notice, answering))
}

/// Opens the metrics port, if it is to have one. Returns the address. A port that another program has is tried again:
/// what only watches a node does not keep it from serving.
fn serve_metrics(config: &NodeConfig, node: &Arc<Node>) -> Outcome<Option<String>> {
    let Some(at) = config.metrics.clone() else { return Ok(None) };
    let other_port = config.other_port_if_taken;
    let open = move |node: &Arc<Node>| {
        metrics::serve(&at, other_port, Arc::clone(node) as Arc<dyn Observed>, &node.clock)
            .map_err(|error| (error.kind(), format!("metrics on {at}: {error}")))
    };
    match open(node) {
        Ok(address) => return Ok(Some(address.to_string())),
        Err((ErrorKind::AddrInUse, why)) => {
            warn!(
                "{why}; it is tried again every second; or choose another port in the node's configuration"
            );
        }
        Err((_, why)) => {
            return Err(Failure::new(format!("{why}; choose another address in the node's configuration")));
        }
    }
    let weak = Arc::downgrade(node);
    let again = move || {
        while let Some(node) = weak.upgrade().filter(|node| !node.is_stopping()) {
            match open(&node) {
                Ok(address) => return info!(%address, "metrics are served now"),
                Err(_) => node.pause(TICK_MS),
            }
        }
    };
    std::thread::Builder::new().name("metrics-port".to_owned()).spawn(again).at("starting a thread")?;
    Ok(None)
}

/// Answers remote calls, if the node is to. They come to the volume as those of any other client.
fn answer_calls(config: &NodeConfig, node: &Arc<Node>, advertised: &str) -> Outcome<Option<Running>> {
    let Some(section) = &config.luarpc else { return Ok(None) };
    let opener = client_opener(config, &node.transport, advertised, calls::DEADLINE_MS);
    let running = calls::serve(section, Box::new(opener), &node.clock);
    let running = running.map_err(|failure| failure.about(format!("node {}", config.name)))?;
    node.calls.get_or_init(|| Arc::clone(running.statistics()));
    Ok(Some(running))
}

/// From now on no remote call begins.
fn stop_answering(running: Running) {
    if !running.stop() {
        warn!("the port for remote calls is not closed yet; it ends with this process");
    }
}

fn stop_with_stdin(stop: &Stop) -> Outcome {
    let stop = stop.clone();
    let watch = move || {
        let mut nothing = [0; 64];
        while matches!(std::io::stdin().read(&mut nothing), Ok(count) if count > 0) {}
        stop.ask();
    };
    std::thread::Builder::new().name("stdin".to_owned()).spawn(watch).at("starting a thread").map(drop)
}

fn key(config: &NodeConfig, settings: &Settings) -> Outcome<ClusterKey> {
    match (&config.key_file, settings.insecure) {
        (Some(file), _) => ClusterKey::load(file).map_err(|error| Failure::new(error.to_string())),
        (None, true) => {
            warn!("running without a cluster key: anybody who reaches this port may do anything");
            Ok(ClusterKey::insecure())
        }
        (None, false) => Err(Failure::new(format!(
            "node {}: no cluster key; name it with key_file in the node's configuration, or give --insecure to let everybody in",
            config.name
        ))),
    }
}

fn open_meta(
    config: &NodeConfig,
    address: &str,
    run: u64,
    clock: &Arc<dyn Clock>,
    measures: &MeasureService,
) -> Outcome<Option<Arc<MetaService>>> {
    let Some(section) = config.meta.as_ref().filter(|_| config.has(RoleName::Meta)) else { return Ok(None) };
    let options = MetaOptions {
        name: config.name.clone(),
        address: address.to_owned(),
        zone: config.zone.clone(),
        zones: ZoneRanges::new(&config.zones).map_err(Failure::new)?,
        lines: config.lines().map_err(Failure::new)?,
        roles: config.roles.iter().map(|role| Role::from(*role)).collect(),
        run,
        ..MetaOptions::default()
    };
    let opened = MetaService::open(
        measures.watch(&section.directory, disk(&section.directory)?),
        options,
        Arc::clone(clock),
    );
    let shown = section.directory.display();
    opened
        .map(Some)
        .map_err(|error| Failure::new(format!("node {}: metadata in {shown}: {error}", config.name)))
}

fn open_data(
    config: &NodeConfig,
    plan: &Plan,
    address: &str,
    run: u64,
    transport: &Arc<TcpTransport>,
    measures: &MeasureService,
) -> Outcome<Option<Arc<DataService>>> {
    let Some(section) = config.data.as_ref().filter(|_| config.has(RoleName::Data)) else { return Ok(None) };
    let options = vazao_store::Options {
        name: config.name.clone(),
        address: address.to_owned(),
        zone: config.zone.clone(),
        roles: config.roles.iter().map(|role| Role::from(*role)).collect(),
        reserve_bytes: section
            .reserve
            .as_deref()
            .and_then(|reserve| vazao_model::size::parse_size(reserve).ok()),
        run,
        missing: plan.missing.clone(),
        meant: plan.meant.clone(),
        ..vazao_store::Options::default()
    };
    let watched =
        |target: &PathBuf| Ok((measures.watch(target, disk(target)?), target.display().to_string()));
    let disks = plan.open.iter().map(watched);
    let disks = disks.collect::<Outcome<Vec<_>>>()?;
    let opened = DataService::open(disks, options, transport.clock());
    let data = opened.map_err(|error| Failure::new(format!("node {}: {error}", config.name)))?;
    data.set_transport(Arc::clone(transport) as Arc<dyn Transport>);
    Ok(Some(data))
}

/// The door for clients of this machine. Without one they read over TCP, so that it is no reason not to serve.
fn open_door(
    config: &NodeConfig,
    data: &Arc<DataService>,
    key: ClusterKey,
    clock: &Arc<dyn Clock>,
) -> Option<LocalServer> {
    if config.data.as_ref().is_some_and(|section| !section.short_circuit) {
        return None;
    }
    match LocalServer::open(Arc::clone(data) as Arc<dyn LocalService>, key, Arc::clone(clock)) {
        Ok(door) => {
            data.announce_door(door.announcement());
            Some(door)
        }
        Err(error) => {
            warn!(%error, "no door for local clients: they read over TCP");
            None
        }
    }
}

fn open_area(
    config: &NodeConfig,
    areas: &Areas,
    run: u64,
    clock: &Arc<dyn Clock>,
) -> Outcome<Arc<AreaService>> {
    let defaults = vazao_area::Options::default();
    let options = vazao_area::Options {
        name: config.name.clone(),
        zone: config.zone.clone(),
        channels_max: config.channels_max.unwrap_or(defaults.channels_max),
        descriptors_max: config.descriptors_max.unwrap_or(defaults.descriptors_max),
        run,
        ..defaults
    };
    let opened = AreaService::open(areas.load()?, options, Arc::clone(clock));
    let service = opened.map_err(|error| Failure::new(format!("node {}: {error}", config.name)))?;
    areas.remember(&service);
    Ok(service)
}

/// What opens clients of the node's own cluster, over its own connections.
fn client_opener(
    config: &NodeConfig,
    transport: &Arc<TcpTransport>,
    advertised: &str,
    deadline_ms: u32,
) -> impl Fn() -> vazao_client::Result<Client> + Send + Sync + 'static {
    let metadata = match config.has(RoleName::Meta) {
        true => vec![advertised.to_owned()],
        false => config.metadata.clone(),
    };
    let (carrier, name, zone) = (Arc::clone(transport), config.name.clone(), config.zone.clone());
    move || {
        let defaults = vazao_client::Options::default();
        let options =
            vazao_client::Options { name: name.clone(), zone: zone.clone(), deadline_ms, ..defaults };
        Client::open(Arc::clone(&carrier) as Arc<dyn Transport>, metadata.clone(), options)
    }
}

fn open_mover(
    config: &NodeConfig,
    settings: &Settings,
    area: &Arc<AreaService>,
    transport: &Arc<TcpTransport>,
    advertised: &str,
) -> Outcome<Arc<Mover>> {
    let client = client_opener(config, transport, advertised, vazao_client::Options::default().deadline_ms);
    let options = config.copy.options(&config.name, &config.listen, &settings.state);
    let opened = Mover::open(options, Arc::clone(area), client, transport.clock());
    opened.map_err(|error| Failure::new(format!("node {}: copies: {error}", config.name)))
}

fn listen(
    config: &NodeConfig,
    key: ClusterKey,
    router: Arc<Router>,
    clock: &Arc<dyn Clock>,
) -> Outcome<Server> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if config.threads == 0 { cpus } else { config.threads };
    let options = ServerOptions { threads, key, name: config.name.clone() };
    let start = |at: &str| {
        Server::start(at, Arc::clone(&router) as Arc<dyn Service>, options.clone(), Arc::clone(clock))
    };
    let server = match start(&config.listen) {
        Err(error) if config.other_port_if_taken && error.kind() == std::io::ErrorKind::AddrInUse => {
            warn!(listen = config.listen, "the port is taken; taking another");
            start(&any_port(&config.listen))
        }
        other => other,
    };
    let mut server = server.map_err(|error| {
        Failure::new(format!("node {}: {error}; choose another `listen` in its configuration", config.name))
    })?;
    if config.has(RoleName::Meta)
        && let Err(error) = server.open_entrances()
    {
        warn!(%error, "clients on this machine come over TCP, too");
    }
    Ok(server)
}

fn start_threads(
    node: &Arc<Node>,
    config: &NodeConfig,
    memory: &Arc<MemoryFile>,
    advertised: &str,
    stop: &Stop,
) -> Outcome<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    let mut start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        thread.map(|thread| threads.push(thread)).at("starting a thread")
    };
    // Apart: the metadata service waits for data servers, which may be silent, copies for their directories, and new
    // targets for their disks.
    let mut ticks: Vec<Tick> = vec![("tick-areas", Node::tick_areas), ("tick-copies", Node::tick_copies)];
    if node.meta.is_some() {
        ticks.extend::<[Tick; 2]>([("tick-meta", Node::tick_meta), ("tick-members", Node::tick_members)]);
    }
    if node.data.is_some() {
        ticks.extend::<[Tick; 2]>([("tick-data", Node::tick_data), ("tick-targets", Node::tick_targets)]);
        let keeping = Arc::clone(node);
        start("leases", Box::new(move || keeping.keep_leases()))?;
        let sharing = Arc::clone(node);
        start("link", Box::new(move || sharing.share_link()))?;
    }
    for (name, work) in ticks {
        let ticking = Arc::clone(node);
        start(name, Box::new(move || ticking.repeat(work)))?;
    }
    let metadata = match node.meta {
        Some(_) => vec![advertised.to_owned()],
        None => config.metadata.clone(),
    };
    let roles = config.roles.iter().map(|role| Role::from(*role)).collect();
    let register = Register::new(node.place(), Arc::clone(memory), advertised.to_owned(), roles);
    if node.meta.is_some() {
        let settling = Arc::clone(node);
        start("claims", Box::new(move || settling.settle_claims()))?;
        let deciding = Arc::clone(node);
        start("reports", Box::new(move || deciding.settle_reports()))?;
    }
    let (registering, stop) = (Arc::clone(node), stop.clone());
    start("register", Box::new(move || registering.keep_registered(register, &metadata, &stop)))?;
    Ok(threads)
}

/// Waits for the end. The notice is written once the node is of use to others.
fn wait(node: &Node, stop: &Stop, notice: &Notice, path: &Path) -> Outcome {
    let mut told = false;
    while !stop.wait(if told { Duration::from_secs(3600) } else { Duration::from_millis(10) }) {
        if !told && node.is_ready() {
            notice.save(path)?;
            told = true;
        }
    }
    Ok(())
}

impl Node {
    /// From now on its services answer what comes to the port.
    fn serve_by(&self, router: &Router) {
        self.meta.iter().for_each(|meta| router.meta.fill(Arc::clone(meta) as Arc<dyn Service>));
        self.data.iter().for_each(|data| router.data.fill(Arc::clone(data) as Arc<dyn Service>));
        router.measures.fill(Arc::new(Measuring(Arc::clone(&self.measures))));
        router.area.fill(Arc::clone(&self.area) as Arc<dyn Service>);
        router.mover.fill(Arc::clone(&self.mover) as Arc<dyn Service>);
    }

    fn is_ready(&self) -> bool {
        let is_member_by_itself = self.place() == Place::WithMetadata;
        is_member_by_itself || self.unregistered.lock().is_none()
    }

    /// What its registration has to say besides areas.
    fn place(&self) -> Place {
        match (&self.data, &self.meta) {
            (Some(_), _) => Place::WithTargets,
            (None, Some(_)) => Place::WithMetadata,
            (None, None) => Place::AreasOnly,
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.pauses.are_over()
    }

    /// Sleeps in short steps, so that the node can end meanwhile.
    /// Waits, until the node is to stop at the latest.
    pub(super) fn pause(&self, milliseconds: u64) {
        self.pauses.wait(milliseconds);
    }

    /// The same, but no longer than the number of full targets is the one that was reported: a command that looks at
    /// the space right after a write was refused is not told of the room that there was before. Nor longer than no
    /// placement group is asked for that this node does not know.
    fn pause_until_news(&self, milliseconds: u64, full: usize) {
        let Some(data) = &self.data else { return self.pause(milliseconds) };
        let until_ns = self.clock.now_ns() + milliseconds * 1_000_000;
        let has_news = || self.full_targets() != full || data.must_report();
        while !self.is_stopping() && self.clock.now_ns() < until_ns && !has_news() {
            self.pause(NEWS_MS);
        }
    }

    fn full_targets(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.full_targets())
    }

    /// Does background work about once a second, for as long as the node runs.
    fn repeat(&self, work: fn(&Node)) {
        while !self.is_stopping() {
            work(self);
            self.pause(TICK_MS);
        }
    }

    fn tick_meta(&self) {
        if let Some(meta) = &self.meta {
            meta.tick(&*self.transport);
        }
    }

    fn tick_members(&self) {
        self.meta.iter().for_each(|meta| meta.watch_members());
    }

    fn tick_data(&self) {
        if let Some(data) = &self.data {
            data.tick();
            self.guard_door(data);
        }
    }

    fn tick_targets(&self) {
        if let Some(data) = &self.data {
            self.targets.refresh(data, &self.measures);
            self.missing.take_back(data, &self.measures);
        }
    }

    fn tick_areas(&self) {
        self.areas.refresh(&self.area);
        self.area.tick();
    }

    fn tick_copies(&self) {
        self.mover.tick();
    }

    /// Keeps which volume this node has, so that another one never takes its place unnoticed.
    fn remember_volume(&self, config: &NodeConfig, settings: &Settings, memory: &MemoryFile) -> Outcome {
        let (Some(meta), Some(section)) = (&self.meta, &config.meta) else { return Ok(()) };
        let volume = meta.cluster_id();
        memory::check_cluster(&memory.get(), &section.directory, volume, &settings.wishes)
            .map_err(|failure| failure.about(format!("node {}", self.name)))?;
        memory.change(|memory| memory.volume = volume)
    }

    /// Asks, for as long as the node runs, whether those are gone whose identities others claim.
    fn settle_claims(&self) {
        let Some(meta) = &self.meta else { return };
        while !self.is_stopping() {
            if !meta.settle_claims(&*self.transport, CLAIM) {
                self.pause(SOON_MS);
            }
        }
    }

    /// Decides, for as long as the node runs, on what members of placement groups report of one another.
    fn settle_reports(&self) {
        let Some(meta) = &self.meta else { return };
        while !self.is_stopping() {
            meta.settle_reports(CLAIM);
        }
    }

    /// Takes descriptors back when a target has failed: its page cache may go on showing what the disk has lost.
    fn guard_door(&self, data: &DataService) {
        let failed = data.failed_targets();
        if self.failed_targets.swap(failed, Ordering::SeqCst) < failed
            && let Some(door) = &self.door
        {
            door.lock().send_away();
        }
    }

    /// Registers, and does it again as the heartbeat, for as long as the node runs. A metadata service that does not
    /// answer is asked again and again: it may come back. One that never takes this node in ends it; a node that was
    /// a member once goes on, for it serves what others have open.
    fn keep_registered(&self, mut register: Register, metadata: &[String], stop: &Stop) {
        let mut retry_ms = RETRY_FIRST_MS;
        let mut refusals = Refusals::default();
        for address in metadata.iter().cycle() {
            if self.is_stopping() {
                return;
            }
            let deadline_ns = self.clock.now_ns() + REGISTER_MS_MAX * 1_000_000;
            // Before the report: what fills up meanwhile is reported again.
            let full = self.full_targets();
            let outcome =
                register.once(self.data.as_deref(), &self.area, &*self.transport, address, deadline_ns);
            let (code, now_ns) = (outcome.as_ref().err().map(|fault| fault.code), self.clock.now_ns());
            let is_final = refusals.is_final(code, now_ns);
            if refusals.is_soon(code, now_ns) {
                self.pause(SOON_MS);
                continue;
            }
            let trouble = match outcome {
                Ok(warnings) => {
                    self.registered_at.lock().clone_from(address);
                    self.note_warnings(warnings);
                    None
                }
                Err(fault) => Some(format!("metadata service {address}: {fault}")),
            };
            if is_final {
                *self.refused.lock() = trouble;
                return stop.ask();
            }
            let failed = trouble.is_some();
            self.note_registration(address, trouble);
            match failed {
                true => self.pause(retry_ms),
                false => self.pause_until_news(u64::from(HEARTBEAT_MS), full),
            }
            retry_ms = if failed { (retry_ms * 2).min(u64::from(HEARTBEAT_MS)) } else { RETRY_FIRST_MS };
        }
    }

    /// Logs what the metadata service has to say that it did not say last time.
    fn note_warnings(&self, warnings: Vec<String>) {
        let mut last = self.warned.lock();
        warnings.iter().filter(|warning| !last.contains(warning)).for_each(|warning| warn!("{warning}"));
        *last = warnings;
    }

    /// Logs a registration that turned out otherwise than the one before.
    fn note_registration(&self, address: &str, trouble: Option<String>) {
        let mut last = self.unregistered.lock();
        if *last != trouble {
            match &trouble {
                Some(trouble) => {
                    warn!(trouble, "cannot register; trying again");
                    // It is in the log as well: a file that cannot be written is no further trouble.
                    let _ = std::fs::write(&self.trouble_file, trouble);
                }
                None => {
                    info!(address, "registered");
                    let _ = std::fs::remove_file(&self.trouble_file);
                }
            }
            *last = trouble;
        }
    }

    /// Stops serving, then lets the services write down what they have. Only disks of targets and of the metadata are
    /// waited for longer than [`STOP_MS_MAX`] and a little more: peers are hung up by then, and threads that an area's
    /// file system holds up are left behind.
    fn close(&self, threads: Vec<JoinHandle<()>>) -> Outcome {
        self.pauses.end();
        let until_ns = self.clock.now_ns() + (u64::from(STOP_MS_MAX) + HUNG_UP_MS) * 1_000_000;
        self.mover.close(until_ns);
        // Other waiters have nothing to complete.
        self.transport.hang_up();
        self.leases_transport.hang_up();
        self.server.lock().stop();
        if let Some(door) = &self.door {
            door.lock().close();
        }
        self.join(threads);
        self.area.close(until_ns + HUNG_UP_MS * 1_000_000);
        if let Some(data) = &self.data {
            data.close();
            self.report_last(data);
        }
        let closed = self.meta.iter().try_for_each(|meta| meta.close());
        closed.map_err(|fault| Failure::new(format!("node {}: closing: {fault}", self.name)))
    }
}

impl Node {
    /// Ends its waits for peers once it was asked to stop and they have had their time.
    fn hangs_up_after(&self, stop: &Stop) {
        let transports = [&self.transport, &self.leases_transport].map(Arc::clone);
        stop.after_grace(move || transports.iter().for_each(|transport| transport.hang_up()));
    }

    /// Waits for threads that have been hung up. One that is still finding out an address ends with the process.
    fn join(&self, threads: Vec<JoinHandle<()>>) {
        let until_ns = self.clock.now_ns() + JOIN_NS_MAX;
        for thread in threads {
            while !thread.is_finished() && self.clock.now_ns() < until_ns {
                self.clock.sleep(Duration::from_millis(2));
            }
            match thread.is_finished() {
                true if thread.join().is_err() => warn!("a thread ended by panic"),
                true => {}
                false => warn!("a thread still waits for another machine; it ends with this process"),
            }
        }
    }

    /// Tells the metadata service what the targets were left with. It need not succeed: what is not told now is told by
    /// the next start, and only until then an older copy of a target could pass for it.
    fn report_last(&self, data: &DataService) {
        let deadline_ns = self.clock.now_ns() + LAST_REPORT_MS_MAX * 1_000_000;
        let reported = match (&self.meta, self.metadata.first()) {
            (Some(meta), _) => {
                let here = InlineTransport::new(Arc::clone(&self.clock));
                here.serve("here", Arc::clone(meta) as Arc<dyn Service>);
                data.heartbeat(&*here, "here", deadline_ns)
            }
            (None, Some(address)) => data.heartbeat(&*self.last_transport, address, deadline_ns),
            (None, None) => return,
        };
        if let Err(fault) = reported {
            info!(%fault, "the metadata service was not told how the targets were left");
        }
    }
}

impl Counted for Node {
    fn fill(&self, measures: &mut Measures) {
        measures.peers = self.server.lock().peers();
        let works = self.meta.iter().map(|meta| meta.work()).chain(self.data.iter().map(|data| data.work()));
        works.for_each(|work| measures.work.add(&work));
        self.area.fill(measures);
    }

    fn clients(&self) -> Vec<proto::Measures> {
        self.meta.as_ref().map(|meta| meta.clients()).unwrap_or_default()
    }
}

impl Observed for Node {
    fn expose(&self, exposition: &mut Exposition) {
        self.server.lock().expose(exposition);
        if let Some(meta) = &self.meta {
            meta.expose(exposition);
        }
        if let Some(data) = &self.data {
            data.expose(exposition);
        }
        self.area.expose(exposition);
        self.mover.expose(exposition);
        self.calls.get().into_iter().for_each(|statistics| calls::expose(statistics, exposition));
    }

    fn trouble(&self) -> Option<String> {
        if self.place() == Place::WithMetadata {
            return None;
        }
        self.unregistered.lock().clone()
    }
}
