//! SIGINT, SIGTERM and SIGHUP as a flag that long work looks at between its steps.

use crate::failure::{At, Outcome};
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use vazao_client::Client;
use vazao_model::limits::STOP_MS_MAX;

/// What ends a command: Ctrl-C, kill, a closed terminal.
pub(crate) const OF_COMMANDS: &[i32] = &[SIGINT, SIGTERM, SIGHUP];

/// What ends a daemon. A terminal that closes is none of its business.
pub(crate) const OF_DAEMONS: &[i32] = &[SIGINT, SIGTERM];

/// The second signal ends a command at once.
const LAST_OF_COMMANDS: usize = 2;

/// The signal that asked this command to stop; 0 for none.
static ASKED_BY: AtomicI32 = AtomicI32::new(0);

/// The exit code by which a shell knows that a signal ended a command (bash(1), "EXIT STATUS"); `None` when none came.
pub(crate) fn exit_code() -> Option<u8> {
    let signal = ASKED_BY.load(Ordering::SeqCst);
    u8::try_from(signal).ok().filter(|signal| *signal > 0).and_then(|signal| signal.checked_add(128))
}

/// What is done when a process that was asked to stop has had its time.
type End = Box<dyn FnOnce() + Send>;

/// That time, before and after it is over.
#[derive(Default)]
struct Grace {
    is_over: bool,
    ends: Vec<End>,
}

/// Whether this process was asked to stop.
#[derive(Clone)]
pub(crate) struct Stop {
    asked: Arc<AtomicBool>,
    /// How often.
    count: Arc<AtomicUsize>,
    waker: Sender<()>,
    wake: Arc<Mutex<Receiver<()>>>,
    grace: Arc<Mutex<Grace>>,
}

/// The time is over.
fn end(grace: &Mutex<Grace>) {
    let ends = {
        let mut grace = grace.lock();
        grace.is_over = true;
        std::mem::take(&mut grace.ends)
    };
    ends.into_iter().for_each(|end| end());
}

impl Stop {
    /// Takes over `signals` for the rest of the process's life. A second one ends the process at once, for the
    /// person whose first Ctrl-C waits for something that does not end.
    pub(crate) fn on_signals(signals: &[i32]) -> Outcome<Stop> {
        Stop::on_signals_up_to(signals, LAST_OF_COMMANDS)
    }

    /// The same for a process that does something about all of them but the last: signal `last` ends it at once.
    pub(crate) fn on_signals_up_to(signals: &[i32], last: usize) -> Outcome<Stop> {
        // Daemons and mounts end by signals as a rule: their exit code says whether that went well.
        let is_command = signals == OF_COMMANDS && last == LAST_OF_COMMANDS;
        let mut signals = Signals::new(signals).at("taking over signals")?;
        let (asked, count) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (waker, receiver) = channel();
        let (wake, grace) = (Arc::new(Mutex::new(receiver)), Arc::default());
        let stop = Stop { asked, count, waker, wake, grace };
        let asking = stop.clone();
        let watch = move || {
            for (before, signal) in signals.forever().enumerate() {
                if is_command {
                    ASKED_BY.store(signal, Ordering::SeqCst);
                }
                if before + 1 >= last {
                    std::process::exit(exit_code().map_or(1, i32::from));
                }
                asking.ask();
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(watch).at("starting a thread")?;
        Ok(stop)
    }

    /// Asks, as a signal would.
    pub(crate) fn ask(&self) {
        let was_asked = self.asked.swap(true, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        let _ = self.waker.send(());
        if was_asked {
            return;
        }
        let grace = Arc::clone(&self.grace);
        let wait = move || {
            vazao_meter::clock::system().sleep(Duration::from_millis(u64::from(STOP_MS_MAX)));
            end(&grace);
        };
        if std::thread::Builder::new().name("grace".to_owned()).spawn(wait).is_err() {
            // Without a thread there is no grace period.
            end(&self.grace);
        }
    }

    /// Runs `end` [`STOP_MS_MAX`] after the process was asked to stop, unless it has ended by then: for waits that
    /// depend on other processes.
    pub(crate) fn after_grace(&self, end: impl FnOnce() + Send + 'static) {
        let mut grace = self.grace.lock();
        match grace.is_over {
            false => grace.ends.push(Box::new(end)),
            true => {
                drop(grace);
                end();
            }
        }
    }

    /// Ends a client's waits for servers when this process was asked to stop and has had its time.
    pub(crate) fn hangs_up(&self, client: &Client) {
        let client = client.clone();
        self.after_grace(move || client.hang_up());
    }

    /// True once a signal came.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// How many signals came.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits up to `duration`, less when a further signal comes.
    pub(crate) fn wait_for_more(&self, duration: Duration) {
        let wake = self.wake.lock();
        // Nothing came, or a signal did: the caller looks.
        let _ = wake.recv_timeout(duration);
    }

    /// The flag itself, for a part that knows nothing of signals.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Waits up to `duration`, less when a signal comes; true once one came.
    pub(crate) fn wait(&self, duration: Duration) -> bool {
        if !self.is_asked() {
            let wake = self.wake.lock();
            if let Err(RecvTimeoutError::Disconnected) = wake.recv_timeout(duration) {
                return true;
            }
        }
        self.is_asked()
    }
}
