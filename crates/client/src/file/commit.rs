//! Reports to the metadata service: at flush, fsync and close, and only when something has changed.

use super::inline::InlineContents;
use super::inode::{FreshInode, InodeState, OpenInode};
use super::report_ledger::Report;
use super::{append, holes, length, moved, outgrow, replaced, sync, write_out};
use crate::cache::Asked;
use crate::meta::{Completion, Readiness, begin_change_as_of};
use crate::{Error, Result};
use std::sync::Arc;
use vazao_model::Code;
use vazao_wire::{interrupt, op, proto};

/// Lives of a file that one flush follows it into: others cut it faster than it can be written.
const LIVES_MAX: usize = 8;

/// Writes out everything and reports it; with `sync` all of it survives power loss.
pub(crate) fn flush(open: &OpenInode, sync: bool) -> Result<()> {
    interrupt::uninterruptible(|| flush_or_leave(open, sync))
}

/// [`flush`], killable: `Interrupted` when the caller was killed.
pub(super) fn flush_or_leave(open: &OpenInode, sync: bool) -> Result<()> {
    let deadline_ns = open.core.context.deadline_ns();
    for _ in 0..LIVES_MAX {
        let Flushed::Replaced { former } = flush_once(open, sync, deadline_ns)? else { return Ok(()) };
        if !interrupt::uninterruptible(|| replaced::write_again(open, former, deadline_ns))? {
            break;
        }
    }
    Err(open.cut_elsewhere())
}

/// What a flush has come to.
enum Flushed {
    Done,
    /// The file is in another life than `former`, as it is known here: nothing was reported.
    Replaced {
        former: Option<u32>,
    },
}

fn flush_once(open: &OpenInode, sync: bool, deadline_ns: u64) -> Result<Flushed> {
    let left = || Error::new(Code::Interrupted, format!("{}: its writer was killed", open.id));
    let _one = loop {
        if !write_out::write_out_or_leave(open, deadline_ns) {
            return Err(left());
        }
        moved::adopt_layout(open, deadline_ns);
        let one = open.committing.take();
        if !write_out::write_out_or_leave(open, deadline_ns) {
            return Err(left());
        }
        // What was refused just now is under another layout: it is to be reported, too.
        if !open.lock().placed.has_moved() {
            break one;
        }
    };
    if !sync {
        return try_report(open, false, deadline_ns);
    }
    let begun = sync::begin_sync(open, deadline_ns);
    if only_times_change(open) {
        // The report says nothing about the data: it may become durable before them, so both are asked for at once.
        let reported = try_report(open, true, deadline_ns);
        return sync::finish_sync(open, begun, deadline_ns).and(reported);
    }
    sync::finish_sync(open, begun, deadline_ns)?;
    try_report(open, true, deadline_ns)
}

/// Tells the metadata service what has changed. Errors: `Stale` when the file is in another life, which goes on here
/// without what was written and not reported. The caller holds `committing`.
pub(super) fn report(open: &OpenInode, sync: bool, deadline_ns: u64) -> Result<()> {
    match try_report(open, sync, deadline_ns)? {
        Flushed::Done => Ok(()),
        Flushed::Replaced { .. } => {
            interrupt::uninterruptible(|| replaced::begin_new_life(open, deadline_ns));
            Err(open.cut_elsewhere())
        }
    }
}

/// [`report`]. Where the file turns out to have left its inode record, as another client's writes made it outgrow it,
/// what was written into the contents here follows.
fn try_report(open: &OpenInode, sync: bool, deadline_ns: u64) -> Result<Flushed> {
    loop {
        match commit(open, sync, deadline_ns)? {
            Committed::Taken => return Ok(Flushed::Done),
            Committed::Replaced => return Ok(Flushed::Replaced { former: replaced::life(open) }),
            Committed::Outgrown => {
                interrupt::uninterruptible(|| outgrow::outgrow_in_turn(open, deadline_ns))?;
            }
        }
        if sync {
            let begun = sync::begin_sync(open, deadline_ns);
            sync::finish_sync(open, begun, deadline_ns)?;
        }
    }
}

/// True when everything is written out and reported, no failure but the first `reported` of them is to be told of,
/// and the last close will have nothing to let go of.
pub(super) fn is_idle(open: &OpenInode, reported: u64) -> bool {
    let state = open.lock();
    let lost = state.sync.lost();
    let has_failed = !lost.is_empty() || lost.count().0 != reported;
    state.is_clean() && !has_failed && !open.is_unlinked() && !append::holds_end(open)
}

/// True when the file was only written over where the metadata service knows that there are bytes: a report that is
/// durable without them is true nevertheless.
fn only_times_change(open: &OpenInode) -> bool {
    let state = open.lock();
    let report = state.reports.waiting();
    let is_within = report.end <= state.attributes.size && report.written.is_empty();
    state.layout().is_some() && is_within && report.slots == 0
}

/// Throws away everything unwritten and unreported.
pub(crate) fn discard(open: &OpenInode) {
    write_out::discard_staged(open);
    let mut state = open.lock();
    state.reports.discard();
    state.kept.clear();
    state.placed.forget_next();
    if let Some(inline) = state.inline_mut() {
        inline.discard();
    }
}

