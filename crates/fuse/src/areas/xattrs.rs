//! Extended attributes of the tree: those of the nodes' files, as far as their daemons' users may.

use super::servers::Servers;
use super::table::Spot;
use crate::filesystem::privileges::is_asked_by_kernel;
use vazao_client::{Error, Result};
use vazao_model::Code;

pub(super) fn get(servers: &Servers, spot: &Spot, name: &[u8]) -> Result<Vec<u8>> {
    if spot.area.is_empty() {
        return Err(Code::NoAttribute.into());
    }
    match servers.ask_area(spot, |area| area.get_xattr(&spot.path, name)) {
        // A file system without access control lists, or a node that knows no attributes. The kernel takes any other
        // answer for a failed check of permissions.
        Err(error) if error.code == Code::Unsupported && is_asked_by_kernel(name) => {
            Err(Error::from(Code::NoAttribute))
        }
        other => other,
    }
}

/// Names, each followed by a NUL; `trusted.` ones are for root's eyes (xattr(7)).
pub(super) fn list(servers: &Servers, spot: &Spot, uid: u32) -> Result<Vec<u8>> {
    if spot.area.is_empty() {
        return Ok(Vec::new());
    }
    let mut names = servers.ask_area(spot, |area| area.list_xattrs(&spot.path))?;
    names.retain(|name| uid == 0 || !name.starts_with(b"trusted."));
    Ok(names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect())
}
