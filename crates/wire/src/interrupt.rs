//! Interrupting a wait for an answer: another thread cancels it for a signal or a killed caller.
//!
//! A thread that serves an interruptible call sets a flag for the length of the call ([`interruptible`]). Waits for
//! answers poll the flag several times a second. Neither a fast answer nor the requester's fast path pays for the
//! polling.
//!
//! Calls that a signal must not cut short can still be abandoned when their caller is killed. They run in
//! [`until_killed`] and mark the waits that are safe to abandon ([`killable`]).
//!
//! Where only the thread that waits can see its signals, as in an interpreter, the flag polls for them
//! ([`Interrupt::polling`]).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Poll interval of the flag.
const LOOK_NS: u64 = 250_000_000;

/// Levels of the present call's flag.
const RAISED: u64 = 1;
const KILLED: u64 = 2;
/// The level is the state modulo this, the number of the call the quotient.
const CALL: u64 = 4;

/// Cancellation flag: set by one thread, polled by the one that waits.
#[derive(Debug, Default)]
pub struct Interrupt {
    state: AtomicU64,
    /// Asked by the waiting thread, which may hold locks then.
    poll: Option<fn() -> bool>,
}

/// Identifies one call of a thread, so that a late kill does not hit the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call(u64);

/// What the present waits end for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heeded {
    Signals,
    Kills,
    Nothing,
}

type Current = Option<(Arc<Interrupt>, Heeded)>;

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(None) };
}

impl Interrupt {
    /// A flag that `poll` sets, as [`Interrupt::kill`] does, when it returns true. Each wait calls it, also one that is
    /// answered soon: a call of many requests ends between two of them. It must be cheap and lock nothing.
    pub fn polling(poll: fn() -> bool) -> Interrupt {
        Interrupt { state: AtomicU64::default(), poll: Some(poll) }
    }

    /// The present call.
    pub fn call(&self) -> Call {
        Call(self.state.load(Ordering::SeqCst) / CALL)
    }

    /// Interrupts the waits of the present call, as for a signal.
    pub fn raise(&self) {
        self.reach(self.call(), RAISED);
    }

    /// The caller of `call` is being killed: the result of the call will not be seen. Later calls of the thread are
    /// not affected.
    pub fn kill(&self, call: Call) {
        self.reach(call, KILLED);
    }

    /// The next call begins.
    pub fn clear(&self) {
        let next = |state: u64| Some((state / CALL).wrapping_add(1).wrapping_mul(CALL));
        let _ = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    fn reach(&self, call: Call, level: u64) {
        let reached = |state: u64| {
            (state / CALL == call.0 && state % CALL < level).then_some(call.0.wrapping_mul(CALL) + level)
        };
        // A call that is over is left alone: the flag belongs to the next call now.
        let _ = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, reached);
    }

    fn reaches(&self, level: u64) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        state % CALL >= level || self.polls(Call(state / CALL))
    }

    fn polls(&self, call: Call) -> bool {
        let is_over = self.poll.is_some_and(|poll| poll());
        if is_over {
            self.kill(call);
        }
        is_over
    }
}

fn with<T>(current: Current, work: impl FnOnce() -> T) -> T {
    struct Restore(Current);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.with(|current| current.replace(self.0.take()));
        }
    }
    let _restore = Restore(CURRENT.with(|place| place.replace(current)));
    work()
}

/// Runs `work` as interruptible: its waits end when `interrupt` is raised.
pub fn interruptible<T>(interrupt: &Arc<Interrupt>, work: impl FnOnce() -> T) -> T {
    with(Some((Arc::clone(interrupt), Heeded::Signals)), work)
}

/// Runs `work` with killable parts: the waits within [`killable`] end when its caller is killed, and no others.
pub fn until_killed<T>(interrupt: &Arc<Interrupt>, work: impl FnOnce() -> T) -> T {
    with(Some((Arc::clone(interrupt), Heeded::Nothing)), work)
}

/// Runs `work` as killable: its waits end when the caller is being killed, and for no other signal. Work that is
/// abandoned half-way must be recoverable by another thread.
pub fn killable<T>(work: impl FnOnce() -> T) -> T {
    let current = CURRENT.with(|current| current.borrow().clone());
    with(current.map(|(interrupt, _)| (interrupt, Heeded::Kills)), work)
}

/// Runs `work` as uninterruptible: abandoning its waits would lose data or state.
pub fn uninterruptible<T>(work: impl FnOnce() -> T) -> T {
    with(None, work)
}

fn is_current(so: impl FnOnce(&Interrupt, Heeded) -> bool) -> bool {
    CURRENT
        .with(|current| current.borrow().as_ref().is_some_and(|(interrupt, heeded)| so(interrupt, *heeded)))
}

