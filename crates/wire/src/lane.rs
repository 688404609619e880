//! A lane: the threads, the queue and the timeout for requests that wait for one file system. One that hangs holds up
//! its own lane and no other (a bulkhead), and after a while its requests fail at once (a circuit breaker).
//!
//! States, by how long nothing has ended although something is under way ([`Watchdog`]):
//!
//! - it answers: requests wait in the queue, within its bounds;
//! - slow ([`SLOW_DISK_MS`]): few requests stay in the queue, the others are told to come again, so that they do not
//!   hold up what comes behind them on their connections;
//! - hangs (`hangs_ms`) with no thread left, or none needed to find out whether it answers: what is queued,
//!   what has waited for so long and what comes is answered [`Code::Hung`].
//!
//! Threads that are stuck while others of the file system come back are replaced, up to a bound.

use crate::pool::{Pool, PoolState};
use crate::service::{Answer, Deferred, Fault, Responder};
use crate::watchdog::Watchdog;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_model::limits::SLOW_DISK_MS;

/// Requests that may wait for a slow file system: enough to keep its threads busy once it goes on, and less than half
/// of those that a connection may have unanswered.
const QUEUED_WHEN_SLOW_MAX: usize = 16;

const NS_A_MS: u64 = 1_000_000;

/// How a lane behaves.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// Threads while the file system answers.
    pub threads: usize,
    /// More of them in the place of those that are stuck.
    pub threads_more: usize,
    /// Requests that may wait for a thread.
    pub jobs_max: usize,
    /// Bytes that these may hold.
    pub bytes_max: usize,
    /// From when on requests fail at once.
    pub hangs_ms: u32,
    /// A probe finds out whether a silent file system answers: none of the threads that are left has to.
    pub is_probed: bool,
}

/// A request that is carried out or queued. The thread that takes the deferred answer out of it answers.
struct Held {
    deferred: Mutex<Option<Deferred>>,
    deadline_ns: u64,
    /// Since when it runs; all ones: it waits.
    since_ns: AtomicU64,
}

impl Held {
    fn answer(&self, answer: Answer) {
        let deferred = self.deferred.lock().take();
        if let Some(deferred) = deferred {
            deferred.finish(answer);
        }
    }
}

#[derive(Default)]
struct Table {
    next: u64,
    held: BTreeMap<u64, Arc<Held>>,
}

/// Requests for one file system.
#[derive(Debug)]
pub struct Lane {
    options: LaneOptions,
    watchdog: Arc<Watchdog>,
    clock: Arc<dyn Clock>,
    pool: Pool,
    table: Arc<Mutex<Table>>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} held", self.held.len())
    }
}

impl Lane {
    /// A lane with threads called `name` for the file system that `watchdog` watches.
    pub fn new(name: &str, options: LaneOptions, watchdog: Arc<Watchdog>, clock: Arc<dyn Clock>) -> Lane {
        let LaneOptions { threads, jobs_max, bytes_max, .. } = options;
        let pool = Pool::new(name, threads, jobs_max, bytes_max, Arc::clone(&clock));
        Lane { options, watchdog, clock, pool, table: Arc::default() }
    }

    /// What its threads are at.
    pub fn state(&self) -> PoolState {
        self.pool.state()
    }

    fn hung(&self) -> Fault {
        let why = self.watchdog.trouble().unwrap_or_else(|| "its file system hangs".to_owned());
        let place = self.watchdog.place();
        Fault::new(Code::Hung, format!("{place}: {why}; see what lies beneath it (mount, dmesg)"))
    }

    fn overloaded(&self) -> Fault {
        let place = self.watchdog.place();
        let why =
            self.watchdog.trouble().map(|why| format!(": {why}; see what lies beneath it (mount, dmesg)"));
        let why = why.unwrap_or_default();
        Fault::new(Code::Overloaded, format!("{place}: too many requests wait for its file system{why}"))
    }

