//! Listings of directories.

use super::{count, given, known_flags, made, out, text};
use crate::connection::Connection;
use crate::directory::Directory;
use crate::error::CallError;
use crate::types::DirectoryEntry;
use std::ffi::{c_char, c_int};

/// For vazao_directory_open(): entries come with their attributes, at little more cost than without.
pub const VAZAO_WITH_ATTRIBUTES: u32 = 1;

/// Begins to list a directory.
///
/// path: a directory of the volume or of an area, or "n1:/" for the areas of a node, which come as directories.
/// flags: 0 or VAZAO_WITH_ATTRIBUTES.
/// directory: receives the listing, to be freed by vazao_directory_free(); NULL where it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_directory_open(
    connection: *mut Connection,
    path: *const c_char,
    flags: u32,
    directory: *mut *mut Directory,
    error: *mut *mut CallError,
) -> c_int {
    made(directory, "directory", error, || {
        let with_attributes = known_flags(flags, VAZAO_WITH_ATTRIBUTES)? != 0;
        Directory::open(given(connection, "connection")?, text(path, "path")?, with_attributes)
    })
}

/// The next entry, in no particular order and without "." and "..": 1, or 0 behind the last one. Names that are there
/// all the time come once; those that come or go meanwhile may or may not. After an error it can be called again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_directory_next(
    directory: *mut Directory,
    entry: *mut DirectoryEntry,
    error: *mut *mut CallError,
) -> c_int {
    count(error, || {
        let entry = out(entry, "entry")?;
        let Some(next) = given(directory, "directory")?.next()? else { return Ok(0) };
        *entry = next;
        Ok(1)
    }) as c_int
}

/// Frees a listing. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_directory_free(directory: *mut Directory) {
    if !directory.is_null() {
        drop(Box::from_raw(directory));
    }
}
