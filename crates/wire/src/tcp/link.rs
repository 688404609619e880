//! A client's TCP connection, with pipelined requests and no receiver thread of its own.
//!
//! One waiter, the leader, receives the answers of all requests in flight. The other waiters sleep until their answer
//! is there or they are woken to take over the lead.

use super::buffers::SharedPool;
use super::in_flight::InFlight;
use super::inbound::{Frame, Inbound};
use super::lines::{Pace, UNPACED};
use super::slow_requests::{Asked, Outgoing, RequestTimeout, SlowRequestWatchdog};
use super::socket::{Socket, rest_of};
use super::table::{Called, Slot, Table, hand_over, pass_on_lead};
use super::watched::{Entry, Watched};
use crate::frame::{HEADER_BYTES, Header, METHOD_HELLO, flags};
use crate::hello::{self, ClientHandshake, Credits};
use crate::interrupt;
use crate::key::ClusterKey;
use crate::service::Fault;
use crate::transport::{Completion, Received};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::{Accounts, Cause, Clock};
use vazao_model::Code;

/// An authenticated connection.
///
/// - Lock order: `sending`, `inbound`, `table`; `send_pace` is the last. No lock is held while a completion runs.
/// - `Table::led` says that a thread leads, which means that it receives or polls for all. After the handshake
///   only the leader locks `inbound`.
/// - A leader that leaves must pass the lead on ([`pass_on_lead`]), or lead again soon.
/// - Credits return when the answer arrives, also for an abandoned request.
/// - `Table::broken` is set once. From then on every request fails with it.
pub(super) struct Link {
    stream: Arc<Socket>,
    _watched: Entry,
    address: String,
    credits: Credits,
    /// Round-trip time of the handshake's first message.
    round_trip_ns: u64,
    /// The server has accepted the proof of the key.
    is_admitted: AtomicBool,
    clock: Arc<dyn Clock>,
    accounts: Arc<Accounts>,
    watch: Arc<SlowRequestWatchdog>,
    is_hung_up: Arc<AtomicBool>,
    /// A thread receives for it, whether anything waits or not.
    has_receiver: AtomicBool,
    /// The pace that the server was told.
    sending: Mutex<u64>,
    /// That which it is to have, and that of this end.
    receive_pace: AtomicU64,
    send_pace: Mutex<u64>,
    inbound: Mutex<Inbound>,
    table: Mutex<Table>,
}

/// What a link needs of its transport.
pub(super) struct LinkParts {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) pool: Arc<SharedPool>,
    pub(super) watch: Arc<SlowRequestWatchdog>,
    pub(super) watched: Arc<Watched>,
    /// The transport ends all waits.
    pub(super) is_hung_up: Arc<AtomicBool>,
}

impl Link {
    /// Shakes hands over a fresh connection; `timeout` is that of the request that waits for it.
    pub(super) fn establish(
        stream: Socket,
        address: &str,
        key: &ClusterKey,
        parts: LinkParts,
        deadline_ns: u64,
        timeout: Option<&mut RequestTimeout<'_>>,
    ) -> Result<Link, Fault> {
        let limited = stream.limit_receives(Duration::from_nanos(WAIT_IN_RECEIVE_NS));
        limited.map_err(|error| Fault::new(Code::Unreachable, format!("{address}: {error}")))?;
        let stream = Arc::new(stream);
        let mut link = Link {
            _watched: parts.watched.enter(&stream, address.to_owned()),
            stream,
            address: address.to_owned(),
            credits: Credits { requests: 1, bytes: 0 },
            round_trip_ns: 0,
            is_admitted: AtomicBool::new(false),
            clock: parts.clock,
            accounts: parts.accounts,
            watch: parts.watch,
            is_hung_up: parts.is_hung_up,
            has_receiver: AtomicBool::new(false),
            sending: Mutex::new(UNPACED),
            receive_pace: AtomicU64::new(UNPACED),
            send_pace: Mutex::new(UNPACED),
            inbound: Mutex::new(Inbound::new(parts.pool)),
            table: Mutex::default(),
        };
        let (handshake, hello) = ClientHandshake::begin(hello::nonce()?);
        let asked_ns = link.clock.now_ns();
        link.say_hello(&hello, deadline_ns)?;
        let answer = link.hear_hello(deadline_ns, timeout)?;
        link.round_trip_ns = link.clock.now_ns().saturating_sub(asked_ns);
        let (credits, proof) = handshake.finish(key, &answer).map_err(|fault| link.named(fault))?;
        // The answer is not waited for, which would cost one more round trip: the server has proved the key, and
        // handles no request before it has verified this proof.
        link.say_hello(&proof, deadline_ns)?;
        link.credits = credits;
        Ok(link)
    }

