//! The nodes that have the areas: a client for each area, and a circuit breaker in front of each node.

use super::circuit_breaker::CircuitBreaker;
use super::table::Spot;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use vazao_client::area::{AreaClient, FileIdentity};
use vazao_client::{Client, Result};
use vazao_meter::Clock;
use vazao_model::Attributes;

/// An area by the names of its node and its own.
type Export = (Arc<str>, Arc<str>);

/// Asks nodes about their areas.
pub(super) struct Servers {
    client: Client,
    clock: Arc<dyn Clock>,
    clients: Mutex<HashMap<Export, AreaClient>>,
    circuit_breaker: CircuitBreaker,
}

impl Servers {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>) -> Servers {
        Servers { client, clock, clients: Mutex::default(), circuit_breaker: CircuitBreaker::default() }
    }

    fn area(&self, spot: &Spot) -> AreaClient {
        let mut clients = self.clients.lock();
        let key = (spot.node.clone(), spot.area.clone());
        clients.entry(key).or_insert_with(|| self.client.area(&spot.node, &spot.area)).clone()
    }

    /// Asks a node, unless it is silent.
    pub(super) fn ask<T>(&self, node: &str, question: impl FnOnce() -> Result<T>) -> Result<T> {
        self.circuit_breaker.ask(&*self.clock, node, question)
    }

    /// The same of an area, at a place in it.
    pub(super) fn ask_area<T>(
        &self,
        spot: &Spot,
        question: impl FnOnce(&AreaClient) -> Result<T>,
    ) -> Result<T> {
        let area = self.area(spot);
        self.ask(&spot.node, || question(&area))
    }

    /// Tells a node what it need not have answered when `message` is over: `has_answered` says whether it has answered
    /// anything meanwhile.
    pub(super) fn tell<T>(
        &self,
        node: &str,
        message: impl FnOnce() -> Result<T>,
        has_answered: impl FnOnce() -> bool,
    ) -> Result<T> {
        self.circuit_breaker.tell(&*self.clock, node, message, has_answered)
    }

    pub(super) fn stat(&self, spot: &Spot) -> Result<(Attributes, FileIdentity)> {
        self.ask_area(spot, |area| area.stat_identified(&spot.path, false))
    }
}