/// Gives up what was written here and is not reported: its writers get the error from their next `fsync` or close.
/// False where there is no such thing.
pub(super) fn give_up(open: &OpenInode, error: &Error) -> bool {
    let _one = open.committing.take();
    give_up_in_turn(open, error)
}

/// [`give_up`] for who holds `committing`.
fn give_up_in_turn(open: &OpenInode, error: &Error) -> bool {
    open.forget_lost_lock();
    if open.lock().is_clean() {
        return false;
    }
    discard(open);
    open.lock().sync.tell(error.clone());
    // The bytes that are shown here are not those of the file.
    open.note_changed_elsewhere();
    true
}

/// Gives up what was written before a lock was lost; the error says so. The caller holds `committing`.
fn check_lock(open: &OpenInode) -> Result<()> {
    match open.check_lock() {
        Err(error) if give_up_in_turn(open, &error) => Err(error),
        _ => Ok(()),
    }
}

/// Sends one report. The caller holds `committing`.
fn commit(open: &OpenInode, sync: bool, deadline_ns: u64) -> Result<Committed> {
    check_lock(open)?;
    set_length_again(open, deadline_ns)?;
    let mut state = open.lock();
    if !state.reports.is_waiting() && !sync {
        return Ok(Committed::Taken);
    }
    let sparse = state.layout().filter(|_| state.has_holes() && state.reports.waiting().modified.is_some());
    let allocated_bytes = match sparse.cloned().map(|layout| (layout, state.placed.slots())) {
        Some((layout, slots)) => {
            drop(state);
            let allocated_bytes = holes::allocated_bytes(open, &layout, slots, deadline_ns);
            state = open.lock();
            allocated_bytes
        }
        None => None,
    };
    state.is_sparse &= allocated_bytes.is_none();
    let mut request = take_report(open.id.0, &mut state, sync);
    request.allocated_bytes = allocated_bytes;
    drop(state);
    let (generation, asked_at) = (request.generation, open.core.answers());
    let answer = open.core.meta.change_as_of::<op::Commit>(request, deadline_ns);
    end_report(open, answer, Reported { generation, asked_at, sync }, deadline_ns)
}

/// Works in what has become of a report.
fn end_report(open: &OpenInode, answer: Answer, reported: Reported, deadline_ns: u64) -> Result<Committed> {
    let Reported { generation, asked_at, sync } = reported;
    let fresh = answer.and_then(|(response, asked)| {
        // Cache fill: a stat after the close needs no request.
        asked.and_then(|asked| open.core.cache.put_inode(asked, response.inode.as_ref()));
        Ok(FreshInode::new(response.inode, asked_at)?)
    });
    open.count_report();
    let mut state = open.lock();
    let told = state.reports.end_report();
    let is_taken = fresh.as_ref().is_ok_and(|fresh| is_taken(&state, &told, fresh, generation));
    state.kept.end_report(is_taken);
    match fresh {
        Ok(fresh) if is_taken => {
            // Before contents that were shown take the place of those that the service has forgotten.
            let forgotten = state.remember(&fresh, &told) | state.end_inline_report(&fresh, sync);
            let is_claimed = state.claim(&told.overwritten, &fresh.unwritten);
            state.reports.was_taken(fresh.start, sync && !forgotten && !is_claimed);
            state.absorb(fresh, open.core.count_answer());
            if sync && !forgotten {
                state.reports.length_is_durable();
            }
            drop(state);
            if is_claimed || forgotten {
                interrupt::uninterruptible(|| report(open, sync, deadline_ns))?;
            }
            Ok(Committed::Taken)
        }
        Ok(fresh) if state.inline_mut().is_some() => {
            state.remember(&fresh, &told);
            state.reports.restore(told);
            state.fail_inline_report();
            state.absorb(fresh, open.core.count_answer());
            Ok(Committed::Outgrown)
        }
        // The report was about an earlier life of the file, and has changed nothing.
        Ok(_) => {
            state.reports.restore(told);
            Ok(Committed::Replaced)
        }
        Err(error) if matches!(error.code, Code::Stale | Code::NotFound) => {
            state.fail_inline_report();
            drop(state);
            discard(open);
            Err(error.about(open.id))
        }
        Err(error) => {
            state.reports.restore(told);
            state.fail_inline_report();
            drop(state);
            check_lock(open)?;
            Err(error.about(open.id))
        }
    }
}

/// True when [`begin_flush`] will not need a thread, unless the metadata service is slow.
pub(super) fn can_begin_flush(open: &OpenInode) -> bool {
    open.lock().is_reported_at_once()
}

