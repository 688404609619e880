//! What calls of a file system take and return, in the client's terms.

use vazao_model::locks::{LockMode, LockRange};
use vazao_model::{Attributes, InodeId};

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 where it cannot be seen from here.
    pub(crate) thread: u32,
}

/// The permissions that a new inode is asked to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewMode {
    /// As the program gave them.
    pub(crate) bits: u32,
    /// What the process wants taken from them, unless the directory has a default access control list.
    pub(crate) umask: u32,
}

/// A new name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) directory: InodeId,
    pub(crate) name: &'a [u8],
}

/// What fallocate(2) does beside asking for space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocation {
    /// The length stays as it is.
    pub(crate) keep_size: bool,
    /// The range reads as zeros afterwards.
    pub(crate) zero: bool,
}

/// A file just opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: u64,
    pub(crate) attributes: Attributes,
}

/// A lock that the kernel asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockWish {
    pub(crate) handle: u64,
    /// Process or open file, as the kernel tells them apart.
    pub(crate) owner: u64,
    pub(crate) is_flock: bool,
    pub(crate) range: LockRange,
    /// `None` lets go.
    pub(crate) mode: Option<LockMode>,
    pub(crate) process: u32,
}
