//! A directory of the volume, through the client library: no mount, no kernel in between.

use super::{OpenFile, Place};
use crate::Error;
use std::io;
use vazao_client::{Client, File, NewInode, OpenMode};
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{FileKind, InodeId, VolumePath};

/// A directory reached by the client library.
#[derive(Clone)]
pub struct Library {
    name: String,
    client: Client,
    parent: InodeId,
    directory: InodeId,
    directory_name: String,
}

impl Library {
    /// A place at `path` of the volume behind `client`, working in the new directory `path`/`directory`.
    pub fn new(client: Client, name: &str, path: &str, directory: &str) -> Result<Library, Error> {
        let failed = |error: vazao_client::Error| Error::Failed(error.about(name).to_string());
        let parsed = VolumePath::parse(path.as_bytes()).map_err(|code| failed(code.into()))?;
        let parent = client.resolve(&parsed, true).map_err(failed)?.inode;
        let new = NewInode { kind: FileKind::Directory, mode: 0o755, ..owner() };
        let made = client.create(parent, directory.as_bytes(), &new).map_err(failed)?;
        Ok(Library {
            name: name.to_owned(),
            client,
            parent,
            directory: made.inode,
            directory_name: directory.to_owned(),
        })
    }

    /// The working directory.
    pub fn directory(&self) -> InodeId {
        self.directory
    }
}

/// Deepest tree that a measurement makes and [`Place::clear`] removes.
const TREE_LEVELS_MAX: u32 = 4;

fn clear(client: &Client, directory: InodeId, levels: u32) -> io::Result<()> {
    let mut cookie = 0;
    loop {
        let page = client.list(directory, cookie, LIST_ENTRIES_MAX, false)?;
        for entry in &page.entries {
            if entry.kind == FileKind::Directory && levels > 0 {
                clear(client, entry.inode, levels - 1)?;
                client.remove_directory(directory, &entry.name)?;
            } else {
                client.unlink(directory, &entry.name)?;
            }
        }
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => return Ok(()),
        }
    }
}

/// A new inode of the user who measures.
pub(crate) fn owner() -> NewInode {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    NewInode { kind: FileKind::File, mode: 0o644, uid, gid, ..NewInode::default() }
}

impl Place for Library {
    fn name(&self) -> &str {
        &self.name
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let (attributes, file) = self.client.create_file(self.directory, name.as_bytes(), &owner(), false)?;
        if attributes.size > 0 {
            file.set_length(0)?;
        }
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let inode = self.client.lookup(self.directory, name.as_bytes())?.inode;
        Ok(Box::new(self.client.open_file(inode, OpenMode { read: true, ..OpenMode::default() })?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(self.client.unlink(self.directory, name.as_bytes())?)
    }

    fn settle(&self) -> io::Result<()> {
        Ok(self.client.sync()?)
    }

    fn clear(&self) -> io::Result<()> {
        clear(&self.client, self.directory, TREE_LEVELS_MAX)
    }

    fn finish(&self) -> io::Result<()> {
        Ok(self.client.remove_directory(self.parent, self.directory_name.as_bytes())?)
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.client)
    }
}

impl OpenFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(File::read_at(self, buffer, offset)?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        Ok(File::write_at(self, bytes, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(File::sync(self)?)
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(File::close(*self)?)
    }
}
