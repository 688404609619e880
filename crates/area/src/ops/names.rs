//! Names of an area: stat, mkdir, remove, rename, links, attributes, space.

use super::{done, message, xattrs};
use crate::area::Area;
use crate::path::AreaPath;
use crate::service::Shared;
use crate::{fault, files};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatVfs, Timespec, Timestamps,
    UTIME_OMIT, chmodat, fstatvfs, ftruncate, linkat, mkdirat, openat2, readlinkat, renameat_with, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use vazao_model::limits::{AREA_BELOW_MAX, FILE_BYTES_MAX, PATH_BYTES_MAX};
use vazao_model::{Code, FileKind};
use vazao_wire::proto;
use vazao_wire::service::{Answer, Fault};

/// What a request names.
pub(super) struct Named {
    pub(super) area: std::sync::Arc<Area>,
    pub(super) path: AreaPath,
}

impl Named {
    pub(super) fn find(shared: &Shared, area: &str, path: &[u8]) -> Result<Named, Fault> {
        let area = shared.area(area)?;
        let path = AreaPath::parse(&area.name, path)?;
        Ok(Named { area, path })
    }

    pub(super) fn writable(shared: &Shared, area: &str, path: &[u8]) -> Result<Named, Fault> {
        let named = Named::find(shared, area, path)?;
        named.area.check_writable(&named.path)?;
        Ok(named)
    }

    pub(super) fn shown(&self) -> String {
        self.path.show(&self.area.name)
    }

    pub(super) fn fault(&self, error: Errno) -> Fault {
        fault::of(error, &self.shown())
    }

    /// The inode itself, without opening it; a link at the end only where `follow` says so.
    pub(super) fn inode(&self, follow: bool) -> Result<OwnedFd, Fault> {
        let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        self.area.open_path(&self.path, flags)
    }

    fn attributes(&self) -> Result<proto::Attributes, Fault> {
        self.look(false).map(|(attributes, _)| attributes)
    }

    /// The attributes, and what tells the file from others.
    fn look(&self, follow: bool) -> Result<(proto::Attributes, proto::FileIdentity), Fault> {
        let inode = self.inode(follow)?;
        let status = files::status(&inode).map_err(|e| self.fault(e))?;
        let attributes = files::attributes(&status, xattrs::has_none(&inode));
        Ok((attributes, files::identity(&status).into()))
    }

