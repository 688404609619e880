//! What all handles of one client share: the calls to servers, open inodes, buffers, counters.

mod context;
mod locking;
pub(crate) mod watching;

pub(crate) use context::Context;

use crate::Options;
use crate::area::Nodes;
use crate::cache::Cache;
use crate::data::{DataServers, Pool, ReadAheadBudget, SendBuffer};
use crate::file::{KeptBudget, Opens, Registry};
use crate::locks::Locks;
use crate::meta::MetaService;
use crate::servers::Servers;
use crate::statistics::Statistics;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vazao_meter::measures::Part;
use vazao_wire::transport::Transport;

/// What a client calls itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) part: Part,
}

/// Shared state of a client. Each part knows those above it only.
pub(crate) struct Core {
    pub(crate) context: Arc<Context>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) meta: Arc<MetaService>,
    pub(crate) data: DataServers,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) locks: Locks,
    pub(crate) registry: Registry,
    pub(crate) opens: Arc<Opens>,
    pub(crate) dirty_bytes: AtomicUsize,
    /// Memory of what is written and not reported, for files that other clients cut.
    pub(crate) kept: KeptBudget,
    /// For what is read.
    pub(crate) pool: Arc<Pool>,
    /// For what is written.
    pub(crate) staging: Arc<Pool<SendBuffer>>,
    pub(crate) read_ahead: Arc<ReadAheadBudget>,
    pub(crate) description: Mutex<Description>,
    /// Answers about inodes taken over so far.
    answers: AtomicU64,
}

impl Core {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        watch_transport: Arc<dyn Transport>,
        meta: Vec<String>,
        options: Options,
    ) -> Core {
        let dirty_bytes_max = options.dirty_bytes_max;
        let context = Arc::new(Context::new(transport, watch_transport, meta, options));
        let servers = Arc::new(Servers::new(Arc::clone(&context)));
        let cache = Arc::new(Cache::new(Arc::clone(&context)));
        let meta = Arc::new(MetaService::new(Arc::clone(&context), Arc::clone(&servers), Arc::clone(&cache)));
        Core {
            data: DataServers::new(Arc::clone(&context), Arc::clone(&servers), Arc::clone(&meta)),
            nodes: Arc::new(Nodes::new(Arc::clone(&context), Arc::clone(&servers), Arc::clone(&meta))),
            locks: Locks::new(Arc::clone(&context), Arc::clone(&meta)),
            registry: Registry::default(),
            opens: Arc::default(),
            dirty_bytes: AtomicUsize::new(0),
            kept: KeptBudget::default(),
            pool: Arc::new(Pool::new(dirty_bytes_max)),
            staging: Arc::new(Pool::new(dirty_bytes_max)),
            read_ahead: Arc::default(),
            description: Mutex::default(),
            answers: AtomicU64::new(0),
            context,
            servers,
            cache,
            meta,
        }
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

    pub(crate) fn statistics(&self) -> Statistics {
        let routes = self.servers.routes();
        Statistics {
            bytes_read: self.context.counters.bytes_read.get(),
            bytes_written: self.context.counters.bytes_written.get(),
            spent_ns: self.context.counters.spent(),
            metadata: self.context.counters.metadata.snapshot(self.context.meta_name()),
            servers: routes.used_servers().into_iter().map(|s| s.counters.snapshot(s.to_string())).collect(),
        }
    }
}
