//! The receiving end of a data connection.

use super::Held;
use super::port::PortShared;
use super::strangers::Stranger;
use crate::engine::{Machine, Step, drive};
use crate::probing::{BYTES_MAX, SCRATCH_BYTES_MAX};
use crate::record::{
    DATA_BYTES_MAX, GREETING_BYTES, Greeting, HEADER_BYTES, Header, Kind, checksums, fault_record,
};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::sockopt;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::checksum::piece_count;
use vazao_model::limits::HELLO_MS_MAX;
use vazao_wire::service::Fault;

/// A connection on which nothing comes for this long is closed: its sender is gone without a word.
const SILENT_NS_MAX: u64 = 180_000_000_000;

/// Bytes taken in before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// Answers that wait to be sent; beyond it nothing more is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where a connection is.
enum Phase {
    Greeting,
    Header,
    Body(Header),
    /// Bytes are counted and thrown away, or written first.
    Probe {
        bytes: u64,
        /// Where they are written, if they are; opened by the connection's own thread.
        area: Option<String>,
        sink: Option<File>,
    },
    /// The last answer is on its way.
    Closing,
}

/// A connection that is read from.
pub(super) struct Conversation {
    socket: TcpStream,
    peer: String,
    shared: Arc<PortShared>,
    phase: Phase,
    /// Until it has said what it is here for, and since when it is here.
    stranger: Option<Stranger>,
    began_ns: u64,
    buffer: Vec<u8>,
    have: usize,
    need: usize,
    answers: Vec<u8>,
    copy: Option<Held>,
    kind: Option<Kind>,
    /// It is where its file may be waited for: in a thread of its own, or in the loop of its area.
    is_settled: bool,
    heard_ns: u64,
    /// Since when nothing is there to be read.
    starving_ns: Option<u64>,
    /// What the answer to the next block reports.
    told: Told,
}

/// What a receiver has waited for since it confirmed a block.
#[derive(Default)]
struct Told {
    disk_ns: u64,
    starved_ns: u64,
}

impl Told {
    /// The record that confirms a block.
    fn finished(&mut self, offset: u64) -> [u8; HEADER_BYTES] {
        let Told { disk_ns, starved_ns } = std::mem::take(self);
        let starved_us = u32::try_from(starved_ns / 1000).unwrap_or(u32::MAX);
        Header::Finished { offset, disk_ns, starved_us }.to_bytes()
    }
}

impl Conversation {
    pub(super) fn new(
        socket: TcpStream,
        peer: String,
        stranger: Stranger,
        shared: Arc<PortShared>,
    ) -> Conversation {
        let heard_ns = shared.receiver.clock.now_ns();
        Conversation {
            socket,
            peer,
            shared,
            phase: Phase::Greeting,
            stranger: Some(stranger),
            began_ns: heard_ns,
            buffer: vec![0; GREETING_BYTES],
            have: 0,
            need: GREETING_BYTES,
            answers: Vec::new(),
            copy: None,
            kind: None,
            is_settled: false,
            heard_ns,
            starving_ns: None,
            told: Told::default(),
        }
    }

    /// Reads towards what is needed. False where nothing more is there now; an error where the connection has ended.
    fn fill(&mut self, now_ns: u64) -> Result<bool, Fault> {
        while self.have < self.need {
            match self.socket.read(&mut self.buffer[self.have..self.need]) {
                Ok(0) => return Err(Fault::new(Code::Disconnected, format!("{}: ended", self.peer))),
                Ok(count) => {
                    self.have += count;
                    self.heard_ns = now_ns;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Fault::new(Code::Disconnected, format!("{}: {error}", self.peer))),
            }
        }
        Ok(true)
    }

    fn expect(&mut self, phase: Phase, bytes: usize) {
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
        (self.phase, self.have, self.need) = (phase, 0, bytes);
    }

