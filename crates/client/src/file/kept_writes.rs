//! Copies of what was written to a file's objects and is not reported yet, as long as that is little.
//!
//! Where another client cuts the file to nothing, its objects are removed, and with them what was written here and not
//! reported. Whether it was written before the cut or after it cannot be told: it is written again, to the new, empty
//! file. The writer of more than is kept gets `Stale` instead.

use crate::data::overlap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes kept of one file, with what each write costs by itself. Writers of small records stay below, and streams
/// leave off copying at once.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Bytes kept of all files of a client: programs may have thousands open that they write.
const KEPT_BYTES_OF_ALL_MAX: usize = 64 << 20;

/// What a write costs beside its bytes.
const WRITE_BYTES: usize = 64;

/// The memory that the copies of a client's files take.
#[derive(Clone, Default)]
pub(crate) struct KeptBudget(Arc<AtomicUsize>);

/// A part of it, given back when dropped.
struct Share {
    budget: KeptBudget,
    bytes: usize,
}

impl KeptBudget {
    fn take(&self, bytes: usize) -> Option<Share> {
        let share = Share { budget: self.clone(), bytes };
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= KEPT_BYTES_OF_ALL_MAX).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One write.
struct Kept {
    number: u64,
    offset: u64,
    bytes: Box<[u8]>,
    _share: Share,
}

impl Kept {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes.len() as u64
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.len() + WRITE_BYTES
    }
}

/// A report under way.
struct UnderWay {
    /// The number of the first change after it.
    end: u64,
    /// What no server had acknowledged when it began.
    unacknowledged: Vec<Range<u64>>,
}

/// The copies, in the order of their writes. They are *whole* while there is one of everything that is not reported.
#[derive(Default)]
pub(super) struct KeptWrites {
    writes: VecDeque<Kept>,
    memory_bytes: usize,
    /// The number of the next change.
    next: u64,
    /// The number of the last change of which there is no copy.
    last_missing: Option<u64>,
    under_way: Option<UnderWay>,
}

impl KeptWrites {
    /// True while there is a copy of everything that is not reported.
    pub(super) fn is_whole(&self) -> bool {
        self.last_missing.is_none()
    }

    /// These bytes were written.
    pub(super) fn note(&mut self, offset: u64, bytes: &[u8], budget: &KeptBudget) {
        let memory_bytes = bytes.len() + WRITE_BYTES;
        let has_room = self.is_whole() && self.memory_bytes + memory_bytes <= KEPT_BYTES_MAX;
        let Some(share) = has_room.then(|| budget.take(memory_bytes)).flatten() else {
            return self.note_missing();
        };
        self.writes.push_back(Kept { number: self.next, offset, bytes: bytes.into(), _share: share });
        self.memory_bytes += memory_bytes;
        self.next += 1;
    }

    /// Something was changed of which there is no copy.
    pub(super) fn note_missing(&mut self) {
        self.last_missing = Some(self.next);
        self.next += 1;
        self.writes.clear();
        self.memory_bytes = 0;
    }

    /// A report begins; no server has acknowledged to have what lies in `unacknowledged`.
    pub(super) fn begin_report(&mut self, unacknowledged: Vec<Range<u64>>) {
        self.under_way = Some(UnderWay { end: self.next, unacknowledged });
    }

    /// The report under way was answered. Of what it told there need be no copies where it was taken.
    pub(super) fn end_report(&mut self, is_taken: bool) {
        let Some(UnderWay { end, unacknowledged }) = self.under_way.take().filter(|_| is_taken) else {
            return;
        };
        if self.last_missing.is_some_and(|number| number < end) && unacknowledged.is_empty() {
            self.last_missing = None;
        }
        let is_to_come = |kept: &Kept| unacknowledged.iter().any(|range| overlap(range, &kept.range()));
        self.writes.retain(|kept| kept.number >= end || is_to_come(kept));
        self.memory_bytes = self.writes.iter().map(Kept::memory_bytes).sum();
    }

    /// Nothing of it is to be written any more.
    pub(super) fn clear(&mut self) {
        *self = KeptWrites { next: self.next, ..KeptWrites::default() };
    }

    /// Takes all copies, in the order of their writes; `None` where they are not whole.
    pub(super) fn take(&mut self) -> Option<Vec<(u64, Box<[u8]>)>> {
        let is_whole = self.is_whole();
        let writes = std::mem::take(&mut self.writes);
        self.clear();
        is_whole.then(|| writes.into_iter().map(|kept| (kept.offset, kept.bytes)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(mut kept: KeptWrites) -> Option<Vec<u64>> {
        kept.take().map(|writes| writes.into_iter().map(|(offset, _)| offset).collect())
    }

    #[test]
    fn what_was_reported_is_kept_no_longer_unless_no_server_had_it() {
        let (mut kept, budget) = (KeptWrites::default(), KeptBudget::default());
        kept.note(0, b"reported", &budget);
        kept.note(100, b"on its way", &budget);
        kept.begin_report(std::iter::once(105..300).collect());
        kept.note(50, b"later", &budget);
        kept.end_report(true);
        kept.begin_report(Vec::new());
        kept.note(60, b"later still", &budget);
        kept.end_report(false);
        assert_eq!(offsets(kept), Some(vec![100, 50, 60]));
    }

    #[test]
    fn beyond_the_limit_nothing_is_kept_until_all_of_it_is_reported() {
        let (mut kept, budget) = (KeptWrites::default(), KeptBudget::default());
        kept.note(0, &[1; 1000], &budget);
        kept.note(0, &[2; KEPT_BYTES_MAX], &budget);
        kept.note(0, b"after it", &budget);
        assert!(!kept.is_whole() && kept.memory_bytes == 0);
        kept.begin_report(Vec::new());
        kept.note(7, b"too late for that report", &budget);
        kept.end_report(true);
        assert!(!kept.is_whole());
        kept.begin_report(std::iter::once(0..1).collect());
        kept.end_report(true);
        assert!(!kept.is_whole(), "a part of it is not acknowledged");
        kept.begin_report(Vec::new());
        kept.end_report(true);
        assert!(kept.is_whole());
        (0..KEPT_BYTES_MAX / WRITE_BYTES).for_each(|at| kept.note(at as u64, b"x", &budget));
        assert!(!kept.is_whole(), "many small ones cost memory, too");
        assert_eq!(offsets(kept), None);
    }

    #[test]
    fn what_all_files_keep_is_bounded_and_given_back() {
        let budget = KeptBudget::default();
        let mut files: Vec<KeptWrites> = Vec::new();
        while files.iter().all(KeptWrites::is_whole) {
            let mut kept = KeptWrites::default();
            kept.note(0, &[1; KEPT_BYTES_MAX / 2], &budget);
            files.push(kept);
        }
        assert!(files.len() * KEPT_BYTES_MAX / 2 > KEPT_BYTES_OF_ALL_MAX - KEPT_BYTES_MAX);
        files.remove(0);
        let mut kept = KeptWrites::default();
        kept.note(0, &[1; KEPT_BYTES_MAX / 2], &budget);
        assert!(kept.is_whole());
        kept.begin_report(Vec::new());
        kept.end_report(true);
        drop(files);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