    /// See [`Socket::distance_ns`].
    pub(super) fn distance_ns(&self) -> u64 {
        self.stream.distance_ns()
    }

    /// The handshake's round-trip time.
    pub(super) fn round_trip_ns(&self) -> u64 {
        self.round_trip_ns
    }

    /// A thread receives for it, as long as it stands.
    pub(super) fn has_receiver(&self) -> bool {
        self.has_receiver.load(Ordering::Relaxed)
    }

    /// True for the one that may begin with it.
    pub(super) fn claim_receiver(&self, is_claimed: bool) -> bool {
        !self.has_receiver.swap(is_claimed, Ordering::SeqCst)
    }

    #[cfg(test)]
    pub(super) fn paced(&self) -> Pace {
        Pace { send: *self.send_pace.lock(), receive: *self.sending.lock() }
    }

    #[cfg(test)]
    pub(super) fn socket(&self) -> &Socket {
        &self.stream
    }

    /// Has both ends send at this pace: the server hears of it with the next request.
    pub(super) fn pace(&self, pace: Pace) {
        self.receive_pace.store(pace.receive, Ordering::Relaxed);
        let mut present = self.send_pace.lock();
        if *present != pace.send {
            *present = pace.send;
            self.stream.pace(pace.send);
        }
    }

    /// The frame that says to the server at which pace it is to send, where that has changed.
    fn new_pace(&self, told: &mut u64) -> Option<[u8; HEADER_BYTES]> {
        let wanted = self.receive_pace.load(Ordering::Relaxed);
        let before = std::mem::replace(told, wanted);
        let header = Header { flags: flags::PACE, request_id: wanted, ..Header::default() };
        (before != wanted).then(|| header.encode())
    }

    fn named(&self, fault: Fault) -> Fault {
        Fault::new(fault.code, format!("{}: {}", self.address, fault.detail))
    }

    fn say_hello(&self, message: &[u8], deadline_ns: u64) -> Result<(), Fault> {
        let header =
            Header { method: METHOD_HELLO, message_bytes: message.len() as u32, ..Header::default() };
        self.send_parts([&header.encode(), message, &[]], deadline_ns, None).map(drop)
    }

    fn hear_hello(
        &self,
        deadline_ns: u64,
        mut timeout: Option<&mut RequestTimeout<'_>>,
    ) -> Result<Vec<u8>, Fault> {
        let mut inbound = self.inbound.lock();
        loop {
            if let Some(frame) = inbound.next_frame().map_err(|e| self.garbage(&e))? {
                if frame.header.has(flags::ERROR) {
                    return Err(self.named(frame.failure()));
                }
                return Ok(frame.message);
            }
            // Until the connection is established no other thread can break it off, so this loop checks the flag.
            if self.is_hung_up.load(Ordering::Relaxed) {
                return Err(Code::Cancelled.into());
            }
            if interrupt::is_polled() {
                return Err(Code::Interrupted.into());
            }
            let until_ns = timeout.as_mut().map_or(deadline_ns, |timeout| timeout.until_ns(deadline_ns));
            let look_ns = until_ns.min(self.clock.now_ns() + WAIT_IN_RECEIVE_NS);
            if !self.receive_some(&mut inbound, look_ns)? && self.clock.now_ns() >= deadline_ns {
                return Err(self.late());
            }
        }
    }

