//! Scrubs: a background thread that reads everything a server stores and verifies checksums, at a bounded rate.
//!
//! This runs the scrub; what is read and verified is the server's business.
//!
//! - States: never → running → done, stopped or failed → running again.
//! - Lock order: `thread`, `progress`; neither is held during reads.

use crate::service::Fault;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;

/// A scrub that is slowed down polls its stop flag this often.
const PAUSE_NS_MAX: u64 = 100_000_000;

/// What requests ask of a scrub, as in their field `action`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Report the progress.
    Report,
    /// Start; a running scrub continues at the new rate.
    Start,
    /// Stop.
    Stop,
}

impl TryFrom<u32> for Action {
    type Error = Fault;

    fn try_from(action: u32) -> Result<Action, Fault> {
        match action {
            0 => Ok(Action::Report),
            1 => Ok(Action::Start),
            2 => Ok(Action::Stop),
            other => Err(Fault::new(Code::BadRequest, format!("a scrub: action {other}"))),
        }
    }
}

/// What a scrub is doing, as in the field `state` of answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum State {
    /// None was started since the server started.
    #[default]
    Never = 0,
    /// In progress.
    Running = 1,
    /// It has read everything.
    Done = 2,
    /// Stopped by a request.
    Stopped = 3,
    /// It failed before its end.
    Failed = 4,
}

impl TryFrom<u32> for State {
    type Error = u32;

    fn try_from(state: u32) -> Result<State, u32> {
        let all = [State::Never, State::Running, State::Done, State::Stopped, State::Failed];
        all.into_iter().find(|known| *known as u32 == state).ok_or(state)
    }
}

/// How far a scrub has come.
#[derive(Clone, Debug, Default)]
pub struct Progress<F> {
    /// What it is doing.
    pub state: State,
    /// At most so many bytes a second; 0: no limit.
    pub rate_bytes: u64,
    /// Read so far.
    pub bytes: u64,
    /// Since it began; to its end, when that has come.
    pub elapsed_ms: u64,
    /// Why it failed; empty otherwise.
    pub trouble: String,
    /// What it has found.
    pub found: F,
    started_ns: u64,
}

/// Where a scrub runs.
#[derive(Debug)]
pub enum Runs {
    /// In a thread of this name.
    Thread(String),
    /// In the one that starts it: a simulation has no others.
    Here,
}

