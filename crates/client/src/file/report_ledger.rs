//! The report ledger of a file: what the metadata service is to be told, is being told, and may have forgotten.
//!
//! A change of the file *waits* until a report takes it along. While that report is *under way* answers from before it
//! may still arrive. It is *taken* when the service has carried it out, and waits again otherwise. A length that was
//! set is not reported but carried out at once; until an fsync has returned, a service that loses power may forget it,
//! and it has to be set *again*. What was taken is remembered by the service's *start* until an fsync: one that has
//! started anew since, by its machine's loss of power, may have forgotten it.

use std::ops::Range;
use vazao_model::limits::UNWRITTEN_EXTENTS_MAX;
use vazao_model::{Extents, Timestamp};

/// Changes of which the metadata service is told at once.
#[derive(Clone, Default)]
pub(super) struct Report {
    /// End of the furthest write; 0 for none.
    pub(super) end: u64,
    /// Slots that got objects.
    pub(super) slots: u64,
    /// Time of the last write.
    pub(super) modified: Option<Timestamp>,
    /// What was written of that which the service has as unwritten, or behind the end that it has.
    pub(super) written: Extents,
    /// What was written elsewhere. Where another client has cut the file below it and made it longer again meanwhile,
    /// the service has it as unwritten, too.
    pub(super) overwritten: Extents,
}

impl Report {
    fn is_empty(&self) -> bool {
        self.modified.is_none() && self.slots == 0
    }

    fn wrote_extent(&mut self, range: Range<u64>) {
        self.written.add(range);
        self.written.join_nearest(UNWRITTEN_EXTENTS_MAX);
    }

    fn overwrote_extent(&mut self, range: Range<u64>) {
        self.overwritten.add(range);
        self.overwritten.join_nearest(UNWRITTEN_EXTENTS_MAX);
    }

    /// Adds what came before; what came later has precedence.
    fn add_earlier(&mut self, earlier: Report) {
        self.end = self.end.max(earlier.end);
        self.slots |= earlier.slots;
        self.modified = self.modified.or(earlier.modified);
        earlier.written.iter().for_each(|range| self.wrote_extent(range.clone()));
        earlier.overwritten.iter().for_each(|range| self.overwrote_extent(range.clone()));
    }
}

/// The service's start when it took what no fsync has followed; none: there is nothing of that.
#[derive(Clone, Copy, Default)]
pub(super) struct UnsyncedUnder(Option<u32>);

impl UnsyncedUnder {
    /// True when a service in this `start` may have forgotten it. 0: a start is not known.
    pub(super) fn is_another(self, start: u32) -> bool {
        self.0.is_some_and(|under| under != 0 && start != 0 && under != start)
    }
}

/// The ledger of one file.
#[derive(Default)]
pub(super) struct ReportLedger {
    waiting: Report,
    under_way: Option<Report>,
    /// The service was told of a change.
    has_told: bool,
    /// A length was set, and no fsync has returned since.
    is_length_unsynced: bool,
    /// The length that has to be set once more before the next report: as the file has it here, whatever the service
    /// shows.
    length_again: Option<u64>,
    unsynced_under: UnsyncedUnder,
}

impl ReportLedger {
    /// Bytes up to `end` were written at `now`.
    pub(super) fn wrote(&mut self, end: u64, now: Timestamp) {
        self.waiting.end = self.waiting.end.max(end);
        self.waiting.modified = Some(now);
        self.length_again = self.length_again.map(|length| length.max(end));
    }

    /// These bytes were written, which the service has as unwritten, or behind the end that it has.
    pub(super) fn wrote_extent(&mut self, range: Range<u64>) {
        self.waiting.wrote_extent(range);
    }

    /// These bytes were written, which the service does not have as unwritten as far as is known here.
    pub(super) fn overwrote_extent(&mut self, range: Range<u64>) {
        self.waiting.overwrote_extent(range);
    }

    /// Contents were changed at `now` within the file's length.
    pub(super) fn changed(&mut self, now: Timestamp) {
        self.waiting.modified = Some(now);
    }

    /// These slots have got objects.
    pub(super) fn made_objects(&mut self, slots: u64) {
        self.waiting.slots |= slots;
    }