    /// Acts on what is complete.
    fn take(&mut self) -> Result<(), Fault> {
        match std::mem::replace(&mut self.phase, Phase::Header) {
            Phase::Greeting => self.greet(),
            Phase::Header => {
                let header = Header::parse(&self.buffer[..HEADER_BYTES])?;
                match header {
                    Header::Data { .. } => self.expect(Phase::Body(header), header.body_bytes()),
                    Header::Zeros { offset, length } => {
                        let (answers, told) = (&mut self.answers, &mut self.told);
                        let mut finished = |offset| answers.extend(told.finished(offset));
                        copy(self.copy.as_ref())?.zeros(offset, length, &mut finished)?;
                        self.expect(Phase::Header, HEADER_BYTES);
                    }
                    other => {
                        let why = format!("data connection: {other:?} from a sender");
                        return Err(Fault::new(Code::BadRequest, why));
                    }
                }
                Ok(())
            }
            Phase::Body(Header::Data { offset, length }) => self.store(offset, length as usize),
            other => {
                self.phase = other;
                Ok(())
            }
        }
    }

    fn greet(&mut self) -> Result<(), Fault> {
        let greeting = Greeting::parse(&self.buffer[..GREETING_BYTES])?;
        self.kind = Some(greeting.kind);
        if greeting.buffer_bytes > 0 {
            // A system that gives less leaves the copy slower, which is what is measured.
            let _ = sockopt::set_socket_recv_buffer_size(&self.socket, greeting.buffer_bytes as usize);
        }
        if greeting.kind == Kind::Probe {
            let area = self.shared.probe(&greeting.token)?;
            self.expect(Phase::Probe { bytes: 0, area, sink: None }, DATA_BYTES_MAX);
        } else {
            self.copy = Some(self.shared.receiver.find(&greeting.copy, &greeting.token)?);
            self.expect(Phase::Header, HEADER_BYTES);
        }
        self.answers.extend(Header::Welcome.to_bytes());
        self.stranger = None;
        Ok(())
    }

    fn store(&mut self, offset: u64, length: usize) -> Result<(), Fault> {
        let sums = 4 * piece_count(offset, length);
        let checksums = checksums(&self.buffer[..sums]);
        let clock = &*self.shared.receiver.clock;
        let (answers, told) = (&mut self.answers, &mut self.told);
        let mut blocks = Vec::new();
        let copy = copy(self.copy.as_ref())?;
        let bytes = &self.buffer[sums..sums + length];
        told.disk_ns += copy.write(offset, bytes, &checksums, clock, &mut |offset| blocks.push(offset))?;
        blocks.into_iter().for_each(|offset| answers.extend(told.finished(offset)));
        copy.touch(self.heard_ns);
        self.shared.receiver.metrics.received_bytes.add(length as u64);
        self.expect(Phase::Header, HEADER_BYTES);
        Ok(())
    }

    /// Counts bytes of a measurement until they end, and says how many there were.
    fn probe(&mut self, now_ns: u64) -> Result<bool, Fault> {
        let Phase::Probe { bytes, area, sink } = &mut self.phase else { return Ok(true) };
        if let Some(area) = area.take() {
            *sink = Some(self.shared.receiver.scratch(&area)?);
        }
        let failed = |error: std::io::Error| self.shared.receiver.scratch_fault("", &error);
        let most = if sink.is_some() { SCRATCH_BYTES_MAX } else { BYTES_MAX };
        let mut turn = 0;
        while turn < TURN_BYTES {
            match self.socket.read(&mut self.buffer) {
                Ok(0) => {
                    sink.as_ref().map_or(Ok(()), File::sync_all).map_err(failed)?;
                    let offset = *bytes;
                    self.answers.extend(self.told.finished(offset));
                    self.phase = Phase::Closing;
                    return Ok(true);
                }
                Ok(count) if *bytes + count as u64 > most => {
                    let why = format!("{}: a probe of more than {most} bytes on one connection", self.peer);
                    return Err(Fault::new(Code::TooLarge, why));
                }
                Ok(count) => {
                    let written = sink.as_ref().map(|file| file.write_all_at(&self.buffer[..count], *bytes));
                    written.unwrap_or(Ok(())).map_err(failed)?;
                    *bytes += count as u64;
                    turn += count;
                    self.heard_ns = now_ns;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Fault::new(Code::Disconnected, error.to_string())),
            }
        }
        Ok(true)
    }

