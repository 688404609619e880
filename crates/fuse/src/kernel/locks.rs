//! Requests about locks: GETLK, SETLK, SETLKW.

use super::abi::lock_type;
use super::reply::Reply;
use super::serve::{Failure, Outcome, Server};
use crate::volume::LockWish;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_client::Error;
use vazao_model::Code;
use vazao_model::locks::{LockMode, LockRange};

/// Offset of the last byte of any file, as the kernel has it.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Requests that may wait for locks at once: each holds a thread.
const WAITING_MAX: usize = 1024;

/// Makes a thread more: one that waits for a lock does nothing else meanwhile.
pub(crate) type Helper = Box<dyn Fn() + Send + Sync>;

/// Requests that wait for locks.
#[derive(Default)]
pub(crate) struct Waiting {
    count: AtomicUsize,
    /// Threads made so far to stand in for those that wait.
    helpers: AtomicUsize,
}

impl Waiting {
    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// A range as the kernel has it, its last byte included. Its end of all files is the end of all numbers here.
pub(crate) fn range(first: u64, last: u64) -> Option<LockRange> {
    let last = if last >= OFFSET_MAX { u64::MAX } else { last };
    (first <= last).then_some(LockRange { first, last })
}

/// What a lock's type asks for; `Err` for one there is not.
pub(crate) fn mode(number: u32) -> Result<Option<LockMode>, super::request::Malformed> {
    match number {
        lock_type::SHARED => Ok(Some(LockMode::Shared)),
        lock_type::EXCLUSIVE => Ok(Some(LockMode::Exclusive)),
        lock_type::NONE => Ok(None),
        _ => Err(super::request::Malformed),
    }
}

impl Server {
    pub(super) fn test_lock(&self, wish: &LockWish, reply: &mut Reply) -> Outcome {
        let found = self.door.test_lock(wish)?;
        let (range, kind, process) = match found {
            Some(held) => {
                let is_shared = held.mode == LockMode::Shared;
                let kind = if is_shared { lock_type::SHARED } else { lock_type::EXCLUSIVE };
                (held.range, kind, held.process)
            }
            None => (wish.range, lock_type::NONE, 0),
        };
        reply.put_lock_out(range.first, range.last.min(OFFSET_MAX), kind, process);
        Ok(())
    }

    pub(super) fn set_lock(&self, wish: &LockWish, waits: bool) -> Outcome {
        if !waits || wish.mode.is_none() {
            return self.locked(wish, false);
        }
        // Most locks are free; only one that is not costs a thread.
        match self.door.set_lock(wish, false) {
            Err(error) if error.code == Code::Locked => {}
            outcome => return self.after_lock(outcome, waits),
        }
        let before = self.waiting.count.fetch_add(1, Ordering::SeqCst);
        if before < WAITING_MAX {
            self.make_up_for_waiting(before + 1);
        }
        let outcome = match before < WAITING_MAX {
            true => self.locked(wish, true),
            false => Err(Error::new(Code::NoLocks, "too many processes of this mount wait for locks").into()),
        };
        self.waiting.count.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    fn locked(&self, wish: &LockWish, waits: bool) -> Outcome {
        self.after_lock(self.door.set_lock(wish, waits), waits)
    }

    /// This client knows of the last holder's changes; the kernel must have been notified of them, too, or it serves
    /// old pages.
    fn after_lock(&self, outcome: Result<(), Error>, waits: bool) -> Outcome {
        if outcome.is_ok() {
            self.notices.settle();
        }
        outcome.map_err(|error| match error.code {
            Code::Locked if !waits => Failure::LockTaken,
            _ => error.into(),
        })
    }

    fn make_up_for_waiting(&self, waiting: usize) {
        let Some(helper) = self.helper.get() else { return };
        if self.waiting.helpers.fetch_max(waiting, Ordering::SeqCst) < waiting {
            helper();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_to_the_end_of_the_kernels_files_is_one_to_the_end_of_all() {
        assert_eq!(range(0, OFFSET_MAX), Some(LockRange::WHOLE));
        assert_eq!(range(5, 9), Some(LockRange { first: 5, last: 9 }));
        assert_eq!(range(9, 5), None);
        assert!(mode(3).is_err());
        assert_eq!(mode(lock_type::NONE), Ok(None));
    }
}
