//! The device: reads requests, hands them to the server, writes answers.
//!
//! A working thread has two buffers, allocated once and touched only as far as requests are long. All threads read
//! the same descriptor; giving each its own (`clone_fd`) made no clear difference when it was measured.

use super::abi::{self, capability};
use super::asynchronous::{self, Begin};
use super::lent::{Afterwards, Received, Spare};
use super::reply::{self, InitAnswer, Reply};
use super::request::{self, Body, Header, Init, Malformed, Request};
use super::serve::{Failure, Notifier, Server};
use super::worker_pool::WorkerPool;
use crate::filesystem::failures::is_trouble;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use vazao_client::SharedBytes;

/// Bytes of a request besides the data of a write.
const REQUEST_EXTRA_BYTES: usize = 4096;

/// Bytes of a write in front of its data, which are received so that the data begin on a page boundary.
const WRITE_FIELDS_BYTES: usize = abi::IN_HEADER_BYTES + 40;

/// The kernel refuses to fill a smaller buffer (FUSE_MIN_READ_BUFFER).
const REQUEST_BYTES_MIN: usize = 8192;

/// Read-ahead and direct requests the kernel keeps in flight: half of the threads that a mount has unless told
/// otherwise, so that a server that does not answer to read-ahead never holds up all of them.
pub(crate) const BACKGROUND_MAX: u16 = 24;

/// Why a mount's threads stopped, when it was not an unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    /// Reading or writing the device failed.
    #[error("/dev/fuse: {0}")]
    Device(Errno),
    /// The first request was not the one that opens the conversation.
    #[error("the kernel did not begin with INIT")]
    NoInit,
    /// The kernel speaks a version this door does not.
    #[error("the kernel speaks FUSE {0}.{1}, {major}.{minor} or a later {major}.x is needed (Linux 4.20 or later)",
            major = abi::MAJOR, minor = abi::MINOR_MIN)]
    Version(u32, u32),
}

/// An open FUSE device.
#[derive(Debug)]
pub(crate) struct Device {
    descriptor: OwnedFd,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Device {
        Device { descriptor }
    }

    /// The open file itself.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// The next request; `None` once the file system is unmounted.
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        loop {
            match rustix::io::read(&self.descriptor, &mut *buffer) {
                Ok(length) => return Ok(Some(length)),
                // NOENT: the request was taken back before it could be read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                // NODEV: unmounted. CONNABORTED: unmounted by force.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(DeviceError::Device(error)),
            }
        }
    }

    /// False when the answer has not reached the kernel.
    pub(super) fn send(&self, answer: &[u8]) -> bool {
        let sent = rustix::io::write(&self.descriptor, answer);
        match sent {
            // NOENT: the caller no longer waits for the request. NODEV: unmounted meanwhile.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => tracing::error!("the kernel refused an answer of {} bytes: {error}", answer.len()),
        }
        sent.is_ok()
    }
}

impl Device {
    /// Answers a request with `EINTR` while another thread is at work on it: that one's answer comes too late then.
    pub(crate) fn answer_interrupted(&self, unique: u64) {
        self.send(&reply::header(-Errno::INTR.raw_os_error(), unique, 0));
    }

    /// Sends what was not asked for; false when the kernel does not know the inode or the name.
    fn notify(&self, message: &mut Reply) -> bool {
        let sent = rustix::io::write(&self.descriptor, message.finish());
        if let Err(error) = &sent {
            tracing::trace!("a notification: {error}");
        }
        sent != Err(Errno::NOENT)
    }

    fn invalidate_inode(&self, node: u64, offset: i64) -> bool {
        let mut message = Reply::with_capacity(24);
        message.start_notification(abi::NOTIFY_INVALIDATE_INODE);
        message.put_u64(node);
        message.put_u64(offset as u64);
        // Up to the end.
        message.put_u64(0);
        self.notify(&mut message)
    }
}

impl Notifier for Arc<Device> {
    fn invalidate_attributes(&self, node: u64) -> bool {
        // A negative offset leaves cached pages alone: the kernel drops them itself when it sees another time.
        self.invalidate_inode(node, -1)
    }

