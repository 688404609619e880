//! Calls to the metadata service, and the session that they belong to.

mod asynchronous;
mod call;
mod naming;
mod retry;
mod session;

pub use asynchronous::{Completion, Readiness};
pub(crate) use asynchronous::{begin_ask, begin_change, begin_change_as_of};
pub(crate) use call::decode;
pub(crate) use retry::{Attempts, attempt_deadline_ns, final_error, log_failure};

use crate::Result;
use crate::cache::Cache;
use crate::core::Context;
use crate::servers::Servers;
use parking_lot::Mutex;
use session::Session;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vazao_model::{ClusterMap, GroupId};
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

/// A map of this age is as good as a new one: so often one client asks for it at most while something is out.
const MAP_NS_MAX: u64 = 1_000_000_000;

/// The metadata service as a client calls it.
pub(crate) struct MetaService {
    context: Arc<Context>,
    servers: Arc<Servers>,
    cache: Arc<Cache>,
    pub(crate) session: Arc<Session>,
    /// The last call used up its deadline.
    is_silent: AtomicBool,
    /// One thread asks for the map.
    asking: Mutex<()>,
}

impl MetaService {
    pub(crate) fn new(context: Arc<Context>, servers: Arc<Servers>, cache: Arc<Cache>) -> MetaService {
        let (is_silent, asking) = (AtomicBool::new(false), Mutex::default());
        MetaService { context, servers, cache, session: Arc::default(), is_silent, asking }
    }

    /// Asks for the map. `deadline_ns` is that of the call that needs it.
    pub(crate) fn refresh_map(&self, deadline_ns: u64) -> Result<Arc<ClusterMap>> {
        let response = self.ask_until::<op::GetClusterMap>(&proto::GetClusterMapRequest {}, deadline_ns)?;
        if let Some(map) = response.map {
            self.servers.install_map(map)?;
        }
        Ok(Arc::clone(&self.servers.routes().map))
    }

    /// Asks for the map where that is not fresh. Where it cannot be had, the old one has to do.
    fn renew_map(&self, deadline_ns: u64) {
        let _one = self.asking.lock();
        if self.servers.map_age_ns() >= MAP_NS_MAX {
            let until_ns = deadline_ns.min(self.context.clock.now_ns().saturating_add(MAP_NS_MAX));
            if let Err(error) = self.refresh_map(until_ns) {
                tracing::debug!(%error, "whether a server is out cannot be told");
            }
        }
    }

    /// Why `group`, which has not answered, is not worth waiting for; `None`: it may only be late.
    pub(crate) fn known_outage(&self, group: GroupId, deadline_ns: u64) -> Option<Fault> {
        self.renew_map(deadline_ns);
        self.servers.outage(group)
    }

    /// The same of a node by its name.
    pub(crate) fn known_loss(&self, name: &str, deadline_ns: u64) -> Option<Fault> {
        self.renew_map(deadline_ns);
        self.servers.loss(name)
    }
}