    fn hangs(&self, state: PoolState) -> bool {
        let is_asked = state.is_full || self.options.is_probed;
        is_asked && self.watchdog.is_silent(self.options.hangs_ms)
    }

    /// Refuses what would wait in vain, or hold up others.
    fn check(&self) -> Result<(), Fault> {
        if !self.watchdog.is_silent(SLOW_DISK_MS) {
            return Ok(());
        }
        let state = self.pool.state();
        if self.hangs(state) {
            return Err(self.hung());
        }
        match state.queued < QUEUED_WHEN_SLOW_MAX {
            true => Ok(()),
            false => Err(self.overloaded()),
        }
    }

    /// Has `work` done where it may wait, and its answer delivered, unless its requester has given up by then. `what`
    /// is told of a file system that hangs. Errors: there is too much to do already; the file system hangs.
    pub fn defer(
        &self,
        what: &'static str,
        bytes: usize,
        deadline_ns: u64,
        responder: &mut dyn Responder,
        work: impl FnOnce() -> Answer + Send + 'static,
    ) -> Result<(), Fault> {
        self.check()?;
        let place = self.pool.reserve(bytes).ok_or_else(|| self.overloaded())?;
        let deferred = Mutex::new(Some(responder.defer()));
        let held = Arc::new(Held { deferred, deadline_ns, since_ns: AtomicU64::new(u64::MAX) });
        let number = {
            let mut table = self.table.lock();
            table.next += 1;
            let number = table.next;
            table.held.insert(number, Arc::clone(&held));
            number
        };
        let entry = Entry { table: Arc::clone(&self.table), number };
        let (watchdog, clock) = (Arc::clone(&self.watchdog), Arc::clone(&self.clock));
        place.submit_or(move |leave| {
            let entry = entry;
            let now_ns = clock.now_ns();
            held.since_ns.store(now_ns, Ordering::Relaxed);
            let answer = match leave {
                Err(fault) => Err(fault),
                Ok(()) if now_ns > deadline_ns => {
                    let why = format!("{}: waited too long for a thread", watchdog.place());
                    Err(Fault::new(Code::Timeout, why))
                }
                Ok(()) => {
                    let under_way = watchdog.begin(what);
                    let answer = work();
                    drop(under_way);
                    answer
                }
            };
            // Before the answer: its receiver may drop the service's last owner.
            drop((entry, watchdog, clock));
            held.answer(answer);
        });
        Ok(())
    }

    /// Has a part of a request done where it may wait. `work` is told to leave it where the file system hangs. Errors:
    /// there is too much to do already; the file system hangs.
    pub fn submit(
        &self,
        what: &'static str,
        work: impl FnOnce(Result<(), Fault>) + Send + 'static,
    ) -> Result<(), Fault> {
        self.check()?;
        let place = self.pool.reserve(0).ok_or_else(|| self.overloaded())?;
        let watchdog = Arc::clone(&self.watchdog);
        place.submit_or(move |leave| {
            let under_way = leave.is_ok().then(|| watchdog.begin(what));
            work(leave);
            drop(under_way);
        });
        Ok(())
    }

    /// Has `work` done that has no waiter. False when the queue is full: `work` is dropped.
    pub fn run(&self, what: &'static str, work: impl FnOnce() + Send + 'static) -> bool {
        let Some(place) = self.pool.reserve(0) else { return false };
        let watchdog = Arc::clone(&self.watchdog);
        place.submit(move || {
            let under_way = watchdog.begin(what);
            work();
            drop(under_way);
        });
        true
    }

    /// Looks whether the file system answers, and acts as the states above say; to be called about once a second. It
    /// never waits.
    pub fn tick(&self) {
        if self.hangs(self.pool.state()) {
            let hung = self.hung();
            self.pool.refuse(0, &hung);
            self.answer_stuck(&hung);
        } else if self.watchdog.is_silent(SLOW_DISK_MS) {
            self.pool.refuse(QUEUED_WHEN_SLOW_MAX, &self.overloaded());
        } else {
            // Something comes back: a thread more is of use.
            let stuck_ns = u64::from(self.options.hangs_ms) * NS_A_MS;
            self.pool.replace_stuck(stuck_ns, self.options.threads_more);
        }
        self.answer_late();
    }

