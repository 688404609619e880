//! The side of the volume.

use super::tree::{Found, Identity, Origin, Owner, Sink, Source, Tree, join, split};
use crate::commands::ln::new_link;
use crate::commands::mkdir::new_directory;
use crate::failure::{At, Failure, Outcome};
use crate::location::show_volume;
use crate::location::walk;
use parking_lot::Mutex;
use std::collections::HashMap;
use vazao_client::{Changes, Client, Error, File, NewInode, OpenMode, RenameMode, SetTime};
use vazao_model::limits::SYMLINKS_FOLLOWED_MAX;
use vazao_model::{Code, FileKind, InodeId, VolumePath};

/// Directories whose inodes are remembered; a tree with more is walked with a few more round trips.
const REMEMBERED_MAX: usize = 10_000;

/// The volume's files.
pub(crate) struct VolumeTree {
    client: Client,
    /// Inodes of directories that files were created in: saves resolving the parent of each file.
    directories: Mutex<HashMap<Vec<u8>, InodeId>>,
}

impl VolumeTree {
    /// The files of `client`'s volume.
    pub(crate) fn new(client: Client) -> VolumeTree {
        VolumeTree { client, directories: Mutex::new(HashMap::new()) }
    }

    fn volume_path(&self, path: &[u8]) -> Outcome<VolumePath> {
        VolumePath::parse(path).map_err(|code| Error::new(code, self.show(path)).into())
    }

    fn remembered(&self, directory: &[u8]) -> Option<InodeId> {
        self.directories.lock().get(directory).copied()
    }

    /// The directory a path lies in, and its name there.
    fn parent<'p>(&self, path: &'p [u8]) -> Outcome<(InodeId, &'p [u8])> {
        let (directory, name) = split(path);
        if let Some(inode) = self.remembered(directory) {
            return Ok((inode, name));
        }
        let inode = self.client.resolve(&self.volume_path(directory)?, true).at(self.show(directory))?.inode;
        let mut directories = self.directories.lock();
        if directories.len() < REMEMBERED_MAX {
            directories.insert(directory.to_vec(), inode);
        }
        Ok((inode, name))
    }

    fn inode(&self, path: &[u8]) -> Outcome<InodeId> {
        Ok(self.client.resolve(&self.volume_path(path)?, false).at(self.show(path))?.inode)
    }
}

/// The permission check that the kernel makes for a mount (path_resolution(7)): the library makes none.
fn may_write(there: &Found) -> bool {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_in_group = || {
        let groups = rustix::process::getgroups().unwrap_or_default();
        there.gid == group || groups.iter().any(|group| group.as_raw() == there.gid)
    };
    let bit = match () {
        () if user == 0 => return true,
        () if user == there.uid => 0o200,
        () if is_in_group() => 0o020,
        () => 0o002,
    };
    there.mode & bit != 0
}

