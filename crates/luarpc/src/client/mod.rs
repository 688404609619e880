//! Calls methods of a server, over one connection at a time.
//!
//! # When a request is sent again
//!
//! Only when the server has certainly not begun it; otherwise a call that changes something could be carried out twice.
//! That is known when the connection could not be made, when it was seen to be closed before the request was sent, and
//! when the server had closed it already while the request was on its way: its end was received, then a reset, and its
//! kernel never acknowledged the last byte of the request. A server needs that byte to begin. So a server whose pool
//! has closed the oldest connection makes no call fail.
//!
//! A server that closes after each answer could be sent the next request before its end is seen, and then resets the
//! connection, which proves nothing. The client finds out which kind of server it has: it gives it a moment before the
//! second call, once, and waits for the end of each connection when the first one ended.

mod connection;

use crate::interface::{Interface, Method};
use crate::limits::{LINE_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::line::{self, CharForm};
use crate::value::{Kind, Value};
use connection::{Connection, Lost};
use std::sync::Arc;
use std::time::Duration;
use vazao_meter::Clock;

/// How often one call is sent at most: twice into connections that were being closed, and then once more.
const ATTEMPTS_MAX: u32 = 3;

/// How long after the first answer a server may take to close the connection, if it is one that closes.
const FIRST_CLOSE_MS_MAX: u64 = 20;

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// It is closed: the server closes, and the client waits for that, so that the closed connection rests on the
    /// server's side and takes no port of the client's.
    Close,
    /// It stays for the next call.
    #[default]
    Keepalive,
}

/// How a client calls.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// What becomes of the connection after an answer.
    pub profile: Profile,
    /// How long a call may take, connecting included.
    pub timeout: Duration,
    /// How characters are sent.
    pub chars: CharForm,
    /// Bytes of a line of an answer.
    pub line_bytes_max: usize,
}

impl Default for CallOptions {
    fn default() -> CallOptions {
        CallOptions {
            profile: Profile::default(),
            timeout: Duration::from_secs(30),
            chars: CharForm::default(),
            line_bytes_max: LINE_BYTES_MAX,
        }
    }
}

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Report {
    /// The interface has no such method.
    #[error("the interface {interface} has no method {method}; it has {methods}")]
    NoMethod {
        /// The interface.
        interface: String,
        /// What was called.
        method: String,
        /// What could have been.
        methods: String,
    },
    /// Too few arguments, or too many.
    #[error(
        "{signature} takes {expected} arguments, and {given} were given; those that are out come back and are not given"
    )]
    Count {
        /// The method.
        signature: String,
        /// How many it takes.
        expected: usize,
        /// How many there were.
        given: usize,
    },
    /// An argument of another type.
    #[error("{signature}: argument {number} has to be a {expected}, and is a {given}")]
    Type {
        /// The method.
        signature: String,
        /// Which one, from 1.
        number: usize,
        /// Its type.
        expected: Kind,
        /// The type of what was given.
        given: Kind,
    },
    /// A number that has no form on a line.
    #[error("{signature}: argument {number} is not finite; such a number cannot be sent")]
    NotFinite {
        /// The method.
        signature: String,
        /// Which one, from 1.
        number: usize,
    },
    /// A request of more bytes than any server reads.
    #[error(
        "{method}: the arguments have {bytes} bytes as lines, more than {MESSAGE_BYTES_MAX}; send them in parts"
    )]
    TooLong {
        /// The method.
        method: String,
        /// How many.
        bytes: usize,
    },
    /// The server has answered with an error.
    #[error("{peer}, {method}: {text}")]
    Remote {
        /// The server.
        peer: String,
        /// What was called.
        method: String,
        /// What it says.
        text: String,
    },
    /// There was no answer, or none that can be read.
    #[error("{peer}, {method}: {what}")]
    Network {
        /// The server.
        peer: String,
        /// What was called.
        method: String,
        /// What went wrong, and what can be done.
        what: String,
        /// True when the server may have begun the call.
        may_have_begun: bool,
    },
}

/// Calls the methods of one server.
pub struct Client {
    /// `host:port`, as it was given.
    peer: String,
    interface: Arc<Interface>,
    options: CallOptions,
    clock: Arc<dyn Clock>,
    connection: Option<Connection>,
    /// Whether the server closes after an answer; `None` until it was seen.
    server_closes: Option<bool>,
    request: Vec<u8>,
}

impl Client {
    /// A client of the server at `peer` (`host:port`). It connects at the first call.
    pub fn new(peer: &str, interface: Arc<Interface>, options: CallOptions, clock: Arc<dyn Clock>) -> Client {
        let (connection, server_closes, request) = (None, None, Vec::new());
        Client { peer: peer.to_owned(), interface, options, clock, connection, server_closes, request }
    }

