//! A directory that is being listed.

use crate::connection::{Connection, volume_path};
use crate::names::shown;
use parking_lot::Mutex;
use vazao_client::{Entry, Error, Result};
use vazao_model::{Code, FileKind, InodeId};

/// Entries that are asked for at once.
const PAGE_ENTRIES: u32 = 1024;

/// A directory that is being listed, page by page. Several threads that use one share its entries among them.
#[derive(Debug)]
pub struct Listing {
    connection: Connection,
    inode: InodeId,
    /// How messages name it.
    place: String,
    with_attributes: bool,
    position: Mutex<Position>,
}

/// How far a listing is.
#[derive(Default, Debug)]
struct Position {
    page: std::vec::IntoIter<Entry>,
    cookie: u64,
    is_last_page: bool,
}

impl Listing {
    /// Begins to list the directory at a path.
    pub fn open(connection: &Connection, path: &[u8], with_attributes: bool) -> Result<Listing> {
        let attributes = connection.stat(path, true)?;
        let place = shown(&volume_path(path)?);
        if attributes.kind != FileKind::Directory {
            return Err(Error::new(Code::NotDirectory, place));
        }
        let (connection, inode) = (connection.clone(), attributes.inode);
        Ok(Listing { connection, inode, place, with_attributes, position: Mutex::default() })
    }

    /// How messages name the directory.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The next entry, `None` behind the last one. After an error it is asked for again.
    pub fn next_entry(&self) -> Result<Option<Entry>> {
        let client = self.connection.client()?;
        let mut position = self.position.lock();
        loop {
            if let Some(entry) = position.page.next() {
                return Ok(Some(entry));
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
}
