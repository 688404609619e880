//! What a node remembers of itself, in `member.json` among its state: its id, the targets it had, the volume whose
//! metadata it served, and where the file systems of its areas were mounted. A disk that is not mounted leaves an empty
//! directory; without this file that would pass for a new one.

use super::files;
use crate::failure::{Failure, Outcome};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;
use vazao_store::{MissingTarget, TargetName};

/// What is remembered.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    /// The cluster it is a member of; 0: none yet.
    pub(crate) cluster_id: u64,
    /// Its id there; 0: none yet.
    pub(crate) node: u32,
    /// The cluster whose metadata it has served; 0: none.
    #[serde(skip_serializing_if = "is_none")]
    pub(crate) volume: u64,
    /// Its targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) targets: Vec<KnownTarget>,
    /// Areas of its node.toml, and where their file systems were mounted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) areas: BTreeMap<String, KnownArea>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_none(id: &u64) -> bool {
    *id == 0
}

/// A target that the node had when it last registered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KnownTarget {
    pub(crate) id: u32,
    /// In hexadecimal digits, as in its TARGET file.
    #[serde(with = "hexadecimal")]
    pub(crate) uuid: u128,
    pub(crate) directory: PathBuf,
}

/// An area that could be exported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KnownArea {
    pub(crate) path: PathBuf,
    pub(crate) mounted_at: PathBuf,
}

pub(super) mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{number:032x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

/// The file and what is in it.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    path: PathBuf,
    memory: Mutex<Memory>,
    /// False after a failure: the file has something older.
    is_written: AtomicBool,
}

impl MemoryFile {
    /// Reads it; one that is not there is empty. Errors: it cannot be read, or makes no sense.
    pub(crate) fn load(directory: &Path) -> Outcome<MemoryFile> {
        let path = directory.join(super::state::MEMORY);
        let shown = path.display();
        let memory = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| {
                Failure::new(format!(
                    "{shown}: {e}; it says which targets this node had: restore it, or remove it once all disks are mounted"
                ))
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Memory::default(),
            Err(error) => return Err(Failure::new(format!("{shown}: {error}"))),
        };
        Ok(MemoryFile { path, memory: Mutex::new(memory), is_written: AtomicBool::new(true) })
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// What it says now.
    pub(crate) fn get(&self) -> Memory {
        self.lock().clone()
    }

    /// Changes it, durably. Errors: it cannot be written; the node goes on with what it knows, and the next change
    /// tries again.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Memory)) -> Outcome {
        let mut memory = self.lock();
        let before = memory.clone();
        change(&mut memory);
        if *memory == before && self.is_written.load(Ordering::SeqCst) {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(&*memory).unwrap_or_default();
        let written = files::replace(&self.path, &format!("{text}\n"));
        self.is_written.store(written.is_ok(), Ordering::SeqCst);
        written
    }

    /// The same where a failure is no reason to stop.
    pub(crate) fn keep(&self, change: impl FnOnce(&mut Memory)) {
        if let Err(failure) = self.change(change) {
            let problem = failure.message().unwrap_or_default().to_owned();
            warn!(problem, "what this node has could not be noted");
        }
    }
}

/// What an operator has said when the node was started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wishes {
    /// Targets that were in these directories are gone for good; new ones take their places.
    pub(crate) new_targets: Vec<PathBuf>,
    /// Targets that are missing are no reason not to serve the others.
    pub(crate) without_missing: bool,
    /// A new volume may begin where the metadata of another one was.
    pub(crate) new_volume: bool,
}

/// A directory of the node's configuration, and what is in it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) directory: PathBuf,
    /// `None`: no target. Errors: why that cannot be told.
    pub(crate) target: Result<Option<TargetName>, String>,
}

/// What a data server is opened with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plan {
    /// Directories that are targets, or become some.
    pub(crate) open: Vec<PathBuf>,
    /// Of these: those that an option named as new.
    pub(crate) meant: Vec<String>,
    /// Targets that it does without.
    pub(crate) missing: Vec<MissingTarget>,
    /// Targets that are not expected any more.
    pub(crate) forgotten: Vec<u128>,
}

impl Plan {
    /// All directories that the plan covers.
    pub(crate) fn given(&self) -> Vec<PathBuf> {
        let missing = self.missing.iter().map(|missing| PathBuf::from(&missing.directory));
        self.open.iter().cloned().chain(missing).collect()
    }
}

