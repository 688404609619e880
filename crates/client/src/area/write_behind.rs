//! Writes through channels that are answered before the node has them.
//!
//! All channels that one mount has into a file share a [`WriteBehindBuffer`], which knows what is in flight: whoever
//! reads, asks for attributes, cuts the file or writes to the same place waits for that first. A [`Writer`] is one of
//! them that writes: it is told of its own failed writes, once, by its next write, or by [`Writer::settle`] at the
//! latest.
//!
//! A write is *taken over*, and sent when the [`Unsent`] that it gave is dropped; its bytes are kept until the node has
//! answered. Nobody stands still for answers: they are received by whoever has to wait for them, and what nobody asks
//! for within [`LATE_MS`] by a thread of its own, so that a broken connection is noticed and the bytes sent again soon.

use super::Channel;
use super::channel::{PendingWrite, REQUEST_BYTES};
use crate::core::Core;
use crate::file::{SharedBytes, SharedSlice};
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
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

/// An answer that nobody has asked for is received after this.
const LATE_MS: u64 = 100;

/// However late an answer is asked for, it is given this long.
const GRACE_MS: u64 = 1_000;

/// How often one who waits for another's wait looks.
const LOOK: Duration = Duration::from_millis(100);

/// Who receives the answers that nobody asks for, and how much is in flight, over all files of a mount.
pub struct WriteBackTracker {
    core: Arc<Core>,
    bytes: AtomicUsize,
    late: Mutex<Late>,
}

#[derive(Default)]
struct Late {
    files: Vec<Weak<WriteBehindBuffer>>,
    /// A thread looks after them.
    is_kept: bool,
}

/// What is in flight to one file.
pub struct WriteBehindBuffer {
    all: Arc<WriteBackTracker>,
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Default)]
struct State {
    in_flight: VecDeque<InFlightWrite>,
    bytes: usize,
    next: u64,
    /// When the last one landed; 0: none has.
    completed_ns: u64,
    /// When the node has answered last that one is done.
    answered_ns: u64,
    /// The late ones are looked after.
    is_listed: bool,
}

/// A request.
struct InFlightWrite {
    number: u64,
    range: Range<u64>,
    writer: Arc<Writer>,
    bytes: SharedSlice,
    taken_ns: u64,
    deadline_ns: u64,
    stage: Stage,
}

enum Stage {
    /// Somebody is about to send it.
    Taken,
    Sent(PendingWrite),
    /// Somebody waits for its answer.
    Awaited,
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
    pub(super) fn new(core: Arc<Core>) -> WriteBackTracker {
        WriteBackTracker { core, bytes: AtomicUsize::new(0), late: Mutex::default() }
    }

    /// A file of which nothing is in flight.
    pub fn file(self: &Arc<WriteBackTracker>) -> Arc<WriteBehindBuffer> {
        Arc::new(WriteBehindBuffer {
            all: Arc::clone(self),
            state: Mutex::default(),
            settled: Condvar::new(),
        })
    }

    /// Has the answers received that nobody asks for.
    fn look_after(self: &Arc<WriteBackTracker>, file: &Arc<WriteBehindBuffer>) {
        if !self.core.options.background {
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
            // Whoever comes back to the file receives them.
            Err(error) => tracing::warn!("answers to writes wait for their writers: {error}"),
        }
    }

