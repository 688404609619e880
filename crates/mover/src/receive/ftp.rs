//! The FTP endpoint: what the method `ftp` sends to. It is opened when the first such copy begins.
//!
//! A server of RFC 959 with EPSV, REST and STOR, in which each login sees one file: the one that arrives under the
//! copy's id, with the token of its beginning as password. FTP knows no checksums; two commands of SITE bring them:
//!
//! - `SITE SUM OFFSET CRC32C`, on the control connection while bytes flow, is the checksum of the block that begins
//!   there. It is not answered. A block counts as arrived when its bytes agree with it: then a preliminary answer
//!   `111 Range Marker OFFSET` goes back (as servers of GridFTP tell of ranges), and the journal has it.
//! - `SITE ZEROS OFFSET LENGTH` is a hole.

use super::port::PortShared;
use super::strangers::{Stranger, Strangers};
use super::{Held, id_of};
use crate::engine::{Inbox, Machine, Step};
use crate::ftp::{Control, DAMAGED, Waits, passive_text};
use crate::record::DATA_BYTES_MAX;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vazao_model::Code;
use vazao_model::checksum::{combine, crc32c, piece_checksums, piece_lengths};
use vazao_model::limits::{FTP_STRANGERS_MAX, HELLO_MS_MAX};
use vazao_wire::service::Fault;

/// Sessions at once: each has a thread and a buffer of 256 KiB while bytes come.
const SESSIONS_MAX: usize = 2048;

/// A session without a word, and a transfer without a byte, end after this.
const SILENT_MS_MAX: u32 = 180_000;

/// Wrong passwords of one session.
const TRIES_MAX: u32 = 3;

/// Checksums that have been told and whose blocks have not come.
const SUMS_MAX: usize = 64;

/// A session nests a few calls and keeps its buffer on the heap.
const STACK_BYTES: usize = 256 * 1024;

/// Sessions taken in one turn.
const ACCEPTS: usize = 64;

/// When no session can be taken, the next try comes this much later.
const PAUSE_NS: u64 = 100_000_000;

/// What all sessions share.
struct Shared {
    port: Arc<PortShared>,
    sessions: AtomicUsize,
    /// Those that have not logged in.
    strangers: Arc<Strangers>,
    is_closing: AtomicBool,
}

/// The endpoint's listening port.
pub(crate) struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Endpoint {
    /// Listens on a free port of `host`.
    pub(super) fn open(host: IpAddr, port: Arc<PortShared>, engine: &Inbox) -> std::io::Result<Endpoint> {
        let listener = TcpListener::bind((host, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let strangers = Strangers::new(FTP_STRANGERS_MAX);
        let (sessions, is_closing) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { port, sessions, strangers, is_closing });
        engine.add(Box::new(Listener { listener, shared: Arc::clone(&shared) }));
        Ok(Endpoint { address, shared })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all sessions at their next wait.
    pub(super) fn close(&self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
    }
}

struct Listener {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Machine for Listener {
    fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn advance(&mut self, now_ns: u64) -> Result<Step, Fault> {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((socket, peer)) => welcome(socket, peer.ip(), &self.shared),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Step::Wait { read: true, write: false, until_ns: u64::MAX });
                }
                // Out of descriptors, most likely: those that are there go on, and later there will be some.
                Err(_) => return Ok(Step::Wait { read: false, write: false, until_ns: now_ns + PAUSE_NS }),
            }
        }
        Ok(Step::Again)
    }

    fn ended(self: Box<Self>, _outcome: Result<(), Fault>) {}
}

/// Gives a session a thread; one too many is closed, and its sender comes again.
fn welcome(socket: TcpStream, peer: IpAddr, shared: &Arc<Shared>) {
    if shared.sessions.load(Ordering::Relaxed) >= SESSIONS_MAX {
        return;
    }
    let Ok(stranger) = shared.strangers.enter(&socket) else { return };
    let Ok(control) = Control::new(socket) else { return };
    shared.sessions.fetch_add(1, Ordering::Relaxed);
    let session = Session::new(control, peer, stranger, Arc::clone(shared));
    let builder = std::thread::Builder::new().name("ftp".to_owned()).stack_size(STACK_BYTES);
    let work = move || {
        if let Err(fault) = session.serve() {
            tracing::debug!(%peer, %fault, "FTP session ended");
        }
    };
    if builder.spawn(work).is_err() {
        tracing::warn!("no thread for an FTP session; it is closed");
    }
}

