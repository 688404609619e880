//! `nonblocking`: one event loop sends all copies of a daemon, and one receives them.
//!
//! Reads of the source are made by the loop itself. A disk that has to be waited for holds up the other copies, which
//! as a rule wait for the same disk; a source in the volume is better sent by another method.

use super::sending::Sending;
use super::{CopyMethod, Done};
use crate::engine::Inbox;
use crate::outgoing::Outgoing;
use crate::record::Kind;
use std::sync::Arc;

pub(super) struct Nonblocking {
    pub(super) engine: Inbox,
}

impl CopyMethod for Nonblocking {
    fn name(&self) -> String {
        super::Method::Nonblocking.to_string()
    }

    fn start(&self, copy: Arc<Outgoing>, done: Done) {
        if let Some(sending) = Sending::start(copy, Kind::Loop, None, done) {
            self.engine.add(Box::new(sending));
        }
    }
}
