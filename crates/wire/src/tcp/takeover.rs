//! Takeover of event loops whose thread is stuck in a disk: another thread continues with their connections.
//!
//! A handler reads and writes the page cache in the event loop's own thread, because that takes less time than to wake
//! another thread. A disk that hangs does not return, and nothing can wake the thread. Therefore the loop puts its
//! state into a [`LoopSlot`] while requests are handled. A watch thread inspects all slots, and when one has been in
//! the same use of a disk for [`TAKEN_OVER_AFTER`] looks, a new thread takes the state out and runs the loop. The
//! connection of the stuck request is closed, and its peer retries what was not answered. The service has to remember
//! which disk hangs.
//!
//! Cost while disks answer: an uncontended lock, twice for all requests that one receive brings.

use super::event_loop::{EventLoop, LoopState};
use super::server::Shared;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::warn;
use vazao_meter::Clock;

/// Interval at which the slots are inspected.
const LOOK: Duration = Duration::from_millis(100);

/// A thread found in the same use of a disk by so many looks is replaced: in time for other requests over its
/// connections to be answered within a second.
const TAKEN_OVER_AFTER: u32 = 6;

/// Threads that may be stuck at once. A service that remembers which disk hangs has one for each loop, or a few more.
const STUCK_MAX: usize = 256;

/// A server that stops waits this long for a thread that is in a disk, and then leaves it behind.
const END_NS: u64 = 1_000_000_000;

/// Interval at which that wait looks whether the thread has ended.
const STEP: Duration = Duration::from_millis(2);

/// Where a loop thread leaves its state while it handles requests.
#[derive(Default)]
pub(super) struct LoopSlot {
    state: Mutex<Option<Box<LoopState>>>,
    /// Odd while a handler is in a disk. Only the loop's own thread changes it.
    uses: AtomicU64,
}

impl LoopSlot {
    /// Leaves the state while requests are handled.
    pub(super) fn leave(&self, state: Option<Box<LoopState>>) {
        *self.state.lock() = state;
    }

    /// Takes the state back; `None` when another thread has taken it.
    pub(super) fn take_back(&self) -> Option<Box<LoopState>> {
        self.state.lock().take()
    }

    /// A handler is about to use a disk.
    pub(super) fn enter(&self) {
        self.uses.store(self.uses.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    /// The disk has answered.
    pub(super) fn leave_disk(&self) {
        self.uses.store((self.uses.load(Ordering::Relaxed) | 1) + 1, Ordering::Relaxed);
    }

    /// The use of a disk that the thread is in, if any.
    fn present_use(&self) -> Option<u64> {
        Some(self.uses.load(Ordering::Relaxed)).filter(|uses| uses % 2 == 1)
    }
}

/// A loop thread, and what the last look has found.
struct LoopThread {
    slot: Arc<LoopSlot>,
    name: String,
    handle: JoinHandle<()>,
    /// The use of a disk it was in at the last look, and how many looks have found it there.
    seen: Option<(u64, u32)>,
    is_replaced: bool,
}

impl LoopThread {
    /// True when it has been in one use of a disk for too long.
    fn is_stuck(&mut self) -> bool {
        let present = self.slot.present_use();
        let looks = match (present, self.seen) {
            (Some(present), Some((seen, looks))) if present == seen => looks + 1,
            _ => 1,
        };
        self.seen = present.map(|present| (present, looks));
        present.is_some() && looks >= TAKEN_OVER_AFTER
    }
}

/// The event-loop threads of a server.
#[derive(Default)]
pub(super) struct LoopThreads {
    threads: Mutex<Vec<LoopThread>>,
}

impl LoopThreads {
    /// Starts a thread. Errors: the process can have no more.
    pub(super) fn start(&self, event_loop: EventLoop, name: String) -> io::Result<()> {
        let mut threads = self.threads.lock();
        let thread = start(event_loop, name)?;
        threads.push(thread);
        Ok(())
    }

    /// Replaces those that are stuck.
    fn look(&self, shared: &Arc<Shared>) {
        let mut threads = self.threads.lock();
        threads.retain(|thread| !(thread.is_replaced && thread.handle.is_finished()));
        let mut stuck = threads.iter().filter(|thread| thread.is_replaced).count();
        let mut fresh = Vec::new();
        for thread in threads.iter_mut().filter(|thread| !thread.is_replaced) {
            if !thread.is_stuck() || stuck >= STUCK_MAX {
                continue;
            }
            // Race: empty when the thread has returned just now.
            let Some(state) = thread.slot.take_back() else { continue };
            thread.is_replaced = true;
            stuck += 1;
            warn!(
                thread = thread.name,
                "a server thread is stuck in a disk; another thread continues with its connections"
            );
            let next = EventLoop::in_place_of(Arc::clone(shared), state);
            match start(next, thread.name.clone()) {
                Ok(next) => fresh.push(next),
                Err(error) => {
                    warn!(%error, "cannot start a thread: the connections of the one that is stuck are closed")
                }
            }
        }
        threads.extend(fresh);
    }

    /// Joins all threads but those that are stuck in a disk, whose connections are closed.
    pub(super) fn join(&self, clock: &dyn Clock) {
        let threads = std::mem::take(&mut *self.threads.lock());
        let until_ns = clock.now_ns() + END_NS;
        for LoopThread { slot, name, handle, is_replaced, .. } in threads {
            let may_wait = || !is_replaced && (slot.present_use().is_none() || clock.now_ns() < until_ns);
            while !handle.is_finished() && may_wait() {
                clock.sleep(STEP);
            }
            if handle.is_finished() {
                // A thread that panicked has been reported by the panic itself.
                let _ = handle.join();
                continue;
            }
            drop(slot.take_back());
            warn!(thread = name, "a server thread that is stuck in a disk is left behind");
        }
    }
}

fn start(event_loop: EventLoop, name: String) -> io::Result<LoopThread> {
    let slot = event_loop.slot();
    let handle = std::thread::Builder::new().name(name.clone()).spawn(move || event_loop.run())?;
    Ok(LoopThread { slot, name, handle, seen: None, is_replaced: false })
}

/// The watch thread.
pub(super) struct TakeoverWatch {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl TakeoverWatch {
    /// Watches the threads of `shared` from now on. Errors: the process can have no more threads.
    pub(super) fn start(shared: &Arc<Shared>, name: &str) -> io::Result<TakeoverWatch> {
        let (end, ended) = channel();
        let shared: Weak<Shared> = Arc::downgrade(shared);
        let look = move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Some(shared) = shared.upgrade() else { return };
                // First the service: the thread that takes over must find the disk marked as hanging.
                shared.service.look();
                shared.threads.look(&shared);
            }
        };
        let thread = std::thread::Builder::new().name(format!("{name}-takeover")).spawn(look)?;
        Ok(TakeoverWatch { end, thread })
    }

    /// Ends it.
    pub(super) fn stop(self) {
        drop(self.end);
        let _ = self.thread.join();
    }
}
