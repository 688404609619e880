//! From the write buffer to the servers: runs are sent, and awaited in any thread that needs them to be there.
//!
//! The copy of a run is kept until the acknowledgement, so that a broken connection loses nothing. Of two runs that
//! overlap the later one waits for the earlier one's acknowledgement, so that servers see them in order.

use super::inode::{InodeState, OpenInode};
use super::objects::{How, finish_write_or_leave, submit_write};
use super::{moved, window};
use crate::{Error, Result};
use parking_lot::MutexGuard;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_model::{Code, Layout};
use vazao_wire::interrupt;

type Guard<'a> = MutexGuard<'a, InodeState>;

/// Sends the staged run of a transfer.
pub(super) fn launch<'a>(
    open: &'a OpenInode,
    mut state: Guard<'a>,
    start: u64,
    deadline_ns: u64,
) -> Guard<'a> {
    match enqueue(&mut state, start) {
        Some((layout, id)) => {
            let state = submit_enqueued(open, state, &layout, id, deadline_ns);
            keep_to_window(open, state, deadline_ns)
        }
        None => state,
    }
}

/// Counts the staged run of a transfer among those in flight; it is to be sent by [`submit_enqueued`].
pub(super) fn enqueue(state: &mut InodeState, start: u64) -> Option<(Arc<Layout>, u64)> {
    let layout = state.layout().cloned()?;
    Some((layout, state.buffer.launch(start)?))
}

/// Sends an enqueued run, after the overlapping writes before it have completed.
pub(super) fn submit_enqueued<'a>(
    open: &'a OpenInode,
    mut state: Guard<'a>,
    layout: &Layout,
    id: u64,
    deadline_ns: u64,
) -> Guard<'a> {
    let Some(run) = state.buffer.flying(id) else { return state };
    while let Some(earlier) = state.buffer.flights().overlapping(&run.range, id) {
        state = await_flight(open, state, earlier, deadline_ns);
    }
    let (slot, _) = layout.distribution.locate(run.range.start, layout.width());
    let must_exist = state.placed.has_object(slot);
    drop(state);
    let how = How { sync: false, must_exist };
    let submit = || submit_write(open, layout, run.range.start, run.bytes(), how, deadline_ns);
    let call = interrupt::killable(submit);
    let mut state = open.lock();
    match call {
        Ok(call) => state.buffer.sent(id, call, must_exist),
        Err(error) => complete(open, &mut state, id, Err(error)),
    }
    open.wake();
    complete_finished(open, state, deadline_ns)
}

pub(super) fn keep_to_window<'a>(open: &'a OpenInode, mut state: Guard<'a>, deadline_ns: u64) -> Guard<'a> {
    let limit_bytes = open.core.context.options.dirty_bytes_per_file_max;
    let window_bytes =
        state.layout().map_or(limit_bytes, |l| window::window_bytes(open, l, limit_bytes) as usize);
    while state.buffer.flights().bytes() > window_bytes {
        // The oldest that no other thread waits for: two that wait for one would wake each other for nothing.
        let flights = state.buffer.flights();
        let free = flights.oldest_sent().map(|(id, _)| id);
        let Some(id) = free.or_else(|| flights.oldest()) else { break };
        let is_awaited;
        (state, is_awaited) = await_or_leave(open, state, id, deadline_ns);
        if !is_awaited {
            break;
        }
    }
    state
}

/// Waits for the completion of a write in flight, or, when another thread does so, for a short while.
pub(super) fn await_flight<'a>(
    open: &'a OpenInode,
    state: Guard<'a>,
    id: u64,
    deadline_ns: u64,
) -> Guard<'a> {
    // Uninterruptible: a waiter that gives up must not turn it into a failed write.
    interrupt::uninterruptible(|| await_or_leave(open, state, id, deadline_ns).0)
}

/// [`await_flight`], killable: false once the caller is killed. The write then stays in flight for the
/// next waiter; at the latest that is the release of the file.
pub(super) fn await_or_leave<'a>(
    open: &'a OpenInode,
    mut state: Guard<'a>,
    id: u64,
    deadline_ns: u64,
) -> (Guard<'a>, bool) {
    if caller_killed() {
        return (state, false);
    }
    let Some(run) = state.buffer.flying(id) else { return (state, true) };
    let Some(mut call) = state.buffer.flights_mut().begin_wait(id) else {
        return (open.wait_turn(state), true);
    };
    drop(state);
    let written = interrupt::killable(|| finish_write_or_leave(open, &mut call, run.bytes(), deadline_ns));
    if written.as_ref().is_err_and(|error| error.code == Code::Interrupted) {
        let mut state = open.lock();
        state.buffer.flights_mut().sent(id, call);
        open.wake();
        return (state, false);
    }
    let follow = || moved::follow_write(open, written, run.bytes(), run.range.start, deadline_ns);
    let outcome = interrupt::uninterruptible(follow);
    let mut state = open.lock();
    complete(open, &mut state, id, outcome);
    drop(run);
    open.wake();
    (state, true)
}

