//! Commit: what a writer reports at flush, fsync and close.

use crate::schema::records::{InodeRecord, TimeRecord};
use crate::service::context::Context;
use crate::service::fault::{Outcome, inode_fault};
use vazao_model::{Code, Extents, InodeId, Timestamp, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

pub(crate) fn run(
    context: &mut Context<'_>,
    request: &proto::CommitRequest,
) -> Outcome<proto::CommitResponse> {
    let id = InodeId(request.inode);
    let mut record = context.inode(id)?;
    if !record.is_file() {
        let code = if record.is_directory() { Code::IsDirectory } else { Code::Invalid };
        return Err(inode_fault(code, id));
    }
    check_sizes(id, request)?;
    context.answer_when_durable |= request.sync;
    let grows =
        |write: &proto::InlineWrite| inline_end(write) > record.contents.len() as u64 && write.zeros == 0;
    if request.inline_writes.iter().any(grows) {
        context.grow()?;
    }
    let version_before = record.version;
    let is_of_life = match &record.layout {
        // What was written under a layout that this one was converted from has been copied, but not what was first
        // written to a slot then: a conversion waits for such slots to be reported, so this came too late for it.
        Some(layout) if layout.generation != request.generation => {
            layout.is_of_life(request.generation) && request.written_slots == 0
        }
        Some(_) => true,
        None => request.generation == 0,
    };
    // A report about an earlier life of the file is answered with the present one and changes nothing.
    if is_of_life && apply(&mut record, request) {
        let modified = request.modified.map(Timestamp::from).unwrap_or(context.now);
        record.modified = Some(TimeRecord::from(modified));
        context.touch(&mut record);
        context.put_inode(id, &record);
        context.contents_changed(id);
    }
    // The reporter's copy is what its base was and what it has written; another client's report makes it a stale one.
    let is_copy_stale = request.generation == 0 && request.base_version != version_before;
    let inode = match is_copy_stale && record.layout.is_none() {
        true => context.inode_with_contents(id, record)?,
        false => context.inode_message(id, &record)?,
    };
    Ok(proto::CommitResponse { inode: Some(inode) })
}

/// End of a write into inline contents.
fn inline_end(write: &proto::InlineWrite) -> u64 {
    write.offset.saturating_add(write.zeros.max(write.data.len() as u64))
}

fn check_sizes(id: InodeId, request: &proto::CommitRequest) -> Outcome<()> {
    if request.size_at_least > limits::FILE_BYTES_MAX {
        return Err(inode_fault(Code::TooLarge, id));
    }
    let inline = request.inline_writes.iter().map(inline_end).max().unwrap_or(0);
    if inline > limits::INLINE_BYTES_MAX as u64 {
        return Err(Fault::new(Code::TooLarge, format!("inode {id}: {inline} bytes of inline contents")));
    }
    if request.generation != 0 && !request.inline_writes.is_empty() {
        return Err(Fault::new(Code::Invalid, format!("inode {id}: inline contents with a layout")));
    }
    if request.written.len() > limits::UNWRITTEN_EXTENTS_MAX {
        return Err(Fault::new(
            Code::Invalid,
            format!("inode {id}: {} written ranges", request.written.len()),
        ));
    }
    Ok(())
}

/// Changes the record as reported; false when there was nothing to report.
fn apply(record: &mut InodeRecord, request: &proto::CommitRequest) -> bool {
    let state = |record: &InodeRecord| {
        let slots = record.layout.as_ref().map(|layout| layout.written_slots);
        (record.size, slots, record.contents.len(), record.unwritten.clone())
    };
    let before = state(record);
    let inline = request.inline_writes.iter().map(inline_end).max().unwrap_or(0);
    record.size = record.size.max(request.size_at_least).max(inline);
    count_storage(record, before.0, request);
    note_written(record, before.0, request);
    if let Some(layout) = &mut record.layout {
        let slots = u64::MAX >> (64 - layout.groups.len().clamp(1, 64));
        layout.written_slots |= request.written_slots & slots;
    } else {
        request.inline_writes.iter().for_each(|write| put_inline(&mut record.contents, write));
    }
    before != state(record) || !request.inline_writes.is_empty() || request.modified.is_some()
}

/// Of what the file grows by only that is written which the report names: the rest may hold what a client wrote that
/// died before it could report it, or what one has written that will.
fn note_written(record: &mut InodeRecord, size_before: u64, request: &proto::CommitRequest) {
    let mut unwritten = record.unwritten();
    unwritten.add(size_before..record.size);
    request.written.iter().for_each(|extent| unwritten.remove(&extent.into()));
    // A client that does not tell what it has written may have written anything.
    record.set_unwritten(if request.tells_written { unwritten } else { Extents::default() });
}

/// Writes into inline contents: zeros fill what lies between their end and the write. The end has been checked.
fn put_inline(contents: &mut Vec<u8>, write: &proto::InlineWrite) {
    let (start, end) = (write.offset as usize, inline_end(write) as usize);
    if write.zeros != 0 {
        let contents_end = contents.len();
        match contents.get_mut(start..end) {
            Some(range) if end < contents_end => range.fill(0),
            _ => contents.truncate(start),
        }
        return;
    }
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[start..end].copy_from_slice(&write.data);
}

/// What is known of the storage of a file with holes; what is written behind its end is new storage.
fn count_storage(record: &mut InodeRecord, size_before: u64, request: &proto::CommitRequest) {
    // Those of another layout count objects that are gone.
    let is_present = record.layout.as_ref().is_some_and(|layout| layout.generation == request.generation);
    if record.layout.is_none() {
        record.allocated_bytes = None;
    } else if let Some(allocated) = request.allocated_bytes.filter(|_| is_present) {
        record.allocated_bytes = (allocated < record.size).then_some(allocated);
    } else if let Some(allocated) = &mut record.allocated_bytes {
        *allocated = allocated.saturating_add(record.size.saturating_sub(size_before));
    }
}
