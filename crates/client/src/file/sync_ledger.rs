//! The sync ledger of a file: what an fsync has yet to make durable, and what is lost.
//!
//! A slot of the layout is *touched* once its object may have changes that are not durable, by this client or by
//! another. A *change* is what this client has written or cut under one start of the server's machine: where the
//! machine starts anew before an fsync, its changes are *lost*, and so is what could not be written at all. Lost ranges
//! stay until they are written again or cut off.

use super::lost_ranges::LostRanges;
use super::unsynced::{Former, Span, Unsynced, in_file};
use crate::Error;
use std::ops::Range;
use vazao_model::{Code, Layout};

/// The ledger of one file.
#[derive(Clone, Default)]
pub(crate) struct SyncLedger {
    touched: u64,
    changes: Unsynced,
    lost: LostRanges,
}

/// What an fsync has taken out of the ledger.
pub(super) struct SyncBegun {
    /// Slots to be made durable.
    pub(super) slots: u64,
    /// The changes in them.
    pub(super) changes: Unsynced,
}

impl SyncLedger {
    /// That of a file which other clients may have changed without an fsync.
    pub(super) fn of_unknown() -> SyncLedger {
        SyncLedger { touched: u64::MAX, ..SyncLedger::default() }
    }

    /// True when there is nothing to remember of a file without handles.
    pub(super) fn is_settled(&self) -> bool {
        self.changes.is_empty() && self.lost.is_empty()
    }

    /// The ledger of a file that is opened again, with `layout`; `None` for one without objects.
    pub(super) fn of_reopened(self, layout: Option<&Layout>) -> SyncLedger {
        let mut ledger = SyncLedger { touched: u64::MAX, ..self };
        ledger.replace_layout(layout);
        ledger
    }

    /// The same where the file goes on with the state that its last handle left.
    pub(super) fn of_continued(self) -> SyncLedger {
        SyncLedger { touched: u64::MAX, ..self }
    }

    /// These slots have objects with changes.
    pub(super) fn touch(&mut self, slots: u64) {
        self.touched |= slots;
    }

    /// Other clients may have changed any object.
    pub(super) fn touch_all(&mut self) {
        self.touched = u64::MAX;
    }

    /// A range of the file within one unit was written, by a machine during its start `boot`. True when that shows that
    /// something else is lost.
    pub(super) fn written(&mut self, layout: &Layout, range: &Range<u64>, boot: u64) -> bool {
        let (slot, start) = layout.distribution.locate(range.start, layout.width());
        self.touched |= 1u64.checked_shl(slot).unwrap_or(0);
        let span = Span { range: start..start + (range.end - range.start), is_cut: false };
        let is_lost = self.changed(layout, slot, span, boot);
        self.lost.clear(range);
        is_lost
    }

    /// The object of `slot` was changed. What a loss of power before it may have taken is lost from here on: true when
    /// there is such.
    pub(super) fn changed(&mut self, layout: &Layout, slot: u32, span: Span, boot: u64) -> bool {
        let lost = self.changes.note(layout, slot, span, boot);
        let lost: Vec<(u32, Span)> = lost.into_iter().map(|span| (slot, span)).collect();
        self.lose(layout, &lost, &power_lost(layout, slot))
    }

    /// These ranges of objects are not what was answered. True when that concerns any range of the file.
    fn lose(&mut self, layout: &Layout, spans: &[(u32, Span)], error: &Error) -> bool {
        let mut is_lost = false;
        for (slot, span) in spans {
            for range in in_file(layout, *slot, &span.range) {
                is_lost = true;
                self.lost.add_span(Span { range, ..*span }, layout.life, error.clone());
            }
        }
        is_lost
    }

    /// The write of `range` has failed after it was acknowledged to the caller.
    pub(super) fn failed(&mut self, range: Range<u64>, life: u32, error: Error) {
        self.lost.add(range, life, error);
    }

    /// A failure without a range, which every handle reports once.
    pub(super) fn tell(&mut self, error: Error) {
        self.lost.tell(error);
    }

    /// What is in `range` is now as it was written, or cut off.
    pub(super) fn mend(&mut self, range: &Range<u64>) {
        self.lost.clear(range);
    }

    /// What is lost.
    pub(super) fn lost(&self) -> &LostRanges {
        &self.lost
    }

    /// The file was cut to nothing, which is durable with its record.
    pub(super) fn empty(&mut self) {
        self.changes = Unsynced::default();
        self.lost.clear(&(0..u64::MAX));
    }

