//! Link: a further name of an inode that is not a directory.

use crate::objects::orphans;
use crate::schema::records::EntryRecord;
use crate::service::context::{Context, checked_name};
use crate::service::fault::{Outcome, inode_fault, name_fault};
use vazao_model::{Code, InodeId, limits};
use vazao_wire::proto;

pub(crate) fn run(context: &mut Context<'_>, request: &proto::LinkRequest) -> Outcome<proto::LinkResponse> {
    let (id, parent) = (InodeId(request.inode), InodeId(request.parent));
    context.directory(parent)?;
    let name = checked_name(parent, &request.name)?;
    context.shows_entry(parent, name);
    let mut record = context.inode(id)?;
    if record.is_directory() {
        return Err(inode_fault(Code::NotPermitted, id));
    }
    if context.entry(parent, name)?.is_some() {
        return Err(name_fault(Code::Exists, parent, name));
    }
    if record.links == 0 && !record.is_unnamed {
        return Err(inode_fault(Code::NotFound, id));
    }
    if record.links >= limits::LINKS_MAX {
        return Err(inode_fault(Code::TooManyLinks, id));
    }
    context.grow()?;
    if std::mem::take(&mut record.is_unnamed) {
        orphans::adopt(context, id)?;
    }
    record.links += 1;
    context.touch(&mut record);
    context.put_inode(id, &record);
    context.put_entry(parent, name, &EntryRecord { inode: id.0, kind: record.kind });
    context.touch_directory(parent);
    Ok(proto::LinkResponse { inode: Some(context.inode_message(id, &record)?) })
}
