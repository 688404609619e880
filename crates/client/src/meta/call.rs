//! Calls to the metadata service, repeated until they are answered or their deadline has passed.

use super::MetaService;
use super::session::Slot;
use crate::cache::{Change, Thing};
use crate::meta::{Attempts, final_error, log_failure};
use crate::statistics::InFlightCall;
use crate::{Asked, Error, Result};
use std::sync::atomic::Ordering;
use vazao_meter::Cause;
use vazao_model::{Action, Code, InodeId, Timestamp};
use vazao_wire::operation::Operation;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Pending, Received};

/// A request that changes something and carries `Once`.
pub(crate) trait Changing {
    /// Puts the mark on it that makes a repetition recognisable.
    fn set_once(&mut self, once: proto::Once);

    /// True when carrying it out twice leaves the same state and gives the same answer as once. Only such a request is
    /// repeated when its first answer was lost and the session that would have recognised it is gone.
    fn is_idempotent(&self) -> bool;

    /// The file whose contents or length it changes: what a lock on the file may protect.
    fn contents(&self) -> Option<InodeId>;

    /// What it changes, as far as it can be remembered, and as far as those who send it do not say so themselves.
    fn things(&self) -> Vec<Thing>;
}

macro_rules! changing {
    ($($request:ident, $idempotent:expr, $contents:expr, $inode:expr;)*) => {
        $(impl Changing for proto::$request {
            fn set_once(&mut self, once: proto::Once) {
                self.once = Some(once);
            }
            fn is_idempotent(&self) -> bool {
                let is_idempotent: fn(&proto::$request) -> bool = $idempotent;
                is_idempotent(self)
            }
            fn contents(&self) -> Option<InodeId> {
                let changes_contents: fn(&proto::$request) -> bool = $contents;
                let inode: fn(&proto::$request) -> Option<u64> = $inode;
                inode(self).map(InodeId).filter(|_| changes_contents(self))
            }
            fn things(&self) -> Vec<Thing> {
                let inode: fn(&proto::$request) -> Option<u64> = $inode;
                inode(self).map(|inode| Thing::Inode(InodeId(inode))).into_iter().collect()
            }
        })*
    };
}

changing! {
    SetAttributesRequest, |it| it.size.is_none(), |it| it.size.is_some(), |it| Some(it.inode);
    OpenRequest, |it| !it.truncate, |it| it.truncate, |it| Some(it.inode);
    // Those that change names say so themselves, in `cached`.
    CreateRequest, |_| false, |_| false, |_| None;
    LinkRequest, |_| false, |_| false, |_| None;
    UnlinkRequest, |_| false, |_| false, |_| None;
    RenameRequest, |_| false, |_| false, |_| None;
    AssignLayoutRequest, |_| true, |_| true, |it| Some(it.inode);
    CommitRequest, |_| true, |_| true, |it| Some(it.inode);
    SetLayoutHintRequest, |_| true, |_| false, |it| Some(it.inode);
    // A conversion leaves contents and length as they are.
    BeginConversionRequest, |_| true, |_| false, |it| Some(it.inode);
    SwitchLayoutRequest, |_| false, |_| false, |it| Some(it.inode);
    EndConversionRequest, |_| true, |_| false, |it| Some(it.inode);
    SetXattrRequest, |it| it.mode == 0, |_| false, |it| Some(it.inode);
    RemoveXattrRequest, |_| false, |_| false, |it| Some(it.inode);
}

/// How long a call waits for a metadata service that has let another call's whole deadline pass.
const SILENT_NS_MAX: u64 = 1_000_000_000;

/// Whether a request that failed like this may have been carried out.
fn is_outcome_unknown(code: Code) -> bool {
    // Unreachable: it was not sent.
    let is_unanswered = code.is_silence() && code != Code::Unreachable;
    is_unanswered || matches!(code, Code::Cancelled | Code::Internal)
}

/// Whether a request that failed like this was certainly not carried out: the server has looked at it and said no.
fn is_refusal(code: Code) -> bool {
    code.number() < Code::Io.number() && !is_outcome_unknown(code) && code != Code::Interrupted
}

/// Tells the memory how a change went. As of when its answer may be remembered, if it may.
pub(crate) fn settle<T>(
    meta: &MetaService,
    change: Change,
    asked: Asked,
    time: Option<Timestamp>,
    outcome: &Result<T>,
) -> Option<Asked> {
    match outcome {
        Ok(_) => change.done(asked, time),
        Err(error) if is_refusal(error.code) => {
            change.refused();
            None
        }
        Err(_) => {
            change.lost(meta.context.clock.now_ns());
            None
        }
    }
}

impl MetaService {
    /// Asks for something that changes nothing.
    pub(crate) fn ask<O: Operation>(&self, request: &O::Request) -> Result<O::Response> {
        self.ask_until::<O>(request, self.context.deadline_ns())
    }

