//! Extended attributes of the tree: those of the nodes' files, as far as their daemons' users may.

use super::Areas;
use crate::filesystem::arguments::Caller;
use crate::filesystem::privileges::is_asked_by_kernel;
use vazao_client::area::AreaClient;
use vazao_client::{Error, Result};
use vazao_model::{Code, InodeId};

impl Areas {
    pub(super) fn get_xattr(&self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        let spot = self.spot(inode)?;
        if spot.area.is_empty() {
            return Err(Code::NoAttribute.into());
        }
        match self.ask_area(&spot, |area| area.get_xattr(&spot.path, name)) {
            // A file system without access control lists, or a node that knows no attributes. The kernel takes any
            // other answer for a failed check of permissions.
            Err(error) if error.code == Code::Unsupported && is_asked_by_kernel(name) => {
                Err(Error::from(Code::NoAttribute))
            }
            other => other,
        }
    }

    /// Names, each followed by a NUL; `trusted.` ones are for root's eyes (xattr(7)).
    pub(super) fn list_xattrs(&self, inode: InodeId, caller: Caller) -> Result<Vec<u8>> {
        let spot = self.spot(inode)?;
        if spot.area.is_empty() {
            return Ok(Vec::new());
        }
        let mut names = self.ask_area(&spot, |area| area.list_xattrs(&spot.path))?;
        names.retain(|name| caller.uid == 0 || !name.starts_with(b"trusted."));
        Ok(names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect())
    }

    pub(super) fn change_xattrs(
        &self,
        inode: InodeId,
        change: impl FnOnce(&AreaClient, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let spot = self.spot(inode)?;
        if spot.area.is_empty() {
            return Err(Error::new(
                Code::NotPermitted,
                "nodes and areas of the tree have no attributes to set",
            ));
        }
        let _changing = self.walks.changing();
        let outcome = self.ask_area(&spot, |area| change(area, &spot.path));
        self.changed(inode);
        outcome
    }
}
