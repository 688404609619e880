//! An open file.

use crate::Result;
use vazao_model::{Attributes, InodeId};

/// An open file: striped reads and writes at explicit offsets, from any number of threads.
///
/// Handles of one client on one inode share its size and unwritten data, so that a read sees the writes before it.
pub struct File {
    _inner: (),
}

#[allow(unused_variables, clippy::unimplemented)]
impl File {
    /// Which inode.
    pub fn inode(&self) -> InodeId {
        unimplemented!()
    }
    /// Its attributes, unwritten changes of this client included.
    pub fn attributes(&self) -> Result<Attributes> {
        unimplemented!()
    }
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        unimplemented!()
    }
    /// Writes all of `bytes` at `offset`. An error of an earlier write that was under way comes out here, at
    /// [`File::flush`], [`File::sync`] or [`File::close`], once.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        unimplemented!()
    }
    /// Writes out everything and tells the metadata service: other clients that open the file see it.
    pub fn flush(&self) -> Result<()> {
        unimplemented!()
    }
    /// [`File::flush`], and all of it survives power loss.
    pub fn sync(&self) -> Result<()> {
        unimplemented!()
    }
    /// Cuts or extends with zeros.
    pub fn set_length(&self, length: u64) -> Result<()> {
        unimplemented!()
    }
    /// [`File::flush`], then closes.
    pub fn close(self) -> Result<()> {
        unimplemented!()
    }
}
