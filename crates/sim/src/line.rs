//! A line between two sites of a simulated cluster, cut for a while: what would cross it never arrives.
//!
//! The site beyond the line is the first zone; the metadata service is on this side. The first request of a client
//! after a cut was under way when it came: it has arrived, and only its answer is lost.

use crate::clock::SimClock;
use prost::Message;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Pending, Received, Transport};
use vazao_wire::{Method, proto};

/// The line.
pub(crate) struct Line {
    clock: Arc<SimClock>,
    zone: String,
    /// Servers beyond it.
    beyond: BTreeSet<String>,
    cut_until_ns: AtomicU64,
    /// One request has been taken for the one that was under way at the cut.
    is_answer_lost: AtomicBool,
}

impl Line {
    pub(crate) fn new(clock: Arc<SimClock>, zone: String, beyond: BTreeSet<String>) -> Line {
        let (cut_until_ns, is_answer_lost) = (AtomicU64::new(0), AtomicBool::new(true));
        Line { clock, zone, beyond, cut_until_ns, is_answer_lost }
    }

    pub(crate) fn cut(&self, duration: Duration) {
        let until_ns = self.clock.now_ns() + duration.as_nanos() as u64;
        self.cut_until_ns.store(until_ns, Ordering::Relaxed);
        self.is_answer_lost.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.clock.now_ns() < self.cut_until_ns.load(Ordering::Relaxed)
    }

    /// Whether a request from a zone to an address does not get through.
    fn parts(&self, zone: &str, address: &str) -> bool {
        self.is_cut() && (zone == self.zone) != self.beyond.contains(address)
    }
}

/// Where the requests of a transport come from.
pub(crate) enum From {
    /// From a client of this zone, which waits for what is lost.
    Client(String),
    /// From daemons, which say their zone when they register, and otherwise are the metadata service. Their background
    /// work takes no time: what is lost fails at once.
    Daemons,
}

/// A transport whose requests may have to cross the line.
pub(crate) struct Crossing {
    pub(crate) inner: Arc<dyn Transport>,
    pub(crate) line: Arc<Line>,
    pub(crate) from: From,
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
        Err(Fault::new(Code::Timeout, format!("{} is beyond a line that is cut", self.address)))
    }

    fn is_done(&self) -> bool {
        self.clock.now_ns() >= self.until_ns
    }
}

impl Crossing {
    fn zone(&self, method: Method, message: &[u8]) -> String {
        match &self.from {
            From::Client(zone) => zone.clone(),
            From::Daemons if method == Method::RegisterNode => {
                proto::RegisterNodeRequest::decode(message).expect("a daemon's own request").zone
            }
            From::Daemons => String::new(),
        }
    }
}

impl Transport for Crossing {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        if !self.line.parts(&self.zone(method, message), address) {
            return self.inner.submit(address, method, message, attachment, deadline_ns);
        }
        let waits = matches!(self.from, From::Client(_));
        if waits && !self.line.is_answer_lost.swap(true, Ordering::Relaxed) {
            // Handled as it is submitted; what it answers is dropped.
            drop(self.inner.submit(address, method, message, attachment, deadline_ns));
        }
        let clock = self.clock();
        let until_ns = if waits { deadline_ns } else { clock.now_ns() };
        Box::new(Lost { address: address.to_owned(), clock, until_ns })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}
