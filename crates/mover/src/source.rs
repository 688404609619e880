//! What a copy reads: a file of this machine, or one of the volume.

use parking_lot::Mutex;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use vazao_area::{AreaFile, Inside, Waiting};
use vazao_meter::Cause;
use vazao_model::{Code, Timestamp};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// What tells one version of a file's contents from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Version {
    /// Bytes.
    pub size: u64,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of anything, in nanoseconds or as a number that grows.
    pub changed: u64,
    /// The file system and the inode.
    pub identity: (u64, u64),
}

/// A file that is being copied. Used by any number of threads.
pub trait Source: Send + Sync {
    /// Reads at `offset`; fewer bytes than the buffer has only where the file ends.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Fault>;

    /// As it is now.
    fn version(&self) -> Result<Version, Fault>;

    /// Permission bits.
    fn mode(&self) -> u32;

    /// What tells the file from others of its node; `None` for what cannot be the destination.
    fn identity(&self) -> Option<proto::FileIdentity>;

    /// Where the next data is at or after `offset`; `None` when only a hole follows. Without holes it is `offset`.
    fn next_data(&self, offset: u64) -> Result<Option<u64>, Fault> {
        Ok(Some(offset))
    }

    /// As messages show it.
    fn shown(&self) -> &str;

    /// The area that it lies in; `None` for what lies in none.
    fn place(&self) -> Option<&str> {
        None
    }
}

/// The descriptor of a file of this machine.
#[derive(Debug)]
enum Opened {
    /// Of any file.
    Plain(File),
    /// Of one in an area.
    Kept(AreaFile),
}

impl Deref for Opened {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Opened::Plain(file) => file,
            Opened::Kept(file) => file,
        }
    }
}

/// A file of this machine.
#[derive(Debug)]
pub struct FileSource {
    file: Opened,
    shown: String,
    mode: u32,
    identity: Option<proto::FileIdentity>,
    place: Option<Inside>,
}

impl FileSource {
    /// An open file, called `shown` in messages.
    pub fn new(
        file: File,
        shown: String,
        identity: Option<proto::FileIdentity>,
    ) -> Result<FileSource, Fault> {
        let mode = file.metadata().map_err(|e| fault_of(&e, &shown))?.mode() & 0o777;
        Ok(FileSource { file: Opened::Plain(file), shown, mode, identity, place: None })
    }

    /// The open file of an area, where waiting for its disk is counted, and bounded where that hangs.
    pub fn inside(
        file: AreaFile,
        shown: String,
        identity: Option<proto::FileIdentity>,
        place: Inside,
    ) -> Result<FileSource, Fault> {
        let mode = file.metadata().map_err(|e| fault_of(&e, &shown))?.mode() & 0o777;
        Ok(FileSource { file: Opened::Kept(file), shown, mode, identity, place: Some(place) })
    }

    fn begin(&self, what: &'static str) -> Result<Option<Waiting<'_>>, Fault> {
        self.place.as_ref().map(|place| place.begin(what)).transpose()
    }

    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        match &self.place {
            Some(place) => place.during(Cause::DiskRead, || self.file.read_at(buffer, offset)),
            None => self.file.read_at(buffer, offset),
        }
    }
}

/// An error of the system in words, without its number.
pub(crate) fn plain(error: &std::io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

fn fault_of(error: &std::io::Error, shown: &str) -> Fault {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => Code::NotFound,
        std::io::ErrorKind::PermissionDenied => Code::AccessDenied,
        _ => Code::Io,
    };
    Fault::new(code, format!("{shown}: reading: {}", plain(error)))
}

impl Source for FileSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Fault> {
        let _waiting = self.begin("a read of a copy")?;
        let mut done = 0;
        while done < buffer.len() {
            match self.read_some_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fault_of(&error, &self.shown)),
            }
        }
        Ok(done)
    }

    fn version(&self) -> Result<Version, Fault> {
        let _waiting = self.begin("a look at a file to copy")?;
        let m = self.file.metadata().map_err(|e| fault_of(&e, &self.shown))?;
        let changed = (m.ctime() as u64).wrapping_mul(1_000_000_000).wrapping_add(m.ctime_nsec() as u64);
        Ok(Version {
            size: m.len(),
            modified: Timestamp { seconds: m.mtime(), nanoseconds: m.mtime_nsec() as u32 },
            changed,
            identity: (m.dev(), m.ino()),
        })
    }

    fn mode(&self) -> u32 {
        self.mode
    }

    fn identity(&self) -> Option<proto::FileIdentity> {
        self.identity
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, Fault> {
        let _waiting = self.begin("a look for holes")?;
        match seek(&*self.file, SeekFrom::Data(offset)) {
            Ok(start) => Ok(Some(start)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(error) => Err(fault_of(&error.into(), &self.shown)),
        }
    }

    fn shown(&self) -> &str {
        &self.shown
    }

    fn place(&self) -> Option<&str> {
        self.place.as_ref().map(Inside::area)
    }
}

/// A file of the volume.
pub struct VolumeSource {
    file: Arc<vazao_client::File>,
    shown: String,
    mode: u32,
    /// The file takes less than its length: only then its servers are asked for holes.
    is_sparse: bool,
    /// A hole that is known, from its start to the next data: the blocks in it are not asked for one by one.
    hole: Mutex<std::ops::Range<u64>>,
}

impl std::fmt::Debug for VolumeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VolumeSource({})", self.shown)
    }
}

impl VolumeSource {
    /// An open file of the volume, called `shown` in messages.
    pub fn new(file: vazao_client::File, shown: String) -> VolumeSource {
        let attributes = file.known_attributes();
        let is_sparse = attributes.allocated_bytes < attributes.size;
        let mode = attributes.mode & 0o777;
        VolumeSource { file: Arc::new(file), shown, mode, is_sparse, hole: Mutex::new(0..0) }
    }
}

/// An error of the client library about `shown`.
pub(crate) fn of_client(error: vazao_client::Error, shown: &str) -> Fault {
    match error.detail.contains(shown) {
        true => Fault::new(error.code, error.detail),
        false => Fault::new(error.code, format!("{shown}: {}", error.detail)),
    }
}

impl Source for VolumeSource {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Fault> {
        self.file.read_at(buffer, offset).map_err(|error| of_client(error, &self.shown))
    }

    fn version(&self) -> Result<Version, Fault> {
        let a = self.file.attributes().map_err(|error| of_client(error, &self.shown))?;
        Ok(Version { size: a.size, modified: a.modified, changed: a.version, identity: (0, a.inode.0) })
    }

    fn mode(&self) -> u32 {
        self.mode
    }

    fn identity(&self) -> Option<proto::FileIdentity> {
        None
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, Fault> {
        if !self.is_sparse {
            return Ok(Some(offset));
        }
        let known = self.hole.lock().clone();
        if known.contains(&offset) {
            return Ok((known.end < u64::MAX).then_some(known.end));
        }
        let next = self.file.seek(vazao_client::Seek::Data, offset);
        let next = next.map_err(|error| of_client(error, &self.shown))?;
        *self.hole.lock() = offset..next.unwrap_or(u64::MAX);
        Ok(next)
    }

    fn shown(&self) -> &str {
        &self.shown
    }
}
