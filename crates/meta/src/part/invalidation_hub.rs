//! Invalidation streams: sessions that cache answers, and the changes each of them has yet to receive.
//!
//! - [`InterestTable`] says which sessions a change concerns. The session that made the change is left out.
//! - A change stays in the watcher's queue until the session acknowledges it.
//! - A queue that grows too long is dropped, and its session invalidates everything.
//! - The changing request does not wait for any watcher (`docs/decisions/cache-leases.md`).

use crate::part::interest::{InterestTable, SEATS, mix};
use crate::schema::names::NameHash;
use crate::service::fault::Outcome;
use parking_lot::Mutex;
use prost::Message;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vazao_model::{InodeId, SessionId, limits};
use vazao_wire::proto;
use vazao_wire::service::Deferred;

/// What a transaction has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Changed {
    /// An inode's attributes.
    Attributes(InodeId),
    /// A file's bytes, and with them its attributes.
    Contents(InodeId),
    /// Where a name leads.
    Entry(InodeId, Vec<u8>),
}

/// The session that sends a request, and its seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asker {
    pub(crate) session: Option<SessionId>,
    /// Seats count from 1; 0: the session caches nothing.
    pub(crate) seat: u32,
}

/// How many earlier changes are searched for a duplicate.
const SAME_WITHIN: usize = 8;

/// Answers of one watcher, to be sent once no lock is held.
type Due = (Deferred, proto::WatchChangesResponse);

/// One watching session.
struct Watcher {
    session: SessionId,
    seat: u32,
    queue: Mutex<Queue>,
}

struct Queue {
    /// Number of the first of `changes`.
    first: u64,
    changes: VecDeque<proto::Change>,
    name_bytes: usize,
    /// Number of the last change that the session has acknowledged.
    received: u64,
    /// Number of the last change that was put into an answer.
    sent: u64,
    waiting: Option<(Deferred, u64)>,
}

#[derive(Default)]
struct Seat {
    invalidations: Mutex<Vec<Arc<Watcher>>>,
    /// Number of watchers; read by every change without a lock.
    count: AtomicU32,
}

/// The watchers of all sessions, by session and by seat.
pub(crate) struct InvalidationHub {
    holders: InterestTable,
    by_session: Mutex<HashMap<SessionId, Arc<Watcher>>>,
    seats: Box<[Seat]>,
    /// Bits of the seats that are taken; read by every change (fast path without watchers).
    taken: AtomicU64,
}

impl Default for InvalidationHub {
    fn default() -> InvalidationHub {
        let seats = (0..SEATS).map(|_| Seat::default()).collect();
        InvalidationHub {
            holders: InterestTable::default(),
            by_session: Mutex::default(),
            seats,
            taken: AtomicU64::new(0),
        }
    }
}

/// The key of an inode in [`InterestTable`].
fn inode_key(id: InodeId) -> u64 {
    mix(id.0)
}

/// The key of a name. The hash of the name is a keyed one already.
fn entry_key(names: &NameHash, parent: InodeId, name: &[u8]) -> u64 {
    mix(mix(parent.0) ^ names.hash(name))
}

impl InvalidationHub {
    /// The answer in preparation will show the inode to the asker.
    pub(crate) fn note_inode(&self, asker: Asker, id: InodeId) {
        if let Some(seat) = asker.seat.checked_sub(1) {
            self.holders.note(inode_key(id), seat);
        }
    }

    /// The answer in preparation will show the asker where a name leads, or that it leads nowhere.
    pub(crate) fn note_entry(&self, asker: Asker, names: &NameHash, parent: InodeId, name: &[u8]) {
        if let Some(seat) = asker.seat.checked_sub(1) {
            self.holders.note(entry_key(names, parent, name), seat);
        }
    }

    /// Queues the changes for all sessions they concern but the asker. Called once the changes are committed.
    pub(crate) fn publish(&self, asker: Asker, names: &NameHash, changes: Vec<Changed>) {
        if self.taken.load(Ordering::SeqCst) == 0 {
            return;
        }
        for (index, change) in changes.iter().enumerate() {
            let (key, contents) = match change {
                Changed::Entry(parent, name) => (entry_key(names, *parent, name), false),
                Changed::Attributes(id) => (inode_key(*id), changes.contains(&Changed::Contents(*id))),
                Changed::Contents(id) => (inode_key(*id), true),
            };
            let is_told = |earlier: &Changed| match (earlier, change) {
                (Changed::Entry(..), _) | (_, Changed::Entry(..)) => earlier == change,
                (Changed::Attributes(a) | Changed::Contents(a), _) => {
                    matches!(change, Changed::Attributes(b) | Changed::Contents(b) if a == b)
                }
            };
            if changes.iter().take(index).any(is_told) {
                continue;
            }
            let seats = self.holders.of(key) & self.seats_but(asker);
            if seats != 0 {
                self.tell(seats, asker, change, contents);
            }
        }
    }

