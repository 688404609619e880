//! Requests as they come from the device, decoded without copying.

use super::abi::{self, lock_type, setattr};
use crate::filesystem::arguments::{Allocation, LockWish, NewMode};
use crate::interrupts::Call;
use std::ops::Range;
use vazao_client::{Changes, RenameMode, Seek, SetTime, XattrMode};
use vazao_model::locks::{LockMode, LockRange};
use vazao_model::{FileKind, Timestamp};

/// What stands in front of every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) operation: u32,
    /// Identifies the answer.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The thread that waits for the answer; 0 where none does, or where it cannot be seen from here.
    pub(crate) thread: u32,
}

impl Header {
    /// The request as it is known by while a thread is at work on it.
    pub(crate) fn call(&self) -> Call {
        Call { unique: self.unique, caller: self.thread, operation: self.operation }
    }
}

/// A request that the protocol does not allow; answered with EINVAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

type Decoded<T> = Result<T, Malformed>;

/// `fuse_forget_one`: a node and a count.
const FORGET_BYTES: usize = 16;

/// INIT as the kernel sends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Init {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) read_ahead_bytes: u32,
    pub(crate) capabilities: u64,
}

/// SETATTR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetAttributes {
    pub(crate) changes: Changes,
    pub(crate) kill_set_id: bool,
}

/// Which nodes the kernel has forgotten, and how many of the times that it was shown each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forgotten<'a> {
    /// The one that the request is about, so many times.
    Own(u64),
    /// Others: pairs of node and count.
    Others(&'a [u8]),
}

impl Forgotten<'_> {
    /// Node and count of each; `node` is the one that the request is about.
    pub(crate) fn iter(&self, node: u64) -> impl Iterator<Item = (u64, u64)> {
        let (own, others) = match *self {
            Forgotten::Own(count) => (Some((node, count)), &[][..]),
            Forgotten::Others(pairs) => (None, pairs),
        };
        let numbers = |pair: &[u8]| {
            let (node, count) = pair.split_first_chunk::<8>()?;
            Some((u64::from_ne_bytes(*node), u64::from_ne_bytes(*count.first_chunk::<8>()?)))
        };
        own.into_iter().chain(others.chunks_exact(FORGET_BYTES).filter_map(numbers))
    }
}

/// A request; `'a` is the receive buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request<'a> {
    Init(Init),
    Destroy,
    /// Needs no answer.
    Forget(Forgotten<'a>),
    Lookup {
        name: &'a [u8],
    },
    /// The inode itself, which the kernel has forgotten and knows the number of.
    LookupNumber,
    /// The directory above such a directory.
    LookupParent,
    GetAttributes {
        handle: Option<u64>,
    },
    SetAttributes(SetAttributes),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode {
        name: &'a [u8],
        kind: FileKind,
        mode: NewMode,
        device: u32,
    },
    MakeDirectory {
        name: &'a [u8],
        mode: NewMode,
    },
    Unlink {
        name: &'a [u8],
    },
    RemoveDirectory {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_node: u64,
        new_name: &'a [u8],
        mode: RenameMode,
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
    },
    Create {
        name: &'a [u8],
        flags: u32,
        mode: NewMode,
    },
    /// Create without a name.
    CreateUnnamed {
        flags: u32,
        mode: NewMode,
    },
    Read {
        handle: u64,
        offset: u64,
        length: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        bytes: &'a [u8],
        kill_set_id: bool,
        /// At the end of the file, wherever the kernel thinks that is.
        appends: bool,
    },
    Flush {
        handle: u64,
        lock_owner: u64,
    },
    TestLock(LockWish),
    SetLock {
        wish: LockWish,
        waits: bool,
    },
    /// This request has no waiter any more. Not answered.
    Interrupt {
        unique: u64,
    },
    Sync {
        handle: u64,
    },
    Release {
        handle: u64,
    },
    Allocate {
        handle: u64,
        range: Range<u64>,
        mode: Allocation,
    },
    Seek {
        handle: u64,
        offset: u64,
        seek: Seek,
    },
    Copy {
        from: u64,
        from_offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
    },
    /// Answered as unsupported here. ENOSYS would tell the kernel that the operation does not exist at all.
    Unsupported,
    OpenDirectory,
    ReadDirectory {
        handle: u64,
        cookie: u64,
        length: u32,
        with_attributes: bool,
    },
    SyncDirectory,
    ReleaseDirectory {
        handle: u64,
    },
    Space,
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        mode: XattrMode,
        clear_set_group: bool,
    },
    GetXattr {
        name: &'a [u8],
        length: u32,
    },
    ListXattrs {
        length: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Ioctl,
    /// The kernel does this by itself once the file system answers ENOSYS.
    NotImplemented,
}

