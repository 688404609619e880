//! A client's session with a server: login, questions about files, and one transfer at a time.

use super::control::{Control, Waits};
use super::listing::{self, Facts, Kind};
use super::reply::{Assembly, Reply, extended_port, passive_port};
use crate::source::plain;
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use vazao_model::{Code, Knowledge, Timestamp};
use vazao_wire::service::Fault;

/// A listing of one directory; a server that sends more is stopped.
const LIST_BYTES_MAX: usize = 256 << 20;

/// What a password is in messages of servers that repeat it.
const HIDDEN: &str = "…";

/// What a server said it can do.
#[derive(Clone, Copy, Default, Debug)]
struct Features {
    facts: bool,
    size: bool,
    modified: bool,
    set_modified: bool,
}

/// A session with a server.
#[derive(Debug)]
pub struct Session {
    server: String,
    waits: Waits,
    control: Control,
    assembly: Assembly,
    peer: SocketAddr,
    password: String,
    features: Features,
    is_extended: bool,
    data: Option<TcpStream>,
    /// The answer that ends the transfer came before its data connection ended.
    early: Option<Reply>,
    /// How long connecting took.
    connect_ns: u64,
    /// Nanoseconds in which a data connection took no more.
    waited_ns: u64,
}

/// Faults after which another try may succeed.
pub fn passing(code: Code) -> bool {
    matches!(code.knowledge(), Knowledge::Silence | Knowledge::NotYet)
}

/// A fault of `server` while it was doing `phase`.
fn about(server: &str, phase: &str, fault: Fault) -> Fault {
    let what = match (fault.code, fault.detail.as_str()) {
        (Code::Timeout, "") => "no answer within the time-out",
        (_, detail) => detail,
    };
    // What stopped it from outside is no fault of the server.
    match fault.code {
        Code::Interrupted | Code::Cancelled => fault,
        code => Fault::new(code, format!("{server}: {phase}: {what}")),
    }
}

/// What the endpoint of copies says of bytes that are not what was sent: they may arrive whole the next time.
pub(crate) const DAMAGED: u16 = 456;

/// What an answer that refuses means (RFC 959, 4.2.2).
fn code_of(reply: &Reply) -> Code {
    match reply.code {
        421 => Code::Overloaded,
        425 | 426 => Code::Disconnected,
        452 | 552 => Code::NoSpace,
        450 | 451 => Code::Unavailable,
        DAMAGED => Code::Corrupt,
        500..=504 => Code::Unsupported,
        530 | 532 | 331 | 332 | 430 => Code::AccessDenied,
        550 => Code::NotFound,
        553 => Code::Invalid,
        code if code / 100 == 4 => Code::Unavailable,
        _ => Code::Io,
    }
}

fn begin_connect(address: &SocketAddr) -> std::io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

fn connected(address: &SocketAddr, waits: &Waits) -> Result<TcpStream, Fault> {
    let unreachable = |error: std::io::Error| Fault::new(Code::Unreachable, plain(&error));
    let socket = begin_connect(address).map_err(unreachable)?;
    waits.ready(&socket, PollFlags::OUT, waits.until_ns(waits.connect_ms)).map_err(|fault| {
        match fault.code {
            Code::Timeout => {
                Fault::new(Code::Timeout, format!("no connection within {} ms", waits.connect_ms))
            }
            _ => fault,
        }
    })?;
    match sockopt::socket_error(&socket) {
        Ok(Ok(())) => Ok(socket),
        Ok(Err(error)) | Err(error) => Err(unreachable(error.into())),
    }
}

