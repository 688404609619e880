//! The copy of a small file's contents, which live in its inode record at the metadata service.
//!
//! Several clients may write one small file at the same time, and the record is the place where their writes meet. So a
//! client reports the bytes that it has written, never the contents as it sees them: what it has not written is not its
//! to tell.
//!
//! States of a byte of the copy: *clean* (as the record was at `base_version`), *written* (here, not reported), and
//! *reporting* (in a report that has not been answered). A report that fails makes its bytes written again. Contents
//! that arrive from the service replace clean bytes only.

use std::ops::Range;
use vazao_model::limits::INLINE_BYTES_MAX;
use vazao_wire::proto;

/// A set of byte offsets, as sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteSet(Vec<Range<usize>>);

impl ByteSet {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, mut range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|there| there.end < range.start);
        let last = self.0.partition_point(|there| there.start <= range.end);
        for there in self.0.drain(first..last) {
            range = range.start.min(there.start)..range.end.max(there.end);
        }
        self.0.insert(first, range);
    }

    fn add_all(&mut self, other: &ByteSet) {
        other.0.iter().for_each(|range| self.add(range.clone()));
    }

    fn cut(&mut self, length: usize) {
        self.0.retain(|range| range.start < length);
        if let Some(last) = self.0.last_mut() {
            last.end = last.end.min(length);
        }
    }
}

/// Inline contents as known here.
#[derive(Debug, Default)]
pub(crate) struct InlineContents {
    /// Zeros up to the file's size are not spelled out.
    bytes: Vec<u8>,
    /// Version of the inode whose contents the clean bytes are.
    base_version: u64,
    written: ByteSet,
    reporting: ByteSet,
    /// `base_version` when the report began.
    reported_base: u64,
    /// Reported, and not known to survive a loss of power.
    unsynced: ByteSet,
    /// Contents that arrived during a report, and their version: whether they include the report is known only when it
    /// is answered.
    arrived: Option<(Vec<u8>, u64)>,
    /// The file has a layout by now: another client's writes made it outgrow its record.
    is_outgrown: bool,
}

impl InlineContents {
    pub(super) fn new(bytes: Vec<u8>, version: u64) -> InlineContents {
        InlineContents { bytes, base_version: version, ..InlineContents::default() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Version of the inode that this is a copy of, apart from what was written here.
    pub(super) fn base_version(&self) -> u64 {
        self.base_version
    }

    /// The service has started anew, and may have forgotten what it took: its next answer is to show the contents as
    /// they are there.
    pub(super) fn distrust(&mut self) {
        self.base_version = 0;
    }

    /// True until the service has shown its contents.
    pub(super) fn is_distrusted(&self) -> bool {
        self.base_version == 0 && self.is_unfinished()
    }

    pub(super) fn is_outgrown(&self) -> bool {
        self.is_outgrown
    }

    /// The file is known to have a layout: reads, writes and reports go on only after [`super::OpenInode::outgrow`].
    pub(super) fn note_outgrown(&mut self) {
        self.is_outgrown = true;
    }

    /// End of the furthest byte that was written here and not reported; 0 for none.
    pub(super) fn unreported_end(&self) -> u64 {
        self.written.0.last().map_or(0, |range| range.end as u64)
    }

    /// True when something was written here that the service does not know, or may forget if it loses power.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.written.is_empty() || !self.reporting.is_empty() || !self.unsynced.is_empty()
    }

    /// Ranges that were written here and of which the service has not answered to know them.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = Range<usize>> {
        self.reporting.0.iter().chain(&self.written.0).cloned()
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        put(&mut self.bytes, bytes, offset);
        self.written.add(offset..offset + bytes.len());
    }

