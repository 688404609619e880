//! From which of its copies each slot of a file is read: one member of each slot's group, for all slots at once, so
//! that no server has more slots than needed ([`super::assignment`]).
//!
//! Choosing for each slot alone had two of four servers do all the work for a stream: members that come first, second
//! or third in their groups lie on different servers for the first of them only.
//!
//! There are several such assignments, which take turns with the regions of a file: so each copy's page cache holds
//! other regions, the same ones for all clients that see the same members, and where the slots cannot be shared evenly
//! it is another server that has one more. They are made anew when a slot's members, or which of them are good, have
//! changed since.

use super::assignment::{Choice, assign};
use crate::servers::Member;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use vazao_model::{InodeId, Layout, NodeId, TargetId};

/// Bytes of each object that are read by one assignment, before the next one's turn.
const REGION_BYTES: u64 = 64 << 20;

/// Assignments: a slot's two or three members have as many turns each.
const TURNS: usize = 6;

/// What of a file is read.
#[derive(Clone, Copy)]
pub(crate) struct ReadOf<'a> {
    pub(crate) spread: &'a Spread,
    pub(crate) layout: &'a Layout,
    pub(crate) slot: u32,
    /// Where in the file: slots that a stream reads at the same time have the same turn.
    pub(crate) offset: u64,
}

/// The assignments of one file; nothing as long as it was not read from groups of several members.
///
/// Lock order: `made` before the routes of [`crate::servers::Servers`].
pub(crate) struct Spread {
    inode: InodeId,
    made: Mutex<Option<Box<Made>>>,
}

/// Made for the layout of this generation, when its slots had these readers.
struct Made {
    generation: u32,
    slots: Vec<Vec<Reader>>,
    turns: [Vec<Option<TargetId>>; TURNS],
}

/// A member that a slot may be read from.
#[derive(Debug)]
pub(super) struct Reader {
    target: TargetId,
    node: NodeId,
    address: String,
}

impl Reader {
    pub(super) fn of(member: &Member) -> Reader {
        let server = &member.server;
        Reader { target: member.target, node: server.node, address: server.address.clone() }
    }

    fn is(&self, member: &Member) -> bool {
        let server = &member.server;
        self.target == member.target && self.node == server.node && self.address == server.address
    }

    fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(&self.address, |(host, _)| host)
    }
}

impl Spread {
    pub(crate) fn new(inode: InodeId) -> Spread {
        Spread { inode, made: Mutex::default() }
    }

    /// The member that `read` goes to. `best` are those of its slot that are good now, `all` those of each slot.
    pub(super) fn member<'m>(
        &self,
        read: &ReadOf<'_>,
        best: impl Iterator<Item = &'m Member>,
        all: impl FnOnce() -> Vec<Vec<Reader>>,
    ) -> Option<TargetId> {
        let slot = read.slot as usize;
        let turn = self.turn(read.layout, read.offset);
        let mut made = self.made.lock();
        let is_as_made = |made: &Made| {
            let readers = made.slots.get(slot).map_or(&[][..], Vec::as_slice);
            made.generation == read.layout.generation && is_same(readers, best)
        };
        if !made.as_deref().is_some_and(is_as_made) {
            let slots = all();
            let turns = turns(&slots);
            *made = Some(Box::new(Made { generation: read.layout.generation, slots, turns }));
        }
        made.as_ref()?.turns[turn].get(slot).copied().flatten()
    }

    fn turn(&self, layout: &Layout, offset: u64) -> usize {
        let region = offset / (REGION_BYTES * u64::from(layout.width().max(1)));
        (mix(self.inode.0).wrapping_add(region) % TURNS as u64) as usize
    }
}

fn is_same<'m>(readers: &[Reader], mut members: impl Iterator<Item = &'m Member>) -> bool {
    readers.iter().all(|reader| members.next().is_some_and(|member| reader.is(member)))
        && members.next().is_none()
}

