//! What the metadata service shows of an open file now.

use super::inode::{FreshInode, OpenInode};
use crate::Result;
use vazao_wire::{op, proto};

/// Asks the metadata service for layout and contents as they are now.
pub(super) fn look_again(open: &OpenInode, deadline_ns: u64) -> Result<()> {
    open.absorb_open(look(open, deadline_ns)?);
    Ok(())
}

/// [`look_again`], without taking over what there is.
pub(super) fn look(open: &OpenInode, deadline_ns: u64) -> Result<FreshInode> {
    let request = proto::OpenRequest { inode: open.id.0, seat: open.core.cache.seat(), ..Default::default() };
    let asked_at = open.core.answers();
    let response = open.core.meta.ask_until::<op::Open>(&request, deadline_ns)?;
    Ok(FreshInode::new(response.inode, asked_at)?)
}
