//! Interest table: which sessions may cache which answers. Spurious invalidations are possible, lost ones are not.
//!
//! A session that caches answers has a *seat*, one of 64. An answer sets the seat's bit in the slot that the inode or
//! the entry hashes to. A change invalidates at every seat whose bit is set there. Things that share a slot, and
//! sessions that share a seat, get spurious invalidations; no invalidation is lost.
//!
//! - Bits are not cleared one by one. There are two tables: new bits go into the current one, and both are consulted.
//! - Once a lease the older table is emptied and becomes the current one. So a bit outlives the lease of its answer.
//! - Nothing here blocks, and memory is fixed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vazao_model::limits::{CACHE_HOLDER_SLOTS, CACHE_LEASE_MARGIN_MS, CACHE_LEASE_MS};

/// Seats: the bits of a slot.
pub(crate) const SEATS: u32 = u64::BITS;

const TURN_NS: u64 = (CACHE_LEASE_MS + CACHE_LEASE_MARGIN_MS) as u64 * 1_000_000;

type Table = Box<[AtomicU64]>;

/// The two tables of interest bits.
#[derive(Default)]
pub(crate) struct InterestTable {
    /// Made when the first watcher comes: volumes that only commands use need none.
    tables: OnceLock<[Table; 2]>,
    current: AtomicUsize,
    turned_ns: AtomicU64,
}

/// Spreads numbers that count up over all bits (Steele, Lea, Flood 2014: SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn slot(table: &Table, key: u64) -> Option<&AtomicU64> {
    table.get((key % table.len().max(1) as u64) as usize)
}

impl InterestTable {
    /// Makes the tables, unless they are there.
    pub(crate) fn prepare(&self, now_ns: u64) {
        self.tables.get_or_init(|| {
            self.turned_ns.store(now_ns, Ordering::SeqCst);
            [0, 1].map(|_| (0..CACHE_HOLDER_SLOTS).map(|_| AtomicU64::new(0)).collect())
        });
    }

    /// The session in `seat` is about to receive what `key` stands for. Called before the transaction that reads it
    /// commits, because of a race: a later change finds the bit, and an earlier one is in what was read.
    pub(crate) fn note(&self, key: u64, seat: u32) {
        let Some(tables) = self.tables.get() else { return };
        let current = self.current.load(Ordering::SeqCst) & 1;
        let Some(slot) = slot(&tables[current], key) else { return };
        let bit = 1 << (seat % SEATS);
        // Fast path: most answers find their bit set. A cache line that is only read stays in every core's cache.
        if slot.load(Ordering::SeqCst) & bit == 0 {
            slot.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// The seats that may cache `key`, called after the change was committed.
    pub(crate) fn of(&self, key: u64) -> u64 {
        let Some(tables) = self.tables.get() else { return 0 };
        tables.iter().filter_map(|table| slot(table, key)).fold(0, |all, s| all | s.load(Ordering::SeqCst))
    }

    /// Empties the older table when its bits have been there for a whole lease.
    pub(crate) fn turn(&self, now_ns: u64) {
        let Some(tables) = self.tables.get() else { return };
        if now_ns.saturating_sub(self.turned_ns.load(Ordering::SeqCst)) < TURN_NS {
            return;
        }
        let older = (self.current.load(Ordering::SeqCst) & 1) ^ 1;
        tables[older].iter().for_each(|slot| slot.store(0, Ordering::SeqCst));
        self.current.store(older, Ordering::SeqCst);
        self.turned_ns.store(now_ns, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_outlives_its_lease_whenever_it_was_set_and_is_gone_after_two() {
        let lease_ns = u64::from(CACHE_LEASE_MS) * 1_000_000;
        for set_at in [0, TURN_NS / 2, TURN_NS - 1] {
            let holders = InterestTable::default();
            holders.prepare(0);
            let second_ns = 1_000_000_000;
            let mut now_ns = 0;
            while now_ns < set_at {
                holders.turn(now_ns);
                now_ns += second_ns;
            }
            holders.note(mix(7), 3);
            let noted_ns = now_ns;
            while now_ns <= noted_ns + lease_ns {
                holders.turn(now_ns);
                assert_eq!(holders.of(mix(7)), 1 << 3, "set at {noted_ns}, now {now_ns}");
                now_ns += second_ns;
            }
            while now_ns <= noted_ns + 2 * TURN_NS + second_ns {
                holders.turn(now_ns);
                now_ns += second_ns;
            }
            assert_eq!(holders.of(mix(7)), 0, "set at {noted_ns}");
        }
    }

    #[test]
    fn without_a_watcher_there_is_no_table_and_nobody_to_tell() {
        let holders = InterestTable::default();
        holders.note(mix(7), 3);
        holders.turn(u64::MAX);
        assert_eq!(holders.of(mix(7)), 0);
    }
}
