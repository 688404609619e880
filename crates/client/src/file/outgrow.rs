//! A file leaves its inode record: it gets a layout, and its inline contents move to an object.
//!
//! Several clients may outgrow one file at the same time. The record's contents are copied to an object of a layout
//! that is only *proposed*; the metadata service installs it if the contents are still those that were copied. So no
//! client copies over what another one has written: the second one finds the layout installed, and writes there
//! only the bytes that it has written itself.

use super::inline::InlineContents;
use super::inode::OpenInode;
use super::layout_state::Contents;
use super::moved::{PAUSE, is_moved};
use super::objects::How;
use super::{look, objects};
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use vazao_model::{Code, Layout};
use vazao_wire::{op, proto};

/// Writes to a layout under way at once: each is a few bytes long.
const WRITES_IN_FLIGHT_MAX: usize = 64;

/// Where inline contents have gone.
struct Moved {
    layout: Arc<Layout>,
    /// What was written to the object, and during which start of its machine.
    written: Vec<(Range<u64>, u64)>,
}

/// What a service that lost power had answered and does not have any more.
#[derive(Default)]
struct Forgotten {
    /// The length that was set here last.
    length: Option<u64>,
    /// Bytes of a report.
    bytes: bool,
}

/// Gives the file a layout, or learns which one it has, and moves there what was inline.
pub(super) fn outgrow(open: &OpenInode, deadline_ns: u64) -> Result<()> {
    // No report with inline contents may be under way.
    let _one = open.committing.take();
    outgrow_in_turn(open, deadline_ns)
}

/// [`outgrow`] if the file is known to have a layout already.
pub(super) fn follow_outgrown(open: &OpenInode, deadline_ns: u64) -> Result<()> {
    let is_outgrown =
        matches!(open.lock().placed.contents(), Contents::Inline(inline) if inline.is_outgrown());
    if is_outgrown { outgrow(open, deadline_ns) } else { Ok(()) }
}

/// The caller has the turn at reporting.
pub(super) fn outgrow_in_turn(open: &OpenInode, deadline_ns: u64) -> Result<()> {
    if open.lock().inline_mut().is_some_and(|inline| inline.is_distrusted()) {
        // What a service that lost power has forgotten has to move, too.
        look::look_again(open, deadline_ns)?;
    }
    let Some(mut inline) = open.lock().placed.begin_move() else { return Ok(()) };
    let mut forgotten = Forgotten::default();
    let moved = move_to_objects(open, &mut inline, &mut forgotten, deadline_ns);
    let mut state = open.lock();
    if let Some(length) = forgotten.length {
        state.reports.take_length_again();
        state.size = length;
        state.report_again(length);
    } else if forgotten.bytes {
        state.report_again(inline.unreported_end());
    }
    let outcome = match moved {
        Ok(moved) => {
            // Other clients may have written there and not made it durable.
            state.sync.touch_all();
            state.placed.end_move(Contents::Striped(moved.layout));
            for (offset, bytes) in inline.unreported() {
                state.kept.note(offset as u64, &bytes, &open.core.kept);
            }
            for (range, boot) in moved.written {
                state.unwritten.remove(&range);
                state.reports.wrote_extent(range.clone());
                state.note_written(&range, boot, false);
            }
            state.write_count += 1;
            Ok(())
        }
        Err(error) => {
            state.placed.end_move(Contents::Inline(inline));
            Err(error)
        }
    };
    drop(state);
    open.wake();
    outcome
}

