//! Room on the metadata disk: a reserve that only removals may use, and checkpoints that are known to fit.
//!
//! A log that cannot be written stops every change, those that would make room included. So growth is refused before.

use super::super::{EngineError, EngineResult};
use super::overlay::Overlay;
use super::{Core, NO_PANIC};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Kept for removals: at some 500 bytes each, more than a hundred thousand of them.
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// Of a small disk the reserve is this part.
const RESERVE_PART: u64 = 8;

/// The disk is asked this often, and after so many bytes of log.
const LOOK_EVERY_NS: u64 = 100_000_000;
const LOOK_EVERY_BYTES: u64 = 64 * 1024;

/// With little room, a checkpoint is written for the sake of the log's space when it is at least this.
pub(super) const WORTHWHILE_BYTES: u64 = 64 * 1024;

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

    /// There is little room and a checkpoint would fit.
    pub(super) fn would_help(&self) -> bool {
        self.would_help.load(Ordering::Relaxed)
    }
}

impl Core {
    /// True when a checkpoint of these changes cannot meet a full disk.
    pub(super) fn fits(&self, changes: &Overlay) -> bool {
        self.disk.space().map_or(true, |space| space.available_bytes >= self.checkpoint_bytes(changes))
    }

    /// More than a checkpoint of these changes writes: each page they touch and each value, twice.
    fn checkpoint_bytes(&self, changes: &Overlay) -> u64 {
        let pages = (changes.iter().count() as u64 * PAGES_BYTES).min(self.base.allocated_bytes());
        let live: usize = changes.iter().filter_map(|(key, value)| Some(key.len() + value?.len())).sum();
        2 * pages + 4 * live as u64 + CHECKPOINT_BYTES_MIN
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
        let reserve_bytes = RESERVE_BYTES_MAX.min(space.capacity_bytes / RESERVE_PART);
        let frozen = self.state().frozen.clone();
        let is_stuck = frozen.as_ref().is_some_and(|frozen| !self.fits(frozen));
        let low = space.available_bytes < reserve_bytes || is_stuck;
        if low {
            *watch.refusal.lock().expect(NO_PANIC) = format!(
                "the metadata disk has {} KiB left, {} KiB are kept for removals and checkpoints: remove files, or make \
                 room on the disk of the metadata directory",
                space.available_bytes / 1024,
                reserve_bytes / 1024
            );
        }
        watch.would_help.store(low && frozen.is_none() && self.fits(&self.state().active), Ordering::Relaxed);
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
                    "the metadata disk is full ({what}): make room on the disk of the metadata directory"
                );
                Err(EngineError::Full(text))
            }
            other => other,
        }
    }
}
