//! Records what the machine did while something ran: CPU by process and whole, disks, network, load, memory.
//!
//! Counters are read at both ends of a run and once a second in between, from `/proc` (proc(5)) and `/sys/class/net`.
//! It sees this machine only: what runs elsewhere is the business of that machine's own samples. A source that
//! is missing (a container without `/proc/diskstats`) gives an empty list, never an error: a measurement stays valid
//! without its explanation.

use crate::snapshot::{DiskCounters, NetworkCounters, ProcessSnapshot, Snapshot, link_bytes_per_s};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use vazao_client::Client;
use vazao_client::measure::Watch;
use vazao_meter::bottleneck::Verdict;
use vazao_meter::machine::{self, DiskWatches};
use vazao_meter::measures::{Cpu, Measures};
use vazao_meter::{Change, Clock};

/// Distance of the samples, as sysstat's in the GridFS experiments.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// A process to watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    /// What to call it: `client`, or its nodes' names.
    pub name: String,
    /// Its id; `None` is this process.
    pub pid: Option<u32>,
}

/// What one process did during a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// What it is called.
    pub name: String,
    /// Its id.
    pub pid: u32,
    /// CPU seconds in user mode.
    pub user_s: f64,
    /// CPU seconds in the kernel.
    pub system_s: f64,
    /// CPU seconds of its busiest thread among those that lived through the run.
    pub busiest_thread_s: f64,
    /// Resident memory at the end.
    pub resident_bytes: u64,
    /// Largest resident memory since it started.
    pub resident_peak_bytes: u64,
}

impl ProcessRecord {
    /// CPU seconds in both modes.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// What one disk did during a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Its name in `/sys/block`.
    pub name: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Seconds with at least one request under way.
    pub busy_s: f64,
}

/// What one network interface did during a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// What the link can carry each way, bytes a second, where the interface says so. Loopback has no such limit.
    pub link_bytes_per_s: Option<f64>,
}

/// One second of the machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the run began.
    pub at_s: f64,
    /// Cores busy on average since the last sample.
    pub busy_cores: f64,
    /// Cores used by each watched process since the last sample, in the order of the record's processes.
    pub process_cores: Vec<f64>,
    /// Bytes a second read from all disks.
    pub disk_read_bytes_per_s: f64,
    /// Bytes a second written to all disks.
    pub disk_written_bytes_per_s: f64,
    /// Bytes a second received on all interfaces.
    pub received_bytes_per_s: f64,
    /// Bytes a second sent on all interfaces.
    pub sent_bytes_per_s: f64,
    /// Load average over a minute.
    pub load: f64,
    /// Memory that could be had without swapping.
    pub available_bytes: u64,
}

/// What the machine did during one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Length of the run.
    pub seconds: f64,
    /// Cores of the machine.
    pub cores: usize,
    /// CPU seconds spent on anything, by anyone.
    pub machine_busy_s: f64,
    /// CPU seconds idle while a disk was waited for.
    pub machine_waiting_s: f64,
    /// The watched processes.
    pub processes: Vec<ProcessRecord>,
    /// Disks that moved anything.
    pub disks: Vec<DiskRecord>,
    /// Interfaces that moved anything.
    pub network: Vec<NetworkRecord>,
    /// Once a second.
    pub samples: Vec<Sample>,
    /// What limited.
    pub verdict: Verdict,
    /// What the verdict rests on: this process first, then the servers.
    pub changes: Vec<Change>,
}

/// Watches the machine and some of its processes.
pub struct Recorder {
    clock: Arc<dyn Clock>,
    watched: Vec<Watched>,
    client: Option<Client>,
    disks: Option<Arc<DiskWatches>>,
}

impl Recorder {
    /// A recorder of this process, called `client`, and of `servers`.
    pub fn new(clock: Arc<dyn Clock>, servers: Vec<Watched>) -> Recorder {
        let own = Watched { name: "client".to_owned(), pid: None };
        let others = servers.into_iter().filter(|s| s.pid != Some(std::process::id()));
        let watched = std::iter::once(own).chain(others).collect();
        Recorder { clock, watched, client: None, disks: None }
    }

    /// A recorder of the same processes, for work that `client` does, or this process by itself on `disks`.
    pub fn of(&self, client: Option<&Client>, disks: Option<Arc<DiskWatches>>) -> Recorder {
        Recorder {
            clock: Arc::clone(&self.clock),
            watched: self.watched.clone(),
            client: client.cloned(),
            disks,
        }
    }

