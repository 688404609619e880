//! Extended attributes: one record each, their number and names bounded through the inode record.
//!
//! Those of access control lists have a meaning here: the inode's permission bits mirror them.

use crate::acl::{self, Acl};
use crate::schema::keys;
use crate::schema::records::InodeRecord;
use crate::service::context::Context;
use crate::service::fault::{Outcome, shown};
use vazao_model::{Code, FileKind, InodeId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

const SET_GROUP: u32 = 0o2000;

/// What a program may do beyond its user's rights; gone with a change of contents or owner (capabilities(7)).
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

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
    match (context.exists(&keys::xattr(id, name))?, request.mode) {
        (true, CREATE) => return Err(fault(Code::Exists, id, name)),
        (false, REPLACE) => return Err(fault(Code::NoAttribute, id, name)),
        (_, mode) if mode > REPLACE => return Err(fault(Code::Invalid, id, name)),
        _ => {}
    }
    context.grow()?;
    if name == acl::ACCESS || name == acl::DEFAULT {
        set_acl(context, id, &mut record, request)?;
    } else {
        store(context, id, &mut record, name, request.value.clone())?;
    }
    context.touch(&mut record);
    context.put_inode(id, &record);
    Ok(proto::SetXattrResponse {})
}

/// A list that permission bits can say is not stored, as in local file systems.
fn set_acl(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    request: &proto::SetXattrRequest,
) -> Outcome<()> {
    let name = request.name.as_slice();
    if record.file_kind() == FileKind::Symlink {
        return Err(fault(Code::Unsupported, id, name));
    }
    let list = Acl::decode(&request.value).ok_or_else(|| fault(Code::Invalid, id, name))?;
    if name == acl::DEFAULT {
        if !record.is_directory() {
            return Err(fault(Code::AccessDenied, id, name));
        }
        return store(context, id, record, name, list.encode());
    }
    record.mode = list.mode(record.mode);
    if request.clear_set_group {
        record.mode &= !SET_GROUP;
    }
    if list.is_minimal() {
        return erase(context, id, record, name).map(drop);
    }
    store(context, id, record, name, list.encode())
}

/// Writes an attribute, new or not. The caller puts the record.
pub(crate) fn store(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    name: &[u8],
    value: Vec<u8>,
) -> Outcome<()> {
    let key = keys::xattr(id, name);
    if !context.exists(&key)? {
        add_name(id, record, name)?;
    }
    context.write_raw(key, value);
    Ok(())
}

/// Removes an attribute; false when there is none. The caller puts the record.
pub(crate) fn erase(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    name: &[u8],
) -> Outcome<bool> {
    let key = keys::xattr(id, name);
    if record.xattr_names_bytes == 0 || !context.exists(&key)? {
        return Ok(false);
    }
    context.delete(key);
    record.xattr_names_bytes = record.xattr_names_bytes.saturating_sub(name.len() as u32 + 1);
    Ok(true)
}

/// The access control list kept under `name`, where there is one.
pub(crate) fn list_of(
    context: &mut Context<'_>,
    id: InodeId,
    record: &InodeRecord,
    name: &[u8],
) -> Outcome<Option<Acl>> {
    if record.xattr_names_bytes == 0 {
        return Ok(None);
    }
    let value = context.raw(&keys::xattr(id, name))?;
    let broken = || fault(Code::Corrupt, id, name);
    value.map(|value| Acl::decode(&value).ok_or_else(broken)).transpose()
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
    let is_acl = name == acl::ACCESS || name == acl::DEFAULT;
    match erase(context, id, &mut record, name)? {
        true => {}
        // As in local file systems: removing an absent list succeeds.
        false if is_acl => return Ok(proto::RemoveXattrResponse {}),
        false => return Err(fault(Code::NoAttribute, id, name)),
    }
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
