//! Registry of requests in flight and their threads, so that an interrupt from the kernel finds the thread to cancel.
//!
//! The kernel interrupts a request for any signal to the caller, also for one that the caller handles and goes on
//! after. A call is therefore given up only where it blocks for an answer, and checks after a quarter of a second: a
//! call that is answered in time is never cut short. Requests that write are not interrupted by a signal; the registry
//! keeps their callers for [`crate::interrupts::dying`].
//!
//! An interrupt is never answered. The kernel would take `EAGAIN` as a request to retry and send the interrupt again at
//! once: a busy loop for as long as the request waits. The one case for `EAGAIN` is a race: an interrupt overtakes the
//! thread that has just read its request. It is handled by a note that this thread finds ([`Interrupts::early`]).

pub(crate) mod dying;

use parking_lot::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vazao_client::interrupt::{self, Interrupt};

/// Beyond this many the list is looked through for threads that have ended.
const THREADS_KEPT: usize = 256;

/// Interrupts noted for requests that no thread has begun yet; the oldest go first. As many as threads can be between
/// reading a request and beginning it: what is older came too late, after the answer.
const EARLY_MAX: usize = 64;

/// A thread's place in the list.
#[derive(Debug, Default)]
struct Place {
    /// The request it is at work on; 0: none that can be given up.
    unique: AtomicU64,
    interrupt: Arc<Interrupt>,
    /// The request it is at work on that cannot be given up; 0: none.
    writes: AtomicU64,
    /// Of either request: the thread that waits for it, and the kernel's number of what it asks for.
    caller: AtomicU32,
    operation: AtomicU32,
}

impl Place {
    fn enter(&self, call: Call) {
        self.interrupt.clear();
        self.caller.store(call.caller, Ordering::SeqCst);
        self.operation.store(call.operation, Ordering::SeqCst);
    }

    /// The request of which `unique` has the number, if there is one.
    fn call(&self, unique: &AtomicU64) -> Option<Call> {
        let number = unique.load(Ordering::SeqCst);
        let caller = self.caller.load(Ordering::SeqCst);
        let operation = self.operation.load(Ordering::SeqCst);
        // Read again: the thread may have gone on in between, and the caller be another request's.
        let is_same = number != 0 && unique.load(Ordering::SeqCst) == number;
        is_same.then_some(Call { unique: number, caller, operation })
    }
}

/// A request that a thread is at work on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) unique: u64,
    /// The thread that waits for it; 0 where none does.
    pub(crate) caller: u32,
    /// The kernel's number of what it asks for.
    pub(crate) operation: u32,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Place>>> = const { RefCell::new(None) };
}

/// The threads of one mount. Each thread serves one mount only.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    places: Mutex<Vec<Weak<Place>>>,
    /// Requests that no thread is at work on while their answers are on the way, and whether they were given up.
    begun: Mutex<HashMap<u64, bool>>,
    /// Interrupts of requests that were not known here when they came.
    early: Mutex<VecDeque<u64>>,
    /// Their number, so that a request without one takes no lock.
    early_count: AtomicUsize,
    /// The kernel has ended the conversation.
    is_over: AtomicBool,
}

impl Interrupts {
    fn own(&self) -> Arc<Place> {
        if let Some(own) = OWN.with(|own| own.borrow().clone()) {
            return own;
        }
        let place = Arc::new(Place::default());
        let mut places = self.places.lock();
        if places.len() >= THREADS_KEPT {
            places.retain(|place| place.strong_count() > 0);
        }
        places.push(Arc::downgrade(&place));
        drop(places);
        OWN.with(|own| own.replace(Some(Arc::clone(&place))));
        place
    }

