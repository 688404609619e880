//! What the kernel tells of a file: its attributes, and what tells it from others of its name.

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, getxattr, makedev, stat, statx};
use rustix::io::Errno;
use std::path::Path;
use std::sync::LazyLock;
use vazao_model::FileKind;
use vazao_model::origin::{ATTRIBUTE, BYTES_MAX, of_machine};
use vazao_wire::proto;

/// Times and lengths of storage are counted in blocks of this size by `stat`.
const STAT_BLOCK_BYTES: u64 = 512;

/// Tells a file from another one of the same name, also after its inode number has been given away again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    born_ns: u64,
}

impl From<&proto::FileIdentity> for Identity {
    fn from(i: &proto::FileIdentity) -> Identity {
        Identity { device: i.device, inode: i.inode, born_ns: i.born_ns }
    }
}

impl From<Identity> for proto::FileIdentity {
    fn from(i: Identity) -> proto::FileIdentity {
        proto::FileIdentity { device: i.device, inode: i.inode, born_ns: i.born_ns }
    }
}

/// The origin of what lies at a path of this machine, links followed: a mount's own word of it, elsewhere the machine,
/// device and inode.
pub fn origin(path: &Path) -> Result<Vec<u8>, Errno> {
    static BOOT: LazyLock<u64> = LazyLock::new(vazao_wire::local::host);
    let mut told = vec![0; BYTES_MAX];
    // File systems that are not ours know no such name; of one that may not be read, the mount's number has to do.
    if let Ok(length @ 1..) = getxattr(path, ATTRIBUTE, &mut told[..]) {
        told.truncate(length);
        return Ok(told);
    }
    let status = stat(path)?;
    Ok(of_machine(*BOOT, status.st_dev, status.st_ino))
}

/// An open file's status.
pub(crate) fn status(file: impl AsFd) -> Result<Statx, Errno> {
    statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// The status of a name in an open directory; a symbolic link's own.
pub(crate) fn status_at(directory: impl AsFd, name: &std::ffi::CStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

pub(crate) fn identity(status: &Statx) -> Identity {
    let known = status.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born_ns = if known { nanoseconds(status.stx_btime) } else { 0 };
    Identity { device: device(status), inode: status.stx_ino, born_ns }
}

fn device(status: &Statx) -> u64 {
    makedev(status.stx_dev_major, status.stx_dev_minor)
}

fn nanoseconds(time: StatxTimestamp) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.tv_nsec))
}

fn timestamp(time: StatxTimestamp) -> proto::Timestamp {
    proto::Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

/// The type as the wire numbers it; `None` for what only special file systems have.
pub(crate) fn kind(file_type: FileType) -> Option<FileKind> {
    Some(match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => return None,
    })
}

pub(crate) fn kind_of(status: &Statx) -> FileKind {
    kind(FileType::from_raw_mode(u32::from(status.stx_mode))).unwrap_or_default()
}

/// `without_xattrs`: it is known to have no extended attributes.
pub(crate) fn attributes(status: &Statx, without_xattrs: bool) -> proto::Attributes {
    let special = makedev(status.stx_rdev_major, status.stx_rdev_minor);
    proto::Attributes {
        inode: status.stx_ino,
        kind: kind_of(status).number(),
        mode: u32::from(status.stx_mode) & 0o7777,
        uid: status.stx_uid,
        gid: status.stx_gid,
        size: status.stx_size,
        allocated_bytes: status.stx_blocks.saturating_mul(STAT_BLOCK_BYTES),
        links: status.stx_nlink,
        device: u32::try_from(special).unwrap_or(0),
        accessed: Some(timestamp(status.stx_atime)),
        modified: Some(timestamp(status.stx_mtime)),
        changed: Some(timestamp(status.stx_ctime)),
        version: nanoseconds(status.stx_ctime),
        without_xattrs,
    }
}
