//! Which member of a placement group of several is asked for what all of them have.
//!
//! One that is slow or silent comes last. Else the own machine first, then the nearest. Of those that are as good one
//! is asked that has few reads under way, if possible the one that was chosen with regard to all slots of the file
//! ([`super::spread`]).

use crate::servers::{Member, Server};
use vazao_model::TargetId;
use vazao_wire::Method;

/// Distances count as equal up to twice the shortest one and this.
const NEAR_NS: u64 = 200_000;

/// A member is slow whose usual time is this many times the best one and this.
const SLOW: u64 = 4;
const SLOW_NS: u64 = 20_000_000;

/// Members count as equally busy up to twice the reads under way to the least busy one and this many: about what one
/// stream reads ahead.
const BUSY: u64 = 16;

/// What speaks against reading from a member, before others. Less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Drawbacks {
    is_avoided: bool,
    is_elsewhere: bool,
    is_far: bool,
}

/// True for a request that any member of a group can answer; others go to the primary.
pub(super) fn is_read(method: Method) -> bool {
    matches!(method, Method::Read | Method::ReadList | Method::ObjectRanges | Method::StatObject)
}

fn drawbacks(
    members: &[Member],
    now_ns: u64,
    is_here: impl Fn(&Server) -> bool,
) -> impl Fn(&Member) -> Drawbacks {
    let distance = |member: &Member| member.server.pace.distance_ns();
    let near_ns = members.iter().map(distance).filter(|ns| *ns > 0).min().unwrap_or(0);
    let far_ns = near_ns.saturating_mul(2).saturating_add(NEAR_NS);
    let usual = move |member: &Member| member.server.pace.copies.usual_lately_ns(now_ns);
    let best_ns = members.iter().map(usual).filter(|ns| *ns > 0).min().unwrap_or(u64::MAX);
    let slow_ns = best_ns.saturating_mul(SLOW).saturating_add(SLOW_NS);
    move |member| Drawbacks {
        is_avoided: member.is_out || member.server.pace.copies.is_avoided(now_ns) || usual(member) > slow_ns,
        is_elsewhere: !is_here(&member.server),
        is_far: distance(member) > far_ns,
    }
}

/// The members that are as good as any for a read, however busy they are.
pub(super) fn best(
    members: &[Member],
    now_ns: u64,
    is_here: impl Fn(&Server) -> bool,
) -> impl Iterator<Item = &Member> {
    let drawbacks = drawbacks(members, now_ns, is_here);
    let least = members.iter().map(&drawbacks).min();
    members.iter().filter(move |member| Some(drawbacks(member)) == least)
}

/// The member for a read of those that were not `asked`. Of equals it is the one that is `preferred`, then those that
/// follow it.
pub(super) fn to_read(
    members: &[Member],
    preferred: Option<TargetId>,
    now_ns: u64,
    is_here: impl Fn(&Server) -> bool,
    is_asked: impl Fn(TargetId) -> bool,
) -> Option<&Member> {
    let drawbacks = drawbacks(members, now_ns, is_here);
    let under_way = |member: &Member| member.server.pace.copies.under_way();
    let busy = members.iter().map(under_way).min().unwrap_or(0).saturating_mul(2).saturating_add(BUSY);
    let count = members.len();
    let first = members.iter().position(|member| Some(member.target) == preferred).unwrap_or(0);
    let left = members.iter().enumerate().filter(|(_, member)| !is_asked(member.target));
    let best = left.min_by_key(|(at, member)| {
        let behind_first = (at + count - first) % count;
        (drawbacks(member), under_way(member) > busy, behind_first)
    });
    best.map(|(_, member)| member)
}

