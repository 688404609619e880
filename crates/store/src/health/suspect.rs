//! Bytes of placement groups' objects whose checksums were made anew from the data after an unclean stop.
//!
//! With one copy there is nothing better: a change was half done. With several, the disk may as well have rotted
//! meanwhile, and the others have what it was. A member says these bytes as it begins to catch up, and is compared in
//! them before it counts.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use vazao_model::{GroupId, ObjectId};

/// Ranges of a group that are kept.
const RANGES_MAX: usize = 1024;

/// Since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct SuspectBytes(Mutex<BTreeMap<GroupId, OfGroup>>);

#[derive(Debug, Default)]
struct OfGroup {
    ranges: Vec<(ObjectId, Range<u64>)>,
    is_too_much: bool,
    /// None was added since they were asked for.
    is_told: bool,
    /// Everything is compared: each chunk is opened before.
    is_whole: bool,
}

impl SuspectBytes {
    /// Of one object.
    pub(crate) fn add(&self, object: ObjectId, range: Range<u64>) {
        let mut groups = self.0.lock();
        let known = groups.entry(object.group).or_default();
        known.is_told = false;
        let is_full = known.ranges.len() >= RANGES_MAX;
        match known.ranges.last_mut() {
            Some((last, to)) if (*last, to.end) == (object, range.start) => to.end = range.end,
            _ if is_full => known.is_too_much = true,
            _ => known.ranges.push((object, range)),
        }
    }

    /// Those of a group, which are to be compared; `None`: they may be anywhere.
    pub(crate) fn tell(&self, group: GroupId) -> Option<Vec<(ObjectId, Range<u64>)>> {
        match self.0.lock().get_mut(&group) {
            Some(known) => {
                (known.is_told, known.is_whole) = (true, known.is_too_much);
                (!known.is_too_much).then(|| known.ranges.clone())
            }
            None => Some(Vec::new()),
        }
    }

    /// Everything of the group is compared from now on, whatever is added meanwhile.
    pub(crate) fn compare_whole(&self, group: GroupId) {
        self.0.lock().entry(group).or_default().is_whole = true;
    }

    /// Those that were told have been compared. False: others have been added since.
    pub(crate) fn forget(&self, group: GroupId) -> bool {
        let mut groups = self.0.lock();
        let is_told = groups.get(&group).is_none_or(|known| known.is_told || known.is_whole);
        if is_told {
            groups.remove(&group);
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::InodeId;

    fn object(group: u32) -> ObjectId {
        ObjectId { inode: InodeId(1), generation: 1, slot: 0, group: GroupId(group) }
    }

    #[test]
    fn neighbours_are_one_range_and_too_many_may_be_anywhere() {
        let suspect = SuspectBytes::default();
        suspect.add(object(7), 0..10);
        suspect.add(object(7), 10..20);
        suspect.add(object(7), 30..40);
        assert_eq!(suspect.tell(GroupId(7)), Some(vec![(object(7), 0..20), (object(7), 30..40)]));
        assert_eq!(suspect.tell(GroupId(8)), Some(Vec::new()));
        (0..2 * RANGES_MAX as u64).for_each(|at| suspect.add(object(7), 100 * at..100 * at + 1));
        assert_eq!(suspect.tell(GroupId(7)), None);
        assert!(suspect.forget(GroupId(7)));
        assert_eq!(suspect.tell(GroupId(7)), Some(Vec::new()));
    }

    #[test]
    fn what_was_added_since_they_were_told_is_not_forgotten() {
        let suspect = SuspectBytes::default();
        suspect.add(object(7), 0..10);
        assert!(suspect.tell(GroupId(7)).is_some());
        suspect.add(object(7), 30..40);
        assert!(!suspect.forget(GroupId(7)));
        assert_eq!(suspect.tell(GroupId(7)).map(|told| told.len()), Some(2));
        assert!(suspect.forget(GroupId(7)) && suspect.forget(GroupId(8)));
    }

    /// A group was compared whole twice after a loss of power: what is found torn as it is compared is compared.
    #[test]
    fn what_is_added_while_everything_is_compared_is_compared() {
        let suspect = SuspectBytes::default();
        suspect.compare_whole(GroupId(7));
        suspect.add(object(7), 0..10);
        assert!(suspect.forget(GroupId(7)));
        suspect.add(object(7), 0..10);
        assert!(!suspect.forget(GroupId(7)), "that was the comparison before");
        suspect.compare_whole(GroupId(7));
        assert!(suspect.tell(GroupId(7)).is_some());
        suspect.add(object(7), 20..30);
        assert!(!suspect.forget(GroupId(7)), "it began anew, with what was told");
    }
}
