//! How much may still be written to a target, without asking the disk each time.

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use vazao_disk::{Disk, Space};

/// Smallest default reserve: what directories, sidecars and repairs need at most for a while.
const RESERVE_BYTES_MIN: u64 = 64 << 20;

/// Space of a target after its reserve.
pub(crate) struct Room {
    reserve_bytes: Option<u64>,
    /// As the disk last said, minus the reserve and what was taken since. A file's rewritten bytes count again, so the
    /// number is too small rather than too large until it is asked for anew.
    left_bytes: AtomicI64,
    /// The smallest growth refused since there was room for it; `u64::MAX` for none.
    refused_bytes: AtomicU64,
    full: AtomicBool,
    space: Mutex<Reported>,
}

/// What the disk last said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reported {
    /// Of its file system; what is available without the reserve.
    pub(crate) space: Space,
    /// What is left alone.
    pub(crate) reserve_bytes: u64,
}

impl Room {
    /// Asks the disk.
    pub(crate) fn new(disk: &dyn Disk, reserve_bytes: Option<u64>) -> io::Result<Room> {
        let room = Room {
            reserve_bytes,
            left_bytes: AtomicI64::new(0),
            refused_bytes: AtomicU64::new(u64::MAX),
            full: AtomicBool::new(false),
            space: Mutex::default(),
        };
        room.refresh(disk)?;
        Ok(room)
    }

    /// Asks the disk again.
    pub(crate) fn refresh(&self, disk: &dyn Disk) -> io::Result<()> {
        let space = disk.space()?;
        let default = RESERVE_BYTES_MIN.max(space.capacity_bytes / 100);
        let reserve = self.reserve_bytes.unwrap_or(default);
        let left = space.available_bytes.saturating_sub(reserve);
        self.left_bytes.store(i64::try_from(left).unwrap_or(i64::MAX), Ordering::Relaxed);
        if left >= self.refused_bytes.load(Ordering::Relaxed) {
            self.refused_bytes.store(u64::MAX, Ordering::Relaxed);
            self.full.store(false, Ordering::Relaxed);
        }
        let space = Space { available_bytes: left, ..space };
        let reported = Reported { space, reserve_bytes: reserve };
        *self.space.lock().unwrap_or_else(PoisonError::into_inner) = reported;
        Ok(())
    }

    /// Takes room for `bytes` more; false when only the reserve is left.
    pub(crate) fn take(&self, disk: &dyn Disk, bytes: u64) -> io::Result<bool> {
        let wanted = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.left_bytes.fetch_sub(wanted, Ordering::Relaxed) >= wanted {
            return Ok(true);
        }
        self.refresh(disk)?;
        if self.left_bytes.fetch_sub(wanted, Ordering::Relaxed) >= wanted {
            return Ok(true);
        }
        self.set_full(bytes);
        Ok(false)
    }

    /// Notes that growth by `bytes` was refused.
    pub(crate) fn set_full(&self, bytes: u64) {
        self.refused_bytes.fetch_min(bytes.max(1), Ordering::Relaxed);
        self.full.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is left but the reserve, or something was refused and there is still no room for it.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed) || self.reported().space.available_bytes == 0
    }

    /// What there is left, for people.
    pub(crate) fn why_full(&self) -> String {
        let Reported { space, reserve_bytes } = self.reported();
        match space.available_bytes {
            0 => format!("only the reserve of {} MiB is left of its file system", reserve_bytes >> 20),
            left => format!("{left} bytes of its file system are left, and {reserve_bytes} in reserve"),
        }
    }

    /// Space of the file system, and what is left of it after the reserve.
    pub(crate) fn reported(&self) -> Reported {
        *self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
