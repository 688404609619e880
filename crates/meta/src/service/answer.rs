//! An operation's answer on its way out, at once or when it is durable.

use crate::engine::{Engine, EngineError, Position};
use vazao_wire::service::{Fault, Responder};
use vazao_wire::shell;

/// A finished operation.
#[derive(Debug)]
pub(crate) struct Settled {
    /// The encoded result, or the refusal that is remembered for a repetition.
    pub(crate) answer: Result<Vec<u8>, Fault>,
    /// It may leave once this position is durable; `None`: with the next flush.
    pub(crate) durable_at: Option<Position>,
}

/// Hands the answer to the responder, or keeps it until it is durable.
pub(crate) fn deliver(engine: &dyn Engine, settled: Settled, responder: &mut dyn Responder) {
    let Settled { answer, durable_at } = settled;
    let waiting = durable_at.filter(|&position| engine.figures().durable < position);
    let answer = answer.map(|message| (message, Vec::new()));
    let Some(position) = waiting else { return shell::reply(responder, answer) };
    let deferred = responder.defer();
    let notice = move |durable: Result<(), EngineError>| {
        deferred.finish(durable.map_err(Fault::from).and(answer));
    };
    engine.when_durable(position, Box::new(notice));
}
