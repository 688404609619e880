//! What carries out each method. It stands above them; only `auto`, which tries others, comes back to it.

use super::auto::Auto;
use super::{CopyMethod, Done, Method, blocking, ftp, nonblocking, rpc, streams};
use crate::engine::Engines;
use crate::outgoing::Outgoing;
use std::sync::Arc;

/// One more connection, with a thread, for a copy under way.
pub(crate) fn add_stream(copy: Arc<Outgoing>, done: Done) {
    blocking::spawn(copy, None, done);
}

/// What carries out a method; `auto` so made knows nothing of the pair.
pub(crate) fn build(method: Method, engines: &Engines) -> Box<dyn CopyMethod> {
    match method {
        Method::Auto => {
            Box::new(Auto { pairs: Arc::default(), chosen: Arc::default(), engines: engines.clone() })
        }
        Method::Blocking { buffer } => Box::new(blocking::Blocking { buffer }),
        Method::Streams(count) => Box::new(streams::Streams { count }),
        Method::Nonblocking => Box::new(nonblocking::Nonblocking { engines: engines.clone() }),
        Method::Rpc { block, window } => Box::new(rpc::Rpc { block, window }),
        Method::Ftp => Box::new(ftp::Ftp),
    }
}
