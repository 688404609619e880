//! Extended attributes: one record each, their number and names bounded through the inode record.

use crate::context::Context;
use crate::fault::{Outcome, shown};
use crate::keys;
use crate::records::InodeRecord;
use vazao_model::{Code, InodeId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Attributes read at a time: with the largest values this is 1 MiB of memory.
const PAGE: usize = 16;

fn fault(code: Code, id: InodeId, name: &[u8]) -> Fault {
    Fault::new(code, format!("extended attribute {} of inode {id}", shown(name)))
}

fn check_name(id: InodeId, name: &[u8]) -> Outcome<()> {
    if name.len() > limits::XATTR_NAME_BYTES_MAX {
        return Err(fault(Code::Range, id, name));
    }
    if name.is_empty() || name.contains(&0) {
        return Err(fault(Code::Invalid, id, name));
    }
    Ok(())
}

pub(crate) fn get(
    context: &mut Context<'_>,
    request: &proto::GetXattrRequest,
) -> Outcome<proto::GetXattrResponse> {
    let id = InodeId(request.inode);
    check_name(id, &request.name)?;
    match context.raw(&keys::xattr(id, &request.name))? {
        Some(value) => Ok(proto::GetXattrResponse { value }),
        None => {
            context.inode(id)?;
            Err(fault(Code::NoAttribute, id, &request.name))
        }
    }
}

pub(crate) fn set(
    context: &mut Context<'_>,
    request: &proto::SetXattrRequest,
) -> Outcome<proto::SetXattrResponse> {
    let (id, name) = (InodeId(request.inode), request.name.as_slice());
    check_name(id, name)?;
    if request.value.len() > limits::XATTR_BYTES_MAX {
        return Err(fault(Code::TooLarge, id, name));
    }
    let mut record = context.inode(id)?;
    let key = keys::xattr(id, name);
    match (context.exists(&key)?, request.mode) {
        (true, CREATE) => return Err(fault(Code::Exists, id, name)),
        (false, REPLACE) => return Err(fault(Code::NoAttribute, id, name)),
        (_, mode) if mode > REPLACE => return Err(fault(Code::Invalid, id, name)),
        (true, _) => {}
        (false, _) => add_name(id, &mut record, name)?,
    }
    context.grow()?;
    context.write_raw(key, request.value.clone());
    context.touch(&mut record);
    context.put_inode(id, &record);
    Ok(proto::SetXattrResponse {})
}

/// Each name counts with a final NUL, as in the kernel's listings.
fn add_name(id: InodeId, record: &mut InodeRecord, name: &[u8]) -> Outcome<()> {
    let bytes = record.xattr_names_bytes as usize + name.len() + 1;
    if bytes > limits::XATTR_BYTES_MAX {
        return Err(fault(Code::NoSpace, id, name));
    }
    record.xattr_names_bytes = bytes as u32;
    Ok(())
}

pub(crate) fn remove(
    context: &mut Context<'_>,
    request: &proto::RemoveXattrRequest,
) -> Outcome<proto::RemoveXattrResponse> {
    let (id, name) = (InodeId(request.inode), request.name.as_slice());
    check_name(id, name)?;
    let mut record = context.inode(id)?;
    let key = keys::xattr(id, name);
    if !context.exists(&key)? {
        return Err(fault(Code::NoAttribute, id, name));
    }
    context.delete(key);
    record.xattr_names_bytes = record.xattr_names_bytes.saturating_sub(name.len() as u32 + 1);
    context.touch(&mut record);
    context.put_inode(id, &record);
    Ok(proto::RemoveXattrResponse {})
}

pub(crate) fn list(
    context: &mut Context<'_>,
    request: &proto::ListXattrsRequest,
) -> Outcome<proto::ListXattrsResponse> {
    let id = InodeId(request.inode);
    let record = context.inode(id)?;
    let names = if record.xattr_names_bytes == 0 { Vec::new() } else { names(context, id)? };
    Ok(proto::ListXattrsResponse { names })
}

/// All names of an inode's extended attributes.
pub(crate) fn names(context: &mut Context<'_>, id: InodeId) -> Outcome<Vec<Vec<u8>>> {
    let mut range = keys::xattrs(id);
    let mut names = Vec::new();
    loop {
        let page = context.scan(&range, PAGE)?;
        names.extend(page.iter().filter_map(|(key, _)| keys::xattr_name(key).map(<[u8]>::to_vec)));
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range.start = keys::after(last),
            _ => return Ok(names),
        }
    }
}
