//! Read-ahead of one handle: while it reads in order, or at a constant distance, what follows is asked for before it is
//! needed.

use super::inode::OpenInode;
use super::read::{Source, Trouble, View};
use super::readers::Reader;
use super::staging::transfer_at;
use super::strides::{Stride, Strides};
use super::{read, window};
use crate::data::ReadAheadShare;
use crate::data::overlap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_model::limits::BLOCK_BYTES;

/// Bytes read ahead when a reader looks sequential for the first time.
const WINDOW_BYTES_MIN: u64 = 256 * 1024;

/// How far reads may come out of order and still count as one stream: a mount's threads overtake each other.
const DISORDER_BYTES: u64 = 1 << 20;

/// Reads at a distance foretold at first: one the server works on, and one for when it is done.
const RECORDS_MIN: u32 = 2;

/// Most of them: small ones far apart would fill the servers' queues before they fill a window.
const RECORDS_MAX: u32 = 64;

/// The stream of one handle.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Where the next read starts if it is sequential, and where this sequence began.
    expected: u64,
    began: u64,
    /// While it reads in order.
    reader: Option<Reader>,
    window_bytes: u64,
    chunks: VecDeque<Arc<Chunk>>,
    strides: Strides,
    /// The chunks belong to reads at a distance, in the order of these.
    is_strided: bool,
    /// How many of these are asked for ahead, and where the last one asked for starts.
    records: u32,
    last_record: u64,
    /// Of the state that the chunks were asked for under.
    write_count: u64,
    generation: u32,
}

/// A range that was asked for ahead of its reader.
pub(super) struct Chunk {
    pub(super) range: Range<u64>,
    source: Mutex<Source>,
    served_bytes: AtomicU64,
    _share: ReadAheadShare,
}

impl Chunk {
    /// Copies bytes out, waiting for them where necessary.
    pub(super) fn copy(
        &self,
        inode: &OpenInode,
        view: &View,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), Trouble> {
        read::copy(inode, view, &mut self.source.lock(), offset, buffer)?;
        self.served_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn is_used_up(&self, position: u64) -> bool {
        let length = self.range.end - self.range.start;
        self.served_bytes.load(Ordering::Relaxed) >= length || self.range.end + DISORDER_BYTES <= position
    }
}

impl ReadAhead {
    /// Forgets everything asked for.
    pub(crate) fn cancel(&mut self) {
        self.chunks.clear();
        self.window_bytes = 0;
        self.is_strided = false;
        self.reader = None;
    }

    /// Takes note of a read of `range`, asks for what should follow it, and returns the chunks it can be served
    /// from, in order.
    pub(super) fn plan(&mut self, inode: &OpenInode, view: &View, range: &Range<u64>) -> Vec<Arc<Chunk>> {
        let is_same_state = view.write_count == self.write_count && view.layout.generation == self.generation;
        if view.has_unwritten || !is_same_state {
            // What was asked for before a write may not be what is there after it.
            self.chunks.clear();
            (self.write_count, self.generation) = (view.write_count, view.layout.generation);
        }
        let stride = self.strides.note(range);
        let is_sequential = self.continues(range);
        if !is_sequential {
            (self.began, self.reader) = (range.start, None);
        }
        self.expected = range.end;
        if view.has_unwritten {
            self.cancel();
            return Vec::new();
        }
        match stride {
            _ if is_sequential => self.plan_sequence(inode, view, range),
            Some(stride) => self.plan_records(inode, view, range, stride),
            None => self.cancel(),
        }
        let mut chunks: Vec<_> =
            self.chunks.iter().filter(|chunk| overlap(&chunk.range, range)).cloned().collect();
        chunks.sort_by_key(|chunk| chunk.range.start);
        chunks
    }

