//! How many threads wait for the device at a time.
//!
//! The kernel wakes the thread that has waited longest. With ten of them waiting, one caller's requests go round over cold threads
//! and cores, and take half as long again; so only [`READERS_MAX`] wait there, the rest is parked until the last waiting one has
//! been given a request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// One to take the next request, and one so that the first need not wake another for it.
const READERS_MAX: usize = 2;

/// The threads of a mount, as far as they wait.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    reading: AtomicUsize,
    parked: Mutex<Parked>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Parked {
    waiting: usize,
    /// How many of them may go.
    calls: usize,
    is_dismissed: bool,
}

impl Crew {
    /// Returns when the calling thread shall read the device; false when there is nothing left to read.
    pub(crate) fn take_turn(&self) -> bool {
        loop {
            if self.reading.fetch_add(1, Ordering::SeqCst) < READERS_MAX {
                return true;
            }
            self.reading.fetch_sub(1, Ordering::SeqCst);
            if !self.park() {
                return false;
            }
        }
    }

    /// The calling thread has a request, and no longer waits for one.
    pub(crate) fn leave(&self) {
        if self.reading.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.call_one();
        }
    }

    /// No more requests will come.
    pub(crate) fn dismiss(&self) {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).is_dismissed = true;
        self.called.notify_all();
    }

    fn call_one(&self) {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        if parked.waiting > parked.calls {
            parked.calls += 1;
            self.called.notify_one();
        }
    }

    fn park(&self) -> bool {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        // The last reader may have left, and found nobody to call, just before this thread came here.
        if self.reading.load(Ordering::SeqCst) == 0 {
            return true;
        }
        parked.waiting += 1;
        while parked.calls == 0 && !parked.is_dismissed {
            parked = self.called.wait(parked).unwrap_or_else(PoisonError::into_inner);
        }
        parked.waiting -= 1;
        parked.calls = parked.calls.saturating_sub(1);
        !parked.is_dismissed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn every_request_is_taken_while_all_but_one_thread_are_held_up() {
        const THREADS: usize = 8;
        let crew = Crew::default();
        let (send, receive) = mpsc::channel::<usize>();
        let requests = Mutex::new(receive);
        let (done, finished) = mpsc::channel();
        let gate = std::sync::Barrier::new(THREADS - 1);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let (crew, requests, gate, done) = (&crew, &requests, &gate, done.clone());
                scope.spawn(move || {
                    while crew.take_turn() {
                        let request = requests.lock().expect("not poisoned").recv();
                        crew.leave();
                        let Ok(request) = request else { break };
                        // The first ones all wait for each other: the crew must send one thread after the other.
                        if request < THREADS - 1 {
                            gate.wait();
                        }
                        done.send(request).expect("somebody counts");
                    }
                    crew.dismiss();
                });
            }
            let all: Vec<usize> = (0..1000).collect();
            all.iter().for_each(|&request| send.send(request).expect("threads listen"));
            drop(send);
            let mut seen: Vec<usize> = finished.iter().take(all.len()).collect();
            seen.sort_unstable();
            assert_eq!(seen, all);
        });
    }

    #[test]
    fn no_more_than_the_limit_wait_at_once() {
        let crew = Crew::default();
        assert!(crew.take_turn() && crew.take_turn());
        std::thread::scope(|scope| {
            let third = scope.spawn(|| crew.take_turn());
            while crew.parked.lock().expect("not poisoned").waiting == 0 {
                std::thread::yield_now();
            }
            crew.leave();
            assert!(!third.is_finished(), "one is still waiting for the device");
            crew.leave();
            assert!(third.join().expect("no panic"));
        });
    }
}
