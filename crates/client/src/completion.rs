//! Calls whose callers go on with something else: the answer comes to a function of theirs, in the thread that receives
//! for all of them.
//!
//! That thread must not wait. What an answer that came in time leaves to do is done in it; whatever else there is to do
//! (another attempt, an answer that takes long, a second request) is handed to the caller, who has threads that may.

use crate::call::{Changing, Sent, settle};
use crate::core::Core;
use crate::namespace::{create_request, unlink_request};
use crate::retry::Attempts;
use crate::{Asked, Client, File, NewInode, OpenMode, Result};
use std::sync::Arc;
use vazao_model::{Action, Attributes, Code, InodeId};
use vazao_wire::operation::Operation;
use vazao_wire::transport::Pending;
use vazao_wire::{op, proto};

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
fn is_final(code: Code) -> bool {
    code.action() == Action::GiveUp && !matches!(code, Code::Timeout | Code::SessionExpired)
}

/// Carries out a change once, without standing still for its answer; what it changes has been announced to the memory.
fn begin_change<O: Operation>(
    core: &Arc<Core>,
    mut request: O::Request,
    then: impl FnOnce(Readiness<O::Response>) + Send + 'static,
) where
    O::Request: Changing + Send + 'static,
    O::Response: 'static,
{
    let deadline_ns = core.deadline_ns();
    let Some(slot) = core.free_slot() else {
        let core = Arc::clone(core);
        return then(Readiness::blocking(move || core.send_change::<O>(request, deadline_ns)));
    };
    let attempts = Attempts::until(core, core.meta_deadline_ns(deadline_ns));
    request.set_once(slot.once(core.seat()));
    let message = prost::Message::encode_to_vec(&request);
    let (attempt, attempt_deadline_ns) = core.begin_attempt(&attempts);
    let answered = Arc::clone(core);
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
    let address = core.meta_address();
    core.transport.submit_then(address, O::METHOD, &message, &[], attempt_deadline_ns, Box::new(answer));
}

/// [`begin_change`] of something that says itself what it changes, with the moment as of which the answer may be
/// remembered, if it may.
pub(crate) fn begin_change_as_of<O: Operation>(
    core: &Arc<Core>,
    request: O::Request,
    then: impl FnOnce(Readiness<(O::Response, Option<Asked>)>) + Send + 'static,
) where
    O::Request: Changing + Send + 'static,
    O::Response: 'static,
{
    let (asked, change) = (core.asked(), core.cache.begin(request.things()));
    let settled = Arc::clone(core);
    begin_change::<O>(core, request, move |early| {
        then(early.map(move |outcome| {
            let as_of = settle(&settled, change, asked, None, &outcome);
            outcome.map(|response| (response, as_of))
        }));
    });
}

/// Asks for something that changes nothing, without standing still for the answer.
fn begin_ask<O: Operation>(
    core: &Arc<Core>,
    request: O::Request,
    then: impl FnOnce(Readiness<O::Response>) + Send + 'static,
) where
    O::Request: Send + 'static,
    O::Response: 'static,
{
    let deadline_ns = core.deadline_ns();
    let mut attempts = Attempts::until(core, core.meta_deadline_ns(deadline_ns));
    let message = prost::Message::encode_to_vec(&request);
    let (attempt, attempt_deadline_ns) = core.begin_attempt(&attempts);
    let answered = Arc::clone(core);
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
    let address = core.meta_address();
    core.transport.submit_then(address, O::METHOD, &message, &[], attempt_deadline_ns, Box::new(answer));
}

impl Client {
    /// Whether the calls that follow would not even wait to be sent.
    pub fn can_begin(&self) -> bool {
        self.core.transport.is_tended(self.core.meta_address())
    }

    /// [`Client::lookup`] without standing still for the answer.
    pub fn begin_lookup(&self, parent: InodeId, name: &[u8], then: Completion<Attributes>) {
        let as_of = (self.core.answers(), self.core.asked());
        let request = proto::LookupRequest { parent: parent.0, name: name.to_vec(), seat: self.core.seat() };
        let (client, name) = (self.clone(), name.to_vec());
        begin_ask::<op::Lookup>(&self.core, request, move |early| {
            then(early.map(move |answer| client.looked_up(parent, &name, as_of, answer)));
        });
    }

    /// [`Client::open_file`] without standing still for the answer.
    pub fn begin_open_file(&self, inode: InodeId, mode: OpenMode, then: Completion<File>) {
        let client = self.clone();
        if mode.truncate {
            return then(Readiness::blocking(move || client.open_file(inode, mode)));
        }
        let opening = self.core.opens.begin();
        let as_of = (self.core.answers(), self.core.asked());
        let request = self.open_request(inode);
        begin_ask::<op::Open>(&self.core, request, move |early| {
            let seen = client.clone();
            let early = early.map(move |answer| seen.seen_to_open(inode, as_of, answer));
            then(match early {
                Readiness::Ready(Err(error)) => Readiness::Ready(Err(error)),
                Readiness::Ready(Ok(fresh)) => match File::open(&client.core, fresh, mode) {
                    Some(file) => Readiness::Ready(Ok(file)),
                    None => Readiness::blocking(move || client.open_file(inode, mode)),
                },
                Readiness::Blocking(rest) => Readiness::blocking(move || {
                    // Until then it is under way.
                    let _opening = opening;
                    match File::open(&client.core, rest()?, mode) {
                        Some(file) => Ok(file),
                        None => client.open_file(inode, mode),
                    }
                }),
            });
        });
    }

    /// [`Client::create_file`] without standing still for the answer.
    pub fn begin_create_file(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode,
        exclusive: bool,
        then: Completion<(Attributes, File)>,
    ) {
        let opening = self.core.opens.begin();
        let asked_at = self.core.answers();
        let request = create_request(parent, name, new, exclusive);
        let naming = self.core.begin_create_name(&request);
        let client = self.clone();
        begin_change::<op::Create>(&self.core, request, move |early| {
            let core = Arc::clone(&client.core);
            let early = early.map(move |outcome| core.end_create_name(naming, outcome));
            // What was there before may be in use, and has to be asked about.
            let is_quick = |outcome: &Result<proto::CreateResponse>| {
                outcome.as_ref().map_or(true, |answer| answer.created)
            };
            let open = move |outcome: Result<_>| {
                // Until then it is under way.
                let _opening = opening;
                client.open_created(outcome?, asked_at)
            };
            then(early.and_then(is_quick, open));
        });
    }

    /// [`Client::unlink`] without standing still for the answer.
    pub fn begin_unlink(&self, parent: InodeId, name: &[u8], then: Completion<()>) {
        let client = self.clone();
        let Some(held_inode) = self.cached_held(parent, name) else {
            let name = name.to_vec();
            return then(Readiness::blocking(move || client.unlink(parent, &name)));
        };
        let request = unlink_request(parent, name, held_inode);
        let naming = self.core.begin_remove_name(&request);
        begin_change::<op::Unlink>(&self.core, request, move |early| {
            let core = Arc::clone(&client.core);
            let early = early.map(move |outcome| core.end_remove_name(naming, outcome));
            then(early.map(move |outcome| client.unlinked(outcome)));
        });
    }
}
