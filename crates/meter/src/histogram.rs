//! Latency histograms: 4 buckets to each power of two of nanoseconds, so a quantile is right within 19 %.

use std::sync::atomic::{AtomicU64, Ordering};

const SUB_BITS: u32 = 2;
const BUCKETS: usize = 64 << SUB_BITS;

/// A histogram of durations in nanoseconds, recorded without locks.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: Box::new([const { AtomicU64::new(0) }; BUCKETS]), sum_ns: AtomicU64::new(0) }
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < 1 << SUB_BITS {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros();
    let sub = (ns >> (power - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    (((power - SUB_BITS + 1) << SUB_BITS) as u64 + sub) as usize
}

/// Largest value that falls into bucket `index`.
fn upper_ns(index: usize) -> u64 {
    if index < 1 << SUB_BITS {
        return index as u64;
    }
    let power = (index >> SUB_BITS) as u32 - 1;
    let sub = (index & ((1 << SUB_BITS) - 1)) as u64;
    // The bounds of the last buckets do not fit.
    let bound = (((1 << SUB_BITS) + u128::from(sub) + 1) << power) - 1;
    u64::try_from(bound).unwrap_or(u64::MAX)
}

impl Histogram {
    /// Records one duration.
    pub fn record(&self, ns: u64) {
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Number of durations recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// Their sum in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Ordering::Relaxed)
    }

    /// The duration below which the share `q` (0 to 1) of the recorded ones lies; 0 when there are none.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let wanted = (self.count() as f64 * q.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.load(Ordering::Relaxed);
            if seen >= wanted {
                return upper_ns(index);
            }
        }
        0
    }

    /// The counts of all buckets, without the empty ones at the end.
    pub fn buckets(&self) -> Vec<u64> {
        let mut counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        counts
    }

    /// Number of durations at most `ns`, counted by whole buckets.
    pub fn count_up_to(&self, ns: u64) -> u64 {
        self.buckets[..=bucket_of(ns)].iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }
}

/// The duration below which the share `q` lies of what `buckets`, as [`Histogram::buckets`] gives them, have counted.
pub fn quantile_of(buckets: &[u64], q: f64) -> Option<u64> {
    let count = buckets.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    let wanted = (count as f64 * q.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
    let mut seen = 0u64;
    for (index, bucket) in buckets.iter().take(BUCKETS).enumerate() {
        seen = seen.saturating_add(*bucket);
        if seen >= wanted {
            return Some(upper_ns(index));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_that_went_over_the_wire_have_the_same_quantiles() {
        let histogram = Histogram::default();
        (1..1000).for_each(|n| histogram.record(n * 1000));
        assert_eq!(quantile_of(&histogram.buckets(), 0.99), Some(histogram.quantile_ns(0.99)));
        assert_eq!(quantile_of(&[], 0.5), None);
        assert_eq!(quantile_of(&[0, 0], 0.5), None);
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        assert_eq!(Histogram::default().quantile_ns(0.99), 0);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_within_a_quarter(ns in 0u64..1 << 62) {
            let index = bucket_of(ns);
            prop_assert!(ns <= upper_ns(index));
            prop_assert!(index == 0 || ns > upper_ns(index - 1));
            prop_assert!(upper_ns(index) as f64 <= ns as f64 * 1.25 + 1.0);
        }

        #[test]
        fn quantiles_are_near_those_of_the_sorted_values(
            mut values in proptest::collection::vec(1u64..1 << 40, 1..300), q in 0.0f64..1.0,
        ) {
            let histogram = Histogram::default();
            values.iter().for_each(|&v| histogram.record(v));
            values.sort_unstable();
            let rank = ((values.len() as f64 * q).ceil().max(1.0) as usize).min(values.len());
            let exact = values[rank - 1] as f64;
            let found = histogram.quantile_ns(q) as f64;
            prop_assert!(found >= exact && found <= exact * 1.25 + 1.0);
        }
    }
}
