//! GetClusterMap and RegisterNode: membership of the cluster.

use crate::schema::keys;
use crate::service::MetaService;
use crate::service::answer::Settled;
use crate::service::fault::Outcome;
use prost::Message;
use vazao_model::{Code, NodeId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

pub(crate) fn map(service: &MetaService) -> Outcome<proto::GetClusterMapResponse> {
    Ok(proto::GetClusterMapResponse { map: Some(service.map_message()) })
}

/// New ids, and the permission to serve a target, are sent only once they are durable: the node writes them into its
/// directories, and after a crash of this service would otherwise report ids that the service does not know.
pub(crate) fn register(service: &MetaService, request: &proto::RegisterNodeRequest) -> Outcome<Settled> {
    let taken_in = taken_in(service, request).inspect_err(|fault| note_refusal(service, request, fault));
    taken_in.map(|(response, durable_at)| Settled { answer: Ok(response.encode_to_vec()), durable_at })
}

fn taken_in(
    service: &MetaService,
    request: &proto::RegisterNodeRequest,
) -> Outcome<(proto::RegisterNodeResponse, Option<crate::engine::Position>)> {
    let now = service.now();
    let holder = {
        let cluster = service.cluster();
        cluster.check_request(request)?;
        cluster.holder(request, now)
    };
    if let Some(holder) = holder {
        service.claims().judge(&holder, request.run, now.ns)?;
    }
    let (mut response, durable_at) = service.take_in(request, true)?;
    service.refusals().forget(&request.name, &request.address);
    if let Some(seen) = request.seen
        && service.history().hear(seen, &request.name)
    {
        tracing::error!("nothing is served: {}", service.history().trouble());
    }
    response.mark = service.history().mark(service.engine().figures().durable);
    response.warnings = service.refusals().warnings(NodeId(response.node), now.ns);
    if service.history().is_behind() {
        response
            .warnings
            .push(format!("the metadata service serves nothing: {}", service.history().trouble()));
    }
    Ok((response, durable_at))
}

/// Keeps a refusal for the operator. What only has to be tried again is none.
fn note_refusal(service: &MetaService, request: &proto::RegisterNodeRequest, fault: &Fault) {
    if !matches!(fault.code, Code::Invalid | Code::InUse | Code::NotPermitted) {
        return;
    }
    let claimed = service.cluster().claimed(request).filter(|_| fault.code == Code::InUse);
    let (name, address, why) = (&request.name, &request.address, &fault.detail);
    if service.refusals().note(name, address, why, claimed, service.clock().now_ns()) {
        tracing::warn!(name, address, why, "a node was refused");
    }
}

/// Records which nodes have fallen silent, so that this is known after a restart of this service.
pub(crate) fn note_silent(service: &MetaService) -> Outcome<()> {
    let noted = service.change_cluster(
        |cluster| Ok(cluster.fallen_silent(service.now())),
        |context, changed| {
            changed.nodes.iter().for_each(|(id, member)| context.write(keys::node(*id), &member.record));
            Ok(())
        },
    );
    noted.map(|_| ())
}
