//! Placement groups: the targets that hold copies of the same objects. A layout names one for each of its slots.
//!
//! - Groups are made ahead and are never removed: those of one target when it joins, those of several when a directory
//!   first asks for copies (`spread`). New files take one that the target leads which was chosen for them.
//! - A number below [`GroupId::FIRST`] is the target of that number alone, without a record.
//! - What is kept of one is the model's [`Membership`], which nothing here changes but the model's rule.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use vazao_model::cluster::membership::{Change, Member, Membership, Refused, Standing};
use vazao_model::{AwayMember, Group, GroupAway, GroupId, TargetId};

/// Groups that a target leads: as many as let a new target take over its share evenly, but not so many that a large
/// cluster has tens of thousands.
const LED_MAX: usize = 64;
const LED_MIN: usize = 8;
const GROUPS_WANTED: usize = 1024;

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlacementGroup {
    pub(crate) membership: Membership,
    /// Copies that it was made with.
    pub(crate) copies: usize,
    /// The target that it was made for, as its primary.
    pub(crate) made_for: TargetId,
    /// Members that are not current, and since when: Unix time in seconds.
    pub(crate) lost: BTreeMap<TargetId, u64>,
}

impl PlacementGroup {
    /// A new one.
    pub(crate) fn new(membership: Membership) -> PlacementGroup {
        let copies = membership.members.len();
        let made_for = membership.members.first().map(|first| first.target).unwrap_or_default();
        PlacementGroup { membership, copies, made_for, lost: BTreeMap::new() }
    }

    /// The same with another membership, from `seconds` on.
    fn changed(&self, next: Membership, seconds: u64) -> PlacementGroup {
        let away = next.members.iter().filter(|member| member.standing != Standing::Current);
        let since = |target: TargetId| self.lost.get(&target).copied().unwrap_or(seconds);
        let lost = away.map(|member| (member.target, since(member.target))).collect();
        PlacementGroup { membership: next, lost, ..self.clone() }
    }
}

/// In how many groups of several targets one is, by what it was meant to be in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Roles {
    pub(crate) leads: usize,
    pub(crate) follows: usize,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    records: BTreeMap<GroupId, PlacementGroup>,
    /// Those of one target alone, by that target: files of one copy take them.
    led: BTreeMap<TargetId, Vec<GroupId>>,
    /// The others, by each of their members.
    shared: BTreeMap<TargetId, BTreeSet<GroupId>>,
    /// Of those with so many copies, more than one.
    roles: BTreeMap<(usize, TargetId), Roles>,
    /// Those with so many copies, by their present primary.
    led_with: BTreeMap<(usize, TargetId), Vec<GroupId>>,
}

impl Groups {
    /// Those that records were kept of.
    pub(crate) fn new(kept: Vec<(GroupId, PlacementGroup)>) -> Groups {
        let mut groups = Groups::default();
        kept.into_iter().for_each(|(id, group)| groups.add(id, group));
        groups
    }

    fn add(&mut self, id: GroupId, group: PlacementGroup) {
        for member in &group.membership.members {
            if group.membership.is_plain() {
                self.led.entry(member.target).or_default().push(id);
            } else {
                self.shared.entry(member.target).or_default().insert(id);
                let role = self.role_of(&group, member.target);
                *role += 1;
            }
        }
        if let Some(primary) = group.membership.primary().filter(|_| !group.membership.is_plain()) {
            self.led_with.entry((group.copies, primary.target)).or_default().push(id);
        }
        self.records.insert(id, group);
    }

    /// It is in no list any more.
    fn take(&mut self, id: GroupId) -> Option<PlacementGroup> {
        let taken = self.records.remove(&id)?;
        if let Some(primary) = taken.membership.primary()
            && let Some(led) = self.led_with.get_mut(&(taken.copies, primary.target))
        {
            led.retain(|other| *other != id);
        }
        for member in &taken.membership.members {
            if let Some(led) = self.led.get_mut(&member.target) {
                led.retain(|other| *other != id);
            }
            if let Some(shared) = self.shared.get_mut(&member.target)
                && shared.remove(&id)
            {
                let role = self.role_of(&taken, member.target);
                *role -= 1;
            }
        }
        Some(taken)
    }