    /// Works on a request that can be given up.
    pub(crate) fn during<T>(&self, call: Call, work: impl FnOnce() -> T) -> T {
        struct Done<'a>(&'a Place);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.unique.store(0, Ordering::SeqCst);
            }
        }
        let place = self.own();
        place.enter(call);
        place.unique.store(call.unique, Ordering::SeqCst);
        let _done = Done(&place);
        if self.take_early(call.unique) || self.is_over.load(Ordering::SeqCst) {
            place.interrupt.raise();
        }
        interrupt::interruptible(&place.interrupt, work)
    }

    /// Works on a request that cannot be given up.
    pub(crate) fn writing<T>(&self, call: Call, work: impl FnOnce() -> T) -> T {
        struct Done<'a>(&'a Place);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.writes.store(0, Ordering::SeqCst);
            }
        }
        let place = self.own();
        place.enter(call);
        place.writes.store(call.unique, Ordering::SeqCst);
        let _done = Done(&place);
        // It is carried out whatever comes; a note about it would only be in the way of others.
        self.take_early(call.unique);
        if self.is_over.load(Ordering::SeqCst) {
            place.interrupt.kill(place.interrupt.call());
        }
        interrupt::until_killed(&place.interrupt, work)
    }

    /// The requests at work that cannot be given up.
    pub(crate) fn writers(&self) -> Vec<Call> {
        self.places().iter().filter_map(|place| place.call(&place.writes)).collect()
    }

    /// All requests that threads are at work on.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let of = |place: &Arc<Place>| place.call(&place.unique).or_else(|| place.call(&place.writes));
        self.places().iter().filter_map(of).collect()
    }

    /// No request has a waiter any more: the kernel has ended the connection.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.begun().values_mut().for_each(|is_given_up| *is_given_up = true);
        for call in self.calls() {
            self.raise_known(call.unique);
            self.kill(call.unique);
        }
    }

    /// True once [`Interrupts::end`] was called.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn places(&self) -> Vec<Arc<Place>> {
        let places = self.places.lock();
        places.iter().filter_map(Weak::upgrade).collect()
    }

    /// The caller of a request that cannot be given up is being killed: what it waits for without need it need not.
    pub(crate) fn kill(&self, unique: u64) {
        for place in self.places() {
            let is_it = || place.writes.load(Ordering::SeqCst) == unique;
            // Looked at before and after: the call is the request's then.
            if is_it() {
                let call = place.interrupt.call();
                if is_it() {
                    place.interrupt.kill(call);
                }
            }
        }
    }

    /// The answer to a request that can be given up is on the way, and no thread waits for it.
    pub(crate) fn begin(&self, unique: u64) {
        self.begun().insert(unique, false);
        if self.take_early(unique) {
            self.begun().insert(unique, true);
        }
    }

    /// A thread takes over a request that was begun; true when it was given up before.
    pub(crate) fn take_over(&self, unique: u64) -> bool {
        self.begun().remove(&unique).unwrap_or(false)
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<u64, bool>> {
        self.begun.lock()
    }

    /// This request has no waiter any more.
    pub(crate) fn raise(&self, unique: u64) {
        // Noted before looking: a thread that begins the request at this moment is either seen, or sees the note.
        self.note_early(unique);
        if self.raise_known(unique) {
            self.take_early(unique);
        }
    }

    /// False when no thread is at work on it: not yet, or not any more.
    fn raise_known(&self, unique: u64) -> bool {
        if let Some(is_given_up) = self.begun().get_mut(&unique) {
            *is_given_up = true;
            return true;
        }
        for place in self.places() {
            if place.unique.load(Ordering::SeqCst) == unique {
                // Should the thread have gone on to its next request just now, that one is given up at worst if it
                // takes long.
                place.interrupt.raise();
                return true;
            }
            if place.writes.load(Ordering::SeqCst) == unique {
                return true;
            }
        }
        false
    }

    fn early(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.early.lock()
    }

    fn note_early(&self, unique: u64) {
        let mut early = self.early();
        if early.len() >= EARLY_MAX {
            early.pop_front();
        }
        early.push_back(unique);
        self.early_count.store(early.len(), Ordering::SeqCst);
    }

    /// True when the interrupt of this request has come already.
    fn take_early(&self, unique: u64) -> bool {
        if self.early_count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut early = self.early();
        let before = early.len();
        early.retain(|other| *other != unique);
        self.early_count.store(early.len(), Ordering::SeqCst);
        early.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(unique: u64) -> Call {
        Call { unique, caller: 3, operation: 4 }
    }

    fn early(interrupts: &Interrupts) -> Vec<u64> {
        interrupts.early().iter().copied().collect()
    }

    #[test]
    fn the_thread_at_work_on_a_request_is_found_and_no_other() {
        let interrupts = Interrupts::default();
        interrupts.during(call(7), || {
            interrupts.raise(8);
            assert!(!interrupt::is_raised());
            interrupts.raise(7);
            assert!(interrupt::is_raised());
        });
        interrupts.during(call(9), || assert!(!interrupt::is_raised(), "the next one was not meant"));
        let writer = call(10);
        interrupts.writing(writer, || {
            assert_eq!(interrupts.writers(), [writer]);
            interrupts.raise(10);
            assert!(!interrupt::is_raised(), "it cannot be given up");
            interrupts.kill(8);
            assert!(!interrupt::killable(interrupt::is_raised));
            interrupts.kill(10);
            assert!(interrupt::killable(interrupt::is_raised) && !interrupt::is_raised());
        });
        assert!(interrupts.writers().is_empty());
        assert_eq!(early(&interrupts), [8], "known requests leave no notes");
    }

    #[test]
    fn an_interrupt_that_overtakes_the_thread_of_its_request_is_found_by_it() {
        let interrupts = Interrupts::default();
        interrupts.raise(7);
        interrupts.during(call(8), || assert!(!interrupt::is_raised()));
        interrupts.during(call(7), || assert!(interrupt::is_raised()));
        interrupts.during(call(7), || assert!(!interrupt::is_raised(), "once"));
        interrupts.raise(9);
        interrupts.begin(9);
        assert!(interrupts.take_over(9));
        interrupts.raise(10);
        interrupts.writing(call(10), || assert!(!interrupt::is_raised()));
        assert_eq!(early(&interrupts), []);
    }

    #[test]
    fn at_the_end_of_the_conversation_everything_is_given_up_that_can_be() {
        let interrupts = Interrupts::default();
        interrupts.begin(5);
        interrupts.during(call(6), || {
            assert_eq!(interrupts.calls(), [call(6)]);
            interrupts.end();
            assert!(interrupt::is_raised() && interrupts.is_over());
        });
        assert!(interrupts.take_over(5));
        interrupts.writing(call(7), || {
            assert!(!interrupt::is_raised(), "it is carried out");
            assert!(interrupt::killable(interrupt::is_raised), "what need not be waited for is left");
        });
        interrupts.during(call(8), || assert!(interrupt::is_raised(), "it was read just before"));
    }

    #[test]
    fn interrupts_that_come_after_the_answer_are_forgotten_oldest_first() {
        let interrupts = Interrupts::default();
        let count = 3 * EARLY_MAX as u64;
        (0..count).for_each(|unique| interrupts.raise(unique));
        assert_eq!(early(&interrupts), (count - EARLY_MAX as u64..count).collect::<Vec<_>>());
    }

    #[test]
    fn a_request_without_a_thread_is_known_to_be_given_up_when_one_takes_it_over() {
        let interrupts = Interrupts::default();
        interrupts.begin(5);
        interrupts.begin(6);
        interrupts.raise(5);
        assert!(interrupts.take_over(5) && !interrupts.take_over(6));
        // The thread has taken it over and has not begun yet.
        interrupts.raise(6);
        interrupts.during(call(6), || assert!(interrupt::is_raised()));
    }
}
