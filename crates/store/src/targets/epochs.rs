//! Epochs: which parts of a target may be torn after an unclean stop. The argument is in docs/on-disk.md.
//!
//! Every region of every chunk is marked with the epoch it was last written in, durably before the write. Once
//! everything of an epoch has been synced the epoch is *stable*, with one record for the whole target. After an unclean
//! stop, marks between the last stable epoch and the last one in use are *suspect*.

use crate::targets::unkept::Unkept;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vazao_disk::{Disk, DiskFile, Open};
use vazao_model::checksum::crc32c;

/// Name of the file.
pub(crate) const STATE: &str = "STATE";

const MAGIC: [u8; 8] = *b"VZSTATE\x01";
const COPY_BYTES: usize = 36;

/// The two copies are this far apart, in different sectors of any disk.
const COPY_STRIDE: u64 = 4096;

/// At one epoch in ten seconds this many last 1,300 years; a record beyond it is not one of ours.
const EPOCH_MAX: u32 = u32::MAX - 1024;

/// What the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Record {
    sequence: u64,
    /// Everything written in this epoch and before is durable, but for the suspect ones.
    stable: u32,
    /// The last epoch that marks may carry.
    current: u32,
    /// Epochs of earlier unclean stops that have not been swept yet; 0, 0 for none.
    suspect: (u32, u32),
}

impl Record {
    fn encode(&self) -> [u8; COPY_BYTES] {
        let mut bytes = [0; COPY_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        let numbers = [self.stable, self.current, self.suspect.0, self.suspect.1];
        for (index, number) in numbers.iter().enumerate() {
            bytes[16 + index * 4..20 + index * 4].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32c(&bytes[..COPY_BYTES - 4]);
        bytes[COPY_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; COPY_BYTES]) -> Option<Record> {
        let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        if bytes[..8] != MAGIC || number(COPY_BYTES - 4)? != crc32c(&bytes[..COPY_BYTES - 4]) {
            return None;
        }
        let sequence = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let record = Record {
            sequence,
            stable: number(16)?,
            current: number(20)?,
            suspect: (number(24)?, number(28)?),
        };
        (record.stable <= record.current && record.current <= EPOCH_MAX).then_some(record)
    }

    fn read(file: &dyn DiskFile) -> io::Result<Option<Record>> {
        let mut newest: Option<Record> = None;
        for copy in 0..2 {
            let mut bytes = [0; COPY_BYTES];
            file.read_at(&mut bytes, copy * COPY_STRIDE)?;
            let found = Record::decode(&bytes);
            if found.map(|r| r.sequence) > newest.map(|r| r.sequence) {
                newest = found;
            }
        }
        Ok(newest)
    }

    /// Writes over the older of the two copies, in place, and makes it durable.
    /// After a write that failed the next one goes to the same place: the other copy is the only whole one.
    fn write(&mut self, file: &dyn DiskFile) -> Result<(), Unkept> {
        let next = Record { sequence: self.sequence + 1, ..*self };
        file.write_at(&next.encode(), next.sequence % 2 * COPY_STRIDE).map_err(Unkept::Write)?;
        *self = next;
        file.sync().map_err(Unkept::Sync)
    }
}

#[derive(Debug)]
struct Gate {
    epoch: u32,
    /// The record on disk knows of `epoch`: marks may carry it.
    announced: bool,
}

/// The epochs of one target.
pub(crate) struct Epochs {
    file: Arc<dyn DiskFile>,
    /// Held for reading from the marking of a region to the end of the write, so that an epoch that has ended has no
    /// writes under way.
    gate: RwLock<Gate>,
    record: Mutex<Record>,
    /// Everything suspect has been repaired, in the page cache at least.
    swept: AtomicBool,
    /// An epoch has ended, and the record could not be written.
    is_owed: AtomicBool,
    /// Something was changed since this was last asked.
    is_changed: AtomicBool,
}

/// Leave to write, within one epoch.
pub(crate) struct Pass<'a> {
    gate: RwLockReadGuard<'a, Gate>,
    epochs: &'a Epochs,
}

/// At its end, so that a change counts when all of it is there and before it is answered.
impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.epochs.note_change();
    }
}

impl Pass<'_> {
    /// The epoch to mark with.
    pub(crate) fn epoch(&self) -> u32 {
        self.gate.epoch
    }
}

impl Epochs {
    /// Writes the file of a new target.
    pub(crate) fn format(disk: &dyn Disk) -> io::Result<()> {
        let file = disk.open(STATE, Open::Create)?;
        file.set_length(2 * COPY_STRIDE)?;
        let mut record = Record::default();
        let mut write = || record.write(&*file).map_err(|(Unkept::Write(error) | Unkept::Sync(error))| error);
        write()?;
        write()
    }

