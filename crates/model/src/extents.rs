//! Sets of bytes of a file, as ranges: what of it was written, and what was never.
//!
//! Knows nothing of why: the metadata service and clients give them their meaning.

use std::ops::Range;

/// Ranges of offsets in ascending order that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Range<u64>>);

impl Extents {
    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Each of them, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Adds a range, joined with those that it touches.
    pub fn add(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|there| there.end < range.start);
        let last = self.0.partition_point(|there| there.start <= range.end);
        for there in self.0.drain(first..last) {
            range = range.start.min(there.start)..range.end.max(there.end);
        }
        self.0.insert(first, range);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|there| there.end <= range.start);
        let last = self.0.partition_point(|there| there.start < range.end);
        let touched = self.0.get(first..last).unwrap_or_default();
        let (Some(start), Some(end)) = (touched.first(), touched.last()) else { return };
        let rest = [start.start..range.start, range.end..end.end];
        self.0.splice(first..last, rest.into_iter().filter(|rest| !rest.is_empty()));
    }

    /// Takes out what lies at or behind `end`.
    pub fn cut(&mut self, end: u64) {
        self.remove(&(end..u64::MAX));
    }

    /// The parts of `range` that are in the set.
    pub fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|there| there.end <= range.start);
        let (start, end) = (range.start, range.end);
        let touched =
            self.0.get(first..).unwrap_or_default().iter().take_while(move |there| there.start < end);
        touched.map(move |there| there.start.max(start)..there.end.min(end)).filter(|part| !part.is_empty())
    }

    /// True when a byte of `range` is in the set.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        self.within(range).next().is_some()
    }

    /// True when all of `range` is in the set.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.within(range).next().is_some_and(|part| part == *range)
    }

    /// Leaves out the shortest until there are at most `max`.
    pub fn keep_longest(&mut self, max: usize) {
        while self.0.len() > max {
            let length = |at: &usize| self.0.get(*at).map_or(u64::MAX, |range| range.end - range.start);
            let Some(shortest) = (0..self.0.len()).min_by_key(length) else { return };
            self.0.remove(shortest);
        }
    }

    /// Joins those that are nearest to one another until there are at most `max`, which is at least 1.
    pub fn join_nearest(&mut self, max: usize) {
        while self.0.len() > max.max(1) {
            let gap = |at: &usize| match (self.0.get(*at), self.0.get(at + 1)) {
                (Some(left), Some(right)) => right.start - left.end,
                _ => u64::MAX,
            };
            let Some(nearest) = (0..self.0.len() - 1).min_by_key(gap) else { return };
            let right = self.0.remove(nearest + 1);
            if let Some(left) = self.0.get_mut(nearest) {
                left.end = right.end;
            }
        }
    }
}

impl FromIterator<Range<u64>> for Extents {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Extents {
        let mut extents = Extents::default();
        ranges.into_iter().for_each(|range| extents.add(range));
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn too_many_lose_the_shortest_or_the_narrowest_gaps() {
        let many: Extents = [0..10, 20..25, 26..40, 100..101].into_iter().collect();
        let mut longest = many.clone();
        longest.keep_longest(2);
        assert_eq!(longest.iter().cloned().collect::<Vec<_>>(), [0..10, 26..40]);
        let mut joined = many.clone();
        joined.join_nearest(2);
        assert_eq!(joined.iter().cloned().collect::<Vec<_>>(), [0..40, 100..101]);
        assert!(many.covers(&(1..10)) && !many.covers(&(5..21)) && !many.overlaps(&(10..20)));
    }

    proptest! {
        /// Against one flag for each byte.
        #[test]
        fn extents_are_the_bytes_that_were_added_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 1..40),
            asked in (0u64..70, 0u64..20),
        ) {
            let (mut extents, mut flags) = (Extents::default(), [false; 100]);
            for (adds, start, length) in steps {
                let range = start..start + length;
                flags[range.start as usize..range.end as usize].fill(adds);
                if adds { extents.add(range) } else { extents.remove(&range) }
            }
            let mut shown = [false; 100];
            extents.iter().for_each(|range| shown[range.start as usize..range.end as usize].fill(true));
            prop_assert_eq!(shown, flags);
            let apart = extents.0.windows(2).all(|pair| pair[0].end < pair[1].start);
            prop_assert!(apart && extents.iter().all(|range| !range.is_empty()));
            let range = asked.0..asked.0 + asked.1;
            let within: Extents = extents.within(&range).collect();
            let mut expected = extents.clone();
            expected.cut(range.end);
            expected.remove(&(0..range.start));
            prop_assert_eq!(within, expected);
        }
    }
}
