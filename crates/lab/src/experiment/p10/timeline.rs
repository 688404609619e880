//! Calls of readers and writers over time: rates for each step of the clock, and the longest call.

use crate::report::size::MB;

/// One call, also one that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// 0 of one that failed.
    pub(super) bytes: u64,
}

/// Megabytes a second in each step from `start_ns` to `end_ns`. A call counts where it ends.
pub(super) fn rates(calls: &[Call], start_ns: u64, end_ns: u64, step_ns: u64) -> Vec<f64> {
    let steps = end_ns.saturating_sub(start_ns) / step_ns;
    let mut bytes = vec![0; steps as usize];
    for call in calls.iter().filter(|call| call.end_ns >= start_ns) {
        if let Some(step) = bytes.get_mut(((call.end_ns - start_ns) / step_ns) as usize) {
            *step += call.bytes;
        }
    }
    bytes.iter().map(|&bytes| bytes as f64 / (step_ns as f64 / 1e9) / MB).collect()
}

/// The call that took longest, of those that ended in that time.
pub(super) fn longest(calls: &[Call], start_ns: u64, end_ns: u64) -> Option<Call> {
    let within = calls.iter().filter(|call| (start_ns..end_ns).contains(&call.end_ns));
    within.max_by_key(|call| call.end_ns - call.start_ns).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start_ns: u64, end_ns: u64, bytes: u64) -> Call {
        Call { start_ns, end_ns, bytes }
    }

    #[test]
    fn bytes_count_in_the_step_in_which_the_call_ends() {
        let calls = [call(0, 5, 9), call(5, 12, 100), call(12, 19, 20), call(19, 31, 5), call(31, 41, 7)];
        let rates = rates(&calls, 10, 40, 10);
        // Bytes in 10 ns, in MB/s: before and after count nowhere.
        assert_eq!(rates, [12_000.0, 0.0, 500.0]);
    }

    #[test]
    fn the_longest_call_of_the_time_is_found_whenever_it_began() {
        let calls = [call(0, 9, 1), call(2, 12, 1), call(20, 26, 0), call(30, 99, 1)];
        assert_eq!(longest(&calls, 10, 40), Some(call(2, 12, 1)));
        assert_eq!(longest(&calls, 13, 40), Some(call(20, 26, 0)));
        assert_eq!(longest(&[], 0, 40), None);
    }
}
