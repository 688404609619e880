//! Writes that are taken over before they are sent: whoever waits for the write goes on, and the thread that answered
//! does the rest.
//!
//! What is to be sent counts as in flight from the moment it is taken over, so that reads, fsync and close wait for it
//! as for anything else on its way.

use super::inode::{OpenInode, State};
use parking_lot::MutexGuard;
use std::sync::Arc;
use vazao_model::Layout;

type Guard<'a> = MutexGuard<'a, State>;

/// Runs that have taken off and are to be sent, with the layout they were made for.
pub(super) type Flights = Vec<(Arc<Layout>, u64)>;

/// Where a write puts what the caller will send; `None`: it is sent at once.
pub(super) type Later<'a> = Option<&'a mut Flights>;

/// What is still to be sent of a write that has been taken over. Dropping it sends it.
#[must_use = "dropped at once it is sent at once"]
pub struct Unsent {
    inode: Arc<OpenInode>,
    flights: Flights,
}

impl std::fmt::Debug for Unsent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unsent({}, {} requests)", self.inode.id, self.flights.len())
    }
}

impl Unsent {
    /// `None` when there is nothing to send.
    pub(super) fn new(inode: &Arc<OpenInode>, flights: Flights) -> Option<Unsent> {
        (!flights.is_empty()).then(|| Unsent { inode: Arc::clone(inode), flights })
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        let deadline_ns = self.inode.core.deadline_ns();
        drop(self.inode.send(self.inode.lock(), &mut self.flights, deadline_ns));
    }
}

impl OpenInode {
    fn send<'a>(&'a self, mut state: Guard<'a>, flights: &mut Flights, deadline_ns: u64) -> Guard<'a> {
        let last = flights.len().saturating_sub(1);
        for (index, (layout, id)) in flights.drain(..).enumerate() {
            state = self.fly(state, &layout, id, deadline_ns);
            // Only behind the last: what is not sent yet is nothing to wait for.
            if index == last {
                state = self.keep_to_window(state, deadline_ns);
            }
        }
        state
    }

    /// Sends what a write has left for later so far: what comes next waits for requests in flight, and would wait for
    /// these for ever.
    pub(super) fn send_later<'a>(
        &'a self,
        state: Guard<'a>,
        later: &mut Later<'_>,
        deadline_ns: u64,
    ) -> Guard<'a> {
        match later {
            Some(flights) => self.send(state, flights, deadline_ns),
            None => state,
        }
    }

    /// Sends the staged run of a transfer, or leaves that for later.
    pub(super) fn depart<'a>(
        &'a self,
        mut state: Guard<'a>,
        start: u64,
        deadline_ns: u64,
        later: &mut Later<'_>,
    ) -> Guard<'a> {
        match later {
            Some(flights) => {
                flights.extend(self.take_off(&mut state, start));
                state
            }
            None => self.launch(state, start, deadline_ns),
        }
    }
}
