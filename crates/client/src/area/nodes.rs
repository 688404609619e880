//! Calls to a node by its name, repeated until they are answered or their deadline has passed.

use crate::core::Context;
use crate::meta::{Attempts, MetaService, attempt_deadline_ns, decode, final_error, log_failure};
use crate::servers::Servers;
use crate::statistics::InFlightCall;
use crate::{Error, Result};
use std::sync::Arc;
use vazao_model::{Action, Code};
use vazao_wire::operation::{Method, Operation};
use vazao_wire::service::Fault;
use vazao_wire::transport::{Pending, Received};

/// Names of nodes that a message lists.
const SHOWN_NODES_MAX: usize = 20;

/// The nodes of the cluster, as a client calls them by their names.
pub(crate) struct Nodes {
    pub(crate) context: Arc<Context>,
    servers: Arc<Servers>,
    meta: Arc<MetaService>,
}

impl Nodes {
    pub(crate) fn new(context: Arc<Context>, servers: Arc<Servers>, meta: Arc<MetaService>) -> Nodes {
        Nodes { context, servers, meta }
    }

    /// Random, to tell one request from all others.
    pub(crate) fn nonce(&self) -> u64 {
        let mut bytes = [0; 8];
        match getrandom::fill(&mut bytes) {
            Ok(()) => u64::from_le_bytes(bytes).max(1),
            // Jitter is what randomness there is without the kernel's.
            Err(_) => self.context.jitter(u64::MAX / 2).max(1),
        }
    }

    /// Where a node is, as far as the map says.
    fn known_node(&self, node: &str) -> Option<String> {
        let map = &self.servers.routes().map;
        map.nodes.iter().find(|known| known.name == node).map(|known| known.address.clone())
    }

    /// Where a node is. A name that the map does not have may be new: it is looked for again.
    pub(crate) fn node_address(&self, node: &str, deadline_ns: u64) -> Result<String> {
        if let Some(address) = self.known_node(node) {
            return Ok(address);
        }
        let map = self.meta.refresh_map(deadline_ns)?;
        self.known_node(node).ok_or_else(|| {
            let names: Vec<&str> = map.nodes.iter().map(|n| n.name.as_str()).take(SHOWN_NODES_MAX).collect();
            let detail = format!("no node is called {node:?}; there are {}", names.join(", "));
            Error::new(Code::NotFound, detail)
        })
    }

    /// Asks a node for something that may be repeated.
    pub(crate) fn ask_node<O: Operation>(&self, node: &str, request: &O::Request) -> Result<O::Response> {
        let message = prost::Message::encode_to_vec(request);
        let received = self.ask_node_raw(node, O::METHOD, &message, &[], self.context.deadline_ns(), None)?;
        Ok(decode::<O>(&received)?)
    }

    /// Sends a request to a node without waiting for its answer.
    pub(crate) fn submit_to_node(
        &self,
        node: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Result<Box<dyn Pending>> {
        let address = self.node_address(node, deadline_ns)?;
        let first_ns = attempt_deadline_ns(self.context.clock.now_ns(), deadline_ns);
        Ok(self.context.transport.submit(&address, method, message, attachment, first_ns))
    }

    /// Asks a node until it has answered. `first` is the first attempt, where it is under way already.
    pub(crate) fn ask_node_raw(
        &self,
        node: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
        mut first: Option<Box<dyn Pending>>,
    ) -> Result<Received> {
        let mut attempts = Attempts::until(&self.context, deadline_ns);
        loop {
            let address = self.node_address(node, deadline_ns)?;
            let pending = first.take().unwrap_or_else(|| {
                let attempt_ns = attempts.attempt_deadline_ns(&self.context);
                self.context.transport.submit(&address, method, message, attachment, attempt_ns)
            });
            attempts.request = pending.id();
            let counters = self.context.counters.node(&address);
            let in_flight = InFlightCall::begin(&counters, &self.context.clock);
            let clock = &*self.context.clock;
            let answer = self.context.counters.during_wait(&counters, clock, || pending.wait());
            drop(in_flight);
            let fault = match answer {
                Ok(received) => {
                    counters.service_ns.add(u64::from(received.service_us) * 1000);
                    counters.bytes_read.add(received.attachment.len() as u64);
                    counters.bytes_written.add(attachment.len() as u64);
                    self.servers.answered(&address);
                    return Ok(received);
                }
                Err(fault) => fault,
            };
            self.servers.attempt_failed(&address, &fault);
            log_failure(attempts.request, method, &format_args!("node {node} ({address})"), &fault);
            let is_silent = fault.code.is_silence();
            if is_silent && let Some(known) = self.meta.known_loss(node, deadline_ns) {
                return Err(Error::from(known).of(attempts.request));
            }
            let fault = match attempts.is_given_up(&self.context, &fault) {
                true => Code::Interrupted.into(),
                false => fault,
            };
            // The pause is waited for the node, as an answer is.
            let pause = || attempts.pause(&self.context, &fault);
            let again = self.context.counters.during_wait(&counters, clock, pause);
            if again && is_silent {
                self.servers.trying_again(&address, &fault, attempts.started_ns());
                // The node may be elsewhere by now; where the map cannot be had, the old one has to do.
                let _ = self.meta.refresh_map(attempts.attempt_deadline_ns(&self.context));
            }
            if !again {
                return Err(self.node_error(fault, node, &address, is_silent, &attempts));
            }
        }
    }

    fn node_error(
        &self,
        fault: Fault,
        node: &str,
        address: &str,
        is_silent: bool,
        attempts: &Attempts,
    ) -> Error {
        let error = match is_silent || fault.code.action() != Action::GiveUp {
            true => {
                final_error(fault, &format!("node {node} ({address})"), attempts.elapsed_ms(&self.context))
            }
            false => fault.into(),
        };
        error.of(attempts.request)
    }
}
