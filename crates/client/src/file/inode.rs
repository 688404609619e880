//! State that all handles of one inode share in this client.

use super::end::End;
use super::hand_off_mutex::HandOffMutex;
use super::inline::InlineContents;
use super::kept_writes::KeptWrites;
use super::layout_state::{Contents, LayoutState};
use super::readers::Readers;
use super::report_ledger::{Report, ReportLedger};
use super::shown::Shown;
use super::sync_ledger::SyncLedger;
use super::unsynced::Span;
use super::write_buffer::WriteBuffer;
use crate::core::Core;
use crate::data::Spread;
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use vazao_model::limits::{BLOCK_BYTES, INLINE_BYTES_MAX};
use vazao_model::{Attributes, Code, Extents, InodeId, Layout};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// How long a thread that waits for another one's request sleeps before it looks again.
const TURN_WAIT: Duration = Duration::from_millis(50);

/// An inode that has at least one handle.
///
/// - Lock order: `committing` or `length_gate` before `state`. `state` is never held while waiting for a server.
/// - `length_gate`: shared by writes, exclusive while the length or layout changes or a range is zeroed.
pub(crate) struct OpenInode {
    pub(crate) core: Arc<Core>,
    pub(crate) id: InodeId,
    handles: AtomicUsize,
    unlinked: AtomicBool,
    /// It was made without a name and has got one here.
    named: AtomicBool,
    /// A lock on it was lost while something was not reported, which is to be given up.
    lost_lock: AtomicBool,
    /// How often other clients are known to have changed its contents.
    changes_elsewhere: AtomicU64,
    /// How many of these what is known here has been looked at after. Fewer than there are: it has to be again.
    looked_at: AtomicU64,
    /// Reports to the metadata service so far.
    reports: AtomicU64,
    state: Mutex<InodeState>,
    changed: Condvar,
    /// Waiters in [`OpenInode::wait_turn`]. Without any, the wake-up would be a system call for nothing.
    waiting: AtomicUsize,
    /// Shared by writers; held alone while the length is set.
    pub(crate) length_gate: RwLock<()>,
    pub(crate) end: End,
    /// One report to the metadata service at a time.
    pub(crate) committing: HandOffMutex,
    pub(super) readers: Arc<Readers>,
    /// Which of its copies are read.
    pub(super) spread: Spread,
    /// When a read last waited in vain for damage to be repaired; 0: never.
    pub(super) waited_in_vain_ns: AtomicU64,
}

/// The changeable part.
pub(crate) struct InodeState {
    /// From the latest answer of the metadata service.
    pub(crate) attributes: Attributes,
    /// Length, unreported writes included.
    pub(crate) size: u64,
    /// Where the contents are.
    pub(super) placed: LayoutState,
    /// What of them reads as zeros whatever objects hold: what the length includes and no report to the metadata
    /// service, nor a write of this client that is yet to be reported, has as written.
    pub(super) unwritten: Extents,
    /// What callers were shown of it and is not known here yet.
    pub(super) shown: Shown,
    /// What an fsync has yet to make durable, and what is lost.
    pub(super) sync: SyncLedger,
    /// What no server has acknowledged.
    pub(super) buffer: WriteBuffer,
    /// What the metadata service has yet to be told.
    pub(super) reports: ReportLedger,
    /// What of it lies in objects, as long as that is little.
    pub(super) kept: KeptWrites,
    /// Grows with every write and cut, so that bytes read ahead before it are not used after it.
    pub(crate) write_count: u64,
    /// The client's count of answers when one about this inode was last taken over.
    pub(crate) absorbed_at: u64,
    /// Holes were made here since the metadata service was last told how much storage the file takes.
    pub(crate) is_sparse: bool,
}

