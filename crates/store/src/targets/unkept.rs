//! Why a small record of a target (STATE, INCARNATION) could not be kept. The two cases condemn the disk differently.

use std::io;

/// What failed.
#[derive(Debug)]
pub(crate) enum Unkept {
    /// It was not written whole: the record before it still counts, and nothing that was answered is lost.
    Write(io::Error),
    /// It was written, and the disk failed to make it durable.
    Sync(io::Error),
}

/// EMFILE and ENFILE.
const OUT_OF_DESCRIPTORS: [i32; 2] = [24, 23];

/// True when there was no descriptor to open a file with, which says nothing about the disk.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|e| OUT_OF_DESCRIPTORS.contains(&e))
}
