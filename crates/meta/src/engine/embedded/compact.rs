//! Giving back to the disk what the checkpoint's file does not use any more.
//!
//! redb uses pages again that came free, but its file keeps them: on a disk that such pages fill there would be no
//! room for a log any more, and no end of the refusals. So where only removals are accepted and at least a third of the
//! file is free, what is in use is moved to its front and the rest cut off. redb wants the file for itself meanwhile,
//! with no older view of it being read. All requests wait for that, so only little may have to be moved.

use super::super::{EngineError, EngineResult};
use super::base::View;
use super::{Core, NO_PANIC, READERS_PAUSES};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes in use that are moved while all requests wait.
const MOVED_BYTES_MAX: u64 = 64 << 20;

/// Of more records than this it is not even found out how many bytes they take: a record is seldom smaller.
const RECORDS_MAX: u64 = MOVED_BYTES_MAX / 256;

/// Less is not worth the pause.
const GAIN_BYTES_MIN: u64 = 256 * 1024;

/// Room for what is written beside pages of the file: a directory entry, the end of the log.
const ROOM_BYTES_MIN: u64 = 32 * 1024;

/// Finding out takes at most this part of the time.
const LOOK_PART: u64 = 20;

/// But it is not put off longer: it may have taken long because others had the processors.
const LOOK_PAUSE_NS_MAX: u64 = 10_000_000_000;

/// When it was last found out whether compaction would help.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Checkpoints by then, and one more: without another one nothing is different.
    checkpoints: AtomicU64,
    not_before_ns: AtomicU64,
}

impl Core {
    /// Makes the checkpoint's file smaller where room is short and that may help.
    pub(super) fn compact_if_short(&self) -> EngineResult<()> {
        if !self.watch.is_low() || self.must_rebuild() {
            return Ok(());
        }
        let _turn = self.checkpoint_turn.lock().expect(NO_PANIC);
        self.check()?;
        if self.is_worth_compacting()? {
            self.compact()?;
            self.look_at_space();
            if self.watch.is_low() {
                // It may have gained less than there is to gain, and without growth no checkpoint will follow.
                self.looked.checkpoints.store(0, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn is_worth_compacting(&self) -> EngineResult<bool> {
        let (checkpoints, started_ns) = (self.checkpoints.load(Ordering::Relaxed) + 1, self.clock.now_ns());
        if self.looked.checkpoints.load(Ordering::Relaxed) == checkpoints
            || started_ns < self.looked.not_before_ns.load(Ordering::Relaxed)
        {
            return Ok(false);
        }
        self.looked.checkpoints.store(checkpoints, Ordering::Relaxed);
        let view = Arc::clone(&self.state().base);
        if view.records_count()? > RECORDS_MAX {
            return Ok(false);
        }
        drop(view);
        let used = match self.base().used_bytes() {
            Err(error @ EngineError::Corrupt(_)) => {
                self.note_unwritable(&error);
                return Ok(false);
            }
            other => other?,
        };
        let ended_ns = self.clock.now_ns();
        let pause_ns = (LOOK_PART * ended_ns.saturating_sub(started_ns)).min(LOOK_PAUSE_NS_MAX);
        let not_before_ns = ended_ns.saturating_add(pause_ns);
        self.looked.not_before_ns.store(not_before_ns, Ordering::Relaxed);
        let base = self.base();
        let (allocated, holes) = (base.allocated_bytes(), base.hole_bytes());
        // Moved pages take the place of free ones; only where such a one is a hole the disk has to give something.
        let room = holes.min(2 * used) + ROOM_BYTES_MIN;
        let is_gain =
            used <= MOVED_BYTES_MAX && allocated.saturating_sub(used) >= (used / 2).max(GAIN_BYTES_MIN);
        let has_room = self.available_bytes() >= room;
        if is_gain && !has_room {
            // Room may come without a checkpoint.
            self.looked.checkpoints.store(0, Ordering::Relaxed);
        }
        Ok(is_gain && has_room)
    }

    /// No other thread may be writing a checkpoint.
    fn compact(&self) -> EngineResult<()> {
        let base = self.base();
        let (started_ns, before) = (self.clock.now_ns(), base.allocated_bytes());
        let mut state = self.state_to_change();
        let is_reading = || Arc::strong_count(&state.base) > 1 || self.is_former_read();
        if !self.wait_for_readers(READERS_PAUSES, is_reading) {
            self.looked.checkpoints.store(0, Ordering::Relaxed);
            return Ok(());
        }
        state.base = Arc::new(View::closed(state.base.applied));
        let compacted = base.compact();
        if let Err(error) = &compacted {
            self.note_unwritable(error);
        }
        // Ended by damage it leaves a whole checkpoint, and the next one is a new file.
        let view = base.view().inspect_err(|error| self.fail(error))?;
        state.base = Arc::new(view);
        drop(state);
        let is_done = matches!(compacted, Ok(true));
        if !is_done {
            self.looked.checkpoints.store(0, Ordering::Relaxed);
            return Ok(());
        }
        tracing::info!(
            before_kib = before / 1024,
            after_kib = base.allocated_bytes() / 1024,
            pause_ms = self.clock.now_ns().saturating_sub(started_ns) / 1_000_000,
            "the checkpoint gave back what it did not use; requests waited meanwhile"
        );
        Ok(())
    }
}
