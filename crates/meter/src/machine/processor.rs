//! CPU of this process by thread, of its control groups, and of the machine.

use super::{cgroup, text};
use crate::measures::{Cpu, Thread};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;

/// Threads that are reported one by one.
const THREADS_MAX: usize = 16;

/// USER_HZ, the unit of CPU time in `/proc/stat`, on every architecture we build for.
const TICK_NS: u64 = 10_000_000;

/// Threads of this process as last seen: the kernel adds the CPU time of those that end to the process, and forgets how
/// long they waited for a processor.
static SEEN: Mutex<Seen> = Mutex::new(Seen { present: BTreeMap::new(), gone_delayed_ns: 0 });

struct Seen {
    present: BTreeMap<u32, Thread>,
    gone_delayed_ns: u64,
}

impl Seen {
    /// Takes over the threads there are now and returns how long all that were ever seen were delayed.
    fn update(&mut self, threads: &[Thread]) -> u64 {
        let before = std::mem::take(&mut self.present);
        self.present = threads.iter().map(|thread| (thread.id, thread.clone())).collect();
        for (id, last) in before {
            // A number is used again by a later thread, whose counters begin at zero.
            let is_gone = self.present.get(&id).is_none_or(|now| now.used_ns < last.used_ns);
            self.gone_delayed_ns += if is_gone { last.delayed_ns } else { 0 };
        }
        self.gone_delayed_ns + threads.iter().map(|thread| thread.delayed_ns).sum::<u64>()
    }
}

/// The counters now. To measure how long short-lived threads waited for a processor, call this several times a
/// second.
pub fn cpu() -> Cpu {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let mut threads = threads();
    let delayed_ns = SEEN.lock().update(&threads);
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.used_ns + thread.delayed_ns));
    threads.truncate(THREADS_MAX);
    let group = cgroup::processor();
    let stat = text("/proc/stat");
    let (machine_busy_ns, machine_stolen_ns) = machine(&stat);
    Cpu {
        used_ns: (spent.tv_sec as u64).saturating_mul(1_000_000_000) + spent.tv_nsec as u64,
        delayed_ns,
        quota: group.quota,
        throttled_ns: group.throttled_ns,
        periods: group.periods,
        throttled_periods: group.throttled_periods,
        machine_cores: cores(&stat),
        machine_busy_ns,
        machine_stolen_ns,
        threads,
    }
}

/// `/proc/PID/task/TID/schedstat`: time on a processor, time waiting for one, turns.
fn threads() -> Vec<Thread> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let thread = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let (used_ns, delayed_ns) = schedstat(&text(entry.path().join("schedstat")))?;
        Some(Thread { id, used_ns, delayed_ns })
    };
    entries.filter_map(thread).collect()
}

fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(|v| v.parse::<u64>().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// One line each; what the standard library calls available is less under a quota, which is counted by itself.
fn cores(stat: &str) -> u32 {
    let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    stat.lines().filter(is_core).count().max(1) as u32
}

/// `cpu  user nice system idle iowait irq softirq steal …`: busy time, in it what the host took, and that alone.
fn machine(stat: &str) -> (u64, u64) {
    let line = stat.lines().find(|line| line.starts_with("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = line.split_ascii_whitespace().skip(1).filter_map(|v| v.parse().ok()).collect();
    let of = |index: usize| ticks.get(index).copied().unwrap_or(0).saturating_mul(TICK_NS);
    let busy = [0, 1, 2, 5, 6, 7].into_iter().map(of).fold(0u64, u64::saturating_add);
    (busy, of(7))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn work_shows_in_the_process_and_its_thread() {
        let before = cpu();
        let mut value = 1u64;
        while cpu().used_ns < before.used_ns + 30_000_000 {
            value = black_box(value.wrapping_mul(3));
        }
        let after = cpu();
        assert!(after.threads.iter().map(|t| t.used_ns).max().unwrap_or(0) >= 10_000_000, "{after:?}");
        assert!(after.machine_cores >= 1 && after.machine_busy_ns > 0);
    }

    #[test]
    fn delays_of_threads_that_ended_are_not_forgotten() {
        let mut seen = Seen { present: BTreeMap::new(), gone_delayed_ns: 0 };
        let thread = |id, used_ns, delayed_ns| Thread { id, used_ns, delayed_ns };
        assert_eq!(seen.update(&[thread(1, 10, 5), thread(2, 10, 7)]), 12);
        assert_eq!(seen.update(&[thread(1, 20, 6)]), 13);
        assert_eq!(seen.update(&[thread(1, 3, 1)]), 14, "another thread has the number");
    }

    #[test]
    fn stolen_time_is_busy_and_idling_and_waiting_for_disks_are_not() {
        let tick = |n: u64| n * TICK_NS;
        assert_eq!(machine("cpu  1 2 4 8000 9000 16 32 64 128 0\ncpu0 1 1"), (tick(119), tick(64)));
        assert_eq!(cores("cpu  1 2\ncpu0 1 1\ncpu1 0 1\nintr 5\n"), 2);
        assert_eq!(machine("cpu  7"), (tick(7), 0));
        assert_eq!(machine(""), (0, 0));
    }

    #[test]
    fn a_broken_schedstat_is_no_thread() {
        assert_eq!(schedstat("5 6 7\n"), Some((5, 6)));
        assert_eq!(schedstat("5"), None);
        assert_eq!(schedstat("x 6"), None);
    }
}
