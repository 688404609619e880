//! The end of a data server: each target ends in a thread of its own, so that one whose disk hangs keeps no other from
//! becoming clean.

use crate::service::DataService;
use crate::targets::Target;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::limits::{CLOSING_MS_MAX, SLOW_MS};

/// How long disks are waited for.
#[derive(Clone, Copy)]
pub(crate) struct CloseTimeouts {
    /// Then the log says which ones.
    pub(crate) silent: Duration,
    /// Then the server ends without them.
    pub(crate) whole: Duration,
}

/// How long changes that wait for other servers have to give up.
const CHANGES_END: Duration = Duration::from_secs(2);

const TIMEOUT: CloseTimeouts = CloseTimeouts {
    silent: Duration::from_millis(SLOW_MS as u64),
    whole: Duration::from_millis(CLOSING_MS_MAX as u64),
};

impl DataService {
    /// Stops serving and makes everything durable, so that the next start finds clean targets. A last report to the
    /// metadata service may follow: with that, no copy made before passes for what is there now. A disk that hangs is
    /// waited for as long as [`CLOSING_MS_MAX`]. False where one still does: its target is swept by the next start, and
    /// what was answered as synced is on it.
    pub fn close(&self) -> bool {
        self.close_within(TIMEOUT)
    }

    pub(crate) fn close_within(&self, timeout: CloseTimeouts) -> bool {
        self.is_stopped.store(true, Ordering::Release);
        let mark = self.latest_mark();
        if !self.options.inline {
            // They give up: what is not the same everywhere is the next primary's.
            self.replication.stop(CHANGES_END);
        }
        let (done, ended) = channel();
        let mut open = BTreeMap::new();
        for (number, target) in self.targets.iter().enumerate() {
            let (held, said) = (Arc::clone(target), done.clone());
            let end = move || {
                held.end(mark);
                drop(held);
                // Who waited may have given up.
                let _ = said.send(number);
            };
            let begin = || std::thread::Builder::new().name("ending".to_owned()).spawn(end);
            if !self.options.inline && begin().is_ok() {
                open.insert(number, target);
            } else {
                target.end(mark);
            }
        }
        drop(done);
        await_ends(&ended, &mut open, timeout, &**self.shell.clock());
        open.is_empty()
    }
}

/// Waits for the ends of those that are `open`, and says which ones it waits for.
fn await_ends(
    ended: &Receiver<usize>,
    open: &mut BTreeMap<usize, &Arc<Target>>,
    timeout: CloseTimeouts,
    clock: &dyn Clock,
) {
    let begun_ns = clock.now_ns();
    let mut is_said = false;
    while !open.is_empty() {
        let limit = if is_said { timeout.whole } else { timeout.silent };
        let passed = Duration::from_nanos(clock.now_ns().saturating_sub(begun_ns));
        match ended.recv_timeout(limit.saturating_sub(passed)) {
            Ok(number) => drop(open.remove(&number)),
            // One of them panicked, which has reported itself.
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if is_said => {
                for target in open.values() {
                    tracing::error!(%target, "its disk still hangs: ending without it; its next start sweeps it");
                }
                return;
            }
            Err(RecvTimeoutError::Timeout) => {
                is_said = true;
                let seconds = timeout.whole.as_secs();
                for target in open.values() {
                    tracing::warn!(
                        %target,
                        "waiting for its disk, at most {seconds} s in all: ending this process by SIGKILL loses nothing that was \
                         answered as synced"
                    );
                }
            }
        }
    }
}
