//! Backpressure: a change that has to wait for a checkpoint waits in a thread of its own, never in an event loop.
//!
//! The engine takes changes faster than its disk takes checkpoints, for a while. Then commits have to wait, for seconds
//! where the disk is slow. An event loop that waited would hold up all of its connections: reads, renewals of
//! sessions, heartbeats of data servers.
//!
//! - An event loop carries a request out with commits that are refused instead of waiting ([`unless_behind`]).
//! - A request of which a commit was refused is carried out again from its beginning, by a thread of [`Waiters`], once
//!   the engine has caught up. This is safe for the reason that a repetition by a client is: what was not committed
//!   has changed no record, and what is noted in memory errs to the safe side.
//! - No lock of the service is held while a thread waits for the engine.

use crate::engine::Engine;
use crate::service::fault::Outcome;
use std::cell::Cell;
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_wire::pool::Pool;
use vazao_wire::service::Fault;

/// Threads for changes that wait: they wait for the same checkpoint, and after it have little to do.
const THREADS: usize = 4;

/// Changes that may wait, and the bytes of their arguments. Clients try again later when there are more.
const CHANGES_MAX: usize = 4096;
const CHANGE_BYTES_MAX: usize = 64 << 20;

/// What the commits of this thread do when the engine is behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Commits {
    Wait,
    Refuse,
    /// One was refused.
    Refused,
}

thread_local! {
    static COMMITS: Cell<Commits> = const { Cell::new(Commits::Wait) };
}

/// Runs `work`, whose commits do not wait. `None` when one was refused: `work` is to be run again, by a thread that
/// may wait.
pub(crate) fn unless_behind<T>(work: impl FnOnce() -> T) -> Option<T> {
    COMMITS.set(Commits::Refuse);
    let done = work();
    (COMMITS.replace(Commits::Wait) == Commits::Refuse).then_some(done)
}

/// Waits until the engine takes changes again, where this thread may. Errors: it may not; the engine has failed.
pub(crate) fn wait(engine: &dyn Engine) -> Outcome<()> {
    if COMMITS.get() == Commits::Wait {
        return Ok(engine.catch_up()?);
    }
    COMMITS.set(Commits::Refused);
    Err(Fault::new(Code::Overloaded, "changes wait for a checkpoint of the metadata"))
}

/// The threads in which changes wait.
pub(crate) fn waiters(clock: &Arc<dyn Clock>) -> Pool {
    Pool::new("meta-changes", THREADS, CHANGES_MAX, CHANGE_BYTES_MAX, Arc::clone(clock))
}
