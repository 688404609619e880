//! Files of this node's areas for another part of the same process: what receives copies and what sends them.
//!
//! The same rules as for requests hold: every path is opened beneath the area's root, read-only areas refuse changes.

use crate::area::{Area, Waiting};
use crate::open_file::AreaFile;
use crate::path::AreaPath;
use crate::service::AreaService;
use crate::{fault, files};
use rustix::fd::OwnedFd;
use rustix::fs::{
    Advice, AtFlags, FileType, Mode, OFlags, Statx, Timespec, Timestamps, UTIME_OMIT, fadvise, fchmod, fsync,
    futimens, renameat, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;
use vazao_meter::Cause;
use vazao_model::Code;
use vazao_model::limits::NAME_BYTES_MAX;
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// A path in an area of this node.
#[derive(Clone, Debug)]
pub struct Inside {
    area: Arc<Area>,
    path: AreaPath,
}

/// What lies at a path.
#[derive(Clone, Debug)]
pub struct InsideStatus {
    /// Type, size, times, permissions.
    pub attributes: proto::Attributes,
    /// What tells it from others of its name.
    pub identity: proto::FileIdentity,
}

impl InsideStatus {
    fn of(status: &Statx) -> InsideStatus {
        let identity = files::identity(status).into();
        InsideStatus { attributes: files::attributes(status, false), identity }
    }
}

impl AreaService {
    /// A path in one of this node's areas. Errors: no such area, a path that cannot be, or, where it is to be changed,
    /// a read-only area.
    pub fn inside(&self, area: &str, path: &[u8], writable: bool) -> Result<Inside, Fault> {
        let area = self.shared.area(area)?;
        let path = AreaPath::parse(&area.name, path)?;
        if writable {
            area.check_writable(&path)?;
        }
        Ok(Inside { area, path })
    }
}

fn flags_of(write: bool) -> OFlags {
    let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
    access | OFlags::NONBLOCK | OFlags::NOCTTY
}

impl Inside {
    /// As messages show it.
    pub fn shown(&self) -> String {
        self.path.show(&self.area.name)
    }

    /// The name of its area.
    pub fn area(&self) -> &str {
        &self.area.name
    }

    /// A thread that is no area's own begins something that may wait for the file system. Errors: it hangs, and enough
    /// threads wait for it.
    pub fn begin(&self, what: &'static str) -> Result<Waiting<'_>, Fault> {
        self.area.begin(what)
    }

    /// Runs `work`, which reads, writes or syncs a file there, and counts what it waits for the disk.
    pub fn during<T>(&self, cause: Cause, work: impl FnOnce() -> T) -> T {
        self.area.during(cause, work)
    }

    fn fault(&self, error: Errno) -> Fault {
        fault::of(error, &self.shown())
    }

    /// What lies there, a link at its end not followed; `None` where nothing does.
    pub fn status(&self) -> Result<Option<InsideStatus>, Fault> {
        match self.area.open_path(&self.path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(inode) => {
                let status = files::status(&inode).map_err(|e| self.fault(e))?;
                Ok(Some(InsideStatus::of(&status)))
            }
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Opens the regular file that lies there.
    pub fn open(&self, write: bool) -> Result<(AreaFile, InsideStatus), Fault> {
        self.area.check_closing()?;
        self.opened(self.area.open_path(&self.path, flags_of(write))?)
    }

    fn opened(&self, file: OwnedFd) -> Result<(AreaFile, InsideStatus), Fault> {
        let file = self.area.keep(file);
        let status = files::status(&*file).map_err(|e| self.fault(e))?;
        if FileType::from_raw_mode(u32::from(status.stx_mode)) != FileType::RegularFile {
            let why = format!("{}: is no regular file", self.shown());
            return Err(Fault::new(Code::Invalid, why));
        }
        Ok((file, InsideStatus::of(&status)))
    }

    /// Makes the file, which must not be there, readable for the daemon's user only.
    pub fn create(&self) -> Result<(AreaFile, InsideStatus), Fault> {
        let flags = flags_of(true) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        self.area.check_closing()?;
        let file = self.area.open_beneath(self.path.relative(), flags, mode);
        let file = file.map_err(|error| fault::of_path(error, &self.shown()))?;
        if let Err(error) = self.area.made_file(&file) {
            let _ = self.remove();
            return Err(self.fault(error));
        }
        self.opened(file)
    }

    /// The path beside it that has `suffix` behind its name and a dot before it, cut to fit. Errors: it is the root.
    pub fn beside(&self, suffix: &str) -> Result<Inside, Fault> {
        let root = || Fault::new(Code::IsDirectory, format!("{}: the root of an area", self.shown()));
        let (parent, name) = self.path.split().ok_or_else(root)?;
        let kept = name.len().min(NAME_BYTES_MAX.saturating_sub(suffix.len() + 1));
        let path = [parent, b"/.", &name[..kept], suffix.as_bytes()].concat();
        let path = AreaPath::parse(&self.area.name, &path)?;
        Ok(Inside { area: Arc::clone(&self.area), path })
    }

    /// Gives what lies at this path the name `to` in the same directory, and makes that durable.
    pub fn rename(&self, to: &Inside) -> Result<(), Fault> {
        self.rename_only(to)?;
        self.sync_parent()
    }

    /// As [`Inside::rename`], but what was there may be back after a loss of power.
    pub fn rename_only(&self, to: &Inside) -> Result<(), Fault> {
        let (parent, name) = self.area.open_parent(&self.path)?;
        let new_name = to.path.split().map(|(_, name)| name).unwrap_or_default();
        renameat(&parent, name, &parent, new_name).map_err(|e| to.fault(e))
    }

    /// What paths have in common that lie in the same directory.
    pub fn parent_key(&self) -> Vec<u8> {
        let parent = self.path.split().map_or(&b""[..], |(parent, _)| parent);
        [self.area.name.as_bytes(), b"/", parent].concat()
    }

    /// Has the disk begin with what was written, without waiting for it.
    pub fn begin_writing(&self, file: &File) {
        self.begin_writing_range(file, 0, 0);
    }

    /// As [`Inside::begin_writing`] for `length` bytes at `offset`; 0 for all behind it.
    pub fn begin_writing_range(&self, file: &File, offset: u64, length: u64) {
        // Dirty pages are not dropped by it but begun to be written (mm/fadvise.c). Without it a sync takes longer.
        let _ = fadvise(file, offset, std::num::NonZeroU64::new(length), Advice::DontNeed);
    }

    /// Has what was written and synced forgotten by the page cache, so that reading asks the disk.
    pub fn forget_cached(&self, file: &File) {
        // A system that keeps it answers from memory: the check finds less, and nothing wrong.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
    }

    /// Makes the names of the directory that it lies in durable.
    pub fn sync_parent(&self) -> Result<(), Fault> {
        let parent = self.path.split().map_or(&b"."[..], |(parent, _)| parent);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = self.area.open_beneath(parent, flags, Mode::empty());
        self.during(Cause::DiskSync, || directory.and_then(fsync)).map_err(|e| self.fault(e))
    }

    /// Removes the file.
    pub fn remove(&self) -> Result<(), Fault> {
        let (parent, name) = self.area.open_parent(&self.path)?;
        unlinkat(&parent, name, AtFlags::empty()).map_err(|e| self.fault(e))
    }

    /// Gives an open file of this path its permissions and time of change.
    pub fn finish(&self, file: &File, mode: u32, modified: Option<proto::Timestamp>) -> Result<(), Fault> {
        fchmod(file, Mode::from_raw_mode(mode & 0o777)).map_err(|e| self.fault(e))?;
        let Some(modified) = modified else { return Ok(()) };
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: modified.seconds,
                tv_nsec: i64::from(modified.nanoseconds.min(999_999_999)),
            },
        };
        futimens(file, &times).map_err(|e| self.fault(e))
    }

    /// What this file's faults look like for others.
    pub fn fault_of(&self, error: &std::io::Error) -> Fault {
        let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        self.fault(errno)
    }
}
