//! The areas of this node: which directories, under which names.

use crate::area::{Area, Surroundings};
use crate::owner::Owner;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use vazao_model::Code;
use vazao_model::limits::{AREA_NAME_BYTES_MAX, NODE_AREAS_MAX};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Directories that take longer to open than this are opened in the background.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// A directory that is to be exported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AreaConfig {
    /// Its name in references: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Where it lies on this machine.
    pub path: PathBuf,
    /// Nothing in it can be changed.
    pub read_only: bool,
    /// Whose files are that are made in it; `None`: the daemon's user's.
    pub owner: Option<Owner>,
    /// Where the file system is mounted that it lies on; `None`: wherever. With that not mounted there is another
    /// directory in its place, as a rule an empty one.
    pub mounted_at: Option<PathBuf>,
}

impl AreaConfig {
    /// Whether an area that is open stays as it is.
    fn is_as(&self, other: &AreaConfig) -> bool {
        let of =
            |config: &AreaConfig| (config.name.clone(), config.path.clone(), config.read_only, config.owner);
        of(self) == of(other)
    }
}

/// Where the file system is mounted that a directory lies on.
pub fn mount_point(directory: &Path) -> io::Result<PathBuf> {
    let mut place = std::fs::canonicalize(directory)?;
    while !is_mount_point(&place)? && place.pop() {}
    Ok(place)
}

/// The kernel says so since Linux 5.8; before, another device than the parent's says it of most.
fn is_mount_point(place: &Path) -> io::Result<bool> {
    let look = |path: &Path| statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
    let here = look(place)?;
    let mount_root = StatxAttributes::MOUNT_ROOT;
    if here.stx_attributes_mask.contains(mount_root) {
        return Ok(here.stx_attributes.contains(mount_root));
    }
    let Some(parent) = place.parent() else { return Ok(true) };
    let above = look(parent)?;
    Ok((here.stx_dev_major, here.stx_dev_minor) != (above.stx_dev_major, above.stx_dev_minor))
}

/// Refuses a name that a reference could not carry. The error says what a name may look like.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if starts && name.len() <= AREA_NAME_BYTES_MAX && name.bytes().all(fits) {
        return Ok(());
    }
    Err(format!(
        "area name {name:?}: 1 to {AREA_NAME_BYTES_MAX} letters, digits, '-', '_' and '.', the first a letter or digit"
    ))
}

/// Refuses areas that cannot stand beside one another.
pub(crate) fn check(configs: &[AreaConfig]) -> Result<(), String> {
    if configs.len() > NODE_AREAS_MAX {
        return Err(format!("{} areas; a node has at most {NODE_AREAS_MAX}", configs.len()));
    }
    for (index, config) in configs.iter().enumerate() {
        check_name(&config.name)?;
        if configs[..index].iter().any(|other| other.name == config.name) {
            return Err(format!("two areas are called {:?}; give each its own name", config.name));
        }
    }
    Ok(())
}

/// An area of the configuration, usable or not.
#[derive(Clone, Debug)]
struct Export {
    config: AreaConfig,
    area: Arc<Area>,
}

/// All areas of the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exports {
    all: Vec<Export>,
}

impl Exports {
    /// The areas of a new configuration. Those that stay as they were stay open. New ones are opened by threads of
    /// their own; of those that take long the outcome is not waited for.
    pub(crate) fn of(configs: Vec<AreaConfig>, before: &Exports, around: &Surroundings) -> Exports {
        let stays = |export: &Export, config: &AreaConfig| match export.area.is_usable() {
            true => export.config.is_as(config),
            false => export.config == *config,
        };
        let same = |config: &AreaConfig| before.all.iter().find(|export| stays(export, config));
        let (begun, ended) = channel();
        let export = |config: AreaConfig| {
            let area = match same(&config) {
                Some(export) => Arc::clone(&export.area),
                None => Arc::new(Area::new(&config, around)),
            };
            area.begin_opening(&around.disks, Some(begun.clone()));
            Export { config, area }
        };
        let all: Vec<Export> = configs.into_iter().map(export).collect();
        drop(begun);
        // Over at once when all have been opened, or cannot be.
        let _ = ended.recv_timeout(OPEN_TIMEOUT);
        Exports { all }
    }

    /// All of them.
    pub(crate) fn areas(&self) -> impl Iterator<Item = &Arc<Area>> {
        self.all.iter().map(|export| &export.area)
    }

    /// The areas that are not in `after` any more.
    pub(crate) fn gone(&self, after: &Exports) -> Vec<Arc<Area>> {
        let stays = |area: &Arc<Area>| after.areas().any(|other| Arc::ptr_eq(other, area));
        self.areas().filter(|area| !stays(area)).cloned().collect()
    }

    /// The area with this name.
    pub(crate) fn get(&self, name: &str, node: &str) -> Result<&Arc<Area>, Fault> {
        let area = self.areas().find(|area| area.name == name);
        let area = area.ok_or_else(|| Fault::new(Code::NotFound, self.unknown(name, node)))?;
        area.check_usable().map(|()| area)
    }

    fn unknown(&self, name: &str, node: &str) -> String {
        let names: Vec<&str> = self.areas().map(|area| area.name.as_str()).collect();
        let there = match names.is_empty() {
            true => format!("it exports none; `vazao area add NAME DIR --node {node}` on its machine does"),
            false => format!("it exports {}", names.join(", ")),
        };
        format!("node {node} has no area {name:.80?}: {there}")
    }

    /// What other nodes learn of the areas.
    pub(crate) fn list(&self) -> Vec<proto::Area> {
        self.areas().map(|area| area.announcement()).collect()
    }
}
