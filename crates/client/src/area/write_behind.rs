//! Write-behind for channels: writes complete before the node has them.
//!
//! All channels of one mount into a file share a [`WriteBehindBuffer`], which tracks the writes in flight. Reads,
//! attribute requests, truncation and overlapping writes block on them first. A [`Writer`] is one writing channel. It
//! reports its own first failed write once, from its next write or from [`Writer::settle`].
//!
//! A write is *taken over* and sent when its [`Unsent`] is dropped. Its bytes are kept until the node has answered, so
//! that they can be sent again. The caller that has to wait for an answer receives it. A background thread receives
//! answers older than [`LATE_MS`], so that a broken connection is noticed and the retry starts soon.

use super::Channel;
use super::channel::{PendingWrite, REQUEST_BYTES};
use crate::area::Nodes;
use crate::data::{InFlight, Waitable, overlap};
use crate::file::{SharedBytes, SharedSlice};
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_wire::interrupt;

/// Bytes of one file in flight: a gigabit over 60 ms, and several requests for every thread of the node.
const FILE_BYTES_MAX: usize = 8 << 20;

/// Requests of one file in flight, where they are small.
const FILE_REQUESTS_MAX: usize = 64;

/// Bytes of all files in flight: beyond it a write waits until it is answered.
const BYTES_MAX: usize = 128 << 20;

/// A background thread receives an answer without a waiter after this time.
const LATE_MS: u64 = 100;

/// Minimum timeout of a wait for an answer, even when the deadline of the write has passed.
const GRACE_MS: u64 = 1_000;

/// Poll interval of a thread that blocks on another thread's wait.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes in flight over all files of a mount, and the files whose late answers a background thread receives.
pub struct WriteBackTracker {
    nodes: Arc<Nodes>,
    bytes: AtomicUsize,
    late: Mutex<Late>,
}

#[derive(Default)]
struct Late {
    files: Vec<Weak<WriteBehindBuffer>>,
    /// The background thread runs.
    is_kept: bool,
}

/// The writes in flight to one file.
///
/// - The state lock is not held while a request is sent or awaited.
/// - A failed write is noted at its [`Writer`] before it leaves `in_flight`. The reverse order would let a concurrent
///   [`Writer::settle`] report success.
pub struct WriteBehindBuffer {
    all: Arc<WriteBackTracker>,
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Default)]
struct State {
    in_flight: InFlight<AreaWrite, PendingWrite>,
    /// When the last write completed, also with an error; 0 for none.
    completed_ns: u64,
    /// When a write last completed without an error.
    answered_ns: u64,
    /// The file is in the list of the background thread.
    is_listed: bool,
}

/// One write request.
struct AreaWrite {
    writer: Arc<Writer>,
    bytes: SharedSlice,
    taken_ns: u64,
    deadline_ns: u64,
}

/// A channel that writes.
pub struct Writer {
    channel: Channel,
    behind: Arc<WriteBehindBuffer>,
    failed: Mutex<Option<Error>>,
}

/// What is still to be sent of a write that has been taken over. Dropping it sends it.
#[must_use = "dropped at once it is sent at once"]
pub struct Unsent {
    behind: Arc<WriteBehindBuffer>,
    numbers: Range<u64>,
}

impl std::fmt::Debug for WriteBackTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBackTracker({} bytes)", self.bytes.load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for WriteBehindBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBehindBuffer({} requests)", self.lock().in_flight.len())
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({:?})", self.channel)
    }
}

impl std::fmt::Debug for Unsent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unsent({} requests)", self.numbers.end - self.numbers.start)
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.numbers.clone().for_each(|number| self.behind.send(number));
    }
}

impl WriteBackTracker {
    pub(super) fn new(nodes: Arc<Nodes>) -> WriteBackTracker {
        WriteBackTracker { nodes, bytes: AtomicUsize::new(0), late: Mutex::default() }
    }

    /// A file of which nothing is in flight.
    pub fn file(self: &Arc<WriteBackTracker>) -> Arc<WriteBehindBuffer> {
        Arc::new(WriteBehindBuffer {
            all: Arc::clone(self),
            state: Mutex::default(),
            settled: Condvar::new(),
        })
    }

    /// Adds a file to the list of the background thread, and starts the thread if it does not run.
    fn look_after(self: &Arc<WriteBackTracker>, file: &Arc<WriteBehindBuffer>) {
        if !self.nodes.context.options.background {
            return;
        }
        let mut late = self.late.lock();
        late.files.push(Arc::downgrade(file));
        if late.is_kept {
            return;
        }
        let all = Arc::clone(self);
        let spawned =
            std::thread::Builder::new().name("vazao-behind".to_owned()).spawn(move || all.receive());
        match spawned {
            Ok(_) => late.is_kept = true,
            // The next waiter on the file receives the answers.
            Err(error) => tracing::warn!("answers to writes wait for their writers: {error}"),
        }
    }

