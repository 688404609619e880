//! Server side of the local door: an accept thread, and one thread for each client of this machine.
//!
//! A visitor is a process of this machine that reads objects itself. Visitors are as few as such processes, and each
//! sends one request for each chunk it uses.

use super::talk::{Said, Talk};
use super::{DESCRIPTORS, REQUEST_BYTES_MAX};
use crate::frame::{Header, METHOD_HELLO, flags};
use crate::hello::{self, ServerHandshake};
use crate::key::ClusterKey;
use crate::operation::Method;
use crate::proto;
use crate::service::Fault;
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, shutdown,
    socket_with,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{debug, info, warn};
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_model::limits::{DEADLINE_MS_DEFAULT, HELLO_MS_MAX, LOCAL_VISITORS_MAX};

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A visitor's thread opens files and sends a short answer.
const STACK_BYTES: usize = 512 * 1024;

/// The thread of a local client that no disk holds up has ended so soon after its connection was shut down.
const END_NS: u64 = 1_000_000_000;
const STEP: Duration = Duration::from_millis(1);

/// The owner of the objects behind a door: the data server.
pub trait LocalService: Send + Sync + 'static {
    /// Opens the files of a chunk for a visitor, for reading only: the data and the sidecar, or none when there is no
    /// such chunk. May block on a disk.
    fn hand_out(
        &self,
        request: &proto::OpenLocalRequest,
    ) -> Result<(proto::OpenLocalResponse, Option<[OwnedFd; DESCRIPTORS]>), Fault>;

    /// A visitor lends memory, which requests will call `number`.
    fn borrow(&self, _number: u64, _memory: OwnedFd) -> Result<(), Fault> {
        Err(Fault::new(Code::Unsupported, "lent memory"))
    }

    /// The visitor that lent it has left.
    fn give_back(&self, _number: u64) {}
}

struct Shared {
    keeper: Arc<dyn LocalService>,
    key: ClusterKey,
    clock: Arc<dyn Clock>,
    visitors: Mutex<Visitors>,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Visitors {
    next: u64,
    talks: HashMap<u64, Arc<Talk>>,
    threads: HashMap<u64, JoinHandle<()>>,
}

impl Shared {
    fn visitors(&self) -> MutexGuard<'_, Visitors> {
        self.visitors.lock()
    }
}

/// An open door; it closes when dropped.
pub struct LocalServer {
    shared: Arc<Shared>,
    listener: Arc<OwnedFd>,
    name: Vec<u8>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for LocalServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalServer({})", String::from_utf8_lossy(&self.name))
    }
}

impl LocalServer {
    /// Opens a door under a random name in the abstract namespace, where nothing is left behind by a process that is
    /// killed. Errors: no randomness, no such sockets.
    pub fn open(
        keeper: Arc<dyn LocalService>,
        key: ClusterKey,
        clock: Arc<dyn Clock>,
    ) -> io::Result<LocalServer> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
        let name = format!("vazao-data-{:016x}", u64::from_le_bytes(random)).into_bytes();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&listener, &SocketAddrUnix::new_abstract_name(&name)?)?;
        listen(&listener, BACKLOG)?;
        let stopping = AtomicBool::new(false);
        let shared = Arc::new(Shared { keeper, key, clock, visitors: Mutex::default(), stopping });
        let listener = Arc::new(listener);
        let (shared_too, listener_too) = (Arc::clone(&shared), Arc::clone(&listener));
        let thread = std::thread::Builder::new()
            .name("door".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || let_in(&shared_too, &listener_too))?;
        Ok(LocalServer { shared, listener, name, thread: Some(thread) })
    }

    /// The host and name by which clients find the door.
    pub fn announcement(&self) -> proto::LocalDoorResponse {
        proto::LocalDoorResponse { host: super::host(), name: self.name.clone() }
    }

    /// Disconnects all visitors, which invalidates the descriptors they hold. They may connect again.
    pub fn send_away(&self) {
        self.shared.visitors().talks.values().for_each(|talk| talk.end());
    }

    /// Closes the door, and joins the threads; not for long those of clients, which a disk may hold up.
    pub fn close(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the accept thread.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been reported by the panic itself.
            let _ = thread.join();
        }
        self.send_away();
        let threads = std::mem::take(&mut self.shared.visitors().threads);
        let until_ns = self.shared.clock.now_ns() + END_NS;
        for thread in threads.into_values() {
            while !thread.is_finished() && self.shared.clock.now_ns() < until_ns {
                self.shared.clock.sleep(STEP);
            }
            if thread.is_finished() {
                drop(thread.join());
            }
        }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Accepts visitors until the door closes.
