//! The checkpoint: a redb database over verified blocks, and the ranges of keys that were lost from it.
//!
//! A range is lost when the blocks under it were damaged and the checkpoint had to be rebuilt. Reads in it are errors
//! from then on, unless the key was written or removed since ([`super::lost`]): a lost record must not look like one
//! that never existed.

use super::super::transaction::Writes;
use super::super::{EngineError, EngineResult, Position};
use super::blocks::BlockFile;
use super::overlay::{Older, Overlay};
use super::{CHECKPOINT_FILE, lost, rewrite};
use redb::{
    AccessGuard, CompactionError, Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase,
    ReadableTable, ReadableTableMetadata, StorageBackend, TableDefinition, TableError,
};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use vazao_disk::{Disk, Open};

const RECORDS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("records");
const PROGRESS: TableDefinition<'static, &'static str, u64> = TableDefinition::new("progress");

/// Ranges of keys that were lost: the first key of each, and the first one after it.
const LOST: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("lost");

/// The last commit that is in the checkpoint.
const APPLIED: &str = "applied";

const NO_PANIC: &str = "redb's panics are caught before this lock is left";

/// The verified file as redb wants it.
struct BlockBackend {
    file: Arc<BlockFile>,
    /// A sync failed: the page cache may show data that the disk does not hold.
    unsure: Arc<AtomicBool>,
}

impl std::fmt::Debug for BlockBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BlockBackend")
    }
}

impl StorageBackend for BlockBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync().inspect_err(|_| self.unsure.store(true, Ordering::Relaxed))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}

/// Memory for pages of a database that is read once.
const SHADOW_CACHE_BYTES: usize = 8 << 20;

/// The verified file to read from, with everything that is written kept in memory: redb wants to write even where it
/// only reads.
struct ShadowBackend {
    file: Arc<BlockFile>,
    length: AtomicU64,
    /// By offset. redb asks for pages as it has written them.
    written: Mutex<BTreeMap<u64, Vec<u8>>>,
    passing: Arc<Passing>,
}

/// Whether a walk over records in their order skips damaged pages, and how many it has skipped. Each page is read
/// once in such a walk, when it comes to it.
#[derive(Default)]
struct Passing {
    is_on: AtomicBool,
    pages: AtomicU64,
}

impl std::fmt::Debug for ShadowBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShadowBackend")
    }
}

impl StorageBackend for ShadowBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length.load(Ordering::Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written.lock().expect(NO_PANIC);
        match written.get(&offset).and_then(|page| page.get(..out.len())) {
            Some(page) => out.copy_from_slice(page),
            None if !self.passing.is_on.load(Ordering::Relaxed) => self.file.read(offset, out)?,
            None if self.file.read_or_nothing(offset, out)? => {}
            None => drop(self.passing.pages.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.length.store(length, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.written.lock().expect(NO_PANIC).insert(offset, data.to_vec());
        Ok(())
    }
}

/// The database; gone once closed.
pub(super) struct Base {
    disk: Arc<dyn Disk>,
    file: Arc<BlockFile>,
    database: Mutex<Option<Database>>,
    unsure: Arc<AtomicBool>,
}

/// A range of keys: the first, and the first one after it.
pub(super) type KeyRange = (Vec<u8>, Vec<u8>);

/// A changed key with its new value; `None`: removed.
pub(super) type Pending<'a> = (&'a [u8], Option<&'a [u8]>);

/// One state of the checkpoint, which stays readable while the next one is written.
pub(super) struct View {
    /// `None` while the file is being compacted, when there are no readers.
    records: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    /// In key order, none within another.
    lost: Vec<KeyRange>,
    /// The last commit in it.
    pub(super) applied: Position,
    /// Closed at the end of the last read, even when another one has taken its place.
    _base: Option<Arc<Base>>,
    shadow: Option<Shadow>,
}

/// A database for one view.
struct Shadow {
    database: Option<Database>,
    passing: Arc<Passing>,
}

impl Drop for Shadow {
    /// redb reads when it closes a database, and panics over pages that are not what it expects.
    fn drop(&mut self) {
        self.passing.is_on.store(false, Ordering::Relaxed);
        let database = self.database.take();
        // Nothing was written to the file.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
    }
}

/// redb reports most damage as an error; where it panics instead, that is damage too.
pub(super) fn guarded<T>(what: &str, work: impl FnOnce() -> Result<T, redb::Error>) -> EngineResult<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(redb::Error::Io(e))) => Err(EngineError::io(format!("{what} of {CHECKPOINT_FILE}"), e)),
        // The I/O error was reported when it happened. It is not damage.
        Ok(Err(redb::Error::PreviousIo)) => Err(EngineError::io(
            format!("{what} of {CHECKPOINT_FILE}"),
            io::Error::other("an earlier write of it failed"),
        )),
        // What is wrong is known from the blocks; redb's word for it is only that of a page that cannot be used.
        Ok(Err(_)) | Err(_) => Err(EngineError::Corrupt(format!(
            "{what} of {CHECKPOINT_FILE}: it is damaged there; `vazao metadata check` says what else is"
        ))),
    }
}

