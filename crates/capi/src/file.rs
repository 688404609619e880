//! An open file.

use crate::connection::{Shared, volume_path};
use crate::names::{owned, parent, shown};
use parking_lot::RwLock;
use rustix::fs::OFlags;
use std::sync::Arc;
use vazao_client::{Client, Error, OpenMode, Result};
use vazao_model::{Attributes, Code, FileKind, VolumePath};

/// An open file of the volume. Usable from any number of threads.
pub struct File {
    connection: Arc<Shared>,
    /// How messages name it.
    place: String,
    mode: OpenMode,
    /// Calls hold the lock for reading, so that closing waits for those under way and later ones find nothing.
    file: RwLock<Option<vazao_client::File>>,
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

impl File {
    /// Opens the file at a path as open(2) would.
    pub(crate) fn open(connection: &Arc<Shared>, path: &[u8], flags: i32, permissions: u32) -> Result<File> {
        let client = connection.client()?;
        let path = volume_path(path)?;
        let place = shown(&path);
        let flags = OFlags::from_bits_retain(flags as u32);
        let mode = open_mode(flags).map_err(|error| error.at(&place))?;
        let file = open(client, &path, flags, mode, permissions).map_err(|error| error.at(&place))?;
        Ok(File { connection: Arc::clone(connection), place, mode, file: RwLock::new(Some(file)) })
    }

    /// The connection that it belongs to.
    pub(crate) fn connection(&self) -> &Shared {
        &self.connection
    }

    /// A call on it: errors name it. Errors: closed.
    pub(crate) fn on<T>(&self, call: impl FnOnce(&vazao_client::File) -> Result<T>) -> Result<T> {
        self.connection.client()?;
        let file = self.file.read();
        let open = file.as_ref().ok_or_else(|| self.closed())?;
        call(open).map_err(|error| error.at(&self.place))
    }

    /// The same for reading.
    pub(crate) fn reading<T>(&self, call: impl FnOnce(&vazao_client::File) -> Result<T>) -> Result<T> {
        self.on(|file| if self.mode.read { call(file) } else { Err(not_open_for("reading")) })
    }

    /// The same for writing.
    pub(crate) fn writing<T>(&self, call: impl FnOnce(&vazao_client::File) -> Result<T>) -> Result<T> {
        self.on(|file| if self.mode.write { call(file) } else { Err(not_open_for("writing")) })
    }

    pub(crate) fn attributes(&self) -> Result<Attributes> {
        self.on(vazao_client::File::attributes)
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
