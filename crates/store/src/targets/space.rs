//! How much may still be written to a target, without asking the disk each time.

use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vazao_disk::{Disk, Space};

/// Smallest default reserve: what directories, sidecars and repairs need at most for a while.
const RESERVE_BYTES_MIN: u64 = 64 << 20;

/// Space of a target after its reserve.
pub(crate) struct Room {
    reserve_bytes: Option<u64>,
    /// Bytes that were ever taken room for. A file's rewritten bytes count again, so there is too little room rather
    /// than too much until the disk is asked anew.
    taken_bytes: AtomicU64,
    /// Of these, what has been written or given up, and what the disk says of its room counts in.
    settled_bytes: AtomicU64,
    /// Until so many are taken there is room, by what the disk last said.
    limit_bytes: AtomicU64,
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

/// Room for bytes that are about to be written; dropped when they are, or will not be.
#[must_use = "dropped at once it counts as written"]
pub(crate) struct Taken<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.room.settled_bytes.fetch_add(self.bytes, Ordering::SeqCst);
    }
}

impl Room {
    /// Asks the disk.
    pub(crate) fn new(disk: &dyn Disk, reserve_bytes: Option<u64>) -> io::Result<Room> {
        let room = Room {
            reserve_bytes,
            taken_bytes: AtomicU64::new(0),
            settled_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(0),
            refused_bytes: AtomicU64::new(u64::MAX),
            full: AtomicBool::new(false),
            space: Mutex::default(),
        };
        room.refresh(disk)?;
        Ok(room)
    }

    /// Asks the disk again.
    pub(crate) fn refresh(&self, disk: &dyn Disk) -> io::Result<()> {
        // Before the disk says it: of what is written meanwhile its answer may tell or not.
        let settled_bytes = self.settled_bytes.load(Ordering::SeqCst);
        let space = disk.space()?;
        let default = RESERVE_BYTES_MIN.max(space.capacity_bytes / 100);
        let reserve = self.reserve_bytes.unwrap_or(default);
        let left = space.available_bytes.saturating_sub(reserve);
        self.limit_bytes.store(settled_bytes.saturating_add(left), Ordering::SeqCst);
        if left >= self.refused_bytes.load(Ordering::Relaxed) {
            self.refused_bytes.store(u64::MAX, Ordering::Relaxed);
            self.full.store(false, Ordering::Relaxed);
        }
        let space = Space { available_bytes: left, ..space };
        let reported = Reported { space, reserve_bytes: reserve };
        *self.space.lock() = reported;
        Ok(())
    }

    /// Takes room for `bytes` more; `None` when only the reserve is left.
    pub(crate) fn take(&self, disk: &dyn Disk, bytes: u64) -> io::Result<Option<Taken<'_>>> {
        if let Some(taken) = self.try_take(bytes) {
            return Ok(Some(taken));
        }
        self.refresh(disk)?;
        let taken = self.try_take(bytes);
        if taken.is_none() {
            self.set_full(bytes);
        }
        Ok(taken)
    }

    /// The same by what the disk last said.
    pub(crate) fn try_take(&self, bytes: u64) -> Option<Taken<'_>> {
        let limit_bytes = self.limit_bytes.load(Ordering::SeqCst);
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= limit_bytes);
        self.taken_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Taken { room: self, bytes })
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
        *self.space.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_disk::MemoryDisk;

    #[test]
    fn what_is_about_to_be_written_is_not_room_for_others_however_often_the_disk_is_asked() {
        const CAPACITY: u64 = 1 << 20;
        let disk = MemoryDisk::new(1);
        disk.set_capacity(CAPACITY);
        let room = Room::new(&disk, Some(CAPACITY / 2)).expect("a disk");
        let half = room.take(&disk, CAPACITY / 4).expect("a disk").expect("room");
        room.refresh(&disk).expect("a disk");
        let rest = room.take(&disk, CAPACITY / 4).expect("a disk").expect("room");
        room.refresh(&disk).expect("a disk");
        assert!(room.take(&disk, 1).expect("a disk").is_none(), "nothing of it lies on the disk yet");
        assert!(room.is_full());
        drop(rest);
        // The disk still says the same: it was given up.
        let again = room.take(&disk, CAPACITY / 4).expect("a disk").expect("room");
        drop((half, again));
        room.refresh(&disk).expect("a disk");
        assert!(!room.is_full());
    }
}
