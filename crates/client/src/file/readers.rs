//! What those who read one file in order know of each other: how many they are, and where each began.
//!
//! A file's window is what keeps its servers busy: concurrent readers share it. And where another
//! began, the part of this one most likely ends (a file read in parts by many threads): read-ahead stops there.
//! Without both, 32 threads that read 2 MiB each from eight servers asked for three times what they were to have.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Beginnings that are remembered: of more readers the rest is read ahead beyond.
const BEGINNINGS_MAX: usize = 4096;

/// The readers of one file that read in order.
#[derive(Debug, Default)]
pub(super) struct Readers {
    now: AtomicUsize,
    /// Where they began, also those that are done: all of a file read in parts are done at about the same time.
    beginnings: Mutex<BTreeSet<u64>>,
    /// How many these are, to spare a look.
    known: AtomicUsize,
}

/// One of them, as long as it reads in order.
#[derive(Debug)]
pub(super) struct Reader {
    all: Arc<Readers>,
    start: u64,
}

impl Readers {
    /// One that began at `start`.
    pub(super) fn enter(self: &Arc<Readers>, start: u64) -> Reader {
        self.now.fetch_add(1, Ordering::Relaxed);
        let mut beginnings = self.beginnings.lock();
        if beginnings.len() < BEGINNINGS_MAX {
            beginnings.insert(start);
            self.known.store(beginnings.len(), Ordering::Relaxed);
        }
        Reader { all: Arc::clone(self), start }
    }
}

impl Reader {
    /// Its share of the file's window, but not less than `least`.
    pub(super) fn share_of(&self, window_bytes: u64, least: u64) -> u64 {
        let readers = self.all.now.load(Ordering::Relaxed).max(1) as u64;
        (window_bytes / readers).max(least.min(window_bytes))
    }

    /// It reads `range`: where that passes the beginning of another, no part ends there. Returns how far may be
    /// read ahead.
    pub(super) fn limit(&self, range: &Range<u64>) -> u64 {
        if self.all.known.load(Ordering::Relaxed) <= 1 {
            return u64::MAX;
        }
        let mut beginnings = self.all.beginnings.lock();
        while let Some(&passed) = beginnings.range(range.clone()).find(|start| **start != self.start) {
            beginnings.remove(&passed);
        }
        self.all.known.store(beginnings.len(), Ordering::Relaxed);
        beginnings.range(range.end..).next().copied().unwrap_or(u64::MAX)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.all.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn readers_share_the_window_and_one_alone_has_all_of_it() {
        let all = Arc::new(Readers::default());
        let first = all.enter(0);
        assert_eq!(first.share_of(8 * MIB, MIB), 8 * MIB);
        let others: Vec<Reader> = (1..4).map(|part| all.enter(part * 100 * MIB)).collect();
        assert_eq!(first.share_of(8 * MIB, MIB), 2 * MIB);
        assert_eq!(first.share_of(8 * MIB, 3 * MIB), 3 * MIB);
        assert_eq!(first.share_of(MIB / 2, MIB), MIB / 2, "no share is more than the whole");
        drop(others);
        assert_eq!(first.share_of(8 * MIB, MIB), 8 * MIB);
    }

    #[test]
    fn nobody_reads_ahead_into_the_part_of_another_not_even_of_one_that_is_done() {
        let all = Arc::new(Readers::default());
        let first = all.enter(0);
        assert_eq!(first.limit(&(0..MIB)), u64::MAX, "alone");
        let second = all.enter(2 * MIB);
        assert_eq!(first.limit(&(0..MIB)), 2 * MIB);
        assert_eq!(second.limit(&(2 * MIB..3 * MIB)), u64::MAX);
        drop(second);
        assert_eq!(first.limit(&(MIB..2 * MIB)), 2 * MIB);
    }

    #[test]
    fn one_that_reads_on_finds_no_end_where_another_began() {
        let all = Arc::new(Readers::default());
        let (first, _second, _third) = (all.enter(0), all.enter(2 * MIB), all.enter(9 * MIB));
        assert_eq!(first.limit(&(2 * MIB..3 * MIB)), 9 * MIB);
        assert_eq!(first.limit(&(0..MIB)), 9 * MIB, "what was passed is forgotten for all");
        assert_eq!(first.limit(&(8 * MIB..10 * MIB)), u64::MAX);
    }
}
