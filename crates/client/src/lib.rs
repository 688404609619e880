//! The client library: the namespace, striping, read-ahead, write-behind, retries and deadlines.

pub mod error;
mod file;

pub use error::{Error, Result};
pub use file::File;

use std::sync::Arc;
use vazao_model::{Attributes, ClusterMap, FileKind, InodeId, Layout, LayoutHint, Timestamp, VolumePath};
use vazao_wire::transport::Transport;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Deadline of each call, retries included.
    pub deadline_ms: u32,
    /// Bytes written but not yet acknowledged by data servers, over all files.
    pub dirty_bytes_max: usize,
    /// Bytes read ahead of one reader.
    pub read_ahead_bytes_max: usize,
    /// Connections to each server.
    pub connections_max: usize,
}

/// Changes of attributes; `None` leaves as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length; cuts or extends with zeros.
    pub size: Option<u64>,
    /// Time of last read.
    pub accessed: Option<SetTime>,
    /// Time of last change of contents.
    pub modified: Option<SetTime>,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The server's present time.
    Now,
    /// This one.
    At(Timestamp),
}

/// What a new inode shall be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewInode {
    /// Its type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub device: u32,
    /// Target of a symbolic link.
    pub contents: Vec<u8>,
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenMode {
    /// Reads are allowed.
    pub read: bool,
    /// Writes are allowed.
    pub write: bool,
    /// Cut to nothing first.
    pub truncate: bool,
}

/// What rename does with an existing new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// Replaces it.
    #[default]
    Replace,
    /// Fails with `Exists`.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// What setting an extended attribute demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// Nothing.
    #[default]
    Either,
    /// That it is new.
    Create,
    /// That it is there.
    Replace,
}

/// An entry of a directory listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its inode.
    pub inode: InodeId,
    /// Its type.
    pub kind: FileKind,
    /// Where a listing continues after it.
    pub cookie: u64,
    /// Its attributes, where asked for.
    pub attributes: Option<Attributes>,
}

/// A page of a directory listing, without `.` and `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Entries in cookie order.
    pub entries: Vec<Entry>,
    /// True when there are none after these.
    pub end: bool,
    /// The directory above.
    pub parent: InodeId,
}

/// Space of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeSpace {
    /// Sum over serving targets.
    pub capacity_bytes: u64,
    /// Sum over serving targets.
    pub available_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
}

/// A connection to one volume. Cheap to clone; usable from any number of threads.
#[derive(Clone)]
pub struct Client {
    _inner: Arc<()>,
}

#[allow(unused_variables, missing_docs, clippy::unimplemented)]
impl Client {
    /// Opens a session with the metadata service at `meta` over `transport`.
    pub fn open(transport: Arc<dyn Transport>, meta: Vec<String>, options: Options) -> Result<Client> {
        unimplemented!()
    }
    /// The cluster as last heard.
    pub fn map(&self) -> Arc<ClusterMap> {
        unimplemented!()
    }
    /// The cluster as the metadata service knows it now.
    pub fn refresh_map(&self) -> Result<Arc<ClusterMap>> {
        unimplemented!()
    }
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Attributes> {
        unimplemented!()
    }
    pub fn attributes(&self, inode: InodeId) -> Result<Attributes> {
        unimplemented!()
    }
    pub fn set_attributes(&self, inode: InodeId, changes: &Changes) -> Result<Attributes> {
        unimplemented!()
    }
    /// Any kind of inode; for a file to be written, [`Client::create_file`] saves a round trip.
    pub fn create(&self, parent: InodeId, name: &[u8], new: &NewInode) -> Result<Attributes> {
        unimplemented!()
    }
    /// Creates and opens. Without `exclusive` an existing file is opened as it is.
    pub fn create_file(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode,
        exclusive: bool,
    ) -> Result<(Attributes, File)> {
        unimplemented!()
    }
    pub fn open_file(&self, inode: InodeId, mode: OpenMode) -> Result<File> {
        unimplemented!()
    }
    pub fn link(&self, inode: InodeId, parent: InodeId, name: &[u8]) -> Result<Attributes> {
        unimplemented!()
    }
    pub fn unlink(&self, parent: InodeId, name: &[u8]) -> Result<()> {
        unimplemented!()
    }
    pub fn remove_directory(&self, parent: InodeId, name: &[u8]) -> Result<()> {
        unimplemented!()
    }
    pub fn rename(
        &self,
        parent: InodeId,
        name: &[u8],
        new_parent: InodeId,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        unimplemented!()
    }
    pub fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        unimplemented!()
    }
    pub fn list(&self, directory: InodeId, cookie: u64, limit: u32, with_attributes: bool) -> Result<Page> {
        unimplemented!()
    }
    pub fn get_xattr(&self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        unimplemented!()
    }
    pub fn set_xattr(&self, inode: InodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        unimplemented!()
    }
    pub fn list_xattrs(&self, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        unimplemented!()
    }
    pub fn remove_xattr(&self, inode: InodeId, name: &[u8]) -> Result<()> {
        unimplemented!()
    }
    /// `None` while the file's contents are inline.
    pub fn layout(&self, inode: InodeId) -> Result<Option<Layout>> {
        unimplemented!()
    }
    /// The hint set on a directory, and the one in effect.
    pub fn layout_hint(&self, inode: InodeId) -> Result<(LayoutHint, LayoutHint)> {
        unimplemented!()
    }
    pub fn set_layout_hint(&self, inode: InodeId, hint: LayoutHint) -> Result<()> {
        unimplemented!()
    }
    pub fn space(&self) -> Result<VolumeSpace> {
        unimplemented!()
    }
    /// Makes all metadata changes answered so far durable.
    pub fn sync(&self) -> Result<()> {
        unimplemented!()
    }
    /// The inode at a path; links in the middle are followed, one at the end only with `follow`.
    pub fn resolve(&self, path: &VolumePath, follow: bool) -> Result<Attributes> {
        unimplemented!()
    }
    /// Ends the session; files still open are flushed.
    pub fn close(self) -> Result<()> {
        unimplemented!()
    }
}
