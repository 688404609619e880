//! The machines of an experiment: a cluster of real daemons on hosts of a made network, with disks of a chosen rate,
//! and hosts for clients beside it.
//!
//! Load comes from other processes of this program on the client hosts (`vazao lab psplit …`), so that it crosses the
//! links like real traffic. Everything ends with the value: daemons by SIGTERM, hosts and disks by their ledger.
//! Daemons end by themselves when this process is killed.

use crate::experiment::Lab;
use crate::hosts::{BitsPerSecond, Delay, Host, Line, Network, SlowDisk};
use crate::place::Stop;
use crate::{Error, child};
use parking_lot::Mutex;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use vazao_client::{Client, Config};
use vazao_sampler::Watched;
use vazao_wire::key::ClusterKey;

/// What to make.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Data servers, each on a host of its own.
    pub data_servers: usize,
    /// Disks of each data server; none and one are the same.
    pub disks_per_server: usize,
    /// Hosts for clients.
    pub clients: usize,
    /// The disk of each data server and of each client; without it, a directory of this machine's disk.
    pub disk: Option<DiskPlan>,
    /// The rate of every host's link, each way.
    pub link: Option<BitsPerSecond>,
    /// Delay of every client's link, one way.
    pub delay: Option<Duration>,
    /// Whether the data servers export their disks as the area `disk` too.
    pub areas: bool,
    /// Delay of every data server's link but the first, one way.
    pub server_delay: Option<Duration>,
    /// Files that a node sends to one other at once; its own default without it.
    pub copies_pair_max: Option<usize>,
    /// Files that a node receives at once; its own default without it.
    pub copies_in_max: Option<usize>,
    /// Channels that a data server may have open; its own default without it.
    pub channels_max: Option<usize>,
    /// Files that a data server may have open (RLIMIT_NOFILE); the machine's without it.
    pub descriptors: Option<u64>,
    /// TCP's congestion control on all hosts; the machine's without it.
    pub congestion_control: Option<&'static str>,
    /// A second site, with the metadata service; without it, all hosts are beside one another.
    pub second_site: Option<SecondSite>,
}

/// A site beyond a line. Nodes and clients of the first one are in zone `a`, those of this one in zone `b`.
#[derive(Clone, Copy, Debug)]
pub struct SecondSite {
    /// The line's rate, each way.
    pub line: BitsPerSecond,
    /// Data servers that stay in the first site; those that follow are here.
    pub data_servers_before: usize,
    /// Clients that stay in the first site.
    pub clients_before: usize,
}

impl SecondSite {
    fn zone(self, number: usize, before: usize) -> &'static str {
        if number <= before { ZONES[0] } else { ZONES[1] }
    }
}

/// What the zones of two sites are called.
pub const ZONES: [&str; 2] = ["a", "b"];

/// A disk of a chosen rate.
#[derive(Clone, Copy, Debug)]
pub struct DiskPlan {
    /// Its size.
    pub size_bytes: u64,
    /// Reads and writes, each.
    pub bytes_per_second: u64,
}

/// How long a daemon may take to serve.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often one looks.
const POLL: Duration = Duration::from_millis(20);
/// How long a daemon may take to end by itself.
const END_WITHIN: Duration = Duration::from_secs(10);
/// A line that nothing waits for, while daemons start.
const UNHURRIED: BitsPerSecond = BitsPerSecond(1_000_000_000);
/// Ports on hosts of our own are all free.
const PORT: u16 = 7000;

/// What a plan became.
pub struct Testbed<'a> {
    lab: &'a Lab,
    // Daemons are killed and started again while threads put load on them.
    daemons: Mutex<Vec<Daemon>>,
    clients: Vec<Arc<Host>>,
    servers: Vec<Arc<Host>>,
    client_disks: Vec<PathBuf>,
    server_disks: Vec<PathBuf>,
    second_site: Option<SecondSite>,
    congestion_control: Option<&'static str>,
    line: Option<Arc<Line>>,
    // In this order: what lies on a disk is closed before the disk goes.
    network: Network,
    disks: Vec<SlowDisk>,
    directory: tempfile::TempDir,
}

