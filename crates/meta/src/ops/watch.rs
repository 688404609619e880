//! WatchChanges: a session waits for changes of what it remembers.

use crate::service::MetaService;
use crate::service::fault::Outcome;
use crate::service::transactions::decode;
use crate::sessions;
use prost::Message;
use vazao_model::SessionId;
use vazao_wire::op;
use vazao_wire::proto;
use vazao_wire::service::Responder;

/// Answers at once when there is something to say, and otherwise later.
pub(crate) fn run(service: &MetaService, message: &[u8], responder: &mut dyn Responder) {
    match watch(service, message, responder) {
        Ok(Some(response)) => responder.reply(&response.encode_to_vec()),
        Ok(None) => {}
        Err(fault) => responder.fail(&fault),
    }
}

fn watch(
    service: &MetaService,
    message: &[u8],
    responder: &mut dyn Responder,
) -> Outcome<Option<proto::WatchChangesResponse>> {
    let request = decode::<op::WatchChanges>(message)?;
    let session = SessionId(request.session);
    if !service.sessions().is_known(session) {
        return Err(sessions::unknown(session));
    }
    let now_ns = service.clock().now_ns();
    service.part().invalidations.watch(session, &request, service.boot(), now_ns, || responder.defer())
}
