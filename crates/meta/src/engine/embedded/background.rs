//! The engine's two threads: one syncs the log, one writes checkpoints.

use super::super::{EngineError, EngineResult};
use super::{Core, NO_PANIC};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Longest sleep of a thread that is not woken: it then polls.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Signals {
    dirty: bool,
    urgent: bool,
    frozen: bool,
    stop: bool,
}

/// Wakes and ends the threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    signals: Mutex<Signals>,
    syncer: Condvar,
    checkpointer: Condvar,
    progress: Condvar,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock().expect(NO_PANIC)
    }

    /// Signals unsynced commits; `urgent`: a request waits for them.
    pub(super) fn wake_syncer(&self, urgent: bool) {
        let mut signals = self.signals();
        if !signals.dirty || (urgent && !signals.urgent) {
            signals.dirty = true;
            signals.urgent |= urgent;
            self.syncer.notify_one();
        }
    }

    pub(super) fn wake_checkpointer(&self) {
        self.signals().frozen = true;
        self.checkpointer.notify_one();
    }

    /// Notifies waiters that a checkpoint ended.
    pub(super) fn report_progress(&self) {
        self.progress.notify_all();
    }

    /// Waits for checkpoints for as long as `blocked`.
    pub(super) fn wait_while(&self, blocked: impl Fn() -> bool) {
        let mut signals = self.signals();
        while blocked() && !signals.stop {
            signals = self.progress.wait_timeout(signals, LOOK_EVERY).expect(NO_PANIC).0;
        }
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        self.signals().stop = true;
        self.syncer.notify_all();
        self.checkpointer.notify_all();
        self.progress.notify_all();
        let handles = std::mem::take(&mut *self.handles.lock().expect(NO_PANIC));
        for handle in handles {
            // A thread that panicked has said so, and the engine is about to end anyway.
            let _ = handle.join();
        }
    }

    /// Waits until there is something to sync, and then for as long as that may wait; false to end.
    fn next_sync(&self, timeout: impl Fn() -> Duration) -> bool {
        let mut signals = self.signals();
        while !signals.dirty && !signals.stop {
            signals = self.syncer.wait_timeout(signals, LOOK_EVERY).expect(NO_PANIC).0;
        }
        let in_peace = |signals: &mut Signals| !signals.urgent && !signals.stop;
        signals = self.syncer.wait_timeout_while(signals, timeout(), in_peace).expect(NO_PANIC).0;
        signals.dirty = false;
        signals.urgent = false;
        !signals.stop
    }

    fn next_checkpoint(&self) -> bool {
        let mut signals = self.signals();
        while !signals.frozen && !signals.stop {
            signals = self.checkpointer.wait_timeout(signals, LOOK_EVERY).expect(NO_PANIC).0;
        }
        signals.frozen = false;
        !signals.stop
    }
}

/// Starts both threads. They end when the engine is dropped or closed.
pub(super) fn start(core: &Arc<Core>) -> EngineResult<()> {
    let (syncer, checkpointer) = (Arc::clone(core), Arc::clone(core));
    let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
        let failed = |e| EngineError::io(format!("starting the thread {name}"), e);
        Builder::new().name(name.to_owned()).spawn(body).map_err(failed)
    };
    let handles = vec![
        spawn("meta-sync", Box::new(move || run(&syncer, next_sync, Core::sync_if_dirty)))?,
        spawn(
            "meta-checkpoint",
            Box::new(move || run(&checkpointer, next_checkpoint, Core::rotate_and_checkpoint)),
        )?,
    ];
    *core.threads.handles.lock().expect(NO_PANIC) = handles;
    Ok(())
}

fn next_sync(core: &Core) -> bool {
    core.threads.next_sync(|| core.sync_timeout())
}

fn next_checkpoint(core: &Core) -> bool {
    core.threads.next_checkpoint()
}

/// Works until the engine closes or has failed, which the engine logs itself.
fn run(core: &Core, next: fn(&Core) -> bool, work: fn(&Core) -> EngineResult<()>) {
    while next(core) && work(core).is_ok() {}
}
