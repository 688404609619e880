//! Ends calls whose callers are being killed: no program will see their results.
//!
//! A write is not interrupted by a signal: its data would be lost, or written twice. But a killed process does not end
//! while one of its calls waits for a silent server. So calls that go on for a while are checked. When the caller is
//! being killed, the thread that serves the call is notified, and leaves whatever waits for servers to the file's
//! release. Over the device the kernel also gets `EINTR` at once. The call may go on until it completes or times out;
//! no caller waits for its own answer then. A process that exits by itself does wait: a program that sees it exit may
//! rely on what it has closed.

use super::Call;
use std::collections::HashSet;
use std::fs;
use std::time::Duration;

/// A call is looked at when it is there at two times that lie this far apart.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Bit of SIGKILL, which the kernel sends to each thread of a process that any signal ends, in a set of signals.
const KILL: u64 = 1 << 8;

/// The flag of a thread that has begun to end (`PF_EXITING`).
const EXITING: u64 = 4;

/// Which part of an exit code is a signal.
const BY_SIGNAL: u64 = 0x7f;

/// Fields of `/proc/PID/stat` after the program's name, of which the state is the first (proc_pid_stat(5)).
const STAT_FLAGS: usize = 6;
const STAT_EXIT_CODE: usize = 49;

/// The calls seen at the last look.
#[derive(Debug, Default)]
pub(crate) struct Dying {
    seen: HashSet<u64>,
    answered: HashSet<u64>,
}

impl Dying {
    /// Of the calls at work, those that are to be answered now.
    pub(crate) fn look(&mut self, writers: &[Call], is_killed: impl Fn(u32) -> bool) -> Vec<u64> {
        let is_due = |writer: &&Call| {
            let is_slow = self.seen.contains(&writer.unique) && !self.answered.contains(&writer.unique);
            is_slow && is_killed(writer.caller)
        };
        let due: Vec<u64> = writers.iter().filter(is_due).map(|writer| writer.unique).collect();
        self.seen = writers.iter().map(|writer| writer.unique).collect();
        self.answered.retain(|unique| self.seen.contains(unique));
        self.answered.extend(&due);
        due
    }
}

/// True when a thread is ending because of a signal, or about to.
pub(crate) fn is_killed(thread: u32) -> bool {
    // 0: the kernel itself, or a process that cannot be seen from here.
    let read = |what: &str| fs::read_to_string(format!("/proc/{thread}/{what}")).unwrap_or_default();
    thread != 0 && (has_kill_pending(&read("status")) || ends_by_signal(&read("stat")))
}

fn has_kill_pending(status: &str) -> bool {
    let pending = status.lines().filter_map(|line| line.strip_prefix("SigPnd:"));
    pending.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok()).any(|set| set & KILL != 0)
}

fn ends_by_signal(stat: &str) -> bool {
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    number(STAT_FLAGS) & EXITING != 0 && number(STAT_EXIT_CODE) & BY_SIGNAL != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_answered_once_when_it_goes_on_after_its_caller_was_killed() {
        let writer = |unique, caller| Call { unique, caller, operation: 4 };
        let mut dying = Dying::default();
        let killed = |caller| caller == 8;
        assert!(dying.look(&[writer(1, 7), writer(2, 8)], killed).is_empty(), "they have just come");
        assert_eq!(dying.look(&[writer(1, 7), writer(2, 8), writer(3, 8)], killed), [2]);
        assert_eq!(dying.look(&[writer(1, 7), writer(2, 8), writer(3, 8)], killed), [3]);
        assert!(dying.look(&[writer(1, 7)], killed).is_empty());
    }

    #[test]
    fn a_thread_with_sigkill_pending_or_that_ends_by_a_signal_is_killed_and_others_are_not() {
        assert!(has_kill_pending("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(!has_kill_pending("SigPnd:\t0000000000004000\nShdPnd:\t0000000000000100\n"));
        let stat =
            |flags: u32, code: u32| format!("7 (a) b) S 1 2 3 4 5 {flags} {}{code}\n", "0 ".repeat(42));
        assert!(ends_by_signal(&stat(4, 9)) && ends_by_signal(&stat(0x40_0104, 15)));
        assert!(!ends_by_signal(&stat(4, 256)), "it ends by itself");
        assert!(!ends_by_signal(&stat(0, 9)) && !ends_by_signal(""));
        assert!(!is_killed(std::process::id()) && !is_killed(0));
    }
}
