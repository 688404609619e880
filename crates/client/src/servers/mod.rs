//! The servers of the cluster as this client knows them: where each is, and which do not answer.

mod door;
mod lines;
mod outages;
mod pace;
mod routes;
mod unresponsive;

pub(crate) use door::ASK_NS_MAX;
pub(crate) use pace::CopyRead;
pub(crate) use routes::{Member, Routes, Server};
pub(crate) use unresponsive::is_silence;

use crate::core::Context;
use crate::{Error, Result};
use lines::Lines;
use outages::Outages;
use parking_lot::RwLock;
use std::sync::Arc;
use unresponsive::UnresponsiveServers;
use vazao_model::{ClusterMap, Code, GroupId, Layout, TargetId};
use vazao_wire::proto;

/// What is known of the servers.
pub(crate) struct Servers {
    context: Arc<Context>,
    routes: RwLock<Arc<Routes>>,
    unresponsive: UnresponsiveServers,
    outages: Outages,
    lines: Lines,
}

impl Servers {
    pub(crate) fn new(context: Arc<Context>) -> Servers {
        let (unresponsive, outages) = (UnresponsiveServers::default(), Outages::default());
        Servers { context, routes: RwLock::default(), unresponsive, outages, lines: Lines::default() }
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.read())
    }

    /// See [`Routes::route`].
    pub(crate) fn route(&self, group: GroupId) -> (Option<Arc<Server>>, Option<Arc<[Member]>>) {
        self.routes.read().route(group)
    }

    /// See [`Routes::members`].
    pub(crate) fn members(&self, group: GroupId) -> Option<Arc<[Member]>> {
        self.routes.read().members(group).cloned()
    }

    /// The server that changes in `group` go to, as far as known.
    pub(crate) fn server(&self, group: GroupId) -> Option<Arc<Server>> {
        self.routes.read().server(group).cloned()
    }

    /// The only target of `group` and its server; `None` for a group of several, also where one is left.
    pub(crate) fn only_place(&self, group: GroupId) -> Option<(TargetId, Arc<Server>)> {
        let routes = self.routes.read();
        if routes.members(group).is_some() {
            return None;
        }
        Some((routes.target(group)?, routes.server(group).cloned()?))
    }

    /// Where the object of a slot lies, for messages.
    pub(crate) fn place_name(&self, layout: &Layout, slot: u32) -> String {
        let group = layout.groups.get(slot as usize).copied().unwrap_or_default();
        let target = self.routes.read().target(group);
        target.map_or_else(|| format!("placement group {group}"), |target| format!("target {target}"))
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
        drop(routes);
        self.set_lines();
        Ok(())
    }
}
