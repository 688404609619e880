//! The areas of a node: `[[area]]` in its node.toml, and `areas.toml` beside it, which `vazao area` writes and the
//! running node reads again when it changes.

use super::owners;
use crate::failure::{At, Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tracing::{info, warn};
use vazao_area::{AreaConfig, AreaService};

/// One `[[area]]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AreaSection {
    /// Its name in `NODE:/NAME/path`.
    pub(crate) name: String,
    /// The directory.
    pub(crate) path: PathBuf,
    /// Nothing in it can be changed through the node.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// `USER[:GROUP]`, whose files are that are made in it; names of this machine's /etc/passwd, or numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
}

/// `areas.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AreasFile {
    #[serde(default)]
    pub(crate) area: Vec<AreaSection>,
}

impl AreasFile {
    /// Where it lies: beside the node's configuration.
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join("areas.toml")
    }

    /// Reads it; one that is not there is empty.
    pub(crate) fn load(directory: &Path) -> Outcome<AreasFile> {
        let path = AreasFile::path(directory);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| Failure::new(format!("{}: {e}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(AreasFile::default()),
            Err(error) => Err(error).at(path.display()),
        }
    }

    /// Writes it whole or not at all.
    pub(crate) fn save(&self, directory: &Path) -> Outcome {
        let path = AreasFile::path(directory);
        let text = toml::to_string(self).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        super::files::replace(&path, &text)
    }
}

/// What tells one version of the file from the next.
type Version = Option<(u64, u64, i64, i64)>;

/// Keeps a service to what the files say.
pub(crate) struct Areas {
    /// From node.toml, with its paths joined.
    fixed: Vec<AreaSection>,
    directory: PathBuf,
    seen: Mutex<Version>,
}

impl Areas {
    pub(crate) fn new(fixed: Vec<AreaSection>, directory: &Path) -> Areas {
        Areas { fixed, directory: directory.to_owned(), seen: Mutex::default() }
    }

    fn version(&self) -> Version {
        let status = fs::metadata(AreasFile::path(&self.directory)).ok()?;
        Some((status.ino(), status.len(), status.mtime(), status.mtime_nsec()))
    }

    /// All areas, as the files have them now.
    pub(crate) fn load(&self) -> Outcome<Vec<AreaConfig>> {
        // Looked at before the contents: a change in between is seen the next time.
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = self.version();
        let mut sections = self.fixed.clone();
        sections.extend(AreasFile::load(&self.directory)?.area);
        let config = |section: AreaSection| {
            Ok(AreaConfig {
                path: self.directory.join(section.path),
                name: section.name,
                read_only: section.read_only,
                owner: section.owner.as_deref().map(owners::find).transpose()?,
            })
        };
        sections.into_iter().map(config).collect()
    }

    /// Gives the service what changed. What makes no sense is logged and changes nothing.
    pub(crate) fn refresh(&self, service: &AreaService) {
        if *self.seen.lock().unwrap_or_else(PoisonError::into_inner) == self.version() {
            return;
        }
        let loaded = self.load().map_err(|failure| failure.message().unwrap_or_default().to_owned());
        match loaded.and_then(|areas| service.set_areas(areas)) {
            Ok(()) => info!("the areas have changed"),
            Err(problem) => warn!(problem, "areas.toml is not used; the areas stay as they were"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_a_missing_file_is_empty() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(AreasFile::load(directory.path()), Ok(AreasFile::default()));
        let section = |name: &str| AreaSection {
            name: name.into(),
            path: "/srv/é".into(),
            read_only: true,
            owner: None,
        };
        let file = AreasFile { area: vec![section("a"), section("b")] };
        file.save(directory.path()).expect("saved");
        assert_eq!(AreasFile::load(directory.path()), Ok(file));
        fs::write(AreasFile::path(directory.path()), "[[area]]\nnam = 1\n").expect("written");
        let failure = AreasFile::load(directory.path()).expect_err("a mistake");
        assert!(failure.message().is_some_and(|m| m.contains("areas.toml")), "{failure:?}");
    }

    #[test]
    fn relative_paths_start_at_the_file() {
        let areas = Areas::new(
            vec![AreaSection { name: "a".into(), path: "sub".into(), read_only: false, owner: None }],
            Path::new("/etc/vazao"),
        );
        assert_eq!(areas.load().expect("read")[0].path, PathBuf::from("/etc/vazao/sub"));
    }
}
