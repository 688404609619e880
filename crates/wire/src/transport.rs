//! Client side of the protocol: typed calls to server addresses, many in flight.

use crate::local::Visit;
use crate::operation::{Method, Operation};
use crate::service::{Fault, RequestId};
use prost::Message;
use std::net::IpAddr;
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::Code;

/// An answer as the requester gets it.
#[derive(Debug)]
pub struct Received {
    /// The encoded result.
    pub message: Vec<u8>,
    /// Raw bytes that came along.
    pub attachment: Buffer,
    /// Microseconds from the request's arrival at the server to its answer's departure.
    pub service_us: u32,
}

/// Bytes in a reused allocation: it goes back to its pool when dropped.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    length: usize,
    home: Option<Arc<dyn Pool>>,
}

/// Takes buffers back.
pub trait Pool: Send + Sync {
    /// Keeps the allocation for later, or frees it when it has enough.
    fn put_back(&self, bytes: Vec<u8>);
}

impl Buffer {
    /// The first `length` bytes of an allocation that returns to `home`. The rest stays initialised, so that the next
    /// user need not clear it.
    pub fn new(bytes: Vec<u8>, length: usize, home: Option<Arc<dyn Pool>>) -> Buffer {
        let length = length.min(bytes.len());
        Buffer { bytes, length, home }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.put_back(std::mem::take(&mut self.bytes));
        }
    }
}

/// A request in flight.
pub trait Pending: Send {
    /// Waits for the answer until the request's deadline. Errors: the server's fault, or `Timeout`, `Unreachable`,
    /// `Disconnected` with the peer's name in the detail.
    fn wait(self: Box<Self>) -> Result<Received, Fault>;

    /// True once `wait` will not block.
    fn is_done(&self) -> bool;

    /// Blocks until `wait` will not block; false when the caller is killed first
    /// ([`crate::interrupt::killable`]). The request stays in flight then, and another thread can wait for it.
    /// An implementation whose waits cannot be abandoned may return at once.
    fn settle(&self) -> bool {
        true
    }

    /// Blocks until `wait` will not block, but not beyond `until_ns`: false when it would block still. True also where
    /// the caller is interrupted, as [`Pending::settle`] then says. An implementation whose waits cannot be cut short
    /// may return true at once.
    fn settle_by(&self, _until_ns: u64) -> bool {
        true
    }

    /// The request's id: the one in the server's log. 0 where a transport gives none.
    fn id(&self) -> RequestId {
        RequestId::default()
    }
}

/// A request that has been waiting for a while: to be sent, or for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Slow<'a> {
    /// Where it goes.
    pub address: &'a str,
    /// What it asks.
    pub method: Method,
    /// Its id.
    pub id: RequestId,
    /// Nanoseconds since it was submitted.
    pub waited_ns: u64,
}

/// Callback for requests that wait long, while they wait. It must not call the transport.
pub type OnSlow = Box<dyn Fn(&Slow<'_>) + Send + Sync>;

/// Completion of an asynchronous call: runs once the answer is there, or after a while without one. It must not block
/// on the request unless [`Pending::is_done`]: it may run in the thread that receives for all requests of the
/// connection.
pub type Completion = Box<dyn FnOnce(Box<dyn Pending>) + Send>;

/// Whether a server listens at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Something accepts connections there.
    Somebody,
    /// The machine is there and refuses: whatever served there has ended.
    Nobody,
    /// There was no answer.
    Unknown,
}

/// A line that carries little, with servers beyond it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// As its user calls it.
    pub name: String,
    /// Of the servers beyond it.
    pub addresses: Vec<String>,
    /// Bytes a second that may be sent over it.
    pub send: u64,
    /// Bytes a second that may be received over it.
    pub receive: u64,
}

/// Which way bulk passes over a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineUsed {
    /// Of the line.
    pub name: String,
    /// Some is sent.
    pub sent: bool,
    /// Some was asked for, and comes.
    pub received: bool,
}

