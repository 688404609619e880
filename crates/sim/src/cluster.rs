//! A cluster in one process: daemons on disks in memory, ended and started again.

mod starts;

pub use starts::Step;

use crate::clock::{Clocks, MachineClock, Pause, SimClock};
use crate::defects::members::{Hasty, Receiving, Sending};
use crate::defects::{Defect, Early, Final, Swallowing, Unnumbered, WithoutOne};
use crate::network::{Cut, End, Endpoint, Machine, Network, OnMachine, Weather};
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use starts::LateDisk;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use vazao_client::{Client, Options};
use vazao_disk::MemoryDisk;
use vazao_meta::{Background, MetaOptions, MetaService};
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_model::limits::HEARTBEAT_MS;
use vazao_store::{DataService, MemberView, Peers};
use vazao_wire::inline::InlineTransport;
use vazao_wire::op::ReplaceTarget;
use vazao_wire::proto;
use vazao_wire::service::{Fault, Service};
use vazao_wire::transport::{Transport, submit};

/// Address of the metadata service.
pub const META: &str = "meta:7070";

/// A claim is settled by one question, unless the network loses it.
const QUESTIONS_MAX: usize = 4;

const TICK_NS: u64 = 1_000_000_000;
const HEARTBEAT_NS: u64 = HEARTBEAT_MS as u64 * 1_000_000;

/// What a cluster is made of.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// Decides every accident.
    pub seed: u64,
    /// Data servers, with one target each.
    pub data_servers: usize,
    /// Longest time until an ended daemon is started again.
    pub down_ms_max: u64,
}

/// What runs on one simulated machine.
enum Daemon {
    /// It takes connections and is not ready.
    Starting,
    Meta(Arc<MetaService>),
    Data(Arc<DataService>),
}

/// One simulated machine with a server.
struct Host {
    address: String,
    disk: MemoryDisk,
    /// A second disk of a data server.
    late_disk: Option<LateDisk>,
    /// `None` while it is down.
    daemon: Option<Daemon>,
    starts_at_ns: u64,
    /// Of its start, where that is made in steps.
    steps_done: usize,
}

struct World {
    random: StdRng,
    machines: Vec<Host>,
    ticked_ns: u64,
    beaten_ns: u64,
    ends: Vec<(String, End)>,
    starts: u64,
    /// Daemons start in steps.
    is_stepwise: bool,
    /// The machine whose daemon ends once more when so many steps of its start are done.
    end_at: Option<(usize, usize)>,
    /// The epoch that each process of a data server was told first.
    told: BTreeMap<u64, u64>,
}

struct Shared {
    options: ClusterOptions,
    clock: Arc<SimClock>,
    clocks: Clocks,
    transport: Arc<InlineTransport>,
    network: Arc<Network>,
    world: Mutex<World>,
    defect: OnceLock<Defect>,
    /// Of data servers, in turn; empty: they are in none.
    zones: Vec<String>,
    /// What the server of each machine sends requests through.
    endpoints: Vec<Arc<Endpoint>>,
    /// What each machine's process knows of the other servers, and which process that is. Not taken with the world.
    peers: Mutex<BTreeMap<usize, (Weak<DataService>, Peers)>>,
}

/// A simulated cluster.
pub struct Cluster {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({:?})", self.shared.options)
    }
}

/// The zone of a machine; the metadata service is in none.
fn zone_of(number: usize, zones: &[String]) -> &str {
    let turn = number.checked_sub(1).and_then(|turn| turn.checked_rem(zones.len()));
    turn.map_or("", |turn| zones[turn].as_str())
}

fn data_address(index: usize) -> String {
    format!("data{}:7070", index + 1)
}

impl Cluster {
    /// A new cluster, all of it up.
    pub fn new(options: ClusterOptions) -> Cluster {
        Cluster::with(options, None, &[], None)
    }

    /// The same with something wrong from the beginning.
    pub fn with_defect(options: ClusterOptions, defect: Option<Defect>) -> Cluster {
        Cluster::with(options, None, &[], defect)
    }

    /// The same; the data server on machine `late` has a second disk, which is missing at each later start made in
    /// steps until the server is up.
    pub fn with_late_disk(options: ClusterOptions, late: usize) -> Cluster {
        Cluster::with(options, Some(late), &[], None)
    }

    /// The same with data servers put into `zones` in turn.
    pub fn in_zones(options: ClusterOptions, zones: &[&str]) -> Cluster {
        Cluster::with(options, None, zones, None)
    }