/// One session.
struct Session {
    control: Control,
    peer: IpAddr,
    shared: Arc<Shared>,
    /// Until it has logged in.
    stranger: Option<Stranger>,
    waits: Waits,
    user: Option<[u8; 16]>,
    name: Vec<u8>,
    tries: u32,
    copy: Option<Held>,
    passive: Option<TcpListener>,
    offset: u64,
    /// Checksums of blocks, by where they begin.
    sums: BTreeMap<u64, u32>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer that leaves the session as it is.
type Said = Result<String, Fault>;

fn say(text: &str) -> Said {
    Ok(format!("{text}\r\n"))
}

impl Session {
    fn new(control: Control, peer: IpAddr, stranger: Stranger, shared: Arc<Shared>) -> Session {
        let closing = Arc::clone(&shared);
        let check = move |_| match closing.is_closing.load(Ordering::SeqCst) {
            true => Err(Fault::new(Code::Interrupted, "the daemon is stopping")),
            false => Ok(()),
        };
        let waits = Waits {
            clock: Arc::clone(&shared.port.receiver.clock),
            check: Arc::new(check),
            connect_ms: HELLO_MS_MAX,
            silent_ms: SILENT_MS_MAX,
            answers: Arc::default(),
        };
        Session {
            control,
            peer,
            shared,
            stranger: Some(stranger),
            waits,
            user: None,
            name: Vec::new(),
            tries: 0,
            copy: None,
            passive: None,
            offset: 0,
            sums: BTreeMap::new(),
        }
    }

    fn answer(&mut self, text: &str) -> Result<(), Fault> {
        let until_ns = self.waits.until_ns(self.waits.connect_ms);
        self.control.send(text.as_bytes(), &self.waits, until_ns)
    }

    fn serve(mut self) -> Result<(), Fault> {
        self.answer("220 vazao: copies between nodes only\r\n")?;
        // All of it, whatever else is said meanwhile.
        let login_ns = self.waits.until_ns(HELLO_MS_MAX);
        loop {
            let is_in = self.copy.is_some();
            let until_ns = if is_in { self.waits.until_ns(self.waits.silent_ms) } else { login_ns };
            let line = self.control.line(&self.waits, until_ns)?;
            // Lines that follow one another closely are never waited for.
            if self.waits.clock.now_ns() >= until_ns {
                return Err(Fault::new(Code::Timeout, "the login took too long"));
            }
            let space = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
            let argument = line.get(space + 1..).unwrap_or_default();
            let command = line.get(..space).unwrap_or_default().to_ascii_uppercase();
            if command == b"QUIT" {
                return self.answer("221 goodbye\r\n");
            }
            let said = match self.copy.is_some() {
                false => self.before_login(&command, argument),
                true => self.after_login(&command, argument),
            };
            let is_over = self.tries >= TRIES_MAX;
            match said {
                Ok(said) => self.answer(&said)?,
                Err(fault) => {
                    self.answer(&format!("{} {}\r\n", reply_code(fault.code), one_line(&fault.detail)))?;
                    tracing::debug!(peer = %self.peer, %fault, "FTP");
                }
            }
            if is_over {
                return Ok(());
            }
        }
    }

    fn before_login(&mut self, command: &[u8], argument: &[u8]) -> Said {
        match command {
            b"USER" => {
                self.user = bytes_of(argument);
                self.name = argument.to_vec();
                say("331 the token of the copy, please")
            }
            b"PASS" => {
                let token = bytes_of(argument);
                let receiver = &self.shared.port.receiver;
                let found = self.user.zip(token).map(|(user, token)| receiver.find(&user, &token));
                if let Some(Ok(held)) = found {
                    (self.copy, self.stranger) = (Some(held), None);
                    return say("230 welcome");
                }
                self.tries += 1;
                say("530 no such copy, or another token")
            }
            b"FEAT" | b"SYST" | b"NOOP" | b"AUTH" => self.courtesy(command, argument),
            _ => say("530 log in with USER and PASS"),
        }
    }

    /// What clients ask of every server.
    fn courtesy(&self, command: &[u8], argument: &[u8]) -> Said {
        match command {
            b"FEAT" => say("211-features\r\n EPSV\r\n REST STREAM\r\n SIZE\r\n UTF8\r\n211 end"),
            b"SYST" => say("215 UNIX Type: L8"),
            b"NOOP" | b"ABOR" => say("226 nothing is under way"),
            b"TYPE" if matches!(argument.to_ascii_uppercase().as_slice(), b"I" | b"L 8") => say("200 binary"),
            b"TYPE" => say("504 binary only: TYPE I"),
            b"MODE" if argument.eq_ignore_ascii_case(b"S") => say("200 stream"),
            b"STRU" if argument.eq_ignore_ascii_case(b"F") => say("200 file"),
            b"OPTS" => say("200 as you like"),
            b"PWD" => say("257 \"/\" is all there is"),
            b"CWD" if argument == b"/" => say("250 there"),
            b"CWD" => say("550 no such directory"),
            _ => say("502 not here: this endpoint takes one file"),
        }
    }

