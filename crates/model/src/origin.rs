//! What a path leads to, named so that all ways to it give the same name: a mount and `vz:`, a path of a machine and an
//! area, two areas of one directory. Copies compare origins to refuse what would copy something into itself.
//!
//! An origin is bytes that are compared and not read. A mount answers with it where the extended attribute
//! [`ATTRIBUTE`] is asked for, as Ceph and Lustre tell of their layouts; an area passes such an answer on, so that it
//! comes through any number of them.

use crate::InodeId;

/// The extended attribute by which a mount, or the daemon of an area, tells an origin. It is not listed.
pub const ATTRIBUTE: &[u8] = b"vazao.origin";

/// Longer ones are not ours.
pub const BYTES_MAX: usize = 256;

/// Of a file of the volume of a cluster.
pub fn of_volume(cluster_id: u64, inode: InodeId) -> Vec<u8> {
    format!("volume {cluster_id:016x} {}", inode.0).into_bytes()
}

/// Of a file of a machine, which `boot` tells from all others: device numbers are the same on many.
pub fn of_machine(boot: u64, device: u64, inode: u64) -> Vec<u8> {
    format!("machine {boot:016x} {device:x} {inode}").into_bytes()
}

/// Of a file of an area whose node says no more of it: one of an older version.
pub fn of_node(node: &str, device: u64, inode: u64) -> Vec<u8> {
    format!("node {node} {device:x} {inode}").into_bytes()
}
