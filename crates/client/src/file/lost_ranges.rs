//! What could not be written although the caller was told that it would be.
//!
//! A range is lost from the failure of its write until it has been written again and acknowledged, or cut off. As long
//! as there is one the file is not what was written: reading it fails, and so does every report that the file is whole.

use super::unsynced::Span;
use crate::Error;
use crate::data::overlap;
use std::ops::Range;

/// Failed ranges kept apart; beyond that everything between them counts as failed too.
const LOST_RANGES_MAX: usize = 64;

/// The lost ranges of one file, and why.
#[derive(Clone, Default)]
pub(crate) struct LostRanges {
    spans: Vec<Span>,
    /// The first failure since nothing was lost: it tells the cause, those after it are often its consequences.
    failure: Option<Error>,
    failure_count: u64,
    /// The life of the file that they belong to, as its layout names it.
    life: u32,
}

impl LostRanges {
    /// What is left of them when the file is in the life `life`, `None` for one without objects: of an earlier
    /// life no byte is there any more.
    pub(crate) fn in_life(mut self, life: Option<u32>) -> LostRanges {
        if life != Some(self.life) {
            self.spans.clear();
        }
        self
    }

    /// True when nothing is lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The write of `range` has failed after it was acknowledged to the caller.
    pub(crate) fn add(&mut self, range: Range<u64>, life: u32, error: Error) {
        self.add_span(Span { range, is_cut: false }, life, error);
    }

    /// The same for a range that was written or made to read as zeros.
    pub(crate) fn add_span(&mut self, span: Span, life: u32, error: Error) {
        self.tell(error);
        self.life = life;
        self.clear(&span.range);
        self.spans.push(span);
        if self.spans.len() > LOST_RANGES_MAX {
            let start = self.spans.iter().map(|span| span.range.start).min().unwrap_or(0);
            let end = self.spans.iter().map(|span| span.range.end).max().unwrap_or(0);
            let is_cut = self.spans.iter().all(|span| span.is_cut);
            self.spans = vec![Span { range: start..end, is_cut }];
        }
    }

    /// A failure without a range, for every handle to learn of.
    pub(crate) fn tell(&mut self, error: Error) {
        if self.spans.is_empty() {
            self.failure = None;
        }
        self.failure.get_or_insert(error);
        self.failure_count += 1;
    }

    /// What is in `range` is now as it was written.
    pub(crate) fn clear(&mut self, range: &Range<u64>) {
        let without = |lost: Span| {
            let before = lost.range.start..lost.range.end.min(range.start);
            let after = lost.range.start.max(range.end)..lost.range.end;
            let rest = [before, after].into_iter().filter(|rest| rest.start < rest.end);
            rest.map(move |range| Span { range, is_cut: lost.is_cut })
        };
        self.spans = std::mem::take(&mut self.spans).into_iter().flat_map(without).collect();
    }

    /// The failure because of which bytes in `range` are not what was written.
    pub(crate) fn within(&self, range: &Range<u64>) -> Option<&Error> {
        self.spans.iter().any(|lost| overlap(&lost.range, range)).then_some(self.failure.as_ref()).flatten()
    }

    /// The failure because of which a file of `size` bytes is not what was written. That its objects may have bytes
    /// beyond its end, because a cut was lost, matters only once it grows over them.
    pub(crate) fn outstanding(&self, size: u64) -> Option<&Error> {
        let mut lost = self.spans.iter().filter(|lost| !lost.is_cut || lost.range.start < size);
        lost.next().and(self.failure.as_ref())
    }

    /// What is lost of a file of `size` bytes.
    pub(crate) fn ranges(&self, size: u64) -> impl Iterator<Item = Range<u64>> {
        let lost = self.spans.iter().filter(move |lost| !lost.is_cut || lost.range.start < size);
        lost.map(|lost| lost.range.clone())
    }

    /// How many failures there were, for handles to compare with what they have reported.
    pub(crate) fn count(&self) -> (u64, Option<&Error>) {
        (self.failure_count, self.failure.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::Code;

    #[test]
    fn what_was_written_again_is_forgiven_and_the_rest_is_not() {
        let mut lost_ranges = LostRanges::default();
        lost_ranges.add(100..200, 1, Error::new(Code::Timeout, "first"));
        lost_ranges.add(150..300, 1, Error::new(Code::Io, "second"));
        lost_ranges.clear(&(120..250));
        assert!(lost_ranges.within(&(120..250)).is_none());
        assert_eq!(lost_ranges.within(&(0..101)).map(|e| e.code), Some(Code::Timeout));
        lost_ranges.clear(&(0..120));
        assert!(lost_ranges.outstanding(0).is_some());
        lost_ranges.clear(&(250..u64::MAX));
        assert!(lost_ranges.outstanding(0).is_none());
        lost_ranges.add(0..1, 1, Error::new(Code::NoSpace, "third"));
        assert_eq!(lost_ranges.outstanding(0).map(|e| e.code), Some(Code::NoSpace));
        assert_eq!(lost_ranges.count().0, 3);
    }

    #[test]
    fn more_failures_than_are_kept_apart_count_with_all_between_them() {
        let mut lost_ranges = LostRanges::default();
        for at in 0..=LOST_RANGES_MAX as u64 {
            lost_ranges.add(at * 10..at * 10 + 1, 1, Error::new(Code::Io, ""));
        }
        assert!(lost_ranges.within(&(5..6)).is_some() && lost_ranges.within(&(1000..1001)).is_none());
    }

    #[test]
    fn losses_end_with_the_life_of_the_file() {
        let mut lost_ranges = LostRanges::default();
        lost_ranges.add(0..1, 7, Error::new(Code::Io, ""));
        assert!(lost_ranges.clone().in_life(Some(7)).outstanding(0).is_some());
        assert!(lost_ranges.clone().in_life(Some(8)).outstanding(0).is_none());
        assert!(lost_ranges.in_life(None).outstanding(0).is_none());
    }
}
