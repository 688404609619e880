//! The event loops of a daemon: all conversations that have no thread of their own, and new connections.
//!
//! New connections have a loop of their own, which never touches a file. Conversations that read or write files have
//! one for each place whose files these are: a file system that hangs holds up its own loop only.

use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vazao_meter::Clock;
use vazao_wire::service::Fault;

/// Events taken at once.
const EVENTS_MAX: usize = 256;

/// How often deadlines are looked at.
const TICK_NS: u64 = 50_000_000;

/// The same of a loop that drives nothing: it is woken when there is something.
const IDLE_NS: u64 = 900_000_000;

/// A loop whose owner did not stop it has this long to end.
const DROP_NS_MAX: u64 = 2_000_000_000;

/// How often the end looks whether a loop's thread has ended.
const STOP_LOOK: Duration = Duration::from_millis(1);

/// The event loop's own number.
const WAKE: u64 = u64::MAX;

/// What a machine waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Its socket, or the time.
    Wait { read: bool, write: bool, until_ns: u64 },
    /// It has more to do now and lets others go first.
    Again,
    /// It is over.
    Done,
}

/// A conversation on a socket that does a bounded amount of work at a time and never waits.
pub(crate) trait Machine: Send {
    /// Its socket.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Does what can be done now.
    fn advance(&mut self, now_ns: u64) -> Result<Step, Fault>;

    /// It is over; called once, last.
    fn ended(self: Box<Self>, outcome: Result<(), Fault>);

    /// It wants to go on elsewhere: it is taken out of the event loop and given to [`Machine::leave`].
    fn wants_to_leave(&self) -> bool {
        false
    }

    /// Goes on elsewhere.
    fn leave(self: Box<Self>) {}
}

/// Runs one machine in this thread to its end.
pub(crate) fn drive(mut machine: Box<dyn Machine>, clock: &dyn Clock) {
    let outcome = loop {
        match machine.advance(clock.now_ns()) {
            Err(fault) => break Err(fault),
            Ok(Step::Done) => break Ok(()),
            Ok(Step::Again) => {}
            Ok(Step::Wait { read, write, until_ns }) => {
                let mut events = PollFlags::empty();
                events.set(PollFlags::IN, read);
                events.set(PollFlags::OUT, write);
                let wait_ns = until_ns.saturating_sub(clock.now_ns()).min(TICK_NS);
                let timeout = Timespec { tv_sec: 0, tv_nsec: wait_ns as i64 };
                // Interrupted or not: the machine is asked again.
                let _ = poll(&mut [PollFd::new(&machine.fd(), events)], Some(&timeout));
            }
        }
    };
    machine.ended(outcome);
}

struct Shared {
    clock: Arc<dyn Clock>,
    wake: OwnedFd,
    arriving: Mutex<Vec<Box<dyn Machine>>>,
    stopping: AtomicBool,
}

/// The event loop's handle; the loop ends with [`Engine::stop`].
pub(crate) struct Engine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts the loop's thread.
    pub(crate) fn start(clock: Arc<dyn Clock>) -> std::io::Result<Engine> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let shared =
            Arc::new(Shared { clock, wake, arriving: Mutex::default(), stopping: AtomicBool::new(false) });
        let running = Running { epoll, shared: Arc::clone(&shared), machines: HashMap::new(), next: 0 };
        let thread = std::thread::Builder::new().name("copies".to_owned()).spawn(move || running.run())?;
        Ok(Engine { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Gives the loop a machine to drive.
    pub(crate) fn add(&self, machine: Box<dyn Machine>) {
        self.inbox().add(machine);
    }

    /// Where machines are put in, for those that outlive the handle or are driven by the loop themselves.
    pub(crate) fn inbox(&self) -> Inbox {
        Inbox { shared: Arc::clone(&self.shared) }
    }

    /// Ends all conversations and the loop. One that waits for a file system that hangs is left to itself at
    /// `until_ns`.
    pub(crate) fn stop(&self, until_ns: u64) {
        self.begin_stop();
        let thread = self.thread.lock().take();
        let is_own = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        let Some(thread) = thread.filter(|thread| !is_own(thread)) else { return };
        while !thread.is_finished() && self.shared.clock.now_ns() < until_ns {
            self.shared.clock.sleep(STOP_LOOK);
        }
        if !thread.is_finished() {
            tracing::warn!("an event loop of copies waits for a file system that hangs; it is left behind");
        }
    }

    fn begin_stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.inbox().wake();
    }
}

/// Event loops, one for each place whose files they read or write.
#[derive(Clone)]
pub(crate) struct Engines {
    clock: Arc<dyn Clock>,
    /// By place; `None` once they have been stopped.
    running: Arc<Mutex<Option<HashMap<String, Engine>>>>,
}

impl Engines {
    /// None yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Engines {
        Engines { clock, running: Arc::new(Mutex::new(Some(HashMap::new()))) }
    }

    /// Has a machine driven by the loop of `place`, which is started where there is none.
    pub(crate) fn add(&self, place: &str, machine: Box<dyn Machine>) {
        let mut running = self.running.lock();
        let Some(engines) = &mut *running else {
            drop(running);
            return machine.ended(Err(stopping()));
        };
        if !engines.contains_key(place) {
            match Engine::start(Arc::clone(&self.clock)) {
                Ok(engine) => drop(engines.insert(place.to_owned(), engine)),
                Err(error) => {
                    drop(running);
                    let why = format!("event loop: {error}");
                    return machine.ended(Err(Fault::new(vazao_model::Code::Overloaded, why)));
                }
            }
        }
        let inbox = engines.get(place).map(Engine::inbox);
        drop(running);
        if let Some(inbox) = inbox {
            inbox.add(machine);
        }
    }

    /// Ends all of them; what has not ended by `until_ns` is left to itself.
    pub(crate) fn stop(&self, until_ns: u64) {
        let engines = self.running.lock().take().unwrap_or_default();
        // All hear of it before the first is waited for.
        engines.values().for_each(Engine::begin_stop);
        engines.values().for_each(|engine| engine.stop(until_ns));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop(self.shared.clock.now_ns() + DROP_NS_MAX);
    }
}

