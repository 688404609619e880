//! The write buffer of a file: what was written here and no server has acknowledged.
//!
//! Bytes are *staged* in runs until a run is full or something forces it out, and *in flight* from then on. A thread
//! that writes to objects past the buffer counts as one of its writers meanwhile.

use super::staging::Run;
use crate::data::DataCall;
use crate::data::{InFlight, overlap};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Runs of one file that may wait for neighbours: several sequential writers, or one whose requests arrive jumbled.
const STAGED_RUNS_MAX: usize = 8;

/// A run in flight.
pub(super) struct FlyingRun {
    pub(super) run: Arc<Run>,
    /// It makes no object: where the file's has been removed it is refused.
    pub(super) must_exist: bool,
}

/// The buffer of one file.
#[derive(Default)]
pub(super) struct WriteBuffer {
    /// Runs being filled, by the start of their transfer.
    staged: BTreeMap<u64, Run>,
    flights: InFlight<FlyingRun, DataCall>,
    /// Threads in the middle of a write to objects.
    writers: usize,
}

impl WriteBuffer {
    /// True when bytes are staged or in flight.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.staged.is_empty() || !self.flights.is_empty()
    }

    /// True when there are no such bytes, and no thread writes to objects.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_unwritten() && self.writers == 0
    }

    /// A thread begins to write to objects.
    pub(super) fn begin_writer(&mut self) {
        self.writers += 1;
    }

    /// It has written, or staged, all of it.
    pub(super) fn end_writer(&mut self) {
        self.writers -= 1;
    }

    /// True while a thread writes to objects past the buffer.
    pub(super) fn has_writers(&self) -> bool {
        self.writers > 0
    }

    /// Ranges of the file that are staged or in flight.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let in_flight = self.flights.iter().map(|(_, _, range)| range.clone());
        self.staged.values().map(|run| run.range.clone()).chain(in_flight)
    }

    /// The staged run of a transfer.
    pub(super) fn staged(&self, transfer_start: u64) -> Option<&Run> {
        self.staged.get(&transfer_start)
    }

    /// The same, begun by `begin` where there is none.
    pub(super) fn staged_or(&mut self, transfer_start: u64, begin: impl FnOnce() -> Run) -> &mut Run {
        self.staged.entry(transfer_start).or_insert_with(begin)
    }

    /// Stages all bytes of a transfer.
    pub(super) fn stage(&mut self, run: Run) {
        self.staged.insert(run.range.start, run);
    }

    /// Starts of the transfers with staged runs.
    pub(super) fn staged_starts(&self) -> Vec<u64> {
        self.staged.keys().copied().collect()
    }

    /// The first one.
    pub(super) fn first_staged(&self) -> Option<u64> {
        self.staged.keys().next().copied()
    }

    /// A transfer to be sent because too many runs are staged: not that at `kept`.
    pub(super) fn superfluous(&self, kept: u64) -> Option<u64> {
        let is_too_many = self.staged.len() > STAGED_RUNS_MAX;
        self.staged.keys().copied().find(|start| is_too_many && *start != kept)
    }

    /// The transfer of a staged run that overlaps `range`.
    pub(super) fn staged_within(&self, range: &Range<u64>) -> Option<u64> {
        self.staged.iter().find(|(_, run)| overlap(&run.range, range)).map(|(start, _)| *start)
    }

    /// Takes away what is staged, to be thrown away; returns the memory that it took.
    pub(super) fn discard_staged(&mut self) -> usize {
        std::mem::take(&mut self.staged).values().map(Run::memory_bytes).sum()
    }

    /// The staged run of a transfer is in flight now; returns its number.
    pub(super) fn launch(&mut self, transfer_start: u64) -> Option<u64> {
        let run = Arc::new(self.staged.remove(&transfer_start)?);
        let (range, memory_bytes) = (run.range.clone(), run.memory_bytes());
        Some(self.flights.take(range, memory_bytes, FlyingRun { run, must_exist: false }))
    }

    /// A run in flight; `None`: it is complete.
    pub(super) fn flying(&self, number: u64) -> Option<Arc<Run>> {
        self.flights.get(number).map(|(write, _)| Arc::clone(&write.run))
    }

    /// A run in flight was sent. `must_exist`: see [`FlyingRun`].
    pub(super) fn sent(&mut self, number: u64, call: DataCall, must_exist: bool) {
        if let Some(write) = self.flights.get_mut(number) {
            write.must_exist = must_exist;
        }
        self.flights.sent(number, call);
    }

    /// The write in flight that was taken over first, when its answer is here and no thread waits for it.
    pub(super) fn oldest_done(&self) -> Option<u64> {
        let (number, call) = self.flights.oldest_sent()?;
        (call.is_done() && self.flights.oldest() == Some(number)).then_some(number)
    }

    /// The writes in flight.
    pub(super) fn flights(&self) -> &InFlight<FlyingRun, DataCall> {
        &self.flights
    }

    /// The same, to be changed.
    pub(super) fn flights_mut(&mut self) -> &mut InFlight<FlyingRun, DataCall> {
        &mut self.flights
    }
}
