//! Channels begin and end; files are opened again for them.

use super::names::Named;
use super::{message, xattrs};
use crate::channels::Channel;
use crate::files::{self, Identity};
use crate::open_file::AreaFile;
use crate::service::Shared;
use crate::{fault, path};
use rustix::fs::{Mode, OFlags, Statx, ftruncate};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vazao_model::{Code, FileKind};
use vazao_wire::proto;
use vazao_wire::service::{Answer, Fault};

/// A file that is removed and made again by others all the time is left alone after this many tries.
const CREATE_ATTEMPTS_MAX: usize = 16;

/// Opening must neither wait for the other end of a pipe nor take over a terminal.
const SAFELY: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

fn access(read: bool, write: bool) -> OFlags {
    match (read, write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    }
}

pub(crate) fn open(shared: &Shared, request: &proto::OpenChannelRequest) -> Answer {
    check(request)?;
    let named = Named::find(shared, &request.area, &request.path)?;
    if request.write || request.create || request.truncate {
        named.area.check_writable(&named.path)?;
    }
    if let Some(channel) = shared.channels.get(request.channel) {
        return again(shared, &channel, &named);
    }
    let node = &shared.options.name;
    shared.channels.check_room(node)?;
    let now_ns = shared.clock.now_ns();
    let lease = shared.channels.lease(request.client, now_ns);
    let (file, created) = open_file(&named, request)?;
    let mut status = files::status(&*file).map_err(|e| named.fault(e))?;
    let identity = check_file(&named, &status, request.identity.as_ref())?;
    if request.truncate && !created {
        ftruncate(&*file, 0).map_err(|e| named.fault(e))?;
        status = files::status(&*file).map_err(|e| named.fault(e))?;
    }
    let channel = Channel {
        id: request.channel,
        area: Arc::clone(&named.area),
        path: named.path.relative().into(),
        read: request.read,
        write: request.write,
        created,
        identity,
        sync_failed: AtomicBool::new(false),
        is_quick: AtomicBool::new(vazao_meter::machine::is_local(&*file)),
        lease,
    };
    let channel = shared.channels.insert(channel, node, now_ns)?;
    let file = Arc::new(file);
    shared.descriptors.put(channel.id, Arc::clone(&file));
    answer(shared, &channel, &file, &status)
}

fn check(request: &proto::OpenChannelRequest) -> Result<(), Fault> {
    let refuse = |what: &str| Err(Fault::new(Code::BadRequest, format!("OpenChannel: {what}")));
    match request {
        r if r.client == 0 || r.channel == 0 => refuse("client and channel need numbers other than 0"),
        r if !r.read && !r.write => refuse("neither to read nor to write"),
        r if (r.create || r.truncate) && !r.write => refuse("creates or truncates without writing"),
        _ => Ok(()),
    }
}

/// The request has been carried out, and its answer was lost.
fn again(shared: &Shared, channel: &Channel, named: &Named) -> Answer {
    if *channel.path != *named.path.relative() || !Arc::ptr_eq(&channel.area, &named.area) {
        return Err(Fault::new(Code::Conflict, "another file's channel has this number; choose another"));
    }
    let file = file_of(shared, channel)?;
    let status = files::status(&**file).map_err(|e| named.fault(e))?;
    answer(shared, channel, &file, &status)
}

fn answer(shared: &Shared, channel: &Channel, file: &AreaFile, status: &Statx) -> Answer {
    message(&proto::OpenChannelResponse {
        attributes: Some(files::attributes(status, xattrs::file_has_none(&**file))),
        identity: Some(channel.identity.into()),
        lease_ms: shared.options.lease_ms,
        created: channel.created,
    })
}

/// Opens the file, or makes it; says which.
fn open_file(named: &Named, request: &proto::OpenChannelRequest) -> Result<(AreaFile, bool), Fault> {
    let flags = access(request.read, request.write) | SAFELY;
    let relative = named.path.relative();
    let open = |flags, mode| named.area.open_beneath(relative, flags, mode);
    let keep = |file| named.area.keep(file);
    let fail = |error| Err(fault::of_path(error, &named.shown()));
    named.area.check_closing()?;
    if !request.create {
        return open(flags, Mode::empty()).map(|file| (keep(file), false)).or_else(fail);
    }
    let mode = Mode::from_raw_mode(request.mode & 0o777);
    for _ in 0..CREATE_ATTEMPTS_MAX {
        match open(flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Err(Errno::EXIST) if !request.exclusive => {}
            made => {
                let owned = made.and_then(|file| named.area.made_file(&file).map(|()| (keep(file), true)));
                return owned.or_else(fail);
            }
        }
        match open(flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            there => return there.map(|file| (keep(file), false)).or_else(fail),
        }
    }
    fail(Errno::NOENT)
}

/// Refuses what is no regular file, and any file but the expected one.
fn check_file(
    named: &Named,
    status: &Statx,
    expected: Option<&proto::FileIdentity>,
) -> Result<Identity, Fault> {
    match files::kind_of(status) {
        FileKind::File => {}
        FileKind::Directory => return Err(named.fault(Errno::ISDIR)),
        _ => {
            let why = format!("{}: is no regular file; channels are for files only", named.shown());
            return Err(Fault::new(Code::Invalid, why));
        }
    }
    let identity = files::identity(status);
    match expected {
        Some(expected) if Identity::from(expected) != identity => Err(replaced(&named.shown())),
        _ => Ok(identity),
    }
}

fn replaced(shown: &str) -> Fault {
    let why =
        format!("{shown}: the file has been replaced by another one since it was opened; open it again");
    Fault::new(Code::Stale, why)
}

/// The channel's file, opened again where the cache has let it go.
pub(crate) fn file_of(shared: &Shared, channel: &Channel) -> Result<Arc<AreaFile>, Fault> {
    if let Some(file) = shared.descriptors.get(channel.id) {
        return Ok(file);
    }
    channel.area.check_closing()?;
    let shown = path::show(&channel.area.name, &channel.path);
    let flags = access(channel.read, channel.write) | SAFELY;
    let file = match channel.area.open_beneath(&channel.path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let why = format!("{shown}: the file has been removed or renamed since it was opened");
            return Err(Fault::new(Code::Stale, why));
        }
        other => other.map_err(|error| fault::of_path(error, &shown))?,
    };
    let file = channel.area.keep(file);
    let status = files::status(&*file).map_err(|error| fault::of(error, &shown))?;
    if files::identity(&status) != channel.identity {
        return Err(replaced(&shown));
    }
    let file = Arc::new(file);
    shared.metrics.reopened.add(1);
    shared.descriptors.put(channel.id, Arc::clone(&file));
    Ok(file)
}

/// Refuses to go on with a file that has lost its last name: another one may have taken its place.
pub(crate) fn check_linked(channel: &Channel, links: u64) -> Result<(), Fault> {
    if links > 0 {
        return Ok(());
    }
    let shown = path::show(&channel.area.name, &channel.path);
    let why = format!("{shown}: the file has been removed or replaced since it was opened; open it again");
    Err(Fault::new(Code::Stale, why))
}

pub(crate) fn stat(shared: &Shared, channel: &Channel) -> Answer {
    let file = file_of(shared, channel)?;
    let shown = || path::show(&channel.area.name, &channel.path);
    let status = files::status(&**file).map_err(|error| fault::of(error, &shown()))?;
    check_linked(channel, u64::from(status.stx_nlink))?;
    let attributes = files::attributes(&status, xattrs::file_has_none(&**file));
    message(&proto::ChannelStatResponse { attributes: Some(attributes) })
}
