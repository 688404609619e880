//! Connecting over TCP with a cancellable wait, and detecting dead paths: keep-alive and unacknowledged data.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_meter::tcp_info;
use vazao_model::limits::{PROBE_MS, PROBES_MAX, UNACKNOWLEDGED_MS_MAX};

/// Interval at which a wait checks for cancellation.
const LOOK_NS: u64 = 100_000_000;

/// Interval between keep-alive probes of an idle connection.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Connects to `place` by `deadline_ns`, unless `is_over` says that the connection is no longer wanted.
pub(super) fn dial(
    place: SocketAddr,
    clock: &dyn Clock,
    deadline_ns: u64,
    mut is_over: impl FnMut() -> bool,
) -> io::Result<TcpStream> {
    let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &place) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    loop {
        let left_ns = deadline_ns.saturating_sub(clock.now_ns());
        let timeout = Timespec { tv_sec: 0, tv_nsec: left_ns.min(LOOK_NS) as i64 };
        match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&timeout)) {
            Ok(count) if count > 0 => break,
            Ok(_) | Err(Errno::INTR) if is_over() => return Err(ErrorKind::Interrupted.into()),
            Ok(_) | Err(Errno::INTR) if left_ns == 0 => return Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    sockopt::socket_error(&socket)??;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    refuse_itself(&stream)?;
    stream.set_nodelay(true)?;
    probe_way(&stream)?;
    Ok(stream)
}

/// Refuses a TCP self-connection. When nothing listens on a port of this machine, the kernel may choose that very
/// port as the client's source port, and TCP then connects the socket to itself. Requests over it would never be
/// answered, and the restarted server would find its port taken.
pub(super) fn refuse_itself(stream: &TcpStream) -> io::Result<()> {
    match stream.local_addr()? == stream.peer_addr()? {
        true => Err(ErrorKind::ConnectionRefused.into()),
        false => Ok(()),
    }
}

/// Has the kernel probe an idle connection, and give it up when the probes are not acknowledged. Without probes a
/// lost answer is retransmitted only minutes after an outage. A busy peer acknowledges probes. Unacknowledged data
/// keeps the kernel from probing: see [`is_way_lost`].
pub fn probe_way(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_millis(u64::from(PROBE_MS)))?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, PROBES_MAX)?)
}

/// Whether sent data has been unacknowledged by the peer's machine for [`UNACKNOWLEDGED_MS_MAX`] at least. TCP's own
/// exponential backoff leaves a restored network unused for as long as the outage was; a new connection uses it at
/// once. `TCP_USER_TIMEOUT` would not do: it also ends connections to servers that are busy and do not read (tcp(7)),
/// whose machines acknowledge all the same.
pub fn is_way_lost(stream: &TcpStream) -> bool {
    // The kernel's own probe of a closed window may be on its way at this moment.
    const PROBES_MIN: u8 = 2;
    tcp_info::way(stream).is_some_and(|way| {
        let is_tried = way.resends > 0 || way.probes >= PROBES_MIN;
        is_tried && way.acknowledged_ms >= UNACKNOWLEDGED_MS_MAX
    })
}
