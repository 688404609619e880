//! Placement groups: the targets that hold copies of the same objects. A layout names one for each of its slots.
//!
//! - Groups are made ahead, when a target joins, and are never removed. New files take one that the target leads which
//!   was chosen for them.
//! - A number below [`GroupId::FIRST`] is the target of that number alone, without a record.

use crate::schema::records::GroupRecord;
use std::collections::BTreeMap;
use vazao_model::{Group, GroupId, TargetId};

/// Groups that a target leads: as many as let a new target take over its share evenly, but not so many that a large
/// cluster has tens of thousands.
const LED_MAX: usize = 64;
const LED_MIN: usize = 8;
const GROUPS_WANTED: usize = 1024;

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    records: BTreeMap<GroupId, GroupRecord>,
    /// By their primaries.
    led: BTreeMap<TargetId, Vec<GroupId>>,
}

impl Groups {
    /// Those with these records.
    pub(crate) fn new(records: Vec<(u32, GroupRecord)>) -> Groups {
        let mut groups = Groups::default();
        records.into_iter().for_each(|(id, record)| groups.add(GroupId(id), record));
        groups
    }

    fn add(&mut self, id: GroupId, record: GroupRecord) {
        if let Some(primary) = record.members.first() {
            self.led.entry(TargetId(*primary)).or_default().push(id);
        }
        self.records.insert(id, record);
    }

    /// True when the target leads a group.
    pub(crate) fn has_leader(&self, target: TargetId) -> bool {
        self.led.contains_key(&target)
    }

    /// Groups for a target that leads none; `targets`: how many there are. `made`: how many groups were made before.
    pub(crate) fn make_for(&mut self, target: TargetId, targets: usize, made: &mut u32) -> Vec<GroupId> {
        let wanted = (GROUPS_WANTED / targets.max(1)).clamp(LED_MIN, LED_MAX);
        let make = |_| {
            let id = GroupId(GroupId::FIRST + *made);
            *made += 1;
            self.add(id, GroupRecord { epoch: 1, members: vec![target.0] });
            id
        };
        (0..wanted).map(make).collect()
    }

    pub(crate) fn record(&self, id: GroupId) -> Option<&GroupRecord> {
        self.records.get(&id)
    }

    /// One of the groups that `target` leads, the same for the same `key`; itself where it leads none.
    pub(crate) fn led_by(&self, target: TargetId, key: u64) -> GroupId {
        let led = self.led.get(&target).map_or(&[][..], Vec::as_slice);
        // Neighbouring keys are spread over all groups.
        let at = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).checked_rem(led.len() as u64);
        at.map_or_else(|| GroupId::of(target), |at| led[at as usize])
    }

    /// The targets that hold the objects of a group. `None`: there is no such group.
    pub(crate) fn members(&self, id: GroupId) -> Option<Vec<TargetId>> {
        let of_record = || Some(self.records.get(&id)?.members.iter().copied().map(TargetId).collect());
        id.target().map(|target| vec![target]).or_else(of_record)
    }

    /// Those that `is_wanted`, as they are told to others.
    pub(crate) fn told(&self, is_wanted: impl Fn(&GroupRecord) -> bool) -> Vec<Group> {
        let told = |(&id, record): (&GroupId, &GroupRecord)| {
            let members = record.members.iter().copied().map(TargetId).collect();
            Group { id, epoch: record.epoch, members }
        };
        self.records.iter().filter(|(_, record)| is_wanted(record)).map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_target_leads_groups_of_its_own_and_files_spread_over_them() {
        let (mut groups, mut made) = (Groups::default(), 0);
        for target in 1..=4 {
            assert_eq!(groups.led_by(TargetId(target), 7), GroupId(target), "it leads none yet");
            let new = groups.make_for(TargetId(target), 4, &mut made);
            assert_eq!(new.len(), LED_MAX);
            assert!(groups.has_leader(TargetId(target)) && !groups.has_leader(TargetId(9)));
            assert!(new.iter().all(|id| groups.members(*id) == Some(vec![TargetId(target)])));
        }
        assert_eq!((made, groups.told(|_| true).len()), (256, 256));
        // Every fourth file begins at the same target.
        let used: BTreeSet<GroupId> = (0..1024).map(|file| groups.led_by(TargetId(1), file * 4)).collect();
        assert!(used.len() > LED_MAX * 9 / 10, "{}", used.len());
    }

    #[test]
    fn large_clusters_have_few_groups_for_each_target() {
        for (targets, led) in [(1, 64), (16, 64), (32, 32), (128, 8), (1_000, 8)] {
            let mut groups = Groups::default();
            assert_eq!(groups.make_for(TargetId(1), targets, &mut 0).len(), led, "{targets} targets");
        }
    }
}