    /// The file has another layout, in which these slots have got objects. Returns those of the former layout that the
    /// service was not told of.
    pub(super) fn replace_objects(&mut self, slots: u64) -> u64 {
        std::mem::replace(&mut self.waiting.slots, slots)
    }

    /// What the next report has to tell.
    pub(super) fn waiting(&self) -> &Report {
        &self.waiting
    }

    /// True when there is something to report.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True when the service has been told of everything and has answered.
    pub(super) fn is_clear(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    /// Every change that the service may not know of.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &Report> {
        [Some(&self.waiting), self.under_way.as_ref()]
            .into_iter()
            .flatten()
            .filter(|report| !report.is_empty())
    }

    /// End of the furthest write that the service may not know of; 0 for none.
    pub(super) fn end(&self) -> u64 {
        self.waiting.end.max(self.under_way.as_ref().map_or(0, |report| report.end))
    }

    /// Time of the last write that the service may not know of.
    pub(super) fn modified(&self) -> Option<Timestamp> {
        self.waiting.modified.or_else(|| self.under_way.as_ref()?.modified)
    }

    /// What waits is under way now, less what lies in `unacknowledged`: no data server has answered to have that, and
    /// the service would show what else is there. It waits for the next report.
    pub(super) fn begin(&mut self, unacknowledged: Vec<Range<u64>>) -> Report {
        let mut report = std::mem::take(&mut self.waiting);
        for range in unacknowledged {
            let parts: Vec<Range<u64>> = report.written.within(&range).collect();
            for part in parts {
                report.written.remove(&part);
                self.waiting.wrote_extent(part);
                self.waiting.modified = report.modified;
            }
        }
        report.written.join_nearest(UNWRITTEN_EXTENTS_MAX);
        self.under_way = Some(report.clone());
        self.has_told = true;
        report
    }

    /// The report under way was answered. The caller says with [`ReportLedger::restore`] that it was not taken.
    pub(super) fn end_report(&mut self) -> Report {
        self.under_way.take().unwrap_or_default()
    }

    /// A report was taken by the service during `start` (0: it does not tell). `is_durable`: durably, with all before.
    pub(super) fn was_taken(&mut self, start: u32, is_durable: bool) {
        self.unsynced_under.0 = if is_durable { None } else { self.unsynced_under.0.or(Some(start)) };
    }

    pub(super) fn unsynced_under(&self) -> UnsyncedUnder {
        self.unsynced_under
    }

    /// True when the service may have forgotten what it took, as it is in another `start` by now.
    pub(super) fn is_perhaps_forgotten(&self, start: u32) -> bool {
        self.unsynced_under.is_another(start)
    }

    /// All that the service may have forgotten is to be told again.
    pub(super) fn is_told_again(&mut self) {
        self.unsynced_under = UnsyncedUnder::default();
    }

    /// A report was not taken, and waits again.
    pub(super) fn restore(&mut self, report: Report) {
        self.waiting.add_earlier(report);
    }

    /// What waits need not be told.
    pub(super) fn discard(&mut self) {
        self.waiting = Report::default();
    }

    /// True when the service was told of any change, or of a length.
    pub(super) fn has_told(&self) -> bool {
        self.has_told
    }

    /// The length was set, and the service has answered during `start`.
    pub(super) fn length_was_set(&mut self, start: u32) {
        self.has_told = true;
        self.was_taken(start, false);
        self.is_length_unsynced = true;
        self.length_again = None;
    }

    /// The file was cut here: of what was written behind its end there is nothing to report.
    pub(super) fn cut(&mut self, length: u64) {
        self.waiting.end = self.waiting.end.min(length);
        self.waiting.written.cut(length);
        self.waiting.overwritten.cut(length);
    }

    /// The file was cut to nothing by the service during `start`: what was known of it before need not be told.
    pub(super) fn begin_life(&mut self, start: u32) {
        self.discard();
        self.unsynced_under = UnsyncedUnder::default();
        self.length_was_set(start);
    }

    /// The service has made durable what it knows.
    pub(super) fn length_is_durable(&mut self) {
        self.is_length_unsynced = false;
    }

