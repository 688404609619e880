//! The protocol over TCP: a server of few event-loop threads, and a client whose callers drive their own connections.

mod ahead;
mod bounds;
mod buffers;
mod dial;
mod event_loop;
mod in_flight;
mod inbound;
mod inbox;
mod link;
mod outbound;
mod patience;
mod peer;
mod relief;
mod served;
mod server;
mod socket;
mod tender;
mod watched;

pub use dial::{is_way_lost, probe_way};
pub use peer::{TcpTransport, TransportOptions};
pub use server::{Server, ServerOptions};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: every structure here is consistent between statements.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod entrance_tests;
#[cfg(test)]
mod relief_tests;
#[cfg(test)]
mod tended_tests;
#[cfg(test)]
mod tests;