/// Carries requests to servers.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request to `address` (`host:port`) and returns without waiting for the answer; the bytes may be reused
    /// at once. Failures to connect or send come out of [`Pending::wait`]. Dropping the pending request cancels it.
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending>;

    /// [`Transport::submit`] of a request that fails where it is not sent by `sent_by_ns`, however long its answer may
    /// take. A transport that sends at once has no use for that time.
    fn submit_sent_by(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        _sent_by_ns: u64,
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        self.submit(address, method, message, attachment, deadline_ns)
    }

    /// Whether the calling thread's next request to `address` needs no connection to be made first.
    fn is_connected(&self, _address: &str) -> bool {
        true
    }

    /// Whether the calling thread's next request to `address` is sent at once. A transport with connections makes a
    /// missing one in the background; another time it is there, or cannot be made.
    fn is_ready(&self, _address: &str) -> bool {
        true
    }

    /// Makes the connections that the calling thread's next requests to `addresses` need, in parallel and in the
    /// background: a request submitted meanwhile waits for its connection. One that cannot be made does not delay the
    /// others, and fails its request as if that had tried. By `deadline_ns` each is established or has failed.
    fn connect_ahead(&self, _addresses: &[&str], _deadline_ns: u64) {}

    /// How long a round trip to `address` took when the latest connection to it was made; 0 where that is not known.
    fn round_trip_ns(&self, _address: &str) -> u64 {
        0
    }

    /// The shortest time in which the machine at `address` has acknowledged something when a connection to it was
    /// made; 0 where that is not known. No transfer, disk or program is in it.
    fn distance_ns(&self, _address: &str) -> u64 {
        0
    }

    /// The address of this machine from which `address` is reached, where that is known. Sends nothing.
    fn local_address(&self, _address: &str) -> Option<IpAddr> {
        None
    }

    /// Whether a server, any server, listens at `address`. The default cannot tell.
    fn presence(&self, _address: &str, _deadline_ns: u64) -> Presence {
        Presence::Unknown
    }

    /// Whether [`Transport::submit_then`] to `address` would neither connect nor block at the moment. A transport
    /// with receiver threads makes a missing connection in the background.
    fn is_tended(&self, _address: &str) -> bool {
        false
    }

    /// Asynchronous [`Transport::submit`]: `then` is the completion. Where [`Transport::is_tended`] is false, it runs
    /// at once, in the calling thread.
    fn submit_then(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
        then: Completion,
    ) {
        then(self.submit(address, method, message, attachment, deadline_ns));
    }

    /// Registers `on_slow`, which is called with requests that wait long; only the first registration counts. A
    /// transport whose waits are simulated never calls it.
    fn watch(&self, _on_slow: OnSlow) {}

    /// The clock that deadlines are on.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Whether it can go through the doors of data servers on this machine.
    fn can_visit(&self) -> bool {
        false
    }

    /// Goes through the door that a data server of this machine announced.
    fn visit(&self, _door: &[u8], _deadline_ns: u64) -> Result<Visit, Fault> {
        Err(Fault::new(Code::Unsupported, "this transport knows no local doors"))
    }

    /// From now on these are the lines that carry little, instead of those named before. A transport with connections
    /// sends no more over them than they carry, so that short requests do not wait behind long ones.
    fn set_lines(&self, _lines: &[Line]) {}

    /// Which lines bulk passes over now.
    fn used_lines(&self) -> Vec<LineUsed> {
        Vec::new()
    }

    /// Ends every wait for an answer, now and from now on: all requests fail with `Cancelled`. For a process that is to
    /// stop whatever its servers do.
    fn hang_up(&self) {}

    /// The peers it is connected to by address, with the kernel's counters of the connections; empty for a transport
    /// without connections.
    fn peers(&self) -> Vec<vazao_meter::measures::Peer> {
        Vec::new()
    }
}

/// A typed request in flight.
pub struct PendingCall<O: Operation> {
    pending: Box<dyn Pending>,
    operation: std::marker::PhantomData<fn() -> O>,
}

impl<O: Operation> std::fmt::Debug for PendingCall<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PendingCall({})", O::METHOD.name())
    }
}

impl<O: Operation> PendingCall<O> {
    /// Waits for the result and the attachment.
    pub fn wait(self) -> Result<(O::Response, Buffer), Fault> {
        self.wait_timed().map(|(response, received)| (response, received.attachment))
    }

    /// Waits for the result, and all that came with it.
    pub fn wait_timed(self) -> Result<(O::Response, Received), Fault> {
        let received = self.pending.wait()?;
        let response = O::Response::decode(received.message.as_slice())
            .map_err(|e| Fault::new(Code::BadRequest, format!("answer to {}: {e}", O::METHOD.name())))?;
        Ok((response, received))
    }

    /// True once `wait` will not block.
    pub fn is_done(&self) -> bool {
        self.pending.is_done()
    }
}

/// Sends a typed request.
pub fn submit<O: Operation>(
    transport: &dyn Transport,
    address: &str,
    request: &O::Request,
    attachment: &[u8],
    deadline_ns: u64,
) -> PendingCall<O> {
    let message = request.encode_to_vec();
    let pending = transport.submit(address, O::METHOD, &message, attachment, deadline_ns);
    PendingCall { pending, operation: std::marker::PhantomData }
}

/// This machine's own address towards a server, as messages have it: empty where it is not known.
pub fn source(transport: &dyn Transport, address: &str) -> String {
    transport.local_address(address).map_or(String::new(), |address| address.to_string())
}

/// Sends a typed request and waits for its result; for operations without attachments.
pub fn call<O: Operation>(
    transport: &dyn Transport,
    address: &str,
    request: &O::Request,
    deadline_ns: u64,
) -> Result<O::Response, Fault> {
    submit::<O>(transport, address, request, &[], deadline_ns).wait().map(|(response, _)| response)
}