    /// Runs `work` and records what happened meanwhile.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> (T, Record) {
        let stop = (Mutex::new(false), Condvar::new());
        let watch = Watch::begin(self.client.as_ref(), self.disks.clone(), Arc::clone(&self.clock));
        let first = self.snapshot();
        let start_ns = first.at_ns;
        std::thread::scope(|scope| {
            let sampling = scope.spawn(|| self.sample_until(&stop, start_ns));
            let result = work();
            let last = self.snapshot();
            *stop.0.lock() = true;
            stop.1.notify_all();
            let between = sampling.join().unwrap_or_default();
            let all: Vec<Snapshot> = std::iter::once(first).chain(between).chain([last]).collect();
            let record = self.record(&all);
            let seen = watch.seen_beside(&beside(&record));
            let changes = std::iter::once(seen.observer).chain(seen.servers).collect();
            (result, Record { verdict: seen.verdict, changes, ..record })
        })
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::take(self.clock.now_ns(), &self.watched)
    }

    fn sample_until(&self, stop: &(Mutex<bool>, Condvar), start_ns: u64) -> Vec<Snapshot> {
        let mut snapshots = Vec::new();
        let mut stopped = stop.0.lock();
        while !*stopped {
            let next_ns = start_ns + SAMPLE_EVERY.as_nanos() as u64 * (snapshots.len() as u64 + 1);
            let left = Duration::from_nanos(next_ns.saturating_sub(self.clock.now_ns()));
            stop.1.wait_for(&mut stopped, left);
            if !*stopped && self.clock.now_ns() >= next_ns {
                snapshots.push(self.snapshot());
            }
        }
        snapshots
    }

    fn record(&self, snapshots: &[Snapshot]) -> Record {
        let (Some(first), Some(last)) = (snapshots.first(), snapshots.last()) else {
            return Record::default();
        };
        Record {
            seconds: seconds_between(first, last),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            machine_busy_s: last.machine.busy_s - first.machine.busy_s,
            machine_waiting_s: last.machine.waiting_s - first.machine.waiting_s,
            processes: self.process_records(first, last),
            disks: disk_records(first, last),
            network: network_records(first, last),
            verdict: Verdict::default(),
            changes: Vec::new(),
            samples: snapshots.windows(2).map(|pair| sample(first, &pair[0], &pair[1])).collect(),
        }
    }

    fn process_records(&self, first: &Snapshot, last: &Snapshot) -> Vec<ProcessRecord> {
        let both = first.processes.iter().zip(&last.processes);
        let record = |(watched, (before, after)): (&Watched, (&ProcessSnapshot, &ProcessSnapshot))| {
            let grown =
                |thread: &u32, cpu_s: &f64| cpu_s - before.threads_cpu_s.get(thread).copied().unwrap_or(0.0);
            ProcessRecord {
                name: watched.name.clone(),
                pid: watched.pid.unwrap_or_else(std::process::id),
                user_s: (after.used.user_s - before.used.user_s).max(0.0),
                system_s: (after.used.system_s - before.used.system_s).max(0.0),
                busiest_thread_s: after.threads_cpu_s.iter().map(|(t, s)| grown(t, s)).fold(0.0, f64::max),
                resident_bytes: after.used.resident_bytes,
                resident_peak_bytes: after.used.resident_peak_bytes,
            }
        };
        self.watched.iter().zip(both).map(record).collect()
    }
}

/// The watched processes but this one, as far as judging a full machine goes: a process that works through a mount or
/// with files of this machine asks no server, and it is still ours that keep the processors busy.
fn beside(record: &Record) -> Vec<Change> {
    let own = std::process::id();
    let others = record.processes.iter().filter(|process| process.pid != own);
    let change = |process: &ProcessRecord| {
        let used_ns = (process.cpu_s() * 1e9) as u64;
        let cpu = Cpu { used_ns, ..Cpu::default() };
        let (name, machine) = (process.name.clone(), machine::id());
        Change { seconds: record.seconds, of: Measures { name, machine, cpu, ..Measures::default() } }
    };
    others.map(change).collect()
}

fn seconds_between(first: &Snapshot, last: &Snapshot) -> f64 {
    last.at_ns.saturating_sub(first.at_ns) as f64 / 1e9
}

