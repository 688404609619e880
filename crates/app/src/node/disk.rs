//! A directory of this machine as a disk of the services.

use crate::failure::{At, Outcome};
use std::path::Path;
use std::sync::Arc;
use vazao_disk::{Disk, RealDisk};

/// The directory as a disk; it is made where it is not there.
pub(super) fn disk(directory: &Path) -> Outcome<Arc<dyn Disk>> {
    std::fs::create_dir_all(directory).at(directory.display())?;
    Ok(Arc::new(RealDisk::open(directory).at(directory.display())?))
}
