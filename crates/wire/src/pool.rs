//! Threads for work that waits for a disk, with a bound on what may be queued: where a service does what it took
//! [`Responder::defer`](crate::service::Responder::defer) for.
//!
//! Threads begin when there is work for them and end when there has been none for a while. A thread that waits for a
//! disk cannot be woken: one that is stuck is replaced, up to a bound, and not waited for when the pool stops.

use crate::service::{Answer, Call, Fault, Responder};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;

/// Work here nests a few calls and keeps its buffers on the heap.
const STACK_BYTES: usize = 512 * 1024;

/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(30);

/// One step of waiting for threads to end.
const STEP: Duration = Duration::from_millis(20);

/// What is called with leave to run, or with the reason why it will not.
type Run = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// Work, and the bytes it holds while it waits.
struct Job {
    bytes: usize,
    run: Run,
    /// It hears why when it is taken out of the queue.
    can_be_refused: bool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Jobs queued and running, and places that wait for theirs.
    places: usize,
    bytes: usize,
    stopping: bool,
    /// Those that live.
    threads: Vec<ThreadId>,
    /// Threads begun and not ended.
    begun: usize,
    /// Of them, those that have not looked for a job yet.
    starting: usize,
    idle: usize,
    /// Threads that there may be at present.
    wanted: usize,
    next: u64,
    /// Jobs that run, by number: since when.
    running: BTreeMap<u64, u64>,
}

impl Queue {
    /// Takes jobs out, with their places.
    fn take(&mut self, mut is_taken: impl FnMut(&Job) -> bool) -> Vec<Job> {
        let (taken, kept): (Vec<Job>, Vec<Job>) = self.jobs.drain(..).partition(|job| is_taken(job));
        self.jobs.extend(kept);
        self.places -= taken.len();
        self.bytes -= taken.iter().map(|job| job.bytes).sum::<usize>();
        taken
    }

    /// The calling thread does nothing more, and counts no longer: from then on another one may begin.
    fn end_thread(&mut self) {
        let own = std::thread::current().id();
        if let Some(place) = self.threads.iter().position(|&thread| thread == own) {
            self.threads.swap_remove(place);
            self.begun -= 1;
        }
    }
}

struct Shared {
    name: String,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    ready: Condvar,
    ended: Condvar,
}

/// Counts a thread of the pool for as long as it lives, also where a job panics.
struct Alive<'a>(&'a Shared);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.queue().end_thread();
        self.0.ended.notify_all();
    }
}

/// Counts a job that runs.
struct Running<'a> {
    shared: &'a Shared,
    number: u64,
    bytes: usize,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.running.remove(&self.number);
        queue.bytes -= self.bytes;
        queue.places -= 1;
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    fn work(&self) {
        let _alive = Alive(self);
        {
            let mut queue = self.queue();
            queue.threads.push(std::thread::current().id());
            queue.starting -= 1;
        }
        while let Some((run, running)) = self.next() {
            run(Ok(()));
            drop(running);
        }
    }

    /// The next job; `None` when this thread is to end.
    fn next(&self) -> Option<(Run, Running<'_>)> {
        let mut queue = self.queue();
        loop {
            if queue.stopping || queue.begun > queue.wanted {
                queue.end_thread();
                // It may have been woken for a job, which is another one's now.
                self.ready.notify_one();
                return None;
            }
            if let Some(Job { bytes, run, .. }) = queue.jobs.pop_front() {
                let number = queue.next;
                queue.next += 1;
                queue.running.insert(number, self.clock.now_ns());
                return Some((run, Running { shared: self, number, bytes }));
            }
            queue.idle += 1;
            let waited = self.ready.wait_for(&mut queue, IDLE);
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                queue.end_thread();
                return None;
            }
        }
    }

    fn leave(&self, bytes: usize) {
        let mut queue = self.queue();
        queue.bytes -= bytes;
        queue.places -= 1;
    }

    /// Begins threads for what is queued, as far as there may be more. Without any thread nothing would ever run: then
    /// what is queued is dropped.
    fn begin_threads(self: &Arc<Shared>, mut queue: MutexGuard<'_, Queue>) {
        while queue.idle + queue.starting < queue.jobs.len() && queue.begun < queue.wanted && !queue.stopping
        {
            let shared = Arc::clone(self);
            let builder = std::thread::Builder::new().name(self.name.clone()).stack_size(STACK_BYTES);
            (queue.begun, queue.starting) = (queue.begun + 1, queue.starting + 1);
            if let Err(error) = builder.spawn(move || shared.work()) {
                (queue.begun, queue.starting) = (queue.begun - 1, queue.starting - 1);
                tracing::warn!(pool = self.name, %error, "no thread");
                let lost = if queue.begun == 0 { queue.take(|_| true) } else { Vec::new() };
                drop(queue);
                return drop(lost);
            }
        }
    }
}

