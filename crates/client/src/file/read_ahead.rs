//! Read-ahead of one handle: while it reads in order, the following transfers are asked for before they are needed.

use super::inode::OpenInode;
use super::read::{Source, Trouble, View};
use super::staging::{overlap, transfer_at, window_bytes};
use crate::budget::ReadAheadShare;
use crate::core::locked;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use vazao_model::limits::BLOCK_BYTES;

/// Bytes read ahead when a reader looks sequential for the first time.
const WINDOW_BYTES_MIN: u64 = 256 * 1024;

/// How far reads may come out of order and still count as one stream: a mount's threads overtake each other.
const DISORDER_BYTES: u64 = 1 << 20;

/// The stream of one handle.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Where the next read starts if it is sequential.
    expected: u64,
    window_bytes: u64,
    chunks: VecDeque<Arc<Chunk>>,
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
        inode.copy(view, &mut locked(&self.source), offset, buffer)?;
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
        let is_sequential = self.continues(range);
        self.expected = range.end;
        if !is_sequential || view.has_unwritten {
            self.cancel();
            return Vec::new();
        }
        while self.chunks.front().is_some_and(|chunk| chunk.is_used_up(range.start)) {
            self.chunks.pop_front();
        }
        self.extend(inode, view, range);
        self.chunks.iter().filter(|chunk| overlap(&chunk.range, range)).cloned().collect()
    }

    fn continues(&self, range: &Range<u64>) -> bool {
        match (self.chunks.front(), self.chunks.back()) {
            (Some(first), Some(last)) => {
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
        let options = &inode.core.options;
        let has_room = inode.core.read_ahead.used() < options.read_ahead_total_bytes_max;
        let limit_bytes = window_bytes(&view.layout, options.read_ahead_bytes_max);
        let wanted_bytes = if has_room { self.window_bytes.max(WINDOW_BYTES_MIN) } else { WINDOW_BYTES_MIN };
        let window_bytes = wanted_bytes.min(limit_bytes);
        let until = view.size.min(range.end.saturating_add(window_bytes));
        if front >= until {
            return;
        }
        while front < until {
            let end = transfer_at(&view.layout, front).end.min(view.size);
            let Ok(source) = inode.source(view, front..end) else { return };
            self.chunks.push_back(Arc::new(Chunk {
                range: front..end,
                source: Mutex::new(source),
                served_bytes: AtomicU64::new(0),
                _share: inode.core.read_ahead.charge((end - front) as usize),
            }));
            front = end;
        }
        self.window_bytes = (window_bytes * 2).min(limit_bytes);
    }
}
