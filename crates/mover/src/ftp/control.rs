//! A control connection: lines in both directions, with limits and deadlines; and waiting for sockets in general.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use vazao_meter::{Clock, Occupancy};
use vazao_model::Code;
use vazao_wire::service::Fault;

/// Bytes of one line: a path of 4,096 bytes with its command, or a listing's facts before such a name.
const LINE_BYTES_MAX: usize = 8192;

/// A request to stop is noticed this often.
const TICK_NS: u64 = 50_000_000;

/// What is asked for every time something is waited for.
pub type Check = Arc<dyn Fn(u64) -> Result<(), Fault> + Send + Sync>;

/// How long to wait, and for whom to stop.
#[derive(Clone)]
pub struct Waits {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Fails, given the time, when one is to stop.
    pub check: Check,
    /// A connection stands within this.
    pub connect_ms: u32,
    /// Something comes or goes within this.
    pub silent_ms: u32,
    /// Sessions that wait for an answer on their control connection.
    pub answers: Arc<Occupancy>,
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waits({} ms, {} ms)", self.connect_ms, self.silent_ms)
    }
}

impl Waits {
    /// When a wait of `milliseconds` that begins now is over.
    pub(crate) fn until_ns(&self, milliseconds: u32) -> u64 {
        self.clock.now_ns() + u64::from(milliseconds) * 1_000_000
    }

    /// Waits for a socket. Errors: one is to stop; `Timeout` without a text.
    pub(crate) fn ready(
        &self,
        socket: &impl rustix::fd::AsFd,
        flags: PollFlags,
        until_ns: u64,
    ) -> Result<(), Fault> {
        loop {
            let now_ns = self.clock.now_ns();
            (self.check)(now_ns)?;
            if now_ns >= until_ns {
                return Err(Fault::new(Code::Timeout, ""));
            }
            let wait_ns = (until_ns - now_ns).min(TICK_NS);
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait_ns as i64 };
            // An interrupted wait is one that ended early.
            if matches!(poll(&mut [PollFd::new(socket, flags)], Some(&timeout)), Ok(count) if count > 0) {
                return Ok(());
            }
        }
    }
}

/// What has been heard, cut into lines. How it was cut into packets does not matter.
#[derive(Debug, Default)]
pub(super) struct Lines {
    heard: Vec<u8>,
    is_ended: bool,
}

impl Lines {
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self) {
        self.is_ended = true;
    }

    fn wants_more(&self) -> bool {
        self.heard.len() <= LINE_BYTES_MAX && !self.is_ended
    }

    /// The next line without its end; `None` where it has not come yet. Errors: it never ends; the connection ended,
    /// which whatever came of the line before that does not change.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        match self.take() {
            Some(line) => Ok(Some(line)),
            None if self.heard.len() > LINE_BYTES_MAX => {
                Err(Fault::new(Code::BadRequest, format!("a line of more than {LINE_BYTES_MAX} bytes")))
            }
            None if self.is_ended => Err(Fault::new(Code::Disconnected, "closed the connection")),
            None => Ok(None),
        }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let end = self.heard.iter().position(|&byte| byte == b'\n').filter(|&end| end <= LINE_BYTES_MAX)?;
        let mut line: Vec<u8> = self.heard.drain(..=end).collect();
        line.pop();
        while line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(line)
    }
}

/// A control connection; its socket does not block.
#[derive(Debug)]
pub(crate) struct Control {
    socket: TcpStream,
    lines: Lines,
}

impl Control {
    pub(crate) fn new(socket: TcpStream) -> std::io::Result<Control> {
        socket.set_nonblocking(true)?;
        // Lines wait for one another: none is to wait for more bytes.
        let _ = socket.set_nodelay(true);
        Ok(Control { socket, lines: Lines::default() })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Takes in what has come, without waiting.
    fn fill(&mut self) {
        let mut bytes = [0; 4096];
        while self.lines.wants_more() {
            match self.socket.read(&mut bytes) {
                Ok(0) => self.lines.end(),
                Ok(count) => self.lines.hear(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // What came before a reset is still to be read: it says why, as a rule.
                Err(_) => self.lines.end(),
            }
        }
    }

    /// The next line without its end, where one is there already.
    pub(crate) fn try_line(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(line) = self.lines.take() {
            return Ok(Some(line));
        }
        self.fill();
        self.lines.next()
    }

    /// The next line.
    pub(crate) fn line(&mut self, waits: &Waits, until_ns: u64) -> Result<Vec<u8>, Fault> {
        loop {
            if let Some(line) = self.try_line()? {
                return Ok(line);
            }
            waits.answers.enter(waits.clock.now_ns());
            let ready = waits.ready(&self.socket, PollFlags::IN, until_ns);
            waits.answers.leave(waits.clock.now_ns());
            ready?;
        }
    }

    /// Sends bytes that end with a line's end.
    pub(crate) fn send(&mut self, bytes: &[u8], waits: &Waits, until_ns: u64) -> Result<(), Fault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    waits.ready(&self.socket, PollFlags::OUT, until_ns)?;
                }
                Err(error) => return Err(Fault::new(Code::Disconnected, error.to_string())),
            }
        }
        Ok(())
    }
}
