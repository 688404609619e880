//! Calls on names of the volume.

use super::{bytes_mut, count, given, known_flags, out, status, text, too_small};
use crate::connection::Connection;
use crate::error::CallError;
use crate::types::{FileAttributes, Time};
use std::ffi::{c_char, c_int};
use vazao_client::{Changes, Error, RenameMode, Result, SetTime};
use vazao_model::{Code, Timestamp};

/// For vazao_stat() and calls about extended attributes: a symbolic link at the end of the path is meant, not what it
/// leads to.
pub const VAZAO_NO_FOLLOW: u32 = 1;

/// For vazao_rename(): fails with EEXIST where the new name is taken.
pub const VAZAO_RENAME_NO_REPLACE: u32 = 1;

/// For vazao_rename(): swaps what the two names lead to.
pub const VAZAO_RENAME_EXCHANGE: u32 = 2;

/// What a path leads to, as stat(2), or with VAZAO_NO_FOLLOW as lstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_stat(
    connection: *mut Connection,
    path: *const c_char,
    flags: u32,
    attributes: *mut FileAttributes,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let attributes = out(attributes, "attributes")?;
        let follow = known_flags(flags, VAZAO_NO_FOLLOW)? == 0;
        let found = given(connection, "connection")?.stat(text(path, "path")?, follow)?;
        *attributes = (&found).into();
        Ok(())
    })
}

/// Makes a directory of this process's effective user. The process's umask does not apply. In an area it is the
/// daemon's user's, or the area's owner's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_mkdir(
    connection: *mut Connection,
    path: *const c_char,
    mode: u32,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || given(connection, "connection")?.make_directory(text(path, "path")?, mode))
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_rmdir(
    connection: *mut Connection,
    path: *const c_char,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || given(connection, "connection")?.remove_directory(text(path, "path")?))
}

/// Removes a name that is not a directory's. A file that is open somewhere lives on until its last close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_unlink(
    connection: *mut Connection,
    path: *const c_char,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || given(connection, "connection")?.unlink(text(path, "path")?))
}

/// Moves a name, in one transaction, over a new name that is there already. EXDEV: out of the volume, or of its area.
///
/// flags: 0, VAZAO_RENAME_NO_REPLACE or VAZAO_RENAME_EXCHANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_rename(
    connection: *mut Connection,
    path: *const c_char,
    new_path: *const c_char,
    flags: u32,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let mode = match flags {
            0 => RenameMode::Replace,
            VAZAO_RENAME_NO_REPLACE => RenameMode::NoReplace,
            VAZAO_RENAME_EXCHANGE => RenameMode::Exchange,
            other => return Err(Error::new(Code::Invalid, format!("flags {other:#x} of a rename"))),
        };
        let connection = given(connection, "connection")?;
        connection.rename(text(path, "path")?, text(new_path, "new_path")?, mode)
    })
}

/// Gives a file a further name. EXDEV: as of vazao_rename().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_link(
    connection: *mut Connection,
    path: *const c_char,
    new_path: *const c_char,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let connection = given(connection, "connection")?;
        connection.link(text(path, "path")?, text(new_path, "new_path")?)
    })
}

/// Makes a symbolic link at `path` that leads to `target`, any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_symlink(
    connection: *mut Connection,
    target: *const c_char,
    path: *const c_char,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let connection = given(connection, "connection")?;
        connection.symlink(text(target, "target")?, text(path, "path")?)
    })
}

/// Where a symbolic link leads: fills the buffer, with a NUL at the end, and returns the bytes before the NUL. Fails
/// with ERANGE where it does not fit; 4096 bytes are always enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_readlink(
    connection: *mut Connection,
    path: *const c_char,
    buffer: *mut c_char,
    buffer_bytes: usize,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let target = given(connection, "connection")?.read_link(text(path, "path")?)?;
        let buffer = bytes_mut(buffer.cast(), buffer_bytes, "buffer")?;
        let Some((place, [end, ..])) = buffer.split_at_mut_checked(target.len()) else {
            let needed = format!("the link's target takes {} and a NUL", target.len());
            return Err(too_small(buffer_bytes, &needed));
        };
        place.copy_from_slice(&target);
        *end = 0;
        Ok(target.len() as i64)
    })
}

/// Sets the permission bits of what a path leads to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_chmod(
    connection: *mut Connection,
    path: *const c_char,
    mode: u32,
    error: *mut *mut CallError,
) -> c_int {
    let changes = Changes { mode: Some(mode & vazao_handles::PERMISSIONS), ..Changes::default() };
    status(error, || given(connection, "connection")?.change(text(path, "path")?, &changes))
}

/// Sets owner and group of what a path leads to; 4294967295, which is (uid_t)-1, leaves one as it is. In an area
/// EOPNOTSUPP: its files belong to the daemon's user, or to the area's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_chown(
    connection: *mut Connection,
    path: *const c_char,
    uid: u32,
    gid: u32,
    error: *mut *mut CallError,
) -> c_int {
    let wanted = |id: u32| (id != u32::MAX).then_some(id);
    let changes = Changes { uid: wanted(uid), gid: wanted(gid), ..Changes::default() };
    status(error, || given(connection, "connection")?.change(text(path, "path")?, &changes))
}

/// Cuts a file, or extends it with zeros that take no space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_truncate(
    connection: *mut Connection,
    path: *const c_char,
    size_bytes: u64,
    error: *mut *mut CallError,
) -> c_int {
    let changes = Changes { size: Some(size_bytes), ..Changes::default() };
    status(error, || given(connection, "connection")?.change(text(path, "path")?, &changes))
}

/// Sets the times of the last read and of the last change of contents; NULL: now, in an area by this machine's clock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_utimes(
    connection: *mut Connection,
    path: *const c_char,
    accessed: *const Time,
    modified: *const Time,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let (accessed, modified) = (time(accessed)?, time(modified)?);
        given(connection, "connection")?.set_times(text(path, "path")?, accessed, modified)
    })
}

unsafe fn time(pointer: *const Time) -> Result<SetTime> {
    let Some(time) = pointer.as_ref() else { return Ok(SetTime::Now) };
    match u32::try_from(time.nanoseconds) {
        Ok(nanoseconds) if nanoseconds < 1_000_000_000 => {
            Ok(SetTime::At(Timestamp { seconds: time.seconds, nanoseconds }))
        }
        _ => Err(Error::new(Code::Invalid, format!("{} nanoseconds of a time", time.nanoseconds))),
    }
}