fn let_in(shared: &Arc<Shared>, listener: &OwnedFd) {
    while !shared.stopping.load(Ordering::SeqCst) {
        match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(stream) => admit(shared, stream),
            Err(Errno::AGAIN) => {
                // Errors come out of the next accept.
                let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], None);
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            // The listener was shut down.
            Err(Errno::INVAL) => return,
            Err(errno) => {
                warn!(error = %errno, "cannot let a local client in; is the limit of open files too low?");
                shared.clock.sleep(Duration::from_millis(10));
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: OwnedFd) {
    let mut visitors = shared.visitors();
    visitors.threads.retain(|_, thread| !thread.is_finished());
    if visitors.threads.len() >= LOCAL_VISITORS_MAX {
        // The rejected client falls back to reads over TCP.
        debug!("too many local clients");
        return;
    }
    let number = visitors.next;
    visitors.next += 1;
    let talk = Arc::new(Talk::new(stream, format!("local client {number}"), Arc::clone(&shared.clock)));
    visitors.talks.insert(number, Arc::clone(&talk));
    let shared_too = Arc::clone(shared);
    let builder = std::thread::Builder::new().name(format!("door-{number}")).stack_size(STACK_BYTES);
    let thread = builder.spawn(move || {
        attend(&shared_too, &talk);
        talk.end();
        shared_too.visitors().talks.remove(&number);
    });
    match thread {
        Ok(thread) => drop(visitors.threads.insert(number, thread)),
        Err(error) => {
            visitors.talks.remove(&number);
            warn!(%error, "cannot let a local client in");
        }
    }
}

/// Serves one visitor until it leaves.
fn attend(shared: &Shared, talk: &Talk) {
    let limit_ns = u64::from(HELLO_MS_MAX) * 1_000_000;
    let welcome = shake_hands(shared, talk, shared.clock.now_ns() + limit_ns);
    if let Err(fault) = welcome {
        info!(%fault, "local client refused");
        return;
    }
    let mut lent = None;
    while !shared.stopping.load(Ordering::SeqCst) {
        let rest_ns = u64::from(DEADLINE_MS_DEFAULT) * 1_000_000;
        let served = talk
            .hear(REQUEST_BYTES_MAX, None, rest_ns)
            .and_then(|said| answer(shared, talk, said, &mut lent, shared.clock.now_ns() + rest_ns));
        if let Err(fault) = served {
            debug!(%fault, "local client gone");
            break;
        }
    }
    if let Some(number) = lent {
        shared.keeper.give_back(number);
    }
}

/// Takes over the memory that a visitor lends, which it does once.
fn borrow(
    shared: &Shared,
    said: &mut Said,
    lent: &mut Option<u64>,
) -> Result<proto::LendMemoryResponse, Fault> {
    let (Some(memory), None) = (said.descriptors.pop(), said.descriptors.first()) else {
        return Err(Fault::new(Code::BadRequest, "memory is lent by one descriptor"));
    };
    if lent.is_some() {
        return Err(Fault::new(Code::BadRequest, "memory has been lent already"));
    }
    // Only memfd memory has seals. A read of any other descriptor could block for as long as its file system or peer
    // likes.
    let seals = fcntl_get_seals(&memory).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        return Err(Fault::new(Code::BadRequest, "what is lent must be memory sealed against shrinking"));
    }
    // Random, so that after a restart of the server a stale number cannot refer to another client's memory.
    let nonce = hello::nonce()?;
    let number = nonce.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    shared.keeper.borrow(number, memory)?;
    *lent = Some(number);
    Ok(proto::LendMemoryResponse { memory: number })
}

fn shake_hands(shared: &Shared, talk: &Talk, deadline_ns: u64) -> Result<(), Fault> {
    let hear = || {
        let said = talk.hear(REQUEST_BYTES_MAX, Some(deadline_ns), u64::MAX)?;
        match said.header.method {
            METHOD_HELLO => Ok(said),
            _ => Err(talk.fault(Code::Unauthenticated, "a request before the handshake")),
        }
    };
    let refuse = |said: &Said, fault: Fault| {
        // Best effort: the peer may have closed the connection already.
        let _ = reply(talk, said, Err(&fault), &[], deadline_ns);
        fault
    };
    let said = hear()?;
    let (handshake, message) = ServerHandshake::answer(&shared.key, &said.message, hello::nonce()?)
        .map_err(|fault| refuse(&said, fault))?;
    reply(talk, &said, Ok(&message), &[], deadline_ns)?;
    let said = hear()?;
    handshake.finish(&shared.key, &said.message).map_err(|fault| refuse(&said, fault))?;
    reply(talk, &said, Ok(&[]), &[], deadline_ns)
}

fn answer(
    shared: &Shared,
    talk: &Talk,
    mut said: Said,
    lent: &mut Option<u64>,
    deadline_ns: u64,
) -> Result<(), Fault> {
    if said.header.method == Method::LendMemory.number() {
        let taken = borrow(shared, &mut said, lent).map(|response| response.encode_to_vec());
        return reply(talk, &said, taken.as_deref(), &[], deadline_ns);
    }
    let said = &said;
    let handed = if said.header.method == Method::OpenLocal.number() {
        proto::OpenLocalRequest::decode(said.message.as_slice())
            .map_err(|e| Fault::new(Code::BadRequest, e.to_string()))
            .and_then(|request| shared.keeper.hand_out(&request))
    } else {
        let what = format!("method {:#06x} through the local door", said.header.method);
        Err(Fault::new(Code::Unsupported, what))
    };
    match handed {
        Ok((response, files)) => {
            let files: Vec<_> = files.iter().flatten().map(AsFd::as_fd).collect();
            reply(talk, said, Ok(&response.encode_to_vec()), &files, deadline_ns)
        }
        Err(fault) => reply(talk, said, Err(&fault), &[], deadline_ns),
    }
}

fn reply(
    talk: &Talk,
    said: &Said,
    answer: Result<&[u8], &Fault>,
    files: &[std::os::fd::BorrowedFd<'_>],
    deadline_ns: u64,
) -> Result<(), Fault> {
    let failure;
    let (flag, message) = match answer {
        Ok(message) => (0, message),
        Err(fault) => {
            // Cut, so that the other side takes it.
            let detail: String = fault.detail.chars().take(1024).collect();
            failure = proto::Failure { detail, ..proto::Failure::from(fault) }.encode_to_vec();
            (flags::ERROR, failure.as_slice())
        }
    };
    let header = Header {
        flags: flags::ANSWER | flag,
        method: said.header.method,
        request_id: said.header.request_id,
        message_bytes: message.len() as u32,
        ..Header::default()
    };
    talk.say(&header, message, files, deadline_ns)
}
