//! Calls whose callers go on with something else: the answer comes to a function of theirs, in the thread that receives
//! for all of them.
//!
//! That thread must not wait. What an answer that came in time leaves to do is done in it; whatever else there is to do
//! (another attempt, an answer that takes long, a second request) is handed to the caller, who has threads that may.

use super::call::{Changing, Sent, settle};
use super::{Attempts, MetaService};
use crate::Result;
use crate::cache::Asked;
use std::sync::Arc;
use vazao_model::{Code, Knowledge};
use vazao_wire::operation::Operation;
use vazao_wire::transport::Pending;

/// What has become of a call.
pub enum Readiness<T> {
    /// It is over.
    Ready(Result<T>),
    /// The rest of it takes a thread that may wait.
    Blocking(Box<dyn FnOnce() -> Result<T> + Send>),
}

/// Is told what became of a call. It must not wait.
pub type Completion<T> = Box<dyn FnOnce(Readiness<T>) + Send>;

impl<T> std::fmt::Debug for Readiness<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Readiness::Ready(_)) { "Ready" } else { "Blocking" })
    }
}

impl<T: 'static> Readiness<T> {
    /// A call of which everything is still to do.
    pub(crate) fn blocking(work: impl FnOnce() -> Result<T> + Send + 'static) -> Readiness<T> {
        Readiness::Blocking(Box::new(work))
    }

    /// Has `next` take the outcome, also that of the rest. `next` does not wait.
    pub fn map<U: 'static>(self, next: impl FnOnce(Result<T>) -> Result<U> + Send + 'static) -> Readiness<U> {
        match self {
            Readiness::Ready(outcome) => Readiness::Ready(next(outcome)),
            Readiness::Blocking(rest) => Readiness::blocking(move || next(rest())),
        }
    }

    /// The same, for a `next` that may have to wait unless `is_quick` with that outcome.
    pub fn and_then<U: 'static>(
        self,
        is_quick: impl FnOnce(&Result<T>) -> bool,
        next: impl FnOnce(Result<T>) -> Result<U> + Send + 'static,
    ) -> Readiness<U>
    where
        T: Send,
    {
        match self {
            Readiness::Ready(outcome) if is_quick(&outcome) => Readiness::Ready(next(outcome)),
            Readiness::Ready(outcome) => Readiness::blocking(move || next(outcome)),
            Readiness::Blocking(rest) => Readiness::blocking(move || next(rest())),
        }
    }
}

/// True for what no further attempt is made after, so that passing it on does not wait.
pub(super) fn is_final(code: Code) -> bool {
    code.knowledge() == Knowledge::Decided
}

/// Carries out a change once, without standing still for its answer; what it changes has been announced to the memory.
pub(crate) fn begin_change<O: Operation>(
    meta: &Arc<MetaService>,
    mut request: O::Request,
    then: impl FnOnce(Readiness<O::Response>) + Send + 'static,
) where
    O::Request: Changing + Send + 'static,
    O::Response: 'static,
{
    let deadline_ns = meta.context.deadline_ns();
    let Some(slot) = meta.free_slot().filter(|slot| meta.are_locks_told(&request, slot)) else {
        let meta = Arc::clone(meta);
        return then(Readiness::blocking(move || meta.send_change::<O>(request, deadline_ns)));
    };
    let attempts = Attempts::until(&meta.context, meta.meta_deadline_ns(deadline_ns));
    request.set_once(slot.once(meta.cache.seat()));
    let message = prost::Message::encode_to_vec(&request);
    let (attempt, attempt_deadline_ns) = meta.begin_attempt(&attempts);
    let answered = Arc::clone(meta);
    let answer = move |pending: Box<dyn Pending>| {
        let mut sent = Sent { request, slot, attempts, deadline_ns };
        sent.attempts.request = pending.id();
        if !pending.is_done() {
            return then(Readiness::blocking(move || {
                let outcome = answered.end_attempt::<O>(attempt, pending);
                answered.persist::<O>(sent, outcome)
            }));
        }
        match answered.end_attempt::<O>(attempt, pending) {
            Ok(response) => {
                // Before the caller hears of it: its next change finds the slot free.
                drop(sent);
                then(Readiness::Ready(Ok(response)));
            }
            Err(fault) if is_final(fault.code) => {
                then(Readiness::Ready(answered.persist::<O>(sent, Err(fault))));
            }
            Err(fault) => then(Readiness::blocking(move || answered.persist::<O>(sent, Err(fault)))),
        }
    };
    let address = meta.context.meta_address();
    meta.context.transport.submit_then(
        address,
        O::METHOD,
        &message,
        &[],
        attempt_deadline_ns,
        Box::new(answer),
    );
}

/// [`begin_change`] of something that says itself what it changes, with the moment as of which the answer may be
/// remembered, if it may.
pub(crate) fn begin_change_as_of<O: Operation>(
    meta: &Arc<MetaService>,
    request: O::Request,
    then: impl FnOnce(Readiness<(O::Response, Option<Asked>)>) + Send + 'static,
) where
    O::Request: Changing + Send + 'static,
    O::Response: 'static,
{
    let (asked, change) = (meta.cache.asked(), meta.cache.entries.begin(request.things()));
    let settled = Arc::clone(meta);
    begin_change::<O>(meta, request, move |early| {
        then(early.map(move |outcome| {
            let as_of = settle(&settled, change, asked, None, &outcome);
            outcome.map(|response| (response, as_of))
        }));
    });
}

/// Asks for something that changes nothing, without standing still for the answer.
pub(crate) fn begin_ask<O: Operation>(
    meta: &Arc<MetaService>,
    request: O::Request,
    then: impl FnOnce(Readiness<O::Response>) + Send + 'static,
) where
    O::Request: Send + 'static,
    O::Response: 'static,
{
    let deadline_ns = meta.context.deadline_ns();
    let mut attempts = Attempts::until(&meta.context, meta.meta_deadline_ns(deadline_ns));
    let message = prost::Message::encode_to_vec(&request);
    let (attempt, attempt_deadline_ns) = meta.begin_attempt(&attempts);
    let answered = Arc::clone(meta);
    let answer = move |pending: Box<dyn Pending>| {
        attempts.request = pending.id();
        if !pending.is_done() {
            return then(Readiness::blocking(move || {
                let outcome = answered.end_attempt::<O>(attempt, pending);
                answered.keep_asking::<O>(&request, attempts, outcome)
            }));
        }
        match answered.end_attempt::<O>(attempt, pending) {
            Ok(response) => then(Readiness::Ready(Ok(response))),
            Err(fault) if is_final(fault.code) => {
                then(Readiness::Ready(answered.keep_asking::<O>(&request, attempts, Err(fault))));
            }
            Err(fault) => {
                then(Readiness::blocking(move || answered.keep_asking::<O>(&request, attempts, Err(fault))));
            }
        }
    };
    let address = meta.context.meta_address();
    meta.context.transport.submit_then(
        address,
        O::METHOD,
        &message,
        &[],
        attempt_deadline_ns,
        Box::new(answer),
    );
}
