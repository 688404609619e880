//! The writes in flight to one file: taken over from their writer, and not acknowledged by a server yet.
//!
//! A write is *taken* until its request is sent, *sent* while nothing waits for the answer, and *awaited* by one thread
//! at a time, which puts the call back when it leaves without the answer. Every completion removes the write.

use std::collections::BTreeMap;
use std::ops::Range;

/// The writes in flight, in the order in which they were taken over. `W` is what their owner knows of each, `C` a
/// request that was sent.
pub(crate) struct InFlight<W, C> {
    writes: BTreeMap<u64, Flight<W, C>>,
    next: u64,
    bytes: usize,
}

/// One of them.
struct Flight<W, C> {
    range: Range<u64>,
    memory_bytes: usize,
    write: W,
    stage: Stage<C>,
}

enum Stage<C> {
    Taken,
    Sent(C),
    Awaited,
}

/// What a thread that waits for some writes can do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waitable {
    /// Nothing: they are complete.
    None,
    /// Let other threads send them, or receive their answers.
    Busy,
    /// Receive the answer to this one.
    Sent(u64),
}

/// True when the two have a byte in common.
pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl<W, C> Default for InFlight<W, C> {
    fn default() -> InFlight<W, C> {
        InFlight { writes: BTreeMap::new(), next: 0, bytes: 0 }
    }
}

impl<W, C> InFlight<W, C> {
    /// Takes over a write to `range` of the file, which keeps `memory_bytes` in memory; returns its number.
    pub(crate) fn take(&mut self, range: Range<u64>, memory_bytes: usize, write: W) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += memory_bytes;
        self.writes.insert(number, Flight { range, memory_bytes, write, stage: Stage::Taken });
        number
    }

    /// What the owner knows of a write; `None`: it is complete.
    pub(crate) fn get(&self, number: u64) -> Option<(&W, &Range<u64>)> {
        self.writes.get(&number).map(|flight| (&flight.write, &flight.range))
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut W> {
        self.writes.get_mut(&number).map(|flight| &mut flight.write)
    }

    /// The request was sent, or its waiter has left without the answer.
    pub(crate) fn sent(&mut self, number: u64, call: C) {
        if let Some(flight) = self.writes.get_mut(&number) {
            flight.stage = Stage::Sent(call);
        }
    }

    /// Takes the request to wait for its answer. `None` where it is not sent yet, or another thread waits.
    pub(crate) fn begin_wait(&mut self, number: u64) -> Option<C> {
        let flight = self.writes.get_mut(&number)?;
        match std::mem::replace(&mut flight.stage, Stage::Awaited) {
            Stage::Sent(call) => Some(call),
            other => {
                flight.stage = other;
                None
            }
        }
    }

    /// A write is done or has failed. `None`: it was completed before.
    pub(crate) fn complete(&mut self, number: u64) -> Option<(W, Range<u64>)> {
        let flight = self.writes.remove(&number)?;
        self.bytes -= flight.memory_bytes;
        Some((flight.write, flight.range))
    }

    /// The write that was taken over first.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.writes.keys().next().copied()
    }

    /// The oldest one, of those taken over before `before`.
    pub(crate) fn oldest_before(&self, before: u64) -> Option<u64> {
        self.oldest().filter(|number| *number < before)
    }

    /// The oldest write that was sent and that no thread waits for, with its request.
    pub(crate) fn oldest_sent(&self) -> Option<(u64, &C)> {
        self.writes.iter().find_map(|(number, flight)| match &flight.stage {
            Stage::Sent(call) => Some((*number, call)),
            _ => None,
        })
    }

    /// The first write, of those taken over before `before`, that overlaps `range`.
    pub(crate) fn overlapping(&self, range: &Range<u64>, before: u64) -> Option<u64> {
        let mut earlier = self.writes.range(..before);
        earlier.find(|(_, flight)| overlap(&flight.range, range)).map(|(number, _)| *number)
    }

    /// All of them, with their numbers and ranges.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &W, &Range<u64>)> {
        self.writes.iter().map(|(number, flight)| (*number, &flight.write, &flight.range))
    }

    /// Which of the writes that are `wanted` a thread can wait for.
    pub(crate) fn waitable(&self, wanted: impl Fn(u64, &W, &Range<u64>) -> bool) -> Waitable {
        let mut found = Waitable::None;
        for (number, flight) in &self.writes {
            if !wanted(*number, &flight.write, &flight.range) {
                continue;
            }
            if matches!(flight.stage, Stage::Sent(_)) {
                return Waitable::Sent(*number);
            }
            found = Waitable::Busy;
        }
        found
    }

    /// The number of the next write: those from now on have this one or a higher one.
    pub(crate) fn end(&self) -> u64 {
        self.next
    }

    /// Memory that they keep.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_awaited_by_one_thread_and_counts_until_it_is_complete() {
        let mut writes = InFlight::<&str, u8>::default();
        let first = writes.take(0..10, 16, "first");
        let second = writes.take(10..20, 16, "second");
        assert_eq!((writes.bytes(), writes.len(), writes.end()), (32, 2, 2));
        assert!(writes.begin_wait(first).is_none(), "it is not sent yet");
        writes.sent(second, 7);
        assert_eq!(writes.oldest_sent(), Some((second, &7)));
        assert_eq!(writes.waitable(|_, _, _| true), Waitable::Sent(second));
        assert_eq!(writes.waitable(|number, _, _| number == first), Waitable::Busy);
        assert_eq!(writes.waitable(|number, _, _| number == writes.end()), Waitable::None);
        assert_eq!(writes.begin_wait(second), Some(7));
        assert!(writes.begin_wait(second).is_none() && writes.oldest_sent().is_none());
        writes.sent(second, 7);
        assert_eq!(writes.begin_wait(second), Some(7));
        assert_eq!(writes.complete(second), Some(("second", 10..20)));
        assert_eq!(writes.complete(second), None);
        assert_eq!((writes.bytes(), writes.oldest()), (16, Some(first)));
    }

    #[test]
    fn an_overlap_is_looked_for_among_earlier_writes() {
        let mut writes = InFlight::<(), ()>::default();
        let first = writes.take(0..10, 0, ());
        let second = writes.take(5..15, 0, ());
        assert_eq!(writes.overlapping(&(9..10), second), Some(first));
        assert_eq!(writes.overlapping(&(10..15), second), None);
        assert_eq!(writes.overlapping(&(10..15), writes.end()), Some(second));
        assert_eq!((writes.oldest_before(0), writes.oldest_before(1)), (None, Some(first)));
    }
}
