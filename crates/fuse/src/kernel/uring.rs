//! The second transport: requests over io_uring (Linux 6.14 and later, behind the kernel module's `enable_uring`).
//!
//! The kernel has a queue for each core and puts a request into the one of the core that its caller runs on. Each
//! thread here is bound to a core and has one place in its queue: it takes a request, calls the server, and gives the
//! answer back together with the wish for the next, in one system call and without another core's help. The kernel
//! gives a request to the place that was freed last, so that a thread that is still warm gets it. A thread that blocks
//! on a server delays no other request as long as its queue has a free place: a queue grows until it has [`FREE_MIN`]
//! of them, from the beginning or, on a machine with many cores, once it is used. They must be there beforehand: an
//! added place does not take a request that already waits, as the kernel looks at those only when an answer is given
//! back.
//!
//! What comes without being answered (forgotten inodes, interrupts), and notifications to the kernel, still goes
//! over the device itself.

use super::answer;
use super::device::{self, Device, DeviceError};
use super::handshake;
use super::reply::Reply;
use super::request::{self, Body};
use super::ring::{DeviceRing, Exchange, Ring};
use super::serve::Server;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The kernel module's switch.
pub(crate) const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Which cores there may ever be: the kernel has a queue for each.
const POSSIBLE_CORES: &str = "/sys/devices/system/cpu/possible";

/// Answers to requests with names or data in them are short and grow only with the longest attributes.
const SPARE_REPLY_BYTES: usize = 4096;

/// Free places that a queue in use has ready: enough for all read-ahead at once, and a burst of calls beside it, which
/// all wait when their server is gone.
const FREE_MIN: usize = handshake::BACKGROUND_MAX as usize + 24;

/// On machines with at most so many cores all queues grow when the mount begins: that is a thousand threads. On larger
/// ones each grows when it is used.
const READY_QUEUES_MAX: usize = 20;

type Ended = Result<(), DeviceError>;

/// What the threads of a mount share.
pub(crate) struct Queues {
    device: Arc<Device>,
    server: Arc<Server>,
    request_bytes_max: u32,
    /// A queue has no more places than this.
    places_max: usize,
    queues: Box<[Queue]>,
    threads: Mutex<Vec<JoinHandle<Ended>>>,
}

/// The places in one core's queue.
#[derive(Debug, Default)]
struct Queue {
    places: AtomicUsize,
    free: AtomicUsize,
}

/// Threads that have their rings, one for each core, and wait for the connection to begin.
pub(crate) struct Prepared {
    waiting: Vec<Waiting>,
}

struct Waiting {
    begin: Sender<Arc<Queues>>,
    registered: Receiver<Result<(), Errno>>,
    thread: JoinHandle<Ended>,
}

/// Number of cores in a list as the kernel writes it, `0-3,8`: one more than the last.
fn core_count(list: &str) -> Option<u16> {
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse::<u16>().ok()?.checked_add(1)
}

/// Binds the calling thread to a core; where that is not allowed, or the core is off, it runs anywhere.
fn bind_to(core: u16) {
    let mut cores = CpuSet::new();
    if usize::from(core) >= CpuSet::MAX_CPU {
        return;
    }
    cores.set(usize::from(core));
    if let Err(error) = sched_setaffinity(None, &cores) {
        tracing::debug!(core, "a thread of this core's queue runs anywhere: {error}");
    }
}

/// Room for a payload, on a page boundary: the kernel copies page by page.
fn exchange(request_bytes_max: u32) -> Exchange {
    let reply = Reply::with_capacity(device::payload_bytes(request_bytes_max));
    let (memory, start) = reply.into_memory();
    Exchange::new(memory, start)
}

impl Prepared {
    /// Makes a thread with a ring for each core. Before the connection begins: once the kernel has heard that requests
    /// go over io_uring it holds them all back until every queue has a place.
    pub(crate) fn new(device: &Arc<Device>) -> std::io::Result<Prepared> {
        let list = std::fs::read_to_string(POSSIBLE_CORES)?;
        let cores = core_count(&list)
            .ok_or_else(|| std::io::Error::other(format!("{POSSIBLE_CORES}: not understood: {list}")))?;
        let mut waiting = Vec::with_capacity(usize::from(cores));
        for core in 0..cores {
            waiting.push(Prepared::thread(Arc::clone(device), core)?);
        }
        Ok(Prepared { waiting })
    }