    /// Receives late answers until nothing is in flight.
    fn receive(self: Arc<WriteBackTracker>) {
        loop {
            self.nodes.context.clock.sleep(Duration::from_millis(LATE_MS));
            let files: Vec<_> = self.late.lock().files.iter().filter_map(Weak::upgrade).collect();
            let late_ns = self.nodes.context.clock.now_ns().saturating_sub(LATE_MS * 1_000_000);
            files.iter().for_each(|file| file.settle_where(|_, write, _| write.taken_ns < late_ns));
            drop(files);
            let mut late = self.late.lock();
            late.files.retain(|file| file.upgrade().is_some_and(|file| file.is_still_listed()));
            if late.files.is_empty() {
                late.is_kept = false;
                return;
            }
        }
    }
}

impl WriteBehindBuffer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// True while something is in flight; a file without is listed anew with its next write.
    fn is_still_listed(&self) -> bool {
        let mut state = self.lock();
        state.is_listed = !state.in_flight.is_empty();
        state.is_listed
    }

    /// True when nothing is in flight, and no write has completed at `since_ns` or later.
    pub fn is_still_since(&self, since_ns: u64) -> bool {
        let state = self.lock();
        state.in_flight.is_empty() && state.completed_ns < since_ns
    }

    /// True when any write has completed.
    pub fn has_landed(&self) -> bool {
        self.lock().completed_ns > 0
    }

    /// True when the node has answered at `since_ns` or later that a write is done.
    pub fn has_answered_since(&self, since_ns: u64) -> bool {
        self.lock().answered_ns >= since_ns
    }

    /// Waits until nothing is in flight any more.
    pub fn settle(&self) {
        self.settle_where(|_, _, _| true);
    }

    /// Waits for what is in flight to a range.
    pub fn settle_range(&self, range: &Range<u64>) {
        self.settle_where(|_, _, other| overlap(other, range));
    }

    /// Waits for the writes in flight that are `wanted`. Their errors go to their writers. The deadline of each began
    /// when it was taken over: a dead node costs about one timeout, not one for each write. Writes taken over from now
    /// on are excluded: with a continuous writer the wait would never end.
    fn settle_where(&self, wanted: impl Fn(u64, &AreaWrite, &Range<u64>) -> bool) {
        let floor_ns = self.all.nodes.context.clock.now_ns() + GRACE_MS * 1_000_000;
        let mut state = self.lock();
        let end = state.in_flight.end();
        loop {
            let is_wanted = |number, write: &_, range: &_| number < end && wanted(number, write, range);
            let number = match state.in_flight.waitable(is_wanted) {
                Waitable::Sent(number) => number,
                Waitable::Busy => {
                    self.settled.wait_for(&mut state, LOOK);
                    continue;
                }
                Waitable::None => return,
            };
            let Some(pending) = state.in_flight.begin_wait(number) else { continue };
            let Some((write, _)) = state.in_flight.get(number) else { continue };
            let (bytes, writer) = (write.bytes.clone(), Arc::clone(&write.writer));
            let deadline_ns = write.deadline_ns.max(floor_ns);
            drop(state);
            // Uninterruptible: a waiter that gave up here would drop the answer and lose the write.
            let outcome =
                interrupt::uninterruptible(|| writer.channel.finish_write(pending, &bytes, deadline_ns));
            self.completed(number, &writer, outcome);
            // The last owner closes the channel, which blocks: not under the lock.
            drop(writer);
            state = self.lock();
        }
    }

    /// Completes a request of `writer`.
    fn completed(&self, number: u64, writer: &Writer, outcome: Result<()>) {
        let is_done = outcome.is_ok();
        // First: once the request is removed, a concurrent `settle` reports success (race).
        if let Err(error) = outcome {
            writer.note(error);
        }
        let mut state = self.lock();
        let Some((write, _)) = state.in_flight.complete(number) else { return };
        state.completed_ns = self.all.nodes.context.clock.now_ns();
        if is_done {
            state.answered_ns = state.completed_ns;
        }
        drop(state);
        self.all.bytes.fetch_sub(write.bytes.len(), Ordering::Relaxed);
        self.settled.notify_all();
    }

    /// Submits a request that was taken over.
    fn send(&self, number: u64) {
        let state = self.lock();
        let Some((write, range)) = state.in_flight.get(number) else { return };
        let (writer, bytes, offset) = (Arc::clone(&write.writer), write.bytes.clone(), range.start);
        drop(state);
        match interrupt::uninterruptible(|| writer.channel.start_write(&bytes, offset)) {
            Ok(pending) => {
                self.lock().in_flight.sent(number, pending);
                self.settled.notify_all();
            }
            Err(error) => self.completed(number, &writer, Err(error)),
        }
    }

    /// Waits until the window has room.
    fn make_room(&self, length: usize) {
        loop {
            let state = self.lock();
            let in_flight = &state.in_flight;
            let is_full = in_flight.bytes() + length > FILE_BYTES_MAX || in_flight.len() >= FILE_REQUESTS_MAX;
            let oldest = in_flight.oldest();
            drop(state);
            match oldest {
                Some(oldest) if is_full => self.settle_where(|number, _, _| number == oldest),
                _ => return,
            }
        }
    }

    fn take_over(
        self: &Arc<WriteBehindBuffer>,
        writer: &Arc<Writer>,
        bytes: &SharedSlice,
        offset: u64,
    ) -> Unsent {
        let (taken_ns, deadline_ns) =
            (self.all.nodes.context.clock.now_ns(), self.all.nodes.context.deadline_ns());
        let mut state = self.lock();
        let first = state.in_flight.end();
        for start in (0..bytes.len()).step_by(REQUEST_BYTES) {
            let part = bytes.part(start..(start + REQUEST_BYTES).min(bytes.len()));
            let at = offset.saturating_add(start as u64);
            self.all.bytes.fetch_add(part.len(), Ordering::Relaxed);
            let range = at..at.saturating_add(part.len() as u64);
            let (length, writer) = (part.len(), Arc::clone(writer));
            state.in_flight.take(range, length, AreaWrite { writer, bytes: part, taken_ns, deadline_ns });
        }
        let is_new = !std::mem::replace(&mut state.is_listed, true);
        let numbers = first..state.in_flight.end();
        drop(state);
        if is_new {
            self.all.look_after(self);
        }
        Unsent { behind: Arc::clone(self), numbers }
    }
}