    /// Makes a range read as zeros, which are a hole at the end of the contents.
    pub(super) fn zero(&mut self, range: Range<usize>) {
        let range = range.start..range.end.min(INLINE_BYTES_MAX);
        let contents_end = self.bytes.len();
        match self.bytes.get_mut(range.clone()) {
            Some(bytes) if range.end < contents_end => bytes.fill(0),
            _ => self.bytes.truncate(range.start),
        }
        self.written.add(range);
    }

    /// The file was cut at `length`, here and at the service.
    pub(super) fn cut(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.written.cut(length);
        self.unsynced.cut(length);
        if let Some((bytes, _)) = &mut self.arrived {
            bytes.truncate(length);
        }
    }

    /// The record has lost the file's length, and with it what lay beyond: all of the contents are to be reported.
    pub(super) fn write_all_again(&mut self, size: u64) {
        self.written.add(0..usize::try_from(size).unwrap_or(usize::MAX).min(INLINE_BYTES_MAX));
    }

    /// What was not reported need not be.
    pub(super) fn discard(&mut self) {
        self.written = ByteSet::default();
    }

    /// Begins a report: what is to be told.
    pub(super) fn begin_report(&mut self) -> Vec<proto::InlineWrite> {
        self.reporting.add_all(&std::mem::take(&mut self.written));
        self.reported_base = self.base_version;
        self.reporting.0.iter().flat_map(|range| self.tell(range)).collect()
    }

    /// A range as a report tells of it: what lies behind the end of the contents was made zeros.
    fn tell(&self, range: &Range<usize>) -> impl Iterator<Item = proto::InlineWrite> + use<> {
        let contents_end = self.bytes.len().clamp(range.start, range.end);
        let data = self.bytes.get(range.start..contents_end).unwrap_or_default().to_vec();
        let data = proto::InlineWrite { offset: range.start as u64, data, zeros: 0 };
        let zeros = (range.end - contents_end) as u64;
        let zeros = proto::InlineWrite { offset: contents_end as u64, data: Vec::new(), zeros };
        let is_needed = |write: &proto::InlineWrite| !write.data.is_empty() || write.zeros != 0;
        [data, zeros].into_iter().filter(is_needed)
    }

    /// The report was not carried out, or its outcome is unknown.
    pub(super) fn fail_report(&mut self) {
        let reported = std::mem::take(&mut self.reporting);
        self.written.add_all(&reported);
        if let Some((bytes, version)) = self.arrived.take() {
            self.replace_clean(bytes, version);
        }
    }

    /// The report was carried out and made the inode's version `version`; `contents`: as they are now, where this copy
    /// lacks what others have written. `sync`: all of it survives power loss. `is_restarted`: the service may have lost
    /// power since it took what is unsynced. True when it had forgotten what it had answered before: that is written
    /// again, and the caller reports it.
    pub(super) fn end_report(
        &mut self,
        contents: Option<Vec<u8>>,
        version: u64,
        sync: bool,
        is_restarted: bool,
    ) -> bool {
        let reported = std::mem::take(&mut self.reporting);
        let newer = self.arrived.take().filter(|(_, arrived_version)| *arrived_version > version);
        // A report that changes bytes makes a version of its own: one that it began at was made by a forgotten report.
        let is_repeated = !reported.is_empty() && version <= self.reported_base;
        let is_lacking =
            is_restarted && contents.as_ref().is_some_and(|contents| self.is_lacking(contents, &reported));
        let is_forgotten = is_repeated || is_lacking;
        let was_forgotten =
            newer.is_none() && (self.restore_forgotten(version) || (is_forgotten && self.restore_unsynced()));
        if sync {
            self.unsynced = ByteSet::default();
        } else {
            self.unsynced.add_all(&reported);
        }
        match (newer, contents) {
            (Some((bytes, newer_version)), _) => self.replace_clean(bytes, newer_version),
            (None, Some(bytes)) => self.replace_clean(bytes, version),
            (None, None) => self.base_version = version,
        }
        was_forgotten
    }