/// Compares what the node had with what is there. Errors: a target is missing, and no option says what to do about it.
pub(crate) fn plan(known: &[KnownTarget], found: &[Found], wishes: &Wishes) -> Outcome<Plan> {
    check_wishes(known, found, wishes)?;
    let is_new = |directory: &Path| wishes.new_targets.iter().any(|new| new == directory);
    let names = || found.iter().filter_map(|found| found.target.as_ref().ok()?.as_ref());
    let is_there = |known: &KnownTarget| {
        let replaces = |name: &TargetName| name.id == known.id && name.replaces == known.uuid;
        names().any(|name| name.uuid == known.uuid || replaces(name))
    };
    let is_replaced = |name: &TargetName| names().any(|it| it.id == name.id && it.replaces == name.uuid);
    let mut plan = Plan::default();
    for known in known.iter().filter(|known| !is_there(known)) {
        if is_new(&known.directory) {
            plan.forgotten.push(known.uuid);
        } else {
            plan.missing.push(missing(known, found));
        }
    }
    if !plan.missing.is_empty() && !wishes.without_missing {
        return Err(Failure::new(why_refused(&plan.missing)));
    }
    for Found { directory, target } in found {
        let shown = directory.display().to_string();
        let is_place_of_missing = plan.missing.iter().any(|missing| missing.directory == shown);
        match target {
            Ok(Some(name)) if is_replaced(name) => {
                return Err(Failure::new(format!(
                    "{shown}: holds what was target t{} before another directory took its place, and is not served any \
                     more: take it out of the configuration",
                    name.id
                )));
            }
            // Its number is that of a missing one, but it is none of this node any more.
            Ok(Some(name)) if plan.missing.iter().any(|it| it.id == name.id) => continue,
            Ok(Some(_)) => plan.open.push(directory.clone()),
            _ if is_place_of_missing => continue,
            Err(why) => return Err(Failure::new(why.clone())),
            Ok(None) if plan.missing.is_empty() || is_new(directory) => plan.open.push(directory.clone()),
            Ok(None) => {
                return Err(Failure::new(format!(
                    "{shown}: holds no target, and others are missing: mount its disk, or say that it is new with \
                     --new-target {shown}"
                )));
            }
        }
        if is_new(directory) {
            plan.meant.push(shown);
        }
    }
    Ok(plan)
}

/// An option that is left in a unit file must not throw away the target that it has made.
fn check_wishes(known: &[KnownTarget], found: &[Found], wishes: &Wishes) -> Outcome {
    for wish in &wishes.new_targets {
        let shown = wish.display();
        let Some(found) = found.iter().find(|found| found.directory == *wish) else {
            return Err(Failure::usage(format!(
                "--new-target {shown}: no target directory of this node; name it as its configuration does"
            )));
        };
        let is_known = |name: &TargetName| known.iter().any(|known| known.uuid == name.uuid);
        if let Ok(Some(name)) = found.target.as_ref()
            && is_known(name)
        {
            return Err(Failure::usage(format!(
                "--new-target {shown}: target t{} is there, and is not replaced; leave the option out",
                name.id
            )));
        }
    }
    Ok(())
}

/// A target that is not in any of the node's directories.
fn missing(known: &KnownTarget, found: &[Found]) -> MissingTarget {
    let shown = known.directory.display();
    let here = found.iter().find(|found| found.directory == known.directory);
    let why = match here.map(|here| &here.target) {
        None => {
            format!("{shown} is no target directory of its node any more: put it back into the configuration")
        }
        Some(Ok(None)) => format!("{shown} holds no target: is its disk mounted?"),
        Some(Ok(Some(other))) if other.id == 0 => {
            format!("{shown} holds a target that has never joined a cluster: is its disk mounted?")
        }
        Some(Ok(Some(other))) if other.id == known.id => {
            let (id, cluster) = (other.id, other.cluster_id);
            format!(
                "{shown} holds another directory of t{id} than the node had, which belongs to cluster {cluster:016x}: is \
                 the right disk mounted?"
            )
        }
        Some(Ok(Some(other))) => {
            let (id, cluster) = (other.id, other.cluster_id);
            format!(
                "{shown} holds target t{id}, which belongs to cluster {cluster:016x}: is the right disk mounted?"
            )
        }
        Some(Err(why)) => why.clone(),
    };
    MissingTarget { id: known.id, uuid: known.uuid, directory: shown.to_string(), why }
}

fn why_refused(missing: &[MissingTarget]) -> String {
    let each = missing.iter().map(|missing| format!("target t{} is missing: {}", missing.id, missing.why));
    let directory = &missing[0].directory;
    format!(
        "{} Mount it and start again; to serve the other targets meanwhile, add --without-missing; if it is gone for \
         good, `vazao target replace t{} DIR` makes its copies again in an empty directory, and --new-target {directory} \
         begins a new target there",
        each.collect::<Vec<_>>().join("; "),
        missing[0].id
    )
}

