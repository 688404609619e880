//! `nonblocking`: one event loop sends all copies out of an area, and one receives those into it.
//!
//! Reads of the source are made by the loop itself. A disk that has to be waited for holds up the other copies of
//! its area, which wait for the same disk; a source in the volume is better sent by another method.

use super::sending::Sending;
use super::{CopyMethod, Done};
use crate::engine::Engines;
use crate::outgoing::Outgoing;
use crate::record::Kind;
use std::sync::Arc;

pub(super) struct Nonblocking {
    pub(super) engines: Engines,
}

impl CopyMethod for Nonblocking {
    fn name(&self) -> String {
        super::Method::Nonblocking.to_string()
    }

    fn start(&self, copy: Arc<Outgoing>, done: Done) {
        let place = copy.source.place().unwrap_or_default().to_owned();
        if let Some(sending) = Sending::start(copy, Kind::Loop, None, done) {
            self.engines.add(&place, Box::new(sending));
        }
    }
}