/// The next member for a change: the primary, or another one that passes it on. One that was silent comes last: until
/// the map says who leads without it, each change would wait for it anew.
pub(super) fn to_change(
    members: &[Member],
    now_ns: u64,
    is_asked: impl Fn(TargetId) -> bool,
) -> Option<&Member> {
    let is_silent = |member: &&Member| member.server.pace.copies.is_silent(now_ns);
    members.iter().filter(|member| !is_asked(member.target)).min_by_key(is_silent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::{CopyRead, Routes};
    use vazao_model::{ClusterMap, Group, GroupId, Node, NodeId, NodeState, Target, TargetState};

    const MS: u64 = 1_000_000;

    fn members(silent: u32) -> Vec<Member> {
        let node = |id: u32| Node {
            id: NodeId(id),
            address: format!("n{id}:1"),
            state: if id == silent { NodeState::Silent } else { NodeState::Up },
            ..Node::default()
        };
        let target = |id: u32| Target {
            id: TargetId(id),
            node: NodeId(id),
            state: TargetState::Serving,
            ..Target::default()
        };
        let id = GroupId(GroupId::FIRST + 7);
        let group = Group { id, members: (1..=3).map(TargetId).collect(), ..Group::default() };
        let map = ClusterMap {
            nodes: (1..=3).map(node).collect(),
            targets: (1..=3).map(target).collect(),
            groups: vec![group],
            ..ClusterMap::default()
        };
        Routes::new(map, &Routes::default()).members(id).expect("several").to_vec()
    }

    /// How often each member is taken where each of them is preferred a hundred times.
    fn shares(members: &[Member], here: &str) -> [usize; 3] {
        let is_here = |server: &Server| server.address == here;
        let mut shares = [0; 3];
        for preferred in 1..=3 {
            let preferred = Some(TargetId(preferred));
            let taken = to_read(members, preferred, 5_000 * MS, is_here, |_| false).expect("one");
            shares[taken.target.0 as usize - 1] += 100;
        }
        shares
    }

    fn good(members: &[Member], here: &str) -> Vec<u32> {
        let is_here = |server: &Server| server.address == here;
        best(members, 5_000 * MS, is_here).map(|member| member.target.0).collect()
    }

    #[test]
    fn of_equals_the_preferred_one_is_taken_and_the_own_machine_comes_first() {
        let members = members(0);
        assert_eq!(shares(&members, ""), [100, 100, 100]);
        assert_eq!(shares(&members, "n2:1"), [0, 300, 0]);
        assert_eq!((good(&members, ""), good(&members, "n2:1")), (vec![1, 2, 3], vec![2]));
        let is_asked = |target: TargetId| target.0 == 2;
        let next = to_read(&members, Some(TargetId(2)), 0, |_| false, is_asked).expect("two are left");
        assert_eq!(next.target.0, 3, "those that follow it share what it cannot do");
        let unknown = to_read(&members, None, 0, |_| false, |_| false).expect("one");
        assert_eq!(unknown.target.0, 1, "the primary");
    }

    #[test]
    fn one_that_is_far_silent_avoided_slow_or_busy_is_left_to_the_others() {
        let far = members(0);
        far[0].server.pace.note(0, 30 * MS, 1);
        far[1].server.pace.note(0, MS / 10, 1);
        far[2].server.pace.note(0, MS / 5, 1);
        far[2].server.pace.note(1 << 20, 40 * MS, 1);
        assert_eq!((shares(&far, "")[0], good(&far, "")), (0, vec![2, 3]));
        assert_eq!(shares(&members(2), "n2:1")[1], 0, "also on the own machine");
        assert_eq!(good(&members(2), "n2:1"), [1, 3]);
        let avoided = members(0);
        avoided[2].server.pace.copies.avoid(4_500 * MS);
        assert_eq!((shares(&avoided, "")[2], good(&avoided, "")), (0, vec![1, 2]));
        avoided[2].server.pace.copies.avoid(3_900 * MS);
        assert_eq!(shares(&avoided, "")[2], 100, "for a while");
        let slow = members(0);
        slow[0].server.pace.copies.note(100 * MS, 4_500 * MS);
        assert_eq!(shares(&slow, "")[0], 100, "there is nothing to compare it with");
        slow[1].server.pace.copies.note(MS, 4_500 * MS);
        assert_eq!((shares(&slow, "")[0], good(&slow, "")), (0, vec![2, 3]));
        let busy = members(0);
        let reads: Vec<CopyRead> = (0..17).map(|_| CopyRead::begin(&busy[0].server.pace)).collect();
        assert_eq!(shares(&busy, "")[0], 0);
        assert_eq!(good(&busy, ""), [1, 2, 3], "that is over in a moment");
        drop(reads);
        assert_eq!(shares(&busy, "")[0], 100);
    }

    #[test]
    fn changes_go_to_the_primary_while_that_was_not_asked() {
        let members = members(0);
        let first = |asked: &[u32], now_ns: u64| {
            to_change(&members, now_ns, |target| asked.contains(&target.0)).map(|m| m.target.0)
        };
        assert_eq!((first(&[], 0), first(&[1], 0), first(&[1, 2, 3], 0)), (Some(1), Some(2), None));
        members[0].server.pace.copies.note_silence(1_000 * MS);
        members[1].server.pace.copies.note_silence(1_000 * MS);
        let later = 5_900 * MS;
        assert_eq!(
            (first(&[], later), first(&[3], later), first(&[1, 3], later)),
            (Some(3), Some(1), Some(2))
        );
        members[0].server.pace.copies.heard(5_000 * MS);
        assert_eq!(first(&[], later), Some(1), "it is there again");
        assert_eq!(first(&[1], 6_000 * MS), Some(2), "it is tried again after a while");
    }
}
