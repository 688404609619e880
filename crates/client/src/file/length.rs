//! Setting a file's length. No write of this client to the file is under way meanwhile.

use super::inode::{FreshInode, OpenInode};
use super::objects::object_address;
use super::unsynced::Span;
use super::{commit, look, moved, write_out};
use crate::data::{DataCall, addressed};
use crate::meta::decode;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use vazao_model::limits::FILE_BYTES_MAX;
use vazao_model::{Code, Layout};
use vazao_wire::{Operation, op, proto};

/// Cuts or extends with zeros.
pub(crate) fn set_length(open: &OpenInode, length: u64) -> Result<()> {
    if length > FILE_BYTES_MAX {
        return Err(Error::new(Code::TooLarge, format!("{}: length {length}", open.id)));
    }
    let deadline_ns = open.core.context.deadline_ns();
    let _alone = open.length_gate.write();
    let _one = open.committing.take();
    if length == 0 {
        return empty(open, deadline_ns);
    }
    moved::until_converted(open, deadline_ns, |lost| resize(open, length, lost, deadline_ns))
}

/// A new life with nothing in it; what was unwritten need not be written any more.
fn empty(open: &OpenInode, deadline_ns: u64) -> Result<()> {
    write_out::discard_staged(open);
    write_out::write_out(open, deadline_ns);
    let fresh = send_nothing(open, deadline_ns)?;
    open.lock().begin_life(fresh, open.core.count_answer());
    Ok(())
}

/// Has the service begin a new life of the file.
fn send_nothing(open: &OpenInode, deadline_ns: u64) -> Result<FreshInode> {
    let request = proto::OpenRequest {
        inode: open.id.0,
        truncate: true,
        seat: open.core.cache.seat(),
        ..Default::default()
    };
    let asked_at = open.core.answers();
    let response = open.core.meta.change_until::<op::Open>(request, deadline_ns)?;
    Ok(FreshInode::new(response.inode, asked_at)?)
}

/// `lost`: see [`moved::until_converted`].
fn resize(open: &OpenInode, length: u64, lost: Option<u32>, deadline_ns: u64) -> Result<()> {
    write_out::write_out(open, deadline_ns);
    commit::report(open, false, deadline_ns)?;
    // The server's size counts: another client may have made the file longer than is known here.
    look::look_again(open, deadline_ns)?;
    moved::adopt_alone(open, deadline_ns);
    let mut state = open.lock();
    let (size, slots, layout) = (state.size, state.placed.slots(), state.layout().cloned());
    if let (true, Some(_)) = (length < size, &layout) {
        state.sync.touch(slots);
    }
    drop(state);
    if let (true, Some(layout)) = (length < size, layout) {
        // Before the size: should this fail half way, the file has zeros at its end, and never old bytes behind it.
        cut_objects(open, &layout, slots, &(length..size), lost, deadline_ns)?;
    }
    set_size(open, length, deadline_ns)
}

/// What the answer to a length that was set has shown.
struct Answered {
    /// The service's start.
    start: u32,
    /// A newer one was taken over before it arrived.
    is_old: bool,
}

/// Has the service set the length, and takes over what it answers.
fn send_length(open: &OpenInode, length: u64, deadline_ns: u64) -> Result<Answered> {
    let request = proto::SetAttributesRequest {
        inode: open.id.0,
        size: Some(length),
        modified: Some(open.core.context.wall_time().into()),
        ..Default::default()
    };
    let asked_at = open.core.answers();
    let response = open.core.meta.change_until::<op::SetAttributes>(request, deadline_ns)?;
    let fresh = FreshInode::new(response.inode, asked_at)?;
    let (start, version, at) = (fresh.start, fresh.attributes.version, open.core.count_answer());
    let mut state = open.lock();
    // After a loss of power the newest answer may have a lower version.
    let is_same_start = !state.reports.is_perhaps_forgotten(start);
    let is_old = is_same_start && state.knows_better(&fresh.attributes, asked_at);
    let is_next = version == state.attributes.version.saturating_add(1);
    state.absorb(fresh, at);
    if is_next {
        // No other client has changed it in between: what it is longer by is zeros.
        state.shown.settle(version, at);
    }
    Ok(Answered { start, is_old })
}

