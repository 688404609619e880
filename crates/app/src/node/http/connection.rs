//! One HTTP connection: hears a request, sends its answer, rests until the next one.

use super::request::{self, Asked, Refused};
use super::{Page, Pages};
use crate::format::http_date;
use rustix::event::PollFlags;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use vazao_model::limits::{HTTP_HEAD_BYTES_MAX, HTTP_IDLE_MS_MAX, HTTP_MS_MAX, HTTP_REQUESTS_MAX};

/// A peer whose request was refused may still be sending its body: it would not see the answer of a connection that is
/// closed on it. So much of the body, for so long, is thrown away.
const DRAINED_BYTES_MAX: usize = 256 * 1024;
const DRAINED_MS_MAX: u32 = 1_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// A request is being waited for, after others.
    Resting,
    /// The first request has not come, or has come in part.
    Hearing,
    /// The answer is on its way.
    Answering,
    /// The last answer has left. How much was thrown away since.
    Draining(usize),
}

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// Its socket.
    For(PollFlags),
    /// Nothing: it has more to do, and lets others go first.
    Nothing,
}

/// The connection is over.
pub(super) struct Over;

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    state: State,
    /// Since when it is in this state.
    since_ns: u64,
    heard: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    /// The answer is the last one.
    is_last: bool,
    requests: u32,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, now_ns: u64) -> std::io::Result<Connection> {
        stream.set_nonblocking(true)?;
        let (heard, answer) = (Vec::new(), Vec::new());
        let (state, sent, is_last, requests) = (State::Hearing, 0, false, 0);
        Ok(Connection { stream, state, since_ns: now_ns, heard, answer, sent, is_last, requests })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Since when it has not finished anything.
    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// True when it has been in one state for too long.
    pub(super) fn is_late(&self, now_ns: u64) -> bool {
        let most_ms = match self.state {
            State::Resting => HTTP_IDLE_MS_MAX,
            State::Hearing | State::Answering => HTTP_MS_MAX,
            State::Draining(_) => DRAINED_MS_MAX,
        };
        now_ns.saturating_sub(self.since_ns) > u64::from(most_ms) * 1_000_000
    }

    fn enter(&mut self, state: State, now_ns: u64) {
        (self.state, self.since_ns) = (state, now_ns);
    }

    /// Does what can be done now, one request at most.
    pub(super) fn advance(&mut self, pages: &dyn Pages, now: Now) -> Result<Waits, Over> {
        if matches!(self.state, State::Resting | State::Hearing) {
            match request::parse(&self.heard) {
                Ok(None) => return self.hear(now.ns),
                Ok(Some((asked, length))) => {
                    self.heard.drain(..length);
                    self.take(&asked, pages, now);
                }
                Err(refused) => self.refuse(refused, now),
            }
        }
        match self.state {
            State::Draining(bytes) => self.drain(bytes),
            _ => self.send(now.ns),
        }
    }

    fn hear(&mut self, now_ns: u64) -> Result<Waits, Over> {
        let before = self.heard.len();
        let mut space = [0; 2048];
        let room = (HTTP_HEAD_BYTES_MAX - before.min(HTTP_HEAD_BYTES_MAX)).min(space.len());
        match self.stream.read(&mut space[..room]) {
            Ok(0) => Err(Over),
            Ok(count) => {
                self.heard.extend_from_slice(&space[..count]);
                if self.state == State::Resting {
                    self.enter(State::Hearing, now_ns);
                }
                Ok(Waits::Nothing)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Waits::Nothing),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Waits::For(PollFlags::IN)),
            Err(_) => Err(Over),
        }
    }

    fn take(&mut self, asked: &Asked, pages: &dyn Pages, now: Now) {
        self.requests += 1;
        self.is_last = !asked.keeps || self.requests >= HTTP_REQUESTS_MAX;
        // A page that cannot be made must not take the port with it.
        let made = catch_unwind(AssertUnwindSafe(|| pages.page(&asked.path)));
        let page = made.unwrap_or_else(|_| Page::text(500, "this page could not be made; see the log\n"));
        self.put(&page, asked.head_only, now);
    }

    fn refuse(&mut self, refused: Refused, now: Now) {
        self.is_last = true;
        self.heard = Vec::new();
        self.put(&Page::text(refused.status, &format!("{}\n", refused.why)), false, now);
    }

    fn put(&mut self, page: &Page, head_only: bool, now: Now) {
        let Page { status, content_type, body } = page;
        let (reason, length) = (reason(*status), body.len());
        let connection = if self.is_last { "close" } else { "keep-alive" };
        let allow = if *status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nDate: {}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             {allow}Connection: {connection}\r\n\r\n",
            http_date(now.wall_s),
        );
        self.answer = head.into_bytes();
        if !head_only {
            self.answer.extend_from_slice(body.as_bytes());
        }
        self.sent = 0;
        self.enter(State::Answering, now.ns);
    }

    fn send(&mut self, now_ns: u64) -> Result<Waits, Over> {
        while let Some(rest) = self.answer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Waits::For(PollFlags::OUT)),
                Err(_) => return Err(Over),
            }
        }
        self.answer = Vec::new();
        if self.is_last {
            // The peer hears that this was the last answer, and may go on to send.
            let _ = self.stream.shutdown(Shutdown::Write);
            self.enter(State::Draining(0), now_ns);
        } else {
            self.enter(if self.heard.is_empty() { State::Resting } else { State::Hearing }, now_ns);
        }
        Ok(Waits::Nothing)
    }

    fn drain(&mut self, bytes: usize) -> Result<Waits, Over> {
        match self.stream.read(&mut [0; 4096]) {
            Ok(0) => Err(Over),
            Ok(_) if bytes > DRAINED_BYTES_MAX => Err(Over),
            Ok(count) => {
                self.state = State::Draining(bytes + count);
                Ok(Waits::Nothing)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Waits::Nothing),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Waits::For(PollFlags::IN)),
            Err(_) => Err(Over),
        }
    }
}

/// The time, for waits and for people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) ns: u64,
    pub(super) wall_s: i64,
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
