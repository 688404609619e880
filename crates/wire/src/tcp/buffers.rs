//! Reused buffers. A `Vec` keeps its initialised length for life, so that reuse costs neither clearing nor page faults.

use crate::transport::{Buffer, Pool};
use parking_lot::Mutex;
use std::sync::Arc;

/// Buffers above this are freed after use: they belong to rare giant frames.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A small stack of buffers for one thread.
#[derive(Default)]
pub(super) struct Stack {
    free: Vec<Vec<u8>>,
}

/// Buffers a loop thread keeps for later.
const STACK_BUFFERS_MAX: usize = 16;

impl Stack {
    /// A buffer of at least `length` initialised bytes.
    pub(super) fn take(&mut self, length: usize) -> Vec<u8> {
        let mut buffer = self.free.pop().unwrap_or_default();
        // Not longer than asked for: what is kept of requests is bounded, and slack would count.
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn put(&mut self, buffer: Vec<u8>) {
        if self.free.len() < STACK_BUFFERS_MAX && !buffer.is_empty() && buffer.len() <= KEPT_BYTES_MAX {
            self.free.push(buffer);
        }
    }
}

/// Makes `buffer` at least `length` long, doubling so that growth stays linear.
pub(super) fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length.max(buffer.len() * 2), 0);
    }
}

/// The client's buffers for attachments, shared by its threads.
#[derive(Default)]
pub(super) struct SharedPool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// Bytes a client keeps in unused buffers: 64 of the usual 256 KiB.
const POOL_BUFFERS_MAX: usize = 64;

impl SharedPool {
    /// A buffer of at least `length` initialised bytes.
    pub(super) fn take(&self, length: usize) -> Vec<u8> {
        let mut buffer = self.free.lock().pop().unwrap_or_default();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        buffer
    }

    /// The first `length` bytes of `bytes` as a buffer that returns to this pool.
    pub(super) fn lend(self: &Arc<Self>, bytes: Vec<u8>, length: usize) -> Buffer {
        let home = (!bytes.is_empty()).then(|| Arc::clone(self) as Arc<dyn Pool>);
        Buffer::new(bytes, length, home)
    }
}

impl Pool for SharedPool {
    fn put_back(&self, bytes: Vec<u8>) {
        let mut free = self.free.lock();
        if free.len() < POOL_BUFFERS_MAX && bytes.len() <= KEPT_BYTES_MAX {
            free.push(bytes);
        }
    }
}
