//! Writes: copied into runs of the write buffer, which `write_out.rs` sends when one is full or something forces it
//! out. What a file in its inode record does when it outgrows it is in `outgrow.rs`.

use super::inode::{InodeState, OpenInode};
use super::layout_state::Contents;
use super::payload::Payload;
use super::staging::{Run, transfer_at};
use super::unsent::Later;
use super::{moved, outgrow, unsent, write_out};
use crate::{Error, Result};
use parking_lot::MutexGuard;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_meter::Cause;
use vazao_model::limits::{BLOCK_BYTES, FILE_BYTES_MAX, INLINE_BYTES_MAX};
use vazao_model::{Code, Layout};

/// A longer write is cut into segments, so that others get a turn and memory stays bounded.
const SEGMENT_BYTES: usize = 4 << 20;

type Guard<'a> = MutexGuard<'a, InodeState>;

/// Takes over bytes to be written. What has to be sent of them is sent by the caller, where it has room for that in
/// `later`.
pub(super) fn write(
    open: &OpenInode,
    payload: Payload<'_>,
    offset: u64,
    later: &mut Later<'_>,
) -> Result<()> {
    let end = offset.checked_add(payload.bytes().len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
    if end.is_none() {
        return Err(Error::new(Code::TooLarge, format!("{}: writing at {offset}", open.id)));
    }
    let deadline_ns = open.core.context.deadline_ns();
    moved::adopt_layout(open, deadline_ns);
    let (mut rest, mut position) = (payload, offset);
    // The kernel cuts what is to be written into many requests, and stops at the first that fails.
    let left = || Error::new(Code::Interrupted, format!("{}: its writer was killed", open.id));
    while !rest.bytes().is_empty() {
        if later.is_none() && write_out::caller_killed() {
            return Err(left());
        }
        let (segment, tail) = rest.split_at(SEGMENT_BYTES);
        if later.is_some() {
            let state = unsent::send_later(open, open.lock(), later, deadline_ns);
            drop(write_out::keep_to_window(open, state, deadline_ns));
        }
        make_room(open, deadline_ns);
        let _gate = open.length_gate.read();
        write_segment(open, segment, position, deadline_ns, later)?;
        position += segment.bytes().len() as u64;
        rest = tail;
    }
    if later.is_none() && write_out::caller_killed() { Err(left()) } else { Ok(()) }
}

/// One segment; the caller holds the length gate.
pub(super) fn write_segment(
    open: &OpenInode,
    payload: Payload<'_>,
    offset: u64,
    deadline_ns: u64,
    later: &mut Later<'_>,
) -> Result<()> {
    let bytes = payload.bytes();
    let end = offset + bytes.len() as u64;
    let mut state = open.lock();
    loop {
        let outgrown = end > INLINE_BYTES_MAX as u64;
        match state.placed.contents() {
            Contents::Moving => state = open.wait_turn(state),
            Contents::Inline(inline) if !outgrown && !inline.is_outgrown() => {
                if let Some(inline) = state.inline_mut() {
                    inline.write(bytes, offset as usize);
                }
                note_write(open, &mut state, offset, end);
                return Ok(());
            }
            Contents::Inline(_) => {
                drop(state);
                outgrow::outgrow(open, deadline_ns)?;
                state = open.lock();
            }
            Contents::Striped(layout) => {
                let layout = Arc::clone(layout);
                state.buffer.begin_writer();
                note_write(open, &mut state, offset, end);
                state.kept.note(offset, bytes, &open.core.kept);
                let mut state = stage_all(open, state, &layout, payload, offset, deadline_ns, later);
                state.buffer.end_writer();
                // Bytes read ahead meanwhile may be older than writes that have completed (race).
                state.write_count += 1;
                return Ok(());
            }
        }
    }
}

pub(super) fn note_write(open: &OpenInode, state: &mut InodeState, start: u64, end: u64) {
    state.note_extent(&(start..end));
    note_growth(open, state, start, end);
}

/// The file goes up to `end` by what was done at `start`, which is not written, and takes no space.
pub(super) fn note_growth(open: &OpenInode, state: &mut InodeState, start: u64, end: u64) {
    // What lies between takes no space, which the metadata service cannot know by itself.
    state.is_sparse |= start > state.size.next_multiple_of(BLOCK_BYTES as u64);
    state.size = state.size.max(end);
    state.write_count += 1;
    state.reports.wrote(end, open.core.context.wall_time());
}

fn stage_all<'a>(
    open: &'a OpenInode,
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
            state = unsent::send_later(open, state, later, deadline_ns);
            state = write_out::launch(open, state, transfer.start, deadline_ns);
        }
        let due = match shared {
            Some(bytes) => stage_complete(open, &mut state, Run::complete(bytes, position)),
            None => stage(open, &mut state, transfer, position, now.bytes()),
        };
        if let Some(start) = due {
            state = unsent::submit_or_enqueue(open, state, start, deadline_ns, later);
        }
        rest = tail;
        position += length;
    }
    state
}

/// A whole transfer, where the writer has it; returns what is to be sent.
fn stage_complete(open: &OpenInode, state: &mut InodeState, run: Run) -> Option<u64> {
    let start = run.range.start;
    open.core.dirty_bytes.fetch_add(run.memory_bytes(), Ordering::Relaxed);
    state.buffer.stage(run);
    Some(start)
}

/// Adds bytes of one transfer to its run, which they touch; returns what is to be sent: the start of a transfer.
fn stage(
    open: &OpenInode,
    state: &mut InodeState,
    transfer: Range<u64>,
    offset: u64,
    bytes: &[u8],
) -> Option<u64> {
    let started_ns = open.core.context.clock.now_ns();
    let run = state.buffer.staged_or(transfer.start, || {
        let length = (transfer.end - transfer.start) as usize;
        let buffer = open.core.staging.take_or(length, |length| open.core.data.send_buffer(length));
        open.core.dirty_bytes.fetch_add(buffer.len(), Ordering::Relaxed);
        Run::new(buffer, transfer.start, offset)
    });
    run.put(offset, bytes);
    let is_full = run.is_full();
    open.core.context.counters.accounts.charge(Cause::Compute, open.core.context.clock.now_ns() - started_ns);
    if is_full {
        return Some(transfer.start);
    }
    state.buffer.superfluous(transfer.start)
}

/// Waits until fewer bytes are dirty over all files than may be.
pub(super) fn make_room(open: &OpenInode, deadline_ns: u64) {
    while open.core.dirty_bytes.load(Ordering::Relaxed) > open.core.context.options.dirty_bytes_max
        && !write_out::caller_killed()
    {
        if write_out_oldest(open, deadline_ns) {
            continue;
        }
        let all = open.core.registry.all();
        if !all.iter().any(|inode| write_out_oldest(inode, deadline_ns)) {
            return;
        }
    }
}

/// Sends or awaits the oldest unwritten run; false when there is none.
fn write_out_oldest(open: &OpenInode, deadline_ns: u64) -> bool {
    let state = open.lock();
    if let Some(id) = state.buffer.flights().oldest() {
        drop(write_out::await_or_leave(open, state, id, deadline_ns));
        return true;
    }
    if let Some(start) = state.buffer.first_staged() {
        drop(write_out::launch(open, state, start, deadline_ns));
        return true;
    }
    false
}