    fn after_login(&mut self, command: &[u8], argument: &[u8]) -> Said {
        match command {
            b"EPSV" => self.listen(true),
            b"PASV" if self.peer.is_ipv4() => self.listen(false),
            b"REST" => {
                let number = std::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
                match number.filter(|offset| self.begins_a_block(*offset)) {
                    Some(offset) => {
                        self.offset = offset;
                        say("350 send STOR to go on there")
                    }
                    None => say("501 not the beginning of a block"),
                }
            }
            b"ALLO" => say("202 the file is there"),
            b"SIZE" if argument == self.name => self.size(),
            b"SITE" => self.site(argument),
            b"STOR" if argument == self.name => {
                let (passive, offset) = (self.passive.take(), std::mem::take(&mut self.offset));
                match passive {
                    Some(passive) => self.store(&passive, offset),
                    None => say("425 EPSV or PASV first"),
                }
            }
            b"STOR" => say("553 the name is the copy's id"),
            _ => self.courtesy(command, argument),
        }
    }

    fn held(&self) -> Result<&Held, Fault> {
        self.copy.as_ref().ok_or_else(|| Fault::new(Code::BadHandle, "not logged in"))
    }

    fn begins_a_block(&self, offset: u64) -> bool {
        self.held().is_ok_and(|copy| {
            let grid = copy.grid();
            offset.is_multiple_of(grid.block_bytes) && offset <= grid.size
        })
    }

    /// How far it has arrived without a gap.
    fn size(&self) -> Said {
        let copy = self.held()?;
        let grid = copy.grid();
        let first = (0..grid.blocks()).find(|&block| !copy.has(block));
        say(&format!("213 {}", first.map_or(grid.size, |block| grid.start(block))))
    }

    fn listen(&mut self, is_extended: bool) -> Said {
        let io = |error: std::io::Error| Fault::new(Code::Overloaded, format!("a port for data: {error}"));
        let here = self.control.socket().local_addr().map_err(io)?;
        let listener = TcpListener::bind((here.ip(), 0)).map_err(io)?;
        listener.set_nonblocking(true).map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        self.passive = Some(listener);
        Ok(passive_text(address, is_extended))
    }

    fn site(&mut self, argument: &[u8]) -> Said {
        let text = String::from_utf8_lossy(argument).to_ascii_uppercase();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match words[..] {
            ["ZEROS", offset, length] => {
                let numbers = offset.parse().ok().zip(length.parse().ok());
                let Some((offset, length)) = numbers else { return say("501 two numbers, please") };
                self.held()?.zeros(offset, length, &mut |_| {})?;
                say("200 zeros")
            }
            // Told in a transfer that ended before its block: never answered.
            ["SUM", ..] => Ok(String::new()),
            _ => say("504 SITE knows ZEROS, and SUM during a transfer"),
        }
    }

    /// Remembers a checksum told during a transfer.
    fn take_sum(&mut self, line: &[u8]) -> Result<(), Fault> {
        let text = String::from_utf8_lossy(line).to_ascii_uppercase();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let sum = match words[..] {
            ["SITE", "SUM", offset, sum] => offset.parse().ok().zip(u32::from_str_radix(sum, 16).ok()),
            _ => None,
        };
        let (offset, sum) =
            sum.ok_or_else(|| Fault::new(Code::BadRequest, "only SITE SUM may be said while bytes come"))?;
        if self.sums.len() >= SUMS_MAX {
            return Err(Fault::new(Code::BadRequest, "checksums for too many blocks"));
        }
        self.sums.insert(offset, sum);
        Ok(())
    }

    /// The checksum that the sender told of the block at `offset`; waits for it.
    fn sum_of(&mut self, offset: u64) -> Result<u32, Fault> {
        let until_ns = self.waits.until_ns(self.waits.connect_ms);
        loop {
            if let Some(sum) = self.sums.remove(&offset) {
                return Ok(sum);
            }
            let line = self.control.line(&self.waits, until_ns).map_err(|fault| match fault.code {
                Code::Timeout => Fault::new(Code::Disconnected, "a block without its SITE SUM"),
                _ => fault,
            })?;
            self.take_sum(&line)?;
        }
    }

    fn store(&mut self, passive: &TcpListener, offset: u64) -> Said {
        if !self.held()?.claim() {
            return say("450 another session sends this file");
        }
        self.sums.clear();
        let stored = self.accept(passive).and_then(|data| self.receive(data, offset));
        self.held()?.unclaim();
        stored?;
        say("226 stored")
    }

