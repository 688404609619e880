//! Where a file has data and where holes (`SEEK_DATA` and `SEEK_HOLE` of lseek(2)), and how much storage it takes.
//!
//! Holes of a striped file are those of its objects: what of the file after some offset lies in one object begins at
//! one offset there, so the first data, or the first hole, of each object give that of the file.

use super::inode::OpenInode;
use super::layout_state::Contents;
use super::objects::{object_address, submit_read};
use super::{outgrow, write_out};
use crate::Result;
use crate::data::DataCall;
use crate::meta::decode;
use std::sync::Arc;
use vazao_model::Layout;
use vazao_wire::{op, proto};

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// Something that may not be zeros.
    Data,
    /// A hole; the end of the file counts as one.
    Hole,
}

/// What an object said: where its first data at or after `from` begins and ends.
struct First {
    slot: u32,
    from: u64,
    start: u64,
    end: u64,
}

/// The first offset at or after `offset` with what is looked for; `None` when there is none before the end of the
/// file, or `offset` lies beyond it.
pub(crate) fn seek(open: &OpenInode, seek: Seek, offset: u64) -> Result<Option<u64>> {
    let deadline_ns = open.core.context.deadline_ns();
    outgrow::follow_outgrown(open, deadline_ns)?;
    write_out::write_out(open, deadline_ns);
    let mut state = open.lock();
    let (layout, slots) = loop {
        let size = state.size;
        if offset >= size {
            return Ok(None);
        }
        match state.placed.contents() {
            Contents::Moving => state = open.wait_turn(state),
            Contents::Inline(inline) => {
                let data_end = (inline.bytes().len() as u64).min(size);
                return Ok(match seek {
                    Seek::Data => (offset < data_end).then_some(offset),
                    Seek::Hole => Some(data_end.max(offset)),
                });
            }
            Contents::Striped(layout) => {
                let mine = (layout, state.placed.slots());
                let (layout, slots) = state.placed.read_layout().unwrap_or(mine);
                break (Arc::clone(layout), slots);
            }
        }
    };
    let size = state.size;
    drop(state);
    seek_objects(open, seek, &layout, slots, offset, size, deadline_ns)
}

/// The same in the objects of `slots`, of a file of `size` bytes.
pub(super) fn seek_objects(
    open: &OpenInode,
    seek: Seek,
    layout: &Layout,
    slots: u64,
    offset: u64,
    size: u64,
    deadline_ns: u64,
) -> Result<Option<u64>> {
    let firsts = first_ranges(open, layout, slots, offset, deadline_ns)?;
    let width = layout.width();
    let in_file = |slot, at| layout.distribution.file_offset(slot, at, width);
    let nearest = match seek {
        Seek::Data => firsts.iter().filter_map(|f| in_file(f.slot, f.start)).min(),
        Seek::Hole => {
            let hole = |f: &First| if f.start > f.from { f.from } else { f.end };
            firsts.iter().filter_map(|f| in_file(f.slot, hole(f))).min().or(Some(size))
        }
    };
    Ok(match seek {
        Seek::Data => nearest.filter(|at| *at < size),
        Seek::Hole => nearest.map(|at| at.min(size)),
    })
}

/// The first data of every slot's part of the file after `offset`; an object without any has it at the end of all
/// offsets, and one that is missing although it was written counts as data, so that reading it tells what is wrong.
fn first_ranges(
    open: &OpenInode,
    layout: &Layout,
    slots: u64,
    offset: u64,
    deadline_ns: u64,
) -> Result<Vec<First>> {
    let width = layout.width();
    let mut firsts = Vec::with_capacity(width as usize);
    let mut calls: Vec<(u32, u64, DataCall)> = Vec::new();
    for slot in 0..width {
        let from = layout.distribution.object_length(slot, offset, width);
        let object = object_address(open.id.0, layout, slot).filter(|_| slots & (1 << slot) != 0);
        let Some(object) = object else {
            firsts.push(First { slot, from, start: u64::MAX, end: u64::MAX });
            continue;
        };
        let request = proto::ObjectRangesRequest { object: Some(object), offset: from, limit: 1 };
        let call = submit_read::<op::ObjectRanges>(open, layout, (slot, offset), &request, deadline_ns);
        calls.push((slot, from, call));
    }
    let mut outcome = Ok(());
    for (slot, from, mut call) in calls {
        let exists = |ranges: &proto::ObjectRangesResponse| ranges.exists;
        match open.core.data.finish_found::<op::ObjectRanges>(&mut call, exists, deadline_ns) {
            Ok(response) => firsts.push(first(slot, from, &response)),
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome.map(|()| firsts).map_err(|e| e.about(open.id))
}

/// Storage that the objects take, as their servers count it; `None` when one of them does not say.
pub(super) fn allocated_bytes(
    open: &OpenInode,
    layout: &Layout,
    slots: u64,
    deadline_ns: u64,
) -> Option<u64> {
    let calls: Vec<DataCall> = (0..layout.width())
        .filter(|slot| slots & (1 << slot) != 0)
        .filter_map(|slot| {
            let object = object_address(open.id.0, layout, slot)?;
            let request = proto::StatObjectRequest { object: Some(object) };
            Some(submit_read::<op::StatObject>(open, layout, (slot, 0), &request, deadline_ns))
        })
        .collect();
    // All are awaited, also after one that failed.
    let answers: Vec<Option<u64>> = calls
        .into_iter()
        .map(|mut call| {
            let received = open.core.data.finish_data(&mut call, &[], deadline_ns).ok()?;
            Some(decode::<op::StatObject>(&received).ok()?.allocated_bytes)
        })
        .collect();
    answers.into_iter().try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
}

fn first(slot: u32, from: u64, response: &proto::ObjectRangesResponse) -> First {
    if !response.exists {
        return First { slot, from, start: from, end: u64::MAX };
    }
    match response.ranges.first() {
        Some(range) => {
            let start = range.offset.max(from);
            First { slot, from, start, end: range.offset.saturating_add(range.length).max(start) }
        }
        None => First { slot, from, start: u64::MAX, end: u64::MAX },
    }
}
