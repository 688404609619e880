//! Which placement groups new files with several copies take.
//!
//! - A group counts by its primary: that is of the zone that is wanted, on the machine of a local file, and another one
//!   for each slot. A target that leads none, as it was away for a while, counts by those that it follows in.
//! - A group in which a current member is full, failed or silent, or which has fewer current members than a file is to
//!   have copies, is taken only where there is no other in the volume: copies come before zones.
//! - Of the groups of a target those come first whose members all are of the zone, and have disks that neither are
//!   nearly full nor keep their servers waiting.
//! - Of several that are as good a slot takes the one whose other members have the fewest slots of the file by then: so
//!   not the copies of all slots lie on one target, whose link would limit them.

use crate::membership::cluster::{Cluster, is_tight, is_within};
use crate::placement::PlacementGroup;
use crate::placement::groups::one_of;
use crate::service::fault::Outcome;
use std::collections::BTreeMap;
use vazao_model::{Code, GroupId, InodeId, NodeId, Target, TargetId, TargetState, limits};
use vazao_wire::service::Fault;

/// Groups of a target that are looked at before all are. Which, differs from file to file: were it the ones behind one
/// that lacks something, their members would get more files than others.
const ATTEMPTS: u64 = 8;

/// Groups that are looked at for one file, once each of its targets offers one: in large clusters chance spreads them.
const LOOKED_AT_MAX: usize = 256;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) inode: InodeId,
    /// More than one.
    pub(crate) copies: usize,
    pub(crate) zone: Option<&'a str>,
    /// The writer's machine; 0 where it is not known.
    pub(crate) host: u64,
    pub(crate) now_ns: u64,
}

/// What a group lacks to be a good place for a new file. Less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Lacks {
    /// A current member refuses writes, or answers nothing.
    is_blocked: bool,
    copies: usize,
}

/// What makes one of two groups that lack as much the better one. Less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Drawbacks {
    is_led_by_another: bool,
    is_partly_elsewhere: bool,
    is_slow_or_tight: bool,
}

/// A group that a slot can take.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Candidate {
    id: GroupId,
    members: Vec<TargetId>,
}

/// The groups that one target offers, all as good.
#[derive(Clone, Debug)]
struct Offer {
    lacks: Lacks,
    drawbacks: Drawbacks,
    groups: Vec<Candidate>,
}

/// What the slots of one file can take.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    inode: InodeId,
    /// The targets, in the order in which a file takes them.
    targets: Vec<TargetId>,
    /// Those on the writer's machine.
    near: Vec<TargetId>,
    offers: BTreeMap<TargetId, Offer>,
}

impl Choices {
    /// Targets for `width` slots, or with 0 all, as far as they are good places.
    pub(crate) fn targets(&self, width: u32) -> Vec<TargetId> {
        let wanted = if width == 0 { limits::STRIPE_WIDTH_MAX } else { width as usize };
        self.targets.iter().copied().take(wanted.min(limits::STRIPE_WIDTH_MAX)).collect()
    }

    /// A target on the writer's machine.
    pub(crate) fn near(&self) -> Option<TargetId> {
        self.near.first().copied()
    }

    /// The groups for the slots of a file, which are to lie on `targets`.
    pub(crate) fn groups_on(&self, targets: &[TargetId]) -> Vec<GroupId> {
        let mut slots_of: BTreeMap<TargetId, usize> = BTreeMap::new();
        let mut taken = Vec::new();
        for (target, slot) in targets.iter().zip(0..) {
            let Some(offer) = self.offers.get(target) else { continue };
            let load = |candidate: &Candidate| -> usize {
                candidate.members.iter().filter_map(|member| slots_of.get(member)).sum()
            };
            let Some(least) = offer.groups.iter().map(load).min() else { continue };
            let best: Vec<&Candidate> = offer.groups.iter().filter(|group| load(group) == least).collect();
            let Some(group) = one_of(&best, self.inode.0.wrapping_add(slot << 32)) else { continue };
            group.members.iter().for_each(|member| *slots_of.entry(*member).or_default() += 1);
            taken.push(group.id);
        }
        taken
    }
}

fn candidate(id: GroupId, group: &PlacementGroup) -> Candidate {
    Candidate { id, members: group.membership.current().map(|member| member.target).collect() }
}

