//! GetClusterMap and RegisterNode: who belongs to the cluster.

use crate::answer::Settled;
use crate::fault::Outcome;
use crate::service::MetaService;
use prost::Message;
use vazao_wire::proto;

pub(crate) fn map(service: &MetaService) -> Outcome<proto::GetClusterMapResponse> {
    Ok(proto::GetClusterMapResponse { map: Some(service.map_message()) })
}

/// Ids that are new leave only once they are durable: the node writes them into its directories, and would
/// otherwise come back with ids that nobody knows.
pub(crate) fn register(service: &MetaService, request: &proto::RegisterNodeRequest) -> Settled {
    match service.register_node(request) {
        Ok((response, durable_at)) => Settled { answer: Ok(response.encode_to_vec()), durable_at },
        Err(fault) => Settled::now(Err(fault)),
    }
}
