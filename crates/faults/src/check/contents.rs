//! Whether a file holds, after a loss of power, what was synced, and nothing that was never written to it.

use crate::check::names::Blow;
use crate::load::bytes::is_of;
use crate::load::journal::{Entry, Journal};
use crate::load::tree::Op;
use std::ops::{Range, RangeInclusive};

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

    /// The lengths that it leaves of a file of such.
    fn lengths(self, before: &Lengths) -> Lengths {
        self.length(*before.start())..=self.length(*before.end())
    }
}

/// Lengths from one to another.
type Lengths = RangeInclusive<u64>;

/// What may be in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    /// What the last sync that was answered has made durable.
    synced: Vec<Change>,
    /// What came before that sync, and may be lost nevertheless: see [`Expected::of`].
    doubtful: Vec<Change>,
    /// The lengths that the file may have by those.
    lengths: Vec<Lengths>,
    /// What came after it, and may be there in part.
    unsynced: Vec<Change>,
}

/// A part of a file that was read: its bytes, or why it could not be.
pub(crate) type Part = Result<Vec<u8>, String>;

impl Expected {
    /// From all that a writer did to its file `file`. Unless it has lived through the loss, nothing is promised that
    /// was answered later, and nothing has happened that began later.
    ///
    /// What a failed sync or close was to store may be lost, though the next sync returns 0. So may what was not synced
    /// in a file that was closed when the metadata service lost power.
    pub(crate) fn of(journal: &Journal, file: u64, blow: Blow) -> Expected {
        let before_ns = if blow.is_survived { u64::MAX } else { blow.at_ns };
        let of_it = |entry: &&Entry| entry.op.file() == Some(file) && entry.began_ns < before_ns;
        let of_it: Vec<&Entry> = journal.entries.iter().filter(of_it).collect();
        let is_before = |entry: &&&Entry| entry.began_ns < blow.at_ns;
        let count_before = of_it.iter().take_while(is_before).count();
        let is_closed_by = |entry: &&Entry| matches!(entry.op, Op::Close { .. } | Op::Copy { .. });
        let is_forgotten = blow.forgets_metadata && of_it[..count_before].last().is_some_and(is_closed_by);
        // A change, and whether it is doubtful.
        let mut changes: Vec<(Change, bool)> = Vec::new();
        let (mut synced, mut length) = (0, 0);
        for (index, entry) in of_it.iter().enumerate() {
            let has_failed =
                matches!(entry.op, Op::SyncFile { .. } | Op::Close { .. }) && entry.failed.is_some();
            if has_failed || (is_forgotten && index == count_before) {
                changes[synced..].iter_mut().for_each(|(_, is_doubtful)| *is_doubtful = true);
            }
            if let Op::SyncFile { .. } = entry.op
                && entry.is_answered_before(before_ns)
            {
                synced = changes.len();
            }
            let Some(change) = change(entry, length) else { continue };
            length = change.length(length);
            changes.push((change, false));
        }
        let unsynced = changes.split_off(synced).into_iter().map(|(change, _)| change).collect();
        let lengths = changes.iter().fold(vec![0..=0], |lengths, (change, is_doubtful)| {
            let after = lengths.iter().map(|lengths| change.lengths(lengths));
            let before = lengths.iter().filter(|_| *is_doubtful).cloned();
            let mut all: Vec<Lengths> = after.chain(before).collect();
            all.sort_unstable_by_key(|lengths| (*lengths.start(), *lengths.end()));
            all.dedup();
            all
        });
        let of_kind = |wanted: bool| {
            let kind = changes.iter().filter(move |(_, is_doubtful)| *is_doubtful == wanted);
            kind.map(|(change, _)| *change).collect()
        };
        Expected { synced: of_kind(false), doubtful: of_kind(true), lengths, unsynced }
    }

    /// True when nothing is open: it has to hold exactly what was synced.
    pub(crate) fn is_certain(&self) -> bool {
        self.unsynced.is_empty() && self.doubtful.is_empty()
    }

    /// Changes that may have happened or not.
    fn open(&self) -> impl Iterator<Item = &Change> {
        self.doubtful.iter().chain(&self.unsynced)
    }

