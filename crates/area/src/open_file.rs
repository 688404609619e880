//! An open file of an area. Closing it may wait for its file system, so that the area's own threads do it.

use crate::area::Area;
use rustix::fd::OwnedFd;
use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;

/// A file of an area; its last user may be any thread.
pub struct AreaFile {
    file: Option<File>,
    area: Arc<Area>,
}

impl AreaFile {
    pub(crate) fn new(file: OwnedFd, area: Arc<Area>) -> AreaFile {
        AreaFile { file: Some(File::from(file)), area }
    }
}

impl std::fmt::Debug for AreaFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AreaFile in {}", self.area.name)
    }
}

impl Deref for AreaFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for AreaFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.area.discard(file.into());
        }
    }
}
