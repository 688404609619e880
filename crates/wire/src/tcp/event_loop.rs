//! One server thread: waits for its connections, handles what they sent, flushes once, sends all answers.

use super::buffers::Stack;
use super::inbox::{Inbox, Notice};
use super::served::{Close, Served, Surroundings, encode_failure};
use super::server::Shared;
use super::socket::{Socket, bind_to};
use super::takeover::LoopSlot;
use crate::frame::{HEADER_BYTES, Header, METHOD_HELLO, flags};
use crate::service::Fault;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, send, sockopt};
use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::{debug, info, warn};
use vazao_meter::Cause;
use vazao_model::Code;
use vazao_model::limits::{DEADLINE_MS_DEFAULT, HELLO_MS_MAX, UNSENT_MS_MAX};

/// Received bytes that are handled between two flushes of one connection: four of the usual 256 KiB writes.
const SCRATCH_BYTES: usize = 1 << 20;

/// Connections whose peers owe bytes are looked at this often.
const SWEEP_NS: u64 = 1_000_000_000;

/// Interval of sweeps over all connections while one of them waits for memory.
const SWEEP_PRESSED_NS: u64 = 250_000_000;

/// Poll interval for connections that wait for memory: another loop's connections may have freed some.
const ADMIT_NS: i64 = 20_000_000;

/// The kernel gives up a connection over which nothing is acknowledged for so long: later than this process does.
const ABANDONED_MS_MAX: u32 = UNSENT_MS_MAX + 30_000;

const LISTENER: u64 = 0;
const INBOX: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// Where connections come in.
pub(super) enum Listener {
    /// Connections are shared out among all loops.
    Tcp(TcpListener),
    /// The entrance of a core of this machine, whose loop serves all that come by it.
    Entrance { socket: OwnedFd, core: usize },
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Entrance { socket, .. } => socket.as_fd(),
        }
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Socket::Tcp(stream)),
            Listener::Entrance { socket, .. } => {
                let stream = accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
                Ok(Socket::Local(UnixStream::from(stream)))
            }
        }
    }
}

/// What a loop continues with, whichever thread runs it.
pub(super) struct LoopState {
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    listener: Option<Listener>,
    connections: HashMap<u64, Served>,
    next_id: u64,
    next_loop: usize,
    /// Connections with answers of this round.
    answered: Vec<u64>,
    /// Connections that wait for memory.
    waiting: Vec<u64>,
    /// How many of them the server knows of.
    waiting_told: usize,
    /// The connection that has memory beyond the bound: one at a time, so that one can always proceed. Without it
    /// connections that wait for memory could deadlock.
    overdrawn: Option<u64>,
    swept_ns: u64,
    /// The connection whose requests are being handled, while this is in the slot.
    in_service: Option<Arc<Socket>>,
    /// Taken over from another thread, whose answers have to be made durable before they are sent.
    is_taken_over: bool,
}

impl LoopState {
    /// Ends the connection whose handler is stuck: its peer sends again, over another connection, what was not
    /// answered.
    fn give_up_stuck(&mut self, shared: &Shared) {
        let Some(socket) = self.in_service.take() else { return };
        // Its descriptor stays open until the handler comes back: epoll would go on to tell of it.
        let _ = epoll::delete(&self.epoll, &*socket);
        socket.shut_down();
        shared.metrics.connections.add(-1);
    }
}

/// The state of one loop thread.
///
/// Of a service that uses disks ([`Service::may_hang`](crate::service::Service::may_hang)) the state is in the thread's
/// [`LoopSlot`] while requests are handled. A thread that returns too late finds the slot empty: another thread has
/// taken the state over. Everything else runs only while the thread has the state.
pub(super) struct EventLoop {
    shared: Arc<Shared>,
    slot: Arc<LoopSlot>,
    stack: Stack,
    scratch: Vec<u8>,
    state: Option<Box<LoopState>>,
}

impl Deref for EventLoop {
    type Target = LoopState;

    fn deref(&self) -> &LoopState {
        self.state.as_deref().expect("a thread that has lost its connections looks at none")
    }
}

impl DerefMut for EventLoop {
    fn deref_mut(&mut self) -> &mut LoopState {
        self.state.as_deref_mut().expect("a thread that has lost its connections looks at none")
    }
}

