//! Which member of a placement group of several is asked for what all of them have.
//!
//! One that is slow or silent comes last. Else the own machine first, then the nearest, then one with few reads under
//! way. Among equals a hash decides, the same for a region of all objects of a file: so each copy's page cache holds
//! other regions, and a stream stays where it is read ahead. It says how far behind the primary the member is that is
//! asked: primaries of a file's objects are different targets, and so are those that follow next.

use crate::servers::{Member, Server};
use prost::Message;
use vazao_model::TargetId;
use vazao_wire::{Method, proto};

/// Reads within one region of an object prefer the same member.
const REGION_BYTES: u64 = 64 << 20;

/// Round trips count as equal up to twice the shortest one and this.
const NEAR_NS: u64 = 200_000;

/// A member is slow whose usual time is this many times the best one and this.
const SLOW: u64 = 4;
const SLOW_NS: u64 = 20_000_000;

/// Members count as equally busy up to twice the reads under way to the least busy one and this many: about what one
/// stream reads ahead.
const BUSY: u64 = 16;

/// The region that a request reads from; `None`: it does not only read, and goes to the primary.
pub(super) fn region(method: Method, message: &[u8]) -> Option<u64> {
    fn decoded<M: Message + Default>(message: &[u8]) -> M {
        M::decode(message).unwrap_or_default()
    }
    let (object, offset) = match method {
        Method::Read => {
            let request: proto::ReadRequest = decoded(message);
            (request.object, request.offset)
        }
        Method::ReadList => {
            let request: proto::ReadListRequest = decoded(message);
            (request.object, request.ranges.first().map_or(0, |range| range.offset))
        }
        Method::ObjectRanges => {
            let request: proto::ObjectRangesRequest = decoded(message);
            (request.object, request.offset)
        }
        Method::StatObject => (decoded::<proto::StatObjectRequest>(message).object, 0),
        _ => return None,
    };
    let object = object.unwrap_or_default();
    Some(mix(mix(object.inode).wrapping_add(offset / REGION_BYTES)))
}

/// Spreads numbers that are close to each other (the finaliser of MurmurHash3).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// The best of the members that may be `asked`, for a read of `region`.
pub(super) fn to_read(
    members: &[Member],
    region: u64,
    now_ns: u64,
    is_here: impl Fn(&Server) -> bool,
    is_asked: impl Fn(TargetId) -> bool,
) -> Option<&Member> {
    let pace = |member: &Member| member.server.pace.shortest_ns();
    let near_ns = members.iter().map(pace).filter(|ns| *ns > 0).min().unwrap_or(0);
    let far_ns = near_ns.saturating_mul(2).saturating_add(NEAR_NS);
    let usual = |member: &Member| member.server.pace.copies.usual_lately_ns(now_ns);
    let best_ns = members.iter().map(usual).filter(|ns| *ns > 0).min().unwrap_or(u64::MAX);
    let slow_ns = best_ns.saturating_mul(SLOW).saturating_add(SLOW_NS);
    let under_way = |member: &Member| member.server.pace.copies.under_way();
    let busy = members.iter().map(under_way).min().unwrap_or(0).saturating_mul(2).saturating_add(BUSY);
    let count = members.len().max(1);
    let first = (region % count as u64) as usize;
    let left = members.iter().enumerate().filter(|(_, member)| !is_asked(member.target));
    let best = left.min_by_key(|(at, member)| {
        let is_avoided = member.is_out || member.server.pace.copies.is_avoided(now_ns);
        let behind_first = (at + count - first) % count;
        (
            is_avoided || usual(member) > slow_ns,
            !is_here(&member.server),
            pace(member) > far_ns,
            under_way(member) > busy,
            behind_first,
        )
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

    fn chosen(members: &[Member], region: u64, here: &str) -> u32 {
        let is_here = |server: &Server| server.address == here;
        to_read(members, region, 5_000 * MS, is_here, |_| false).expect("one").target.0
    }

    fn shares(members: &[Member], here: &str) -> [usize; 3] {
        let mut shares = [0; 3];
        (0..300).for_each(|region| shares[chosen(members, mix(region), here) as usize - 1] += 1);
        shares
    }

    #[test]
    fn equals_share_regions_and_the_own_machine_comes_first() {
        let members = members(0);
        let spread = shares(&members, "");
        assert!(spread.iter().all(|share| *share > 60), "{spread:?}");
        assert_eq!(shares(&members, "n2:1"), [0, 300, 0]);
    }

    /// Of a file over four targets two had nothing to do with a stream, and two twice as much.
    #[test]
    fn a_stream_of_a_file_reads_from_all_targets_alike() {
        let members = members(0);
        let group =
            |first: usize| -> Vec<Member> { (0..3).map(|at| members[(first + at) % 3].clone()).collect() };
        for region in 0..20 {
            let asked: std::collections::BTreeSet<u32> =
                (0..3).map(|slot| chosen(&group(slot), mix(region), "")).collect();
            assert_eq!(asked.len(), 3, "region {region}");
        }
    }

    #[test]
    fn one_that_is_far_silent_avoided_slow_or_busy_is_left_to_the_others() {
        let far = members(0);
        far[0].server.pace.note(0, 30 * MS, 1);
        far[1].server.pace.note(0, MS / 10, 1);
        far[2].server.pace.note(0, MS / 5, 1);
        assert_eq!(shares(&far, "")[0], 0);
        assert_eq!(shares(&members(2), "n2:1")[1], 0, "also on the own machine");
        let avoided = members(0);
        avoided[2].server.pace.copies.avoid(4_500 * MS);
        assert_eq!(shares(&avoided, "")[2], 0);
        avoided[2].server.pace.copies.avoid(3_900 * MS);
        assert!(shares(&avoided, "")[2] > 60, "for a while");
        let slow = members(0);
        slow[0].server.pace.copies.note(100 * MS, 4_500 * MS);
        assert!(shares(&slow, "")[0] > 60, "there is nothing to compare it with");
        slow[1].server.pace.copies.note(MS, 4_500 * MS);
        assert_eq!(shares(&slow, "")[0], 0);
        let busy = members(0);
        let reads: Vec<CopyRead> = (0..17).map(|_| CopyRead::begin(&busy[0].server.pace)).collect();
        assert_eq!(shares(&busy, "")[0], 0);
        drop(reads);
        assert!(shares(&busy, "")[0] > 60);
    }

    #[test]
    fn a_region_is_64_mib_of_an_object() {
        let read = |inode, slot, offset| {
            let object = Some(proto::ObjectAddress { inode, slot, ..Default::default() });
            let request = proto::ReadRequest { object, offset, length: 1 };
            region(Method::Read, &request.encode_to_vec())
        };
        assert_eq!(read(1, 0, 0), read(1, 0, REGION_BYTES - 1));
        assert_ne!(read(1, 0, 0), read(1, 0, REGION_BYTES));
        assert_eq!(read(1, 0, 0), read(1, 1, 0), "of all objects of a file");
        assert_ne!(read(1, 0, 0), read(2, 0, 0));
        assert_eq!(region(Method::Write, &[]), None);
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
