//! What a file may contain: one thing while nothing went wrong. After something did, each block is a mixture of what
//! was acknowledged last and what has been in flight since, or, where all that hold it lost power, of everything since
//! the last fsync.

use crate::copies::{BLOCK_BYTES, Holders};
use std::collections::BTreeSet;

/// The contents of one file.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The durable version first, the newest last. Never empty.
    versions: Vec<Vec<u8>>,
    /// The version that the servers have acknowledged as a whole, by its place; later ones are in flight.
    acknowledged: usize,
    /// Where the change to each version but the first ended: a file whose length was rolled back under a writer ends
    /// there.
    ends: Vec<u64>,
    /// Clients that have changed it since then.
    writers: BTreeSet<usize>,
    /// The newest version may not be what is there.
    is_uncertain: bool,
    /// What clients that were killed, and cuts that power took, may have left in objects, beside what is there.
    left_behind: Vec<Vec<u8>>,
    /// Machines that lost power since the last fsync.
    lost: BTreeSet<usize>,
    /// It may have got another layout since the last fsync: which machines held its blocks is not known.
    has_moved: bool,
}

/// Versions kept; a file with more of them counts as uncertain in fewer places than it is, so stories fsync before.
pub const VERSIONS_MAX: usize = 24;

/// What was read of a file.
#[derive(Clone, Copy, Debug)]
pub struct PartRead<'a> {
    /// From where on.
    pub start: u64,
    /// What came.
    pub bytes: &'a [u8],
    /// How much was asked for.
    pub asked: usize,
    /// The client that read it is the one that writes the file.
    pub is_writers: bool,
}

impl Default for Contents {
    /// The contents of a new file, which is not durable yet.
    fn default() -> Contents {
        Contents {
            versions: vec![Vec::new()],
            acknowledged: 0,
            ends: Vec::new(),
            writers: BTreeSet::new(),
            is_uncertain: false,
            left_behind: Vec::new(),
            lost: BTreeSet::new(),
            has_moved: false,
        }
    }
}

impl Contents {
    /// The newest version.
    pub fn newest(&self) -> &[u8] {
        self.versions.last().map_or(&[], Vec::as_slice)
    }

    /// True when exactly the newest version must be there.
    pub fn is_certain(&self) -> bool {
        !self.is_uncertain
    }

    /// True when power loss may take something away.
    pub fn is_volatile(&self) -> bool {
        self.versions.len() > 1
    }

    /// Number of versions.
    pub fn version_count(&self) -> usize {
        self.versions.len()
    }

    /// True when only `client` has changed the file since the last fsync, so that an fsync of this client covers all
    /// that a power loss may have taken.
    pub fn is_known_to(&self, client: usize) -> bool {
        self.writers.iter().all(|writer| *writer == client)
    }

    /// Adds a version by `writer` that differs from the one before until `end`.
    pub fn change(&mut self, writer: usize, end: u64, act: impl FnOnce(&mut Vec<u8>)) {
        self.writers.insert(writer);
        self.ends.push(end);
        let mut newest = self.newest().to_vec();
        act(&mut newest);
        self.versions.push(newest);
    }

    /// True when a machine has lost power since the last fsync.
    pub fn has_lost(&self, machine: usize) -> bool {
        self.lost.contains(&machine)
    }

    /// The servers have acknowledged every change.
    pub fn acknowledge(&mut self) {
        self.acknowledged = self.versions.len() - 1;
    }

    /// It may have another layout from now on.
    pub fn moves(&mut self) {
        self.has_moved = true;
    }

    /// The last change may have happened in part.
    pub fn doubt(&mut self) {
        self.is_uncertain = true;
    }

    /// An fsync has succeeded: whatever was lost since the last one was lost before it, and it would have said so. What
    /// was in doubt for another reason stays so.
    pub fn synced(&mut self, is_only_power_in_doubt: bool) {
        if self.is_certain() || is_only_power_in_doubt {
            self.newest_is_durable();
        }
    }

    /// The newest version is there, durably, because all of it was written again. A cut that power took stays undone
    /// behind the end: what was cut off is seen only where power takes what is written over it.
    pub fn newest_is_durable(&mut self) {
        let newest = self.versions.pop().unwrap_or_default();
        let mut left_behind = std::mem::take(&mut self.left_behind);
        if !self.lost.is_empty() {
            left_behind.extend(self.versions.drain(..).filter(|version| version.len() > newest.len()));
        }
        *self = Contents { versions: vec![newest], left_behind, ..Contents::default() };
    }

    /// A machine has lost power: certain only if there was nothing to lose.
    pub fn lose_power(&mut self, machine: usize) {
        if self.is_volatile() {
            self.is_uncertain = true;
            self.lost.insert(machine);
        }
    }