    /// Like [`Core::ask`], as part of a call that has to be done by `deadline_ns`.
    pub(crate) fn ask_until<O: Operation>(
        &self,
        request: &O::Request,
        deadline_ns: u64,
    ) -> Result<O::Response> {
        let mut attempts = Attempts::until(&self.context, self.meta_deadline_ns(deadline_ns));
        let outcome = self.attempt::<O>(request, &mut attempts);
        self.keep_asking::<O>(request, attempts, outcome)
    }

    /// Goes on after the first attempt at a question, until it is answered.
    pub(crate) fn keep_asking<O: Operation>(
        &self,
        request: &O::Request,
        mut attempts: Attempts,
        mut outcome: std::result::Result<O::Response, Fault>,
    ) -> Result<O::Response> {
        loop {
            match outcome {
                Ok(response) => return Ok(response),
                // A session is replaced by those who know what it stood for.
                Err(fault) if fault.code == Code::SessionExpired => return Err(fault.into()),
                Err(fault) => self.next_attempt(&mut attempts, fault)?,
            }
            outcome = self.attempt::<O>(request, &mut attempts);
        }
    }

    /// Carries out a change once, however often it has to be sent.
    pub(crate) fn change<O: Operation>(&self, request: O::Request) -> Result<O::Response>
    where
        O::Request: Changing,
    {
        self.change_until::<O>(request, self.context.deadline_ns())
    }

    /// Like [`Core::change`], as part of a call that has to be done by `deadline_ns`.
    pub(crate) fn change_until<O: Operation>(
        &self,
        request: O::Request,
        deadline_ns: u64,
    ) -> Result<O::Response>
    where
        O::Request: Changing,
    {
        self.change_as_of::<O>(request, deadline_ns).map(|(response, _)| response)
    }

    /// Like [`Core::change_until`], with the moment as of which the answer may be remembered, if it may.
    pub(crate) fn change_as_of<O: Operation>(
        &self,
        request: O::Request,
        deadline_ns: u64,
    ) -> Result<(O::Response, Option<Asked>)>
    where
        O::Request: Changing,
    {
        let (asked, change) = (self.cache.asked(), self.cache.entries.begin(request.things()));
        let outcome = self.send_change::<O>(request, deadline_ns);
        let settled = settle(self, change, asked, None, &outcome);
        outcome.map(|response| (response, settled))
    }

    /// Sends a change until it is answered; what it changes has been announced to the memory.
    pub(crate) fn send_change<O: Operation>(
        &self,
        mut request: O::Request,
        deadline_ns: u64,
    ) -> Result<O::Response>
    where
        O::Request: Changing,
    {
        let mut attempts = Attempts::until(&self.context, self.meta_deadline_ns(deadline_ns));
        let slot = self.with_locks_told(&request, self.take_slot(deadline_ns)?, deadline_ns)?;
        request.set_once(slot.once(self.cache.seat()));
        let outcome = self.attempt::<O>(&request, &mut attempts);
        self.persist::<O>(Sent { request, slot, attempts, deadline_ns }, outcome)
    }

    /// Goes on after the first attempt at a change, until it is answered.
    pub(crate) fn persist<O: Operation>(
        &self,
        sent: Sent<O::Request>,
        outcome: std::result::Result<O::Response, Fault>,
    ) -> Result<O::Response>
    where
        O::Request: Changing,
    {
        let Sent { mut request, mut slot, mut attempts, deadline_ns } = sent;
        let mut is_perhaps_done = false;
        let mut outcome = outcome;
        loop {
            let fault = match outcome {
                Ok(response) => return Ok(response),
                Err(fault) => fault,
            };
            if fault.code == Code::SessionExpired {
                if is_perhaps_done && !request.is_idempotent() {
                    return Err(outcome_unknown::<O>(&self.context.meta_name()));
                }
                let expired = slot.id;
                drop(slot);
                self.open_session(expired, deadline_ns)?;
                slot = self.with_locks_told(&request, self.take_slot(deadline_ns)?, deadline_ns)?;
                request.set_once(slot.once(self.cache.seat()));
            } else {
                is_perhaps_done |= is_outcome_unknown(fault.code);
            }
            self.next_attempt(&mut attempts, fault)?;
            outcome = self.attempt::<O>(&request, &mut attempts);
        }
    }

    /// Until when a call to the metadata service is tried: once one has waited in vain for its whole deadline, those
    /// after it find out sooner. Programs make one call after the other, and a kernel looks names of one directory up
    /// one at a time: each waiting for the whole deadline would add up without bound.
    pub(crate) fn meta_deadline_ns(&self, deadline_ns: u64) -> u64 {
        if !self.is_silent.load(Ordering::Relaxed) {
            return deadline_ns;
        }
        deadline_ns.min(self.context.clock.now_ns() + SILENT_NS_MAX)
    }

