//! The targets of a node: those of its node.toml, and `targets.toml` beside it, which `vazao target add` writes and the
//! running node reads again when it changes.

use super::disk::disk;
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

    /// Writes it whole or not at all.
    pub(crate) fn save(&self, directory: &Path) -> Outcome {
        let path = TargetsFile::path(directory);
        let text = toml::to_string(self).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        super::files::replace(&path, &text)
    }
}

/// All target directories of a node, with their paths joined: `fixed` of its configuration, and those added since.
pub(crate) fn all(fixed: &[PathBuf], directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut all = fixed.to_vec();
    for target in TargetsFile::load(directory)?.targets {
        let path = directory.join(target);
        if !all.contains(&path) {
            all.push(path);
        }
    }
    Ok(all)
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
}

impl AddedTargets {
    /// `given` are those that the service was started with.
    pub(crate) fn new(directory: &Path, given: Vec<PathBuf>) -> AddedTargets {
        let state = State { version: None, given: given.into_iter().collect() };
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
        let wanted = match all(&[], &self.directory) {
            Ok(wanted) => wanted,
            Err(failure) => {
                error!(problem = failure.message(), "targets.toml is not used");
                return;
            }
        };
        for path in wanted {
            if !state.given.insert(path.clone()) {
                continue;
            }
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

    #[test]
    fn added_targets_follow_those_of_the_configuration_and_none_comes_twice() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(all(&["/a".into()], directory.path()), Ok(vec!["/a".into()]));
        let file = TargetsFile { targets: vec!["/b".into(), "/a".into(), "sub".into()] };
        file.save(directory.path()).expect("saved");
        let expected = vec!["/a".into(), "/b".into(), directory.path().join("sub")];
        assert_eq!(all(&["/a".into()], directory.path()), Ok(expected));
        fs::write(TargetsFile::path(directory.path()), "targts = []\n").expect("written");
        let failure = TargetsFile::load(directory.path()).expect_err("a mistake");
        assert!(failure.message().is_some_and(|m| m.contains("targets.toml")), "{failure:?}");
    }
}
