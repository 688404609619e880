//! An open file as C holds it.

use crate::connection::Connection;
use rustix::fs::OFlags;
use vazao_client::{Error, Result};
use vazao_model::Code;

/// An open file of the volume, or of an area of a node. Usable from any number of threads.
pub struct File {
    pub(crate) handle: vazao_handles::File,
}

impl File {
    /// Opens the file at a path as open(2) would.
    pub(crate) fn open(connection: &Connection, path: &[u8], flags: i32, permissions: u32) -> Result<File> {
        let flags = OFlags::from_bits_retain(flags as u32);
        if flags.contains(OFlags::APPEND) {
            let why = "O_APPEND is not a mode of opening here; write with vazao_append()";
            return Err(Error::new(Code::Invalid, why));
        }
        let handle = vazao_handles::File::open(connection.shared(), path, flags, permissions)?;
        Ok(File { handle })
    }
}