impl Base {
    /// Opens a checkpoint, or creates an empty one. The file's name may be a draft's.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        name: &str,
        how: Open,
        identity: u64,
        cache_bytes: usize,
    ) -> EngineResult<Arc<Base>> {
        let file = open_blocks(disk, name, how, identity)?;
        let unsure = Arc::new(AtomicBool::new(false));
        rewrite::set_unsure(&**disk)?;
        let known = file.damage();
        let mut database = open_database(&file, &unsure, cache_bytes)?;
        if file.damage() != known {
            // After an unclean stop redb reads a state that never became durable, and falls back to the one before.
            // Damaged blocks of the former are no damage. Opened again with an empty cache, it reads only what is in
            // use.
            guarded("closing", || {
                drop(database);
                Ok(())
            })?;
            file.set_damage(known);
            database = open_database(&file, &unsure, cache_bytes)?;
        }
        let base = Base { disk: Arc::clone(disk), file, database: Mutex::new(Some(database)), unsure };
        base.settle()?;
        Ok(Arc::new(base))
    }

    /// The same records as they are on the disk at this moment, with an empty cache. No other thread may be writing.
    /// It is for one walk in the order of keys, which skips damaged pages ([`View::passed_pages`]).
    pub(super) fn view_of_disk(&self) -> EngineResult<View> {
        let passing = Arc::new(Passing::default());
        let backend = ShadowBackend {
            file: Arc::clone(&self.file),
            length: AtomicU64::new(self.file.length().map_err(|e| EngineError::io(CHECKPOINT_FILE, e))?),
            written: Mutex::default(),
            passing: Arc::clone(&passing),
        };
        let database = guarded("opening", || {
            let mut builder = Database::builder();
            builder.set_cache_size(SHADOW_CACHE_BYTES);
            Ok(builder.create_with_backend(backend)?)
        })?;
        let view = guarded("reading", || View::of(&database))?;
        // Not before: what else is in the file must be whole.
        passing.is_on.store(true, Ordering::Relaxed);
        Ok(View { shadow: Some(Shadow { database: Some(database), passing }), ..view })
    }

    /// Its file.
    pub(super) fn file(&self) -> &BlockFile {
        &self.file
    }

    /// Makes the tables of a new checkpoint, with what a volume begins with.
    pub(super) fn initialize(self: &Arc<Base>, initial: Writes) -> EngineResult<()> {
        let mut overlay = Overlay::default();
        overlay.apply(0, initial);
        let changes: Vec<_> = overlay.iter().collect();
        self.apply(&changes, Some(overlay.last())).map(|_| ())
    }

    /// Bytes of storage it uses.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.file.allocated_bytes().unwrap_or(u64::MAX)
    }

    /// How much of its file takes no storage.
    pub(super) fn hole_bytes(&self) -> u64 {
        self.file.hole_bytes().unwrap_or(u64::MAX)
    }

    /// Bytes of its file that hold something. Finding out reads all inner pages and leaves.
    pub(super) fn used_bytes(&self) -> EngineResult<u64> {
        let database = self.database.lock().expect(NO_PANIC);
        let database = database.as_ref().ok_or_else(closed)?;
        guarded("measuring", || {
            let transaction = database.begin_write()?;
            let stats = transaction.stats()?;
            transaction.abort()?;
            Ok(stats.allocated_pages() * stats.page_size() as u64)
        })
    }

    /// Moves what is in use to the front of the file and cuts off the rest; false while a reader holds an older
    /// state.
    pub(super) fn compact(&self) -> EngineResult<bool> {
        let mut database = self.database.lock().expect(NO_PANIC);
        let database = database.as_mut().ok_or_else(closed)?;
        rewrite::set_unsure(&*self.disk)?;
        let is_done = guarded("compaction", || match database.compact() {
            Err(CompactionError::TransactionInProgress) => Ok(false),
            other => Ok(other.map(|_| true)?),
        })?;
        self.settle()?;
        Ok(is_done)
    }

    /// The present state.
    pub(super) fn view(self: &Arc<Base>) -> EngineResult<View> {
        let database = self.database.lock().expect(NO_PANIC);
        let database = database.as_ref().ok_or_else(closed)?;
        let view = guarded("reading", || View::of(database))?;
        Ok(View { _base: Some(Arc::clone(self)), ..view })
    }

    /// Writes changes, durably and in one transaction. `applied`: with them all commits up to this one are in it.
    pub(super) fn apply(
        self: &Arc<Base>,
        changes: &[Pending<'_>],
        applied: Option<Position>,
    ) -> EngineResult<View> {
        self.change("checkpoint", |database| {
            let ranges = lost_ranges(&database.begin_read()?)?;
            let transaction = begin_write(database)?;
            write(&transaction, changes, applied)?;
            forget_lost(&transaction, &ranges, changes)?;
            if self.file.has_damage() {
                // redb may have merged a neighbour with the placeholder of a damaged page.
                return Err(redb::Error::Corrupted("a page that was read is damaged".to_owned()));
            }
            Ok(transaction.commit()?)
        })?;
        self.view()
    }

    /// Notes ranges as lost, beside those that are.
    pub(super) fn add_lost(&self, ranges: &[KeyRange]) -> EngineResult<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        self.change("noting losses", |database| {
            let transaction = begin_write(database)?;
            let mut lost = transaction.open_table(LOST)?;
            for (start, end) in ranges {
                lost.insert(start.as_slice(), end.as_slice())?;
            }
            drop(lost);
            Ok(transaction.commit()?)
        })
    }

    fn change(
        &self,
        what: &str,
        work: impl FnOnce(&Database) -> Result<(), redb::Error>,
    ) -> EngineResult<()> {
        let database = self.database.lock().expect(NO_PANIC);
        let database = database.as_ref().ok_or_else(closed)?;
        rewrite::set_unsure(&*self.disk)?;
        guarded(what, || work(database))?;
        self.settle()
    }

    /// Declares the file sure again, unless a sync of it ever failed.
    fn settle(&self) -> EngineResult<()> {
        if self.unsure.load(Ordering::Relaxed) { Ok(()) } else { rewrite::set_sure(&*self.disk) }
    }

    /// Closes the file. redb does not report failures of its last writes: the next open finds them.
    pub(super) fn close(&self) {
        let Some(database) = self.database.lock().expect(NO_PANIC).take() else { return };
        if self.file.is_retired() {
            // Writes that redb still has pending are discarded.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
            return;
        }
        let closed = rewrite::set_unsure(&*self.disk)
            .and_then(|()| {
                guarded("closing", || {
                    drop(database);
                    Ok(())
                })
            })
            .and_then(|()| self.file.close().map_err(|e| EngineError::io(CHECKPOINT_FILE, e)))
            .and_then(|()| self.settle());
        if let Err(error) = closed {
            tracing::warn!(%error, "the checkpoint will be written again at the next start");
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        self.close();
    }
}

