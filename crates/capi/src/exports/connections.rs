//! Errors, connections, and what concerns the whole volume.

use super::{given, made, out, status, text};
use crate::connection::Connection;
use crate::error::CallError;
use crate::types::{Options, Space};
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use vazao_client::{Error, Result};
use vazao_handles::zone_name;
use vazao_model::Code;

/// The version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn vazao_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The number of an error, positive, as in <errno.h>; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_error_errno(error: *const CallError) -> c_int {
    error.as_ref().map_or(0, CallError::number)
}

/// What happened to what, why, and what to do about it: one line. It lives as long as the error. "" for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_error_message(error: *const CallError) -> *const c_char {
    error.as_ref().map_or(c"".as_ptr(), |error| error.message().as_ptr())
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_error_free(error: *mut CallError) {
    if !error.is_null() {
        drop(Box::from_raw(error));
    }
}

/// Connects to a cluster.
///
/// cluster_file: its client.toml. NULL: the file that the command `vazao` takes, which is $VAZAO_CLUSTER, or else
/// ~/.config/vazao/client.toml, or else /etc/vazao/client.toml.
/// options: NULL for what that file and the defaults say.
/// connection: receives the connection, to be closed by vazao_disconnect() and freed by vazao_connection_free(); NULL
/// where it fails.
///
/// Fails within 5 seconds where there is no cluster.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_connect(
    cluster_file: *const c_char,
    options: *const Options,
    connection: *mut *mut Connection,
    error: *mut *mut CallError,
) -> c_int {
    made(connection, "connection", error, || {
        let file = match cluster_file.is_null() {
            true => None,
            false => Some(Path::new(OsStr::from_bytes(text(cluster_file, "cluster_file")?))),
        };
        let changes = options.as_ref().map(|options| changes(options)).transpose()?;
        let change = |options: &mut vazao_client::Options| {
            if let Some(change) = changes {
                change(options);
            }
        };
        Ok(Connection { handle: vazao_handles::Connection::open(file, change)? })
    })
}

/// What the caller's options change in those of the configuration.
unsafe fn changes(given: &Options) -> Result<impl FnOnce(&mut vazao_client::Options)> {
    if given.reserved != [0; 7] {
        let why = "`reserved` of the options is not zero; set the structure to zeros before filling it";
        return Err(Error::new(Code::Invalid, why));
    }
    let name = match given.name.is_null() {
        true => None,
        false => Some(String::from_utf8_lossy(text(given.name, "name")?).into_owned()),
    };
    let zone = match given.zone.is_null() {
        true => None,
        false => Some(zone_name(&String::from_utf8_lossy(text(given.zone, "zone")?))?),
    };
    let (deadline_ms, connections_max) = (given.deadline_ms, given.connections_max);
    let (dirty, read_ahead) = (given.dirty_bytes_max, given.read_ahead_bytes_max);
    Ok(move |options: &mut vazao_client::Options| {
        let bytes = |bytes: u64, configured: usize| match bytes {
            0 => configured,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        if deadline_ms > 0 {
            options.deadline_ms = deadline_ms;
        }
        if connections_max > 0 {
            options.connections_max = connections_max as usize;
        }
        options.dirty_bytes_max = bytes(dirty, options.dirty_bytes_max);
        options.read_ahead_bytes_max = bytes(read_ahead, options.read_ahead_bytes_max);
        options.name = name.unwrap_or_default();
        options.zone = zone.unwrap_or_else(|| std::mem::take(&mut options.zone));
    })
}

/// Ends the session: writes out what is written to its files, and closes them.
///
/// Later calls on the connection, its files and its directories fail with EBADF; their handles are to be freed all the
/// same. Fails where something could not be written; closed it is in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_disconnect(connection: *mut Connection, error: *mut *mut CallError) -> c_int {
    status(error, || given(connection, "connection")?.shared().close())
}

/// Frees a connection, and closes it before where that has not been done: what goes wrong then is told to no caller.
/// NULL is allowed. In a child process (see fork above) it only lets go of the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_connection_free(connection: *mut Connection) {
    if connection.is_null() {
        return;
    }
    let connection = Box::from_raw(connection);
    // Closed already, or with an error that has no receiver, or of the parent process.
    status(std::ptr::null_mut(), || connection.shared().close());
}

/// Ends all waits for servers, from any thread: calls under way fail with ECANCELED, and so do later ones. For a
/// program that has to end whatever its servers do. What servers have not acknowledged is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_hang_up(connection: *mut Connection, error: *mut *mut CallError) -> c_int {
    status(error, || given(connection, "connection")?.shared().hang_up())
}

/// The space of the volume, as statvfs(3) would tell it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_volume_space(
    connection: *mut Connection,
    space: *mut Space,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let client = given(connection, "connection")?.shared().client()?;
        *out(space, "space")? = client.space()?.into();
        Ok(())
    })
}

/// Makes durable all changes of names and attributes that were answered before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_sync(connection: *mut Connection, error: *mut *mut CallError) -> c_int {
    status(error, || given(connection, "connection")?.shared().client()?.sync())
}