    fn plan_sequence(&mut self, inode: &OpenInode, view: &View, range: &Range<u64>) {
        if self.is_strided {
            self.cancel();
        }
        while self.chunks.front().is_some_and(|chunk| chunk.is_used_up(range.start)) {
            self.chunks.pop_front();
        }
        self.extend(inode, view, range);
    }

    /// Asks for the reads that follow this one at the same distance.
    fn plan_records(&mut self, inode: &OpenInode, view: &View, range: &Range<u64>, stride: Stride) {
        if !self.is_strided {
            self.cancel();
            (self.is_strided, self.records, self.last_record) = (true, RECORDS_MIN, range.start);
        }
        while self.chunks.front().is_some_and(|chunk| !overlap(&chunk.range, range)) {
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            // Nothing of what was foretold is left: go on from here.
            self.last_record = range.start;
        }
        let length = range.end - range.start;
        let has_room = inode.core.read_ahead.used() < inode.core.context.options.read_ahead_total_bytes_max;
        let fitting =
            window::window_bytes(inode, &view.layout, inode.core.context.options.read_ahead_bytes_max)
                / length;
        let records_max = if has_room { fitting.min(RECORDS_MAX.into()) as u32 } else { 1 };
        for n in 1..=self.records.min(records_max) {
            let Some(record) = stride.after(range.start, n).filter(|r| r.start < view.size) else { break };
            let is_asked_for = stride.is_between(record.start, range.start, self.last_record);
            if !is_asked_for && !self.ask(inode, view, record.start..record.end.min(view.size)) {
                return;
            }
            if !is_asked_for {
                self.last_record = record.start;
            }
        }
        self.records = (self.records * 2).min(RECORDS_MAX);
    }

    /// Asks for a range, transfer by transfer. False when that cannot be done.
    fn ask(&mut self, inode: &OpenInode, view: &View, range: Range<u64>) -> bool {
        let mut front = range.start;
        while front < range.end {
            let end = transfer_at(&view.layout, front).end.min(range.end);
            let Ok(source) = read::source(inode, view, front..end) else { return false };
            self.chunks.push_back(Arc::new(Chunk {
                range: front..end,
                source: Mutex::new(source),
                served_bytes: AtomicU64::new(0),
                _share: inode.core.read_ahead.charge((end - front) as usize),
            }));
            front = end;
        }
        true
    }

    fn continues(&self, range: &Range<u64>) -> bool {
        match (self.chunks.front(), self.chunks.back()) {
            (Some(first), Some(last)) if !self.is_strided => {
                first.range.start.saturating_sub(DISORDER_BYTES) <= range.start
                    && range.start <= last.range.end
            }
            _ => range.start == self.expected,
        }
    }

    fn extend(&mut self, inode: &OpenInode, view: &View, range: &Range<u64>) {
        let block_bytes = BLOCK_BYTES as u64;
        let start = range.start / block_bytes * block_bytes;
        let mut front = self.chunks.back().map_or(start, |last| last.range.end);
        let options = &inode.core.context.options;
        let has_room = inode.core.read_ahead.used() < options.read_ahead_total_bytes_max;
        let reader = self.reader.get_or_insert_with(|| inode.readers.enter(self.began));
        let limit_bytes = window::window_bytes(inode, &view.layout, options.read_ahead_bytes_max);
        let limit_bytes = reader.share_of(limit_bytes, WINDOW_BYTES_MIN);
        let wanted_bytes = if has_room { self.window_bytes.max(WINDOW_BYTES_MIN) } else { WINDOW_BYTES_MIN };
        let window_bytes = wanted_bytes.min(limit_bytes);
        let until = range.end.saturating_add(window_bytes).min(reader.limit(range)).min(view.size);
        if front >= until {
            return;
        }
        while front < until {
            let end = transfer_at(&view.layout, front).end.min(view.size);
            if !self.ask(inode, view, front..end) {
                return;
            }
            front = end;
        }
        self.window_bytes = (window_bytes * 2).min(limit_bytes);
    }
}
