//! How long the oldest commit that power loss would take has been waiting for its sync.

use super::super::Position;
use super::NO_PANIC;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Commits within so much time share one mark, and count as old as the first of them.
const STEP_NS: u64 = 250_000;

/// No commit waits.
const NONE: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Marks {
    /// The first commit of a step, and when it was made.
    steps: VecDeque<(Position, u64)>,
    last: Position,
}

/// Times of commits that are not durable.
#[derive(Debug)]
pub(super) struct Ages {
    marks: Mutex<Marks>,
    oldest_ns: AtomicU64,
}

impl Default for Ages {
    fn default() -> Ages {
        Ages { marks: Mutex::default(), oldest_ns: AtomicU64::new(NONE) }
    }
}

impl Ages {
    /// Notes a commit. They come in their order.
    pub(super) fn note(&self, position: Position, now_ns: u64) {
        let mut marks = self.marks.lock().expect(NO_PANIC);
        marks.last = position;
        let begins = marks.steps.back().is_none_or(|(_, at_ns)| now_ns.saturating_sub(*at_ns) >= STEP_NS);
        if begins {
            marks.steps.push_back((position, now_ns));
            self.store_oldest(&marks);
        }
    }

    /// Commits up to `durable` wait no more.
    pub(super) fn settle(&self, durable: Position) {
        let mut marks = self.marks.lock().expect(NO_PANIC);
        if durable >= marks.last {
            marks.steps.clear();
        }
        while marks.steps.get(1).is_some_and(|(first, _)| *first <= durable + 1) {
            marks.steps.pop_front();
        }
        self.store_oldest(&marks);
    }

    fn store_oldest(&self, marks: &Marks) {
        let oldest_ns = marks.steps.front().map_or(NONE, |(_, at_ns)| *at_ns);
        self.oldest_ns.store(oldest_ns, Ordering::Relaxed);
    }

    /// Nanoseconds that the oldest commit has been waiting for at `now_ns`; 0 when none waits.
    pub(super) fn oldest_ns(&self, now_ns: u64) -> u64 {
        match self.oldest_ns.load(Ordering::Relaxed) {
            NONE => 0,
            oldest_ns => now_ns.saturating_sub(oldest_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_commit_that_is_not_durable_counts_and_never_a_younger_one() {
        let ages = Ages::default();
        assert_eq!(ages.oldest_ns(5), 0);
        let time = |n: u64| n * 100_000;
        (1..=100).for_each(|n| ages.note(n, time(n)));
        for durable in 0..100 {
            ages.settle(durable);
            let true_ns = time(200) - time(durable + 1);
            let told_ns = ages.oldest_ns(time(200));
            assert!(told_ns >= true_ns && told_ns < true_ns + 2 * STEP_NS, "after {durable}");
        }
        ages.settle(100);
        assert_eq!(ages.oldest_ns(time(200)), 0);
        ages.note(101, time(300));
        assert_eq!(ages.oldest_ns(time(301)), 100_000);
    }
}