    fn invalidate_contents(&self, node: u64) -> bool {
        self.invalidate_inode(node, 0)
    }

    fn invalidate_entry(&self, parent: u64, name: &[u8]) {
        let mut message = Reply::with_capacity(16 + name.len() + 1);
        message.start_notification(abi::NOTIFY_INVALIDATE_ENTRY);
        message.put_u64(parent);
        message.put_u32(name.len() as u32);
        message.put_u32(0);
        message.put(name);
        message.put(&[0]);
        self.notify(&mut message);
    }

    fn invalidate_entries(&self) {
        let mut message = Reply::with_capacity(0);
        message.start_notification(abi::NOTIFY_NEW_EPOCH);
        self.notify(&mut message);
    }
}

/// What the door offers in the INIT exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// Largest read or write, a multiple of the page size.
    pub(crate) request_bytes_max: u32,
    /// Wanted read-ahead.
    pub(crate) read_ahead_bytes: u32,
    /// Everything is ready for requests over io_uring.
    pub(crate) over_io_uring: bool,
    /// The kernel checks permissions.
    pub(crate) check_permissions: bool,
    /// Inodes can be found by number.
    pub(crate) finds_by_number: bool,
    /// What is different for a measurement.
    pub(crate) trial: Trial,
}

/// The kernel's settings that a measurement changes. Not for use: what a mount promises holds without.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trial {
    /// Capabilities not asked for.
    without: u64,
    /// Capabilities asked for that the door does not want.
    with: u64,
    /// Read-ahead and direct requests the kernel keeps in flight; `None` for the mount's own choice.
    background_max: Option<u16>,
}

impl Trial {
    /// Takes one setting, `without=CAPABILITY`, `with=CAPABILITY` or `background=N`; false for anything else.
    pub fn set(&mut self, setting: &str) -> bool {
        let Some((what, value)) = setting.split_once('=') else { return false };
        let capability = || capability::NAMES.iter().find(|(name, _)| *name == value).map(|(_, bit)| *bit);
        match (what, capability(), value.parse()) {
            ("without", Some(bit), _) => self.without |= bit,
            ("with", Some(bit), _) => self.with |= bit,
            ("background", _, Ok(max @ 1..)) => self.background_max = Some(max),
            _ => return false,
        }
        true
    }
}

/// What the kernel and the door have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// Requests come over io_uring once each core has a place.
    pub(crate) over_io_uring: bool,
}

/// The answer to the kernel's INIT.
pub(crate) fn negotiate(init: Init, offer: Offer) -> Result<InitAnswer, DeviceError> {
    if init.major != abi::MAJOR || init.minor < abi::MINOR_MIN {
        return Err(DeviceError::Version(init.major, init.minor));
    }
    let pages = offer.request_bytes_max.div_ceil(rustix::param::page_size() as u32);
    Ok(InitAnswer {
        // The kernel takes no more than it offered; mount() raises the limit afterwards where it may.
        read_ahead_bytes: offer.read_ahead_bytes.min(init.read_ahead_bytes),
        capabilities: capabilities(init.capabilities, offer),
        background_max: offer.trial.background_max.unwrap_or(BACKGROUND_MAX),
        write_bytes_max: offer.request_bytes_max,
        pages_max: u16::try_from(pages).unwrap_or(u16::MAX),
    })
}

/// What is taken of the capabilities the kernel offers.
fn capabilities(offered: u64, offer: Offer) -> u64 {
    let beyond_32 = |wanted: bool, capability: u64| {
        let needed = capability::EXTENDED | capability;
        if wanted && offered & needed == needed { needed } else { 0 }
    };
    let extended = beyond_32(offer.over_io_uring, capability::OVER_IO_URING)
        | beyond_32(true, capability::DIRECT_IO_ALLOW_MMAP);
    let unless = |is_there: bool, capability: u64| if is_there { 0 } else { capability };
    let refused = unless(offer.check_permissions, capability::OF_PERMISSIONS)
        | unless(offer.finds_by_number, capability::EXPORT_SUPPORT);
    let wanted = (capability::WANTED | offer.trial.with) & !offer.trial.without;
    offered & wanted & !refused | extended
}

