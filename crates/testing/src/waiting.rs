//! Waits until something is so, with an end.

use std::time::Duration;
use vazao_meter::{Clock, SystemClock};

/// The longest wait for anything that is not known to take longer: the machine may be busy.
pub const TIMEOUT: Duration = Duration::from_secs(50);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until something is so. Panics when it is not within [`TIMEOUT`].
pub fn wait_until(what: &str, so: impl FnMut() -> bool) {
    wait_until_within(what, TIMEOUT, so);
}

/// Waits until something is so. Panics when it is not within `limit`.
pub fn wait_until_within(what: &str, limit: Duration, so: impl FnMut() -> bool) {
    assert!(is_within(limit, so), "waited in vain for {} s: {what}", limit.as_secs_f64());
}

/// Whether something comes to be so within `limit`.
pub fn is_within(limit: Duration, mut so: impl FnMut() -> bool) -> bool {
    let deadline_ns = SystemClock.now_ns() + limit.as_nanos() as u64;
    while !so() {
        if SystemClock.now_ns() >= deadline_ns {
            return false;
        }
        SystemClock.sleep(PAUSE);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_be_so_ends_the_wait_and_what_does_not_is_named() {
        let mut looks = 0;
        wait_until("the third look", || {
            looks += 1;
            looks == 3
        });
        assert!(!is_within(Duration::from_millis(20), || false));
        let vain = || wait_until_within("rain", Duration::from_millis(20), || false);
        let said = std::panic::catch_unwind(vain).expect_err("it never comes");
        assert_eq!(
            said.downcast_ref::<String>().map(String::as_str),
            Some("waited in vain for 0.02 s: rain")
        );
    }
}
