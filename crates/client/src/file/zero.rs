//! Zeroing a range: what is behind it goes away, so that the range reads as zeros and takes no space.

use super::inode::{InodeState, OpenInode};
use super::layout_state::Contents;
use super::{length, look, moved, outgrow, write_out};
use crate::Result;
use parking_lot::MutexGuard;
use std::ops::Range;
use std::sync::Arc;
use vazao_model::Layout;
use vazao_wire::{op, proto};

/// Makes `range` read as zeros, as far as it lies within the file.
pub(crate) fn zero(open: &OpenInode, range: Range<u64>) -> Result<()> {
    let deadline_ns = open.core.context.deadline_ns();
    let _alone = open.length_gate.write();
    moved::until_converted(open, deadline_ns, |lost| zero_alone(open, &range, lost, deadline_ns))
}

/// The caller keeps all writers out. `lost`: see [`moved::until_converted`].
fn zero_alone(open: &OpenInode, range: &Range<u64>, lost: Option<u32>, deadline_ns: u64) -> Result<()> {
    // The server's size counts: another client may have made the file longer than is known here.
    look::look_again(open, deadline_ns)?;
    moved::adopt_alone(open, deadline_ns);
    let mut state = open.lock();
    let range = range.start..range.end.min(state.size);
    if range.is_empty() {
        return Ok(());
    }
    loop {
        match state.placed.contents() {
            Contents::Inline(inline) if inline.is_outgrown() => {
                drop(state);
                outgrow::outgrow(open, deadline_ns)?;
                state = open.lock();
            }
            Contents::Inline(_) => {
                zero_inline(open, state, &range);
                return Ok(());
            }
            Contents::Moving => state = open.wait_turn(state),
            Contents::Striped(layout) => {
                let layout = Arc::clone(layout);
                drop(state);
                return zero_objects(open, &layout, &range, lost, deadline_ns);
            }
        }
    }
}

fn zero_inline(open: &OpenInode, mut state: MutexGuard<'_, InodeState>, range: &Range<u64>) {
    if let Some(inline) = state.inline_mut() {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        inline.zero(place(range.start)..place(range.end));
    }
    note_zeroed(open, &mut state);
}

fn zero_objects(
    open: &OpenInode,
    layout: &Arc<Layout>,
    range: &Range<u64>,
    lost: Option<u32>,
    deadline_ns: u64,
) -> Result<()> {
    let _one = open.committing.take();
    write_out::write_out(open, deadline_ns);
    let mut state = open.lock();
    let (slots, size) = (state.placed.slots(), state.size);
    state.sync.touch(slots);
    drop(state);
    if range.end >= size {
        // The objects may be cut: beyond their ends everything reads as zeros.
        length::cut_objects(open, layout, slots, range, lost, deadline_ns)?;
    } else {
        punch_objects(open, layout, slots, range, lost, deadline_ns)?;
    }
    let mut state = open.lock();
    state.sync.mend(range);
    state.is_sparse = true;
    note_zeroed(open, &mut state);
    Ok(())
}

fn note_zeroed(open: &OpenInode, state: &mut InodeState) {
    state.write_count += 1;
    state.reports.changed(open.core.context.wall_time());
    state.kept.note_missing();
}

/// What of a file range lies in one object is a range there, too.
fn punch_objects(
    open: &OpenInode,
    layout: &Arc<Layout>,
    slots: u64,
    range: &Range<u64>,
    lost: Option<u32>,
    deadline_ns: u64,
) -> Result<()> {
    let width = layout.width();
    let must_exist = lost != Some(layout.generation);
    let punch = |slot, object| {
        let start = layout.distribution.object_length(slot, range.start, width);
        let end = layout.distribution.object_length(slot, range.end, width);
        let length = end.saturating_sub(start);
        let request = proto::PunchObjectRequest { object: Some(object), offset: start, length, must_exist };
        (length > 0).then_some(request)
    };
    let boot = |response: proto::PunchObjectResponse| response.boot;
    length::change_objects::<op::PunchObject>(open, layout, (slots, range), &punch, &boot, deadline_ns)
}
