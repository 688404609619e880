//! An open file.

use crate::connection::{Connection, volume_path};
use crate::locks::FileLocks;
use crate::names::{PERMISSIONS, owned, parent, shown};
use parking_lot::RwLock;
use rustix::fs::OFlags;
use std::sync::atomic::Ordering;
use vazao_client::area::{Channel, ChannelOptions, Reference};
use vazao_client::{Client, Error, OpenMode, Result};
use vazao_model::{Attributes, Code, FileKind, VolumePath};

/// An open file of the volume, or of an area of a node. Usable from any number of threads.
#[derive(Debug)]
pub struct File {
    connection: Connection,
    /// How messages name it.
    place: String,
    mode: OpenMode,
    pub(crate) locks: FileLocks,
    /// Calls hold the lock for reading, so that closing waits for those under way and later ones find nothing.
    file: RwLock<Option<Opened>>,
}

/// What is open.
#[derive(Debug)]
pub enum Opened {
    /// A file of the volume.
    Volume(vazao_client::File),
    /// A file of an area of a node.
    Area(Channel),
}

/// Flags of open(2) that say how, or that make no difference here.
const FLAGS: OFlags = OFlags::RWMODE
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::TRUNC)
    .union(OFlags::CLOEXEC)
    .union(OFlags::LARGEFILE);

/// What flags of open(2) ask for. Errors: flags that are not understood, or make no sense together.
fn open_mode(flags: OFlags) -> Result<OpenMode> {
    let refused = |why: &str| Err(Error::new(Code::Invalid, why));
    let unknown = flags.difference(FLAGS);
    if !unknown.is_empty() {
        return refused(&format!("open flags {:#o} are not supported here; leave them away", unknown.bits()));
    }
    let (read, write) = match flags.intersection(OFlags::RWMODE) {
        OFlags::RDONLY => (true, false),
        OFlags::WRONLY => (false, true),
        OFlags::RDWR => (true, true),
        _ => return refused("the open flags ask neither for reading nor for writing"),
    };
    let truncate = flags.contains(OFlags::TRUNC);
    if truncate && !write {
        return refused("O_TRUNC needs O_WRONLY or O_RDWR beside it");
    }
    Ok(OpenMode { read, write, truncate })
}

fn open(
    client: &Client,
    path: &VolumePath,
    flags: OFlags,
    mode: OpenMode,
    permissions: u32,
) -> Result<vazao_client::File> {
    if flags.contains(OFlags::CREATE) {
        let exclusive = flags.contains(OFlags::EXCL);
        let (directory, name) = parent(client, path)?;
        match client.create_file(directory.inode, name, &owned(FileKind::File, permissions), exclusive) {
            // A symbolic link: what it leads to is opened.
            Err(error) if matches!(error.code, Code::Exists | Code::Loop) && !exclusive => {}
            created => {
                let (_, file) = created?;
                if mode.truncate {
                    file.set_length(0)?;
                }
                return Ok(file);
            }
        }
    }
    client.open_path(path, mode).map(|(_, file)| file)
}

/// Opens a file of an area.
fn open_area(
    client: &Client,
    reference: &Reference,
    flags: OFlags,
    mode: OpenMode,
    permissions: u32,
) -> Result<Opened> {
    let options = ChannelOptions {
        read: mode.read,
        write: mode.write,
        create: flags.contains(OFlags::CREATE),
        exclusive: flags.contains(OFlags::EXCL),
        truncate: mode.truncate,
        mode: permissions & PERMISSIONS,
        identity: None,
    };
    client.area(&reference.node, &reference.area).open(&reference.path, &options).map(Opened::Area)
}

impl Opened {
    /// A file of the volume. Errors: one of an area, for which a call is not.
    pub fn volume(&self) -> Result<&vazao_client::File> {
        match self {
            Opened::Volume(file) => Ok(file),
            Opened::Area(_) => {
                Err(Error::new(Code::Unsupported, "a call for files of the volume, not of areas"))
            }
        }
    }

    /// As [`vazao_client::File::read_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            Opened::Volume(file) => file.read_at(buffer, offset),
            Opened::Area(channel) => channel.read_at(buffer, offset),
        }
    }

    /// As [`vazao_client::File::write_at`].
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match self {
            Opened::Volume(file) => file.write_at(bytes, offset),
            Opened::Area(channel) => channel.write_at(bytes, offset),
        }
    }

    /// Writes out what was written. A node has what was written to a file of its area when the write returns.
    pub fn flush(&self) -> Result<()> {
        match self {
            Opened::Volume(file) => file.flush(),
            Opened::Area(_) => Ok(()),
        }
    }

    /// What was written survives the loss of power.
    pub fn sync(&self) -> Result<()> {
        match self {
            Opened::Volume(file) => file.sync(),
            Opened::Area(channel) => channel.sync(),
        }
    }

    /// Cuts, or extends with zeros.
    pub fn set_length(&self, length: u64) -> Result<()> {
        match self {
            Opened::Volume(file) => file.set_length(length),
            Opened::Area(channel) => channel.set_length(length),
        }
    }

    fn attributes(&self) -> Result<Attributes> {
        match self {
            Opened::Volume(file) => file.attributes(),
            Opened::Area(channel) => channel.stat(),
        }
    }

    fn close(self) -> Result<()> {
        match self {
            Opened::Volume(file) => file.close(),
            Opened::Area(channel) => channel.close(),
        }
    }
}