    /// Its writer was killed, and this is what is there, durably. What it has left in objects beside that is seen only
    /// where power takes what another client writes over it.
    pub fn lose_writer(&mut self, bytes: Vec<u8>) {
        let mut left_behind = std::mem::take(&mut self.left_behind);
        left_behind.append(&mut self.versions);
        *self = Contents { versions: vec![bytes], left_behind, ..Contents::default() };
    }

    /// This is what is there, durably.
    pub fn settle(&mut self, bytes: Vec<u8>) {
        *self = Contents { versions: vec![bytes], ..Contents::default() };
    }

    /// True when `bytes` may be there. In doubt, each byte is that of some version that may still be seen, or zero
    /// beyond its end.
    pub fn allows(&self, bytes: &[u8], holders: &Holders) -> bool {
        if self.is_certain() {
            return bytes == self.newest();
        }
        self.is_mixture(0, bytes, holders)
    }

    /// The same of what was read of a part. A client that does not write the file may see of each byte in flight what
    /// it was before.
    pub fn allows_read(&self, read: &PartRead<'_>, holders: &Holders) -> bool {
        let PartRead { start, bytes, asked, is_writers } = *read;
        if self.is_certain() && (is_writers || self.is_acknowledged()) {
            let expected = self.newest().get(start as usize..).unwrap_or(&[]);
            return bytes == &expected[..asked.min(expected.len())];
        }
        let end = start + bytes.len() as u64;
        let may_end = |size: &u64| match bytes.len() {
            0 => *size <= start,
            length if length < asked => *size == end,
            _ => *size >= end,
        };
        self.sizes_ever().iter().any(may_end) && self.is_mixture(start, bytes, holders)
    }

    /// True when nothing is in flight.
    pub fn is_acknowledged(&self) -> bool {
        self.acknowledged == self.versions.len() - 1
    }

    fn is_mixture(&self, start: u64, bytes: &[u8], holders: &Holders) -> bool {
        self.first_impossible(start, bytes, holders).is_none()
    }

    /// Where the first byte is that no version which may be seen has there; `bytes` were read at `start`.
    pub fn first_impossible(&self, start: u64, bytes: &[u8], holders: &Holders) -> Option<u64> {
        let mut at = start as usize;
        let mut left = bytes;
        while !left.is_empty() {
            let end = (at + 1).next_multiple_of(BLOCK_BYTES as usize);
            let (block, rest) = left.split_at(left.len().min(end - at));
            let may_be = self.may_show(at as u64, holders);
            if let Some(place) = first_of_none(&may_be, at, block) {
                return Some((at + place) as u64);
            }
            at = end;
            left = rest;
        }
        None
    }

    /// The versions of which the block at `offset` may be a mixture.
    fn may_show(&self, offset: u64, holders: &Holders) -> Vec<&[u8]> {
        let is_lost = (self.has_moved && !self.lost.is_empty()) || holders.have_lost(offset, &self.lost);
        let (from, left_behind) =
            if is_lost { (0, &self.left_behind[..]) } else { (self.acknowledged, &[][..]) };
        self.versions[from..].iter().chain(left_behind).map(Vec::as_slice).collect()
    }

    /// The lengths that it may have after a fault, the newest first.
    pub fn sizes_ever(&self) -> Vec<u64> {
        // The metadata service alone knows the length.
        let from = if self.lost.contains(&0) { 0 } else { self.acknowledged };
        let lengths = self.versions[from..].iter().rev().map(|version| version.len() as u64);
        lengths.chain(self.ends[from..].iter().copied()).collect()
    }
}

