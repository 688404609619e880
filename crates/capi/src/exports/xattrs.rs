//! Extended attributes of names.

use super::names::VAZAO_NO_FOLLOW;
use super::{bytes, bytes_mut, count, given, known_flags, status, text, too_small};
use crate::connection::Connection;
use crate::error::CallError;
use std::ffi::{c_char, c_int, c_void};
use vazao_client::{Error, Result, XattrMode};
use vazao_model::Code;

/// For vazao_setxattr(): fails with EEXIST where there is such an attribute.
pub const VAZAO_XATTR_CREATE: u32 = 2;

/// For vazao_setxattr(): fails with ENODATA where there is no such attribute.
pub const VAZAO_XATTR_REPLACE: u32 = 4;

/// Reads an extended attribute, as getxattr(2): fills the buffer with its value and returns the value's bytes, without
/// a NUL. A buffer of 0 bytes asks how many those are. ERANGE: it does not fit; 65536 bytes are always enough.
/// ENODATA: there is none of that name.
///
/// name: in the volume "user.NAME", "trusted.NAME", "security.NAME", and the two of access control lists; any other is
/// EOPNOTSUPP. In an area whatever its file system has.
/// flags: 0 or VAZAO_NO_FOLLOW, which is always so in an area.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_getxattr(
    connection: *mut Connection,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    buffer_bytes: usize,
    flags: u32,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let follow = known_flags(flags, VAZAO_NO_FOLLOW)? == 0;
        let buffer = bytes_mut(buffer.cast(), buffer_bytes, "buffer")?;
        let connection = given(connection, "connection")?;
        answer(buffer, &connection.xattr(text(path, "path")?, follow, text(name, "name")?)?, "the value")
    })
}

/// Sets an extended attribute to any bytes, 65536 at most, as setxattr(2).
///
/// name: as of vazao_getxattr(), 255 bytes at most.
/// flags: 0, or of VAZAO_NO_FOLLOW and one of VAZAO_XATTR_CREATE and VAZAO_XATTR_REPLACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_setxattr(
    connection: *mut Connection,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    value_bytes: usize,
    flags: u32,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let flags = known_flags(flags, VAZAO_NO_FOLLOW | VAZAO_XATTR_CREATE | VAZAO_XATTR_REPLACE)?;
        let mode = match flags & !VAZAO_NO_FOLLOW {
            0 => XattrMode::Either,
            VAZAO_XATTR_CREATE => XattrMode::Create,
            VAZAO_XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Error::new(Code::Invalid, "VAZAO_XATTR_CREATE beside VAZAO_XATTR_REPLACE")),
        };
        let value = bytes(value.cast(), value_bytes, "value")?;
        let (path, name) = (text(path, "path")?, text(name, "name")?);
        let follow = flags & VAZAO_NO_FOLLOW == 0;
        given(connection, "connection")?.set_xattr(path, follow, name, value, mode)
    })
}

/// Lists extended attributes, as listxattr(2): fills the buffer with their names, each with a NUL behind it, and
/// returns the bytes of all. A buffer of 0 bytes asks how many those are. ERANGE: they do not fit; 65536 bytes are
/// always enough.
///
/// flags: as of vazao_getxattr().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_listxattr(
    connection: *mut Connection,
    path: *const c_char,
    buffer: *mut c_char,
    buffer_bytes: usize,
    flags: u32,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let follow = known_flags(flags, VAZAO_NO_FOLLOW)? == 0;
        let buffer = bytes_mut(buffer.cast(), buffer_bytes, "buffer")?;
        let names = given(connection, "connection")?.xattrs(text(path, "path")?, follow)?;
        answer(buffer, &names, "all names")
    })
}

/// Removes an extended attribute. ENODATA: there is none of that name.
///
/// flags: as of vazao_getxattr().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_removexattr(
    connection: *mut Connection,
    path: *const c_char,
    name: *const c_char,
    flags: u32,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let follow = known_flags(flags, VAZAO_NO_FOLLOW)? == 0;
        let (path, name) = (text(path, "path")?, text(name, "name")?);
        given(connection, "connection")?.remove_xattr(path, follow, name)
    })
}

/// Fills a buffer, where it has any room at all, and returns how many bytes there are.
fn answer(buffer: &mut [u8], found: &[u8], what: &str) -> Result<i64> {
    let buffer_bytes = buffer.len();
    match buffer.get_mut(..found.len()) {
        Some(place) => place.copy_from_slice(found),
        None if buffer_bytes == 0 => {}
        None => return Err(too_small(buffer_bytes, &format!("{what} takes {}", found.len()))),
    }
    Ok(found.len() as i64)
}
