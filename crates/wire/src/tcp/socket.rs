//! A connection's socket: TCP, or on one machine a Unix socket, over which the same frames travel.
//!
//! Over loopback TCP a small request and its answer take 1.4 times as long. A server that wants to be reached by Unix
//! sockets as well has a thread for each core, bound to it, and for each of them an *entrance*: a name in the abstract
//! namespace, made from the address it listens on. A client on the same machine goes in by the entrance of the core it
//! runs on: where it stays on that core, neither of the two has to wake another one, which takes longer than everything
//! else that a short request does (docs/decisions/local-entrances.md).

use super::dial::is_way_lost;
use super::pacing;
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recv,
    shutdown, socket_with, sockopt,
};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use vazao_meter::tcp_info;

/// A machine with more cores has entrances for the first ones of each such number.
pub(super) const ENTRANCES_MAX: usize = 64;

/// Connections that may wait to be accepted at one entrance.
const BACKLOG: i32 = 128;

/// A connected socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Local(UnixStream),
}

impl Socket {
    /// Ends it in both directions; the descriptor stays open until the last user lets go.
    pub(super) fn shut_down(&self) {
        // It may have been ended by the peer.
        let _ = shutdown(self, Shutdown::Both);
    }

    /// Has its end throw away what the peer has not taken, instead of the kernel keeping it.
    pub(super) fn abort(&self) {
        // Where that cannot be had it ends as others do.
        let _ = sockopt::set_socket_linger(self, Some(Duration::ZERO));
    }

    /// Bytes that the peer's machine has acknowledged; `None` for a Unix socket, which has no such counter.
    pub(super) fn taken_bytes(&self) -> Option<u64> {
        tcp_info::connection(self.tcp()?, 0).map(|connection| connection.sent_bytes)
    }

    /// The shortest time in which the peer's machine has acknowledged something; 0 for a Unix socket.
    pub(super) fn distance_ns(&self) -> u64 {
        let connection = self.tcp().and_then(|tcp| tcp_info::connection(tcp, 0));
        connection.map_or(0, |connection| u64::from(connection.rtt_min_us) * 1_000)
    }

    /// Whether the kernel keeps bytes that the peer's machine has not acknowledged; false for a Unix socket, which
    /// has no such counter.
    pub(super) fn has_untaken(&self) -> bool {
        self.tcp().and_then(tcp_info::way).is_some_and(|way| way.has_unacknowledged)
    }

    /// Whether bytes that the peer has sent have not been received yet.
    pub(super) fn has_unread(&self) -> bool {
        let looked = recv(self, &mut [0u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        looked.is_ok_and(|(_, received)| received > 0)
    }

    /// Whether nothing gets through to the peer any more. Within one machine everything does.
    pub(super) fn is_way_lost(&self) -> bool {
        self.tcp().is_some_and(is_way_lost)
    }

    /// Has the kernel send so many bytes a second at most; within one machine it does not matter.
    pub(super) fn pace(&self, bytes_per_s: u64) {
        if let Some(stream) = self.tcp() {
            pacing::set(stream, bytes_per_s);
        }
    }

    /// Limits how long a receive that waits does so.
    pub(super) fn limit_receives(&self, limit: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(Some(limit)),
            Socket::Local(stream) => stream.set_read_timeout(Some(limit)),
        }
    }

    /// The peer's address; a peer on this machine has none.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Socket::Tcp(stream) => stream.peer_addr().ok(),
            Socket::Local(_) => None,
        }
    }

    /// The TCP connection, where it is one.
    pub(super) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Socket::Tcp(stream) => Some(stream),
            Socket::Local(_) => None,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Local(stream) => stream.as_fd(),
        }
    }
}

/// Number of entrances: one for each core this process may use.
pub(super) fn entrances() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(ENTRANCES_MAX)
}

/// The core that the caller runs on at the moment.
pub(super) fn current_core() -> usize {
    sched_getcpu()
}

/// The name of entrance `number` to the server that listens on `address`.
fn name(address: SocketAddr, number: usize) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("vazao-{address}-{number}").as_bytes())?)
}

fn unix_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)?)
}

/// Opens entrance `number` to the server that listens on `address`.
pub(super) fn open_entrance(address: SocketAddr, number: usize) -> io::Result<OwnedFd> {
    let listener = unix_socket(SocketFlags::NONBLOCK)?;
    bind(&listener, &name(address, number)?)?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Goes in by entrance `number` of the server at the other end of `stream`, if that is on this machine and has one.
pub(super) fn enter(stream: &TcpStream, number: usize) -> Option<UnixStream> {
    let (own, peer) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    if own.ip() != peer.ip() {
        return None;
    }
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let listened = [peer.ip(), any[0], any[1]].map(|ip| SocketAddr::new(ip, peer.port()));
    // A server that may use fewer cores than its client has fewer entrances.
    let names = [number, 0].into_iter().flat_map(|number| listened.map(|address| name(address, number)));
    names.flatten().find_map(|name| {
        // Not to wait at a door whose queue is full.
        let socket = unix_socket(SocketFlags::NONBLOCK).ok()?;
        connect(&socket, &name).ok()?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false).ok().map(|()| stream)
    })
}

/// Binds the calling thread to a core; where that is not allowed, or the core is off, it runs anywhere.
pub(super) fn bind_to(core: usize) {
    let mut cores = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return;
    }
    cores.set(core);
    if let Err(error) = sched_setaffinity(None, &cores) {
        tracing::debug!(core, "cannot bind the thread of this core's entrance to the core: {error}");
    }
}

/// What of these parts follows their first `sent` bytes.
pub(super) fn rest_of<'a>(parts: [&'a [u8]; 3], sent: usize) -> [IoSlice<'a>; 3] {
    let mut skip = sent;
    parts.map(|part| {
        let skipped = skip.min(part.len());
        skip -= skipped;
        IoSlice::new(&part[skipped..])
    })
}
