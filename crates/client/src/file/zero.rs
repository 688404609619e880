//! Zeroing a range: what is behind it goes away where it can, and is overwritten where it cannot.

use super::inode::OpenInode;
use crate::Result;
use crate::core::{locked, sole};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use vazao_model::Layout;

/// Bytes looked at and written at a time.
const STEP_BYTES: u64 = 1 << 20;

impl OpenInode {
    /// Makes `range` read as zeros, as far as it lies within the file. Up to the end of a striped file the objects are
    /// cut; elsewhere zeros are written over what is not zeros already, so that holes stay holes.
    pub(crate) fn zero(&self, range: Range<u64>) -> Result<()> {
        let _alone = sole(&self.length_gate);
        // The server's size counts: another client may have made the file longer than is known here.
        self.look_again(self.core.deadline_ns())?;
        let state = self.lock();
        let (size, layout) = (state.size, state.layout().cloned());
        drop(state);
        let end = range.end.min(size);
        match layout {
            _ if range.start >= end => Ok(()),
            Some(layout) if end == size => self.zero_tail(&layout, range.start),
            _ => self.overwrite_with_zeros(range.start..end),
        }
    }

    fn zero_tail(&self, layout: &Arc<Layout>, start: u64) -> Result<()> {
        let deadline_ns = self.core.deadline_ns();
        let _one = locked(&self.committing);
        self.write_out(deadline_ns);
        let mut state = self.lock();
        let slots = state.written_slots;
        state.unsynced_slots |= slots;
        drop(state);
        self.cut_objects(layout, slots, start, deadline_ns)?;
        let mut state = self.lock();
        state.losses.forgive(&(start..u64::MAX));
        state.write_count += 1;
        state.uncommitted.modified = Some(self.core.wall_time());
        Ok(())
    }

    fn overwrite_with_zeros(&self, range: Range<u64>) -> Result<()> {
        let mut buffer = vec![0; STEP_BYTES.min(range.end - range.start) as usize];
        let ahead = Mutex::default();
        let mut position = range.start;
        while position < range.end {
            // Each step has a deadline of its own, as a write of that many bytes would have.
            let deadline_ns = self.core.deadline_ns();
            let step = &mut buffer[..STEP_BYTES.min(range.end - position) as usize];
            // What cannot be read shall be zeros all the same.
            let is_zeros = self.read(&ahead, step, position).is_ok() && step.iter().all(|byte| *byte == 0);
            if !is_zeros {
                step.fill(0);
                self.make_room(deadline_ns);
                self.write_segment(step, position, deadline_ns)?;
            }
            position += step.len() as u64;
        }
        locked(&ahead).cancel();
        Ok(())
    }
}