    /// The file has this layout, `None` for one without objects: of an earlier life nothing is left.
    pub(super) fn replace_layout(&mut self, layout: Option<&Layout>) {
        self.lost = std::mem::take(&mut self.lost).in_life(layout.map(|layout| layout.life));
        self.changes = std::mem::take(&mut self.changes).under(layout);
    }

    /// The file was converted to `layout`. The copy is durable; what power took before it was made is what the next
    /// fsync asks about.
    pub(super) fn convert(&mut self, layout: &Layout) {
        self.changes = std::mem::take(&mut self.changes).under(Some(layout));
        self.touch_all();
    }

    /// An fsync begins, of a file whose `written` slots have objects.
    pub(super) fn begin(&mut self, written: u64) -> SyncBegun {
        let slots = std::mem::take(&mut self.touched) & written;
        SyncBegun { slots, changes: std::mem::take(&mut self.changes) }
    }

    /// The fsync of `slots`, which are on one server, has failed. True when something is lost.
    pub(super) fn sync_failed(
        &mut self,
        layout: &Layout,
        begun: &Unsynced,
        slots: &[u32],
        error: &Error,
    ) -> bool {
        let lost = match error.code {
            // It is gone, and stays so until it was written again.
            Code::Io => self.changes.unwritten(begun, slots),
            // It is unknown whether the machine still has it: the next fsync must ask again.
            _ => self.changes.restore(layout, begun, slots),
        };
        self.lose(layout, &lost, error)
    }

    /// The same for a slot of a layout that the file had before a conversion.
    pub(super) fn former_sync_failed(&mut self, former: Former, slot: u32, error: &Error) -> bool {
        if error.code == Code::Io {
            return self.lose(&former.layout, &former.spans(slot), error);
        }
        self.changes.restore_former(former);
        false
    }

    /// An fsync of `slots` ends with an error: the next one repeats it.
    pub(super) fn end_failed(&mut self, slots: u64, error: &Error) {
        self.touched |= slots;
        // Not a failure when the caller was killed: the next fsync retries.
        if error.code != Code::Interrupted {
            self.lost.tell(error.clone());
        }
    }
}

/// What a machine that lost power before an fsync has done.
pub(crate) fn power_lost(layout: &Layout, slot: u32) -> Error {
    let place = match layout.groups.get(slot as usize) {
        Some(group) if group.target().is_some() => format!("target {group}"),
        _ => format!("slot {slot} (`vazao layout FILE` shows which)"),
    };
    let detail = "lost power after it was written to and before an fsync; write the file again";
    Error::new(Code::Io, format!("the machine of {place} {detail}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::GroupId;

    const UNIT: u64 = 65_536;

    fn layout() -> Layout {
        Layout::striped(1, UNIT, vec![GroupId(1), GroupId(2)]).expect("valid")
    }

    #[test]
    fn an_fsync_takes_what_was_touched_and_a_failed_one_gives_it_back() {
        let mut ledger = SyncLedger::default();
        assert!(!ledger.written(&layout(), &(UNIT..UNIT + 10), 7));
        let begun = ledger.begin(u64::MAX);
        assert_eq!((begun.slots, ledger.begin(u64::MAX).slots), (0b10, 0));
        let late = Error::new(Code::Timeout, "late");
        assert!(!ledger.sync_failed(&layout(), &begun.changes, &[1], &late));
        ledger.end_failed(begun.slots, &late);
        assert_eq!(ledger.begin(u64::MAX).slots, 0b10);
        assert_eq!(ledger.lost().count().0, 1, "told once");
        assert!(ledger.lost().is_empty(), "it may still be there");
    }

    #[test]
    fn what_a_machine_without_power_had_is_lost_until_it_is_written_again() {
        let mut ledger = SyncLedger::default();
        ledger.written(&layout(), &(0..100), 7);
        assert!(ledger.written(&layout(), &(50..100), 8), "another start of the machine");
        assert!(ledger.lost().within(&(0..50)).is_some() && ledger.lost().within(&(50..100)).is_none());
        ledger.written(&layout(), &(0..50), 8);
        assert!(ledger.lost().is_empty());
        let begun = ledger.begin(u64::MAX);
        let gone = Error::new(Code::Io, "gone");
        assert!(ledger.sync_failed(&layout(), &begun.changes, &[0], &gone));
        assert!(ledger.lost().within(&(0..100)).is_some());
        ledger.empty();
        assert!(ledger.is_settled());
    }
}
