//! The side of FTP servers. Paths are `ftp://[user@]host[:port]/`, and behind it the bytes that the server gets.

use super::credentials;
use super::tree::{Found, Identity, Owner, Sink, Source, Tree, up};
use crate::failure::{Failure, Outcome};
use crate::location::show;
use crate::signals::Stop;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use vazao_meter::{Clock, Occupancy};
use vazao_model::{Code, FileKind};
use vazao_mover::Timeouts;
use vazao_mover::ftp::{Facts, Kind, Session, Url, Waits, passing};
use vazao_wire::service::Fault;

/// What a session is for. Who reads may wait to write, who writes may wait to ask; were the sessions of all three the
/// same few, all could wait for one another.
#[derive(Clone, Copy)]
enum Use {
    Read = 0,
    Write = 1,
    Ask = 2,
}

/// Sessions with one server for each use: usual servers let an address have 5 to 10.
const SESSIONS_MAX: [usize; 3] = [3, 3, 1];

/// Tries of the same without a byte more.
const TRIES_MAX: u32 = 5;

/// The wait before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(500);

/// Zeros for holes, which cannot be said.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Facts from listings that have not been used yet.
const KNOWN_MAX: usize = 100_000;

/// Time-outs of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FtpTimeouts {
    /// A connection stands within this.
    pub(crate) connect_ms: u32,
    /// Something comes or goes within this.
    pub(crate) silent_ms: u32,
}

impl Default for FtpTimeouts {
    fn default() -> FtpTimeouts {
        let Timeouts { connect_ms, block_ms } = Timeouts::default();
        FtpTimeouts { connect_ms, silent_ms: block_ms }
    }
}

/// Files of FTP servers.
pub(crate) struct FtpTree {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Server {
    login: Option<(String, String)>,
    idle: Vec<Session>,
    out: [usize; 3],
    /// Sessions that wait for an answer of it.
    answers: Arc<Occupancy>,
}

struct Shared {
    waits: Waits,
    stop: Stop,
    servers: Mutex<HashMap<String, Server>>,
    freed: Condvar,
    /// Held while a password is asked for.
    asking: Mutex<()>,
    known: Mutex<HashMap<Vec<u8>, Facts>>,
}

/// A path, taken apart.
struct Place {
    server: String,
    path: Vec<u8>,
}

fn place(path: &[u8]) -> Outcome<Place> {
    // The third slash ends the server.
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let end = slashes.clone().nth(2).unwrap_or(path.len());
    let server = String::from_utf8_lossy(&path[..end]).into_owned();
    let mut rest = path.get(end + 1..).unwrap_or_default();
    while rest.len() > 1 && rest.ends_with(b"/") {
        rest = &rest[..rest.len() - 1];
    }
    Ok(Place { server, path: rest.to_vec() })
}

fn url_of(server: &str) -> Outcome<Url> {
    Url::parse(server.as_bytes()).map_err(|fault| Failure::new(fault.detail))
}

/// A fault about a path: the server's name in it becomes the whole path.
fn failure(path: &[u8], fault: Fault) -> Failure {
    let shown = shown(path);
    let server = place(path).map(|place| place.server).unwrap_or_default();
    match fault.detail.strip_prefix(&server) {
        Some(rest) => Failure::new(format!("{shown}{rest}")),
        None => Failure::new(format!("{shown}: {}", fault.detail)),
    }
}

fn shown(path: &[u8]) -> String {
    let url = place(path).and_then(|place| Ok(Url { path: place.path, ..url_of(&place.server)? }));
    show(url.map_or_else(|_| path.to_vec(), |url| url.shown().into_bytes()).as_slice())
}

/// The path of a tree for an address.
pub(crate) fn path_of(url: &Url) -> Vec<u8> {
    [url.server().as_bytes(), b"/", &url.path].concat()
}

impl Shared {
    fn servers(&self) -> MutexGuard<'_, HashMap<String, Server>> {
        self.servers.lock()
    }

    fn login(&self, server: &str) -> Outcome<(String, String)> {
        let _one = self.asking.lock();
        let known = self.servers().get(server).and_then(|server| server.login.clone());
        if let Some(login) = known {
            return Ok(login);
        }
        let login = credentials::login(&url_of(server)?, &self.stop)?;
        self.servers().entry(server.to_owned()).or_default().login = Some(login.clone());
        Ok(login)
    }

    /// A place among the sessions with a server, and an idle one where there is one.
    fn take(&self, server: &str, of: Use) -> Outcome<Option<Session>> {
        let mut servers = self.servers();
        loop {
            if self.stop.is_asked() {
                return Err(Failure::new("interrupted"));
            }
            let here = servers.entry(server.to_owned()).or_default();
            if here.out[of as usize] < SESSIONS_MAX[of as usize] {
                here.out[of as usize] += 1;
                return Ok(here.idle.pop());
            }
            self.freed.wait_for(&mut servers, Duration::from_millis(100));
        }
    }

