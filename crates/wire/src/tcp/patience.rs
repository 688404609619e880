//! A request that waits long is told of while it waits: whoever looks at a log should see what hangs before it fails.

use super::link::Outgoing;
use crate::operation::Method;
use crate::service::RequestId;
use crate::transport::{OnSlow, Slow};
use std::sync::{Arc, OnceLock};
use vazao_meter::Clock;

/// Who is told, and when.
#[derive(Default)]
pub(super) struct Watch {
    pub(super) slow_ns: u64,
    pub(super) on_slow: OnceLock<OnSlow>,
}

/// The patience with one request.
pub(super) struct Patience<'a> {
    watch: &'a Watch,
    clock: &'a Arc<dyn Clock>,
    address: &'a str,
    method: Method,
    id: u64,
    submitted_ns: u64,
    /// Told already, or there is nobody to tell.
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

impl<'a> Patience<'a> {
    pub(super) fn new(
        watch: &'a Watch,
        clock: &'a Arc<dyn Clock>,
        address: &'a str,
        asked: &Asked,
    ) -> Patience<'a> {
        let Asked { id, method, submitted_ns, .. } = *asked;
        let is_over = watch.on_slow.get().is_none();
        Patience { watch, clock, address, method, id, submitted_ns, is_over }
    }

    /// Until when to wait before this is called again: the deadline, or the end of patience before it. Once patience
    /// has ended the watcher is told.
    pub(super) fn until_ns(&mut self, deadline_ns: u64) -> u64 {
        if self.is_over {
            return deadline_ns;
        }
        let ends_ns = self.submitted_ns.saturating_add(self.watch.slow_ns);
        let now_ns = self.clock.now_ns();
        if now_ns < ends_ns {
            return deadline_ns.min(ends_ns);
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
