//! Lines that carry little: what is sent over one is paced, so that nothing waits in the queue before it.
//!
//! TCP fills the queue of the router before a line, whatever its length, and a short request waits there behind all of
//! it. Who knows what the line carries can send a little less: then the queue stays empty.
//!
//! - *Bulk* is what is read and written in pieces of more than [`BULK_BYTES`]. It goes by one connection to each server
//!   beyond the line, which nothing else uses and which the kernel paces: what a client sends, by itself; what a server
//!   sends, because the client says so over that connection ([`flags::PACE`](crate::frame::flags::PACE)).
//! - The servers beyond a line that bulk comes from, or goes to, at the same time get equal shares of it.
//!
//! Lock order: `users` before those of a connection.

use crate::operation::Method;
use crate::proto;
use crate::transport::{Line, LineUsed};
use parking_lot::Mutex;
use prost::Message;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Longer requests and answers are bulk. Shorter ones pass beside it.
pub(super) const BULK_BYTES: u64 = 64 * 1024;

/// A server has its share for so long after what was asked of it should have passed.
pub(super) const REST_NS: u64 = 1_000_000_000;

/// The pace of a connection that has none.
pub(super) const UNPACED: u64 = u64::MAX;

/// What a connection is to carry each way, in bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    pub(super) send: u64,
    pub(super) receive: u64,
}

impl Pace {
    pub(super) const NONE: Pace = Pace { send: UNPACED, receive: UNPACED };
}

/// Bulk that a request brings and asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Bulk {
    pub(super) send_bytes: u64,
    pub(super) receive_bytes: u64,
}

impl Bulk {
    /// `None`: neither is bulk.
    pub(super) fn of(method: Method, message: &[u8], attachment_bytes: usize) -> Option<Bulk> {
        let asked = match method {
            Method::Read => proto::ReadRequest::decode(message).map(|read| u64::from(read.length)),
            Method::ChannelRead => {
                proto::ChannelReadRequest::decode(message).map(|read| u64::from(read.length))
            }
            Method::ChannelReadList => proto::ChannelReadListRequest::decode(message)
                .map(|read| read.ranges.iter().map(|range| u64::from(range.length)).sum()),
            Method::ReadList => proto::ReadListRequest::decode(message)
                .map(|read| read.ranges.iter().map(|range| u64::from(range.length)).sum()),
            _ => Ok(0),
        };
        let only_bulk = |bytes: u64| if bytes > BULK_BYTES { bytes } else { 0 };
        let send_bytes = only_bulk(attachment_bytes as u64);
        // One that does not decode is refused by the server.
        let receive_bytes = only_bulk(asked.unwrap_or(0));
        (send_bytes + receive_bytes > 0).then_some(Bulk { send_bytes, receive_bytes })
    }
}

/// A server beyond a line, with its connection for bulk.
pub(super) trait Beyond: Send + Sync {
    /// It owes no answer there.
    fn is_idle(&self) -> bool;

    /// Requests are in flight there.
    fn has_requests(&self) -> bool;

    /// Has both ends send at this pace. It waits for nothing: the server hears of it with the next request.
    fn pace(&self, pace: Pace);
}

/// A server that a direction of a line is shared with.
struct User {
    peer: Weak<dyn Beyond>,
    /// When all that it was asked for, or is to be sent, should have passed.
    until_ns: u64,
}

/// One direction of a line.
#[derive(Default)]
pub(super) struct Way {
    pub(super) bytes_per_s: AtomicU64,
    users: Mutex<Vec<User>>,
}

impl Way {
    /// Enters `bytes` to or from a server. Returns all servers if their shares have changed.
    pub(super) fn enter(&self, peer: &Arc<dyn Beyond>, bytes: u64, now_ns: u64) -> Vec<Arc<dyn Beyond>> {
        let mut users = self.users.lock();
        let before = users.len();
        let is_it = |user: &User| std::ptr::addr_eq(user.peer.as_ptr(), Arc::as_ptr(peer));
        let is_under_way = |user: &User| {
            now_ns < user.until_ns.saturating_add(REST_NS)
                || user.peer.upgrade().is_some_and(|peer| peer.has_requests())
        };
        users.retain(|user| is_it(user) || is_under_way(user));
        if !users.iter().any(is_it) {
            users.push(User { peer: Arc::downgrade(peer), until_ns: now_ns });
        }
        let share = self.share(users.len());
        if let Some(user) = users.iter_mut().find(|user| is_it(user)) {
            let ns = u128::from(bytes) * 1_000_000_000 / u128::from(share.max(1));
            user.until_ns = user.until_ns.max(now_ns).saturating_add(u64::try_from(ns).unwrap_or(u64::MAX));
        }
        if users.len() == before { Vec::new() } else { peers(&users) }
    }

