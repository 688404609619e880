//! Receiver thread for asynchronous calls, one for each connection used so, and for connections to servers far away.

use super::link::Link;
use crate::service::Fault;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use vazao_model::Code;

/// The receiver nests a few calls; completions may nest more.
const STACK_BYTES: usize = 512 * 1024;

fn begin(link: &Arc<Link>) -> std::io::Result<()> {
    if !link.claim_receiver(true) {
        return Ok(());
    }
    let tended = Arc::clone(link);
    let tend = move || {
        // Without the receiver thread no completion would run: every request in flight has to fail instead.
        if catch_unwind(AssertUnwindSafe(|| tended.tend())).is_err() {
            tended.break_off(&Fault::new(Code::Internal, "the thread that receives answers panicked"));
        }
    };
    let thread = std::thread::Builder::new().name("vazao-answers".to_owned()).stack_size(STACK_BYTES);
    let spawned = thread.spawn(tend).map(drop);
    if spawned.is_err() {
        link.claim_receiver(false);
    }
    spawned
}

/// Has a thread receive over `link` until the connection fails or is broken off.
pub(super) fn spawn(link: Arc<Link>) -> Result<Arc<Link>, Fault> {
    match begin(&link) {
        Ok(()) => Ok(link),
        Err(error) => {
            let fault = Fault::new(Code::Overloaded, format!("no thread to receive answers: {error}"));
            link.break_off(&fault);
            Err(fault)
        }
    }
}

/// The same for a connection to a server far away whose callers receive for themselves. A caller that asks several
/// servers and waits for the first receives from that one only. The others send no more than the receive buffer
/// takes, and the buffer grows only while a thread receives, so their transfers would run one after the other.
pub(super) fn assist(link: &Arc<Link>) {
    if let Err(error) = begin(link) {
        tracing::debug!(%error, "no receiver thread for a server far away: waiters receive themselves");
    }
}
