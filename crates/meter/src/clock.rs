//! The only place that reads or waits on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds on a monotonic scale with an arbitrary zero.
    fn now_ns(&self) -> u64;

    /// Nanoseconds since the Unix epoch.
    fn wall_ns(&self) -> u64;

    /// Lets `duration` pass.
    fn sleep(&self, duration: Duration);
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[allow(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    fn wall_ns(&self) -> u64 {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_epoch.map_or(0, |d| d.as_nanos() as u64)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// The machine's clock, shared.
pub fn system() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// A clock that moves only by [`ManualClock::advance`] or when a thread sleeps on it.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ns: AtomicU64,
}

impl ManualClock {
    /// The wall time of a manual clock's zero: 2026-01-01, so that simulated dates look like dates.
    pub const WALL_START_NS: u64 = 1_767_225_600_000_000_000;

    /// Moves time forward.
    pub fn advance(&self, duration: Duration) {
        self.now_ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn wall_ns(&self) -> u64 {
        Self::WALL_START_NS + self.now_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}
