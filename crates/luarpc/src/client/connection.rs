//! One connection of a client.

use super::CallOptions;
use crate::interface::Method;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::line;
use crate::lines::Lines;
use crate::value::Value;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use vazao_meter::{Clock, tcp_info};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// How long the end of a connection is waited for that the server is to close.
const CLOSE_MS_MAX: u64 = 50;

/// How long the reset of a connection is waited for that the server has closed: it is the answer to the request.
const RESET_MS_MAX: u64 = 1_000;

/// No port is free for a moment: it is tried again after this.
const NO_PORT_PAUSE: Duration = Duration::from_millis(10);

/// Why there is no answer.
pub(super) enum Lost {
    /// The server has answered with an error.
    Error(String),
    /// The server has not begun the call.
    Unbegun(String),
    /// The server may have begun it.
    Begun(String),
}

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    lines: Lines,
    line_bytes_max: usize,
    /// What the kernel counted as acknowledged before anything was sent.
    acknowledged_at_first: u64,
    sent_bytes: u64,
    /// Bytes of the present answer.
    received: usize,
    timeout_ms: u64,
    scratch: Vec<u8>,
    /// When the last answer had come.
    pub(super) answered_ns: u64,
}

fn remaining(clock: &dyn Clock, deadline_ns: u64) -> Duration {
    Duration::from_nanos(deadline_ns.saturating_sub(clock.now_ns()))
}