/// Spreads numbers that are close to each other (the finaliser of MurmurHash3).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// A member for each slot, for each turn. What cannot be shared evenly in one turn is over all of them.
fn turns(slots: &[Vec<Reader>]) -> [Vec<Option<TargetId>>; TURNS] {
    let mut servers: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut host_of = Vec::new();
    for reader in slots.iter().flatten() {
        let (next_server, next_host) = (servers.len(), hosts.len());
        servers.entry(reader.node).or_insert_with(|| {
            host_of.push(*hosts.entry(reader.host()).or_insert(next_host));
            next_server
        });
    }
    let mut had = vec![0; host_of.len()];
    std::array::from_fn(|turn| {
        let liked = |readers: &Vec<Reader>| -> Vec<usize> {
            let from_first = readers.iter().cycle().skip(turn % readers.len().max(1));
            from_first.take(readers.len()).map(|reader| servers[&reader.node]).collect()
        };
        let liked: Vec<Vec<usize>> = slots.iter().map(liked).collect();
        let placed = assign(Choice { slots: &liked, host_of: &host_of, had: &had });
        placed.iter().flatten().for_each(|server| had[*server] += 1);
        let target = |(readers, server): (&Vec<Reader>, Option<usize>)| {
            let server = server?;
            readers.iter().find(|reader| servers[&reader.node] == server).map(|reader| reader.target)
        };
        slots.iter().zip(placed).map(target).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Routes;
    use std::collections::BTreeSet;
    use vazao_model::{ClusterMap, Group, GroupId, Node, Target, TargetState};

    /// Groups of three copies on four servers as the metadata service makes them.
    const ON_FOUR: [&[u32]; 4] = [&[1, 2, 3], &[2, 4, 1], &[3, 1, 4], &[4, 3, 2]];

    /// The members of each slot's group: targets of the same number as their nodes, at addresses of `host`.
    fn slots(groups: &[&[u32]], host: impl Fn(u32) -> String) -> Vec<Vec<Member>> {
        let ids: BTreeSet<u32> = groups.iter().flat_map(|members| members.iter().copied()).collect();
        let node = |id: &u32| Node { id: NodeId(*id), address: host(*id), ..Node::default() };
        let target = |id: &u32| Target {
            id: TargetId(*id),
            node: NodeId(*id),
            state: TargetState::Serving,
            ..Target::default()
        };
        let group = |(members, number): (&&[u32], u32)| Group {
            id: GroupId(GroupId::FIRST + number),
            members: members.iter().copied().map(TargetId).collect(),
            ..Group::default()
        };
        let map = ClusterMap {
            nodes: ids.iter().map(node).collect(),
            targets: ids.iter().map(target).collect(),
            groups: groups.iter().zip(0..).map(group).collect(),
            ..ClusterMap::default()
        };
        let routes = Routes::new(map, &Routes::default());
        let members = |group: u32| routes.members(GroupId(GroupId::FIRST + group)).expect("is there");
        (0..groups.len() as u32).map(|group| members(group).to_vec()).collect()
    }

    fn own(id: u32) -> String {
        format!("h{id}:1")
    }

    fn layout(width: usize) -> Layout {
        let groups = (0..width as u32).map(|slot| GroupId(GroupId::FIRST + slot)).collect();
        Layout::striped(3, 64 << 10, groups).expect("valid")
    }

    /// The member that each slot is read from at `offset` of a file; how often assignments were made.
    fn read(spread: &Spread, slots: &[Vec<Member>], offset: u64) -> (Vec<u32>, usize) {
        let layout = layout(slots.len());
        let mut made = 0;
        let targets = (0..slots.len())
            .map(|slot| {
                let read = ReadOf { spread, layout: &layout, slot: slot as u32, offset };
                let all = || {
                    made += 1;
                    slots.iter().map(|members| members.iter().map(Reader::of).collect()).collect()
                };
                spread.member(&read, slots[slot].iter(), all).expect("a member").0
            })
            .collect();
        (targets, made)
    }

    /// How many slots each server has, for each turn.
    fn loads(slots: &[Vec<Member>]) -> Vec<BTreeMap<u32, usize>> {
        let spread = Spread::new(InodeId(7));
        let region = REGION_BYTES * slots.len() as u64;
        let load = |turn: u64| {
            let mut load = BTreeMap::new();
            for (target, members) in read(&spread, slots, turn * region).0.into_iter().zip(slots) {
                assert!(members.iter().any(|member| member.target.0 == target));
                *load.entry(target).or_default() += 1;
            }
            load
        };
        (0..TURNS as u64).map(load).collect()
    }

    fn sum(loads: &[BTreeMap<u32, usize>]) -> BTreeMap<u32, usize> {
        let mut sum = BTreeMap::new();
        loads.iter().flatten().for_each(|(target, slots)| *sum.entry(*target).or_default() += slots);
        sum
    }

    /// Members of the second rank lie on three servers, and of the third one on four or two.
    #[test]
    fn four_slots_with_three_copies_on_four_servers_are_read_from_all_of_them() {
        let of_one_rank = [&[1, 2, 3][..], &[2, 1, 3], &[3, 1, 2], &[4, 1, 2]];
        for groups in [ON_FOUR, of_one_rank] {
            for load in loads(&slots(&groups, own)) {
                assert_eq!(load, BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 1)]));
            }
        }
    }

    #[test]
    fn the_other_three_share_what_one_server_does_that_goes() {
        for gone in 1..=4 {
            let left: Vec<Vec<u32>> = ON_FOUR
                .iter()
                .map(|members| members.iter().copied().filter(|member| *member != gone).collect())
                .collect();
            let left: Vec<&[u32]> = left.iter().map(Vec::as_slice).collect();
            let loads = loads(&slots(&left, own));
            for load in &loads {
                let mut slots: Vec<usize> = load.values().copied().collect();
                slots.sort_unstable();
                assert_eq!(slots, [1, 1, 2], "without {gone}");
            }
            assert!(sum(&loads).values().all(|slots| *slots == 8), "the second one is in turn: {loads:?}");
        }
    }

    #[test]
    fn slots_of_one_group_are_shared_by_its_members_and_files_of_one_slot_take_all_of_them() {
        for load in loads(&slots(&[&[1, 2, 3][..]; 6], own)) {
            assert_eq!(load, BTreeMap::from([(1, 2), (2, 2), (3, 2)]));
        }
        for copies in [2, 3] {
            let one = slots(&[&[1, 2, 3][..copies]], own);
            assert!(sum(&loads(&one)).values().all(|turns| *turns == TURNS / copies), "{copies}");
            let mut files = vec![0; copies];
            for inode in 0..300 {
                files[read(&Spread::new(InodeId(inode)), &one, 0).0[0] as usize - 1] += 1;
            }
            assert!(files.iter().all(|count| *count > 60), "{files:?}");
        }
    }

    #[test]
    fn a_region_is_64_mib_of_each_object_and_clients_agree_on_its_members() {
        let one = slots(&[&[1, 2, 3], &[1, 2, 3]], own);
        let spread = Spread::new(InodeId(7));
        let at = |offset: u64| read(&spread, &one, offset).0;
        assert_eq!(at(0), at(2 * REGION_BYTES - 1));
        assert_ne!(at(0), at(2 * REGION_BYTES));
        assert_eq!(at(5 * REGION_BYTES), read(&Spread::new(InodeId(7)), &one, 5 * REGION_BYTES).0);
    }

    #[test]
    fn assignments_are_made_once_until_the_members_of_a_slot_change() {
        let all = slots(&ON_FOUR, own);
        let spread = Spread::new(InodeId(7));
        let (before, made) = read(&spread, &all, 0);
        assert_eq!((made, read(&spread, &all, 1 << 40).1), (1, 0));
        let mut left = all.clone();
        left[2].retain(|member| member.target.0 != before[2]);
        assert_eq!(read(&spread, &left, 0).1, 1);
        let (after, made) = read(&spread, &left, 0);
        assert_eq!(made, 0);
        assert_eq!(after.iter().collect::<BTreeSet<_>>().len(), 4, "others move for it");
        assert_eq!(read(&spread, &all, 0).1, 1);
        assert_eq!(read(&spread, &all, 0), (before, 0), "it is there again");
        let moved = slots(&ON_FOUR, |id| format!("h{}:1", id + 1));
        assert_eq!(read(&spread, &moved, 0).1, 1);
    }

    #[test]
    fn servers_that_share_a_host_share_its_link() {
        let same_host = slots(&[&[1, 3], &[2, 4]], |id| format!("h{}:{id}", id.div_ceil(2)));
        for load in loads(&same_host) {
            assert_eq!(load.keys().map(|id| id.div_ceil(2)).collect::<BTreeSet<_>>().len(), 2, "{load:?}");
        }
    }
}
