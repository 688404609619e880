//! What a file may contain: one thing while nothing went wrong, any mixture of its versions since the last fsync after
//! something did.

use std::collections::BTreeSet;

/// The contents of one file.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The durable version first, the newest last. Never empty.
    versions: Vec<Vec<u8>>,
    /// Where changes since then ended: a file whose length was rolled back under a writer ends there.
    ends: Vec<u64>,
    /// Clients that have changed it since then.
    writers: BTreeSet<usize>,
    /// The newest version may not be what is there.
    is_uncertain: bool,
    /// What clients that were killed may have left in objects, beside what is there.
    left_behind: Vec<Vec<u8>>,
    /// It is uncertain because of a loss of power.
    has_lost_power: bool,
}

/// Versions kept; a file with more of them counts as uncertain in fewer places than it is, so stories fsync before.
pub const VERSIONS_MAX: usize = 24;

impl Default for Contents {
    /// The contents of a new file, which is not durable yet.
    fn default() -> Contents {
        Contents {
            versions: vec![Vec::new()],
            ends: Vec::new(),
            writers: BTreeSet::new(),
            is_uncertain: false,
            left_behind: Vec::new(),
            has_lost_power: false,
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

    /// The last change may have happened in part.
    pub fn doubt(&mut self) {
        self.is_uncertain = true;
    }

    /// An fsync has succeeded: whatever was lost since the last one was lost before it, and it would have said so. What
    /// was in doubt for another reason stays so.
    pub fn synced(&mut self, is_only_power_in_doubt: bool) {
        if self.is_certain() || is_only_power_in_doubt {
            self.is_uncertain = false;
            self.has_lost_power = false;
            self.versions.drain(..self.versions.len() - 1);
            self.ends.clear();
            self.writers.clear();
        }
    }

    /// Something may have been lost: certain only if there was nothing to lose.
    pub fn lose_power(&mut self) {
        self.is_uncertain |= self.is_volatile();
        self.has_lost_power |= self.is_volatile();
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

    /// True when `bytes` may be there. In doubt, each byte is that of some version, or zero.
    pub fn allows(&self, bytes: &[u8]) -> bool {
        if self.is_certain() {
            return bytes == self.newest();
        }
        let left_behind = if self.has_lost_power { &self.left_behind[..] } else { &[] };
        let is_of = |versions: &[Vec<u8>], at: usize, byte: &u8| {
            versions.iter().any(|version| version.get(at) == Some(byte))
        };
        bytes
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == 0 || is_of(&self.versions, at, byte) || is_of(left_behind, at, byte))
    }

    /// The lengths that it may have after a fault, the newest first.
    pub fn sizes_ever(&self) -> Vec<u64> {
        let lengths = self.versions.iter().rev().map(|version| version.len() as u64);
        lengths.chain(self.ends.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_version_is_allowed_until_there_is_doubt() {
        let mut contents = Contents::default();
        contents.change(0, 3, |bytes| bytes.extend_from_slice(b"one"));
        contents.change(0, 3, |bytes| bytes[..3].copy_from_slice(b"two"));
        assert!(contents.allows(b"two") && !contents.allows(b"one"));
        contents.doubt();
        assert!(contents.allows(b"one") && contents.allows(b"twe") && contents.allows(b"\0\0o"));
        assert!(!contents.allows(b"xwo") && !contents.allows(b"two!"));
    }

    #[test]
    fn what_a_killed_writer_left_is_seen_only_where_power_was_lost() {
        let mut contents = Contents::default();
        contents.change(0, 3, |bytes| bytes.extend_from_slice(b"old"));
        contents.lose_writer(Vec::new());
        contents.change(0, 3, |bytes| bytes.extend_from_slice(b"new"));
        contents.doubt();
        assert!(contents.allows(b"new") && !contents.allows(b"old"));
        contents.lose_power();
        assert!(contents.allows(b"old"));
    }

    #[test]
    fn what_was_synced_cannot_be_lost() {
        let mut contents = Contents::default();
        contents.change(0, 3, |bytes| bytes.push(1));
        contents.synced(false);
        contents.lose_power();
        assert!(contents.allows(&[1]) && !contents.allows(&[]) && !contents.allows(&[0]));
        contents.change(0, 3, |bytes| bytes.push(2));
        contents.lose_power();
        assert!(contents.allows(&[1, 0]) && contents.allows(&[1]));
    }
}