    fn thread(device: Arc<Device>, core: u16) -> std::io::Result<Waiting> {
        let (begin, beginning) = channel::<Arc<Queues>>();
        let (made, making) = channel();
        let (register, registered) = channel();
        let body = move || {
            bind_to(core);
            let ring = Ring::new(device, core);
            let _ = made.send(ring.as_ref().map(|_| ()).map_err(|errno| *errno));
            let Ok(ring) = ring else { return Ok(()) };
            // Nothing comes when the mount was given up.
            let Ok(queues) = beginning.recv() else { return Ok(()) };
            queues.queues[usize::from(core)].places.fetch_add(1, Ordering::SeqCst);
            queues.run(core, ring, Some(&register))
        };
        let thread = std::thread::Builder::new().name(format!("fuse-{core}")).spawn(body)?;
        making.recv().map_err(std::io::Error::other)??;
        Ok(Waiting { begin, registered, thread })
    }

    /// Takes the places. On an error the kernel goes on over the device, and the threads end with the mount.
    pub(crate) fn begin(
        self,
        device: Arc<Device>,
        server: Arc<Server>,
        request_bytes_max: u32,
        busy_max: usize,
    ) -> (Arc<Queues>, Result<(), Errno>) {
        let queues = (0..self.waiting.len()).map(|_| Queue::default()).collect();
        let threads = Mutex::default();
        let places_max = busy_max.max(1) + FREE_MIN;
        let queues = Arc::new(Queues { device, server, request_bytes_max, places_max, queues, threads });
        let mut outcome = Ok(());
        for waiting in self.waiting {
            // A thread that is gone does not register either.
            let _ = waiting.begin.send(Arc::clone(&queues));
            let registered = waiting.registered.recv().unwrap_or(Err(Errno::IO));
            outcome = outcome.and(registered);
            queues.keep(waiting.thread);
        }
        if outcome.is_ok() && queues.count() <= READY_QUEUES_MAX {
            // A queue that grows with its first use is too late for a first burst of calls to a dead server: they take
            // all places, and what comes behind them waits for their deadline.
            (0..queues.count()).for_each(|core| queues.top_up(core as u16));
        }
        (queues, outcome)
    }
}

impl Queues {
    /// Number of queues.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    fn keep(&self, thread: JoinHandle<Ended>) {
        self.threads.lock().push(thread);
    }

    /// Waits until all threads have ended.
    pub(crate) fn join(&self) -> Ended {
        let mut outcome = Ok(());
        loop {
            let thread = self.threads.lock().pop();
            // Threads are made by threads that have not ended yet: when none is left, none will come.
            let Some(thread) = thread else { return outcome };
            outcome = outcome.and(thread.join().unwrap_or(Err(DeviceError::Device(Errno::IO))));
        }
    }

    /// Takes a place in the queue of `core` and serves requests until the file system is unmounted. The caller has
    /// counted the place. `registered` receives the outcome of the registration; a queue's first place has one.
    fn run(
        self: &Arc<Queues>,
        core: u16,
        mut ring: DeviceRing,
        registered: Option<&Sender<Result<(), Errno>>>,
    ) -> Ended {
        let queue = &self.queues[usize::from(core)];
        queue.free.fetch_add(1, Ordering::SeqCst);
        let begun = ring.register(exchange(self.request_bytes_max));
        match registered {
            // The caller may have given up.
            Some(registered) => drop(registered.send(begun)),
            None if begun.is_ok() => self.top_up(core),
            None => {}
        }
        let ended = match begun {
            Ok(()) => self.serve(core, &mut ring),
            Err(error) => {
                queue.free.fetch_sub(1, Ordering::SeqCst);
                Err(error)
            }
        };
        queue.places.fetch_sub(1, Ordering::SeqCst);
        match ended {
            // NOTCONN: unmounted. CONNABORTED, CANCELED: unmounted by force, or this process is ending.
            Ok(()) | Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV) => Ok(()),
            Err(error) => {
                tracing::error!(core, "a place in a queue over io_uring is lost: {error}");
                // Without a place the callers on this core would wait for ever.
                if begun.is_ok() {
                    self.top_up(core);
                }
                Err(DeviceError::Device(error))
            }
        }
    }

    fn serve(self: &Arc<Queues>, core: u16, ring: &mut DeviceRing) -> Result<(), Errno> {
        let queue = &self.queues[usize::from(core)];
        let mut spare = Reply::with_capacity(SPARE_REPLY_BYTES);
        loop {
            let waited = ring.wait();
            let was_free = queue.free.fetch_sub(1, Ordering::SeqCst);
            let mut exchange = waited?;
            if was_free <= FREE_MIN {
                self.top_up(core);
            }
            answer(&self.server, &mut exchange, &mut spare);
            queue.free.fetch_add(1, Ordering::SeqCst);
            if let Err(error) = ring.commit(exchange) {
                queue.free.fetch_sub(1, Ordering::SeqCst);
                return Err(error);
            }
        }
    }

    /// Adds a place to the queue of `core`, whose thread adds the next, until enough are free or it has as many as it
    /// may.
    fn top_up(self: &Arc<Queues>, core: u16) {
        let queue = &self.queues[usize::from(core)];
        if queue.free.load(Ordering::SeqCst) >= FREE_MIN {
            return;
        }
        // The place is counted before it is there, so that no more are made than there may be.
        let places_max = self.places_max + self.server.lock_waiters.count();
        let more = |places: usize| (places < places_max).then_some(places + 1);
        if queue.places.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_err() {
            return;
        }
        if let Err(error) = self.spawn(core) {
            queue.places.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(core, "a queue over io_uring stays as it is: {error}");
        }
    }

    fn spawn(self: &Arc<Queues>, core: u16) -> std::io::Result<()> {
        let queues = Arc::clone(self);
        let body = move || {
            bind_to(core);
            match Ring::new(Arc::clone(&queues.device), core) {
                Ok(ring) => queues.run(core, ring, None),
                // Too little memory for one more place is no reason to end the mount.
                Err(error) => {
                    queues.queues[usize::from(core)].places.fetch_sub(1, Ordering::SeqCst);
                    tracing::warn!(core, "a queue over io_uring stays as it is: {error}");
                    Ok(())
                }
            }
        };
        self.keep(std::thread::Builder::new().name(format!("fuse-{core}")).spawn(body)?);
        Ok(())
    }
}