    fn held(&self, is_wanted: impl Fn(&Held) -> bool) -> Vec<Arc<Held>> {
        self.table.lock().held.values().filter(|held| is_wanted(held)).cloned().collect()
    }

    /// Answers requests that have been carried out for as long as it takes to say that the file system hangs. What
    /// becomes of them is unknown.
    fn answer_stuck(&self, hung: &Fault) {
        let (now_ns, hangs_ns) = (self.clock.now_ns(), u64::from(self.options.hangs_ms) * NS_A_MS);
        let is_stuck = |held: &Held| now_ns.saturating_sub(held.since_ns.load(Ordering::Relaxed)) >= hangs_ns;
        self.held(is_stuck).iter().for_each(|held| held.answer(Err(hung.clone())));
    }

    /// Answers requests whose requesters have given up: their places on the connection are free for others.
    fn answer_late(&self) {
        let now_ns = self.clock.now_ns();
        for held in self.held(|held| now_ns > held.deadline_ns) {
            let why = format!("{}: no answer within the deadline", self.watchdog.place());
            held.answer(Err(Fault::new(Code::Timeout, why)));
        }
    }

    /// Drops what is queued and lets running work finish for as long as `timeout`. False where some of it is stuck.
    pub fn stop(&self, timeout: Duration) -> bool {
        self.pool.stop(timeout)
    }
}

/// A request's place in the table.
struct Entry {
    table: Arc<Mutex<Table>>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let removed = self.table.lock().held.remove(&self.number);
        // Without the lock: where nothing has answered it, this does.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use vazao_meter::ManualClock;
    use vazao_model::limits::AREA_HANGS_MS;

    const OPTIONS: LaneOptions = LaneOptions {
        threads: 2,
        threads_more: 1,
        jobs_max: 100,
        bytes_max: 1000,
        hangs_ms: AREA_HANGS_MS,
        is_probed: false,
    };

    /// Keeps answers.
    struct Requester(Sender<Answer>);

    impl Responder for Requester {
        fn reply(&mut self, _message: &[u8]) {}
        fn try_reply_with(
            &mut self,
            _message: &[u8],
            _length: usize,
            _fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
        ) -> bool {
            false
        }
        fn fail(&mut self, _fault: &Fault) {}
        fn defer(&mut self) -> Deferred {
            let sender = self.0.clone();
            Deferred::new(move |answer| drop(sender.send(answer)))
        }
    }

    struct World {
        clock: Arc<ManualClock>,
        watchdog: Arc<Watchdog>,
        lane: Lane,
        answers: Receiver<Answer>,
        requester: Requester,
        /// Dropped, it lets everything go that hangs.
        gate: Option<Sender<()>>,
        waiting: Arc<Mutex<Receiver<()>>>,
    }

    impl World {
        fn new() -> World {
            World::with(OPTIONS)
        }

        fn with(options: LaneOptions) -> World {
            let clock = Arc::new(ManualClock::default());
            let watchdog = Arc::new(Watchdog::new("area a of node n1", Arc::clone(&clock) as _));
            let lane = Lane::new("test", options, Arc::clone(&watchdog), Arc::clone(&clock) as _);
            let (sender, answers) = channel();
            let (gate, waiting) = channel();
            let waiting = Arc::new(Mutex::new(waiting));
            let requester = Requester(sender);
            World { clock, watchdog, lane, answers, requester, gate: Some(gate), waiting }
        }

        /// A request whose operation hangs.
        fn ask(&mut self) -> Result<(), Fault> {
            let waiting = Arc::clone(&self.waiting);
            let deadline_ns = self.clock.now_ns() + 30_000 * NS_A_MS;
            let hang = move || {
                let _ = waiting.lock().recv();
                Ok(Default::default())
            };
            self.lane.defer("a read", 1, deadline_ns, &mut self.requester, hang)
        }

