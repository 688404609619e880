//! Open files of channels: a cache with a bound. What falls out of it is opened again when it is needed.

use crate::open_file::AreaFile;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Default)]
struct Inner {
    /// By channel: the file, and when it was last used.
    files: HashMap<u64, (Arc<AreaFile>, u64)>,
    /// By last use: the channel.
    order: BTreeMap<u64, u64>,
    uses: u64,
}

/// The cache.
pub(crate) struct Descriptors {
    inner: Mutex<Inner>,
    max: usize,
}

impl Descriptors {
    /// Keeps `max` files open.
    pub(crate) fn new(max: usize) -> Descriptors {
        Descriptors { inner: Mutex::default(), max: max.max(1) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// The file of a channel, where it is open.
    pub(crate) fn get(&self, channel: u64) -> Option<Arc<AreaFile>> {
        let inner = &mut *self.inner();
        let (file, used) = inner.files.get_mut(&channel)?;
        if *used != inner.uses {
            inner.order.remove(used);
            inner.uses += 1;
            *used = inner.uses;
            inner.order.insert(inner.uses, channel);
        }
        Some(Arc::clone(file))
    }

    /// Keeps a file open; closes the one used longest ago where there are too many.
    pub(crate) fn put(&self, channel: u64, file: Arc<AreaFile>) {
        // Closed after the lock is let go.
        let mut closed = Vec::new();
        let inner = &mut *self.inner();
        inner.uses += 1;
        if let Some((before, used)) = inner.files.insert(channel, (file, inner.uses)) {
            inner.order.remove(&used);
            closed.push(before);
        }
        inner.order.insert(inner.uses, channel);
        while inner.files.len() > self.max {
            let Some((_, oldest)) = inner.order.pop_first() else { break };
            closed.extend(inner.files.remove(&oldest).map(|(file, _)| file));
        }
    }

    /// Lets a channel's file go.
    pub(crate) fn remove(&self, channel: u64) {
        let mut inner = self.inner();
        let removed = inner.files.remove(&channel);
        if let Some((_, used)) = &removed {
            inner.order.remove(used);
        }
        drop(inner);
        drop(removed);
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.inner().files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::{Area, Surroundings};
    use crate::export::AreaConfig;

    fn file() -> Arc<AreaFile> {
        let area = Arc::new(Area::new(&AreaConfig::default(), &Surroundings::without_threads()));
        Arc::new(area.keep(std::fs::File::open("/dev/null").expect("is there").into()))
    }

    #[test]
    fn the_file_used_longest_ago_goes_first() {
        let cache = Descriptors::new(2);
        cache.put(1, file());
        cache.put(2, file());
        assert!(cache.get(1).is_some());
        cache.put(3, file());
        assert!(cache.get(1).is_some() && cache.get(2).is_none() && cache.get(3).is_some());
        cache.remove(1);
        cache.put(1, file());
        cache.put(1, file());
        assert_eq!(cache.len(), 2);
        let inner = cache.inner();
        assert_eq!(inner.files.len(), inner.order.len());
    }
}
