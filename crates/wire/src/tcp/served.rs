//! Server side of one connection: handshake, partly received frame, unsent answers.

use super::bounds::{Bounds, Claim, Stranger};
use super::buffers::Stack;
use super::inbox::{Inbox, Notice};
use super::outbound::Outbound;
use super::server::Metrics;
use super::socket::Socket;
use super::takeover::LoopSlot;
use super::watched::{Entry, Watched};
use crate::frame::{HEADER_BYTES, Header, METHOD_HELLO, flags};
use crate::hello::{self, HELLO_BYTES_MAX, ServerHandshake};
use crate::key::ClusterKey;
use crate::operation::Method;
use crate::proto;
use crate::service::{Answer, Deferred, Fault, Request, RequestId, Responder, Service};
use prost::Message;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_model::limits::{
    DEADLINE_MS_MAX, STALLED_MS_MAX, UNFINISHED_BYTES_FREE, UNFINISHED_MS_MAX, UNREAD_MS_MAX,
};

/// Why a connection is closed.
#[derive(Debug)]
pub(super) enum Close {
    /// The peer closed it, or the network did.
    Gone,
    /// The peer broke the protocol or a limit; worth a log line.
    Refused(Fault),
    /// The peer neither continues its request nor takes its answers. Unsent data is discarded: the kernel would keep
    /// it for a peer that does not read.
    Stalled(Fault),
    /// The service could not keep what it answered, so its answers are not sent.
    Withheld(Fault),
}

/// A connection with more unsent bytes than this is neither read from nor worked for until it has drained.
const LADEN_BYTES: usize = 2 << 20;

/// The same for answers that come later: each may bring an attachment.
const DEFERRED_MAX: usize = 64;

/// Answers of a batch are sent before its end once they are this long, while they are still in the cache: one or more
/// of the usual reads.
const SEND_BYTES: usize = 256 * 1024;

/// First buffer of a request that begins to arrive: a peer that sends no more than a header must not take as much
/// memory as the header claims.
const FIRST_BYTES: usize = 80 * 1024;

/// A full one becomes so many times as long, or as long as the request. The usual writes of 256 KiB need one step.
const GROWTH: usize = 4;

/// Slower nothing is sent, whatever a client asks for: its answers take memory meanwhile.
const PACE_MIN: u64 = 4 * 1024;

enum Phase {
    Hello,
    Proof(ServerHandshake),
    Ready,
}

/// What a connection needs of its loop while it works.
pub(super) struct Surroundings<'a> {
    pub(super) service: &'a dyn Service,
    pub(super) key: &'a ClusterKey,
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) inbox: &'a Arc<Inbox>,
    pub(super) slot: &'a LoopSlot,
    pub(super) stack: &'a mut Stack,
    pub(super) metrics: &'a Metrics,
    pub(super) started_ns: u64,
    pub(super) requests: &'a mut u64,
}

/// A deferred request.
struct Awaited {
    method: u16,
    started_ns: u64,
}

/// A connection.
///
/// It is read from while it *listens*. It does not in three cases. It *holds* complete requests back, because its own
/// answers pile up; it goes on when they have been taken. It holds them back because the answers of all connections
/// pile up. It *starves*: there is no memory for the rest of its request. In the last two it *wants room*, and its loop
/// lets it go on.
pub(super) struct Served {
    pub(super) id: u64,
    pub(super) peer: String,
    /// When the handshake or the present half frame began.
    pub(super) since_ns: u64,
    /// When bytes last came.
    heard_ns: u64,
    /// What epoll waits for on its behalf.
    pub(super) watched: EventFlags,
    stream: Arc<Socket>,
    _watched: Entry,
    phase: Phase,
    /// Until the key is proved.
    stranger: Option<Stranger>,
    /// When bytes last left.
    pub(super) sent_ns: u64,
    /// Whether the kernel may keep some of them.
    may_be_untaken: bool,
    /// A frame of which only the beginning has arrived, or frames that are held back; `filled` bytes of it count.
    partial: Vec<u8>,
    filled: usize,
    /// What that buffer takes.
    unfinished: Claim,
    /// True while complete frames are held back because their answers would pile up.
    holds: bool,
    /// True while there is no memory for the rest of a frame.
    starves: bool,
    /// It is among those that its loop looks at when there is memory again.
    pub(super) is_queued: bool,
    outbound: Outbound,
    /// What unsent answers take.
    unsent: Claim,
    /// How much the peer had taken, and since when no more.
    taken: (u64, u64),
    deferred: HashMap<u64, Awaited>,
    bounds: Arc<Bounds>,
}

