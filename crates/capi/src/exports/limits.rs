//! What limited a stretch of work.

use super::{given, made, out, status};
use crate::connection::Connection;
use crate::error::CallError;
use crate::types::Limit;
use crate::watch::Watch;
use std::ffi::c_int;

/// Begins a stretch of work that vazao_watch_limit() will judge. It costs a request to each node at both ends, and a
/// thread in between.
///
/// watch: receives it, to be freed by vazao_watch_free(); NULL where it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_watch_begin(
    connection: *mut Connection,
    watch: *mut *mut Watch,
    error: *mut *mut CallError,
) -> c_int {
    made(watch, "watch", error, || {
        let handle = vazao_handles::Watch::begin(given(connection, "connection")?.shared())?;
        Ok(Watch { handle })
    })
}

/// What limited this program's work on the connection since the watch began: a disk, a link, round trips, a
/// processor, or the program itself. The watch goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_watch_limit(
    watch: *mut Watch,
    limit: *mut Limit,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let limit = out(limit, "limit")?;
        *limit = given(watch, "watch")?.limit()?;
        Ok(())
    })
}

/// Frees a watch. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_watch_free(watch: *mut Watch) {
    if !watch.is_null() {
        drop(Box::from_raw(watch));
    }
}
