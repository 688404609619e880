//! A request to stop the measurement.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by a signal; measurements look at it between their steps.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Watches `asked`.
    pub fn new(asked: Arc<AtomicBool>) -> Stop {
        Stop(asked)
    }

    /// Errors: a stop was requested.
    pub fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(io::Error::other("interrupted")) } else { Ok(()) }
    }
}