/// What follows a request's header: fields, then names and data. Over the device they come in one run, over io_uring
/// apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Body<'a> {
    fields: &'a [u8],
    payload: &'a [u8],
}

impl<'a> From<&'a [u8]> for Body<'a> {
    fn from(run: &'a [u8]) -> Body<'a> {
        Body::new(run, &[])
    }
}

impl<'a> Body<'a> {
    /// Fields and payload apart.
    pub(crate) fn new(fields: &'a [u8], payload: &'a [u8]) -> Body<'a> {
        Body { fields, payload }
    }

    /// Length of the first part.
    pub(crate) fn fields_bytes(&self) -> usize {
        self.fields.len()
    }

    /// True when there is no second part.
    pub(crate) fn is_without_payload(&self) -> bool {
        self.payload.is_empty()
    }
}

impl Request<'_> {
    /// Interruptible requests: they change nothing, or only what a caller that is gone would not miss. Such a call may
    /// end with EINTR when it waits too long for a server. Writes of file data are never interruptible.
    pub(crate) fn can_be_given_up(&self) -> bool {
        matches!(
            self,
            Request::Lookup { .. }
                | Request::LookupNumber
                | Request::LookupParent
                | Request::GetAttributes { .. }
                | Request::ReadLink
                | Request::Open { .. }
                | Request::Read { .. }
                | Request::OpenDirectory
                | Request::ReadDirectory { .. }
                | Request::Space
                | Request::GetXattr { .. }
                | Request::ListXattrs { .. }
                | Request::Symlink { .. }
                | Request::MakeNode { .. }
                | Request::MakeDirectory { .. }
                | Request::Create { .. }
                | Request::Unlink { .. }
                | Request::RemoveDirectory { .. }
                | Request::Rename { .. }
                | Request::Link { .. }
                | Request::TestLock(_)
                | Request::SetLock { .. }
        )
    }
}

/// Takes fields off the front of a request.
struct Fields<'a>(&'a [u8], &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        self.advance();
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_ne_bytes(self.take()?))
    }

    fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_ne_bytes(self.take()?))
    }

    /// Goes on with the second part once the first is used up: nothing lies across.
    fn advance(&mut self) {
        if self.0.is_empty() {
            self.0 = std::mem::take(&mut self.1);
        }
    }

    fn skip(&mut self, count: usize) -> Decoded<()> {
        self.advance();
        self.0 = self.0.get(count..).ok_or(Malformed)?;
        Ok(())
    }

    /// A string up to its NUL.
    fn name(&mut self) -> Decoded<&'a [u8]> {
        self.advance();
        let end = self.0.iter().position(|&b| b == 0).ok_or(Malformed)?;
        let (name, rest) = (&self.0[..end], &self.0[end + 1..]);
        self.0 = rest;
        Ok(name)
    }

    fn bytes(&mut self, count: usize) -> Decoded<&'a [u8]> {
        self.advance();
        let bytes = self.0.get(..count).ok_or(Malformed)?;
        self.0 = &self.0[count..];
        Ok(bytes)
    }
}

/// The header, and how long the request is with it.
fn header_fields(bytes: &[u8]) -> Decoded<(Header, usize)> {
    let mut fields = Fields(bytes, &[]);
    let length = fields.u32()? as usize;
    let header = Header {
        operation: fields.u32()?,
        unique: fields.u64()?,
        node: fields.u64()?,
        uid: fields.u32()?,
        gid: fields.u32()?,
        thread: fields.u32()?,
    };
    Ok((header, length))
}

/// Splits the header off; `Err` when there is none, which no kernel sends.
pub(crate) fn header(bytes: &[u8]) -> Decoded<(Header, Body<'_>)> {
    let (header, length) = header_fields(bytes)?;
    let body = bytes.get(abi::IN_HEADER_BYTES..length).ok_or(Malformed)?;
    Ok((header, body.into()))
}

/// A request whose parts came one by one, the last of them with `payload_bytes` bytes.
pub(crate) fn parts<'a>(
    header: &[u8],
    fields: &'a [u8],
    payload: &'a [u8],
    payload_bytes: u32,
) -> Decoded<(Header, Body<'a>)> {
    let (header, length) = header_fields(header)?;
    let before = abi::IN_HEADER_BYTES + payload_bytes as usize;
    let fields_bytes = length.checked_sub(before).ok_or(Malformed)?;
    let fields = fields.get(..fields_bytes).ok_or(Malformed)?;
    let payload = payload.get(..payload_bytes as usize).ok_or(Malformed)?;
    Ok((header, Body { fields, payload }))
}