/// Bytes of the longest data a request or its answer can have.
pub(crate) fn payload_bytes(request_bytes_max: u32) -> usize {
    (request_bytes_max as usize).next_multiple_of(rustix::param::page_size()).max(REQUEST_BYTES_MIN)
}

/// Answers the kernel's first request.
pub(crate) fn handshake(device: &Device, offer: Offer) -> Result<Agreed, DeviceError> {
    let mut buffer = vec![0; REQUEST_BYTES_MIN];
    let length = device.receive(&mut buffer)?.ok_or(DeviceError::Device(Errno::NODEV))?;
    let (header, body) = request::header(&buffer[..length]).map_err(|_| DeviceError::NoInit)?;
    let Ok(Request::Init(init)) = request::decode(header.operation, body) else {
        return Err(DeviceError::NoInit);
    };
    let mut reply = Reply::with_capacity(64);
    reply.start(header.unique);
    let answer = negotiate(init, offer);
    match &answer {
        Ok(answer) => reply.put_init_out(*answer),
        Err(_) => reply.fail(Errno::PROTO.raw_os_error()),
    }
    device.send(reply.finish());
    answer.map(|answer| Agreed { over_io_uring: answer.capabilities & capability::OVER_IO_URING != 0 })
}

/// A write of fewer bytes is copied when it is answered: sending it from where it is would need a receive buffer more.
const KEPT_BYTES_MIN: usize = 256 * 1024;

/// What a thread works with.
#[derive(Debug)]
pub(crate) struct Buffers {
    request: Received,
    reply: Reply,
}

/// How long receive buffers are, and the ones that are not in use.
#[derive(Debug)]
pub(crate) struct Memory {
    data_bytes: usize,
    spare: Arc<Spare>,
}

impl Memory {
    /// For requests and answers with data of at most `request_bytes_max` bytes.
    pub(crate) fn new(request_bytes_max: u32) -> Memory {
        Memory { data_bytes: request_bytes_max as usize, spare: Arc::default() }
    }

    fn receive(&self, server: &Server) -> Received {
        let length = (self.data_bytes + REQUEST_EXTRA_BYTES).max(REQUEST_BYTES_MIN);
        self.spare.take(length, WRITE_FIELDS_BYTES, |length| server.send_buffer(length))
    }
}

/// Serves requests until the file system is unmounted.
pub(crate) fn serve(
    device: &Arc<Device>,
    server: &Arc<Server>,
    worker_pool: &WorkerPool<Buffers>,
    memory: &Memory,
) -> Result<(), DeviceError> {
    let mut buffers = None;
    while worker_pool.take_turn(&mut buffers) {
        let mut is_reading = true;
        while is_reading {
            let Buffers { request, reply } = buffers.get_or_insert_with(|| Buffers {
                request: memory.receive(server),
                reply: Reply::with_capacity(memory.data_bytes),
            });
            let received = device.receive(request.as_mut());
            let Ok(Some(length)) = received else {
                server.end();
                worker_pool.leave();
                worker_pool.dismiss();
                return received.map(|_| ());
            };
            let leave = || {
                is_reading = false;
                worker_pool.leave();
            };
            if length < KEPT_BYTES_MIN {
                reply.afterwards = Afterwards::possible(None);
                serve_one(device, server, request.as_ref().get(..length).unwrap_or_default(), reply, leave);
            } else {
                let kept: SharedBytes = Arc::new(std::mem::replace(request, memory.receive(server)));
                reply.afterwards = Afterwards::possible(Some(Arc::clone(&kept)));
                serve_one(device, server, (*kept).as_ref().get(..length).unwrap_or_default(), reply, leave);
            }
        }
    }
    Ok(())
}

