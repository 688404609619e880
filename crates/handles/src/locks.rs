//! Byte-range locks of an open file, as those of open file descriptions in fcntl(2).
//!
//! The owner of a lock is the open file, not its process: two of one process exclude each other, and any of its threads
//! may let go. Locks of mounts (fcntl(2)) and of other clients are in the same table of the metadata service.

use crate::file::{File, Opened, not_open_for};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vazao_client::{Client, Error, LockPlace, Obstacle, Result};
use vazao_model::Code;
use vazao_model::locks::{LockKind, LockMode, LockRange};

/// The last byte that a lock can have. Beyond it the kernel of a mount could not show it.
const LAST: u64 = i64::MAX as u64;

/// What an open file has to do with locks.
///
/// - `owner` is empty until the first lock is asked for: files without locks pay nothing.
/// - `is_closing` is set before the file's lock is taken for writing: waiters hold that for reading, and give up then.
#[derive(Default, Debug)]
pub(crate) struct FileLocks {
    owner: OnceLock<u64>,
    pub(crate) is_closing: AtomicBool,
}

/// Bytes of a file to be locked; 0 bytes: to its end, however far that moves. Errors: `TooLarge`.
pub fn lock_range(offset: u64, bytes: u64) -> Result<LockRange> {
    let last = if bytes == 0 { Some(LAST) } else { offset.checked_add(bytes - 1) };
    match last {
        Some(last) if last <= LAST && offset <= last => Ok(LockRange { first: offset, last }),
        _ => Err(Error::new(Code::TooLarge, format!("a lock of {bytes} bytes from {offset}"))),
    }
}

/// Offset and bytes of what is locked, as [`lock_range`] takes them.
pub fn locked_bytes(range: LockRange) -> (u64, u64) {
    let is_open = range.last >= LAST;
    (range.first, if is_open { 0 } else { range.last.saturating_sub(range.first).saturating_add(1) })
}

impl File {
    /// Where its locks are; `None` as long as there were none.
    fn lock_place(&self, file: &vazao_client::File) -> Option<LockPlace> {
        let owner = *self.locks.owner.get()?;
        Some(LockPlace { inode: file.inode(), kind: LockKind::Range, owner })
    }

    fn new_lock_place(&self, client: &Client, file: &vazao_client::File) -> LockPlace {
        let owner = *self.locks.owner.get_or_init(|| client.locks().new_owner());
        LockPlace { inode: file.inode(), kind: LockKind::Range, owner }
    }

    /// Locks a range, in whatever way it was locked through this file before. Waits for others for `wait`;
    /// [`Duration::MAX`]: as long as it takes. What others wrote under their locks is seen afterwards. Errors:
    /// `Locked`, `Deadlock`, `NoLocks`; `BadHandle` where the file is not open for that, or is closed meanwhile.
    pub fn lock(&self, range: LockRange, mode: LockMode, wait: Duration) -> Result<()> {
        self.on(|open| {
            self.check_lock_mode(mode)?;
            let (client, file) = (self.connection().client()?, open.volume()?);
            let clock = vazao_meter::clock::system();
            let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
            let until_ns = clock.now_ns().saturating_add(wait_ns);
            let is_ending = || self.locks.is_closing.load(Ordering::SeqCst) || self.connection().is_closed();
            let give_up = || is_ending() || clock.now_ns() >= until_ns;
            let give_up = (!wait.is_zero()).then_some(&give_up as &dyn Fn() -> bool);
            let place = self.new_lock_place(client, file);
            match client.lock(place, range, mode, std::process::id(), give_up) {
                Err(error) if error.code == Code::Interrupted && is_ending() => {
                    Err(Error::new(Code::BadHandle, "the file was closed by another thread meanwhile"))
                }
                Err(error) if error.code == Code::Interrupted => {
                    let detail = format!("not let go of within {} ms", wait.as_millis());
                    Err(Error::new(Code::Locked, detail))
                }
                other => other,
            }
        })
    }

    /// As fcntl(2): a lock that excludes writers is for readers, one that excludes all is for writers.
    fn check_lock_mode(&self, mode: LockMode) -> Result<()> {
        match mode {
            LockMode::Shared if !self.mode().read => Err(not_open_for("reading")),
            LockMode::Exclusive if !self.mode().write => Err(not_open_for("writing")),
            _ => Ok(()),
        }
    }

    /// Lets go of a range. What was written before is with the servers then. Errors: that could not be; the range is
    /// let go of all the same.
    pub fn unlock(&self, range: LockRange) -> Result<()> {
        self.on(|open| {
            let file = open.volume()?;
            let Some(place) = self.lock_place(file) else { return file.flush() };
            // The next holder must see what was written under this lock.
            let flushed = file.flush_under_lock();
            self.connection().client()?.unlock(place, range).and(flushed)
        })
    }

    /// The lock of another owner that is in the way of one, if any.
    pub fn test_lock(&self, range: LockRange, mode: LockMode) -> Result<Option<Obstacle>> {
        self.on(|open| {
            let client = self.connection().client()?;
            client.locks().test(self.new_lock_place(client, open.volume()?), range, mode)
        })
    }

    /// Errors: a lock is lost, as its client was cut off for too long. What was written under it is given up: another
    /// holder may have written there since. Only closing the file ends that.
    pub(crate) fn check_locks(&self, open: &Opened) -> Result<()> {
        let Opened::Volume(file) = open else { return Ok(()) };
        let Some(place) = self.lock_place(file) else { return Ok(()) };
        self.connection().client()?.locks().check([place]).inspect_err(|error| {
            file.give_up_unreported(error);
        })
    }

    /// Writes out what was written under locks, and lets go of all of them. To be called before the file is closed.
    pub(crate) fn release_locks(&self, open: &Opened) -> Result<()> {
        let Opened::Volume(file) = open else { return Ok(()) };
        let Some(place) = self.lock_place(file) else { return Ok(()) };
        let client = self.connection().client()?;
        let flushed = self.check_locks(open).and_then(|()| file.flush_under_lock());
        client.locks().forget_lost(place);
        let unlocked = match client.locks().has(place) {
            true => client.unlock(place, LockRange::WHOLE),
            false => Ok(()),
        };
        flushed.and(unlocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_bytes_is_locked_and_shown_as_it_was_given() {
        for (offset, bytes) in [(0, 0), (5, 1), (7, 0), (0, LAST), (LAST - 1, 1)] {
            assert_eq!(lock_range(offset, bytes).map(locked_bytes).ok(), Some((offset, bytes)));
        }
        assert_eq!(locked_bytes(LockRange { first: 3, last: u64::MAX }), (3, 0));
        for (offset, bytes) in [(LAST + 1, 0), (u64::MAX, 2), (LAST, 2), (1, u64::MAX)] {
            assert_eq!(lock_range(offset, bytes).map_err(|error| error.code), Err(Code::TooLarge));
        }
    }
}
