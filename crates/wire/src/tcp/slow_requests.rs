//! Slow-request watchdog: reports a request that waits long while it still waits, so that the log shows what hangs
//! before it fails.

use crate::operation::Method;
use crate::service::RequestId;
use crate::transport::{OnSlow, Slow};
use std::sync::{Arc, OnceLock};
use vazao_meter::Clock;

/// A request to send.
pub(super) struct Outgoing<'a> {
    pub(super) id: u64,
    pub(super) method: Method,
    pub(super) message: &'a [u8],
    pub(super) attachment: &'a [u8],
    pub(super) submitted_ns: u64,
    /// It fails where it is not sent by then.
    pub(super) sent_by_ns: u64,
    pub(super) deadline_ns: u64,
}

/// The callback for slow requests, and the wait after which it is called.
#[derive(Default)]
pub(super) struct SlowRequestWatchdog {
    pub(super) slow_ns: u64,
    pub(super) on_slow: OnceLock<OnSlow>,
}

/// A wait that begins late has at least this part of the time to receive an answer that is there already.
const LOOKS: u64 = 16;

/// Watchdog of one request.
pub(super) struct RequestTimeout<'a> {
    watch: &'a SlowRequestWatchdog,
    clock: &'a Arc<dyn Clock>,
    address: &'a str,
    method: Method,
    id: u64,
    /// When to report the request. A caller that asked several servers and waits for one after the other begins its
    /// last wait late. The last answer may have arrived long before, so it gets a moment to be received.
    tells_ns: u64,
    submitted_ns: u64,
    /// Reported already, or there is no callback.
    is_over: bool,
}

/// What is known of a request while it waits.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) id: u64,
    pub(super) method: Method,
    pub(super) submitted_ns: u64,
    pub(super) deadline_ns: u64,
}

impl Asked {
    pub(super) fn of(request: &Outgoing<'_>) -> Asked {
        let Outgoing { id, method, submitted_ns, deadline_ns, .. } = *request;
        Asked { id, method, submitted_ns, deadline_ns }
    }
}

impl<'a> RequestTimeout<'a> {
    pub(super) fn new(
        watch: &'a SlowRequestWatchdog,
        clock: &'a Arc<dyn Clock>,
        address: &'a str,
        asked: &Asked,
    ) -> RequestTimeout<'a> {
        let Asked { id, method, submitted_ns, .. } = *asked;
        let is_over = watch.on_slow.get().is_none();
        let looked_ns = clock.now_ns().saturating_add(watch.slow_ns / LOOKS);
        let tells_ns = submitted_ns.saturating_add(watch.slow_ns).max(looked_ns);
        RequestTimeout { watch, clock, address, method, id, tells_ns, submitted_ns, is_over }
    }

    /// The time until which to wait before this is called again: the deadline, or the moment of the report before it.
    /// Reports the request once that moment has passed.
    pub(super) fn until_ns(&mut self, deadline_ns: u64) -> u64 {
        if self.is_over {
            return deadline_ns;
        }
        let now_ns = self.clock.now_ns();
        if now_ns < self.tells_ns {
            return deadline_ns.min(self.tells_ns);
        }
        self.is_over = true;
        if let Some(on_slow) = self.watch.on_slow.get() {
            let waited_ns = now_ns.saturating_sub(self.submitted_ns);
            let (address, method, id) = (self.address, self.method, RequestId(self.id));
            on_slow(&Slow { address, method, id, waited_ns });
        }
        deadline_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use vazao_meter::SystemClock;

    // A command that had asked the metadata service and a data server, and waited for the unresponsive one first,
    // reported of the other, too, that it had not answered for 18 s: its answer was unread in the socket.
    #[test]
    fn an_answer_that_is_looked_for_late_is_received_before_anybody_is_told() {
        static TOLD: AtomicU64 = AtomicU64::new(0);
        let watch = SlowRequestWatchdog { slow_ns: 16_000_000, ..SlowRequestWatchdog::default() };
        let told: OnSlow = Box::new(|_| {
            TOLD.fetch_add(1, Ordering::SeqCst);
        });
        assert!(watch.on_slow.set(told).is_ok());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let submitted_ns = clock.now_ns();
        clock.sleep(std::time::Duration::from_millis(20));
        let asked = Asked { id: 1, method: Method::Ping, submitted_ns, deadline_ns: u64::MAX };
        let mut timeout = RequestTimeout::new(&watch, &clock, "here", &asked);
        assert!(timeout.until_ns(u64::MAX) < u64::MAX && TOLD.load(Ordering::SeqCst) == 0);
        clock.sleep(std::time::Duration::from_millis(2));
        assert_eq!((timeout.until_ns(u64::MAX), TOLD.load(Ordering::SeqCst)), (u64::MAX, 1));
    }
}
