//! A directory that is being listed.

use crate::types::{DirectoryEntry, FileAttributes};
use std::ffi::c_char;
use vazao_client::{Entry, Error, Result};
use vazao_handles::{Listing, mode_type};
use vazao_model::Code;

/// A directory that is being listed, page by page. Several threads that use one share its entries among them.
pub struct Directory {
    pub(crate) handle: Listing,
}

impl Directory {
    /// The next entry, `None` behind the last one. After an error it is asked for again.
    pub(crate) fn next(&self) -> Result<Option<DirectoryEntry>> {
        self.handle.next_entry()?.map(|entry| self.entry(&entry)).transpose()
    }

    fn entry(&self, entry: &Entry) -> Result<DirectoryEntry> {
        let mut name: [c_char; 256] = [0; 256];
        if entry.name.len() >= name.len() || entry.name.contains(&0) {
            let detail = format!("{} has a name that none can be", self.handle.place());
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
