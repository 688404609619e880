//! Files and directories as a trait: the real disk, and one in memory that fails on purpose.
//!
//! Everything that Vazão keeps goes through [`Disk`]: the metadata log and its checkpoints, objects, their checksums.
//! A path is relative to the disk's root, with `/` between components, and never leaves it; `""` is the root itself.
//!
//! It knows neither logs nor objects: what a file means is its owner's business.

mod memory;
mod path;
mod real;
mod watched;
mod write_back;

pub use memory::{MemoryDisk, Operations};
pub use real::RealDisk;
pub use watched::WatchedDisk;

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How [`Disk::open`] treats presence and absence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    /// The file must exist.
    Existing,
    /// The file must exist; only reads are allowed.
    ReadOnly,
    /// Created when missing.
    Create,
    /// Must not exist.
    CreateNew,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DiskEntry {
    /// Name within the directory.
    pub name: String,
    /// True for a directory.
    pub is_directory: bool,
}

/// Space of the file system under a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Its size.
    pub capacity_bytes: u64,
    /// What an unprivileged user may still write.
    pub available_bytes: u64,
    /// Bytes in use by all programs. Together with the former less than the size where the file system keeps blocks
    /// for root.
    pub used_bytes: u64,
    /// The same number for all disks on one file system, so that its space is counted once; 0 where that is not known.
    pub file_system: u64,
}

/// A directory tree on some disk.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file. Errors as `open(2)`.
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a directory and those above it; existing ones are fine.
    fn create_directory(&self, path: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Renames a file, replacing the new name's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// The entries of a directory, in no particular order.
    fn list(&self, path: &str) -> io::Result<Vec<DiskEntry>>;
    /// Makes the directory's entries durable: creations, renames and removals in it survive power loss from here on.
    fn sync_directory(&self, path: &str) -> io::Result<()>;
    /// Space of the file system.
    fn space(&self) -> io::Result<Space>;

    /// Makes everything written so far on this disk durable: contents, lengths and names, as `syncfs(2)`. The default
    /// walks the tree and syncs each file and directory; what disappears meanwhile is passed over.
    fn sync_all(&self) -> io::Result<()> {
        sync_tree(self, "")
    }

    /// Fails with `NotFound` when the path that the disk was opened by does not lead to its directory any more: the
    /// directory was removed, renamed or replaced, or something was mounted over it. Each write still succeeds then,
    /// but the data cannot be found by the path. The default cannot tell.
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }

    /// A number that changes whenever something that was written and not synced may have been lost: with every start of
    /// the machine, not of a process. 0: not known.
    fn boot_id(&self) -> u64 {
        0
    }
}

fn sync_tree<D: Disk + ?Sized>(disk: &D, directory: &str) -> io::Result<()> {
    for entry in disk.list(directory)? {
        let path =
            if directory.is_empty() { entry.name.clone() } else { format!("{directory}/{}", entry.name) };
        if entry.is_directory {
            sync_tree(disk, &path)?;
            continue;
        }
        match disk.open(&path, Open::Existing) {
            Ok(file) => file.sync()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    disk.sync_directory(directory)
}

/// An open file. Positions are explicit and all functions may be called from several threads at once.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Like `read_at`, but `None` when it would have to wait for the disk. The default never waits.
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(buffer, offset).map(Some)
    }

    /// Writes all of `bytes` at `offset`, growing the file where needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Bytes of storage in use.
    fn allocated_bytes(&self) -> io::Result<u64>;
    /// Cuts or extends with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Gives the storage under `length` bytes at `offset` back, as far as they lie within the file: they read as zeros,
    /// and the length stays. Where the file system cannot free storage, zeros are written instead.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()>;
    /// The first range at or after `offset` that may hold something else than zeros (`SEEK_DATA` of lseek(2)); `None`
    /// when only a hole follows. A file system that knows no holes has one range, up to the end.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>>;
    /// Makes contents and length durable (`fdatasync(2)`).
    fn sync(&self) -> io::Result<()>;
    /// Has the disk begin to write `length` bytes at `offset` that are in memory only, without waiting for it. The
    /// next [`DiskFile::sync`] reports a failure. The default leaves the bytes to that sync.
    fn start_write_back(&self, _offset: u64, _length: u64) {}

    /// Has the kernel forget what it has of a range in memory and could read again, so that the next read asks the disk
    /// itself. True when some of it seemed to be in memory. The default has nothing to forget.
    fn drop_cached(&self, _offset: u64, _length: u64) -> bool {
        false
    }

    /// False when the file has no name any more: what is written to it is lost at the last close. The default cannot
    /// tell.
    fn is_named(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// A descriptor of it for another process; `None` when it is no file of the kernel's.
    fn descriptor(&self) -> Option<OwnedFd> {
        None
    }

    /// Takes an exclusive advisory lock for as long as the file is open; false when another process has it.
    fn try_lock(&self) -> io::Result<bool>;
}
