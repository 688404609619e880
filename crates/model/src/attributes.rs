//! What `stat` shows of an inode.

use crate::ids::InodeId;

/// The type of an inode, numbered as in the wire protocol and on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    #[default]
    File = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    /// Named pipe.
    Fifo = 4,
    /// Unix socket.
    Socket = 5,
    /// Character device.
    CharDevice = 6,
    /// Block device.
    BlockDevice = 7,
}

impl FileKind {
    /// The kind with this number, if there is one.
    pub fn from_number(number: u32) -> Option<FileKind> {
        Some(match number {
            1 => FileKind::File,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::Fifo,
            5 => FileKind::Socket,
            6 => FileKind::CharDevice,
            7 => FileKind::BlockDevice,
            _ => return None,
        })
    }

    /// The number on the wire and on disk.
    pub fn number(self) -> u32 {
        u32::from(self as u8)
    }

    /// The letter `ls -l` shows.
    pub fn letter(self) -> char {
        match self {
            FileKind::File => '-',
            FileKind::Directory => 'd',
            FileKind::Symlink => 'l',
            FileKind::Fifo => 'p',
            FileKind::Socket => 's',
            FileKind::CharDevice => 'c',
            FileKind::BlockDevice => 'b',
        }
    }
}

/// A point in time since the Unix epoch; may lie before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 10^9.
    pub nanoseconds: u32,
}

/// Attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// Which inode.
    pub inode: InodeId,
    /// Its type.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky bits (0o7777); the type is in `kind`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes: of contents, of a link's target; 0 for the rest.
    pub size: u64,
    /// Bytes of storage in use, as far as known: at most `size` rounded up to blocks.
    pub allocated_bytes: u64,
    /// Names of this inode; for a directory 2 plus its subdirectories.
    pub links: u32,
    /// Device number of a device inode, as Linux's 32-bit encoding.
    pub device: u32,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes.
    pub changed: Timestamp,
    /// Grows with every change of contents or layout: tells a cached copy's age.
    pub version: u64,
    /// It is known to have no extended attributes, and so no access control list and no capabilities.
    pub without_xattrs: bool,
}