    /// The directories that a path further down leads through, as far as they are there. Each is opened in the one
    /// above it: opened by its whole path, a deep one would be walked to again and again.
    fn directories_below(&self, path: &[u8]) -> Result<Vec<proto::Attributes>, Fault> {
        let path = AreaPath::parse(&self.area.name, path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let mut directory = self.inode(false)?;
        let mut found = Vec::new();
        for name in path.names().take(AREA_BELOW_MAX) {
            let Ok(next) = openat2(&directory, name, flags, Mode::empty(), how) else { break };
            let Ok(status) = files::status(&next) else { break };
            found.push(files::attributes(&status, xattrs::has_none(&next)));
            directory = next;
        }
        Ok(found)
    }
}

pub(crate) fn stat(shared: &Shared, request: &proto::AreaStatRequest) -> Answer {
    let named = Named::find(shared, &request.area, &request.path)?;
    let (attributes, identity) = named.look(request.follow)?;
    let below =
        if request.below.is_empty() { Vec::new() } else { named.directories_below(&request.below)? };
    message(&proto::AreaStatResponse { attributes: Some(attributes), identity: Some(identity), below })
}

pub(crate) fn make_directory(shared: &Shared, request: &proto::AreaMakeDirectoryRequest) -> Answer {
    let named = Named::writable(shared, &request.area, &request.path)?;
    let mode = Mode::from_raw_mode(request.mode & 0o7777);
    if named.path.split().is_none() {
        return Err(named.fault(Errno::EXIST));
    }
    let (parent, name) = named.area.open_parent(&named.path)?;
    mkdirat(&parent, name, mode).map_err(|e| named.fault(e))?;
    named.area.made(&named.path, FileType::Directory).map_err(|e| named.fault(e))?;
    message(&proto::AreaMakeDirectoryResponse { attributes: Some(named.attributes()?) })
}

pub(crate) fn remove(shared: &Shared, request: &proto::AreaRemoveRequest) -> Answer {
    let named = Named::writable(shared, &request.area, &request.path)?;
    let (parent, name) = named.area.open_parent(&named.path)?;
    let flags = if request.directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    let removed = unlinkat(&parent, name, flags).map_err(|e| named.fault(e));
    done(removed, &proto::AreaRemoveResponse {})
}

pub(crate) fn rename(shared: &Shared, request: &proto::AreaRenameRequest) -> Answer {
    let from = Named::writable(shared, &request.area, &request.path)?;
    let to = Named { area: from.area.clone(), path: AreaPath::parse(&from.area.name, &request.new_path)? };
    let flags = match request.mode {
        0 => RenameFlags::empty(),
        1 => RenameFlags::NOREPLACE,
        2 => RenameFlags::EXCHANGE,
        other => return Err(Fault::new(Code::BadRequest, format!("rename of mode {other}"))),
    };
    let (parent, name) = from.area.open_parent(&from.path)?;
    let (new_parent, new_name) = to.area.open_parent(&to.path)?;
    let renamed = renameat_with(&parent, name, &new_parent, new_name, flags)
        .map_err(|error| fault::of(error, &format!("{} to {}", from.shown(), to.shown())));
    done(renamed, &proto::AreaRenameResponse {})
}

/// A further name. What is linked to is the inode itself, also where it is a symbolic link.
pub(crate) fn link(shared: &Shared, request: &proto::AreaLinkRequest) -> Answer {
    let from = Named::writable(shared, &request.area, &request.path)?;
    let to = Named { area: from.area.clone(), path: AreaPath::parse(&from.area.name, &request.new_path)? };
    let (parent, name) = from.area.open_parent(&from.path)?;
    let (new_parent, new_name) = to.area.open_parent(&to.path)?;
    linkat(&parent, name, &new_parent, new_name, AtFlags::empty())
        .map_err(|error| fault::of(error, &format!("{} to {}", from.shown(), to.shown())))?;
    let (attributes, identity) = to.look(false)?;
    message(&proto::AreaLinkResponse { attributes: Some(attributes), identity: Some(identity) })
}

pub(crate) fn read_link(shared: &Shared, request: &proto::AreaReadLinkRequest) -> Answer {
    let named = Named::find(shared, &request.area, &request.path)?;
    let inode = named.inode(false)?;
    let target = match readlinkat(&inode, "", Vec::new()) {
        // What the kernel says of an inode that is no link when no name is given.
        Err(Errno::NOENT) => Err(named.fault(Errno::INVAL)),
        other => other.map_err(|e| named.fault(e)),
    }?;
    message(&proto::AreaReadLinkResponse { target: target.into_bytes() })
}

pub(crate) fn symlink(shared: &Shared, request: &proto::AreaSymlinkRequest) -> Answer {
    let named = Named::writable(shared, &request.area, &request.path)?;
    if request.target.len() > PATH_BYTES_MAX {
        return Err(named.fault(Errno::NAMETOOLONG));
    }
    let (parent, name) = named.area.open_parent(&named.path)?;
    symlinkat(&*request.target, &parent, name).map_err(|e| named.fault(e))?;
    named.area.made(&named.path, FileType::Symlink).map_err(|e| named.fault(e))?;
    message(&proto::AreaSymlinkResponse { attributes: Some(named.attributes()?) })
}

pub(crate) fn set_attributes(shared: &Shared, request: &proto::AreaSetAttributesRequest) -> Answer {
    let named = Named::writable(shared, &request.area, &request.path)?;
    if let Some(size) = request.size {
        set_size(&named, size)?;
    }
    if let Some(mode) = request.mode {
        set_mode(&named, mode)?;
    }
    if request.accessed.is_some() || request.modified.is_some() {
        set_times(&named, request)?;
    }
    message(&proto::AreaSetAttributesResponse { attributes: Some(named.attributes()?) })
}

fn set_size(named: &Named, size: u64) -> Result<(), Fault> {
    if size > FILE_BYTES_MAX {
        return Err(named.fault(Errno::FBIG));
    }
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = named.area.open_path(&named.path, flags)?;
    ftruncate(&file, size).map_err(|e| named.fault(e))
}

/// By way of `/proc`, because a mode cannot be set through a descriptor that names an inode without opening it, and a
/// name could be a link to elsewhere by the time it is used.
fn set_mode(named: &Named, mode: u32) -> Result<(), Fault> {
    use rustix::fd::AsRawFd;
    let inode = named.inode(false)?;
    let status = files::status(&inode).map_err(|e| named.fault(e))?;
    if files::kind_of(&status) == FileKind::Symlink {
        return Err(named.fault(Errno::OPNOTSUPP));
    }
    let path = format!("/proc/self/fd/{}", inode.as_raw_fd());
    chmodat(CWD, path, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty()).map_err(|e| named.fault(e))
}

fn set_times(named: &Named, request: &proto::AreaSetAttributesRequest) -> Result<(), Fault> {
    let time = |time: Option<proto::Timestamp>| match time {
        Some(t) => Timespec { tv_sec: t.seconds, tv_nsec: i64::from(t.nanoseconds.min(999_999_999)) },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    };
    let times = Timestamps { last_access: time(request.accessed), last_modification: time(request.modified) };
    let set = match named.path.split() {
        None => utimensat(&named.inode(false)?, "", &times, AtFlags::EMPTY_PATH),
        Some(_) => {
            let (parent, name) = named.area.open_parent(&named.path)?;
            utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        }
    };
    set.map_err(|e| named.fault(e))
}

pub(crate) fn space(shared: &Shared, request: &proto::AreaSpaceRequest) -> Answer {
    let named = Named::find(shared, &request.area, b"")?;
    let StatVfs { f_frsize, f_blocks, f_bavail, .. } =
        fstatvfs(named.inode(true)?).map_err(|e| named.fault(e))?;
    message(&proto::AreaSpaceResponse {
        capacity_bytes: f_blocks.saturating_mul(f_frsize),
        available_bytes: f_bavail.saturating_mul(f_frsize),
    })
}
