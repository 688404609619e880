//! `blocking[:buffer=SIZE]`: a thread and a connection for each copy, with socket buffers of a given size.

use super::sending::Sending;
use super::{CopyMethod, Done};
use crate::engine::{Machine, drive};
use crate::outgoing::Outgoing;
use crate::record::Kind;
use parking_lot::Mutex;
use std::sync::Arc;
use vazao_model::Code;

/// A thread of one copy nests a few calls and keeps its buffers on the heap.
const STACK_BYTES: usize = 256 * 1024;

pub(super) struct Blocking {
    pub(super) buffer: Option<u32>,
}

impl CopyMethod for Blocking {
    fn name(&self) -> String {
        super::Method::Blocking { buffer: self.buffer }.to_string()
    }

    fn start(&self, copy: Arc<Outgoing>, done: Done) {
        spawn(copy, self.buffer, done);
    }
}

/// Sends blocks of `copy` over one connection in a thread of its own.
pub(super) fn spawn(copy: Arc<Outgoing>, buffer: Option<u32>, done: Done) {
    let fault = copy.fault(Code::Overloaded, "this node has no more threads; lower `copies_out_max`");
    // Called once: by the thread, or by this function when no thread can be started.
    let done = Arc::new(Mutex::new(Some(done)));
    let call = {
        let done = Arc::clone(&done);
        move |outcome| {
            let done = done.lock().take();
            if let Some(done) = done {
                done(outcome);
            }
        }
    };
    let told = call.clone();
    let clock = Arc::clone(&copy.around.clock);
    let work = move || {
        if let Some(sending) = Sending::start(copy, Kind::Thread, buffer, Box::new(told)) {
            drive(Box::new(sending) as Box<dyn Machine>, &*clock);
        }
    };
    let builder = std::thread::Builder::new().name("copy".to_owned()).stack_size(STACK_BYTES);
    if builder.spawn(work).is_err() {
        call(Err(fault));
    }
}
