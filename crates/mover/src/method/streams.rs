//! `streams:N`: N connections for each copy, each with a thread; blocks go to whichever connection is free.

use super::{CopyMethod, Done, blocking};
use crate::outgoing::Outgoing;
use parking_lot::Mutex;
use std::sync::Arc;
use vazao_wire::service::Fault;

pub(super) struct Streams {
    pub(super) count: u32,
}

/// Called when each of the streams has ended.
struct Together {
    left: u32,
    outcome: Result<(), Fault>,
    done: Option<Done>,
}

impl CopyMethod for Streams {
    fn name(&self) -> String {
        super::Method::Streams(self.count).to_string()
    }

    fn start(&self, copy: Arc<Outgoing>, done: Done) {
        // More connections than blocks would only be opened and closed.
        let blocks = u32::try_from(copy.grid.blocks()).unwrap_or(u32::MAX);
        let count = self.count.min(blocks).max(1);
        let together = Together { left: count, outcome: Ok(()), done: Some(done) };
        let together = Arc::new(Mutex::new(together));
        for _ in 0..count {
            let together = Arc::clone(&together);
            let one = move |outcome: Result<(), Fault>| {
                let mut all = together.lock();
                all.left -= 1;
                if all.outcome.is_ok() {
                    all.outcome = outcome;
                }
                if all.left == 0 {
                    let (outcome, done) = (all.outcome.clone(), all.done.take());
                    drop(all);
                    if let Some(done) = done {
                        done(outcome);
                    }
                }
            };
            blocking::spawn(Arc::clone(&copy), None, Box::new(one));
        }
    }
}
