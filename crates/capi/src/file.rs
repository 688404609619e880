//! An open file.

use crate::connection::{Shared, volume_path};
use crate::names::{PERMISSIONS, owned, parent, shown};
use parking_lot::RwLock;
use rustix::fs::OFlags;
use std::sync::Arc;
use vazao_client::area::{Channel, ChannelOptions, Reference};
use vazao_client::{Client, Error, OpenMode, Result};
use vazao_model::{Attributes, Code, FileKind, VolumePath};

/// An open file of the volume, or of an area of a node. Usable from any number of threads.
pub struct File {
    connection: Arc<Shared>,
    /// How messages name it.
    place: String,
    mode: OpenMode,
    /// Calls hold the lock for reading, so that closing waits for those under way and later ones find nothing.
    file: RwLock<Option<Opened>>,
}

/// What is open.
pub(crate) enum Opened {
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
    if flags.contains(OFlags::APPEND) {
        return refused("O_APPEND is not a mode of opening here; write with vazao_append()");
    }
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
    pub(crate) fn volume(&self) -> Result<&vazao_client::File> {
        match self {
            Opened::Volume(file) => Ok(file),
            Opened::Area(_) => {
                Err(Error::new(Code::Unsupported, "a call for files of the volume, not of areas"))
            }
        }
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            Opened::Volume(file) => file.read_at(buffer, offset),
            Opened::Area(channel) => channel.read_at(buffer, offset),
        }
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match self {
            Opened::Volume(file) => file.write_at(bytes, offset),
            Opened::Area(channel) => channel.write_at(bytes, offset),
        }
    }

    /// A node has what was written to a file of its area when the write returns.
    pub(crate) fn flush(&self) -> Result<()> {
        match self {
            Opened::Volume(file) => file.flush(),
            Opened::Area(_) => Ok(()),
        }
    }

    pub(crate) fn sync(&self) -> Result<()> {
        match self {
            Opened::Volume(file) => file.sync(),
            Opened::Area(channel) => channel.sync(),
        }
    }

    pub(crate) fn set_length(&self, length: u64) -> Result<()> {
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
    pub(crate) fn open(connection: &Arc<Shared>, path: &[u8], flags: i32, permissions: u32) -> Result<File> {
        let client = connection.client()?;
        let flags = OFlags::from_bits_retain(flags as u32);
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
        Ok(File { connection: Arc::clone(connection), place, mode, file: RwLock::new(Some(file)) })
    }

    /// The connection that it belongs to.
    pub(crate) fn connection(&self) -> &Shared {
        &self.connection
    }

    /// A call on it: errors name it. Errors: closed.
    pub(crate) fn on<T>(&self, call: impl FnOnce(&Opened) -> Result<T>) -> Result<T> {
        self.connection.client()?;
        let file = self.file.read();
        let open = file.as_ref().ok_or_else(|| self.closed())?;
        call(open).map_err(|error| error.at(&self.place))
    }

    /// The same for reading.
    pub(crate) fn reading<T>(&self, call: impl FnOnce(&Opened) -> Result<T>) -> Result<T> {
        self.on(|file| if self.mode.read { call(file) } else { Err(not_open_for("reading")) })
    }

    /// The same for writing.
    pub(crate) fn writing<T>(&self, call: impl FnOnce(&Opened) -> Result<T>) -> Result<T> {
        self.on(|file| if self.mode.write { call(file) } else { Err(not_open_for("writing")) })
    }

    pub(crate) fn attributes(&self) -> Result<Attributes> {
        self.on(Opened::attributes)
    }

    /// Writes out what is written and closes, once.
    pub(crate) fn close(&self) -> Result<()> {
        self.connection.client()?;
        let open = self.file.write().take().ok_or_else(|| self.closed())?;
        open.close().map_err(|error| error.at(&self.place))
    }

    fn closed(&self) -> Error {
        Error::new(Code::BadHandle, format!("{}: the file is closed", self.place))
    }
}

fn not_open_for(what: &str) -> Error {
    Error::new(Code::BadHandle, format!("the file was not opened for {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_would_be_ignored_are_refused_by_name() {
        let refusal = |flags: OFlags| open_mode(flags).expect_err("refused").to_string();
        assert!(refusal(OFlags::WRONLY | OFlags::APPEND).contains("vazao_append()"));
        assert!(refusal(OFlags::RDONLY | OFlags::TRUNC).contains("O_TRUNC needs"));
        assert!(refusal(OFlags::RDWR | OFlags::DIRECTORY).contains("0o200000"));
        assert!(refusal(OFlags::RWMODE).contains("neither"));
    }
}