    /// What each one has at the moment.
    pub(super) fn share_now(&self, peer: &Arc<dyn Beyond>) -> u64 {
        let users = self.users.lock();
        let is_user = users.iter().any(|user| std::ptr::addr_eq(user.peer.as_ptr(), Arc::as_ptr(peer)));
        if is_user { self.share(users.len()) } else { UNPACED }
    }

    /// All that was asked of a server has passed, whatever it should have taken.
    fn rest(&self, peer: &Arc<dyn Beyond>, now_ns: u64) {
        let mut users = self.users.lock();
        if let Some(user) =
            users.iter_mut().find(|user| std::ptr::addr_eq(user.peer.as_ptr(), Arc::as_ptr(peer)))
        {
            user.until_ns = user.until_ns.min(now_ns);
        }
    }

    fn is_used(&self, now_ns: u64) -> bool {
        let users = self.users.lock();
        users.iter().filter(|user| now_ns < user.until_ns).any(|user| user.peer.upgrade().is_some())
    }

    fn leave(&self, peer: &Arc<dyn Beyond>) {
        self.users.lock().retain(|user| !std::ptr::addr_eq(user.peer.as_ptr(), Arc::as_ptr(peer)));
    }

    fn share(&self, users: usize) -> u64 {
        self.bytes_per_s.load(Ordering::Relaxed) / users.max(1) as u64
    }
}

fn peers(users: &[User]) -> Vec<Arc<dyn Beyond>> {
    users.iter().filter_map(|user| user.peer.upgrade()).collect()
}

/// A line as the transport has it.
pub(super) struct PacedLine {
    name: String,
    send: Way,
    receive: Way,
}

impl PacedLine {
    pub(super) fn new(name: &str) -> PacedLine {
        PacedLine { name: name.to_owned(), send: Way::default(), receive: Way::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What it carries from now on.
    pub(super) fn set_rates(&self, line: &Line) {
        self.send.bytes_per_s.store(line.send, Ordering::Relaxed);
        self.receive.bytes_per_s.store(line.receive, Ordering::Relaxed);
        let mut users = peers(&self.send.users.lock());
        users.extend(peers(&self.receive.users.lock()));
        users.iter().for_each(|peer| self.pace(peer));
    }

    /// A server is not beyond it any more.
    pub(super) fn leave(&self, peer: &Arc<dyn Beyond>) {
        self.send.leave(peer);
        self.receive.leave(peer);
        peer.pace(Pace::NONE);
    }

    /// Bulk of a server is about to pass: its connection gets its share, and those of the others theirs.
    pub(super) fn enter(&self, peer: &Arc<dyn Beyond>, bulk: Bulk, now_ns: u64) -> Pace {
        self.note_rest(peer, now_ns);
        let mut others = Vec::new();
        if bulk.send_bytes > 0 {
            others.extend(self.send.enter(peer, bulk.send_bytes, now_ns));
        }
        if bulk.receive_bytes > 0 {
            others.extend(self.receive.enter(peer, bulk.receive_bytes, now_ns));
        }
        others
            .iter()
            .filter(|other| !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(peer)))
            .for_each(|other| self.pace(other));
        self.pace_of(peer)
    }

    /// A server that owes no answer uses nothing of the line: more was asked of it than there was.
    fn note_rest(&self, peer: &Arc<dyn Beyond>, now_ns: u64) {
        if peer.is_idle() {
            self.send.rest(peer, now_ns);
            self.receive.rest(peer, now_ns);
        }
    }

    fn pace_of(&self, peer: &Arc<dyn Beyond>) -> Pace {
        Pace { send: self.send.share_now(peer), receive: self.receive.share_now(peer) }
    }

    fn pace(&self, peer: &Arc<dyn Beyond>) {
        peer.pace(self.pace_of(peer));
    }

    /// Whether bulk passes now.
    pub(super) fn used(&self, now_ns: u64) -> Option<LineUsed> {
        let mut users = peers(&self.send.users.lock());
        users.extend(peers(&self.receive.users.lock()));
        users.iter().for_each(|peer| self.note_rest(peer, now_ns));
        let (sent, received) = (self.send.is_used(now_ns), self.receive.is_used(now_ns));
        (sent || received).then(|| LineUsed { name: self.name.clone(), sent, received })
    }
}
