//! How a request becomes one transaction: run again after conflicts, answered again where it was answered before.

use super::MetaService;
use super::answer::Settled;
use super::backpressure;
use super::context::Context;
use super::fault::Outcome;
use super::once::{self, Repeatable};
use crate::engine::{Commit, Position};
use prost::Message;
use std::cell::Cell;
use vazao_model::{Code, SessionId};
use vazao_wire::service::Fault;
use vazao_wire::{Operation, shell};

/// Runs of one operation before its caller gets a retry error. Each conflict means that another operation succeeded.
const ATTEMPTS_MAX: u32 = 100;

thread_local! {
    /// The last commit that an answer of this thread rests on since its last flush.
    pub(super) static ANSWERED: Cell<Position> = const { Cell::new(0) };
}

impl MetaService {
    /// Runs `work` as one transaction, again and again until nothing it read changed under it. A failed `work` writes
    /// nothing, and its failure is a true one.
    pub(crate) fn transact<T>(
        &self,
        caller: Option<SessionId>,
        mut work: impl FnMut(&mut Context<'_>) -> Outcome<T>,
    ) -> Outcome<(Outcome<T>, Position)> {
        for _ in 0..ATTEMPTS_MAX {
            let mut context = Context::begin(self, caller);
            let outcome = work(&mut context);
            if outcome.is_err() {
                context.discard_writes();
            }
            let wrote = context.wrote;
            match context.commit()? {
                None => backpressure::wait(&*self.engine)?,
                Some(Commit::Done(position)) => {
                    if wrote {
                        ANSWERED.set(ANSWERED.get().max(position));
                    }
                    return Ok((outcome, position));
                }
                Some(Commit::Conflict) => self.metrics.conflicts.add(1),
            }
        }
        Err(Fault::new(Code::Conflict, format!("{ATTEMPTS_MAX} attempts of one transaction")))
    }

    /// Answers a request that changes nothing.
    pub(crate) fn view<O: Operation>(
        &self,
        message: &[u8],
        run: fn(&mut Context<'_>, &O::Request) -> Outcome<O::Response>,
    ) -> Outcome<Vec<u8>> {
        let request = decode::<O>(message)?;
        let (outcome, _) = self.transact(None, |context| run(context, &request))?;
        outcome.map(|response| response.encode_to_vec())
    }

    /// [`MetaService::view`] by an operation that makes its message itself.
    pub(crate) fn view_encoded<O: Operation>(
        &self,
        message: &[u8],
        run: fn(&mut Context<'_>, &O::Request) -> Outcome<Vec<u8>>,
    ) -> Outcome<Vec<u8>> {
        let request = decode::<O>(message)?;
        self.transact(None, |context| run(context, &request))?.0
    }

    /// Answers a request that may have been answered before.
    pub(crate) fn change<O: Operation>(
        &self,
        message: &[u8],
        run: fn(&mut Context<'_>, &O::Request) -> Outcome<O::Response>,
    ) -> Outcome<Settled>
    where
        O::Request: Repeatable,
    {
        self.engine.writable()?;
        let request = decode::<O>(message)?;
        let once = request.once().copied();
        let caller = once.as_ref().map(|once| SessionId(once.session));
        let seat = once.as_ref().map_or(0, |once| once.seat);
        let (mut wait, mut wrote) = (false, false);
        let (answer, position) = self.transact(caller, |context| {
            context.seat = seat;
            if let Some(once) = &once
                && let Some(first) = once::replay(context, once, O::METHOD)?
            {
                // Whether the first answer had to wait is not known any more.
                wait = true;
                return Ok(first);
            }
            let answer = run(context, &request).map(|response| response.encode_to_vec());
            if answer.is_err() {
                context.discard_writes();
            }
            wait = context.answer_when_durable;
            if let Some(once) = &once
                && !context.no_room
            {
                once::remember(context, once, O::METHOD, &answer);
            }
            wrote = context.wrote;
            Ok(answer)
        })?;
        ANSWERED.set(ANSWERED.get().max(position));
        // Backpressure: what is answered before it is durable never adds up to more than the contract allows.
        wait |= wrote && self.engine.is_behind();
        Ok(Settled { answer: answer?, durable_at: wait.then_some(position) })
    }
}

/// Decodes a request's arguments.
pub(crate) fn decode<O: Operation>(message: &[u8]) -> Outcome<O::Request> {
    shell::decode_message(O::METHOD, message)
}
