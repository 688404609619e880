//! Sidecar entries of a chunk as they were when they were last read: what saves a system call for each read.
//!
//! They are hints. A reader whose bytes do not agree with one reads the entry again, and no reader takes one for the
//! truth about anything else.

use std::sync::atomic::{AtomicU64, Ordering};

/// Entries remembered of a chunk, those of 256 MiB of it: 32 KiB of memory for each open chunk.
const ENTRIES_MAX: usize = 4096;

/// Entries read from the sidecar at once: those of the next 4 MiB, 256 bytes, which take as long as 4.
pub(super) const LOADED_AT_ONCE: usize = 64;

/// A table with one place for each block number modulo its size. A place holds the number of its block and its entry
/// in one word, so that threads need no lock.
#[derive(Debug)]
pub(super) struct Entries {
    places: Box<[AtomicU64]>,
}

impl Default for Entries {
    fn default() -> Entries {
        Entries { places: (0..ENTRIES_MAX).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Entries {
    fn place(&self, block: u64) -> Option<&AtomicU64> {
        self.places.get(block as usize % ENTRIES_MAX)
    }

    /// The upper half of the word of a block: not that of an empty place. `None` for a block that no chunk has.
    fn tag(block: u64) -> Option<u64> {
        u32::try_from(block).ok()?.checked_add(1).map(|number| u64::from(number) << 32)
    }

    /// The entry of a block as it was last put.
    pub(super) fn get(&self, block: u64) -> Option<u32> {
        let word = self.place(block)?.load(Ordering::Relaxed);
        (word & !u64::from(u32::MAX) == Entries::tag(block)?).then_some(word as u32)
    }

    /// Remembers the entry of a block, instead of another block's.
    pub(super) fn put(&self, block: u64, entry: u32) {
        if let (Some(place), Some(tag)) = (self.place(block), Entries::tag(block)) {
            place.store(tag | u64::from(entry), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_known_until_another_block_takes_its_place() {
        let entries = Entries::default();
        assert_eq!((entries.get(0), entries.get(7)), (None, None));
        entries.put(0, 0);
        entries.put(7, u32::MAX);
        assert_eq!((entries.get(0), entries.get(7)), (Some(0), Some(u32::MAX)));
        let other = 7 + ENTRIES_MAX as u64;
        assert_eq!(entries.get(other), None);
        entries.put(other, 1);
        assert_eq!((entries.get(7), entries.get(other)), (None, Some(1)));
    }

    #[test]
    fn a_block_number_beyond_any_chunk_is_not_remembered() {
        let entries = Entries::default();
        for block in [u64::from(u32::MAX), u64::MAX - 1] {
            entries.put(block, 1);
            assert_eq!(entries.get(block), None);
        }
    }
}