/// Sets the length that the file has here, at a service that has forgotten it. What is written here meanwhile stays.
pub(super) fn set_again(open: &OpenInode, length: u64, deadline_ns: u64) -> Result<()> {
    if length == 0 {
        let fresh = send_nothing(open, deadline_ns)?;
        open.lock().begin_life_again(fresh, open.core.count_answer());
        return Ok(());
    }
    let Answered { start, .. } = send_length(open, length, deadline_ns)?;
    let mut state = open.lock();
    state.reports.length_was_set(start);
    if state.inline_mut().is_some_and(|inline| inline.is_outgrown()) {
        // The service has objects of what was cut to nothing: the move to them cuts them.
        state.reports.set_length_again(length);
    }
    Ok(())
}

fn set_size(open: &OpenInode, length: u64, deadline_ns: u64) -> Result<()> {
    let Answered { start, is_old } = send_length(open, length, deadline_ns)?;
    let mut state = open.lock();
    state.reports.cut(length);
    state.reports.length_was_set(start);
    state.sync.mend(&(length..u64::MAX));
    state.write_count += 1;
    if is_old {
        // Another client has gone on from this length, and that is known here.
        return Ok(());
    }
    state.is_sparse |= length > state.size;
    let before = state.size;
    state.unwritten.add(before..length);
    state.unwritten.cut(length);
    state.size = length;
    if let Some(inline) = state.inline_mut() {
        inline.cut(usize::try_from(length).unwrap_or(usize::MAX));
    }
    Ok(())
}

/// Cuts objects where `range` of the file begins, which ends where the file does.
pub(super) fn cut_objects(
    open: &OpenInode,
    layout: &Arc<Layout>,
    slots: u64,
    range: &Range<u64>,
    lost: Option<u32>,
    deadline_ns: u64,
) -> Result<()> {
    let must_exist = lost != Some(layout.generation);
    let cut = |slot, object| {
        let length = layout.distribution.object_length(slot, range.start, layout.width());
        Some(proto::TruncateObjectRequest { object: Some(object), length, must_exist })
    };
    let boot = |response: proto::TruncateObjectResponse| response.boot;
    change_objects::<op::TruncateObject>(open, layout, (slots, range), &cut, &boot, deadline_ns)
}

/// Sends each of `slots` the request made for it, where there is one, and waits for all answers. What lies in
/// `range` of the file then reads as zeros. `boot`: the start of the machine that an answer names.
pub(super) fn change_objects<O: Operation>(
    open: &OpenInode,
    layout: &Layout,
    (slots, range): (u64, &Range<u64>),
    request: &dyn Fn(u32, proto::ObjectAddress) -> Option<O::Request>,
    boot: &dyn Fn(O::Response) -> u64,
    deadline_ns: u64,
) -> Result<()> {
    let mut calls: Vec<(u32, DataCall)> = (0..layout.width())
        .filter(|slot| slots & (1 << slot) != 0)
        .filter_map(|slot| {
            let object = object_address(open.id.0, layout, slot)?;
            let group = addressed(&object);
            let message = prost::Message::encode_to_vec(&request(slot, open.core.data.numbered(object))?);
            open.core.data.connect_ahead(layout, slot, deadline_ns);
            Some((slot, open.core.data.submit_data(group, O::METHOD, message, &[], deadline_ns)))
        })
        .collect();
    let mut outcome = Ok(());
    for (slot, call) in &mut calls {
        let answer = open.core.data.finish_data(call, &[], deadline_ns);
        let boot = answer.and_then(|received| Ok(boot(decode::<O>(&received)?)));
        let place = |at: u64| layout.distribution.object_length(*slot, at, layout.width());
        let span = Span { range: place(range.start)..place(range.end), is_cut: true };
        outcome = outcome.and(boot.map(|boot| open.lock().note_change(layout, *slot, span, boot)));
    }
    outcome.map_err(|e| e.about(open.id))
}
