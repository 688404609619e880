//! Files that get another layout while they are open here ([`crate::Client::convert`] of some client).
//!
//! The bytes stay the same, in other objects; the old ones are sealed first and removed later. What was acknowledged
//! before the seal has been copied. What the seal refused is written again under the new layout, durably, since nothing
//! is remembered of it until the file's own layout is exchanged. That happens when no write is under way, before the
//! next write or flush; reads look into the new objects from the moment they are known of.

use super::inode::{FreshInode, InodeState, OpenInode};
use super::layout_state::Written;
use super::objects::How;
use super::staging::transfer_at;
use super::{objects, write_out};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use vazao_model::{Code, Layout};
use vazao_wire::{op, proto};

/// How long a refused write waits before it looks whether the layout has been exchanged.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// A waiter ends a stalled conversion after this timeout.
const TIMEOUT_NS: u64 = 5_000_000_000;

/// Deadline of a wait for a conversion.
struct ConversionDeadline {
    ends_ns: u64,
}

impl ConversionDeadline {
    fn new(now_ns: u64) -> ConversionDeadline {
        ConversionDeadline { ends_ns: now_ns.saturating_add(TIMEOUT_NS) }
    }
}

/// Whether a write was refused because of a conversion, or may have been.
pub(super) fn is_moved(error: &Error) -> bool {
    matches!(error.code, Code::Converting | Code::NotFound)
}

impl InodeState {
    /// Takes note of a newer layout of the same life of the file.
    pub(super) fn note_layout(&mut self, theirs: &Layout) {
        let Some(written) = self.placed.note_next(theirs) else { return };
        if matches!(written, Written::TooLate) {
            self.sync.tell(came_too_late());
        }
        self.write_count += 1;
    }

    /// Exchanges the layout. No write may be under way.
    fn take_next(&mut self) {
        if self.buffer.has_unwritten() {
            return;
        }
        let Some((layout, unreported)) = self.placed.take_next() else { return };
        if self.reports.replace_objects(unreported) != 0 {
            // A conversion waits for such slots to be reported: these came too late for it and are not copied.
            self.sync.tell(came_too_late());
        }
        self.sync.convert(&layout);
        self.write_count += 1;
    }

    /// Takes note of slots that were written under a layout that was not the file's here.
    fn note_moved(&mut self, layout: &Layout, slots: u64) {
        match self.placed.note_moved(layout, slots) {
            Written::Next => {}
            Written::Present { new } => {
                self.reports.made_objects(new);
                self.sync.touch(slots);
            }
            Written::TooLate => self.sync.tell(came_too_late()),
        }
        self.write_count += 1;
    }
}

/// What was first written to a slot of a layout when the file had another one already.
fn came_too_late() -> Error {
    Error::new(
        Code::Stale,
        "the file got another layout while parts of it were first written; write them again",
    )
}

/// Exchanges the layout for the file's new one, if it has one. The caller holds nothing of this file.
pub(crate) fn adopt_layout(open: &OpenInode, deadline_ns: u64) {
    if open.lock().placed.has_next() {
        let _alone = open.length_gate.write();
        adopt_alone(open, deadline_ns);
    }
}

/// The same for a caller that keeps all writers out.
pub(super) fn adopt_alone(open: &OpenInode, deadline_ns: u64) {
    if open.lock().placed.has_next() {
        write_out::write_out(open, deadline_ns);
        open.lock().take_next();
    }
}

/// What became of a write: the start of the machine that took it; `None` when it was refused because the file gets,
/// or has got, another layout, and was written there.
pub(super) fn follow_write(
    open: &OpenInode,
    written: Result<u64>,
    bytes: &[u8],
    offset: u64,
    deadline_ns: u64,
) -> Result<Option<u64>> {
    match written {
        Err(error) if is_moved(&error) => write_moved(open, error, bytes, offset, deadline_ns).map(|()| None),
        other => other.map(Some),
    }
}

