//! Writes that complete before they are sent; the thread that answered sends them.
//!
//! What is to be sent counts as in flight from the moment it is taken over, so that reads, fsync and close wait for it
//! as for anything else on its way.

use super::inode::{InodeState, OpenInode};
use super::write_out;
use parking_lot::MutexGuard;
use std::sync::Arc;
use vazao_model::Layout;

type Guard<'a> = MutexGuard<'a, InodeState>;

/// Runs that are enqueued and are to be sent, with the layout they were made for.
pub(super) type Enqueued = Vec<(Arc<Layout>, u64)>;

/// Where a write puts what the caller will send; `None`: it is sent at once.
pub(super) type Later<'a> = Option<&'a mut Enqueued>;

/// What is still to be sent of a write that has been taken over. Dropping it sends it.
#[must_use = "dropped at once it is sent at once"]
pub struct Unsent {
    inode: Arc<OpenInode>,
    in_flight: Enqueued,
}

impl std::fmt::Debug for Unsent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unsent({}, {} requests)", self.inode.id, self.in_flight.len())
    }
}

impl Unsent {
    /// `None` when there is nothing to send.
    pub(super) fn new(inode: &Arc<OpenInode>, in_flight: Enqueued) -> Option<Unsent> {
        (!in_flight.is_empty()).then(|| Unsent { inode: Arc::clone(inode), in_flight })
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        let deadline_ns = self.inode.core.context.deadline_ns();
        drop(send(&self.inode, self.inode.lock(), &mut self.in_flight, deadline_ns));
    }
}

fn send<'a>(
    open: &'a OpenInode,
    mut state: Guard<'a>,
    in_flight: &mut Enqueued,
    deadline_ns: u64,
) -> Guard<'a> {
    let last = in_flight.len().saturating_sub(1);
    for (index, (layout, id)) in in_flight.drain(..).enumerate() {
        state = write_out::submit_enqueued(open, state, &layout, id, deadline_ns);
        // Only behind the last: what is not sent yet is nothing to wait for.
        if index == last {
            state = write_out::keep_to_window(open, state, deadline_ns);
        }
    }
    state
}

/// Sends what a write has left for later so far: what comes next waits for writes in flight, and would
/// deadlock on these.
pub(super) fn send_later<'a>(
    open: &'a OpenInode,
    state: Guard<'a>,
    later: &mut Later<'_>,
    deadline_ns: u64,
) -> Guard<'a> {
    match later {
        Some(in_flight) => send(open, state, in_flight, deadline_ns),
        None => state,
    }
}

/// Sends the staged run of a transfer, or leaves that for later.
pub(super) fn submit_or_enqueue<'a>(
    open: &'a OpenInode,
    mut state: Guard<'a>,
    start: u64,
    deadline_ns: u64,
    later: &mut Later<'_>,
) -> Guard<'a> {
    match later {
        Some(in_flight) => {
            in_flight.extend(write_out::enqueue(&mut state, start));
            state
        }
        None => write_out::launch(open, state, start, deadline_ns),
    }
}