    /// The interface that it calls by.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Calls a method with its `in` and `inout` arguments, in order. Returns the result and then the `out` and `inout`
    /// arguments; [`Value::Nil`] stands for a result that the server has left out.
    pub fn call(&mut self, method: &str, arguments: &[Value]) -> Result<Vec<Value>, Report> {
        let interface = Arc::clone(&self.interface);
        let Some(method) = interface.method(method.as_bytes()) else {
            return Err(Report::NoMethod {
                interface: interface.shown_name().to_owned(),
                method: method.to_owned(),
                methods: interface.method_names(),
            });
        };
        check(method, arguments)?;
        self.request.clear();
        self.request.extend_from_slice(method.name.as_bytes());
        self.request.push(b'\n');
        arguments.iter().for_each(|argument| line::write(argument, self.options.chars, &mut self.request));
        if self.request.len() > MESSAGE_BYTES_MAX {
            return Err(Report::TooLong { method: method.name.clone(), bytes: self.request.len() });
        }
        self.exchange(method)
    }

    fn exchange(&mut self, method: &Method) -> Result<Vec<Value>, Report> {
        let timeout_ns = self.options.timeout.as_nanos().min(u128::from(u64::MAX / 2)) as u64;
        let deadline_ns = self.clock.now_ns() + timeout_ns;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let lost = match self.attempt(method, deadline_ns) {
                Ok(values) => return Ok(values),
                Err(lost) => lost,
            };
            match lost {
                Lost::Error(text) => {
                    let (peer, method) = (self.peer.clone(), method.name.clone());
                    return Err(Report::Remote { peer, method, text });
                }
                Lost::Unbegun(_) if attempts < ATTEMPTS_MAX && self.clock.now_ns() < deadline_ns => {}
                Lost::Unbegun(what) => return Err(self.network(method, what, false)),
                Lost::Begun(what) => return Err(self.network(method, what, true)),
            }
        }
    }

    fn network(&self, method: &Method, what: String, may_have_begun: bool) -> Report {
        let doubt = if may_have_begun { "; the server may have carried it out" } else { "" };
        let what = format!("{what}{doubt}");
        Report::Network { peer: self.peer.clone(), method: method.name.clone(), what, may_have_begun }
    }

    fn attempt(&mut self, method: &Method, deadline_ns: u64) -> Result<Vec<Value>, Lost> {
        let mut connection = match self.kept() {
            Some(connection) => connection,
            None => Connection::open(&self.peer, &self.options, &*self.clock, deadline_ns)?,
        };
        connection.send(&self.request, &*self.clock, deadline_ns)?;
        let answer = connection.receive(method, &*self.clock, deadline_ns);
        let is_in_step = matches!(answer, Ok(_) | Err(Lost::Error(_))) && connection.is_in_step();
        self.keep(connection, is_in_step);
        answer
    }

    /// The connection of earlier calls, when it is still there.
    fn kept(&mut self) -> Option<Connection> {
        let connection = self.connection.take()?;
        if self.server_closes.is_none() {
            let since_ns = self.clock.now_ns().saturating_sub(connection.answered_ns);
            let left =
                Duration::from_millis(FIRST_CLOSE_MS_MAX).saturating_sub(Duration::from_nanos(since_ns));
            self.server_closes = Some(connection.ends_within(left));
        }
        connection.is_open().then_some(connection)
    }

    fn keep(&mut self, mut connection: Connection, is_in_step: bool) {
        if self.options.profile == Profile::Close {
            return connection.close();
        }
        if !is_in_step {
            return;
        }
        if self.server_closes == Some(true) {
            self.server_closes = Some(connection.ends_soon());
            if self.server_closes == Some(true) {
                return;
            }
        }
        connection.answered_ns = self.clock.now_ns();
        self.connection = Some(connection);
    }
}

/// Types are checked before anything is sent: the server would refuse them, too, but cannot say where they came from.
fn check(method: &Method, arguments: &[Value]) -> Result<(), Report> {
    let expected = method.sent().count();
    if expected != arguments.len() {
        return Err(Report::Count { signature: method.signature(), expected, given: arguments.len() });
    }
    for (number, (expected, argument)) in method.sent().zip(arguments).enumerate() {
        if !argument.is(expected) {
            let (signature, number, given) = (method.signature(), number + 1, argument.kind());
            return Err(Report::Type { signature, number, expected, given });
        }
        if argument.number().is_some_and(|number| !number.is_finite()) {
            return Err(Report::NotFinite { signature: method.signature(), number: number + 1 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
