//! How other threads reach an event loop: a queue and an eventfd that wakes it.

use super::socket::Socket;
use crate::service::Answer;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Messages of other threads to a loop.
pub(super) enum Notice {
    /// Serve this connection.
    Accepted(Socket),
    /// Close the oldest unauthenticated connection: another loop needs its place.
    MakeRoom,
    /// The answer to a deferred request.
    Answered {
        /// The connection it came on.
        connection: u64,
        /// Its id on that connection.
        request_id: u64,
        /// The answer.
        answer: Answer,
    },
}

/// The queue of one loop.
pub(super) struct Inbox {
    notices: Mutex<Vec<Notice>>,
    wake: OwnedFd,
    woken: AtomicBool,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Inbox> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Inbox { notices: Mutex::default(), wake, woken: AtomicBool::new(false) })
    }

    /// Queues a notice and wakes the loop.
    pub(super) fn push(&self, notice: Notice) {
        self.notices.lock().push(notice);
        self.wake();
    }

    /// Wakes the loop; cheap when it has been woken already.
    pub(super) fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            // Fails only when the counter is at its limit, in which case the loop is awake anyway.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Takes everything queued so far. Called by the loop when the eventfd is readable.
    pub(super) fn drain(&self) -> Vec<Notice> {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        self.woken.store(false, Ordering::Release);
        std::mem::take(&mut *self.notices.lock())
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