    /// Sends answers; false where some are left.
    fn send(&mut self) -> Result<bool, Fault> {
        while !self.answers.is_empty() {
            match self.socket.write(&self.answers) {
                Ok(count) => drop(self.answers.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Fault::new(Code::Disconnected, format!("{}: {error}", self.peer))),
            }
        }
        Ok(true)
    }

    fn until_ns(&self) -> u64 {
        match self.phase {
            // The whole of it, however slowly it comes.
            Phase::Greeting => self.began_ns + u64::from(HELLO_MS_MAX) * 1_000_000,
            _ => self.heard_ns + SILENT_NS_MAX,
        }
    }

    /// One turn; errors are still to be told to the peer.
    fn turn(&mut self, now_ns: u64) -> Result<Step, Fault> {
        if now_ns > self.until_ns() {
            return Err(Fault::new(Code::Timeout, format!("{}: silent", self.peer)));
        }
        if let Some(since_ns) = self.starving_ns.take() {
            self.told.starved_ns += now_ns.saturating_sub(since_ns);
        }
        let mut taken = 0;
        loop {
            let is_sent = self.send()?;
            let is_full = self.answers.len() > ANSWER_BYTES_MAX;
            let wait = Step::Wait { read: !is_full, write: !is_sent, until_ns: self.until_ns() };
            match self.phase {
                Phase::Closing if is_sent => return Ok(Step::Done),
                Phase::Closing => return Ok(wait),
                _ if is_full || self.wants_to_leave() => return Ok(wait),
                Phase::Probe { .. } => match self.probe(now_ns)? {
                    true if matches!(self.phase, Phase::Closing) => continue,
                    true => return Ok(Step::Again),
                    false => return Ok(wait),
                },
                _ => {}
            }
            if taken >= TURN_BYTES {
                return Ok(Step::Again);
            }
            if !self.fill(now_ns)? {
                self.starving_ns = Some(self.shared.receiver.clock.now_ns());
                return Ok(wait);
            }
            taken += self.need;
            self.take()?;
        }
    }
}

fn copy(copy: Option<&Held>) -> Result<&Held, Fault> {
    copy.ok_or_else(|| Fault::new(Code::BadRequest, "data connection: bytes before the greeting"))
}

impl Machine for Conversation {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn advance(&mut self, now_ns: u64) -> Result<Step, Fault> {
        match self.turn(now_ns) {
            Err(fault) if !matches!(fault.code, Code::Disconnected | Code::Timeout) => {
                // The sender hears why. One that does not listen finds the connection closed.
                self.answers.extend(fault_record(&fault));
                let _ = self.send();
                let _ = self.socket.shutdown(std::net::Shutdown::Write);
                Err(fault)
            }
            other => other,
        }
    }

    fn ended(self: Box<Self>, outcome: Result<(), Fault>) {
        self.shared.leave();
        if let Err(fault) = outcome {
            let (peer, copy) = (&self.peer, self.copy.as_ref().map(|copy| copy.shown()));
            tracing::debug!(peer, copy, %fault, "data connection ended");
        }
    }

    fn wants_to_leave(&self) -> bool {
        !self.is_settled && self.kind.is_some()
    }

    fn leave(mut self: Box<Self>) {
        self.is_settled = true;
        if let (Some(Kind::Loop), Some(copy)) = (self.kind, &self.copy) {
            let (place, engines) = (copy.place().to_owned(), self.shared.engines.clone());
            return engines.add(&place, self);
        }
        let clock = Arc::clone(&self.shared.receiver.clock);
        let shared = Arc::clone(&self.shared);
        let builder = std::thread::Builder::new().name("copy".to_owned()).stack_size(STACK_BYTES);
        if builder.spawn(move || drive(self, &*clock)).is_err() {
            tracing::warn!("no thread for a data connection; it is closed");
            shared.leave();
        }
    }
}

/// A thread of one connection nests a few calls and keeps its buffer on the heap.
const STACK_BYTES: usize = 256 * 1024;
