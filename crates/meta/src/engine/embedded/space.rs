//! Room on the metadata disk: a reserve that only removals may use, and checkpoints that are known to fit.
//!
//! A log that cannot be written stops every change, those that would make room included. So growth is refused before
//! that.
//!
//! Why removals always succeed, as long as no other program takes the room:
//!
//! - The log is freed by checkpoints, so a checkpoint must always get on. One slice of it needs [`SLICE_BYTES_MIN`]. It
//!   takes new pages only while free ones are lacking, and after three slices there are as many as one takes.
//!   So [`SLICES_BYTES`] are taken once, and not again and again.
//! - Slices do not need more room in the end than they began with, except for new values. Growth is accepted only while
//!   there is room beyond the reserve for all values that are in the log alone. Removals come first, and values use the
//!   pages that they gave back.
//! - In the reserve the log grows by twice [`LOW_LOG_BYTES_MAX`] at most: to that size while one checkpoint is written,
//!   and again during the next, which frees the first. Then commits wait.
//! - A checkpoint in one transaction leaves [`KEPT_BYTES`], which is all this.
//! - Between two looks at the disk there may be accepted [`LOOK_EVERY_BYTES`] of log, and four times that in the
//!   checkpoint. With them it is the least reserve.

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

/// The least reserve.
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

/// And when the log has grown to this since.
pub(super) const LOW_LOG_BYTES_MAX: u64 = 128 * 1024;

/// Of the room that is left a slice takes this part at most, by an estimate that is several times too high.
const SLICE_PART: u64 = 8;

/// The same when slices take less than this part of the estimate, because they use pages that are free.
const SLICE_PART_MIN: u64 = 2;
const SLICE_TAKES_PART: u64 = 8;

/// No slice of a checkpoint is begun with less room.
const SLICE_BYTES_MIN: u64 = 256 * 1024;

/// What the first slices of a few changes take, until the pages that they free are used again.
const SLICES_BYTES: u64 = 192 * 1024;

/// What a checkpoint in one transaction leaves.
const KEPT_BYTES: u64 = SLICE_BYTES_MIN + SLICES_BYTES + 2 * LOW_LOG_BYTES_MAX;

/// A value takes this many times its bytes at most: in pages that are half full, of a number that is a power of two.
const GROWTH: u64 = 4;

const _: () = assert!(KEPT_BYTES + (1 + GROWTH) * LOOK_EVERY_BYTES <= RESERVE_BYTES_MIN);

/// A changed key costs the checkpoint at most two pages, and a checkpoint at least a few.
const PAGES_BYTES: u64 = 2 * 4096;
const CHECKPOINT_BYTES_MIN: u64 = 256 * 1024;

/// What is known of the room.
#[derive(Debug, Default)]
pub(super) struct Watch {
    low: AtomicBool,
    tight: AtomicBool,
    would_help: AtomicBool,
    short: AtomicBool,
    looked_ns: AtomicU64,
    looked_bytes: AtomicU64,
    /// The message of a refusal.
    refusal: Mutex<String>,
}

impl Watch {
    pub(super) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// It will soon be low: nothing may take room that is not needed.
    pub(super) fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed)
    }

    /// Only the changes since the last checkpoint want the room that there is beyond the reserve.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Room is getting short and a checkpoint would fit.
    pub(super) fn would_help(&self) -> bool {
        self.would_help.load(Ordering::Relaxed)
    }
}

/// Bytes that the change of one key may need in the checkpoint: the pages it touches and its value, twice.
fn change_bytes((key, value): &Pending<'_>) -> u64 {
    2 * PAGES_BYTES + GROWTH * (key.len() + value.map_or(0, <[u8]>::len)) as u64
}

/// Bytes by which these changes may make the checkpoint larger for good.
fn growth_bytes(changes: &Overlay) -> u64 {
    GROWTH * changes.bytes() as u64
}

/// How large the slices of a checkpoint may be, by what the last one took.
#[derive(Debug)]
pub(super) struct Pace {
    part: u64,
    estimate: u64,
    available: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { part: SLICE_PART, estimate: 0, available: 0 }
    }
}

impl Pace {
    /// The part of the room for the next slice.
    fn next_part(&mut self, available: u64) -> u64 {
        let took = self.available.saturating_sub(available);
        self.part = match self.estimate > 0 && took <= self.estimate / SLICE_TAKES_PART {
            true => (self.part / 2).max(SLICE_PART_MIN),
            false => SLICE_PART,
        };
        self.available = available;
        self.part
    }
}

impl Core {
    /// Room on the disk; a disk that cannot report it counts as spacious.
    pub(super) fn available_bytes(&self) -> u64 {
        self.disk.space().map_or(u64::MAX, |space| space.available_bytes)
    }