/// Asynchronous [`flush`], without making anything durable.
pub(super) fn begin_flush(open: &Arc<OpenInode>, then: Completion<()>) {
    if !open.committing.try_take() {
        let open = Arc::clone(open);
        return then(Readiness::blocking(move || flush(&open, false)));
    }
    let turn = Committing(Arc::clone(open));
    let mut state = open.lock();
    if !state.is_reported_at_once() {
        drop(state);
        return then(Readiness::blocking(move || {
            let open = Arc::clone(&turn.0);
            drop(turn);
            flush(&open, false)
        }));
    }
    if !state.reports.is_waiting() {
        drop((state, turn));
        return then(Readiness::Ready(Ok(())));
    }
    let request = take_report(open.id.0, &mut state, false);
    let (unsynced_under, version) = (state.reports.unsynced_under(), state.attributes.version);
    drop(state);
    let (generation, asked_at, deadline_ns) =
        (request.generation, open.core.answers(), open.core.context.deadline_ns());
    let reported = Reported { generation, asked_at, sync: false };
    begin_change_as_of::<op::Commit>(&open.core.meta, request, move |early| {
        // More requests follow one that was not taken, as another client has cut the file or made it grow, and one
        // after a loss of power.
        let is_quick = move |answer: &Answer| {
            answer.as_ref().map_or(true, |(response, _)| {
                response.inode.as_ref().is_some_and(|inode| {
                    inode.layout.as_ref().map_or(0, |layout| layout.generation) == generation
                        && !unsynced_under.is_another(inode.start)
                        && inode.attributes.as_ref().is_some_and(|attributes| attributes.version > version)
                })
            })
        };
        let end = move |answer| match end_report(&turn.0, answer, reported, deadline_ns)? {
            Committed::Taken => Ok(()),
            Committed::Outgrown => interrupt::uninterruptible(|| {
                outgrow::outgrow_in_turn(&turn.0, deadline_ns)?;
                report(&turn.0, false, deadline_ns)
            }),
            Committed::Replaced => {
                interrupt::uninterruptible(|| replaced::begin_new_life(&turn.0, deadline_ns));
                Err(turn.0.cut_elsewhere())
            }
        };
        then(early.and_then(is_quick, end));
    });
}

/// Sets the length that a service which lost power has forgotten. Writes go on meanwhile.
fn set_length_again(open: &OpenInode, deadline_ns: u64) -> Result<()> {
    let mut state = open.lock();
    let Some(length) = state.reports.take_length_again() else { return Ok(()) };
    if let Some(inline) = state.inline_mut() {
        // The service's bytes lie beneath: what is not written here is zeros.
        inline.write_all_again(length);
    }
    drop(state);
    let outcome = interrupt::uninterruptible(|| length::set_again(open, length, deadline_ns));
    if outcome.is_err() {
        open.lock().reports.set_length_again(length);
    }
    outcome
}

/// What a report is answered with, and the moment as of which that may be remembered.
type Answer = Result<(proto::CommitResponse, Option<Asked>)>;

/// What has become of a report that was answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Committed {
    /// It was carried out.
    Taken,
    /// It was about inline contents, and the file has a layout by now: nothing has changed.
    Outgrown,
    /// It was about an earlier life of the file: nothing has changed.
    Replaced,
}

/// A report under way.
#[derive(Clone, Copy)]
struct Reported {
    generation: u32,
    /// The client's count of answers when it was sent.
    asked_at: u64,
    sync: bool,
}

/// The turn at reporting, which ends with the report whichever thread that is in.
struct Committing(Arc<OpenInode>);

impl Drop for Committing {
    fn drop(&mut self) {
        self.0.committing.end();
    }
}

/// Takes what has not been reported, and makes it what is being reported.
fn take_report(inode: u64, state: &mut InodeState, sync: bool) -> proto::CommitRequest {
    let in_memory = match state.buffer.has_writers() {
        true => std::iter::once(0..u64::MAX).collect(),
        false => state.buffer.ranges().collect(),
    };
    state.kept.begin_report(in_memory);
    let unacknowledged = state.buffer.ranges().chain(state.sync.lost().ranges(state.size)).collect();
    let report = state.reports.begin(unacknowledged);
    commit_request(inode, state, &report, sync)
}

/// Whether the metadata service has taken a report about the layout of `generation`.
fn is_taken(state: &InodeState, report: &Report, fresh: &FreshInode, generation: u32) -> bool {
    let theirs = fresh.layout.as_ref();
    let is_same = theirs.map_or(0, |layout| layout.generation) == generation;
    // Of a file that was converted meanwhile, unless it reports objects that the conversion has not copied.
    let is_converted = state.layout().zip(theirs).is_some_and(|(mine, theirs)| mine.is_same_life(theirs));
    is_same || (is_converted && report.slots == 0)
}

fn commit_request(inode: u64, state: &mut InodeState, report: &Report, sync: bool) -> proto::CommitRequest {
    let generation = state.layout().map_or(0, |layout| layout.generation);
    let inline = state.inline_mut();
    let base_version = inline.as_ref().map_or(0, |inline| inline.base_version());
    proto::CommitRequest {
        once: None,
        inode,
        generation,
        size_at_least: report.end,
        written_slots: report.slots,
        modified: report.modified.map(Into::into),
        sync,
        allocated_bytes: None,
        inline_writes: inline.map(InlineContents::begin_report).unwrap_or_default(),
        base_version,
        // Inline contents are their own report.
        written: report.written.iter().filter(|_| generation != 0).map(Into::into).collect(),
        tells_written: true,
    }
}
