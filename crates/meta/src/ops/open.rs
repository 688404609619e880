//! Open: attributes, layout and inline contents in one answer; with truncation, in one transaction.

use crate::objects::orphans;
use crate::ops::attributes::set_size;
use crate::ops::xattr;
use crate::service::context::Context;
use crate::service::fault::{Outcome, inode_fault};
use vazao_model::{Code, InodeId, SessionId};
use vazao_wire::proto;

pub(crate) fn run(context: &mut Context<'_>, request: &proto::OpenRequest) -> Outcome<proto::OpenResponse> {
    let id = InodeId(request.inode);
    context.seat = context.seat.max(request.seat);
    context.opens(SessionId(request.session), id);
    let mut record = context.inode(id)?;
    // It lost its last name since the client looked it up: the path leads somewhere else by now, or nowhere.
    let session = SessionId(request.session);
    if record.links == 0 && request.session != 0 && !orphans::is_kept_for(context, session, id)? {
        return Err(inode_fault(Code::Stale, id));
    }
    if request.truncate {
        set_size(context, id, &mut record, 0)?;
        xattr::erase(context, id, &mut record, xattr::CAPABILITY)?;
        context.touch(&mut record);
        context.put_inode(id, &record);
    }
    Ok(proto::OpenResponse { inode: Some(context.inode_with_contents(id, record)?) })
}
