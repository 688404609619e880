//! The copies of files' blocks: which machines hold one, and whether all copies are equal at rest.
//!
//! A block is lost by power only where all machines that hold a copy of it lost power. Objects have one copy today: its
//! holder is the one member of its placement group.

use crate::cluster::{Cluster, META};
use std::collections::{BTreeMap, BTreeSet};
use vazao_client::Client;
use vazao_meter::Clock;
use vazao_model::checksum::first_mismatch;
use vazao_model::{ClusterMap, GroupId, InodeId, Layout, ObjectId, TargetId};
use vazao_wire::transport::{call, submit};
use vazao_wire::{op, proto};

/// Bytes of a block: it has one checksum, and one lock once there are several copies.
pub(crate) const BLOCK_BYTES: u64 = 64 << 10;

/// Where all machines of a cluster answer: far beyond what that takes.
const ANSWER_NS: u64 = 10_000_000_000;

/// Longer than any object of a story.
const OBJECT_BYTES_MAX: u32 = 1 << 20;

/// The machines that hold the blocks of one file, by their numbers.
#[derive(Clone, Debug)]
pub struct Holders {
    /// With the machines of each slot; `None`: its bytes are in its inode record.
    layout: Option<(Layout, Vec<Vec<usize>>)>,
    /// How often each group has gone on without what was not synced, as far as that was looked at.
    losses: BTreeMap<GroupId, u64>,
}

impl Holders {
    /// Those of a file with a layout, whose slots these machines hold.
    #[cfg(test)]
    pub(crate) fn new(layout: Layout, machines: Vec<Vec<usize>>) -> Holders {
        Holders { layout: Some((layout, machines)), losses: BTreeMap::new() }
    }

    /// Those of a file as the metadata service knows it. Nothing may be wrong with the cluster.
    pub(crate) fn of(cluster: &Cluster, client: &Client, inode: u64) -> Holders {
        let map = map_of(cluster);
        let machines = |group: &GroupId| {
            let current = current_members(&map, *group).into_iter();
            current.map(|target| cluster.machine_at(address_of(&map, target))).collect()
        };
        let layout = client.layout(InodeId(inode)).expect("fair weather");
        let layout = layout.map(|layout| {
            let slots = layout.groups.iter().map(machines).collect();
            (layout, slots)
        });
        let mut holders = Holders { layout, losses: BTreeMap::new() };
        holders.newly_lost(cluster);
        holders
    }

    /// True when all members of its groups are current again, and serve.
    pub(crate) fn are_whole(&self, cluster: &Cluster) -> bool {
        let serving: BTreeSet<(GroupId, TargetId)> = cluster
            .memberships()
            .into_values()
            .flatten()
            .filter(|view| view.may_serve)
            .map(|view| (view.group, view.target))
            .collect();
        let is_whole = |(group, machines): (&GroupId, &Vec<usize>)| {
            let serves = |machine: &usize| serving.contains(&(*group, TargetId(*machine as u32)));
            machines.len() < 2 || machines.iter().all(serves)
        };
        self.layout.as_ref().is_none_or(|(layout, slots)| layout.groups.iter().zip(slots).all(is_whole))
    }

    /// Machines of groups that have gone on, since this was asked last, without what was not synced: a member that lost
    /// power leads where the metadata service has heard nothing of the others for 30 s, whatever these have.
    pub(crate) fn newly_lost(&mut self, cluster: &Cluster) -> BTreeSet<usize> {
        let (Some((layout, slots)), Some(meta)) = (&self.layout, cluster.meta()) else {
            return BTreeSet::new();
        };
        let mut lost = BTreeSet::new();
        for (group, machines) in layout.groups.iter().zip(slots).filter(|(_, machines)| machines.len() > 1) {
            let Some(record) = meta.record_of_group(*group) else { continue };
            let known = self.losses.insert(*group, record.losses);
            if known.is_some_and(|known| known < record.losses) {
                lost.extend(machines);
            }
        }
        lost
    }

