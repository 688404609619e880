//! What this client may believe without asking again.
//!
//! A client that watches sends its seat along with its requests, and the metadata service tells it of every change, by
//! others, of what it was answered. Answers may then be believed for a lease. An answer that was under way when its
//! thing changed may not be: each call is marked with how much had been heard before it ([`Asked`]), and each change
//! leaves its number in a small table.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vazao_model::InodeId;
use vazao_model::limits::WATCH_WAIT_MS;

const NS_A_MS: u64 = 1_000_000;

/// Places for the numbers of changes. Two things that share one cost an answer that is not believed, no more.
const MARKS: usize = 4096;

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
    /// The seat that the metadata service knows this client's requests by; 0: it has none.
    pub(super) fn seat(&self) -> u32 {
        self.seat.load(Ordering::SeqCst)
    }

    /// Takes a seat, 0 for none; returns the former one.
    pub(crate) fn take_seat(&self, seat: u32) -> u32 {
        self.seat.swap(seat, Ordering::SeqCst)
    }

    /// Changes heard of so far.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::SeqCst)
    }

    /// The number of the last change received in a session.
    pub(crate) fn received_in(&self, session: u64) -> u64 {
        let mut place = self.received.lock();
        if place.0 != session {
            *place = (session, 0);
        }
        place.1
    }

    /// All changes up to `last` have been worked in.
    pub(crate) fn note_answer(&self, session: u64, last: u64, now_ns: u64) {
        *self.received.lock() = (session, last);
        self.answered_ns.store(now_ns, Ordering::SeqCst);
    }

    /// True when all changes up to this number have been worked in.
    pub(super) fn has_received(&self, number: u64) -> bool {
        self.received.lock().1 >= number
    }

    /// False when there is a listener already.
    pub(crate) fn listen(&self, listener: Arc<dyn Listener>) -> bool {
        self.listener.set(listener).is_ok()
    }

    pub(crate) fn listener(&self) -> Option<&Arc<dyn Listener>> {
        self.listener.get()
    }

    /// A thing has changed.
    pub(crate) fn mark(&self, inode: InodeId, name: &[u8]) {
        let number = self.heard.fetch_add(1, Ordering::SeqCst) + 1;
        self.marks[mark_of(inode, name)].fetch_max(number, Ordering::SeqCst);
    }

    /// Nothing asked before now may be believed.
    pub(crate) fn forget(&self) {
        let number = self.heard.fetch_add(1, Ordering::SeqCst) + 1;
        self.forgot_at.fetch_max(number, Ordering::SeqCst);
    }

    pub(super) fn has_changed(&self, asked: Asked, inode: InodeId, name: &[u8]) -> bool {
        let last = self.marks[mark_of(inode, name)].load(Ordering::SeqCst);
        last.max(self.forgot_at.load(Ordering::SeqCst)) > asked.heard
    }

    pub(super) fn is_live(&self, now_ns: u64) -> bool {
        let answered_ns = self.answered_ns.load(Ordering::SeqCst);
        self.seat.load(Ordering::SeqCst) != 0
            && now_ns.saturating_sub(answered_ns) < 2 * u64::from(WATCH_WAIT_MS) * NS_A_MS
    }
}
