//! Threads for work that waits for a disk, with a bound on what may be queued: where a service does what it took
//! [`Responder::defer`](crate::service::Responder::defer) for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Work, and the bytes it holds while it waits.
struct Job {
    bytes: usize,
    run: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Jobs queued and running, and places that wait for theirs.
    places: usize,
    bytes: usize,
    stopping: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue();
            let job = loop {
                if queue.stopping {
                    return;
                }
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None => queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            (job.run)();
            self.leave(job.bytes);
        }
    }

    fn leave(&self, bytes: usize) {
        let mut queue = self.queue();
        queue.bytes -= bytes;
        queue.places -= 1;
    }
}

/// Room for one job. Dropped without one, it is given back.
pub struct Place<'a> {
    shared: &'a Shared,
    bytes: usize,
    is_used: bool,
}

impl std::fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({} bytes)", self.bytes)
    }
}

impl Place<'_> {
    /// Queues the work.
    pub fn submit(mut self, run: impl FnOnce() + Send + 'static) {
        self.is_used = true;
        self.shared.queue().jobs.push_back(Job { bytes: self.bytes, run: Box::new(run) });
        self.shared.ready.notify_one();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.shared.leave(self.bytes);
        }
    }
}

/// A pool of threads. Dropping it lets running work finish and drops what is queued.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    jobs_max: usize,
    bytes_max: usize,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("jobs_max", &self.jobs_max).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `threads` threads. Errors: the system has no more threads to give.
    pub fn new(name: &str, threads: usize, jobs_max: usize, bytes_max: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared { queue: Mutex::default(), ready: Condvar::new() });
        let pool = Pool { shared, threads: Mutex::default(), jobs_max, bytes_max };
        for _ in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
            let thread = builder.spawn(move || shared.work())?;
            pool.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(pool)
    }

    /// A place for work that holds `bytes`; `None` when there is too much already. One job always fits.
    pub fn reserve(&self, bytes: usize) -> Option<Place<'_>> {
        let mut queue = self.shared.queue();
        let is_full = queue.places >= self.jobs_max || queue.bytes.saturating_add(bytes) > self.bytes_max;
        if queue.stopping || (is_full && queue.places > 0) {
            return None;
        }
        queue.bytes += bytes;
        queue.places += 1;
        Some(Place { shared: &self.shared, bytes, is_used: false })
    }

    /// Lets running work finish, drops what is queued, ends the threads.
    pub fn stop(&self) {
        let queued = {
            let mut queue = self.shared.queue();
            queue.stopping = true;
            std::mem::take(&mut queue.jobs)
        };
        drop(queued);
        self.shared.ready.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // The last owner of the service may be one of its own jobs.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Work here nests a few calls and keeps its buffers on the heap.
const STACK_BYTES: usize = 512 * 1024;

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn more_than_the_bound_is_refused_and_room_comes_back() {
        let pool = Pool::new("test", 1, 10, 100).expect("starts");
        let (release, gate) = mpsc::channel::<()>();
        let (done, finished) = mpsc::channel();
        pool.reserve(60).expect("is empty").submit(move || gate.recv().expect("is released"));
        assert!(pool.reserve(60).is_none());
        drop(pool.reserve(40).expect("fits, and is given back"));
        pool.reserve(40).expect("fits").submit(move || done.send(()).expect("is awaited"));
        release.send(()).expect("waits");
        finished.recv().expect("ran");
        while pool.reserve(100).is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn stopping_drops_what_is_queued() {
        let pool = Pool::new("test", 1, 10, 100).expect("starts");
        let (release, gate) = mpsc::channel::<()>();
        let (done, finished) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel::<()>();
        pool.reserve(1).expect("fits").submit(move || {
            begin.send(()).expect("is awaited");
            gate.recv().expect("is released");
        });
        begun.recv().expect("runs");
        pool.reserve(1).expect("fits").submit(move || done.send(()).expect("never runs"));
        std::thread::scope(|scope| {
            scope.spawn(|| pool.stop());
            assert!(finished.recv().is_err(), "the queued job is dropped before the running one ends");
            release.send(()).expect("waits");
        });
    }
}