    /// Receives what is late, until nothing is in flight.
    fn receive(self: Arc<WriteBackTracker>) {
        loop {
            self.core.clock.sleep(Duration::from_millis(LATE_MS));
            let files: Vec<_> = self.late.lock().files.iter().filter_map(Weak::upgrade).collect();
            let late_ns = self.core.clock.now_ns().saturating_sub(LATE_MS * 1_000_000);
            files.iter().for_each(|file| file.settle_where(|flight| flight.taken_ns < late_ns));
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

    /// True when nothing is in flight, and nothing has landed at `since_ns` or later.
    pub fn is_still_since(&self, since_ns: u64) -> bool {
        let state = self.lock();
        state.in_flight.is_empty() && state.completed_ns < since_ns
    }

    /// True when a write has landed since there is something to know of the file.
    pub fn has_landed(&self) -> bool {
        self.lock().completed_ns > 0
    }

    /// True when the node has answered at `since_ns` or later that a write is done.
    pub fn has_answered_since(&self, since_ns: u64) -> bool {
        self.lock().answered_ns >= since_ns
    }

    /// Waits until nothing is in flight any more.
    pub fn settle(&self) {
        self.settle_where(|_| true);
    }

    /// Waits for what is in flight to a range.
    pub fn settle_range(&self, range: &Range<u64>) {
        self.settle_where(|flight| flight.range.start < range.end && range.start < flight.range.end);
    }

    /// Waits for the flights that are `wanted`. Their errors go to their writers. The deadline of each began when it
    /// was taken over: a node that is gone is not waited for once for each. What is taken over from now on is not
    /// waited for: while somebody writes without a pause something is always in flight.
    fn settle_where(&self, wanted: impl Fn(&InFlightWrite) -> bool) {
        let floor_ns = self.all.core.clock.now_ns() + GRACE_MS * 1_000_000;
        let mut state = self.lock();
        let end = state.next;
        let is_wanted = |flight: &&mut InFlightWrite| flight.number < end && wanted(flight);
        loop {
            let mut is_any = false;
            let mut found = None;
            for flight in state.in_flight.iter_mut().filter(is_wanted) {
                is_any = true;
                if matches!(flight.stage, Stage::Sent(_)) {
                    found = Some(flight);
                    break;
                }
            }
            let Some(flight) = found else {
                if !is_any {
                    return;
                }
                self.settled.wait_for(&mut state, LOOK);
                continue;
            };
            let Stage::Sent(pending) = std::mem::replace(&mut flight.stage, Stage::Awaited) else { continue };
            let (number, bytes) = (flight.number, flight.bytes.clone());
            let deadline_ns = flight.deadline_ns.max(floor_ns);
            let writer = Arc::clone(&flight.writer);
            drop(state);
            // Given up by who waits, the write would be lost.
            let outcome =
                interrupt::uninterruptible(|| writer.channel.finish_write(pending, &bytes, deadline_ns));
            self.completed(number, &writer, outcome);
            // The last owner closes the channel, for which nobody else should have to wait.
            drop(writer);
            state = self.lock();
        }
    }

    /// A request of `writer` is over.
    fn completed(&self, number: u64, writer: &Writer, outcome: Result<()>) {
        let is_done = outcome.is_ok();
        // First: once the request is gone, who settles believes that it went well.
        if let Err(error) = outcome {
            writer.note(error);
        }
        let mut state = self.lock();
        let Some(at) = state.in_flight.iter().position(|flight| flight.number == number) else { return };
        let Some(flight) = state.in_flight.remove(at) else { return };
        state.bytes -= flight.bytes.len();
        state.completed_ns = self.all.core.clock.now_ns();
        if is_done {
            state.answered_ns = state.completed_ns;
        }
        drop(state);
        self.all.bytes.fetch_sub(flight.bytes.len(), Ordering::Relaxed);
        self.settled.notify_all();
    }

    /// Sends a request that was taken over.
    fn send(&self, number: u64) {
        let state = self.lock();
        let found = state.in_flight.iter().find(|flight| flight.number == number);
        let Some((writer, bytes, offset)) =
            found.map(|flight| (Arc::clone(&flight.writer), flight.bytes.clone(), flight.range.start))
        else {
            return;
        };
        drop(state);
        match interrupt::uninterruptible(|| writer.channel.start_write(&bytes, offset)) {
            Ok(pending) => {
                let mut state = self.lock();
                if let Some(flight) = state.in_flight.iter_mut().find(|flight| flight.number == number) {
                    flight.stage = Stage::Sent(pending);
                }
                drop(state);
                self.settled.notify_all();
            }
            Err(error) => self.completed(number, &writer, Err(error)),
        }
    }

    /// Waits until the window has room.
    fn make_room(&self, length: usize) {
        loop {
            let state = self.lock();
            let is_full = state.bytes + length > FILE_BYTES_MAX || state.in_flight.len() >= FILE_REQUESTS_MAX;
            let oldest = state.in_flight.front().map(|flight| flight.number);
            drop(state);
            match oldest {
                Some(oldest) if is_full => self.settle_where(|flight| flight.number == oldest),
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
        let (taken_ns, deadline_ns) = (self.all.core.clock.now_ns(), self.all.core.deadline_ns());
        let mut state = self.lock();
        let first = state.next;
        for start in (0..bytes.len()).step_by(REQUEST_BYTES) {
            let part = bytes.part(start..(start + REQUEST_BYTES).min(bytes.len()));
            let at = offset.saturating_add(start as u64);
            let number = state.next;
            state.next += 1;
            state.bytes += part.len();
            self.all.bytes.fetch_add(part.len(), Ordering::Relaxed);
            let range = at..at.saturating_add(part.len() as u64);
            let (writer, stage) = (Arc::clone(writer), Stage::Taken);
            state.in_flight.push_back(InFlightWrite {
                number,
                range,
                writer,
                bytes: part,
                taken_ns,
                deadline_ns,
                stage,
            });
        }
        let is_new = !std::mem::replace(&mut state.is_listed, true);
        let numbers = first..state.next;
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
        // Two that overlap would be done in any order.
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

    /// True when a write has failed and was not told of yet, however long ago.
    pub fn has_failed(&self) -> bool {
        self.failed.lock().is_some()
    }

    /// True when [`Writer::settle`] would neither wait nor tell anything.
    pub fn is_idle(&self) -> bool {
        let is_own = |flight: &InFlightWrite| std::ptr::eq(&*flight.writer, self);
        !self.behind.lock().in_flight.iter().any(is_own) && self.failed.lock().is_none()
    }

    /// Waits for the writes through this channel. Errors: that of one that failed, if it was not told yet.
    pub fn settle(&self) -> Result<()> {
        self.behind.settle_where(|flight| std::ptr::eq(&*flight.writer, self));
        self.report()
    }

    /// Waits for the writes through this channel because a descriptor of it is closed. Errors: as [`Writer::settle`],
    /// and told again later: it may be a descriptor that a child process has inherited and closes unseen.
    pub fn settle_closed(&self) -> Result<()> {
        self.behind.settle_where(|flight| std::ptr::eq(&*flight.writer, self));
        self.failed.lock().clone().map_or(Ok(()), Err)
    }

    /// Waits for all writes to the file. Errors: as [`Writer::settle`].
    pub fn settle_file(&self) -> Result<()> {
        self.behind.settle();
        self.report()
    }

    /// Tells of a write that failed. What is in flight with it is waited for: all of it is one loss.
    fn check(&self) -> Result<()> {
        if self.has_failed() { self.settle() } else { Ok(()) }
    }

    fn report(&self) -> Result<()> {
        self.failed.lock().take().map_or(Ok(()), Err)
    }
}
