//! Giving up a wait that is going on already: somebody in another thread says that its caller has lost interest.
//!
//! A thread that serves a caller who can be interrupted sets a flag for the length of the call ([`during`]). Waits for
//! answers look at it several times a second, so that neither an answer that comes in time nor its requester pays
//! for that.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long a wait goes on before it looks.
const LOOK_NS: u64 = 250_000_000;

/// Set by one thread, looked at by the one that waits.
#[derive(Debug, Default)]
pub struct Interrupt {
    is_raised: AtomicBool,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Interrupt>>> = const { RefCell::new(None) };
}

impl Interrupt {
    /// Whoever waits shall give up.
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
    }

    /// The next call begins.
    pub fn clear(&self) {
        self.is_raised.store(false, Ordering::SeqCst);
    }

    /// True once it was raised.
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::SeqCst)
    }
}

/// Runs `work`, whose waits end when `interrupt` is raised.
pub fn during<T>(interrupt: &Arc<Interrupt>, work: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            CURRENT.with(|current| current.take());
        }
    }
    CURRENT.with(|current| current.replace(Some(Arc::clone(interrupt))));
    let _reset = Reset;
    work()
}

/// Runs `work`, whose waits go on whatever is raised: giving them up would lose something.
pub fn ignored<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<Interrupt>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.with(|current| current.replace(self.0.take()));
        }
    }
    let _restore = Restore(CURRENT.with(|current| current.take()));
    work()
}

/// True when the call that this thread is in shall be given up.
pub fn is_raised() -> bool {
    CURRENT.with(|current| current.borrow().as_ref().is_some_and(|interrupt| interrupt.is_raised()))
}

/// Until when to wait before looking at the flag again, at the latest until `deadline_ns`.
pub(crate) fn look_by_ns(now_ns: u64, deadline_ns: u64) -> u64 {
    let can_be = CURRENT.with(|current| current.borrow().is_some());
    if can_be { deadline_ns.min(now_ns.saturating_add(LOOK_NS)) } else { deadline_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_call_it_was_set_for_is_given_up() {
        let interrupt = Arc::new(Interrupt::default());
        assert!(!is_raised());
        assert_eq!(look_by_ns(5, u64::MAX), u64::MAX);
        during(&interrupt, || {
            assert!(!is_raised());
            assert_eq!(look_by_ns(5, u64::MAX), 5 + LOOK_NS);
            assert_eq!(look_by_ns(5, 7), 7);
            interrupt.raise();
            assert!(is_raised());
            ignored(|| assert!(!is_raised()));
            assert!(is_raised());
        });
        assert!(!is_raised(), "the thread has gone on to something else");
    }
}
