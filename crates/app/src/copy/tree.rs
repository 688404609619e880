//! The two sides of a copy seen alike: a tree of names, with files to read and files to write. Paths are bytes.

use crate::failure::Outcome;
use vazao_model::{FileKind, Timestamp};

/// Which inode a path led to; equal only for the same one. By another way it may have another identity, and the same
/// [`Origin`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Identity {
    /// On this machine: device and inode.
    Local(u64, u64),
    /// In the volume.
    Volume(u64),
    /// On a node: a number of the node, device and inode.
    Area(u64, u64, u64),
    /// On an FTP server: a number of its path.
    Ftp(u64),
    /// Standard input, or output.
    Standard(bool),
}

/// A name of what a path leads to that is equal for all ways to the same thing ([`vazao_model::origin`]).
pub(crate) type Origin = Vec<u8>;

/// What a path led to.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Which inode.
    pub(crate) identity: Identity,
    /// Its type.
    pub(crate) kind: FileKind,
    /// Permission bits, 0o7777.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Length in bytes.
    pub(crate) size: u64,
    /// Last read.
    pub(crate) accessed: Timestamp,
    /// Last change of contents.
    pub(crate) modified: Timestamp,
}

/// How much of an owner could be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// User and group.
    Given,
    /// The group only.
    GroupOnly,
    /// Neither: the file is this user's.
    Refused,
}

/// One side of a copy.
pub(crate) trait Tree: Send + Sync {
    /// What is at a path; `None` when there is nothing.
    fn find(&self, path: &[u8], follow: bool) -> Outcome<Option<Found>>;
    /// What a path leads to, links followed, under the name that all ways to it give on any side; `None` when there is
    /// nothing.
    fn origin(&self, path: &[u8]) -> Outcome<Option<Origin>> {
        let found = self.find(path, true)?;
        Ok(found.map(|found| format!("{:?}", found.identity).into_bytes()))
    }
    /// The directory above a path; `None` above the top, of an area and of a server as well.
    fn above(&self, path: &[u8]) -> Outcome<Option<Vec<u8>>> {
        Ok(up(path, 0))
    }
    /// The names in a directory, handed out in batches.
    fn list(&self, path: &[u8], each: &mut dyn FnMut(Vec<Vec<u8>>) -> Outcome) -> Outcome;
    /// The path of the same file with no symbolic link in it; the file exists.
    fn real_path(&self, path: &[u8]) -> Outcome<Vec<u8>>;
    /// A symbolic link's target.
    fn read_link(&self, path: &[u8]) -> Outcome<Vec<u8>>;
    /// A file to read.
    fn open(&self, path: &[u8]) -> Outcome<Box<dyn Source>>;
    /// A file that was just written, to be compared: read from the disk, as far as the tree can have that.
    fn open_again(&self, path: &[u8]) -> Outcome<Box<dyn Source>> {
        self.open(path)
    }
    /// A new file to write; the name must not exist.
    fn create(&self, path: &[u8], mode: u32) -> Outcome<Box<dyn Sink>>;
    /// What is there of a file, to be gone on with behind its last byte, and where that is; `None` where nothing is
    /// there or the tree does not go on with files.
    fn reopen(&self, _path: &[u8]) -> Outcome<Option<(Box<dyn Sink>, u64)>> {
        Ok(None)
    }
    /// A fifo or character device that is there, to write into; nothing is made or replaced.
    fn open_stream(&self, path: &[u8]) -> Outcome<Box<dyn Sink>>;
    /// A new directory; an existing one is fine.
    fn make_directory(&self, path: &[u8], mode: u32) -> Outcome;
    /// A new symbolic link; the name must not exist.
    fn make_link(&self, path: &[u8], target: &[u8]) -> Outcome;
    /// A new name in the same directory, replacing what is no directory.
    fn rename(&self, from: &[u8], to: &[u8]) -> Outcome;
    /// Removes a file or a link.
    fn remove(&self, path: &[u8]) -> Outcome;
    /// Whether this user may write to what is there, as permissions say.
    fn may_write(&self, path: &[u8], there: &Found) -> bool;
    /// Sets permissions.
    fn set_mode(&self, path: &[u8], mode: u32) -> Outcome;
    /// Sets owner and group where this user may; of a link itself, not of what it points to.
    fn set_owner(&self, path: &[u8], like: &Found) -> Outcome<Owner>;
    /// Sets the times; of a link itself, not of what it points to.
    fn set_times(&self, path: &[u8], like: &Found) -> Outcome;
    /// The path as messages show it.
    fn show(&self, path: &[u8]) -> String;
}

/// A file being read, from any number of threads.
pub(crate) trait Source: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Outcome<usize>;
    /// Its present length.
    fn length(&self) -> Outcome<u64>;
    /// The next run of data at or after `offset` as start and end, `None` when only a hole follows. An end of
    /// `u64::MAX` means: read until there is no more.
    fn next_data(&self, offset: u64) -> Outcome<Option<(u64, u64)>>;
    /// True when there are holes that `next_data` does not know of: runs of zeros are then not worth writing.
    fn may_hide_holes(&self) -> bool;
}

/// A file being written.
pub(crate) trait Sink: Send + Sync {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Outcome;
    /// Lets go of what is in memory, so that it is there if this process dies.
    fn flush(&self) -> Outcome {
        Ok(())
    }
    /// Makes it `length` long, longer than what was written where the source ends in a hole, and closes it: errors of
    /// writes still under way come out here.
    fn finish(self: Box<Self>, length: u64) -> Outcome;
}

/// `name` below `directory`.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") || directory.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// The path above, where it has at least `slashes`; nothing is above `/`.
pub(super) fn up(path: &[u8], slashes: usize) -> Option<Vec<u8>> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let above = &path[..path.iter().rposition(|&byte| byte == b'/')?];
    let count = above.iter().filter(|&&byte| byte == b'/').count();
    (count >= slashes).then(|| if above.is_empty() { b"/".to_vec() } else { above.to_vec() })
}

/// The directory of a path with its slash, and the last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let after_slash = path.iter().rposition(|&b| b == b'/').map_or(0, |index| index + 1);
    path.split_at(after_slash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_joined_and_split_at_its_last_slash() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"", b"b"), b"b");
        assert_eq!(up(b"/a/b", 0).as_deref(), Some(&b"/a"[..]));
        assert_eq!((up(b"/a", 0).as_deref(), up(b"/", 0)), (Some(&b"/"[..]), None));
        assert_eq!((up(b"n1:/d/x/", 1).as_deref(), up(b"n1:/d", 1)), (Some(&b"n1:/d"[..]), None));
        assert_eq!(split(b"/a/b"), (&b"/a/"[..], &b"b"[..]));
        assert_eq!(split(b"b"), (&b""[..], &b"b"[..]));
    }
}
