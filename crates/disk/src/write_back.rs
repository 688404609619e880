//! Starting the write-back of a range: `sync_file_range(2)` of Linux.
//!
//! The one module of this crate with unsafe code: rustix does not offer the call, and one call with four numbers is
//! less than a crate of bindings.

#![allow(unsafe_code, reason = "sync_file_range is a call that rustix does not offer")]

use std::ffi::{c_int, c_uint};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Starts writing the dirty pages of the range that are not being written already, and waits for none of them.
const SYNC_FILE_RANGE_WRITE: c_uint = 2;

unsafe extern "C" {
    fn sync_file_range(fd: c_int, offset: i64, length: i64, flags: c_uint) -> c_int;
}

/// Starts the write-back of `length` bytes at `offset`. The next sync reports a failure, as with the write-back that
/// the kernel starts by itself.
pub(crate) fn start(file: &File, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return };
    if length == 0 {
        // It would mean all that follows.
        return;
    }
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the call takes no address.
    let _ = unsafe { sync_file_range(file.as_raw_fd(), offset, length, SYNC_FILE_RANGE_WRITE) };
}