/// The scrub of one thing, the present or the last one.
#[derive(Debug)]
pub struct Scrub<F> {
    clock: Arc<dyn Clock>,
    progress: Mutex<Progress<F>>,
    must_stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<F: Clone + Default> Scrub<F> {
    /// None was started yet.
    pub fn new(clock: Arc<dyn Clock>) -> Scrub<F> {
        Scrub {
            clock,
            progress: Mutex::default(),
            must_stop: AtomicBool::new(false),
            thread: Mutex::default(),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress<F>> {
        self.progress.lock()
    }

    /// How far it has come, and what it has found.
    pub fn report(&self) -> Progress<F> {
        self.progress().clone()
    }

    /// Starts `work`, which calls [`Scrub::run`]. One that runs goes on, at the new rate. Errors: no thread; the one
    /// before has been stopped and has not ended yet.
    pub fn start(
        &self,
        rate_bytes: u64,
        found: F,
        runs: Runs,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Fault> {
        let mut thread = self.thread.lock();
        let mut progress = self.progress();
        if progress.state == State::Running && !self.is_stopped() {
            progress.rate_bytes = rate_bytes;
            return Ok(());
        }
        if thread.as_ref().is_some_and(|before| !before.is_finished()) {
            return Err(Fault::new(Code::Unavailable, "the scrub before is just ending"));
        }
        self.must_stop.store(false, Ordering::SeqCst);
        let started_ns = self.clock.now_ns();
        *progress = Progress { state: State::Running, rate_bytes, found, started_ns, ..Progress::default() };
        drop(progress);
        match runs {
            Runs::Here => work(),
            Runs::Thread(name) => match std::thread::Builder::new().name(name).spawn(work) {
                Ok(started) => *thread = Some(started),
                Err(error) => {
                    let fault = Fault::new(Code::Overloaded, format!("no thread for a scrub: {error}"));
                    self.end(State::Failed, fault.to_string());
                    return Err(fault);
                }
            },
        }
        Ok(())
    }

    /// Runs `work`, which says whether it completed (otherwise it was stopped) or why it failed; returns the final
    /// state.
    pub fn run<E: std::fmt::Display>(&self, work: impl FnOnce() -> Result<bool, E>) -> Progress<F> {
        match work() {
            Ok(true) => self.end(State::Done, String::new()),
            Ok(false) => self.end(State::Stopped, String::new()),
            Err(error) => self.end(State::Failed, error.to_string()),
        }
        self.report()
    }

    fn end(&self, state: State, trouble: String) {
        let mut progress = self.progress();
        progress.elapsed_ms = self.elapsed_ns(progress.started_ns) / 1_000_000;
        (progress.state, progress.trouble) = (state, trouble);
    }

    fn elapsed_ns(&self, started_ns: u64) -> u64 {
        self.clock.now_ns().saturating_sub(started_ns)
    }

    /// Notes what was found.
    pub fn note(&self, note: impl FnOnce(&mut F)) {
        note(&mut self.progress().found);
    }

    /// Counts bytes read, and blocks to keep the rate. False when the scrub is to stop.
    pub fn read(&self, bytes: u64) -> bool {
        self.progress().bytes += bytes;
        while !self.is_stopped() {
            let mut progress = self.progress();
            let elapsed_ns = self.elapsed_ns(progress.started_ns);
            progress.elapsed_ms = elapsed_ns / 1_000_000;
            let due_ns = match progress.rate_bytes {
                0 => 0,
                rate => (u128::from(progress.bytes) * 1_000_000_000 / u128::from(rate)) as u64,
            };
            drop(progress);
            match due_ns.saturating_sub(elapsed_ns) {
                0 => return true,
                ahead_ns => self.clock.sleep(Duration::from_nanos(ahead_ns.min(PAUSE_NS_MAX))),
            }
        }
        false
    }

    /// Requests a stop.
    pub fn stop(&self) {
        self.must_stop.store(true, Ordering::SeqCst);
    }

    /// Whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.must_stop.load(Ordering::SeqCst)
    }

    /// Stops it, and blocks until it has ended.
    pub fn finish(&self) {
        self.stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // One that panicked has been reported by the panic itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use vazao_meter::ManualClock;
    use vazao_meter::clock::system;

    #[test]
    fn the_rate_is_held_by_the_clock() {
        let clock = Arc::new(ManualClock::default());
        let scrub = Arc::new(Scrub::<u32>::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let same = Arc::clone(&scrub);
        let work = move || {
            let ended = same.run(|| Ok::<bool, Fault>((0..10).all(|_| same.read(1_000))));
            assert_eq!((ended.state, ended.bytes, ended.elapsed_ms), (State::Done, 10_000, 5_000));
        };
        scrub.start(2_000, 0, Runs::Here, work).expect("starts");
        assert_eq!(scrub.report().state, State::Done);
    }

    #[test]
    fn one_that_runs_goes_on_at_a_new_rate_and_one_that_was_told_to_end_does() {
        let scrub = Arc::new(Scrub::<u32>::new(system()));
        let (is_running, wait) = channel();
        let same = Arc::clone(&scrub);
        let work = move || {
            let _ = same.run(|| {
                same.note(|found| *found += 1);
                is_running.send(()).expect("waited for");
                Ok::<bool, Fault>((0..).all(|_| same.read(1)))
            });
        };
        scrub.start(10, 0, Runs::Thread("scrub".to_owned()), work).expect("starts");
        wait.recv().expect("runs");
        scrub.start(20, 7, Runs::Here, || unreachable!("one is running")).expect("goes on");
        assert_eq!((scrub.report().rate_bytes, scrub.report().found), (20, 1));
        scrub.finish();
        assert_eq!(scrub.report().state, State::Stopped);
        let fails = Arc::clone(&scrub);
        let work = move || drop(fails.run(|| Err(Fault::new(Code::Io, "the disk"))));
        scrub.start(0, 0, Runs::Here, work).expect("starts again");
        let ended = scrub.report();
        assert!(ended.state == State::Failed && ended.trouble.contains("the disk"), "{ended:?}");
    }
}