impl File {
    /// Opens the file at a path as open(2) would.
    /// Flags as in <fcntl.h>, without O_APPEND: writes at the end are calls of their own.
    pub fn open(connection: &Connection, path: &[u8], flags: OFlags, permissions: u32) -> Result<File> {
        let client = connection.client()?;
        let mode = open_mode(flags);
        let is_area = !path.starts_with(b"vz:") && Reference::looks_like(path);
        let (place, opened) = if is_area {
            let reference = Reference::parse(path)?;
            (
                reference.to_string(),
                mode.and_then(|mode| open_area(client, &reference, flags, mode, permissions)),
            )
        } else {
            let path = volume_path(path)?;
            (
                shown(&path),
                mode.and_then(|mode| open(client, &path, flags, mode, permissions).map(Opened::Volume)),
            )
        };
        let mode = open_mode(flags).unwrap_or_default();
        let file = opened.map_err(|error| error.at(&place))?;
        let (connection, file) = (connection.clone(), RwLock::new(Some(file)));
        Ok(File { connection, place, mode, locks: FileLocks::default(), file })
    }

    /// The connection that it belongs to.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// How messages name it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What it was opened for.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// A call on it: errors name it. Errors: closed, or a lock of it is lost.
    pub fn on<T>(&self, call: impl FnOnce(&Opened) -> Result<T>) -> Result<T> {
        self.connection.client()?;
        let file = self.file.read();
        let open = file.as_ref().ok_or_else(|| self.closed())?;
        self.check_locks(open).and_then(|()| call(open)).map_err(|error| error.at(&self.place))
    }

    /// The same for reading.
    pub fn reading<T>(&self, call: impl FnOnce(&Opened) -> Result<T>) -> Result<T> {
        self.on(|file| if self.mode.read { call(file) } else { Err(not_open_for("reading")) })
    }

    /// The same for writing.
    pub fn writing<T>(&self, call: impl FnOnce(&Opened) -> Result<T>) -> Result<T> {
        self.on(|file| if self.mode.write { call(file) } else { Err(not_open_for("writing")) })
    }

    /// What the file is, with what this connection has written.
    pub fn attributes(&self) -> Result<Attributes> {
        self.on(Opened::attributes)
    }

    /// Copies up to `length` bytes at `from` of another file of the volume to `to`; returns how many, 0 at its end.
    pub fn copy_from(&self, source: &File, from: u64, to: u64, length: u64) -> Result<u64> {
        source.reading(|open| {
            let source = open.volume()?;
            self.connection.client()?;
            // It may be the same file, or one that copies from this one: to wait for a thread that waits to close one
            // of them would be a deadlock.
            let file = self.file.read_recursive();
            let open = file.as_ref().ok_or_else(|| self.closed())?;
            open.volume()?.copy_from(source, from, to, length).map_err(|error| error.at(&self.place))
        })
    }

    /// Writes out what is written, lets go of its locks and closes, once. Who waits for a lock through it gives up.
    pub fn close(&self) -> Result<()> {
        self.connection.client()?;
        self.locks.is_closing.store(true, Ordering::SeqCst);
        let open = self.file.write().take().ok_or_else(|| self.closed())?;
        let released = self.release_locks(&open);
        released.and(open.close()).map_err(|error| error.at(&self.place))
    }

    fn closed(&self) -> Error {
        Error::new(Code::BadHandle, format!("{}: the file is closed", self.place))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Before the connection, which may end with its last file.
        let open = self.file.get_mut().take();
        if self.connection.is_foreign() {
            std::mem::forget(open);
        } else if let Some(open) = open
            && let Err(error) = self.release_locks(&open)
        {
            tracing::debug!(%error, "locks of a file go with its session");
        }
    }
}

pub(crate) fn not_open_for(what: &str) -> Error {
    Error::new(Code::BadHandle, format!("the file was not opened for {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_would_be_ignored_are_refused_by_name() {
        let refusal = |flags: OFlags| open_mode(flags).expect_err("refused").to_string();
        assert!(refusal(OFlags::RDONLY | OFlags::TRUNC).contains("O_TRUNC needs"));
        assert!(refusal(OFlags::RDWR | OFlags::DIRECTORY).contains("0o200000"));
        assert!(refusal(OFlags::RWMODE).contains("neither"));
    }
}
