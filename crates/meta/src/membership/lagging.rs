//! How far targets lag, by what the primaries of their groups say with their heartbeats. In memory only: after a
//! restart of this service it is known again with the next ones.
//!
//! A primary is believed of groups that it leads, as long as its node is up, and of members that lag by the records.

use std::collections::BTreeMap;
use vazao_meter::Exposition;
use vazao_meter::bottleneck::CONCLUSIVE;
use vazao_model::cluster::lagging::{CatchUpLimit, CatchUpWait, LaggingTarget, ShortBytes};
use vazao_model::{GroupAway, GroupId, NodeId, TargetId};
use vazao_wire::proto;

/// Members that a node may tell of, and targets.
const TOLD_MAX: usize = 4096;

/// What the primaries of a node say of those that lag.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Told {
    members: Vec<proto::LaggingMember>,
    works: Vec<proto::CatchUpWork>,
}

impl Told {
    pub(crate) fn of(request: &proto::RegisterNodeRequest) -> Told {
        let members = request.lagging.iter().take(TOLD_MAX).copied().collect();
        Told { members, works: request.catching_up.iter().take(TOLD_MAX).cloned().collect() }
    }
}

/// What is summed up for a target.
#[derive(Default)]
struct Sum {
    groups: u32,
    /// By the copies that there are, and those that there are to be.
    short: BTreeMap<(u32, u32), u64>,
    /// By the node that compares them.
    left: BTreeMap<NodeId, u64>,
    rates: BTreeMap<NodeId, u64>,
    times: BTreeMap<(CatchUpWait, Option<NodeId>), u64>,
}

impl Sum {
    fn take_work(&mut self, node: NodeId, work: &proto::CatchUpWork) {
        self.rates.insert(node, work.bytes_per_second);
        for time in &work.times {
            let Some(wait) = CatchUpWait::from_number(time.wait) else { continue };
            let spent = self.times.entry((wait, (!wait.is_theirs()).then_some(node))).or_default();
            *spent = spent.saturating_add(time.ns);
        }
    }

    fn limit(&self) -> Option<CatchUpLimit> {
        let all = self.times.values().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        let (&(wait, primary), &most) = self.times.iter().max_by_key(|(_, ns)| **ns)?;
        let share = most as f64 / all.max(1) as f64;
        let percent = (share * 100.0) as u32;
        (share >= CONCLUSIVE).then_some(CatchUpLimit { wait, primary, percent })
    }

    /// The node that needs longest counts: others do not take anything over from it.
    fn left_ms(&self) -> Option<u64> {
        let ms = |bytes: u64, rate: u64| {
            (rate > 0).then(|| u64::try_from(u128::from(bytes) * 1000 / u128::from(rate)).unwrap_or(u64::MAX))
        };
        let of_node = |(node, bytes): (&NodeId, &u64)| ms(*bytes, self.rates.get(node).copied().unwrap_or(0));
        // One that has not begun waits for the others.
        let of_all = ms(sum(&self.left), sum(&self.rates))?;
        Some(self.left.iter().filter_map(of_node).fold(of_all, u64::max))
    }

    fn shown(self, target: TargetId) -> LaggingTarget {
        let short = self.short.iter();
        LaggingTarget {
            target,
            groups: self.groups,
            left_bytes: sum(&self.left),
            bytes_per_second: sum(&self.rates),
            left_ms: self.left_ms(),
            limit: self.limit(),
            short: short.map(|(&(copies, of), &bytes)| ShortBytes { copies, of, bytes }).collect(),
        }
    }
}

fn sum(of_nodes: &BTreeMap<NodeId, u64>) -> u64 {
    of_nodes.values().fold(0, |sum, of_node| sum.saturating_add(*of_node))
}

/// What is known of groups that a node is asked about.
pub(crate) struct Groups<'a, L: Fn(NodeId, GroupId) -> Option<usize>> {
    /// What they lack, by their ids.
    pub(crate) away: &'a [GroupAway],
    /// How many copies there are of a group which that node leads; `None`: it does not.
    pub(crate) led_copies: L,
}

