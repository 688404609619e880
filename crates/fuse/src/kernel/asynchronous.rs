//! Requests that are sent on and not waited for: the thread that has read one goes on reading, and the answer goes to
//! the kernel from the thread that receives for the whole mount.
//!
//! Over the device only: there every thread that waits for a server has to be replaced by another one, which costs as
//! much as all the rest of a short request. Over io_uring a request's place has its own thread anyhow.

use super::abi::{self, open_flag};
use super::answer;
use super::device::Device;
use super::outcome::{Failure, Outcome};
use super::reply::Reply;
use super::request::{self, Body, Header, Request};
use super::serve::{Server, caller, open_mode};
use crate::filesystem::arguments::Place;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use vazao_client::{Asked, Error, File, Readiness};
use vazao_model::InodeId;

/// Answers to these requests are short.
const REPLY_BYTES: usize = 512;

thread_local! {
    static REPLY: RefCell<Option<Reply>> = const { RefCell::new(None) };
}

/// What has become of a request.
pub(super) enum Begin {
    /// It is under way and will be answered.
    Begun,
    /// It is the only one: waiting for its answer is the shorter way, as no other thread has to be woken by that.
    Alone(Alone),
    /// It cannot be begun.
    Not,
}

/// Keeps a request that is waited for among those under way.
pub(super) struct Alone(Arc<Server>);

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.in_flight.leave();
    }
}

/// A request that was begun.
struct Work {
    device: Arc<Device>,
    server: Arc<Server>,
    header: Header,
    asked: Asked,
    can_be_given_up: bool,
}

/// Begins a request, if it is one that can be and is never answered from memory.
pub(super) fn begin(device: &Arc<Device>, server: &Arc<Server>, header: &Header, body: Body<'_>) -> Begin {
    if !matches!(header.operation, abi::CREATE | abi::UNLINK) {
        return Begin::Not;
    }
    match request::decode(header.operation, body) {
        Ok(request) => begin_decoded(device, server, header, &request),
        Err(_) => Begin::Not,
    }
}

/// Begins a request that could not be answered from memory, if it is one that can be begun.
pub(super) fn begin_decoded(
    device: &Arc<Device>,
    server: &Arc<Server>,
    header: &Header,
    request: &Request<'_>,
) -> Begin {
    let thread = header.thread;
    let can_be = match *request {
        Request::Lookup { .. } | Request::Open { .. } if server.second_walks.is_under_way(thread) => false,
        Request::Create { .. } | Request::Unlink { .. } | Request::Lookup { .. } | Request::Open { .. } => {
            true
        }
        Request::Flush { handle, .. } => server.door.can_begin_flush(handle),
        _ => false,
    };
    if !can_be {
        return Begin::Not;
    }
    let Some(before) = server.in_flight.enter() else { return Begin::Not };
    if before == 0 || !server.door.can_begin() {
        return Begin::Alone(Alone(Arc::clone(server)));
    }
    let can_be_given_up = request.can_be_given_up();
    if can_be_given_up {
        server.interrupts.begin(header.unique);
    }
    let (device, server) = (Arc::clone(device), Arc::clone(server));
    let asked = server.door.asked();
    let directory = server.nodes.inode(header.node);
    Work { device, server, header: *header, asked, can_be_given_up }.begin(directory, request);
    Begin::Begun
}

