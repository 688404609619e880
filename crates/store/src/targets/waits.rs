//! Waiting for the disk of a target, so that a disk that hangs (it neither answers nor fails) blocks nothing else.
//!
//! - Requests that may block have threads of the target ([`Lane`]). They fail at once when the disk hangs.
//! - Background work has a thread of its own, and its outcome is waited for with a timeout.
//! - Event loops use the page cache themselves ([`Quick`]), which takes less time than to wake another thread. A loop
//!   that is stuck is taken over (`vazao_wire::tcp`), and from then on the target's requests go to its threads.
//! - A thread of its own probes a silent disk: a slow one answers while it syncs for half a minute.
//!
//! It knows nothing of what is done on the disk.

use crate::options::Options;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_model::limits::{SLOW_DISK_MS, TARGET_HANGS_MS};
use vazao_wire::lane::{Lane, LaneOptions};
use vazao_wire::pool::Pool;
use vazao_wire::service::{Fault, Responder};
use vazao_wire::watchdog::Watchdog;

/// Threads for background work: the periodic work never has more than one of them, so that the other one is free for
/// work with a waiter.
const BACKGROUND_THREADS: usize = 2;

/// Background work that may be queued.
const BACKGROUND_MAX: usize = 4;

/// Timeout of work with a waiter, as the record of a new incarnation, which takes milliseconds.
const IN_TIME: Duration = Duration::from_secs(2);

/// After an event loop was stuck all of them leave the disk to the target's own threads for this long.
const AVOIDED_NS: u64 = 5_000_000_000;

/// Uses of the page cache by event loops: reads, or writes. Counting costs two additions.
#[derive(Debug, Default)]
pub(crate) struct Quick {
    /// Those under way in the lower half, the number of those that have ended in the upper one.
    uses: AtomicU64,
    is_avoided: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    uses: u64,
    /// What the watchdog calls the use that is stuck.
    stuck: Option<u64>,
    avoided_until_ns: u64,
}

const BEGUN: u64 = 1;
const ENDED: u64 = (1 << 32) - 1;
const UNDER_WAY: u64 = u32::MAX as u64;

impl Quick {
    /// Runs `work` in an event loop; `None` while event loops must not use the disk.
    pub(crate) fn run<T>(
        &self,
        responder: &mut dyn Responder,
        work: impl FnOnce(&mut dyn Responder) -> T,
    ) -> Option<T> {
        if self.is_avoided.load(Ordering::Relaxed) {
            return None;
        }
        self.uses.fetch_add(BEGUN, Ordering::Relaxed);
        responder.enter_disk();
        let done = work(responder);
        responder.leave_disk();
        self.uses.fetch_add(ENDED, Ordering::Relaxed);
        Some(done)
    }

    /// Looks whether any of them has ended since the last look.
    fn look(&self, what: &'static str, watchdog: &Watchdog, now_ns: u64) {
        let uses = self.uses.load(Ordering::Relaxed);
        let mut seen = self.seen.lock();
        let is_stuck = uses & UNDER_WAY > 0 && seen.uses & UNDER_WAY > 0 && uses >> 32 == seen.uses >> 32;
        seen.uses = uses;
        match (is_stuck, seen.stuck) {
            (true, None) => seen.stuck = Some(watchdog.note(what)),
            (false, Some(number)) => {
                watchdog.end(number, true);
                seen.stuck = None;
            }
            _ => {}
        }
        if is_stuck || watchdog.is_silent(TARGET_HANGS_MS) {
            seen.avoided_until_ns = now_ns.saturating_add(AVOIDED_NS);
        }
        self.is_avoided.store(now_ns < seen.avoided_until_ns, Ordering::Relaxed);
    }
}

/// The threads of a target.
#[derive(Debug)]
struct Lanes {
    requests: Lane,
    background: Pool,
}

/// The waiters for the disk of one target.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(crate) reads: Quick,
    pub(crate) writes: Quick,
    watchdog: Arc<Watchdog>,
    clock: Arc<dyn Clock>,
    /// `None`: everything happens in the caller's thread.
    lanes: Option<Lanes>,
    is_ticking: AtomicBool,
    is_probing: AtomicBool,
}

