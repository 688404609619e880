//! The areas of a node: `[[area]]` in its node.toml, and `areas.toml` beside it, which `vazao area` writes and the
//! running node reads again when it changes.

use super::config::AreaSection;
use super::memory::{KnownArea, MemoryFile};
use super::owners;
use crate::failure::{At, Failure, Outcome};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{info, warn};
use vazao_area::{AreaConfig, AreaService};

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
    memory: Arc<MemoryFile>,
    seen: Mutex<Version>,
}

impl Areas {
    pub(crate) fn new(fixed: Vec<AreaSection>, directory: &Path, memory: Arc<MemoryFile>) -> Areas {
        Areas { fixed, directory: directory.to_owned(), memory, seen: Mutex::default() }
    }

    fn version(&self) -> Version {
        let status = fs::metadata(AreasFile::path(&self.directory)).ok()?;
        Some((status.ino(), status.len(), status.mtime(), status.mtime_nsec()))
    }

    /// All areas, as the files have them now.
    pub(crate) fn load(&self) -> Outcome<Vec<AreaConfig>> {
        // Looked at before the contents: a change in between is seen the next time.
        *self.seen.lock() = self.version();
        let mut sections = self.fixed.clone();
        sections.extend(AreasFile::load(&self.directory)?.area);
        let known = self.memory.get().areas;
        let config = |section: AreaSection| {
            let path = self.directory.join(section.path);
            let remembered = known.get(&section.name).filter(|known| known.path == path);
            Ok(AreaConfig {
                mounted_at: section.mounted_at.or_else(|| remembered.map(|known| known.mounted_at.clone())),
                path,
                name: section.name,
                read_only: section.read_only,
                owner: section.owner.as_deref().map(owners::find).transpose()?,
            })
        };
        sections.into_iter().map(config).collect()
    }

    /// Notes where the areas of node.toml are mounted, as far as they can be used; what is noted of one that cannot
    /// be used now stays.
    pub(crate) fn remember(&self, service: &AreaService) {
        let usable: Vec<String> = service
            .areas()
            .into_iter()
            .filter(|area| area.trouble.is_empty())
            .map(|area| area.name)
            .collect();
        let before = self.memory.get().areas;
        let know = |section: &AreaSection| {
            let path = self.directory.join(&section.path);
            let known = before.get(&section.name).filter(|known| known.path == path).cloned();
            if !usable.contains(&section.name) {
                return known;
            }
            let mounted_at = vazao_area::mount_point(&path).ok()?;
            Some(KnownArea { path, mounted_at })
        };
        let areas = self.fixed.iter().filter_map(|section| Some((section.name.clone(), know(section)?)));
        let areas = areas.collect();
        self.memory.keep(|memory| memory.areas = areas);
    }

    /// Gives the service what changed. What makes no sense is logged and changes nothing.
    pub(crate) fn refresh(&self, service: &AreaService) {
        if *self.seen.lock() == self.version() {
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
            mounted_at: None,
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
        let directory = tempfile::tempdir().expect("a temporary directory");
        let memory = Arc::new(MemoryFile::load(directory.path()).expect("empty"));
        let section = AreaSection {
            name: "a".into(),
            path: "sub".into(),
            read_only: false,
            owner: None,
            mounted_at: None,
        };
        let areas = Areas::new(vec![section], Path::new("/etc/vazao"), memory);
        assert_eq!(areas.load().expect("read")[0].path, PathBuf::from("/etc/vazao/sub"));
    }

    #[test]
    fn where_an_area_of_the_configuration_is_mounted_is_remembered() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("sub")).expect("created");
        let memory = || Arc::new(MemoryFile::load(directory.path()).expect("read"));
        let section = AreaSection {
            name: "a".into(),
            path: "sub".into(),
            read_only: false,
            owner: None,
            mounted_at: None,
        };
        let areas = Areas::new(vec![section.clone()], directory.path(), memory());
        let open = |areas: &Areas| {
            let configs = areas.load().expect("read");
            AreaService::open(configs, vazao_area::Options::default(), vazao_meter::clock::system())
        };
        let service = open(&areas).expect("opens");
        areas.remember(&service);
        let known = memory().get().areas["a"].mounted_at.clone();
        assert_eq!(known, vazao_area::mount_point(directory.path()).expect("found"));
        // The disk on which it was is not mounted any more.
        memory().keep(|memory| memory.areas.get_mut("a").expect("known").mounted_at = "/disks/a".into());
        let areas = Areas::new(vec![section], directory.path(), memory());
        let service = open(&areas).expect("opens");
        assert!(service.areas()[0].trouble.contains("/disks/a is not mounted"), "{:?}", service.areas());
        areas.remember(&service);
        assert_eq!(memory().get().areas["a"].mounted_at, Path::new("/disks/a"), "still waited for");
    }
}
