//! Lookup: one name in one directory.

use crate::service::context::Context;
use crate::service::fault::Outcome;
use vazao_model::InodeId;
use vazao_wire::proto;

pub(crate) fn run(
    context: &mut Context<'_>,
    request: &proto::LookupRequest,
) -> Outcome<proto::LookupResponse> {
    context.seat = request.seat;
    context.shows_entry(InodeId(request.parent), &request.name);
    let id = context.step(InodeId(request.parent), &request.name)?;
    let record = context.named_inode(id)?;
    Ok(proto::LookupResponse { inode: Some(context.inode_message(id, &record)?) })
}
