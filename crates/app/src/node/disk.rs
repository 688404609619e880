//! A directory of this machine as a disk of the services.

use crate::failure::{At, Outcome};
use std::path::Path;
use std::sync::Arc;
use vazao_disk::{Disk, RealDisk};
use vazao_store::TargetName;

/// The directory as a disk; it is made where it is not there.
pub(super) fn disk(directory: &Path) -> Outcome<Arc<dyn Disk>> {
    std::fs::create_dir_all(directory).at(directory.display())?;
    Ok(Arc::new(RealDisk::open(directory).at(directory.display())?))
}

/// Which target lies in a directory, without changing anything. `None`: none does, or there is no directory.
pub(super) fn inspect(directory: &Path) -> Result<Option<TargetName>, String> {
    let shown = directory.display().to_string();
    match RealDisk::open(directory) {
        Ok(disk) => vazao_store::inspect(&disk, &shown).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}
