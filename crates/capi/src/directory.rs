//! A directory that is being listed, wherever it is, or the areas of a node.

use crate::connection::Connection;
use crate::names::Place;
use crate::types::{DirectoryEntry, FileAttributes};
use parking_lot::Mutex;
use std::ffi::c_char;
use vazao_client::area::Reference;
use vazao_client::{Error, Result};
use vazao_handles::{AreaListing, Listing, mode_type};
use vazao_model::{AreaInfo, Attributes, Code, FileKind};

/// A directory that is being listed, page by page. Several threads that use one share its entries among them.
pub struct Directory {
    listed: Listed,
    /// How messages name it.
    place: String,
}

/// What is listed.
enum Listed {
    Volume(Listing),
    Area(AreaListing),
    Areas(Areas),
}

/// Areas of a node. They come as directories.
struct Areas {
    connection: vazao_handles::Connection,
    node: String,
    with_attributes: bool,
    left: Mutex<std::vec::IntoIter<AreaInfo>>,
}

/// What all kinds of entries have.
struct Found {
    name: Vec<u8>,
    inode: u64,
    kind: FileKind,
    attributes: Option<Attributes>,
}

/// The node of a path that names no more than it: "n1:/".
fn node_alone(path: &[u8]) -> Option<&str> {
    let colon = path.iter().position(|&byte| byte == b':')?;
    let (node, rest) = path.split_at_checked(colon)?;
    let is_alone = rest.iter().skip(1).all(|&byte| byte == b'/') && Reference::looks_like(path);
    std::str::from_utf8(node).ok().filter(|node| is_alone && *node != "vz")
}

impl Directory {
    /// Begins to list. Errors: there is no such directory, area or node.
    pub(crate) fn open(connection: &Connection, path: &[u8], with_attributes: bool) -> Result<Directory> {
        let place = String::from_utf8_lossy(path).into_owned();
        if let Some(node) = node_alone(path) {
            let areas = connection.shared().client()?.areas(node).map_err(|error| error.at(&place))?;
            let (connection, node) = (connection.shared().clone(), node.to_owned());
            let left = Mutex::new(areas.into_iter());
            let listed = Listed::Areas(Areas { connection, node, with_attributes, left });
            return Ok(Directory { listed, place });
        }
        match connection.place(path)? {
            Place::Volume(path) => {
                let listing = Listing::open(connection.shared(), path, with_attributes)?;
                let place = listing.place().to_owned();
                Ok(Directory { listed: Listed::Volume(listing), place })
            }
            Place::Area(area, at) => {
                let listed = Listed::Area(AreaListing::open(&area, &at.path, with_attributes)?);
                Ok(Directory { listed, place })
            }
        }
    }

    /// The next entry, `None` behind the last one. After an error it is asked for again.
    pub(crate) fn next(&self) -> Result<Option<DirectoryEntry>> {
        let found = match &self.listed {
            Listed::Volume(listing) => listing.next_entry()?.map(|entry| Found {
                name: entry.name,
                inode: entry.inode.0,
                kind: entry.kind,
                attributes: entry.attributes,
            }),
            Listed::Area(listing) => listing.next_entry()?.map(|entry| Found {
                name: entry.name,
                inode: entry.inode,
                kind: entry.kind,
                attributes: entry.attributes,
            }),
            Listed::Areas(areas) => areas.next()?,
        };
        found.map(|found| self.entry(&found)).transpose()
    }

    fn entry(&self, found: &Found) -> Result<DirectoryEntry> {
        let mut name: [c_char; 256] = [0; 256];
        if found.name.len() >= name.len() || found.name.contains(&0) {
            let detail = format!("{} has a name that none can be", self.place);
            return Err(Error::new(Code::BadRequest, detail));
        }
        name.iter_mut().zip(&found.name).for_each(|(place, &byte)| *place = byte as c_char);
        Ok(DirectoryEntry {
            inode: found.inode,
            mode_type: mode_type(found.kind),
            name_bytes: found.name.len() as u32,
            name,
            attributes: found.attributes.as_ref().map(FileAttributes::from).unwrap_or_default(),
        })
    }
}

impl Areas {
    /// The next area. Errors: its node cannot say what it is; the one after it comes next.
    fn next(&self) -> Result<Option<Found>> {
        self.connection.client()?;
        let Some(area) = self.left.lock().next() else { return Ok(None) };
        let attributes = match self.with_attributes {
            true => Some(self.connection.area(&self.node, &area.name)?.stat(b"", true)?),
            false => None,
        };
        let inode = attributes.as_ref().map_or(0, |attributes| attributes.inode.0);
        Ok(Some(Found { name: area.name.into_bytes(), inode, kind: FileKind::Directory, attributes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_is_told_from_areas_and_from_the_volume() {
        assert_eq!(node_alone(b"n1:/"), Some("n1"));
        assert_eq!(node_alone(b"n1://"), Some("n1"));
        for path in [&b"n1:/area"[..], b"vz:/", b"/", b"/n1:/", b"n1:", b":/", b""] {
            assert_eq!(node_alone(path), None);
        }
    }
}
