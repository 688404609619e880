//! Loop threads that a disk holds up are relieved: another thread goes on with their connections.
//!
//! A handler uses a disk's page cache in the loop's own thread, which takes less time than to wake another one. Where
//! the disk hangs it does not come back, and nothing can wake it. So while requests are handled, all that the loop has
//! lies in a [`Seat`]; a thread of its own looks at the seats, and where one has been within a disk for
//! [`RELIEVED_AFTER`] looks, it has a new thread go on with what lies there. The connection whose request is stuck is
//! ended: its peer sends again what was not answered. The service is expected to remember which disk it was.
//!
//! What it costs where disks answer: an uncontended lock, twice for all that one receive brings.

use super::event_loop::{EventLoop, Held};
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

/// The seats are looked at this often.
const LOOK: Duration = Duration::from_millis(100);

/// A thread that so many looks have found within the same use of a disk is relieved: in time for what else comes over
/// its connections to be answered within a second.
const RELIEVED_AFTER: u32 = 6;

/// Threads that may be stuck at once. A service that remembers which disk hangs has one for each loop, or a few more.
const STUCK_MAX: usize = 256;

/// At its end a server waits so long for a thread that is within a disk, and then leaves it behind.
const END_NS: u64 = 1_000_000_000;

/// Steps of that wait.
const STEP: Duration = Duration::from_millis(2);

/// The place of one loop thread.
#[derive(Default)]
pub(super) struct Seat {
    held: Mutex<Option<Box<Held>>>,
    /// Odd while a handler is within a disk. Only the seat's own thread changes it.
    uses: AtomicU64,
}

impl Seat {
    /// Leaves what the loop has while requests are handled.
    pub(super) fn leave(&self, held: Option<Box<Held>>) {
        *self.held.lock() = held;
    }

    /// Takes it back; `None` when another thread has it.
    pub(super) fn take_back(&self) -> Option<Box<Held>> {
        self.held.lock().take()
    }

    /// A handler goes into a disk.
    pub(super) fn enter(&self) {
        self.uses.store(self.uses.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    /// It is back.
    pub(super) fn leave_disk(&self) {
        self.uses.store((self.uses.load(Ordering::Relaxed) | 1) + 1, Ordering::Relaxed);
    }

    /// The use of a disk that it is within, if any.
    fn present_use(&self) -> Option<u64> {
        Some(self.uses.load(Ordering::Relaxed)).filter(|uses| uses % 2 == 1)
    }
}

/// A loop thread, as it is looked after.
struct Member {
    seat: Arc<Seat>,
    name: String,
    thread: JoinHandle<()>,
    /// The use of a disk it was within at the last look, and how many looks have found it there.
    seen: Option<(u64, u32)>,
    is_relieved: bool,
}

impl Member {
    /// True when it has been within one use of a disk for too long.
    fn is_stuck(&mut self) -> bool {
        let present = self.seat.present_use();
        let looks = match (present, self.seen) {
            (Some(present), Some((seen, looks))) if present == seen => looks + 1,
            _ => 1,
        };
        self.seen = present.map(|present| (present, looks));
        present.is_some() && looks >= RELIEVED_AFTER
    }
}

/// The threads of a server.
#[derive(Default)]
pub(super) struct Crew {
    members: Mutex<Vec<Member>>,
}

impl Crew {
    /// Starts a thread. Errors: there is none to be had.
    pub(super) fn start(&self, event_loop: EventLoop, name: String) -> io::Result<()> {
        let mut members = self.members.lock();
        let member = start(event_loop, name)?;
        members.push(member);
        Ok(())
    }

    /// Relieves those that are stuck.
    fn look(&self, shared: &Arc<Shared>) {
        let mut members = self.members.lock();
        members.retain(|member| !(member.is_relieved && member.thread.is_finished()));
        let mut stuck = members.iter().filter(|member| member.is_relieved).count();
        let mut fresh = Vec::new();
        for member in members.iter_mut().filter(|member| !member.is_relieved) {
            if !member.is_stuck() || stuck >= STUCK_MAX {
                continue;
            }
            // Empty where it came back at this very moment.
            let Some(held) = member.seat.take_back() else { continue };
            member.is_relieved = true;
            stuck += 1;
            warn!(
                thread = member.name,
                "a disk holds a server thread up; another one goes on with its connections"
            );
            let next = EventLoop::in_place_of(Arc::clone(shared), held);
            match start(next, member.name.clone()) {
                Ok(next) => fresh.push(next),
                Err(error) => warn!(%error, "no thread: the connections of the one that is stuck are closed"),
            }
        }
        members.extend(fresh);
    }

    /// Waits for all threads but those that a disk holds up, whose connections are closed.
    pub(super) fn join(&self, clock: &dyn Clock) {
        let members = std::mem::take(&mut *self.members.lock());
        let until_ns = clock.now_ns() + END_NS;
        for Member { seat, name, thread, is_relieved, .. } in members {
            let may_wait = || !is_relieved && (seat.present_use().is_none() || clock.now_ns() < until_ns);
            while !thread.is_finished() && may_wait() {
                clock.sleep(STEP);
            }
            if thread.is_finished() {
                // A thread that panicked has been reported by the panic itself.
                let _ = thread.join();
                continue;
            }
            drop(seat.take_back());
            warn!(thread = name, "a server thread that a disk holds up is left behind");
        }
    }
}

fn start(event_loop: EventLoop, name: String) -> io::Result<Member> {
    let seat = event_loop.seat();
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || event_loop.run())?;
    Ok(Member { seat, name, thread, seen: None, is_relieved: false })
}

/// The thread that looks after the others.
pub(super) struct Relief {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Relief {
    /// Looks after the crew of `shared` from now on. Errors: no thread.
    pub(super) fn start(shared: &Arc<Shared>, name: &str) -> io::Result<Relief> {
        let (end, ended) = channel();
        let shared: Weak<Shared> = Arc::downgrade(shared);
        let look = move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Some(shared) = shared.upgrade() else { return };
                // First: whoever is relieved must find the disk known.
                shared.service.look();
                shared.crew.look(&shared);
            }
        };
        let thread = std::thread::Builder::new().name(format!("{name}-relief")).spawn(look)?;
        Ok(Relief { end, thread })
    }

    /// Ends it.
    pub(super) fn stop(self) {
        drop(self.end);
        let _ = self.thread.join();
    }
}
