//! The threads that carry out calls which may take time, and how they reach the thread that waits for connections.

use super::service::Session;
use crate::interface::Interface;
use crate::value::Value;
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A worker without work looks this often whether the server has stopped.
const LOOK: Duration = Duration::from_secs(1);

/// What a call came to.
pub(super) type Outcome = Result<Vec<Value>, String>;

/// A call that waits for a worker. A connection has one at a time, so that there are no more than connections.
pub(super) struct Job {
    pub(super) connection: u64,
    pub(super) session: Box<dyn Session>,
    /// Its place in the interface.
    pub(super) method: usize,
    pub(super) arguments: Vec<Value>,
}

/// A call that was carried out.
pub(super) struct Done {
    pub(super) connection: u64,
    pub(super) session: Box<dyn Session>,
    pub(super) method: usize,
    pub(super) outcome: Outcome,
}

/// Carries out a call. A panic is this call's error and no other's.
pub(super) fn carry_out(session: &mut dyn Session, method: &str, arguments: Vec<Value>) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(|| session.call(method, arguments)));
    outcome.unwrap_or_else(|_| {
        tracing::error!(method, "a remote call panicked");
        Err(format!("{method}: the server has a defect here; its log says more"))
    })
}

/// The threads and their queues.
pub(super) struct Workers {
    interface: Arc<Interface>,
    jobs: Mutex<VecDeque<Job>>,
    has_jobs: Condvar,
    done: Mutex<Vec<Done>>,
    wake: OwnedFd,
    is_stopping: AtomicBool,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl Workers {
    pub(super) fn start(interface: &Arc<Interface>, threads: usize) -> io::Result<Arc<Workers>> {
        let workers = Arc::new(Workers {
            interface: Arc::clone(interface),
            jobs: Mutex::default(),
            has_jobs: Condvar::new(),
            done: Mutex::default(),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            is_stopping: AtomicBool::new(false),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        });
        for _ in 0..threads.max(1) {
            let workers = Arc::clone(&workers);
            std::thread::Builder::new().name("luarpc-call".to_owned()).spawn(move || workers.run())?;
        }
        Ok(workers)
    }

    fn run(&self) {
        while let Some(mut job) = self.next() {
            let name = self.interface.methods.get(job.method).map_or("", |method| method.name.as_str());
            let outcome = carry_out(&mut *job.session, name, job.arguments);
            let Job { connection, session, method, .. } = job;
            self.done.lock().push(Done { connection, session, method, outcome });
            self.wake();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        loop {
            if self.is_stopping() {
                return None;
            }
            if let Some(job) = jobs.pop_front() {
                return Some(job);
            }
            self.has_jobs.wait_for(&mut jobs, LOOK);
        }
    }

    pub(super) fn queue(&self, job: Job) {
        self.jobs.lock().push_back(job);
        self.has_jobs.notify_one();
    }

    fn wake(&self) {
        // Fails only when the counter is at its limit, in which case the loop is awake anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// What has been carried out since the last time.
    pub(super) fn take_done(&self) -> Vec<Done> {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        std::mem::take(&mut *self.done.lock())
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.wake();
        self.has_jobs.notify_all();
    }

    /// The loop has ended, and with it port and connections.
    pub(super) fn tell_ended(&self) {
        *self.has_ended.lock() = true;
        self.ended.notify_all();
    }

    pub(super) fn wait_for_end(&self, within: Duration) -> bool {
        let mut has_ended = self.has_ended.lock();
        if !*has_ended {
            self.ended.wait_while_for(&mut has_ended, |has_ended| !*has_ended, within);
        }
        *has_ended
    }
}

impl AsFd for Workers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
