//! At the end of a story: the data servers have the objects of the files that are there, and no others.

use crate::cluster::{Cluster, META};
use std::collections::BTreeSet;
use std::time::Duration;
use vazao_client::Client;
use vazao_meter::Clock;
use vazao_model::limits::SESSION_LEASE_MS;
use vazao_model::{GroupId, InodeId};
use vazao_wire::transport::call;
use vazao_wire::{op, proto};

/// Objects without a file are removed when they were found at two times this far apart.
pub(crate) const GRACE_MS: u32 = 4_000;

/// Sessions of clients that are gone end, layouts that were proposed in vain are forgotten, and the search goes through
/// all targets twice.
const WAIT_MS: u32 = SESSION_LEASE_MS + PROPOSAL_MS + 10 * GRACE_MS;

/// The metadata service forgets a proposed layout after this time.
const PROPOSAL_MS: u32 = 60_000;

/// Placement group, inode and generation of an object, and its slot.
type Object = (GroupId, InodeId, u32, u32);

/// Waits until everything that is to be removed is gone. `inodes`: all files. Errors: an object of none of them, in
/// words.
pub(crate) fn left_behind(cluster: &Cluster, clients: &[Client], inodes: &[InodeId]) -> Result<(), String> {
    for _ in 0..WAIT_MS / 2_000 {
        cluster.clock().sleep(Duration::from_secs(2));
        clients.iter().for_each(|client| client.tick().expect("fair weather"));
    }
    let mut expected = BTreeSet::new();
    for &inode in inodes {
        let Some(layout) = clients[0].layout(inode).expect("fair weather") else { continue };
        let slots = layout.groups.iter().zip(0..);
        expected.extend(slots.map(|(&group, slot)| (group, inode, layout.generation, slot)));
    }
    match objects(cluster).into_iter().find(|object| !expected.contains(object)) {
        Some(stray) => Err(format!("an object of no file: {stray:?}")),
        None => Ok(()),
    }
}

fn objects(cluster: &Cluster) -> Vec<Object> {
    let deadline_ns = cluster.clock().now_ns() + 10_000_000_000;
    let transport = cluster.transport();
    let request = proto::GetClusterMapRequest {};
    let map = call::<op::GetClusterMap>(transport, META, &request, deadline_ns).expect("fair weather").map;
    let map = vazao_model::ClusterMap::from(map.unwrap_or_default());
    let mut objects = Vec::new();
    for target in &map.targets {
        let address = &map.node(target.node).expect("holds the target").address;
        let request = proto::ListObjectsRequest { target: target.id.0, cookie: Vec::new(), limit: 4096 };
        let page = call::<op::ListObjects>(transport, address, &request, deadline_ns).expect("fair weather");
        let group_of = |group: u32| if group == 0 { GroupId::of(target.id) } else { GroupId(group) };
        for o in page.objects {
            let group = group_of(o.group);
            assert!(map.members(group).contains(&target.id), "{group} is not of {}", target.id);
            objects.push((group, InodeId(o.inode), o.generation, o.slot));
        }
    }
    objects
}
