//! Rebuilds a checkpoint: from one of the former format, or from one that is damaged.
//!
//! The new one is built as a draft beside the old one and replaces it by a rename. Records of the old one that cannot
//! be read are noted as lost in the new one, so that reading them stays an error.

use super::super::{EngineError, EngineOptions, EngineResult};
use super::base::{Base, KeyRange, View, guarded};
use super::overlay::Overlay;
use super::survey::AFTER_ALL;
use super::{CHECKPOINT_FILE, Core, NO_PANIC, format, rewrite};
use redb::{Database, StorageBackend};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_disk::{Disk, DiskFile, Open};

/// The new checkpoint until it is complete.
const DRAFT_FILE: &str = "checkpoint.new";

/// The last checkpoint of which records were lost when it was written anew. There is one at most.
pub(super) const DAMAGED_FILE: &str = "checkpoint.damaged";

/// The checkpoint of format 1: a redb database as it is.
const PLAIN_FILE: &str = "base.redb";

/// Bytes of keys and values in one transaction of a copy.
const COPIED_BYTES_MAX: usize = 16 << 20;

/// redb leaves pages half full that were filled in key order.
const GROWTH: u64 = 2;

/// Room that a new checkpoint needs besides.
const ROOM_BYTES_MIN: u64 = 2 << 20;

/// Records on their way into a new checkpoint.
struct Copy<'a> {
    into: &'a Arc<Base>,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    count: u64,
}

impl Copy<'_> {
    fn take(&mut self, key: &[u8], value: &[u8]) -> EngineResult<()> {
        self.pairs.push((key.to_vec(), value.to_vec()));
        self.bytes += key.len() + value.len();
        self.count += 1;
        if self.bytes >= COPIED_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> EngineResult<()> {
        let changes: Vec<_> = self.pairs.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
        self.into.apply(&changes, None)?;
        self.pairs.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// A new checkpoint that has no name yet.
pub(super) struct Built {
    base: Arc<Base>,
    pub(super) view: View,
    /// Records of the old one, and those of them that could be read.
    pub(super) records_before: u64,
    pub(super) records: u64,
    /// What could not.
    pub(super) lost: Vec<KeyRange>,
}

/// Copies all readable records, and the lost ranges. What cannot be read in `from` is read from `second`, another
/// view of the same records. Returns the number of records, and the newly lost ranges.
fn copy(from: &View, second: Option<&View>, into: &Arc<Base>) -> EngineResult<(u64, Vec<KeyRange>)> {
    let mut copy = Copy { into, pairs: Vec::new(), bytes: 0, count: 0 };
    let mut lost_now = from.survey((&[], &AFTER_ALL), &mut |key, value| copy.take(key, value))?;
    if let Some(second) = second {
        for (start, end) in std::mem::take(&mut lost_now) {
            let lost = second.survey((&start, &end), &mut |key, value| copy.take(key, value))?;
            lost_now.extend(lost);
        }
    }
    copy.flush()?;
    let count = copy.count;
    if lost_now.is_empty() && count < from.records_count()? {
        // Some are missing, and it is not known which: everything that is not there is an error.
        lost_now.push((Vec::new(), AFTER_ALL.to_vec()));
    }
    into.add_lost(&merged([from.lost(), &lost_now].concat()))?;
    Ok((count, lost_now))
}

/// Ranges in key order, none touching another.
fn merged(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort();
    let mut merged: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if last.1 >= start => last.1 = end.max(std::mem::take(&mut last.1)),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Removes the draft that a crash during a rebuild leaves, since it takes room.
pub(super) fn remove_draft(disk: &dyn Disk) -> EngineResult<()> {
    match disk.remove(DRAFT_FILE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(EngineError::io(DRAFT_FILE, e)),
        _ => Ok(()),
    }
}

/// An empty draft.
fn draft(disk: &Arc<dyn Disk>, identity: u64, cache_bytes: usize) -> EngineResult<Arc<Base>> {
    remove_draft(&**disk)?;
    let base = Base::open(disk, DRAFT_FILE, Open::CreateNew, identity, cache_bytes)?;
    base.apply(&[], None)?;
    Ok(base)
}

/// Makes the draft the checkpoint.
fn give_name(disk: &dyn Disk) -> EngineResult<()> {
    let named = disk.rename(DRAFT_FILE, CHECKPOINT_FILE).and_then(|()| disk.sync_directory(""));
    named.map_err(|e| EngineError::io(CHECKPOINT_FILE, e))
}

/// Renames the damaged checkpoint, in place of one kept before. The draft's name is made durable first, so that
/// [`put_back`] recognises a crash between the two renames.
fn keep_damaged(disk: &dyn Disk) -> EngineResult<()> {
    let kept = disk.sync_directory("").and_then(|()| disk.rename(CHECKPOINT_FILE, DAMAGED_FILE));
    kept.map_err(|e| EngineError::io(DAMAGED_FILE, e))
}

/// Restores the name of the damaged checkpoint when a crash left it without a successor.
pub(super) fn put_back(disk: &dyn Disk) -> EngineResult<()> {
    let entries = disk.list("").map_err(|e| EngineError::io("the metadata directory", e))?;
    let is_there = |name: &str| entries.iter().any(|entry| entry.name == name);
    if is_there(CHECKPOINT_FILE) || !is_there(DAMAGED_FILE) || !is_there(DRAFT_FILE) {
        return Ok(());
    }
    let named = disk.rename(DAMAGED_FILE, CHECKPOINT_FILE).and_then(|()| disk.sync_directory(""));
    named.map_err(|e| EngineError::io(CHECKPOINT_FILE, e))
}

// ---- from format 1 ----

/// A file as redb had it in format 1.
pub(super) struct PlainBackend(pub(super) Arc<dyn DiskFile>);

impl std::fmt::Debug for PlainBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlainBackend")
    }
}

impl StorageBackend for PlainBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.read_at(out, offset)? {
            length if length == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}

/// Converts a directory of format 1. After a crash at any point it is either still of format 1 or of the present one.
pub(super) fn convert(disk: &Arc<dyn Disk>, identity: u64, options: &EngineOptions) -> EngineResult<()> {
    let missing = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => {
            EngineError::Corrupt(format!("{PLAIN_FILE} is missing: restore it from a backup"))
        }
        _ => EngineError::io(PLAIN_FILE, e),
    };
    let file = disk.open(PLAIN_FILE, Open::Existing).map_err(missing)?;
    let needed =
        GROWTH * file.allocated_bytes().map_err(|e| EngineError::io(PLAIN_FILE, e))? + ROOM_BYTES_MIN;
    // An interrupted conversion leaves a draft, which may have taken the room.
    remove_draft(&**disk)?;
    check_room(&**disk, needed)?;
    if rewrite::is_unsure(&**disk)? {
        rewrite::write_again(&**disk, PLAIN_FILE)?;
    }
    tracing::info!("the metadata directory has format 1: its checkpoint is written anew with checksums");
    let started_ns = options.clock.now_ns();
    let database = open_plain(file, options.cache_bytes)?;
    let view = guarded("reading", || View::of(&database))?;
    let base = draft(disk, identity, options.cache_bytes)?;
    let (records, lost) = copy(&view, None, &base)?;
    if !lost.is_empty() {
        return Err(damaged_before());
    }
    base.apply(&[], Some(view.applied))?;
    base.close();
    give_name(&**disk)?;
    format::write(&**disk, identity)?;
    remove_plain(&**disk)?;
    let took_ms = options.clock.now_ns().saturating_sub(started_ns) / 1_000_000;
    tracing::info!(records, took_ms, "the metadata directory has format 2 now");
    Ok(())
}

