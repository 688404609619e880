//! A simulated clock that moves when a thread sleeps, and runs the background work meanwhile; each machine's own shows
//! something else.

mod machine;

pub(crate) use machine::Clocks;
pub use machine::{MachineClock, Pause, RATE_PPM_MAX};

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vazao_meter::{Clock, ManualClock};

/// Daemons get a turn at least this often.
const STEP: Duration = Duration::from_millis(500);

/// As often as that where servers ask one another for leases: one that has its turn late counts silence anew.
const LEASE_STEP: Duration = Duration::from_millis(100);

type Work = Arc<dyn Fn() + Send + Sync>;

/// The clock of a simulated cluster: true time.
#[derive(Default)]
pub struct SimClock {
    manual: ManualClock,
    work: Mutex<Option<Work>>,
    is_working: AtomicBool,
    has_leases: AtomicBool,
}

impl SimClock {
    /// The background work that runs during a sleep. It is not called recursively.
    pub fn set_work(&self, work: Option<Work>) {
        *self.work.lock() = work;
    }

    /// From now on daemons get a turn as often as leases need it.
    pub fn tick_for_leases(&self) {
        self.has_leases.store(true, Ordering::SeqCst);
    }

    /// True while that work runs.
    pub(crate) fn is_working(&self) -> bool {
        self.is_working.load(Ordering::SeqCst)
    }

    fn work(&self) {
        if self.is_working.swap(true, Ordering::SeqCst) {
            return;
        }
        let work = self.work.lock().clone();
        if let Some(work) = work {
            work();
        }
        self.is_working.store(false, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.manual.now_ns()
    }

    fn wall_ns(&self) -> u64 {
        self.manual.wall_ns()
    }

    fn sleep(&self, duration: Duration) {
        let mut left = duration;
        let step_max = if self.has_leases.load(Ordering::SeqCst) { LEASE_STEP } else { STEP };
        loop {
            let step = left.min(step_max);
            self.manual.advance(step);
            left -= step;
            self.work();
            if left.is_zero() {
                return;
            }
        }
    }
}
