//! SIGINT, SIGTERM and SIGHUP as a flag that long work looks at between its steps.

use crate::failure::{At, Outcome};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What ends a command: Ctrl-C, kill, a closed terminal.
pub(crate) const OF_COMMANDS: &[i32] = &[SIGINT, SIGTERM, SIGHUP];

/// What ends a daemon. A terminal that closes is none of its business.
pub(crate) const OF_DAEMONS: &[i32] = &[SIGINT, SIGTERM];

/// Whether somebody asked this process to stop.
#[derive(Clone)]
pub(crate) struct Stop {
    asked: Arc<AtomicBool>,
    waker: Sender<()>,
    wake: Arc<Mutex<Receiver<()>>>,
}

impl Stop {
    /// Takes over `signals` for the rest of the process's life. A second one ends the process at once, for the
    /// person whose first Ctrl-C waits for something that does not end.
    pub(crate) fn on_signals(signals: &[i32]) -> Outcome<Stop> {
        let mut signals = Signals::new(signals).at("taking over signals")?;
        let asked = Arc::new(AtomicBool::new(false));
        let (waker, receiver) = channel();
        let stop = Stop { asked, waker, wake: Arc::new(Mutex::new(receiver)) };
        let asking = stop.clone();
        let watch = move || {
            for (count, _) in signals.forever().enumerate() {
                if count > 0 {
                    std::process::exit(1);
                }
                asking.ask();
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(watch).at("starting a thread")?;
        Ok(stop)
    }

    /// Asks, as a signal would.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        let _ = self.waker.send(());
    }

    /// True once a signal came.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// The flag itself, for a part that knows nothing of signals.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Waits up to `duration`, less when a signal comes; true once one came.
    pub(crate) fn wait(&self, duration: Duration) -> bool {
        if !self.is_asked() {
            let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(RecvTimeoutError::Disconnected) = wake.recv_timeout(duration) {
                return true;
            }
        }
        self.is_asked()
    }
}