    /// Machines that are no current members any more; all where that cannot be told.
    pub(crate) fn gone(&self, cluster: &Cluster) -> BTreeSet<usize> {
        let Some((layout, slots)) = &self.layout else { return BTreeSet::new() };
        let meta = cluster.meta();
        let gone = |(group, machines): (&GroupId, &Vec<usize>)| -> Vec<usize> {
            if machines.len() < 2 {
                return Vec::new();
            }
            let record = meta.as_ref().and_then(|meta| meta.record_of_group(*group));
            let current: Vec<usize> =
                record.iter().flat_map(|it| it.current()).map(|it| it.target.0 as usize).collect();
            machines.iter().copied().filter(|machine| !current.contains(machine)).collect()
        };
        layout.groups.iter().zip(slots).flat_map(gone).collect()
    }

    /// True when none of the machines that hold the block at `offset` has kept its power; `lost`: those that lost it.
    /// What the metadata service knows of a file, its length and its layout, it alone holds.
    pub fn have_lost(&self, offset: u64, lost: &BTreeSet<usize>) -> bool {
        let is_lost = |machines: &Vec<usize>| machines.iter().all(|machine| lost.contains(machine));
        let of_block = |(layout, slots): &(Layout, Vec<Vec<usize>>)| {
            let (slot, _) = layout.distribution.locate(offset, layout.width());
            slots.get(slot as usize).is_none_or(is_lost)
        };
        lost.contains(&0) || self.layout.as_ref().is_some_and(of_block)
    }
}

/// The targets whose copies of a group's objects count.
fn current_members(map: &ClusterMap, group: GroupId) -> Vec<TargetId> {
    map.members(group)
}

fn map_of(cluster: &Cluster) -> ClusterMap {
    let deadline_ns = cluster.clock().now_ns() + ANSWER_NS;
    let request = proto::GetClusterMapRequest {};
    let answer = call::<op::GetClusterMap>(cluster.transport(), META, &request, deadline_ns);
    ClusterMap::from(answer.expect("fair weather").map.unwrap_or_default())
}

fn address_of(map: &ClusterMap, target: TargetId) -> &str {
    let node = map.target(target).and_then(|target| map.node(target.node));
    &node.expect("it holds the target").address
}

/// All objects on all data servers, with the targets that have a copy.
pub(crate) struct Copies<'a> {
    cluster: &'a Cluster,
    map: ClusterMap,
    found: BTreeMap<ObjectId, Vec<TargetId>>,
}

impl Copies<'_> {
    /// Looks through all targets. Nothing may be wrong with the cluster.
    pub(crate) fn list(cluster: &Cluster) -> Copies<'_> {
        let map = map_of(cluster);
        let mut found: BTreeMap<ObjectId, Vec<TargetId>> = BTreeMap::new();
        for target in map.targets.iter().map(|target| target.id) {
            let deadline_ns = cluster.clock().now_ns() + ANSWER_NS;
            let request =
                proto::ListObjectsRequest { target: target.0, cookie: Vec::new(), limit: 4096, group: 0 };
            let address = address_of(&map, target);
            let page = call::<op::ListObjects>(cluster.transport(), address, &request, deadline_ns);
            for listed in page.expect("fair weather").objects {
                let group = if listed.group == 0 { GroupId::of(target) } else { GroupId(listed.group) };
                let (inode, generation, slot) = (InodeId(listed.inode), listed.generation, listed.slot);
                found.entry(ObjectId { inode, generation, slot, group }).or_default().push(target);
            }
        }
        Copies { cluster, map, found }
    }

    /// The objects that are there.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.found.keys()
    }

    /// Whether each object lies on current members of its group only, on all of them, and is the same everywhere.
    /// Errors: what is not so, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (object, targets) in &self.found {
            let current = current_members(&self.map, object.group);
            // A member that was put out keeps what it has until it catches up.
            let lags = self.map.groups.iter().any(|group| group.id == object.group && group.is_agreed);
            if let Some(stray) = targets.iter().find(|target| !lags && !current.contains(target)) {
                return Err(format!("{object} lies on {stray}, which {} has not", object.group));
            }
            if let Some(lacking) = current.iter().find(|target| !targets.contains(target)) {
                return Err(format!("{object} lacks a copy on {lacking}"));
            }
            let copies: Result<Vec<_>, String> =
                current.iter().map(|target| Ok((*target, self.read(object, *target)?))).collect();
            difference(&copies?).map_or(Ok(()), |what| Err(format!("{object}: {what}")))?;
        }
        Ok(())
    }

    /// The bytes of a copy. Errors: they do not match their checksums.
    fn read(&self, object: &ObjectId, target: TargetId) -> Result<Vec<u8>, String> {
        let deadline_ns = self.cluster.clock().now_ns() + ANSWER_NS;
        let address = proto::ObjectAddress {
            target: target.0,
            inode: object.inode.0,
            generation: object.generation,
            slot: object.slot,
            group: object.group.0,
            ..Default::default()
        };
        let request = proto::ReadRequest { object: Some(address), offset: 0, length: OBJECT_BYTES_MAX };
        let server = address_of(&self.map, target);
        let asked = submit::<op::Read>(self.cluster.transport(), server, &request, &[], deadline_ns).wait();
        let (answer, bytes) = asked.map_err(|fault| format!("{object} on {target}: {fault}"))?;
        match first_mismatch(0, &bytes, &answer.checksums) {
            None => Ok(bytes.to_vec()),
            Some(piece) => Err(format!("{object} on {target}: piece {piece} does not match its checksum")),
        }
    }
}

