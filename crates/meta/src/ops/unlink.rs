//! Unlink: unlink(2) and rmdir(2).

use crate::objects::orphans;
use crate::service::context::{Context, checked_name};
use crate::service::fault::{Outcome, name_fault};
use vazao_model::{Code, InodeId};
use vazao_wire::proto;

pub(crate) fn run(
    context: &mut Context<'_>,
    request: &proto::UnlinkRequest,
) -> Outcome<proto::UnlinkResponse> {
    let parent = InodeId(request.parent);
    context.directory(parent)?;
    check_dots(parent, &request.name, request.directory)?;
    let name = checked_name(parent, &request.name)?;
    let fault = |code| name_fault(code, parent, name);
    let entry = context.entry(parent, name)?.ok_or_else(|| fault(Code::NotFound))?;
    let id = InodeId(entry.inode);
    match (entry.is_directory(), request.directory) {
        (true, false) => return Err(fault(Code::IsDirectory)),
        (false, true) => return Err(fault(Code::NotDirectory)),
        (true, true) if !context.is_empty(id)? => return Err(fault(Code::NotEmpty)),
        _ => {}
    }
    context.delete_entry(parent, name);
    context.touch_directory(parent);
    if entry.is_directory() {
        context.add_subdirectories(parent, -1)?;
    }
    let links = orphans::drop_link(context, id, request.held_inode == id.0)?;
    Ok(proto::UnlinkResponse { inode: id.0, links, parent_changed: Some(context.now.into()) })
}

/// rmdir(2) has words of its own for `.` and `..`.
fn check_dots(parent: InodeId, name: &[u8], directory: bool) -> Outcome<()> {
    match name {
        b"." if directory => Err(name_fault(Code::Invalid, parent, name)),
        b".." if directory => Err(name_fault(Code::NotEmpty, parent, name)),
        b"." | b".." => Err(name_fault(Code::IsDirectory, parent, name)),
        _ => Ok(()),
    }
}
