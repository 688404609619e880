//! The end of inodes: unlinked ones that may still be open, and the objects that files leave behind.
//!
//! When an inode loses its last name, it is kept for every other session that may have it open, which is each one not
//! known to have it closed ([`crate::part::opens`]). Each of these sessions is asked with its next renewal, and the
//! last one to release the inode ends it.

use crate::ops::xattr;
use crate::schema::keys;
use crate::schema::records::{InodeRecord, LayoutRecord, OrphanRecord, ReclaimObject, ReclaimRecord};
use crate::service::context::Context;
use crate::service::fault::Outcome;
use vazao_model::{InodeId, SessionId};

/// Takes one name from an inode; returns how many are left. `held`: the caller has it open.
pub(crate) fn drop_link(context: &mut Context<'_>, id: InodeId, held: bool) -> Outcome<u32> {
    let mut record = context.named_inode(id)?;
    record.links = record.links.saturating_sub(1);
    context.touch(&mut record);
    if record.links > 0 {
        context.put_inode(id, &record);
        return Ok(record.links);
    }
    let holders = possible_holders(context, id, &record, held)?;
    if holders.is_empty() {
        end_inode(context, id, &record)?;
        return Ok(0);
    }
    context.put_inode(id, &record);
    hold(context, id, &holders);
    Ok(0)
}

/// Notes which sessions an inode without a name is kept for.
pub(crate) fn hold(context: &mut Context<'_>, id: InodeId, holders: &[SessionId]) {
    holders.iter().for_each(|&session| context.write_raw(keys::asked(session, id), Vec::new()));
    let sessions = holders.iter().map(|session| session.0).collect();
    context.write(keys::orphan(id), &OrphanRecord { sessions });
}

/// True when an inode without a name is kept for the session, which may have it open.
pub(crate) fn is_kept_for(context: &mut Context<'_>, session: SessionId, id: InodeId) -> Outcome<bool> {
    context.exists(&keys::asked(session, id))
}

/// An inode that never had a name gets one: no session need keep it alive any more.
pub(crate) fn adopt(context: &mut Context<'_>, id: InodeId) -> Outcome<()> {
    let key = keys::orphan(id);
    if let Some(orphan) = context.read::<OrphanRecord>(&key, "orphan")? {
        orphan.sessions.iter().for_each(|&session| context.delete(keys::asked(SessionId(session), id)));
        context.delete(key);
    }
    Ok(())
}

fn possible_holders(
    context: &mut Context<'_>,
    id: InodeId,
    record: &InodeRecord,
    held: bool,
) -> Outcome<Vec<SessionId>> {
    let service = context.service;
    let all = service.sessions().all(context)?;
    let caller = context.caller;
    let own = caller.filter(|caller| held && all.binary_search(caller).is_ok());
    // Clients do not report open directories.
    let holders = if record.is_directory() { all.to_vec() } else { context.may_hold(id, &all) };
    Ok(holders.into_iter().filter(|&session| Some(session) != caller).chain(own).collect())
}

/// A session does not, or no longer, have an unlinked inode open.
pub(crate) fn release(context: &mut Context<'_>, session: SessionId, id: InodeId) -> Outcome<()> {
    if !context.exists(&keys::asked(session, id))? {
        return Ok(());
    }
    context.delete(keys::asked(session, id));
    let key = keys::orphan(id);
    let Some(mut orphan) = context.read::<OrphanRecord>(&key, "orphan")? else { return Ok(()) };
    orphan.sessions.retain(|&holder| holder != session.0);
    if !orphan.sessions.is_empty() {
        context.write(key, &orphan);
        return Ok(());
    }
    context.delete(key);
    match context.find_inode(id)? {
        Some(record) => end_inode(context, id, &record),
        None => Ok(()),
    }
}

/// Removes all records of an inode; its objects are left to the reclaimer.
fn end_inode(context: &mut Context<'_>, id: InodeId, record: &InodeRecord) -> Outcome<()> {
    context.delete(keys::inode(id));
    context.attributes_changed(id);
    if record.is_directory() {
        context.delete(keys::times(id));
        context.delete(keys::subdirectories(id));
    }
    if record.xattr_names_bytes != 0 {
        for name in xattr::names(context, id)? {
            context.delete(keys::xattr(id, &name));
        }
    }
    if let Some(layout) = &record.layout {
        reclaim_objects(context, id, layout);
    }
    context.inodes_delta -= 1;
    Ok(())
}

/// Writes down that the objects of a layout are to be removed: all slots, for a writer that never reported may have
/// made some that `written_slots` does not know.
pub(crate) fn reclaim_objects(context: &mut Context<'_>, id: InodeId, layout: &LayoutRecord) {
    let slots = layout.groups.iter().zip(0..);
    let objects = slots.map(|(&group, slot)| ReclaimObject { slot, group }).collect();
    context.write(keys::reclaim(id, layout.generation), &ReclaimRecord { objects });
}
