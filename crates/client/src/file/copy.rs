//! Copies between files of one volume: what lies on one server is copied there, the rest goes through the client. Holes
//! of the source are not read: they become holes.

use super::holes::Seek;
use super::inode::OpenInode;
use super::layout_state::Contents;
use super::objects::object_address;
use super::read_ahead::ReadAhead;
use super::{holes, moved, outgrow, read, write, write_out, zero};
use crate::data::{DataCall, addressed};
use crate::meta::decode;
use crate::{Error, Result};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use vazao_model::limits::{BLOCK_BYTES, FILE_BYTES_MAX, INLINE_BYTES_MAX};
use vazao_model::{Code, Extents, Layout};
use vazao_wire::{Method, op, proto};

/// Bytes of one call, so that it ends well within its deadline.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// Bytes of one piece: the largest that one request copies or carries.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A piece lies in one object on both sides.
struct Piece {
    from: u64,
    to: Range<u64>,
}

/// A part of the source up to `end`, of one kind.
struct Segment {
    end: u64,
    is_hole: bool,
}

/// What is known of the source when the copy begins.
struct Source {
    layout: Option<Arc<Layout>>,
    written_slots: u64,
    /// What is not to be copied from its objects.
    unwritten: Extents,
}

/// Copies up to `length` bytes at `from` of `source` to `to` of this file; returns how many, 0 at the source's end.
pub(crate) fn copy_from(
    open: &OpenInode,
    source: &OpenInode,
    ahead: &Mutex<ReadAhead>,
    from: u64,
    to: u64,
    length: u64,
) -> Result<u64> {
    let deadline_ns = open.core.context.deadline_ns();
    moved::adopt_layout(open, deadline_ns);
    write_out::write_out(source, deadline_ns);
    let state = source.lock();
    let length = state.size.saturating_sub(from).min(length).min(COPY_BYTES_MAX);
    let known = match state.placed.read_layout() {
        Some((layout, written_slots)) => {
            Source { layout: Some(Arc::clone(layout)), written_slots, unwritten: state.unwritten.clone() }
        }
        None => Source { layout: None, written_slots: 0, unwritten: Extents::default() },
    };
    drop(state);
    let copy_end = to.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
    let copy_end =
        copy_end.ok_or_else(|| Error::new(Code::TooLarge, format!("{}: copying to {to}", open.id)))?;
    let (mut done, mut segment) = (0, Segment { end: from, is_hole: false });
    while done < length {
        if from + done >= segment.end {
            segment = segment_at(source, from + done, from + length);
        }
        let end = to + (segment.end - from);
        if segment.is_hole {
            copy_hole(open, to + done..end)?;
            done = segment.end - from;
            continue;
        }
        let _gate = open.length_gate.read();
        let layout =
            if copy_end > INLINE_BYTES_MAX as u64 { Some(striped(open, deadline_ns)?) } else { None };
        let piece = next_piece(&known, layout.as_deref(), from + done, to + done..end);
        let copied = piece.to.end - piece.to.start;
        let is_written = !known.unwritten.overlaps(&(piece.from..piece.from + copied));
        let on_server = match (&known.layout, &layout) {
            (Some(theirs), Some(ours)) if is_written => {
                copy_on_server(open, source.id.0, theirs, known.written_slots, ours, &piece, deadline_ns)
            }
            _ => false,
        };
        if !on_server {
            copy_through_here(open, source, ahead, &piece, deadline_ns)?;
        }
        done += copied;
    }
    Ok(length)
}

/// What lies at `at` of this file, as far as it goes on before `end`. Where its servers do not say it counts as
/// data: reading tells what is wrong.
fn segment_at(open: &OpenInode, at: u64, end: u64) -> Segment {
    let data = Segment { end, is_hole: false };
    let state = open.lock();
    if state.layout().is_some() && !state.has_holes() {
        return data;
    }
    drop(state);
    match holes::seek(open, Seek::Data, at) {
        Ok(None) => Segment { end, is_hole: true },
        Ok(Some(start)) if start > at => Segment { end: start.min(end), is_hole: true },
        Ok(Some(_)) => match holes::seek(open, Seek::Hole, at) {
            Ok(Some(hole)) if hole > at => Segment { end: hole.min(end), is_hole: false },
            _ => data,
        },
        Err(_) => data,
    }
}

/// Makes `range` a hole, also beyond the end, and the file as long as that.
fn copy_hole(open: &OpenInode, range: Range<u64>) -> Result<()> {
    if open.lock().size > range.start {
        zero::zero(open, range.clone())?;
    }
    let _gate = open.length_gate.read();
    let mut state = open.lock();
    let end = state.size;
    state.unwritten.add(end..range.end);
    write::note_growth(open, &mut state, range.start, range.end);
    state.kept.note_missing();
    state.is_sparse = true;
    Ok(())
}