/// The first of `bytes` that none of the versions has at its place, counted from `start`.
fn first_of_none(versions: &[&[u8]], start: usize, bytes: &[u8]) -> Option<usize> {
    // Most are one version throughout.
    let is_one =
        |version: &&[u8]| version.get(start..start + bytes.len()).is_some_and(|there| there == bytes);
    if versions.iter().any(is_one) {
        return None;
    }
    let has = |version: &&[u8], at: usize, byte: u8| version.get(at).copied().unwrap_or(0) == byte;
    let is_of_none = |at: usize, byte: u8| !versions.iter().any(|version| has(version, start + at, byte));
    bytes.iter().enumerate().position(|(at, byte)| is_of_none(at, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{GroupId, Layout};

    const BLOCK: usize = BLOCK_BYTES as usize;

    /// Of a file whose blocks lie on machines 1 and 2 in turn.
    fn holders() -> Holders {
        let layout = Layout::striped(1, BLOCK_BYTES, vec![GroupId(1), GroupId(2)]).expect("valid");
        Holders::new(layout, vec![vec![1], vec![2]])
    }

    impl Contents {
        fn shows(&self, bytes: &[u8]) -> bool {
            self.allows(bytes, &holders())
        }

        fn write(&mut self, bytes: &[u8]) {
            self.change(0, bytes.len() as u64, |contents| *contents = bytes.to_vec());
        }
    }

    #[test]
    fn only_the_newest_version_is_allowed_until_there_is_doubt() {
        let mut contents = Contents::default();
        contents.write(b"one");
        contents.write(b"two");
        assert!(contents.shows(b"two") && !contents.shows(b"one"));
        contents.doubt();
        assert!(contents.shows(b"one") && contents.shows(b"twe") && contents.shows(b"\0\0o"));
        assert!(!contents.shows(b"xwo") && !contents.shows(b"two!"));
    }

    #[test]
    fn what_was_acknowledged_is_lost_with_power_alone() {
        let mut contents = Contents::default();
        contents.write(b"one");
        contents.acknowledge();
        contents.write(b"two");
        contents.doubt();
        assert!(contents.shows(b"one") && contents.shows(b"two") && !contents.shows(b"\0\0\0"));
        assert_eq!(contents.sizes_ever(), [3, 3, 3]);
        contents.lose_power(1);
        assert!(contents.shows(b"\0\0\0") && !contents.sizes_ever().contains(&0));
        contents.lose_power(0);
        assert!(contents.sizes_ever().contains(&0));
    }

    #[test]
    fn a_block_whose_holder_kept_its_power_shows_what_was_acknowledged() {
        let (old, new) = (vec![1; 3 * BLOCK], vec![2; 3 * BLOCK]);
        let mut contents = Contents::default();
        contents.write(&old);
        contents.synced(false);
        contents.write(&new);
        contents.acknowledge();
        contents.lose_power(2);
        let with_old = |block: usize| {
            let mut bytes = new.clone();
            bytes[block * BLOCK..][..BLOCK].fill(1);
            bytes
        };
        assert_eq!([0, 1, 2].map(|block| contents.shows(&with_old(block))), [false, true, false]);
        contents.moves();
        assert_eq!([0, 1, 2].map(|block| contents.shows(&with_old(block))), [true; 3]);
    }

    #[test]
    fn what_is_in_flight_is_seen_elsewhere_or_not_and_its_writer_sees_it() {
        let mut contents = Contents::default();
        contents.write(b"one");
        contents.acknowledge();
        contents.write(b"three");
        let shows = |bytes: &[u8], asked: usize, is_writers: bool| {
            contents.allows_read(&PartRead { start: 1, bytes, asked, is_writers }, &holders())
        };
        assert_eq!([true, false].map(|is_writers| shows(b"hree", 9, is_writers)), [true, true]);
        assert_eq!([true, false].map(|is_writers| shows(b"ne", 9, is_writers)), [false, true]);
        assert!(shows(b"nr", 2, false) && !shows(b"nx", 2, false));
        assert!(!shows(b"hre", 9, false), "no version ends there");
        assert!(!shows(b"", 9, false) && !shows(b"hree\0", 5, false), "each is longer, or shorter");
    }

    #[test]
    fn zeros_are_seen_only_where_some_version_has_none_or_ends() {
        let mut contents = Contents::default();
        contents.write(&[1; 4]);
        contents.synced(false);
        contents.write(&[2; 4]);
        contents.lose_power(1);
        assert!(contents.shows(&[1, 2, 1, 2]) && !contents.shows(&[1, 0, 1, 2]));
        assert!(contents.shows(&[1, 1, 1, 1, 0]));
    }

    #[test]
    fn what_a_killed_writer_left_is_seen_only_where_power_was_lost() {
        let mut contents = Contents::default();
        contents.write(b"old");
        contents.lose_writer(Vec::new());
        contents.write(b"new");
        contents.doubt();
        assert!(contents.shows(b"new") && !contents.shows(b"old"));
        contents.lose_power(1);
        assert!(contents.shows(b"old"));
    }

    #[test]
    fn what_was_cut_off_is_back_only_where_power_took_the_cut_and_what_was_written_over_it() {
        let with_cut = |is_cut_lost: bool| {
            let mut contents = Contents::default();
            contents.write(b"older");
            contents.synced(false);
            contents.write(b"old");
            if is_cut_lost {
                contents.lose_power(1);
            }
            contents.newest_is_durable();
            assert!(contents.shows(b"old") && !contents.shows(b"older"));
            contents.write(b"young");
            assert!(contents.shows(b"young"));
            contents.lose_power(1);
            assert!(contents.shows(b"you\0\0"));
            contents.shows(b"young") && contents.shows(b"older")
        };
        assert_eq!([true, false].map(with_cut), [true, false]);
    }

    #[test]
    fn what_was_synced_cannot_be_lost() {
        let mut contents = Contents::default();
        contents.write(&[1]);
        contents.synced(false);
        contents.lose_power(1);
        assert!(contents.shows(&[1]) && !contents.shows(&[]) && !contents.shows(&[0]));
        contents.write(&[2, 0]);
        contents.lose_power(1);
        assert!(contents.shows(&[1, 0]) && contents.shows(&[1]));
    }
}
