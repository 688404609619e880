//! The ordered transactional key-value engine under the metadata service: the trait, its limits, the registry.
//!
//! An engine knows bytes and order, nothing of inodes. Transactions are optimistic: reads go to the present state,
//! writes stay with the transaction, and a commit succeeds when nothing that was read has been changed since. An
//! engine may refuse a commit until it has caught up with earlier ones, which takes seconds on a slow disk; what
//! happens then is in `crate::service::backpressure`.

pub(crate) mod embedded;
pub(crate) mod memory;
mod transaction;

pub(crate) use transaction::Writes;

#[cfg(test)]
mod conformance;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use vazao_disk::Disk;
use vazao_meter::{Accounts, Clock};

/// Longest key. FoundationDB refuses more than 10,000 bytes; ours need a prefix, two numbers and a name.
pub(crate) const KEY_BYTES_MAX: usize = 1024;

/// Longest value, as in FoundationDB, the strictest engine the schema has to fit.
pub(crate) const VALUE_BYTES_MAX: usize = 100_000;

/// Most bytes of keys and values that one transaction writes; FoundationDB's limit is 10 MB and its advice 1 MB.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 1_000_000;

/// Number of a commit: grows by one with each commit that writes. Recovery always restores a prefix of this order.
pub(crate) type Position = u64;

/// A key with its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// Result of an engine call.
pub(crate) type EngineResult<T> = Result<T, EngineError>;

/// What to run once a position is durable, or will never be.
pub(crate) type Notice = Box<dyn FnOnce(EngineResult<()>) + Send>;

/// Why an engine failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum EngineError {
    /// The disk under it failed.
    #[error("{what}: {source}")]
    Io {
        /// Which file, and what was done to it.
        what: String,
        /// The disk's own word.
        source: Arc<io::Error>,
    },
    /// What is stored contradicts itself.
    #[error("{0}")]
    Corrupt(String),
    /// The directory is of another format, or not ours.
    #[error("{0}")]
    Refused(String),
    /// A transaction breaks one of the limits above: a defect of the caller.
    #[error("{0}")]
    TooLarge(String),
    /// The disk has no room for this. It goes on by itself when there is.
    #[error("{0}")]
    Full(String),
    /// An earlier failure stopped the engine.
    #[error("stopped after an earlier failure: {0}; once that is mended, start the metadata service again")]
    Failed(String),
    /// It was closed.
    #[error("{0}")]
    Stopped(String),
}

impl EngineError {
    /// A disk's error about `what`.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> EngineError {
        EngineError::Io { what: what.into(), source: Arc::new(source) }
    }
}

/// How a commit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Commit {
    /// Applied; everything up to this position is visible.
    Done(Position),
    /// Something that was read has changed since: run the transaction again.
    Conflict,
}

/// One transaction. Dropping it discards its writes.
pub(crate) trait Transaction {
    /// The value of `key`, this transaction's own writes included.
    fn get(&mut self, key: &[u8]) -> EngineResult<Option<Vec<u8>>>;

    /// Gives the values of `keys`, which ascend, to `take`, each with its key's index, in one pass over all that lies
    /// between the first and the last: faster than one by one where that is not much more. For a transaction without
    /// writes.
    fn visit_keys(&mut self, keys: &[Vec<u8>], take: &mut dyn FnMut(usize, &[u8])) -> EngineResult<()>;

    /// Up to `limit` pairs of `start <= key < end` in key order, own writes included.
    fn scan(&mut self, start: &[u8], end: &[u8], limit: usize) -> EngineResult<Vec<Pair>>;

    /// The same without copies: gives each pair to `take`, and returns how many there were.
    fn visit(
        &mut self,
        start: &[u8],
        end: &[u8],
        limit: usize,
        take: &mut dyn FnMut(&[u8], &[u8]),
    ) -> EngineResult<usize>;

    /// Sets a value. Does not read: two transactions that only put the same key do not conflict.
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>);

    /// Removes a key, blindly as well.
    fn delete(&mut self, key: Vec<u8>);

    /// Discards the writes and keeps the read set: the commit then only checks that all reads were of one state.
    fn discard_writes(&mut self);

    /// [`Transaction::commit_unless_behind`] after [`Engine::catch_up`].
    #[cfg(test)]
    fn commit(self: Box<Self>) -> EngineResult<Commit>;

    /// Ends the transaction. Without writes it only checks the reads. Never waits for a disk: `None` while the engine
    /// is behind, and nothing is changed.
    fn commit_unless_behind(self: Box<Self>) -> EngineResult<Option<Commit>>;
}

/// Figures of an engine for the metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Number of the last commit.
    pub(crate) position: Position,
    /// Commits up to here survive power loss.
    pub(crate) durable: Position,
    /// Bytes of changes in memory, not yet in a checkpoint.
    pub(crate) overlay_bytes: u64,
    /// Bytes written to the log.
    pub(crate) log_bytes: u64,
    /// Syncs of the log.
    pub(crate) syncs: u64,
    /// Checkpoints finished.
    pub(crate) checkpoints: u64,
}

