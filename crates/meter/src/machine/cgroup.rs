//! Bounds that control groups of either version put on this process: processors, and rates of block devices.
//!
//! A process is bound by its own group and by all above it, so the tightest counts.

use super::text;
use std::path::{Path, PathBuf};

/// What bounds the process's CPU.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Processor {
    pub(super) quota: Option<f64>,
    pub(super) throttled_ns: u64,
    pub(super) periods: u64,
    pub(super) throttled_periods: u64,
}

/// Bytes a second that may be read and written.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct BlockRates {
    pub(super) read: Option<f64>,
    pub(super) write: Option<f64>,
}

/// Where a controller's groups of this process are, from its own up to the root.
#[derive(Clone, PartialEq, Debug)]
struct Groups {
    is_unified: bool,
    directories: Vec<PathBuf>,
}

/// The processor bound with the smallest quota.
pub(super) fn processor() -> Processor {
    let groups = groups("cpu");
    let bounds = groups.iter().flat_map(|groups| groups.directories.iter().map(|d| (groups.is_unified, d)));
    let read = |(is_unified, directory): (bool, &PathBuf)| {
        let file = |name: &str| text(directory.join(name));
        let quota = match is_unified {
            true => quota_of_both(&file("cpu.max")),
            false => quota(&file("cpu.cfs_quota_us"), &file("cpu.cfs_period_us")),
        };
        quota.map(|quota| processor_of(quota, &file("cpu.stat")))
    };
    bounds
        .filter_map(read)
        .min_by(|a, b| a.quota.partial_cmp(&b.quota).unwrap_or(std::cmp::Ordering::Equal))
        .unwrap_or_default()
}

/// `QUOTA PERIOD`, or `max PERIOD` without a bound.
fn quota_of_both(text: &str) -> Option<f64> {
    let (quota_us, period_us) = text.trim().split_once(' ')?;
    quota(quota_us, period_us)
}

fn quota(quota_us: &str, period_us: &str) -> Option<f64> {
    let (quota_us, period_us): (f64, f64) = (quota_us.trim().parse().ok()?, period_us.trim().parse().ok()?);
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
}

fn processor_of(quota: f64, stat: &str) -> Processor {
    let value = |key: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|v| v.trim().parse::<u64>().ok())
    };
    let throttled_ns =
        value("throttled_time").or_else(|| Some(value("throttled_usec")?.saturating_mul(1000)));
    Processor {
        quota: Some(quota),
        throttled_ns: throttled_ns.unwrap_or(0),
        periods: value("nr_periods").unwrap_or(0),
        throttled_periods: value("nr_throttled").unwrap_or(0),
    }
}

/// The tightest bounds on a device, by its `MAJOR:MINOR`.
pub(super) fn block_rates(device: &str) -> BlockRates {
    let mut rates = BlockRates::default();
    for groups in groups("blkio") {
        for directory in &groups.directories {
            let found = match groups.is_unified {
                true => unified_rates(&text(directory.join("io.max")), device),
                false => {
                    let rule = |name: &str| legacy_rate(&text(directory.join(name)), device);
                    BlockRates {
                        read: rule("blkio.throttle.read_bps_device"),
                        write: rule("blkio.throttle.write_bps_device"),
                    }
                }
            };
            let tightest = |a: Option<f64>, b: Option<f64>| match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            rates = BlockRates {
                read: tightest(rates.read, found.read),
                write: tightest(rates.write, found.write),
            };
        }
    }
    rates
}

/// Lines of `MAJOR:MINOR BYTES`.
fn legacy_rate(text: &str, device: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' '))?;
    line.trim().parse().ok().filter(|rate| *rate > 0.0)
}

/// Lines of `MAJOR:MINOR rbps=… wbps=… riops=… wiops=…`, with `max` for no bound.
fn unified_rates(text: &str, device: &str) -> BlockRates {
    let line = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' ')).unwrap_or_default();
    let value = |key: &str| {
        line.split_ascii_whitespace().find_map(|field| field.strip_prefix(key)?.parse::<f64>().ok())
    };
    BlockRates { read: value("rbps="), write: value("wbps=") }
}

/// The groups of both versions that may bound this process by a controller.
fn groups(legacy: &str) -> Vec<Groups> {
    let (mounts, own) = (text("/proc/self/mounts"), text("/proc/self/cgroup"));
    groups_in(&mounts, &own, legacy)
}

fn groups_in(mounts: &str, own: &str, legacy: &str) -> Vec<Groups> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (Some(root), Some(kind), Some(options)) = (fields.get(1), fields.get(2), fields.get(3)) else {
            continue;
        };
        let is_unified = *kind == "cgroup2";
        let is_legacy = *kind == "cgroup" && options.split(',').any(|option| option == legacy);
        if !is_unified && !is_legacy {
            continue;
        }
        // Lines of `N:CONTROLLERS:PATH`; version 2 is `0::PATH`.
        let path = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_this =
                if is_unified { controllers.is_empty() } else { controllers.split(',').any(|c| c == legacy) };
            is_this.then_some(path)
        });
        let path = Path::new(path.unwrap_or("/"));
        let relative = path.strip_prefix("/").unwrap_or(path);
        let root = Path::new(root);
        let directories = relative.ancestors().map(|part| root.join(part)).collect();
        found.push(Groups { is_unified, directories });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_both_versions_from_the_own_one_up() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = groups_in(mounts, "2:cpuacct:/\n1:cpu:/a/b\n0::/c\n", "cpu");
        assert_eq!(
            found[0].directories,
            ["/sys/fs/cgroup/cpu/a/b", "/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu/"].map(PathBuf::from)
        );
        assert!(found[1].is_unified && found[1].directories[0].ends_with("unified/c"));
    }

    #[test]
    fn quotas_are_processors_and_no_bound_is_none() {
        assert_eq!(quota("10000\n", "20000\n"), Some(0.5));
        assert_eq!(quota("-1", "100000"), None);
        assert_eq!(quota_of_both("max 100000\n"), None);
        assert_eq!(quota_of_both("30000 20000\n"), Some(1.5));
        assert_eq!(quota("", ""), None);
    }

    #[test]
    fn throttling_is_counted_in_either_unit() {
        let legacy = processor_of(0.5, "nr_periods 10\nnr_throttled 4\nthrottled_time 7000\n");
        assert_eq!((legacy.throttled_ns, legacy.periods, legacy.throttled_periods), (7000, 10, 4));
        assert_eq!(processor_of(0.5, "throttled_usec 7\n").throttled_ns, 7000);
    }

    #[test]
    fn rates_of_a_device_are_not_those_of_one_whose_number_begins_alike() {
        assert_eq!(legacy_rate("7:30 1\n7:3 28000000\n", "7:3"), Some(28e6));
        assert_eq!(legacy_rate("7:30 1\n", "7:3"), None);
        let found = unified_rates("7:3 rbps=1000 wbps=max riops=max wiops=max\n", "7:3");
        assert_eq!(found, BlockRates { read: Some(1000.0), write: None });
    }
}
