//! What this client may believe without asking again.
//!
//! A client that watches sends its seat along with its requests, and the metadata service tells it of every change, by
//! others, of what it was answered. Answers may then be believed for a lease. An answer that was under way when its
//! thing changed may not be: each call is marked with how much had been heard before it ([`Asked`]), and each change
//! leaves its number in a small table.

use crate::call::decode;
use crate::core::Core;
use crate::{Client, Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use vazao_model::limits::{CACHE_LEASE_MS, WATCH_WAIT_MS};
use vazao_model::{Code, InodeId};
use vazao_wire::operation::Operation;
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

const NS_A_MS: u64 = 1_000_000;

/// Places for the numbers of changes. Two things that share one cost an answer that is not believed, no more.
const MARKS: usize = 4096;

/// Beyond [`WATCH_WAIT_MS`] an answer may take this long.
const ANSWER_MS_MAX: u32 = 5_000;

/// While changes keep coming they are fetched this often: what they have in common is then told once.
const PACE: Duration = Duration::from_millis(1);

/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// Gets to hear of changes by others. Called from the client's own thread; it must not make calls of the client.
pub trait Listener: Send + Sync {
    /// The attributes of an inode changed; with `contents` also a file's bytes.
    fn inode_changed(&self, inode: InodeId, contents: bool);

    /// A name came, went or leads elsewhere.
    fn entry_changed(&self, parent: InodeId, name: &[u8]);

    /// Changes may have been missed: nothing remembered so far may be believed.
    fn forget(&self);
}

/// When something was asked, and how much of the changes of others had been heard until then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    pub(crate) heard: u64,
    pub(crate) at_ns: u64,
    /// Changes of this client that had ended.
    pub(crate) own: u64,
}

impl Asked {
    /// When that was, by the client's clock.
    pub fn at_ns(self) -> u64 {
        self.at_ns
    }

    /// True when it was earlier than `other`.
    pub(crate) fn is_before(self, other: Asked) -> bool {
        self.at_ns < other.at_ns
    }

    /// The same as of a later change of this client.
    pub(crate) fn after(self, own: u64) -> Asked {
        Asked { own, ..self }
    }

    /// The moment from which both may be believed no longer than from here.
    pub(crate) fn older(self, other: Asked) -> Asked {
        let (heard, at_ns) = (self.heard.min(other.heard), self.at_ns.min(other.at_ns));
        Asked { heard, at_ns, own: self.own.min(other.own) }
    }
}

/// What is known of changes by others.
pub(crate) struct InvalidationStream {
    listener: OnceLock<Arc<dyn Listener>>,
    seat: AtomicU32,
    /// When the service last answered.
    answered_ns: AtomicU64,
    /// Changes heard of so far.
    heard: AtomicU64,
    /// How many that were when everything was last forgotten.
    forgot_at: AtomicU64,
    marks: Box<[AtomicU64]>,
    /// The session, and the number of the last change received in it.
    received: Mutex<(u64, u64)>,
}

impl Default for InvalidationStream {
    fn default() -> InvalidationStream {
        InvalidationStream {
            listener: OnceLock::new(),
            seat: AtomicU32::new(0),
            answered_ns: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            forgot_at: AtomicU64::new(0),
            marks: (0..MARKS).map(|_| AtomicU64::new(0)).collect(),
            received: Mutex::default(),
        }
    }
}

/// A place in the table of marks (FNV-1a, 64 bits).
fn mark_of(inode: InodeId, name: &[u8]) -> usize {
    let bytes = inode.0.to_le_bytes();
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().chain(name).fold(0xcbf2_9ce4_8422_2325, step);
    ((hash >> 32) as usize ^ hash as usize) % MARKS
}

impl InvalidationStream {
    fn mark(&self, inode: InodeId, name: &[u8]) {
        let number = self.heard.fetch_add(1, Ordering::SeqCst) + 1;
        self.marks[mark_of(inode, name)].fetch_max(number, Ordering::SeqCst);
    }

    /// Nothing asked before now may be believed.
    fn forget(&self) {
        let number = self.heard.fetch_add(1, Ordering::SeqCst) + 1;
        self.forgot_at.fetch_max(number, Ordering::SeqCst);
    }