fn disk_records(first: &Snapshot, last: &Snapshot) -> Vec<DiskRecord> {
    let record = |(name, after): (&String, &DiskCounters)| {
        let before = first.disks.get(name).copied().unwrap_or_default();
        DiskRecord {
            name: name.clone(),
            read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
            busy_s: after.busy_ms.saturating_sub(before.busy_ms) as f64 / 1e3,
        }
    };
    last.disks.iter().map(record).filter(|disk| disk.read_bytes + disk.written_bytes > 0).collect()
}

fn network_records(first: &Snapshot, last: &Snapshot) -> Vec<NetworkRecord> {
    let record = |(name, after): (&String, &NetworkCounters)| {
        let before = first.network.get(name).copied().unwrap_or_default();
        NetworkRecord {
            name: name.clone(),
            received_bytes: after.received_bytes.saturating_sub(before.received_bytes),
            sent_bytes: after.sent_bytes.saturating_sub(before.sent_bytes),
            link_bytes_per_s: link_bytes_per_s(name),
        }
    };
    last.network.iter().map(record).filter(|link| link.received_bytes + link.sent_bytes > 0).collect()
}

fn sample(start: &Snapshot, before: &Snapshot, after: &Snapshot) -> Sample {
    let seconds = seconds_between(before, after).max(1e-9);
    let cpu_s = |process: &ProcessSnapshot| process.used.user_s + process.used.system_s;
    let disks = disk_records(before, after);
    let network = network_records(before, after);
    let processes = before.processes.iter().zip(&after.processes);
    Sample {
        at_s: seconds_between(start, after),
        busy_cores: (after.machine.busy_s - before.machine.busy_s) / seconds,
        process_cores: processes.map(|(b, a)| (cpu_s(a) - cpu_s(b)).max(0.0) / seconds).collect(),
        disk_read_bytes_per_s: disks.iter().map(|d| d.read_bytes as f64).sum::<f64>() / seconds,
        disk_written_bytes_per_s: disks.iter().map(|d| d.written_bytes as f64).sum::<f64>() / seconds,
        received_bytes_per_s: network.iter().map(|n| n.received_bytes as f64).sum::<f64>() / seconds,
        sent_bytes_per_s: network.iter().map(|n| n.sent_bytes as f64).sum::<f64>() / seconds,
        load: after.load,
        available_bytes: after.available_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    fn recorder() -> Recorder {
        Recorder::new(vazao_meter::clock::system(), Vec::new())
    }

    #[test]
    fn work_shows_up_as_cpu_of_this_process_and_of_its_busiest_thread() {
        let clock = vazao_meter::clock::system();
        let ((), record) = recorder().during(|| {
            let end_ns = clock.now_ns() + 300_000_000;
            let mut value = 1u64;
            while clock.now_ns() < end_ns {
                value = black_box(value.wrapping_mul(3));
            }
        });
        let client = &record.processes[0];
        assert!(record.seconds >= 0.3, "{record:?}");
        assert!(client.cpu_s() > 0.02 && client.busiest_thread_s > 0.02, "{client:?}");
        assert!(client.resident_bytes > 0 && client.pid == std::process::id());
    }

    #[test]
    fn samples_are_taken_each_second_and_one_at_the_end() {
        let clock = vazao_meter::clock::system();
        let ((), record) = recorder().during(|| clock.sleep(Duration::from_millis(1200)));
        assert_eq!(record.samples.len(), 2, "{:?}", record.samples);
        assert!(record.samples[0].at_s >= 1.0 && record.samples[1].at_s >= 1.2);
        assert!(record.samples[1].available_bytes > 0);
    }

    #[test]
    fn a_run_too_short_to_sample_still_has_its_record() {
        let (value, record) = recorder().during(|| 5);
        assert_eq!((value, record.samples.len()), (5, 1));
        assert!(record.cores >= 1 && record.processes.len() == 1);
    }

    #[test]
    fn a_server_inside_this_process_is_not_counted_twice() {
        let own = Watched { name: "data-1".to_owned(), pid: Some(std::process::id()) };
        let recorder = Recorder::new(vazao_meter::clock::system(), vec![own]);
        assert_eq!(recorder.during(|| ()).1.processes.len(), 1);
    }

    #[test]
    fn a_process_that_is_gone_counts_as_idle() {
        let gone = Watched { name: "data-1".to_owned(), pid: Some(u32::MAX) };
        let recorder = Recorder::new(vazao_meter::clock::system(), vec![gone]);
        let record = recorder.during(|| ()).1;
        assert_eq!(record.processes[1].cpu_s(), 0.0);
    }
}
