//! Write-back behind a writer: what is written in order is on its way to the disk while the rest arrives.
//!
//! The kernel by itself begins when a tenth of the memory is dirty or after half a minute, so that the disk idles while
//! a file is written and the fsync at its end waits for all of it. Nothing depends on what is done here: it changes
//! when bytes are written, not when they count as durable.

use crate::object::names::{self, Part};
use crate::targets::Target;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_disk::DiskFile;
use vazao_model::ObjectId;

/// Bytes of a chunk after which their write-back is started: a few large requests to the disk. Files of which a server
/// has less are left to the kernel: many are removed or written over before it comes to them.
const WRITE_BACK_BYTES: u64 = 4 << 20;

/// What was written to a chunk since its write-back was started last.
#[derive(Debug, Default)]
pub(crate) struct WriteBackTracker {
    range: Range<u64>,
    bytes: u64,
}

impl WriteBackTracker {
    /// Counts bytes written. Those that are scattered over the chunk are forgotten: they may be written over soon, and
    /// the disk would be given little requests.
    pub(crate) fn note(&mut self, range: Range<u64>) {
        let length = range.end - range.start;
        let all = match self.bytes {
            0 => range.clone(),
            _ => self.range.start.min(range.start)..self.range.end.max(range.end),
        };
        let is_scattered = all.end - all.start > 2 * (self.bytes + length).max(WRITE_BACK_BYTES / 2);
        (self.range, self.bytes) = if is_scattered { (range, length) } else { (all, self.bytes + length) };
    }

    /// The range to be written back, once there is enough of it.
    fn take_due(&mut self) -> Option<Range<u64>> {
        let is_due = self.bytes >= WRITE_BACK_BYTES;
        // The same few bytes over and over are left to the kernel, too.
        let taken = if is_due { std::mem::take(self).range } else { 0..0 };
        (taken.end - taken.start >= WRITE_BACK_BYTES / 2).then_some(taken)
    }
}

impl Target {
    /// Has the write-back of what is due started by another thread, as the disk may make it wait: one at a time, and
    /// not at all where nothing may wait.
    pub(crate) fn write_back(
        &self,
        id: ObjectId,
        chunk: u64,
        data: &Arc<dyn DiskFile>,
        behind: &mut WriteBackTracker,
    ) {
        let Some(lane) = self.waits.lane() else { return };
        if behind.bytes < WRITE_BACK_BYTES || self.is_writing_back.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_writing_back = Arc::clone(&self.is_writing_back);
        let Some(range) = behind.take_due() else {
            return is_writing_back.store(false, Ordering::Release);
        };
        let data = Arc::clone(data);
        tracing::trace!(file = %names::path(id, chunk, Part::Data), ?range, "write-back");
        let start = move || {
            data.start_write_back(range.start, range.end - range.start);
            is_writing_back.store(false, Ordering::Release);
        };
        // Where there is too much to do already it is left to the kernel.
        if !lane.run("the start of a write-back", start) {
            self.is_writing_back.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 256 * 1024;

    #[test]
    fn what_is_written_in_order_is_due_as_one_range_each_time_there_is_enough_of_it() {
        let mut behind = WriteBackTracker::default();
        let mut due = Vec::new();
        for step in 0..40 {
            // Two neighbours arrive in the wrong order.
            let at = (step ^ 1) * STEP;
            behind.note(at..at + STEP);
            due.extend(behind.take_due());
        }
        assert_eq!(due, [0..WRITE_BACK_BYTES, WRITE_BACK_BYTES..2 * WRITE_BACK_BYTES]);
    }

    #[test]
    fn what_is_scattered_is_never_due() {
        let mut behind = WriteBackTracker::default();
        for step in 0..1000u64 {
            let at = step * 7919 % 1000 * STEP;
            behind.note(at..at + 4096);
            assert_eq!(behind.take_due(), None);
        }
    }
}
