//! Names wherever they are: in the volume, or in an area of a node.

use crate::connection::Connection;
use vazao_client::area::{AreaChanges, Reference};
use vazao_client::{Changes, Error, RenameMode, Result, SetTime, XattrMode};
use vazao_handles::Area;
use vazao_model::{Attributes, Code, Timestamp};

/// Where a path leads.
pub(crate) enum Place<'p> {
    /// Into the volume.
    Volume(&'p [u8]),
    /// Into an area.
    Area(Area, Reference),
}

/// A time that a node takes: "now" is this machine's.
fn time_stamp(time: SetTime) -> Timestamp {
    match time {
        SetTime::At(time) => time,
        SetTime::Now => {
            let wall_ns = vazao_meter::clock::system().wall_ns();
            let nanoseconds = (wall_ns % 1_000_000_000) as u32;
            Timestamp { seconds: (wall_ns / 1_000_000_000) as i64, nanoseconds }
        }
    }
}

impl Connection {
    /// Where a path leads. Errors: it looks like one of an area, and is none.
    pub(crate) fn place<'p>(&self, path: &'p [u8]) -> Result<Place<'p>> {
        if path.starts_with(b"vz:") || !Reference::looks_like(path) {
            return Ok(Place::Volume(path));
        }
        let reference = Reference::parse(path)?;
        Ok(Place::Area(self.shared().area(&reference.node, &reference.area)?, reference))
    }

    /// What is at a path; without `follow` a symbolic link at its end itself.
    pub(crate) fn stat(&self, path: &[u8], follow: bool) -> Result<Attributes> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().stat(path, follow),
            Place::Area(area, at) => area.stat(&at.path, follow),
        }
    }

    pub(crate) fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().make_directory(path, mode),
            Place::Area(area, at) => area.make_directory(&at.path, mode),
        }
    }

    pub(crate) fn remove_directory(&self, path: &[u8]) -> Result<()> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().remove_directory(path),
            Place::Area(area, at) => area.remove_directory(&at.path),
        }
    }

    pub(crate) fn unlink(&self, path: &[u8]) -> Result<()> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().unlink(path),
            Place::Area(area, at) => area.unlink(&at.path),
        }
    }

    /// Errors: `CrossDevice` where the two paths are not both of the volume or of one area.
    pub(crate) fn rename(&self, path: &[u8], new_path: &[u8], mode: RenameMode) -> Result<()> {
        match (self.place(path)?, self.place(new_path)?) {
            (Place::Volume(path), Place::Volume(new_path)) => self.shared().rename(path, new_path, mode),
            (Place::Area(area, at), Place::Area(_, new)) if are_in_one_area(&at, &new) => {
                area.rename(&at.path, &new.path, mode)
            }
            _ => Err(apart(new_path)),
        }
    }

    /// Errors: as [`Connection::rename`].
    pub(crate) fn link(&self, path: &[u8], new_path: &[u8]) -> Result<()> {
        match (self.place(path)?, self.place(new_path)?) {
            (Place::Volume(path), Place::Volume(new_path)) => self.shared().link(path, new_path),
            (Place::Area(area, at), Place::Area(_, new)) if are_in_one_area(&at, &new) => {
                area.link(&at.path, &new.path)
            }
            _ => Err(apart(new_path)),
        }
    }

    pub(crate) fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().symlink(target, path),
            Place::Area(area, at) => area.symlink(target, &at.path),
        }
    }

    pub(crate) fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().read_link(path),
            Place::Area(area, at) => area.read_link(&at.path),
        }
    }

    /// Errors: owners in an area, which its daemon's user or the area's own has.
    pub(crate) fn change(&self, path: &[u8], changes: &Changes) -> Result<()> {
        let (area, at) = match self.place(path)? {
            Place::Volume(path) => return self.shared().change(path, changes),
            Place::Area(area, at) => (area, at),
        };
        if changes.uid.is_some() || changes.gid.is_some() {
            let why = "owners stay in areas: their files belong to the daemon's user, or to the area's owner";
            return Err(Error::new(Code::Unsupported, format!("{}: {why}", String::from_utf8_lossy(path))));
        }
        let changes = AreaChanges {
            mode: changes.mode,
            size: changes.size,
            accessed: changes.accessed.map(time_stamp),
            modified: changes.modified.map(time_stamp),
        };
        area.change(&at.path, &changes)
    }

    pub(crate) fn set_times(&self, path: &[u8], accessed: SetTime, modified: SetTime) -> Result<()> {
        let (accessed, modified) = (Some(accessed), Some(modified));
        self.change(path, &Changes { accessed, modified, ..Changes::default() })
    }

    pub(crate) fn xattr(&self, path: &[u8], follow: bool, name: &[u8]) -> Result<Vec<u8>> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().xattr(path, follow, name),
            Place::Area(area, at) => area.xattr(&at.path, name),
        }
    }

    pub(crate) fn set_xattr(
        &self,
        path: &[u8],
        follow: bool,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().set_xattr(path, follow, name, value, mode),
            Place::Area(area, at) => area.set_xattr(&at.path, name, value, mode),
        }
    }

    /// The names of all extended attributes, each followed by a NUL.
    pub(crate) fn xattrs(&self, path: &[u8], follow: bool) -> Result<Vec<u8>> {
        let names = match self.place(path)? {
            Place::Volume(path) => self.shared().xattrs(path, follow)?,
            Place::Area(area, at) => area.xattrs(&at.path)?,
        };
        Ok(names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect())
    }

    pub(crate) fn remove_xattr(&self, path: &[u8], follow: bool, name: &[u8]) -> Result<()> {
        match self.place(path)? {
            Place::Volume(path) => self.shared().remove_xattr(path, follow, name),
            Place::Area(area, at) => area.remove_xattr(&at.path, name),
        }
    }
}

fn are_in_one_area(one: &Reference, other: &Reference) -> bool {
    one.node == other.node && one.area == other.area
}

/// Two paths of one call that are not in one place.
fn apart(path: &[u8]) -> Error {
    let why = "a name stays within the volume, or within its area; copy with vazao_copy()";
    Error::new(Code::CrossDevice, format!("{}: {why}", String::from_utf8_lossy(path)))
}
