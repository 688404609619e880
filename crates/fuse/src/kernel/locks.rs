//! Requests about locks: GETLK, SETLK, SETLKW.

use super::abi::lock_type;
use super::outcome::{Failure, Outcome};
use super::reply::Reply;
use crate::filesystem::FileSystem;
use crate::filesystem::arguments::LockWish;
use crate::kernel_cache::notices::Notices;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_client::Error;
use vazao_model::Code;
use vazao_model::locks::LockMode;

/// Requests that may wait for locks at once: each holds a thread.
const WAITING_MAX: usize = 1024;

/// Makes a thread more: one that waits for a lock does nothing else meanwhile.
pub(crate) type Helper = Box<dyn Fn() + Send + Sync>;

/// Requests that wait for locks, and the threads that stand in for them.
#[derive(Default)]
pub(crate) struct LockWaiters {
    count: AtomicUsize,
    /// Threads made so far to stand in for those that wait.
    helpers: AtomicUsize,
    helper: OnceLock<Helper>,
}

impl LockWaiters {
    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// For where threads do not make up for those that wait by themselves. Only the first call has an effect.
    pub(crate) fn make_up_with(&self, helper: Helper) {
        let _ = self.helper.set(helper);
    }

    /// Locks or lets go; with `waits`, waits for the lock.
    pub(super) fn set(
        &self,
        door: &dyn FileSystem,
        notices: &Notices,
        wish: &LockWish,
        waits: bool,
    ) -> Outcome {
        let lock = |waits: bool| concluded(door.set_lock(wish, waits), notices, waits);
        if !waits || wish.mode.is_none() {
            return lock(false);
        }
        // Most locks are free; only one that is not costs a thread.
        match door.set_lock(wish, false) {
            Err(error) if error.code == Code::Locked => {}
            outcome => return concluded(outcome, notices, waits),
        }
        let before = self.count.fetch_add(1, Ordering::SeqCst);
        if before < WAITING_MAX {
            self.make_up_for(before + 1);
        }
        let outcome = match before < WAITING_MAX {
            true => lock(true),
            false => Err(Error::new(Code::NoLocks, "too many processes of this mount wait for locks").into()),
        };
        self.count.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    fn make_up_for(&self, waiting: usize) {
        let Some(helper) = self.helper.get() else { return };
        if self.helpers.fetch_max(waiting, Ordering::SeqCst) < waiting {
            helper();
        }
    }
}

/// This client knows of the last holder's changes; the kernel must have been notified of them, too, or it serves old
/// pages. `waits`: the caller wanted to wait for the lock.
fn concluded(outcome: Result<(), Error>, notices: &Notices, waits: bool) -> Outcome {
    if outcome.is_ok() {
        notices.settle();
    }
    outcome.map_err(|error| match error.code {
        Code::Locked if !waits => Failure::LockTaken,
        _ => error.into(),
    })
}

/// Answers which lock stands against one.
pub(super) fn test(door: &dyn FileSystem, wish: &LockWish, reply: &mut Reply) -> Outcome {
    let (range, kind, process) = match door.test_lock(wish)? {
        Some(held) => {
            let is_shared = held.mode == LockMode::Shared;
            let kind = if is_shared { lock_type::SHARED } else { lock_type::EXCLUSIVE };
            (held.range, kind, held.process)
        }
        None => (wish.range, lock_type::NONE, 0),
    };
    reply.put_lock_out(range.first, range.last.min(lock_type::OFFSET_MAX), kind, process);
    Ok(())
}