    fn with(options: ClusterOptions, late: Option<usize>, zones: &[&str], defect: Option<Defect>) -> Cluster {
        let clock = Arc::new(SimClock::default());
        let transport = InlineTransport::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let network = Arc::new(Network::new(options.seed ^ 0x6e65_7477));
        let addresses = std::iter::once(META.to_owned()).chain((0..options.data_servers).map(data_address));
        let machines = addresses
            .zip(0u64..)
            .map(|(address, number)| {
                let disk =
                    |salt: u64| MemoryDisk::new(options.seed.wrapping_mul(31).wrapping_add(number ^ salt));
                let is_late = late.is_some_and(|late| late as u64 == number);
                let late_disk = is_late.then(|| LateDisk::new(disk(1 << 32)));
                Host { address, disk: disk(0), late_disk, daemon: None, starts_at_ns: 0, steps_done: 0 }
            })
            .collect();
        let world = World {
            random: StdRng::seed_from_u64(options.seed ^ 0x776f_726c),
            machines,
            ticked_ns: 0,
            beaten_ns: 0,
            ends: Vec::new(),
            starts: 0,
            is_stepwise: false,
            end_at: None,
            told: BTreeMap::new(),
        };
        let fates = Arc::clone(&network);
        transport.set_fates(Some(Box::new(move |address, method| fates.fate(address, method))));
        let (world, defect) = (Mutex::new(world), defect.map_or_else(OnceLock::new, OnceLock::from));
        let zones: Vec<String> = zones.iter().map(|&zone| zone.to_owned()).collect();
        let clocks = Clocks::new(Arc::clone(&clock), options.seed);
        let endpoint = |number: usize| {
            let (machine, zone) = (Machine::Server(number), zone_of(number, &zones));
            let address = if number == 0 { META.to_owned() } else { data_address(number - 1) };
            network.place(&address, machine, zone);
            network.endpoint((machine, zone), &transport, (&clock, clocks.of(machine)))
        };
        let endpoints = (0..=options.data_servers).map(endpoint).collect();
        let peers = Mutex::default();
        let shared =
            Shared { options, clock, clocks, transport, network, world, defect, zones, endpoints, peers };
        let cluster = Cluster { shared: Arc::new(shared) };
        cluster.shared.start_due();
        cluster.shared.beat();
        let weak: Weak<Shared> = Arc::downgrade(&cluster.shared);
        cluster.shared.clock.set_work(Some(Arc::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.work();
            }
        })));
        let idle = Arc::downgrade(&cluster.shared);
        cluster.shared.transport.set_idle(Some(Arc::new(move || {
            if let Some(shared) = idle.upgrade() {
                shared.flush_meta();
            }
        })));
        cluster
    }

    /// Has later clients do something wrong.
    pub fn plant(&self, defect: Defect) {
        let _ = self.shared.defect.set(defect);
    }

    /// A client of this cluster; `number` distinguishes several.
    pub fn client(&self, number: u64) -> Client {
        self.client_through(number, |transport| transport)
    }

    /// A client in a zone.
    pub fn client_in(&self, zone: &str, number: u64) -> Client {
        self.client_with(number, |transport| transport, zone)
    }

    /// The same with its requests going through what `wrap` makes of the transport.
    pub fn client_through(
        &self,
        number: u64,
        wrap: impl FnOnce(Arc<dyn Transport>) -> Arc<dyn Transport>,
    ) -> Client {
        self.client_with(number, wrap, "")
    }

    fn client_with(
        &self,
        number: u64,
        wrap: impl FnOnce(Arc<dyn Transport>) -> Arc<dyn Transport>,
        zone: &str,
    ) -> Client {
        let options = Options {
            background: false,
            seed: self.shared.options.seed.wrapping_add(number) | 1,
            name: format!("client {number}"),
            zone: zone.to_owned(),
            dirty_bytes_per_file_max: 256 << 10,
            read_ahead_bytes_max: 512 << 10,
            ..Options::default()
        };
        let Shared { network, transport, clock, clocks, .. } = &*self.shared;
        let machine = Machine::Client(number);
        let transport = wrap(network.endpoint((machine, zone), transport, (clock, clocks.of(machine))));
        let transport: Arc<dyn Transport> = match self.shared.defect.get() {
            Some(Defect::UnnumberedChanges) => Arc::new(Unnumbered(transport)),
            Some(Defect::SwallowedWrites) => Arc::new(Swallowing::new(transport)),
            Some(Defect::FinalAnswers) => Arc::new(Final(transport)),
            Some(Defect::UnsyncedServer) => {
                Arc::new(WithoutOne { inner: transport, address: data_address(0) })
            }
            Some(Defect::EarlyAnswers) => Arc::new(Early(transport)),
            Some(_) | None => transport,
        };
        Client::open(transport, vec![META.to_owned()], options).expect("a cluster that is up takes a client")
    }

    /// The cluster's time.
    pub fn clock(&self) -> &SimClock {
        &self.shared.clock
    }

    /// The clock of one of its machines.
    pub fn clock_of(&self, machine: Machine) -> Arc<MachineClock> {
        self.shared.clocks.of(machine)
    }

    /// From now on each clock, also those of clients to come, has a rate of its own within 1% of the true one.
    pub fn let_clocks_drift(&self) {
        self.shared.clocks.drift();
    }

    /// A server's machine stands still for so long: it answers nothing, asks nothing, and some of its clocks stop.
    pub fn pause(&self, number: usize, pause: Pause, duration: Duration) {
        let machine = Machine::Server(number);
        self.shared.network.cut_off(machine, duration, self.shared.clock.now_ns());
        self.shared.clocks.of(machine).pause(pause, duration);
    }

    /// The transport, for requests of one's own.
    pub fn transport(&self) -> &InlineTransport {
        &self.shared.transport
    }

    /// Changes how often requests go wrong.
    pub fn set_weather(&self, weather: Weather) {
        self.shared.network.set_weather(weather);
    }

    /// The transport of a server's machine, for requests to other machines over its links.
    pub fn endpoint(&self, number: usize) -> Arc<Endpoint> {
        Arc::clone(&self.shared.endpoints[number])
    }

    /// The transport of a client's machine, for requests without a client.
    pub fn endpoint_of_client(&self, number: u64) -> Arc<Endpoint> {
        let Shared { network, transport, clock, clocks, .. } = &*self.shared;
        let machine = Machine::Client(number);
        network.endpoint((machine, ""), transport, (clock, clocks.of(machine)))
    }

    /// Cuts a link between two machines.
    pub fn cut(&self, cut: Cut) {
        self.shared.network.cut(cut, self.shared.clock.now_ns());
    }

    /// Cuts the line between the first zone, and the other zones with the metadata service, for so long.
    pub fn cut_line(&self, duration: Duration) {
        let zone = self.shared.zones.first().expect("a cluster of zones");
        self.shared.network.cut_off_zone(zone, duration, self.shared.clock.now_ns());
    }

    /// Whether any link is cut at the moment.
    pub fn is_cut(&self) -> bool {
        self.shared.network.is_cut(self.shared.clock.now_ns())
    }

    /// Ends the daemon on machine `number` (0: metadata, then data servers); it is started again a while later.
    pub fn end(&self, number: usize, end: End) {
        let address = self.shared.world().machines[number].address.clone();
        self.shared.end(&address, end);
    }

    /// From now on daemons start in steps, with some time between them.
    pub fn start_in_steps(&self) {
        let mut world = self.shared.world();
        world.is_stepwise = true;
        for (number, machine) in world.machines.iter_mut().enumerate() {
            machine.steps_done = machine.steps(number).len();
        }
    }

    /// The steps of the start of machine `number`'s daemon.
    pub fn steps_of(&self, number: usize) -> &'static [Step] {
        self.shared.world().machines[number].steps(number)
    }

    /// The daemon of machine `number` ends once more when so many steps of its next start are done.
    pub fn end_after(&self, number: usize, steps: usize) {
        self.shared.world().end_at = Some((number, steps));
    }

    /// True when every daemon has taken all steps of its start.
    pub fn is_up(&self) -> bool {
        let world = self.shared.world();
        let mut machines = world.machines.iter().enumerate();
        machines.all(|(number, machine)| machine.steps_done == machine.steps(number).len())
    }

    /// Since when a late disk is served again; 0 without one, `u64::MAX` while it is not.
    pub fn disks_back_ns(&self) -> u64 {
        self.shared.disks_back_ns()
    }

    /// Puts another disk into machine `number`, whose daemon is killed first and started again on it. Returns the one
    /// that was there.
    pub fn replace_disk(&self, number: usize, disk: MemoryDisk) -> MemoryDisk {
        self.end(number, End::Kill);
        let mut world = self.shared.world();
        let now = &mut world.machines[number].disk;
        if self.shared.defect.get() == Some(&Defect::OldDisks) {
            crate::defects::pass_for(&disk, now).expect("disks in memory");
        }
        std::mem::replace(now, disk)
    }

    /// A second data server on a copy of the disk of machine `number`, at an address of its own, as process `run`.
    pub fn copy_of(&self, number: usize, address: &str, run: u64) -> Arc<DataService> {
        let disk = self.disk(number).image().expect("a disk in memory can be copied");
        let address_of_copy = address.to_owned();
        let (late_disk, daemon, starts_at_ns, steps_done) = (None, None, 0, 0);
        let machine = Host { address: address_of_copy, disk, late_disk, daemon, starts_at_ns, steps_done };
        let service = self.shared.start_data(&machine, number, run);
        let clock = self.clock_of(Machine::Server(number));
        self.shared
            .transport
            .serve(address, Arc::new(OnMachine { service: Arc::clone(&service) as _, clock }));
        service
    }

    /// Has a data server report over the links of machine `number`, as the cluster's own do; what came of it.
    pub fn report(&self, number: usize, service: &DataService) -> Result<(), Fault> {
        self.shared.report(number, service)
    }

    /// The disk of machine `number`.
    pub fn disk(&self, number: usize) -> MemoryDisk {
        self.shared.world().machines[number].disk.clone()
    }

    /// The daemons that ended since this was last asked.
    pub fn take_ends(&self) -> Vec<(usize, End)> {
        self.shared.end_those_due();
        let mut world = self.shared.world();
        let ends = std::mem::take(&mut world.ends);
        let number = |address: &str| world.machines.iter().position(|m| m.address == address);
        ends.iter().filter_map(|(address, end)| Some((number(address)?, *end))).collect()
    }

    /// Fair weather, everything up, and time for everything that waits to be done.
    pub fn heal(&self) {
        self.set_weather(Weather::default());
        self.shared.network.mend();
        self.shared.clocks.go_on();
        self.shared.end_those_due();
        let wait = Duration::from_millis(self.shared.options.down_ms_max + 2 * u64::from(HEARTBEAT_MS));
        self.shared.clock.sleep(wait);
        self.shared.transport.deliver_late();
    }

    /// The metadata service, if it is up.
    pub fn meta(&self) -> Option<Arc<MetaService>> {
        self.shared.meta()
    }

    /// What the members on each machine that runs believe of their groups.
    pub fn memberships(&self) -> BTreeMap<usize, Vec<MemberView>> {
        let servers = self.shared.running_data_servers();
        servers.map(|(number, service)| (number, service.memberships())).collect()
    }

    /// The number of the machine that serves at an address.
    pub(crate) fn machine_at(&self, address: &str) -> usize {
        let world = self.shared.world();
        world.machines.iter().position(|machine| machine.address == address).expect("a server's address")
    }

    /// Number of machines, the metadata service's included.
    pub fn machine_count(&self) -> usize {
        self.shared.options.data_servers + 1
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.clock.set_work(None);
        self.shared.transport.set_idle(None);
        self.shared.transport.set_fates(None);
        // A server reaches the others through what serves it.
        let world = self.shared.world();
        world.machines.iter().for_each(|machine| self.shared.transport.stop(&machine.address));
    }
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    /// Everything that happens by itself.
    fn work(&self) {
        self.end_those_due();
        self.start_due();
        let now_ns = self.clock.now_ns();
        let (is_tick, is_beat) = {
            let mut world = self.world();
            let is_tick = now_ns - world.ticked_ns >= TICK_NS;
            let is_beat = now_ns - world.beaten_ns >= HEARTBEAT_NS;
            world.ticked_ns = if is_tick { now_ns } else { world.ticked_ns };
            world.beaten_ns = if is_beat { now_ns } else { world.beaten_ns };
            (is_tick, is_beat)
        };
        if is_tick {
            self.tick();
        }
        let must_report = |(_, service): &(usize, Arc<DataService>)| is_beat || service.must_report();
        let reporting = self.running_data_servers().filter(must_report);
        reporting.for_each(|(number, service)| self.beat_one(number, &service));
        self.keep_alive();
    }

    /// Has data servers ask one another for leases, and the metadata service decide on what they report.
    fn keep_alive(&self) {
        let servers: Vec<_> = self.running_data_servers().collect();
        let mut all = self.peers.lock();
        for (number, service) in servers {
            let (process, peers) = all.entry(number).or_default();
            if !std::ptr::eq(process.as_ptr(), &*service) {
                (*process, *peers) = (Arc::downgrade(&service), Peers::default());
            }
            peers.turn(&service, &*self.transport_of(number), META);
        }
        if let Some(meta) = self.meta().filter(|_| !self.stands_still(0)) {
            meta.settle_reports(Duration::ZERO);
        }
        if self.defect.get() == Some(&Defect::LastPutOut) {
            self.put_last_out();
        }
    }

    /// Has the metadata service do by itself what an operator alone may: calls the only current member of a group lost,
    /// which is done once that has been silent for a while.
    fn put_last_out(&self) {
        let Some(meta) = self.meta() else { return };
        let is_last = |member: &MemberView| {
            let record = meta.record_of_group(member.group);
            record.is_some_and(|record| record.current().all(|other| other.target == member.target))
        };
        for (_, service) in self.data_servers().iter().filter(|(number, _)| self.stands_still(*number)) {
            let node = service.node().map_or(0, |node| node.0);
            for member in service.memberships().iter().filter(|member| is_last(member)) {
                let (target, uuid, directory) = (member.target.0, vec![1; 16], "/empty".to_owned());
                let lose_last_copies = true;
                let request = proto::ReplaceTargetRequest { target, node, uuid, directory, lose_last_copies };
                drop(submit::<ReplaceTarget>(&*self.transport, META, &request, &[], u64::MAX));
            }
        }
    }

    fn end_those_due(&self) {
        for (address, end) in self.network.take_ends() {
            self.end(&address, end);
        }
    }

    fn end(&self, address: &str, end: End) {
        let mut world = self.world();
        let down_ms = world.random.random_range(0..=self.options.down_ms_max);
        let starts_at_ns = self.clock.now_ns() + down_ms * 1_000_000;
        let Some(machine) = world.machines.iter_mut().find(|m| m.address == address) else { return };
        if machine.daemon.take().is_none() {
            return;
        }
        self.transport.stop(address);
        let late_disk = machine.late_disk.as_ref().map(|late| &late.disk);
        for disk in std::iter::once(&machine.disk).chain(late_disk) {
            match end {
                End::Kill => disk.kill(),
                End::PowerLoss => disk.crash(),
            }
        }
        machine.steps_done = 0;
        machine.starts_at_ns = starts_at_ns;
        world.ends.push((address.to_owned(), end));
    }

    fn start_due(&self) {
        if self.world().is_stepwise {
            return self.take_steps();
        }
        let now_ns = self.clock.now_ns();
        let count = self.world().machines.len();
        for number in 0..count {
            let is_due = {
                let mut world = self.world();
                // Counted for all: by this number a process has its seed.
                world.starts += 1;
                let machine = &world.machines[number];
                machine.daemon.is_none() && machine.starts_at_ns <= now_ns && !self.stands_still(number)
            };
            if is_due && let Some(data) = self.open(number) {
                self.beat_one(number, &data);
            }
        }
    }

    /// Opens the service of machine `number` and serves it; returns a data server's.
    fn open(&self, number: usize) -> Option<Arc<DataService>> {
        let mut world = self.world();
        let run = world.starts;
        let seed = self.options.seed.wrapping_mul(1_000_003).wrapping_add(run);
        let machine = &mut world.machines[number];
        if number == 0 {
            let meta = self.start_meta(machine, seed, run);
            let clock = self.clocks.of(Machine::Server(0));
            let served: Arc<dyn Service> = match self.defect.get() {
                Some(Defect::EarlyDecisions) => Arc::new(Hasty::new(Arc::clone(&meta), clock)),
                _ => Arc::clone(&meta) as _,
            };
            self.serve(number, &machine.address, served);
            machine.daemon = Some(Daemon::Meta(meta));
            return None;
        }
        let data = self.start_data(machine, number, run);
        let served: Arc<dyn Service> = match self.defect.get() {
            Some(defect) => Arc::new(Receiving::new(Arc::clone(&data), *defect)),
            None => Arc::clone(&data) as _,
        };
        self.serve(number, &machine.address, served);
        machine.daemon = Some(Daemon::Data(Arc::clone(&data)));
        Some(data)
    }

    /// Serves at the address of machine `number`.
    fn serve(&self, number: usize, address: &str, service: Arc<dyn Service>) {
        let clock = self.clocks.of(Machine::Server(number));
        self.transport.serve(address, Arc::new(OnMachine { service, clock }));
    }

    fn start_meta(&self, machine: &Host, seed: u64, run: u64) -> Arc<MetaService> {
        let options = MetaOptions {
            address: machine.address.clone(),
            background: Background::Manual,
            seed: Some(seed),
            run,
            overlay_bytes_max: 64 << 10,
            cache_bytes: 1 << 20,
            orphan_grace_ms: crate::orphan_objects::GRACE_MS,
            ..MetaOptions::default()
        };
        let clock = self.clocks.of(Machine::Server(0)) as Arc<dyn Clock>;
        MetaService::open(Arc::new(machine.disk.boot()), options, clock)
            .expect("the volume opens after any end")
    }

    fn start_data(&self, machine: &Host, number: usize, run: u64) -> Arc<DataService> {
        let defect = match self.defect.get() {
            Some(Defect::Inside(defect)) => Some(*defect),
            _ => None,
        };
        let mut options = vazao_store::Options {
            defect,
            name: format!("n{number}"),
            zone: zone_of(number, &self.zones).to_owned(),
            address: machine.address.clone(),
            inline: true,
            reserve_bytes: Some(0),
            run,
            // All run on this machine, and stand for several.
            host: number as u64,
            ..vazao_store::Options::default()
        };
        let mut disks = vec![(Arc::new(machine.disk.boot()) as _, format!("/disk{number}"))];
        machine.give_late_disk(number, &mut disks, &mut options);
        let clock = self.clocks.of(Machine::Server(number)) as Arc<dyn Clock>;
        let service = DataService::open(disks, options, clock).expect("the target opens after any end");
        service.set_transport(self.transport_of(number));
        service
    }

    /// What a server sends through, with what is wrong with that.
    fn transport_of(&self, number: usize) -> Arc<dyn Transport> {
        let inner = Arc::clone(&self.endpoints[number]) as Arc<dyn Transport>;
        match (self.defect.get(), number.checked_sub(1)) {
            (Some(&defect), Some(index)) => Arc::new(Sending { inner, own: data_address(index), defect }),
            _ => inner,
        }
    }

    fn meta(&self) -> Option<Arc<MetaService>> {
        match &self.world().machines.first()?.daemon {
            Some(Daemon::Meta(service)) => Some(Arc::clone(service)),
            _ => None,
        }
    }

    /// The data servers that are up, with the numbers of their machines.
    fn data_servers(&self) -> Vec<(usize, Arc<DataService>)> {
        let world = self.world();
        let servers =
            world.machines.iter().enumerate().filter_map(|(number, machine)| match &machine.daemon {
                Some(Daemon::Data(service)) => Some((number, Arc::clone(service))),
                _ => None,
            });
        servers.collect()
    }

    fn running_data_servers(&self) -> impl Iterator<Item = (usize, Arc<DataService>)> {
        self.data_servers().into_iter().filter(|(number, _)| !self.stands_still(*number))
    }

    /// Whether the machine stands still.
    fn stands_still(&self, number: usize) -> bool {
        self.clocks.of(Machine::Server(number)).stands_still()
    }

    fn tick(&self) {
        if let Some(meta) = self.meta().filter(|_| !self.stands_still(0)) {
            meta.tick(&*self.endpoints[0]);
        }
        self.running_data_servers().for_each(|(_, service)| service.tick());
    }

    fn beat(&self) {
        self.running_data_servers().for_each(|(number, service)| self.beat_one(number, &service));
    }

    /// A heartbeat that fails is followed by the next one.
    fn beat_one(&self, number: usize, service: &DataService) {
        let _ = self.report(number, service);
    }

    /// Reports; asks for it whether the process is gone that had its identity before, as often as that is the answer.
    fn report(&self, number: usize, service: &DataService) -> Result<(), Fault> {
        for _ in 0..QUESTIONS_MAX {
            let deadline_ns = self.endpoints[number].clock().now_ns() + HEARTBEAT_NS;
            let spoil = |request: &mut _| self.spoil(request);
            match service.heartbeat_with(&*self.endpoints[number], META, deadline_ns, &spoil) {
                Err(fault) if fault.code == Code::Unavailable => self.settle_claims(),
                reported => return reported.map(|_| ()),
            }
        }
        Err(Code::Unavailable.into())
    }

    fn settle_claims(&self) {
        if let Some(meta) = self.meta() {
            meta.settle_claims(&*self.endpoints[0], Duration::ZERO);
        }
    }

    /// Lets the metadata service finish what waits for its log.
    fn flush_meta(&self) {
        if let Some(meta) = self.meta() {
            // A failure comes out of the request that waits for it.
            let _ = vazao_wire::service::Service::flush(&*meta);
        }
    }
}
