//! Objects that an fsync has not found.
//!
//! The server cannot tell one that was removed with its file's contents from one that was lost beneath it: the metadata
//! service can. A layout that a file has lost never comes back, so that an object missing from the one it still has
//! afterwards is lost.

use super::inode::{FreshInode, OpenInode};
use super::objects::{object_address, submit_read};
use crate::data::DataCall;
use crate::{Error, Result};
use vazao_model::{Code, Layout};
use vazao_wire::{op, proto};

/// Some objects of `slots`, which had been written, were missing when they were to be synced. `Io`: they are lost,
/// and only they are left in `slots`. Other errors: whether they are cannot be told.
pub(super) fn check_missing(
    open: &OpenInode,
    layout: &Layout,
    slots: &mut Vec<u32>,
    deadline_ns: u64,
) -> Result<()> {
    let missing = missing(open, layout, slots, deadline_ns)?;
    if missing.is_empty() || !has_layout_still(open, layout, deadline_ns)? {
        return Ok(());
    }
    let names: Vec<String> = missing
        .iter()
        .map(|slot| {
            let place = open.core.servers.place_name(layout, *slot);
            format!("{}.{}.{slot} on {place}", open.id, layout.generation)
        })
        .collect();
    *slots = missing;
    let detail = format!(
        "{}: missing although the file has it: object {}; write the file again or restore it from another copy",
        open.id,
        names.join(", object ")
    );
    Err(Error::new(Code::Io, detail))
}

/// Those of these objects that are not there.
pub(super) fn missing(
    open: &OpenInode,
    layout: &Layout,
    slots: &[u32],
    deadline_ns: u64,
) -> Result<Vec<u32>> {
    let ask = |slot: &u32| {
        let object = object_address(open.id.0, layout, *slot)?;
        let request = proto::StatObjectRequest { object: Some(object) };
        Some((*slot, submit_read::<op::StatObject>(open, layout, (*slot, 0), &request, deadline_ns)))
    };
    let calls: Vec<(u32, DataCall)> = slots.iter().filter_map(ask).collect();
    let answers: Vec<Result<_>> = calls
        .into_iter()
        .map(|(slot, mut call)| {
            let exists = |stat: &proto::StatObjectResponse| stat.exists;
            Ok((slot, open.core.data.finish_found::<op::StatObject>(&mut call, exists, deadline_ns)?.exists))
        })
        .collect();
    let answers: Vec<(u32, bool)> = answers.into_iter().collect::<Result<_>>()?;
    Ok(answers.into_iter().filter(|(_, exists)| !exists).map(|(slot, _)| slot).collect())
}

/// False also for a file that is gone.
pub(super) fn has_layout_still(open: &OpenInode, layout: &Layout, deadline_ns: u64) -> Result<bool> {
    let request = proto::GetAttributesRequest { inode: open.id.0, seat: 0 };
    let asked_at = open.core.answers();
    match open.core.meta.ask_until::<op::GetAttributes>(&request, deadline_ns) {
        Err(error) if matches!(error.code, Code::NotFound | Code::Stale) => Ok(false),
        Err(error) => Err(error),
        Ok(response) => {
            let theirs = FreshInode::new(response.inode, asked_at)?.layout;
            Ok(theirs.is_some_and(|theirs| theirs.generation == layout.generation))
        }
    }
}
