//! Copies between nodes, and between nodes and the volume.

use super::{given, known_flags, list, out, status, text};
use crate::connection::Connection;
use crate::copy::Copy;
use crate::error::CallError;
use crate::types::{CopyProgress, Limit};
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;
use vazao_client::{Error, Result};
use vazao_handles::job_place;
use vazao_model::Code;

/// For vazao_copy(): directories with all that is in them.
pub const VAZAO_COPY_RECURSIVE: u32 = 1;

/// For vazao_copy(): owners, permissions with set-id bits, and times are kept.
pub const VAZAO_COPY_PRESERVE: u32 = 2;

/// For vazao_copy(): what an earlier copy has brought is not sent again.
pub const VAZAO_COPY_RESUME: u32 = 4;

/// For vazao_copy(): each file is read from the destination's disk again at its end, and compared.
pub const VAZAO_COPY_CHECKSUM: u32 = 8;

/// For vazao_copy(): all files are written over.
pub const VAZAO_COPY_OVER_ALL: u32 = 0;

/// For vazao_copy(): files that are there stay as they are.
pub const VAZAO_COPY_OVER_NONE: u32 = 1;

/// For vazao_copy(): files that are there are written over by newer ones.
pub const VAZAO_COPY_OVER_OLDER: u32 = 2;

/// For vazao_copy(): files that are there are written over where size or time are different.
pub const VAZAO_COPY_OVER_DIFFERENT: u32 = 3;

/// What vazao_copy() is to do. A structure of zeros copies one file as fast as it can, over what is there.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CopyOptions {
    /// VAZAO_COPY_RECURSIVE, VAZAO_COPY_PRESERVE, VAZAO_COPY_RESUME, VAZAO_COPY_CHECKSUM, or 0.
    pub flags: u32,
    /// Which files that are there already are written over: VAZAO_COPY_OVER_ALL, _OVER_NONE, _OVER_OLDER or
    /// _OVER_DIFFERENT.
    pub over: u32,
    /// How long it may take, in milliseconds; 0: as long as it takes.
    pub deadline_ms: u64,
    /// How much it may move in a second; 0: no limit.
    pub bytes_per_second_max: u64,
    /// "auto", "blocking", "nonblocking", "streams:4", "rpc" or "ftp"; NULL: "auto".
    pub method: *const c_char,
    /// Is told how far it is, four times a second and once it is over, by the thread that called vazao_copy(). What it
    /// returns other than 0 cancels the copy. NULL: it is not shown.
    pub watcher: Option<unsafe extern "C" fn(progress: *const CopyProgress, context: *mut c_void) -> c_int>,
    /// What the watcher is given.
    pub context: *mut c_void,
    /// Zero.
    pub reserved: [u64; 8],
}

/// Has nodes copy files to one another, or between an area and the volume, and waits until they have. The bytes do not
/// pass through this program. The copy goes on while nodes are started again, and is seen by `vazao jobs`.
///
/// sources: "n1:/area/path" or, into an area, a path in the volume; source_count of them.
/// destination: the file it is to be called, or the directory it goes into: "n2:/area/path", or a path in the volume.
/// options: NULL for one of zeros.
/// limit: receives what limited it; NULL is allowed.
///
/// Fails with ECANCELED where the watcher said so, with ETIMEDOUT where it was not over by its deadline: it is
/// cancelled then; with EIO where files could not be copied, of which the message names the first, and the others are
/// there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_copy(
    connection: *mut Connection,
    sources: *const *const c_char,
    source_count: usize,
    destination: *const c_char,
    options: *const CopyOptions,
    limit: *mut Limit,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let shared = given(connection, "connection")?.shared();
        let sources = list(sources, source_count, "sources")?;
        let sources = sources.iter().map(|source| Ok(job_place(text(*source, "sources")?)));
        let zeros = CopyOptions::default();
        let options = options.as_ref().unwrap_or(&zeros);
        let copy = copy(sources.collect::<Result<_>>()?, text(destination, "destination")?, options)?;
        let found = copy.run(shared, &mut |progress| match options.watcher {
            Some(watcher) => watcher(progress, options.context) == 0,
            None => true,
        })?;
        if !limit.is_null() {
            *out(limit, "limit")? = found;
        }
        Ok(())
    })
}

unsafe fn copy<'a>(sources: Vec<Vec<u8>>, destination: &[u8], options: &'a CopyOptions) -> Result<Copy<'a>> {
    let known = VAZAO_COPY_RECURSIVE | VAZAO_COPY_PRESERVE | VAZAO_COPY_RESUME | VAZAO_COPY_CHECKSUM;
    let flags = known_flags(options.flags, known)?;
    if sources.is_empty() {
        return Err(Error::new(Code::Invalid, "`source_count` is 0: nothing is to be copied"));
    }
    let method = match options.method.is_null() {
        true => None,
        false => {
            let method = std::str::from_utf8(text(options.method, "method")?);
            Some(method.map_err(|_| Error::new(Code::Invalid, "`method` is no text in UTF-8"))?)
        }
    };
    Ok(Copy {
        sources,
        destination: job_place(destination),
        is_recursive: flags & VAZAO_COPY_RECURSIVE != 0,
        preserves: flags & VAZAO_COPY_PRESERVE != 0,
        resumes: flags & VAZAO_COPY_RESUME != 0,
        compares_checksums: flags & VAZAO_COPY_CHECKSUM != 0,
        over: options.over,
        deadline: (options.deadline_ms > 0).then(|| Duration::from_millis(options.deadline_ms)),
        bytes_per_second_max: options.bytes_per_second_max,
        method,
    })
}
