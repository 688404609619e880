//! Pauses of a node's threads, all of which end when the node is to stop.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// The pauses. A thread that looked for the stop by itself, every 20 ms, would wake an idle machine fifty times a
/// second, and each node has half a dozen of them.
#[derive(Default)]
pub(crate) struct Pauses {
    are_over: Mutex<bool>,
    ended: Condvar,
}

impl Pauses {
    /// Waits for so long, or until the end.
    pub(crate) fn wait(&self, milliseconds: u64) {
        let mut are_over = self.are_over.lock();
        if !*are_over {
            self.ended.wait_for(&mut are_over, Duration::from_millis(milliseconds));
        }
    }

    /// Ends them, and those to come.
    pub(crate) fn end(&self) {
        *self.are_over.lock() = true;
        self.ended.notify_all();
    }

    /// Whether they were ended.
    pub(crate) fn are_over(&self) -> bool {
        *self.are_over.lock()
    }
}
