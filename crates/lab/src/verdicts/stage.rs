//! A cluster on hosts of its own, one thing of it made slow, data moved through it, and what was said about that.

use super::cases::{Case, Door, Load, Throttle};
use crate::experiment::Lab;
use crate::experiment::testbed::{DiskPlan, Plan, Testbed};
use crate::hosts::{BitsPerSecond, CpuLimit, Delay};
use crate::{Error, child};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vazao_client::overview::Overview;
use vazao_meter::Change;
use vazao_meter::bottleneck::{Resource, Verdict};

/// What a slow disk moves, as the disks of the published experiments.
const SLOW_DISK: u64 = 28_000_000;
/// What a disk moves that is not to be the limit.
const FREE_DISK: u64 = 4_000_000_000;
const DISK_BYTES: u64 = 4 << 30;
const SLOW_LINK_MEGABITS: u64 = 100;
const DELAY_ONE_WAY: Duration = Duration::from_millis(20);
/// Small files of a create load.
const SMALL_FILES: usize = 400;
/// A look at the reports of clients each second, while a mount is watched.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks after the load has ended: the last report is up to two seconds late.
const LOOKS_AFTER: u32 = 6;
const SEEN_WITHIN: Duration = Duration::from_secs(20);

/// Before and after the load the program is what limits, and surely so.
fn names_a_limit(verdict: &Verdict) -> bool {
    !matches!(verdict.resource, Resource::Caller | Resource::Idle | Resource::Unknown)
}

/// The cluster.
pub(super) struct Stage<'a> {
    bed: Testbed<'a>,
    lab: &'a Lab,
    servers: usize,
}

impl<'a> Stage<'a> {
    /// A cluster with so many data servers, nothing of it slow.
    pub(super) fn new(lab: &'a Lab, servers: usize) -> Result<Stage<'a>, Error> {
        let disk = Some(DiskPlan { size_bytes: DISK_BYTES, bytes_per_second: FREE_DISK });
        let plan = Plan { data_servers: servers, clients: 1, disk, ..Plan::default() };
        Ok(Stage { bed: Testbed::new(lab, &plan)?, lab, servers })
    }

    pub(super) fn servers(&self) -> usize {
        self.servers
    }

    /// Makes slow what the case says, runs its load, lifts it again.
    pub(super) fn play(&mut self, case: &Case) -> Result<Verdict, Error> {
        let mut limits = Vec::new();
        let throttled = case.throttles.iter().try_for_each(|it| self.throttle(it, true, &mut limits));
        let played = throttled.and_then(|()| match (case.door, case.load) {
            (Door::Library, Load::Create) => self.create(),
            (Door::Library, _) => self.psplit(case, "vz:/").map(|(verdict, _)| verdict),
            (Door::Mount, _) => self.mounted(case),
        });
        let lifted = case.throttles.iter().try_for_each(|it| self.throttle(it, false, &mut limits));
        drop(limits);
        let verdict = played?;
        lifted.map(|()| verdict)
    }

    fn throttle(&mut self, throttle: &Throttle, on: bool, limits: &mut Vec<CpuLimit>) -> Result<(), Error> {
        match throttle {
            Throttle::Disk(which) => {
                let rate = if on { SLOW_DISK } else { FREE_DISK };
                let disks = which.map_or(0..self.servers, |number| number - 1..number);
                disks.into_iter().try_for_each(|disk| self.bed.set_disk_rate(disk, rate))
            }
            Throttle::Link(host) => {
                let rate = on.then(|| BitsPerSecond::mega(SLOW_LINK_MEGABITS));
                Ok(self.bed.host_named(host)?.set_rate(rate)?)
            }
            Throttle::Delay => {
                let delay = Delay::one_way(if on { DELAY_ONE_WAY } else { Duration::ZERO });
                // A busy machine keeps time at the second or third try.
                let host = self.bed.host_named("client1")?;
                let again = |_| host.set_delay(delay);
                Ok(host.set_delay(delay).or_else(again).or_else(again)?)
            }
            Throttle::Cpu(daemon, processors) if on => {
                let limit = CpuLimit::new(*processors)?;
                limit.attach(self.bed.process(daemon)?)?;
                limits.push(limit);
                Ok(())
            }
            // That of a daemon is lifted with its value; the client is bounded when it starts.
            Throttle::Cpu(..) | Throttle::ClientCpu(_) => Ok(()),
        }
    }

    /// Bytes that take some seconds at the case's rate.
    fn total_bytes(&self, case: &Case) -> u64 {
        let mib = |mebibytes: u64| mebibytes << 20;
        match case.throttles.first() {
            None => mib(512),
            Some(Throttle::Disk(None)) => mib(96 * self.servers as u64),
            Some(Throttle::Disk(_)) => mib(96 + 32 * (self.servers as u64 - 1)),
            Some(Throttle::Link(_) | Throttle::Delay) => mib(48),
            Some(Throttle::Cpu(..)) => mib(256),
            // Its threads wait for one another's turn: at 25 MB/s as a rule, and at 1 MB/s where the machine is slow to
            // switch between them.
            Some(Throttle::ClientCpu(_)) => mib(64),
        }
    }

    /// psplit on the client's host; the verdict it printed and how long it took.
    fn psplit(&self, case: &Case, place: &str) -> Result<(Verdict, f64), Error> {
        let (mode, threads) = match case.load {
            Load::Read(threads) => ("read", threads),
            Load::Write(threads) => ("generate", threads),
            Load::Create => return Err(Error::Failed("psplit makes no small files".to_owned())),
        };
        let mut command = self.bed.vazao(0)?;
        command.args(["lab", "psplit", mode, place, "--repeat", "1", "--verify", "off", "--block", "256K"]);
        command.args(["--threads", &threads.to_string(), "--total", &self.total_bytes(case).to_string()]);
        command.args(["--json", "-"]);
        if mode == "generate" {
            command.arg("--sync");
        } else if matches!(case.throttles.first(), Some(Throttle::Disk(_))) {
            command.arg("--drop-caches");
        }
        let text = self.run(case, command)?;
        let parsed: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| Error::Failed(format!("{}: what psplit printed: {error}", case.name)))?;
        let run = &parsed["runs"][0];
        let verdict = serde_json::from_value(run["verdict"].clone())
            .map_err(|error| Error::Failed(format!("{}: psplit's verdict: {error}", case.name)))?;
        Ok((verdict, run["seconds"].as_f64().unwrap_or(0.0)))
    }