    /// Opens the file; `None` when both of its copies are damaged.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<Option<Epochs>> {
        let file = disk.open(STATE, Open::Existing)?;
        let Some(mut record) = Record::read(&*file)? else { return Ok(None) };
        if record.current > record.stable {
            let low = if record.suspect.1 == 0 { record.stable + 1 } else { record.suspect.0 };
            record.suspect = (low, record.current);
        }
        let gate = RwLock::new(Gate { epoch: record.current + 1, announced: false });
        let record = Mutex::new(record);
        let [swept, is_owed, is_changed] = [const { AtomicBool::new(false) }; 3];
        Ok(Some(Epochs { file, gate, record, swept, is_owed, is_changed }))
    }

    /// Reads the file from the disk itself, as far as the kernel lets go of what it has of it in memory.
    pub(crate) fn probe(&self) {
        self.file.drop_cached(0, COPY_STRIDE + COPY_BYTES as u64);
        let _ = self.file.read_at(&mut [0; COPY_BYTES], 0);
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock()
    }

    /// Leave to write without waiting for a disk; `None` when the epoch has to be announced first, or is
    /// ending: who ends it waits for writes that may be stuck.
    pub(crate) fn try_enter(&self) -> Option<Pass<'_>> {
        let gate = self.gate.try_read()?;
        // Not made where it is not given: its end counts as a change.
        if gate.announced { Some(Pass { gate, epochs: self }) } else { None }
    }

    fn enter_announced(&self) -> Option<Pass<'_>> {
        let gate = self.gate.read();
        if gate.announced { Some(Pass { gate, epochs: self }) } else { None }
    }

    /// Something on the target was changed. It costs a load where that is known already.
    pub(crate) fn note_change(&self) {
        if !self.is_changed.load(Ordering::Relaxed) {
            self.is_changed.store(true, Ordering::Release);
        }
    }

    /// Whether something was changed since this was last asked.
    pub(crate) fn take_change(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed) && self.is_changed.swap(false, Ordering::AcqRel)
    }

    /// Leave to remove files where the epoch cannot be announced. No region may be marked with it.
    pub(crate) fn enter_unannounced(&self) -> Pass<'_> {
        Pass { gate: self.gate.read(), epochs: self }
    }

    /// Leave to write. Errors: the announcement could not be made durable.
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Unkept> {
        loop {
            if let Some(pass) = self.enter_announced() {
                return Ok(pass);
            }
            let mut gate = self.gate.write();
            if !gate.announced {
                let mut record = self.record();
                // Only once it is written: an epoch that was not announced must not be taken for one that has ended.
                let mut next = Record { current: gate.epoch, ..*record };
                next.write(&*self.file)?;
                *record = next;
                gate.announced = true;
            }
        }
    }

    /// Epochs of unclean stops that are not known to be whole.
    pub(crate) fn suspects(&self) -> Option<RangeInclusive<u32>> {
        let (low, high) = self.record().suspect;
        (high != 0).then_some(low..=high)
    }

    /// The newest epoch of which everything is durable, but for suspects.
    pub(crate) fn stable(&self) -> u32 {
        self.record().stable
    }

    /// The epoch that writes belong to now.
    pub(crate) fn current(&self) -> u32 {
        self.gate.read().epoch
    }

    /// Says that no suspect region is left unrepaired; the next checkpoint forgets about them.
    pub(crate) fn set_swept(&self) {
        self.swept.store(true, Ordering::Release);
    }

    /// Whether [`Epochs::checkpoint`] would have anything to do.
    pub(crate) fn is_dirty(&self) -> bool {
        let announced = self.gate.read().announced;
        announced
            || self.is_owed.load(Ordering::Acquire)
            || (self.swept.load(Ordering::Acquire) && self.suspects().is_some())
    }

    /// Ends the epoch, makes everything written in it durable, and records that. Errors: the disk failed to sync; the
    /// record could not be written, which the next checkpoint tries again.
    pub(crate) fn checkpoint(&self, disk: &dyn Disk) -> Result<(), Unkept> {
        if !self.is_dirty() {
            return Ok(());
        }
        let swept = self.swept.load(Ordering::Acquire);
        let ended = {
            let mut gate = self.gate.write();
            let ended = self.record().current;
            if gate.announced {
                gate.epoch = gate.epoch.checked_add(1).ok_or_else(out_of_epochs)?;
                gate.announced = false;
            }
            ended
        };
        disk.sync_all().map_err(Unkept::Sync)?;
        let mut record = self.record();
        let suspect = if swept { (0, 0) } else { record.suspect };
        let mut next = Record { stable: ended, suspect, ..*record };
        let written = next.write(&*self.file);
        self.is_owed.store(written.is_err(), Ordering::Release);
        if written.is_ok() {
            *record = next;
        }
        written
    }
}