impl Work {
    /// `inode`: the one that the request is about, which of a name is the directory's.
    fn begin(self, inode: InodeId, request: &Request<'_>) {
        let server = Arc::clone(&self.server);
        let directory = inode;
        match *request {
            Request::Create { name, flags, mode } => {
                let (exclusive, truncate) =
                    (flags & open_flag::EXCLUSIVE != 0, flags & open_flag::TRUNCATE != 0);
                let (place, caller, name) = (Place { directory, name }, caller(&self.header), name.to_vec());
                let show = move |server: &Server, created: Result<_, Error>, reply: &mut Reply| {
                    let opened = server.door.end_create_file(created?, truncate)?;
                    server.created(Place { directory, name: &name }, opened, flags, reply)
                };
                let then = Box::new(move |early| self.go_on(early, show));
                server.door.begin_create_file(place, caller, mode, exclusive, then);
            }
            Request::Unlink { name } => {
                let show = |_: &Server, removed: Result<(), Error>, _: &mut Reply| Ok(removed?);
                let then = Box::new(move |early| self.go_on(early, show));
                server.door.begin_unlink(Place { directory, name }, then);
            }
            Request::Lookup { name } => {
                let owned = name.to_vec();
                let show = move |server: &Server, found, reply: &mut Reply| {
                    server.found(Place { directory, name: &owned }, found, reply)
                };
                let then = Box::new(move |early| self.go_on(early, show));
                server.door.begin_lookup(Place { directory, name }, then);
            }
            Request::Open { flags } => {
                let node = self.header.node;
                let show = move |server: &Server, file: Result<File, Error>, reply: &mut Reply| {
                    server.opened(node, server.door.end_open(file?)?, flags, false, reply)
                };
                let then = Box::new(move |early| self.go_on(early, show));
                server.door.begin_open(inode, open_mode(flags), then);
            }
            Request::Flush { handle, lock_owner } => {
                let node = self.header.node;
                let show = move |server: &Server, flushed, _: &mut Reply| server.reported(node, flushed);
                let then = Box::new(move |early| self.go_on(early, show));
                server.door.begin_flush(handle, lock_owner, then);
            }
            _ => self.answer(|_, _| Err(Failure::Errno(abi::errno::NOT_IMPLEMENTED))),
        }
    }

    /// The answer is there, or it takes a thread to wait for it.
    fn go_on<T: Send + 'static>(
        self,
        early: Readiness<T>,
        show: impl FnOnce(&Server, Result<T, Error>, &mut Reply) -> Outcome + Send + 'static,
    ) {
        let unique = self.header.unique;
        let rest = match early {
            Readiness::Ready(outcome) => {
                if self.can_be_given_up {
                    self.server.interrupts.take_over(unique);
                }
                return self.answer(|server, reply| show(server, outcome, reply));
            }
            Readiness::Blocking(rest) => rest,
        };
        let wait = move || {
            let (can_be_given_up, call) = (self.can_be_given_up, self.header.call());
            self.answer(|server, reply| {
                let interrupts = &server.interrupts;
                if !can_be_given_up {
                    return interrupts.writing(call, || show(server, rest(), reply));
                }
                let is_given_up = interrupts.take_over(unique);
                interrupts.during(call, || {
                    if is_given_up {
                        interrupts.raise(unique);
                    }
                    show(server, rest(), reply)
                })
            });
        };
        let place = Arc::new(Mutex::new(Some(wait)));
        let handed = Arc::clone(&place);
        let take = |place: &Mutex<Option<_>>| place.lock().take();
        let run = move || {
            if let Some(wait) = take(&handed) {
                wait();
            }
        };
        // The kernel has to get its answer: without a thread of its own it holds up those behind it.
        if let Err(error) = std::thread::Builder::new().name("fuse-slow".to_owned()).spawn(run) {
            tracing::error!("no thread to wait for an answer: {error}");
            if let Some(wait) = take(&place) {
                wait();
            }
        }
    }

    fn answer(self, work: impl FnOnce(&Server, &mut Reply) -> Outcome) {
        let Work { device, server, header, asked, .. } = self;
        let mut reply = REPLY.with(|reply| reply.take()).unwrap_or_else(|| Reply::with_capacity(REPLY_BYTES));
        reply.start(header.unique);
        reply.asked = asked;
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&server, &mut reply)));
        answer::conclude(&server, &header, outcome, &mut reply);
        server.in_flight.leave();
        if !device.send(reply.finish()) {
            server.take_back(&mut reply);
        }
        REPLY.with(|place| place.replace(Some(reply)));
    }
}
