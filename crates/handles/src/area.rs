//! An area of a node: calls on its names, and listings of its directories.

use crate::Connection;
use crate::names::PERMISSIONS;
use parking_lot::Mutex;
use vazao_client::area::{AreaChanges, AreaClient, AreaEntry, AreaSpace};
use vazao_client::{RenameMode, Result};
use vazao_model::Attributes;

/// Entries that are asked for at once.
const PAGE_ENTRIES: u32 = 1024;

/// An area of a node. Usable from any number of threads, and cheap to clone. Paths begin at its root: `a/b` or `/a/b`.
#[derive(Clone, Debug)]
pub struct Area {
    connection: Connection,
    /// `None` only while it is dropped.
    client: Option<AreaClient>,
}

impl Drop for Area {
    fn drop(&mut self) {
        let client = self.client.take();
        if self.connection.is_foreign() {
            std::mem::forget(client);
        }
    }
}

impl Area {
    pub(crate) fn new(connection: &Connection, client: AreaClient) -> Area {
        Area { connection: connection.clone(), client: Some(client) }
    }

    /// The connection that it belongs to.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// How a path of it is written: `n1:/area/path`.
    pub fn reference(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.connection.client()?;
        Ok(self.client().reference(below(path)).to_bytes())
    }

    fn client(&self) -> &AreaClient {
        self.client.as_ref().expect("taken only when it is dropped")
    }

    /// A call on a path: errors name it.
    pub(crate) fn on<T>(&self, path: &[u8], call: impl FnOnce(&AreaClient, &[u8]) -> Result<T>) -> Result<T> {
        self.connection.client()?;
        let path = below(path);
        call(self.client(), path).map_err(|error| error.at(self.client().reference(path)))
    }

    /// What is at a path; without `follow` a symbolic link at its end itself.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Attributes> {
        self.on(path, |client, path| client.stat(path, follow))
    }

    /// Makes a directory. The node's own umask applies.
    pub fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        self.on(path, |client, path| client.make_directory(path, mode & PERMISSIONS).map(drop))
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.on(path, AreaClient::remove_directory)
    }

    /// Removes a name that is not a directory's.
    pub fn unlink(&self, path: &[u8]) -> Result<()> {
        self.on(path, AreaClient::remove)
    }

    /// Gives a file or directory a new name within the area.
    pub fn rename(&self, path: &[u8], new_path: &[u8], mode: RenameMode) -> Result<()> {
        self.on(path, |client, path| client.rename(path, below(new_path), mode))
    }

    /// Gives a file a further name within the area.
    pub fn link(&self, path: &[u8], new_path: &[u8]) -> Result<()> {
        self.on(path, |client, path| client.link(path, below(new_path)).map(drop))
    }

    /// Makes a symbolic link at `path` that leads to `target`.
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.on(path, |client, path| client.symlink(path, target).map(drop))
    }

    /// Where a symbolic link leads.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.on(path, AreaClient::read_link)
    }

    /// Changes attributes. A symbolic link at the end of the path is not followed.
    pub fn change(&self, path: &[u8], changes: &AreaChanges) -> Result<()> {
        self.on(path, |client, path| client.set_attributes(path, changes).map(drop))
    }

    /// Space of the file system that it lies on.
    pub fn space(&self) -> Result<AreaSpace> {
        self.on(b"", |client, _| client.space())
    }
}

/// A path of an area as its node takes it, without a slash in front.
fn below(path: &[u8]) -> &[u8] {
    let first = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    path.get(first..).unwrap_or_default()
}

/// A directory of an area that is being listed, page by page.
#[derive(Debug)]
pub struct AreaListing {
    area: Area,
    path: Vec<u8>,
    with_attributes: bool,
    position: Mutex<Position>,
}

/// How far a listing is.
#[derive(Default, Debug)]
struct Position {
    page: std::vec::IntoIter<AreaEntry>,
    cookie: u64,
    is_last_page: bool,
}

impl AreaListing {
    /// Begins to list the directory at a path. Errors: it is none.
    pub fn open(area: &Area, path: &[u8], with_attributes: bool) -> Result<AreaListing> {
        let listing = AreaListing {
            area: area.clone(),
            path: path.to_vec(),
            with_attributes,
            position: Mutex::default(),
        };
        listing.fetch(&mut listing.position.lock())?;
        Ok(listing)
    }

    /// The next entry, `None` behind the last one. After an error it is asked for again.
    pub fn next_entry(&self) -> Result<Option<AreaEntry>> {
        self.area.connection.client()?;
        let mut position = self.position.lock();
        loop {
            if let Some(entry) = position.page.next() {
                return Ok(Some(entry));
            }
            if position.is_last_page {
                return Ok(None);
            }
            self.fetch(&mut position)?;
        }
    }

    fn fetch(&self, position: &mut Position) -> Result<()> {
        let page = self.area.on(&self.path, |client, path| {
            client.list(path, position.cookie, PAGE_ENTRIES, self.with_attributes)
        })?;
        position.cookie = page.entries.last().map_or(position.cookie, |entry| entry.cookie);
        // A page without entries would be asked for for ever.
        position.is_last_page = page.end || page.entries.is_empty();
        position.page = page.entries.into_iter();
        Ok(())
    }
}