impl Session {
    /// Connects to `host` and awaits its greeting. `server` is what messages call it.
    pub fn connect(server: &str, host: &str, port: u16, waits: Waits) -> Result<Session, Fault> {
        let phase = "connecting";
        let named = |fault| about(server, phase, fault);
        let unknown = |error: std::io::Error| Fault::new(Code::Unreachable, plain(&error));
        let addresses = (host, port).to_socket_addrs().map_err(|error| named(unknown(error)))?;
        let started_ns = waits.clock.now_ns();
        let mut outcome = Err(Fault::new(Code::Unreachable, "no such host"));
        for address in addresses {
            outcome = connected(&address, &waits).map(|socket| (socket, address));
            if outcome.is_ok() {
                break;
            }
        }
        let (socket, peer) = outcome.map_err(named)?;
        let connect_ns = waits.clock.now_ns().saturating_sub(started_ns);
        let control = Control::new(socket).map_err(|error| named(unknown(error)))?;
        let mut session = Session {
            server: server.to_owned(),
            waits,
            control,
            assembly: Assembly::default(),
            peer,
            password: String::new(),
            features: Features::default(),
            is_extended: true,
            data: None,
            early: None,
            connect_ns,
            waited_ns: 0,
        };
        let phase = "waiting for the greeting";
        let reply = session.final_reply(phase)?;
        match reply.is_done() {
            true => Ok(session),
            false => Err(session.refused(phase, &reply)),
        }
    }

    /// How long it took until the connection stood.
    pub(crate) fn connect_ns(&self) -> u64 {
        self.connect_ns
    }

    /// Nanoseconds in which a data connection took no more, since this was asked last.
    pub(crate) fn take_waited_ns(&mut self) -> u64 {
        std::mem::take(&mut self.waited_ns)
    }

    /// A fault of this server.
    fn fault(&self, phase: &str, code: Code, what: &str) -> Fault {
        about(&self.server, phase, Fault::new(code, what))
    }

    fn refused(&self, phase: &str, reply: &Reply) -> Fault {
        let mut said = reply.shown();
        if !self.password.is_empty() {
            said = said.replace(&self.password, HIDDEN);
        }
        self.fault(phase, code_of(reply), &said)
    }

    /// The next answer that is there already.
    fn try_reply(&mut self, phase: &str) -> Result<Option<Reply>, Fault> {
        loop {
            let line = self.control.try_line().map_err(|fault| about(&self.server, phase, fault))?;
            let Some(line) = line else { return Ok(None) };
            if let Some(reply) = self.assembled(phase, &line)? {
                return Ok(Some(reply));
            }
        }
    }

    fn assembled(&mut self, phase: &str, line: &[u8]) -> Result<Option<Reply>, Fault> {
        let server = &self.server;
        let taken = self.assembly.take(line);
        taken.map_err(|what| about(server, phase, Fault::new(Code::BadRequest, what)))
    }

    fn reply(&mut self, phase: &str) -> Result<Reply, Fault> {
        self.reply_within(phase, self.waits.silent_ms)
    }

