//! Create: a new inode of any kind under a new name.

use crate::acl;
use crate::objects::orphans;
use crate::ops::{layout, xattr};
use crate::schema::records::{EntryRecord, InodeRecord, TimeRecord};
use crate::service::context::{Context, checked_name};
use crate::service::fault::{Outcome, name_fault};
use vazao_model::{Code, FileKind, InodeId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

const MODE_BITS: u32 = 0o7777;
const PERMISSION_BITS: u32 = 0o777;
const SET_GROUP: u32 = 0o2000;

pub(crate) fn run(
    context: &mut Context<'_>,
    request: &proto::CreateRequest,
) -> Outcome<proto::CreateResponse> {
    let parent = InodeId(request.parent);
    let kind = FileKind::from_number(request.kind)
        .ok_or_else(|| Fault::new(Code::Invalid, format!("inode kind {}", request.kind)))?;
    let directory = context.directory(parent)?;
    if request.unnamed {
        return unnamed(context, kind, request, &directory);
    }
    let name = checked_name(parent, &request.name)?;
    check_contents(kind, parent, request)?;
    context.shows_entry(parent, name);
    if let Some(existing) = context.entry(parent, name)? {
        return open_existing(context, kind, request, existing);
    }
    context.grow()?;
    let id = context.service.next_inode()?;
    note_open(context, kind, id);
    let mut record = new_record(context, kind, request, &directory);
    inherit_acl(context, id, &mut record, request, &directory)?;
    context.put_inode(id, &record);
    context.put_entry(parent, name, &EntryRecord { inode: id.0, kind: request.kind });
    context.touch_directory(parent);
    if kind == FileKind::Directory {
        context.add_subdirectories(parent, 1)?;
        context.touch_directory(id);
    }
    context.inodes_delta += 1;
    let inode = Some(context.inode_message(id, &record)?);
    Ok(proto::CreateResponse { inode, created: true, parent_changed: Some(context.now.into()) })
}

/// A file without a name (`O_TMPFILE`): an orphan from its beginning, of the session that asks.
fn unnamed(
    context: &mut Context<'_>,
    kind: FileKind,
    request: &proto::CreateRequest,
    directory: &InodeRecord,
) -> Outcome<proto::CreateResponse> {
    let parent = InodeId(request.parent);
    let Some(session) = context.caller.filter(|_| kind == FileKind::File) else {
        return Err(Fault::new(Code::Invalid, format!("a file without a name in directory {parent}")));
    };
    check_contents(kind, parent, request)?;
    context.grow()?;
    let id = context.service.next_inode()?;
    let mut record = new_record(context, kind, request, directory);
    inherit_acl(context, id, &mut record, request, directory)?;
    (record.links, record.is_unnamed) = (0, true);
    // Once it has got a name it is held no more, and still open.
    note_open(context, kind, id);
    context.put_inode(id, &record);
    orphans::hold(context, id, &[session]);
    context.inodes_delta += 1;
    Ok(proto::CreateResponse {
        inode: Some(context.inode_message(id, &record)?),
        created: true,
        parent_changed: None,
    })
}

/// A create opens the file as well, whether it made it or found it there.
fn note_open(context: &mut Context<'_>, kind: FileKind, id: InodeId) {
    if let Some(session) = context.caller.filter(|_| kind == FileKind::File) {
        context.opens(session, id);
    }
}

/// Permissions of a new inode: those asked for, less the umask, or what the directory's default access control list
/// leaves of them.
fn inherit_acl(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    request: &proto::CreateRequest,
    directory: &InodeRecord,
) -> Outcome<()> {
    if record.file_kind() == FileKind::Symlink {
        return Ok(());
    }
    let parent = InodeId(request.parent);
    let Some(default) = xattr::list_of(context, parent, directory, acl::DEFAULT)? else {
        record.mode &= !(request.umask & PERMISSION_BITS);
        return Ok(());
    };
    let mut list = default.clone();
    record.mode = list.restrict(record.mode);
    if !list.is_minimal() {
        xattr::store(context, id, record, acl::ACCESS, list.encode())?;
    }
    if record.is_directory() {
        xattr::store(context, id, record, acl::DEFAULT, default.encode())?;
    }
    Ok(())
}

fn check_contents(kind: FileKind, parent: InodeId, request: &proto::CreateRequest) -> Outcome<()> {
    let length = request.contents.len();
    let refused = match kind {
        FileKind::Symlink if length == 0 => Some(Code::NotFound),
        FileKind::Symlink if length > limits::PATH_BYTES_MAX => Some(Code::NameTooLong),
        FileKind::Symlink => None,
        FileKind::File => (length > limits::INLINE_BYTES_MAX).then_some(Code::TooLarge),
        _ => (length > 0).then_some(Code::Invalid),
    };
    refused.map_or(Ok(()), |code| {
        let fault = name_fault(code, parent, &request.name);
        Err(Fault::new(code, format!("{} with {length} bytes of contents", fault.detail)))
    })
}

fn open_existing(
    context: &mut Context<'_>,
    kind: FileKind,
    request: &proto::CreateRequest,
    existing: EntryRecord,
) -> Outcome<proto::CreateResponse> {
    let parent = InodeId(request.parent);
    if request.exclusive || kind != FileKind::File {
        return Err(name_fault(Code::Exists, parent, &request.name));
    }
    let id = InodeId(existing.inode);
    note_open(context, kind, id);
    let record = context.named_inode(id)?;
    match record.file_kind() {
        FileKind::File => {
            let inode = context.inode_with_contents(id, record)?;
            Ok(proto::CreateResponse { inode: Some(inode), created: false, parent_changed: None })
        }
        FileKind::Directory => Err(name_fault(Code::IsDirectory, parent, &request.name)),
        _ => Err(name_fault(Code::Exists, parent, &request.name)),
    }
}

fn new_record(
    context: &Context<'_>,
    kind: FileKind,
    request: &proto::CreateRequest,
    directory: &InodeRecord,
) -> InodeRecord {
    let now = TimeRecord::from(context.now);
    let is_directory = kind == FileKind::Directory;
    // inode(7): in a set-group-id directory new inodes take its group, and new directories the bit as well.
    let inherits_group = directory.mode & SET_GROUP != 0;
    let bit = if inherits_group && is_directory { SET_GROUP } else { 0 };
    InodeRecord {
        kind: kind.number(),
        mode: request.mode & MODE_BITS | bit,
        uid: request.uid,
        gid: if inherits_group { directory.gid } else { request.gid },
        size: request.contents.len() as u64,
        links: 1,
        device: request.device,
        accessed: Some(now),
        modified: (!is_directory).then_some(now),
        changed: Some(now),
        version: 1,
        contents: request.contents.clone(),
        parent: if is_directory { request.parent } else { 0 },
        hint: layout::inherited(directory),
        ..InodeRecord::default()
    }
}