struct Daemon {
    name: String,
    host: Arc<Host>,
    files_max: Option<u64>,
    child: Child,
}

impl<'a> Testbed<'a> {
    /// Makes it all and waits until every daemon serves.
    pub fn new(lab: &'a Lab, plan: &Plan) -> Result<Testbed<'a>, Error> {
        let directory = tempfile::Builder::new().prefix("vazao-lab-").tempdir_in(&lab.work);
        let directory = directory.map_err(Error::at(lab.work.display()))?;
        let mut bed = Testbed {
            lab,
            daemons: Mutex::default(),
            clients: Vec::new(),
            servers: Vec::new(),
            client_disks: Vec::new(),
            server_disks: Vec::new(),
            second_site: plan.second_site,
            congestion_control: plan.congestion_control,
            line: None,
            network: Network::new()?,
            disks: Vec::new(),
            directory,
        };
        bed.make(plan)?;
        Ok(bed)
    }

    fn make(&mut self, plan: &Plan) -> Result<(), Error> {
        let key = ClusterKey::generate().map_err(Error::at("making a key"))?;
        key.save(&self.path("cluster.key")).map_err(Error::at(self.path("cluster.key").display()))?;
        if plan.second_site.is_some() {
            self.line = Some(self.network.add_line(UNHURRIED)?);
        }
        let meta = self.add_host("meta1", 1, |_| 0)?;
        let meta_address = format!("{}:{PORT}", meta.address());
        self.write("client.toml", &format!("meta = [\"{meta_address}\"]\nkey_file = \"cluster.key\"\n"))?;
        let zone = plan.second_site.map_or(String::new(), |site| zone_line(site.zone(1, 0)));
        let line = plan.second_site.map_or(String::new(), |site| line_section(site.line));
        let rest = format!("{zone}roles = [\"meta\"]\n[meta]\ndirectory = \"meta\"\n{line}");
        self.daemon("meta1", &meta, &rest, None)?;
        self.wait_ready("meta1")?;
        for number in 1..=plan.data_servers {
            let name = format!("data{number}");
            let host = self.add_host(&name, number, |site| site.data_servers_before)?;
            let disks = (0..plan.disks_per_server.max(1)).map(|_| self.disk(plan, &name));
            let disks = disks.collect::<Result<Vec<_>, Error>>()?;
            let zone = plan
                .second_site
                .map_or(String::new(), |site| zone_line(site.zone(number, site.data_servers_before)));
            let rest = zone + &data_config(plan, &meta_address, &disks);
            self.daemon(&name, &host, &rest, plan.descriptors)?;
            self.servers.push(host);
            self.server_disks.extend(disks);
        }
        for number in 1..=plan.data_servers {
            self.wait_ready(&format!("data{number}"))?;
        }
        for number in 1..=plan.clients {
            let name = format!("client{number}");
            let host = self.add_host(&name, number, |site| site.clients_before)?;
            let disk = self.disk(plan, &name)?;
            self.client_disks.push(disk);
            self.clients.push(host);
        }
        // Only now: what starts over a slow link takes its time.
        if let Some(rate) = plan.link {
            self.network.hosts().iter().try_for_each(|host| host.set_rate(Some(rate)))?;
        }
        if let (Some(site), Some(line)) = (plan.second_site, &self.line) {
            line.set_rate(site.line)?;
        }
        if let Some(delay) = plan.server_delay {
            self.servers.iter().skip(1).try_for_each(|host| host.set_delay(Delay::one_way(delay)))?;
        }
        if let Some(delay) = plan.delay {
            self.clients.iter().try_for_each(|host| host.set_delay(Delay::one_way(delay)))?;
        }
        Ok(())
    }

    /// A host in its site; `before` says how many of its kind stay in the first one.
    fn add_host(
        &mut self,
        name: &str,
        number: usize,
        before: impl FnOnce(SecondSite) -> usize,
    ) -> Result<Arc<Host>, Error> {
        let host = match (&self.line, self.second_site) {
            (Some(line), Some(site)) if number > before(site) => {
                self.network.add_host_beyond(&line.clone(), name)?
            }
            _ => self.network.add_host(name)?,
        };
        if let Some(name) = self.congestion_control {
            host.set_congestion_control(name)?;
        }
        Ok(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        fs::write(self.path(name), text).map_err(Error::at(self.path(name).display()))
    }

    /// A disk of the plan's rate, or a directory.
    fn disk(&mut self, plan: &Plan, name: &str) -> Result<PathBuf, Error> {
        let Some(disk) = plan.disk else {
            let made =
                tempfile::Builder::new().prefix(&format!("disk-{name}-")).tempdir_in(self.directory.path());
            return made.map(tempfile::TempDir::keep).map_err(Error::at(self.directory.path().display()));
        };
        let made = SlowDisk::new(self.directory.path(), disk.size_bytes, disk.bytes_per_second)?;
        let path = made.path().to_owned();
        self.disks.push(made);
        Ok(path)
    }

    fn daemon(&self, name: &str, host: &Arc<Host>, rest: &str, files_max: Option<u64>) -> Result<(), Error> {
        let directory = self.path(name);
        fs::create_dir(&directory).map_err(Error::at(directory.display()))?;
        let address = host.address();
        let head =
            format!("name = \"{name}\"\nlisten = \"{address}:{PORT}\"\nkey_file = \"../cluster.key\"\n");
        self.write(&format!("{name}/node.toml"), &(head + rest))?;
        let child = self.spawn(name, host, files_max)?;
        self.daemons.lock().push(Daemon { name: name.to_owned(), host: host.clone(), files_max, child });
        Ok(())
    }

    fn spawn(&self, name: &str, host: &Host, files_max: Option<u64>) -> Result<Child, Error> {
        let directory = self.path(name);
        let log = fs::OpenOptions::new().create(true).append(true).open(directory.join("log"));
        let log = log.map_err(Error::at(directory.display()))?;
        let mut command = match files_max {
            Some(_) => host.command("prlimit"),
            None => host.command(&self.lab.program),
        };
        if let Some(files_max) = files_max {
            command.arg(format!("--nofile={files_max}:{files_max}")).arg(&self.lab.program);
        }
        let child = command
            .args(["serve", "--until-stdin-closes", "--config"])
            .arg(directory.join("node.toml"))
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(Error::at(directory.display()))?)
            .stderr(log)
            .spawn()
            .map_err(Error::at(self.lab.program.display()))?;
        for disk in &self.disks {
            disk.attach(child.id())?;
        }
        Ok(child)
    }

    /// Kills a daemon (SIGKILL): it closes nothing and says goodbye to no one. [`Testbed::start`] has it back.
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    pub fn kill(&self, name: &str) -> Result<(), Error> {
        let mut daemons = self.daemons.lock();
        let daemon = daemons.iter_mut().find(|daemon| daemon.name == name).ok_or_else(|| no_daemon(name))?;
        daemon.child.kill().map_err(Error::at(name))?;
        daemon.child.wait().map(drop).map_err(Error::at(name))
    }

    /// Starts a daemon again that was killed, with what is on its disks.
    pub fn start(&self, name: &str) -> Result<(), Error> {
        // Else the notice of the killed one would be taken for the new one's.
        match fs::remove_file(self.notice(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::at(name)(error)),
            _ => {}
        }
        let mut daemons = self.daemons.lock();
        let daemon = daemons.iter_mut().find(|daemon| daemon.name == name).ok_or_else(|| no_daemon(name))?;
        daemon.child = self.spawn(name, &daemon.host, daemon.files_max)?;
        drop(daemons);
        self.wait_ready(name)
    }

    fn notice(&self, name: &str) -> PathBuf {
        self.path(name).join("running.json")
    }

    /// A node tells that it serves by a file beside its configuration.
    fn wait_ready(&self, name: &str) -> Result<(), Error> {
        let notice = self.notice(name);
        let clock = self.lab.clock.clone();
        let deadline_ns = clock.now_ns() + READY_WITHIN.as_nanos() as u64;
        while !notice.exists() {
            let mut daemons = self.daemons.lock();
            let daemon = daemons.iter_mut().find(|daemon| daemon.name == name);
            let ended = daemon.is_none_or(|daemon| !matches!(daemon.child.try_wait(), Ok(None)));
            drop(daemons);
            if ended || clock.now_ns() > deadline_ns {
                let log = fs::read_to_string(self.path(name).join("log")).unwrap_or_default();
                let said = log.lines().last().unwrap_or("nothing").to_owned();
                return Err(Error::Failed(format!("{name}: does not serve; it said: {said}")));
            }
            clock.sleep(POLL);
        }
        Ok(())
    }

    /// The hosts of the clients.
    pub fn clients(&self) -> &[Arc<Host>] {
        &self.clients
    }

    /// The hosts of the data servers.
    pub fn servers(&self) -> &[Arc<Host>] {
        &self.servers
    }

    /// The disks of the data servers, server by server.
    pub fn server_disks(&self) -> &[PathBuf] {
        &self.server_disks
    }

    /// The disk of each client.
    pub fn client_disks(&self) -> &[PathBuf] {
        &self.client_disks
    }

    /// Sets the rate of a data server's disk, counted over all of them, each way.
    pub fn set_disk_rate(&mut self, disk: usize, bytes_per_second: u64) -> Result<(), Error> {
        let missing = || Error::Failed(format!("disk {disk}: the plan has no such disk of a chosen rate"));
        Ok(self.disks.get_mut(disk).ok_or_else(missing)?.set_rate(bytes_per_second)?)
    }

    /// The line to the second site, where there is one.
    pub fn line(&self) -> Option<&Arc<Line>> {
        self.line.as_ref()
    }

    /// All hosts: the metadata service's, those of the data servers, those of the clients.
    pub fn hosts(&self) -> &[Arc<Host>] {
        self.network.hosts()
    }

    /// A host by its name: `meta1`, `data1`, `client1`, …
    pub fn host_named(&self, name: &str) -> Result<&Arc<Host>, Error> {
        let found = self.network.hosts().iter().find(|host| host.name() == name);
        found.ok_or_else(|| Error::Failed(format!("{name}: no such host")))
    }

    /// Who delays frames, in words.
    pub fn delay_by(&self) -> String {
        format!("{:?}", self.network.delay_by())
    }

    /// Where the clients' configuration is.
    pub fn client_file(&self) -> PathBuf {
        self.path("client.toml")
    }

    /// A directory for what else the experiment writes; on this machine's own disk.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The daemons, for records of their CPU.
    pub fn watched(&self) -> Vec<Watched> {
        let watched = |daemon: &Daemon| Watched { name: daemon.name.clone(), pid: Some(daemon.child.id()) };
        self.daemons.lock().iter().map(watched).collect()
    }

    /// The process of a daemon.
    pub fn process(&self, name: &str) -> Result<u32, Error> {
        let daemons = self.daemons.lock();
        let daemon = daemons.iter().find(|daemon| daemon.name == name);
        daemon.map(|daemon| daemon.child.id()).ok_or_else(|| no_daemon(name))
    }

    fn host(&self, client: usize) -> Result<&Arc<Host>, Error> {
        let count = self.clients.len();
        let missing = || Error::Failed(format!("client {client}: the plan has only {count}"));
        self.clients.get(client).ok_or_else(missing)
    }

    /// Runs `work` with a connected client on a client's host.
    pub fn with_client<T: Send>(
        &self,
        client: usize,
        work: impl FnOnce(&Client) -> vazao_client::Result<T> + Send,
    ) -> Result<T, Error> {
        self.lab.check()?;
        let file = self.client_file();
        let connected = || -> vazao_client::Result<T> {
            let client = Client::connect(&Config::load(&file)?)?;
            let result = work(&client)?;
            client.close()?;
            Ok(result)
        };
        self.host(client)?.inside(connected)?.map_err(|error| Error::Failed(error.to_string()))
    }

    /// Runs `work` with so many clients at once, each on a thread of a client's host. Returns the seconds from the
    /// first that was connected and began to the last that was done.
    pub fn with_clients(
        &self,
        host: usize,
        count: usize,
        work: impl Fn(usize, &Client) -> vazao_client::Result<()> + Sync,
    ) -> Result<f64, Error> {
        self.lab.check()?;
        let failed = |error: vazao_client::Error| Error::Failed(error.to_string());
        let config = Config::load(&self.client_file()).map_err(failed)?;
        let (host, clock) = (self.host(host)?, &self.lab.clock);
        let one = |number: usize| -> vazao_client::Result<(u64, u64)> {
            let client = Client::connect(&config)?;
            let start_ns = clock.now_ns();
            work(number, &client)?;
            let end_ns = clock.now_ns();
            client.close()?;
            Ok((start_ns, end_ns))
        };
        let one = &one;
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..count).map(|number| scope.spawn(move || host.inside(|| one(number)))).collect();
            for thread in threads {
                let ended =
                    thread.join().map_err(|_| Error::Failed("a client's thread panicked".to_owned()))?;
                let (start_ns, end_ns) = ended?.map_err(failed)?;
                (first_ns, last_ns) = (first_ns.min(start_ns), last_ns.max(end_ns));
            }
            Ok(last_ns.saturating_sub(first_ns) as f64 / 1e9)
        })
    }

    /// A command of this program on a client's host, for the cluster; an error after a request to stop.
    pub fn vazao(&self, client: usize) -> Result<Command, Error> {
        self.lab.check()?;
        self.program(client)
    }

    fn program(&self, client: usize) -> Result<Command, Error> {
        let mut command = self.host(client)?.command(&self.lab.program);
        command.arg("--cluster").arg(self.client_file()).stdin(Stdio::null());
        if let Some(site) = self.second_site {
            command.args(["--zone", site.zone(client + 1, site.clients_before)]);
        }
        Ok(command)
    }

    /// Unmounts on a client's host, also after a request to stop.
    pub fn unmount(&self, client: usize, directory: &Path) -> Result<(), Error> {
        child::text(self.program(client)?.arg("umount").arg(directory), &Stop::default()).map(drop)
    }
}

