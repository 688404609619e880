//! At the end of a story: the data servers have the objects of the files that are there, and no others.

use crate::cluster::Cluster;
use crate::copies::Copies;
use std::collections::BTreeSet;
use std::time::Duration;
use vazao_client::Client;
use vazao_meter::Clock;
use vazao_model::limits::SESSION_LEASE_MS;
use vazao_model::{InodeId, ObjectId};

/// Objects without a file are removed when they were found at two times this far apart.
pub(crate) const GRACE_MS: u32 = 4_000;

/// Sessions of clients that are gone end, layouts that were proposed in vain are forgotten, and the search goes through
/// all targets twice.
const WAIT_MS: u32 = SESSION_LEASE_MS + PROPOSAL_MS + 10 * GRACE_MS;

/// The metadata service forgets a proposed layout after this time.
const PROPOSAL_MS: u32 = 60_000;

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
        let generation = layout.generation;
        expected.extend(slots.map(|(&group, slot)| ObjectId { inode, generation, slot, group }));
    }
    match Copies::list(cluster).objects().find(|object| !expected.contains(object)) {
        Some(stray) => Err(format!("an object of no file: {stray}")),
        None => Ok(()),
    }
}
