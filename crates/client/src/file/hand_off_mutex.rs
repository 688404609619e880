//! A mutex that one thread locks and another may unlock, for asynchronous calls.

use parking_lot::{Condvar, Mutex};

/// One at a time.
#[derive(Debug, Default)]
pub(crate) struct HandOffMutex {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// Waiters. Without any, the wake-up would be a system call for nothing.
    waiting: usize,
}

/// Guard: unlocks when dropped.
#[derive(Debug)]
pub(crate) struct Held<'a>(&'a HandOffMutex);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl HandOffMutex {
    /// Locks; blocks without a timeout, as the holder works under a deadline of its own.
    pub(crate) fn take(&self) -> Held<'_> {
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.is_taken {
            self.freed.wait(&mut state);
        }
        state.waiting -= 1;
        state.is_taken = true;
        Held(self)
    }

    /// Locks if it is free; [`HandOffMutex::end`] unlocks.
    pub(crate) fn try_take(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_taken, true)
    }

    /// Unlocks, whichever thread has locked.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_taken = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_taken_by_one_thread_is_ended_by_another_and_goes_to_a_waiter() {
        let turn = HandOffMutex::default();
        assert!(turn.try_take());
        assert!(!turn.try_take());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(turn.take()));
            while turn.state.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(!waiting.is_finished());
            scope.spawn(|| turn.end());
            waiting.join().expect("no panic");
        });
        assert!(turn.try_take(), "it is free again");
    }
}