/// True when the call that this thread is in shall be abandoned.
pub fn is_raised() -> bool {
    is_current(|interrupt, heeded| match heeded {
        Heeded::Signals => interrupt.reaches(RAISED),
        Heeded::Kills => interrupt.reaches(KILLED),
        Heeded::Nothing => false,
    })
}

/// True when the call that this thread is in may be abandoned, because its caller is being killed.
pub fn is_killed() -> bool {
    is_current(|interrupt, heeded| heeded == Heeded::Kills && interrupt.reaches(KILLED))
}

/// True when a flag that polls ([`Interrupt::polling`]) ends the present waits.
pub(crate) fn is_polled() -> bool {
    is_current(|interrupt, heeded| {
        heeded != Heeded::Nothing && interrupt.poll.is_some() && interrupt.reaches(KILLED)
    })
}

/// True when the present waits end for a caller that is being killed.
pub(crate) fn heeds_kills() -> bool {
    is_current(|_, heeded| heeded == Heeded::Kills)
}

/// True when a wait that began at `started_ns` shall end: what is answered in time is not cut short by a signal.
pub fn is_due(started_ns: u64, now_ns: u64) -> bool {
    is_killed() || is_polled() || (now_ns.saturating_sub(started_ns) >= LOOK_NS && is_raised())
}

/// Until when to wait before looking at the flag again, at the latest until `deadline_ns`.
pub(crate) fn look_by_ns(now_ns: u64, deadline_ns: u64) -> u64 {
    let can_be = is_current(|_, heeded| heeded != Heeded::Nothing);
    if can_be { deadline_ns.min(now_ns.saturating_add(LOOK_NS)) } else { deadline_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn only_the_call_it_was_set_for_is_given_up() {
        let interrupt = Arc::new(Interrupt::default());
        assert!(!is_raised());
        assert_eq!(look_by_ns(5, u64::MAX), u64::MAX);
        interruptible(&interrupt, || {
            assert!(!is_raised());
            assert_eq!(look_by_ns(5, u64::MAX), 5 + LOOK_NS);
            assert_eq!(look_by_ns(5, 7), 7);
            interrupt.raise();
            assert!(is_raised() && !is_killed());
            assert!(!is_due(5, 5 + LOOK_NS - 1) && is_due(5, 5 + LOOK_NS));
            uninterruptible(|| assert!(!is_raised()));
            assert!(is_raised());
        });
        assert!(!is_raised(), "the thread has gone on to something else");
    }

    #[test]
    fn a_call_that_is_not_cut_short_is_left_where_it_says_so_once_its_caller_is_killed() {
        let interrupt = Arc::new(Interrupt::default());
        until_killed(&interrupt, || {
            interrupt.raise();
            assert!(!is_raised());
            assert_eq!(look_by_ns(5, u64::MAX), u64::MAX);
            killable(|| {
                assert!(!is_raised(), "a signal is none");
                assert_eq!(look_by_ns(5, u64::MAX), 5 + LOOK_NS);
                interrupt.kill(interrupt.call());
                interrupt.raise();
                assert!(is_raised() && is_killed() && is_due(5, 5));
                uninterruptible(|| killable(|| assert!(!is_raised())));
            });
            assert!(!is_raised(), "what follows is carried out");
        });
        let former = interrupt.call();
        interrupt.clear();
        interrupt.kill(former);
        until_killed(&interrupt, || killable(|| assert!(!is_raised(), "another call was meant")));
        interrupt.raise();
        interruptible(&interrupt, || killable(|| assert!(!is_raised())));
    }

    #[test]
    fn a_flag_that_polls_ends_signals_and_kills_at_once_and_stays_set_for_its_call() {
        thread_local! {
            static IS_PENDING: Cell<bool> = const { Cell::new(false) };
        }
        // Like a signal, it is seen once.
        let interrupt = Arc::new(Interrupt::polling(|| IS_PENDING.take()));
        interruptible(&interrupt, || {
            assert!(!is_polled() && !is_due(5, u64::MAX));
            IS_PENDING.set(true);
            uninterruptible(|| assert!(!is_polled() && !is_raised()));
            assert!(IS_PENDING.get(), "what cannot be interrupted asks nothing");
            assert!(is_due(5, 5) && is_raised() && is_polled());
            killable(|| assert!(is_killed() && is_due(5, 5)));
        });
        interrupt.clear();
        interruptible(&interrupt, || assert!(!is_polled() && !is_raised()));
        let other = Arc::new(Interrupt::default());
        other.kill(other.call());
        interruptible(&other, || assert!(!is_polled(), "it polls nothing"));
    }
}
