//! Finds reads at a constant distance: records of a matrix's column, every n-th block, a file read backwards.
//!
//! Pure logic: it is told of reads and says where the next ones will be if it goes on like this.

use std::ops::Range;

/// Watches the reads of one handle.
#[derive(Debug, Default)]
pub(super) struct Strides {
    last: Option<Range<u64>>,
    /// From the start before the last to the last start, and how often in a row it was so with the same length.
    step_bytes: i64,
    steps: u32,
}

/// Reads of the same length at a constant distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stride {
    step_bytes: i64,
    length: u64,
}

/// Equal steps that make a pattern: three reads, as two may be at any distance.
const STEPS_MIN: u32 = 2;

impl Strides {
    /// Takes note of a read. The pattern, when this one and the two before it make one: equally long, equally far
    /// apart, and without common bytes. Reads in order are one, too.
    pub(super) fn note(&mut self, range: &Range<u64>) -> Option<Stride> {
        let length = range.end.saturating_sub(range.start);
        let before = self.last.replace(range.clone());
        let step_bytes = before
            .filter(|before| before.end.saturating_sub(before.start) == length)
            .and_then(|before| range.start.checked_signed_diff(before.start));
        match step_bytes {
            Some(step_bytes) if step_bytes == self.step_bytes => self.steps = self.steps.saturating_add(1),
            Some(step_bytes) => (self.step_bytes, self.steps) = (step_bytes, 1),
            None => (self.step_bytes, self.steps) = (0, 0),
        }
        let is_pattern = self.steps >= STEPS_MIN && length > 0 && self.step_bytes.unsigned_abs() >= length;
        is_pattern.then_some(Stride { step_bytes: self.step_bytes, length })
    }
}

impl Stride {
    /// The `n`th read after the one at `start`; `None` where no file is.
    pub(super) fn after(&self, start: u64, n: u32) -> Option<Range<u64>> {
        let begin = start.checked_add_signed(self.step_bytes.checked_mul(n.into())?)?;
        Some(begin..begin.checked_add(self.length)?)
    }

    /// True when the read at `start` comes after the one at `first` and not after the one at `last`.
    pub(super) fn is_between(&self, start: u64, first: u64, last: u64) -> bool {
        if self.step_bytes > 0 { first < start && start <= last } else { last <= start && start < first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the last three reads say, looked at anew each time.
    fn judged(reads: &[Range<u64>]) -> Option<(i128, u64)> {
        let [.., first, second, third] = reads else { return None };
        let length = |range: &Range<u64>| range.end - range.start;
        let step = |a: &Range<u64>, b: &Range<u64>| i128::from(b.start) - i128::from(a.start);
        let is_even = step(first, second) == step(second, third)
            && length(first) == length(second)
            && length(second) == length(third);
        let step = step(second, third);
        let is_apart = length(third) > 0 && step.unsigned_abs() >= u128::from(length(third));
        (is_even && is_apart && i64::try_from(step).is_ok()).then_some((step, length(third)))
    }

    fn any_read() -> impl Strategy<Value = Range<u64>> {
        let near = (0u64..6, 0u64..3).prop_map(|(start, length)| start..start + length);
        let anywhere = (any::<u64>(), any::<u64>()).prop_map(|(a, b)| a.min(b)..a.max(b));
        prop_oneof![9 => near, 1 => anywhere]
    }

    proptest! {
        #[test]
        fn a_pattern_is_three_reads_that_make_one_whatever_came_before(
            reads in proptest::collection::vec(any_read(), 1..60),
        ) {
            let mut strides = Strides::default();
            for count in 1..=reads.len() {
                let found = strides.note(&reads[count - 1]);
                let found = found.map(|stride| (i128::from(stride.step_bytes), stride.length));
                prop_assert_eq!(found, judged(&reads[..count]));
            }
        }

        #[test]
        fn what_is_foretold_is_what_follows(
            start in 0u64..1 << 40, length in 1u64..1 << 20, gap in 0u64..1 << 24, is_backwards: bool, n in 1u32..50,
        ) {
            let step = (length + gap) as i64 * if is_backwards { -1 } else { 1 };
            let begin = start + 60 * (length + gap);
            let read = |n: u32| {
                let start = begin.checked_add_signed(step * i64::from(n)).expect("within the file");
                start..start + length
            };
            let mut strides = Strides::default();
            prop_assert_eq!(strides.note(&read(0)), None);
            prop_assert_eq!(strides.note(&read(1)), None);
            let stride = strides.note(&read(2)).expect("three reads are enough");
            prop_assert_eq!(stride.after(read(2).start, n), Some(read(2 + n)));
        }

        #[test]
        fn nothing_is_foretold_where_no_file_is(start: u64, step: i64, length: u64, n: u32) {
            let stride = Stride { step_bytes: step, length };
            if let Some(range) = stride.after(start, n) {
                let expected = i128::from(start) + i128::from(step) * i128::from(n);
                prop_assert_eq!((i128::from(range.start), range.end - range.start), (expected, length));
            }
        }
    }
}
