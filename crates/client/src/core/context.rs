//! What every call of a client needs: the way to the servers, the clock, the options, the counters.

use crate::Options;
use crate::statistics::Counters;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use vazao_meter::Clock;
use vazao_model::Timestamp;
use vazao_wire::transport::Transport;

/// However little time is left, a call has this much: many files are closed one after the other, and those whose
/// servers answer must be stored although others have used the time up.
const CALL_NS_MIN: u64 = 1_000_000_000;

/// The context of a client's calls.
pub(crate) struct Context {
    pub(crate) transport: Arc<dyn Transport>,
    /// For the request that waits for changes: on a connection with others it would receive their answers for them.
    pub(crate) watch_transport: Arc<dyn Transport>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    /// Addresses of the metadata service.
    pub(crate) meta: Vec<String>,
    pub(crate) meta_current: AtomicUsize,
    pub(crate) closed: AtomicBool,
    /// All calls have to be done by then: never, until the client is to end.
    pub(crate) ends_by_ns: AtomicU64,
    seed: u64,
    jitter: AtomicU64,
}

fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    // Without the kernel's randomness retries merely lose their jitter.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

impl Context {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        watch_transport: Arc<dyn Transport>,
        meta: Vec<String>,
        options: Options,
    ) -> Context {
        let seed = if options.seed == 0 { random_seed() } else { options.seed };
        Context {
            clock: transport.clock(),
            transport,
            watch_transport,
            meta,
            meta_current: AtomicUsize::new(0),
            counters: Counters::default(),
            closed: AtomicBool::new(false),
            ends_by_ns: AtomicU64::new(u64::MAX),
            seed,
            jitter: AtomicU64::new(seed | 1),
            options,
        }
    }

    /// The time for timestamps.
    pub(crate) fn wall_time(&self) -> Timestamp {
        let ns = self.clock.wall_ns();
        Timestamp { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as u32 }
    }

    /// Where the numbers of this client's changes begin: far from those of all others. Its name and the time are in it
    /// for the case that the kernel has given no randomness.
    pub(crate) fn first_change(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        (self.seed, &self.options.name, self.clock.wall_ns()).hash(&mut hash);
        hash.finish().max(1)
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

    /// When a call that begins now has to be done.
    pub(crate) fn deadline_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        let usual_ns = now_ns + u64::from(self.options.deadline_ms) * 1_000_000;
        let ends_by_ns = self.ends_by_ns.load(Ordering::Relaxed);
        if usual_ns <= ends_by_ns { usual_ns } else { ends_by_ns.max(now_ns + CALL_NS_MIN).min(usual_ns) }
    }
}