/// Answers the request in `exchange` in its place.
fn answer(server: &Server, exchange: &mut Exchange, spare: &mut Reply) {
    let headers = &exchange.headers;
    let payload = exchange.memory.get(exchange.payload_start..).unwrap_or_default();
    let Ok((header, body)) =
        request::parts(&headers.in_out, &headers.operation, payload, headers.payload_bytes)
    else {
        tracing::error!("a request over io_uring whose lengths do not fit together");
        spare.start(0);
        spare.fail(super::abi::errno::IO);
        return give_back(exchange, spare);
    };
    if body.is_without_payload() {
        // The answer is made where the kernel takes it from.
        let operation = headers.operation;
        let body = Body::new(&operation[..body.fields_bytes()], &[]);
        let mut reply = Reply::in_memory(std::mem::take(&mut exchange.memory), exchange.payload_start);
        finish(server, &header, body, &mut reply);
        let (errno, unique, length) = reply.outcome();
        (exchange.memory, _) = reply.into_memory();
        return put_header(exchange, errno, unique, length);
    }
    finish(server, &header, body, spare);
    give_back(exchange, spare);
}

fn finish(server: &Server, header: &request::Header, body: Body<'_>, reply: &mut Reply) {
    if !answer::answer(server, header, body, reply, |_| false) {
        // What needs no answer comes over the device; here every request holds a place until it has one.
        reply.fail(super::abi::errno::INVALID);
    }
}

/// Copies an answer that could not be made in its place, because the request was there.
fn give_back(exchange: &mut Exchange, reply: &mut Reply) {
    let (errno, unique, length) = reply.outcome();
    let start = exchange.payload_start;
    let place = exchange.memory.get_mut(start..).and_then(|payload| payload.get_mut(..length));
    match place {
        Some(place) => {
            place.copy_from_slice(reply.body());
            put_header(exchange, errno, unique, length);
        }
        None => put_header(exchange, -super::abi::errno::IO, unique, 0),
    }
}

fn put_header(exchange: &mut Exchange, errno: i32, unique: u64, length: usize) {
    let headers = &mut exchange.headers;
    headers.payload_bytes = u32::try_from(length).unwrap_or(0);
    headers.in_out[..super::abi::OUT_HEADER_BYTES]
        .copy_from_slice(&super::reply::header(errno, unique, length));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_cores_tells_how_many_queues_there_are() {
        for (list, count) in [("0\n", Some(1)), ("0-1\n", Some(2)), ("0-3,8", Some(9)), ("0-127", Some(128))]
        {
            assert_eq!(core_count(list), count, "{list}");
        }
        for list in ["", "x", "0-", "65535"] {
            assert_eq!(core_count(list), None, "{list}");
        }
    }
}