impl Tree for VolumeTree {
    fn find(&self, path: &[u8], follow: bool) -> Outcome<Option<Found>> {
        // Every file of a copy is looked for at its destination: one round trip where the directory is known.
        let (directory, name) = split(path);
        let found = match self.remembered(directory).filter(|_| !follow && !name.is_empty()) {
            Some(parent) => self.client.lookup(parent, name),
            None => self.client.resolve(&self.volume_path(path)?, follow),
        };
        match found {
            Ok(a) => Ok(Some(Found {
                identity: Identity::Volume(a.inode.0),
                kind: a.kind,
                mode: a.mode,
                uid: a.uid,
                gid: a.gid,
                size: a.size,
                accessed: a.accessed,
                modified: a.modified,
            })),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error).at(self.show(path)),
        }
    }

    fn origin(&self, path: &[u8]) -> Outcome<Option<Origin>> {
        match self.client.resolve(&self.volume_path(path)?, true) {
            Ok(found) => Ok(Some(self.client.origin(found.inode))),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error).at(self.show(path)),
        }
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Vec<Vec<u8>>) -> Outcome) -> Outcome {
        let volume_path = self.volume_path(path)?;
        let inode = self.client.resolve(&volume_path, true).at(self.show(path))?.inode;
        walk::pages(&self.client, inode, &volume_path, false, |page| {
            each(page.into_iter().map(|entry| entry.name).collect())
        })
    }

    fn real_path(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        let mut left: Vec<Vec<u8>> = path.split(|&b| b == b'/').rev().map(<[u8]>::to_vec).collect();
        let (mut real, mut links) = (b"/".to_vec(), 0);
        while let Some(name) = left.pop() {
            if name.is_empty() || name == b"." {
                continue;
            }
            if name == b".." {
                real = split(&real).0.strip_suffix(b"/").unwrap_or_default().to_vec();
                continue;
            }
            let here = join(if real.is_empty() { b"/" } else { &real }, &name);
            let kind = self.find(&here, false)?.map(|found| found.kind);
            let kind = kind.ok_or(Error::new(Code::NotFound, self.show(&here)))?;
            if kind != FileKind::Symlink {
                real = here;
                continue;
            }
            links += 1;
            if links > SYMLINKS_FOLLOWED_MAX {
                return Err(Error::new(Code::Loop, self.show(path)).into());
            }
            let target = self.read_link(&here)?;
            if target.starts_with(b"/") {
                real.clear();
            }
            left.extend(target.split(|&b| b == b'/').rev().map(<[u8]>::to_vec));
        }
        Ok(real)
    }

    fn read_link(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        self.client.read_link(self.inode(path)?).at(self.show(path))
    }

    fn open(&self, path: &[u8]) -> Outcome<Box<dyn Source>> {
        let shown = self.show(path);
        let mode = OpenMode { read: true, ..OpenMode::default() };
        let (attributes, file) = self.client.open_path(&self.volume_path(path)?, mode).at(&shown)?;
        let sparse = attributes.allocated_bytes < attributes.size;
        Ok(Box::new(VolumeFile { file, shown, sparse }))
    }

    fn create(&self, path: &[u8], mode: u32) -> Outcome<Box<dyn Sink>> {
        let shown = self.show(path);
        let (parent, name) = self.parent(path)?;
        let owner = new_directory(mode & !umask());
        let new = NewInode { kind: FileKind::File, ..owner };
        let (_, file) = self.client.create_file(parent, name, &new, true).at(&shown)?;
        Ok(Box::new(VolumeFile { file, shown, sparse: false }))
    }

    fn reopen(&self, path: &[u8]) -> Outcome<Option<(Box<dyn Sink>, u64)>> {
        let Some(found) = self.find(path, false)? else { return Ok(None) };
        let shown = self.show(path);
        let mode = OpenMode { read: true, write: true, truncate: false };
        let file = self.client.open_file(self.inode(path)?, mode).at(&shown)?;
        // A size is reported only when all before it is with the data servers.
        Ok(Some((Box::new(VolumeFile { file, shown, sparse: false }), found.size)))
    }

    fn open_stream(&self, path: &[u8]) -> Outcome<Box<dyn Sink>> {
        let shown = self.show(path);
        Err(Failure::new(format!(
            "{shown}: fifos and devices in the volume serve the machines that mount it; copy into it there"
        )))
    }

    fn make_directory(&self, path: &[u8], mode: u32) -> Outcome {
        let (parent, name) = self.parent(path)?;
        match self.client.create(parent, name, &new_directory(mode & !umask())) {
            Err(error) if error.code == Code::Exists => {
                let found = self.client.resolve(&self.volume_path(path)?, true).at(self.show(path))?;
                if found.kind == FileKind::Directory { Ok(()) } else { Err(error).at(self.show(path)) }
            }
            other => other.at(self.show(path)).map(drop),
        }
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Outcome {
        let (parent, name) = self.parent(path)?;
        self.client.create(parent, name, &new_link(target.to_vec())).at(self.show(path)).map(drop)
    }

    fn may_write(&self, _path: &[u8], there: &Found) -> bool {
        may_write(there)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Outcome {
        let (parent, name) = self.parent(from)?;
        let (new_parent, new_name) = self.parent(to)?;
        self.client.rename(parent, name, new_parent, new_name, RenameMode::Replace).at(self.show(to))
    }

    fn remove(&self, path: &[u8]) -> Outcome {
        let (parent, name) = self.parent(path)?;
        self.client.unlink(parent, name).at(self.show(path))
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> Outcome {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        self.client.set_attributes(self.inode(path)?, &changes).at(self.show(path)).map(drop)
    }

    fn set_owner(&self, path: &[u8], like: &Found) -> Outcome<Owner> {
        let changes = Changes { uid: Some(like.uid), gid: Some(like.gid), ..Changes::default() };
        match self.client.set_attributes(self.inode(path)?, &changes) {
            Ok(_) => Ok(Owner::Given),
            Err(error) if matches!(error.code, Code::NotPermitted | Code::AccessDenied) => Ok(Owner::Refused),
            Err(error) => Err(error).at(self.show(path)),
        }
    }

    fn set_times(&self, path: &[u8], like: &Found) -> Outcome {
        let changes = Changes {
            accessed: Some(SetTime::At(like.accessed)),
            modified: Some(SetTime::At(like.modified)),
            ..Changes::default()
        };
        self.client.set_attributes(self.inode(path)?, &changes).at(self.show(path)).map(drop)
    }

    fn show(&self, path: &[u8]) -> String {
        match VolumePath::parse(path) {
            Ok(path) => show_volume(&path),
            Err(_) => format!("vz:{}", crate::location::show(path)),
        }
    }
}

/// Permission bits that this user's new files do not get.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

struct VolumeFile {
    file: File,
    shown: String,
    sparse: bool,
}

impl Source for VolumeFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Outcome<usize> {
        self.file.read_at(buffer, offset).at(&self.shown)
    }

    fn length(&self) -> Outcome<u64> {
        Ok(self.file.attributes().at(&self.shown)?.size)
    }

    fn next_data(&self, offset: u64) -> Outcome<Option<(u64, u64)>> {
        Ok(Some((offset, u64::MAX)))
    }

    fn may_hide_holes(&self) -> bool {
        self.sparse
    }
}

impl Sink for VolumeFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Outcome {
        self.file.write_at(bytes, offset).at(&self.shown)
    }

    fn flush(&self) -> Outcome {
        self.file.flush().at(&self.shown)
    }

    fn finish(self: Box<Self>, length: u64) -> Outcome {
        let this = *self;
        if this.file.attributes().at(&this.shown)?.size != length {
            this.file.set_length(length).at(&this.shown)?;
        }
        this.file.close().at(&this.shown)
    }
}
