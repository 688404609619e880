//! What all handles of one client share: the transport, the session, the cluster map, open inodes, buffers, counters.

use crate::budget::{Pool, ReadAheadBudget};
use crate::invalidations::InvalidationStream;
use crate::local::{Lending, LocalFiles, SendBuffer};
use crate::locks::Locks;
use crate::measure::Description;
use crate::metadata_cache::MetadataCache;
use crate::opens::Opens;
use crate::outages::Outages;
use crate::registry::Registry;
use crate::routes::{Routes, Server};
use crate::session::Session;
use crate::statistics::{Counters, Statistics};
use crate::unresponsive::UnresponsiveServers;
use crate::{Error, Options, Result};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use vazao_meter::Clock;
use vazao_model::{ClusterMap, Code, TargetId, Timestamp};
use vazao_wire::op;
use vazao_wire::proto;
use vazao_wire::transport::Transport;

/// Shared state of a client.
pub(crate) struct Core {
    pub(crate) transport: Arc<dyn Transport>,
    /// For the request that waits for changes: on a connection with others it would receive their answers for them.
    pub(crate) watch_transport: Arc<dyn Transport>,
    pub(crate) watch: InvalidationStream,
    pub(crate) locks: Locks,
    pub(crate) cache: Arc<MetadataCache>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) meta: Vec<String>,
    pub(crate) meta_current: AtomicUsize,
    /// The last call to the metadata service used up its deadline.
    pub(crate) is_meta_silent: AtomicBool,
    pub(crate) session: Arc<Session>,
    pub(crate) routes: RwLock<Arc<Routes>>,
    pub(crate) registry: Registry,
    pub(crate) dirty_bytes: AtomicUsize,
    /// The largest of what any server wants under way, see [`crate::pace`]: mostly too little to matter.
    pub(crate) pace_bytes_max: AtomicU64,
    /// For what is read.
    pub(crate) pool: Arc<Pool>,
    /// For what is written.
    pub(crate) staging: Arc<Pool<SendBuffer>>,
    pub(crate) read_ahead: Arc<ReadAheadBudget>,
    pub(crate) counters: Counters,
    pub(crate) local: LocalFiles,
    pub(crate) lending: Lending,
    pub(crate) unresponsive: UnresponsiveServers,
    pub(crate) outages: Outages,
    pub(crate) description: Mutex<Description>,
    pub(crate) closed: AtomicBool,
    /// All calls have to be done by then: never, until the client is to end.
    pub(crate) ends_by_ns: AtomicU64,
    pub(crate) opens: Arc<Opens>,
    /// Objects on this machine are read without their server.
    pub(crate) short_circuit: AtomicBool,
    /// Answers about inodes taken over so far.
    answers: AtomicU64,
    jitter: AtomicU64,
}

/// Like [`locked`], for shared access.
pub(crate) fn shared<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read()
}

/// Like [`locked`], for sole access.
pub(crate) fn sole<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write()
}

fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    // Without the kernel's randomness retries merely lose their jitter.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

