//! Extended attributes of names of the volume and of areas, as xattr(7).

use crate::{Area, Connection};
use vazao_client::area::AreaClient;
use vazao_client::{Error, Result, XattrMode};
use vazao_model::Code;

/// Access control lists: the only attributes of the system that the volume gives a meaning.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Namespaces whose attributes the volume keeps.
const SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// As on a mount, which would not show an attribute of another name.
fn check_name(name: &[u8]) -> Result<()> {
    if LISTS.contains(&name) || SPACES.iter().any(|space| name.starts_with(space)) {
        return Ok(());
    }
    let shown = String::from_utf8_lossy(name);
    let detail = format!("extended attribute \"{shown}\"; a name of a program's own begins with \"user.\"");
    Err(Error::new(Code::Unsupported, detail))
}

impl Connection {
    /// The value of an extended attribute; without `follow` that of a symbolic link at the end of the path itself.
    pub fn xattr(&self, path: &[u8], follow: bool, name: &[u8]) -> Result<Vec<u8>> {
        self.on(path, |client, path| {
            check_name(name)?;
            client.get_xattr(client.resolve(path, follow)?.inode, name)
        })
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        path: &[u8],
        follow: bool,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.on(path, |client, path| {
            check_name(name)?;
            client.set_xattr(client.resolve(path, follow)?.inode, name, value, mode)
        })
    }

    /// The names of all extended attributes.
    pub fn xattrs(&self, path: &[u8], follow: bool) -> Result<Vec<Vec<u8>>> {
        self.on(path, |client, path| client.list_xattrs(client.resolve(path, follow)?.inode))
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, path: &[u8], follow: bool, name: &[u8]) -> Result<()> {
        self.on(path, |client, path| {
            check_name(name)?;
            client.remove_xattr(client.resolve(path, follow)?.inode, name)
        })
    }
}

/// Of a symbolic link itself where a path ends in one. The file system of the area decides which names there are.
impl Area {
    /// The value of an extended attribute.
    pub fn xattr(&self, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        self.on(path, |client, path| client.get_xattr(path, name))
    }

    /// Sets an extended attribute, if the daemon's user may.
    pub fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.on(path, |client, path| client.set_xattr(path, name, value, mode))
    }

    /// The names of all extended attributes that the daemon's user sees.
    pub fn xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.on(path, AreaClient::list_xattrs)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, path: &[u8], name: &[u8]) -> Result<()> {
        self.on(path, |client, path| client.remove_xattr(path, name))
    }
}