impl Drop for Testbed<'_> {
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    fn drop(&mut self) {
        let daemons = self.daemons.get_mut();
        for daemon in daemons.iter_mut() {
            // A closed standard input tells a daemon to end, as a signal would.
            drop(daemon.child.stdin.take());
        }
        let deadline_ns = self.lab.clock.now_ns() + END_WITHIN.as_nanos() as u64;
        for daemon in daemons.iter_mut() {
            while matches!(daemon.child.try_wait(), Ok(None)) {
                if self.lab.clock.now_ns() > deadline_ns {
                    let _ = daemon.child.kill();
                    let _ = daemon.child.wait();
                }
                self.lab.clock.sleep(POLL);
            }
        }
    }
}

fn no_daemon(name: &str) -> Error {
    Error::Failed(format!("{name}: no such daemon"))
}

fn zone_line(zone: &str) -> String {
    format!("zone = \"{zone}\"\n")
}

/// What the metadata service is told of the line between the sites.
fn line_section(rate: BitsPerSecond) -> String {
    let [a, b] = ZONES;
    format!("[[line]]\nzones = [\"{a}\", \"{b}\"]\nrate = \"{} kb/s\"\n", rate.0 / 1_000)
}

/// What a data server's configuration says beyond its name and address.
fn data_config(plan: &Plan, meta_address: &str, disks: &[PathBuf]) -> String {
    let targets: Vec<String> =
        disks.iter().map(|disk| format!("\"{}\"", disk.join("target").display())).collect();
    let channels = plan.channels_max.map_or(String::new(), |most| format!("channels_max = {most}\n"));
    let mut text = format!(
        "roles = [\"data\"]\nmetadata = [\"{meta_address}\"]\n{channels}[data]\ntargets = [{}]\nreserve = \"16MiB\"\n",
        targets.join(", ")
    );
    if let Some(pair) = plan.copies_pair_max {
        // What a node sends at all is not to be the limit either.
        text += &format!("[copy]\ncopies_pair_max = {pair}\ncopies_out_max = {pair}\n");
        text += &plan.copies_in_max.map_or(String::new(), |most| format!("copies_in_max = {most}\n"));
    }
    if let (true, Some(disk)) = (plan.areas, disks.first()) {
        text += &format!("[[area]]\nname = \"disk\"\npath = \"{}\"\n", disk.display());
    }
    text
}