/// Serves one request, and then does what was left of it. `leave` is called before anything that may block: another
/// thread then has to read the device.
fn serve_one(
    device: &Arc<Device>,
    server: &Arc<Server>,
    request: &[u8],
    reply: &mut Reply,
    leave: impl FnOnce(),
) {
    let Ok((header, body)) = request::header(request) else {
        return tracing::error!("a request of {} bytes without a whole header", request.len());
    };
    let mut leave = Some(leave);
    let mut leave = || leave.take().into_iter().for_each(|leave| leave());
    let mut alone = match asynchronous::begin(device, server, &header, body) {
        Begin::Begun => return,
        Begin::Alone(alone) => Some(alone),
        Begin::Not => None,
    };
    if !server.begun.is_busy() {
        leave();
    }
    let begin = |request: &Request<'_>| {
        if alone.is_none() {
            match asynchronous::begin_decoded(device, server, &header, request) {
                Begin::Begun => return true,
                Begin::Alone(entered) => alone = Some(entered),
                Begin::Not => {}
            }
        }
        leave();
        false
    };
    if answer(server, &header, body, reply, begin) && !device.send(reply.finish()) {
        server.take_back(reply);
    }
    drop(std::mem::take(&mut reply.afterwards));
}

/// Answers one request into `reply`; false when it must not be answered. `begin` is called before anything that may
/// block, and may pass the request on to another thread: then it is true.
pub(crate) fn answer(
    server: &Server,
    header: &Header,
    body: Body<'_>,
    reply: &mut Reply,
    begin: impl FnOnce(&Request<'_>) -> bool,
) -> bool {
    reply.start(header.unique);
    let work = match request::decode(header.operation, body) {
        Ok(Request::Forget(forgotten)) => {
            server.forget(header, &forgotten);
            return false;
        }
        Err(Malformed) if abi::needs_no_answer(header.operation) => return false,
        Ok(Request::Interrupt { unique }) => {
            server.interrupts.raise(unique);
            return false;
        }
        decoded => AssertUnwindSafe(|| match decoded {
            Ok(request) => match server.answer_quickly(header, &request, reply) {
                Some(outcome) => Some(outcome),
                None if begin(&request) => None,
                None => Some(server.answer(header, request, reply)),
            },
            Err(Malformed) => Some(Err(Failure::Errno(abi::errno::INVALID))),
        }),
    };
    let outcome = match catch_unwind(work) {
        Ok(None) => return false,
        Ok(Some(outcome)) => Ok(outcome),
        Err(panic) => Err(panic),
    };
    conclude(server, header, outcome, reply);
    true
}

/// Makes an error of what failed. A defect in one request must not take the thread, and in the end the mount, with it.
pub(super) fn conclude(
    server: &Server,
    header: &Header,
    outcome: std::thread::Result<Result<(), Failure>>,
    reply: &mut Reply,
) {
    let outcome = outcome.unwrap_or_else(|_| {
        tracing::error!("a defect in {}, see the panic above", abi::operation_name(header.operation));
        Err(Failure::Errno(abi::errno::IO))
    });
    if let Err(failure) = outcome {
        log(header, &failure);
        server.take_back(reply);
        reply.fail(failure.errno());
    }
}

/// Ordinary outcomes are for who debugs an application; trouble is for who runs the mount.
fn log(header: &Header, failure: &Failure) {
    let operation = abi::operation_name(header.operation);
    // Two numbers: the kernel's for what it asked, ours for the request to a server that failed, 0 for none.
    let (kernel, node) = (header.unique, header.node);
    match failure {
        Failure::Client(error) if is_trouble(error) => {
            tracing::warn!(kernel, request = %error.request, node, "{operation}: {error}");
        }
        Failure::Client(error) => {
            tracing::debug!(kernel, request = %error.request, node, "{operation}: {error}");
        }
        Failure::LockTaken => tracing::debug!(kernel, node, "{operation}: the lock has another owner"),
        Failure::Errno(errno) => tracing::debug!(kernel, node, errno, "{operation}: not served"),
    }
}
