//! An operation's answer on its way out, at once or when it is durable.

use crate::engine::{Engine, Position};
use vazao_wire::service::{Fault, Responder};

/// A finished operation.
#[derive(Debug)]
pub(crate) struct Settled {
    /// The encoded result.
    pub(crate) answer: Result<Vec<u8>, Fault>,
    /// It may leave once this position is durable.
    pub(crate) durable_at: Option<Position>,
}

impl Settled {
    /// May leave with the next flush.
    pub(crate) fn now(answer: Result<Vec<u8>, Fault>) -> Settled {
        Settled { answer, durable_at: None }
    }
}

/// Hands the answer to the responder, or keeps it until it is durable.
pub(crate) fn deliver(engine: &dyn Engine, settled: Settled, responder: &mut dyn Responder) {
    let waiting = settled.durable_at.filter(|&position| engine.figures().durable < position);
    let Some(position) = waiting else {
        match settled.answer {
            Ok(message) => responder.reply(&message),
            Err(fault) => responder.fail(&fault),
        }
        return;
    };
    let deferred = responder.defer();
    let answer = settled.answer.map(|message| (message, Vec::new()));
    let notice = move |durable: Result<(), crate::engine::EngineError>| {
        deferred.finish(durable.map_err(Fault::from).and(answer));
    };
    engine.when_durable(position, Box::new(notice));
}