    fn leave(&self, server: &str, of: Use, session: Option<Session>) {
        let mut servers = self.servers();
        if let Some(here) = servers.get_mut(server) {
            here.out[of as usize] -= 1;
            here.idle.extend(session);
        }
        drop(servers);
        self.freed.notify_all();
    }

    fn connect(&self, server: &str) -> Result<Session, Fault> {
        let url = Url::parse(server.as_bytes())?;
        let login = self
            .login(server)
            .map_err(|failure| Fault::new(Code::Invalid, failure.message().unwrap_or_default().to_owned()))?;
        let answers = Arc::clone(&self.servers().entry(server.to_owned()).or_default().answers);
        let waits = Waits { answers, ..self.waits.clone() };
        let mut session = Session::connect(server, &url.host, url.port, waits)?;
        session.login(&login.0, &login.1)?;
        Ok(session)
    }

    /// Waits before the next try; an error once there is none.
    fn pause(&self, tries: u32, fault: Fault) -> Result<(), Fault> {
        if tries >= TRIES_MAX || !passing(fault.code) {
            return Err(fault);
        }
        match self.stop.wait(PAUSE * 2u32.pow(tries.saturating_sub(1).min(4))) {
            true => Err(Fault::new(Code::Interrupted, "interrupted")),
            false => Ok(()),
        }
    }
}

/// The right to a session with a server, and the session while it is good.
struct Seat {
    shared: Arc<Shared>,
    server: String,
    of: Use,
    session: Option<Session>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // One in the middle of a transfer is of no more use.
        let session = self.session.take().filter(|session| !session.is_moving());
        self.shared.leave(&self.server, self.of, session);
    }
}

impl Seat {
    fn new(shared: &Arc<Shared>, server: &str, of: Use) -> Outcome<Seat> {
        let session = shared.take(server, of)?;
        Ok(Seat { shared: Arc::clone(shared), server: server.to_owned(), of, session })
    }

    fn session(&mut self) -> Result<&mut Session, Fault> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.shared.connect(&self.server)?,
        };
        Ok(self.session.insert(session))
    }

    /// Does something that may be done again, and does it again where the way failed.
    fn again<T>(&mut self, mut work: impl FnMut(&mut Session) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut tries = 0;
        loop {
            match self.session().and_then(&mut work) {
                Err(fault) => {
                    // Whatever state it is in: the next one begins with a new session.
                    if passing(fault.code) || fault.code == Code::BadRequest {
                        self.session = None;
                    }
                    tries += 1;
                    self.shared.pause(tries, fault)?;
                }
                done => return done,
            }
        }
    }
}

fn unsupported<T>(path: &[u8], what: &str) -> Outcome<T> {
    Err(Failure::new(format!("{}: {what}", shown(path))))
}

impl FtpTree {
    /// The servers that can be reached.
    pub(crate) fn new(clock: Arc<dyn Clock>, stop: Stop, timeouts: FtpTimeouts) -> FtpTree {
        let asked = stop.clone();
        let check = move |_| match asked.is_asked() {
            true => Err(Fault::new(Code::Interrupted, "interrupted")),
            false => Ok(()),
        };
        let FtpTimeouts { connect_ms, silent_ms } = timeouts;
        let answers = Arc::default();
        let waits = Waits { clock, check: Arc::new(check), connect_ms, silent_ms, answers };
        let shared = Shared {
            waits,
            stop,
            servers: Mutex::default(),
            freed: Condvar::new(),
            asking: Mutex::default(),
            known: Mutex::default(),
        };
        FtpTree { shared: Arc::new(shared) }
    }

