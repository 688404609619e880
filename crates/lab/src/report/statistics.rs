//! Sums repetitions up: mean, median, smallest and largest. Never a single run, never only a mean.

use serde::{Deserialize, Serialize};

/// What a number of repetitions of one measurement gave.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Repetitions.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// The summary of `values`; `None` when there are none or one is not a number.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.is_empty() || values.iter().any(|v| v.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let middle = count / 2;
        let median =
            if count % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        let mean = sorted.iter().sum::<f64>() / count as f64;
        Some(Summary { count, mean, median, min: sorted[0], max: sorted[count - 1] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_not_a_number_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn an_odd_number_has_its_middle_as_the_median() {
        let summary = Summary::of(&[9.0, 1.0, 2.0]).expect("three values");
        assert_eq!(summary, Summary { count: 3, mean: 4.0, median: 2.0, min: 1.0, max: 9.0 });
    }

    #[test]
    fn an_even_number_has_the_mean_of_both_middles_as_the_median() {
        let summary = Summary::of(&[4.0, 1.0, 2.0, 100.0]).expect("four values");
        assert_eq!((summary.median, summary.mean), (3.0, 26.75));
    }

    #[test]
    fn one_value_is_its_own_summary() {
        let summary = Summary::of(&[7.5]).expect("one value");
        assert_eq!(summary, Summary { count: 1, mean: 7.5, median: 7.5, min: 7.5, max: 7.5 });
    }
}