/// Clears a flag at its end, also where the work between panics.
struct Clears<'a>(&'a AtomicBool);

impl Drop for Clears<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Waits {
    /// For the target in the directory `label`.
    pub(crate) fn new(label: &str, options: &Options, clock: &Arc<dyn Clock>) -> Waits {
        let place = format!("target {label} of node {}", options.name);
        let watchdog = Arc::new(Watchdog::new(&place, Arc::clone(clock)));
        let lane = LaneOptions {
            threads: options.workers,
            threads_more: 2 * options.workers,
            jobs_max: options.queued_requests_max,
            bytes_max: options.queued_bytes_max,
            hangs_ms: TARGET_HANGS_MS,
            is_probed: true,
        };
        let lanes = (!options.inline).then(|| Lanes {
            requests: Lane::new("target", lane, Arc::clone(&watchdog), Arc::clone(clock)),
            background: Pool::new("background", BACKGROUND_THREADS, BACKGROUND_MAX, 0, Arc::clone(clock)),
        });
        let [is_ticking, is_probing] = [const { AtomicBool::new(false) }; 2];
        let (reads, writes, clock) = (Quick::default(), Quick::default(), Arc::clone(clock));
        Waits { reads, writes, watchdog, clock, lanes, is_ticking, is_probing }
    }

