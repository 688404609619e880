//! The targets of a node: those of its node.toml, and `targets.toml` beside it, which `vazao target add` and `replace`
//! write and the running node reads again when it changes.

use super::disk::{disk, inspect};
use super::measures::MeasureService;
use crate::failure::{At, Failure, Outcome};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tracing::{error, info};
use vazao_store::DataService;

/// `targets.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetsFile {
    /// One directory for each disk.
    #[serde(default)]
    pub(crate) targets: Vec<PathBuf>,
    /// Directories that are none any more, also where node.toml names them: others took their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lost: Vec<PathBuf>,
    /// Which ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaced: Vec<Replaced>,
}

/// A target whose directory took the place of a lost one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replaced {
    /// Its id.
    pub(crate) target: u32,
    /// The directory's number, as its TARGET file has it.
    #[serde(with = "super::memory::hexadecimal")]
    pub(crate) uuid: u128,
    pub(crate) directory: PathBuf,
}

impl Replaced {
    /// Whether it lies in its directory: an empty one there is one whose disk is not mounted, and none to begin.
    fn check(&self) -> Result<(), String> {
        if inspect(&self.directory)?.is_some_and(|name| name.uuid == self.uuid) {
            return Ok(());
        }
        Err(format!(
            "{}: does not hold t{}: mount its disk and start the node again",
            self.directory.display(),
            self.target
        ))
    }
}

impl TargetsFile {
    /// Where it lies: beside the node's configuration.
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join("targets.toml")
    }

    /// Reads it; one that is not there is empty.
    pub(crate) fn load(directory: &Path) -> Outcome<TargetsFile> {
        let path = TargetsFile::path(directory);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| Failure::new(format!("{}: {e}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(TargetsFile::default()),
            Err(error) => Err(error).at(path.display()),
        }
    }

    /// A directory takes the place of `lost`, where that is known. `node`: where node.toml is.
    pub(crate) fn replace(&mut self, node: &Path, lost: Option<&Path>, new: Replaced) {
        let is_new = |path: &PathBuf| is_same(&node.join(path), &new.directory);
        self.lost.retain(|path| !is_new(path));
        if let Some(lost) = lost.filter(|lost| !is_same(lost, &new.directory)) {
            self.targets.retain(|path| !is_same(&node.join(path), lost));
            self.lost.push(lost.to_owned());
        }
        if !self.targets.iter().any(is_new) {
            self.targets.push(new.directory.clone());
        }
        self.replaced.retain(|earlier| earlier.target != new.target);
        self.replaced.push(new);
    }

    /// Writes it whole or not at all.
    pub(crate) fn save(&self, directory: &Path) -> Outcome {
        let path = TargetsFile::path(directory);
        let text = toml::to_string(self).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        super::files::replace(&path, &text)
    }
}

/// All target directories of a node, with their paths joined: `fixed` of its configuration, and those added since.
pub(crate) fn all(fixed: &[PathBuf], directory: &Path) -> Outcome<Vec<PathBuf>> {
    let file = TargetsFile::load(directory)?;
    let mut all: Vec<PathBuf> = Vec::new();
    let added = file.targets.iter().map(|target| directory.join(target));
    for path in fixed.iter().cloned().chain(added) {
        if !all.iter().any(|other| is_same(other, &path))
            && !file.lost.iter().any(|lost| is_same(lost, &path))
        {
            all.push(path);
        }
    }
    Ok(all)
}

/// Whether both are one path, as it is written: what is there may hang.
fn is_same(one: &Path, other: &Path) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    one == other || absolute(one) == absolute(other)
}

/// Gives a running service the targets that are added to the file.
pub(crate) struct AddedTargets {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the file when it was last read: inode, length, time.
    version: Option<(u64, u64, i64, i64)>,
    /// Directories that were given to the service, whether it took them or not.
    given: BTreeSet<PathBuf>,
    /// The numbers of those that took the places of lost ones, and were given to it since.
    replaced: BTreeSet<u128>,
}

impl AddedTargets {
    /// `given` are those that the service was started with.
    pub(crate) fn new(directory: &Path, given: Vec<PathBuf>) -> AddedTargets {
        let state = State { given: given.into_iter().collect(), ..State::default() };
        AddedTargets { directory: directory.to_owned(), state: Mutex::new(state) }
    }