/// The layout of a file that is to have objects.
fn striped(open: &OpenInode, deadline_ns: u64) -> Result<Arc<Layout>> {
    let mut state = open.lock();
    loop {
        match state.placed.contents() {
            Contents::Moving => state = open.wait_turn(state),
            Contents::Striped(layout) => return Ok(Arc::clone(layout)),
            Contents::Inline(_) => {
                drop(state);
                outgrow::outgrow(open, deadline_ns)?;
                state = open.lock();
            }
        }
    }
}

fn copy_through_here(
    open: &OpenInode,
    source: &OpenInode,
    ahead: &Mutex<ReadAhead>,
    piece: &Piece,
    deadline_ns: u64,
) -> Result<()> {
    let mut bytes = vec![0; (piece.to.end - piece.to.start) as usize];
    let read = read::read(source, ahead, &mut bytes, piece.from)?;
    // A source that was cut meanwhile has zeros there.
    bytes[read..].fill(0);
    write::make_room(open, deadline_ns);
    write::write_segment(open, bytes[..].into(), piece.to.start, deadline_ns, &mut None)
}

/// True when the server that has both objects has copied the piece. Where it cannot, the client must: an older
/// server, a source that is gone, a full disk; the way through the client then tells what is wrong.
fn copy_on_server(
    open: &OpenInode,
    source: u64,
    theirs: &Layout,
    written_slots: u64,
    ours: &Layout,
    piece: &Piece,
    deadline_ns: u64,
) -> bool {
    let Some((mut call, must_exist)) =
        submit_copy(open, source, theirs, written_slots, ours, piece, deadline_ns)
    else {
        return false;
    };
    let answer = open.core.data.finish_data(&mut call, &[], deadline_ns);
    let boot = answer.and_then(|received| Ok(decode::<op::CopyObjectRange>(&received)?.boot));
    let mut state = open.lock();
    state.buffer.end_writer();
    match boot {
        Ok(boot) => {
            state.note_written(&piece.to, boot, must_exist);
            state.is_sparse = true;
            write::note_write(open, &mut state, piece.to.start, piece.to.end);
            state.kept.note_missing();
            true
        }
        Err(error) => {
            tracing::debug!(inode = %open.id, %error, "copied through the client instead");
            false
        }
    }
}

fn submit_copy(
    open: &OpenInode,
    source: u64,
    theirs: &Layout,
    written_slots: u64,
    ours: &Layout,
    piece: &Piece,
    deadline_ns: u64,
) -> Option<(DataCall, bool)> {
    let (block_bytes, length) = (BLOCK_BYTES as u64, piece.to.end - piece.to.start);
    let (from_slot, from_offset) = theirs.distribution.locate(piece.from, theirs.width());
    let (slot, offset) = ours.distribution.locate(piece.to.start, ours.width());
    let is_aligned = from_offset % block_bytes == offset % block_bytes && length >= block_bytes;
    if !is_aligned || written_slots & 1u64.checked_shl(from_slot)? == 0 {
        return None;
    }
    let from = object_address(source, theirs, from_slot)?;
    let object = object_address(open.id.0, ours, slot)?;
    let node = |object| open.core.servers.server(addressed(object)).map(|server| server.node);
    if node(&from)? != node(&object)? {
        return None;
    }
    let group = addressed(&object);
    let must_exist = open.lock().placed.has_object(slot);
    let request = proto::CopyObjectRangeRequest {
        source: Some(from),
        source_offset: from_offset,
        object: Some(open.core.data.numbered(object)),
        offset,
        length: length as u32,
        must_exist,
    };
    // What was written to that place before must not arrive after the copy.
    let mut state = write_out::settle(open, open.lock(), &piece.to, deadline_ns);
    state.buffer.begin_writer();
    drop(state);
    let message = prost::Message::encode_to_vec(&request);
    let call = open.core.data.submit_data(group, Method::CopyObjectRange, message, &[], deadline_ns);
    Some((call, must_exist))
}

/// The longest piece at `from` and at the beginning of `to` that crosses no unit of either file.
fn next_piece(source: &Source, ours: Option<&Layout>, from: u64, to: Range<u64>) -> Piece {
    let in_unit = |layout: Option<&Layout>, at: u64| {
        layout.map_or(PIECE_BYTES_MAX, |layout| {
            layout.distribution.piece_at(at, layout.width()).file_end() - at
        })
    };
    let length = (to.end - to.start)
        .min(PIECE_BYTES_MAX)
        .min(in_unit(source.layout.as_deref(), from))
        .min(in_unit(ours, to.start));
    Piece { from, to: to.start..to.start + length }
}
