//! The write-ahead log: files named after the first commit they may hold, written by one writer, read back after a
//! crash.

use super::super::{EngineError, EngineResult, Position};
use super::overlay::Overlay;
use super::record::{self, Record};
use super::rewrite::rewrite;
use std::io;
use std::sync::Arc;
use vazao_disk::{Disk, DiskFile, Open};

const PREFIX: &str = "log-";

/// A file before it has its name.
const DRAFT: &str = "log-next";

/// The mark that each file begins with.
const FIRST_BYTES: u64 = record::HEADER_BYTES as u64;

/// The file is filled with zeros this far ahead of its records. A sync then changes blocks that are there, and not the
/// file's length: it waits for the records alone, and not for the inode, the block map or the journal of the file
/// system below, which others keep busy (docs/performance.md).
const FILL_BYTES: u64 = 256 * 1024;

/// The file whose first record may be that of `first`.
pub(super) fn file_name(first: Position) -> String {
    format!("{PREFIX}{first:016x}")
}

/// A log file that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogFile {
    /// No commit in it is before this one.
    pub(super) first: Position,
    name: String,
}

/// The log files of a directory, oldest first.
pub(super) fn list(disk: &dyn Disk) -> EngineResult<Vec<LogFile>> {
    let entries = disk.list("").map_err(|e| EngineError::io("the metadata directory", e))?;
    let mut files: Vec<LogFile> = entries
        .into_iter()
        .filter_map(|entry| {
            let first = Position::from_str_radix(entry.name.strip_prefix(PREFIX)?, 16).ok()?;
            Some(LogFile { first, name: entry.name })
        })
        .collect();
    files.sort();
    Ok(files)
}

