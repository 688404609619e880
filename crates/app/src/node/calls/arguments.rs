//! The arguments of a remote call, taken as what they have to be.

use crate::failure::{Failure, Outcome};
use std::time::Duration;
use vazao_luarpc::Value;

/// The largest whole number that a double has without a gap.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// The arguments of a call. The server has checked their number and types.
pub(super) struct Arguments<'a>(&'a [Value]);

impl<'a> Arguments<'a> {
    pub(super) fn new(values: &'a [Value]) -> Arguments<'a> {
        Arguments(values)
    }

    /// The bytes of a string.
    pub(super) fn bytes(&self, at: usize) -> &[u8] {
        self.0.get(at).and_then(Value::bytes).unwrap_or_default()
    }

    /// A text; `what` names it in errors.
    pub(super) fn text(&self, at: usize, what: &str) -> Outcome<&str> {
        let bytes = self.bytes(at);
        std::str::from_utf8(bytes)
            .map_err(|_| Failure::new(format!("{what} {} is not UTF-8", crate::location::show(bytes))))
    }

    /// A whole number up to `most`; `what` names it in errors.
    pub(super) fn whole(&self, at: usize, what: &str, most: u64) -> Outcome<u64> {
        let number = self.number(at);
        let is_whole = number >= 0.0 && number.fract() == 0.0 && number <= WHOLE_MAX.min(most as f64);
        if is_whole {
            return Ok(number as u64);
        }
        Err(Failure::new(format!(
            "{what} is {number}, and has to be a whole number from 0 to {}",
            most.min(WHOLE_MAX as u64)
        )))
    }

    /// A number of seconds between two; errors name the limits.
    pub(super) fn seconds(&self, at: usize, least: f64, most: f64) -> Outcome<Duration> {
        let number = self.number(at);
        if (least..=most).contains(&number) {
            return Ok(Duration::from_secs_f64(number));
        }
        Err(Failure::new(format!(
            "seconds is {number}, and has to be between {least} and {most}; call again for more"
        )))
    }

    fn number(&self, at: usize) -> f64 {
        self.0.get(at).and_then(Value::number).unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_with_the_range() {
        let values: Vec<Value> =
            [0.0, 7.0, 1.5, -1.0, f64::NAN, f64::INFINITY, 1e300].into_iter().map(Value::Double).collect();
        let arguments = Arguments(&values);
        assert_eq!(arguments.whole(0, "offset", u64::MAX), Ok(0));
        assert_eq!(arguments.whole(1, "offset", 7), Ok(7));
        for at in 2..values.len() {
            let said = arguments.whole(at, "offset", u64::MAX).expect_err("refused");
            let said = said.message().unwrap_or_default();
            assert!(said.starts_with("offset is ") && said.ends_with("from 0 to 9007199254740992"), "{said}");
        }
        assert!(arguments.whole(1, "count", 6).is_err());
        assert!(arguments.seconds(0, 0.2, 10.0).is_err() && arguments.seconds(4, 0.2, 10.0).is_err());
        assert_eq!(arguments.seconds(1, 0.2, 10.0), Ok(Duration::from_secs(7)));
    }
}