    fn on<T>(
        &self,
        path: &[u8],
        mut work: impl FnMut(&mut Session, &[u8]) -> Result<T, Fault>,
    ) -> Outcome<T> {
        let place = place(path)?;
        let mut seat = Seat::new(&self.shared, &place.server, Use::Ask)?;
        seat.again(|session| work(session, &place.path)).map_err(|fault| failure(path, fault))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Facts>> {
        self.shared.known.lock()
    }

    /// How long answers of each server have been waited for until now, in nanoseconds.
    pub(crate) fn waited_ns(&self) -> HashMap<String, u64> {
        let now_ns = self.shared.waits.clock.now_ns();
        let servers = self.shared.servers();
        servers.iter().map(|(name, server)| (name.clone(), server.answers.at(now_ns).busy_ns)).collect()
    }

    /// Says goodbye to all servers.
    pub(crate) fn close(&self) {
        let servers = std::mem::take(&mut *self.shared.servers());
        servers.into_values().flat_map(|server| server.idle).for_each(Session::quit);
    }
}

fn found(path: &[u8], facts: &Facts) -> Found {
    let mut hasher = DefaultHasher::new();
    path.strip_suffix(b"/").unwrap_or(path).hash(&mut hasher);
    let (kind, mode) = match facts.kind {
        Kind::File => (FileKind::File, 0o644),
        Kind::Directory => (FileKind::Directory, 0o755),
        Kind::Other => (FileKind::Symlink, 0o777),
    };
    let modified = facts.modified.unwrap_or_default();
    Found {
        identity: Identity::Ftp(hasher.finish()),
        kind,
        mode: facts.mode.unwrap_or(mode),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size: facts.size.unwrap_or(0),
        accessed: modified,
        modified,
    }
}

impl Tree for FtpTree {
    fn find(&self, path: &[u8], _follow: bool) -> Outcome<Option<Found>> {
        let listed = self.known().remove(path);
        let facts = match listed {
            Some(facts) => Some(facts),
            None => self.on(path, Session::facts)?,
        };
        Ok(facts.map(|facts| found(path, &facts)))
    }

    fn above(&self, path: &[u8]) -> Outcome<Option<Vec<u8>>> {
        // What is above the directory that the login leads to is the server's own.
        Ok(up(path, 3))
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Vec<Vec<u8>>) -> Outcome) -> Outcome {
        let entries = self.on(path, Session::list)?;
        let mut names = Vec::with_capacity(entries.len());
        {
            let mut known = self.known();
            for (name, facts) in entries {
                if known.len() < KNOWN_MAX && facts.kind != Kind::Other && facts.modified.is_some() {
                    known.insert(super::join(path, &name), facts);
                }
                names.push(name);
            }
        }
        each(names)
    }

    fn real_path(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        Ok(path.to_vec())
    }

    fn read_link(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        unsupported(path, "is neither a file nor a directory, and FTP does not tell where a link leads")
    }

    fn open(&self, path: &[u8]) -> Outcome<Box<dyn Source>> {
        let place = place(path)?;
        let mut seat = Seat::new(&self.shared, &place.server, Use::Read)?;
        let size = seat.again(|session| session.size(&place.path)).map_err(|fault| failure(path, fault))?;
        let state = Mutex::new(Reading { seat, position: 0, end: None });
        Ok(Box::new(FtpSource { state, path: path.to_vec(), name: place.path, size }))
    }

    fn create(&self, path: &[u8], _mode: u32) -> Outcome<Box<dyn Sink>> {
        self.sink(path, 0)
    }

    fn reopen(&self, path: &[u8]) -> Outcome<Option<(Box<dyn Sink>, u64)>> {
        let Some(have) = self.on(path, Session::size)? else { return Ok(None) };
        Ok(Some((self.sink(path, have)?, have)))
    }

    fn open_stream(&self, path: &[u8]) -> Outcome<Box<dyn Sink>> {
        unsupported(path, "nothing but files is written to FTP servers")
    }

    fn make_directory(&self, path: &[u8], _mode: u32) -> Outcome {
        self.on(path, Session::make_directory)
    }