/// An inode as an open, a create or a commit shows it.
pub(crate) struct FreshInode {
    pub(crate) attributes: Attributes,
    pub(crate) layout: Option<Layout>,
    pub(crate) contents: Option<Vec<u8>>,
    pub(crate) asked_at: u64,
    /// The metadata service's start; see [`ReportLedger::was_taken`].
    pub(super) start: u32,
    /// What reads as zeros whatever the objects of the layout hold.
    pub(super) unwritten: Extents,
}

impl FreshInode {
    /// What an answer says; `asked_at` is [`Core::answers`] from before its request was sent.
    pub(crate) fn new(inode: Option<proto::Inode>, asked_at: u64) -> std::result::Result<FreshInode, Fault> {
        let missing = || Fault::new(Code::BadRequest, "an answer without its inode");
        let inode = inode.ok_or_else(missing)?;
        Ok(FreshInode {
            attributes: inode.attributes.ok_or_else(missing)?.try_into()?,
            layout: inode.layout.map(Layout::try_from).transpose()?,
            contents: inode.contents,
            start: inode.start,
            unwritten: inode.unwritten.iter().map(Range::from).collect(),
            asked_at,
        })
    }

    /// True when it says where the contents are, and not only what they are like.
    pub(crate) fn is_complete(&self) -> bool {
        self.contents.is_some() || self.layout.is_some()
    }

    fn into_contents(self) -> Contents {
        match self.layout {
            Some(layout) => Contents::Striped(Arc::new(layout)),
            None => {
                let bytes = self.contents.unwrap_or_default();
                Contents::Inline(InlineContents::new(bytes, self.attributes.version))
            }
        }
    }
}

impl InodeState {
    /// That of an inode of which nothing is known here.
    pub(super) fn new(fresh: FreshInode, fresh_at: u64) -> InodeState {
        InodeState {
            attributes: fresh.attributes.clone(),
            size: fresh.attributes.size,
            sync: SyncLedger::of_unknown(),
            buffer: WriteBuffer::default(),
            reports: ReportLedger::default(),
            kept: KeptWrites::default(),
            write_count: 0,
            absorbed_at: fresh_at,
            is_sparse: false,
            unwritten: fresh.unwritten.clone(),
            shown: Shown::default(),
            placed: LayoutState::new(fresh.into_contents()),
        }
    }

    /// True when the length does not tell how much storage the file takes.
    pub(crate) fn has_holes(&self) -> bool {
        self.is_sparse || self.attributes.allocated_bytes < self.attributes.size
    }

    /// True when the metadata service was told of a change through this state.
    pub(crate) fn is_changed_here(&self) -> bool {
        self.reports.has_told()
    }

    /// True when everything written here has been written out and reported.
    pub(crate) fn is_clean(&self) -> bool {
        let is_moving = matches!(self.placed.contents(), Contents::Moving);
        self.buffer.is_idle() && self.reports.is_clear() && !is_moving && !self.placed.has_moved()
    }

    /// True when a report needs nothing but to be sent: what was written lies in the inode record.
    pub(super) fn is_reported_at_once(&self) -> bool {
        self.placed.is_inline() && self.buffer.is_idle() && !self.placed.has_next()
    }

    /// The layout, once there is one.
    pub(crate) fn layout(&self) -> Option<&Arc<Layout>> {
        self.placed.layout()
    }

    /// The copy of inline contents, unless they are in objects.
    pub(super) fn inline_mut(&mut self) -> Option<&mut InlineContents> {
        self.placed.inline_mut()
    }

    /// Notes that `range` of the file, which lies in one unit, was written by a machine during its start `boot`.
    /// `must_exist`: only to an object that was there. What may have made one is reported also if the metadata service
    /// knows of the slot: the file may have got another layout, and its object may have been removed, before.
    pub(crate) fn note_written(&mut self, range: &Range<u64>, boot: u64, must_exist: bool) {
        let Some(layout) = self.layout().cloned() else { return };
        let (slot, _) = layout.distribution.locate(range.start, layout.width());
        let bit = 1u64.checked_shl(slot).unwrap_or(0);
        let new = self.placed.note_objects(bit);
        self.reports.made_objects(if must_exist { new } else { bit });
        self.write_count += u64::from(self.sync.written(&layout, range, boot));
    }

