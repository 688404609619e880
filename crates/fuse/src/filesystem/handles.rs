//! Open files and directories by the number the kernel knows them by.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Enough that the threads of a mount rarely want the same lock.
const SHARDS: usize = 64;

type Shard<T> = Mutex<HashMap<u64, Arc<T>>>;

/// A table of handles. Numbers are not reused.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    next: AtomicU64,
    shards: Box<[Shard<T>]>,
}

impl<T> Handles<T> {
    /// An empty table.
    pub(crate) fn new() -> Handles<T> {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect();
        Handles { next: AtomicU64::new(1), shards }
    }

    fn shard(&self, handle: u64) -> MutexGuard<'_, HashMap<u64, Arc<T>>> {
        let index = (handle % SHARDS as u64) as usize;
        // A panic elsewhere cannot leave a map half changed: each critical section is one call of it.
        self.shards[index].lock()
    }

    /// Keeps `value`; its number.
    pub(crate) fn insert(&self, value: T) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(handle).insert(handle, Arc::new(value));
        handle
    }

    /// The value kept under `handle`.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.shard(handle).get(&handle).cloned()
    }

    /// Forgets `handle`.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.shard(handle).remove(&handle)
    }

    /// All values, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        (0..SHARDS as u64).flat_map(|shard| self.shard(shard).values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        (0..SHARDS as u64).map(|shard| self.shard(shard).len()).sum()
    }

    /// Empties the table.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        (0..SHARDS as u64)
            .flat_map(|shard| std::mem::take(&mut *self.shard(shard)).into_values().collect::<Vec<_>>())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_is_gone_and_its_number_is_not_used_again() {
        let handles = Handles::new();
        let first = handles.insert("a");
        assert_eq!(handles.get(first).as_deref(), Some(&"a"));
        assert_eq!(handles.remove(first).as_deref(), Some(&"a"));
        assert!(handles.get(first).is_none());
        assert_ne!(handles.insert("b"), first);
    }

    #[test]
    fn draining_returns_every_value_once() {
        let handles = Handles::new();
        let count = 3 * SHARDS;
        (0..count).for_each(|value| {
            handles.insert(value);
        });
        assert_eq!((handles.all().len(), handles.len()), (count, count));
        let mut drained: Vec<usize> = handles.drain().iter().map(|value| **value).collect();
        drained.sort_unstable();
        assert_eq!(drained, (0..count).collect::<Vec<_>>());
        assert!(handles.drain().is_empty());
    }
}