fn out_of_epochs() -> Unkept {
    Unkept::Sync(io::Error::other("out of epochs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vazao_disk::MemoryDisk;

    fn open(disk: &MemoryDisk) -> Epochs {
        Epochs::open(disk).expect("readable").expect("not damaged")
    }

    #[test]
    fn a_clean_stop_leaves_nothing_suspect() {
        let disk = MemoryDisk::new(1);
        Epochs::format(&disk).expect("formats");
        let epochs = open(&disk);
        drop(epochs.enter().expect("announces"));
        epochs.checkpoint(&disk).expect("syncs");
        assert_eq!(open(&disk).suspects(), None);
    }

    #[test]
    fn every_epoch_in_use_since_the_last_stable_one_is_suspect_after_a_kill() {
        let disk = MemoryDisk::new(1);
        Epochs::format(&disk).expect("formats");
        let mut used = Vec::new();
        for _ in 0..3 {
            let epochs = open(&disk);
            used.push(epochs.enter().expect("announces").epoch());
        }
        let epochs = open(&disk);
        let suspects = epochs.suspects().expect("was killed");
        assert!(used.iter().all(|e| suspects.contains(e)) && !suspects.contains(&epochs.current()));
        epochs.checkpoint(&disk).expect("nothing to do");
        assert_eq!(epochs.suspects(), Some(suspects), "not swept yet");
        epochs.set_swept();
        epochs.checkpoint(&disk).expect("syncs");
        assert_eq!((epochs.suspects(), open(&disk).suspects()), (None, None));
    }

    #[test]
    fn a_change_is_told_of_once_and_not_before_it_has_ended() {
        let disk = MemoryDisk::new(1);
        Epochs::format(&disk).expect("formats");
        let epochs = open(&disk);
        let pass = epochs.enter().expect("announces");
        assert!(!epochs.take_change());
        drop(pass);
        assert!(epochs.take_change() && !epochs.take_change());
    }

    /// An epoch that had not been announced counted as ended, and marks of it as durable; and the second attempt went
    /// over the only whole copy.
    #[test]
    fn a_record_that_could_not_be_written_changes_nothing_and_is_written_by_the_next_attempt() {
        let disk = MemoryDisk::new(1);
        Epochs::format(&disk).expect("formats");
        let epochs = open(&disk);
        disk.fail_writes(STATE, io::ErrorKind::StorageFull);
        for _ in 0..2 {
            assert!(matches!(epochs.enter(), Err(Unkept::Write(_))));
        }
        epochs.checkpoint(&disk).expect("nothing to do");
        disk.clear_faults();
        let epoch = epochs.enter().expect("announces").epoch();
        assert!(epochs.stable() < epoch && open(&disk).suspects() == Some(epoch..=epoch));
        // The sync of the whole disk, which is that of one file and of the names, succeeds.
        disk.fail_after(2, io::ErrorKind::StorageFull);
        assert!(matches!(epochs.checkpoint(&disk), Err(Unkept::Write(_))));
        disk.clear_faults();
        assert!(epochs.is_dirty());
        epochs.checkpoint(&disk).expect("writes");
        assert!(!epochs.is_dirty() && open(&disk).suspects().is_none());
    }

    #[test]
    fn reading_alone_announces_nothing() {
        let disk = MemoryDisk::new(1);
        Epochs::format(&disk).expect("formats");
        assert!(open(&disk).try_enter().is_none());
        assert_eq!(open(&disk).suspects(), None);
    }

    proptest! {
        #[test]
        fn a_damaged_copy_is_never_believed(bytes in proptest::collection::vec(any::<u8>(), COPY_BYTES)) {
            let bytes: [u8; COPY_BYTES] = bytes.try_into().expect("of that length");
            prop_assert_eq!(Record::decode(&bytes), None);
        }

        #[test]
        fn one_damaged_copy_leaves_the_other(at in 0u64..COPY_BYTES as u64, copy in 0u64..2) {
            let disk = MemoryDisk::new(1);
            Epochs::format(&disk).expect("formats");
            disk.open(STATE, Open::Existing).expect("is there").write_at(&[0xEE], at + copy * COPY_STRIDE).expect("writes");
            let record = Record::read(&*disk.open(STATE, Open::Existing).expect("is there")).expect("reads");
            prop_assert!(record.is_some());
        }
    }
}