/// What an engine knows to be wrong with what it has stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// Places that are damaged, for people. Reading what lies there is an error.
    pub(crate) damaged: Vec<String>,
    /// Ranges of keys whose records were lost. Reading in them is an error.
    pub(crate) lost_ranges: u64,
    /// Damage that was mended since the start.
    pub(crate) mended: Vec<String>,
    /// Why the engine stopped.
    pub(crate) failure: Option<String>,
}

/// An ordered transactional key-value store.
pub(crate) trait Engine: Send + Sync + 'static {
    /// Starts a transaction.
    fn begin(&self) -> Box<dyn Transaction + '_>;

    /// Returns once everything committed so far survives the end of the process.
    fn flush(&self) -> EngineResult<()>;

    /// Returns once everything committed so far survives power loss.
    fn sync(&self) -> EngineResult<()>;

    /// A number that changes whenever commits that were acknowledged and not made durable may have been lost with
    /// power. 0: that cannot happen.
    fn power_epoch(&self) -> u64 {
        0
    }

    /// Calls `notice` once `position` survives power loss: at once when it does already, else from any thread.
    /// Takes effect with the next [`Engine::flush`].
    fn when_durable(&self, position: Position, notice: Notice);

    /// Blocks until the engine takes further changes. Fails when it stops or has failed.
    fn catch_up(&self) -> EngineResult<()> {
        Ok(())
    }

    /// Does what background threads would, for an engine that was opened without any.
    fn maintain(&self) -> EngineResult<()>;

    /// Makes everything durable and releases the files. Later calls fail with `Stopped`.
    fn close(&self) -> EngineResult<()>;

    /// Fails with `Full` while the disk has only the reserve left that removals need: growth is to be refused then.
    fn room(&self) -> EngineResult<()> {
        Ok(())
    }

    /// Fails while commits cannot be written, after trying to.
    fn writable(&self) -> EngineResult<()> {
        Ok(())
    }

    /// The disk is slow to sync: power loss would take older commits than promised. A change is answered only when it
    /// is durable then.
    fn is_behind(&self) -> bool {
        false
    }

    /// Fails when the engine has failed, or when what it writes to is not where its files are looked for any more.
    fn intact(&self) -> EngineResult<()> {
        Ok(())
    }

    /// Commits up to here are written, though perhaps not durable; the rest is kept until the disk takes it.
    fn written(&self) -> Position {
        self.figures().position
    }

    /// Reads everything that is stored from the disk and compares it with its checksums; [`Engine::health`] reports
    /// what is found. `go_on` gets the bytes read since its last call and the total bytes, and stops the scrub by
    /// returning false, which is the result then.
    fn scrub(&self, _go_on: &mut dyn FnMut(u64, u64) -> bool) -> EngineResult<bool> {
        Ok(true)
    }

    /// What is known to be wrong.
    fn health(&self) -> Health {
        Health::default()
    }

    /// The first key in `[start, end)` from which on reads succeed again, `start` being one where they fail; `end` when
    /// there is none.
    fn next_reachable(&self, _start: &[u8], end: &[u8]) -> Vec<u8> {
        end.to_vec()
    }

    /// Present figures.
    fn figures(&self) -> Figures;
}

/// Whether an engine may have threads of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Background {
    /// Syncs and checkpoints happen in threads.
    #[default]
    Threads,
    /// They happen within `flush` and `tick`: under a simulated clock the caller's order decides everything.
    Manual,
}

/// What an engine is opened with.
#[derive(Clone)]
pub(crate) struct EngineOptions {
    /// The directory it may use.
    pub(crate) disk: Arc<dyn Disk>,
    /// Its time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Threads or none.
    pub(crate) background: Background,
    /// A checkpoint starts when the changes in memory exceed this.
    pub(crate) overlay_bytes_max: usize,
    /// Memory for pages of the checkpoint.
    pub(crate) cache_bytes: usize,
    /// Random number that marks a new volume's log records.
    pub(crate) identity: u64,
    /// What a new volume begins with: it is there from the first moment that the directory is complete.
    pub(crate) initial: Writes,
    /// Records that every start needs: a checkpoint without them never takes the place of a damaged one.
    pub(crate) essential: Vec<Range<Vec<u8>>>,
    /// Where waiting for the disk is charged.
    pub(crate) accounts: Arc<Accounts>,
}

/// Opens the engine of that name. The registry: one line an engine.
pub(crate) fn open(name: &str, options: EngineOptions) -> EngineResult<Arc<dyn Engine>> {
    match name {
        "memory" => Ok(Arc::new(memory::MemoryEngine::holding(options.initial))),
        "embedded" => Ok(embedded::EmbeddedEngine::open(options)?),
        other => Err(EngineError::Refused(format!("engine \"{other}\" is unknown: use embedded or memory"))),
    }
}
