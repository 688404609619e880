//! The only place that reads or waits on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds on a monotonic scale with an arbitrary zero.
    fn now_ns(&self) -> u64;

    /// Nanoseconds on a monotonic scale that runs on while the machine is suspended, with a zero that all processes of
    /// a machine share until it starts again. Leases are counted on it: [`Clock::now_ns`] stops in suspension, and a
    /// machine that wakes up would go on with a lease that has ended. A clock that nothing suspends has one scale.
    fn steady_ns(&self) -> u64 {
        self.now_ns()
    }

    /// Nanoseconds since the Unix epoch.
    fn wall_ns(&self) -> u64;

    /// Lets `duration` pass.
    fn sleep(&self, duration: Duration);

    /// False where the caller must not let time pass: in a simulation, what happens by itself takes none.
    fn can_wait(&self) -> bool {
        true
    }
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

    fn steady_ns(&self) -> u64 {
        use rustix::time::{ClockId, clock_gettime};
        let read = clock_gettime(ClockId::Boottime);
        read.tv_sec as u64 * 1_000_000_000 + read.tv_nsec as u64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_clock_is_that_of_the_machine_with_its_suspensions() {
        use rustix::time::{ClockId, clock_gettime};
        let machine_ns = || {
            let read = clock_gettime(ClockId::Boottime);
            Duration::new(read.tv_sec as u64, read.tv_nsec as u32).as_nanos() as u64
        };
        let before_ns = machine_ns();
        let read_ns = SystemClock.steady_ns();
        assert!((before_ns..=machine_ns()).contains(&read_ns));
    }

    #[test]
    fn a_clock_that_nothing_suspends_has_one_scale() {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(3));
        assert_eq!((clock.steady_ns(), clock.now_ns()), (3_000_000_000, 3_000_000_000));
    }
}
