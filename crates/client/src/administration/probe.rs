//! Which nodes answer this client now, whatever the metadata service has heard of them.

use super::Administration;
use crate::{Config, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::{Code, Node, NodeId};
use vazao_wire::tcp::{TcpTransport, TransportOptions};
use vazao_wire::transport::{Transport, call};
use vazao_wire::{op, proto};

/// Nodes asked at the same time: each takes a thread that may wait for its whole deadline.
const AT_ONCE_MAX: usize = 64;

/// What came of asking one node.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Which node.
    pub node: NodeId,
    /// Nanoseconds until it answered, connecting included, or why it did not.
    pub answer: Result<u64>,
}

impl Administration<'_> {
    /// Asks every node of the map whether it is there; all at once, and none is waited for longer than `within`.
    pub fn probe(&self, within: Duration) -> Vec<Probe> {
        probe_all(
            &*self.core.context.transport,
            &*self.core.context.clock,
            &self.core.servers.routes().map.nodes,
            within,
        )
    }
}

impl Config {
    /// The same of nodes that the caller knows, without the metadata service. Errors: the key cannot be read.
    pub fn probe(&self, nodes: &[Node], within: Duration) -> Result<Vec<Probe>> {
        let clock = vazao_meter::clock::system();
        let transport = TcpTransport::new(self.key()?, TransportOptions::default(), clock.clone());
        Ok(probe_all(&*transport, &*clock, nodes, within))
    }
}

fn probe_all(transport: &dyn Transport, clock: &dyn Clock, nodes: &[Node], within: Duration) -> Vec<Probe> {
    let next = AtomicUsize::new(0);
    let probes = Mutex::new(Vec::new());
    let work = || {
        while let Some(node) = nodes.get(next.fetch_add(1, Ordering::Relaxed)) {
            let probe = probe(transport, clock, node, within);
            probes.lock().push(probe);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..nodes.len().min(AT_ONCE_MAX) {
            scope.spawn(work);
        }
        work();
    });
    let mut probes = probes.into_inner();
    probes.sort_by_key(|probe| probe.node);
    probes
}

fn probe(transport: &dyn Transport, clock: &dyn Clock, node: &Node, within: Duration) -> Probe {
    let started_ns = clock.now_ns();
    let deadline_ns = started_ns + u64::try_from(within.as_nanos()).unwrap_or(u64::MAX / 2);
    let asked = call::<op::Ping>(transport, &node.address, &proto::PingRequest::default(), deadline_ns);
    let elapsed_ns = clock.now_ns().saturating_sub(started_ns);
    let answer = match asked {
        Ok(_) => Ok(elapsed_ns),
        // A node without a role that knows this question has answered as well.
        Err(fault) if fault.code == Code::Unsupported => Ok(elapsed_ns),
        Err(fault) => Err(fault.into()),
    };
    Probe { node: node.id, answer }
}
