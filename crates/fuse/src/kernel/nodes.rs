//! The kernel's node numbers, and the inodes that they stand for.

use super::abi;
use vazao_model::InodeId;

/// Which node number stands for which inode: the same, but for the mount's root, which the kernel calls 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nodes {
    pub(crate) root: InodeId,
}

impl Nodes {
    /// The inode behind a node number.
    pub(crate) fn inode(self, node: u64) -> InodeId {
        if node == abi::ROOT_NODE { self.root } else { InodeId(node) }
    }

    /// The node number of an inode; `None` for the volume's root under a mounted subdirectory, which no path there
    /// leads to.
    pub(crate) fn node(self, inode: InodeId) -> Option<u64> {
        if inode == self.root {
            return Some(abi::ROOT_NODE);
        }
        (inode.0 > abi::ROOT_NODE).then_some(inode.0)
    }
}
