//! Names in the volume that a job makes: directories, links, and the temporary ones of files.

use super::{parent_of, shown};
use crate::receive::journal::hex;
use crate::source::of_client;
use vazao_client::{Changes, Client, NewInode, RenameMode, SetTime};
use vazao_model::limits::NAME_BYTES_MAX;
use vazao_model::{Code, FileKind, InodeId, Timestamp, VolumePath};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// `.NAME.vazao-XXXXXXXX.part`, cut to fit the limit of names.
pub(super) fn part_name(id: &[u8; 16], name: &[u8]) -> Vec<u8> {
    let tail = format!(".vazao-{}.part", hex(&id[..4]));
    let kept = name.len().min(NAME_BYTES_MAX.saturating_sub(tail.len() + 1));
    [b".", &name[..kept], tail.as_bytes()].concat()
}

/// The owner of new names: with `preserve` the source's owner, else the user that submitted the job.
pub(crate) fn owner_of(spec: &proto::JobSpec, entry: &proto::PlanEntry) -> (u32, u32) {
    if spec.preserve { (entry.uid, entry.gid) } else { (spec.uid, spec.gid) }
}

/// The set-id and sticky bits that go with the owner that `preserve` keeps.
pub(crate) fn bits_of(spec: &proto::JobSpec, entry: &proto::PlanEntry) -> u32 {
    if spec.preserve { entry.mode & 0o7000 } else { 0 }
}

/// The time of last change of a directory or a link that `preserve` keeps.
fn time_of(spec: &proto::JobSpec, entry: &proto::PlanEntry) -> Option<SetTime> {
    entry.modified.filter(|_| spec.preserve).map(|time| SetTime::At(Timestamp::from(time)))
}

/// Makes a directory of the plan, or finds that it is there.
pub(crate) fn make_directory(
    client: &Client,
    spec: &proto::JobSpec,
    entry: &proto::PlanEntry,
    path: &VolumePath,
) -> Result<(), Fault> {
    let about = |error| of_client(error, &shown(path));
    if path.split_last().is_none() {
        return Ok(());
    }
    let (parent, name) = parent_of(client, path)?;
    let (uid, gid) = owner_of(spec, entry);
    // The owner has to be able to fill it, whatever the source's permissions say.
    let mode = entry.mode & 0o777 | 0o700;
    let new = NewInode { kind: FileKind::Directory, mode, uid, gid, ..NewInode::default() };
    match client.create(parent, &name, &new) {
        Err(error) if error.code == Code::Exists => match client.resolve(path, true).map_err(about)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(Fault::new(Code::NotDirectory, shown(path))),
        },
        other => other.map(drop).map_err(about),
    }
}

/// Gives a directory of the plan its permissions, and with `preserve` its time, once it is filled.
pub(crate) fn finish_directory(
    client: &Client,
    spec: &proto::JobSpec,
    entry: &proto::PlanEntry,
    path: &VolumePath,
) -> Result<(), Fault> {
    let is_settled = entry.mode & 0o700 == 0o700 && !spec.preserve;
    if path.split_last().is_none() || is_settled {
        return Ok(());
    }
    let about = |error| of_client(error, &shown(path));
    let inode: InodeId = client.resolve(path, true).map_err(about)?.inode;
    let mode = Some(entry.mode & 0o777 | bits_of(spec, entry));
    let changes = Changes { mode, modified: time_of(spec, entry), ..Changes::default() };
    client.set_attributes(inode, &changes).map(drop).map_err(about)
}

/// Makes a symbolic link, in the place of whatever is no directory.
pub(crate) fn make_link(
    client: &Client,
    spec: &proto::JobSpec,
    entry: &proto::PlanEntry,
    path: &VolumePath,
    target: Vec<u8>,
) -> Result<(), Fault> {
    let about = |error| of_client(error, &shown(path));
    let (parent, name) = parent_of(client, path)?;
    let (uid, gid) = owner_of(spec, entry);
    let new =
        NewInode { kind: FileKind::Symlink, mode: 0o777, uid, gid, contents: target, ..NewInode::default() };
    let make = |name: &[u8]| {
        let made = client.create(parent, name, &new)?;
        let changes = Changes { modified: time_of(spec, entry), ..Changes::default() };
        match changes.modified {
            Some(_) => client.set_attributes(made.inode, &changes).map(drop),
            None => Ok(()),
        }
    };
    match make(&name) {
        Err(error) if error.code == Code::Exists => {}
        other => return other.map_err(about),
    }
    if client.lookup(parent, &name).map_err(about)?.kind == FileKind::Directory {
        return Err(Fault::new(Code::IsDirectory, shown(path)));
    }
    let part = part_name(&[0; 16], &name);
    let _ = client.unlink(parent, &part);
    make(&part).map_err(about)?;
    client.rename(parent, &part, parent, &name, RenameMode::Replace).map_err(about)
}