    /// The threads for requests; `None` where everything happens in the caller's.
    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lanes.as_ref().map(|lanes| &lanes.requests)
    }

    /// Requests that wait for the disk now, or for a thread that could.
    pub(crate) fn waiting(&self) -> usize {
        self.lane().map_or(0, |lane| lane.state().queued + lane.state().running)
    }

    /// What is wrong with the disk, for people; `None` when it answers.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.watchdog.trouble()
    }

    /// Why it counts as hanging: nothing has come back for so long that requests fail at once.
    pub(crate) fn hangs(&self) -> Option<String> {
        self.watchdog.is_silent(TARGET_HANGS_MS).then(|| self.trouble()).flatten()
    }

    /// How long nothing has come back from the disk although something is waited for.
    pub(crate) fn silent_ns(&self) -> u64 {
        self.watchdog.silence().map_or(0, |silence| silence.ns)
    }

    /// Refuses what would be done by a thread that is not the target's own, while the disk is slow at best.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match self.watchdog.is_silent(SLOW_DISK_MS) {
            false => Ok(()),
            true => Err(self.hung()),
        }
    }

    fn hung(&self) -> Fault {
        let why = self.trouble().unwrap_or_else(|| "its disk does not answer at present".to_owned());
        let place = self.watchdog.place();
        Fault::new(Code::Hung, format!("{place}: {why}; see what lies beneath it (mount, dmesg)"))
    }

    /// Looks for event loops that are stuck; to be called several times a second. It never blocks.
    pub(crate) fn look(&self) {
        let now_ns = self.clock.now_ns();
        self.reads.look("a cached read", &self.watchdog, now_ns);
        self.writes.look("a cached write", &self.watchdog, now_ns);
    }

    /// Looks after its threads; to be called about once a second. It never waits. `probe` is run by a thread of its own
    /// where the disk is silent, and must need an answer of the disk itself.
    pub(crate) fn look_after<T: Send + Sync + 'static>(
        &self,
        owner: &Arc<T>,
        waits: fn(&T) -> &Waits,
        probe: fn(&T),
    ) {
        self.watchdog.tell();
        let Some(lanes) = &self.lanes else { return };
        lanes.requests.tick();
        if !self.watchdog.is_silent(SLOW_DISK_MS) || self.is_probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let owner = Arc::clone(owner);
        let look = move || {
            let waits = waits(&owner);
            let _probing = Clears(&waits.is_probing);
            let _under_way = waits.watchdog.begin("a look whether it answers");
            probe(&owner);
        };
        if std::thread::Builder::new().name("probe".to_owned()).spawn(look).is_err() {
            self.is_probing.store(false, Ordering::Release);
        }
    }

    /// Has background work done, unless the last one is still under way.
    pub(crate) fn tick<T: Send + Sync + 'static>(
        &self,
        owner: &Arc<T>,
        waits: fn(&T) -> &Waits,
        work: impl FnOnce(&T) + Send + 'static,
    ) {
        let Some(lanes) = &self.lanes else { return work(owner) };
        if self.is_ticking.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(place) = lanes.background.reserve(0) else {
            return self.is_ticking.store(false, Ordering::Release);
        };
        let owner = Arc::clone(owner);
        place.submit(move || {
            let waits = waits(&owner);
            let _ticking = Clears(&waits.is_ticking);
            // Mostly there is nothing to be written, and the rest comes from the kernel's memory.
            let _under_way = waits.watchdog.begin_unsigned("background work");
            work(&owner);
        });
    }

    /// Has `work` done in the background and waits a little for its outcome. Errors: its own; `Hung`, when it may still
    /// be done later.
    pub(crate) fn in_time<T, R>(
        &self,
        owner: &Arc<T>,
        waits: fn(&T) -> &Waits,
        work: impl FnOnce(&T) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, Fault>
    where
        T: Send + Sync + 'static,
        R: Send + 'static,
    {
        let Some(lanes) = &self.lanes else { return work(owner) };
        let place = lanes.background.reserve(0).ok_or_else(|| self.hung())?;
        let (done, outcome) = channel();
        let owner = Arc::clone(owner);
        place.submit(move || {
            let worked = {
                let _under_way = waits(&owner).watchdog.begin("a record of the target");
                work(&owner)
            };
            drop(owner);
            // The waiter may have given up.
            let _ = done.send(worked);
        });
        outcome.recv_timeout(IN_TIME).unwrap_or_else(|_| Err(self.hung()))
    }

    /// Has an operation by a thread that is not the target's own counted.
    pub(crate) fn during<T>(&self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let _under_way = self.watchdog.begin(what);
        work()
    }

    /// Drops what is queued and waits for what runs, for as long as the disk takes.
    pub(crate) fn stop(&self) {
        if let Some(lanes) = &self.lanes {
            lanes.requests.stop(Duration::MAX);
            lanes.background.stop(Duration::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_meter::ManualClock;
    use vazao_wire::service::{Answer, Deferred};

    struct NoResponder;

    impl Responder for NoResponder {
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
            Deferred::new(|_: Answer| ())
        }
    }

    #[test]
    fn event_loops_avoid_a_disk_that_one_of_them_is_stuck_in_and_use_it_again_later() {
        let clock = Arc::new(ManualClock::default());
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let waits = Waits::new("/disk", &Options { inline: true, ..Options::default() }, &shared);
        let look = || {
            clock.advance(Duration::from_millis(100));
            waits.look();
        };
        for _ in 0..3 {
            assert_eq!(waits.writes.run(&mut NoResponder, |_| 1), Some(1));
            look();
        }
        let (go, gate) = channel::<()>();
        let (begin, begun) = channel();
        std::thread::scope(|scope| {
            let stuck = &waits.writes;
            scope.spawn(move || {
                stuck.run(&mut NoResponder, |_| {
                    begin.send(()).expect("is awaited");
                    let _ = gate.recv();
                })
            });
            begun.recv().expect("runs");
            look();
            look();
            assert_eq!(waits.writes.run(&mut NoResponder, |_| 1), None);
            assert_eq!(waits.reads.run(&mut NoResponder, |_| 1), Some(1), "reads go on");
            clock.advance(Duration::from_secs(5));
            look();
            assert!(waits.trouble().expect("is named").contains("a cached write first"));
            drop(go);
        });
        look();
        assert!(waits.trouble().is_none());
        assert_eq!(waits.writes.run(&mut NoResponder, |_| 1), None, "not at once");
        clock.advance(Duration::from_nanos(AVOIDED_NS));
        look();
        assert_eq!(waits.writes.run(&mut NoResponder, |_| 1), Some(1));
    }
}
