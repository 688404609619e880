//! Whether a file holds, after a loss of power, what was synced, and nothing that was never written to it.

use crate::check::names::Blow;
use crate::load::bytes::is_of;
use crate::load::journal::{Entry, Journal};
use crate::load::tree::Op;
use std::ops::Range;

/// Reads and errors are looked at in parts of this size: that of a checksummed block.
pub(crate) const PART_BYTES: usize = 64 << 10;

/// A change of a file's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// This range has the bytes of this stamp.
    Write { start: u64, end: u64, stamp: u64 },
    /// The file has this length.
    Truncate { length: u64 },
}

impl Change {
    /// The length it leaves of a file of `length`.
    fn length(self, length: u64) -> u64 {
        match self {
            Change::Write { end, .. } => length.max(end),
            Change::Truncate { length } => length,
        }
    }
}

/// What may be in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Expected {
    /// What the last sync that was answered has made durable.
    synced: Vec<Change>,
    /// What came after it, and may be there in part.
    unsynced: Vec<Change>,
}

/// A part of a file that was read: its bytes, or why it could not be.
pub(crate) type Part = Result<Vec<u8>, String>;

impl Expected {
    /// From all that a writer did to its file `file`. Unless it has lived through the loss, nothing is promised that
    /// was answered later, and nothing has happened that began later.
    pub(crate) fn of(journal: &Journal, file: u64, blow: Blow) -> Expected {
        let before_ns = if blow.is_survived { u64::MAX } else { blow.at_ns };
        let (mut changes, mut synced, mut length) = (Vec::new(), 0, 0);
        let of_it = |entry: &&Entry| entry.op.file() == Some(file) && entry.began_ns < before_ns;
        for entry in journal.entries.iter().filter(of_it) {
            if let Op::SyncFile { .. } = entry.op {
                if entry.is_answered_before(before_ns) {
                    synced = changes.len();
                }
                continue;
            }
            let Some(change) = change(entry, length) else { continue };
            length = change.length(length);
            changes.push(change);
        }
        let unsynced = changes.split_off(synced);
        Expected { synced: changes, unsynced }
    }

    /// True when nothing is open: it has to hold exactly what was synced.
    pub(crate) fn is_certain(&self) -> bool {
        self.unsynced.is_empty()
    }

    fn synced_length(&self) -> u64 {
        self.synced.iter().fold(0, |length, change| change.length(length))
    }

    /// Lengths that the file may have: those after each change, and for one that grows it all between.
    fn allows_length(&self, found: u64) -> bool {
        let mut length = self.synced_length();
        let mut is_allowed = found == length;
        for change in &self.unsynced {
            let after = change.length(length);
            is_allowed |= match change {
                Change::Write { .. } => (length..=after).contains(&found),
                Change::Truncate { .. } => found == after,
            };
            length = after;
        }
        is_allowed
    }

    /// True when something that was not synced may have changed a range.
    fn is_open(&self, range: Range<u64>) -> bool {
        range.end > self.synced_length()
            || self.unsynced.iter().any(|change| match *change {
                Change::Write { start, end, .. } => start < range.end && range.start < end,
                Change::Truncate { length } => length < range.end,
            })
    }

    /// Whether a byte may be there.
    fn allows(&self, position: u64, found: u8) -> bool {
        let put = |change: &Change| match *change {
            Change::Write { start, end, stamp } => {
                (start..end).contains(&position).then(|| is_of(stamp, position, found))
            }
            Change::Truncate { length } => (length <= position).then_some(found == 0),
        };
        // The last synced change of the byte counts, and all later ones.
        let synced = self.synced.iter().rev().find_map(put).unwrap_or(found == 0);
        synced
            || self.unsynced.iter().filter_map(put).any(|fits| fits)
            // Written beyond the end by what is lost, and read as a hole now.
            || found == 0 && position >= self.synced_length()
    }

    /// Compares a file of `length` with what it may be. An explanation of the first thing that must not be.
    pub(crate) fn check(&self, length: u64, parts: &[Part]) -> Result<(), String> {
        if !self.allows_length(length) {
            let (synced, unsynced) = (self.synced_length(), &self.unsynced);
            return Err(format!("has {length} bytes; {synced} were synced, and then came {unsynced:?}"));
        }
        for (number, part) in parts.iter().enumerate() {
            let start = (number * PART_BYTES) as u64;
            let bytes = match part {
                Ok(bytes) => bytes,
                Err(why) => {
                    let range = start..(start + PART_BYTES as u64).min(length);
                    if self.is_open(range.clone()) && is_damage(why) {
                        continue;
                    }
                    let (synced, unsynced) = (&self.synced, &self.unsynced);
                    return Err(format!(
                        "{range:?} of {length} cannot be read: {why}; synced were {synced:?}, and then came {unsynced:?}"
                    ));
                }
            };
            let wrong = (start..).zip(bytes).find(|(position, found)| !self.allows(*position, **found));
            if let Some((position, found)) = wrong {
                let (synced, unsynced) = (self.synced.len(), &self.unsynced);
                return Err(format!(
                    "byte {position} of {length} is {found:#x}, which was never to be there: {synced} changes were \
                     synced, the last {:?}, and then came {unsynced:?}",
                    self.synced.last()
                ));
            }
        }
        Ok(())
    }
}