    /// Takes over the contents of version `version`, which an answer has shown. True when the service lost power and
    /// forgot what is written here again, as for [`InlineContents::end_report`].
    pub(super) fn refresh(&mut self, bytes: Vec<u8>, version: u64, is_restarted: bool) -> bool {
        let is_lacking = is_restarted && self.is_lacking(&bytes, &ByteSet::default());
        let was_forgotten = self.restore_forgotten(version) || (is_lacking && self.restore_unsynced());
        if !self.reporting.is_empty() {
            self.arrived = Some((bytes.clone(), version));
        }
        self.replace_clean(bytes, version);
        was_forgotten
    }

    /// A version below the one known means that the service lost power: what it had not made durable is written again.
    /// True when there is such.
    pub(super) fn restore_forgotten(&mut self, version: u64) -> bool {
        version < self.base_version && self.restore_unsynced()
    }

    /// True when contents that the service shows are not those that it took, and that no fsync has followed. What is
    /// in `reported` has just been told.
    fn is_lacking(&self, theirs: &[u8], reported: &ByteSet) -> bool {
        let is_told = |at: usize| reported.0.iter().chain(&self.written.0).any(|range| range.contains(&at));
        let mut taken = self.unsynced.0.iter().cloned().flatten();
        taken.any(|at| !is_told(at) && theirs.get(at).unwrap_or(&0) != self.bytes.get(at).unwrap_or(&0))
    }

    fn restore_unsynced(&mut self) -> bool {
        let unsynced = std::mem::take(&mut self.unsynced);
        self.written.add_all(&unsynced);
        !unsynced.is_empty()
    }

    fn replace_clean(&mut self, bytes: Vec<u8>, version: u64) {
        let here = std::mem::replace(&mut self.bytes, bytes);
        for range in self.written.0.iter().chain(&self.reporting.0) {
            put(&mut self.bytes, &padded(&here, range), range.start);
        }
        self.base_version = version;
        self.is_outgrown = false;
    }

    /// What was written here and not reported, over contents that the service has shown.
    pub(super) fn over(&self, mut base: Vec<u8>) -> Vec<u8> {
        self.unreported().for_each(|(offset, bytes)| put(&mut base, &bytes, offset));
        base
    }

    /// What was written here and not reported, with its offsets.
    pub(super) fn unreported(&self) -> impl Iterator<Item = (usize, Vec<u8>)> {
        self.written.0.iter().map(|range| (range.start, padded(&self.bytes, range)))
    }
}

/// A range of contents, with zeros behind their end.
fn padded(contents: &[u8], range: &Range<usize>) -> Vec<u8> {
    let there = contents.len().clamp(range.start, range.end);
    let mut bytes = contents.get(range.start..there).unwrap_or_default().to_vec();
    bytes.resize(range.len(), 0);
    bytes
}

