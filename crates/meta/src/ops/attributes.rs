//! GetAttributes and SetAttributes: stat, chmod, chown, utimens, truncate.

use crate::acl;
use crate::objects::orphans;
use crate::ops::xattr;
use crate::schema::keys;
use crate::schema::records::{InodeRecord, TimeRecord};
use crate::service::context::Context;
use crate::service::fault::{Outcome, inode_fault};
use vazao_model::{Code, InodeId, Timestamp, limits};
use vazao_wire::proto;

const MODE_BITS: u32 = 0o7777;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

pub(crate) fn get(
    context: &mut Context<'_>,
    request: &proto::GetAttributesRequest,
) -> Outcome<proto::GetAttributesResponse> {
    let id = InodeId(request.inode);
    context.seat = request.seat;
    let record = context.inode(id)?;
    Ok(proto::GetAttributesResponse { inode: Some(context.inode_message(id, &record)?) })
}

pub(crate) fn set(
    context: &mut Context<'_>,
    request: &proto::SetAttributesRequest,
) -> Outcome<proto::SetAttributesResponse> {
    let id = InodeId(request.inode);
    let mut record = context.inode(id)?;
    set_owner_and_mode(&mut record, request);
    keep_acl(context, id, &record, request)?;
    drop_capability(context, id, &mut record, request)?;
    if let Some(size) = request.size {
        set_size(context, id, &mut record, size)?;
    }
    set_times(context, id, &mut record, request);
    context.touch(&mut record);
    context.put_inode(id, &record);
    Ok(proto::SetAttributesResponse { inode: Some(context.inode_message(id, &record)?) })
}

/// A change of owner takes the set-id bits away, as chown(2) has it, unless the same request sets the mode.
fn set_owner_and_mode(record: &mut InodeRecord, request: &proto::SetAttributesRequest) {
    let new_owner = request.uid.is_some() || request.gid.is_some();
    record.uid = request.uid.unwrap_or(record.uid);
    record.gid = request.gid.unwrap_or(record.gid);
    if let Some(mode) = request.mode {
        record.mode = mode & MODE_BITS;
    } else if new_owner && !record.is_directory() {
        let group_too = if record.mode & GROUP_EXECUTE != 0 { SET_GROUP } else { 0 };
        record.mode &= !(SET_USER | group_too);
    }
}

/// The access control list says what the new mode says.
fn keep_acl(
    context: &mut Context<'_>,
    id: InodeId,
    record: &InodeRecord,
    request: &proto::SetAttributesRequest,
) -> Outcome<()> {
    if request.mode.is_some()
        && let Some(mut list) = xattr::list_of(context, id, record, acl::ACCESS)?
    {
        list.set_mode(record.mode);
        context.write_raw(keys::xattr(id, acl::ACCESS), list.encode());
    }
    Ok(())
}

/// A program whose contents or owner have changed is another program.
fn drop_capability(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    request: &proto::SetAttributesRequest,
) -> Outcome<()> {
    if request.uid.is_some() || request.gid.is_some() || request.size.is_some() {
        xattr::erase(context, id, record, xattr::CAPABILITY)?;
    }
    Ok(())
}

/// Sets a file's size: 0 ends this life of the file, another size cuts or extends it.
pub(crate) fn set_size(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    size: u64,
) -> Outcome<()> {
    if record.is_directory() {
        return Err(inode_fault(Code::IsDirectory, id));
    }
    if !record.is_file() {
        return Err(inode_fault(Code::Invalid, id));
    }
    if size > limits::FILE_BYTES_MAX {
        return Err(inode_fault(Code::TooLarge, id));
    }
    if size > record.size {
        context.grow()?;
    }
    if size == 0 {
        // The next layout gets a higher generation and fresh objects, so that a write that was under way to
        // these ones cannot show up again.
        if let Some(layout) = record.layout.take() {
            orphans::reclaim_objects(context, id, &layout);
        }
    }
    resize_storage(record, size);
    resize_unwritten(record, size);
    record.contents.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    context.contents_changed(id);
    record.size = size;
    record.modified = Some(context.now.into());
    Ok(())
}

/// A longer file has a hole at its end; of a shorter one not more is left than fits.
fn resize_storage(record: &mut InodeRecord, size: u64) {
    if record.layout.is_none() {
        record.allocated_bytes = None;
    } else if size > record.size {
        record.allocated_bytes.get_or_insert(record.size);
    } else if record.allocated_bytes.is_some_and(|allocated| allocated >= size) {
        record.allocated_bytes = None;
    }
}

/// What a longer file gains, no report has as written.
fn resize_unwritten(record: &mut InodeRecord, size: u64) {
    let mut unwritten = record.unwritten();
    unwritten.cut(size);
    unwritten.add(record.size..size);
    record.set_unwritten(unwritten);
}

fn set_times(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    request: &proto::SetAttributesRequest,
) {
    let now = TimeRecord::from(context.now);
    let given = |at: Option<proto::Timestamp>, is_now: bool| {
        let at = at.map(|t| TimeRecord::from(Timestamp::from(t)));
        if is_now { Some(now) } else { at }
    };
    if let Some(accessed) = given(request.accessed, request.accessed_now) {
        record.accessed = Some(accessed);
    }
    let Some(modified) = given(request.modified, request.modified_now) else { return };
    if record.is_directory() {
        context.put_times(id, modified, now);
    } else {
        record.modified = Some(modified);
    }
}