    /// The seats that are taken, without the asker's if no other session shares it.
    fn seats_but(&self, asker: Asker) -> u64 {
        let taken = self.taken.load(Ordering::SeqCst);
        let own = asker.seat.checked_sub(1).map(|seat| seat % SEATS);
        let alone = own.filter(|&seat| self.seats[seat as usize].count.load(Ordering::SeqCst) <= 1);
        taken & !alone.map_or(0, |seat| 1 << seat)
    }

    fn tell(&self, seats: u64, asker: Asker, change: &Changed, contents: bool) {
        let message = match change {
            Changed::Entry(parent, name) => {
                proto::Change { inode: parent.0, name: name.clone(), contents: false, ..Default::default() }
            }
            Changed::Attributes(id) | Changed::Contents(id) => {
                proto::Change { inode: id.0, name: Vec::new(), contents, ..Default::default() }
            }
        };
        let mut due: Vec<Due> = Vec::new();
        for seat in (0..SEATS).filter(|seat| seats & (1 << seat) != 0) {
            let invalidations = self.seats[seat as usize].invalidations.lock();
            let others = invalidations.iter().filter(|watcher| Some(watcher.session) != asker.session);
            due.extend(others.filter_map(|watcher| watcher.push(&message)));
        }
        send(due);
    }

    /// Notifies a waiter that it has its lock. A session that does not watch learns of it when it asks again.
    pub(crate) fn tell_grant(&self, session: SessionId, inode: InodeId, waiter: u64) {
        let watcher = self.by_session.lock().get(&session).cloned();
        let message = proto::Change { inode: inode.0, granted: waiter, ..proto::Change::default() };
        send(watcher.and_then(|watcher| watcher.push(&message)).into_iter().collect());
    }

    /// Notifies a session that another one wants to append to the file whose end it holds.
    pub(crate) fn tell_end_wanted(&self, session: SessionId, inode: InodeId) {
        let watcher = self.by_session.lock().get(&session).cloned();
        let message = proto::Change { inode: inode.0, end_wanted: true, ..proto::Change::default() };
        send(watcher.and_then(|watcher| watcher.push(&message)).into_iter().collect());
    }

    /// Number of the last change queued for a session; 0: it does not watch.
    pub(crate) fn last(&self, session: SessionId) -> u64 {
        let watcher = self.by_session.lock().get(&session).cloned();
        watcher.map_or(0, |watcher| watcher.queue.lock().last())
    }

    /// A session asks for changes (long poll). Its first request makes it a watcher. `boot` is the service's, so that
    /// numbers of an earlier run are not mistaken for those of this one.
    pub(crate) fn watch(
        &self,
        session: SessionId,
        request: &proto::WatchChangesRequest,
        boot: u64,
        now_ns: u64,
        defer: impl FnOnce() -> Deferred,
    ) -> Outcome<Option<proto::WatchChangesResponse>> {
        let watcher = self.enter(session, boot, now_ns);
        let mut queue = watcher.queue.lock();
        queue.receive(request.received);
        let wait_ms = request.wait_ms.min(limits::WATCH_WAIT_MS);
        if queue.has_news() || wait_ms == 0 {
            return Ok(Some(queue.batch(watcher.seat)));
        }
        let until_ns = now_ns + u64::from(wait_ms) * 1_000_000;
        let empty = queue.batch(watcher.seat);
        let replaced = queue.waiting.replace((defer(), until_ns));
        drop(queue);
        // The replaced request has been given up by its session; its answer is empty.
        send(replaced.map(|(deferred, _)| (deferred, empty)).into_iter().collect());
        Ok(None)
    }

    fn enter(&self, session: SessionId, boot: u64, now_ns: u64) -> Arc<Watcher> {
        let mut by_session = self.by_session.lock();
        if let Some(watcher) = by_session.get(&session) {
            return Arc::clone(watcher);
        }
        self.holders.prepare(now_ns);
        let seat = (0..SEATS).min_by_key(|&seat| self.seats[seat as usize].count.load(Ordering::SeqCst));
        let seat = seat.unwrap_or_default();
        let queue = Queue {
            first: (boot << 32) | 1,
            changes: VecDeque::new(),
            name_bytes: 0,
            received: 0,
            sent: 0,
            waiting: None,
        };
        let watcher = Arc::new(Watcher { session, seat: seat + 1, queue: Mutex::new(queue) });
        let place = &self.seats[seat as usize];
        place.invalidations.lock().push(Arc::clone(&watcher));
        place.count.fetch_add(1, Ordering::SeqCst);
        self.taken.fetch_or(1 << seat, Ordering::SeqCst);
        by_session.insert(session, Arc::clone(&watcher));
        watcher
    }