/// Decodes the body of operation `operation`.
pub(crate) fn decode(operation: u32, body: Body<'_>) -> Decoded<Request<'_>> {
    let mut f = Fields(body.fields, body.payload);
    Ok(match operation {
        abi::INIT => Request::Init(init(&mut f)?),
        abi::DESTROY => Request::Destroy,
        abi::FORGET => Request::Forget(Forgotten::Own(f.u64()?)),
        abi::BATCH_FORGET => {
            let (count, _) = (f.u32()?, f.u32()?);
            let length = (count as usize).checked_mul(FORGET_BYTES).ok_or(Malformed)?;
            Request::Forget(Forgotten::Others(f.bytes(length)?))
        }
        abi::GETATTR | abi::SETATTR | abi::STATFS => attributes(operation, &mut f)?,
        abi::LOOKUP..=abi::LINK | abi::RENAME2 => namespace(operation, &mut f)?,
        abi::SETXATTR..=abi::REMOVEXATTR => xattr(operation, &mut f)?,
        abi::OPENDIR..=abi::FSYNCDIR | abi::READDIRPLUS => directory(operation, &mut f)?,
        abi::IOCTL => Request::Ioctl,
        _ => file(operation, &mut f)?,
    })
}

fn init(f: &mut Fields<'_>) -> Decoded<Init> {
    let (major, minor, read_ahead_bytes, low) = (f.u32()?, f.u32()?, f.u32()?, u64::from(f.u32()?));
    let high = if low & abi::capability::EXTENDED != 0 { u64::from(f.u32()?) } else { 0 };
    Ok(Init { major, minor, read_ahead_bytes, capabilities: low | high << 32 })
}

fn attributes<'a>(operation: u32, f: &mut Fields<'a>) -> Decoded<Request<'a>> {
    Ok(match operation {
        abi::GETATTR => {
            let (flags, _, handle) = (f.u32()?, f.u32()?, f.u64()?);
            Request::GetAttributes { handle: (flags & abi::GETATTR_HANDLE != 0).then_some(handle) }
        }
        abi::SETATTR => Request::SetAttributes(set_attributes(f)?),
        _ => Request::Space,
    })
}

fn set_attributes(f: &mut Fields<'_>) -> Decoded<SetAttributes> {
    let valid = f.u32()?;
    f.skip(4)?;
    let (_handle, size, _lock_owner) = (f.u64()?, f.u64()?, f.u64()?);
    let (accessed, modified, _changed) = (f.u64()?, f.u64()?, f.u64()?);
    let (accessed_ns, modified_ns, _changed_ns) = (f.u32()?, f.u32()?, f.u32()?);
    let mode = f.u32()?;
    f.skip(4)?;
    let (uid, gid) = (f.u32()?, f.u32()?);
    let has = |bit: u32| valid & bit != 0;
    let time = |set: u32, now: u32, seconds: u64, nanoseconds: u32| match (has(set), has(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Timestamp { seconds: seconds as i64, nanoseconds })),
    };
    let changes = Changes {
        mode: has(setattr::MODE).then_some(mode & 0o7777),
        uid: has(setattr::UID).then_some(uid),
        gid: has(setattr::GID).then_some(gid),
        size: has(setattr::SIZE).then_some(size),
        accessed: time(setattr::ATIME, setattr::ATIME_NOW, accessed, accessed_ns),
        modified: time(setattr::MTIME, setattr::MTIME_NOW, modified, modified_ns),
    };
    Ok(SetAttributes { changes, kill_set_id: has(setattr::KILL_SET_ID) })
}

