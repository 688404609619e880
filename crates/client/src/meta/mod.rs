//! Calls to the metadata service, and the session that they belong to.

mod asynchronous;
mod call;
mod naming;
mod retry;
mod session;

pub use asynchronous::{Completion, Readiness};
pub(crate) use asynchronous::{begin_ask, begin_change, begin_change_as_of};
pub(crate) use call::decode;
pub(crate) use retry::{
    Attempts, PAUSE_MS_MAX, attempt_deadline_ns, final_error, is_tried_again, log_failure,
};
pub(crate) use session::LockHolder;

use crate::cache::Cache;
use crate::core::Context;
use crate::servers::Servers;
use crate::{Error, Result};
use parking_lot::Mutex;
use session::Session;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use vazao_model::{ClusterMap, GroupId, TargetId};
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

/// A map of this age is as good as a new one: so often one client asks for it at most while something is out.
const MAP_NS_MAX: u64 = 1_000_000_000;

/// How long a call that has time left looks for a newer map before it goes on with the old one: a service that is up
/// answers within this, and one that is not must not use the call's time up.
const LOOK_NS_MAX: u64 = 3_000_000_000;

/// How long a call that waits for an answer looks for other members that could give it.
const MEMBERS_NS_MAX: u64 = 500_000_000;

/// The latest look at the map of a call that found its own old.
#[derive(Default)]
struct MapLook {
    began_ns: Option<u64>,
    /// Why it was in vain.
    trouble: Option<Error>,
    /// When a call looked for other members.
    members_ns: Option<u64>,
}

/// The metadata service as a client calls it.
pub(crate) struct MetaService {
    context: Arc<Context>,
    servers: Arc<Servers>,
    cache: Arc<Cache>,
    pub(crate) session: Arc<Session>,
    /// The last call used up its deadline.
    is_silent: AtomicBool,
    /// One thread asks for the map, and those that waited for it take what it found.
    look: Mutex<MapLook>,
    lock_holder: OnceLock<Weak<dyn LockHolder>>,
    /// The zone of this machine's address, as the cluster's ranges have it; empty: in none.
    zone_here: Mutex<String>,
}

impl MetaService {
    pub(crate) fn new(context: Arc<Context>, servers: Arc<Servers>, cache: Arc<Cache>) -> MetaService {
        let (is_silent, look, lock_holder) = (AtomicBool::new(false), Mutex::default(), OnceLock::new());
        MetaService {
            context,
            servers,
            cache,
            session: Arc::default(),
            is_silent,
            look,
            lock_holder,
            zone_here: Mutex::default(),
        }
    }

    /// Says who holds locks in the session. Before that there are none.
    pub(crate) fn set_lock_holder(&self, holder: Weak<dyn LockHolder>) {
        // Once for each client.
        let _ = self.lock_holder.set(holder);
    }

    fn lock_holder(&self) -> Option<Arc<dyn LockHolder>> {
        self.lock_holder.get().and_then(Weak::upgrade)
    }

    /// The zone of this client: the one that it was given, else that of its address. Empty: none.
    pub(crate) fn zone(&self) -> String {
        match self.context.options.zone.as_str() {
            "" => self.zone_here.lock().clone(),
            given => given.to_owned(),
        }
    }

    /// Asks for the map. `deadline_ns` is that of the call that needs it.
    pub(crate) fn refresh_map(&self, deadline_ns: u64) -> Result<Arc<ClusterMap>> {
        let response = self.ask_until::<op::GetClusterMap>(&proto::GetClusterMapRequest {}, deadline_ns)?;
        if let Some(map) = response.map {
            self.servers.install_map(map)?;
        }
        Ok(Arc::clone(&self.servers.routes().map))
    }

    /// Asks for the map, for at most `within_ns`, unless another thread has begun to since `since_ns`. Where it cannot
    /// be had, the old one has to do: a failed look ends no call. Returns why it failed.
    fn look_at_map(&self, since_ns: u64, within_ns: u64, deadline_ns: u64) -> Option<Error> {
        let mut look = self.look.lock();
        if look.began_ns.is_some_and(|began_ns| began_ns > since_ns) {
            return look.trouble.clone();
        }
        let now_ns = self.context.clock.now_ns();
        let asked = self.refresh_map(deadline_ns.min(now_ns.saturating_add(within_ns)));
        (look.began_ns, look.trouble) = (Some(now_ns), asked.err());
        if let Some(error) = &look.trouble {
            tracing::debug!(%error, "there is no newer map; the old one has to do");
        }
        look.trouble.clone()
    }

    /// Asks for the map, which a server said at `since_ns` is old. Returns why it could not be had, where so.
    pub(crate) fn look_for_newer_map(&self, since_ns: u64, deadline_ns: u64) -> Option<Error> {
        self.look_at_map(since_ns, LOOK_NS_MAX, deadline_ns)
    }

    /// Asks for the map where that is not fresh.
    fn renew_map(&self, deadline_ns: u64) {
        if self.servers.map_age_ns() >= MAP_NS_MAX {
            let since_ns = self.context.clock.now_ns().saturating_sub(MAP_NS_MAX);
            self.look_at_map(since_ns, MAP_NS_MAX, deadline_ns);
        }
    }

    /// No member of a group answers that this client knows of: there may be others by now. A service that is silent as
    /// well must not hold an answer up that comes yet.
    pub(crate) fn look_for_members(&self, deadline_ns: u64) {
        if self.servers.map_age_ns() < MAP_NS_MAX {
            return;
        }
        let Some(mut look) = self.look.try_lock_for(Duration::from_nanos(MEMBERS_NS_MAX)) else { return };
        let now_ns = self.context.clock.now_ns();
        let looked_ns = look.began_ns.max(look.members_ns).unwrap_or(0);
        if now_ns.saturating_sub(looked_ns) < MAP_NS_MAX {
            return;
        }
        look.members_ns = Some(now_ns);
        // In vain it says nothing to those that look for longer.
        if self.refresh_map(deadline_ns.min(now_ns.saturating_add(MEMBERS_NS_MAX))).is_ok() {
            (look.began_ns, look.trouble) = (Some(now_ns), None);
        }
    }

    /// Why `group`, which has not answered, is not worth waiting for; `None`: it may only be late.
    /// `unfit`: see [`Servers::outage`].
    pub(crate) fn known_outage(&self, group: GroupId, unfit: &[TargetId], deadline_ns: u64) -> Option<Fault> {
        self.renew_map(deadline_ns);
        self.servers.outage(group, unfit)
    }

    /// The same of a node by its name.
    pub(crate) fn known_loss(&self, name: &str, deadline_ns: u64) -> Option<Fault> {
        self.renew_map(deadline_ns);
        self.servers.loss(name)
    }
}