    fn has_changed(&self, asked: Asked, inode: InodeId, name: &[u8]) -> bool {
        let last = self.marks[mark_of(inode, name)].load(Ordering::SeqCst);
        last.max(self.forgot_at.load(Ordering::SeqCst)) > asked.heard
    }

    fn is_live(&self, now_ns: u64) -> bool {
        let answered_ns = self.answered_ns.load(Ordering::SeqCst);
        self.seat.load(Ordering::SeqCst) != 0
            && now_ns.saturating_sub(answered_ns) < 2 * u64::from(WATCH_WAIT_MS) * NS_A_MS
    }
}

impl Core {
    /// The seat to send along with a request whose answer will be remembered; 0 when it will not.
    pub(crate) fn seat(&self) -> u32 {
        self.watch.seat.load(Ordering::SeqCst)
    }

    pub(crate) fn asked(&self) -> Asked {
        let heard = self.watch.heard.load(Ordering::SeqCst);
        Asked { heard, at_ns: self.clock.now_ns(), own: self.cache.changes() }
    }

    pub(crate) fn believable_for(&self, asked: Asked, inode: InodeId, name: &[u8]) -> Duration {
        let now_ns = self.clock.now_ns();
        if !self.watch.is_live(now_ns) || self.watch.has_changed(asked, inode, name) {
            return Duration::ZERO;
        }
        let lease_ns = u64::from(CACHE_LEASE_MS) * NS_A_MS;
        Duration::from_nanos(lease_ns.saturating_sub(now_ns.saturating_sub(asked.at_ns)))
    }

    /// True when another client is known to have changed an inode since.
    pub(crate) fn has_changed(&self, since: Asked, inode: InodeId) -> bool {
        self.watch.has_changed(since, inode, &[])
    }

    /// The request that asks for changes; 0 for `wait_ms` asks for those that are there.
    fn watch_request(&self, wait_ms: u32) -> proto::WatchChangesRequest {
        let session = self.session.id();
        let mut place = self.watch.received.lock();
        if place.0 != session {
            *place = (session, 0);
        }
        proto::WatchChangesRequest { session, received: place.1, wait_ms }
    }

    fn take_changes(&self, session: u64, response: &proto::WatchChangesResponse) {
        if self.session.id() != session {
            return;
        }
        let seat = self.watch.seat.swap(response.seat, Ordering::SeqCst);
        // What was asked with another interest bit, or with none, causes no invalidation here.
        if response.forget || seat != response.seat {
            self.forget_all();
        }
        for change in &response.changes {
            self.take_change(change);
        }
        *self.watch.received.lock() = (session, response.last);
        self.watch.answered_ns.store(self.clock.now_ns(), Ordering::SeqCst);
    }

    fn take_change(&self, change: &proto::Change) {
        let inode = InodeId(change.inode);
        if change.granted != 0 {
            return self.locks.call(change.granted);
        }
        if change.end_wanted {
            return self.give_end_back(inode);
        }
        self.watch.mark(inode, &change.name);
        if change.contents
            && let Some(open) = self.registry.find(inode)
        {
            open.note_changed_elsewhere();
        }
        match self.watch.listener.get() {
            Some(listener) if change.name.is_empty() => listener.inode_changed(inode, change.contents),
            Some(listener) => listener.entry_changed(inode, &change.name),
            None => {}
        }
    }

    fn forget_all(&self) {
        self.locks.must_tell();
        self.watch.forget();
        self.registry.all().iter().for_each(|open| open.note_changed_elsewhere());
        if let Some(listener) = self.watch.listener.get() {
            listener.forget();
        }
    }

    /// True while changes by others arrive.
    pub(crate) fn hears_of_changes(&self) -> bool {
        self.watch.is_live(self.clock.now_ns())
    }

    /// True when all changes up to this number have been worked in. 0 is that of who does not watch.
    pub(crate) fn has_received(&self, number: u64) -> bool {
        number == 0 || self.watch.received.lock().1 >= number
    }

    /// An inode is known to have changed, though not from a change.
    pub(crate) fn tell_listener(&self, inode: InodeId) {
        self.watch.mark(inode, &[]);
        if let Some(listener) = self.watch.listener.get() {
            listener.inode_changed(inode, true);
        }
    }