fn open_database(
    file: &Arc<BlockFile>,
    unsure: &Arc<AtomicBool>,
    cache_bytes: usize,
) -> EngineResult<Database> {
    let backend = BlockBackend { file: Arc::clone(file), unsure: Arc::clone(unsure) };
    let opened = guarded("opening", || {
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes);
        Ok(builder.create_with_backend(backend)?)
    });
    opened.map_err(|error| unopened(error, file))
}

fn open_blocks(disk: &Arc<dyn Disk>, name: &str, how: Open, identity: u64) -> EngineResult<Arc<BlockFile>> {
    let failed = |e| EngineError::io(name, e);
    let file = disk.open(name, how).map_err(failed)?;
    if how == Open::CreateNew {
        return Ok(Arc::new(BlockFile::create(file, identity, disk.boot_id())));
    }
    let file = BlockFile::open(file, identity, disk.boot_id())?;
    if rewrite::is_unsure(&**disk)? || file.has_lost_power() {
        let torn = file.give_up_torn().map_err(failed)?;
        file.sync().map_err(failed)?;
        if torn > 0 {
            tracing::info!(torn, "blocks of the checkpoint were being written when the service ended");
        }
    }
    Ok(Arc::new(file))
}

/// redb's own pages are damaged: there is no way to the records.
fn unopened(error: EngineError, file: &BlockFile) -> EngineError {
    match (error, file.known_damage().first()) {
        (EngineError::Corrupt(_), Some((byte, why))) => EngineError::Corrupt(format!(
            "{CHECKPOINT_FILE} is damaged at byte {byte} ({why}), where its inner structure lies: put the metadata \
             directory aside and restore it from a backup"
        )),
        (other, _) => other,
    }
}