/// True when a log holds more than the mark that it begins with, without knowing its identity.
pub(super) fn is_in_use(disk: &dyn Disk) -> EngineResult<bool> {
    for file in list(disk)? {
        if file.first > 1 || read_whole(disk, &file.name)?.len() > record::HEADER_BYTES {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the logs hold beyond the checkpoint.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    /// Commits after the checkpoint.
    pub(super) overlay: Overlay,
    /// The last commit.
    pub(super) position: Position,
    /// Files that hold commits after the checkpoint.
    pub(super) files: Vec<LogFile>,
    /// Bytes of a torn tail that were cut.
    pub(super) cut_bytes: u64,
}

/// Reads the logs after commit `applied`, cuts a torn tail, and makes what is left durable.
pub(super) fn recover(disk: &dyn Disk, identity: u64, applied: Position) -> EngineResult<Recovered> {
    let files = list(disk)?;
    let mut reader =
        Reader { identity, next: applied + 1, overlay: Overlay::default(), end: None, durable: 0 };
    let mut kept = 0;
    let mut last_good = None;
    let needed = files
        .iter()
        .rposition(|file| file.first <= applied + 1)
        .ok_or_else(|| missing(applied, files.first()))?;
    for (index, file) in files.iter().enumerate().skip(needed) {
        let bytes = read_whole(disk, &file.name)?;
        if reader.end.is_none() && file.first > reader.next {
            reader.end = Some(format!("the end of the log before {}", file.name));
        }
        if record::find(&bytes, 0, identity).is_none() {
            return Err(unreadable(&file.name));
        }
        let good = reader.read(&file.name, &bytes)?;
        if let Some(good) = good {
            kept = index + 1;
            last_good = Some(Tail { name: file.name.clone(), good, used: used(&bytes), length: bytes.len() });
        }
    }
    let cut_bytes = tidy_up(disk, &files[kept..], &files[..needed.min(kept)], last_good)?;
    let position = reader.next - 1;
    let files = files.get(needed..kept).unwrap_or_default().to_vec();
    files.iter().try_for_each(|file| write_again(disk, file, identity, reader.durable))?;
    Ok(Recovered { overlay: reader.overlay, position, files, cut_bytes })
}

/// A checkpoint always has a log that continues it: the next file exists before the last one is removed.
fn missing(applied: Position, first: Option<&LogFile>) -> EngineError {
    let there = first.map_or("there is no log file".to_owned(), |file| format!("the first is {}", file.name));
    EngineError::Corrupt(format!(
        "the log file with the commits after {applied} is missing ({there}): what was written since the last checkpoint \
         is gone. Put the file back, or put the metadata directory aside and restore it from a backup"
    ))
}

/// A file gets its name when it begins with a mark that is durable, so one without any record has been overwritten.
fn unreadable(name: &str) -> EngineError {
    EngineError::Corrupt(format!(
        "{name} holds no record of this volume: it is damaged or another's, and what was written since the last \
         checkpoint is gone. Nothing was changed. Put the metadata directory aside and restore it from a backup"
    ))
}

/// Where the last file's records end, where its other bytes that are not zeros end, and its length.
struct Tail {
    name: String,
    good: usize,
    used: usize,
    length: usize,
}

/// Bytes up to the zeros that were filled in ahead.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn read_whole(disk: &dyn Disk, name: &str) -> EngineResult<Vec<u8>> {
    let failed = |e| EngineError::io(name, e);
    let file = disk.open(name, Open::Existing).map_err(failed)?;
    let length = usize::try_from(file.length().map_err(failed)?)
        .map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0).map_err(failed)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Removes files after the end, then those that the checkpoint has made superfluous, then cuts the torn tail. In this
/// order a crash in between leaves a state that recovery reads in the same way again.
fn tidy_up(
    disk: &dyn Disk,
    after_end: &[LogFile],
    applied: &[LogFile],
    last: Option<Tail>,
) -> EngineResult<u64> {
    // The names of those that stay are durable before others go.
    disk.sync_directory("").map_err(|e| EngineError::io("the metadata directory", e))?;
    for file in after_end.iter().rev().chain(applied) {
        disk.remove(&file.name).map_err(|e| EngineError::io(&*file.name, e))?;
    }
    disk.sync_directory("").map_err(|e| EngineError::io("the metadata directory", e))?;
    let Some(last) = last else { return Ok(0) };
    if last.good < last.length {
        let failed = |e| EngineError::io(&*last.name, e);
        let file = disk.open(&last.name, Open::Existing).map_err(failed)?;
        file.set_length(last.good as u64).map_err(failed)?;
    }
    Ok(last.used.saturating_sub(last.good) as u64)
}

/// Writes the commits once more that are not known to be durable (see [`rewrite`]). The caller syncs.
fn write_again(disk: &dyn Disk, log: &LogFile, identity: u64, durable: Position) -> EngineResult<()> {
    let bytes = read_whole(disk, &log.name)?;
    let mut at = 0;
    while let Some((start, record)) = record::find(&bytes, at, identity) {
        if record.position > durable {
            let failed = |e| EngineError::io(&*log.name, e);
            let file = disk.open(&log.name, Open::Existing).map_err(failed)?;
            return rewrite(&*file, start as u64, bytes.len() as u64).map_err(failed);
        }
        at = start + record.bytes;
    }
    Ok(())
}

/// Follows the commits over all files.
struct Reader {
    identity: u64,
    /// The highest position that a record knows to be durable.
    durable: Position,
    /// The commit that has to come next.
    next: Position,
    overlay: Overlay,
    /// Where the sequence ended: from there on records are only evidence.
    end: Option<String>,
}

impl Reader {
    /// Reads one file. Returns how many of its bytes belong to the log; `None` when all of it lies after the end.
    ///
    /// Records after the end are not applied, because a commit before them is missing. The missing commit was never
    /// promised, unless a later record says that it was durable: then this is damage rather than a torn write, and an
    /// operator has to decide.
    fn read(&mut self, name: &str, bytes: &[u8]) -> EngineResult<Option<usize>> {
        let mut good = if self.end.is_none() { Some(0) } else { None };
        let mut at = 0;
        while let Some((start, record)) = record::find(bytes, at, self.identity) {
            at = start + record.bytes;
            self.durable = self.durable.max(record.durable);
            // A mark says that the commits up to its position were written before it.
            let follows = record.position.saturating_sub(u64::from(!record.writes.is_empty()));
            if self.end.is_none() && follows >= self.next {
                self.end = Some(format!("byte {} of {name}", good.unwrap_or(0)));
            }
            match &self.end {
                Some(end) if record.durable >= self.next => return Err(self.damaged(end)),
                Some(_) => {}
                None => {
                    self.take(record);
                    good = Some(at);
                }
            }
        }
        Ok(good)
    }

    fn take(&mut self, record: Record) {
        if record.position == self.next && !record.writes.is_empty() {
            self.overlay.apply(record.position, record.writes);
            self.next += 1;
        }
    }

    fn damaged(&self, end: &str) -> EngineError {
        EngineError::Corrupt(format!(
            "commit {} is damaged at {end} though it had been made durable: the disk lost data. Restore the metadata \
             directory from a backup, or remove the log from there on to go back to the state before that commit",
            self.next
        ))
    }
}

/// The file being written.
pub(super) struct Log {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    name: String,
    /// There is room for zeros ahead.
    pub(super) spacious: bool,
    /// The next file, before it has its name.
    next: Option<Arc<dyn DiskFile>>,
    /// End of the records.
    offset: u64,
    /// End of the zeros after them: the file's length.
    filled: u64,
    /// Records that have to be written; kept when writing them failed.
    pub(super) pending: Vec<u8>,
    /// Last commit in the file or in `pending`.
    pub(super) last: Position,
    /// Older files that still have to be synced.
    unsynced: Vec<Arc<dyn DiskFile>>,
    /// Files created so far, and those of them whose names are durable.
    names: u64,
    names_synced: u64,
    /// Older files, each with the last commit in it.
    old: Vec<(String, Position)>,
}

/// What a sync has to cover, taken at one moment.
pub(super) struct Unsynced {
    files: Vec<Arc<dyn DiskFile>>,
    /// Names created when it was taken; `None` when all were durable.
    names: Option<u64>,
    /// Last commit in the log when it was taken.
    pub(super) last: Position,
}

impl Log {
    /// Starts a file for the commits after `last`.
    pub(super) fn start(
        disk: Arc<dyn Disk>,
        identity: u64,
        last: Position,
        old: Vec<LogFile>,
    ) -> EngineResult<Log> {
        let file = draft(&*disk, identity)?;
        let name = give_name(&*disk, last)?;
        let old: Vec<(String, Position)> =
            old.into_iter().filter(|old| old.name != name).map(|old| (old.name, last)).collect();
        let reopen = |(name, _): &(String, _)| {
            disk.open(name, Open::Existing).map_err(|e| EngineError::io(&**name, e))
        };
        let unsynced = old.iter().map(reopen).collect::<EngineResult<_>>()?;
        let (pending, names, names_synced) = (Vec::new(), 1, 0);
        let (next, offset, filled) = (None, FIRST_BYTES, FIRST_BYTES);
        Ok(Log {
            disk,
            file,
            name,
            spacious: true,
            next,
            offset,
            filled,
            pending,
            last,
            unsynced,
            names,
            names_synced,
            old,
        })
    }

    /// Bytes in the present file.
    pub(super) fn bytes(&self) -> u64 {
        self.offset
    }

    /// The file being written, and its name.
    pub(super) fn present(&self) -> (String, Arc<dyn DiskFile>) {
        (self.name.clone(), Arc::clone(&self.file))
    }

    /// The names of all files that hold commits which may not be in the checkpoint, in their order; of the present one
    /// also where its records end.
    pub(super) fn files(&self) -> Vec<(String, Option<u64>)> {
        let old = self.old.iter().map(|(name, _)| (name.clone(), None));
        old.chain([(self.name.clone(), Some(self.offset))]).collect()
    }

    /// There are files before the present one: of an earlier start, or not removed yet.
    pub(super) fn has_old(&self) -> bool {
        !self.old.is_empty()
    }

    /// Writes all pending records with one write. After an error the retry writes the same bytes to the same place.
    pub(super) fn write(&mut self) -> EngineResult<u64> {
        let bytes = self.pending.len();
        if bytes > 0 {
            let mut records = std::mem::take(&mut self.pending);
            let written = self.put(&mut records);
            records.truncate(if written.is_ok() { 0 } else { bytes });
            self.pending = records;
            written.map_err(|e| EngineError::io(format!("writing to {}", self.name), e))?;
        }
        Ok(bytes as u64)
    }

    /// Writes records after those that are there, with zeros behind them when they end beyond the zeros there.
    fn put(&mut self, records: &mut Vec<u8>) -> io::Result<()> {
        let length = records.len();
        let end = self.offset + length as u64;
        if end > self.filled && self.spacious {
            let filled = end.next_multiple_of(FILL_BYTES);
            records.resize((filled - self.offset) as usize, 0);
            if self.file.write_at(records, self.offset).is_ok() {
                (self.offset, self.filled) = (end, filled);
                return Ok(());
            }
            // A disk that has no room for the zeros may have some for the records.
            records.truncate(length);
        }
        self.file.write_at(records, self.offset)?;
        (self.offset, self.filled) = (end, self.filled.max(end));
        Ok(())
    }

    /// Takes the next file, made by [`draft`].
    pub(super) fn prepare(&mut self, next: Arc<dyn DiskFile>) {
        self.next = Some(next);
    }

    /// Continues in the next file, which is ready. Nothing may be pending.
    pub(super) fn rotate(&mut self) -> EngineResult<()> {
        let next = self.next.as_ref().map(Arc::clone);
        let file = next.ok_or_else(|| EngineError::io(DRAFT, io::ErrorKind::NotFound.into()))?;
        let name = give_name(&*self.disk, self.last)?;
        self.next = None;
        let full = std::mem::replace(&mut self.file, file);
        self.unsynced.push(full);
        self.old.push((std::mem::replace(&mut self.name, name), self.last));
        self.names += 1;
        (self.offset, self.filled) = (FIRST_BYTES, FIRST_BYTES);
        Ok(())
    }

    /// What a sync that begins now has to cover: all that is written.
    pub(super) fn unsynced(&self) -> Unsynced {
        let files = self.unsynced.iter().chain([&self.file]).cloned().collect();
        let names = (self.names > self.names_synced).then_some(self.names);
        Unsynced { files, names, last: self.last }
    }

    /// Notes that `done` has been synced, in the log as well: a mark lets recovery tell damage from a torn tail even
    /// when no commit follows. The mark is not essential, so an error in writing it is ignored; the next commit meets
    /// the same error.
    pub(super) fn synced(&mut self, done: &Unsynced, durable: Position, identity: u64) {
        self.unsynced.drain(..done.files.len().saturating_sub(1).min(self.unsynced.len()));
        self.names_synced = done.names.unwrap_or(self.names_synced);
        if self.pending.is_empty() {
            let mut mark = Vec::new();
            record::append(&mut mark, identity, self.last, durable, &Default::default());
            // The error does not affect commits that are durable already; the next commit meets it.
            let _ = self.put(&mut mark);
        }
    }

    /// Removes files whose commits are all in the checkpoint.
    pub(super) fn remove_up_to(&mut self, applied: Position) -> EngineResult<()> {
        let unneeded = self.old.iter().take_while(|(_, last)| *last <= applied).count();
        for (name, _) in self.old.drain(..unneeded) {
            self.disk.remove(&name).map_err(|e| EngineError::io(format!("removing {name}"), e))?;
        }
        Ok(())
    }
}

/// Makes a file that begins with a durable mark. A named file then never lacks a record, whenever power is lost, and
/// an empty one is recognised as damage.
pub(super) fn draft(disk: &dyn Disk, identity: u64) -> EngineResult<Arc<dyn DiskFile>> {
    let mut mark = Vec::new();
    record::append(&mut mark, identity, 0, 0, &Default::default());
    let make = || -> io::Result<Arc<dyn DiskFile>> {
        let file = disk.open(DRAFT, Open::Create)?;
        file.set_length(0)?;
        file.write_at(&mark, 0)?;
        file.sync()?;
        Ok(file)
    };
    make().map_err(|e| EngineError::io(format!("creating {DRAFT}"), e))
}

/// Makes the draft the file for the commits after `last`.
fn give_name(disk: &dyn Disk, last: Position) -> EngineResult<String> {
    let name = file_name(last + 1);
    disk.rename(DRAFT, &name).map_err(|e| EngineError::io(format!("creating {name}"), e))?;
    Ok(name)
}

/// The log of a new directory. The caller syncs the directory.
pub(super) fn create_first(disk: &dyn Disk, identity: u64) -> EngineResult<()> {
    draft(disk, identity)?;
    give_name(disk, 0).map(|_| ())
}

impl Unsynced {
    /// Syncs files oldest first, then the directory.
    pub(super) fn sync(&self, disk: &dyn Disk) -> EngineResult<()> {
        let failed = |e| EngineError::io("syncing the log", e);
        self.files.iter().try_for_each(|file| file.sync()).map_err(failed)?;
        if self.names.is_some() {
            disk.sync_directory("").map_err(failed)?;
        }
        Ok(())
    }
}
