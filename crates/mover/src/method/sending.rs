//! The sending end of a data connection: a machine that a thread or the event loop drives.

use super::Done;
use crate::engine::{Machine, Step};
use crate::grid::zero_checksum;
use crate::outgoing::Outgoing;
use crate::record::{DATA_BYTES_MAX, Greeting, HEADER_BYTES, Header, Kind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::checksum::{combine, crc32c, piece_checksums, piece_lengths};
use vazao_wire::service::Fault;
use vazao_wire::tcp::{is_way_lost, probe_way};

/// Blocks of a connection that are not confirmed yet: what is sent again at most when something dies.
const UNCONFIRMED_MAX: usize = 2;

/// Bytes produced before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// What a pause was for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Send,
    Confirm,
    Limit,
}

/// A block that is being read.
struct Current {
    block: usize,
    offset: u64,
    checksum: u32,
}

/// A connection that is written to.
pub(super) struct Sending {
    copy: Arc<Outgoing>,
    socket: TcpStream,
    is_welcome: bool,
    is_connected: bool,
    out: Vec<u8>,
    out_done: usize,
    current: Option<Current>,
    unconfirmed: VecDeque<(usize, u32)>,
    heard: Vec<u8>,
    progress_ns: u64,
    /// Until when its time is counted.
    counted_ns: u64,
    /// Until when the receiver has given account.
    told_ns: u64,
    waiting: Option<(Waits, u64)>,
    done: Option<Done>,
}

fn resolve(address: &str) -> std::io::Result<SocketAddr> {
    let none = || std::io::Error::new(ErrorKind::NotFound, "no such host");
    address.to_socket_addrs()?.next().ok_or_else(none)
}

/// Begins to connect, without waiting.
fn begin_connect(address: &str, buffer_bytes: Option<u32>) -> std::io::Result<TcpStream> {
    let address = resolve(address)?;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = buffer_bytes {
        sockopt::set_socket_send_buffer_size(&socket, bytes as usize)?;
    }
    match connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    let _ = socket.set_nodelay(true);
    probe_way(&socket)?;
    Ok(socket)
}

impl Sending {
    /// Connects for `copy` and calls `done` at the end; at once where there can be no connection.
    pub(super) fn start(
        copy: Arc<Outgoing>,
        kind: Kind,
        buffer_bytes: Option<u32>,
        done: Done,
    ) -> Option<Sending> {
        let socket = match begin_connect(&copy.data_address, buffer_bytes) {
            Ok(socket) => socket,
            Err(error) => {
                done(Err(copy.fault(Code::Unreachable, error)));
                return None;
            }
        };
        let greeting =
            Greeting { kind, copy: copy.id, token: copy.token, buffer_bytes: buffer_bytes.unwrap_or(0) };
        let progress_ns = copy.around.clock.now_ns();
        Some(Sending {
            copy,
            socket,
            is_welcome: false,
            is_connected: false,
            out: greeting.to_bytes().to_vec(),
            out_done: 0,
            current: None,
            unconfirmed: VecDeque::new(),
            heard: Vec::new(),
            progress_ns,
            counted_ns: progress_ns,
            told_ns: progress_ns,
            waiting: None,
            done: Some(done),
        })
    }

    fn until_ns(&self) -> u64 {
        let timeouts = &self.copy.around.control.timeouts;
        let timeout_ms = if self.is_welcome { timeouts.block_ms } else { timeouts.connect_ms };
        self.progress_ns + u64::from(timeout_ms) * 1_000_000
    }

    fn check_time(&self, now_ns: u64) -> Result<(), Fault> {
        self.copy.around.control.check(now_ns)?;
        let silent_ns = now_ns.saturating_sub(self.progress_ns);
        if silent_ns > WAY_LOOK_NS && self.is_connected && is_way_lost(&self.socket) {
            return Err(self.copy.fault(Code::Disconnected, "nothing gets through to it"));
        }
        if now_ns < self.until_ns() {
            return Ok(());
        }
        let timeouts = &self.copy.around.control.timeouts;
        Err(match self.is_welcome {
            true => self
                .copy
                .fault(Code::Timeout, format_args!("no block went on within {} ms", timeouts.block_ms)),
            false => self
                .copy
                .fault(Code::Timeout, format_args!("no connection within {} ms", timeouts.connect_ms)),
        })
    }

    fn settle(&mut self, now_ns: u64) {
        if let Some((waits, since_ns)) = self.waiting.take() {
            let counts = &self.copy.around.counts;
            let counter = match waits {
                Waits::Send => &counts.send_ns,
                Waits::Confirm => &counts.confirm_ns,
                Waits::Limit => &counts.limit_ns,
            };
            counter.add(now_ns.saturating_sub(since_ns));
        }
    }

