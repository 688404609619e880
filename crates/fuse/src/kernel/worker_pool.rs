//! How many threads wait for the device at a time.
//!
//! The kernel wakes the thread that has waited longest. With ten waiting threads, one caller's requests go round over
//! cold threads and cores, and take half as long again. So only [`READERS_MAX`] threads read the device; the others are
//! parked until the last reader has received a request. There can then be many more threads than processors, and a
//! server that does not answer blocks only the requests that need it. A parked thread lends its buffers to the others.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};

/// One to take the next request, and one so that the first need not wake another for it.
const READERS_MAX: usize = 2;

/// The threads of a mount, as far as they wait. `T` is what a thread works with.
#[derive(Debug)]
pub(crate) struct WorkerPool<T> {
    reading: AtomicUsize,
    parked: Mutex<Parked<T>>,
    called: Condvar,
}

#[derive(Debug)]
struct Parked<T> {
    waiting: usize,
    tools: Vec<T>,
    /// How many of them may go.
    calls: usize,
    is_dismissed: bool,
}

impl<T> WorkerPool<T> {
    /// No waiter yet.
    pub(crate) fn new() -> WorkerPool<T> {
        let parked = Parked { waiting: 0, tools: Vec::new(), calls: 0, is_dismissed: false };
        WorkerPool { reading: AtomicUsize::new(0), parked: Mutex::new(parked), called: Condvar::new() }
    }

    /// Returns when the calling thread shall read the device; false when there is nothing left to read. Its `tools` may
    /// come back as another thread's, or not at all.
    pub(crate) fn take_turn(&self, tools: &mut Option<T>) -> bool {
        loop {
            if self.reading.fetch_add(1, Ordering::SeqCst) < READERS_MAX {
                return true;
            }
            self.reading.fetch_sub(1, Ordering::SeqCst);
            if !self.park(tools) {
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
        self.parked.lock().is_dismissed = true;
        self.called.notify_all();
    }

    fn call_one(&self) {
        let mut parked = self.parked.lock();
        if parked.waiting > parked.calls {
            parked.calls += 1;
            // Woken while the lock is held it would only wait for that.
            drop(parked);
            self.called.notify_one();
        }
    }

    fn park(&self, tools: &mut Option<T>) -> bool {
        let mut parked = self.parked.lock();
        // Race: the last reader may have left, and found no parked thread to wake, just before this thread came here.
        if self.reading.load(Ordering::SeqCst) == 0 {
            return true;
        }
        parked.waiting += 1;
        parked.tools.extend(tools.take());
        while parked.calls == 0 && !parked.is_dismissed {
            self.called.wait(&mut parked);
        }
        parked.waiting -= 1;
        parked.calls = parked.calls.saturating_sub(1);
        // The last ones put down are the ones still warm.
        *tools = parked.tools.pop();
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
        let worker_pool = WorkerPool::<()>::new();
        let (send, receive) = mpsc::channel::<usize>();
        let requests = Mutex::new(receive);
        let (done, finished) = mpsc::channel();
        let gate = std::sync::Barrier::new(THREADS - 1);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let (worker_pool, requests, gate, done) = (&worker_pool, &requests, &gate, done.clone());
                scope.spawn(move || {
                    while worker_pool.take_turn(&mut None) {
                        let request = requests.lock().recv();
                        worker_pool.leave();
                        let Ok(request) = request else { break };
                        // The first ones all wait for each other: the crew must send one thread after the other.
                        if request < THREADS - 1 {
                            gate.wait();
                        }
                        done.send(request).expect("the receiver counts");
                    }
                    worker_pool.dismiss();
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
        let worker_pool = WorkerPool::<()>::new();
        assert!(worker_pool.take_turn(&mut None) && worker_pool.take_turn(&mut None));
        std::thread::scope(|scope| {
            let third = scope.spawn(|| worker_pool.take_turn(&mut None));
            while worker_pool.parked.lock().waiting == 0 {
                std::thread::yield_now();
            }
            worker_pool.leave();
            assert!(!third.is_finished(), "one is still waiting for the device");
            worker_pool.leave();
            assert!(third.join().expect("no panic"));
        });
    }

    #[test]
    fn a_called_thread_works_with_what_the_last_parked_one_put_down() {
        let worker_pool = WorkerPool::new();
        let mut tools = [Some("first"), Some("second")];
        tools.iter_mut().for_each(|mine| assert!(worker_pool.take_turn(mine)));
        assert_eq!(tools, [Some("first"), Some("second")]);
        std::thread::scope(|scope| {
            let third = scope.spawn(|| {
                let mut mine = Some("third");
                (worker_pool.take_turn(&mut mine), mine)
            });
            while worker_pool.parked.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(worker_pool.parked.lock().tools, ["third"]);
            worker_pool.leave();
            worker_pool.leave();
            assert_eq!(third.join().expect("no panic"), (true, Some("third")));
        });
    }
}