    /// How often a member of such a group is what it was meant to be in this one.
    fn role_of(&mut self, group: &PlacementGroup, target: TargetId) -> &mut usize {
        let roles = self.roles.entry((group.copies, target)).or_default();
        if group.made_for == target { &mut roles.leads } else { &mut roles.follows }
    }

    /// A new group of these targets, with their processes. `None`: they cannot be one.
    pub(crate) fn make(&mut self, members: &[(TargetId, u64)], made: &mut u32) -> Option<GroupId> {
        let membership = Membership::new(members)?;
        let id = GroupId(GroupId::FIRST + *made);
        *made += 1;
        self.add(id, PlacementGroup::new(membership));
        Some(id)
    }

    /// A change of a group's members at Unix time `seconds`, which was decided in epoch `decided_in`. `None`: there is
    /// no such group. Errors: the rule refuses it, and nothing has changed.
    pub(crate) fn change(
        &mut self,
        id: GroupId,
        decided_in: u64,
        change: Change,
        seconds: u64,
    ) -> Option<Result<(), Refused>> {
        let present = self.records.get(&id)?;
        let changed = present.membership.changed(decided_in, change);
        let next = changed.map(|next| present.changed(next, seconds));
        Some(next.map(|next| {
            self.take(id);
            self.add(id, next);
        }))
    }

    /// The groups whose members have to agree, and of which this target is one.
    pub(crate) fn shared_by(&self, target: TargetId) -> impl Iterator<Item = (GroupId, &Membership)> {
        let ids = self.shared.get(&target).into_iter().flatten();
        ids.filter_map(|id| Some((*id, &self.records.get(id)?.membership)))
    }

    /// Those that were made with so many copies, which are more than one.
    pub(crate) fn of_copies(&self, copies: usize) -> impl Iterator<Item = &PlacementGroup> {
        self.records.values().filter(move |group| copies > 1 && group.copies == copies)
    }

    /// True when there are any that were made with so many copies, which are more than one.
    pub(crate) fn has_of_copies(&self, copies: usize) -> bool {
        self.roles.keys().any(|(of, _)| *of == copies)
    }

    /// What a target is in those of so many copies.
    pub(crate) fn roles(&self, copies: usize, target: TargetId) -> Roles {
        self.roles.get(&(copies, target)).copied().unwrap_or_default()
    }

    /// True when the target leads a group of its own.
    pub(crate) fn has_leader(&self, target: TargetId) -> bool {
        self.led.get(&target).is_some_and(|led| !led.is_empty())
    }

    /// Groups for a target that leads none; `targets`: how many there are. `made`: how many groups were made before.
    pub(crate) fn make_for(&mut self, target: TargetId, targets: usize, made: &mut u32) -> Vec<GroupId> {
        (0..led_wanted(targets)).filter_map(|_| self.make(&[(target, 0)], made)).collect()
    }

    /// What is kept of a group; `None`: it is a target alone, or not known.
    pub(crate) fn membership(&self, id: GroupId) -> Option<&Membership> {
        self.get(id).map(|group| &group.membership)
    }

    /// The group; `None`: it is a target alone, or not known.
    pub(crate) fn get(&self, id: GroupId) -> Option<&PlacementGroup> {
        self.records.get(&id)
    }

    /// One of the groups that `target` leads, the same for the same `key`; itself where it leads none.
    pub(crate) fn led_by(&self, target: TargetId, key: u64) -> GroupId {
        let led = self.led.get(&target).map_or(&[][..], Vec::as_slice);
        one_of(led, key).unwrap_or_else(|| GroupId::of(target))
    }

