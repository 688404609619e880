//! Ranges of keys whose records were lost, and what is known within them.
//!
//! - A lost range is unknown but for the keys that were written or removed since: those are known again.
//! - A key that was written is known by its record, here or in memory. The stored range needs no change.
//! - A key that was removed leaves no record. When its removal goes into the checkpoint, the stored range is cut in two
//!   around it.
//! - A walk is right up to the first unknown key, and an error there.

use super::super::{EngineError, EngineResult};
use super::CHECKPOINT_FILE;
use super::base::{KeyRange, View};
use super::overlay::{self, Layer, Older};

/// Ranges that are kept, all of which every view holds in memory. Of more, removed keys stay unknown.
const RANGES_MAX: usize = 4096;

/// What reading in a lost range is.
pub(super) fn error() -> EngineError {
    EngineError::Corrupt(format!("it was lost with damaged blocks of {CHECKPOINT_FILE}"))
}

/// The ranges, which are in key order, that have a key in `[start, end)`.
pub(super) fn within<'a>(ranges: &'a [KeyRange], start: &[u8], end: &[u8]) -> &'a [KeyRange] {
    let first = ranges.partition_point(|(_, lost_end)| lost_end.as_slice() <= start);
    let after = ranges.partition_point(|(lost_start, _)| lost_start.as_slice() < end);
    ranges.get(first..after).unwrap_or_default()
}

/// The ranges without these keys, which are in key order too. `None`: none of the keys lies in one.
pub(super) fn without<'a>(
    ranges: &[KeyRange],
    keys: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<KeyRange>> {
    let mut left = ranges.to_vec();
    let mut is_changed = false;
    for key in keys {
        let after = after(key);
        let at = left.partition_point(|(_, end)| end.as_slice() <= key);
        let Some((start, end)) = left.get(at).filter(|(start, _)| start.as_slice() <= key).cloned() else {
            continue;
        };
        let pieces = [(start, key.to_vec()), (after, end)].into_iter().filter(|(start, end)| start < end);
        let pieces: Vec<_> = pieces.collect();
        if left.len() - 1 + pieces.len() > RANGES_MAX.max(ranges.len()) {
            continue;
        }
        left.splice(at..=at, pieces);
        is_changed = true;
    }
    is_changed.then_some(left)
}

/// The first key after this one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A walk over known keys in their order.
struct Walk<'a> {
    lost: &'a [KeyRange],
    /// Everything before this one is known.
    from: Vec<u8>,
}

impl Walk<'_> {
    /// False when an unknown key lies before `key`.
    fn reaches(&self, key: &[u8]) -> bool {
        self.from.as_slice() >= key || within(self.lost, &self.from, key).is_empty()
    }

    fn pass(&mut self, key: &[u8]) {
        self.from.clear();
        self.from.extend_from_slice(key);
        self.from.push(0);
    }
}

impl View {
    /// Gives the pairs of `start <= key < end` to `take` in key order, with `changes` over them, until it says false.
    /// Fails at the first unknown key.
    pub(super) fn read_range(
        &self,
        changes: Vec<Layer<'_>>,
        (start, end): (&[u8], &[u8]),
        take: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> EngineResult<()> {
        let records = self.raw_range(start, end)?;
        let lost = within(self.lost(), start, end);
        if lost.is_empty() {
            return overlay::merge(changes, records, &mut |key, value| {
                value.is_none_or(|value| take(key, value))
            });
        }
        let mut walk = Walk { lost, from: start.to_vec() };
        let mut is_wanted = true;
        overlay::merge(changes, records, &mut |key, value| {
            let is_known = walk.reaches(key);
            if is_known {
                is_wanted = value.is_none_or(|value| take(key, value));
                walk.pass(key);
            }
            is_known && is_wanted
        })?;
        if is_wanted && !walk.reaches(end) { Err(error()) } else { Ok(()) }
    }

    /// The first part of a lost range that is behind `start` and before `end`.
    pub(super) fn lost_behind(&self, start: &[u8], end: &[u8]) -> Option<KeyRange> {
        let from = after(start);
        let (lost_start, lost_end) = within(self.lost(), &from, end).first()?;
        Some((from.max(lost_start.clone()), lost_end.as_slice().min(end).to_vec()))
    }

    /// The first record behind `start` in a lost range that has keys in `[start, end)`, or the end of that range.
    pub(super) fn next_known(&self, start: &[u8], end: &[u8]) -> Option<Vec<u8>> {
        let (from, lost_end) = self.lost_behind(start, end)?;
        let mut records = self.raw_range(&from, &lost_end).ok()?;
        match records.next() {
            Some(record) => Some(record.ok()?.key().to_vec()),
            None => Some(lost_end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        (start.as_bytes().to_vec(), end.as_bytes().to_vec())
    }

    #[test]
    fn a_removed_key_cuts_the_range_it_lies_in() {
        let ranges = [range("b", "d"), range("f", "g")];
        let cut = |keys: &[&str]| without(&ranges, keys.iter().map(|key| key.as_bytes()));
        assert_eq!(cut(&["a", "d", "e", "g"]), None);
        assert_eq!(cut(&["b"]), Some(vec![range("b\0", "d"), range("f", "g")]));
        let twice = vec![range("b", "c"), range("c\0", "d"), range("f", "fa"), range("fa\0", "g")];
        assert_eq!(cut(&["c", "fa"]), Some(twice));
        assert_eq!(without(&[range("b", "b\0")], [b"b".as_slice()].into_iter()), Some(Vec::new()));
    }

    #[test]
    fn there_are_never_more_ranges_than_are_kept() {
        let keys: Vec<_> = (0..2 * RANGES_MAX).map(|n| format!("b{n:08}")).collect();
        let cut = without(&[range("a", "c")], keys.iter().map(|key| key.as_bytes())).unwrap();
        assert_eq!(cut.len(), RANGES_MAX);
        assert!(cut.is_sorted() && cut.iter().all(|(start, end)| start < end));
    }
}
