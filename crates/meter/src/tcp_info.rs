//! What the kernel counts for a TCP connection: `getsockopt(TCP_INFO)` (tcp(7), `struct tcp_info` in linux/tcp.h).
//!
//! The one module of this crate with unsafe code: rustix does not offer this option, and one system call into a buffer
//! of our own is less than a crate of bindings.

#![allow(unsafe_code, reason = "TCP_INFO needs getsockopt, which rustix does not offer for it")]

use crate::measures::Connection;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

const IPPROTO_TCP: c_int = 6;
const TCP_INFO: c_int = 11;

/// Newer kernels append fields, older ones fill in fewer: what is not filled stays zero.
const BUFFER_BYTES: usize = 512;

unsafe extern "C" {
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
}

/// The kernel's structure, as bytes; `None` when the descriptor is no TCP socket.
fn raw(socket: impl AsFd) -> Option<[u8; BUFFER_BYTES]> {
    let mut buffer = [0u8; BUFFER_BYTES];
    let mut length = BUFFER_BYTES as u32;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the kernel writes at most `length` bytes to
    // the buffer, which are its size, and the new length to `length`; both live until the call has returned.
    let outcome = unsafe { getsockopt(fd, IPPROTO_TCP, TCP_INFO, buffer.as_mut_ptr().cast(), &mut length) };
    (outcome == 0).then_some(buffer)
}

/// What the kernel has noticed of the way to the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// How often in a row something was sent again for which no acknowledgement came.
    pub resends: u8,
    /// How many probes of a closed window, or of a connection that rests, have not been acknowledged.
    pub probes: u8,
    /// Milliseconds since the last acknowledgement.
    pub acknowledged_ms: u32,
    /// The kernel keeps bytes that the other end has not acknowledged.
    pub has_unacknowledged: bool,
}

/// The way to the other end of a connected socket; `None` when the descriptor is no TCP socket.
pub fn way(socket: impl AsFd) -> Option<Way> {
    let bytes = raw(socket)?;
    // Segments on their way, bytes that have not left.
    let has_unacknowledged = word(&bytes, 24) > 0 || word(&bytes, 144) > 0;
    Some(Way { resends: bytes[2], probes: bytes[3], acknowledged_ms: word(&bytes, 56), has_unacknowledged })
}

/// The number at `at`.
fn word(bytes: &[u8; BUFFER_BYTES], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// The counters of a connected socket; `id` is the caller's name for it.
pub fn connection(socket: impl AsFd, id: u64) -> Option<Connection> {
    raw(socket).map(|bytes| decode(&bytes, id))
}

/// Offsets as in the kernel's header: eight bytes of small fields, 24 words of 32 bits, then mixed.
fn decode(bytes: &[u8; BUFFER_BYTES], id: u64) -> Connection {
    let word = |at: usize| word(bytes, at);
    let long =
        |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    let segment_bytes = u64::from(word(16));
    // The kernel says !0 where it has measured no round trip yet.
    let rtt_min_us = if word(148) == u32::MAX { 0 } else { word(148) };
    Connection {
        id,
        sent_bytes: long(120),
        received_bytes: long(128),
        busy_us: long(168),
        window_us: long(176),
        buffer_us: long(184),
        resent_bytes: long(208),
        rtt_us: word(68),
        rtt_min_us,
        window_bytes: u64::from(word(80)).saturating_mul(segment_bytes),
        unsent_bytes: u64::from(word(144)),
        is_app_limited: bytes[7] & 1 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn bytes_that_went_through_a_connection_are_counted_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut receiver, _) = listener.accept().expect("accepted");
        sender.write_all(&[7; 100_000]).expect("sent");
        let mut buffer = vec![0; 100_000];
        receiver.read_exact(&mut buffer).expect("received");
        receiver.write_all(b"x").expect("answered");
        sender.read_exact(&mut buffer[..1]).expect("an answer");
        let (out, back) = (connection(&sender, 1).expect("TCP"), connection(&receiver, 2).expect("TCP"));
        assert_eq!((out.id, back.received_bytes, out.received_bytes), (1, 100_000, 1), "{out:?} {back:?}");
        assert!(out.sent_bytes >= 100_000, "{out:?}");
        let way = way(&sender).expect("TCP");
        assert!(way.resends == 0 && way.probes == 0 && way.acknowledged_ms < 20_000, "{way:?}");
        assert!(!way.has_unacknowledged, "{way:?}");
        assert!(out.rtt_min_us > 0 && out.rtt_min_us < 10_000_000 && out.window_bytes > 0, "{out:?}");
    }

    #[test]
    fn what_is_no_tcp_socket_has_no_counters() {
        assert_eq!(connection(std::fs::File::open("/dev/null").expect("is there"), 1), None);
    }
}
