//! The real disk: a directory of the machine's file systems, through plain system calls.
//!
//! All paths are resolved from a descriptor of the root directory, which stays the same directory when it is renamed.

use crate::{Disk, DiskEntry, DiskFile, Open, Space, path, write_back};
use rustix::fs::{self as sys, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Other users of the machine have no business with a server's files.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o700);

/// The unit of `st_blocks`, whatever the file system's block size is (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;

/// Zeros written at once where a hole cannot be made.
const ZEROS_BYTES: u64 = 1 << 20;

/// A directory on a disk of this machine.
#[derive(Debug)]
pub struct RealDisk {
    root: OwnedFd,
    /// Where it was opened, for [`Disk::check_place`] only.
    path: PathBuf,
}

impl RealDisk {
    /// The disk whose root is the existing directory `root`.
    pub fn open(root: &Path) -> io::Result<RealDisk> {
        let path = std::path::absolute(root)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = sys::open(root, flags, Mode::empty()).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("cannot open the directory {}: {error}", root.display()))
        })?;
        Ok(RealDisk { root, path })
    }

    fn open_directory(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(sys::openat(&self.root, normal(path)?, flags, Mode::empty())?)
    }
}

/// `path` as the system calls take it: checked, `.` for the root.
fn normal(path: &str) -> io::Result<String> {
    let parts = path::components(path)?;
    Ok(if parts.is_empty() { ".".to_string() } else { parts.join("/") })
}

/// Writes zeros over a range, for file systems that cannot free a part of a file.
fn write_zeros(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let zeros = vec![0; length.min(ZEROS_BYTES) as usize];
    let end = offset + length;
    let mut position = offset;
    while position < end {
        let step = (end - position).min(ZEROS_BYTES);
        file.write_all_at(&zeros[..step as usize], position)?;
        position += step;
    }
    Ok(())
}

impl Disk for RealDisk {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let flags = OFlags::CLOEXEC
            | match how {
                Open::Existing => OFlags::RDWR,
                Open::ReadOnly => OFlags::RDONLY,
                Open::Create => OFlags::RDWR | OFlags::CREATE,
                Open::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            };
        let path = normal(path)?;
        let file = rustix::io::retry_on_intr(|| sys::openat(&self.root, &path, flags, FILE_MODE))?;
        Ok(Arc::new(RealFile { file: File::from(file), can_refuse_to_wait: AtomicBool::new(true) }))
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        let mut so_far = String::new();
        for part in path::components(path)? {
            so_far.push_str(part);
            match sys::mkdirat(&self.root, &so_far, DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EXIST) => so_far.push('/'),
                Err(errno) => return Err(errno.into()),
            }
        }
        self.open_directory(path).map(drop)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        Ok(sys::unlinkat(&self.root, normal(path)?, AtFlags::empty())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(sys::renameat(&self.root, normal(from)?, &self.root, normal(to)?)?)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DiskEntry>> {
        let directory = self.open_directory(path)?;
        let mut entries = Vec::new();
        for entry in sys::Dir::read_from(&directory)? {
            let entry = entry?;
            // A name that is not UTF-8 was not made by us, and no path of ours could reach it.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    FileType::from_raw_mode(sys::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
                }
                known => known,
            };
            entries.push(DiskEntry { name: name.to_string(), is_directory: kind == FileType::Directory });
        }
        Ok(entries)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        Ok(sys::fsync(self.open_directory(path)?)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(sys::syncfs(&self.root)?)
    }

    fn space(&self) -> io::Result<Space> {
        let status = sys::fstatvfs(&self.root)?;
        // Images of one disk carry the same id on several machines; the boot id distinguishes them.
        let file_system = if status.f_fsid == 0 { 0 } else { status.f_fsid ^ self.boot_id() };
        Ok(Space {
            file_system,
            capacity_bytes: status.f_blocks.saturating_mul(status.f_frsize),
            available_bytes: status.f_bavail.saturating_mul(status.f_frsize),
            used_bytes: status.f_blocks.saturating_sub(status.f_bfree).saturating_mul(status.f_frsize),
        })
    }

    fn check_place(&self) -> io::Result<()> {
        let opened = sys::fstat(&self.root)?;
        let is_lost = match sys::stat(&self.path) {
            Ok(there) => (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino),
            Err(Errno::NOENT | Errno::NOTDIR) => true,
            // Nothing is known of a path that cannot be looked at.
            Err(_) => false,
        };
        match is_lost {
            false => Ok(()),
            true => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "the directory {} was removed, replaced or mounted over while it was in use",
                    self.path.display()
                ),
            )),
        }
    }

    /// The first half of the kernel's random boot id (random(4)).
    fn boot_id(&self) -> u64 {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).unwrap_or(0)
    }
}

/// An open file of a [`RealDisk`].
#[derive(Debug)]
struct RealFile {
    file: File,
    /// Cleared once the file system said that it does not know `RWF_NOWAIT`, to save the futile call from then on.
    can_refuse_to_wait: AtomicBool,
}

impl RealFile {
    /// One `preadv2` that returns `WOULDBLOCK` where it would have to wait.
    fn read_without_waiting(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| {
            rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT)
        })
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if !self.can_refuse_to_wait.load(Ordering::Relaxed) {
            return self.read_at(buffer, offset).map(Some);
        }
        // The kernel may answer with the cached beginning only: ask on until the end of the file or a page that waits.
        let mut done = 0;
        while done < buffer.len() {
            match self.read_without_waiting(&mut buffer[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.can_refuse_to_wait.store(false, Ordering::Relaxed);
                    return self.read_at(buffer, offset).map(Some);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Some(done))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks().saturating_mul(STAT_BLOCK_BYTES))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = self.length()?.saturating_sub(offset).min(length);
        if length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::io::retry_on_intr(|| sys::fallocate(&self.file, flags, offset, length)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(&self.file, offset, length),
            outcome => Ok(outcome?),
        }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        // All reads and writes are positioned, so moving the descriptor's own offset is safe.
        let start = match sys::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            // Nothing but a hole from here on, or beyond the end.
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL) => {
                let end = self.length()?;
                return Ok((offset < end).then_some(offset..end));
            }
            Err(errno) => return Err(errno.into()),
        };
        // A file that is cut meanwhile has its hole at once.
        match sys::seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) => Ok((start < end).then_some(start..end)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn start_write_back(&self, offset: u64, length: u64) {
        write_back::start(&self.file, offset, length);
    }

    fn drop_cached(&self, offset: u64, length: u64) -> bool {
        let was_cached = matches!(self.read_without_waiting(&mut [0], offset), Ok(1));
        // Advice: where the file system does not take it, the read comes from memory.
        let _ = sys::fadvise(&self.file, offset, NonZeroU64::new(length), sys::Advice::DontNeed);
        was_cached
    }

    fn is_named(&self) -> io::Result<bool> {
        Ok(sys::fstat(&self.file)?.st_nlink > 0)
    }

    fn descriptor(&self) -> Option<OwnedFd> {
        self.file.try_clone().ok().map(OwnedFd::from)
    }

    fn try_lock(&self) -> io::Result<bool> {
        match sys::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}
