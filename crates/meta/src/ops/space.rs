//! Space: statfs of the volume.

use crate::service::MetaService;
use crate::service::fault::Outcome;
use vazao_wire::proto;

pub(crate) fn run(service: &MetaService) -> Outcome<proto::SpaceResponse> {
    let space = service.cluster().space();
    Ok(proto::SpaceResponse {
        capacity_bytes: space.capacity_bytes,
        available_bytes: space.available_bytes,
        used_bytes: space.used_bytes,
        inodes: service.inodes_in_use(),
    })
}