    fn make_link(&self, path: &[u8], _target: &[u8]) -> Outcome {
        unsupported(path, "FTP has no symbolic links")
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Outcome {
        let target = place(to)?.path;
        let mut is_again = false;
        self.on(from, |session, from| {
            let renamed = session.rename(from, &target);
            // The answer to the first try may have been lost.
            let was_done = std::mem::replace(&mut is_again, true) && renamed.is_err();
            match was_done && session.facts(from)?.is_none() && session.facts(&target)?.is_some() {
                true => Ok(()),
                false => renamed,
            }
        })
    }

    fn remove(&self, path: &[u8]) -> Outcome {
        self.on(path, Session::remove)
    }

    fn may_write(&self, _path: &[u8], _there: &Found) -> bool {
        // The server says so itself.
        true
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> Outcome {
        // Servers that have no permissions have nothing to open to others.
        self.on(path, |session, path| session.set_mode(path, mode)).map(drop)
    }

    fn set_owner(&self, _path: &[u8], _like: &Found) -> Outcome<Owner> {
        Ok(Owner::Refused)
    }

    fn set_times(&self, path: &[u8], like: &Found) -> Outcome {
        match self.on(path, |session, path| session.set_modified(path, like.modified))? {
            true => Ok(()),
            false => unsupported(path, "the server cannot set times (MFMT); copy without -p"),
        }
    }

    fn show(&self, path: &[u8]) -> String {
        shown(path)
    }
}

impl FtpTree {
    fn sink(&self, path: &[u8], offset: u64) -> Outcome<Box<dyn Sink>> {
        let place = place(path)?;
        let mut seat = Seat::new(&self.shared, &place.server, Use::Write)?;
        let begun = seat.again(|session| session.store(&place.path, offset));
        begun.map_err(|fault| failure(path, fault))?;
        let state = Mutex::new(Writing { seat, position: offset });
        Ok(Box::new(FtpSink { state, path: path.to_vec(), name: place.path }))
    }
}

struct Reading {
    seat: Seat,
    position: u64,
    /// Where the server ended the file.
    end: Option<u64>,
}

/// A file being read, in order; elsewhere another transfer begins.
struct FtpSource {
    state: Mutex<Reading>,
    path: Vec<u8>,
    name: Vec<u8>,
    /// As the server said.
    size: Option<u64>,
}

impl FtpSource {
    fn state(&self) -> MutexGuard<'_, Reading> {
        self.state.lock()
    }

    /// Fills `buffer` as far as the file goes. Bytes that came stay where the way fails after them.
    fn fill(&self, state: &mut Reading, buffer: &mut [u8], done: &mut usize) -> Result<(), Fault> {
        let position = state.position;
        if state.end == Some(position) {
            return Ok(());
        }
        let session = state.seat.session()?;
        if !session.is_moving() {
            session.retrieve(&self.name, position)?;
        }
        while *done < buffer.len() {
            let count = session.receive(&mut buffer[*done..])?;
            if count == 0 {
                session.finish("receiving")?;
                state.end = Some(state.position);
                break;
            }
            *done += count;
            state.position += count as u64;
        }
        Ok(())
    }

    /// A server whose file is not as long as it said.
    fn check_end(&self, position: u64) -> Result<(), Fault> {
        match self.size {
            Some(size) if position != size => {
                let why = format!("the server said {size} bytes and sent {position}");
                Err(Fault::new(Code::Corrupt, why))
            }
            _ => Ok(()),
        }
    }
}

impl Source for FtpSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Outcome<usize> {
        let mut state = self.state();
        if state.position != offset {
            state.seat.session = None;
            state.position = offset;
        }
        let (mut done, mut tries) = (0, 0);
        loop {
            let before = done;
            match self.fill(&mut state, buffer, &mut done) {
                Ok(()) => break,
                Err(fault) => {
                    state.seat.session = None;
                    tries = if done > before { 1 } else { tries + 1 };
                    let paused = state.seat.shared.pause(tries, fault);
                    paused.map_err(|fault| failure(&self.path, fault))?;
                }
            }
        }
        if done < buffer.len() {
            self.check_end(state.position).map_err(|fault| failure(&self.path, fault))?;
        }
        Ok(done)
    }

    fn length(&self) -> Outcome<u64> {
        Ok(self.size.unwrap_or_else(|| self.state().position))
    }

    fn next_data(&self, offset: u64) -> Outcome<Option<(u64, u64)>> {
        match self.size {
            Some(size) if offset < size => Ok(Some((offset, size))),
            None => Ok(Some((offset, u64::MAX))),
            Some(size) => {
                let is_open = self.state().seat.session.as_ref().is_some_and(Session::is_moving);
                // All that was said has come; the server may have more to say.
                if is_open && self.read_at(&mut [0], offset)? > 0 {
                    let why = format!("the server said {size} bytes and sends more");
                    return Err(failure(&self.path, Fault::new(Code::Corrupt, why)));
                }
                Ok(None)
            }
        }
    }

    fn may_hide_holes(&self) -> bool {
        false
    }
}

struct Writing {
    seat: Seat,
    position: u64,
}

/// A file being written, in order.
struct FtpSink {
    state: Mutex<Writing>,
    path: Vec<u8>,
    name: Vec<u8>,
}

impl Writing {
    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Fault> {
        let session = self.seat.session()?;
        while self.position < offset {
            let count = (offset - self.position).min(ZEROS.len() as u64);
            session.send(&ZEROS[..count as usize])?;
            self.position += count;
        }
        session.send(bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Ends the file and asks the server what it has of it.
    fn finish(&mut self, name: &[u8], length: u64) -> Result<(), Fault> {
        self.write(&[], length)?;
        let position = self.position;
        let session = self.seat.session()?;
        session.finish("sending")?;
        match session.size(name)? {
            Some(size) if size != position => {
                let why = format!("{position} bytes were sent and the server has {size}");
                Err(Fault::new(Code::Corrupt, why))
            }
            _ => Ok(()),
        }
    }
}

impl Sink for FtpSink {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Outcome {
        let mut state = self.state.lock();
        state.write(bytes, offset).map_err(|fault| failure(&self.path, fault))
    }

    fn finish(self: Box<Self>, length: u64) -> Outcome {
        let mut state = self.state.lock();
        state.finish(&self.name, length).map_err(|fault| failure(&self.path, fault))
    }
}

#[cfg(test)]
mod tests;
