//! What calls of the namespace take and give.

use vazao_model::{FileKind, Timestamp};

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
    /// Permission bits taken away, unless the directory has a default access control list.
    pub umask: u32,
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

/// Space of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeSpace {
    /// Sum over serving targets.
    pub capacity_bytes: u64,
    /// Sum over serving targets.
    pub available_bytes: u64,
    /// In use on the file systems of the targets, by any program; reserves are neither used nor available.
    pub used_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
}