fn closed() -> EngineError {
    EngineError::Stopped("the engine was closed".to_owned())
}

fn begin_write(database: &Database) -> Result<redb::WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    // The allocator's state goes into each commit: opening after a crash then needs no walk over all pages.
    transaction.set_quick_repair(true);
    Ok(transaction)
}

fn write(
    transaction: &redb::WriteTransaction,
    changes: &[Pending<'_>],
    applied: Option<Position>,
) -> Result<(), redb::Error> {
    let mut records = transaction.open_table(RECORDS)?;
    for (key, value) in changes {
        match value {
            Some(value) => records.insert(key, value)?,
            None => records.remove(key)?,
        };
    }
    let mut progress = transaction.open_table(PROGRESS)?;
    let before = progress.get(APPLIED)?.map_or(0, |guard| guard.value());
    progress.insert(APPLIED, before.max(applied.unwrap_or(0)))?;
    Ok(())
}

/// Cuts the keys that are removed out of the lost ranges.
fn forget_lost(
    transaction: &redb::WriteTransaction,
    ranges: &[KeyRange],
    changes: &[Pending<'_>],
) -> Result<(), redb::Error> {
    let removed = changes.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| *key);
    let Some(left) = lost::without(ranges, removed) else { return Ok(()) };
    let mut table = transaction.open_table(LOST)?;
    for (start, _) in ranges {
        table.remove(start.as_slice())?;
    }
    for (start, end) in &left {
        table.insert(start.as_slice(), end.as_slice())?;
    }
    Ok(())
}

/// A pair in the checkpoint, where it lies.
pub(super) struct Record {
    key: AccessGuard<'static, &'static [u8]>,
    value: AccessGuard<'static, &'static [u8]>,
}

impl Older for Record {
    fn key(&self) -> &[u8] {
        self.key.value()
    }

    fn value(&self) -> &[u8] {
        self.value.value()
    }
}

impl View {
    /// The present state of a database.
    pub(super) fn of(database: &Database) -> Result<View, redb::Error> {
        let transaction = database.begin_read()?;
        let applied = transaction.open_table(PROGRESS)?.get(APPLIED)?.map_or(0, |guard| guard.value());
        let lost = lost_ranges(&transaction)?;
        Ok(View { records: Some(transaction.open_table(RECORDS)?), lost, applied, _base: None, shadow: None })
    }

    /// Placeholder for the state of a file that must not be read.
    pub(super) fn closed(applied: Position) -> View {
        View { records: None, lost: Vec::new(), applied, _base: None, shadow: None }
    }

    fn records(&self) -> EngineResult<&ReadOnlyTable<&'static [u8], &'static [u8]>> {
        self.records.as_ref().ok_or_else(closed)
    }

    /// Damaged pages that were passed over so far. Records between two others are lost when it has grown between these.
    pub(super) fn passed_pages(&self) -> u64 {
        self.shadow.as_ref().map_or(0, |shadow| shadow.passing.pages.load(Ordering::Relaxed))
    }

    /// Number of records.
    pub(super) fn records_count(&self) -> EngineResult<u64> {
        let records = self.records()?;
        guarded("reading", || Ok(records.len()?))
    }

    /// The ranges of keys that were lost.
    pub(super) fn lost(&self) -> &[KeyRange] {
        &self.lost
    }

    pub(super) fn get(&self, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        let records = self.records()?;
        let found = guarded("reading", || Ok(records.get(key)?.map(|guard| guard.value().to_vec())))?;
        match found.is_none() && !lost::within(&self.lost, key, &[key, &[0]].concat()).is_empty() {
            true => Err(lost::error()),
            false => Ok(found),
        }
    }

    /// Pairs of `start <= key < end` in key order, losses left out of account.
    pub(super) fn raw_range(
        &self,
        start: &[u8],
        end: &[u8],
    ) -> EngineResult<impl DoubleEndedIterator<Item = EngineResult<Record>> + use<>> {
        let records = self.records()?;
        let range = guarded("reading", || Ok(records.range::<&[u8]>(start..end)?))?;
        Ok(Records(range))
    }
}

fn lost_ranges(transaction: &ReadTransaction) -> Result<Vec<KeyRange>, redb::Error> {
    let table = match transaction.open_table(LOST) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        other => other?,
    };
    let mut ranges = Vec::new();
    for pair in table.iter()? {
        let (start, end) = pair?;
        ranges.push((start.value().to_vec(), end.value().to_vec()));
    }
    Ok(ranges)
}

/// Records of redb as they come, or as they come from the end.
struct Records(redb::Range<'static, &'static [u8], &'static [u8]>);

type Next = Option<Result<RawPair, redb::StorageError>>;
type RawPair = (AccessGuard<'static, &'static [u8]>, AccessGuard<'static, &'static [u8]>);

impl Records {
    fn take(
        &mut self,
        next: fn(&mut redb::Range<'static, &'static [u8], &'static [u8]>) -> Next,
    ) -> Option<EngineResult<Record>> {
        let next = guarded("reading", || {
            let pair = next(&mut self.0).transpose()?;
            let record = pair.map(|(key, value)| Record { key, value });
            // In a damaged page these panic: here, where that is caught, and not where they are looked at next.
            if let Some(record) = &record {
                let _ = (record.key(), record.value());
            }
            Ok(record)
        });
        next.transpose()
    }
}

impl Iterator for Records {
    type Item = EngineResult<Record>;

    fn next(&mut self) -> Option<EngineResult<Record>> {
        self.take(Iterator::next)
    }
}

impl DoubleEndedIterator for Records {
    fn next_back(&mut self) -> Option<EngineResult<Record>> {
        self.take(DoubleEndedIterator::next_back)
    }
}
