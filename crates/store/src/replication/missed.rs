//! What a member misses that does not count: the bytes of objects that were changed without it. If it comes back as it
//! was, these are all in which it may differ.
//!
//! Invariant: had the member everything that its process `run` has answered, it is the same as the primary in all
//! bytes that are not in here, and touched by no change that is under way or uneven. It is established
//!
//! - for members that count, by a primary that has evened out what was under way before it;
//! - by a new primary, for the one before it, which it followed, with no other having led in between: whatever that one
//!   has, this one has, too, as a primary writes last, if it was ready; and what is not known to be complete everywhere
//!   is evened out, which enters it here. Of another member that left with it the same cannot be said: it may have got
//!   what the former primary sent to it alone;
//!
//! and kept, as each change that ends enters here for members that do not have it ([`Led::missed_by_others`]).
//!
//! [`Led::missed_by_others`]: super::Led::missed_by_others

use super::change::Touched;
use std::collections::BTreeMap;
use std::ops::Range;
use vazao_model::ObjectId;
use vazao_model::limits::BLOCK_BYTES;

/// Bytes are counted in pieces of this many at first, and sixteen times as many where that gets too much.
const GRAIN: u64 = 4096;
const COARSER: u64 = 16;

/// Ranges of all objects.
const RANGES_MAX: usize = 4 << 10;

/// Ranges of an object, the end of each by its start; they neither overlap nor touch.
type Ranges = BTreeMap<u64, u64>;

/// What one member misses of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Missed {
    /// The member's process that had everything.
    pub(super) run: u64,
    objects: BTreeMap<ObjectId, Ranges>,
    count: usize,
    grain: u64,
    /// More than can be kept: it may differ anywhere.
    is_too_much: bool,
}

impl Missed {
    /// Nothing.
    pub(super) fn new(run: u64) -> Missed {
        Missed { run, objects: BTreeMap::new(), count: 0, grain: GRAIN, is_too_much: false }
    }

    /// Whether a member that has kept everything since its process `kept_from` (0: that is not known) is as this says.
    pub(super) fn holds_since(&self, kept_from: u64) -> bool {
        !self.is_too_much && kept_from != 0 && kept_from <= self.run
    }

    /// It may differ anywhere.
    pub(super) fn is_too_much(&self) -> bool {
        self.is_too_much
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && !self.is_too_much
    }

    /// How many bytes are gone through for it, of ranges with an end; `None`: it may differ anywhere. A range without
    /// one is of an object that became shorter or was removed, which takes nothing.
    pub(super) fn bytes(&self) -> Option<u64> {
        let block = BLOCK_BYTES as u64;
        let of_range = |(&start, &end): (&u64, &u64)| match end {
            u64::MAX => 0,
            end if end - start < block => end - start,
            end => end.next_multiple_of(block) - start / block * block,
        };
        let ranges = self.objects.values().flatten();
        (!self.is_too_much).then(|| ranges.map(of_range).fold(0, u64::saturating_add))
    }

    pub(super) fn add(&mut self, touched: &Touched) {
        touched.ranges.iter().for_each(|range| self.add_range(touched.object, range));
        if self.count > RANGES_MAX {
            self.coarsen();
        }
    }

