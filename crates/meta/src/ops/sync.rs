//! Sync: an answer that leaves once everything answered before is durable.

use crate::answer::Settled;
use crate::service::MetaService;
use prost::Message;
use vazao_wire::proto;

pub(crate) fn run(service: &MetaService) -> Settled {
    let position = service.engine().figures().position;
    Settled { answer: Ok(proto::SyncResponse {}.encode_to_vec()), durable_at: Some(position) }
}
