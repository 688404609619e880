//! The machine's counters at one moment, from `/proc` and `/sys` (proc(5)); the differences are the sampler's business.

use crate::recorder::Watched;
use std::collections::BTreeMap;
use std::fs;
use vazao_meter::cpu::{ProcessUse, process_use};

/// The kernel counts disk sectors of 512 bytes whatever the disk's own are.
const SECTOR_BYTES: u64 = 512;

/// USER_HZ, the unit of CPU time in `/proc`, on every architecture we build for.
const TICKS_A_SECOND: f64 = 100.0;

/// Counters since the machine started, and a few values of the moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) at_ns: u64,
    pub(crate) machine: MachineCpu,
    pub(crate) processes: Vec<ProcessSnapshot>,
    pub(crate) disks: BTreeMap<String, DiskCounters>,
    pub(crate) network: BTreeMap<String, NetworkCounters>,
    pub(crate) load: f64,
    pub(crate) available_bytes: u64,
}

/// CPU seconds of all cores together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct MachineCpu {
    pub(crate) busy_s: f64,
    pub(crate) waiting_s: f64,
}

/// A process, or zeros once it is gone.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ProcessSnapshot {
    pub(crate) used: ProcessUse,
    pub(crate) threads_cpu_s: BTreeMap<u32, f64>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct DiskCounters {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) busy_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct NetworkCounters {
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
}

impl Snapshot {
    /// Reads everything now.
    pub(crate) fn take(at_ns: u64, watched: &[Watched]) -> Snapshot {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Snapshot {
            at_ns,
            machine: machine_cpu(&text("/proc/stat")),
            processes: watched.iter().map(|w| process(w.pid)).collect(),
            disks: disks(&text("/proc/diskstats"), |name| {
                fs::exists(format!("/sys/block/{name}")).unwrap_or(false)
            }),
            network: network(&text("/proc/net/dev")),
            load: first_number(&text("/proc/loadavg")),
            available_bytes: available_bytes(&text("/proc/meminfo")),
        }
    }
}

/// CPU seconds of all cores together since the machine started.
pub fn machine_busy_s() -> f64 {
    machine_cpu(&fs::read_to_string("/proc/stat").unwrap_or_default()).busy_s
}

/// Bytes a second that interface `name` can carry each way, where it says so.
pub(crate) fn link_bytes_per_s(name: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    let megabits: f64 = text.trim().parse().ok()?;
    (megabits > 0.0).then_some(megabits * 1e6 / 8.0)
}

fn first_number(text: &str) -> f64 {
    text.split_ascii_whitespace().next().and_then(|v| v.parse().ok()).unwrap_or(0.0)
}

fn process(pid: Option<u32>) -> ProcessSnapshot {
    let directory = pid.map_or("/proc/self/task".to_owned(), |pid| format!("/proc/{pid}/task"));
    let mut threads_cpu_s = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        // schedstat's first field is the time on a core in nanoseconds, finer than the ticks of stat.
        let spent = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
        if let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            threads_cpu_s.insert(thread, first_number(&spent) / 1e9);
        }
    }
    ProcessSnapshot { used: process_use(pid).unwrap_or_default(), threads_cpu_s }
}

/// `cpu  user nice system idle iowait irq softirq steal …`; guest time is part of user.
fn machine_cpu(stat: &str) -> MachineCpu {
    let line = stat.lines().find(|line| line.starts_with("cpu ")).unwrap_or_default();
    let ticks: Vec<f64> = line.split_ascii_whitespace().skip(1).filter_map(|v| v.parse().ok()).collect();
    let sum = |fields: &[usize]| -> f64 {
        fields.iter().map(|&field| ticks.get(field).copied().unwrap_or(0.0)).sum::<f64>() / TICKS_A_SECOND
    };
    MachineCpu { busy_s: sum(&[0, 1, 2, 5, 6]), waiting_s: sum(&[4]) }
}

/// Whole disks only: the bytes of partitions are counted with their disk. Loop and RAM devices stand on others.
fn disks(diskstats: &str, is_whole: impl Fn(&str) -> bool) -> BTreeMap<String, DiskCounters> {
    let stacked = |name: &str| ["loop", "ram", "zram", "dm-", "md"].iter().any(|kind| name.starts_with(kind));
    let mut disks = BTreeMap::new();
    for line in diskstats.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
        let Some(name) = fields.get(2).filter(|name| !stacked(name) && is_whole(name)) else { continue };
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
        let counters = DiskCounters {
            read_bytes: bytes(number(5)),
            written_bytes: bytes(number(9)),
            busy_ms: number(12),
        };
        disks.insert((*name).to_owned(), counters);
    }
    disks
}

fn network(dev: &str) -> BTreeMap<String, NetworkCounters> {
    let mut interfaces = BTreeMap::new();
    for line in dev.lines() {
        let Some((name, counters)) = line.split_once(':') else { continue };
        let fields: Vec<u64> = counters.split_ascii_whitespace().filter_map(|v| v.parse().ok()).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        let counters = NetworkCounters { received_bytes: field(0), sent_bytes: field(8) };
        interfaces.insert(name.trim().to_owned(), counters);
    }
    interfaces
}

fn available_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:")).unwrap_or_default();
    line.split_ascii_whitespace().nth(1).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_counts_neither_idling_nor_waiting_nor_stolen_time() {
        let cpu = machine_cpu("cpu  100 200 300 9999 500 600 700 8888 50 0\ncpu0 1 1 1 1\n");
        assert_eq!(cpu, MachineCpu { busy_s: 19.0, waiting_s: 5.0 });
    }

    #[test]
    fn partitions_and_stacked_devices_are_not_counted_twice() {
        let text = "   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9\n 254       0 vda 10 0 4 5 6 0 8 9 0 17 99\n \
                    254       1 vda1 10 0 4 5 6 0 8 9 0 17 99\n 253 0 dm-0 1 1 1 1 1 1 1 1 1 1 1\n";
        let found = disks(text, |name| name != "vda1");
        let expected = DiskCounters { read_bytes: 4 * 512, written_bytes: 8 * 512, busy_ms: 17 };
        assert_eq!(found, BTreeMap::from([("vda".to_owned(), expected)]));
    }

    #[test]
    fn received_and_sent_bytes_come_from_their_columns() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n  \
                    eth0: 81 2 0 0 0 0 0 0 388 9 0 0 0 0 0 0\n";
        let expected = NetworkCounters { received_bytes: 81, sent_bytes: 388 };
        assert_eq!(network(text).get("eth0"), Some(&expected));
    }

    #[test]
    fn truncated_sources_give_zeros_and_no_panic() {
        assert_eq!(machine_cpu("cpu  1"), MachineCpu { busy_s: 0.01, waiting_s: 0.0 });
        assert_eq!(disks("254 0", |_| true), BTreeMap::new());
        assert_eq!(disks("254 0 vda 1", |_| true)["vda"], DiskCounters::default());
        assert_eq!(network("eth0:")["eth0"], NetworkCounters::default());
        assert_eq!(available_bytes("MemAvailable:"), 0);
    }
}
