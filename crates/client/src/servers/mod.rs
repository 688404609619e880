//! The servers of the cluster as this client knows them: where each is, and which do not answer.

mod door;
mod outages;
mod pace;
mod routes;
mod unresponsive;

pub(crate) use door::ASK_NS_MAX;
pub(crate) use routes::{Routes, Server};
pub(crate) use unresponsive::is_silence;

use crate::core::Context;
use crate::{Error, Result};
use outages::Outages;
use parking_lot::RwLock;
use std::sync::Arc;
use unresponsive::UnresponsiveServers;
use vazao_model::{ClusterMap, Code, TargetId};
use vazao_wire::proto;

/// What is known of the servers.
pub(crate) struct Servers {
    context: Arc<Context>,
    routes: RwLock<Arc<Routes>>,
    unresponsive: UnresponsiveServers,
    outages: Outages,
}

impl Servers {
    pub(crate) fn new(context: Arc<Context>) -> Servers {
        let (unresponsive, outages) = (UnresponsiveServers::default(), Outages::default());
        Servers { context, routes: RwLock::default(), unresponsive, outages }
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.read())
    }

    /// The server that holds `target`, as far as known.
    pub(crate) fn server(&self, target: TargetId) -> Option<Arc<Server>> {
        self.routes.read().server(target).cloned()
    }

    /// Takes over a map that the metadata service sent. Errors: it is that of another volume, whose inodes have the
    /// same numbers and nothing else in common with those that are open here.
    pub(crate) fn install_map(&self, map: proto::ClusterMap) -> Result<()> {
        let mut routes = self.routes.write();
        let known = routes.map.cluster_id;
        if known != 0 && map.cluster_id != known {
            let detail = format!(
                "{} serves cluster {:016x} now, this client belongs to {known:016x}: see which metadata directory it has",
                self.context.meta_name(),
                map.cluster_id
            );
            return Err(Error::new(Code::Stale, detail));
        }
        *routes = Arc::new(Routes::new(ClusterMap::from(map), &routes));
        self.note_map();
        Ok(())
    }
}