impl Writer {
    /// A channel that writes to the file that `behind` is about.
    pub fn new(channel: Channel, behind: Arc<WriteBehindBuffer>) -> Arc<Writer> {
        Arc::new(Writer { channel, behind, failed: Mutex::default() })
    }

    /// The channel itself.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    fn note(&self, error: Error) {
        let mut failed = self.failed.lock();
        match &*failed {
            Some(_) => tracing::debug!(%error, "a write after one that failed"),
            None => *failed = Some(error),
        }
    }

    /// Takes over a write of a copy of `bytes`. Errors: an earlier write failed; this one is not done then.
    pub fn write_later(self: &Arc<Self>, bytes: &[u8], offset: u64) -> Result<Option<Unsent>> {
        let copy: SharedBytes = Arc::new(bytes.to_vec());
        self.write_shared_later(copy, 0..bytes.len(), offset)
    }

    /// The same of bytes that stay where they are until the node has them.
    pub fn write_shared_later(
        self: &Arc<Self>,
        bytes: SharedBytes,
        range: Range<usize>,
        offset: u64,
    ) -> Result<Option<Unsent>> {
        self.check()?;
        if range.is_empty() {
            return Ok(None);
        }
        let slice = SharedSlice::new(bytes, range);
        let place = offset..offset.saturating_add(slice.len() as u64);
        // The node may reorder overlapping writes.
        self.behind.settle_range(&place);
        self.behind.make_room(slice.len());
        self.check()?;
        let is_too_much = self.behind.all.bytes.load(Ordering::Relaxed) + slice.len() > BYTES_MAX;
        let unsent = self.behind.take_over(self, &slice, offset);
        if is_too_much {
            drop(unsent);
            self.behind.settle_range(&place);
            return self.report().map(|()| None);
        }
        Ok(Some(unsent))
    }

    /// True when a write has failed and its error is not reported yet.
    pub fn has_failed(&self) -> bool {
        self.failed.lock().is_some()
    }

    /// True when [`Writer::settle`] would neither block nor fail.
    pub fn is_idle(&self) -> bool {
        let is_own = |write: &AreaWrite| std::ptr::eq(&*write.writer, self);
        !self.behind.lock().in_flight.iter().any(|(_, write, ..)| is_own(write))
            && self.failed.lock().is_none()
    }

    /// Waits for the writes through this channel. Errors: that of a failed write that is not reported yet.
    pub fn settle(&self) -> Result<()> {
        self.behind.settle_where(|_, write, _| std::ptr::eq(&*write.writer, self));
        self.report()
    }

    /// Waits for the writes through this channel because a descriptor of it is closed. Errors: as [`Writer::settle`],
    /// and reported again later: a child process may close an inherited descriptor and ignore the error.
    pub fn settle_closed(&self) -> Result<()> {
        self.behind.settle_where(|_, write, _| std::ptr::eq(&*write.writer, self));
        self.failed.lock().clone().map_or(Ok(()), Err)
    }

    /// Waits for all writes to the file. Errors: as [`Writer::settle`].
    pub fn settle_file(&self) -> Result<()> {
        self.behind.settle();
        self.report()
    }

    /// Reports a failed write, after the writes in flight with it: all of them count as one failure.
    fn check(&self) -> Result<()> {
        if self.has_failed() { self.settle() } else { Ok(()) }
    }

    fn report(&self) -> Result<()> {
        self.failed.lock().take().map_or(Ok(()), Err)
    }
}
