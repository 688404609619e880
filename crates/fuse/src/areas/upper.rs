//! The two upper levels of the tree, nodes and their areas: they come from the cluster's map.

use super::table::Spot;
use std::sync::Arc;
use vazao_model::{Attributes, ClusterMap, FileKind, InodeId, Node, Timestamp};

/// The root or a node. `born`: when the mount was made.
pub(super) fn attributes(inode: InodeId, born: Timestamp) -> Attributes {
    Attributes {
        inode,
        kind: FileKind::Directory,
        mode: 0o555,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        links: 2,
        accessed: born,
        modified: born,
        changed: born,
        without_xattrs: true,
        ..Attributes::default()
    }
}

/// The places in the root or in a node, with their names.
pub(super) fn names(map: &ClusterMap, spot: &Spot) -> Vec<(Arc<str>, Spot)> {
    let of_node = |node: &Node| match spot.node.is_empty() {
        true => {
            let name: Arc<str> = node.name.as_str().into();
            vec![(Arc::clone(&name), Spot { node: name, ..Spot::default() })]
        }
        false => {
            let place = |name: &str| {
                let name: Arc<str> = name.into();
                (Arc::clone(&name), Spot { area: name, ..spot.clone() })
            };
            node.areas.iter().map(|area| place(&area.name)).collect()
        }
    };
    let wanted = |node: &&Node| match spot.node.is_empty() {
        true => !node.areas.is_empty(),
        false => *node.name == *spot.node,
    };
    map.nodes.iter().filter(wanted).flat_map(of_node).collect()
}
