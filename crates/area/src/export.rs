//! The areas of this node: which directories, under which names, and how a path in one of them is opened.

use crate::fault;
use crate::owner::Owner;
use crate::path::AreaPath;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vazao_meter::Cause;
use vazao_meter::machine::{DiskWatch, DiskWatches};
use vazao_model::Code;
use vazao_model::limits::{AREA_NAME_BYTES_MAX, NODE_AREAS_MAX};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// The kernel gives up with `EAGAIN` when a directory is moved while a path through it is walked; it will hardly be
/// moved so often in a row.
const OPEN_ATTEMPTS_MAX: usize = 64;

/// A directory that is to be exported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AreaConfig {
    /// Its name in references: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Where it lies on this machine.
    pub path: PathBuf,
    /// Nothing in it can be changed.
    pub read_only: bool,
    /// Whose files are that are made in it; `None`: the daemon's user's.
    pub owner: Option<Owner>,
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

/// An area that can be used.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) name: String,
    pub(crate) read_only: bool,
    owner: Option<Owner>,
    root: OwnedFd,
    /// `None` where no disk of this machine is behind it.
    disk: Option<Arc<DiskWatch>>,
    /// Taken out of the configuration, or changed there.
    closed: AtomicBool,
}

impl Area {
    fn open(config: &AreaConfig, disks: &DiskWatches) -> Result<Area, String> {
        if let (Some(owner), false) = (config.owner, config.read_only) {
            owner.check()?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &config.path, flags, Mode::empty())
            .map_err(|e| format!("{}: {}", config.path.display(), std::io::Error::from(e)))?;
        let closed = AtomicBool::new(false);
        let disk = disks.of(&config.path);
        let (name, read_only, owner) = (config.name.clone(), config.read_only, config.owner);
        Ok(Area { name, read_only, owner, root, disk, closed })
    }

    /// Runs `work`, which may wait for the area's disk, and counts that. Returns its result.
    pub(crate) fn during<T>(&self, cause: Cause, work: impl FnOnce() -> T) -> T {
        match &self.disk {
            Some(disk) => disk.during(cause, work).0,
            None => work(),
        }
    }

    /// False once the area is not exported any more.
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// Refuses a change to a read-only area.
    pub(crate) fn check_writable(&self, path: &AreaPath) -> Result<(), Fault> {
        if !self.read_only {
            return Ok(());
        }
        Err(Fault::new(Code::ReadOnly, format!("{}: the area is exported read-only", path.show(&self.name))))
    }

    /// A file was made: it becomes its owner's.
    pub(crate) fn made_file(&self, file: &OwnedFd) -> Result<(), Errno> {
        self.owner.map_or(Ok(()), |owner| owner.give_file(file))
    }

    /// A directory or a link was made under a path: it becomes its owner's.
    pub(crate) fn made(&self, path: &AreaPath, kind: FileType) -> Result<(), Errno> {
        let Some(owner) = self.owner else { return Ok(()) };
        let inode = self.open_beneath(path.relative(), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
        owner.give_made(&inode, kind)
    }

    /// Opens what lies at `relative` beneath the root. No link, however it is swapped meanwhile, leads out.
    pub(crate) fn open_beneath(&self, relative: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..OPEN_ATTEMPTS_MAX {
            match openat2(&self.root, relative, flags | OFlags::CLOEXEC, mode, how) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens a path for a request.
    pub(crate) fn open_path(&self, path: &AreaPath, flags: OFlags) -> Result<OwnedFd, Fault> {
        self.open_beneath(path.relative(), flags, Mode::empty())
            .map_err(|error| fault::of_path(error, &path.show(&self.name)))
    }

    /// Opens the directory that a path's last name is in, and returns it with that name.
    pub(crate) fn open_parent<'p>(&self, path: &'p AreaPath) -> Result<(OwnedFd, &'p [u8]), Fault> {
        let shown = || path.show(&self.name);
        let (parent, name) = path.split().ok_or_else(|| {
            Fault::new(Code::NotPermitted, format!("{}: the root of an area stays as it is", shown()))
        })?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = self
            .open_beneath(parent, flags, Mode::empty())
            .map_err(|error| fault::of_path(error, &shown()))?;
        Ok((directory, name))
    }
}

/// An area of the configuration, usable or not.
#[derive(Clone, Debug)]
struct Export {
    config: AreaConfig,
    opened: Result<Arc<Area>, String>,
}

/// All areas of the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exports {
    all: Vec<Export>,
}

impl Exports {
    /// The areas of a new configuration. Those that stay as they were stay open; the others' channels are lost.
    pub(crate) fn of(configs: Vec<AreaConfig>, before: &Exports, disks: &DiskWatches) -> Exports {
        let same = |config: &AreaConfig| before.all.iter().find(|export| export.config == *config);
        let open = |config: AreaConfig| match same(&config) {
            Some(Export { opened: Ok(area), .. }) => Export { config, opened: Ok(Arc::clone(area)) },
            _ => Export { opened: Area::open(&config, disks).map(Arc::new), config },
        };
        let all: Vec<Export> = configs.into_iter().map(open).collect();
        for gone in before.all.iter().filter_map(|export| export.opened.as_ref().ok()) {
            let kept =
                all.iter().any(|export| export.opened.as_ref().is_ok_and(|area| Arc::ptr_eq(area, gone)));
            if !kept {
                gone.closed.store(true, Ordering::Release);
            }
        }
        Exports { all }
    }

    /// True when an area cannot be used: its directory may come.
    pub(crate) fn has_trouble(&self) -> bool {
        self.all.iter().any(|export| export.opened.is_err())
    }

    /// The same, with another try at those that cannot be used.
    pub(crate) fn tried_again(&self, disks: &DiskWatches) -> Exports {
        Exports::of(self.all.iter().map(|export| export.config.clone()).collect(), self, disks)
    }

    /// The area with this name.
    pub(crate) fn get(&self, name: &str, node: &str) -> Result<Arc<Area>, Fault> {
        match self.all.iter().find(|export| export.config.name == name) {
            Some(Export { opened: Ok(area), .. }) => Ok(Arc::clone(area)),
            Some(Export { opened: Err(trouble), .. }) => {
                Err(Fault::new(Code::NotFound, format!("area {name:?} of node {node}: {trouble}")))
            }
            None => Err(Fault::new(Code::NotFound, self.unknown(name, node))),
        }
    }

    fn unknown(&self, name: &str, node: &str) -> String {
        let names: Vec<&str> = self.all.iter().map(|export| export.config.name.as_str()).collect();
        let there = match names.is_empty() {
            true => "it exports none; `vazao area add NAME DIR` on its machine does".to_owned(),
            false => format!("it exports {}", names.join(", ")),
        };
        format!("node {node} has no area {name:.80?}: {there}")
    }

    /// What others are told.
    pub(crate) fn list(&self) -> Vec<proto::Area> {
        let area = |export: &Export| proto::Area {
            name: export.config.name.clone(),
            read_only: export.config.read_only,
            trouble: export.opened.as_ref().err().map_or_else(String::new, |t| t.chars().take(250).collect()),
        };
        self.all.iter().map(area).collect()
    }
}