    /// Those of so many copies, more than one, of which the target is the primary now.
    pub(crate) fn led_with(&self, target: TargetId, copies: usize) -> &[GroupId] {
        self.led_with.get(&(copies, target)).map_or(&[], Vec::as_slice)
    }

    /// Those of so many copies, more than one, that have the target as a member.
    pub(crate) fn shared_with(
        &self,
        target: TargetId,
        copies: usize,
    ) -> impl Iterator<Item = (GroupId, &PlacementGroup)> {
        let ids = self.shared.get(&target).into_iter().flatten();
        let groups = ids.filter_map(|id| Some((*id, self.records.get(id)?)));
        groups.filter(move |(_, group)| group.copies == copies)
    }

    /// The targets that have all of a group's objects, the primary first. `None`: there is no such group.
    pub(crate) fn current(&self, id: GroupId) -> Option<Vec<TargetId>> {
        let of_record = || self.membership(id).map(|membership| targets(membership.current()));
        id.target().map(|target| vec![target]).or_else(of_record)
    }

    /// Those that a target belongs to, with numbers above `after`.
    pub(crate) fn of_member(
        &self,
        target: TargetId,
        after: GroupId,
    ) -> impl Iterator<Item = (GroupId, &Membership)> {
        let behind = self.records.range((Bound::Excluded(after), Bound::Unbounded));
        let of_target = move |group: &PlacementGroup| group.membership.member(target).is_some();
        behind.filter(move |(_, group)| of_target(group)).map(|(id, group)| (*id, &group.membership))
    }

    /// What those lack that were made with several copies, at Unix time `seconds`.
    pub(crate) fn away(&self, seconds: u64) -> Vec<GroupAway> {
        let away = |(&id, group): (&GroupId, &PlacementGroup)| {
            let member = |member: &Member| {
                let is_leaving = match member.standing {
                    Standing::Current => return None,
                    Standing::Lagging { .. } => false,
                    Standing::Leaving { .. } => true,
                };
                let since = group.lost.get(&member.target).copied().unwrap_or(seconds);
                let ago_ms = seconds.saturating_sub(since).saturating_mul(1000);
                Some(AwayMember { target: member.target, is_leaving, ago_ms })
            };
            let members: Vec<AwayMember> = group.membership.members.iter().filter_map(member).collect();
            let is_whole = members.is_empty() && group.membership.members.len() >= group.copies;
            let is_shown = group.copies > 1 && !is_whole;
            is_shown.then_some(GroupAway { id, copies: group.copies as u32, members })
        };
        self.records.iter().filter_map(away).collect()
    }

    /// Those with a current member that `is_wanted`, as others are told them: who lags serves nothing.
    pub(crate) fn told(&self, is_wanted: impl Fn(TargetId) -> bool) -> Vec<Group> {
        let told = |(&id, PlacementGroup { membership, .. }): (&GroupId, &PlacementGroup)| {
            let members = targets(membership.current());
            let (epoch, is_agreed) = (membership.epoch, !membership.is_plain());
            let group = Group { id, epoch, members, is_agreed };
            group.members.iter().any(|target| is_wanted(*target)).then_some(group)
        };
        self.records.iter().filter_map(told).collect()
    }
}

/// Groups that a target is to lead where there are so many targets.
pub(crate) fn led_wanted(targets: usize) -> usize {
    (GROUPS_WANTED / targets.max(1)).clamp(LED_MIN, LED_MAX)
}

/// One of these groups, the same for the same key. `None`: there are none.
pub(super) fn one_of<T: Copy>(groups: &[T], key: u64) -> Option<T> {
    // Neighbouring keys are spread over all groups.
    let at = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).checked_rem(groups.len() as u64)?;
    groups.get(at as usize).copied()
}

fn targets<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<TargetId> {
    members.map(|member| member.target).collect()
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
            assert!(new.iter().all(|id| groups.current(*id) == Some(vec![TargetId(target)])));
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