    fn late(&self) -> Fault {
        Fault::new(Code::Timeout, format!("{} has not answered within the deadline", self.address))
    }

    fn lost(&self, why: &str) -> Fault {
        Fault::new(Code::Disconnected, format!("connection to {} lost: {why}", self.address))
    }

    fn garbage(&self, error: &crate::frame::FrameError) -> Fault {
        let code = match error {
            crate::frame::FrameError::Version(_) => Code::VersionMismatch,
            _ => Code::BadRequest,
        };
        Fault::new(code, format!("{}: {error}", self.address))
    }

    /// True until the connection has failed.
    pub(super) fn is_usable(&self) -> bool {
        self.table.lock().broken.is_none()
    }

    /// Sends a request. Its answer is kept under its id; the completion `then`, which is taken, runs once it is
    /// there.
    pub(super) fn submit(
        self: &Arc<Link>,
        request: &Outgoing<'_>,
        then: &mut Option<Completion>,
    ) -> Result<(), Fault> {
        self.take_credits(request, then)?;
        let header = Header {
            flags: 0,
            method: request.method.number(),
            request_id: request.id,
            message_bytes: request.message.len() as u32,
            attachment_bytes: request.attachment.len() as u32,
            time: self.left_ns(request.deadline_ns).div_ceil(1_000_000).min(u64::from(u32::MAX)) as u32,
        };
        let mut timeout = self.timeout(&Asked::of(request));
        let is_paced = *self.send_pace.lock() != UNPACED;
        // Over a line that carries little a long request takes long, and is under way all the time.
        let sent_by_ns = if is_paced { request.deadline_ns } else { request.sent_by_ns };
        let turn = self.turn(sent_by_ns, &mut timeout);
        let mut sending = turn.inspect_err(|_| self.withdraw(request.id, then))?;
        let pace = self.new_pace(&mut sending);
        let mut head = [0; 2 * HEADER_BYTES];
        let (before, own) = head.split_at_mut(HEADER_BYTES);
        own.copy_from_slice(&header.encode());
        pace.iter().for_each(|pace| before.copy_from_slice(pace));
        let head = if pace.is_some() { &head[..] } else { &head[HEADER_BYTES..] };
        let parts = [head, request.message, request.attachment];
        let sent = self.send_while_sending(&sending, parts, sent_by_ns, Some(&mut timeout));
        drop(sending);
        self.end_sending(sent);
        Ok(())
    }

    /// Waits for the turn at sending. Errors: the time is over, or the caller is killed, before anything was sent.
    fn turn(&self, until_ns: u64, timeout: &mut RequestTimeout<'_>) -> Result<MutexGuard<'_, u64>, Fault> {
        if let Some(sending) = self.sending.try_lock() {
            return Ok(sending);
        }
        loop {
            let look_ns = interrupt::look_by_ns(self.clock.now_ns(), timeout.until_ns(until_ns));
            let left = Duration::from_nanos(self.left_ns(look_ns).max(1));
            let sending = self.sending.try_lock_for(left);
            if self.left_ns(until_ns) == 0 {
                return Err(self.late());
            }
            if let Some(sending) = sending {
                return Ok(sending);
            }
            if interrupt::is_killed() {
                return Err(Code::Interrupted.into());
            }
        }
    }

    /// Takes back a request of which nothing was sent, with its completion.
    fn withdraw(&self, id: u64, then: &mut Option<Completion>) {
        let mut table = self.table.lock();
        match table.slots.remove(&id) {
            Some(Slot::Waiting { bytes, then: called, .. }) => {
                *then = called.map(|called| called.then);
                table.requests = table.requests.saturating_sub(1);
                table.bytes = table.bytes.saturating_sub(bytes);
                table.hungry.drain(..).for_each(|thread| thread.unpark());
            }
            // The connection has failed meanwhile: its completion has run, or will.
            other => table.slots.extend(other.map(|other| (id, other))),
        }
    }

    /// After [`Link::send_parts`].
    fn end_sending(self: &Arc<Link>, sent: Result<bool, Fault>) {
        match sent {
            // Completions may send, so none runs before the turn at sending is over.
            Ok(has_received) if has_received => self.call(),
            Ok(_) => {}
            Err(fault) => self.break_off(&fault),
        }
    }

    fn timeout(&self, asked: &Asked) -> RequestTimeout<'_> {
        RequestTimeout::new(&self.watch, &self.clock, &self.address, asked)
    }

