//! Which targets become members of new placement groups together.
//!
//! - Members of a group are on different hosts.
//! - Each target leads as many groups as the others, and follows as many others as those need that are led.
//! - Who is in a group with a target changes from group to group: where the target is lost, all others take its reads
//!   and have what it had.
//! - A target that joins later leads groups of its own, and follows in new ones of the targets that were there: else
//!   the copies of their files would go past it.

use super::groups::{PlacementGroup, Roles};
use std::collections::BTreeMap;
use vazao_model::TargetId;

/// A target that can be a member of new groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) target: TargetId,
    /// Two with the same are on one host.
    pub(crate) host: u64,
    /// The process that serves it.
    pub(crate) run: u64,
}

/// What is planned for groups of one number of copies.
#[derive(Debug)]
pub(crate) struct Spread<'a> {
    copies: usize,
    /// Groups that each target is to lead.
    wanted: usize,
    candidates: &'a [Candidate],
    roles: BTreeMap<TargetId, Roles>,
    /// Groups that two targets are both in, the smaller number first.
    together: BTreeMap<(TargetId, TargetId), usize>,
    /// How often the one follows next to the primary, where the other one is that.
    next: BTreeMap<(TargetId, TargetId), usize>,
}

impl<'a> Spread<'a> {
    /// A plan beside the groups of so many copies that are there.
    pub(crate) fn new<'g>(
        copies: usize,
        wanted: usize,
        candidates: &'a [Candidate],
        present: impl Iterator<Item = &'g PlacementGroup>,
    ) -> Spread<'a> {
        let (roles, together, next) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut spread = Spread { copies, wanted, candidates, roles, together, next };
        for group in present {
            let members: Vec<TargetId> =
                group.membership.members.iter().map(|member| member.target).collect();
            spread.count(group.made_for, &members);
        }
        spread
    }

    /// Groups that one target is to follow in at least: nearly as many as if all had joined together.
    pub(crate) fn follows_wanted(copies: usize, wanted: usize) -> usize {
        wanted * copies.saturating_sub(1) * 3 / 4
    }

    fn count(&mut self, leader: TargetId, members: &[TargetId]) {
        if let Some(&next) = members.iter().find(|member| **member != leader) {
            *self.next.entry((leader, next)).or_default() += 1;
        }
        for (at, &target) in members.iter().enumerate() {
            let roles = self.roles.entry(target).or_default();
            if target == leader {
                roles.leads += 1
            } else {
                roles.follows += 1
            }
            for &other in &members[..at] {
                *self.together.entry((target.min(other), target.max(other))).or_default() += 1;
            }
        }
    }

    fn roles(&self, target: TargetId) -> Roles {
        self.roles.get(&target).copied().unwrap_or_default()
    }

    fn together(&self, a: TargetId, b: TargetId) -> usize {
        self.together.get(&(a.min(b), a.max(b))).copied().unwrap_or_default()
    }

    /// The next group that is missing, its primary first. `None`: there are enough, or too few hosts.
    pub(crate) fn next(&mut self) -> Option<Vec<(TargetId, u64)>> {
        let members = self.led_by_next().or_else(|| self.followed_by_next())?;
        let targets: Vec<TargetId> = members.iter().map(|member| member.target).collect();
        self.count(targets[0], &targets);
        Some(members.into_iter().map(|member| (member.target, member.run)).collect())
    }

    /// A group of the target that leads fewest, if those are too few.
    fn led_by_next(&self) -> Option<Vec<Candidate>> {
        let lacking = self.candidates.iter().filter(|one| self.roles(one.target).leads < self.wanted);
        let leader = lacking.min_by_key(|one| (self.roles(one.target).leads, one.target))?;
        self.completed(vec![*leader])
    }

    /// A group in which the target that follows in fewest does so, if those are too few.
    fn followed_by_next(&self) -> Option<Vec<Candidate>> {
        let enough = Spread::follows_wanted(self.copies, self.wanted);
        let lacking = self.candidates.iter().filter(|one| self.roles(one.target).follows < enough);
        let follower = lacking.min_by_key(|one| (self.roles(one.target).follows, one.target))?;
        let others = self.candidates.iter().filter(|one| one.host != follower.host);
        let leader = others.min_by_key(|one| {
            (self.together(one.target, follower.target), self.roles(one.target).leads, one.target)
        })?;
        self.completed(vec![*leader, *follower])
    }

    /// The members with as many others, of other hosts, as a group has: those that were together with them least, and
    /// as the next primary the one that was this least.
    fn completed(&self, mut members: Vec<Candidate>) -> Option<Vec<Candidate>> {
        while members.len() < self.copies {
            let is_apart = |one: &&Candidate| members.iter().all(|member| member.host != one.host);
            let apart = self.candidates.iter().filter(is_apart);
            let next = apart.min_by_key(|one| {
                let together: usize =
                    members.iter().map(|member| self.together(member.target, one.target)).sum();
                let is_next = self.next.get(&(members[0].target, one.target)).copied().unwrap_or_default();
                let next = if members.len() == 1 { is_next } else { 0 };
                (together + next, self.roles(one.target).follows, one.target)
            })?;
            members.push(*next);
        }
        Some(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use vazao_model::cluster::membership::Membership;

    fn candidates(hosts: &[u64]) -> Vec<Candidate> {
        let one = |(&host, target): (&u64, u32)| Candidate { target: TargetId(target), host, run: 5 };
        hosts.iter().zip(1..).map(one).collect()
    }

    /// All groups that are made beside `present` for targets on these hosts.
    fn made(copies: usize, wanted: usize, hosts: &[u64], present: &[PlacementGroup]) -> Vec<PlacementGroup> {
        let candidates = candidates(hosts);
        let mut spread = Spread::new(copies, wanted, &candidates, present.iter());
        let mut all = present.to_vec();
        while let Some(members) = spread.next() {
            assert!(members.iter().all(|(_, run)| *run == 5) && members.len() == copies);
            all.push(PlacementGroup::new(Membership::new(&members).expect("different targets")));
            assert!(all.len() < 100_000, "it comes to an end");
        }
        all
    }

    fn targets(group: &PlacementGroup) -> Vec<usize> {
        group.membership.members.iter().map(|member| member.target.0 as usize).collect()
    }

    fn leads(all: &[PlacementGroup], target: usize) -> usize {
        all.iter().filter(|group| group.made_for.0 as usize == target).count()
    }

    fn follows(all: &[PlacementGroup], target: usize) -> usize {
        let is_in = |group: &&PlacementGroup| targets(group).contains(&target);
        all.iter().filter(is_in).count() - leads(all, target)
    }

    /// How much more the others have to do when one is lost: groups that they share with it, the fewest and the most.
    fn load_of_loss(all: &[PlacementGroup], lost: usize, count: usize) -> (usize, usize) {
        let shared = |other: usize| {
            let both = |group: &&PlacementGroup| {
                let members = targets(group);
                members.contains(&lost) && members.contains(&other)
            };
            all.iter().filter(both).count()
        };
        let loads = (1..=count).filter(|other| *other != lost).map(shared);
        let loads: Vec<usize> = loads.collect();
        (*loads.iter().min().expect("others"), *loads.iter().max().expect("others"))
    }

    #[test]
    fn each_target_leads_and_follows_as_many_and_its_loss_loads_all_others_alike() {
        for (count, copies, wanted) in
            [(2, 2, 64), (3, 2, 64), (4, 2, 64), (5, 3, 64), (16, 3, 64), (40, 2, 25)]
        {
            let hosts: Vec<u64> = (1..=count as u64).collect();
            let all = made(copies, wanted, &hosts, &[]);
            let case = format!("{copies} copies on {count} targets");
            for target in 1..=count {
                assert_eq!(leads(&all, target), wanted, "{case}");
                let (follows, fair) = (follows(&all, target), wanted * (copies - 1));
                assert!(follows.abs_diff(fair) <= 2, "{case}: {follows}");
                let (fewest, most) = load_of_loss(&all, target, count);
                assert!(fewest > 0 && most - fewest <= 2 + fewest / 4, "{case}: {fewest} to {most}");
            }
        }
    }

    /// Where a primary is lost the second member leads: those are spread, too.
    #[test]
    fn the_next_primaries_of_a_target_are_spread() {
        let all = made(3, 64, &[1, 2, 3, 4, 5], &[]);
        for lost in 1..=5 {
            let led = all.iter().filter(|group| group.made_for.0 as usize == lost);
            let mut next = BTreeMap::<usize, usize>::new();
            led.for_each(|group| *next.entry(targets(group)[1]).or_default() += 1);
            assert_eq!(next.len(), 4);
            assert!(next.values().all(|count| (10..=22).contains(count)), "{next:?}");
        }
    }

    #[test]
    fn members_of_a_group_are_on_different_hosts() {
        let hosts = [1, 1, 1, 2, 3, 3];
        for copies in [2, 3] {
            let all = made(copies, 32, &hosts, &[]);
            for group in &all {
                let of: BTreeSet<u64> = targets(group).iter().map(|target| hosts[target - 1]).collect();
                assert_eq!(of.len(), copies, "{group:?}");
            }
            assert!((1..=6).all(|target| leads(&all, target) >= 32 && follows(&all, target) >= 24));
        }
        assert!(made(3, 32, &[1, 1, 2, 2], &[]).is_empty(), "two hosts do not have three copies");
        assert!(made(2, 32, &[1], &[]).is_empty());
    }

    /// Two targets that were alone are only in groups with each other: without further ones nothing of theirs would
    /// ever lie on those that come.
    #[test]
    fn targets_that_join_later_lead_groups_and_follow_those_that_were_there() {
        let before = made(2, 64, &[1, 2], &[]);
        assert_eq!(before.len(), 128);
        let all = made(2, 64, &[1, 2, 3, 4], &before);
        assert_eq!(all[..128], before[..], "none is made anew");
        for target in 1..=4 {
            assert!(leads(&all, target) >= 64 && follows(&all, target) >= 48, "{target}");
        }
        for old in [1, 2] {
            let led = all.iter().filter(|group| group.made_for.0 == old);
            let (with_new, total) =
                led.fold((0, 0), |(new, total), group| (new + usize::from(targets(group)[1] > 2), total + 1));
            assert!(with_new * 4 >= total, "{with_new} of {total}");
        }
        assert_eq!(made(2, 64, &[1, 2, 3, 4], &all).len(), all.len(), "it is enough then");
    }
}