/// Opens a checkpoint of format 1 that agrees with redb's own checksums.
fn open_plain(file: Arc<dyn DiskFile>, cache_bytes: usize) -> EngineResult<Database> {
    let checked = guarded("opening", || {
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes);
        let mut database = builder.create_with_backend(PlainBackend(file))?;
        let is_sound = database.check_integrity()?;
        Ok((database, is_sound))
    });
    match checked {
        Ok((database, true)) => Ok(database),
        Ok((_, false)) | Err(EngineError::Corrupt(_)) => Err(damaged_before()),
        Err(other) => Err(other),
    }
}

fn damaged_before() -> EngineError {
    EngineError::Corrupt(format!(
        "{PLAIN_FILE} is damaged and cannot be converted to the present format: restore the metadata directory from a \
         backup, or copy what can be read with the version of vazao that wrote it, which does not notice wrong bytes"
    ))
}

/// Removes what is left of format 1.
pub(super) fn remove_plain(disk: &dyn Disk) -> EngineResult<()> {
    match disk.remove(PLAIN_FILE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(EngineError::io(PLAIN_FILE, e)),
        _ => Ok(()),
    }
}

fn check_room(disk: &dyn Disk, needed: u64) -> EngineResult<()> {
    let available = disk.space().map_or(u64::MAX, |space| space.available_bytes);
    if available >= needed {
        return Ok(());
    }
    Err(EngineError::Full(format!(
        "the metadata directory has format 1 and is converted at the start, for which its disk needs {} MiB of room; it \
         has {} MiB: make room, or start the version of vazao that wrote it",
        needed.div_ceil(1 << 20),
        available >> 20
    )))
}