    /// The least length that the last sync has left it.
    fn synced_length(&self) -> u64 {
        self.lengths.iter().map(|lengths| *lengths.start()).min().unwrap_or(0)
    }

    /// Lengths that the file may have: those after each change, and for one that grows it all between.
    fn allows_length(&self, found: u64) -> bool {
        let mut lengths = self.lengths.clone();
        let mut is_allowed = lengths.iter().any(|lengths| lengths.contains(&found));
        for change in &self.unsynced {
            let after: Vec<Lengths> = lengths.iter().map(|lengths| change.lengths(lengths)).collect();
            is_allowed |= lengths.iter().zip(&after).any(|(before, after)| match change {
                Change::Write { .. } => (*before.start()..=*after.end()).contains(&found),
                Change::Truncate { .. } => after.contains(&found),
            });
            lengths = after;
        }
        is_allowed
    }

    /// True when something that was not synced may have changed a range.
    fn is_open(&self, range: Range<u64>) -> bool {
        range.end > self.synced_length()
            || self.open().any(|change| match *change {
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
            || self.open().filter_map(put).any(|fits| fits)
            // Written beyond the end by what is lost, and read as a hole now.
            || found == 0 && position >= self.synced_length()
    }

    /// Compares a file of `length` with what it may be. An explanation of the first thing that must not be.
    pub(crate) fn check(&self, length: u64, parts: &[Part]) -> Result<(), String> {
        if !self.allows_length(length) {
            let (synced, unsynced) = (&self.lengths, &self.unsynced);
            return Err(format!("has {length} bytes; {synced:?} were synced, and then came {unsynced:?}"));
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

    const HIT: Blow = Blow { at_ns: 10, is_survived: false, forgets_metadata: true };

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
    #[test]
    fn what_a_failed_sync_or_close_was_to_store_may_be_lost_for_good() {
        for op in [SYNC, Op::Close { file: FILE }] {
            let entry = |op: Op, why: Option<&str>| {
                let failed = why.map(str::to_owned);
                Entry { op, began_ns: 1, ended_ns: Some(2), failed }
            };
            let entries = vec![
                entry(write(0, 10, 1), None),
                entry(SYNC, None),
                entry(write(5, 10, 2), None),
                entry(op, Some("stale")),
                entry(write(2, 2, 3), None),
                entry(SYNC, None),
            ];
            let expected = Expected::of(&Journal { entries, inodes: BTreeMap::new() }, FILE, HIT);
            let mut found = bytes(1, 0, 10);
            assert!(!check(&expected, &found), "the last write is synced");
            found[2..4].copy_from_slice(&bytes(3, 2, 2));
            assert!(!expected.is_certain() && check(&expected, &found));
            found[5..].copy_from_slice(&bytes(2, 5, 5));
            assert!(check(&expected, &found));
            found.extend(bytes(2, 10, 5));
            assert!(check(&expected, &found));
            assert!(!check(&expected, &found[..12]), "torn, and synced");
        }
    }

    #[test]
    fn a_metadata_service_may_forget_what_was_not_synced_of_a_closed_file() {
        let entry = |op: Op, began_ns| Entry { op, began_ns, ended_ns: Some(began_ns + 1), failed: None };
        let of = |closed_ns: Option<u64>, forgets_metadata| {
            let mut entries = vec![entry(write(0, 10, 1), 1)];
            entries.extend(closed_ns.map(|at_ns| entry(Op::Close { file: FILE }, at_ns)));
            entries.extend([entry(write(20, 5, 2), 30), entry(SYNC, 40)]);
            let journal = Journal { entries, inodes: BTreeMap::new() };
            let blow = Blow { is_survived: true, forgets_metadata, ..HIT };
            check(&Expected::of(&journal, FILE, blow), &[vec![0; 20], bytes(2, 20, 5)].concat())
        };
        assert!(of(Some(5), true));
        assert!(!of(None, true), "it was open");
        assert!(!of(Some(20), true), "it was open");
        assert!(!of(Some(5), false), "no metadata was lost");
    }
}
