//! The lock on one file's end, as this client has it.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The lock on one file's end.
///
/// Each time that it is taken it has an owner of its own at the metadata service. A release that arrives late, because
/// its connection broke or its caller was killed, then names an owner that is gone, and cannot take the lock from
/// its next owner: an open of the same file in the same client, for example.
#[derive(Default)]
pub(crate) struct End {
    /// One append of this client at a time.
    turn: Mutex<()>,
    /// The owner by which it is held; 0: it is not.
    held_by: AtomicU64,
    is_wanted: AtomicBool,
    /// Another client has had it since it was last held here.
    is_lost: AtomicBool,
}

impl End {
    /// One append of this client at a time.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// The owner by which it is held; 0: it is not.
    pub(super) fn held_by(&self) -> u64 {
        self.held_by.load(Ordering::SeqCst)
    }

    pub(super) fn is_held(&self) -> bool {
        self.held_by() != 0
    }

    /// It is held by `owner`. True when another client has had it since it was last held here.
    pub(super) fn hold(&self, owner: u64) -> bool {
        self.held_by.store(owner, Ordering::SeqCst);
        self.is_lost.swap(false, Ordering::SeqCst)
    }

    /// It is not held any more; returns its owner, 0 if it was not.
    pub(super) fn let_go(&self) -> u64 {
        self.held_by.swap(0, Ordering::SeqCst)
    }

    /// Whether another client wants it.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::SeqCst)
    }

    pub(super) fn set_wanted(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::SeqCst);
    }

    /// The metadata service has given the lock of `owner` to another client.
    pub(crate) fn lose(&self, owner: u64) {
        if self.held_by.compare_exchange(owner, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.is_lost.store(true, Ordering::SeqCst);
        }
    }
}
