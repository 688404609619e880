//! Locks on ranges of objects: changes that touch the same blocks are made one after the other, in the order in which
//! they came.
//!
//! A range that is asked for waits for all earlier ones of its object that it overlaps, also for those that wait
//! themselves, so that one of a whole object gets its turn. Who holds one asks for no other.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::ops::Range;
use vazao_model::ObjectId;
use vazao_model::limits::BLOCK_BYTES;

/// Ranges of an object that belong to one change.
type Ranges = Vec<Range<u64>>;

#[derive(Default)]
struct Table {
    tickets: u64,
    /// The changes of each object, in the order in which they came: those that hold their ranges, and those that wait.
    objects: HashMap<ObjectId, Vec<(u64, Ranges)>>,
}

/// The locks of a server.
#[derive(Default)]
pub(super) struct Locks {
    table: Mutex<Table>,
    freed: Condvar,
}

/// Ranges that are held until this is dropped.
pub(super) struct Held<'a> {
    locks: &'a Locks,
    object: ObjectId,
    ticket: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.locks.table.lock().leave(self.object, self.ticket);
        self.locks.freed.notify_all();
    }
}

impl Table {
    fn leave(&mut self, object: ObjectId, ticket: u64) {
        if let Some(changes) = self.objects.get_mut(&object) {
            changes.retain(|(other, _)| *other != ticket);
            if changes.is_empty() {
                self.objects.remove(&object);
            }
        }
    }

    /// True when no earlier change of the object overlaps.
    fn is_first(&self, object: ObjectId, ticket: u64) -> bool {
        let Some(changes) = self.objects.get(&object) else { return false };
        let Some(at) = changes.iter().position(|(other, _)| *other == ticket) else { return false };
        let overlaps = |earlier: &Ranges| {
            let own = &changes[at].1;
            own.iter().any(|one| earlier.iter().any(|other| one.start < other.end && other.start < one.end))
        };
        !changes[..at].iter().any(|(_, earlier)| overlaps(earlier))
    }
}

impl Locks {
    /// Locks the blocks of `ranges`. `may_wait` is false in a simulation, where the one that holds them is further up
    /// in the same thread: `None` then.
    pub(super) fn lock(&self, object: ObjectId, ranges: &[Range<u64>], may_wait: bool) -> Option<Held<'_>> {
        let block = BLOCK_BYTES as u64;
        let whole = |range: &Range<u64>| {
            let end = range.end.checked_next_multiple_of(block).unwrap_or(u64::MAX);
            range.start / block * block..end
        };
        let mut table = self.table.lock();
        table.tickets += 1;
        let ticket = table.tickets;
        table.objects.entry(object).or_default().push((ticket, ranges.iter().map(whole).collect()));
        while !table.is_first(object, ticket) {
            if !may_wait {
                table.leave(object, ticket);
                return None;
            }
            self.freed.wait(&mut table);
        }
        Some(Held { locks: self, object, ticket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{GroupId, InodeId};

    fn object(inode: u64) -> ObjectId {
        ObjectId { inode: InodeId(inode), generation: 1, slot: 0, group: GroupId(1 << 20) }
    }

    fn lock(locks: &Locks, object: ObjectId, range: Range<u64>, may_wait: bool) -> Option<Held<'_>> {
        locks.lock(object, std::slice::from_ref(&range), may_wait)
    }

    #[test]
    fn changes_of_the_same_block_come_one_after_the_other_and_others_do_not_wait() {
        let locks = Locks::default();
        let one = lock(&locks, object(1), 10..20, false);
        assert!(one.is_some());
        assert!(lock(&locks, object(1), 30..40, false).is_none(), "it is in the same block");
        assert!(lock(&locks, object(1), 70_000..u64::MAX, false).is_some(), "of another block");
        assert!(lock(&locks, object(2), 10..20, false).is_some(), "of another object");
        drop(one);
        assert!(locks.lock(object(1), &[30..40, 0..1], false).is_some());
        assert!(locks.table.lock().objects.is_empty(), "nothing is left of what has ended");
    }

    #[test]
    fn a_change_of_the_whole_object_is_not_passed_by_later_ones() {
        let locks = Locks::default();
        std::thread::scope(|scope| {
            let first = lock(&locks, object(1), 0..1, true);
            let whole = scope.spawn(|| {
                let held = lock(&locks, object(1), 0..u64::MAX, true);
                drop(held);
            });
            while locks.table.lock().tickets < 2 {
                std::thread::yield_now();
            }
            assert!(lock(&locks, object(1), 1 << 20..2 << 20, false).is_none(), "it came after the whole");
            drop(first);
            whole.join().expect("it ends");
        });
        assert!(lock(&locks, object(1), 1 << 20..2 << 20, false).is_some());
    }
}