    /// Notes that `range` of the file is written from here, before its length includes it. What lies between the end
    /// and it is not: it reads as zeros.
    pub(super) fn note_extent(&mut self, range: &Range<u64>) {
        self.unwritten.add(self.size..range.start);
        if range.end > self.attributes.size || self.unwritten.overlaps(range) {
            self.unwritten.remove(range);
            self.reports.wrote_extent(range.clone());
        } else {
            self.reports.overwrote_extent(range.clone());
        }
    }

    /// The service has as unwritten what was `overwritten` here: another client has cut the file below it, and made it
    /// longer again. The bytes came after the cut, or are gone with it: they are reported. True when there are such.
    pub(super) fn claim(&mut self, overwritten: &Extents, theirs: &Extents) -> bool {
        let claimed: Vec<_> = overwritten.iter().flat_map(|range| theirs.within(range)).collect();
        let modified = self.reports.modified().unwrap_or(self.attributes.modified);
        for range in &claimed {
            self.reports.wrote_extent(range.clone());
            self.reports.changed(modified);
            self.kept.note_missing();
        }
        !claimed.is_empty()
    }

    /// Takes over what an answer has shown to be unwritten, with the attributes that are known here by now. What was
    /// written here and is not in it yet stays written.
    fn take_unwritten(&mut self, theirs: &Extents) {
        let overwritten: Extents =
            self.reports.unanswered().flat_map(|report| report.overwritten.iter().cloned()).collect();
        self.claim(&overwritten, theirs);
        let mut unwritten = theirs.clone();
        unwritten.add(self.attributes.size..self.reports.end());
        for report in self.reports.unanswered() {
            report.written.iter().for_each(|range| unwritten.remove(range));
        }
        self.unwritten = unwritten;
    }

    /// The write of `range` has failed after it was acknowledged to its caller. Where another client has cut the file,
    /// the next report shows it, and what is kept is written again.
    pub(super) fn write_failed(&mut self, range: Range<u64>, error: Error) {
        if error.code == Code::Stale && self.kept.is_whole() {
            self.reports.changed(self.reports.modified().unwrap_or(self.attributes.modified));
            return;
        }
        let life = self.layout().map_or(0, |layout| layout.life);
        self.sync.failed(range, life, error);
    }

    /// Notes a change of the object of `slot`. What a loss of power before it may have taken is lost from here on.
    pub(crate) fn note_change(&mut self, layout: &Layout, slot: u32, span: Span, boot: u64) {
        self.write_count += u64::from(self.sync.changed(layout, slot, span, boot));
    }

    /// True when something newer is known: an answer that was taken over while this one was under way, with a higher
    /// version. After a metadata service lost power the newest answer may have a lower one.
    pub(super) fn knows_better(&self, attributes: &Attributes, asked_at: u64) -> bool {
        attributes.version < self.attributes.version && asked_at < self.absorbed_at
    }

    /// When the answer to `report` shows that the metadata service has lost power, and with it what it had answered:
    /// has all that is known here reported again, and returns true.
    pub(super) fn remember(&mut self, fresh: &FreshInode, report: &Report) -> bool {
        // A report with a time makes a version of its own.
        let least = self.attributes.version.saturating_add(u64::from(report.modified.is_some()));
        let is_older = fresh.attributes.version < least;
        if fresh.asked_at < self.absorbed_at || !(is_older || self.is_behind(fresh)) {
            return false;
        }
        self.tell_again()
    }