impl Connection {
    /// Connects. All errors are of calls that have not begun; they end the call, because the next attempt would meet
    /// them, too.
    pub(super) fn open(
        peer: &str,
        options: &CallOptions,
        clock: &dyn Clock,
        deadline_ns: u64,
    ) -> Result<Connection, Lost> {
        let stream = connect(peer, clock, deadline_ns).map_err(Lost::Unbegun)?;
        let timeout = options.timeout.max(Duration::from_millis(1));
        let prepared = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(timeout)))
            .and_then(|()| stream.set_write_timeout(Some(timeout)));
        prepared.map_err(|error| Lost::Unbegun(format!("the connection cannot be used: {error}")))?;
        let acknowledged_at_first = tcp_info::connection(&stream, 0).map_or(0, |info| info.sent_bytes);
        Ok(Connection {
            stream,
            lines: Lines::default(),
            line_bytes_max: options.line_bytes_max,
            acknowledged_at_first,
            sent_bytes: 0,
            received: 0,
            timeout_ms: timeout.as_millis() as u64,
            scratch: vec![0; READ_BYTES],
            answered_ns: 0,
        })
    }

    /// False when the server has closed it, or has sent what belongs to no call.
    pub(super) fn is_open(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(
            recv(&self.stream, &mut byte, flags),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
        )
    }

    /// True when the answer was read to its end and nothing came after it.
    pub(super) fn is_in_step(&self) -> bool {
        self.lines.kept() == 0
    }

    /// Sends a request.
    pub(super) fn send(&mut self, request: &[u8], clock: &dyn Clock, deadline_ns: u64) -> Result<(), Lost> {
        self.received = 0;
        let mut rest = request;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => {
                    self.sent_bytes += count as u64;
                    rest = rest.get(count..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A server cannot begin what it has not been sent the end of.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(Lost::Unbegun(self.too_late("the request could not be sent")));
                }
                Err(error) => return Err(self.unsent(&error)),
            }
            if !rest.is_empty() && clock.now_ns() > deadline_ns {
                return Err(Lost::Unbegun(self.too_late("the request could not be sent")));
            }
        }
        Ok(())
    }

    /// A server that refuses a request says so before it closes the connection.
    fn unsent(&mut self, error: &io::Error) -> Lost {
        let _ = self.stream.set_nonblocking(true);
        if let Ok(count) = self.stream.read(&mut self.scratch) {
            self.lines.push(&self.scratch[..count]);
            if let Ok(Some(place)) = self.lines.next(self.line_bytes_max)
                && let Some(text) = line::error_of(self.lines.line(place))
            {
                return Lost::Error(lossy(&text));
            }
        }
        Lost::Unbegun(format!("the connection ended before the request was sent: {error}"))
    }

    fn too_late(&self, what: &str) -> String {
        format!("{what} within {} ms; is the server overloaded, or stuck?", self.timeout_ms)
    }

    /// Receives the answer to a call.
    pub(super) fn receive(
        &mut self,
        method: &Method,
        clock: &dyn Clock,
        deadline_ns: u64,
    ) -> Result<Vec<Value>, Lost> {
        let mut values = Vec::with_capacity(1 + method.arguments.len());
        for (number, kind) in method.answered().enumerate() {
            let place = self.next_line(clock, deadline_ns)?;
            let line = self.lines.line(place);
            // An error takes the place of the result only: elsewhere the same bytes are a string.
            if number == 0
                && let Some(text) = line::error_of(line)
            {
                return Err(Lost::Error(lossy(&text)));
            }
            let (value, _) = line::read(line, kind).map_err(|unread| {
                let of = if number == 0 {
                    "the result".to_owned()
                } else {
                    format!("line {} of the answer", number + 1)
                };
                Lost::Begun(format!(
                    "{of} cannot be read as {}: {unread}; does the server have another interface?",
                    method.signature()
                ))
            })?;
            values.push(value);
        }
        self.lines.shrink(READ_BYTES);
        Ok(values)
    }

    fn next_line(&mut self, clock: &dyn Clock, deadline_ns: u64) -> Result<std::ops::Range<usize>, Lost> {
        loop {
            let found = self.lines.next(self.line_bytes_max).map_err(|too_long| {
                Lost::Begun(format!("{too_long} in the answer; does a server of this protocol listen there?"))
            })?;
            if let Some(place) = found {
                return Ok(place);
            }
            if self.received > MESSAGE_BYTES_MAX {
                return Err(Lost::Begun(format!("the answer has more than {MESSAGE_BYTES_MAX} bytes")));
            }
            self.read_more(clock, deadline_ns)?;
        }
    }

    fn read_more(&mut self, clock: &dyn Clock, deadline_ns: u64) -> Result<(), Lost> {
        // The first wait is bounded by the socket's own timeout; what is left is less than that for those after it.
        if self.received > 0 {
            self.wait(clock, deadline_ns)?;
        }
        match self.stream.read(&mut self.scratch) {
            Ok(0) => Err(self.ended(clock)),
            Ok(count) => {
                self.received += count;
                self.lines.push(&self.scratch[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(Lost::Begun(self.too_late("there was no answer")))
            }
            Err(error) => Err(Lost::Begun(format!("the connection broke before the answer: {error}"))),
        }
    }

    fn wait(&self, clock: &dyn Clock, deadline_ns: u64) -> Result<(), Lost> {
        let left = remaining(clock, deadline_ns);
        if left.is_zero() || !is_ready(&self.stream, PollFlags::IN, left) {
            return Err(Lost::Begun(self.too_late("there was only a part of the answer")));
        }
        Ok(())
    }

    /// The server has closed the connection before the answer was whole.
    fn ended(&self, clock: &dyn Clock) -> Lost {
        if self.received > 0 || self.lines.kept() > 0 {
            let rest = self.received;
            return Lost::Begun(format!(
                "the server closed the connection within its answer, after {rest} bytes"
            ));
        }
        if self.was_closed_before(clock) {
            return Lost::Unbegun("the server closes connections before they bring a request".to_owned());
        }
        Lost::Begun("the server closed the connection without an answer".to_owned())
    }

    /// True when the server had closed the connection before the end of the request reached it: the end of the
    /// connection has come, then a reset, and the end of the request was never acknowledged (RFC 9293, 3.6.1).
    fn was_closed_before(&self, clock: &dyn Clock) -> bool {
        let deadline_ns = clock.now_ns() + RESET_MS_MAX * 1_000_000;
        let all = self.acknowledged_at_first + self.sent_bytes;
        loop {
            // A reset ends all acknowledgements: it has to be seen before they are counted.
            let is_reset = is_ready(&self.stream, PollFlags::empty(), Duration::from_millis(5));
            let acknowledged = tcp_info::connection(&self.stream, 0).map_or(all, |info| info.sent_bytes);
            if acknowledged >= all {
                return false;
            }
            if is_reset {
                return true;
            }
            if clock.now_ns() > deadline_ns {
                return false;
            }
        }
    }

    /// True when the server closes the connection within a time, or sends what belongs to no call.
    pub(super) fn ends_within(&self, within: Duration) -> bool {
        is_ready(&self.stream, PollFlags::IN, within)
    }

    /// Waits a moment for the server to close. True when it does.
    pub(super) fn ends_soon(&self) -> bool {
        self.ends_within(Duration::from_millis(CLOSE_MS_MAX)) && !self.is_open()
    }

    /// Waits a moment for the server to close. If it does not, the connection is reset: it has nothing under way, and a
    /// closed connection that rests on this side would take a port from the next calls for a minute.
    pub(super) fn close(self) {
        if !self.ends_soon() {
            let _ = sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).trim_end().to_owned()
}

/// True when one of `flags`, an error or the end comes within the time.
fn is_ready(stream: &TcpStream, flags: PollFlags, within: Duration) -> bool {
    let mut fds = [PollFd::new(stream, flags)];
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    matches!(poll(&mut fds, Some(&timeout)), Ok(count) if count > 0)
}

fn connect(peer: &str, clock: &dyn Clock, deadline_ns: u64) -> Result<TcpStream, String> {
    let resolved = peer.to_socket_addrs();
    let addresses =
        resolved.map_err(|error| format!("{error}; write HOST:PORT, with a host that is known here"))?;
    let mut problem = "the name has no address".to_owned();
    for address in addresses {
        loop {
            let left = remaining(clock, deadline_ns);
            if left.is_zero() {
                return Err(format!("no connection in time: {problem}"));
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => return Ok(stream),
                // All ports rest after earlier connections: the first of them is free again soon.
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                    problem = format!("{address}: {error}");
                    clock.sleep(NO_PORT_PAUSE);
                }
                Err(error) => {
                    problem = refused(&address.to_string(), peer, &error);
                    break;
                }
            }
        }
    }
    Err(problem)
}

fn refused(address: &str, peer: &str, error: &io::Error) -> String {
    let at = if address == peer { String::new() } else { format!("{address}: ") };
    let remedy = match error.kind() {
        ErrorKind::ConnectionRefused => {
            return format!("{at}connection refused; is the server running, and is that its port?");
        }
        ErrorKind::TimedOut => "; is the address right, and does no firewall stand between?",
        _ => "",
    };
    format!("{at}{error}{remedy}")
}