    fn wait(&mut self, waits: Waits, now_ns: u64, until_ns: u64) -> Step {
        self.waiting = Some((waits, now_ns));
        // Orders have to be seen too, and the loop looks at deadlines only.
        let until_ns = until_ns.min(self.until_ns()).min(now_ns + LOOK_NS);
        Step::Wait { read: true, write: waits == Waits::Send, until_ns }
    }

    /// Takes in what the receiver says.
    fn hear(&mut self, now_ns: u64) -> Result<(), Fault> {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(self.copy.fault(Code::Disconnected, "closed the connection")),
                Ok(count) => {
                    self.progress_ns = now_ns;
                    self.heard.extend_from_slice(&bytes[..count]);
                    self.understand()?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.copy.fault(Code::Disconnected, error)),
            }
        }
    }

    fn understand(&mut self) -> Result<(), Fault> {
        while let Some(header) = self.heard.get(..HEADER_BYTES) {
            // Another process may have the port of a node that was restarted, and answers something else: that is no
            // end of the copy.
            let header =
                Header::parse(header).map_err(|fault| self.copy.fault(Code::Disconnected, fault.detail))?;
            let whole = HEADER_BYTES + header.body_bytes();
            match header {
                Header::Welcome => self.is_welcome = true,
                Header::Finished { offset, disk_ns, starved_us } => {
                    self.confirmed(offset)?;
                    self.told(disk_ns, starved_us);
                }
                Header::Fault { code, .. } => {
                    let Some(text) = self.heard.get(HEADER_BYTES..whole) else { return Ok(()) };
                    let text = String::from_utf8_lossy(text);
                    // Another node, which has the port by now, knows nothing of it.
                    let code = match code {
                        Code::Unauthenticated | Code::BadRequest | Code::VersionMismatch => Code::BadHandle,
                        other => other,
                    };
                    return Err(Fault::new(code, format!("{}: {text}", self.copy.to.node)));
                }
                other => {
                    let why = format!("{other:?} from a receiver");
                    return Err(self.copy.fault(Code::Disconnected, why));
                }
            }
            self.heard.drain(..whole);
        }
        Ok(())
    }

    /// The receiver's waiting times since its last report. A receiver of an older version reports none.
    fn told(&mut self, disk_ns: u64, starved_us: u32) {
        let now_ns = self.copy.around.clock.now_ns();
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut self.told_ns, now_ns));
        if disk_ns == 0 && starved_us == 0 {
            return;
        }
        self.copy.note_disk(disk_ns);
        let counts = &self.copy.around.counts;
        counts.starved_ns.add(u64::from(starved_us) * 1000);
        counts.receiver_ns.add(since_ns);
    }

    fn confirmed(&mut self, offset: u64) -> Result<(), Fault> {
        let block = self.copy.grid.block_of(offset);
        let Some(place) = self.unconfirmed.iter().position(|&(sent, _)| sent == block) else {
            return Err(self.copy.fault(Code::Disconnected, "confirmed what was not sent"));
        };
        if let Some((block, checksum)) = self.unconfirmed.remove(place) {
            self.copy.confirm(block, checksum);
        }
        Ok(())
    }

    /// Sends what is produced; false where the connection takes no more.
    fn flush(&mut self, now_ns: u64) -> Result<bool, Fault> {
        while self.out_done < self.out.len() {
            match self.socket.write(&self.out[self.out_done..]) {
                Ok(count) => {
                    self.out_done += count;
                    self.progress_ns = now_ns;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    // The receiver has said why before it closed, as a rule.
                    self.hear(now_ns)?;
                    return Err(self.copy.fault(Code::Disconnected, error));
                }
            }
        }
        self.out.clear();
        self.out_done = 0;
        Ok(true)
    }

    /// Takes a block where none is at hand; of a hole the record is put into `out` at once. False where none is left.
    fn choose(&mut self) -> Result<bool, Fault> {
        if self.current.is_some() {
            return Ok(true);
        }
        let taken = self.copy.work().take();
        let Some(block) = taken else { return Ok(false) };
        let (offset, length) = (self.copy.grid.start(block), self.copy.grid.length(block));
        self.current = Some(Current { block, offset, checksum: crc32c(&[]) });
        if self.copy.is_hole(block)? {
            self.out.extend(Header::Zeros { offset, length }.to_bytes());
            self.unconfirmed.push_back((block, zero_checksum(length)));
            self.current = None;
        }
        Ok(true)
    }

    /// Bytes of the next record of a block.
    fn record_bytes(&self, current: &Current) -> u64 {
        let end = self.copy.grid.start(current.block) + self.copy.grid.length(current.block);
        (end - current.offset).min(DATA_BYTES_MAX as u64)
    }

    /// Puts the next record of the block at hand into `out`.
    fn produce(&mut self) -> Result<(), Fault> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let end = self.copy.grid.start(current.block) + self.copy.grid.length(current.block);
        let length = (end - current.offset).min(DATA_BYTES_MAX as u64) as usize;
        let header = Header::Data { offset: current.offset, length: length as u32 };
        let sums_at = HEADER_BYTES;
        let data_at = HEADER_BYTES + header.body_bytes() - length;
        self.out.resize(data_at + length, 0);
        self.copy.read(&mut self.out[data_at..], current.offset)?;
        let sums = piece_checksums(current.offset, &self.out[data_at..]);
        for ((place, sum), piece) in self.out[sums_at..data_at]
            .chunks_exact_mut(4)
            .zip(&sums)
            .zip(piece_lengths(current.offset, length))
        {
            place.copy_from_slice(&sum.to_le_bytes());
            current.checksum = combine(current.checksum, *sum, piece as u64);
        }
        self.out[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        self.copy.around.counts.sent_bytes.add(length as u64);
        current.offset += length as u64;
        if current.offset == end {
            self.unconfirmed.push_back((current.block, current.checksum));
            self.current = None;
        }
        Ok(())
    }

    /// True once the connection stands.
    fn connected(&mut self, now_ns: u64) -> Result<bool, Fault> {
        if self.is_connected {
            return Ok(true);
        }
        if let Err(error) = sockopt::socket_error(&self.socket).and_then(|outcome| outcome) {
            return Err(self.copy.fault(Code::Unreachable, std::io::Error::from(error)));
        }
        self.is_connected = self.socket.peer_addr().is_ok();
        if self.is_connected {
            self.copy.note_connect(now_ns.saturating_sub(self.progress_ns));
            self.progress_ns = now_ns;
        }
        Ok(self.is_connected)
    }
}