    /// True when the metadata service has started anew since it took what is not durable, and lacks some of it:
    /// reports of other clients may have made as many versions as it forgot. Of another life of the file, which was cut
    /// to nothing, nothing is missing.
    fn is_behind(&self, fresh: &FreshInode) -> bool {
        let is_same_life = match (self.layout(), &fresh.layout) {
            (Some(mine), Some(theirs)) => mine.is_same_life(theirs),
            (mine, _) => mine.is_none(),
        };
        let theirs = fresh.layout.as_ref().map_or(0, |layout| layout.written_slots);
        self.reports.is_perhaps_forgotten(fresh.start)
            && is_same_life
            && (fresh.attributes.size < self.size
                || self.placed.slots() & !theirs != 0
                || self.is_hidden(&fresh.unwritten))
    }

    /// True when `theirs`, which the service has as unwritten, is in part what it was told to be written.
    fn is_hidden(&self, theirs: &Extents) -> bool {
        let mut told: Extents = std::iter::once(0..self.size).collect();
        self.unwritten.iter().for_each(|range| told.remove(range));
        let unanswered = self.reports.unanswered().flat_map(|report| report.written.iter());
        unanswered.for_each(|range| told.remove(range));
        self.layout().is_some() && theirs.iter().any(|range| told.overlaps(range))
    }

    /// The metadata service has lost power, and with it what it had answered: the next report has all that is known
    /// here. False when bytes of inline contents are all there is to tell, which [`InlineContents`] knows of.
    fn tell_again(&mut self) -> bool {
        let size = self.size;
        if self.reports.is_length_unsynced() {
            self.reports.set_length_again(size);
            if let Some(inline) = self.inline_mut() {
                inline.write_all_again(size);
            }
        } else if self.layout().is_none() {
            return false;
        }
        self.report_again(size);
        self.kept.note_missing();
        self.reports.made_objects(self.placed.slots());
        self.reports.is_told_again();
        true
    }

    /// Takes over what an open has shown, unless something newer is known. What is dirty here stays.
    pub(super) fn absorb_open(&mut self, fresh: FreshInode, now_at: u64) {
        if self.knows_better(&fresh.attributes, fresh.asked_at) {
            return;
        }
        if fresh.attributes.version < self.attributes.version || self.is_behind(&fresh) {
            self.tell_again();
        }
        self.take_over(fresh, now_at);
    }

    /// The file was cut to nothing from here, as the answer shows: whatever was known of its contents before, and
    /// forgotten by the metadata service or not, they are gone.
    pub(super) fn begin_life(&mut self, fresh: FreshInode, now_at: u64) {
        self.reports.begin_life(fresh.start);
        self.kept.clear();
        self.placed.forget_next();
        if let Some(inline) = self.inline_mut() {
            inline.cut(0);
        }
        self.sync.empty();
        if !self.knows_better(&fresh.attributes, fresh.asked_at) {
            self.take_over(fresh, now_at);
        }
    }

    /// The file was cut to nothing once more, at a service that had forgotten it. What was written here since stays.
    pub(super) fn begin_life_again(&mut self, fresh: FreshInode, now_at: u64) {
        self.reports.length_was_set(fresh.start);
        self.take_over(fresh, now_at);
    }

    /// Takes over what an answer has shown. What is dirty here stays.
    fn take_over(&mut self, fresh: FreshInode, now_at: u64) {
        if matches!(self.placed.contents(), Contents::Inline(_)) && fresh.contents.is_some() {
            return self.refresh_inline(fresh, now_at);
        }
        if !self.is_clean() || !fresh.is_complete() {
            self.absorb(fresh, now_at);
            return;
        }
        self.absorbed_at = now_at;
        if fresh.attributes.version != self.attributes.version {
            // Another client has changed it, and may not have made that durable.
            self.sync.touch_all();
        }
        self.size = fresh.attributes.size;
        self.shown.settle(fresh.attributes.version, fresh.asked_at);
        self.attributes = fresh.attributes.clone();
        self.unwritten = fresh.unwritten.clone();
        self.sync.replace_layout(fresh.layout.as_ref());
        self.placed = LayoutState::new(fresh.into_contents());
        self.write_count += 1;
    }

