//! Writes: copied into runs, sent when a run is full or something forces it out, acknowledged later.
//!
//! The copy is kept until the acknowledgement, so that a broken connection loses nothing. Of two runs that overlap the
//! later one waits for the earlier one's acknowledgement, so that servers see them in order. What a file in its inode
//! record does when it outgrows it is in `outgrow.rs`.

use super::inode::{InodeState, OpenInode};
use super::layout_state::Contents;
use super::payload::Payload;
use super::staging::{Run, transfer_at};
use super::unsent::Later;
use crate::data::DataCall;
use crate::{Error, Result};
use parking_lot::MutexGuard;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_meter::Cause;
use vazao_model::checksum::piece_checksums;
use vazao_model::limits::{BLOCK_BYTES, FILE_BYTES_MAX, INLINE_BYTES_MAX};
use vazao_model::{Code, Layout};
use vazao_wire::interrupt;
use vazao_wire::{Method, op, proto};

/// A longer write is cut into segments, so that others get a turn and memory stays bounded.
const SEGMENT_BYTES: usize = 4 << 20;

/// How a write is carried out.
#[derive(Clone, Copy, Default)]
pub(super) struct How {
    /// Answered once durable.
    pub(super) sync: bool,
    /// Refused where there is no such object.
    pub(super) must_exist: bool,
}

type Guard<'a> = MutexGuard<'a, InodeState>;

/// The address of one object of a file.
pub(super) fn object_address(inode: u64, layout: &Layout, slot: u32) -> Option<proto::ObjectAddress> {
    let target = layout.targets.get(slot as usize)?.0;
    let generation = layout.generation;
    Some(proto::ObjectAddress { target, inode, generation, slot, epoch: 0, capability: Vec::new() })
}

