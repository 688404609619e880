//! Zeroing a range: what is behind it goes away, so that the range reads as zeros and takes no space.

use super::inode::{InodeState, OpenInode};
use super::layout_state::Contents;
use crate::Result;
use parking_lot::MutexGuard;
use std::ops::Range;
use std::sync::Arc;
use vazao_model::Layout;
use vazao_wire::{op, proto};

impl OpenInode {
    /// Makes `range` read as zeros, as far as it lies within the file.
    pub(crate) fn zero(&self, range: Range<u64>) -> Result<()> {
        let deadline_ns = self.core.context.deadline_ns();
        let _alone = self.length_gate.write();
        self.until_converted(deadline_ns, |lost| self.zero_alone(&range, lost, deadline_ns))
    }

    /// The caller keeps all writers out. `lost`: see [`OpenInode::until_converted`].
    fn zero_alone(&self, range: &Range<u64>, lost: Option<u32>, deadline_ns: u64) -> Result<()> {
        // The server's size counts: another client may have made the file longer than is known here.
        self.look_again(deadline_ns)?;
        self.adopt_alone(deadline_ns);
        let mut state = self.lock();
        let range = range.start..range.end.min(state.size);
        if range.is_empty() {
            return Ok(());
        }
        loop {
            match state.placed.contents() {
                Contents::Inline(inline) if inline.is_outgrown() => {
                    drop(state);
                    self.outgrow(deadline_ns)?;
                    state = self.lock();
                }
                Contents::Inline(_) => {
                    self.zero_inline(state, &range);
                    return Ok(());
                }
                Contents::Moving => state = self.wait_turn(state),
                Contents::Striped(layout) => {
                    let layout = Arc::clone(layout);
                    drop(state);
                    return self.zero_objects(&layout, &range, lost, deadline_ns);
                }
            }
        }
    }

    fn zero_inline(&self, mut state: MutexGuard<'_, InodeState>, range: &Range<u64>) {
        if let Some(inline) = state.inline_mut() {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            inline.zero(place(range.start)..place(range.end));
        }
        self.note_zeroed(&mut state);
    }

    fn zero_objects(
        &self,
        layout: &Arc<Layout>,
        range: &Range<u64>,
        lost: Option<u32>,
        deadline_ns: u64,
    ) -> Result<()> {
        let _one = self.committing.take();
        self.write_out(deadline_ns);
        let mut state = self.lock();
        let (slots, size) = (state.placed.slots(), state.size);
        state.sync.touch(slots);
        drop(state);
        if range.end >= size {
            // The objects may be cut: beyond their ends everything reads as zeros.
            self.cut_objects(layout, slots, range, lost, deadline_ns)?;
        } else {
            self.punch_objects(layout, slots, range, lost, deadline_ns)?;
        }
        let mut state = self.lock();
        state.sync.mend(range);
        state.is_sparse = true;
        self.note_zeroed(&mut state);
        Ok(())
    }

    fn note_zeroed(&self, state: &mut InodeState) {
        state.write_count += 1;
        state.reports.changed(self.core.context.wall_time());
    }

    /// What of a file range lies in one object is a range there, too.
    fn punch_objects(
        &self,
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
            let request =
                proto::PunchObjectRequest { object: Some(object), offset: start, length, must_exist };
            (length > 0).then_some(request)
        };
        let boot = |response: proto::PunchObjectResponse| response.boot;
        self.change_objects::<op::PunchObject>(layout, (slots, range), &punch, &boot, deadline_ns)
    }
}
