//! The two upper levels of the tree, nodes and their areas: they come from the cluster's map.

use super::Areas;
use super::table::Spot;
use std::sync::Arc;
use vazao_client::{Error, Result};
use vazao_model::{Attributes, Code, FileKind, InodeId, Node};

impl Areas {
    /// The root or a node.
    pub(super) fn upper(&self, inode: InodeId) -> Attributes {
        Attributes {
            inode,
            kind: FileKind::Directory,
            mode: 0o555,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            links: 2,
            accessed: self.born,
            modified: self.born,
            changed: self.born,
            without_xattrs: true,
            ..Attributes::default()
        }
    }

    /// The places in the root or in a node, with their names.
    pub(super) fn upper_names(&self, spot: &Spot) -> Vec<(Arc<str>, Spot)> {
        // An older map has to do where the metadata service does not answer.
        let map = self.client.refresh_map().unwrap_or_else(|_| self.client.map());
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

    /// One of these places, to be shown.
    pub(super) fn upper_lookup(&self, directory: &Spot, name: &[u8]) -> Result<Attributes> {
        let found = self.upper_names(directory).into_iter().find(|(found, _)| found.as_bytes() == name);
        let (_, spot) = found.ok_or(Error::from(Code::NotFound))?;
        if spot.area.is_empty() {
            let inode = self.table.lock().enter(&spot, None);
            return Ok(self.upper(inode));
        }
        let (attributes, identity) = self.stat(&spot)?;
        Ok(self.entered(&spot, attributes, Some(identity)))
    }
}
