//! The incarnation of a target: a number on its disk that grows with every start of its server and, while the target is
//! written to, every few seconds. The metadata service records it too, so that an older copy of the disk is recognised
//! before it is served. Specified in docs/on-disk.md.
//!
//! Invariant: what the metadata service has recorded was durable on the disk before. So a disk that is behind the
//! record is an older copy, and a crash between the two leaves the disk ahead, which is no reason for suspicion.

use crate::targets::unkept::{Unkept, is_out_of_descriptors};
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_disk::{Disk, DiskFile, Open};
use vazao_model::checksum::crc32c;
use vazao_wire::proto::HistoryMark;

/// Name of the file.
pub(crate) const FILE: &str = "INCARNATION";

const MAGIC: [u8; 8] = *b"VZINCAR\x01";
const COPY_BYTES: usize = 68;

/// The two copies are this far apart, in different sectors of any disk.
const COPY_STRIDE: u64 = 4096;

/// What the file says.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Record {
    sequence: u64,
    incarnation: u64,
    /// Unix time at which this was written.
    written_seconds: u64,
    /// The latest moment in the history of the metadata that this server had been told of.
    mark: HistoryMark,
}

impl Record {
    fn encode(&self) -> [u8; COPY_BYTES] {
        let mut bytes = [0; COPY_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let HistoryMark { lineage, start, run, position } = self.mark;
        let numbers = [self.sequence, self.incarnation, self.written_seconds, lineage, start, run, position];
        for (index, number) in numbers.iter().enumerate() {
            bytes[8 + index * 8..16 + index * 8].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32c(&bytes[..COPY_BYTES - 4]);
        bytes[COPY_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; COPY_BYTES]) -> Option<Record> {
        let (body, sum) = bytes.split_at(COPY_BYTES - 4);
        if bytes[..8] != MAGIC || sum != crc32c(body).to_le_bytes() {
            return None;
        }
        let number = |index: usize| {
            let at = 8 + index * 8;
            body.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
        };
        let mark =
            HistoryMark { lineage: number(3)?, start: number(4)?, run: number(5)?, position: number(6)? };
        let [sequence, incarnation, written_seconds] = [number(0)?, number(1)?, number(2)?];
        Some(Record { sequence, incarnation, written_seconds, mark })
    }

    /// `None` when both copies are damaged. A file that was never written to is incarnation 0.
    fn read(file: &dyn DiskFile) -> io::Result<Option<Record>> {
        let mut newest: Option<Record> = None;
        let mut is_empty = true;
        for copy in 0..2 {
            let mut bytes = [0; COPY_BYTES];
            file.read_at(&mut bytes, copy * COPY_STRIDE)?;
            is_empty &= bytes.iter().all(|&byte| byte == 0);
            let found = Record::decode(&bytes);
            if found.map(|r| r.sequence) > newest.map(|r| r.sequence) {
                newest = found;
            }
        }
        Ok(newest.or(is_empty.then(Record::default)))
    }

    /// Writes over the older of the two copies, in place, and makes it durable.
    fn write(&self, file: &dyn DiskFile) -> Result<(), Unkept> {
        file.write_at(&self.encode(), self.sequence % 2 * COPY_STRIDE).map_err(Unkept::Write)?;
        file.sync().map_err(Unkept::Sync)
    }

    /// Makes the file, or goes on with one whose creation was cut short. Both copies are written, so that none of the
    /// later writes needs room on most file systems.
    fn create(&self, disk: &dyn Disk) -> Result<Arc<dyn DiskFile>, Unkept> {
        let create = || {
            let file = disk.open(FILE, Open::Create)?;
            file.set_length(2 * COPY_STRIDE)?;
            for copy in 0..2 {
                file.write_at(&self.encode(), copy * COPY_STRIDE)?;
            }
            Ok(file)
        };
        let file = create().map_err(Unkept::Write)?;
        file.sync().map_err(Unkept::Sync)?;
        match disk.sync_directory("") {
            Ok(()) => Ok(file),
            // The directory could not even be opened.
            Err(error) if is_out_of_descriptors(&error) => Err(Unkept::Write(error)),
            Err(error) => Err(Unkept::Sync(error)),
        }
    }
}

/// When and after what the file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// On the monotonic clock.
    pub(crate) ns: u64,
    /// Unix time.
    pub(crate) wall_seconds: u64,
    /// The latest that this server was told of the metadata's history.
    pub(crate) mark: HistoryMark,
}

/// What is on the disk.
struct Kept {
    record: Record,
    /// It stays open: a shortage of descriptors is no reason to write nothing. `None` before it was ever written.
    file: Option<Arc<dyn DiskFile>>,
}

/// The incarnation of one target.
pub(crate) struct Incarnation {
    kept: Mutex<Kept>,
    found: u64,
    found_seconds: u64,
    /// What this process has written; 0 before it wrote any.
    written: AtomicU64,
    /// When the file was last written.
    written_ns: AtomicU64,
}

impl Incarnation {
    /// Reads the file; `None` when both of its copies are damaged. Nothing is written before the metadata service has
    /// agreed: a copy that is restarted again and again would otherwise catch up with the original's number.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<Option<Incarnation>> {
        let file = match disk.open(FILE, Open::Existing) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let record = file.as_ref().map_or(Ok(Some(Record::default())), |file| Record::read(&**file))?;
        let Some(record) = record else { return Ok(None) };
        let file = file.filter(|_| record.sequence > 0);
        Ok(Some(Incarnation {
            found: record.incarnation,
            found_seconds: record.written_seconds,
            kept: Mutex::new(Kept { record, file }),
            written: AtomicU64::new(0),
            written_ns: AtomicU64::new(0),
        }))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    /// What was on the disk when the server started, and the Unix time at which that was written.
    pub(crate) fn found(&self) -> (u64, u64) {
        (self.found, self.found_seconds)
    }

