//! The machine's clock, which several processes share, and waiting by it.

use crate::failure::{Failure, Outcome};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};

/// How long anything here is waited for: the machine may be busy.
const TIMEOUT_MS: u64 = 60_000;

/// The machine's monotonic clock. Not a process's own, since moments of several processes are compared.
pub fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Lets time pass.
pub fn sleep_ms(milliseconds: u64) {
    SystemClock.sleep(Duration::from_millis(milliseconds));
}

/// Waits until something is so.
pub fn wait_until(what: &str, so: impl FnMut() -> bool) -> Outcome {
    wait_until_within(what, TIMEOUT_MS, so)
}

/// Waits until something is so, for `ms_max` at most.
pub fn wait_until_within(what: &str, ms_max: u64, mut so: impl FnMut() -> bool) -> Outcome {
    let deadline_ns = now_ns() + ms_max * 1_000_000;
    while !so() {
        if now_ns() > deadline_ns {
            return Err(Failure::new(format!("waited in vain: {what}")));
        }
        sleep_ms(2);
    }
    Ok(())
}
