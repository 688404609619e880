//! When a failed request is sent again, and what a caller is told when it is not.

use crate::Error;
use crate::core::Context;
use std::fmt::Display;
use std::time::Duration;
use vazao_model::{Action, Code};
use vazao_wire::Method;
use vazao_wire::interrupt;
use vazao_wire::service::{Fault, RequestId};

/// First pause before a repetition.
const PAUSE_MS_MIN: u64 = 5;
/// Longest pause: a server that comes back is found within this.
pub(crate) const PAUSE_MS_MAX: u64 = 1_000;
/// A single attempt is given at least this long, if the deadline allows.
const ATTEMPT_MS_MIN: u64 = 1_000;

const NS_A_MS: u64 = 1_000_000;

/// The attempts of one call.
#[derive(Debug)]
pub(crate) struct Attempts {
    started_ns: u64,
    deadline_ns: u64,
    failures: u32,
    /// The latest of them.
    pub(crate) request: RequestId,
}

impl Attempts {
    /// Attempts until `deadline_ns`.
    pub(crate) fn until(context: &Context, deadline_ns: u64) -> Attempts {
        Attempts {
            started_ns: context.clock.now_ns(),
            deadline_ns,
            failures: 0,
            request: RequestId::default(),
        }
    }

    /// Until when the next attempt waits for its answer: half of what is left, so that one lost request does not use
    /// up the whole deadline.
    pub(crate) fn attempt_deadline_ns(&self, context: &Context) -> u64 {
        attempt_deadline_ns(context.clock.now_ns(), self.deadline_ns)
    }

    /// When the call began.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// True for the first attempt.
    pub(crate) fn is_first(&self) -> bool {
        self.failures == 0
    }

    /// Waits before the next attempt. False when the fault is final or no time is left.
    pub(crate) fn pause(&mut self, context: &Context, fault: &Fault) -> bool {
        is_tried_again(fault.code) && self.pause_at_most(context, fault.code, PAUSE_MS_MAX)
    }

    /// True when the call ends here instead of being tried again, because its caller was interrupted. An answer that
    /// has arrived is the answer, and what may still be answered in time is tried again.
    pub(crate) fn is_given_up(&self, context: &Context, fault: &Fault) -> bool {
        is_tried_again(fault.code) && interrupt::is_due(self.started_ns, context.clock.now_ns())
    }

    /// The same after a fault that the caller knows not to be final; no pause is longer than `ms_max`.
    pub(crate) fn pause_at_most(&mut self, context: &Context, code: Code, ms_max: u64) -> bool {
        let now_ns = context.clock.now_ns();
        if now_ns >= self.deadline_ns {
            return false;
        }
        if code != Code::Timeout {
            let pause_ms = (PAUSE_MS_MIN << self.failures.min(10)).min(ms_max);
            let pause_ns = context.jitter(pause_ms * NS_A_MS).min(self.deadline_ns - now_ns);
            context.clock.sleep(Duration::from_nanos(pause_ns));
        }
        self.failures += 1;
        context.clock.now_ns() < self.deadline_ns
    }

    /// Milliseconds since the call began.
    pub(crate) fn elapsed_ms(&self, context: &Context) -> u64 {
        context.clock.now_ns().saturating_sub(self.started_ns) / NS_A_MS
    }
}

/// See [`Attempts::attempt_deadline_ns`].
pub(crate) fn attempt_deadline_ns(now_ns: u64, deadline_ns: u64) -> u64 {
    let left = deadline_ns.saturating_sub(now_ns);
    now_ns + left.min((left / 2).max(ATTEMPT_MS_MIN * NS_A_MS))
}

pub(crate) fn is_tried_again(code: Code) -> bool {
    code == Code::Timeout || code.action() != Action::GiveUp
}

fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{:.1} s", ms as f64 / 1000.0) }
}

/// Logs a failed attempt; the request id is also in the log of the server.
pub(crate) fn log_failure(request: RequestId, method: Method, server: &dyn Display, fault: &Fault) {
    tracing::debug!(%request, method = method.name(), %server, error = %fault, "request failed");
}

/// What the caller is told of a fault at `server`, after `elapsed_ms` of trying. A fault that was tried again says how
/// long: without that, one that ends a call after its whole deadline looks like one that nothing was tried against.
pub(crate) fn final_error(fault: Fault, server: &str, elapsed_ms: u64) -> Error {
    let said = |fault: &Fault| {
        if fault.detail.is_empty() { String::new() } else { format!(" ({})", fault.detail) }
    };
    let detail = match fault.code {
        Code::Timeout => format!(
            "{server} has not answered for {}; `vazao status` shows which nodes are up",
            seconds(elapsed_ms)
        ),
        Code::Unreachable | Code::Disconnected => format!(
            "{server} could not be reached for {}{}; start it again or see `vazao status`",
            seconds(elapsed_ms),
            said(&fault)
        ),
        Code::WrongTarget | Code::WrongEpoch => {
            format!(
                "{server} has not held it for {}{}; see `vazao status` for the nodes that are missing",
                seconds(elapsed_ms),
                said(&fault)
            )
        }
        code if code.action() != Action::GiveUp => {
            format!("{server} has refused for {}{}; see `vazao status`", seconds(elapsed_ms), said(&fault))
        }
        _ if fault.detail.is_empty() => server.to_owned(),
        _ => format!("{server}: {}", fault.detail),
    };
    Error::new(fault.code, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_attempt_takes_half_of_what_is_left_and_never_more_than_that() {
        let s = 1_000 * NS_A_MS;
        assert_eq!(attempt_deadline_ns(0, 30 * s), 15 * s);
        assert_eq!(attempt_deadline_ns(15 * s, 30 * s), 15 * s + 15 * s / 2);
        assert_eq!(attempt_deadline_ns(0, s / 2), s / 2);
        assert_eq!(attempt_deadline_ns(0, s + s / 2), s);
        assert_eq!(attempt_deadline_ns(9 * s, 8 * s), 9 * s);
    }

    /// A call that ended after its whole deadline with "does not hold it" looked as if it had failed at once.
    #[test]
    fn every_error_that_was_tried_again_says_for_how_long() {
        let is_tried_again = |code: &&Code| code.action() != Action::GiveUp || **code == Code::Timeout;
        for &code in Code::ALL.iter().filter(is_tried_again) {
            let text = final_error(Fault::new(code, "why"), "data server n3 (h:1)", 29_500).to_string();
            assert!(text.starts_with("data server n3 (h:1) "), "{code:?}: {text}");
            assert!(text.contains(" for 29.5 s"), "{code:?}: {text}");
            assert!(text.contains("`vazao status`"), "{code:?}: {text}");
        }
    }

    #[test]
    fn a_silent_server_is_named_with_the_time_waited_and_a_remedy() {
        let error = final_error(Code::Timeout.into(), "data server n3 (h:1)", 30_000);
        assert!(error.to_string().contains("data server n3 (h:1) has not answered for 30 s"), "{error}");
        assert!(error.to_string().contains("vazao status"), "{error}");
    }
}