/// Room for one job. Dropped without one, it is given back.
pub struct Place<'a> {
    shared: &'a Arc<Shared>,
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
    pub fn submit(self, run: impl FnOnce() + Send + 'static) {
        self.queue(Box::new(move |_| run()), false);
    }

    /// Queues work that is told when it is taken out of the queue again ([`Pool::refuse`]), or the pool stops.
    pub fn submit_or(self, run: impl FnOnce(Result<(), Fault>) + Send + 'static) {
        self.queue(Box::new(run), true);
    }

    fn queue(mut self, run: Run, can_be_refused: bool) {
        self.is_used = true;
        let mut queue = self.shared.queue();
        queue.jobs.push_back(Job { bytes: self.bytes, run, can_be_refused });
        if queue.idle > 0 {
            self.shared.ready.notify_one();
        }
        self.shared.begin_threads(queue);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.shared.leave(self.bytes);
        }
    }
}

/// What a pool is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolState {
    /// Jobs that wait for a thread.
    pub queued: usize,
    /// Jobs that run.
    pub running: usize,
    /// There is no thread for a further one, and there may be none more.
    pub is_full: bool,
}

/// A pool of threads. Dropping it drops what is queued and waits for nothing; [`Pool::stop`] does.
pub struct Pool {
    shared: Arc<Shared>,
    threads_max: usize,
    jobs_max: usize,
    bytes_max: usize,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of up to `threads_max` threads of this name, which begin when they are needed.
    pub fn new(
        name: &str,
        threads_max: usize,
        jobs_max: usize,
        bytes_max: usize,
        clock: Arc<dyn Clock>,
    ) -> Pool {
        let queue = Mutex::new(Queue { wanted: threads_max, ..Queue::default() });
        let (ready, ended) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { name: name.to_owned(), clock, queue, ready, ended });
        Pool { shared, threads_max, jobs_max, bytes_max }
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

    /// Has `work`, which holds `bytes` while it waits, done by a thread, and its answer delivered, unless its requester
    /// has given up by then. Errors: `Overloaded`, there is too much to do already.
    pub fn defer(
        &self,
        call: Call,
        bytes: usize,
        responder: &mut dyn Responder,
        work: impl FnOnce() -> Answer + Send + 'static,
    ) -> Result<(), Fault> {
        let too_many =
            || Fault::new(Code::Overloaded, format!("{}: too many requests wait", self.shared.name));
        let place = self.reserve(bytes).ok_or_else(too_many)?;
        let (deferred, clock) = (responder.defer(), Arc::clone(&self.shared.clock));
        place.submit_or(move |leave| {
            let is_late = clock.now_ns() > call.deadline_ns;
            let too_late =
                || Fault::new(Code::Timeout, format!("{}: waited too long for a thread", call.method.name()));
            // `work` is gone before the answer leaves: it may be the last owner of the service.
            let answer = match leave.and_then(|()| if is_late { Err(too_late()) } else { Ok(()) }) {
                Ok(()) => work(),
                Err(fault) => {
                    drop(work);
                    Err(fault)
                }
            };
            deferred.finish(answer);
        });
        Ok(())
    }

    /// What it is at.
    pub fn state(&self) -> PoolState {
        let queue = self.shared.queue();
        let (queued, running) = (queue.jobs.len(), queue.running.len());
        PoolState { queued, running, is_full: running >= queue.wanted }
    }

    /// Takes all but the first `keep` of those jobs out of the queue that can be told why, and tells them.
    pub fn refuse(&self, keep: usize, why: &Fault) {
        let mut left = keep;
        let refused = self.shared.queue().take(|job| {
            let is_refused = job.can_be_refused && left == 0;
            left -= usize::from(job.can_be_refused && !is_refused);
            is_refused
        });
        refused.into_iter().for_each(|job| (job.run)(Err(why.clone())));
    }

    /// Has a thread replaced whose job has run for `stuck_ns`, at most `more_max` of them. One that comes back ends
    /// when there are too many.
    pub fn replace_stuck(&self, stuck_ns: u64, more_max: usize) {
        let now_ns = self.shared.clock.now_ns();
        let mut queue = self.shared.queue();
        let is_stuck = |since_ns: &&u64| now_ns.saturating_sub(**since_ns) >= stuck_ns;
        let stuck = queue.running.values().filter(is_stuck).count();
        queue.wanted = self.threads_max + stuck.min(more_max);
        self.shared.begin_threads(queue);
    }