    /// Takes over inline contents as an answer has shown them, under what was written here and not reported.
    fn refresh_inline(&mut self, fresh: FreshInode, now_at: u64) {
        let is_restarted = self.reports.is_perhaps_forgotten(fresh.start);
        self.absorbed_at = now_at;
        self.shown.settle(fresh.attributes.version, fresh.asked_at);
        self.attributes = fresh.attributes;
        self.size = self.attributes.size.max(self.reports.end());
        self.take_unwritten(&Extents::default());
        self.write_count += 1;
        let (version, bytes) = (self.attributes.version, fresh.contents.unwrap_or_default());
        if self.inline_mut().is_some_and(|inline| inline.refresh(bytes, version, is_restarted)) {
            self.report_inline_again();
        }
    }

    /// A report about inline contents was carried out, as `fresh` shows. True when earlier ones have to be repeated.
    pub(super) fn end_inline_report(&mut self, fresh: &FreshInode, sync: bool) -> bool {
        let version = fresh.attributes.version;
        let is_restarted = self.reports.is_perhaps_forgotten(fresh.start);
        let Some(inline) = self.inline_mut() else { return false };
        let forgotten = inline.end_report(fresh.contents.clone(), version, sync, is_restarted);
        self.write_count += u64::from(fresh.contents.is_some());
        if forgotten {
            self.report_inline_again();
        }
        forgotten
    }

    /// A report about inline contents was not carried out, or may not have been.
    pub(super) fn fail_inline_report(&mut self) {
        if let Some(inline) = self.inline_mut() {
            inline.fail_report();
        }
    }

    /// Bytes that were reported are to be reported once more: the service forgot them when it lost power.
    pub(super) fn report_inline_again(&mut self) {
        if let Some(end) = self.inline_mut().map(|inline| inline.unreported_end()) {
            self.report_again(end);
        }
    }

    /// The next report tells of the file up to `end`, whatever was reported before.
    pub(super) fn report_again(&mut self, end: u64) {
        self.size = self.size.max(end);
        let mut written: Extents = std::iter::once(0..end).collect();
        self.unwritten.iter().for_each(|range| written.remove(range));
        written.iter().for_each(|range| self.reports.wrote_extent(range.clone()));
        let modified = self.reports.modified().unwrap_or(self.attributes.modified);
        self.reports.wrote(end, modified);
    }

    /// Takes over what an answer without contents has shown.
    pub(crate) fn absorb(&mut self, fresh: FreshInode, now_at: u64) {
        if self.knows_better(&fresh.attributes, fresh.asked_at) {
            return;
        }
        // Once they are taken over, nothing shows any more that the service has lost power.
        if fresh.attributes.version < self.attributes.version || self.is_behind(&fresh) {
            self.tell_again();
        }
        if self.reports.is_perhaps_forgotten(fresh.start)
            && let Some(inline) = self.inline_mut()
        {
            inline.distrust();
        }
        self.absorbed_at = now_at;
        self.attributes = fresh.attributes;
        if let Some(theirs) = &fresh.layout {
            self.note_layout(theirs);
            if self.placed.is_next(theirs.generation) {
                self.size = self.attributes.size.max(self.reports.end());
                self.take_unwritten(&fresh.unwritten);
            }
            if let Some(inline) = self.inline_mut() {
                inline.note_outgrown();
            }
        }
        if self.inline_mut().is_some() {
            if self.attributes.size > self.size && fresh.contents.is_none() {
                self.shown.note(self.size..self.attributes.size, self.attributes.version, now_at);
            }
            self.size = self.attributes.size.max(self.reports.end());
        }
        if let (Some(mine), Some(theirs)) = (self.layout(), &fresh.layout)
            && mine.generation == theirs.generation
        {
            self.size = self.attributes.size.max(self.reports.end());
            self.shown.settle(self.attributes.version, fresh.asked_at);
            self.placed.note_objects(theirs.written_slots);
            self.take_unwritten(&fresh.unwritten);
        }
    }
}