    /// The next answer that is no preliminary one: those come at any time, in any number, and end nothing.
    fn final_reply(&mut self, phase: &str) -> Result<Reply, Fault> {
        loop {
            let reply = self.reply(phase)?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
    }

    fn reply_within(&mut self, phase: &str, milliseconds: u32) -> Result<Reply, Fault> {
        let until_ns = self.waits.until_ns(milliseconds);
        loop {
            let line = self.control.line(&self.waits, until_ns);
            let line = line.map_err(|fault| match (fault.code, fault.detail.is_empty()) {
                (Code::Timeout, true) => {
                    let what = format!("no answer within {milliseconds} ms");
                    about(&self.server, phase, Fault::new(Code::Timeout, what))
                }
                _ => about(&self.server, phase, fault),
            })?;
            if let Some(reply) = self.assembled(phase, &line)? {
                return Ok(reply);
            }
        }
    }

    /// Sends a line and returns the answer to it, whatever it is; a preliminary one is not yet it.
    fn ask(&mut self, phase: &str, command: &str, argument: &[u8]) -> Result<Reply, Fault> {
        self.tell_line(phase, command, argument)?;
        self.final_reply(phase)
    }

    /// Sends a line.
    fn tell_line(&mut self, phase: &str, command: &str, argument: &[u8]) -> Result<(), Fault> {
        if argument.iter().any(|byte| b"\r\n\0".contains(byte)) {
            return Err(self.fault(phase, Code::Invalid, "a name with a line end or a zero in it"));
        }
        let space: &[u8] = if argument.is_empty() { b"" } else { b" " };
        let line = [command.as_bytes(), space, argument, b"\r\n"].concat();
        let until_ns = self.waits.until_ns(self.waits.silent_ms);
        self.control.send(&line, &self.waits, until_ns).map_err(|fault| about(&self.server, phase, fault))
    }

    fn expect(&mut self, phase: &str, command: &str, argument: &[u8]) -> Result<Reply, Fault> {
        let reply = self.ask(phase, command, argument)?;
        match reply.is_done() {
            true => Ok(reply),
            false => Err(self.refused(phase, &reply)),
        }
    }

    /// Logs in and finds out what the server can do.
    pub fn login(&mut self, user: &str, password: &str) -> Result<(), Fault> {
        let phase = "logging in";
        self.password = password.to_owned();
        let mut reply = self.ask(phase, "USER", user.as_bytes())?;
        if reply.code == 331 {
            reply = self.ask(phase, "PASS", password.as_bytes())?;
        }
        if !reply.is_done() {
            return Err(self.refused(phase, &reply));
        }
        self.expect("asking for binary transfers", "TYPE", b"I")?;
        let said = self.ask("asking what it can do", "FEAT", b"")?;
        if said.is_done() {
            let names =
                said.lines.iter().map(|line| String::from_utf8_lossy(line).trim().to_ascii_uppercase());
            for name in names {
                let word = name.split_ascii_whitespace().next().unwrap_or_default();
                match word {
                    "MLST" => self.features.facts = true,
                    "SIZE" => self.features.size = true,
                    "MDTM" => self.features.modified = true,
                    "MFMT" => self.features.set_modified = true,
                    // Whether it agrees or not: names are bytes.
                    "UTF8" => drop(self.ask("asking for UTF-8", "OPTS", b"UTF8 ON")?),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What is at a path; `None` where nothing is.
    pub fn facts(&mut self, path: &[u8]) -> Result<Option<Facts>, Fault> {
        let phase = "asking for a file";
        if self.features.facts {
            let reply = self.ask(phase, "MLST", if path.is_empty() { b"." } else { path })?;
            return match reply.code {
                code if code / 100 == 2 => {
                    let line = reply.lines.get(1).map(|line| line.trim_ascii_start());
                    let facts = line.and_then(listing::facts).map(|(facts, _)| facts);
                    facts
                        .map(Some)
                        .ok_or_else(|| self.fault(phase, Code::BadRequest, "facts that make no sense"))
                }
                550 | 553 | 450 => Ok(None),
                _ => Err(self.refused(phase, &reply)),
            };
        }
        self.guessed(path)
    }

    /// The same with what RFC 959 and wide use give: a file has a size, a directory can be gone into.
    fn guessed(&mut self, path: &[u8]) -> Result<Option<Facts>, Fault> {
        let phase = "asking for a file";
        if path.is_empty() {
            return Ok(Some(Facts::of(Kind::Directory)));
        }
        let reply = self.ask(phase, "SIZE", path)?;
        if reply.is_done() {
            let size = std::str::from_utf8(reply.text()).ok().and_then(|text| text.trim().parse().ok());
            let size = size.ok_or_else(|| self.fault(phase, Code::BadRequest, "a size that is no number"))?;
            let time = self.ask(phase, "MDTM", path)?;
            let modified = listing::time(time.text()).filter(|_| time.is_done());
            return Ok(Some(Facts { size: Some(size), modified, ..Facts::of(Kind::File) }));
        }
        let here = self.expect(phase, "PWD", b"")?;
        let quoted = here.text().split(|&byte| byte == b'"').nth(1).map(<[u8]>::to_vec);
        let Some(here) = quoted else {
            return Err(self.fault(phase, Code::BadRequest, "does not say which directory it is in"));
        };
        if !self.ask(phase, "CWD", path)?.is_done() {
            return Ok(None);
        }
        self.expect(phase, "CWD", &here)?;
        Ok(Some(Facts::of(Kind::Directory)))
    }

    /// Bytes of a file; `None` where there is none, or the server does not tell.
    pub fn size(&mut self, path: &[u8]) -> Result<Option<u64>, Fault> {
        let reply = self.ask("asking for the size of a file", "SIZE", path)?;
        let size = std::str::from_utf8(reply.text()).ok().and_then(|text| text.trim().parse().ok());
        Ok(size.filter(|_| reply.is_done()))
    }

    /// The entries of a directory, without itself and the one above.
    pub fn list(&mut self, path: &[u8]) -> Result<Vec<(Vec<u8>, Facts)>, Fault> {
        let phase = "listing a directory";
        let command = if self.features.facts { "MLSD" } else { "LIST" };
        self.open_data(phase)?;
        self.begin(phase, command, path)?;
        let mut text = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = self.receive(&mut buffer)?;
            if count == 0 {
                break;
            }
            text.extend_from_slice(&buffer[..count]);
            if text.len() > LIST_BYTES_MAX {
                return Err(self.fault(phase, Code::BadRequest, "a list without an end"));
            }
        }
        self.finish(phase)?;
        let lines = text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let read = if self.features.facts { listing::facts } else { listing::long_line };
        let entries = lines.filter_map(read).map(|(facts, name)| (name, facts));
        // A name that leads out of its directory would be written elsewhere.
        Ok(entries.filter(|(name, _)| listing::is_name(name)).collect())
    }

    /// Makes a directory; one that is there is fine.
    pub fn make_directory(&mut self, path: &[u8]) -> Result<(), Fault> {
        let phase = "making a directory";
        let reply = self.ask(phase, "MKD", path)?;
        if reply.is_done() || self.facts(path)?.is_some_and(|facts| facts.kind == Kind::Directory) {
            return Ok(());
        }
        Err(self.refused(phase, &reply))
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &[u8]) -> Result<(), Fault> {
        self.expect("removing a file", "DELE", path).map(drop)
    }

    /// Gives a file another name, in the place of what has it.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        let phase = "renaming a file";
        for is_again in [false, true] {
            let reply = self.ask(phase, "RNFR", from)?;
            if !reply.wants_more() {
                return Err(self.refused(phase, &reply));
            }
            let reply = self.ask(phase, "RNTO", to)?;
            if reply.is_done() {
                return Ok(());
            }
            // Some do not replace: then the old file goes first.
            if is_again || !matches!(reply.code, 550 | 553) || !self.ask(phase, "DELE", to)?.is_done() {
                return Err(self.refused(phase, &reply));
            }
        }
        Ok(())
    }

    /// Sets the time of a file's last change; false where the server cannot.
    pub fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Fault> {
        if !self.features.set_modified {
            return Ok(false);
        }
        let argument = [listing::time_text(time).as_bytes(), b" ", path].concat();
        Ok(self.ask("setting a time", "MFMT", &argument)?.is_done())
    }

    /// Sets permissions; false where the server cannot.
    pub fn set_mode(&mut self, path: &[u8], mode: u32) -> Result<bool, Fault> {
        let argument = [format!("CHMOD {:o} ", mode & 0o777).as_bytes(), path].concat();
        Ok(self.ask("setting permissions", "SITE", &argument)?.is_done())
    }

    /// A command of the endpoint of copies.
    pub(crate) fn site(&mut self, argument: &str) -> Result<(), Fault> {
        self.expect("telling of what is not sent", "SITE", argument.as_bytes()).map(drop)
    }

    /// Tells the endpoint of copies something that it does not answer.
    pub(crate) fn tell(&mut self, argument: &str) -> Result<(), Fault> {
        let line = format!("SITE {argument}\r\n");
        let until_ns = self.waits.until_ns(self.waits.silent_ms);
        let sent = self.control.send(line.as_bytes(), &self.waits, until_ns);
        sent.map_err(|fault| about(&self.server, "sending", fault))
    }

    /// Opens a data connection.
    fn open_data(&mut self, phase: &str) -> Result<(), Fault> {
        (self.data, self.early) = (None, None);
        let port = self.passive(phase)?;
        // To the server itself: an address in an answer may lead anywhere.
        let address = SocketAddr::new(self.peer.ip(), port);
        let opened = connected(&address, &self.waits);
        let phase = format!("{phase}: connecting for data to port {port}");
        self.data = Some(opened.map_err(|fault| about(&self.server, &phase, fault))?);
        Ok(())
    }

    fn passive(&mut self, phase: &str) -> Result<u16, Fault> {
        if self.is_extended {
            let reply = self.ask(phase, "EPSV", b"")?;
            if reply.code == 229 {
                let port = extended_port(reply.text());
                return port.ok_or_else(|| self.fault(phase, Code::BadRequest, &reply.shown()));
            }
            if reply.code / 100 != 5 || !self.peer.is_ipv4() {
                return Err(self.refused(phase, &reply));
            }
            self.is_extended = false;
        }
        let reply = self.expect(phase, "PASV", b"")?;
        passive_port(reply.text()).ok_or_else(|| self.fault(phase, Code::BadRequest, &reply.shown()))
    }

    /// Sends the command that begins a transfer.
    fn begin(&mut self, phase: &str, command: &str, path: &[u8]) -> Result<(), Fault> {
        self.tell_line(phase, command, path)?;
        let mut reply = self.reply(phase)?;
        while reply.is_marker() {
            reply = self.reply(phase)?;
        }
        match reply.code {
            code if code / 100 == 1 => Ok(()),
            // All of it is over before the answer that it begins would have been sent.
            226 | 250 => {
                self.early = Some(reply);
                Ok(())
            }
            _ => {
                self.data = None;
                Err(self.refused(phase, &reply))
            }
        }
    }

    fn begin_at(&mut self, phase: &str, command: &str, path: &[u8], offset: u64) -> Result<(), Fault> {
        self.open_data(phase)?;
        if offset > 0 {
            let reply = self.ask(phase, "REST", offset.to_string().as_bytes())?;
            if !reply.wants_more() {
                self.data = None;
                return Err(self.refused(&format!("{phase}: going on at {offset}"), &reply));
            }
        }
        self.begin(phase, command, path)
    }

    /// Begins to read a file at `offset`.
    pub fn retrieve(&mut self, path: &[u8], offset: u64) -> Result<(), Fault> {
        self.begin_at("receiving", "RETR", path, offset)
    }

    /// Begins to write a file at `offset`.
    pub fn store(&mut self, path: &[u8], offset: u64) -> Result<(), Fault> {
        self.begin_at("sending", "STOR", path, offset)
    }

    /// Whether a transfer is under way.
    pub fn is_moving(&self) -> bool {
        self.data.is_some()
    }

    /// Bytes of the transfer; 0 at its end.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        let phase = "receiving";
        let until_ns = self.waits.until_ns(self.waits.silent_ms);
        loop {
            let Some(data) = &mut self.data else { return Ok(0) };
            match data.read(buffer) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let ready = self.waits.ready(data, PollFlags::IN, until_ns);
                    ready.map_err(|fault| self.stalled(phase, fault))?;
                }
                Err(error) => return Err(self.fault(phase, Code::Disconnected, &error.to_string())),
            }
        }
    }