        /// Fills both threads with requests that hang.
        fn hang(&mut self) {
            for count in 1..=2 {
                self.ask().expect("a thread is free");
                while self.watchdog.silence().is_none_or(|silence| silence.under_way < count) {
                    std::thread::yield_now();
                }
            }
        }

        fn pass(&self, milliseconds: u32) {
            self.clock.advance(Duration::from_millis(u64::from(milliseconds)));
            self.lane.tick();
        }

        fn code(&self) -> Code {
            self.answers.recv().expect("an answer").expect_err("a fault").code
        }
    }

    /// Requests for a hung area once filled the queue of all areas, and each waited until its requester gave up.
    #[test]
    fn requests_for_a_file_system_that_hangs_fail_at_once_after_a_while_and_work_when_it_goes_on() {
        let mut world = World::new();
        world.hang();
        (0..40).for_each(|_| world.ask().expect("waits"));
        world.pass(SLOW_DISK_MS);
        (QUEUED_WHEN_SLOW_MAX..40).for_each(|_| assert_eq!(world.code(), Code::Overloaded));
        assert_eq!(world.ask().expect_err("enough wait").code, Code::Overloaded);
        world.pass(AREA_HANGS_MS - SLOW_DISK_MS);
        (0..QUEUED_WHEN_SLOW_MAX + 2).for_each(|_| assert_eq!(world.code(), Code::Hung));
        let fault = world.ask().expect_err("hangs");
        assert_eq!(fault.code, Code::Hung);
        assert!(fault.detail.contains("area a of node n1") && fault.detail.contains("15 s"), "{fault}");
        assert!(world.answers.try_recv().is_err(), "each is answered once");
        drop(world.gate.take());
        while world.lane.state().running > 0 {
            std::thread::yield_now();
        }
        world.pass(1);
        world.ask().expect("taken again");
        assert!(world.answers.recv().expect("an answer").is_ok());
    }

    #[test]
    fn where_others_look_whether_it_answers_requests_fail_though_threads_are_left() {
        let mut world = World::with(LaneOptions { is_probed: true, ..OPTIONS });
        world.ask().expect("a thread is free");
        while world.watchdog.silence().is_none() {
            std::thread::yield_now();
        }
        world.pass(AREA_HANGS_MS - 1);
        assert!(world.answers.try_recv().is_err());
        world.pass(1);
        assert_eq!(world.code(), Code::Hung);
        assert_eq!(world.ask().expect_err("hangs").code, Code::Hung);
    }

    #[test]
    fn a_thread_that_is_stuck_while_others_come_back_is_replaced() {
        let mut world = World::new();
        world.hang();
        world.pass(AREA_HANGS_MS);
        assert_eq!(world.ask().expect_err("hangs").code, Code::Hung);
        // A sign of life.
        drop(world.watchdog.begin("a look"));
        world.pass(1);
        world.ask().expect("waits for a new thread");
        while world.watchdog.silence().is_none_or(|silence| silence.under_way < 3) {
            std::thread::yield_now();
        }
        world.pass(AREA_HANGS_MS);
        assert_eq!(world.ask().expect_err("no more threads than that").code, Code::Hung);
    }

    #[test]
    fn a_request_whose_requester_has_given_up_is_answered_though_it_is_stuck() {
        let mut world = World::new();
        world.hang();
        for _ in 0..4 {
            world.pass(10_000);
            drop(world.watchdog.begin("others come back"));
        }
        assert_eq!([world.code(), world.code()], [Code::Timeout; 2]);
    }

    #[test]
    fn a_lane_that_stops_answers_what_it_drops_and_does_not_wait_for_what_is_stuck() {
        let mut world = World::new();
        world.hang();
        world.ask().expect("waits");
        assert!(!world.lane.stop(Duration::from_millis(1)));
        assert_eq!(world.code(), Code::Unavailable);
    }
}
