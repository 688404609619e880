//! Calls on names of the volume.

use crate::connection::{Shared, volume_path};
use crate::types::LayoutAttributes;
use vazao_client::{Changes, Client, Error, NewInode, RenameMode, Result, SetTime};
use vazao_model::distribution::{Distribution, Pattern};
use vazao_model::{Attributes, Code, FileKind, LayoutHint, VolumePath};

/// The permission bits of a mode; its type bits are ignored.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// A new inode of this process's user.
pub(crate) fn owned(kind: FileKind, mode: u32) -> NewInode {
    NewInode {
        kind,
        mode: mode & PERMISSIONS,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..NewInode::default()
    }
}

/// How messages name a path.
pub(crate) fn shown(path: &VolumePath) -> String {
    format!("vz:{path}")
}

/// The directory that a path lies in, and its last name.
pub(crate) fn parent<'p>(client: &Client, path: &'p VolumePath) -> Result<(Attributes, &'p [u8])> {
    let Some((directory, name)) = path.split_last() else {
        let detail = format!("{} is the root of the volume, which has no name", shown(path));
        return Err(Error::new(Code::Invalid, detail));
    };
    Ok((client.resolve(&directory, true)?, name))
}

impl Shared {
    /// A call on a path: errors name it.
    fn on<T>(&self, path: &[u8], call: impl FnOnce(&Client, &VolumePath) -> Result<T>) -> Result<T> {
        let client = self.client()?;
        let path = volume_path(path)?;
        call(client, &path).map_err(|error| error.at(shown(&path)))
    }

    /// A call on a name in a directory.
    fn in_parent<T>(
        &self,
        path: &[u8],
        call: impl FnOnce(&Client, &Attributes, &[u8]) -> Result<T>,
    ) -> Result<T> {
        self.on(path, |client, path| {
            let (directory, name) = parent(client, path)?;
            call(client, &directory, name)
        })
    }

    pub(crate) fn stat(&self, path: &[u8], follow: bool) -> Result<Attributes> {
        self.on(path, |client, path| client.resolve(path, follow))
    }

    pub(crate) fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        self.in_parent(path, |client, directory, name| {
            client.create(directory.inode, name, &owned(FileKind::Directory, mode)).map(drop)
        })
    }

    pub(crate) fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.in_parent(path, |client, directory, name| client.remove_directory(directory.inode, name))
    }

    pub(crate) fn unlink(&self, path: &[u8]) -> Result<()> {
        self.in_parent(path, |client, directory, name| client.unlink(directory.inode, name))
    }

    pub(crate) fn rename(&self, path: &[u8], new_path: &[u8], mode: RenameMode) -> Result<()> {
        let new_path = volume_path(new_path)?;
        self.in_parent(path, |client, directory, name| {
            let (new_directory, new_name) =
                parent(client, &new_path).map_err(|error| error.at(shown(&new_path)))?;
            client.rename(directory.inode, name, new_directory.inode, new_name, mode)
        })
    }

    pub(crate) fn link(&self, path: &[u8], new_path: &[u8]) -> Result<()> {
        let inode = self.stat(path, false)?.inode;
        self.in_parent(new_path, |client, directory, name| {
            client.link(inode, directory.inode, name).map(drop)
        })
    }

    pub(crate) fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.in_parent(path, |client, directory, name| {
            let new = NewInode { contents: target.to_vec(), ..owned(FileKind::Symlink, 0o777) };
            client.create(directory.inode, name, &new).map(drop)
        })
    }

    pub(crate) fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.on(path, |client, path| client.read_link(client.resolve(path, false)?.inode))
    }

    pub(crate) fn change(&self, path: &[u8], changes: &Changes) -> Result<()> {
        self.on(path, |client, path| {
            client.set_attributes(client.resolve(path, true)?.inode, changes).map(drop)
        })
    }

    pub(crate) fn set_times(&self, path: &[u8], accessed: SetTime, modified: SetTime) -> Result<()> {
        let (accessed, modified) = (Some(accessed), Some(modified));
        self.change(path, &Changes { accessed, modified, ..Changes::default() })
    }

    pub(crate) fn layout(&self, path: &[u8]) -> Result<LayoutAttributes> {
        self.on(path, |client, path| {
            let attributes = client.resolve(path, true)?;
            if attributes.kind == FileKind::File
                && let Some(layout) = client.layout(attributes.inode)?
            {
                let unit_bytes = match layout.distribution {
                    Distribution::SimpleStripe { unit_bytes } | Distribution::Groups { unit_bytes, .. } => {
                        unit_bytes
                    }
                    Distribution::VaryingStrips(_) | Distribution::Local { .. } => 0,
                };
                return Ok(LayoutAttributes::new(unit_bytes, layout.width(), &layout.distribution.pattern()));
            }
            let (_, hint) = client.layout_hint(attributes.inode)?;
            let width = if attributes.kind == FileKind::File { 0 } else { hint.width };
            Ok(LayoutAttributes::new(
                hint.stripe_unit_bytes,
                width,
                hint.pattern.as_ref().unwrap_or(&Pattern::Stripe),
            ))
        })
    }

    pub(crate) fn set_layout(&self, path: &[u8], stripe_unit_bytes: u64, width: u32) -> Result<()> {
        self.on(path, |client, path| {
            let inode = client.resolve(path, true)?.inode;
            let hint = LayoutHint { stripe_unit_bytes, width, pattern: Some(Pattern::Stripe) };
            client.set_layout_hint(inode, hint)
        })
    }
}
