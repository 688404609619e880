//! One connection of the server: takes requests in, gives answers out. It never waits.

use super::answer;
use super::event_loop::Parts;
use super::options::Statistics;
use super::service::Session;
use super::workers::Outcome;
use crate::client::Profile;
use crate::interface::Method;
use crate::limits::{CONNECTION_BYTES_FREE, DRAINED_BYTES_MAX, DRAINED_MS_MAX};
use crate::line::{self, CharForm, shown};
use crate::lines::{Lines, without_return};
use crate::value::{Kind, Value};
use rustix::event::epoll::EventFlags;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

/// Memory of a connection that rests.
const RESTING_BYTES: usize = 8 * 1024;

/// What a connection does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Waits for a request or the rest of one.
    Hearing,
    /// A worker carries out its call.
    Calling,
    /// The peer has yet to take the answer.
    Answering,
    /// The last answer has left; what still comes is thrown away. How much was.
    Draining(usize),
}

/// A request of which not all lines have come.
#[derive(Debug)]
struct Request {
    /// Its place in the interface.
    method: usize,
    arguments: Vec<Value>,
    /// What is wrong with one of its lines. The others are read all the same: the next request begins after them.
    problem: Option<String>,
    bytes: usize,
}

/// The connection is over.
pub(super) struct Over;

