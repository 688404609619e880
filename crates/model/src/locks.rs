//! Byte-range locks of a file, as fcntl(2) has them: owners, modes, conflicts.
//!
//! Shared by the metadata service, which grants locks, and by clients, which keep track of the ones they hold.

/// Bytes from the first to the last, both included, as a lock to the end of every possible file has no byte after it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LockRange {
    /// First byte.
    pub first: u64,
    /// Last byte; at least the first.
    pub last: u64,
}

impl LockRange {
    /// A whole file.
    pub const WHOLE: LockRange = LockRange { first: 0, last: u64::MAX };

    /// True when the two have a byte in common.
    pub fn overlaps(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// True when one begins right after the other ends.
    fn touches(self, other: LockRange) -> bool {
        self.last.checked_add(1) == Some(other.first) || other.last.checked_add(1) == Some(self.first)
    }
}

/// Kinds of locks; those of one do not see those of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum LockKind {
    /// Of fcntl(2), by processes and open file descriptions.
    Range = 0,
    /// Of flock(2), by open files.
    Flock = 1,
    /// Held by a client while it alone appends.
    Append = 2,
}

impl LockKind {
    /// The kind with this number on the wire.
    pub fn from_number(number: u32) -> Option<LockKind> {
        [LockKind::Range, LockKind::Flock, LockKind::Append].into_iter().find(|kind| *kind as u32 == number)
    }
}

/// How a range is locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockMode {
    /// By any number of owners at once.
    Shared,
    /// By one.
    Exclusive,
}

/// A range that an owner has locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock<O> {
    /// The holder.
    pub owner: O,
    /// What.
    pub range: LockRange,
    /// How.
    pub mode: LockMode,
}

/// The locks of one file. No two conflict; those of one owner neither overlap nor touch, unless their modes differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeLocks<O> {
    held: Vec<HeldLock<O>>,
}

impl<O> Default for RangeLocks<O> {
    fn default() -> RangeLocks<O> {
        RangeLocks { held: Vec::new() }
    }
}

impl<O: Copy + Eq> RangeLocks<O> {
    /// Locks of other owners that stand against `owner` locking `range`.
    pub fn conflicts(
        &self,
        owner: O,
        range: LockRange,
        mode: LockMode,
    ) -> impl Iterator<Item = &HeldLock<O>> {
        self.held.iter().filter(move |held| {
            let excludes = mode == LockMode::Exclusive || held.mode == LockMode::Exclusive;
            held.owner != owner && excludes && held.range.overlaps(range)
        })
    }

    /// Locks `range` for the owner in this mode, or unlocks it, whatever the owner held of it. The caller has checked
    /// that no lock conflicts.
    pub fn set(&mut self, owner: O, range: LockRange, mode: Option<LockMode>) {
        let mut rest = Vec::with_capacity(self.held.len() + 2);
        let mut whole = range;
        for held in self.held.drain(..) {
            let is_same = Some(held.mode) == mode;
            if held.owner != owner || !(held.range.overlaps(range) || is_same && held.range.touches(range)) {
                rest.push(held);
            } else if is_same {
                whole.first = whole.first.min(held.range.first);
                whole.last = whole.last.max(held.range.last);
            } else {
                if held.range.first < range.first {
                    rest.push(HeldLock { range: LockRange { last: range.first - 1, ..held.range }, ..held });
                }
                if held.range.last > range.last {
                    rest.push(HeldLock { range: LockRange { first: range.last + 1, ..held.range }, ..held });
                }
            }
        }
        rest.extend(mode.map(|mode| HeldLock { owner, range: whole, mode }));
        self.held = rest;
    }

    /// Lets go of all locks of owners for which `is_gone`; true when there were any.
    pub fn remove(&mut self, is_gone: impl Fn(O) -> bool) -> bool {
        let before = self.held.len();
        self.held.retain(|held| !is_gone(held.owner));
        self.held.len() != before
    }

    /// All locks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &HeldLock<O>> {
        self.held.iter()
    }

    /// Number of locks.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True when nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNERS: usize = 3;
    const BYTES: u64 = 24;

    /// One cell for each byte and owner.
    type Cells = [[Option<LockMode>; BYTES as usize]; OWNERS];

    fn mode() -> impl Strategy<Value = Option<LockMode>> {
        prop_oneof![Just(None), Just(Some(LockMode::Shared)), Just(Some(LockMode::Exclusive))]
    }

    fn is_free(cells: &Cells, owner: usize, range: LockRange, mode: LockMode) -> bool {
        let others = || (0..OWNERS).filter(|&other| other != owner);
        (range.first..=range.last).all(|byte| {
            others().all(|other| match cells[other][byte as usize] {
                None => true,
                Some(held) => held == LockMode::Shared && mode == LockMode::Shared,
            })
        })
    }

    fn cells_of(locks: &RangeLocks<usize>) -> Cells {
        let mut cells = Cells::default();
        for held in locks.iter() {
            for byte in held.range.first..=held.range.last.min(BYTES - 1) {
                let cell = &mut cells[held.owner][byte as usize];
                assert!(cell.is_none(), "an owner has a byte twice");
                *cell = Some(held.mode);
            }
        }
        cells
    }

    proptest! {
        #[test]
        fn ranges_are_locked_as_an_array_of_bytes_says(
            steps in prop::collection::vec((0..OWNERS, 0..BYTES, 0..BYTES, mode(), prop::bool::weighted(0.1)), 1..80)
        ) {
            let mut locks = RangeLocks::default();
            let mut cells = Cells::default();
            for (owner, a, b, mode, leaves) in steps {
                let range = LockRange { first: a.min(b), last: a.max(b) };
                if leaves {
                    let had = cells[owner].iter().any(Option::is_some);
                    prop_assert_eq!(locks.remove(|other| other == owner), had);
                    cells[owner] = Default::default();
                } else {
                    let free = mode.is_none_or(|mode| is_free(&cells, owner, range, mode));
                    let found = mode.is_none_or(|mode| locks.conflicts(owner, range, mode).next().is_none());
                    prop_assert_eq!(found, free);
                    if free {
                        locks.set(owner, range, mode);
                        (range.first..=range.last).for_each(|byte| cells[owner][byte as usize] = mode);
                    }
                }
                prop_assert_eq!(cells_of(&locks), cells);
                // As few records as the bytes allow: neighbours of one mode are one.
                let runs: usize = cells.iter().map(|cells| {
                    let mut before = None;
                    let begins = |cell: &&Option<LockMode>| {
                        let is_other = **cell != before;
                        before = **cell;
                        is_other && before.is_some()
                    };
                    cells.iter().filter(begins).count()
                }).sum();
                prop_assert_eq!(locks.len(), runs);
            }
        }
    }

    #[test]
    fn the_last_byte_there_can_be_is_locked_and_let_go_without_overflow() {
        let mut locks = RangeLocks::default();
        let end = LockRange { first: 10, last: u64::MAX };
        locks.set(1, end, Some(LockMode::Exclusive));
        locks.set(1, LockRange { first: 0, last: 9 }, Some(LockMode::Exclusive));
        assert_eq!(locks.len(), 1);
        assert!(
            locks
                .conflicts(2, LockRange { first: u64::MAX, last: u64::MAX }, LockMode::Shared)
                .next()
                .is_some()
        );
        locks.set(1, LockRange { first: u64::MAX, last: u64::MAX }, None);
        assert_eq!(
            locks.iter().next().map(|held| held.range),
            Some(LockRange { first: 0, last: u64::MAX - 1 })
        );
        locks.set(1, LockRange::WHOLE, None);
        assert!(locks.is_empty());
    }
}