    fn next_attempt(&self, attempts: &mut Attempts, fault: Fault) -> Result<()> {
        let (server, address) = (self.context.meta_name(), self.context.meta_address());
        let fault = match attempts.is_given_up(&self.context, &fault) {
            true => Code::Interrupted.into(),
            false => fault,
        };
        let is_silent = fault.code.is_silence();
        if is_silent {
            self.context.meta_current.fetch_add(1, Ordering::Relaxed);
        }
        let counters = &self.context.counters;
        // The pause is waited for the service, as an answer is.
        let pause = || attempts.pause(&self.context, &fault);
        if counters.during_wait(&counters.metadata, &*self.context.clock, pause) {
            self.servers.trying_again(address, &fault, attempts.started_ns());
            return Ok(());
        }
        // A look at the map that is given a second only says nothing about those who wait for longer.
        let has_waited =
            attempts.elapsed_ms(&self.context) * 10 >= u64::from(self.context.options.deadline_ms) * 9;
        self.is_silent.fetch_or(is_silent && has_waited, Ordering::Relaxed);
        let is_about_the_service = is_silent || fault.code.action() != Action::GiveUp;
        if is_about_the_service {
            Err(final_error(fault, &server, attempts.elapsed_ms(&self.context)).of(attempts.request))
        } else {
            Err(Error::from(fault).of(attempts.request))
        }
    }

    fn attempt<O: Operation>(
        &self,
        request: &O::Request,
        attempts: &mut Attempts,
    ) -> std::result::Result<O::Response, Fault> {
        let message = prost::Message::encode_to_vec(request);
        let (attempt, deadline_ns) = self.begin_attempt(attempts);
        let address = self.context.meta_address_at(attempt.meta);
        let pending = self.context.transport.submit(address, O::METHOD, &message, &[], deadline_ns);
        attempts.request = pending.id();
        self.end_attempt::<O>(attempt, pending)
    }

    /// Counts an attempt that is about to be sent; until when it is waited for.
    pub(crate) fn begin_attempt(&self, attempts: &Attempts) -> (Attempt, u64) {
        let counters = &self.context.counters.metadata;
        counters.requests.add(1);
        if !attempts.is_first() {
            counters.retries.add(1);
        }
        let deadline_ns = attempts.attempt_deadline_ns(&self.context);
        let meta = self.context.meta_current.load(Ordering::Relaxed);
        (Attempt { in_flight: InFlightCall::begin(counters, &self.context.clock), meta }, deadline_ns)
    }

    /// Waits for the answer to an attempt.
    pub(crate) fn end_attempt<O: Operation>(
        &self,
        attempt: Attempt,
        pending: Box<dyn Pending>,
    ) -> std::result::Result<O::Response, Fault> {
        let Attempt { in_flight, meta } = attempt;
        let (started_ns, request) = (in_flight.started_ns(), pending.id());
        let counters = &self.context.counters.metadata;
        let received = self.context.counters.during_wait(counters, &*self.context.clock, || pending.wait());
        drop(in_flight);
        let waited_ns = self.context.clock.now_ns().saturating_sub(started_ns);
        self.context.counters.latency.record(waited_ns);
        counters.waited_ns.add(waited_ns);
        self.context.counters.accounts.charge(Cause::Network, waited_ns);
        let address = self.context.meta_address_at(meta);
        let received = received.inspect_err(|fault| {
            log_failure(request, O::METHOD, &self.context.meta_name(), fault);
            self.servers.attempt_failed(address, fault);
        })?;
        self.servers.answered(address);
        self.is_silent.store(false, Ordering::Relaxed);
        counters.service_ns.add(u64::from(received.service_us) * 1000);
        decode::<O>(&received)
    }
}

/// A change that has been sent once.
pub(crate) struct Sent<R> {
    pub(crate) request: R,
    pub(crate) slot: Slot,
    pub(crate) attempts: Attempts,
    pub(crate) deadline_ns: u64,
}

/// An attempt under way.
pub(crate) struct Attempt {
    in_flight: InFlightCall,
    /// Which metadata service it went to.
    meta: usize,
}

/// Decodes an answer's message.
pub(crate) fn decode<O: Operation>(received: &Received) -> std::result::Result<O::Response, Fault> {
    prost::Message::decode(received.message.as_slice())
        .map_err(|e| Fault::new(Code::BadRequest, format!("answer to {}: {e}", O::METHOD.name())))
}

fn outcome_unknown<O: Operation>(server: &str) -> Error {
    let detail = format!(
        "{server}: the answer to {} was lost and the session has expired since: it may or may not have been done; \
         look before doing it again",
        O::METHOD.name()
    );
    Error::new(Code::SessionExpired, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::asynchronous;
    use crate::servers::is_silence;

    #[test]
    fn no_code_is_both_a_refusal_and_worth_another_try_and_none_is_a_refusal_of_unknown_outcome() {
        for &code in Code::ALL {
            let is_tried_again = code.action() != Action::GiveUp || code == Code::Timeout;
            assert!(!(is_refusal(code) && is_tried_again), "{code:?}");
            assert!(!(is_refusal(code) && is_outcome_unknown(code)), "{code:?}");
            assert_eq!(asynchronous::is_final(code), !is_tried_again, "{code:?}");
            // What nothing was said to is never final; and it may have been done, unless it was never sent.
            let is_silent = is_silence(&Fault::from(code));
            assert!(!is_silent || is_tried_again, "{code:?}");
            assert!(!is_silent || is_outcome_unknown(code) || code == Code::Unreachable, "{code:?}");
        }
    }
}