    /// True when the service may have forgotten a length that was set.
    pub(super) fn is_length_unsynced(&self) -> bool {
        self.is_length_unsynced
    }

    /// The length that has to be set once more.
    pub(super) fn length_again(&self) -> Option<u64> {
        self.length_again
    }

    /// Has the length set once more before the next report. What is written and not reported makes it longer.
    pub(super) fn set_length_again(&mut self, length: u64) {
        self.length_again = Some(length.max(self.waiting.end));
    }

    /// Takes the length that has to be set once more: the caller does it.
    pub(super) fn take_length_again(&mut self) -> Option<u64> {
        self.length_again.take()
    }

    /// Nothing that the service took is to be repeated, should it have forgotten it: another client has gone on from
    /// what it shows. What waits still does.
    pub(super) fn forget_taken(&mut self) {
        self.is_length_unsynced = false;
        self.length_again = None;
        self.unsynced_under = UnsyncedUnder::default();
    }

    /// True when there is nothing to remember of a file without handles.
    pub(super) fn is_settled(&self) -> bool {
        self.is_clear() && !self.is_length_unsynced && self.length_again.is_none()
    }

    /// Takes away what is to be remembered of a file without handles. Of a report that is still under way nothing is
    /// known: it waits again.
    pub(super) fn leave(&mut self) -> ReportLedger {
        // An open that was answered before must not be taken for the news that the service has lost power.
        self.has_told = true;
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.add_earlier(self.under_way.take().unwrap_or_default());
        ReportLedger {
            waiting,
            under_way: None,
            has_told: true,
            is_length_unsynced: self.is_length_unsynced,
            length_again: self.length_again,
            unsynced_under: self.unsynced_under,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, ..Timestamp::default() }
    }

    #[test]
    fn a_report_that_is_not_taken_waits_again_beneath_what_came_later() {
        let mut ledger = ReportLedger::default();
        ledger.wrote(100, at(1));
        ledger.made_objects(0b01);
        let report = ledger.begin(Vec::new());
        assert!(!ledger.is_waiting() && !ledger.is_clear());
        ledger.wrote(50, at(2));
        ledger.made_objects(0b10);
        assert_eq!((ledger.end(), ledger.modified()), (100, Some(at(2))));
        assert_eq!(ledger.unanswered().count(), 2);
        assert_eq!(ledger.end_report().end, report.end);
        ledger.restore(report);
        let waiting = ledger.waiting().clone();
        assert_eq!((waiting.end, waiting.slots, waiting.modified), (100, 0b11, Some(at(2))));
        ledger.begin(Vec::new());
        ledger.end_report();
        assert!(ledger.is_clear() && ledger.is_settled() && ledger.has_told());
    }

    #[test]
    fn bytes_that_no_server_has_acknowledged_wait_for_the_next_report() {
        let mut ledger = ReportLedger::default();
        ledger.wrote(100, at(1));
        ledger.wrote_extent(0..100);
        let report = ledger.begin(Vec::from([60..80, 80..120]));
        assert_eq!(report.written, std::iter::once(0..60).collect());
        assert!(ledger.is_waiting() && ledger.waiting().written == std::iter::once(60..100).collect());
        ledger.end_report();
        ledger.restore(report);
        assert_eq!(ledger.waiting().written, std::iter::once(0..100).collect());
    }

    #[test]
    fn a_file_without_handles_is_remembered_for_what_was_under_way_and_for_its_length() {
        let mut ledger = ReportLedger::default();
        ledger.wrote(10, at(1));
        ledger.begin(Vec::new());
        let left = ledger.leave();
        assert!(left.is_waiting() && left.has_told() && !left.is_settled());

        let mut ledger = ReportLedger::default();
        ledger.length_was_set(1);
        assert!(ledger.is_clear() && !ledger.is_settled());
        ledger.wrote(9, Timestamp::default());
        ledger.set_length_again(7);
        ledger.wrote(11, Timestamp::default());
        ledger.wrote(8, Timestamp::default());
        ledger.discard();
        ledger.length_is_durable();
        assert_eq!(ledger.take_length_again(), Some(11));
        assert!(ledger.is_settled());
    }
}
