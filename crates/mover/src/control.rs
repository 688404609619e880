//! Orders to all copies of a job while they run, the counters that they update, and what is seen of each.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use vazao_meter::Counter;
use vazao_model::{Action, Code};
use vazao_wire::service::Fault;

/// Time-outs of a job, each obeyed by every method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// A connection stands and is welcomed within this.
    pub connect_ms: u32,
    /// Something of a block goes on within this.
    pub block_ms: u32,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect_ms: 10_000, block_ms: 60_000 }
    }
}

/// What the copies of a job shall do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Order {
    /// Go on.
    Run = 0,
    /// Stop and be ready to go on.
    Pause = 1,
    /// Stop for good.
    Cancel = 2,
    /// The daemon ends; it goes on after its start.
    Shutdown = 3,
}

/// A file on its way, whatever takes it there.
pub(crate) trait Underway: Send + Sync + std::fmt::Debug {
    /// Bytes at the destination.
    fn finished_bytes(&self) -> u64;
}

/// Bytes a second, shared by all copies of a job. A burst of a tenth of a second is let through.
#[derive(Debug)]
struct Limiter {
    rate_bytes: AtomicU64,
    free_ns: Mutex<u64>,
}

const BURST_NS: u64 = 100_000_000;

impl Limiter {
    /// When `bytes` more may be sent: not later than `now_ns` for at once. They count as sent only then.
    fn ready_ns(&self, bytes: u64, now_ns: u64) -> u64 {
        let rate = self.rate_bytes.load(Ordering::Relaxed);
        if rate == 0 {
            return now_ns;
        }
        let mut free = self.free_ns.lock();
        if *free > now_ns {
            return *free;
        }
        let takes_ns = (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
        *free = (*free).max(now_ns.saturating_sub(BURST_NS)).saturating_add(takes_ns);
        now_ns
    }
}

/// Orders to the copies of a job.
#[derive(Debug)]
pub struct Control {
    order: AtomicU8,
    limiter: Limiter,
    /// Its time-outs.
    pub timeouts: Timeouts,
    /// When the whole job has to be over; `u64::MAX`: whenever.
    pub deadline_ns: AtomicU64,
}

impl Control {
    /// Copies that run, at most `rate_bytes` a second in all; 0 for no limit.
    pub fn new(timeouts: Timeouts, rate_bytes: u64) -> Control {
        let limiter = Limiter { rate_bytes: AtomicU64::new(rate_bytes), free_ns: Mutex::new(0) };
        let deadline_ns = AtomicU64::new(u64::MAX);
        Control { order: AtomicU8::new(Order::Run as u8), limiter, timeouts, deadline_ns }
    }

    /// What they shall do.
    pub fn order(&self) -> Order {
        match self.order.load(Ordering::SeqCst) {
            0 => Order::Run,
            1 => Order::Pause,
            2 => Order::Cancel,
            _ => Order::Shutdown,
        }
    }

    /// Tells them.
    pub fn set(&self, order: Order) {
        self.order.store(order as u8, Ordering::SeqCst);
    }

    /// Fails once they are to stop, or the job's time is over.
    pub fn check(&self, now_ns: u64) -> Result<(), Fault> {
        match self.order() {
            Order::Run if now_ns >= self.deadline_ns.load(Ordering::Relaxed) => {
                Err(Fault::new(Code::Timeout, "the time given to the whole job is over"))
            }
            Order::Run => Ok(()),
            Order::Pause => Err(Fault::new(Code::Interrupted, "paused")),
            Order::Cancel => Err(Fault::new(Code::Cancelled, "cancelled")),
            Order::Shutdown => Err(Fault::new(Code::Interrupted, "the daemon is stopping")),
        }
    }

    /// True when its rate says nothing of the way.
    pub(crate) fn is_limited(&self) -> bool {
        self.limiter.rate_bytes.load(Ordering::Relaxed) > 0
    }

    /// When `bytes` may be sent under the job's bandwidth limit; `now_ns` or before for at once.
    pub fn ready_ns(&self, bytes: u64, now_ns: u64) -> u64 {
        self.limiter.ready_ns(bytes, now_ns)
    }
}

/// What the copies of a job count, and what they have waited for.
#[derive(Debug, Default)]
pub struct Counts {
    /// Bytes sent, repetitions included.
    pub sent_bytes: Counter,
    /// Nanoseconds in reads of the source.
    pub read_ns: Counter,
    /// Nanoseconds in which a connection took no more.
    pub send_ns: Counter,
    /// Nanoseconds in which all was sent and a confirmation was awaited.
    pub confirm_ns: Counter,
    /// Nanoseconds in which the bandwidth limit was waited for.
    pub limit_ns: Counter,
    /// Nanoseconds of the destination's disk, as its answers tell.
    pub disk_ns: Counter,
    /// Nanoseconds in which streams were there, all together; only of methods that have streams.
    pub stream_ns: Counter,
    /// Nanoseconds of which the receivers of these streams gave account with their confirmations.
    pub receiver_ns: Counter,
    /// Of them, nanoseconds in which a receiver waited for bytes.
    pub starved_ns: Counter,
    /// The shortest round trip in nanoseconds, as far as connections told; 0: none did.
    pub round_trip_ns: std::sync::atomic::AtomicU64,
}

/// Faults of the way to another node, or of the node's moment: all that a client tries again, and what only a job has
/// the time to wait for.
pub(crate) fn may_pass(code: Code) -> bool {
    // No answer in time is no answer yet; a node that was restarted knows no handles of before; a disk that hangs may
    // answer again.
    code.action() != Action::GiveUp || matches!(code, Code::Timeout | Code::BadHandle | Code::Hung)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_lets_its_rate_through_and_no_more() {
        let control = Control::new(Timeouts::default(), 1_000_000);
        let (mut now_ns, mut sent) = (1_000_000_000u64, 0u64);
        while now_ns < 11_000_000_000 {
            let ready_ns = control.ready_ns(10_000, now_ns);
            if ready_ns <= now_ns {
                sent += 10_000;
            }
            now_ns = ready_ns.max(now_ns);
        }
        assert!((9_900_000..=10_200_000).contains(&sent), "{sent}");
    }

    #[test]
    fn no_limit_is_never_waited_for() {
        let control = Control::new(Timeouts::default(), 0);
        assert!((0..1000).all(|_| control.ready_ns(1 << 40, 5) == 5));
    }
}
