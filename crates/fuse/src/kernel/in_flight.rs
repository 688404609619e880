//! Requests that were begun and are not answered yet: how many there are, and may be.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Several: see [`InFlight::is_busy`].
const BUSY: usize = 2;

/// How many of the requests that can be begun are under way.
#[derive(Debug)]
pub(crate) struct InFlight {
    count: AtomicUsize,
    /// Each may come to need a thread.
    max: usize,
}

impl InFlight {
    pub(crate) fn new(max: usize) -> InFlight {
        InFlight { count: AtomicUsize::new(0), max }
    }

    /// True when several are under way, so that callers will keep those busy who read the device. With a single caller
    /// it is faster to have another thread there at each request.
    pub(super) fn is_busy(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= BUSY
    }

    /// How many were there before; `None` when there are as many as there may be.
    pub(super) fn enter(&self) -> Option<usize> {
        let more = |count: usize| (count < self.max).then_some(count + 1);
        self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()
    }

    pub(super) fn leave(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}