impl EventLoop {
    pub(super) fn new(
        shared: Arc<Shared>,
        inbox: Arc<Inbox>,
        listener: Option<Listener>,
    ) -> io::Result<EventLoop> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*inbox, epoll::EventData::new_u64(INBOX), epoll::EventFlags::IN)?;
        if let Some(listener) = &listener {
            if let Listener::Tcp(listener) = listener {
                listener.set_nonblocking(true)?;
            }
            epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        }
        let state = LoopState {
            inbox,
            epoll,
            listener,
            connections: HashMap::new(),
            next_id: FIRST_CONNECTION,
            next_loop: 0,
            answered: Vec::new(),
            waiting: Vec::new(),
            waiting_told: 0,
            overdrawn: None,
            swept_ns: 0,
            in_service: None,
            is_taken_over: false,
        };
        Ok(EventLoop::with(shared, Box::new(state)))
    }

    fn with(shared: Arc<Shared>, state: Box<LoopState>) -> EventLoop {
        let (slot, stack, scratch) = (Arc::default(), Stack::default(), vec![0; SCRATCH_BYTES]);
        EventLoop { shared, slot, stack, scratch, state: Some(state) }
    }

    /// Continues with the state that a stuck thread has left in its slot.
    pub(super) fn in_place_of(shared: Arc<Shared>, mut state: Box<LoopState>) -> EventLoop {
        state.give_up_stuck(&shared);
        // That thread may have been about to send their answers.
        state.answered = state.connections.keys().copied().collect();
        state.connections.values_mut().for_each(|served| served.is_queued = false);
        state.waiting.clear();
        state.is_taken_over = true;
        state.inbox.wake();
        EventLoop::with(shared, state)
    }

    /// Where its state is while requests are handled.
    pub(super) fn slot(&self) -> Arc<LoopSlot> {
        Arc::clone(&self.slot)
    }

    /// True once another thread has taken its state over.
    fn is_replaced(&self) -> bool {
        self.state.is_none()
    }

    /// Has `served` do `work`, which handles requests. `None` when this thread was replaced meanwhile: the connection
    /// is gone.
    fn handle<T>(
        &mut self,
        served: &mut Served,
        started_ns: u64,
        requests: &mut u64,
        work: impl FnOnce(&mut Served, &mut [u8], &mut Surroundings<'_>) -> T,
    ) -> Option<T> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let inbox = Arc::clone(&self.inbox);
        if self.shared.may_hang {
            self.in_service = Some(served.socket());
            self.slot.leave(self.state.take());
        }
        let mut around = Surroundings {
            service: &*self.shared.service,
            key: &self.shared.key,
            clock: &self.shared.clock,
            inbox: &inbox,
            slot: &self.slot,
            stack: &mut self.stack,
            metrics: &self.shared.metrics,
            started_ns,
            requests,
        };
        let done = work(served, &mut scratch, &mut around);
        self.scratch = scratch;
        if self.shared.may_hang {
            self.state = self.slot.take_back();
            self.state.as_mut()?.in_service = None;
        }
        Some(done)
    }

    /// Serves until the server stops.
    pub(super) fn run(mut self) {
        if let Some(Listener::Entrance { core, .. }) = &self.listener {
            bind_to(*core);
        }
        let mut events = Vec::with_capacity(256);
        let (second, soon) = (Timespec { tv_sec: 1, tv_nsec: 0 }, Timespec { tv_sec: 0, tv_nsec: ADMIT_NS });
        let mut round_ended_ns = self.shared.clock.now_ns();
        while !self.shared.stopping.load(Ordering::Acquire) {
            events.clear();
            let timeout = if self.waiting.is_empty() { &second } else { &soon };
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    warn!(%error, "a server thread ends: epoll failed");
                    return;
                }
            }
            let started_ns = self.shared.clock.now_ns();
            self.shared.metrics.accounts.charge(Cause::Idle, started_ns.saturating_sub(round_ended_ns));
            self.round(&events, started_ns);
            if self.is_replaced() {
                info!(
                    "a server thread that was stuck in a disk has returned; another thread has its connections"
                );
                return;
            }
            round_ended_ns = self.shared.clock.now_ns();
            self.shared.metrics.accounts.charge(Cause::Compute, round_ended_ns.saturating_sub(started_ns));
        }
        let EventLoop { shared, stack, state, .. } = &mut self;
        for connection in state.iter_mut().flat_map(|state| state.connections.values_mut()) {
            let _ = connection.send(stack, &shared.metrics, round_ended_ns);
        }
    }

    fn round(&mut self, events: &[epoll::Event], started_ns: u64) {
        let mut requests = 0;
        for event in events {
            let (id, happened) = (event.data.u64(), event.flags);
            match id {
                LISTENER => self.accept(started_ns),
                INBOX => self.read_inbox(started_ns),
                _ => self.serve(id, happened, started_ns, &mut requests),
            }
            if self.is_replaced() {
                return;
            }
        }
        self.shared.metrics.requests.add(requests);
        if (requests > 0 || std::mem::take(&mut self.is_taken_over))
            && let Err(fault) = self.shared.service.flush()
        {
            self.distrust(&fault);
        }
        self.send_answers(started_ns);
        if !self.is_replaced() {
            self.admit(started_ns);
        }
        if self.is_replaced() {
            return;
        }
        let is_pressed = self.shared.bounds.is_pressed();
        let interval_ns = if is_pressed { SWEEP_PRESSED_NS } else { SWEEP_NS };
        if started_ns.saturating_sub(self.swept_ns) > interval_ns {
            self.sweep(started_ns, is_pressed);
        }
    }

    fn accept(&mut self, started_ns: u64) {
        loop {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok(stream @ Socket::Local(_)) => self.adopt(stream, started_ns),
                Ok(stream) => {
                    let count = self.shared.inboxes.len();
                    self.next_loop = (self.next_loop + 1) % count;
                    self.shared.inboxes[self.next_loop].push(Notice::Accepted(stream));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of descriptors or memory. The connection stays in the backlog; a pause keeps the loop from
                    // spinning.
                    warn!(%error, "cannot accept a connection; is the limit of open files too low?");
                    self.shared.clock.sleep(Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    fn read_inbox(&mut self, started_ns: u64) {
        for notice in self.inbox.drain() {
            match notice {
                Notice::Accepted(stream) => self.adopt(stream, started_ns),
                Notice::MakeRoom => drop(self.drop_oldest_stranger()),
                Notice::Answered { connection, request_id, answer } => {
                    let EventLoop { shared, stack, state, .. } = self;
                    let Some(state) = state else { return };
                    let Some(served) = state.connections.get_mut(&connection) else { continue };
                    served.finish_deferred(request_id, &answer, stack, &shared.clock);
                    state.answered.push(connection);
                }
            }
        }
    }

    fn adopt(&mut self, stream: Socket, started_ns: u64) {
        let connections_max = self.shared.bounds.connections_max;
        let is_full = self.shared.metrics.connections.get() >= connections_max as i64;
        if is_full && !self.drop_oldest_stranger() && !self.ask_for_room() {
            refuse_overloaded(&stream, connections_max);
            return;
        }
        let prepared = stream.tcp().map_or(Ok(()), prepare);
        let id = self.next_id;
        let served = Served::new(id, stream, started_ns, &self.shared.watched, &self.shared.bounds);
        let added = prepared.and_then(|()| {
            Ok(epoll::add(&self.epoll, &served, epoll::EventData::new_u64(id), epoll::EventFlags::IN)?)
        });
        if let Err(error) = added {
            warn!(%error, peer = served.peer, "cannot serve a connection");
            return;
        }
        self.next_id += 1;
        self.shared.metrics.connections.add(1);
        self.connections.insert(id, served);
    }

    /// Closes the connection that has been the longest without proving the key: unauthenticated peers must not take
    /// all connections from clients of the cluster. False when there is none.
    fn drop_oldest_stranger(&mut self) -> bool {
        let strangers = self.connections.values().filter(|served| served.in_handshake());
        let oldest = strangers.min_by_key(|served| (served.since_ns, served.id)).map(|served| served.id);
        let Some(served) = oldest.and_then(|id| self.connections.remove(&id)) else { return false };
        self.drop_connection(served, &Close::Gone);
        true
    }

    /// Has the other loops do the same. False when they have none either. Until they do the limit is exceeded by one
    /// connection.
    fn ask_for_room(&self) -> bool {
        let may_be_had = self.shared.bounds.has_strangers();
        if may_be_had {
            let others = self.shared.inboxes.iter().filter(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
            others.for_each(|inbox| inbox.push(Notice::MakeRoom));
        }
        may_be_had
    }

    fn serve(&mut self, id: u64, happened: epoll::EventFlags, started_ns: u64, requests: &mut u64) {
        let Some(mut served) = self.connections.remove(&id) else { return };
        if happened.intersects(epoll::EventFlags::OUT) {
            self.answered.push(id);
        }
        let ended = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if happened.intersects(ended) && !served.listens() {
            // The connection is not read at present, so no read would notice its end, and epoll would report the end
            // again and again: a busy loop.
            return self.drop_connection(served, &Close::Gone);
        }
        if happened.intersects(epoll::EventFlags::IN | ended) {
            let receive = |served: &mut Served, scratch: &mut [u8], around: &mut Surroundings<'_>| {
                served.receive(scratch, around)
            };
            let Some(outcome) = self.handle(&mut served, started_ns, requests, receive) else { return };
            match outcome {
                Ok(received) => self.shared.metrics.received_bytes.add(received as u64),
                Err(close) => return self.drop_connection(served, &close),
            }
            if served.unsent_bytes() > 0 || !served.listens() {
                self.answered.push(id);
            }
        }
        self.connections.insert(id, served);
    }

    fn drop_connection(&mut self, served: Served, close: &Close) {
        self.shared.metrics.connections.add(-1);
        match close {
            Close::Gone => debug!(peer = served.peer, "connection closed"),
            Close::Withheld(fault) => warn!(peer = served.peer, %fault, "answers withheld"),
            Close::Refused(fault) => {
                self.shared.metrics.refused.add(1);
                info!(peer = served.peer, %fault, "connection refused");
            }
            Close::Stalled(fault) => {
                self.shared.metrics.stalled.add(1);
                served.abort();
                info!(peer = served.peer, %fault, "connection closed");
            }
        }
    }

    /// The batch did not reach the log: none of its answers may be sent.
    fn distrust(&mut self, fault: &Fault) {
        warn!(%fault, "answers withheld");
        for id in std::mem::take(&mut self.answered) {
            if let Some(served) = self.connections.remove(&id) {
                self.drop_connection(served, &Close::Gone);
            }
        }
    }

    fn send_answers(&mut self, started_ns: u64) {
        let mut answered = std::mem::take(&mut self.answered);
        while !answered.is_empty() {
            for id in answered.drain(..) {
                self.send_to(id, started_ns);
                if self.is_replaced() {
                    return;
                }
            }
            // Sending may have made room for requests that were held back; their answers are sent in the next turn.
            std::mem::swap(&mut answered, &mut self.answered);
        }
        self.answered = answered;
    }

    fn send_to(&mut self, id: u64, started_ns: u64) {
        let Some(mut served) = self.connections.remove(&id) else { return };
        let mut requests = 0;
        let mut outcome = served.send(&mut self.stack, &self.shared.metrics, started_ns);
        if outcome.is_ok() && served.can_resume() {
            self.answered.push(id);
            let resume =
                |served: &mut Served, _: &mut [u8], around: &mut Surroundings<'_>| served.resume(around);
            let Some(resumed) = self.handle(&mut served, started_ns, &mut requests, resume) else { return };
            outcome = resumed.and_then(|()| self.shared.service.flush().map_err(Close::Withheld));
        }
        let outcome =
            outcome.and_then(|()| watch(&self.epoll, &mut served, started_ns).map_err(|_| Close::Gone));
        self.shared.metrics.requests.add(requests);
        match outcome {
            Ok(()) => {
                if !served.is_queued && served.wanted_bytes().is_some() {
                    served.is_queued = true;
                    self.waiting.push(id);
                }
                self.connections.insert(id, served);
            }
            Err(close) => self.drop_connection(served, &close),
        }
    }

    /// Lets connections go on for which there is memory again, those that need least first: these have given it back
    /// soonest.
    fn admit(&mut self, now_ns: u64) {
        if self.waiting.is_empty() && self.waiting_told == 0 {
            return;
        }
        let is_done = |served: Option<&Served>| !served.is_some_and(Served::has_claim);
        if self.overdrawn.is_some_and(|id| is_done(self.connections.get(&id))) {
            self.overdrawn = None;
        }
        let mut waiting: Vec<(usize, u64)> = Vec::with_capacity(self.waiting.len());
        for id in std::mem::take(&mut self.waiting) {
            let Some(served) = self.connections.get_mut(&id) else { continue };
            served.is_queued = false;
            waiting.extend(served.wanted_bytes().map(|bytes| (bytes, id)));
            // A connection that waits no longer is read from again.
            self.answered.push(id);
        }
        waiting.sort_unstable();
        for (bytes, id) in waiting {
            let EventLoop { stack, state, .. } = self;
            let Some(state) = state else { return };
            let Some(served) = state.connections.get_mut(&id) else { continue };
            let may_overdraw = bytes > 0 && state.overdrawn.is_none();
            if !served.admit(stack, now_ns, false) && may_overdraw && served.admit(stack, now_ns, true) {
                state.overdrawn = Some(id);
            }
        }
        // Sending puts the connections that still wait back into the list.
        self.send_answers(now_ns);
        if self.is_replaced() {
            return;
        }
        let (told, waits) = (self.waiting_told, self.waiting.len());
        if told != waits {
            self.shared.bounds.waiting.fetch_add(waits, Ordering::Relaxed);
            self.shared.bounds.waiting.fetch_sub(told, Ordering::Relaxed);
            self.waiting_told = waits;
        }
    }

    /// Closes connections whose peers have owed the rest of a handshake or a frame, or left their answers unread, for
    /// too long. Under memory pressure the timeouts are shorter.
    fn sweep(&mut self, now_ns: u64, is_pressed: bool) {
        self.swept_ns = now_ns;
        let mut late = Vec::new();
        for served in self.connections.values_mut() {
            let why = late_by(served, now_ns);
            let why = why.or_else(|| is_pressed.then(|| served.stall(now_ns)).flatten());
            late.extend(why.map(|why| (served.id, why)));
        }
        for (id, why) in late {
            if let Some(served) = self.connections.remove(&id) {
                self.drop_connection(served, &Close::Stalled(Fault::new(Code::Timeout, why)));
            }
        }
    }
}

/// Why a connection has to be closed, whether others need its memory or not.
fn late_by(served: &mut Served, now_ns: u64) -> Option<&'static str> {
    let is_over = |since_ns: u64, ms: u32| now_ns.saturating_sub(since_ns) > u64::from(ms) * 1_000_000;
    let limit_ms = if served.in_handshake() { HELLO_MS_MAX } else { DEADLINE_MS_DEFAULT };
    if served.owes() && is_over(served.since_ns, limit_ms) && !served.has_unread() {
        return Some("the peer left a handshake or a request unfinished");
    }
    let is_unread = served.is_unread(now_ns, u64::from(UNSENT_MS_MAX) * 1_000_000);
    is_unread.then_some("the peer takes none of its answers")
}

/// Asks epoll for what the connection waits for now: room to send, and bytes unless too many answers are owed.
fn watch(epoll: &OwnedFd, served: &mut Served, now_ns: u64) -> io::Result<()> {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::OUT, served.unsent_bytes() > 0);
    flags.set(epoll::EventFlags::IN, served.listens());
    if flags == served.watched {
        return Ok(());
    }
    if flags.contains(epoll::EventFlags::IN) && !served.watched.contains(epoll::EventFlags::IN) {
        served.listen_again(now_ns);
    }
    served.watched = flags;
    Ok(epoll::modify(epoll, &*served, epoll::EventData::new_u64(served.id), flags)?)
}

/// Keep-alive probes of the kernel detect a peer whose machine died, after two minutes, or when it has acknowledged
/// nothing for [`ABANDONED_MS_MAX`]. A peer that does not read its answers is disconnected earlier, by a reset: the
/// kernel alone would give the connection up without notifying the peer.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 6)?;
    Ok(sockopt::set_tcp_user_timeout(stream, ABANDONED_MS_MAX)?)
}

fn refuse_overloaded(stream: &Socket, connections_max: usize) {
    let detail = format!("{connections_max} connections are open already");
    let message = encode_failure(&Fault::new(Code::Overloaded, detail));
    let header = Header {
        flags: flags::ANSWER | flags::ERROR,
        method: METHOD_HELLO,
        message_bytes: message.len() as u32,
        ..Header::default()
    };
    let mut frame = Vec::with_capacity(HEADER_BYTES + message.len());
    frame.extend_from_slice(&header.encode());
    frame.extend_from_slice(&message);
    // Best effort: the peer gets the reason if its socket takes it. The connection is closed either way.
    let _ = send(stream, &frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}
