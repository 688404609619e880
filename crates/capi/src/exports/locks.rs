//! Byte-range locks of open files.

use super::{count, given, out, status};
use crate::error::CallError;
use crate::file::File;
use crate::types::LockInfo;
use std::ffi::c_int;
use std::time::Duration;
use vazao_client::{Error, Result};
use vazao_handles::lock_range;
use vazao_model::Code;
use vazao_model::locks::LockMode;

/// For vazao_lock(): others may have such a lock, too. The file has to be open for reading.
pub const VAZAO_LOCK_SHARED: u32 = 1;

/// For vazao_lock(): no other owner has a lock there. The file has to be open for writing.
pub const VAZAO_LOCK_EXCLUSIVE: u32 = 2;

/// For vazao_lock(): waits as long as it takes.
pub const VAZAO_WAIT: u32 = u32::MAX;

fn lock_mode(mode: u32) -> Result<LockMode> {
    match mode {
        VAZAO_LOCK_SHARED => Ok(LockMode::Shared),
        VAZAO_LOCK_EXCLUSIVE => Ok(LockMode::Exclusive),
        other => Err(Error::new(Code::Invalid, format!("{other} is no mode of a lock"))),
    }
}

/// Locks bytes of a file of the volume, as F_OFD_SETLKW of fcntl(2), and against such locks of mounts and of other
/// programs. The owner is the open file: two of one process exclude each other, and any thread may let go. What was
/// locked through this file before changes its mode. What others wrote under their locks is seen afterwards. Locks go
/// with vazao_unlock(), when the file is closed or freed, and with the connection.
///
/// mode: VAZAO_LOCK_SHARED or VAZAO_LOCK_EXCLUSIVE. bytes: 0: to the end, however far that moves.
/// wait_ms: for how long others are waited for; 0: not at all; VAZAO_WAIT. Signals do not end the wait,
/// vazao_file_close() of another thread does.
///
/// EAGAIN: another one has it. EDEADLK: it waits for this very file. ENOLCK: too many locks. EOPNOTSUPP: in an area.
/// Where this program was cut off for so long that another one got its lock, every call on the file is EIO from then
/// on, until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_lock(
    file: *mut File,
    mode: u32,
    offset: u64,
    bytes: u64,
    wait_ms: u32,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let (mode, range) = (lock_mode(mode)?, lock_range(offset, bytes)?);
        let wait = match wait_ms {
            VAZAO_WAIT => Duration::MAX,
            wait_ms => Duration::from_millis(wait_ms.into()),
        };
        given(file, "file")?.handle.lock(range, mode, wait)
    })
}

/// Writes out what is written, as vazao_flush(), and lets go of bytes, be they locked or not. It lets go of them also
/// where something that was written could not be stored, which it tells.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_unlock(
    file: *mut File,
    offset: u64,
    bytes: u64,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let range = lock_range(offset, bytes)?;
        given(file, "file")?.handle.unlock(range)
    })
}

/// Looks whether a lock of another owner is in the way of one: 1 and that lock, or 0, where vazao_lock() might succeed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_lock_test(
    file: *mut File,
    mode: u32,
    offset: u64,
    bytes: u64,
    held: *mut LockInfo,
    error: *mut *mut CallError,
) -> c_int {
    count(error, || {
        let held = out(held, "held")?;
        let (mode, range) = (lock_mode(mode)?, lock_range(offset, bytes)?);
        let Some(obstacle) = given(file, "file")?.handle.test_lock(range, mode)? else { return Ok(0) };
        *held = obstacle.into();
        Ok(1)
    }) as c_int
}
