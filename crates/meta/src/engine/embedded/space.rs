//! Room on the metadata disk: a reserve that only removals may use, and checkpoints that are known to fit.
//!
//! A log that cannot be written stops every change, those that would make room included. So growth is refused before.

use super::super::{EngineError, EngineResult};
use super::base::Pending;
use super::overlay::Overlay;
use super::{Core, NO_PANIC};
use std::iter::Peekable;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Kept for removals. They go on without end in it: the log takes some of them, a checkpoint frees the log, and a
/// checkpoint that does not fit as a whole is written in slices.
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// The least reserve: some logs of [`WORTHWHILE_BYTES`], and slices of a few changes beside them.
const RESERVE_BYTES_MIN: u64 = 1 << 20;

/// Of a small disk the reserve is this part.
const RESERVE_PART: u64 = 8;

/// The disk is asked this often, and after so many bytes of log.
const LOOK_EVERY_NS: u64 = 100_000_000;
const LOOK_EVERY_BYTES: u64 = 64 * 1024;

/// Where room is short, a checkpoint is written for the sake of the log's space when it is at least this.
pub(super) const WORTHWHILE_BYTES: u64 = 64 * 1024;

/// With little room, commits wait for a checkpoint that is under way when this much has changed since it began.
pub(super) const LOW_OVERLAY_BYTES_MAX: usize = 256 * 1024;

/// Of the room that is left a slice of a checkpoint takes this part.
const SLICE_PART: u64 = 4;

/// What a checkpoint leaves to the log that grows meanwhile.
const LOG_SHARE_BYTES: u64 = 192 * 1024;

/// A changed key costs the checkpoint at most two pages, and a checkpoint at least a few.
const PAGES_BYTES: u64 = 2 * 4096;
const CHECKPOINT_BYTES_MIN: u64 = 256 * 1024;

/// What is known of the room.
#[derive(Debug, Default)]
pub(super) struct Watch {
    low: AtomicBool,
    would_help: AtomicBool,
    looked_ns: AtomicU64,
    looked_bytes: AtomicU64,
    /// The message of a refusal.
    refusal: Mutex<String>,
}

impl Watch {
    pub(super) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Room is getting short and a checkpoint would fit.
    pub(super) fn would_help(&self) -> bool {
        self.would_help.load(Ordering::Relaxed)
    }
}

/// Bytes that the change of one key may need in the checkpoint: the pages it touches and its value, twice.
fn change_bytes((key, value): &Pending<'_>) -> u64 {
    2 * PAGES_BYTES + 4 * (key.len() + value.map_or(0, <[u8]>::len)) as u64
}

impl Core {
    /// True when a checkpoint of these changes cannot meet a full disk, be it slice by slice.
    pub(super) fn fits(&self, changes: &Overlay) -> bool {
        let Some(room) = self.room_for_changes(changes) else { return true };
        changes.iter().map(|change| change_bytes(&change)).max().is_none_or(|most| most <= room)
    }

    /// Room for the changes of one transaction of the checkpoint; `None` when it is enough for all of `changes`, or the
    /// disk cannot tell.
    pub(super) fn room_for_changes(&self, changes: &Overlay) -> Option<u64> {
        let available = self.disk.space().ok()?.available_bytes;
        (available < self.checkpoint_bytes(changes)).then(|| self.room_for_slice())
    }