fn complete(open: &OpenInode, state: &mut InodeState, id: u64, outcome: Result<Option<u64>>) {
    let Some((flight, range)) = state.buffer.flights_mut().complete(id) else { return };
    open.core.dirty_bytes.fetch_sub(flight.run.memory_bytes(), Ordering::Relaxed);
    match outcome {
        Ok(Some(boot)) => state.note_written(&range, boot, flight.must_exist),
        Ok(None) => state.sync.mend(&range),
        Err(error) => {
            let place = format!("{}, bytes {}-{}", open.id, range.start, range.end);
            state.write_failed(range, error.about(place));
        }
    }
}

/// Gives back the buffers of writes that have completed meanwhile, so that the next ones use them while they
/// are still in the cache.
fn complete_finished<'a>(open: &'a OpenInode, mut state: Guard<'a>, deadline_ns: u64) -> Guard<'a> {
    while let Some(id) = state.buffer.oldest_done() {
        let is_awaited;
        (state, is_awaited) = await_or_leave(open, state, id, deadline_ns);
        if !is_awaited {
            break;
        }
    }
    state
}

/// Sends everything that is staged and waits until everything that was in flight then is acknowledged.
pub(super) fn write_out(open: &OpenInode, deadline_ns: u64) {
    interrupt::uninterruptible(|| write_out_or_leave(open, deadline_ns));
}

/// [`write_out`], killable: false when the caller was killed first.
pub(super) fn write_out_or_leave(open: &OpenInode, deadline_ns: u64) -> bool {
    let mut state = open.lock();
    for start in state.buffer.staged_starts() {
        state = launch(open, state, start, deadline_ns);
    }
    let before = state.buffer.flights().end();
    while let Some(id) = state.buffer.flights().oldest_before(before) {
        let is_awaited;
        (state, is_awaited) = await_or_leave(open, state, id, deadline_ns);
        if !is_awaited {
            return false;
        }
    }
    true
}

/// Waits until what was written to `range` here is at the servers.
pub(super) fn settle<'a>(
    open: &'a OpenInode,
    state: Guard<'a>,
    range: &Range<u64>,
    deadline_ns: u64,
) -> Guard<'a> {
    interrupt::uninterruptible(|| settle_or_leave(open, state, range, deadline_ns).0)
}

/// [`settle`], killable: false once the caller is killed.
pub(super) fn settle_or_leave<'a>(
    open: &'a OpenInode,
    mut state: Guard<'a>,
    range: &Range<u64>,
    deadline_ns: u64,
) -> (Guard<'a>, bool) {
    loop {
        if let Some(start) = state.buffer.staged_within(range) {
            state = launch(open, state, start, deadline_ns);
        } else if let Some(id) = state.buffer.flights().overlapping(range, u64::MAX) {
            let (now, goes_on) = await_or_leave(open, state, id, deadline_ns);
            if !goes_on {
                return (now, false);
            }
            state = now;
        } else {
            return (state, true);
        }
    }
}

/// The same for a reader. Errors: `Interrupted`.
pub(super) fn settle_to_read<'a>(
    open: &'a OpenInode,
    state: Guard<'a>,
    range: &Range<u64>,
    deadline_ns: u64,
) -> Result<Guard<'a>> {
    match settle_or_leave(open, state, range, deadline_ns) {
        (state, true) => Ok(state),
        (_, false) => {
            Err(Error::new(Code::Interrupted, format!("{}: waiting for what was written before", open.id)))
        }
    }
}

/// Throws away what is staged.
pub(super) fn discard_staged(open: &OpenInode) {
    let bytes = open.lock().buffer.discard_staged();
    open.core.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
}

/// True when this thread's caller is being killed, and need not know what becomes of its writes.
pub(super) fn caller_killed() -> bool {
    interrupt::killable(interrupt::is_killed)
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        discard_staged(self);
        let bytes = self.lock().buffer.flights().bytes();
        self.core.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