/// After a silence of this length it is asked whether anything still gets through: a block would be waited for long
/// after a network that was away is back.
const WAY_LOOK_NS: u64 = 1_000_000_000;

/// Orders are looked at this often where nothing else happens.
const LOOK_NS: u64 = 100_000_000;

impl Machine for Sending {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn advance(&mut self, now_ns: u64) -> Result<Step, Fault> {
        self.settle(now_ns);
        let counts = &self.copy.around.counts;
        counts.stream_ns.add(now_ns.saturating_sub(std::mem::replace(&mut self.counted_ns, now_ns)));
        self.check_time(now_ns)?;
        if !self.connected(now_ns)? {
            return Ok(self.wait(Waits::Send, now_ns, u64::MAX));
        }
        self.hear(now_ns)?;
        let mut turn = 0;
        loop {
            let now_ns = self.copy.around.clock.now_ns();
            if !self.flush(now_ns)? {
                return Ok(self.wait(Waits::Send, now_ns, u64::MAX));
            }
            if turn >= TURN_BYTES {
                return Ok(Step::Again);
            }
            if self.current.is_none() && self.unconfirmed.len() >= UNCONFIRMED_MAX {
                return Ok(self.wait(Waits::Confirm, now_ns, u64::MAX));
            }
            if !self.choose()? {
                return Ok(match self.unconfirmed.is_empty() {
                    true => Step::Done,
                    false => self.wait(Waits::Confirm, now_ns, u64::MAX),
                });
            }
            if let Some(current) = &self.current {
                let bytes = self.record_bytes(current);
                let ready_ns = self.copy.around.control.ready_ns(bytes, now_ns);
                if ready_ns > now_ns {
                    // Not sending is what was asked for.
                    self.progress_ns = now_ns;
                    return Ok(self.wait(Waits::Limit, now_ns, ready_ns));
                }
                self.produce()?;
            }
            turn += self.out.len();
        }
    }

    fn ended(mut self: Box<Self>, outcome: Result<(), Fault>) {
        {
            let mut work = self.copy.work();
            self.current.iter().for_each(|current| work.give_back(current.block));
            self.unconfirmed.iter().for_each(|&(block, _)| work.give_back(block));
        }
        if let Some(done) = self.done.take() {
            drop(self);
            done(outcome);
        }
    }
}
