//! What a client has moved and what it has waited for, by server: from this the doors name the bottleneck.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use vazao_meter::measures::Peer;
use vazao_meter::{Accounts, Cause, Clock, Counter, Histogram, Occupancy};

/// The counters of one server, shared by all requests to it.
#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    pub(crate) requests: Counter,
    pub(crate) retries: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_local: Counter,
    /// Written from lent memory.
    pub(crate) bytes_lent: Counter,
    pub(crate) bytes_written: Counter,
    /// Reads that other servers could have answered, too.
    pub(crate) copy_reads: Counter,
    /// Of requests: those sent because another copy was late.
    pub(crate) hedged: Counter,
    /// Of requests: those sent because another copy did not answer, or not with what was asked for.
    pub(crate) other_copy: Counter,
    pub(crate) waited_ns: Counter,
    pub(crate) credit_ns: Counter,
    pub(crate) service_ns: Counter,
    /// Callers that block on an answer.
    pub(crate) waits: Occupancy,
    /// Callers that block until a request can be handed over (backpressure).
    pub(crate) credit: Occupancy,
    /// Requests under way.
    pub(crate) in_flight: Occupancy,
}

/// What one server was asked for, and how long that took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerStatistics {
    /// Its name and address, for people.
    pub server: String,
    /// Requests sent, repetitions included.
    pub requests: u64,
    /// Repetitions.
    pub retries: u64,
    /// Bytes of file data received.
    pub bytes_read: u64,
    /// Bytes of file data read from the files of its objects, past the server.
    pub bytes_local: u64,
    /// Bytes of write requests that took them from memory lent to the server, repetitions included.
    pub bytes_lent: u64,
    /// Bytes of file data acknowledged.
    pub bytes_written: u64,
    /// Reads answered that another copy could have answered, too.
    pub copy_reads: u64,
    /// Reads that it was asked because another copy was late (a hedge), at most 5% of all reads of files with copies.
    pub hedged: u64,
    /// Reads that it was asked because another copy was silent or damaged, or refused.
    pub other_copy: u64,
    /// Nanoseconds that callers blocked on an answer.
    pub waited_ns: u64,
    /// Nanoseconds that callers blocked until a request could be handed over.
    pub credit_ns: u64,
    /// Nanoseconds between arrival and answer, summed over requests, as reported by the server.
    pub service_ns: u64,
}

/// A client's figures since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Bytes handed to readers.
    pub bytes_read: u64,
    /// Bytes taken from writers.
    pub bytes_written: u64,
    /// Nanoseconds by cause, over all threads.
    pub spent_ns: Vec<(Cause, u64)>,
    /// The metadata service.
    pub metadata: ServerStatistics,
    /// Each data server asked so far.
    pub servers: Vec<ServerStatistics>,
}

/// The counters of a whole client.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accounts: Accounts,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) metadata: Arc<ServerCounters>,
    /// Nodes that were asked by their names, for areas and jobs, by address.
    nodes: Mutex<BTreeMap<String, Arc<ServerCounters>>>,
    /// Callers that block on any server.
    pub(crate) waits: Occupancy,
    /// From sending a request to having its answer.
    pub(crate) latency: Histogram,
}

/// A request under way; over when dropped.
pub(crate) struct InFlightCall {
    counters: Arc<ServerCounters>,
    clock: Arc<dyn Clock>,
    started_ns: u64,
}

impl InFlightCall {
    /// Begins now.
    pub(crate) fn begin(counters: &Arc<ServerCounters>, clock: &Arc<dyn Clock>) -> InFlightCall {
        let started_ns = clock.now_ns();
        counters.in_flight.enter(started_ns);
        InFlightCall { counters: Arc::clone(counters), clock: Arc::clone(clock), started_ns }
    }

    /// When it began.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.counters.in_flight.leave(self.clock.now_ns());
    }
}

impl ServerCounters {
    /// What is known of the server as a peer, besides its connections.
    pub(crate) fn peer(&self, name: &str, address: &str, now_ns: u64) -> Peer {
        Peer {
            name: name.to_owned(),
            address: address.to_owned(),
            waits: self.waits.at(now_ns),
            credit: self.credit.at(now_ns),
            in_flight: self.in_flight.at(now_ns),
            service_ns: self.service_ns.get(),
            read_bytes: self.bytes_read.get(),
            written_bytes: self.bytes_written.get(),
            ..Peer::default()
        }
    }

    pub(crate) fn snapshot(&self, server: String) -> ServerStatistics {
        ServerStatistics {
            server,
            requests: self.requests.get(),
            retries: self.retries.get(),
            bytes_read: self.bytes_read.get(),
            bytes_local: self.bytes_local.get(),
            bytes_lent: self.bytes_lent.get(),
            bytes_written: self.bytes_written.get(),
            copy_reads: self.copy_reads.get(),
            hedged: self.hedged.get(),
            other_copy: self.other_copy.get(),
            waited_ns: self.waited_ns.get(),
            credit_ns: self.credit_ns.get(),
            service_ns: self.service_ns.get(),
        }
    }
}

/// Nodes that are counted one by one; what is asked of those beyond is counted with the metadata service's.
const NODES_MAX: usize = 1024;

impl Counters {
    /// The counters of a node that is asked by its name.
    pub(crate) fn node(&self, address: &str) -> Arc<ServerCounters> {
        let mut nodes = self.nodes.lock();
        match nodes.get(address) {
            Some(counters) => Arc::clone(counters),
            None if nodes.len() >= NODES_MAX => Arc::clone(&self.metadata),
            None => Arc::clone(nodes.entry(address.to_owned()).or_default()),
        }
    }

    /// All of these as peers, without their names.
    pub(crate) fn nodes(&self, now_ns: u64) -> Vec<Peer> {
        self.nodes.lock().iter().map(|(address, counters)| counters.peer("", address, now_ns)).collect()
    }

    /// Runs `wait`, in which a caller blocks on a server.
    pub(crate) fn during_wait<T>(
        &self,
        server: &ServerCounters,
        clock: &dyn Clock,
        wait: impl FnOnce() -> T,
    ) -> T {
        let started_ns = clock.now_ns();
        self.waits.enter(started_ns);
        server.waits.enter(started_ns);
        let outcome = wait();
        let ended_ns = clock.now_ns();
        server.waits.leave(ended_ns);
        self.waits.leave(ended_ns);
        outcome
    }

    pub(crate) fn spent(&self) -> Vec<(Cause, u64)> {
        Cause::ALL.into_iter().map(|cause| (cause, self.accounts.nanoseconds(cause))).collect()
    }
}
