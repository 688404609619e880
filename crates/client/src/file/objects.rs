//! Requests to the objects of a file: where each lies, writes of bytes and their acknowledgements.

use super::inode::OpenInode;
use crate::data::{DataCall, ReadOf, addressed};
use crate::{Error, Result};
use vazao_meter::Cause;
use vazao_model::checksum::piece_checksums;
use vazao_model::{Code, Layout};
use vazao_wire::interrupt;
use vazao_wire::operation::Operation;
use vazao_wire::{Method, op, proto};

/// How a write is carried out.
#[derive(Clone, Copy, Default)]
pub(super) struct How {
    /// Answered once durable.
    pub(super) sync: bool,
    /// Refused where there is no such object.
    pub(super) must_exist: bool,
}

/// The address of one object of a file.
pub(crate) fn object_address(inode: u64, layout: &Layout, slot: u32) -> Option<proto::ObjectAddress> {
    let group = *layout.groups.get(slot as usize)?;
    Some(proto::ObjectAddress {
        target: group.target().map_or(0, |target| target.0),
        inode,
        generation: layout.generation,
        slot,
        group: group.shared().0,
        ..Default::default()
    })
}

/// Asks for something of the object of `slot` that any of its copies has, at `offset` of the file.
pub(super) fn submit_read<O: Operation>(
    open: &OpenInode,
    layout: &Layout,
    (slot, offset): (u32, u64),
    request: &O::Request,
    deadline_ns: u64,
) -> DataCall {
    let read = ReadOf { spread: &open.spread, layout, slot, offset };
    let message = prost::Message::encode_to_vec(request);
    open.core.data.submit_read(&read, O::METHOD, message, deadline_ns)
}

pub(super) fn submit_write(
    open: &OpenInode,
    layout: &Layout,
    offset: u64,
    bytes: &[u8],
    how: How,
    deadline_ns: u64,
) -> Result<DataCall> {
    let (slot, object_offset) = layout.distribution.locate(offset, layout.width());
    let started_ns = open.core.context.clock.now_ns();
    let checksums = piece_checksums(object_offset, bytes);
    open.core.context.counters.accounts.charge(Cause::Compute, open.core.context.clock.now_ns() - started_ns);
    let object = object_address(open.id.0, layout, slot);
    let group = object.as_ref().map(addressed);
    let object = object.map(|object| open.core.data.numbered(object));
    let no_slot = || Error::new(Code::Internal, format!("{}: no slot {slot} in its layout", open.id));
    let How { sync, must_exist } = how;
    let lent = None;
    let request = proto::WriteRequest { object, offset: object_offset, checksums, sync, must_exist, lent };
    let message = prost::Message::encode_to_vec(&request);
    let group = group.ok_or_else(no_slot)?;
    open.core.data.connect_ahead(layout, slot, deadline_ns);
    Ok(open.core.data.submit_data(group, Method::Write, message, bytes, deadline_ns))
}

/// Waits for the acknowledgement of a write; returns the start of the machine that took it.
pub(super) fn finish_write(
    open: &OpenInode,
    call: &mut DataCall,
    bytes: &[u8],
    deadline_ns: u64,
) -> Result<u64> {
    interrupt::uninterruptible(|| finish_write_or_leave(open, call, bytes, deadline_ns))
}

/// `Interrupted`: not yet known, and `call` can be waited for again.
pub(super) fn finish_write_or_leave(
    open: &OpenInode,
    call: &mut DataCall,
    bytes: &[u8],
    deadline_ns: u64,
) -> Result<u64> {
    let received = open.core.data.finish_data(call, bytes, deadline_ns)?;
    open.core.data.count_written(call, bytes.len());
    Ok(crate::meta::decode::<op::Write>(&received)?.boot)
}