    /// No request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.table.lock().requests == 0
    }

    /// True while at most half of the credits are in use.
    pub(super) fn has_room(&self) -> bool {
        let table = self.table.lock();
        table.requests < self.credits.requests / 2 && table.bytes < self.credits.bytes / 2
    }

    /// A request with an attachment would leave at once: credits allow it, no other thread is sending, and the socket
    /// buffer has room.
    pub(super) fn is_free_to_send(&self) -> bool {
        if !self.has_room() || self.sending.try_lock().is_none() {
            return false;
        }
        let mut fds = [PollFd::new(&*self.stream, PollFlags::OUT)];
        let looked = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        looked.is_ok() && fds[0].revents().contains(PollFlags::OUT)
    }

    /// Blocks until the server's credits allow one more request (backpressure), and enters it.
    fn take_credits(
        self: &Arc<Link>,
        request: &Outgoing<'_>,
        then: &mut Option<Completion>,
    ) -> Result<(), Fault> {
        let bytes = request.attachment.len() as u64;
        let mut timeout = self.timeout(&Asked::of(request));
        let mut started_ns = None;
        let mut table = self.table.lock();
        loop {
            if let Some(fault) = &table.broken {
                return Err(fault.clone());
            }
            let fits = table.bytes == 0 || table.bytes + bytes <= self.credits.bytes;
            if fits && table.requests < self.credits.requests {
                break;
            }
            let is_killed = || started_ns.is_some() && interrupt::is_killed();
            let fault = match self.left_ns(request.sent_by_ns) {
                0 => Some(self.late()),
                _ => is_killed().then(|| Code::Interrupted.into()),
            };
            if let Some(fault) = fault {
                pass_on_lead(&table);
                return Err(fault);
            }
            started_ns = started_ns.or_else(|| Some(self.clock.now_ns()));
            let until_ns = timeout.until_ns(request.sent_by_ns);
            let until_ns = interrupt::look_by_ns(self.clock.now_ns(), until_ns);
            table = self.wait_for_progress(table, None, until_ns);
        }
        table.requests += 1;
        table.bytes += bytes;
        let then = then.take().map(|then| Called { asked: Asked::of(request), then });
        table.slots.insert(request.id, Slot::Waiting { thread: None, bytes, then });
        if started_ns.is_some() {
            // This thread may have led, and sends before it leads again: others sleep until then, though their answers
            // may be there.
            pass_on_lead(&table);
        }
        let receiver = table.receiver.take();
        drop(table);
        if let Some(receiver) = receiver {
            receiver.unpark();
        }
        if let Some(started_ns) = started_ns {
            self.accounts.charge(Cause::Credit, self.clock.now_ns().saturating_sub(started_ns));
        }
        Ok(())
    }

    fn left_ns(&self, deadline_ns: u64) -> u64 {
        deadline_ns.saturating_sub(self.clock.now_ns())
    }

    /// Waits for the answer to a request.
    pub(super) fn wait(self: &Arc<Link>, asked: Asked) -> Result<Received, Fault> {
        match self.until_done(&asked) {
            Ok(mut table) => {
                let slot = table.slots.remove(&asked.id);
                pass_on_lead(&table);
                let Some(Slot::Done(result)) = slot else { return Err(Code::Internal.into()) };
                result
            }
            Err(fault) => {
                self.abandon(asked.id);
                Err(fault)
            }
        }
    }

    /// See [`crate::transport::Pending::settle`].
    pub(super) fn settle(self: &Arc<Link>, asked: &Asked) -> bool {
        if !interrupt::heeds_kills() {
            return true;
        }
        match self.until_done(asked) {
            Ok(table) => {
                pass_on_lead(&table);
                true
            }
            Err(fault) => fault.code != Code::Interrupted,
        }
    }

    /// See [`crate::transport::Pending::settle_by`].
    pub(super) fn settle_by(self: &Arc<Link>, asked: &Asked, until_ns: u64) -> bool {
        let deadline_ns = asked.deadline_ns.min(until_ns);
        match self.until_done(&Asked { deadline_ns, ..*asked }) {
            Ok(table) => {
                pass_on_lead(&table);
                true
            }
            Err(fault) => fault.code != Code::Timeout || deadline_ns == asked.deadline_ns,
        }
    }

    /// Blocks until the answer is there, the deadline has passed or the caller is interrupted.
    fn until_done<'a>(self: &'a Arc<Link>, asked: &Asked) -> Result<MutexGuard<'a, Table>, Fault> {
        let Asked { id, deadline_ns, .. } = *asked;
        let mut timeout = self.timeout(asked);
        let mut table = self.table.lock();
        // Receives once also after the deadline: the answer may be in the socket buffer already.
        let mut looked_at_ns = None;
        loop {
            if matches!(table.slots.get(&id), Some(Slot::Done(_)) | None) {
                return Ok(table);
            }
            let now_ns = self.clock.now_ns();
            let fault = match looked_at_ns {
                None => interrupt::is_polled().then(|| Code::Interrupted.into()),
                Some(_) if now_ns >= deadline_ns => Some(self.late()),
                Some(first_ns) => interrupt::is_due(first_ns, now_ns).then(|| Code::Interrupted.into()),
            };
            if let Some(fault) = fault {
                pass_on_lead(&table);
                return Err(fault);
            }
            looked_at_ns = looked_at_ns.or(Some(now_ns));
            let until_ns = interrupt::look_by_ns(now_ns, timeout.until_ns(deadline_ns));
            table = self.wait_for_progress(table, Some(id), until_ns);
        }
    }

    /// Receives as the leader, or sleeps while another thread does. `id` is the request waited for, `None` for
    /// credits.
    fn wait_for_progress<'a>(
        self: &'a Arc<Link>,
        mut table: MutexGuard<'a, Table>,
        id: Option<u64>,
        deadline_ns: u64,
    ) -> MutexGuard<'a, Table> {
        if !table.led {
            table.led = true;
            drop(table);
            let outcome = self.lead(id, deadline_ns);
            if let Err(fault) = outcome {
                self.break_off(&fault);
            }
            self.call();
            let mut table = self.table.lock();
            table.led = false;
            return table;
        }
        match id.and_then(|id| table.slots.get_mut(&id)) {
            Some(Slot::Waiting { thread, .. }) => *thread = Some(std::thread::current()),
            _ => table.hungry.push(std::thread::current()),
        }
        drop(table);
        let started_ns = self.clock.now_ns();
        std::thread::park_timeout(Duration::from_nanos(self.left_ns(deadline_ns)));
        if id.is_some() {
            self.accounts.charge(Cause::Network, self.clock.now_ns().saturating_sub(started_ns));
        }
        self.table.lock()
    }

    /// Receives for all waiters until the own answer, or any answer when waiting for credits, has arrived.
    fn lead(&self, id: Option<u64>, deadline_ns: u64) -> Result<(), Fault> {
        let mut inbound = self.inbound.lock();
        let mut late_receives = 0;
        loop {
            let mut delivered = false;
            let mut own = false;
            while let Some(frame) = inbound.next_frame().map_err(|e| self.garbage(&e))? {
                if frame.header.method == METHOD_HELLO {
                    self.admit(&frame)?;
                    continue;
                }
                own |= Some(frame.header.request_id) == id;
                delivered = true;
                self.deliver(frame);
            }
            if own || (delivered && id.is_none()) {
                return Ok(());
            }
            let has_received = self.receive_some(&mut inbound, deadline_ns)?;
            if self.left_ns(deadline_ns) == 0 {
                late_receives += 1;
                if !has_received || late_receives > LATE_RECEIVES_MAX {
                    return Ok(());
                }
            }
        }
    }

    /// Receives what is there, waiting for it until the deadline. False when nothing came.
    fn receive_some(&self, inbound: &mut Inbound, deadline_ns: u64) -> Result<bool, Fault> {
        // Most answers are short and come soon: one call that waits for them is cheaper than one that finds nothing,
        // one that waits, and one that receives.
        let waits = !inbound.is_within_frame() && self.left_ns(deadline_ns) > WAIT_IN_RECEIVE_NS;
        let received = if waits { self.receive_waiting(inbound) } else { self.receive_now(inbound) };
        match received {
            Ok(0) => return Err(self.lost("closed by the server")),
            Ok(count) => {
                inbound.received(count);
                return Ok(true);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(self.lost(&errno.to_string())),
        }
        self.poll(PollFlags::IN, deadline_ns.min(self.clock.now_ns() + WAY_LOOK_NS))?;
        self.check_way()?;
        Ok(false)
    }

    /// Fails once nothing gets through to the peer: the caller can then retry over a new connection, instead of
    /// blocking until its deadline.
    fn check_way(&self) -> Result<(), Fault> {
        if self.stream.is_way_lost() { Err(self.lost("nothing gets through to it")) } else { Ok(()) }
    }

    fn receive_now(&self, inbound: &mut Inbound) -> Result<usize, Errno> {
        rustix::net::recv(&*self.stream, inbound.space(), RecvFlags::DONTWAIT).map(|(_, count)| count)
    }

    /// Waits for [`WAIT_IN_RECEIVE_NS`] at most.
    fn receive_waiting(&self, inbound: &mut Inbound) -> Result<usize, Errno> {
        let started_ns = self.clock.now_ns();
        let received = rustix::net::recv(&*self.stream, inbound.space(), RecvFlags::empty());
        self.accounts.charge(Cause::Network, self.clock.now_ns().saturating_sub(started_ns));
        received.map(|(_, count)| count)
    }

    fn poll(&self, flags: PollFlags, deadline_ns: u64) -> Result<PollFlags, Fault> {
        let started_ns = self.clock.now_ns();
        let left_ns = deadline_ns.saturating_sub(started_ns);
        let timeout =
            Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as _ };
        let mut fds = [PollFd::new(&*self.stream, flags)];
        let outcome = poll(&mut fds, Some(&timeout));
        let cause = if flags.contains(PollFlags::OUT) { Cause::Send } else { Cause::Network };
        self.accounts.charge(cause, self.clock.now_ns().saturating_sub(started_ns));
        match outcome {
            Ok(_) | Err(Errno::INTR) => Ok(fds[0].revents()),
            Err(errno) => Err(self.lost(&errno.to_string())),
        }
    }

    /// The server's verdict on the proof. A later message says no more than why it closes the connection.
    fn admit(&self, frame: &Frame) -> Result<(), Fault> {
        let was_admitted = self.is_admitted.swap(true, Ordering::Relaxed);
        if frame.header.has(flags::ERROR) && !was_admitted {
            return Err(self.named(frame.failure()));
        }
        Ok(())
    }

    fn deliver(&self, frame: Frame) {
        let id = frame.header.request_id;
        if !frame.header.has(flags::ANSWER) {
            return;
        }
        let mut table = self.table.lock();
        let bytes = match table.slots.remove(&id) {
            Some(Slot::Waiting { thread, bytes, then }) => {
                table.called.extend(then);
                let result = match frame.header.has(flags::ERROR) {
                    true => Err(frame.failure()),
                    false => Ok(Received {
                        message: frame.message,
                        attachment: frame.attachment,
                        service_us: frame.header.time,
                    }),
                };
                table.slots.insert(id, Slot::Done(result));
                if let Some(thread) = thread {
                    thread.unpark();
                }
                bytes
            }
            Some(Slot::Abandoned { bytes }) => bytes,
            Some(done @ Slot::Done(_)) => {
                table.slots.insert(id, done);
                return;
            }
            None => return,
        };
        table.requests = table.requests.saturating_sub(1);
        table.bytes = table.bytes.saturating_sub(bytes);
        table.hungry.drain(..).for_each(|thread| thread.unpark());
    }

    /// True once the answer to `id` is there; receives what the socket holds to find out.
    pub(super) fn is_done(self: &Arc<Link>, id: u64) -> bool {
        let waiting = |table: &Table| matches!(table.slots.get(&id), Some(Slot::Waiting { .. }));
        let mut table = self.table.lock();
        if waiting(&table) && !table.led {
            table = self.wait_for_progress(table, Some(id), 0);
            pass_on_lead(&table);
        }
        !waiting(&table)
    }

    /// The answer to `id` is no longer wanted.
    pub(super) fn abandon(self: &Arc<Link>, id: u64) {
        let mut table = self.table.lock();
        match table.slots.remove(&id) {
            Some(Slot::Waiting { bytes, .. }) => {
                table.slots.insert(id, Slot::Abandoned { bytes });
            }
            _ => return,
        }
        drop(table);
        let header = Header { flags: flags::CANCEL, request_id: id, ..Header::default() };
        let until_ns = self.clock.now_ns() + CANCEL_NS_MAX;
        self.end_sending(self.send_parts([&header.encode(), &[], &[]], until_ns, None));
    }

    /// Sends header, message and attachment. While the socket buffer is full, answers are received: a server whose
    /// own answers are stuck reads no requests, so not receiving would deadlock. True when it did: their completions
    /// have yet to run.
    fn send_parts(
        &self,
        parts: [&[u8]; 3],
        deadline_ns: u64,
        timeout: Option<&mut RequestTimeout<'_>>,
    ) -> Result<bool, Fault> {
        let sending = self.sending.lock();
        self.send_while_sending(&sending, parts, deadline_ns, timeout)
    }

    fn send_while_sending(
        &self,
        _sending: &MutexGuard<'_, u64>,
        parts: [&[u8]; 3],
        deadline_ns: u64,
        mut timeout: Option<&mut RequestTimeout<'_>>,
    ) -> Result<bool, Fault> {
        let mut has_received = false;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut sent = 0;
        while sent < total {
            let slices = rest_of(parts, sent);
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(&*self.stream, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let until_ns = timeout.as_mut().map_or(deadline_ns, |p| p.until_ns(deadline_ns));
                    self.wait_for_room(deadline_ns, until_ns)?;
                    has_received = true;
                }
                Err(errno) => return Err(self.lost(&errno.to_string())),
            }
        }
        Ok(has_received)
    }

    /// Waits until `until_ns` at most, for the caller to look again.
    fn wait_for_room(&self, deadline_ns: u64, until_ns: u64) -> Result<(), Fault> {
        if self.left_ns(deadline_ns) == 0 {
            return Err(self.lost("the server takes no more requests"));
        }
        self.check_way()?;
        let until_ns = until_ns.min(self.clock.now_ns() + WAY_LOOK_NS);
        let mut table = self.table.lock();
        if table.led {
            drop(table);
            self.poll(PollFlags::OUT, until_ns)?;
            return Ok(());
        }
        table.led = true;
        drop(table);
        let outcome = self
            .poll(PollFlags::OUT | PollFlags::IN, until_ns)
            .and_then(|ready| if ready.contains(PollFlags::IN) { self.lead(None, 0) } else { Ok(()) });
        let mut table = self.table.lock();
        table.led = false;
        pass_on_lead(&table);
        outcome
    }

    /// Ends the connection: every request in flight fails with `fault`.
    pub(super) fn break_off(self: &Arc<Link>, fault: &Fault) {
        let mut guard = self.table.lock();
        let table = &mut *guard;
        if table.broken.is_some() {
            return;
        }
        table.broken = Some(fault.clone());
        for slot in table.slots.values_mut() {
            if let Slot::Waiting { thread, then, .. } = slot {
                if let Some(thread) = thread.take() {
                    thread.unpark();
                }
                table.called.extend(then.take());
                *slot = Slot::Done(Err(fault.clone()));
            }
        }
        table.hungry.drain(..).chain(table.receiver.take()).for_each(|thread| thread.unpark());
        drop(guard);
        if self.stream.has_untaken() {
            // The kernel would go on sending these requests after their callers have given up or retried them: once the
            // network is back they would overwrite what other clients have changed since.
            self.stream.abort();
        }
        // The descriptor stays open until the last user lets go; the peer learns of the end now.
        self.stream.shut_down();
        self.call();
    }

    /// Runs the completions of answers that have come.
    fn call(self: &Arc<Link>) {
        let called = std::mem::take(&mut self.table.lock().called);
        for Called { asked, then } in called {
            then(Box::new(InFlight::new(Arc::clone(self), asked)));
        }
    }

    /// Receives for asynchronous calls until the connection has failed. A request that has waited for
    /// [`TENDED_NS_MAX`] is handed to its completion unanswered, so that a thread of the caller can enforce its
    /// deadline.
    pub(super) fn tend(self: &Arc<Link>) {
        let mut handed_over_ns = self.clock.now_ns();
        loop {
            let table = self.table.lock();
            if table.broken.is_some() {
                return;
            }
            // Another thread may have received answers while this one ran completions.
            if !table.called.is_empty() {
                drop(table);
                self.call();
                continue;
            }
            let started_ns = self.clock.now_ns();
            let mut table = self.wait_for_progress(table, None, started_ns + TENDED_WAIT_NS);
            let now_ns = self.clock.now_ns();
            if now_ns.saturating_sub(handed_over_ns) >= TENDED_NS_MAX {
                handed_over_ns = now_ns;
                hand_over(&mut table, now_ns, TENDED_NS_MAX);
            }
            let is_idle = table.requests == 0 && table.broken.is_none() && table.called.is_empty();
            if is_idle && now_ns.saturating_sub(started_ns) >= TENDED_NS_MAX {
                table.receiver = Some(std::thread::current());
                drop(table);
                std::thread::park();
            } else {
                drop(table);
                self.call();
            }
        }
    }
}

/// Interval at which a waiter checks whether anything still gets through.
const WAY_LOOK_NS: u64 = 1_000_000_000;

/// A receive blocks this long by itself before a poll with the deadline takes over. Shorter than the interval at
/// which an interruptible call polls its flag.
const WAIT_IN_RECEIVE_NS: u64 = 200_000_000;

/// The receiver thread waits at least this long for an answer to an asynchronous call, and at most twice as long,
/// before it hands the request to a thread that blocks.
const TENDED_NS_MAX: u64 = WAIT_IN_RECEIVE_NS;

/// Longer than a receive waits by itself, which it would not do otherwise.
const TENDED_WAIT_NS: u64 = WAIT_IN_RECEIVE_NS + WAIT_IN_RECEIVE_NS / 4;

/// After its deadline a leader still takes what has arrived, but not what keeps arriving for others.
const LATE_RECEIVES_MAX: u32 = 64;

/// A cancel that cannot be sent within this time means that the connection is stuck.
const CANCEL_NS_MAX: u64 = 1_000_000_000;
