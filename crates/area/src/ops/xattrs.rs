//! Extended attributes of what lies at a path. Which of them the daemon's user may see and set the kernel decides.
//!
//! By way of `/proc`, as in [`super::names`]: a descriptor that names an inode without opening it has no attributes
//! (`fgetxattr` gives `EBADF`), and a name could lead elsewhere by the time it is used.

use super::names::Named;
use super::{done, message};
use crate::service::Shared;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    XattrFlags, flistxattr_query, getxattr, listxattr, listxattr_query, llistxattr_query, removexattr,
    setxattr,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use vazao_model::limits::{XATTR_BYTES_MAX, XATTR_NAME_BYTES_MAX};
use vazao_model::{Code, origin};
use vazao_wire::proto;
use vazao_wire::service::{Answer, Fault};

/// Where `/proc` shows what a descriptor stands for.
fn shown_at(inode: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", inode.as_raw_fd())
}

/// The kernel's word that there is nothing, or can be nothing.
fn is_nothing(listed: Result<usize, Errno>) -> bool {
    matches!(listed, Ok(0) | Err(Errno::OPNOTSUPP))
}

/// True when an inode that is named by a descriptor has no extended attributes.
pub(crate) fn has_none(inode: &OwnedFd) -> bool {
    is_nothing(listxattr_query(shown_at(inode)))
}

/// The same of an open file.
pub(crate) fn file_has_none(file: impl AsFd) -> bool {
    is_nothing(flistxattr_query(file))
}

/// The same of a name in an open directory; a symbolic link's own.
pub(crate) fn name_has_none(directory: &OwnedFd, name: &CStr) -> bool {
    let path = [shown_at(directory).as_bytes(), b"/", name.to_bytes()].concat();
    is_nothing(llistxattr_query(path))
}

fn name(named: &Named, name: &[u8]) -> Result<CString, Fault> {
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(named.fault(Errno::RANGE));
    }
    let refuse = |what| {
        let why = format!("{}: the name of an extended attribute {what}", named.shown());
        Fault::new(Code::Invalid, why)
    };
    match name.is_empty() {
        true => Err(refuse("is empty")),
        false => CString::new(name).map_err(|_| refuse("has a NUL byte")),
    }
}

pub(crate) fn get(shared: &Shared, request: &proto::AreaGetXattrRequest) -> Answer {
    let named = Named::find(shared, &request.area, &request.path)?;
    if request.name == origin::ATTRIBUTE {
        let inode = named.inode(true)?;
        let value = crate::origin(shown_at(&inode).as_ref()).map_err(|e| named.fault(e))?;
        return message(&proto::AreaGetXattrResponse { value });
    }
    let name = name(&named, &request.name)?;
    let inode = named.inode(false)?;
    let mut value = vec![0; XATTR_BYTES_MAX];
    let length = getxattr(shown_at(&inode), &name, &mut value[..]).map_err(|e| named.fault(e))?;
    value.truncate(length);
    message(&proto::AreaGetXattrResponse { value })
}

pub(crate) fn list(shared: &Shared, request: &proto::AreaListXattrsRequest) -> Answer {
    let named = Named::find(shared, &request.area, &request.path)?;
    let inode = named.inode(false)?;
    let mut bytes = vec![0; XATTR_BYTES_MAX];
    let length = match listxattr(shown_at(&inode), &mut bytes[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other.map_err(|e| named.fault(e))?,
    };
    let listed = bytes[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    message(&proto::AreaListXattrsResponse { names: listed.map(<[u8]>::to_vec).collect() })
}

pub(crate) fn set(shared: &Shared, request: &proto::AreaSetXattrRequest) -> Answer {
    let named = Named::writable(shared, &request.area, &request.path)?;
    let name = name(&named, &request.name)?;
    if request.value.len() > XATTR_BYTES_MAX {
        return Err(named.fault(Errno::RANGE));
    }
    let flags = match request.mode {
        0 => XattrFlags::empty(),
        1 => XattrFlags::CREATE,
        2 => XattrFlags::REPLACE,
        other => return Err(Fault::new(Code::BadRequest, format!("AreaSetXattr: mode {other}"))),
    };
    let inode = named.inode(false)?;
    let set = setxattr(shown_at(&inode), &name, &request.value, flags).map_err(|e| named.fault(e));
    done(set, &proto::AreaSetXattrResponse {})
}

pub(crate) fn remove(shared: &Shared, request: &proto::AreaRemoveXattrRequest) -> Answer {
    let named = Named::writable(shared, &request.area, &request.path)?;
    let name = name(&named, &request.name)?;
    let inode = named.inode(false)?;
    let removed = removexattr(shown_at(&inode), &name).map_err(|e| named.fault(e));
    done(removed, &proto::AreaRemoveXattrResponse {})
}
