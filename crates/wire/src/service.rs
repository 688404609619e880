//! Server side of the protocol: the `Service` trait, requests in, answers out, independent of the transport.
//!
//! A loop thread receives what is there from its connections, hands each request to [`Service::handle`], calls
//! [`Service::flush`] once (group commit: a batch of metadata changes reaches its log there), and only then sends the
//! answers. The simulation calls the same two functions without sockets.

use crate::operation::Method;
use vazao_model::Code;

/// The id of a request as every log shows it: 16 hexadecimal digits. 0 stands for a request that was never made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A request as the service sees it; the slices live as long as the call.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is asked.
    pub method: Method,
    /// Unique over clients and time as far as 64 random bits go: the same in the logs of both ends.
    pub id: u64,
    /// The encoded arguments.
    pub message: &'a [u8],
    /// Raw bytes that came along.
    pub attachment: &'a [u8],
    /// When the requester stops waiting, on the service's own clock.
    pub deadline_ns: u64,
}

impl Request<'_> {
    /// What outlives the arguments.
    pub fn call(&self) -> Call {
        Call { method: self.method, deadline_ns: self.deadline_ns }
    }
}

/// A request without its arguments: for work that goes on in another thread.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What is asked.
    pub method: Method,
    /// When the requester stops waiting, on the service's own clock.
    pub deadline_ns: u64,
}

/// A failed operation on its way to the requester.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", code.said_of(detail))]
pub struct Fault {
    /// What happened and what to do about it.
    pub code: Code,
    /// Which thing, and where; for people.
    pub detail: String,
    /// Of `WrongTarget`: the epoch of the membership that the server was told of; 0: it does not say. Who knows of an
    /// older one asks for the map; who knows of this one waits, for the server is the one that is behind.
    pub epoch: u64,
}

impl Fault {
    /// A fault about `detail`.
    pub fn new(code: Code, detail: impl Into<String>) -> Fault {
        Fault { code, detail: detail.into(), epoch: 0 }
    }

    /// The same from a server that was told of the membership of `epoch`.
    pub fn as_of(self, epoch: u64) -> Fault {
        Fault { epoch, ..self }
    }
}

impl From<Code> for Fault {
    fn from(code: Code) -> Fault {
        Fault::new(code, "")
    }
}

/// Where the answer to one request goes. Exactly one of its functions is called, once, for each request.
pub trait Responder {
    /// Answers with an encoded message and no attachment.
    fn reply(&mut self, message: &[u8]);

    /// Answers with a message and an attachment of `length` bytes that `fill` writes in place. `fill` gets a slice
    /// of exactly that length with unspecified contents. When it fails, the fault is the answer instead. When it
    /// returns false it declined (it would have to wait): nothing has been answered, and this returns false.
    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool;

    /// [`Responder::try_reply_with`] for a `fill` that never declines.
    fn reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Fault>,
    ) {
        self.try_reply_with(message, length, &mut |place| fill(place).map(|()| true));
    }

    /// Answers with an error.
    fn fail(&mut self, fault: &Fault);

    /// The handler is about to use the page cache, which takes no time unless the disk hangs. An event loop whose
    /// thread does not come to [`Responder::leave_disk`] is taken over by another thread. Only for services that say so
    /// ([`Service::may_hang`]).
    fn enter_disk(&mut self) {}

    /// The disk has answered.
    fn leave_disk(&mut self) {}

    /// Defers the answer: any thread may send it later. A deferred answer that is dropped without a reply answers
    /// `Internal`; otherwise the requester would hang until its timeout.
    fn defer(&mut self) -> Deferred;
}

/// A deferred answer.
pub struct Deferred {
    complete: Option<Box<dyn FnOnce(Answer) + Send>>,
}

/// A complete answer that owns its parts.
pub type Answer = Result<(Vec<u8>, Vec<u8>), Fault>;

impl std::fmt::Debug for Deferred {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deferred").finish_non_exhaustive()
    }
}

impl Deferred {
    /// An answer that `complete` will deliver.
    pub fn new(complete: impl FnOnce(Answer) + Send + 'static) -> Deferred {
        Deferred { complete: Some(Box::new(complete)) }
    }

    /// Delivers the answer: message and attachment, or a fault.
    pub fn finish(mut self, answer: Answer) {
        if let Some(complete) = self.complete.take() {
            complete(answer);
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if let Some(complete) = self.complete.take() {
            complete(Err(Fault::new(Code::Internal, "the server dropped the request")));
        }
    }
}

/// A server's operations.
pub trait Service: Send + Sync + 'static {
    /// Handles one request. May be called from several threads at once. Must not block for longer than a cached read
    /// or write takes, because all connections of the loop wait meanwhile: a request that has to wait takes
    /// [`Responder::defer`] and completes elsewhere. What services wait for: a file system
    /// ([`crate::shell::defer`]), a checkpoint of the metadata, durability, another node.
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder);

    /// Called after a batch of requests and before any of their answers is sent. May write what the batch has changed
    /// to a file, and sync it where the disk does that in less time than another thread needs to wake up. After an
    /// error no answer of the batch is sent, and the connections are closed.
    fn flush(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// True where [`Service::handle`] calls [`Responder::enter_disk`]. Asked once, when the server starts.
    fn may_hang(&self) -> bool {
        false
    }

    /// Looks for handlers that are stuck in a disk. Called several times a second by a thread that never blocks, where
    /// [`Service::may_hang`] is true.
    fn look(&self) {}
}