    fn stalled(&self, phase: &str, fault: Fault) -> Fault {
        let fault = match (fault.code, fault.detail.is_empty()) {
            (Code::Timeout, true) => {
                Fault::new(Code::Timeout, format!("not a byte went on within {} ms", self.waits.silent_ms))
            }
            _ => fault,
        };
        about(&self.server, phase, fault)
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = &rest[self.send_some(rest)?..];
        }
        Ok(())
    }

    /// Sends what goes at once, waiting until something does. A server that says no meanwhile is heard.
    fn send_some(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let phase = "sending";
        let until_ns = self.waits.until_ns(self.waits.silent_ms);
        loop {
            let Some(data) = &mut self.data else {
                return Err(self.fault(phase, Code::Internal, "no transfer is under way"));
            };
            match data.write(bytes) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let began_ns = self.waits.clock.now_ns();
                    let ready = self.waits.ready(data, PollFlags::OUT, until_ns);
                    self.waited_ns += self.waits.clock.now_ns().saturating_sub(began_ns);
                    ready.map_err(|fault| self.stalled(phase, fault))?;
                }
                Err(error) => {
                    let why = self.fault(phase, Code::Disconnected, &error.to_string());
                    // It has said on the other connection why it closed this one, as a rule.
                    self.data = None;
                    return Err(match self.final_reply(phase) {
                        Ok(reply) if !reply.is_done() => self.refused(phase, &reply),
                        _ => why,
                    });
                }
            }
        }
    }

    /// What the endpoint of copies has said of a transfer under way; `None` where nothing is there. `wait_ns`: waits
    /// so long for something to come.
    pub(crate) fn mark(&mut self, wait_ns: u64) -> Result<Option<Reply>, Fault> {
        let phase = "sending";
        let until_ns = self.waits.clock.now_ns() + wait_ns;
        loop {
            if let Some(reply) = self.try_reply(phase)? {
                return match reply.is_preliminary() {
                    true => Ok(Some(reply)),
                    false if reply.is_done() => {
                        self.early = Some(reply);
                        Ok(None)
                    }
                    false => Err(self.refused(phase, &reply)),
                };
            }
            if wait_ns == 0 || self.early.is_some() {
                return Ok(None);
            }
            match self.waits.ready(self.control.socket(), PollFlags::IN, until_ns) {
                Err(fault) if fault.code == Code::Timeout && fault.detail.is_empty() => return Ok(None),
                other => other?,
            }
        }
    }

    /// Ends the sending: the server hears that no more comes.
    pub(crate) fn close_data(&mut self) {
        if let Some(data) = self.data.take() {
            let _ = data.shutdown(std::net::Shutdown::Write);
        }
    }

    /// The transfer's bytes are over: closes its connection and hears what the server says of it. Answers on the way
    /// are given to `each`.
    pub(crate) fn finish_with(&mut self, phase: &str, each: &mut dyn FnMut(&Reply)) -> Result<(), Fault> {
        self.close_data();
        loop {
            let reply = match self.early.take() {
                Some(reply) => reply,
                None => self.reply(&format!("{phase}: waiting for the end of the transfer"))?,
            };
            if reply.is_preliminary() {
                each(&reply);
                continue;
            }
            return match reply.is_done() {
                true => Ok(()),
                false => Err(self.refused(phase, &reply)),
            };
        }
    }

    /// The transfer's bytes are over: closes its connection and hears what the server says of it.
    pub fn finish(&mut self, phase: &str) -> Result<(), Fault> {
        self.finish_with(phase, &mut |_| {})
    }

    /// Gives up a transfer under way.
    pub fn abandon(&mut self) -> Result<(), Fault> {
        if self.data.take().is_none() {
            return Ok(());
        }
        // Whatever it says: 226, 426 or 451 for a connection that ended under it.
        match self.early.take() {
            Some(_) => Ok(()),
            None => self.final_reply("ending a transfer").map(drop),
        }
    }

    /// Says goodbye. A server that does not hear it ends the session by itself.
    pub fn quit(mut self) {
        self.data = None;
        self.waits.silent_ms = self.waits.silent_ms.min(QUIT_MS);
        let _ = self.ask("ending", "QUIT", b"");
    }
}

/// Timeout of a goodbye.
const QUIT_MS: u32 = 1_000;