impl Core {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        watch_transport: Arc<dyn Transport>,
        meta: Vec<String>,
        options: Options,
    ) -> Core {
        let seed = if options.seed == 0 { random_seed() } else { options.seed };
        Core {
            clock: transport.clock(),
            transport,
            watch_transport,
            watch: InvalidationStream::default(),
            locks: Locks::default(),
            cache: Arc::default(),
            meta,
            meta_current: AtomicUsize::new(0),
            is_meta_silent: AtomicBool::new(false),
            session: Arc::default(),
            routes: RwLock::default(),
            registry: Registry::default(),
            dirty_bytes: AtomicUsize::new(0),
            pace_bytes_max: AtomicU64::new(0),
            pool: Arc::new(Pool::new(options.dirty_bytes_max)),
            staging: Arc::new(Pool::new(options.dirty_bytes_max)),
            read_ahead: Arc::default(),
            counters: Counters::default(),
            local: LocalFiles::default(),
            lending: Lending::default(),
            unresponsive: UnresponsiveServers::default(),
            outages: Outages::default(),
            description: Mutex::default(),
            closed: AtomicBool::new(false),
            ends_by_ns: AtomicU64::new(u64::MAX),
            opens: Arc::default(),
            short_circuit: AtomicBool::new(options.short_circuit),
            answers: AtomicU64::new(0),
            jitter: AtomicU64::new(seed | 1),
            options,
        }
    }

    /// The time for timestamps.
    pub(crate) fn wall_time(&self) -> Timestamp {
        let ns = self.clock.wall_ns();
        Timestamp { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as u32 }
    }

    /// A random duration between half of `ns` and `ns` (xorshift64, Marsaglia 2003): clients that failed together do
    /// not come back together.
    pub(crate) fn jitter(&self, ns: u64) -> u64 {
        let step = |mut x: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^ (x << 17)
        };
        let before = self.jitter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |x| Some(step(x)));
        let random = before.unwrap_or_else(|x| x);
        ns / 2 + random % (ns / 2 + 1)
    }

    /// How many answers about inodes have been taken over: remembered before a request is sent, it tells afterwards
    /// whether its answer is newer than what is known.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::SeqCst)
    }

    /// Counts an answer that is taken over.
    pub(crate) fn count_answer(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&shared(&self.routes))
    }

    /// The server that holds `target`, as far as known.
    pub(crate) fn server(&self, target: TargetId) -> Option<Arc<Server>> {
        shared(&self.routes).server(target).cloned()
    }

    /// Takes over a map that the metadata service sent. Errors: it is that of another volume, whose inodes have the
    /// same numbers and nothing else in common with those that are open here.
    pub(crate) fn install_map(&self, map: proto::ClusterMap) -> Result<()> {
        let mut routes = sole(&self.routes);
        let known = routes.map.cluster_id;
        if known != 0 && map.cluster_id != known {
            let detail = format!(
                "{} serves cluster {:016x} now, this client belongs to {known:016x}: see which metadata directory it has",
                self.meta_name(),
                map.cluster_id
            );
            return Err(Error::new(Code::Stale, detail));
        }
        *routes = Arc::new(Routes::new(ClusterMap::from(map), &routes));
        self.note_map();
        Ok(())
    }

    /// Asks for the map. `deadline_ns` is that of the call that needs it.
    pub(crate) fn refresh_map(&self, deadline_ns: u64) -> Result<Arc<ClusterMap>> {
        let response = self.ask_until::<op::GetClusterMap>(&proto::GetClusterMapRequest {}, deadline_ns)?;
        if let Some(map) = response.map {
            self.install_map(map)?;
        }
        Ok(Arc::clone(&self.routes().map))
    }

    /// What has to happen every heartbeat.
    pub(crate) fn tick(&self) -> Result<()> {
        self.renew_session()?;
        self.tell_locks()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let routes = self.routes();
        Statistics {
            bytes_read: self.counters.bytes_read.get(),
            bytes_written: self.counters.bytes_written.get(),
            spent_ns: self.counters.spent(),
            metadata: self.counters.metadata.snapshot(self.meta_name()),
            servers: routes.used_servers().into_iter().map(|s| s.counters.snapshot(s.to_string())).collect(),
        }
    }

    /// The metadata service as errors name it.
    pub(crate) fn meta_name(&self) -> String {
        format!("metadata service ({})", self.meta_address())
    }

    pub(crate) fn meta_address(&self) -> &str {
        self.meta_address_at(self.meta_current.load(Ordering::Relaxed))
    }

    /// The metadata service's address that was the present one when `current` was the count of changes.
    pub(crate) fn meta_address_at(&self, current: usize) -> &str {
        self.meta.get(current % self.meta.len().max(1)).map_or("", String::as_str)
    }
}
