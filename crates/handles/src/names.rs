//! Calls on names of the volume.

use crate::connection::{Connection, volume_path};
use vazao_client::{Changes, Client, Error, NewInode, RenameMode, Result, SetTime};
use vazao_model::distribution::{Distribution, Pattern};
use vazao_model::{Attributes, Code, FileKind, LayoutHint, VolumePath};

/// The permission bits of a mode; its type bits are ignored.
pub const PERMISSIONS: u32 = 0o7777;

/// How a file is striped, or how files created in a directory will be.
#[derive(Clone, PartialEq, Debug)]
pub struct ShownLayout {
    /// Bytes that go to one target before the next one's turn; 0 where that is not what the distribution is about.
    pub stripe_unit_bytes: u64,
    /// Number of targets; 0 while the contents of a small file are with its metadata.
    pub width: u32,
    /// In which order targets are used.
    pub pattern: Pattern,
}

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

/// The type in `st_mode`.
pub fn mode_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Fifo => 0o010_000,
        FileKind::Socket => 0o140_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::BlockDevice => 0o060_000,
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

impl Connection {
    /// A call on a path: errors name it.
    pub(crate) fn on<T>(
        &self,
        path: &[u8],
        call: impl FnOnce(&Client, &VolumePath) -> Result<T>,
    ) -> Result<T> {
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

    /// What a path leads to; without `follow` a symbolic link at its end itself.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Attributes> {
        self.on(path, |client, path| client.resolve(path, follow))
    }

    /// Makes a directory of this process's effective user.
    pub fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        self.in_parent(path, |client, directory, name| {
            client.create(directory.inode, name, &owned(FileKind::Directory, mode)).map(drop)
        })
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.in_parent(path, |client, directory, name| client.remove_directory(directory.inode, name))
    }

    /// Removes a name that is not a directory's.
    pub fn unlink(&self, path: &[u8]) -> Result<()> {
        self.in_parent(path, |client, directory, name| client.unlink(directory.inode, name))
    }

    /// Moves a name, in one transaction.
    pub fn rename(&self, path: &[u8], new_path: &[u8], mode: RenameMode) -> Result<()> {
        let new_path = volume_path(new_path)?;
        self.in_parent(path, |client, directory, name| {
            let (new_directory, new_name) =
                parent(client, &new_path).map_err(|error| error.at(shown(&new_path)))?;
            client.rename(directory.inode, name, new_directory.inode, new_name, mode)
        })
    }

    /// Gives a file a further name.
    pub fn link(&self, path: &[u8], new_path: &[u8]) -> Result<()> {
        let inode = self.stat(path, false)?.inode;
        self.in_parent(new_path, |client, directory, name| {
            client.link(inode, directory.inode, name).map(drop)
        })
    }

    /// Makes a symbolic link at `path` that leads to `target`.
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.in_parent(path, |client, directory, name| {
            let new = NewInode { contents: target.to_vec(), ..owned(FileKind::Symlink, 0o777) };
            client.create(directory.inode, name, &new).map(drop)
        })
    }

    /// Where a symbolic link leads.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.on(path, |client, path| client.read_link(client.resolve(path, false)?.inode))
    }

    /// Changes attributes of what a path leads to.
    pub fn change(&self, path: &[u8], changes: &Changes) -> Result<()> {
        self.on(path, |client, path| {
            client.set_attributes(client.resolve(path, true)?.inode, changes).map(drop)
        })
    }

    /// Sets the times of the last read and of the last change of contents.
    pub fn set_times(&self, path: &[u8], accessed: SetTime, modified: SetTime) -> Result<()> {
        let (accessed, modified) = (Some(accessed), Some(modified));
        self.change(path, &Changes { accessed, modified, ..Changes::default() })
    }

    /// How a file is striped, or how files created in a directory will be.
    pub fn layout(&self, path: &[u8]) -> Result<ShownLayout> {
        self.on(path, |client, path| {
            let attributes = client.resolve(path, true)?;
            if attributes.kind == FileKind::File
                && let Some(layout) = client.layout(attributes.inode)?
            {
                let stripe_unit_bytes = match layout.distribution {
                    Distribution::SimpleStripe { unit_bytes } | Distribution::Groups { unit_bytes, .. } => {
                        unit_bytes
                    }
                    Distribution::VaryingStrips(_) | Distribution::Local { .. } => 0,
                };
                let (width, pattern) = (layout.width(), layout.distribution.pattern());
                return Ok(ShownLayout { stripe_unit_bytes, width, pattern });
            }
            let (_, hint) = client.layout_hint(attributes.inode)?;
            let width = if attributes.kind == FileKind::File { 0 } else { hint.width };
            let pattern = hint.pattern.unwrap_or(Pattern::Stripe);
            Ok(ShownLayout { stripe_unit_bytes: hint.stripe_unit_bytes, width, pattern })
        })
    }

    /// Stripes files that are created in a directory from now on, or a file without data, in simple stripes. 0 stands
    /// for what the directory above has.
    pub fn set_layout(&self, path: &[u8], stripe_unit_bytes: u64, width: u32) -> Result<()> {
        self.on(path, |client, path| {
            let inode = client.resolve(path, true)?.inode;
            let (present, _) = client.layout_hint(inode)?;
            let hint = LayoutHint { stripe_unit_bytes, width, pattern: Some(Pattern::Stripe), ..present };
            client.set_layout_hint(inode, hint)
        })
    }
}