/// The one error that data lost with power may give: wrong bytes are never returned, and a missing object is no hole.
fn is_damage(why: &str) -> bool {
    why.contains("needs cleaning") || why.contains("os error 117")
}

fn change(entry: &Entry, length: u64) -> Option<Change> {
    match entry.op {
        Op::Copy { length, stamp, .. } => Some(Change::Write { start: 0, end: length, stamp }),
        Op::Write { offset, length, stamp, .. } => {
            Some(Change::Write { start: offset, end: offset + length, stamp })
        }
        Op::Append { length: added, stamp, .. } => {
            Some(Change::Write { start: length, end: length + added, stamp })
        }
        Op::Truncate { length, .. } => Some(Change::Truncate { length }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::bytes::bytes;
    use std::collections::BTreeMap;

    const FILE: u64 = 7;

    fn write(offset: u64, length: u64, stamp: u64) -> Op {
        Op::Write { file: FILE, offset, length, stamp }
    }

    const HIT: Blow = Blow { at_ns: 10, is_survived: false };

    fn expected(ops: &[Op]) -> Expected {
        let entry = |op: &Op| Entry { op: op.clone(), began_ns: 1, ended_ns: Some(2), failed: None };
        let journal = Journal { entries: ops.iter().map(entry).collect(), inodes: BTreeMap::new() };
        Expected::of(&journal, FILE, HIT)
    }

    fn check(expected: &Expected, contents: &[u8]) -> bool {
        let parts: Vec<Part> = contents.chunks(PART_BYTES).map(|part| Ok(part.to_vec())).collect();
        expected.check(contents.len() as u64, &parts).is_ok()
    }

    const SYNC: Op = Op::SyncFile { file: FILE };

    #[test]
    fn what_was_synced_has_to_be_there_whole() {
        let expected = expected(&[write(0, 1000, 1), write(500, 100, 2), SYNC]);
        let mut whole = bytes(1, 0, 1000);
        whole[500..600].copy_from_slice(&bytes(2, 500, 100));
        assert!(expected.is_certain() && check(&expected, &whole));
        assert!(!check(&expected, &bytes(1, 0, 1000)), "an older write");
        assert!(!check(&expected, &whole[..999]), "shorter");
        let holed = [&whole[..10], &[0; 10], &whole[20..]].concat();
        assert!(!check(&expected, &holed), "a hole");
        assert!(expected.check(1000, &[Err("Structure needs cleaning (os error 117)".into())]).is_err());
    }

    #[test]
    fn of_what_was_not_synced_any_part_may_be_there_and_nothing_else() {
        let expected = expected(&[write(0, 1000, 1), SYNC, write(500, 1000, 2)]);
        let mut torn = bytes(1, 0, 1000);
        assert!(check(&expected, &torn), "nothing of it");
        torn[512..700].copy_from_slice(&bytes(2, 512, 188));
        assert!(check(&expected, &torn), "some of it");
        torn.extend([0; 200]);
        assert!(check(&expected, &torn), "a length without its bytes");
        torn[100] ^= 0x55;
        assert!(!check(&expected, &torn), "what it did not touch");
        assert!(!check(&expected, &bytes(1, 0, 1501)), "longer than ever");
        let damage: Part = Err("Structure needs cleaning (os error 117)".into());
        assert!(expected.check(1000, std::slice::from_ref(&damage)).is_ok(), "it is in that block");
        assert!(expected.check(1000, &[Err("Input/output error (os error 5)".into())]).is_err());
    }

    #[test]
    fn what_was_cut_off_and_synced_does_not_come_back() {
        let cut = Op::Truncate { file: FILE, length: 100 };
        let expected = expected(&[write(0, 1000, 1), cut, write(500, 10, 2), SYNC]);
        let mut whole = bytes(1, 0, 100);
        whole.resize(500, 0);
        whole.extend(bytes(2, 500, 10));
        assert!(check(&expected, &whole));
        whole[200] = bytes(1, 200, 1)[0];
        assert!(!check(&expected, &whole));
    }

    #[test]
    fn a_sync_that_was_answered_after_the_loss_promises_nothing() {
        let entry = |op: Op, ended_ns| Entry { op, began_ns: 1, ended_ns, failed: None };
        let entries = vec![entry(write(0, 10, 1), Some(2)), entry(SYNC, Some(50))];
        let journal = Journal { entries, inodes: BTreeMap::new() };
        assert!(!Expected::of(&journal, FILE, HIT).is_certain());
        assert!(Expected::of(&journal, FILE, Blow { is_survived: true, ..HIT }).is_certain());
    }

    #[test]
    fn appends_lie_behind_what_was_there() {
        let append = |stamp| Op::Append { file: FILE, length: 10, stamp };
        let expected = expected(&[append(1), append(2), SYNC]);
        assert!(check(&expected, &[bytes(1, 0, 10), bytes(2, 10, 10)].concat()));
        assert!(!check(&expected, &[bytes(2, 0, 10), bytes(1, 10, 10)].concat()));
    }
}
