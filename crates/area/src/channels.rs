//! The table of open channels, and the leases of the clients that have them.

use crate::area::Area;
use crate::files::Identity;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vazao_model::Code;
use vazao_wire::service::Fault;

/// A client that has channels.
pub(crate) struct Lease {
    client: u64,
    heard_ns: AtomicU64,
}

impl Lease {
    /// The client is there.
    pub(crate) fn renew(&self, now_ns: u64) {
        self.heard_ns.fetch_max(now_ns, Ordering::Relaxed);
    }
}

/// An open remote file. Its descriptor, if it has one just now, is in the cache.
pub(crate) struct Channel {
    pub(crate) id: u64,
    pub(crate) area: Arc<Area>,
    /// Below the area's root.
    pub(crate) path: Box<[u8]>,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) created: bool,
    /// Of the file that was opened; no other will do.
    pub(crate) identity: Identity,
    /// Its file system is one of this machine's own, and knows how to read what is in memory only.
    pub(crate) is_quick: AtomicBool,
    /// A sync failed: what was written is not to be called durable any more.
    pub(crate) sync_failed: AtomicBool,
    pub(crate) lease: Arc<Lease>,
}

#[derive(Default)]
struct Clients {
    all: HashMap<u64, (Arc<Lease>, HashSet<u64>)>,
}

/// All channels.
pub(crate) struct Channels {
    open: RwLock<HashMap<u64, Arc<Channel>>>,
    /// Locked before `open` where both are.
    clients: Mutex<Clients>,
    max: usize,
    lease_ns: u64,
}

impl Channels {
    pub(crate) fn new(max: usize, lease_ms: u32) -> Channels {
        let lease_ns = u64::from(lease_ms) * 1_000_000;
        Channels { open: RwLock::default(), clients: Mutex::default(), max, lease_ns }
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock()
    }

    /// The channel of this name.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Channel>> {
        self.open.read().get(&id).cloned()
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.read().len()
    }

    /// The lease of a client, new or not.
    pub(crate) fn lease(&self, client: u64, now_ns: u64) -> Arc<Lease> {
        let mut clients = self.clients();
        let fresh = || (Arc::new(Lease { client, heard_ns: AtomicU64::new(now_ns) }), HashSet::new());
        let (lease, _) = clients.all.entry(client).or_insert_with(fresh);
        lease.renew(now_ns);
        Arc::clone(lease)
    }

    /// Refuses one more channel than there may be.
    pub(crate) fn check_room(&self, node: &str) -> Result<(), Fault> {
        if self.len() < self.max {
            return Ok(());
        }
        Err(Fault::new(
            Code::InUse,
            format!(
                "node {node} has {} channels open, which is its channels_max; close some, or raise \
                 channels_max in the node's configuration",
                self.max
            ),
        ))
    }

    /// Takes a new channel in. Of two under one name the first stays and is returned.
    pub(crate) fn insert(&self, channel: Channel, node: &str, now_ns: u64) -> Result<Arc<Channel>, Fault> {
        let mut clients = self.clients();
        let mut open = self.open.write();
        if let Some(there) = open.get(&channel.id) {
            return Ok(Arc::clone(there));
        }
        if open.len() >= self.max {
            drop(open);
            drop(clients);
            return self.check_room(node).and_then(|()| Err(Code::Conflict.into()));
        }
        let client = channel.lease.client;
        // The lease may have ended while the file was being opened; the client is here now.
        let (lease, ids) =
            clients.all.entry(client).or_insert_with(|| (Arc::clone(&channel.lease), HashSet::new()));
        lease.renew(now_ns);
        ids.insert(channel.id);
        let channel = Arc::new(Channel { lease: Arc::clone(lease), ..channel });
        open.insert(channel.id, Arc::clone(&channel));
        Ok(channel)
    }

    /// Closes a channel; false when there is none.
    pub(crate) fn remove(&self, id: u64) -> bool {
        let mut clients = self.clients();
        let removed = self.open.write().remove(&id);
        let Some(channel) = removed else { return false };
        let client = channel.lease.client;
        if let Some((_, ids)) = clients.all.get_mut(&client) {
            ids.remove(&id);
            if ids.is_empty() {
                clients.all.remove(&client);
            }
        }
        true
    }

    /// A client says that it is there; returns how many channels it has.
    pub(crate) fn renew(&self, client: u64, now_ns: u64) -> usize {
        self.clients().all.get(&client).map_or(0, |(lease, ids)| {
            lease.renew(now_ns);
            ids.len()
        })
    }

    /// Closes the channels of clients that are gone; returns their names.
    pub(crate) fn expire(&self, now_ns: u64) -> Vec<u64> {
        let mut clients = self.clients();
        let mut closed = Vec::new();
        clients.all.retain(|_, (lease, ids)| {
            let is_there = now_ns.saturating_sub(lease.heard_ns.load(Ordering::Relaxed)) <= self.lease_ns;
            if !is_there {
                closed.extend(ids.iter().copied());
            }
            is_there
        });
        if !closed.is_empty() {
            let mut open = self.open.write();
            closed.iter().for_each(|id| drop(open.remove(id)));
        }
        closed
    }
}