/// Notes in `forgotten` what the service has lost with its power: that is moved again.
fn move_to_objects(
    open: &OpenInode,
    inline: &mut InlineContents,
    forgotten: &mut Forgotten,
    deadline_ns: u64,
) -> Result<Moved> {
    let mut copied: Option<(proto::CopiedContents, Moved)> = None;
    loop {
        let request = proto::AssignLayoutRequest {
            once: None,
            inode: open.id.0,
            host: open.core.context.options.host,
            copied: copied.as_ref().map(|(copied, _)| copied.clone()),
            zone: open.core.meta.zone(),
        };
        let response = open.core.meta.change_until::<op::AssignLayout>(request, deadline_ns)?;
        let proposed = response.layout.unwrap_or_default();
        let layout = Arc::new(Layout::try_from(proposed)?);
        if forgotten.length.is_none() {
            forgotten.length = cut_again(open, inline, response.version, deadline_ns)?;
            if forgotten.length.is_some() {
                continue;
            }
        }
        forgotten.bytes |= inline.restore_forgotten(response.version);
        let Some(base) = response.contents else {
            let is_copied = |moved: &Moved| moved.layout.generation == layout.generation;
            if let Some((_, moved)) = copied.take().filter(|(_, moved)| is_copied(moved)) {
                return Ok(Moved { layout, written: moved.written });
            }
            match write_unreported(open, inline, layout, deadline_ns) {
                // The file gets another layout just now: the next answer shows it.
                Err(error) if is_moved(&error) && open.core.context.clock.now_ns() < deadline_ns => {
                    open.core.context.clock.sleep(PAUSE);
                    continue;
                }
                outcome => return outcome,
            }
        };
        if open.core.context.clock.now_ns() >= deadline_ns {
            let detail = "other clients change it faster than it can outgrow its inode record; try again";
            return Err(Error::new(Code::Timeout, format!("{}: {detail}", open.id)));
        }
        copied = Some(copy_contents(open, &inline.over(base), layout, response.version, deadline_ns)?);
    }
}

/// Where the service, which has the record at `version`, has lost power and forgotten a length that was set here,
/// the file there may have bytes, and objects, that were cut off: it is cut to nothing, and all contents are
/// written anew. Returns the length that it is to have; `None`: nothing of that.
fn cut_again(
    open: &OpenInode,
    inline: &mut InlineContents,
    version: u64,
    deadline_ns: u64,
) -> Result<Option<u64>> {
    let state = open.lock();
    let is_older = version < state.attributes.version && state.reports.is_length_unsynced();
    let length = state.reports.length_again().or_else(|| is_older.then_some(state.size));
    drop(state);
    let Some(length) = length else { return Ok(None) };
    let (inode, seat) = (open.id.0, open.core.cache.seat());
    let request = proto::OpenRequest { inode, truncate: true, seat, ..Default::default() };
    open.core.meta.change_until::<op::Open>(request, deadline_ns)?;
    inline.write_all_again(length);
    Ok(Some(length))
}

/// Copies contents to an object of a proposed layout, of which no other client knows.
fn copy_contents(
    open: &OpenInode,
    contents: &[u8],
    layout: Arc<Layout>,
    version: u64,
    deadline_ns: u64,
) -> Result<(proto::CopiedContents, Moved)> {
    // What was durable in the inode record must be so in its new place before the record lets go of it.
    let how = How { sync: true, must_exist: false };
    let mut call = objects::submit_write(open, &layout, 0, contents, how, deadline_ns)?;
    let boot = objects::finish_write(open, &mut call, contents, deadline_ns).map_err(|e| e.about(open.id))?;
    let (slot, _) = layout.distribution.locate(0, layout.width());
    let mut message = proto::Layout::from(&*layout);
    message.written_slots = 1u64.checked_shl(slot).unwrap_or(0);
    let written = vec![(0..contents.len() as u64, boot)];
    Ok((proto::CopiedContents { layout: Some(message), version }, Moved { layout, written }))
}

/// Writes what was written here and not reported to the objects of the file's layout.
fn write_unreported(
    open: &OpenInode,
    inline: &InlineContents,
    layout: Arc<Layout>,
    deadline_ns: u64,
) -> Result<Moved> {
    let how = How { sync: false, must_exist: false };
    let writes: Vec<(usize, Vec<u8>)> = inline.unreported().collect();
    let mut written = Vec::with_capacity(writes.len());
    for some in writes.chunks(WRITES_IN_FLIGHT_MAX) {
        let mut calls = Vec::with_capacity(some.len());
        for (offset, bytes) in some {
            calls.push(objects::submit_write(open, &layout, *offset as u64, bytes, how, deadline_ns)?);
        }
        for ((offset, bytes), call) in some.iter().zip(&mut calls) {
            let boot = objects::finish_write(open, call, bytes, deadline_ns).map_err(|e| e.about(open.id))?;
            written.push((*offset as u64..(offset + bytes.len()) as u64, boot));
        }
    }
    Ok(Moved { layout, written })
}
