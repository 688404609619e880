//! Staging buffers: runs being filled, and runs in flight.
//!
//! A *transfer* is the part of a strip that goes into one request: the whole strip, or a megabyte of a larger one.
//! A *run* is a contiguous range of bytes within one transfer.

use super::payload::SharedSlice;
use crate::data::PooledBuffer;
use crate::data::SendBuffer;
use std::ops::Range;
use vazao_model::Layout;

/// Largest request: beyond it nothing gets faster, and buffers stop fitting into the cache.
const TRANSFER_BYTES_MAX: u64 = 1 << 20;

/// The file range of the transfer that holds byte `offset`.
pub(crate) fn transfer_at(layout: &Layout, offset: u64) -> Range<u64> {
    let strip = layout.distribution.piece_at(offset, layout.width());
    let transfer_bytes = strip.length.min(TRANSFER_BYTES_MAX);
    let start = strip.file_offset + (offset - strip.file_offset) / transfer_bytes * transfer_bytes;
    start..start.saturating_add(transfer_bytes).min(strip.file_end())
}

/// Requests on their way to each server: one it works on, and one that has arrived by the time it is done. More only
/// pushes buffers out of the processor's cache: a window of 8 MiB over four servers read 40% slower than one of 2 MiB
/// (docs/decisions/request-shape.md).
pub(super) const IN_FLIGHT_A_SERVER: u64 = 2;

/// Smallest window, so that a file on one server is not read in steps.
const WINDOW_BYTES_MIN: u64 = 1 << 20;

/// Largest window of servers nearby, so that the buffers of a wide file stay in the processor's cache.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Bytes of the requests that a layout is read and written by.
pub(super) fn transfer_bytes(layout: &Layout) -> u64 {
    layout.distribution.strip_bytes_max().min(TRANSFER_BYTES_MAX)
}

/// Bytes of one file worth having in flight over `layout` where servers are near, at most `limit`.
pub(super) fn window_bytes(layout: &Layout, limit: usize) -> u64 {
    let busy = transfer_bytes(layout) * u64::from(layout.width()) * IN_FLIGHT_A_SERVER;
    busy.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX).min(limit as u64)
}

/// Where the bytes of a run are.
#[derive(Debug)]
enum Memory {
    /// As long as the transfer.
    Staged(PooledBuffer<SendBuffer>),
    /// All of the transfer, where the writer has put them.
    Shared(SharedSlice),
}

/// Bytes of one transfer that were written here.
#[derive(Debug)]
pub(crate) struct Run {
    memory: Memory,
    transfer_start: u64,
    /// File range that is filled.
    pub(crate) range: Range<u64>,
}

impl Run {
    /// An empty run at `offset` of the transfer that starts at `transfer_start`.
    pub(crate) fn new(buffer: PooledBuffer<SendBuffer>, transfer_start: u64, offset: u64) -> Run {
        Run { memory: Memory::Staged(buffer), transfer_start, range: offset..offset }
    }

    /// A run of all bytes from `transfer_start` on, complete.
    pub(crate) fn complete(bytes: SharedSlice, transfer_start: u64) -> Run {
        let range = transfer_start..transfer_start + bytes.len() as u64;
        Run { memory: Memory::Shared(bytes), transfer_start, range }
    }

    /// True when `range` can be added without leaving a gap.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        range.start <= self.range.end && self.range.start <= range.end
    }

    fn place(&self, range: &Range<u64>) -> Range<usize> {
        (range.start - self.transfer_start) as usize..(range.end - self.transfer_start) as usize
    }

    /// Adds bytes that touch the run and lie within its transfer. Nothing is added to a complete one.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let range = offset..offset + bytes.len() as u64;
        let place = self.place(&range);
        let Memory::Staged(buffer) = &mut self.memory else { return };
        buffer[place].copy_from_slice(bytes);
        self.range = self.range.start.min(range.start)..self.range.end.max(range.end);
    }

    /// The bytes in file order.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Staged(buffer) => &buffer[self.place(&self.range)],
            Memory::Shared(bytes) => bytes,
        }
    }

    /// True when nothing more fits.
    pub(crate) fn is_full(&self) -> bool {
        self.range.end - self.range.start == self.memory_bytes() as u64
    }

    /// Memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.memory {
            Memory::Staged(buffer) => buffer.len(),
            Memory::Shared(bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Pool;
    use std::sync::Arc;
    use vazao_model::GroupId;

    #[test]
    fn transfers_cut_units_and_never_cross_them() {
        let mib = 1 << 20;
        let layout = Layout::striped(0, 2 * mib + 65536, vec![GroupId(1), GroupId(2)]).expect("valid");
        assert_eq!(transfer_at(&layout, 5), 0..mib);
        assert_eq!(transfer_at(&layout, mib), mib..2 * mib);
        assert_eq!(transfer_at(&layout, 2 * mib + 1), 2 * mib..2 * mib + 65536);
        assert_eq!(transfer_at(&layout, 2 * mib + 65536), 2 * mib + 65536..3 * mib + 65536);
    }

    #[test]
    fn a_window_keeps_every_server_busy_within_the_limit() {
        let layout =
            |width: u32| Layout::striped(0, 1 << 18, (1..=width).map(GroupId).collect()).expect("valid");
        assert_eq!(window_bytes(&layout(1), 8 << 20), 1 << 20);
        assert_eq!(window_bytes(&layout(4), 8 << 20), 2 << 20);
        assert_eq!(window_bytes(&layout(8), 8 << 20), 4 << 20);
        assert_eq!(window_bytes(&layout(64), 64 << 20), 8 << 20);
        assert_eq!(window_bytes(&layout(8), 1 << 20), 1 << 20);
    }

    #[test]
    fn a_run_grows_at_both_ends_and_takes_the_newer_bytes() {
        let pool = Arc::new(Pool::<SendBuffer>::new(0));
        let mut run = Run::new(pool.take_or(100, |length| vec![0; length].into()), 1000, 1010);
        run.put(1010, b"bbbb");
        assert!(run.touches(&(1005..1010)) && run.touches(&(1014..1020)) && !run.touches(&(1015..1020)));
        run.put(1008, b"aaa");
        run.put(1013, b"cc");
        assert_eq!((run.range.clone(), run.bytes()), (1008..1015, &b"aaabbcc"[..]));
        assert!(!run.is_full());
        run.put(1000, &[7; 100]);
        assert!(run.is_full());
    }
}
