//! Memory: reused staging buffers, and how much may be read ahead over all readers.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_wire::transport::{self, Buffer};

/// Buffers that were used before: fresh ones would cost a page fault for every 4 KiB.
#[derive(Debug)]
pub(crate) struct Pool<B = Vec<u8>> {
    kept: Mutex<Kept<B>>,
    bytes_max: usize,
}

#[derive(Debug)]
struct Kept<B> {
    buffers: Vec<B>,
    bytes: usize,
}

impl<B: DerefMut<Target = [u8]>> Pool<B> {
    /// A pool that keeps at most `bytes_max` for later.
    pub(crate) fn new(bytes_max: usize) -> Pool<B> {
        Pool { kept: Mutex::new(Kept { buffers: Vec::new(), bytes: 0 }), bytes_max }
    }

    /// A buffer of exactly `length` bytes, with unspecified contents; the one used last, which is still in the cache,
    /// or what `new` makes.
    pub(crate) fn take_or(self: &Arc<Self>, length: usize, new: impl FnOnce(usize) -> B) -> PooledBuffer<B> {
        let mut kept = self.kept.lock();
        let fitting = kept.buffers.iter().rposition(|b| b.len() == length);
        let bytes = fitting.map(|index| kept.buffers.remove(index));
        kept.bytes -= bytes.as_ref().map_or(0, |bytes| bytes.len());
        drop(kept);
        let bytes = Some(bytes.unwrap_or_else(|| new(length)));
        PooledBuffer { bytes, pool: Arc::clone(self) }
    }

    fn keep(&self, bytes: B) {
        let mut kept = self.kept.lock();
        if kept.bytes + bytes.len() <= self.bytes_max {
            kept.bytes += bytes.len();
            kept.buffers.push(bytes);
        }
    }
}

impl Pool {
    /// [`Pool::take_or`] of ordinary memory.
    pub(crate) fn take(self: &Arc<Pool>, length: usize) -> PooledBuffer {
        self.take_or(length, |length| vec![0; length])
    }
}

/// A buffer that goes back to its pool.
#[derive(Debug)]
pub(crate) struct PooledBuffer<B: DerefMut<Target = [u8]> = Vec<u8>> {
    /// Until it is dropped.
    bytes: Option<B>,
    pool: Arc<Pool<B>>,
}

impl PooledBuffer {
    /// The same as answers of servers have it.
    pub(crate) fn into_buffer(mut self) -> Buffer {
        let bytes = self.bytes.take().unwrap_or_default();
        let length = bytes.len();
        Buffer::new(bytes, length, Some(Arc::clone(&self.pool) as Arc<dyn transport::Pool>))
    }
}

impl transport::Pool for Pool {
    fn put_back(&self, bytes: Vec<u8>) {
        self.keep(bytes);
    }
}

impl<B: DerefMut<Target = [u8]>> Deref for PooledBuffer<B> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}

impl<B: DerefMut<Target = [u8]>> DerefMut for PooledBuffer<B> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().unwrap_or_default()
    }
}

impl<B: DerefMut<Target = [u8]>> Drop for PooledBuffer<B> {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
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
        assert_eq!(pool.kept.lock().buffers.len(), 2);
        let mut again = pool.take(4096);
        again[0] = 9;
        drop(again);
        assert_eq!(pool.take(4096)[0], 9);
        assert_eq!(pool.take(100).len(), 100);
    }
}
