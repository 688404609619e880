//! Open files.

use super::{bytes, bytes_mut, count, given, made, out, status, text};
use crate::connection::Connection;
use crate::error::CallError;
use crate::file::File;
use crate::types::FileAttributes;
use std::ffi::{c_char, c_int};
use vazao_client::{Error, Result};
use vazao_handles::Opened;
use vazao_model::Code;

/// Opens a regular file as open(2) does.
///
/// path: in the volume, or in an area of a node: "n1:/area/path". The node reads and writes such a file itself, on its
/// own disk: only vazao_pread(), vazao_pwrite(), vazao_flush(), vazao_fsync(), vazao_ftruncate() and vazao_fstat() are
/// for it, the others are EOPNOTSUPP. A channel that its node has lost by a restart is opened again by itself.
/// flags: of <fcntl.h>: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL and O_TRUNC; O_CLOEXEC and O_LARGEFILE are
/// ignored, and any other is EINVAL. To append, write with vazao_append(). O_CREAT makes nothing at the end of a link.
/// mode: permissions of a new file, which belongs to the effective user; the process's umask does not apply.
/// file: receives the file, to be closed by vazao_file_close() and freed by vazao_file_free(); NULL where it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_open(
    connection: *mut Connection,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut File,
    error: *mut *mut CallError,
) -> c_int {
    made(file, "file", error, || {
        File::open(given(connection, "connection")?, text(path, "path")?, flags, mode)
    })
}

/// Writes out what is written, tells other clients of it, and closes. Fails where something written earlier could not
/// be stored; closed it is in any case, and later calls on it fail with EBADF. Calls of other threads are waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_file_close(file: *mut File, error: *mut *mut CallError) -> c_int {
    status(error, || given(file, "file")?.handle.close())
}

/// Frees a file, and closes it before where that has not been done: what could not be stored is told to no caller then.
/// NULL is allowed. In a child process (see fork above) it only lets go of the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_file_free(file: *mut File) {
    if file.is_null() {
        return;
    }
    let file = Box::from_raw(file);
    status(std::ptr::null_mut(), || {
        drop(file);
        Ok(())
    });
}

/// Reads at an offset: fills the buffer and returns its length; less only where the file ends, and 0 at its end. A read
/// sees what this connection has written before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_pread(
    file: *mut File,
    buffer: *mut std::ffi::c_void,
    buffer_bytes: usize,
    offset: u64,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let buffer = bytes_mut(buffer.cast(), buffer_bytes, "buffer")?;
        file.handle.reading(|file| file.read_at(buffer, offset)).map(|read| read as i64)
    })
}

/// Writes all bytes at an offset, and returns their number. They are copied: the buffer is the caller's again. Servers
/// may have them later; what then fails is told by the next write, vazao_flush(), vazao_fsync() or vazao_file_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_pwrite(
    file: *mut File,
    buffer: *const std::ffi::c_void,
    buffer_bytes: usize,
    offset: u64,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let buffer = bytes(buffer.cast(), buffer_bytes, "buffer")?;
        file.handle.writing(|file| file.write_at(buffer, offset)).map(|()| buffer.len() as i64)
    })
}

/// Writes all bytes at the end of the file, wherever others have moved it, and returns the offset that they were
/// written at. Programs that append to one file lose nothing of each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_append(
    file: *mut File,
    buffer: *const std::ffi::c_void,
    buffer_bytes: usize,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let buffer = bytes(buffer.cast(), buffer_bytes, "buffer")?;
        as_count(file.handle.writing(|file| file.volume()?.append(buffer))?)
    })
}

/// An offset as a number that is not negative.
fn as_count(offset: u64) -> Result<i64> {
    i64::try_from(offset).map_err(|_| Error::new(Code::TooLarge, format!("offset {offset}")))
}

/// Writes out what is written: clients that open the file afterwards see it. Fails as long as something that was
/// written could not be stored, and has not been written again or cut off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_flush(file: *mut File, error: *mut *mut CallError) -> c_int {
    status(error, || given(file, "file")?.handle.on(Opened::flush))
}

/// The same, and all of it survives the loss of power of all servers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_fsync(file: *mut File, error: *mut *mut CallError) -> c_int {
    status(error, || given(file, "file")?.handle.on(Opened::sync))
}

/// Cuts the file, or extends it with zeros that take no space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_ftruncate(
    file: *mut File,
    size_bytes: u64,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || given(file, "file")?.handle.writing(|file| file.set_length(size_bytes)))
}

/// What the file is, with what this connection has written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_fstat(
    file: *mut File,
    attributes: *mut FileAttributes,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let attributes = out(attributes, "attributes")?;
        *attributes = (&given(file, "file")?.handle.attributes()?).into();
        Ok(())
    })
}