    /// Runs a command of the client's to its end, its CPU bounded where the case wants that.
    fn run(&self, case: &Case, mut command: Command) -> Result<String, Error> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(Error::at(&case.name))?;
        let bounds = case.throttles.iter().filter_map(|throttle| match throttle {
            Throttle::ClientCpu(processors) => Some(*processors),
            _ => None,
        });
        let mut limits = Vec::new();
        for processors in bounds {
            let limit = CpuLimit::new(processors)?;
            limit.attach(child.id())?;
            limits.push(limit);
        }
        let output = child::output(child, &case.name, &self.lab.stop)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("nothing");
            return Err(Error::Failed(format!("{}: {}: {last}", case.name, output.status)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Copies many small files in, which is work of the metadata service.
    fn create(&self) -> Result<Verdict, Error> {
        let from = self.bed.directory().join("small");
        fs::create_dir_all(&from).map_err(Error::at(from.display()))?;
        for number in 0..SMALL_FILES {
            let file = from.join(format!("file-{number}"));
            fs::write(&file, [7; 100]).map_err(Error::at(file.display()))?;
        }
        let to = format!("vz:/small-{:x}", self.lab.clock.now_ns());
        let mut command = self.bed.vazao(0)?;
        command.args(["cp", "-r", "--json"]).arg(&from).arg(&to);
        let text = self.lab.text_of(&mut command)?;
        let parsed: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| Error::Failed(format!("cp: {error}")))?;
        serde_json::from_value(parsed["limit"].clone())
            .map_err(|error| Error::Failed(format!("cp's verdict: {error}")))
    }

    /// The same through a mount, whose process reports to the metadata service.
    fn mounted(&self, case: &Case) -> Result<Verdict, Error> {
        let directory = self.bed.directory().join("mount");
        fs::create_dir_all(&directory).map_err(Error::at(directory.display()))?;
        let name = directory.display().to_string();
        let mut mount = self.bed.vazao(0)?;
        mount.arg("mount").arg("--log-file").arg(self.bed.directory().join("mount.log"));
        self.lab.text_of(mount.arg("vz:/").arg(&directory))?;
        let (is_over, is_seen) = (AtomicBool::new(false), AtomicBool::new(false));
        let seen = std::thread::scope(|scope| {
            let watching = scope.spawn(|| self.watch(case.load, &name, &is_over, &is_seen));
            self.wait_for(&is_seen);
            let moved = self.psplit(case, &name);
            is_over.store(true, Ordering::Relaxed);
            let seen = watching.join();
            moved.map(|_| seen)
        });
        let unmounted = self.bed.unmount(0, &directory);
        let seen = seen?.map_err(|_| Error::Failed(format!("{}: the watcher panicked", case.name)))?;
        unmounted?;
        seen?.ok_or_else(|| Error::Failed(format!("{}: the mount has not reported", case.name)))
    }

    /// The mount reports with the renewals of its session; load begins once it does.
    fn wait_for(&self, is_seen: &AtomicBool) {
        let deadline_ns = self.lab.clock.now_ns() + SEEN_WITHIN.as_nanos() as u64;
        while !is_seen.load(Ordering::Relaxed) && self.lab.clock.now_ns() < deadline_ns {
            self.lab.clock.sleep(LOOK_EVERY);
        }
    }

    /// The verdict on the mount, the surest of those while data moved.
    fn watch(
        &self,
        load: Load,
        name: &str,
        is_over: &AtomicBool,
        is_seen: &AtomicBool,
    ) -> Result<Option<Verdict>, Error> {
        self.bed.with_client(0, |client| {
            let mut overview = Overview::default();
            let mut best: Option<Verdict> = None;
            let mut looks_left = LOOKS_AFTER;
            while looks_left > 0 {
                looks_left -= u32::from(is_over.load(Ordering::Relaxed));
                let shown = overview.look(client);
                let found = shown.into_iter().find(|shown| mountpoint(&shown.change.of.name) == name);
                is_seen.fetch_or(found.is_some(), Ordering::Relaxed);
                let found = found.filter(|found| names_a_limit(&found.verdict) && is_of(load, &found.change));
                if let Some(found) = found
                    && best.as_ref().is_none_or(|best| found.verdict.score > best.score)
                    && found.change.of.waits.busy_ns > 0
                {
                    best = Some(found.verdict);
                }
                self.lab.clock.sleep(LOOK_EVERY);
            }
            Ok(best)
        })
    }
}

/// What is read is written before, which is not what is judged.
fn is_of(load: Load, change: &Change) -> bool {
    let work = &change.of.work;
    match load {
        Load::Read(_) => work.read_bytes > work.written_bytes,
        Load::Write(_) => work.written_bytes > work.read_bytes,
        Load::Create => true,
    }
}

/// A mount is called `/mnt/v (ana@host)`.
fn mountpoint(name: &str) -> &str {
    name.split(" (").next().unwrap_or_default()
}