/// Puts machines into the loop.
#[derive(Clone)]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
}

impl Inbox {
    /// Gives the loop a machine to drive. After the loop's end the machine ends with an error at once.
    pub(crate) fn add(&self, machine: Box<dyn Machine>) {
        if self.shared.stopping.load(Ordering::SeqCst) {
            return machine.ended(Err(stopping()));
        }
        self.shared.arriving.lock().push(machine);
        self.wake();
    }

    fn wake(&self) {
        // Fails only when it is signalled already.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }
}

struct Kept {
    machine: Box<dyn Machine>,
    interest: EventFlags,
    until_ns: u64,
}

struct Running {
    epoll: OwnedFd,
    shared: Arc<Shared>,
    machines: HashMap<u64, Kept>,
    next: u64,
}

impl Running {
    fn run(mut self) {
        let mut again: Vec<u64> = Vec::new();
        let mut looked_ns = 0;
        while !self.shared.stopping.load(Ordering::SeqCst) {
            let mut ready = std::mem::take(&mut again);
            let had_more = !ready.is_empty();
            let wait_ns = match (had_more, self.machines.is_empty()) {
                (true, _) => 0,
                (false, true) => IDLE_NS,
                (false, false) => TICK_NS,
            };
            self.collect(wait_ns, &mut ready);
            self.take_arriving(&mut ready);
            let now_ns = self.shared.clock.now_ns();
            if now_ns.saturating_sub(looked_ns) >= TICK_NS {
                looked_ns = now_ns;
                ready.extend(
                    self.machines.iter().filter(|(_, kept)| kept.until_ns <= now_ns).map(|(id, _)| id),
                );
            }
            ready.sort_unstable();
            ready.dedup();
            again.extend(ready.into_iter().filter(|&id| self.advance(id)));
        }
        for (_, kept) in self.machines.drain() {
            kept.machine.ended(Err(stopping()));
        }
        let rest = std::mem::take(&mut *self.shared.arriving.lock());
        rest.into_iter().for_each(|machine| machine.ended(Err(stopping())));
    }

    fn collect(&self, wait_ns: u64, ready: &mut Vec<u64>) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait_ns as i64 };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.epoll, buffer, Some(&timeout)).is_err() {
            return;
        }
        for event in &events {
            match event.data.u64() {
                WAKE => {
                    let mut count = [0; 8];
                    let _ = rustix::io::read(&self.shared.wake, &mut count);
                }
                id => ready.push(id),
            }
        }
    }

    fn take_arriving(&mut self, ready: &mut Vec<u64>) {
        let arriving = std::mem::take(&mut *self.shared.arriving.lock());
        for machine in arriving {
            let id = self.next;
            self.next += 1;
            match epoll::add(&self.epoll, machine.fd(), EventData::new_u64(id), EventFlags::empty()) {
                Ok(()) => {
                    let kept = Kept { machine, interest: EventFlags::empty(), until_ns: u64::MAX };
                    self.machines.insert(id, kept);
                    ready.push(id);
                }
                Err(error) => {
                    let why = format!("event loop: {}", std::io::Error::from(error));
                    machine.ended(Err(Fault::new(vazao_model::Code::Internal, why)));
                }
            }
        }
    }

    /// True when it wants another turn.
    fn advance(&mut self, id: u64) -> bool {
        let now_ns = self.shared.clock.now_ns();
        let Some(kept) = self.machines.get_mut(&id) else { return false };
        let outcome = match kept.machine.advance(now_ns) {
            Ok(Step::Again) => return true,
            Ok(Step::Wait { read, write, until_ns }) => {
                if !kept.machine.wants_to_leave() {
                    return self.wait_for(id, read, write, until_ns);
                }
                if let Some(kept) = self.remove(id) {
                    kept.machine.leave();
                }
                return false;
            }
            Ok(Step::Done) => Ok(()),
            Err(fault) => Err(fault),
        };
        if let Some(kept) = self.remove(id) {
            kept.machine.ended(outcome);
        }
        false
    }

    fn wait_for(&mut self, id: u64, read: bool, write: bool, until_ns: u64) -> bool {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, read);
        interest.set(EventFlags::OUT, write);
        if let Some(kept) = self.machines.get_mut(&id) {
            kept.until_ns = until_ns;
            if kept.interest != interest {
                kept.interest = interest;
                let _ = epoll::modify(&self.epoll, kept.machine.fd(), EventData::new_u64(id), interest);
            }
        }
        false
    }

    fn remove(&mut self, id: u64) -> Option<Kept> {
        let kept = self.machines.remove(&id)?;
        let _ = epoll::delete(&self.epoll, kept.machine.fd());
        Some(kept)
    }
}

fn stopping() -> Fault {
    Fault::new(vazao_model::Code::Disconnected, "this daemon is stopping")
}
