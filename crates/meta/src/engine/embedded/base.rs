//! The checkpoint: a redb database over a [`Disk`] file, so that it can live on a disk in memory as well.

use super::super::transaction::Writes;
use super::super::{EngineError, EngineResult, Position};
use super::overlay::{Older, Overlay};
use super::rewrite;
use redb::{
    AccessGuard, CompactionError, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageBackend, TableDefinition,
};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use vazao_disk::{Disk, DiskFile, Open};

/// Its file.
pub(super) const BASE_FILE: &str = "base.redb";

const RECORDS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("records");
const PROGRESS: TableDefinition<'static, &'static str, u64> = TableDefinition::new("progress");

/// The last commit that is in the checkpoint.
const APPLIED: &str = "applied";

const NO_PANIC: &str = "redb's panics are caught before this lock is left";

/// A redb file on a disk.
struct DiskBackend {
    file: Arc<dyn DiskFile>,
    /// A sync failed: what the file holds is not what it shows.
    unsure: Arc<AtomicBool>,
}

impl std::fmt::Debug for DiskBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskBackend")
    }
}

impl StorageBackend for DiskBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.file.read_at(out, offset)? {
            length if length == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync().inspect_err(|_| self.unsure.store(true, Ordering::Relaxed))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(data, offset)
    }
}

/// The database; gone once closed.
pub(super) struct Base {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    database: Mutex<Option<Database>>,
    unsure: Arc<AtomicBool>,
}

/// A changed key with its new value; `None`: removed.
pub(super) type Pending<'a> = (&'a [u8], Option<&'a [u8]>);

/// One state of the checkpoint, which stays readable while the next one is written.
pub(super) struct View {
    /// `None` while the file is being compacted, when nobody reads.
    records: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    /// The last commit in it.
    pub(super) applied: Position,
}

/// redb reports most damage as an error; where it panics instead, that is damage too.
fn guarded<T>(what: &str, work: impl FnOnce() -> Result<T, redb::Error>) -> EngineResult<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(redb::Error::Io(e))) => Err(EngineError::io(format!("{what} of {BASE_FILE}"), e)),
        Ok(Err(error)) => Err(EngineError::Corrupt(format!("{what} of {BASE_FILE}: {error}"))),
        Err(_) => {
            Err(EngineError::Corrupt(format!("{what} of {BASE_FILE}: its pages contradict each other")))
        }
    }
}

impl Base {
    /// Opens the checkpoint, or creates an empty one.
    pub(super) fn open(disk: &Arc<dyn Disk>, how: Open, cache_bytes: usize) -> EngineResult<Base> {
        let file = disk.open(BASE_FILE, how).map_err(|e| EngineError::io(BASE_FILE, e))?;
        let unsure = Arc::new(AtomicBool::new(false));
        let backend = DiskBackend { file: Arc::clone(&file), unsure: Arc::clone(&unsure) };
        rewrite::set_unsure(&**disk)?;
        let database = guarded("opening", || {
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes);
            Ok(builder.create_with_backend(backend)?)
        })?;
        let base = Base { disk: Arc::clone(disk), file, database: Mutex::new(Some(database)), unsure };
        base.settle()?;
        Ok(base)
    }

    /// Makes the tables of a new checkpoint, with what a volume begins with.
    pub(super) fn initialize(&self, initial: Writes) -> EngineResult<()> {
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
        self.file.length().map_or(u64::MAX, |length| length.saturating_sub(self.allocated_bytes()))
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

    /// Moves what is in use to the front of the file and cuts off the rest; false when somebody still reads an older
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
    pub(super) fn view(&self) -> EngineResult<View> {
        let database = self.database.lock().expect(NO_PANIC);
        let database = database.as_ref().ok_or_else(closed)?;
        guarded("reading", || {
            let transaction = database.begin_read()?;
            let applied = transaction.open_table(PROGRESS)?.get(APPLIED)?.map_or(0, |guard| guard.value());
            Ok(View { records: Some(transaction.open_table(RECORDS)?), applied })
        })
    }

    /// Writes changes, durably and in one transaction. `applied`: with them all commits up to this one are in it.
    pub(super) fn apply(&self, changes: &[Pending<'_>], applied: Option<Position>) -> EngineResult<View> {
        {
            let database = self.database.lock().expect(NO_PANIC);
            let database = database.as_ref().ok_or_else(closed)?;
            rewrite::set_unsure(&*self.disk)?;
            guarded("checkpoint", || write(database, changes, applied))?;
            self.settle()?;
        }
        self.view()
    }

    /// Declares the file sure again, unless a sync of it ever failed.
    fn settle(&self) -> EngineResult<()> {
        if self.unsure.load(Ordering::Relaxed) { Ok(()) } else { rewrite::set_sure(&*self.disk) }
    }

    /// Closes the file. redb keeps failures of its last writes to itself: they come out when it is opened again.
    pub(super) fn close(&self) {
        let Some(database) = self.database.lock().expect(NO_PANIC).take() else { return };
        let closed = rewrite::set_unsure(&*self.disk)
            .and_then(|()| {
                guarded("closing", || {
                    drop(database);
                    Ok(())
                })
            })
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

fn closed() -> EngineError {
    EngineError::Stopped("the engine was closed".to_owned())
}

fn write(database: &Database, changes: &[Pending<'_>], applied: Option<Position>) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    // The allocator's state goes into each commit: opening after a crash then needs no walk over all pages.
    transaction.set_quick_repair(true);
    {
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
    }
    transaction.commit()?;
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
    /// What stands in for the state of a file that nobody may read.
    pub(super) fn closed(applied: Position) -> View {
        View { records: None, applied }
    }

    fn records(&self) -> EngineResult<&ReadOnlyTable<&'static [u8], &'static [u8]>> {
        self.records.as_ref().ok_or_else(closed)
    }

    /// Number of records.
    pub(super) fn records_count(&self) -> EngineResult<u64> {
        let records = self.records()?;
        guarded("reading", || Ok(records.len()?))
    }

    pub(super) fn get(&self, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        let records = self.records()?;
        guarded("reading", || Ok(records.get(key)?.map(|guard| guard.value().to_vec())))
    }

    /// Pairs of `start <= key < end` in key order.
    pub(super) fn range(
        &self,
        start: &[u8],
        end: &[u8],
    ) -> EngineResult<impl Iterator<Item = EngineResult<Record>> + use<>> {
        let records = self.records()?;
        let mut range = guarded("reading", || Ok(records.range::<&[u8]>(start..end)?))?;
        Ok(std::iter::from_fn(move || {
            let next = guarded("reading", || {
                let pair = range.next().transpose()?;
                let record = pair.map(|(key, value)| Record { key, value });
                // In a damaged page these panic: here, where that is caught, and not where they are looked at next.
                if let Some(record) = &record {
                    let _ = (record.key(), record.value());
                }
                Ok(record)
            });
            next.transpose()
        }))
    }
}
