//! The thread that receives answers for callers who do not stand still for them: one for each connection used so.

use super::link::Link;
use crate::service::Fault;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use vazao_model::Code;

/// Has a thread receive over `link` until the connection fails or is broken off.
pub(super) fn spawn(link: Arc<Link>) -> Result<Arc<Link>, Fault> {
    let tended = Arc::clone(&link);
    let thread = std::thread::Builder::new().name("vazao-answers".to_owned());
    let tend = move || {
        // Without its thread nobody would hear of an answer: everything under way has to fail instead.
        if catch_unwind(AssertUnwindSafe(|| tended.tend())).is_err() {
            tended.break_off(&Fault::new(Code::Internal, "the thread that receives answers panicked"));
        }
    };
    match thread.spawn(tend) {
        Ok(_) => Ok(link),
        Err(error) => {
            let fault = Fault::new(Code::Overloaded, format!("no thread to receive answers: {error}"));
            link.break_off(&fault);
            Err(fault)
        }
    }
}
