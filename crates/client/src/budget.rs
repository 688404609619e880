//! Memory: reused staging buffers, and how much may be read ahead over all readers.

use crate::core::locked;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use vazao_wire::transport::{self, Buffer};

/// Staging buffers that were used before: fresh ones would cost a page fault for every 4 KiB written.
#[derive(Debug)]
pub(crate) struct Pool {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// A pool that keeps at most `bytes_max` for later.
    pub(crate) fn new(bytes_max: usize) -> Pool {
        Pool { kept: Mutex::default(), bytes_max }
    }

    /// A buffer of exactly `length` bytes, with unspecified contents; the one used last, which is still in the cache.
    pub(crate) fn take(self: &Arc<Pool>, length: usize) -> PooledBuffer {
        let mut kept = locked(&self.kept);
        let fitting = kept.buffers.iter().rposition(|b| b.len() == length);
        let bytes = fitting.map(|index| kept.buffers.remove(index));
        kept.bytes -= bytes.as_ref().map_or(0, Vec::len);
        drop(kept);
        PooledBuffer { bytes: bytes.unwrap_or_else(|| vec![0; length]), pool: Arc::clone(self) }
    }

    fn keep(&self, bytes: Vec<u8>) {
        let mut kept = locked(&self.kept);
        if kept.bytes + bytes.len() <= self.bytes_max {
            kept.bytes += bytes.len();
            kept.buffers.push(bytes);
        }
    }
}

/// A buffer that goes back to its pool.
#[derive(Debug)]
pub(crate) struct PooledBuffer {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl PooledBuffer {
    /// The same as answers of servers have it.
    pub(crate) fn into_buffer(mut self) -> Buffer {
        let bytes = std::mem::take(&mut self.bytes);
        let length = bytes.len();
        Buffer::new(bytes, length, Some(Arc::clone(&self.pool) as Arc<dyn transport::Pool>))
    }
}

impl transport::Pool for Pool {
    fn put_back(&self, bytes: Vec<u8>) {
        self.keep(bytes);
    }
}

impl std::ops::Deref for PooledBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if !bytes.is_empty() {
            self.pool.keep(bytes);
        }
    }
}

/// Bytes asked for ahead of readers and not yet dropped.
#[derive(Debug, Default)]
pub(crate) struct ReadAheadBudget {
    bytes: AtomicUsize,
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct ReadAheadShare {
    budget: Arc<ReadAheadBudget>,
    bytes: usize,
}

impl ReadAheadBudget {
    /// Counts `bytes`.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> ReadAheadShare {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        ReadAheadShare { budget: Arc::clone(self), bytes }
    }

    /// Bytes counted now.
    pub(crate) fn used(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for ReadAheadShare {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_hands_out_the_buffer_used_last_and_keeps_no_more_than_it_may() {
        let pool = Arc::new(Pool::new(2 * 4096));
        let mut first = pool.take(4096);
        let second = pool.take(4096);
        let third = pool.take(4096);
        first[0] = 7;
        drop((second, third, first));
        assert_eq!(locked(&pool.kept).buffers.len(), 2);
        let mut again = pool.take(4096);
        again[0] = 9;
        drop(again);
        assert_eq!(pool.take(4096)[0], 9);
        assert_eq!(pool.take(100).len(), 100);
    }
}