impl OpenInode {
    /// Takes over bytes to be written. What has to be sent of them is sent by the caller, where it has room for that in
    /// `later`.
    pub(super) fn write(&self, payload: Payload<'_>, offset: u64, later: &mut Later<'_>) -> Result<()> {
        let end = offset.checked_add(payload.bytes().len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        if end.is_none() {
            return Err(Error::new(Code::TooLarge, format!("{}: writing at {offset}", self.id)));
        }
        let deadline_ns = self.core.context.deadline_ns();
        self.adopt_layout(deadline_ns);
        let (mut rest, mut position) = (payload, offset);
        // The kernel cuts what is to be written into many requests, and stops at the first that fails.
        let left = || Error::new(Code::Interrupted, format!("{}: its writer was killed", self.id));
        while !rest.bytes().is_empty() {
            if later.is_none() && caller_killed() {
                return Err(left());
            }
            let (segment, tail) = rest.split_at(SEGMENT_BYTES);
            if later.is_some() {
                let state = self.send_later(self.lock(), later, deadline_ns);
                drop(self.keep_to_window(state, deadline_ns));
            }
            self.make_room(deadline_ns);
            let _gate = self.length_gate.read();
            self.write_segment(segment, position, deadline_ns, later)?;
            position += segment.bytes().len() as u64;
            rest = tail;
        }
        if later.is_none() && caller_killed() { Err(left()) } else { Ok(()) }
    }

    /// One segment; the caller holds the length gate.
    pub(super) fn write_segment(
        &self,
        payload: Payload<'_>,
        offset: u64,
        deadline_ns: u64,
        later: &mut Later<'_>,
    ) -> Result<()> {
        let bytes = payload.bytes();
        let end = offset + bytes.len() as u64;
        let mut state = self.lock();
        loop {
            let outgrown = end > INLINE_BYTES_MAX as u64;
            match state.placed.contents() {
                Contents::Moving => state = self.wait_turn(state),
                Contents::Inline(inline) if !outgrown && !inline.is_outgrown() => {
                    if let Some(inline) = state.inline_mut() {
                        inline.write(bytes, offset as usize);
                    }
                    self.note_write(&mut state, offset, end);
                    return Ok(());
                }
                Contents::Inline(_) => {
                    drop(state);
                    self.outgrow(deadline_ns)?;
                    state = self.lock();
                }
                Contents::Striped(layout) => {
                    let layout = Arc::clone(layout);
                    state.buffer.begin_writer();
                    self.note_write(&mut state, offset, end);
                    let mut state = self.stage_all(state, &layout, payload, offset, deadline_ns, later);
                    state.buffer.end_writer();
                    // Bytes read ahead meanwhile may be older than writes that have completed (race).
                    state.write_count += 1;
                    return Ok(());
                }
            }
        }
    }

    pub(super) fn note_write(&self, state: &mut InodeState, start: u64, end: u64) {
        // What lies between takes no space, which the metadata service cannot know by itself.
        state.is_sparse |= start > state.size.next_multiple_of(BLOCK_BYTES as u64);
        state.size = state.size.max(end);
        state.write_count += 1;
        state.reports.wrote(end, self.core.context.wall_time());
    }

    fn stage_all<'a>(
        &'a self,
        mut state: Guard<'a>,
        layout: &Layout,
        payload: Payload<'_>,
        offset: u64,
        deadline_ns: u64,
        later: &mut Later<'_>,
    ) -> Guard<'a> {
        let (mut rest, mut position) = (payload, offset);
        while !rest.bytes().is_empty() {
            let transfer = transfer_at(layout, position);
            let (now, tail) = rest.split_at((transfer.end - position) as usize);
            let length = now.bytes().len() as u64;
            let range = position..position + length;
            let shared = now.shared().filter(|_| range == transfer);
            let is_in_the_way = |run: &Run| shared.is_some() || !run.touches(&range);
            while state.buffer.staged(transfer.start).is_some_and(is_in_the_way) {
                state = self.send_later(state, later, deadline_ns);
                state = self.launch(state, transfer.start, deadline_ns);
            }
            let due = match shared {
                Some(bytes) => self.stage_complete(&mut state, Run::complete(bytes, position)),
                None => self.stage(&mut state, transfer, position, now.bytes()),
            };
            if let Some(start) = due {
                state = self.submit_or_enqueue(state, start, deadline_ns, later);
            }
            rest = tail;
            position += length;
        }
        state
    }

    /// A whole transfer, where the writer has it; returns what is to be sent.
    fn stage_complete(&self, state: &mut InodeState, run: Run) -> Option<u64> {
        let start = run.range.start;
        self.core.dirty_bytes.fetch_add(run.memory_bytes(), Ordering::Relaxed);
        state.buffer.stage(run);
        Some(start)
    }

    /// Adds bytes of one transfer to its run, which they touch; returns what is to be sent: the start of a transfer.
    fn stage(&self, state: &mut InodeState, transfer: Range<u64>, offset: u64, bytes: &[u8]) -> Option<u64> {
        let started_ns = self.core.context.clock.now_ns();
        let run = state.buffer.staged_or(transfer.start, || {
            let length = (transfer.end - transfer.start) as usize;
            let buffer = self.core.staging.take_or(length, |length| self.core.data.send_buffer(length));
            self.core.dirty_bytes.fetch_add(buffer.len(), Ordering::Relaxed);
            Run::new(buffer, transfer.start, offset)
        });
        run.put(offset, bytes);
        let is_full = run.is_full();
        self.core
            .context
            .counters
            .accounts
            .charge(Cause::Compute, self.core.context.clock.now_ns() - started_ns);
        if is_full {
            return Some(transfer.start);
        }
        state.buffer.superfluous(transfer.start)
    }

    /// Sends the staged run of a transfer.
    pub(super) fn launch<'a>(&'a self, mut state: Guard<'a>, start: u64, deadline_ns: u64) -> Guard<'a> {
        match self.enqueue(&mut state, start) {
            Some((layout, id)) => {
                let state = self.submit_enqueued(state, &layout, id, deadline_ns);
                self.keep_to_window(state, deadline_ns)
            }
            None => state,
        }
    }

    /// Counts the staged run of a transfer among those in flight; it is to be sent by [`OpenInode::submit_enqueued`].
    pub(super) fn enqueue(&self, state: &mut InodeState, start: u64) -> Option<(Arc<Layout>, u64)> {
        let layout = state.layout().cloned()?;
        Some((layout, state.buffer.launch(start)?))
    }

    /// Sends an enqueued run, after the overlapping writes before it have completed.
    pub(super) fn submit_enqueued<'a>(
        &'a self,
        mut state: Guard<'a>,
        layout: &Layout,
        id: u64,
        deadline_ns: u64,
    ) -> Guard<'a> {
        let Some(run) = state.buffer.flying(id) else { return state };
        while let Some(earlier) = state.buffer.flights().overlapping(&run.range, id) {
            state = self.await_flight(state, earlier, deadline_ns);
        }
        let (slot, _) = layout.distribution.locate(run.range.start, layout.width());
        let must_exist = state.placed.has_object(slot);
        drop(state);
        let how = How { sync: false, must_exist };
        let submit = || self.submit_write(layout, run.range.start, run.bytes(), how, deadline_ns);
        let call = interrupt::killable(submit);
        let mut state = self.lock();
        match call {
            Ok(call) => state.buffer.sent(id, call, must_exist),
            Err(error) => self.complete(&mut state, id, Err(error)),
        }
        self.wake();
        self.complete_finished(state, deadline_ns)
    }

    pub(super) fn keep_to_window<'a>(&'a self, mut state: Guard<'a>, deadline_ns: u64) -> Guard<'a> {
        let limit_bytes = self.core.context.options.dirty_bytes_per_file_max;
        let window_bytes = state.layout().map_or(limit_bytes, |l| self.window_bytes(l, limit_bytes) as usize);
        while state.buffer.flights().bytes() > window_bytes {
            // The oldest that no other thread waits for: two that wait for one would wake each other for nothing.
            let flights = state.buffer.flights();
            let free = flights.oldest_sent().map(|(id, _)| id);
            let Some(id) = free.or_else(|| flights.oldest()) else { break };
            let is_awaited;
            (state, is_awaited) = self.await_or_leave(state, id, deadline_ns);
            if !is_awaited {
                break;
            }
        }
        state
    }

    pub(super) fn submit_write(
        &self,
        layout: &Layout,
        offset: u64,
        bytes: &[u8],
        how: How,
        deadline_ns: u64,
    ) -> Result<DataCall> {
        let (slot, object_offset) = layout.distribution.locate(offset, layout.width());
        let started_ns = self.core.context.clock.now_ns();
        let checksums = piece_checksums(object_offset, bytes);
        self.core
            .context
            .counters
            .accounts
            .charge(Cause::Compute, self.core.context.clock.now_ns() - started_ns);
        let object = object_address(self.id.0, layout, slot);
        let target = object.as_ref().map(|object| vazao_model::TargetId(object.target));
        let no_slot = || Error::new(Code::Internal, format!("{}: no slot {slot} in its layout", self.id));
        let How { sync, must_exist } = how;
        let lent = None;
        let request =
            proto::WriteRequest { object, offset: object_offset, checksums, sync, must_exist, lent };
        let message = prost::Message::encode_to_vec(&request);
        let target = target.ok_or_else(no_slot)?;
        self.core.data.connect_ahead(layout, slot, deadline_ns);
        Ok(self.core.data.submit_data(target, Method::Write, message, bytes, deadline_ns))
    }

    /// Waits for the completion of a write in flight, or, when another thread does so, for a short while.
    pub(super) fn await_flight<'a>(&'a self, state: Guard<'a>, id: u64, deadline_ns: u64) -> Guard<'a> {
        // Uninterruptible: a waiter that gives up must not turn it into a failed write.
        interrupt::uninterruptible(|| self.await_or_leave(state, id, deadline_ns).0)
    }

    /// [`OpenInode::await_flight`], killable: false once the caller is killed. The write then stays in flight for the
    /// next waiter; at the latest that is the release of the file.
    fn await_or_leave<'a>(&'a self, mut state: Guard<'a>, id: u64, deadline_ns: u64) -> (Guard<'a>, bool) {
        if caller_killed() {
            return (state, false);
        }
        let Some(run) = state.buffer.flying(id) else { return (state, true) };
        let Some(mut call) = state.buffer.flights_mut().begin_wait(id) else {
            return (self.wait_turn(state), true);
        };
        drop(state);
        let written = interrupt::killable(|| self.finish_write_or_leave(&mut call, run.bytes(), deadline_ns));
        if written.as_ref().is_err_and(|error| error.code == Code::Interrupted) {
            let mut state = self.lock();
            state.buffer.flights_mut().sent(id, call);
            self.wake();
            return (state, false);
        }
        let follow = || self.follow_write(written, run.bytes(), run.range.start, deadline_ns);
        let outcome = interrupt::uninterruptible(follow);
        let mut state = self.lock();
        self.complete(&mut state, id, outcome);
        drop(run);
        self.wake();
        (state, true)
    }

    /// Waits for the acknowledgement of a write; returns the start of the machine that took it.
    pub(super) fn finish_write(&self, call: &mut DataCall, bytes: &[u8], deadline_ns: u64) -> Result<u64> {
        interrupt::uninterruptible(|| self.finish_write_or_leave(call, bytes, deadline_ns))
    }

    /// `Interrupted`: not yet known, and `call` can be waited for again.
    fn finish_write_or_leave(&self, call: &mut DataCall, bytes: &[u8], deadline_ns: u64) -> Result<u64> {
        let received = self.core.data.finish_data(call, bytes, deadline_ns)?;
        self.core.data.count_written(call, bytes.len());
        Ok(crate::meta::decode::<op::Write>(&received)?.boot)
    }

    fn complete(&self, state: &mut InodeState, id: u64, outcome: Result<Option<u64>>) {
        let Some((flight, range)) = state.buffer.flights_mut().complete(id) else { return };
        self.core.dirty_bytes.fetch_sub(flight.run.memory_bytes(), Ordering::Relaxed);
        match outcome {
            Ok(Some(boot)) => state.note_written(&range, boot, flight.must_exist),
            Ok(None) => state.sync.mend(&range),
            Err(error) => {
                let place = format!("{}, bytes {}-{}", self.id, range.start, range.end);
                let life = state.layout().map_or(0, |layout| layout.life);
                state.sync.failed(range, life, error.about(place));
            }
        }
    }

    /// Gives back the buffers of writes that have completed meanwhile, so that the next ones use them while they
    /// are still in the cache.
    fn complete_finished<'a>(&'a self, mut state: Guard<'a>, deadline_ns: u64) -> Guard<'a> {
        while let Some(id) = state.buffer.oldest_done() {
            let is_awaited;
            (state, is_awaited) = self.await_or_leave(state, id, deadline_ns);
            if !is_awaited {
                break;
            }
        }
        state
    }

    /// Waits until fewer bytes are dirty over all files than may be.
    pub(super) fn make_room(&self, deadline_ns: u64) {
        while self.core.dirty_bytes.load(Ordering::Relaxed) > self.core.context.options.dirty_bytes_max
            && !caller_killed()
        {
            if self.write_out_oldest(deadline_ns) {
                continue;
            }
            let all = self.core.registry.all();
            if !all.iter().any(|inode| inode.write_out_oldest(deadline_ns)) {
                return;
            }
        }
    }

    /// Sends or awaits the oldest unwritten run; false when there is none.
    fn write_out_oldest(&self, deadline_ns: u64) -> bool {
        let state = self.lock();
        if let Some(id) = state.buffer.flights().oldest() {
            drop(self.await_or_leave(state, id, deadline_ns));
            return true;
        }
        if let Some(start) = state.buffer.first_staged() {
            drop(self.launch(state, start, deadline_ns));
            return true;
        }
        false
    }

    /// Sends everything that is staged and waits until everything that was in flight then is acknowledged.
    pub(super) fn write_out(&self, deadline_ns: u64) {
        interrupt::uninterruptible(|| self.write_out_or_leave(deadline_ns));
    }

    /// [`OpenInode::write_out`], killable: false when the caller was killed first.
    pub(super) fn write_out_or_leave(&self, deadline_ns: u64) -> bool {
        let mut state = self.lock();
        for start in state.buffer.staged_starts() {
            state = self.launch(state, start, deadline_ns);
        }
        let before = state.buffer.flights().end();
        while let Some(id) = state.buffer.flights().oldest_before(before) {
            let is_awaited;
            (state, is_awaited) = self.await_or_leave(state, id, deadline_ns);
            if !is_awaited {
                return false;
            }
        }
        true
    }

    /// Waits until what was written to `range` here is at the servers.
    pub(super) fn settle<'a>(
        &'a self,
        mut state: Guard<'a>,
        range: &Range<u64>,
        deadline_ns: u64,
    ) -> Guard<'a> {
        loop {
            if let Some(start) = state.buffer.staged_within(range) {
                state = self.launch(state, start, deadline_ns);
            } else if let Some(id) = state.buffer.flights().overlapping(range, u64::MAX) {
                state = self.await_flight(state, id, deadline_ns);
            } else {
                return state;
            }
        }
    }

    /// Throws away what is staged.
    pub(super) fn discard_staged(&self) {
        let bytes = self.lock().buffer.discard_staged();
        self.core.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// True when this thread's caller is being killed, and need not know what becomes of its writes.
fn caller_killed() -> bool {
    interrupt::killable(interrupt::is_killed)
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        self.discard_staged();
        let bytes = self.lock().buffer.flights().bytes();
        self.core.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
