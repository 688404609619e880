//! Before a node's directories are opened: what it had is compared with what is there, and nothing new is made in the
//! place of something that is missing.

use super::config::{NodeConfig, RoleName};
use super::disk::{disk, inspect};
use super::files::Lock;
use super::measures::MeasureService;
use super::memory::{Found, MemoryFile, Plan, check_volume, plan};
use super::settings::Settings;
use super::targets;
use crate::failure::{At, Failure, Outcome};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tracing::{error, info, warn};
use vazao_model::limits::TARGET_HANGS_MS;
use vazao_store::{DataService, MissingTarget};

/// Has no other process run this node. Errors: one does.
pub(super) fn lock(settings: &Settings) -> Outcome<Lock> {
    let path = settings.state.join("lock");
    Lock::take(&path)?.ok_or_else(|| Failure::new(format!("{}: this node already runs", path.display())))
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
    let found = look_at_all(&directories)?;
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

/// Looks at directories and changes nothing. One whose disk hangs is found unfit.
pub(crate) fn look_at_all(directories: &[PathBuf]) -> Outcome<Vec<Found>> {
    let mut looks = Vec::new();
    for directory in directories {
        let directory = std::path::absolute(directory).at(directory.display())?;
        let (found, look) = channel();
        let looked_at = directory.clone();
        let begin = move || drop(found.send(inspect(&looked_at)));
        thread::Builder::new().name("look".to_owned()).spawn(begin).at("starting a thread")?;
        looks.push((directory, look));
    }
    let clock = vazao_meter::clock::system();
    let until_ns = clock.now_ns() + u64::from(TARGET_HANGS_MS) * 1_000_000;
    let found = looks.into_iter().map(|(directory, look)| {
        let left = Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()));
        let hangs = |_| {
            let shown = directory.display();
            Err(format!(
                "{shown}: its disk has not answered for {} s; see what lies beneath it (mount, dmesg)",
                TARGET_HANGS_MS / 1000
            ))
        };
        let target = look.recv_timeout(left).unwrap_or_else(hangs);
        Found { directory, target }
    });
    Ok(found.collect())
}

/// Refuses to begin a volume in an empty directory where the metadata of one was.
pub(super) fn check_metadata(config: &NodeConfig, settings: &Settings, memory: &MemoryFile) -> Outcome {
    let Some(section) = config.meta.as_ref().filter(|_| config.has(RoleName::Meta)) else { return Ok(()) };
    let is_empty = !section.directory.join("FORMAT").exists();
    check_volume(&memory.get(), &section.directory, is_empty, &settings.wishes)
        .map_err(|failure| failure.about(format!("node {}", config.name)))
}

/// Targets that were missing and are looked for.
#[derive(Default)]
pub(super) struct Missing {
    /// Those whose directories are being looked at: a disk that hangs holds up that look, and no other.
    looked_at: Arc<Mutex<BTreeSet<u128>>>,
}

impl Missing {
    /// Takes in targets that are there by now: their disks have been mounted.
    pub(super) fn take_back(&self, service: &Arc<DataService>, measures: &Arc<MeasureService>) {
        for missing in service.missing_targets() {
            let looked_at = Arc::clone(&self.looked_at);
            if !looked_at.lock().insert(missing.uuid) {
                continue;
            }
            let (service, measures, uuid) = (Arc::clone(service), Arc::clone(measures), missing.uuid);
            let look = move || {
                take_back(&missing, &service, &measures);
                looked_at.lock().remove(&uuid);
            };
            if let Err(error) = thread::Builder::new().name("missing".to_owned()).spawn(look) {
                warn!(%error, "no thread to look for a missing target");
                self.looked_at.lock().remove(&uuid);
            }
        }
    }
}

fn take_back(missing: &MissingTarget, service: &DataService, measures: &MeasureService) {
    let path = PathBuf::from(&missing.directory);
    if !matches!(inspect(&path), Ok(Some(name)) if name.uuid == missing.uuid) {
        return;
    }
    let added = disk(&path).map_err(|failure| failure.message().unwrap_or_default().to_owned());
    let added = added.and_then(|disk| {
        let disk = measures.watch(&path, disk);
        service.add_target(disk, &missing.directory).map_err(|error| error.to_string())
    });
    match added {
        Ok(()) => info!(target_id = missing.id, directory = missing.directory, "a missing target is back"),
        Err(problem) => warn!(directory = missing.directory, problem, "a missing target is back and unfit"),
    }
}
