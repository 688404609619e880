//! The transport of one machine: what it sends goes over its links, and is lost where they are cut.

use super::Network;
use super::links::Machine;
use crate::clock::{MachineClock, SimClock};
use std::sync::Arc;
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::inline::InlineTransport;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::transport::{Pending, Presence, Received, Transport};

/// A machine's transport. Every client and every server has one of its own.
pub struct Endpoint {
    pub(super) machine: Machine,
    pub(super) zone: String,
    pub(super) network: Arc<Network>,
    pub(super) inner: Arc<InlineTransport>,
    pub(super) cluster_clock: Arc<SimClock>,
    pub(super) clock: Arc<MachineClock>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({:?})", self.machine)
    }
}

/// A request without an answer.
struct Lost {
    address: String,
    clock: Arc<dyn Clock>,
    until_ns: u64,
}

impl Pending for Lost {
    fn wait(self: Box<Self>) -> Result<Received, Fault> {
        let left_ns = self.until_ns.saturating_sub(self.clock.now_ns());
        self.clock.sleep(Duration::from_nanos(left_ns));
        Err(Fault::new(Code::Timeout, format!("{} is beyond a link that is cut", self.address)))
    }

    fn is_done(&self) -> bool {
        self.clock.now_ns() >= self.until_ns
    }

    fn settle_by(&self, until_ns: u64) -> bool {
        let left_ns = until_ns.min(self.until_ns).saturating_sub(self.clock.now_ns());
        self.clock.sleep(Duration::from_nanos(left_ns));
        self.is_done()
    }
}

/// A request whose waiter's times are on its machine's clock.
struct Waited {
    inner: Box<dyn Pending>,
    clock: Arc<MachineClock>,
}

impl Pending for Waited {
    fn wait(self: Box<Self>) -> Result<Received, Fault> {
        self.inner.wait()
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn settle_by(&self, until_ns: u64) -> bool {
        self.inner.settle_by(self.clock.cluster_ns(until_ns))
    }
}

impl Endpoint {
    /// Whether a request to `address`, or the answer to one, is lost.
    fn loses(&self, address: &str, is_answer: bool) -> bool {
        let mine = (self.machine, self.zone.as_str());
        self.network.loses(mine, address, is_answer, self.cluster_clock.now_ns())
    }

    fn lost(&self, address: &str, deadline_ns: u64) -> Box<dyn Pending> {
        // What daemons do from time to time takes no time here: a wait in it would keep the others from their turn. Nor
        // does a machine wait that stands still.
        let until_ns = if self.clock.can_wait() { deadline_ns } else { 0 };
        Box::new(Lost { address: address.to_owned(), clock: self.clock(), until_ns })
    }
}

impl Transport for Endpoint {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        if self.loses(address, false) {
            return self.lost(address, deadline_ns);
        }
        // Handled as it is submitted.
        let cluster_ns = self.clock.cluster_ns(deadline_ns);
        let answer = self.inner.submit(address, method, message, attachment, cluster_ns);
        // An answer that is not there yet is waited for in no time where none can pass.
        let is_late = !self.clock.can_wait() && !answer.is_done();
        if is_late || self.loses(address, true) {
            return self.lost(address, deadline_ns);
        }
        Box::new(Waited { inner: answer, clock: Arc::clone(&self.clock) })
    }

    fn presence(&self, address: &str, deadline_ns: u64) -> Presence {
        if self.loses(address, false) || self.loses(address, true) {
            return Presence::Unknown;
        }
        self.inner.presence(address, self.clock.cluster_ns(deadline_ns))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }
}

/// A service on a machine: the deadlines of its requests are on the machine's clock.
pub(crate) struct OnMachine {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) clock: Arc<MachineClock>,
}

impl Service for OnMachine {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let deadline_ns = self.clock.ns_at(request.deadline_ns);
        self.service.handle(Request { deadline_ns, ..request }, responder);
    }

    fn flush(&self) -> Result<(), Fault> {
        self.service.flush()
    }
}