impl OpenInode {
    /// The state of an inode with its first handle.
    pub(crate) fn new(core: Arc<Core>, fresh: FreshInode) -> OpenInode {
        let id = fresh.attributes.inode;
        let closed = core.registry.take_unfinished(id);
        OpenInode {
            id,
            handles: AtomicUsize::new(1),
            unlinked: AtomicBool::new(fresh.attributes.links == 0),
            lost_lock: AtomicBool::new(false),
            named: AtomicBool::new(false),
            changes_elsewhere: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            reports: AtomicU64::new(0),
            state: Mutex::new(InodeState::reopened(fresh, core.count_answer(), closed)),
            core,
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            length_gate: RwLock::default(),
            end: End::default(),
            committing: HandOffMutex::default(),
            readers: Arc::default(),
            spread: Spread::new(id),
            waited_in_vain_ns: AtomicU64::new(0),
        }
    }

    /// Counts a handle more, unless the last one is gone.
    pub(crate) fn add_handle(&self) -> bool {
        let more = |handles: usize| (handles > 0).then_some(handles + 1);
        self.handles.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Counts a handle less; true when that was the last one.
    pub(crate) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Number of handles.
    pub(crate) fn handle_count(&self) -> usize {
        self.handles.load(Ordering::SeqCst)
    }

    /// Counts a report that was answered.
    pub(crate) fn count_report(&self) {
        self.reports.fetch_add(1, Ordering::SeqCst);
    }

    /// Reports that were answered so far.
    pub(crate) fn reports(&self) -> u64 {
        self.reports.load(Ordering::SeqCst)
    }

    /// True when this version is not the one known here.
    pub(crate) fn is_other_version(&self, version: u64) -> bool {
        self.lock().attributes.version != version
    }

    /// The error of a writer whose bytes were not kept.
    pub(super) fn cut_elsewhere(&self) -> Error {
        let detail =
            format!("{}: another client cut or replaced its contents while they were written", self.id);
        Error::new(Code::Stale, detail)
    }

    /// Another client has changed its contents: the next read looks at them again.
    pub(crate) fn note_changed_elsewhere(&self) {
        self.changes_elsewhere.fetch_add(1, Ordering::SeqCst);
    }

    /// Another client has had a lock since it was last known to be held here, and may have written over what is not
    /// reported yet.
    pub(crate) fn lose_lock(&self) {
        if !self.lock().is_clean() {
            self.lost_lock.store(true, Ordering::SeqCst);
        }
    }

    /// Fails with `Io` while what is not reported is to be given up.
    pub(crate) fn check_lock(&self) -> Result<()> {
        if !self.lost_lock.load(Ordering::SeqCst) {
            return Ok(());
        }
        let detail = "a lock on it was lost, as this client was cut off for too long; what was written under it and \
                      could not be stored is given up";
        Err(Error::new(Code::Io, format!("{}: {detail}", self.id)))
    }

    /// What was not reported has been given up, or there was nothing of it.
    pub(super) fn forget_lost_lock(&self) {
        self.lost_lock.store(false, Ordering::SeqCst);
    }

    fn is_changed_elsewhere(&self) -> bool {
        self.looked_at.load(Ordering::SeqCst) < self.changes_elsewhere.load(Ordering::SeqCst)
    }

    /// How many changes there are, for [`OpenInode::looked_again`], when another client has changed its contents since
    /// they were looked at and nothing unwritten here is in the way of looking. Each reader has to until one has: what
    /// another one is only asking for is not known yet.
    pub(crate) fn must_look_again(&self) -> Option<u64> {
        let can_look =
            |state: &InodeState| state.is_clean() || matches!(state.placed.contents(), Contents::Inline(_));
        let changes = self.changes_elsewhere.load(Ordering::SeqCst);
        (self.looked_at.load(Ordering::SeqCst) < changes && can_look(&self.lock())).then_some(changes)
    }

    /// What is known here was asked for after so many changes.
    pub(crate) fn looked_again(&self, changes: u64) {
        self.looked_at.fetch_max(changes, Ordering::SeqCst);
    }

    /// True when `range` has a part that was shown to callers and is not known here: a read that ends before it would
    /// be taken for zeros.
    pub(super) fn is_shown_beyond(&self, range: &Range<u64>) -> bool {
        self.lock().shown.overlaps(range)
    }

    /// True when a read needs no server.
    pub(super) fn is_at_hand(&self) -> bool {
        let is_here = |state: &InodeState| state.placed.is_inline() && state.shown.is_empty();
        !self.is_changed_elsewhere() && is_here(&self.lock())
    }

    /// True when a write up to `end` needs no server, and blocks on no thread that needs one (fast path).
    pub(super) fn takes_at_once(&self, end: u64) -> bool {
        let is_inline = |state: &InodeState| state.placed.is_inline() && !state.placed.has_next();
        let dirty_bytes = self.core.dirty_bytes.load(Ordering::Relaxed);
        end <= INLINE_BYTES_MAX as u64
            && dirty_bytes <= self.core.context.options.dirty_bytes_max
            && self.length_gate.try_read().is_some()
            && is_inline(&self.lock())
    }

    /// Notes that the inode has no name any more: its last close tells the metadata service.
    pub(crate) fn mark_unlinked(&self) {
        self.unlinked.store(true, Ordering::SeqCst);
    }

    /// Notes that an inode without a name has got one: its contents are to be kept.
    pub(crate) fn mark_named(&self) {
        self.named.store(true, Ordering::SeqCst);
        self.unlinked.store(false, Ordering::SeqCst);
    }

    pub(crate) fn was_named(&self) -> bool {
        self.named.load(Ordering::SeqCst)
    }

    pub(crate) fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::SeqCst)
    }

    /// The state. Never held while waiting for a server.
    pub(crate) fn lock(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock()
    }

    /// Lets other threads go on until something changed, or a short while has passed.
    pub(crate) fn wait_turn<'a>(&self, mut state: MutexGuard<'a, InodeState>) -> MutexGuard<'a, InodeState> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.changed.wait_for(&mut state, TURN_WAIT);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        state
    }

    /// Wakes those in [`OpenInode::wait_turn`], after a change of the state.
    pub(crate) fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_all();
        }
    }

    /// What the server said of this inode, with what is known better here.
    pub(crate) fn merge(&self, attributes: Attributes, asked_at: u64) -> Attributes {
        let mut state = self.lock();
        let is_old = state.knows_better(&attributes, asked_at);
        if !is_old && attributes.version != state.attributes.version {
            // Invalidations arrive only while this client has asked lately: another version counts as one.
            self.note_changed_elsewhere();
        }
        let mut merged = if is_old { state.attributes.clone() } else { attributes };
        if merged.size < state.reports.end() {
            merged.size = state.reports.end();
            // Programs take a file without storage for one hole, and would not read what is not reported yet.
            let likely = if state.has_holes() { BLOCK_BYTES as u64 } else { merged.size };
            merged.allocated_bytes = merged.allocated_bytes.max(likely);
        }
        if let Some(modified) = state.reports.modified() {
            merged.modified = modified;
            merged.changed = merged.changed.max(modified);
        }
        if merged.size > state.size {
            let known = state.size;
            state.shown.note(known..merged.size, merged.version, self.core.count_answer());
        }
        merged
    }

    /// Takes over what an open has shown; see [`InodeState::absorb_open`].
    pub(crate) fn absorb_open(&self, fresh: FreshInode) {
        self.lock().absorb_open(fresh, self.core.count_answer());
    }

    /// Takes over what an answer without contents has shown.
    pub(crate) fn absorb(&self, fresh: FreshInode) {
        self.lock().absorb(fresh, self.core.count_answer());
    }
}