    /// The next changes of a checkpoint in several transactions; none when there is too little room for one. A slice
    /// takes a part of the room only: the pages it frees are used again by the one after the next.
    pub(super) fn next_slice<'a>(
        &self,
        changes: &mut Peekable<impl Iterator<Item = Pending<'a>>>,
    ) -> Vec<Pending<'a>> {
        let room = self.room_for_slice();
        let first = changes.next_if(|next| change_bytes(next) <= room);
        let mut left = (room / SLICE_PART).saturating_sub(first.as_ref().map_or(room, change_bytes));
        let mut taken: Vec<Pending<'a>> = first.into_iter().collect();
        while let Some(next) = changes.next_if(|next| change_bytes(next) <= left) {
            left -= change_bytes(&next);
            taken.push(next);
        }
        taken
    }

    /// Room for all that a checkpoint in several transactions adds.
    fn room_for_slice(&self) -> u64 {
        let available = self.disk.space().map_or(u64::MAX, |space| space.available_bytes);
        available.saturating_sub(CHECKPOINT_BYTES_MIN + LOG_SHARE_BYTES)
    }

    /// More than a checkpoint of these changes writes: each page they touch and each value, twice.
    fn checkpoint_bytes(&self, changes: &Overlay) -> u64 {
        let pages = (changes.count() as u64 * PAGES_BYTES).min(self.base.allocated_bytes());
        2 * pages + 4 * changes.bytes() as u64 + CHECKPOINT_BYTES_MIN
    }

    /// Looks when enough time has passed or enough has been written since the last time.
    pub(super) fn look_at_space_in_time(&self) {
        let (now_ns, bytes) = (self.clock.now_ns(), self.log_bytes.load(Ordering::Relaxed));
        let since = |last: &AtomicU64, now: u64| now.saturating_sub(last.load(Ordering::Relaxed));
        if since(&self.watch.looked_ns, now_ns) >= LOOK_EVERY_NS
            || since(&self.watch.looked_bytes, bytes) >= LOOK_EVERY_BYTES
        {
            self.look_at_space();
        }
    }

    /// Asks the disk for its room. One that cannot tell is taken for spacious.
    pub(super) fn look_at_space(&self) {
        let watch = &self.watch;
        watch.looked_ns.store(self.clock.now_ns(), Ordering::Relaxed);
        watch.looked_bytes.store(self.log_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        let Ok(space) = self.disk.space() else { return };
        let reserve_bytes = (space.capacity_bytes / RESERVE_PART).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
        let frozen = self.state().frozen.clone();
        let is_stuck = frozen.as_ref().is_some_and(|frozen| !self.fits(frozen));
        let needed = self.checkpoint_bytes(&self.state().active);
        // What is in the log alone must always find room in the checkpoint, or the log could never be freed.
        let is_short = frozen.is_none() && space.available_bytes < needed.saturating_add(LOG_SHARE_BYTES);
        let low = space.available_bytes < reserve_bytes || is_stuck || is_short;
        if low {
            *watch.refusal.lock().expect(NO_PANIC) = format!(
                "the metadata disk has {} KiB left, {} KiB are kept for removals and checkpoints: remove files, or make \
                 room on the disk of the metadata directory",
                space.available_bytes / 1024,
                reserve_bytes / 1024
            );
        }
        // In good time, so that nothing has to be refused while there is room once the log is freed.
        let tight = low || space.available_bytes < reserve_bytes.saturating_add(2 * needed);
        let would_help = tight && frozen.is_none() && self.fits(&self.state().active);
        watch.would_help.store(would_help, Ordering::Relaxed);
        if watch.low.swap(low, Ordering::Relaxed) != low {
            let kib = space.available_bytes / 1024;
            if low {
                tracing::warn!(
                    available_kib = kib,
                    "the metadata disk is nearly full: only removals are accepted"
                );
            } else {
                tracing::info!(available_kib = kib, "the metadata disk has room again");
            }
        }
        if frozen.is_some() && !is_stuck {
            self.threads.wake_checkpointer();
        }
    }

    /// Fails while only the reserve is left.
    pub(super) fn room(&self) -> EngineResult<()> {
        if self.watch.is_low() {
            self.look_at_space();
        }
        if self.watch.is_low() {
            // The log may hold what a checkpoint frees: only when that does not help there is no room.
            self.free_log()?;
            self.look_at_space();
        }
        if !self.watch.is_low() {
            return Ok(());
        }
        Err(EngineError::Full(self.watch.refusal.lock().expect(NO_PANIC).clone()))
    }

    /// Fails while the log cannot be written, after another attempt.
    pub(super) fn writable(&self) -> EngineResult<()> {
        if !self.log_failing.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.write_log() {
            Err(EngineError::Io { what, source }) if source.kind() == std::io::ErrorKind::StorageFull => {
                let text = format!(
                    "the metadata disk is full ({what}): remove files of others from the disk of the metadata directory, \
                     or enlarge it"
                );
                Err(EngineError::Full(text))
            }
            other => other,
        }
    }
}