    /// The session is gone, and with it the list of what it was answered.
    fn leave_seat(&self) {
        self.watch.seat.store(0, Ordering::SeqCst);
        self.forget_all();
    }

    fn submit_watch(&self, wait_ms: u32) -> (u64, Box<dyn vazao_wire::transport::Pending>) {
        let request = self.watch_request(wait_ms);
        let message = prost::Message::encode_to_vec(&request);
        let deadline_ns = self.clock.now_ns() + u64::from(wait_ms + ANSWER_MS_MAX) * NS_A_MS;
        let method = op::WatchChanges::METHOD;
        let pending = self.watch_transport.submit(self.meta_address(), method, &message, &[], deadline_ns);
        (request.session, pending)
    }

    /// Works in what a request for changes has brought; whether there were any.
    fn finish_watch(
        &self,
        session: u64,
        received: std::result::Result<vazao_wire::transport::Received, Fault>,
    ) -> Result<bool> {
        match received.and_then(|received| decode::<op::WatchChanges>(&received)) {
            Ok(response) => {
                self.take_changes(session, &response);
                self.tell_locks()?;
                Ok(!response.changes.is_empty())
            }
            Err(fault) if fault.code == Code::SessionExpired => {
                self.leave_seat();
                self.open_session(session, self.deadline_ns()).map(|()| false)
            }
            Err(fault) => Err(fault.into()),
        }
    }
}

impl Client {
    /// From now on answers may be remembered, and `listener` hears of changes by others. To be called once. A client
    /// without a thread of its own fetches changes by [`Client::fetch_changes`].
    pub fn watch(&self, listener: Arc<dyn Listener>) -> Result<()> {
        if self.core.watch.listener.set(listener).is_err() {
            return Err(Error::new(Code::InUse, "this client watches already"));
        }
        if self.core.options.background { spawn(&self.core) } else { self.fetch_changes() }
    }

    /// Fetches the changes that are there, without waiting for any.
    pub fn fetch_changes(&self) -> Result<()> {
        let (session, pending) = self.core.submit_watch(0);
        self.core.finish_watch(session, pending.wait()).map(|_| ())
    }

    /// To be taken before a call whose answer may be remembered.
    pub fn asked(&self) -> Asked {
        self.core.asked()
    }

    /// How long attributes may be believed that a call begun at `asked` has shown; zero: not at all.
    pub fn attributes_lease(&self, asked: Asked, inode: InodeId) -> Duration {
        self.core.believable_for(asked, inode, &[])
    }

    /// The same for where a name leads, or that it leads nowhere.
    pub fn entry_lease(&self, asked: Asked, parent: InodeId, name: &[u8]) -> Duration {
        self.core.believable_for(asked, parent, name)
    }
}

/// Waits for changes for as long as the client lives.
fn spawn(core: &Arc<Core>) -> Result<()> {
    let weak = Arc::downgrade(core);
    let body = move || while watch_once(&weak) {};
    let spawned = std::thread::Builder::new().name("vazao-watch".to_owned()).spawn(body);
    let refused = |e: std::io::Error| Error::new(Code::Io, format!("starting the client's thread: {e}"));
    spawned.map(|_| ()).map_err(refused)
}

fn living(core: &Weak<Core>) -> Option<Arc<Core>> {
    core.upgrade().filter(|core| !core.closed.load(Ordering::Relaxed))
}

/// False when the client is gone. The client is not kept while the service has nothing to say.
fn watch_once(weak: &Weak<Core>) -> bool {
    let Some(core) = living(weak) else { return false };
    let (session, pending) = core.submit_watch(WATCH_WAIT_MS);
    let (clock, sent_ns) = (Arc::clone(&core.clock), core.clock.now_ns());
    drop(core);
    let received = pending.wait();
    let Some(core) = living(weak) else { return false };
    match core.finish_watch(session, received) {
        Ok(true) if clock.now_ns().saturating_sub(sent_ns) < PACE.as_nanos() as u64 => clock.sleep(PACE),
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(%error, "changes by others cannot be heard of at the moment");
            drop(core);
            clock.sleep(PAUSE);
        }
    }
    true
}
