//! The thread in which a node's data server asks others for the leases of the placement groups that they share.
//!
//! Its turns must not be late: others would go on without this server. So it runs at a raised priority where that is
//! allowed, makes no connection itself, and waits for no answer.

use super::daemon::Node;
use tracing::debug;
use vazao_store::Peers;

/// Above what serves requests, below what the kernel does.
const PRIORITY: i32 = -10;

impl Node {
    /// Asks, for as long as the node runs.
    pub(super) fn keep_leases(&self) {
        let Some(data) = &self.data else { return };
        // Of the calling thread alone. An ordinary user may not: a busy machine's turns come late now and then.
        if let Err(error) = rustix::process::setpriority_process(None, PRIORITY) {
            debug!(%error, "no raised priority for leases");
        }
        let mut peers = Peers::default();
        while !self.is_stopping() {
            let metadata = self.registered_at.lock().clone();
            match data.shares_groups() {
                true => peers.turn(data, &*self.leases_transport, &metadata),
                false => peers = Peers::default(),
            }
            // Also where nothing is shared: the first change in a new group waits for its members' leases.
            self.pause(Peers::TURN.as_millis() as u64);
        }
    }
}
