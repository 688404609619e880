//! Before a node's directories are opened: what it had is compared with what is there, and nothing new is made in the
//! place of something that is missing.

use super::config::{NodeConfig, RoleName};
use super::daemon::Settings;
use super::measures::MeasureService;
use super::memory::{Found, MemoryFile, Plan, check_volume, plan};
use super::targets;
use crate::failure::{At, Outcome};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{error, info, warn};
use vazao_disk::{Disk, RealDisk};
use vazao_store::{DataService, MissingTarget, TargetName};

/// The directory as a disk; it is made where it is not there.
pub(super) fn disk(directory: &Path) -> Outcome<Arc<dyn Disk>> {
    std::fs::create_dir_all(directory).at(directory.display())?;
    Ok(Arc::new(RealDisk::open(directory).at(directory.display())?))
}

/// What its data server is opened with, after a look at its target directories: those of the configuration, and those
/// that were added since. Errors: a target is missing.
pub(super) fn data_plan(config: &NodeConfig, settings: &Settings, memory: &MemoryFile) -> Outcome<Plan> {
    let Some(section) = config.data.as_ref().filter(|_| config.has(RoleName::Data)) else {
        return Ok(Plan::default());
    };
    let mut wishes = settings.wishes.clone();
    wishes.without_missing |= section.without_missing;
    let directories = targets::all(&section.targets, &settings.directory)?;
    let found = directories.iter().map(|directory| look(directory)).collect::<Outcome<Vec<Found>>>()?;
    let plan = plan(&memory.get().targets, &found, &wishes);
    let plan = plan.map_err(|failure| failure.about(format!("node {}", config.name)))?;
    for MissingTarget { id, why, .. } in &plan.missing {
        error!(target_id = id, why, "a target is missing; the others are served");
    }
    if !plan.forgotten.is_empty() {
        memory.change(|memory| memory.targets.retain(|known| !plan.forgotten.contains(&known.uuid)))?;
    }
    Ok(plan)
}

/// Looks at a directory and changes nothing.
fn look(directory: &Path) -> Outcome<Found> {
    let directory = std::path::absolute(directory).at(directory.display())?;
    let target = inspect(&directory);
    Ok(Found { directory, target })
}

fn inspect(directory: &Path) -> Result<Option<TargetName>, String> {
    let shown = directory.display().to_string();
    match RealDisk::open(directory) {
        Ok(disk) => vazao_store::inspect(&disk, &shown).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// Refuses to begin a volume in an empty directory where the metadata of one was.
pub(super) fn check_metadata(config: &NodeConfig, settings: &Settings, memory: &MemoryFile) -> Outcome {
    let Some(section) = config.meta.as_ref().filter(|_| config.has(RoleName::Meta)) else { return Ok(()) };
    let is_empty = !section.directory.join("FORMAT").exists();
    check_volume(&memory.get(), &section.directory, is_empty, &settings.wishes)
        .map_err(|failure| failure.about(format!("node {}", config.name)))
}

/// Takes in targets that were missing and are there by now: their disks have been mounted.
pub(super) fn take_back_missing(service: &DataService, measures: &MeasureService) {
    for missing in service.missing_targets() {
        let path = PathBuf::from(&missing.directory);
        if !matches!(inspect(&path), Ok(Some(name)) if name.uuid == missing.uuid) {
            continue;
        }
        let added = disk(&path).map_err(|failure| failure.message().unwrap_or_default().to_owned());
        let added = added.and_then(|disk| {
            let disk = measures.watch(&path, disk);
            service.add_target(disk, &missing.directory).map_err(|error| error.to_string())
        });
        match added {
            Ok(()) => {
                info!(target_id = missing.id, directory = missing.directory, "a missing target is back")
            }
            Err(problem) => {
                warn!(directory = missing.directory, problem, "a missing target is back and unfit")
            }
        }
    }
}
