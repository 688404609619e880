//! Space: statfs of the volume.

use crate::fault::Outcome;
use crate::service::MetaService;
use vazao_wire::proto;

pub(crate) fn run(service: &MetaService) -> Outcome<proto::SpaceResponse> {
    let (capacity_bytes, available_bytes) = service.cluster().space();
    Ok(proto::SpaceResponse { capacity_bytes, available_bytes, inodes: service.inodes_in_use() })
}