    /// Whether it is behind what was recorded, as it is to be raised to `incarnation`: an older copy, or one whose
    /// place such a copy had taken.
    pub(crate) fn is_behind(&self, incarnation: u64) -> bool {
        incarnation > self.found.max(self.written()) + 1
    }

    /// What this process has made durable; 0 before it wrote any.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The latest moment in the metadata's history that was noted.
    pub(crate) fn mark(&self) -> HistoryMark {
        self.kept().record.mark
    }

    /// Writes `incarnation`, if that is more than what is there.
    pub(crate) fn raise(&self, disk: &dyn Disk, incarnation: u64, now: Moment) -> Result<(), Unkept> {
        let mut kept = self.kept();
        if incarnation > kept.record.incarnation {
            return self.store(&mut kept, disk, incarnation, now);
        }
        self.written.store(kept.record.incarnation, Ordering::Release);
        Ok(())
    }

    /// Nanoseconds since the file was last written, by the clock of `now_ns`.
    pub(crate) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.written_ns.load(Ordering::Relaxed))
    }

    /// Advances it: the target was changed since the last time.
    pub(crate) fn advance(&self, disk: &dyn Disk, now: Moment) -> Result<(), Unkept> {
        let mut kept = self.kept();
        let next = kept.record.incarnation + 1;
        self.store(&mut kept, disk, next, now)
    }

    /// Notes how far the metadata's history has come, where that is news.
    pub(crate) fn note_mark(&self, disk: &dyn Disk, now: Moment) -> Result<(), Unkept> {
        let mut kept = self.kept();
        let same = kept.record.incarnation;
        if kept.record.mark == now.mark { Ok(()) } else { self.store(&mut kept, disk, same, now) }
    }

    fn store(&self, kept: &mut Kept, disk: &dyn Disk, incarnation: u64, now: Moment) -> Result<(), Unkept> {
        let Moment { ns, wall_seconds, mark } = now;
        let next =
            Record { sequence: kept.record.sequence + 1, incarnation, written_seconds: wall_seconds, mark };
        match &kept.file {
            Some(file) => next.write(&**file)?,
            None => kept.file = Some(next.create(disk)?),
        }
        kept.record = next;
        self.written_ns.store(ns, Ordering::Relaxed);
        self.written.store(incarnation, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vazao_disk::MemoryDisk;

    const SECOND: u64 = 1_000_000_000;

    fn open(disk: &MemoryDisk) -> Incarnation {
        Incarnation::open(disk).expect("readable").expect("not damaged")
    }

    fn at(seconds: u64, position: u64) -> Moment {
        let mark = HistoryMark { lineage: 0, start: 1, run: 9, position };
        Moment { ns: seconds * SECOND, wall_seconds: 1_000 + seconds, mark }
    }

    #[test]
    fn a_directory_that_never_had_one_is_incarnation_0_and_is_not_written_to_unasked() {
        let disk = MemoryDisk::new(1);
        let incarnation = open(&disk);
        assert_eq!((incarnation.found(), incarnation.written()), ((0, 0), 0));
        assert_eq!(disk.list("").expect("listed"), []);
        incarnation.raise(&disk, 5, at(1, 7)).expect("writes");
        disk.crash();
        let again = open(&disk);
        assert_eq!((again.found(), again.written()), ((5, 1_001), 0));
        assert_eq!(again.mark().position, 7);
    }

    #[test]
    fn a_disk_is_behind_when_it_is_to_be_raised_by_more_than_one() {
        let disk = MemoryDisk::new(1);
        open(&disk).raise(&disk, 5, at(1, 7)).expect("writes");
        let started = open(&disk);
        assert!(!started.is_behind(6), "an ordinary start");
        assert!(started.is_behind(7), "an older copy");
        started.raise(&disk, 6, at(1, 7)).expect("writes");
        assert!(!started.is_behind(6) && !started.is_behind(7));
        assert!(started.is_behind(8), "a copy had taken its place while it ran");
    }

    #[test]
    fn it_is_never_lowered() {
        let disk = MemoryDisk::new(1);
        let incarnation = open(&disk);
        incarnation.raise(&disk, 5, at(1, 7)).expect("writes");
        incarnation.raise(&disk, 3, at(2, 7)).expect("nothing to do");
        assert_eq!((incarnation.written(), open(&disk).found().0), (5, 5));
    }

    #[test]
    fn each_advance_is_durable_and_has_its_time() {
        let disk = MemoryDisk::new(1);
        open(&disk).raise(&disk, 1, at(0, 7)).expect("writes");
        for second in 1..5 {
            let incarnation = open(&disk);
            incarnation.advance(&disk, at(second, 7)).expect("writes");
            assert_eq!(
                (incarnation.written(), incarnation.age_ns((second + 3) * SECOND)),
                (1 + second, 3 * SECOND)
            );
            disk.crash();
            assert_eq!(open(&disk).found(), (1 + second, 1_000 + second));
        }
    }

    /// Each advance opened the file anew, and the first write of each copy needed a block: a shortage of descriptors or
    /// a full disk took a healthy target out of service for good.
    #[test]
    fn advances_open_nothing_and_need_no_room() {
        let disk = MemoryDisk::new(1);
        let incarnation = open(&disk);
        incarnation.raise(&disk, 1, at(0, 7)).expect("writes");
        disk.set_capacity(disk.space().expect("a disk").used_bytes);
        let before = disk.operations();
        for second in 1..=4 {
            incarnation.advance(&disk, at(second, 7)).expect("writes");
        }
        let after = disk.operations();
        assert_eq!((after.reads, after.writes), (before.reads, before.writes + 4));
    }

    #[test]
    fn a_creation_that_failed_is_done_again_whole() {
        for count in 0..4 {
            let disk = MemoryDisk::new(1);
            let incarnation = open(&disk);
            disk.fail_after(count, io::ErrorKind::StorageFull);
            assert!(matches!(incarnation.raise(&disk, 5, at(1, 7)), Err(Unkept::Write(_))));
            assert_eq!(incarnation.written(), 0);
            disk.clear_faults();
            incarnation.raise(&disk, 5, at(1, 7)).expect("writes");
            disk.crash();
            assert_eq!(open(&disk).found().0, 5);
        }
    }

    #[test]
    fn a_mark_is_noted_without_an_advance_and_only_when_it_is_news() {
        let disk = MemoryDisk::new(1);
        let incarnation = open(&disk);
        incarnation.raise(&disk, 1, at(0, 7)).expect("writes");
        incarnation.note_mark(&disk, at(9, 7)).expect("nothing to do");
        assert_eq!(incarnation.age_ns(9 * SECOND), 9 * SECOND);
        incarnation.note_mark(&disk, at(9, 8)).expect("writes");
        assert_eq!((open(&disk).mark().position, open(&disk).found().0), (8, 1));
    }

    #[test]
    fn a_file_whose_creation_was_cut_short_is_incarnation_0() {
        let disk = MemoryDisk::new(1);
        disk.open(FILE, Open::Create).expect("creates").set_length(8192).expect("extends");
        assert_eq!(open(&disk).found().0, 0);
    }

    proptest! {
        #[test]
        fn a_damaged_copy_leaves_the_other_and_two_are_refused(at_byte in 0u64..COPY_BYTES as u64) {
            let disk = MemoryDisk::new(1);
            let incarnation = open(&disk);
            incarnation.raise(&disk, 5, at(1, 7)).expect("writes");
            incarnation.raise(&disk, 6, at(2, 7)).expect("writes");
            let file = disk.open(FILE, Open::Existing).expect("is there");
            file.write_at(&[0xEE], at_byte).expect("writes");
            prop_assert_eq!(open(&disk).found().0, 5, "the older copy lies second");
            file.write_at(&[0xEE], at_byte + COPY_STRIDE).expect("writes");
            prop_assert!(Incarnation::open(&disk).expect("readable").is_none());
        }
    }
}