/// Writes under the present layout what the objects of another one have refused; durable when it returns.
fn write_moved(open: &OpenInode, refusal: Error, bytes: &[u8], offset: u64, deadline_ns: u64) -> Result<()> {
    let mut refusal = refusal;
    let mut waited = ConversionDeadline::new(open.core.context.clock.now_ns());
    let refused_under = open.lock().layout().map(|layout| layout.generation);
    // An object that is gone although the file still has the same layout is lost, and made anew.
    let mut lost_under = refused_under.filter(|_| refusal.code == Code::NotFound);
    loop {
        if refusal.code == Code::Converting {
            pause(open, refusal, &mut waited, deadline_ns)?;
        }
        let layout = newest_layout(open, deadline_ns)?;
        let must_exist = lost_under != Some(layout.generation);
        match write_pieces(open, &layout, bytes, offset, must_exist, deadline_ns) {
            Ok(slots) => {
                open.lock().note_moved(&layout, slots);
                return Ok(());
            }
            Err(error) if is_moved(&error) => refusal = error,
            Err(error) => return Err(error),
        }
        if refusal.code == Code::NotFound {
            lost_under = Some(layout.generation);
        }
    }
}

/// Repeats `work` on known objects, by a caller that keeps all writers out, while they refuse it because the file
/// gets another layout, and when they are gone because it has got one: `work` looks for that first. It is given the
/// layout of which an object is gone although the file still has that layout: there nothing has to exist.
pub(super) fn until_converted(
    open: &OpenInode,
    deadline_ns: u64,
    work: impl Fn(Option<u32>) -> Result<()>,
) -> Result<()> {
    let mut lost_under = None;
    let mut waited = ConversionDeadline::new(open.core.context.clock.now_ns());
    loop {
        let error = match work(lost_under) {
            Err(error) if is_moved(&error) => error,
            other => return other,
        };
        let under = open.lock().layout().map(|layout| layout.generation);
        match error.code {
            Code::Converting => pause(open, error, &mut waited, deadline_ns)?,
            _ if under.is_none() || lost_under == under => return Err(error),
            _ => lost_under = under,
        }
    }
}

/// Lets time pass before a refused change is tried again. A seal is there while one request to the metadata
/// service lasts: where it stays, its owner was killed or is stuck, and has to try again.
fn pause(open: &OpenInode, error: Error, waited: &mut ConversionDeadline, deadline_ns: u64) -> Result<()> {
    let now_ns = open.core.context.clock.now_ns();
    if now_ns >= deadline_ns {
        let text = format!("{}: its conversion has stopped half-way; try again in a minute", open.id);
        return Err(error.about(text));
    }
    if now_ns >= waited.ends_ns {
        waited.ends_ns = now_ns.saturating_add(TIMEOUT_NS);
        let request =
            proto::EndConversionRequest { once: None, inode: open.id.0, generation: 0, stalled: true };
        let ended = open.core.meta.change_until::<op::EndConversion>(request, deadline_ns);
        tracing::warn!(inode = %open.id, ?ended, "its conversion has stopped half-way and is given up");
    }
    open.core.context.clock.sleep(PAUSE);
    Ok(())
}

fn newest_layout(open: &OpenInode, deadline_ns: u64) -> Result<Arc<Layout>> {
    let request = proto::GetAttributesRequest { inode: open.id.0, seat: 0 };
    let asked_at = open.core.answers();
    let response = open.core.meta.ask_until::<op::GetAttributes>(&request, deadline_ns)?;
    let fresh = FreshInode::new(response.inode, asked_at)?;
    let mut state = open.lock();
    if let Some(theirs) = &fresh.layout {
        state.note_layout(theirs);
        let mine = state.layout().is_some_and(|mine| mine.is_same_life(theirs));
        if let (true, Some((newest, _))) = (mine, state.placed.read_layout()) {
            return Ok(Arc::clone(newest));
        }
    }
    Err(open.cut_elsewhere())
}

/// The slots that were written.
fn write_pieces(
    open: &OpenInode,
    layout: &Layout,
    bytes: &[u8],
    offset: u64,
    must_exist: bool,
    deadline_ns: u64,
) -> Result<u64> {
    let (mut rest, mut position, mut slots) = (bytes, offset, 0);
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let length = rest.len().min((transfer_at(layout, position).end - position) as usize);
        let (now, later) = rest.split_at(length);
        let (slot, _) = layout.distribution.locate(position, layout.width());
        let how = How { sync: true, must_exist: must_exist && layout.is_written(slot) };
        calls.push((objects::submit_write(open, layout, position, now, how, deadline_ns)?, now));
        slots |= 1u64.checked_shl(slot).unwrap_or(0);
        rest = later;
        position += length as u64;
    }
    let mut outcome = Ok(slots);
    for (mut call, bytes) in calls {
        if let Err(error) = objects::finish_write(open, &mut call, bytes, deadline_ns) {
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}
