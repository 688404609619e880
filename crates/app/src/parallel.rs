//! The same work on many things by a few threads.

use crate::failure::{Failure, Outcome};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads of one command: enough to keep a metadata service and a handful of data servers busy.
pub(crate) const THREADS: usize = 8;

/// Runs `work` on every item with [`THREADS`] threads. After a failure no new item is begun; the first failure is
/// returned.
pub(crate) fn for_each<T: Sync>(items: &[T], work: impl Fn(&T) -> Outcome + Sync) -> Outcome {
    let next = AtomicUsize::new(0);
    let first_failure: Mutex<Option<Failure>> = Mutex::new(None);
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(failure) = work(item) {
                next.store(items.len(), Ordering::Relaxed);
                first_failure.lock().get_or_insert(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS.min(items.len()) {
            scope.spawn(run);
        }
        run();
    });
    let failure = first_failure.into_inner();
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_item_is_worked_on_once() {
        let sum = AtomicU64::new(0);
        let items: Vec<u64> = (0..10_000).collect();
        let done = for_each(&items, |item| {
            sum.fetch_add(*item, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!((done, sum.into_inner()), (Ok(()), 49_995_000));
    }

    #[test]
    fn the_first_failure_ends_the_work_and_is_returned() {
        let begun = AtomicUsize::new(0);
        let items = vec![0; 100_000];
        let done = for_each(&items, |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            Err(Failure::new("no"))
        });
        assert_eq!(done, Err(Failure::new("no")));
        assert!(begun.into_inner() <= 2 * THREADS);
    }
}