    /// A session has ended.
    pub(crate) fn leave(&self, session: SessionId) {
        let mut by_session = self.by_session.lock();
        let Some(watcher) = by_session.remove(&session) else { return };
        let seat = watcher.seat.saturating_sub(1);
        let place = &self.seats[seat as usize];
        let mut there = place.invalidations.lock();
        there.retain(|other| other.session != session);
        place.count.store(there.len() as u32, Ordering::SeqCst);
        if there.is_empty() {
            self.taken.fetch_and(!(1 << seat), Ordering::SeqCst);
        }
    }

    /// Answers long polls that have timed out, clears expired bits, and drops watchers of sessions that ended in the
    /// meantime.
    pub(crate) fn tick(&self, now_ns: u64, is_known: impl Fn(SessionId) -> bool) {
        self.holders.turn(now_ns);
        let invalidations: Vec<_> = self.by_session.lock().values().cloned().collect();
        invalidations.iter().filter(|watcher| !is_known(watcher.session)).for_each(|w| self.leave(w.session));
        send(invalidations.iter().filter_map(|watcher| watcher.time_out(now_ns)).collect());
    }

    /// Number of sessions that watch.
    pub(crate) fn count(&self) -> usize {
        self.by_session.lock().len()
    }
}

impl Watcher {
    fn push(&self, change: &proto::Change) -> Option<Due> {
        let mut queue = self.queue.lock();
        queue.push(change);
        let (deferred, _) = queue.waiting.take()?;
        Some((deferred, queue.batch(self.seat)))
    }

    fn time_out(&self, now_ns: u64) -> Option<Due> {
        let mut queue = self.queue.lock();
        let (deferred, _) = queue.waiting.take_if(|(_, until_ns)| *until_ns <= now_ns)?;
        Some((deferred, queue.batch(self.seat)))
    }
}

fn send(due: Vec<Due>) {
    for (deferred, response) in due {
        deferred.finish(Ok((response.encode_to_vec(), Vec::new())));
    }
}

impl Queue {
    fn last(&self) -> u64 {
        self.first + self.changes.len() as u64 - 1
    }

    /// True when the session has missed changes that were dropped: the number it acknowledges is from before the
    /// first change, or was never given out.
    fn is_cut_off(&self) -> bool {
        self.received + 1 < self.first || self.received > self.last()
    }

    fn has_news(&self) -> bool {
        self.is_cut_off() || !self.changes.is_empty()
    }

    /// Acknowledges changes up to `received` and drops them.
    fn receive(&mut self, received: u64) {
        self.received = received;
        if self.is_cut_off() {
            return;
        }
        while self.first <= received {
            if let Some(change) = self.changes.pop_front() {
                self.name_bytes -= change.name.len();
            }
            self.first += 1;
        }
    }

    fn push(&mut self, change: &proto::Change) {
        if self.is_said(change) {
            return;
        }
        let is_full = self.changes.len() >= limits::WATCH_CHANGES_MAX
            || self.name_bytes + change.name.len() > limits::WATCH_NAME_BYTES_MAX;
        if is_full {
            self.first = self.last() + 1;
            self.changes = VecDeque::new();
            self.name_bytes = 0;
        }
        self.name_bytes += change.name.len();
        self.changes.push_back(change.clone());
    }

    /// True when one of the last unsent changes is the same: creates in one directory change its times again and
    /// again.
    fn is_said(&self, change: &proto::Change) -> bool {
        let unsent = self.last().saturating_sub(self.sent.max(self.first - 1)) as usize;
        self.changes.iter().rev().take(unsent.min(SAME_WITHIN)).any(|earlier| earlier == change)
    }

    fn batch(&mut self, seat: u32) -> proto::WatchChangesResponse {
        let changes: Vec<_> = self.changes.iter().take(limits::WATCH_BATCH_MAX).cloned().collect();
        let last = self.first + changes.len() as u64 - 1;
        self.sent = self.sent.max(last);
        proto::WatchChangesResponse { seat, last, changes, forget: self.is_cut_off() }
    }
}

#[cfg(test)]
#[path = "invalidation_hub_tests.rs"]
mod tests;