/// Where the copies of an object differ, in words.
fn difference(copies: &[(TargetId, Vec<u8>)]) -> Option<String> {
    let ((first, expected), others) = copies.split_first()?;
    let (other, bytes) = others.iter().find(|(_, bytes)| bytes != expected)?;
    let at = bytes.iter().zip(expected).position(|(a, b)| a != b);
    let at = at.unwrap_or_else(|| bytes.len().min(expected.len()));
    Some(format!("the copies on {first} and {other} differ in block {}", at as u64 / BLOCK_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TargetId = TargetId(1);
    const TWO: TargetId = TargetId(2);
    const THREE: TargetId = TargetId(3);

    #[test]
    fn a_copy_that_differs_is_named_with_its_block() {
        let bytes = vec![7; 200_000];
        let mut other = bytes.clone();
        assert_eq!(difference(&[]), None);
        assert_eq!(difference(&[(ONE, bytes.clone())]), None);
        assert_eq!(difference(&[(ONE, bytes.clone()), (TWO, bytes.clone())]), None);
        other[70_000] = 8;
        let told = difference(&[(ONE, bytes.clone()), (TWO, bytes.clone()), (THREE, other)]);
        assert_eq!(told.as_deref(), Some("the copies on t1 and t3 differ in block 1"));
        let told = difference(&[(ONE, bytes.clone()), (TWO, bytes[..140_000].to_vec())]);
        assert_eq!(told.as_deref(), Some("the copies on t1 and t2 differ in block 2"));
    }

    /// Two slots, the first on machines 1 and 2, the second on machine 3.
    fn holders() -> Holders {
        let layout = Layout::striped(1, BLOCK_BYTES, vec![GroupId(1), GroupId(2)]).expect("valid");
        Holders::new(layout, vec![vec![1, 2], vec![3]])
    }

    #[test]
    fn a_block_is_lost_with_the_power_of_all_that_hold_it() {
        let lost = |machines: &[usize]| {
            let lost: BTreeSet<usize> = machines.iter().copied().collect();
            [0, 1, 2, 3].map(|block| holders().have_lost(block * BLOCK_BYTES, &lost))
        };
        assert_eq!(lost(&[]), [false; 4]);
        assert_eq!(lost(&[1]), [false; 4], "machine 2 has kept its power");
        assert_eq!(lost(&[1, 2]), [true, false, true, false]);
        assert_eq!(lost(&[3, 1]), [false, true, false, true]);
        assert_eq!(lost(&[0]), [true; 4], "the metadata service knows what belongs to the file");
        let inline = Holders { layout: None, losses: BTreeMap::new() };
        assert_eq!([[1, 2], [0, 1]].map(|lost| inline.have_lost(0, &lost.into())), [false, true]);
    }
}