    /// Accepts the data connection of the session's client.
    fn accept(&mut self, passive: &TcpListener) -> Result<TcpStream, Fault> {
        self.answer("150 send\r\n")?;
        let until_ns = self.waits.until_ns(self.waits.connect_ms);
        loop {
            match passive.accept() {
                Ok((data, peer)) if peer.ip() == self.peer => {
                    data.set_nonblocking(true)
                        .map_err(|error| Fault::new(Code::Disconnected, error.to_string()))?;
                    return Ok(data);
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    self.waits.ready(passive, PollFlags::IN, until_ns).map_err(|fault| match fault.code {
                        Code::Timeout => Fault::new(Code::Disconnected, "no data connection came"),
                        _ => fault,
                    })?;
                }
                Err(error) => return Err(Fault::new(Code::Overloaded, error.to_string())),
            }
        }
    }

    /// Takes bytes until they end.
    fn receive(&mut self, mut data: TcpStream, start: u64) -> Result<(), Fault> {
        let grid = self.held()?.grid();
        let mut buffer = vec![0; DATA_BYTES_MAX];
        let (mut offset, mut sum) = (start, crc32c(&[]));
        while offset < grid.size {
            let block = grid.block_of(offset);
            let end = grid.start(block) + grid.length(block);
            let wanted = (end - offset).min(DATA_BYTES_MAX as u64) as usize;
            let Some(bytes) = buffer.get_mut(..wanted) else { break };
            if !self.fill(&mut data, bytes)? {
                // What is no whole record goes again: its block is not whole either.
                return Ok(());
            }
            let sums = piece_checksums(offset, bytes);
            let lengths = piece_lengths(offset, wanted);
            sum = sums.iter().zip(lengths).fold(sum, |all, (&one, n)| combine(all, one, n as u64));
            let after = offset + wanted as u64;
            if after == end {
                let told = self.sum_of(grid.start(block))?;
                if told != sum {
                    let why = format!("the block at {} arrived with another checksum", grid.start(block));
                    return Err(Fault::new(Code::Corrupt, why));
                }
            }
            self.put(block, offset, bytes, &sums)?;
            if after == end {
                sum = crc32c(&[]);
                self.answer(&format!("111 Range Marker {}\r\n", grid.start(block)))?;
            }
            offset = after;
        }
        // Its end: a byte more would be one too many.
        match self.fill(&mut data, &mut [0])? {
            true => Err(Fault::new(Code::NoSpace, "more bytes than the file has")),
            false => Ok(()),
        }
    }

    fn put(&self, block: usize, offset: u64, bytes: &[u8], sums: &[u32]) -> Result<(), Fault> {
        let copy = self.held()?;
        let receiver = &self.shared.port.receiver;
        receiver.metrics.received_bytes.add(bytes.len() as u64);
        // One that is whole was compared already: what comes again could only harm it.
        if copy.has(block) {
            return Ok(());
        }
        copy.touch(receiver.clock.now_ns());
        copy.put(offset, bytes, sums, &*receiver.clock, &mut |_| {}).map(drop)
    }

    /// Reads until `bytes` are full; false where the connection ended before.
    fn fill(&mut self, data: &mut TcpStream, bytes: &mut [u8]) -> Result<bool, Fault> {
        let mut have = 0;
        while have < bytes.len() {
            match data.read(bytes.get_mut(have..).unwrap_or_default()) {
                Ok(0) => return Ok(false),
                Ok(count) => have += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let until_ns = self.waits.until_ns(self.waits.silent_ms);
                    self.waits.ready(data, PollFlags::IN, until_ns).map_err(|fault| match fault.code {
                        Code::Timeout => Fault::new(Code::Disconnected, "silence on the data connection"),
                        _ => fault,
                    })?;
                }
                Err(error) => return Err(Fault::new(Code::Disconnected, error.to_string())),
            }
        }
        Ok(true)
    }
}

/// Sixteen bytes in hexadecimal digits.
fn bytes_of(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 32)?;
    let number = u128::from_str_radix(text, 16).ok()?;
    id_of(&number.to_be_bytes()).ok()
}

/// The answer that tells a client what a fault means (RFC 959, 4.2.2).
fn reply_code(code: Code) -> u16 {
    match code {
        Code::NoSpace => 552,
        Code::Overloaded | Code::Unavailable | Code::Hung | Code::BadHandle => 450,
        Code::Disconnected | Code::Timeout | Code::Interrupted => 426,
        Code::BadRequest | Code::Invalid => 501,
        Code::AccessDenied | Code::ReadOnly => 553,
        Code::Corrupt => DAMAGED,
        // Nothing that another try would change: a disk that fails, a directory that is gone.
        _ => 554,
    }
}

/// A text without line ends.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
