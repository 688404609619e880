//! How fast the kernel sends over a socket, and how much it takes ahead of that: `setsockopt(SO_MAX_PACING_RATE)`
//! (socket(7)) and `setsockopt(TCP_NOTSENT_LOWAT)` (tcp(7)).
//!
//! One of the two modules of this crate with unsafe code: rustix does not offer these options.

#![allow(unsafe_code, reason = "both options need setsockopt, which rustix does not offer for them")]

use super::lines::UNPACED;
use rustix::net::sockopt;
use std::ffi::{c_int, c_void};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

const SOL_SOCKET: c_int = 1;
const SO_MAX_PACING_RATE: c_int = 47;
const IPPROTO_TCP: c_int = 6;
const TCP_NOTSENT_LOWAT: c_int = 25;

/// The kernel takes so much of a second ahead, and this at least. Else it takes up to 4 MiB, which is 16 s of 2 Mb/s: a
/// request that began behind that was cut short where its time ended, and the connection with it.
const AHEAD_OF_A_SECOND: u64 = 8;
const AHEAD_BYTES_MIN: u64 = 64 * 1024;

/// Paced below what its line carries, a connection has no use for one that measures the line itself: BBR keeps 90 ms of
/// it waiting where acknowledgements have to wait (docs/decisions/thin-lines.md). It stays so when the pace ends.
const CONGESTION_CONTROL: &str = "cubic";

unsafe extern "C" {
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
}

/// Has the kernel send `bytes_per_s` of payload at most, for a line that carries little, or as fast as it likes with
/// [`UNPACED`].
pub(super) fn set(stream: &TcpStream, bytes_per_s: u64) {
    if bytes_per_s != UNPACED {
        // Where that is not allowed it goes on with the one that it has.
        let _ = sockopt::set_tcp_congestion(stream, CONGESTION_CONTROL);
    }
    // 0: as much as ever.
    let ahead_bytes = match bytes_per_s {
        UNPACED => 0,
        rate => (rate / AHEAD_OF_A_SECOND).max(AHEAD_BYTES_MIN).try_into().unwrap_or(c_int::MAX),
    };
    set_option(stream, IPPROTO_TCP, TCP_NOTSENT_LOWAT, ahead_bytes);
    set_rate(stream, bytes_per_s);
}

/// The same, and nothing else changes.
pub(super) fn set_rate(stream: &TcpStream, bytes_per_s: u64) {
    set_option(stream, SOL_SOCKET, SO_MAX_PACING_RATE, bytes_per_s);
}

fn set_option<V: Copy>(stream: &TcpStream, level: c_int, name: c_int, value: V) {
    // SAFETY: the descriptor is open for as long as `stream` is borrowed; the kernel reads the bytes of `value`, which
    // lives until the call has returned.
    let outcome = unsafe {
        let value = (&raw const value).cast();
        setsockopt(stream.as_raw_fd(), level, name, value, size_of::<V>() as u32)
    };
    if outcome != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "a connection cannot be paced");
    }
}

/// What was set; `None` where that cannot be asked.
pub(super) fn get(stream: &TcpStream) -> Option<u64> {
    let (mut value, mut length) = (0u64, size_of::<u64>() as u32);
    // SAFETY: the kernel writes at most `length` bytes to `value`, and their number to `length`.
    let outcome = unsafe {
        let value = (&raw mut value).cast();
        getsockopt(stream.as_raw_fd(), SOL_SOCKET, SO_MAX_PACING_RATE, value, &mut length)
    };
    // Old kernels have four bytes, in which some rates are not what they were set to.
    (outcome == 0 && length == 8).then_some(value)
}