/// What is to be done next.
pub(super) enum Step {
    /// Nothing until the socket is ready.
    Rest,
    /// A worker is to carry out this call.
    Call { method: usize, arguments: Vec<Value> },
}

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    pub(super) peer: SocketAddr,
    state: State,
    /// Since when it has finished nothing.
    since_ns: u64,
    /// Since when the present request comes in.
    request_since_ns: Option<u64>,
    has_answered: bool,
    lines: Lines,
    request: Option<Request>,
    /// `None` while a worker has it.
    session: Option<Box<dyn Session>>,
    form: CharForm,
    answer: Vec<u8>,
    sent: usize,
    is_last: bool,
    /// The peer sends nothing more.
    is_ended: bool,
    /// The peer has gone while its call is carried out.
    pub(super) is_gone: bool,
    /// What it is known to the event loop to hold and to wait for.
    pub(super) counted_bytes: usize,
    pub(super) interest: EventFlags,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        session: Box<dyn Session>,
        now_ns: u64,
    ) -> std::io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            peer,
            state: State::Hearing,
            since_ns: now_ns,
            request_since_ns: None,
            has_answered: false,
            lines: Lines::default(),
            request: None,
            session: Some(session),
            form: CharForm::default(),
            answer: Vec::new(),
            sent: 0,
            is_last: false,
            is_ended: false,
            is_gone: false,
            counted_bytes: 0,
            interest: EventFlags::IN,
        })
    }

    /// Which connections make room first: those that have never finished a request, then those that rest the longest.
    /// `None` for one whose call is being carried out.
    pub(super) fn rank(&self) -> Option<(bool, u64)> {
        (self.state != State::Calling).then_some((self.has_answered, self.since_ns))
    }

    /// True when a request lies in the socket: the peer would not know whether it was begun.
    pub(super) fn has_unread(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        self.state == State::Hearing
            && matches!(rustix::net::recv(&self.stream, &mut byte, flags), Ok((1.., _)))
    }

    /// What the socket is waited for.
    pub(super) fn wants(&self) -> EventFlags {
        match self.state {
            State::Hearing if self.is_ended => EventFlags::empty(),
            State::Hearing | State::Draining(_) => EventFlags::IN,
            State::Calling => EventFlags::empty(),
            State::Answering => EventFlags::OUT,
        }
    }

    /// Bytes that it keeps.
    pub(super) fn held_bytes(&self) -> usize {
        let arguments = self.request.as_ref().map_or(0, |request| request.bytes);
        self.lines.capacity() + arguments + self.answer.capacity()
    }

    /// True while a call is carried out, when nothing is read.
    pub(super) fn is_calling(&self) -> bool {
        self.state == State::Calling
    }

    /// Ends what takes too long. A peer that has sent a part of a request is told so.
    pub(super) fn look_at_time(
        &mut self,
        parts: &Parts,
        statistics: &Statistics,
        now_ns: u64,
    ) -> Result<(), Over> {
        let is_over = |since_ns: u64, most_ms: u64| now_ns.saturating_sub(since_ns) > most_ms * 1_000_000;
        match self.state {
            State::Calling => Ok(()),
            State::Draining(_) if is_over(self.since_ns, u64::from(DRAINED_MS_MAX)) => Err(Over),
            State::Answering if is_over(self.since_ns, parts.options.transfer_ms_max) => Err(Over),
            State::Hearing => match self.request_since_ns {
                Some(since_ns) if is_over(since_ns, parts.options.transfer_ms_max) => {
                    let problem =
                        self.unfinished(parts, &format!("within {} ms", parts.options.transfer_ms_max));
                    self.refuse(&problem, statistics, now_ns)
                }
                // One that has never asked for anything has no reason to rest.
                None if !self.has_answered && is_over(self.since_ns, parts.options.transfer_ms_max) => {
                    Err(Over)
                }
                None if is_over(self.since_ns, parts.options.idle_ms_max) => Err(Over),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn unfinished(&self, parts: &Parts, when: &str) -> String {
        match self
            .request
            .as_ref()
            .and_then(|request| Some((request, parts.interface.methods.get(request.method)?)))
        {
            Some((request, method)) => format!(
                "{} takes {} lines of arguments, and {} came {when}; has the caller another interface?",
                method.signature(),
                method.sent().count(),
                request.arguments.len()
            ),
            None => format!("the request came in part only {when}; it is lines that end with a line feed"),
        }
    }

    /// Reads once, when the socket is ready, and takes what came.
    pub(super) fn read(
        &mut self,
        scratch: &mut [u8],
        parts: &Parts,
        statistics: &Statistics,
        now_ns: u64,
    ) -> Result<Step, Over> {
        match self.stream.read(scratch) {
            Ok(0) => self.end(parts, statistics, now_ns),
            Ok(count) => self.take(scratch.get(..count).unwrap_or_default(), parts, statistics, now_ns),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(Step::Rest)
            }
            Err(_) => Err(Over),
        }
    }

    fn take(
        &mut self,
        bytes: &[u8],
        parts: &Parts,
        statistics: &Statistics,
        now_ns: u64,
    ) -> Result<Step, Over> {
        if let State::Draining(drained) = self.state {
            if drained > DRAINED_BYTES_MAX {
                return Err(Over);
            }
            self.state = State::Draining(drained + bytes.len());
            return Ok(Step::Rest);
        }
        if self.request_since_ns.is_none() {
            self.request_since_ns = Some(now_ns);
        }
        self.lines.push(bytes);
        self.advance(parts, statistics, now_ns)
    }

    /// The peer sends nothing more. It may still read.
    fn end(&mut self, parts: &Parts, statistics: &Statistics, now_ns: u64) -> Result<Step, Over> {
        if self.state != State::Hearing || (self.request.is_none() && self.lines.kept() == 0) {
            return Err(Over);
        }
        self.is_ended = true;
        let problem = self.unfinished(parts, "before the end of the connection");
        self.refuse(&problem, statistics, now_ns)?;
        Ok(Step::Rest)
    }

    /// Takes lines until a call has to be carried out elsewhere, an answer does not get away, or no line is whole.
    pub(super) fn advance(
        &mut self,
        parts: &Parts,
        statistics: &Statistics,
        now_ns: u64,
    ) -> Result<Step, Over> {
        while self.state == State::Hearing {
            let place = match self.lines.next(parts.options.line_bytes_max) {
                Ok(Some(place)) => place,
                Ok(None) => {
                    self.lines.shrink(RESTING_BYTES);
                    if self.request.is_none() && self.lines.kept() == 0 {
                        self.request_since_ns = None;
                    }
                    return self.check_memory(parts, statistics, now_ns);
                }
                Err(too_long) => {
                    let problem = format!("{too_long}, the most that this server reads; send less at once");
                    self.refuse(&problem, statistics, now_ns)?;
                    return Ok(Step::Rest);
                }
            };
            if let Err(problem) = self.take_line(place, parts) {
                self.refuse(&problem, statistics, now_ns)?;
                return Ok(Step::Rest);
            }
            if let Some(step) = self.begin(parts, statistics, now_ns)? {
                return Ok(step);
            }
        }
        Ok(Step::Rest)
    }

    /// Takes a line into the present request. An error ends the connection: where the next request begins is unknown.
    fn take_line(&mut self, place: std::ops::Range<usize>, parts: &Parts) -> Result<(), String> {
        let line = self.lines.line(place);
        let Some(request) = &mut self.request else {
            let name = without_return(line);
            let found = parts.interface.methods.iter().position(|method| method.name.as_bytes() == name);
            let method = found.ok_or_else(|| {
                format!(
                    "the interface {} has no method {}; it has {}. Or the call before had more arguments than this side knows",
                    parts.interface.shown_name(),
                    shown(name),
                    parts.interface.method_names()
                )
            })?;
            self.request = Some(Request { method, arguments: Vec::new(), problem: None, bytes: line.len() });
            return Ok(());
        };
        let Some(method) = parts.interface.methods.get(request.method) else { return Ok(()) };
        request.bytes += line.len();
        if request.bytes > parts.options.message_bytes_max {
            let most = parts.options.message_bytes_max;
            return Err(format!("{}: the request has more than {most} bytes; send it in parts", method.name));
        }
        let number = request.arguments.len();
        let Some(kind) = method.sent().nth(number) else { return Ok(()) };
        match read_argument(line, kind) {
            Ok((value, form)) => {
                self.form = form.unwrap_or(self.form);
                request.arguments.push(value);
            }
            Err(what) => {
                let problem = format!("{}: argument {}: {what}", method.signature(), number + 1);
                request.problem.get_or_insert(problem);
                request.arguments.push(Value::Nil);
            }
        }
        Ok(())
    }

    /// Begins the present request when its last line has come. `None` when it has not, or is answered already.
    fn begin(&mut self, parts: &Parts, statistics: &Statistics, now_ns: u64) -> Result<Option<Step>, Over> {
        let Some(request) = &self.request else { return Ok(None) };
        let Some(method) = parts.interface.methods.get(request.method) else { return Ok(None) };
        if request.arguments.len() < method.sent().count() {
            return Ok(None);
        }
        let Some(Request { method: number, arguments, problem, .. }) = self.request.take() else {
            return Ok(None);
        };
        if let Some(problem) = problem {
            self.give(method, &Err(problem), parts, statistics, now_ns)?;
            return Ok(None);
        }
        if !parts.service.is_quick(&method.name) {
            self.state = State::Calling;
            return Ok(Some(Step::Call { method: number, arguments }));
        }
        let Some(session) = &mut self.session else { return Err(Over) };
        let outcome = super::workers::carry_out(&mut **session, &method.name, arguments);
        self.give(method, &outcome, parts, statistics, now_ns)?;
        Ok(None)
    }

    /// The session, for a worker.
    pub(super) fn lend_session(&mut self) -> Option<Box<dyn Session>> {
        self.session.take()
    }

    /// A worker has carried out the call.
    pub(super) fn done(
        &mut self,
        session: Box<dyn Session>,
        method: &Method,
        outcome: &Outcome,
        parts: &Parts,
        statistics: &Statistics,
        now_ns: u64,
    ) -> Result<Step, Over> {
        self.session = Some(session);
        self.give(method, outcome, parts, statistics, now_ns)?;
        self.advance(parts, statistics, now_ns)
    }

    fn give(
        &mut self,
        method: &Method,
        outcome: &Outcome,
        parts: &Parts,
        statistics: &Statistics,
        now_ns: u64,
    ) -> Result<(), Over> {
        let is_good = answer::write(method, outcome, self.form, &parts.options, &mut self.answer);
        statistics.calls.fetch_add(1, Ordering::Relaxed);
        statistics.errors.fetch_add(u64::from(!is_good), Ordering::Relaxed);
        self.is_last = parts.options.profile == Profile::Close;
        self.has_answered = true;
        self.start_answer(now_ns)
    }

    /// Answers with an error after which the connection ends.
    fn refuse(&mut self, problem: &str, statistics: &Statistics, now_ns: u64) -> Result<(), Over> {
        tracing::debug!(peer = %self.peer, problem, "a remote call was refused");
        (self.request, self.lines) = (None, Lines::default());
        line::write_error(problem, &mut self.answer);
        statistics.calls.fetch_add(1, Ordering::Relaxed);
        statistics.errors.fetch_add(1, Ordering::Relaxed);
        self.is_last = true;
        self.start_answer(now_ns)
    }

    fn start_answer(&mut self, now_ns: u64) -> Result<(), Over> {
        self.state = State::Answering;
        (self.since_ns, self.request_since_ns) = (now_ns, (self.lines.kept() > 0).then_some(now_ns));
        self.send(now_ns)
    }

    /// Sends what the peer takes of the answer.
    pub(super) fn send(&mut self, now_ns: u64) -> Result<(), Over> {
        while let Some(rest) = self.answer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Over),
            }
        }
        self.answer.clear();
        self.answer.shrink_to(RESTING_BYTES);
        (self.sent, self.since_ns) = (0, now_ns);
        self.state = State::Hearing;
        if self.is_last {
            // The peer sees that this was the last answer. Closing at once would reset the connection when more has
            // come, and could take the answer with it.
            let _ = self.stream.shutdown(Shutdown::Write);
            self.state = State::Draining(0);
            if self.is_ended {
                return Err(Over);
            }
        }
        Ok(())
    }

    /// A request that grows while all connections together keep too much is refused; small ones always get in.
    fn check_memory(&mut self, parts: &Parts, statistics: &Statistics, now_ns: u64) -> Result<Step, Over> {
        let held = self.held_bytes();
        let others = statistics.memory_bytes().saturating_sub(self.counted_bytes as u64);
        if held > CONNECTION_BYTES_FREE.max(RESTING_BYTES)
            && others + held as u64 > parts.options.memory_bytes_max as u64
        {
            let most = parts.options.memory_bytes_max;
            let problem =
                format!("the server keeps {most} bytes of unfinished requests, its limit; try again later");
            self.refuse(&problem, statistics, now_ns)?;
        }
        Ok(Step::Rest)
    }
}

fn read_argument(line: &[u8], kind: Kind) -> Result<(Value, Option<CharForm>), String> {
    let (value, form) = line::read(line, kind).map_err(|unread| unread.to_string())?;
    if !value.is(kind) {
        let wanted = if kind == Kind::Double { "decimal number".to_owned() } else { kind.to_string() };
        return Err(format!("nil is no {wanted}; give a value"));
    }
    Ok((value, form))
}