/// Targets that lag in these groups, of which any of the nodes that are up has said anything.
pub(crate) fn summed_up<'a>(
    told: impl Iterator<Item = (NodeId, &'a Told)>,
    groups: &Groups<'_, impl Fn(NodeId, GroupId) -> Option<usize>>,
) -> Vec<LaggingTarget> {
    let mut sums: BTreeMap<TargetId, Sum> = BTreeMap::new();
    for (node, Told { members, works }) in told {
        for told in members {
            let (group, target) = (GroupId(told.group), TargetId(told.target));
            let Ok(at) = groups.away.binary_search_by_key(&group, |away| away.id) else { continue };
            let away = &groups.away[at];
            let lags = away.members.iter().any(|it| it.target == target && !it.is_leaving);
            let Some(copies) = (groups.led_copies)(node, group).filter(|_| lags) else { continue };
            let sum = sums.entry(target).or_default();
            sum.groups += 1;
            let short = sum.short.entry((copies as u32, away.copies)).or_default();
            *short = short.saturating_add(told.bytes);
            let left = sum.left.entry(node).or_default();
            *left = left.saturating_add(told.left_bytes.min(told.bytes));
        }
        for work in works {
            if let Some(sum) = sums.get_mut(&TargetId(work.target)) {
                sum.take_work(node, work);
            }
        }
    }
    sums.into_iter().map(|(target, sum)| sum.shown(target)).collect()
}

/// Writes out what is known of targets that lag.
pub(crate) fn expose(lagging: &[LaggingTarget], out: &mut Exposition) {
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(&LaggingTarget) -> u64| {
        for of in lagging {
            let target = of.target.0.to_string();
            out.gauge(name, help, &[("target", target.as_str())], value(of) as f64);
        }
    };
    let help = "Bytes of groups in which a target lags: they have fewer copies than they were made with.";
    gauge("vazao_meta_lagging_bytes", help, &LaggingTarget::bytes);
    let help = "Of them, bytes not compared since the target was last taken back.";
    gauge("vazao_meta_catch_up_left_bytes", help, &|of| of.left_bytes);
    let help = "Bytes compared with a target that lags, in the last seconds.";
    gauge("vazao_meta_catch_up_bytes_per_second", help, &|of| of.bytes_per_second);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(rate: u64, times: &[(CatchUpWait, u64)]) -> proto::CatchUpWork {
        let time = |&(wait, ns): &(CatchUpWait, u64)| proto::CatchUpTime { wait: wait as u32, ns };
        proto::CatchUpWork {
            bytes_per_second: rate,
            times: times.iter().map(time).collect(),
            ..Default::default()
        }
    }

    fn of(nodes: &[(u64, proto::CatchUpWork)]) -> LaggingTarget {
        let mut sum = Sum::default();
        for (node, (left, work)) in (1..).map(NodeId).zip(nodes) {
            sum.left.insert(node, *left);
            sum.take_work(node, work);
        }
        sum.shown(TargetId(9))
    }

    #[test]
    fn the_slowest_primary_says_when_it_is_over_and_none_where_nothing_moves() {
        let two = of(&[(3000, work(100, &[])), (100, work(900, &[]))]);
        assert_eq!((two.left_bytes, two.bytes_per_second, two.left_ms), (3100, 1000, Some(30_000)));
        let waits = of(&[(3000, work(0, &[])), (1000, work(1000, &[]))]);
        assert_eq!(waits.left_ms, Some(4000), "the one that has not begun waits for the other");
        assert_eq!(of(&[(3000, work(0, &[]))]).left_ms, None);
        assert_eq!(of(&[(0, work(7, &[]))]).left_ms, Some(0));
        assert_eq!(of(&[(u64::MAX, work(1, &[])), (u64::MAX, work(1, &[]))]).left_ms, Some(u64::MAX));
    }

    #[test]
    fn what_all_wait_for_is_the_limit_and_else_what_one_waits_for_if_that_has_half_of_the_time() {
        use CatchUpWait::{Network, OwnDisk, Programs, TheirDisk};
        let disk = of(&[
            (1, work(1, &[(OwnDisk, 400), (TheirDisk, 500)])),
            (1, work(1, &[(OwnDisk, 400), (TheirDisk, 700)])),
        ]);
        let limit = CatchUpLimit { wait: TheirDisk, primary: None, percent: 60 };
        assert_eq!(disk.limit, Some(limit), "two disks that are waited for less");
        let network = of(&[(1, work(1, &[(Programs, 1)])), (1, work(1, &[(Network, 99)]))]);
        let limit = CatchUpLimit { wait: Network, primary: Some(NodeId(2)), percent: 99 };
        assert_eq!(network.limit, Some(limit));
        assert_eq!(of(&[(1, work(1, &[(OwnDisk, 49), (Network, 49), (Programs, 2)]))]).limit, None);
        assert_eq!(of(&[(1, work(1, &[]))]).limit, None);
        let mut newer = work(1, &[(OwnDisk, 1)]);
        newer.times.push(proto::CatchUpTime { wait: 77, ns: 99 });
        assert!(
            of(&[(1, newer)]).limit.is_some_and(|limit| limit.wait == OwnDisk),
            "unknown ones are left out"
        );
    }
}
