//! Files that another client cuts to nothing, or gives new contents, while they are written here.
//!
//! The objects that were written to are removed, and the report of that is not taken. What was written goes to the new
//! life of the file, where there are copies of all of it ([`super::kept_writes`]): as on a local file system, where a
//! write after the cut is found in the file.

use super::inode::OpenInode;
use super::{commit, look, write, write_out};
use crate::Result;

/// The life of the file as it is known here; `None`: it has no objects.
pub(super) fn life(open: &OpenInode) -> Option<u32> {
    open.lock().layout().map(|layout| layout.life)
}

/// Goes on with the contents that are there now, without what was written here and not reported. The caller holds
/// `committing`.
pub(super) fn begin_new_life(open: &OpenInode, deadline_ns: u64) {
    commit::discard(open);
    if let Err(error) = look::look_again(open, deadline_ns) {
        tracing::debug!(inode = %open.id, %error, "a file that was cut elsewhere could not be opened again");
    }
}

/// Writes to the file's new life what was written to `former` and not reported. False where there are no copies of all
/// of it, or what was reported may be lost, too: it is given up. Errors: of the metadata service, which leave all as it
/// is; of the writes, which every handle reports.
pub(super) fn write_again(open: &OpenInode, former: Option<u32>, deadline_ns: u64) -> Result<bool> {
    let _alone = open.length_gate.write();
    let one = open.committing.take();
    if life(open) != former {
        // Another thread has done it.
        return Ok(true);
    }
    let fresh = look::look(open, deadline_ns)?;
    let state = open.lock();
    // A service that has lost power since may have forgotten what was reported, with its layout: that was not cut.
    let is_known = state.kept.is_whole() && !state.reports.is_perhaps_forgotten(fresh.start);
    drop(state);
    if !is_known {
        begin_new_life(open, deadline_ns);
        return Ok(false);
    }
    write_out::discard_staged(open);
    write_out::write_out(open, deadline_ns);
    let writes = open.lock().kept.take().unwrap_or_default();
    commit::discard(open);
    open.absorb_open(fresh);
    // A write that outgrows the inode record takes its turn.
    drop(one);
    let rewritten = writes.iter().try_for_each(|(offset, bytes)| {
        write::write_segment(open, bytes[..].into(), *offset, deadline_ns, &mut None)
    });
    rewritten.inspect_err(|error| open.lock().sync.tell(error.clone()))?;
    Ok(true)
}