/// Puts bytes at an offset; zeros fill what lies between the end and them.
fn put(contents: &mut Vec<u8>, bytes: &[u8], offset: usize) {
    let end = offset + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[offset..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut set = ByteSet::default();
        for range in [4..6, 0..2, 8..9, 2..4, 20..20] {
            set.add(range);
        }
        assert_eq!(set.0, [0..6, 8..9]);
        set.cut(5);
        assert_eq!(set.0, std::iter::once(0..5).collect::<Vec<_>>());
    }

    #[test]
    fn a_report_tells_what_was_written_and_nothing_else() {
        let mut inline = InlineContents::new(b"aaaaaaaa".to_vec(), 1);
        inline.write(b"BB", 2);
        inline.write(b"C", 9);
        let told: Vec<(u64, Vec<u8>)> =
            inline.begin_report().into_iter().map(|write| (write.offset, write.data)).collect();
        assert_eq!(told, [(2, b"BB".to_vec()), (9, b"C".to_vec())]);
        assert_eq!(inline.bytes(), b"aaBBaaaa\0C");
    }

    #[test]
    fn zeros_at_the_end_are_told_as_a_hole() {
        let mut inline = InlineContents::new(b"aaaaaaaa".to_vec(), 1);
        inline.zero(5..100);
        inline.zero(1..2);
        assert_eq!(inline.bytes(), b"a\0aaa");
        let told: Vec<(u64, usize, u64)> = inline
            .begin_report()
            .into_iter()
            .map(|write| (write.offset, write.data.len(), write.zeros))
            .collect();
        assert_eq!(told, [(1, 1, 0), (5, 0, 95)]);
    }

    #[test]
    fn contents_that_arrive_during_a_report_count_once_it_is_answered() {
        let mut inline = InlineContents::new(b"aaaa".to_vec(), 1);
        inline.write(b"B", 0);
        inline.begin_report();
        // Another client wrote over the reported byte, after the report was carried out.
        inline.refresh(b"ZZaa".to_vec(), 3, false);
        assert_eq!(inline.bytes(), b"BZaa");
        inline.end_report(None, 2, false, false);
        assert_eq!((inline.bytes(), inline.base_version()), (&b"ZZaa"[..], 3));
    }

    #[test]
    fn what_a_service_forgot_that_lost_power_is_told_again() {
        let mut inline = InlineContents::new(Vec::new(), 1);
        inline.write(b"one", 0);
        inline.begin_report();
        assert!(!inline.end_report(None, 5, false, false));
        inline.write(b"two", 3);
        inline.begin_report();
        // The service is back at version 1, and has carried out the second report only.
        assert!(inline.end_report(Some(b"\0\0\0two".to_vec()), 2, true, false));
        assert_eq!(inline.bytes(), b"onetwo");
        assert_eq!(inline.unreported().collect::<Vec<_>>(), [(0, b"one".to_vec())]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize, Vec<u8>),
        Report(usize),
        Look(usize),
        Fail(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let bytes = prop::collection::vec(1u8.., 1..6);
        prop_oneof![
            3 => (0..2usize, 0..24usize, bytes).prop_map(|(who, at, bytes)| Step::Write(who, at, bytes)),
            2 => (0..2usize).prop_map(Step::Report),
            1 => (0..2usize).prop_map(Step::Look),
            1 => (0..2usize).prop_map(Step::Fail),
        ]
    }

    proptest! {
        /// Two clients and a service that merges reports, against one array in which each report lands as it is made:
        /// no byte written by one client is lost to bytes that the other one did not write.
        #[test]
        fn two_clients_lose_nothing_of_each_other(steps in prop::collection::vec(step(), 1..60)) {
            let (mut record, mut version) = (Vec::new(), 1);
            let mut model: Vec<u8> = Vec::new();
            let mut pending: [Vec<(usize, Vec<u8>)>; 2] = Default::default();
            let mut clients = [InlineContents::new(Vec::new(), 1), InlineContents::new(Vec::new(), 1)];
            for step in steps {
                match step {
                    Step::Write(who, at, bytes) => {
                        clients[who].write(&bytes, at);
                        pending[who].push((at, bytes));
                    }
                    Step::Report(who) => {
                        let base = clients[who].base_version();
                        for write in clients[who].begin_report() {
                            put(&mut record, &write.data, write.offset as usize);
                        }
                        for (at, bytes) in pending[who].drain(..) {
                            put(&mut model, &bytes, at);
                        }
                        version += 1;
                        let stale = base != version - 1;
                        clients[who].end_report(stale.then(|| record.clone()), version, false, false);
                        prop_assert_eq!(clients[who].bytes(), &record[..]);
                    }
                    Step::Look(who) => {
                        clients[who].refresh(record.clone(), version, false);
                    }
                    Step::Fail(who) => {
                        clients[who].begin_report();
                        clients[who].refresh(record.clone(), version, false);
                        clients[who].fail_report();
                    }
                }
                prop_assert_eq!(&record, &model);
            }
        }
    }
}
