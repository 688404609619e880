//! A directory that is being listed.

use crate::connection::{Shared, volume_path};
use crate::names::shown;
use crate::types::{DirectoryEntry, FileAttributes, mode_type};
use parking_lot::Mutex;
use std::ffi::c_char;
use std::sync::Arc;
use vazao_client::{Entry, Error, Result};
use vazao_model::{Code, FileKind, InodeId};

/// Entries that are asked for at once.
const PAGE_ENTRIES: u32 = 1024;

/// A directory that is being listed, page by page. Several threads that use one share its entries among them.
pub struct Directory {
    connection: Arc<Shared>,
    inode: InodeId,
    /// How messages name it.
    place: String,
    with_attributes: bool,
    position: Mutex<Position>,
}

/// How far a listing is.
#[derive(Default)]
struct Position {
    page: std::vec::IntoIter<Entry>,
    cookie: u64,
    is_last_page: bool,
}

impl Directory {
    /// Begins to list the directory at a path.
    pub(crate) fn open(connection: &Arc<Shared>, path: &[u8], with_attributes: bool) -> Result<Directory> {
        let attributes = connection.stat(path, true)?;
        let place = shown(&volume_path(path)?);
        if attributes.kind != FileKind::Directory {
            return Err(Error::new(Code::NotDirectory, place));
        }
        let (connection, inode) = (Arc::clone(connection), attributes.inode);
        Ok(Directory { connection, inode, place, with_attributes, position: Mutex::default() })
    }

    /// The connection that it belongs to.
    pub(crate) fn connection(&self) -> &Shared {
        &self.connection
    }

    /// The next entry, `None` behind the last one. After an error it is asked for again.
    pub(crate) fn next(&self) -> Result<Option<DirectoryEntry>> {
        let client = self.connection.client()?;
        let mut position = self.position.lock();
        loop {
            if let Some(entry) = position.page.next() {
                return self.entry(&entry).map(Some);
            }
            if position.is_last_page {
                return Ok(None);
            }
            let page = client.list(self.inode, position.cookie, PAGE_ENTRIES, self.with_attributes);
            let page = page.map_err(|error| error.at(&self.place))?;
            position.cookie = page.entries.last().map_or(position.cookie, |entry| entry.cookie);
            // A page without entries would be asked for for ever.
            position.is_last_page = page.end || page.entries.is_empty();
            position.page = page.entries.into_iter();
        }
    }

    fn entry(&self, entry: &Entry) -> Result<DirectoryEntry> {
        let mut name: [c_char; 256] = [0; 256];
        if entry.name.len() >= name.len() || entry.name.contains(&0) {
            let detail = format!("{} has a name that none can be", self.place);
            return Err(Error::new(Code::BadRequest, detail));
        }
        name.iter_mut().zip(&entry.name).for_each(|(place, &byte)| *place = byte as c_char);
        Ok(DirectoryEntry {
            inode: entry.inode.0,
            mode_type: mode_type(entry.kind),
            name_bytes: entry.name.len() as u32,
            name,
            attributes: entry.attributes.as_ref().map(FileAttributes::from).unwrap_or_default(),
        })
    }
}
