//! Requests of a connection that are in flight, and who waits for them.

use super::slow_requests::Asked;
use crate::service::Fault;
use crate::transport::{Completion, Received};
use std::collections::HashMap;
use std::thread::Thread;

/// State of one request.
pub(super) enum Slot {
    /// In flight; with the thread that sleeps for the answer, if one does, or the completion of an asynchronous call.
    Waiting { thread: Option<Thread>, bytes: u64, then: Option<Called> },
    /// Answered, not yet taken.
    Done(Result<Received, Fault>),
    /// The caller has given up; the answer is dropped when it comes, and still returns its credits.
    Abandoned { bytes: u64 },
}

/// A completion, and the request it belongs to.
pub(super) struct Called {
    pub(super) asked: Asked,
    pub(super) then: Completion,
}

#[derive(Default)]
pub(super) struct Table {
    pub(super) slots: HashMap<u64, Slot>,
    /// A leader receives.
    pub(super) led: bool,
    pub(super) broken: Option<Fault>,
    pub(super) requests: u32,
    pub(super) bytes: u64,
    /// Threads that wait for credits.
    pub(super) hungry: Vec<Thread>,
    /// Completions of answers that have just come; they run once the lock is released.
    pub(super) called: Vec<Called>,
    /// The receiver thread for asynchronous calls, while it sleeps because no request is in flight.
    pub(super) receiver: Option<Thread>,
}

/// Queues the completions of requests that have waited for `waited_ns`.
pub(super) fn hand_over(table: &mut Table, now_ns: u64, waited_ns: u64) {
    let Table { slots, called, .. } = table;
    let is_late = |then: &mut Called| now_ns.saturating_sub(then.asked.submitted_ns) >= waited_ns;
    for slot in slots.values_mut() {
        if let Slot::Waiting { then, .. } = slot {
            called.extend(then.take_if(is_late));
        }
    }
}

/// Wakes one sleeping waiter to receive in place of the leader that leaves. Without it all waiters would sleep until
/// their deadlines.
pub(super) fn pass_on_lead(table: &Table) {
    if table.led {
        return;
    }
    let sleeper = table.slots.values().find_map(|slot| match slot {
        Slot::Waiting { thread: Some(thread), .. } => Some(thread),
        _ => None,
    });
    match sleeper {
        Some(thread) => thread.unpark(),
        // A thread that waits for credits may have given up since it was noted, so all of them are woken.
        None => table.hungry.iter().for_each(Thread::unpark),
    }
}