    /// Drops what is queued, lets running work finish for as long as `timeout`, ends the threads. False where some
    /// are stuck: they are left to themselves.
    pub fn stop(&self, timeout: Duration) -> bool {
        let own = std::thread::current().id();
        let mut queue = self.shared.queue();
        queue.stopping = true;
        let queued = queue.take(|_| true);
        drop(queue);
        let stopping = Fault::new(Code::Unavailable, "the server is stopping");
        let (told, dropped): (Vec<Job>, Vec<Job>) = queued.into_iter().partition(|job| job.can_be_refused);
        drop(dropped);
        told.into_iter().for_each(|job| (job.run)(Err(stopping.clone())));
        self.shared.ready.notify_all();
        let mut queue = self.shared.queue();
        // The last owner of a service may be one of its own jobs.
        let own = usize::from(queue.threads.contains(&own));
        let mut left = timeout;
        while queue.begun > own {
            if left.is_zero() {
                return false;
            }
            if self.shared.ended.wait_for(&mut queue, STEP).timed_out() {
                left = left.saturating_sub(STEP);
            }
        }
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use vazao_meter::{ManualClock, SystemClock};

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn pool(threads: usize) -> Pool {
        Pool::new("test", threads, 10, 100, Arc::new(SystemClock))
    }

    /// A job that says that it has begun and waits until it is let go.
    fn stuck(pool: &Pool) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (release, gate) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        pool.reserve(1).expect("fits").submit(move || {
            begin.send(()).expect("is awaited");
            let _ = gate.recv();
        });
        (begun, release)
    }

    #[test]
    fn more_than_the_bound_is_refused_and_room_comes_back() {
        let pool = pool(1);
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
        let pool = pool(1);
        let (begun, release) = stuck(&pool);
        let (done, finished) = mpsc::channel::<()>();
        begun.recv().expect("runs");
        pool.reserve(1).expect("fits").submit(move || done.send(()).expect("never runs"));
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| pool.stop(TIMEOUT));
            assert!(finished.recv().is_err(), "the queued job is dropped before the running one ends");
            release.send(()).expect("waits");
            assert!(stopping.join().expect("ends"));
        });
    }

    /// A daemon whose disk hung could not be stopped: it waited for a thread that nothing could wake.
    #[test]
    fn stopping_does_not_wait_for_a_thread_that_is_stuck() {
        let pool = pool(2);
        let (begun, release) = stuck(&pool);
        begun.recv().expect("runs");
        assert!(!pool.stop(STEP));
        drop(release);
        assert!(pool.stop(TIMEOUT));
    }

    #[test]
    fn threads_that_are_stuck_are_replaced_up_to_a_bound_and_end_when_they_come_back() {
        let clock = Arc::new(ManualClock::default());
        let pool = Pool::new("test", 1, 10, 100, Arc::clone(&clock) as _);
        let (first, let_first_go) = stuck(&pool);
        first.recv().expect("runs");
        let (second, let_second_go) = stuck(&pool);
        pool.replace_stuck(1_000, 1);
        assert_eq!(pool.state(), PoolState { queued: 1, running: 1, is_full: true });
        clock.advance(Duration::from_nanos(1_000));
        pool.replace_stuck(1_000, 1);
        second.recv().expect("has a thread of its own");
        let (third, let_third_go) = stuck(&pool);
        clock.advance(Duration::from_nanos(1_000));
        pool.replace_stuck(1_000, 1);
        assert_eq!(pool.state().queued, 1, "one more thread, and no second one");
        let_first_go.send(()).expect("waits");
        third.recv().expect("runs");
        [let_second_go, let_third_go].into_iter().for_each(|go| go.send(()).expect("waits"));
        while pool.state().running > 0 {
            std::thread::yield_now();
        }
        pool.replace_stuck(1_000, 1);
        let (fourth, _let_fourth_go) = stuck(&pool);
        fourth.recv().expect("runs");
        assert!(pool.state().is_full, "as many threads as in the beginning");
    }

    #[test]
    fn what_is_refused_hears_why_and_its_room_is_free() {
        let pool = pool(1);
        let (begun, _release) = stuck(&pool);
        begun.recv().expect("runs");
        let (say, said) = mpsc::channel();
        for number in 0..3 {
            let say = say.clone();
            pool.reserve(30).expect("fits").submit_or(move |leave| {
                if let Err(fault) = leave {
                    // The one that is kept ends, too, without a receiver.
                    let _ = say.send((number, fault.code));
                }
            });
        }
        assert!(pool.reserve(30).is_none());
        pool.refuse(1, &Code::Overloaded.into());
        pool.refuse(1, &Code::Overloaded.into());
        let mut refused: Vec<(i32, Code)> = [said.recv(), said.recv()].into_iter().flatten().collect();
        refused.sort_by_key(|&(number, _)| number);
        assert_eq!(refused, [(1, Code::Overloaded), (2, Code::Overloaded)]);
        assert!(pool.reserve(60).is_some());
    }

    #[test]
    fn a_job_that_panics_takes_no_place_with_it() {
        let pool = pool(1);
        for _ in 0..3 {
            pool.reserve(100).expect("fits").submit(|| std::panic::resume_unwind(Box::new("on purpose")));
            while pool.state() != PoolState::default() {
                std::thread::yield_now();
            }
        }
        assert!(pool.reserve(100).is_some());
    }
}
