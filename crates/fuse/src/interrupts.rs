//! Which thread is at work on which request, so that the kernel can say that nobody waits for it any more.
//!
//! The kernel says so for any signal to the caller, also for those that it handles and goes on after. A call is
//! therefore given up only where it has to wait for an answer, and looks after a quarter of a second: what is answered
//! in time is never cut short. Requests that write are not given up for a signal; of them it is known who waits for
//! them, for [`crate::dying`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use vazao_client::interrupt::{self, Interrupt};

/// Beyond this many the list is looked through for threads that have ended.
const THREADS_KEPT: usize = 256;

/// A thread's place in the list.
#[derive(Debug, Default)]
struct Place {
    /// The request it is at work on; 0: none that can be given up.
    unique: AtomicU64,
    interrupt: Arc<Interrupt>,
    /// The request it is at work on that cannot be given up; 0: none.
    writes: AtomicU64,
    caller: AtomicU32,
}

/// A request that cannot be given up, and the thread that waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Writer {
    pub(crate) unique: u64,
    pub(crate) caller: u32,
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
}

impl Interrupts {
    fn own(&self) -> Arc<Place> {
        if let Some(own) = OWN.with(|own| own.borrow().clone()) {
            return own;
        }
        let place = Arc::new(Place::default());
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= THREADS_KEPT {
            places.retain(|place| place.strong_count() > 0);
        }
        places.push(Arc::downgrade(&place));
        drop(places);
        OWN.with(|own| own.replace(Some(Arc::clone(&place))));
        place
    }

    /// Works on a request that can be given up.
    pub(crate) fn during<T>(&self, unique: u64, work: impl FnOnce() -> T) -> T {
        struct Done<'a>(&'a Place);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.unique.store(0, Ordering::SeqCst);
            }
        }
        let place = self.own();
        place.interrupt.clear();
        place.unique.store(unique, Ordering::SeqCst);
        let _done = Done(&place);
        interrupt::during(&place.interrupt, work)
    }

    /// Works on a request that cannot be given up.
    pub(crate) fn writing<T>(&self, writer: Writer, work: impl FnOnce() -> T) -> T {
        struct Done<'a>(&'a Place);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.writes.store(0, Ordering::SeqCst);
            }
        }
        let place = self.own();
        place.interrupt.clear();
        place.caller.store(writer.caller, Ordering::SeqCst);
        place.writes.store(writer.unique, Ordering::SeqCst);
        let _done = Done(&place);
        interrupt::until_killed(&place.interrupt, work)
    }

    /// The requests at work that cannot be given up.
    pub(crate) fn writers(&self) -> Vec<Writer> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let at_work = places.iter().filter_map(Weak::upgrade).filter_map(|place| {
            let unique = place.writes.load(Ordering::SeqCst);
            let caller = place.caller.load(Ordering::SeqCst);
            // Read again: the thread may have gone on in between, and the caller be another request's.
            let is_same = unique != 0 && place.writes.load(Ordering::SeqCst) == unique;
            is_same.then_some(Writer { unique, caller })
        });
        at_work.collect()
    }

    /// The caller of a request that cannot be given up is being killed: what it waits for without need it need not.
    pub(crate) fn kill(&self, unique: u64) {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        for place in places.iter().filter_map(Weak::upgrade) {
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
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(unique, false);
    }

    /// A thread takes over a request that was begun; true when it was given up before.
    pub(crate) fn take_over(&self, unique: u64) -> bool {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).remove(&unique).unwrap_or(false)
    }

    /// Nobody waits for this request any more; false when it is not known here.
    pub(crate) fn raise(&self, unique: u64) -> bool {
        if let Some(is_given_up) = self.begun.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&unique)
        {
            *is_given_up = true;
            return true;
        }
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let found =
            places.iter().filter_map(Weak::upgrade).find(|p| p.unique.load(Ordering::SeqCst) == unique);
        // Should the thread have gone on to its next request just now, that one is given up at worst if it takes long.
        found.map(|place| place.interrupt.raise()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_at_work_on_a_request_is_found_and_no_other() {
        let interrupts = Interrupts::default();
        assert!(!interrupts.raise(7));
        interrupts.during(7, || {
            assert!(!interrupts.raise(8));
            assert!(!interrupt::is_raised());
            assert!(interrupts.raise(7));
            assert!(interrupt::is_raised());
        });
        assert!(!interrupts.raise(7), "it is done");
        interrupts.during(8, || assert!(!interrupt::is_raised(), "the next one was not meant"));
        let writer = Writer { unique: 9, caller: 3 };
        interrupts.writing(writer, || {
            assert_eq!(interrupts.writers(), [writer]);
            assert!(!interrupts.raise(9), "it cannot be given up");
            interrupts.kill(8);
            assert!(!interrupt::unless_killed(interrupt::is_raised));
            interrupts.kill(9);
            assert!(interrupt::unless_killed(interrupt::is_raised) && !interrupt::is_raised());
        });
        assert!(interrupts.writers().is_empty());
    }

    #[test]
    fn a_request_without_a_thread_is_known_to_be_given_up_when_one_takes_it_over() {
        let interrupts = Interrupts::default();
        interrupts.begin(5);
        interrupts.begin(6);
        assert!(interrupts.raise(5));
        assert!(interrupts.take_over(5) && !interrupts.take_over(6));
        assert!(!interrupts.raise(5) && !interrupts.raise(6), "nobody is at work on them yet");
    }
}