fn namespace<'a>(operation: u32, f: &mut Fields<'a>) -> Decoded<Request<'a>> {
    Ok(match operation {
        abi::LOOKUP => match f.name()? {
            b"." => Request::LookupNumber,
            b".." => Request::LookupParent,
            name => Request::Lookup { name },
        },
        abi::READLINK => Request::ReadLink,
        abi::SYMLINK => Request::Symlink { name: f.name()?, target: f.name()? },
        abi::MKNOD => {
            let (mode, device, umask, _) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
            Request::MakeNode { name: f.name()?, kind: kind_of(mode)?, mode: new_mode(mode, umask), device }
        }
        abi::MKDIR => {
            let (mode, umask) = (f.u32()?, f.u32()?);
            Request::MakeDirectory { name: f.name()?, mode: new_mode(mode, umask) }
        }
        abi::UNLINK => Request::Unlink { name: f.name()? },
        abi::RMDIR => Request::RemoveDirectory { name: f.name()? },
        abi::RENAME => {
            let new_node = f.u64()?;
            rename(new_node, 0, f)?
        }
        abi::RENAME2 => {
            let (new_node, flags, _) = (f.u64()?, f.u32()?, f.u32()?);
            rename(new_node, flags, f)?
        }
        abi::LINK => Request::Link { node: f.u64()?, name: f.name()? },
        _ => Request::NotImplemented,
    })
}

fn rename<'a>(new_node: u64, flags: u32, f: &mut Fields<'a>) -> Decoded<Request<'a>> {
    let mode = match flags {
        0 => RenameMode::Replace,
        abi::rename_flag::NO_REPLACE => RenameMode::NoReplace,
        abi::rename_flag::EXCHANGE => RenameMode::Exchange,
        // RENAME_WHITEOUT is for overlay file systems on local disks; the manual page asks for EINVAL.
        _ => return Err(Malformed),
    };
    Ok(Request::Rename { name: f.name()?, new_node, new_name: f.name()?, mode })
}

fn new_mode(mode: u32, umask: u32) -> NewMode {
    NewMode { bits: mode & 0o7777, umask: umask & 0o777 }
}

fn kind_of(mode: u32) -> Decoded<FileKind> {
    Ok(match mode & 0o170_000 {
        0o010_000 => FileKind::Fifo,
        0o020_000 => FileKind::CharDevice,
        0o040_000 => FileKind::Directory,
        0o060_000 => FileKind::BlockDevice,
        // No type at all means a regular file, mknod(2).
        0 | 0o100_000 => FileKind::File,
        0o120_000 => FileKind::Symlink,
        0o140_000 => FileKind::Socket,
        _ => return Err(Malformed),
    })
}

/// A range as the kernel has it, its last byte included. Its end of all files is the end of all numbers here.
fn lock_range(first: u64, last: u64) -> Option<LockRange> {
    let last = if last >= lock_type::OFFSET_MAX { u64::MAX } else { last };
    (first <= last).then_some(LockRange { first, last })
}

/// What a lock's type asks for; `Err` for one there is not.
fn lock_mode(number: u32) -> Decoded<Option<LockMode>> {
    match number {
        lock_type::SHARED => Ok(Some(LockMode::Shared)),
        lock_type::EXCLUSIVE => Ok(Some(LockMode::Exclusive)),
        lock_type::NONE => Ok(None),
        _ => Err(Malformed),
    }
}

fn lock(f: &mut Fields<'_>) -> Decoded<LockWish> {
    let (handle, owner, first, last) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
    let (kind, process, flags) = (f.u32()?, f.u32()?, f.u32()?);
    let range = lock_range(first, last).ok_or(Malformed)?;
    let is_flock = flags & abi::LOCK_FLOCK != 0;
    Ok(LockWish { handle, owner, is_flock, range, mode: lock_mode(kind)?, process })
}