    /// True when a checkpoint of these changes cannot meet a full disk, be it slice by slice.
    pub(super) fn fits(&self, changes: &Overlay) -> bool {
        if self.must_rebuild() {
            let needed = self.rebuild_bytes().saturating_add(growth_bytes(changes));
            return self.may_rebuild() && self.available_bytes() >= needed;
        }
        let room = self.available_bytes().saturating_sub(SLICE_BYTES_MIN);
        self.fits_at_once(changes)
            || changes.iter().map(|change| change_bytes(&change)).max().is_none_or(|most| most <= room)
    }

    /// True when there is room for a checkpoint of all these changes in one transaction.
    pub(super) fn fits_at_once(&self, changes: &Overlay) -> bool {
        self.available_bytes() >= self.checkpoint_bytes(changes).saturating_add(KEPT_BYTES)
    }

    /// The next changes of a checkpoint in several transactions; none when there is too little room for one. A slice
    /// takes a part of the room only: the pages it frees are used again by the one after the next.
    pub(super) fn next_slice<'a>(
        &self,
        changes: &mut Peekable<impl Iterator<Item = Pending<'a>>>,
        pace: &mut Pace,
    ) -> Vec<Pending<'a>> {
        let available = self.available_bytes();
        let room = available.saturating_sub(SLICE_BYTES_MIN);
        let limit = room / pace.next_part(available);
        let mut taken = Vec::new();
        pace.estimate = 0;
        while let Some(next) = changes.next_if(|next| {
            let bytes = change_bytes(next);
            pace.estimate + bytes <= limit || pace.estimate == 0 && bytes <= room
        }) {
            pace.estimate += change_bytes(&next);
            taken.push(next);
        }
        taken
    }

    /// More than a checkpoint of these changes writes: each page they touch and each value, twice.
    fn checkpoint_bytes(&self, changes: &Overlay) -> u64 {
        let pages = (changes.count() as u64 * PAGES_BYTES).min(self.base().allocated_bytes());
        2 * pages + growth_bytes(changes) + CHECKPOINT_BYTES_MIN
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

    /// Asks the disk for its room. A disk that cannot report it counts as spacious.
    pub(super) fn look_at_space(&self) {
        let watch = &self.watch;
        watch.looked_ns.store(self.clock.now_ns(), Ordering::Relaxed);
        watch.looked_bytes.store(self.log_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        let Ok(space) = self.disk.space() else { return };
        let reserve_bytes = (space.capacity_bytes / RESERVE_PART).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
        let frozen = self.state().frozen.clone();
        let is_stuck = frozen.as_ref().is_some_and(|frozen| !self.fits(frozen));
        // What is in the log alone must always find room in the checkpoint, or the log could never be freed.
        let growth =
            frozen.as_ref().map_or(0, |frozen| growth_bytes(frozen)) + growth_bytes(&self.state().active);
        let is_full = space.available_bytes < reserve_bytes;
        let is_short = !is_full && space.available_bytes < reserve_bytes + growth;
        watch.short.store(is_short, Ordering::Relaxed);
        let low = is_full || is_short || is_stuck;
        if low {
            *watch.refusal.lock().expect(NO_PANIC) = self.refusal(space.available_bytes, reserve_bytes);
        }
        // In good time, so that nothing has to be refused while there is room once the log is freed.
        let needed = growth + self.checkpoint_bytes(&self.state().active);
        let tight = low || space.available_bytes < reserve_bytes.saturating_add(2 * needed);
        watch.tight.store(tight, Ordering::Relaxed);
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

    fn refusal(&self, available_bytes: u64, reserve_bytes: u64) -> String {
        let left = available_bytes / 1024;
        if self.must_rebuild() {
            if let Some(why) = self.keeping.why() {
                return why;
            }
            let needed = self.rebuild_bytes() / 1024;
            return format!(
                "the metadata's checkpoint is damaged and has to be written anew, which needs {needed} KiB; the metadata \
                 disk has {left} KiB left: make room on the disk of the metadata directory"
            );
        }
        format!(
            "the metadata disk has {left} KiB left, {} KiB are kept for removals and checkpoints: remove files, or make \
             room on the disk of the metadata directory",
            reserve_bytes / 1024
        )
    }

    /// Fails while only the reserve is left.
    pub(super) fn room(&self) -> EngineResult<()> {
        if self.watch.is_low() {
            self.look_at_space();
        }
        if self.watch.is_low() {
            // The log may hold what a checkpoint frees: only when that does not help there is no room.
            self.free_log(false)?;
            self.look_at_space();
        }
        if !self.watch.is_low() {
            return Ok(());
        }
        Err(EngineError::Full(self.watch.refusal.lock().expect(NO_PANIC).clone()))
    }

    /// Where room is short: gives back what log and checkpoint do not need. Once a second at most, for a checkpoint of
    /// few changes costs as much as one of many.
    pub(super) fn make_room(&self) -> EngineResult<()> {
        if !self.watch.is_low() {
            return Ok(());
        }
        self.free_log(true)?;
        self.compact_if_short()
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
