//! Idempotent requests: the last answer of each slot of a session is kept, in the same transaction as the change
//! (NFSv4.1's slot table, RFC 8881 section 2.10.6).
//!
//! Failures are kept as well. Otherwise a late duplicate of a failed request could succeed after its caller has seen
//! the failure. Failures that ask for a retry are not kept: the retry must run.

use crate::schema::keys;
use crate::schema::records::ReplyRecord;
use crate::service::context::Context;
use crate::service::fault::Outcome;
use prost::Message;
use vazao_model::{Code, Knowledge, SessionId, limits};
use vazao_wire::service::Fault;
use vazao_wire::{Method, proto};

/// A request that may carry [`proto::Once`].
pub(crate) trait Repeatable {
    /// Its place in the slot table; absent: the request is simply executed.
    fn once(&self) -> Option<&proto::Once>;
}

macro_rules! repeatable {
    ($($request:ident)*) => {
        $(impl Repeatable for proto::$request {
            fn once(&self) -> Option<&proto::Once> { self.once.as_ref() }
        })*
    };
}

repeatable! {
    SetAttributesRequest OpenRequest CreateRequest LinkRequest UnlinkRequest RenameRequest AssignLayoutRequest
    CommitRequest SetLayoutHintRequest SetXattrRequest RemoveXattrRequest
    BeginConversionRequest SwitchLayoutRequest EndConversionRequest
}

/// The first answer, when this request was answered before. Errors: the session is gone, the slot has moved on.
pub(crate) fn replay(
    context: &mut Context<'_>,
    once: &proto::Once,
    method: Method,
) -> Outcome<Option<Result<Vec<u8>, Fault>>> {
    let session = SessionId(once.session);
    if once.slot >= limits::SESSION_SLOTS_MAX {
        return Err(Fault::new(Code::BadRequest, format!("slot {} of session {session}", once.slot)));
    }
    if !context.exists(&keys::session(session))? {
        return Err(Fault::new(Code::SessionExpired, format!("session {session}: open a new one")));
    }
    let Some(last) = context.read::<ReplyRecord>(&keys::reply(session, once.slot), "reply slot")? else {
        return Ok(None);
    };
    if once.sequence > last.sequence {
        return Ok(None);
    }
    if once.sequence < last.sequence || last.method != method.number().into() {
        let text = format!(
            "slot {} of session {session}: {} with sequence {} after {}",
            once.slot,
            method.name(),
            once.sequence,
            last.sequence
        );
        return Err(Fault::new(Code::BadRequest, text));
    }
    decode_answer(last).map(Some)
}

fn decode_answer(last: ReplyRecord) -> Outcome<Result<Vec<u8>, Fault>> {
    if !last.failed {
        return Ok(Ok(last.answer));
    }
    let failure = proto::Failure::decode(last.answer.as_slice())
        .map_err(|e| Fault::new(Code::Corrupt, format!("stored answer: {e}")))?;
    Ok(Err(Fault::from(failure)))
}

/// Puts the answer into the slot; false when it is one that must not be kept.
pub(crate) fn remember(
    context: &mut Context<'_>,
    once: &proto::Once,
    method: Method,
    answer: &Result<Vec<u8>, Fault>,
) -> bool {
    let (bytes, failed) = match answer {
        Ok(message) => (message.clone(), false),
        Err(fault) if is_final(fault.code) => (proto::Failure::from(fault).encode_to_vec(), true),
        Err(_) => return false,
    };
    let record =
        ReplyRecord { sequence: once.sequence, method: method.number().into(), answer: bytes, failed };
    context.write(keys::reply(SessionId(once.session), once.slot), &record);
    true
}

/// True for an outcome that the state of the file system decided.
fn is_final(code: Code) -> bool {
    code.knowledge() == Knowledge::Decided && code.number() < Code::Io.number()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repetition is told what is kept: an answer that would have passed by itself would never do.
    #[test]
    fn no_answer_that_may_be_another_one_later_is_kept() {
        for &code in Code::ALL.iter().filter(|code| is_final(**code)) {
            assert_eq!(code.knowledge(), Knowledge::Decided, "{code:?}");
            let is_of_a_disk = matches!(code, Code::Io | Code::Corrupt | Code::TargetFailed | Code::Hung);
            assert!(!is_of_a_disk && code != Code::Internal, "{code:?}");
        }
        assert!(is_final(Code::Exists) && is_final(Code::NotFound));
    }
}