    /// Adds what is new. A directory that cannot be used is logged, once; the others go on.
    pub(crate) fn refresh(&self, service: &DataService, measures: &MeasureService) {
        let mut state = self.state.lock();
        let status = fs::metadata(TargetsFile::path(&self.directory)).ok();
        let version = status.map(|s| (s.ino(), s.len(), s.mtime(), s.mtime_nsec()));
        if version == state.version {
            return;
        }
        state.version = version;
        let read = all(&[], &self.directory).and_then(|all| Ok((all, TargetsFile::load(&self.directory)?)));
        let (wanted, file) = match read {
            Ok(read) => read,
            Err(failure) => {
                error!(problem = failure.message(), "targets.toml is not used");
                return;
            }
        };
        let (served, missing) = (service.served_numbers(), service.missing_targets());
        // One that was missing at the start was said to be, and is taken back as soon as it is there.
        let is_known = |uuid| served.contains(&uuid) || missing.iter().any(|missing| missing.uuid == uuid);
        let mut new = Vec::new();
        for replaced in file.replaced {
            state.given.insert(replaced.directory.clone());
            if !is_known(replaced.uuid) && state.replaced.insert(replaced.uuid) {
                match replaced.check() {
                    Ok(()) => new.push(replaced.directory),
                    Err(problem) => error!(target_id = replaced.target, problem, "a target is missing"),
                }
            }
        }
        new.extend(wanted.into_iter().filter(|path| state.given.insert(path.clone())));
        for path in new {
            let label = path.display().to_string();
            let problem = match disk(&path) {
                Ok(disk) => service
                    .add_target(measures.watch(&path, disk), &label)
                    .err()
                    .map(|error| error.to_string()),
                Err(failure) => failure.message().map(str::to_owned),
            };
            match problem {
                None => info!(directory = label, "a target was added"),
                Some(problem) => error!(directory = label, problem, "the target cannot be used"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(directory: &str, uuid: u128) -> Replaced {
        Replaced { target: 3, uuid, directory: directory.into() }
    }

    /// A lost disk of node.toml that was mounted again would have been opened beside the one in its place.
    #[test]
    fn a_lost_directory_is_none_any_more_until_another_target_is_put_there() {
        let node = tempfile::tempdir().expect("a temporary directory");
        let fixed: [PathBuf; 2] = ["/a".into(), "/b".into()];
        let paths = |file: &TargetsFile| {
            file.save(node.path()).expect("saved");
            let all = all(&fixed, node.path()).expect("read");
            all.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let mut file = TargetsFile::default();
        file.replace(node.path(), Some(Path::new("/a")), at("/c", 1));
        assert_eq!(paths(&file), ["/b", "/c"]);
        file.replace(node.path(), Some(Path::new("/c")), at("/d", 2));
        assert_eq!(paths(&file), ["/b", "/d"]);
        assert_eq!((file.replaced.len(), file.lost.len()), (1, 2));
        file.replace(node.path(), Some(Path::new("/d")), at("/a", 3));
        assert_eq!(paths(&file), ["/a", "/b"], "an empty disk where the first one was");
        let before = file.clone();
        file.replace(node.path(), Some(Path::new("/a")), at("/a", 4));
        assert_eq!(paths(&file), ["/a", "/b"], "at the same path");
        assert_eq!((file.lost, file.replaced), (before.lost, vec![at("/a", 4)]));
    }

    /// A node that was started without a target whose disk was not mounted began another one in its mount point.
    #[test]
    fn a_directory_without_its_target_is_not_begun_anew() {
        let node = tempfile::tempdir().expect("a temporary directory");
        let clock = vazao_meter::clock::system();
        let open = |name: &str| {
            let (directory, options) = (node.path().join(name), vazao_store::Options::default());
            let disk = disk(&directory).expect("made");
            DataService::open(vec![(disk, name.to_owned())], options, clock.clone()).expect("opens")
        };
        let (service, measures) = (open("served"), MeasureService::new("n1", &clock));
        let directory = node.path().join("mounted");
        // What is served once the file says that this target lies there, in a node that starts.
        let served_with = |uuid: u128| {
            let mut file = TargetsFile::default();
            file.replace(node.path(), None, Replaced { target: 3, uuid, directory: directory.clone() });
            file.save(node.path()).expect("saved");
            AddedTargets::new(node.path(), vec![directory.clone()]).refresh(&service, &measures);
            service.served_numbers().len()
        };
        fs::create_dir(&directory).expect("made");
        assert_eq!(served_with(7), 1);
        assert_eq!(fs::read_dir(&directory).expect("readable").count(), 0, "nothing was made in it");
        fs::remove_dir(&directory).expect("removed");
        assert_eq!(served_with(7), 1);
        assert!(!directory.exists(), "nor was the directory");
        let uuid = open("mounted").served_numbers()[0];
        assert_eq!(served_with(7), 1, "another target is there");
        assert_eq!(served_with(uuid), 2, "its disk is mounted");
    }

    #[test]
    fn added_targets_follow_those_of_the_configuration_and_none_comes_twice() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(all(&["/a".into()], directory.path()), Ok(vec!["/a".into()]));
        let targets = vec!["/b".into(), "/a".into(), "sub".into()];
        let file = TargetsFile { targets, ..TargetsFile::default() };
        file.save(directory.path()).expect("saved");
        let expected = vec!["/a".into(), "/b".into(), directory.path().join("sub")];
        assert_eq!(all(&["/a".into()], directory.path()), Ok(expected));
        fs::write(TargetsFile::path(directory.path()), "targts = []\n").expect("written");
        let failure = TargetsFile::load(directory.path()).expect_err("a mistake");
        assert!(failure.message().is_some_and(|m| m.contains("targets.toml")), "{failure:?}");
    }
}