impl Served {
    pub(super) fn new(
        id: u64,
        stream: Socket,
        now_ns: u64,
        watched: &Arc<Watched>,
        bounds: &Arc<Bounds>,
    ) -> Served {
        let address = stream.peer();
        let peer = address.map_or_else(|| "this machine".to_owned(), |a| a.to_string());
        let host = address.map_or_else(|| "this machine".to_owned(), |a| a.ip().to_string());
        let stream = Arc::new(stream);
        Served {
            id,
            peer,
            since_ns: now_ns,
            heard_ns: now_ns,
            watched: EventFlags::IN,
            _watched: watched.enter(&stream, host),
            stream,
            phase: Phase::Hello,
            stranger: Some(bounds.let_in()),
            sent_ns: now_ns,
            may_be_untaken: false,
            partial: Vec::new(),
            filled: 0,
            unfinished: Claim::of(&bounds.unfinished),
            holds: false,
            starves: false,
            is_queued: false,
            outbound: Outbound::default(),
            unsent: Claim::of(&bounds.unsent),
            taken: (0, now_ns),
            deferred: HashMap::new(),
            bounds: Arc::clone(bounds),
        }
    }

    /// Its socket, for who has to end it from elsewhere.
    pub(super) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.stream)
    }

    /// True while the peer owes us bytes: in the handshake, or in the middle of a frame, as long as it is read from.
    pub(super) fn owes(&self) -> bool {
        self.in_handshake() || (self.is_within_frame() && self.listens())
    }

    /// True when bytes of the peer are unread in the socket: the server is late then, not the peer. One system call.
    pub(super) fn has_unread(&self) -> bool {
        self.stream.has_unread()
    }

    /// It is read from again: until now its peer could not be late.
    pub(super) fn listen_again(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        if !self.in_handshake() {
            self.since_ns = now_ns;
        }
    }

    /// True in the middle of a frame.
    fn is_within_frame(&self) -> bool {
        self.filled > 0 && !self.holds
    }

    /// True until the peer has proved the key.
    pub(super) fn in_handshake(&self) -> bool {
        !matches!(self.phase, Phase::Ready)
    }

    /// Number of bytes waiting to be sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.outbound.len()
    }

    /// True while so much waits to be sent or finished that no further request is handled. Where the answers of all
    /// connections take too much, one that waits is enough.
    fn is_laden(&self) -> bool {
        let is_short = self.bounds.unsent.is_short() && !self.in_handshake();
        let owns_some = self.outbound.len() > 0 || !self.deferred.is_empty();
        let is_own = self.outbound.len() > LADEN_BYTES || self.deferred.len() >= DEFERRED_MAX;
        is_own || (is_short && (owns_some || self.bounds.unsent.is_overdrawn()))
    }

    /// True when bytes of the peer are welcome.
    pub(super) fn listens(&self) -> bool {
        !self.holds && !self.starves && !self.is_laden()
    }

    /// The memory that it waits for, when that is all it waits for: nothing of its own will have it looked at again.
    pub(super) fn wanted_bytes(&self) -> Option<usize> {
        if self.starves {
            return Some(self.frame_bytes() - self.filled);
        }
        let is_own = self.outbound.len() > 0 || self.deferred.len() >= DEFERRED_MAX;
        let waits_for_others = !is_own && self.is_laden();
        waits_for_others.then_some(0)
    }

    /// The length of the frame in the middle of which it is.
    fn frame_bytes(&self) -> usize {
        let header = Header::peek(&self.partial[..self.filled]).ok().flatten();
        header.map_or(self.filled, |header| header.frame_bytes())
    }

    /// True in the middle of a frame that takes memory others may wait for.
    pub(super) fn has_claim(&self) -> bool {
        self.is_within_frame() && self.unfinished.bytes() > 0
    }

    /// Lets it go on if there is memory, or in any case. True when it can.
    pub(super) fn admit(&mut self, stack: &mut Stack, now_ns: u64, in_any_case: bool) -> bool {
        if !self.starves {
            return !self.is_laden();
        }
        if in_any_case {
            self.unfinished.set(self.frame_bytes());
        }
        if !self.make_room(stack, self.frame_bytes(), true) {
            return false;
        }
        self.listen_again(now_ns);
        true
    }

    /// True when the peer has taken none of its answers for `limit_ns`, whether they are buffered here or in the
    /// kernel. The kernel is asked only while nothing is buffered here, and not again once it has none.
    pub(super) fn is_unread(&mut self, now_ns: u64, limit_ns: u64) -> bool {
        if now_ns.saturating_sub(self.sent_ns) <= limit_ns {
            return false;
        }
        if self.outbound.len() > 0 {
            return true;
        }
        self.may_be_untaken = self.may_be_untaken && self.stream.has_untaken();
        self.may_be_untaken
    }

    /// Why it is to be closed so that others have its memory, if it is.
    pub(super) fn stall(&mut self, now_ns: u64) -> Option<&'static str> {
        let is_over = |since_ns: u64, ms: u32| now_ns.saturating_sub(since_ns) > u64::from(ms) * 1_000_000;
        if self.has_claim() && self.listens() {
            let is_late = is_over(self.heard_ns, STALLED_MS_MAX) || is_over(self.since_ns, UNFINISHED_MS_MAX);
            if is_late && !self.has_unread() {
                return Some("the peer stopped in the middle of a request, and others need the memory");
            }
        }
        if self.unsent.bytes() == 0 {
            return None;
        }
        let taken = self.stream.taken_bytes().unwrap_or(self.sent_ns);
        if taken != self.taken.0 {
            self.taken = (taken, now_ns);
        }
        let is_late = is_over(self.taken.1, UNREAD_MS_MAX);
        is_late.then_some("the peer takes none of its answers, and others need the memory")
    }

    /// True when requests were held back and can go on now.
    pub(super) fn can_resume(&self) -> bool {
        self.holds && !self.is_laden()
    }

    /// Handles what was held back.
    pub(super) fn resume(&mut self, around: &mut Surroundings<'_>) -> Result<(), Close> {
        let held = std::mem::take(&mut self.partial);
        let filled = std::mem::take(&mut self.filled);
        self.holds = false;
        self.listen_again(around.started_ns);
        let used = self.handle_frames(&held[..filled], around)?;
        self.keep_rest(&held[used..filled], around);
        around.stack.put(held);
        Ok(())
    }

    /// Receives what is there, once, and handles every complete frame in it. Returns the number of bytes received.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        around: &mut Surroundings<'_>,
    ) -> Result<usize, Close> {
        if self.holds || self.starves {
            return Ok(0);
        }
        if self.filled >= HEADER_BYTES {
            return self.receive_rest(around);
        }
        let before = self.filled;
        scratch[..before].copy_from_slice(&self.partial[..before]);
        // What comes has to be kept: where memory is short, no more than may be in any case.
        let is_short = self.bounds.unfinished.is_short();
        let limit = if is_short { UNFINISHED_BYTES_FREE.min(scratch.len()) } else { scratch.len() };
        let received = receive_into(&self.stream, &mut scratch[before..limit])?;
        if received > 0 {
            self.heard_ns = around.started_ns;
        }
        self.filled = 0;
        let available = &scratch[..before + received];
        let used = self.handle_frames(available, around)?;
        if !self.in_handshake() && (used > 0 || before == 0) {
            self.since_ns = around.started_ns;
        }
        self.keep_rest(&available[used..], around);
        Ok(received)
    }

    /// Receives the rest of a frame whose header is known straight into its place.
    fn receive_rest(&mut self, around: &mut Surroundings<'_>) -> Result<usize, Close> {
        let total = self.partial_header()?.frame_bytes();
        if self.filled == self.partial.len() {
            let length = total.min(self.filled.saturating_mul(GROWTH));
            if !self.make_room(around.stack, length, false) {
                return Ok(0);
            }
        }
        let end = total.min(self.partial.len());
        let received = receive_into(&self.stream, &mut self.partial[self.filled..end])?;
        self.filled += received;
        if received > 0 {
            self.heard_ns = around.started_ns;
        }
        if self.filled == total {
            let frame = std::mem::take(&mut self.partial);
            self.filled = 0;
            if self.handle_frames(&frame[..total], around)? == total {
                around.stack.put(frame);
                self.unfinished.set(0);
            } else {
                (self.partial, self.filled, self.holds) = (frame, total, true);
            }
        }
        Ok(received)
    }

    /// Makes the buffer of a half frame `length` long. False while there is no memory for it.
    fn make_room(&mut self, stack: &mut Stack, length: usize, is_last: bool) -> bool {
        self.starves = !self.unfinished.try_set(length, is_last);
        if !self.starves && self.partial.len() < length {
            let mut longer = stack.take(length);
            longer[..self.filled].copy_from_slice(&self.partial[..self.filled]);
            self.unfinished.set(longer.len());
            stack.put(std::mem::replace(&mut self.partial, longer));
        }
        !self.starves
    }

    fn partial_header(&self) -> Result<Header, Close> {
        let header = Header::peek(&self.partial[..self.filled]).map_err(refuse)?;
        header.ok_or_else(|| Close::Refused(Fault::new(Code::Internal, "a frame without a header was kept")))
    }

    fn keep_rest(&mut self, rest: &[u8], around: &mut Surroundings<'_>) {
        if rest.is_empty() {
            around.stack.put(std::mem::take(&mut self.partial));
            self.unfinished.set(0);
            return;
        }
        let total = Header::peek(rest).ok().flatten().map_or(HEADER_BYTES, |h| h.frame_bytes());
        let first = if self.bounds.unfinished.is_short() { UNFINISHED_BYTES_FREE } else { FIRST_BYTES };
        let length = total.min(first).max(rest.len());
        if self.partial.len() < length {
            around.stack.put(std::mem::take(&mut self.partial));
            // Not from the stack, whose buffers are mostly longer: what little is kept is not claimed.
            let is_little = length <= UNFINISHED_BYTES_FREE;
            self.partial = if is_little { vec![0; length] } else { around.stack.take(length) };
        }
        let length = self.partial.len();
        self.unfinished.set(if length <= UNFINISHED_BYTES_FREE { 0 } else { length });
        self.partial[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
        self.holds = rest.len() >= total;
    }

    /// Handles the complete frames at the start of `bytes`, as far as their answers can be sent; returns how many bytes
    /// they were.
    fn handle_frames(&mut self, bytes: &[u8], around: &mut Surroundings<'_>) -> Result<usize, Close> {
        let mut used = 0;
        while !self.is_laden()
            && let Some(header) = Header::peek(&bytes[used..]).map_err(|e| self.refuse_frame(e, around))?
        {
            if !matches!(self.phase, Phase::Ready) && header.body_bytes() > HELLO_BYTES_MAX {
                let fault = Fault::new(Code::Unauthenticated, "a request before the handshake");
                return Err(self.refuse_with(fault, around));
            }
            let Some(body) = bytes[used..].get(HEADER_BYTES..header.frame_bytes()) else { break };
            self.handle_frame(&header, body, around)?;
            used += header.frame_bytes();
            if self.outbound.len() >= SEND_BYTES {
                around.service.flush().map_err(Close::Withheld)?;
                self.send(around.stack, around.metrics, around.started_ns)?;
            }
        }
        Ok(used)
    }

    fn handle_frame(
        &mut self,
        header: &Header,
        body: &[u8],
        around: &mut Surroundings<'_>,
    ) -> Result<(), Close> {
        let (message, attachment) = body.split_at(header.message_bytes as usize);
        if matches!(self.phase, Phase::Ready) {
            return self.handle_request(header, message, attachment, around);
        }
        self.shake_hands(header, message, around).map_err(|fault| self.refuse_with(fault, around))
    }

    fn shake_hands(
        &mut self,
        header: &Header,
        message: &[u8],
        around: &mut Surroundings<'_>,
    ) -> Result<(), Fault> {
        if header.method != METHOD_HELLO || header.has(flags::ANSWER) {
            return Err(Fault::new(Code::Unauthenticated, "a request before the handshake"));
        }
        match std::mem::replace(&mut self.phase, Phase::Hello) {
            Phase::Hello => {
                let (handshake, answer) = ServerHandshake::answer(around.key, message, hello::nonce()?)?;
                self.phase = Phase::Proof(handshake);
                self.answer(
                    METHOD_HELLO,
                    header.request_id,
                    around.started_ns,
                    &Ok((answer, Vec::new())),
                    around,
                );
            }
            Phase::Proof(handshake) => {
                handshake.finish(around.key, message)?;
                (self.phase, self.stranger) = (Phase::Ready, None);
                self.answer(
                    METHOD_HELLO,
                    header.request_id,
                    around.started_ns,
                    &Ok(Default::default()),
                    around,
                );
            }
            Phase::Ready => {}
        }
        Ok(())
    }

    fn handle_request(
        &mut self,
        header: &Header,
        message: &[u8],
        attachment: &[u8],
        around: &mut Surroundings<'_>,
    ) -> Result<(), Close> {
        if header.has(flags::PACE) {
            self.stream.pace(header.request_id.max(PACE_MIN));
            return Ok(());
        }
        if header.has(flags::CANCEL) {
            self.cancel(header.request_id, around);
            return Ok(());
        }
        *around.requests += 1;
        let Some(method) = Method::from_number(header.method) else {
            let detail = format!("method {:#06x} is not known here; is the peer newer?", header.method);
            let answer = Err(Fault::new(Code::Unsupported, detail));
            self.answer(header.method, header.request_id, around.started_ns, &answer, around);
            return Ok(());
        };
        let shown = RequestId(header.request_id);
        tracing::trace!(request = %shown, method = method.name(), peer = self.peer, "request");
        let wait_ms = u64::from(header.time.min(DEADLINE_MS_MAX));
        let deadline_ns = around.started_ns + wait_ms * 1_000_000;
        let service = around.service;
        let request = Request { method, id: header.request_id, message, attachment, deadline_ns };
        let mut responder = LoopResponder { connection: self, header, around, answered: false };
        service.handle(request, &mut responder);
        if !responder.answered {
            responder.fail(&Fault::new(Code::Internal, format!("{} was not answered", method.name())));
        }
        Ok(())
    }

    /// Answers a deferred request as cancelled at once; its late answer is then dropped.
    fn cancel(&mut self, request_id: u64, around: &mut Surroundings<'_>) {
        self.finish_deferred(request_id, &Err(Fault::from(Code::Cancelled)), around.stack, around.clock);
    }

    /// Sends the answer to a deferred request, unless it was cancelled before.
    pub(super) fn finish_deferred(
        &mut self,
        request_id: u64,
        answer: &Answer,
        stack: &mut Stack,
        clock: &Arc<dyn Clock>,
    ) {
        if let Some(awaited) = self.deferred.remove(&request_id) {
            self.answer_from(awaited.method, request_id, awaited.started_ns, answer, stack, clock);
        }
    }

    fn answer(
        &mut self,
        method: u16,
        request_id: u64,
        started_ns: u64,
        answer: &Answer,
        around: &mut Surroundings<'_>,
    ) {
        self.answer_from(method, request_id, started_ns, answer, around.stack, around.clock);
    }

    fn answer_from(
        &mut self,
        method: u16,
        request_id: u64,
        started_ns: u64,
        answer: &Answer,
        stack: &mut Stack,
        clock: &Arc<dyn Clock>,
    ) {
        let failure;
        let (flag, message, attachment) = match answer {
            Ok((message, attachment)) => (0, message.as_slice(), attachment.as_slice()),
            Err(fault) => {
                // The event loop logs a failed handshake at a higher level.
                if method != METHOD_HELLO {
                    let (shown, method) =
                        (RequestId(request_id), Method::from_number(method).map(Method::name));
                    tracing::debug!(request = %shown, method, peer = self.peer, error = %fault, "request failed");
                }
                failure = encode_failure(fault);
                (flags::ERROR, failure.as_slice(), [].as_slice())
            }
        };
        let header = Header {
            flags: flags::ANSWER | flag,
            method,
            request_id,
            message_bytes: message.len() as u32,
            attachment_bytes: attachment.len() as u32,
            time: elapsed_us(clock, started_ns),
        };
        self.outbound.frame(stack, &header, message).copy_from_slice(attachment);
    }

    /// Tells the peer why before the connection is closed. What was answered before goes along, so it has to be kept
    /// first; if it cannot be, nothing is sent.
    fn refuse_with(&mut self, fault: Fault, around: &mut Surroundings<'_>) -> Close {
        if let Err(withheld) = around.service.flush() {
            return Close::Withheld(withheld);
        }
        self.answer(METHOD_HELLO, 0, around.started_ns, &Err(fault.clone()), around);
        let _ = self.send(around.stack, around.metrics, around.started_ns);
        Close::Refused(fault)
    }

    fn refuse_frame(&mut self, error: crate::frame::FrameError, around: &mut Surroundings<'_>) -> Close {
        let Close::Refused(fault) = refuse(error) else { return Close::Gone };
        self.refuse_with(fault, around)
    }

    /// Sends as much as the socket takes.
    pub(super) fn send(&mut self, stack: &mut Stack, metrics: &Metrics, now_ns: u64) -> Result<(), Close> {
        while self.outbound.len() > 0 {
            match rustix::net::send(
                &*self.stream,
                self.outbound.unsent(),
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(sent) => {
                    metrics.sent_bytes.add(sent as u64);
                    (self.sent_ns, self.may_be_untaken) = (now_ns, true);
                    self.outbound.advance(sent, stack);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Close::Gone),
            }
        }
        if self.outbound.len() == 0 {
            // Also after a frame that was taken back: an idle connection holds no buffer.
            self.outbound.advance(0, stack);
        }
        if self.unsent.bytes() == 0 {
            self.taken.1 = now_ns;
        }
        self.unsent.set(self.outbound.buffer_bytes());
        Ok(())
    }

    /// Has the kernel discard the data that the peer has not taken, and reset the connection, which notifies the peer
    /// at once.
    pub(super) fn abort(&self) {
        self.stream.abort();
    }
}

