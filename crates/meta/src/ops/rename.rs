//! Rename: rename(2) with its modes, in one transaction.

use crate::objects::orphans;
use crate::schema::records::EntryRecord;
use crate::service::context::{Context, checked_name};
use crate::service::fault::{Outcome, inode_fault, name_fault};
use vazao_model::ids::ROOT;
use vazao_model::{Code, InodeId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

/// One of the two names.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: InodeId,
    name: &'a [u8],
}

impl Place<'_> {
    fn fault(&self, code: Code) -> Fault {
        name_fault(code, self.parent, self.name)
    }
}

fn place<'a>(context: &mut Context<'_>, parent: u64, name: &'a [u8]) -> Outcome<Place<'a>> {
    let parent = InodeId(parent);
    context.directory(parent)?;
    if name == b"." || name == b".." {
        return Err(name_fault(Code::InUse, parent, name));
    }
    Ok(Place { parent, name: checked_name(parent, name)? })
}

pub(crate) fn run(
    context: &mut Context<'_>,
    request: &proto::RenameRequest,
) -> Outcome<proto::RenameResponse> {
    if request.mode > EXCHANGE {
        return Err(Fault::new(Code::Invalid, format!("rename mode {}", request.mode)));
    }
    let from = place(context, request.parent, &request.name)?;
    let to = place(context, request.new_parent, &request.new_name)?;
    // After a rename the caller knows where both names lead, without a lookup.
    context.shows_entry(from.parent, from.name);
    context.shows_entry(to.parent, to.name);
    let moved = context.entry(from.parent, from.name)?.ok_or_else(|| from.fault(Code::NotFound))?;
    let there = context.entry(to.parent, to.name)?;
    let nothing = proto::RenameResponse { inode: moved.inode, replaced: 0, replaced_links: 0 };
    match there {
        None if request.mode == EXCHANGE => Err(to.fault(Code::NotFound)),
        Some(_) if request.mode == NO_REPLACE => Err(to.fault(Code::Exists)),
        // rename(2): two names of one inode are left as they are.
        Some(there) if there.inode == moved.inode => Ok(nothing),
        Some(there) if request.mode == EXCHANGE => {
            exchange(context, from, to, moved, there).map(|()| nothing)
        }
        there => replace(context, from, to, moved, there, &request.held),
    }
}

fn replace(
    context: &mut Context<'_>,
    from: Place<'_>,
    to: Place<'_>,
    moved: EntryRecord,
    there: Option<EntryRecord>,
    held: &[u64],
) -> Outcome<proto::RenameResponse> {
    check_not_below(context, &moved, from, to)?;
    if let Some(there) = &there {
        check_replaceable(context, &moved, there, to)?;
    }
    let (moved_directory, there_directory) =
        (moved.is_directory(), there.as_ref().is_some_and(EntryRecord::is_directory));
    context.delete_entry(from.parent, from.name);
    context.put_entry(to.parent, to.name, &moved);
    move_inode(context, &moved, from.parent, to.parent)?;
    count_directories(context, from.parent, to.parent, moved_directory, there_directory, false)?;
    touch_both(context, from, to);
    let Some(there) = there else {
        return Ok(proto::RenameResponse { inode: moved.inode, replaced: 0, replaced_links: 0 });
    };
    let replaced_links = orphans::drop_link(context, InodeId(there.inode), held.contains(&there.inode))?;
    Ok(proto::RenameResponse { inode: moved.inode, replaced: there.inode, replaced_links })
}

fn exchange(
    context: &mut Context<'_>,
    from: Place<'_>,
    to: Place<'_>,
    moved: EntryRecord,
    there: EntryRecord,
) -> Outcome<()> {
    check_not_below(context, &moved, from, to)?;
    check_not_below(context, &there, to, from)?;
    context.put_entry(from.parent, from.name, &there);
    context.put_entry(to.parent, to.name, &moved);
    move_inode(context, &moved, from.parent, to.parent)?;
    move_inode(context, &there, to.parent, from.parent)?;
    count_directories(context, from.parent, to.parent, moved.is_directory(), there.is_directory(), true)?;
    touch_both(context, from, to);
    Ok(())
}

fn check_replaceable(
    context: &mut Context<'_>,
    moved: &EntryRecord,
    there: &EntryRecord,
    to: Place<'_>,
) -> Outcome<()> {
    match (moved.is_directory(), there.is_directory()) {
        (true, false) => Err(to.fault(Code::NotDirectory)),
        (false, true) => Err(to.fault(Code::IsDirectory)),
        (true, true) if !context.is_empty(InodeId(there.inode))? => Err(to.fault(Code::NotEmpty)),
        _ => Ok(()),
    }
}

/// Refuses to move a directory below itself. The walk reads every directory on the way up, so that two renames that
/// together would close a ring conflict with each other.
fn check_not_below(
    context: &mut Context<'_>,
    moved: &EntryRecord,
    from: Place<'_>,
    to: Place<'_>,
) -> Outcome<()> {
    if !moved.is_directory() || from.parent == to.parent {
        return Ok(());
    }
    let mut above = to.parent;
    for _ in 0..limits::PATH_BYTES_MAX * limits::NAME_BYTES_MAX {
        if above.0 == moved.inode {
            return Err(from.fault(Code::Invalid));
        }
        if above == ROOT {
            return Ok(());
        }
        above = InodeId(context.named_inode(above)?.parent);
    }
    Err(inode_fault(Code::Corrupt, to.parent))
}

fn move_inode(context: &mut Context<'_>, entry: &EntryRecord, from: InodeId, to: InodeId) -> Outcome<()> {
    let id = InodeId(entry.inode);
    let mut record = context.named_inode(id)?;
    if entry.is_directory() && from != to {
        record.parent = to.0;
    }
    context.touch(&mut record);
    context.put_inode(id, &record);
    Ok(())
}

/// Keeps the counts of subdirectories of both parents: `moved` leaves `from` for `to`, and what was in `to` either
/// ends or, in an exchange, goes the other way.
fn count_directories(
    context: &mut Context<'_>,
    from: InodeId,
    to: InodeId,
    moved: bool,
    there: bool,
    exchanged: bool,
) -> Outcome<()> {
    let (moved, there) = (i64::from(moved), i64::from(there));
    let from_delta = if exchanged { there - moved } else { -moved };
    let to_delta = moved - there;
    if from == to {
        return context.add_subdirectories(from, from_delta + to_delta);
    }
    context.add_subdirectories(from, from_delta)?;
    context.add_subdirectories(to, to_delta)
}

fn touch_both(context: &mut Context<'_>, from: Place<'_>, to: Place<'_>) {
    context.touch_directory(from.parent);
    if to.parent != from.parent {
        context.touch_directory(to.parent);
    }
}