fn file<'a>(operation: u32, f: &mut Fields<'a>) -> Decoded<Request<'a>> {
    Ok(match operation {
        abi::OPEN => Request::Open { flags: f.u32()? },
        abi::CREATE => {
            let (flags, mode, umask, _open_flags) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
            Request::Create { name: f.name()?, flags, mode: new_mode(mode, umask) }
        }
        abi::TMPFILE => {
            let (flags, mode, umask) = (f.u32()?, f.u32()?, f.u32()?);
            Request::CreateUnnamed { flags, mode: new_mode(mode, umask) }
        }
        abi::READ => Request::Read { handle: f.u64()?, offset: f.u64()?, length: f.u32()? },
        abi::WRITE => {
            let (handle, offset, length, flags) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?);
            f.skip(8)?;
            let open_flags = f.u32()?;
            f.skip(4)?;
            let kill_set_id = flags & abi::WRITE_KILL_SET_ID != 0;
            let appends = open_flags & abi::open_flag::APPEND != 0 && flags & abi::WRITE_CACHE == 0;
            Request::Write { handle, offset, bytes: f.bytes(length as usize)?, kill_set_id, appends }
        }
        abi::FLUSH => {
            let handle = f.u64()?;
            f.skip(8)?;
            Request::Flush { handle, lock_owner: f.u64()? }
        }
        abi::GETLK => Request::TestLock(lock(f)?),
        abi::SETLK | abi::SETLKW => Request::SetLock { wish: lock(f)?, waits: operation == abi::SETLKW },
        abi::INTERRUPT => Request::Interrupt { unique: f.u64()? },
        abi::FSYNC => Request::Sync { handle: f.u64()? },
        abi::RELEASE => Request::Release { handle: f.u64()? },
        abi::FALLOCATE => allocate(f)?,
        abi::COPY_FILE_RANGE => {
            let (from, from_offset, _node) = (f.u64()?, f.u64()?, f.u64()?);
            let (to, to_offset, length) = (f.u64()?, f.u64()?, f.u64()?);
            Request::Copy { from, from_offset, to, to_offset, length }
        }
        abi::LSEEK => {
            let (handle, offset) = (f.u64()?, f.u64()?);
            let seek = match f.u32()? {
                abi::seek::DATA => Seek::Data,
                abi::seek::HOLE => Seek::Hole,
                _ => return Err(Malformed),
            };
            Request::Seek { handle, offset, seek }
        }
        _ => Request::NotImplemented,
    })
}

fn allocate<'a>(f: &mut Fields<'a>) -> Decoded<Request<'a>> {
    use abi::allocate_flag::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
    let (handle, offset, length, flags) = (f.u64()?, f.u64()?, f.u64()?, f.u32()?);
    let keep_size = flags & KEEP_SIZE != 0;
    let zero = match flags & !KEEP_SIZE {
        0 => false,
        PUNCH_HOLE if keep_size => true,
        ZERO_RANGE => true,
        _ => return Ok(Request::Unsupported),
    };
    let range = offset..offset.saturating_add(length);
    Ok(Request::Allocate { handle, range, mode: Allocation { keep_size, zero } })
}

fn directory<'a>(operation: u32, f: &mut Fields<'a>) -> Decoded<Request<'a>> {
    Ok(match operation {
        abi::OPENDIR => Request::OpenDirectory,
        abi::READDIR | abi::READDIRPLUS => Request::ReadDirectory {
            handle: f.u64()?,
            cookie: f.u64()?,
            length: f.u32()?,
            with_attributes: operation == abi::READDIRPLUS,
        },
        abi::RELEASEDIR => Request::ReleaseDirectory { handle: f.u64()? },
        _ => Request::SyncDirectory,
    })
}

/// The further flags that kernels since 5.13 send (`SETXATTR_EXT`). From older ones the name follows at once; it begins
/// with a letter, and the flags with a small number.
fn set_xattr_flags(f: &mut Fields<'_>) -> Decoded<u32> {
    f.advance();
    match f.0.first() {
        Some(byte) if byte.is_ascii_alphabetic() => Ok(0),
        _ => {
            let (flags, _) = (f.u32()?, f.u32()?);
            Ok(flags)
        }
    }
}

fn xattr<'a>(operation: u32, f: &mut Fields<'a>) -> Decoded<Request<'a>> {
    Ok(match operation {
        abi::SETXATTR => {
            let (length, flags) = (f.u32()?, f.u32()?);
            let mode = match flags {
                0 => XattrMode::Either,
                abi::xattr_flag::CREATE => XattrMode::Create,
                abi::xattr_flag::REPLACE => XattrMode::Replace,
                _ => return Err(Malformed),
            };
            let flags = set_xattr_flags(f)?;
            let clear_set_group = flags & abi::SETXATTR_CLEAR_SET_GROUP != 0;
            Request::SetXattr { name: f.name()?, value: f.bytes(length as usize)?, mode, clear_set_group }
        }
        abi::GETXATTR => {
            let (length, _) = (f.u32()?, f.u32()?);
            Request::GetXattr { name: f.name()?, length }
        }
        abi::LISTXATTR => Request::ListXattrs { length: f.u32()? },
        _ => Request::RemoveXattr { name: f.name()? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_to_the_end_of_the_kernels_files_is_one_to_the_end_of_all() {
        assert_eq!(lock_range(0, lock_type::OFFSET_MAX), Some(LockRange::WHOLE));
        assert_eq!(lock_range(5, 9), Some(LockRange { first: 5, last: 9 }));
        assert_eq!(lock_range(9, 5), None);
        assert!(lock_mode(3).is_err());
        assert_eq!(lock_mode(lock_type::NONE), Ok(None));
    }
}