    fn add_range(&mut self, object: ObjectId, range: &Range<u64>) {
        if self.is_too_much || range.is_empty() {
            return;
        }
        let mut start = range.start / self.grain * self.grain;
        let mut end = range.end.checked_next_multiple_of(self.grain).unwrap_or(u64::MAX);
        let ranges = self.objects.entry(object).or_default();
        let before = ranges.len();
        // Backwards from the last one that begins before the end, while they touch.
        while let Some((&from, &to)) = ranges.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            (start, end) = (start.min(from), end.max(to));
            ranges.remove(&from);
        }
        ranges.insert(start, end);
        self.count = self.count + ranges.len() - before;
    }

    /// Keeps it in larger pieces, until it is few enough.
    fn coarsen(&mut self) {
        while self.count > RANGES_MAX / 2 {
            if self.objects.len() > RANGES_MAX / 2 {
                (self.is_too_much, self.count) = (true, 0);
                self.objects.clear();
                return;
            }
            self.grain = self.grain.saturating_mul(COARSER);
            self.count = 0;
            for (object, ranges) in std::mem::take(&mut self.objects) {
                ranges.iter().for_each(|(start, end)| self.add_range(object, &(*start..*end)));
            }
        }
    }

    /// Takes the first object out.
    pub(super) fn pop(&mut self) -> Option<Touched> {
        let (object, ranges) = self.objects.pop_first()?;
        self.count -= ranges.len();
        Some(Touched { object, ranges: ranges.into_iter().map(|(start, end)| start..end).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use vazao_model::{GroupId, InodeId};

    fn object(inode: u64) -> ObjectId {
        ObjectId { inode: InodeId(inode), generation: 1, slot: 0, group: GroupId(300) }
    }

    fn touched(inode: u64, range: Range<u64>) -> Touched {
        Touched { object: object(inode), ranges: vec![range] }
    }

    #[test]
    fn it_holds_for_a_member_that_lost_nothing_since() {
        let missed = Missed::new(7);
        assert!(missed.holds_since(7) && missed.holds_since(3));
        assert!(!missed.holds_since(8), "it lost power since, or its disk is another one");
        assert!(!missed.holds_since(0));
    }

    #[test]
    fn more_than_can_be_kept_is_kept_in_larger_pieces() {
        let mut missed = Missed::new(1);
        let far = 40 * GRAIN;
        (0..=RANGES_MAX as u64).for_each(|at| missed.add(&touched(2, at * far..at * far + 1)));
        assert!(missed.holds_since(1) && missed.count <= RANGES_MAX / 2, "{}", missed.count);
        let all = missed.pop().expect("there is some");
        for at in 0..=RANGES_MAX as u64 {
            assert!(all.ranges.iter().any(|range| range.contains(&(at * far))), "{at}");
        }
        assert!(missed.is_empty() && missed.count == 0);
    }

    #[test]
    fn more_objects_than_can_be_kept_are_all_compared() {
        let mut missed = Missed::new(1);
        (0..=RANGES_MAX as u64).for_each(|inode| missed.add(&touched(inode, 0..1)));
        assert!(!missed.holds_since(1) && !missed.is_empty());
    }

    #[test]
    fn bytes_are_those_of_whole_blocks_or_of_shorter_ranges_and_none_where_all_may_differ() {
        let mut missed = Missed::new(1);
        assert_eq!(missed.bytes(), Some(0));
        missed.add(&touched(1, 0..10));
        missed.add(&touched(1, GRAIN * 40..u64::MAX));
        missed.add(&touched(2, BLOCK_BYTES as u64 - 1..BLOCK_BYTES as u64 * 2 + 1));
        assert_eq!(missed.bytes(), Some(GRAIN + 3 * BLOCK_BYTES as u64));
        (0..=RANGES_MAX as u64).for_each(|inode| missed.add(&touched(inode, 0..1)));
        assert_eq!(missed.bytes(), None);
    }

    proptest! {
        #[test]
        fn what_was_added_comes_out_in_whole_pieces_and_nothing_else(
            added in prop::collection::vec((0..3_u64, 0..40_u64, 1..9_u64), 0..60),
        ) {
            let mut missed = Missed::new(1);
            let mut pieces = BTreeSet::new();
            for (inode, at, length) in added {
                // Inside of pieces.
                missed.add(&touched(inode, at * GRAIN + 5..(at + length) * GRAIN - 5));
                pieces.extend((at..at + length).map(|piece| (object(inode), piece)));
            }
            let count = missed.objects.values().map(Ranges::len).sum::<usize>();
            prop_assert_eq!(missed.count, count);
            while let Some(Touched { object, ranges }) = missed.pop() {
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", ranges);
                for piece in ranges.iter().flat_map(|range| range.start / GRAIN..range.end / GRAIN) {
                    prop_assert!(pieces.remove(&(object, piece)));
                }
            }
            prop_assert!(pieces.is_empty() && missed.is_empty());
        }
    }
}
