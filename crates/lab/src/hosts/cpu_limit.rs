//! Processors bounded for chosen processes, by the kernel's control groups.

use super::Error;
use super::cgroup::{self, PROCESSOR, Tree};
use super::ledger::Ledger;
use super::undo::Made;
use parking_lot::Mutex;
use std::fs;
use std::path::PathBuf;

/// The stretch of time in which a process may use up its share. The kernel's default, 100 ms, would make answers wait
/// for nearly that long.
const PERIOD_US: u64 = 20_000;
/// The smallest share the kernel grants is 1 ms of a period.
const QUOTA_US_MIN: u64 = 1_000;

/// A bound on the processor time of the processes attached to it, together. Lifted when dropped.
#[derive(Debug)]
pub struct CpuLimit {
    tree: Tree,
    group: PathBuf,
    // In version 2, groups that other limits made and that this one had to join.
    joined: Mutex<Vec<PathBuf>>,
    processors: f64,
    _ledger: Ledger,
}

impl CpuLimit {
    /// A bound of `processors`, for example 0.5: half of one. It limits no process until one is attached.
    pub fn new(processors: f64) -> Result<CpuLimit, Error> {
        check(processors)?;
        let ledger = Ledger::open("a bound on processor time")?;
        let tree = cgroup::find(PROCESSOR)?;
        let (Tree::Unified(root) | Tree::Legacy(root)) = &tree;
        if matches!(tree, Tree::Unified(_)) {
            cgroup::switch_on(root, &["cpu"])?;
        }
        let group = root.join(ledger.name());
        ledger.record(&Made::Cgroup(group.clone()))?;
        fs::create_dir(&group).map_err(Error::at(group.display()))?;
        let mut limit = CpuLimit { tree, group, joined: Mutex::default(), processors, _ledger: ledger };
        limit.set(processors)?;
        Ok(limit)
    }

    /// Changes the bound, also of those already attached.
    pub fn set(&mut self, processors: f64) -> Result<(), Error> {
        check(processors)?;
        self.processors = processors;
        let joined = self.joined.lock().clone();
        joined.iter().chain([&self.group]).try_for_each(|group| self.write(group))
    }

    /// Bounds a running process, with its threads and the children it will have.
    pub fn attach(&self, process: u32) -> Result<(), Error> {
        if let Tree::Unified(root) = &self.tree
            && let Some(group) = cgroup::ours_of(root, process)?
        {
            self.write(&group)?;
            self.joined.lock().push(group);
            return Ok(());
        }
        cgroup::attach(&self.group, process)
    }

    fn write(&self, group: &std::path::Path) -> Result<(), Error> {
        let quota_us = quota_us(self.processors);
        match self.tree {
            Tree::Unified(_) => cgroup::write(&group.join("cpu.max"), &format!("{quota_us} {PERIOD_US}")),
            Tree::Legacy(_) => {
                cgroup::write(&group.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                cgroup::write(&group.join("cpu.cfs_quota_us"), &quota_us.to_string())
            }
        }
    }
}

fn quota_us(processors: f64) -> u64 {
    ((processors * PERIOD_US as f64) as u64).max(QUOTA_US_MIN)
}

fn check(processors: f64) -> Result<(), Error> {
    if (0.05..=4096.0).contains(&processors) {
        return Ok(());
    }
    Err(Error::Refused(format!("{processors} processors cannot be granted: give 0.05 to 4096")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_counted_in_periods_and_never_below_what_the_kernel_takes() {
        assert_eq!(quota_us(0.5), 10_000);
        assert_eq!(quota_us(2.0), 40_000);
        assert_eq!(quota_us(0.05), QUOTA_US_MIN);
        for refused in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            check(refused).expect_err("no such share");
        }
    }
}