impl AsFd for Served {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn refuse(error: crate::frame::FrameError) -> Close {
    let code = match error {
        crate::frame::FrameError::Version(_) => Code::VersionMismatch,
        _ => Code::BadRequest,
    };
    Close::Refused(Fault::new(code, error.to_string()))
}

fn receive_into(stream: &Socket, buffer: &mut [u8]) -> Result<usize, Close> {
    match rustix::net::recv(stream, buffer, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(Close::Gone),
        Ok((_, received)) => Ok(received),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(_) => Err(Close::Gone),
    }
}

pub(super) fn encode_failure(fault: &Fault) -> Vec<u8> {
    proto::Failure::from(fault).encode_to_vec()
}

fn elapsed_us(clock: &Arc<dyn Clock>, started_ns: u64) -> u32 {
    (clock.now_ns().saturating_sub(started_ns) / 1000).min(u64::from(u32::MAX)) as u32
}

/// Answers one request on its connection.
struct LoopResponder<'a, 'b> {
    connection: &'a mut Served,
    header: &'a Header,
    around: &'a mut Surroundings<'b>,
    answered: bool,
}

impl Responder for LoopResponder<'_, '_> {
    fn reply(&mut self, message: &[u8]) {
        self.reply_with(message, 0, &mut |_| Ok(()));
    }

    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        let mark = self.connection.outbound.len();
        let header = Header {
            flags: flags::ANSWER,
            method: self.header.method,
            request_id: self.header.request_id,
            message_bytes: message.len() as u32,
            attachment_bytes: length as u32,
            time: elapsed_us(self.around.clock, self.around.started_ns),
        };
        let outcome = fill(self.connection.outbound.frame(self.around.stack, &header, message));
        match outcome {
            Ok(true) => self.answered = true,
            Ok(false) => self.connection.outbound.roll_back(mark),
            Err(fault) => {
                self.connection.outbound.roll_back(mark);
                self.fail(&fault);
            }
        }
        self.answered
    }

    fn fail(&mut self, fault: &Fault) {
        self.answered = true;
        let (method, id, started_ns) = (self.header.method, self.header.request_id, self.around.started_ns);
        self.connection.answer(method, id, started_ns, &Err(fault.clone()), self.around);
    }

    fn enter_disk(&mut self) {
        self.around.slot.enter();
    }

    fn leave_disk(&mut self) {
        self.around.slot.leave_disk();
    }

    fn defer(&mut self) -> Deferred {
        self.answered = true;
        let awaited = Awaited { method: self.header.method, started_ns: self.around.started_ns };
        self.connection.deferred.insert(self.header.request_id, awaited);
        let inbox = Arc::clone(self.around.inbox);
        let (connection, request_id) = (self.connection.id, self.header.request_id);
        Deferred::new(move |answer| inbox.push(Notice::Answered { connection, request_id, answer }))
    }
}
