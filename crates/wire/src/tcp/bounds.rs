//! Memory limits that all connections of a server share: for partly received requests and for unsent answers.
//! Connections claim what they buffer. They block (backpressure) while the total exceeds the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_model::limits::{CONNECTIONS_MAX, UNFINISHED_BYTES_MAX, UNSENT_BYTES_MAX};

/// A memory budget for one purpose, and how much of it is claimed.
#[derive(Debug)]
pub(super) struct Budget {
    claimed_bytes: AtomicUsize,
    bytes_max: usize,
}

impl Budget {
    fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { claimed_bytes: AtomicUsize::new(0), bytes_max })
    }

    /// Bytes claimed at present.
    pub(super) fn claimed_bytes(&self) -> usize {
        self.claimed_bytes.load(Ordering::Relaxed)
    }

    /// True while all of it is claimed.
    pub(super) fn is_short(&self) -> bool {
        self.claimed_bytes() >= self.bytes_max
    }

    /// True while twice the budget is claimed: answers had to be kept although it was used up.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.claimed_bytes() >= self.bytes_max.saturating_mul(2)
    }
}

/// What one connection has of a budget. Given back when dropped.
#[derive(Debug)]
pub(super) struct Claim {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Claim {
    pub(super) fn of(budget: &Arc<Budget>) -> Claim {
        Claim { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Bytes claimed.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Claims `bytes` in place of the earlier claim, beyond the budget if need be.
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.budget.claimed_bytes.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            self.budget.claimed_bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Claims `bytes` in place of the earlier claim. Returns false and changes nothing when the budget has too little
    /// left. A quarter is reserved for claims that complete a request: without it partly received requests that wait
    /// for memory would deadlock.
    pub(super) fn try_set(&mut self, bytes: usize, is_last: bool) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            self.set(bytes);
            return true;
        };
        let Budget { claimed_bytes, bytes_max } = &*self.budget;
        let most = if is_last { *bytes_max } else { bytes_max - bytes_max / 4 };
        let fits = |claimed: usize| claimed.checked_add(more).filter(|sum| *sum <= most);
        let claimed = claimed_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        if claimed.is_ok() {
            self.bytes = bytes;
        }
        claimed.is_ok()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The bounds of one server.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) connections_max: usize,
    /// For requests of which a part has arrived, and those that are held back.
    pub(super) unfinished: Arc<Budget>,
    /// For answers that their peers have not taken.
    pub(super) unsent: Arc<Budget>,
    /// Connections of all loops that wait for memory.
    pub(super) waiting: AtomicUsize,
    /// Connections whose peers have not proved the key.
    strangers: Arc<AtomicUsize>,
}

/// Counts a connection as unauthenticated until dropped.
#[derive(Debug)]
pub(super) struct Stranger(Arc<AtomicUsize>);

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Bounds {
    pub(super) fn new(
        connections_max: usize,
        unfinished_bytes_max: usize,
        unsent_bytes_max: usize,
    ) -> Bounds {
        Bounds {
            connections_max,
            unfinished: Budget::new(unfinished_bytes_max),
            unsent: Budget::new(unsent_bytes_max),
            waiting: AtomicUsize::new(0),
            strangers: Arc::default(),
        }
    }

    /// A connection begins.
    pub(super) fn let_in(&self) -> Stranger {
        self.strangers.fetch_add(1, Ordering::Relaxed);
        Stranger(Arc::clone(&self.strangers))
    }

    /// True where a connection that has not proved the key can make room for another one.
    pub(super) fn has_strangers(&self) -> bool {
        self.strangers.load(Ordering::Relaxed) > 0
    }

    /// True while a connection waits for memory, or soon will.
    pub(super) fn is_pressed(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.unsent.is_short()
    }
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds::new(CONNECTIONS_MAX, UNFINISHED_BYTES_MAX, UNSENT_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_is_bounded_and_comes_back() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (Claim::of(&budget), Claim::of(&budget));
        assert!(
            one.try_set(60, false) && !other.try_set(16, false),
            "the last quarter is for who can end with it"
        );
        assert!(!other.try_set(50, true) && other.try_set(40, true));
        assert!(budget.is_short() && !budget.is_overdrawn());
        assert!(!one.try_set(61, true), "not a byte more");
        assert!(one.try_set(10, false) && other.try_set(90, true), "what one gives back the other can have");
        one.set(150);
        assert_eq!((budget.claimed_bytes(), one.bytes(), budget.is_overdrawn()), (240, 150, true));
        drop(other);
        one.set(0);
        assert_eq!((budget.claimed_bytes(), budget.is_short()), (0, false));
    }
}
