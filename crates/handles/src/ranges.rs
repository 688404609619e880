//! Limits of many ranges in one call.

use vazao_client::{Error, Result, Strided};
use vazao_model::Code;

/// Ranges that one call takes.
pub const RANGES_MAX: usize = 1 << 20;

/// Errors: two buffers (their first address and length) that overlap, of which the contents would depend on which one
/// is filled first.
pub fn check_apart(buffers: impl Iterator<Item = (usize, usize)>) -> Result<()> {
    let mut places: Vec<(usize, usize)> = buffers
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(start, bytes)| (start, start.saturating_add(bytes)))
        .collect();
    places.sort_unstable();
    match places.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        true => Err(Error::new(Code::Invalid, "buffers of two ranges overlap; give each range its own")),
        false => Ok(()),
    }
}

/// Equal ranges at equal distances. Errors: too many of them.
pub fn strided(offset: u64, length: usize, stride: u64, count: usize) -> Result<Strided> {
    if count > RANGES_MAX {
        let detail = format!("{count} ranges in one call; {RANGES_MAX} are the limit");
        return Err(Error::new(Code::TooLarge, detail));
    }
    Ok(Strided { offset, length, stride, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_overlap_are_refused_and_neighbours_are_not() {
        assert!(check_apart([(100, 10), (90, 10), (110, 1)].into_iter()).is_ok());
        assert!(check_apart([(100, 10), (105, 0)].into_iter()).is_ok(), "an empty one has no place");
        assert!(check_apart([(100, 10), (90, 11)].into_iter()).is_err());
    }

    #[test]
    fn more_ranges_than_a_call_takes_are_refused() {
        assert!(strided(0, 1, 1, RANGES_MAX).is_ok());
        assert!(strided(0, 1, 1, RANGES_MAX + 1).is_err());
    }
}