/// Refuses to begin a volume where the metadata of one was. `is_empty`: the directory holds none.
pub(crate) fn check_volume(memory: &Memory, directory: &Path, is_empty: bool, wishes: &Wishes) -> Outcome {
    let shown = directory.display();
    if memory.volume == 0 || !is_empty || wishes.new_volume {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{shown} holds no metadata, and this node has served that of cluster {:016x}: is its disk mounted? Mount it, or \
         restore the directory from a backup; to begin a new, empty volume add --new-volume",
        memory.volume
    )))
}

/// Refuses the metadata of another volume than before.
pub(crate) fn check_cluster(memory: &Memory, directory: &Path, found: u64, wishes: &Wishes) -> Outcome {
    let shown = directory.display();
    if memory.volume == 0 || memory.volume == found || wishes.new_volume {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{shown} holds the metadata of cluster {found:016x}, and this node has served that of {:016x}: is the right disk \
         mounted? If that is meant, add --new-volume",
        memory.volume
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(id: u32) -> KnownTarget {
        KnownTarget { id, uuid: u128::from(id), directory: PathBuf::from(format!("/disk{id}")) }
    }

    fn name(id: u32) -> TargetName {
        TargetName { uuid: u128::from(id), cluster_id: 7, id, replaces: 0 }
    }

    fn found(disk: u32, target: Option<u32>) -> Found {
        Found { directory: PathBuf::from(format!("/disk{disk}")), target: Ok(target.map(name)) }
    }

    fn message(outcome: Outcome<Plan>) -> String {
        outcome.expect_err("refused").message().expect("has a message").to_owned()
    }

    fn new_targets(disks: &[u32]) -> Wishes {
        let new_targets = disks.iter().map(|disk| PathBuf::from(format!("/disk{disk}"))).collect();
        Wishes { new_targets, ..Wishes::default() }
    }

    #[test]
    fn a_fresh_node_and_one_with_a_further_disk_start_without_ceremony() {
        let fresh = plan(&[], &[found(1, None), found(2, None)], &Wishes::default()).expect("starts");
        assert_eq!((fresh.open.len(), fresh.missing.len()), (2, 0));
        let grown = plan(&[known(1)], &[found(1, Some(1)), found(2, None)], &Wishes::default());
        assert_eq!(grown.expect("starts").open.len(), 2);
    }

    /// An unmounted disk left an empty directory, which silently became a new target.
    #[test]
    fn a_node_does_not_start_without_a_target_that_it_had() {
        let there = [found(1, Some(1)), found(2, None)];
        let refused = message(plan(&[known(1), known(2)], &there, &Wishes::default()));
        for words in ["t2 is missing: /disk2 holds no target", "--without-missing", "--new-target /disk2"] {
            assert!(refused.contains(words), "{refused}");
        }
        let swapped =
            message(plan(&[known(1), known(2)], &[found(1, Some(1)), found(2, Some(9))], &Wishes::default()));
        assert!(swapped.contains("holds target t9"), "{swapped}");
        let gone = message(plan(&[known(1), known(2)], &[found(1, Some(1))], &Wishes::default()));
        assert!(gone.contains("no target directory of its node any more"), "{gone}");
    }

    #[test]
    fn disks_that_change_places_are_found_where_they_are() {
        let there = [found(1, Some(2)), found(2, Some(1))];
        let plan = plan(&[known(1), known(2)], &there, &Wishes::default()).expect("starts");
        assert_eq!((plan.open.len(), plan.missing), (2, vec![]));
    }

    #[test]
    fn the_others_are_served_without_a_missing_one_and_nothing_is_made_in_its_place() {
        let wishes = Wishes { without_missing: true, ..Wishes::default() };
        let there = [found(1, Some(1)), found(2, None)];
        let plan = super::plan(&[known(1), known(2)], &there, &wishes).expect("starts");
        assert_eq!(plan.open, [PathBuf::from("/disk1")]);
        assert_eq!((plan.missing[0].id, plan.missing[0].directory.as_str()), (2, "/disk2"));
        let unreadable = Found { target: Err("/disk2: Input/output error".to_owned()), ..found(2, None) };
        let plan =
            super::plan(&[known(1), known(2)], &[found(1, Some(1)), unreadable], &wishes).expect("starts");
        assert!(plan.missing[0].why.contains("Input/output error"), "{plan:?}");
        let third = [found(1, Some(1)), found(2, None), found(3, None)];
        assert!(message(super::plan(&[known(1), known(2)], &third, &wishes)).contains("--new-target /disk3"));
        let wishes = Wishes { without_missing: true, ..new_targets(&[3]) };
        let plan = super::plan(&[known(1), known(2)], &third, &wishes).expect("starts");
        assert_eq!((plan.open.len(), plan.meant, plan.missing.len()), (2, vec!["/disk3".to_owned()], 1));
    }

    #[test]
    fn a_new_target_takes_the_place_of_one_that_is_gone_for_good_and_never_of_one_that_is_there() {
        let there = [found(1, Some(1)), found(2, None)];
        let plan = super::plan(&[known(1), known(2)], &there, &new_targets(&[2])).expect("starts");
        assert_eq!((plan.open.len(), plan.meant, plan.forgotten), (2, vec!["/disk2".to_owned()], vec![2]));
        assert!(
            message(super::plan(&[known(1), known(2)], &there, &new_targets(&[1]))).contains("t1 is there")
        );
        assert!(
            message(super::plan(&[known(1)], &there, &new_targets(&[7]))).contains("no target directory")
        );
    }

    /// The node called the target missing and reported the one in its place as well: both have its number.
    #[test]
    fn a_replacement_stands_for_the_one_that_is_remembered_and_that_one_is_never_opened_beside_it() {
        let replaces = |disk: u32, uuid: u128| Found {
            target: Ok(Some(TargetName { uuid, replaces: 2, ..name(2) })),
            ..found(disk, None)
        };
        let knows = [known(1), known(2)];
        let fine = Wishes::default();
        let plan = |known: &[KnownTarget], found: &[Found], wishes| super::plan(known, found, wishes);
        let there = plan(&knows, &[found(1, Some(1)), replaces(3, 77)], &fine).expect("starts");
        assert_eq!((there.open.len(), there.missing.len()), (2, 0));
        let both = [found(1, Some(1)), found(2, Some(2)), replaces(3, 77)];
        let said = message(plan(&knows, &both, &fine));
        assert!(said.contains("/disk2: holds what was target t2") && said.contains("take it out"), "{said}");
        // It has registered since; then the lost disk is mounted in its place.
        let knows = [known(1), KnownTarget { uuid: 77, directory: "/disk3".into(), ..known(2) }];
        assert!(plan(&knows, &[found(1, Some(1)), replaces(3, 77)], &fine).is_ok());
        let back = [found(1, Some(1)), Found { target: Ok(Some(name(2))), ..found(3, None) }];
        let said = message(plan(&knows, &back, &fine));
        assert!(said.contains("t2 is missing: /disk3 holds another directory of t2"), "{said}");
        let wishes = Wishes { without_missing: true, ..Wishes::default() };
        let plan = plan(&knows, &back, &wishes).expect("the other one is served");
        assert_eq!((plan.open, plan.missing.len()), (vec![PathBuf::from("/disk1")], 1));
    }

    #[test]
    fn a_volume_is_not_begun_where_another_one_was() {
        let memory = Memory { volume: 7, ..Memory::default() };
        let at = Path::new("/ssd");
        let fine = Wishes::default();
        assert!(check_volume(&Memory::default(), at, true, &fine).is_ok(), "the first start");
        assert!(check_volume(&memory, at, false, &fine).is_ok());
        let refused = check_volume(&memory, at, true, &fine).expect_err("refused");
        assert!(
            refused
                .message()
                .is_some_and(|m| m.contains("is its disk mounted") && m.contains("--new-volume"))
        );
        assert!(
            check_cluster(&memory, at, 7, &fine).is_ok() && check_cluster(&memory, at, 8, &fine).is_err()
        );
        let meant = Wishes { new_volume: true, ..Wishes::default() };
        assert!(
            check_volume(&memory, at, true, &meant).is_ok() && check_cluster(&memory, at, 8, &meant).is_ok()
        );
    }

    #[test]
    fn what_is_kept_is_read_again_and_what_older_versions_kept_too() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = MemoryFile::load(directory.path()).expect("empty");
        file.change(|memory| {
            memory.targets.push(KnownTarget { uuid: u128::MAX - 1, ..known(3) });
            memory.cluster_id = u64::MAX;
        })
        .expect("saved");
        assert_eq!(MemoryFile::load(directory.path()).expect("read").get(), file.get());
        let path = directory.path().join("member.json");
        fs::write(&path, "{\"cluster_id\":5,\"node\":3}\n").expect("written");
        let old = MemoryFile::load(directory.path()).expect("read").get();
        assert_eq!((old.cluster_id, old.node, old.targets), (5, 3, vec![]));
        fs::write(&path, "{").expect("written");
        assert!(MemoryFile::load(directory.path()).is_err(), "it is not taken for an empty one");
    }
}
