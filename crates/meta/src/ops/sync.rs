//! Sync: an answer that leaves once everything answered before is durable.

use crate::service::MetaService;
use crate::service::answer::Settled;
use crate::service::fault::Outcome;
use prost::Message;
use vazao_wire::proto;

pub(crate) fn run(service: &MetaService) -> Outcome<Settled> {
    // Where everything is durable already, too: what was made durable may be gone.
    service.engine().intact()?;
    let position = service.engine().figures().position;
    Ok(Settled { answer: Ok(proto::SyncResponse {}.encode_to_vec()), durable_at: Some(position) })
}