// ---- from one that is damaged ----

impl Core {
    /// True when damage prevents changes to the checkpoint: the next one is a new file.
    pub(super) fn must_rebuild(&self) -> bool {
        self.must_rebuild.load(Ordering::Relaxed) || self.base().file().has_damage()
    }

    /// Bytes of room that the new file needs.
    pub(super) fn rebuild_bytes(&self) -> u64 {
        self.base().allocated_bytes().saturating_mul(GROWTH).saturating_add(ROOM_BYTES_MIN)
    }

    /// Notes that damage kept a change from being written; another error stops the engine.
    pub(super) fn note_unwritable(&self, error: &EngineError) {
        if !matches!(error, EngineError::Corrupt(_)) {
            self.fail(error);
        } else if !self.must_rebuild.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "the checkpoint is damaged: the next one is written anew");
        }
    }

    /// Writes a checkpoint with all that can be read of the present one, and `frozen`. `None`: no room, or too much
    /// would be lost.
    pub(super) fn rebuild(&self, frozen: &Overlay) -> EngineResult<Option<View>> {
        let started_ns = self.clock.now_ns();
        if self.base().file().is_ruined() {
            let text = "the checkpoint cannot be read in thousands of places: check the disk of the metadata directory";
            let error = EngineError::Corrupt(text.to_owned());
            self.fail(&error);
            return Err(error);
        }
        let built = match self.build(frozen) {
            Ok(built) => built,
            Err(EngineError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                remove_draft(&*self.disk)?;
                return Ok(None);
            }
            Err(error) => {
                self.fail(&error);
                return Err(error);
            }
        };
        if let Some(why) = self.too_much_lost(&built) {
            // Writes that redb still has pending for the draft are discarded.
            built.base.file().retire();
            drop(built);
            remove_draft(&*self.disk)?;
            self.keep_old(&why);
            return Ok(None);
        }
        self.take_over(&built)?;
        self.report_rebuilt(&built, started_ns);
        Ok(Some(built.view))
    }

    /// Gives the new checkpoint the name of the damaged one, which is kept when records of it are lost.
    fn take_over(&self, built: &Built) -> EngineResult<()> {
        // Before it loses its name, which would be noticed as an accident.
        self.base().file().retire();
        self.mended.lock().expect(NO_PANIC).extend(self.base().file().mended());
        let kept = if built.lost.is_empty() { Ok(()) } else { keep_damaged(&*self.disk) };
        kept.and_then(|()| give_name(&*self.disk)).inspect_err(|error| self.fail(error))?;
        *self.base.write().expect(NO_PANIC) = Arc::clone(&built.base);
        self.must_rebuild.store(false, Ordering::Relaxed);
        self.keeping.forget();
        Ok(())
    }

    fn report_rebuilt(&self, built: &Built, started_ns: u64) {
        let took_ms = self.clock.now_ns().saturating_sub(started_ns) / 1_000_000;
        let (records, lost_ranges) = (built.records, built.lost.len());
        match lost_ranges {
            0 => tracing::warn!(records, took_ms, "the damaged checkpoint was written anew; nothing is lost"),
            _ => tracing::error!(
                records,
                took_ms,
                lost_ranges,
                "the damaged checkpoint was written anew without records that could not be read; `vazao metadata check` \
                 says which files they concern. The old one is kept as {DAMAGED_FILE} until it is removed or another \
                 takes its place"
            ),
        }
    }

    /// A new checkpoint from what is on the disk and, where that cannot be read, from what is still in memory.
    fn build(&self, frozen: &Overlay) -> EngineResult<Built> {
        let in_memory = Arc::clone(&self.state().base);
        // What could not be read a while ago may be readable now, but not from memory.
        match self.base().view_of_disk() {
            Ok(on_disk) => self.build_from(&on_disk, Some(&in_memory), frozen),
            Err(_) => self.build_from(&in_memory, None, frozen),
        }
    }

    fn build_from(&self, old: &View, second: Option<&View>, frozen: &Overlay) -> EngineResult<Built> {
        let records_before = old.records_count()?;
        let base = draft(&self.disk, self.identity, self.cache_bytes)?;
        let (records, lost) = copy(old, second, &base)?;
        let changes: Vec<_> = frozen.iter().collect();
        let view = base.apply(&changes, Some(frozen.last()))?;
        Ok(Built { base, view, records_before, records, lost })
    }
}
