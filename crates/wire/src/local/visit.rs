//! Client side of the local door.

use super::memory::LentMemory;
use super::talk::{Said, Talk};
use super::{ANSWER_BYTES_MAX, DESCRIPTORS};
use crate::frame::{Header, METHOD_HELLO, flags};
use crate::hello::{self, ClientHandshake};
use crate::key::ClusterKey;
use crate::operation::Method;
use crate::proto;
use crate::service::Fault;
use parking_lot::Mutex;
use prost::Message;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use vazao_meter::Clock;
use vazao_model::Code;

/// What the server handed out.
#[derive(Debug)]
pub struct Handed {
    /// What it said about it.
    pub response: proto::OpenLocalResponse,
    /// The chunk's file and its sidecar, for reading only; `None` when the object has no such chunk.
    pub files: Option<[OwnedFd; DESCRIPTORS]>,
}

/// A connection through a data server's door.
pub struct Visit {
    talk: Talk,
    /// Serialises requests: held from a request to its answer.
    turn: Mutex<()>,
    /// The server's number for the lent memory; `None` within: the server takes none.
    lent: OnceLock<Option<u64>>,
    is_over: AtomicBool,
}

impl std::fmt::Debug for Visit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Visit").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Visit {
    /// Connects to the door with this abstract name. Errors: nothing listens there, the key differs, or the server is
    /// too busy.
    pub fn begin(
        name: &[u8],
        key: &ClusterKey,
        clock: Arc<dyn Clock>,
        deadline_ns: u64,
    ) -> Result<Visit, Fault> {
        let peer = format!("local door {}", String::from_utf8_lossy(name));
        let unreachable = |errno: Errno| Fault::new(Code::Unreachable, format!("{peer}: {errno}"));
        let address = SocketAddrUnix::new_abstract_name(name).map_err(unreachable)?;
        // Fast fail: a door whose queue is full refuses at once instead of blocking its visitors.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(unreachable)?;
        connect(&stream, &address).map_err(unreachable)?;
        let talk = Talk::new(stream, peer.clone(), clock);
        let visit =
            Visit { talk, turn: Mutex::default(), lent: OnceLock::new(), is_over: AtomicBool::new(false) };
        let (handshake, hello) = ClientHandshake::begin(hello::nonce()?);
        let answer = visit.exchange(METHOD_HELLO, &hello, &[], deadline_ns)?;
        let (_, proof) = handshake.finish(key, &answer.message)?;
        visit.exchange(METHOD_HELLO, &proof, &[], deadline_ns)?;
        Ok(visit)
    }

    /// Asks for the files of a chunk. Errors: the server's fault; or the connection's, which is over then.
    pub fn open(&self, request: &proto::OpenLocalRequest, deadline_ns: u64) -> Result<Handed, Fault> {
        let _turn = self.turn.lock();
        let said = self.exchange(Method::OpenLocal.number(), &request.encode_to_vec(), &[], deadline_ns)?;
        let response = proto::OpenLocalResponse::decode(said.message.as_slice())
            .map_err(|e| self.talk.fault(Code::BadRequest, e))?;
        let files: Option<[OwnedFd; DESCRIPTORS]> = match said.descriptors.len() {
            0 => None,
            _ => Some(said.descriptors.try_into().map_err(|_| {
                self.talk.fault(Code::BadRequest, "an answer with another number of descriptors")
            })?),
        };
        if files.is_some() == response.missing {
            return Err(self.talk.fault(Code::BadRequest, "an answer without what it speaks of"));
        }
        Ok(Handed { response, files })
    }

    /// Lends the server memory, always the same; returns the server's number for it. `None` when the server takes
    /// none, for instance because it is older, or while another thread's request is in flight.
    pub fn lend(&self, memory: &LentMemory, deadline_ns: u64) -> Option<u64> {
        if let Some(lent) = self.lent.get() {
            return *lent;
        }
        let _turn = self.turn.try_lock()?;
        let message = proto::LendMemoryRequest {}.encode_to_vec();
        let method = Method::LendMemory.number();
        let answer = self.exchange(method, &message, &[memory.descriptor()], deadline_ns);
        let response = answer.ok().and_then(|said| proto::LendMemoryResponse::decode(&*said.message).ok());
        *self.lent.get_or_init(|| response.map(|response| response.memory))
    }

    /// False once the server is gone or has disconnected its visitors: the descriptors it handed out are void then.
    pub fn is_alive(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && (self.talk.is_open() || self.end())
    }

    /// Ends the connection; false.
    fn end(&self) -> bool {
        self.is_over.store(true, Ordering::Relaxed);
        self.talk.end();
        false
    }

    /// One request and its answer. After a fault of the connection the position in the stream is unknown, so the
    /// connection ends.
    fn exchange(
        &self,
        method: u16,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline_ns: u64,
    ) -> Result<Said, Fault> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(self.talk.fault(Code::Disconnected, "the connection is over"));
        }
        let left_ns = deadline_ns.saturating_sub(self.talk.clock().now_ns());
        let time = left_ns.div_ceil(1_000_000).min(u64::from(u32::MAX)) as u32;
        let header = Header { method, message_bytes: message.len() as u32, time, ..Header::default() };
        let heard = self
            .talk
            .say(&header, message, descriptors, deadline_ns)
            .and_then(|()| self.talk.hear(ANSWER_BYTES_MAX, Some(deadline_ns), left_ns));
        let said = heard.inspect_err(|_| {
            self.end();
        })?;
        if !said.header.has(flags::ANSWER) || said.header.method != method {
            self.end();
            return Err(self.talk.fault(Code::BadRequest, "an answer to something else"));
        }
        if said.header.has(flags::ERROR) {
            let failure = proto::Failure::decode(said.message.as_slice());
            let failure = failure.map_err(|e| self.talk.fault(Code::BadRequest, e))?;
            return Err(self.talk.fault(Code::from_number(failure.code), failure.detail));
        }
        Ok(said)
    }
}
