//! The thread in which a node with a data server shares its link among connections (`wire/tcp/egress.rs`).

use super::daemon::Node;
use vazao_wire::tcp::SharedLink;

/// A look at all connections takes one part in so many of the time.
const LOOKS: u64 = 50;
const LOOK_MS_MAX: u64 = 2_000;

impl Node {
    /// Shares the link, for as long as the node runs.
    pub(super) fn share_link(&self) {
        let mut link = self.server.lock().shared_link(&self.transport);
        let turn_ms = SharedLink::TURN.as_millis() as u64;
        while !self.is_stopping() {
            let begun_ns = self.clock.now_ns();
            let is_due = link.turn(begun_ns);
            // With thousands of connections it looks less often, but where some are held up.
            let taken_ms = self.clock.now_ns().saturating_sub(begun_ns) / 1_000_000;
            self.pause(if is_due { turn_ms } else { (taken_ms * LOOKS).clamp(turn_ms, LOOK_MS_MAX) });
        }
    }
}