impl Cluster {
    /// Where a file with several copies can lie. Errors: no target serves; there are no groups with so many copies.
    pub(crate) fn choices(&self, wanted: &Wanted<'_>) -> Outcome<Choices> {
        let Wanted { inode, copies, zone, host, now_ns } = *wanted;
        let usable = self.usable(inode, now_ns, |_, _| true);
        if usable.is_empty() {
            return Err(self.none_serves(now_ns));
        }
        let offers_max = (LOOKED_AT_MAX / usable.len()).max(1);
        let offer = |target: &TargetId| Some((*target, self.offer(*target, wanted, offers_max)?));
        let offers: BTreeMap<TargetId, Offer> = usable.iter().filter_map(offer).collect();
        let Some(least) = offers.values().map(|offer| offer.lacks).min() else {
            let text = format!(
                "no placement group with {copies} copies has a target that serves; see `vazao status`, or set the \
                 directory's number of copies again"
            );
            return Err(Fault::new(Code::TargetFailed, text));
        };
        let mut targets: Vec<TargetId> =
            usable.into_iter().filter(|id| offers.get(id).is_some_and(|o| o.lacks == least)).collect();
        let is_in_zone = |id: &TargetId| self.is_target_within(zone, *id);
        if targets.iter().any(is_in_zone) {
            targets.retain(is_in_zone);
        }
        targets.sort_by_key(|id| offers[id].drawbacks);
        let is_near = |id: &TargetId| host != 0 && self.host_of(*id) == Some(host);
        let near = targets.iter().copied().filter(is_near).collect();
        Ok(Choices { inode, targets, near, offers })
    }

    /// Some of the best groups of those that a target leads, or follows in. `None`: there are none. Some that lack
    /// nothing are mostly found at once.
    fn offer(&self, target: TargetId, wanted: &Wanted<'_>, offers_max: usize) -> Option<Offer> {
        let led = self.groups.led_with(target, wanted.copies);
        let (lacks, drawbacks) = (Lacks::default(), Drawbacks::default());
        let mut groups: Vec<Candidate> = Vec::new();
        for attempt in 0..ATTEMPTS {
            let Some(id) = one_of(led, wanted.inode.0.wrapping_add(attempt << 32)) else { break };
            let Some(group) = self.groups.get(id) else { continue };
            let is_known = groups.iter().any(|candidate| candidate.id == id);
            if !is_known && self.judged(group, wanted, false) == (lacks, drawbacks) {
                groups.push(candidate(id, group));
            }
            if groups.len() >= offers_max {
                break;
            }
        }
        match groups.is_empty() {
            true => self.best_of_all(target, wanted),
            false => Some(Offer { lacks, drawbacks, groups }),
        }
    }

    fn best_of_all(&self, target: TargetId, wanted: &Wanted<'_>) -> Option<Offer> {
        let mut best: Option<Offer> = None;
        for (id, group) in self.groups.shared_with(target, wanted.copies) {
            let Some(primary) = group.membership.primary().map(|primary| primary.target) else { continue };
            if group.membership.current().all(|member| member.target != target) {
                continue;
            }
            let (lacks, drawbacks) = self.judged(group, wanted, primary != target);
            match &mut best {
                Some(best) if (best.lacks, best.drawbacks) < (lacks, drawbacks) => {}
                Some(best) if (best.lacks, best.drawbacks) == (lacks, drawbacks) => {
                    best.groups.push(candidate(id, group))
                }
                _ => best = Some(Offer { lacks, drawbacks, groups: vec![candidate(id, group)] }),
            }
        }
        best
    }

    fn judged(
        &self,
        group: &PlacementGroup,
        wanted: &Wanted<'_>,
        is_led_by_another: bool,
    ) -> (Lacks, Drawbacks) {
        let mut lacks = Lacks { is_blocked: false, copies: group.copies };
        let mut drawbacks = Drawbacks { is_led_by_another, ..Drawbacks::default() };
        for member in group.membership.current() {
            lacks.copies = lacks.copies.saturating_sub(1);
            let held = self.targets.get(&member.target).map(|held| &held.shown);
            let takes = |shown: &&Target| {
                shown.state == TargetState::Serving && self.is_up(shown.node, wanted.now_ns)
            };
            let Some(shown) = held.filter(takes) else {
                lacks.is_blocked = true;
                continue;
            };
            drawbacks.is_partly_elsewhere |= !self.is_target_within(wanted.zone, member.target);
            drawbacks.is_slow_or_tight |= !shown.trouble.is_empty() || is_tight(shown);
        }
        (lacks, drawbacks)
    }

    fn is_target_within(&self, zone: Option<&str>, target: TargetId) -> bool {
        let shown = self.targets.get(&target).map(|held| &held.shown);
        shown
            .is_some_and(|shown| self.nodes.get(&shown.node).is_some_and(|node| is_within(zone, node, shown)))
    }

    /// The machine that a target is served by; 0: not known.
    fn host_of(&self, target: TargetId) -> Option<u64> {
        let node = NodeId(self.targets.get(&target)?.shown.node.0);
        self.nodes.get(&node).map(|member| member.host)
    }

    /// How many copies a file has with these groups, by those that its slots' groups were made with, and by their
    /// members that are current.
    pub(crate) fn copies_of(&self, groups: &[GroupId]) -> (usize, usize) {
        let copies = |id: &GroupId| {
            self.groups.get(*id).map_or((1, 1), |group| (group.copies, group.membership.current().count()))
        };
        let all = || groups.iter().map(copies);
        (all().map(|(made, _)| made).max().unwrap_or(1), all().map(|(_, now)| now).min().unwrap_or(1))
    }
}
