//! Contents of a file: sparse pages, shared between copies until one of them is written to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Granularity of holes and of space accounting.
pub(super) const PAGE_BYTES: usize = 4096;

/// Always [`PAGE_BYTES`] long; a slice, because it is then allocated and copied in one step.
type Page = [u8];

/// Pages that are there, and the length. Bytes in no page are zero; pages hold zeros beyond the length.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pages: BTreeMap<u64, Arc<Page>>,
    length: u64,
}

/// A part of a range that lies within one page.
struct Run {
    page: u64,
    /// Where it starts in the page.
    start: usize,
    length: usize,
}

/// Cuts the range `[offset, offset + length)` at page boundaries.
fn runs(offset: u64, length: usize) -> impl Iterator<Item = Run> {
    let mut position = offset;
    let mut left = length;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let start = (position % PAGE_BYTES as u64) as usize;
        let run = Run { page: position / PAGE_BYTES as u64, start, length: left.min(PAGE_BYTES - start) };
        position += run.length as u64;
        left -= run.length;
        Some(run)
    })
}

impl Contents {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }

    /// Bytes of pages that a write of `length` bytes at `offset` would add.
    pub(super) fn missing_bytes(&self, offset: u64, length: usize) -> u64 {
        if length == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE_BYTES as u64, (offset + length as u64 - 1) / PAGE_BYTES as u64);
        let there = self.pages.range(first..=last).count() as u64;
        (last - first + 1 - there) * PAGE_BYTES as u64
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut rest = &mut buffer[..count];
        for run in runs(offset, count) {
            let (piece, after) = rest.split_at_mut(run.length);
            match self.pages.get(&run.page) {
                Some(page) => piece.copy_from_slice(&page[run.start..run.start + run.length]),
                None => piece.fill(0),
            }
            rest = after;
        }
        count
    }

    /// Writes without changing the length.
    fn put(&mut self, bytes: &[u8], offset: u64) {
        let mut rest = bytes;
        for run in runs(offset, bytes.len()) {
            let (piece, after) = rest.split_at(run.length);
            rest = after;
            if run.length == PAGE_BYTES {
                self.pages.insert(run.page, Arc::from(piece));
                continue;
            }
            let page = self.pages.entry(run.page).or_insert_with(|| Arc::from(&[0; PAGE_BYTES][..]));
            Arc::make_mut(page)[run.start..run.start + run.length].copy_from_slice(piece);
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        self.put(bytes, offset);
        if !bytes.is_empty() {
            self.length = self.length.max(offset + bytes.len() as u64);
        }
    }

    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            drop(self.pages.split_off(&length.div_ceil(PAGE_BYTES as u64)));
            if let Some(page) = self.pages.get_mut(&(length / PAGE_BYTES as u64)) {
                Arc::make_mut(page)[(length % PAGE_BYTES as u64) as usize..].fill(0);
            }
        }
        self.length = length;
    }

    /// Frees whole pages within the range and zeros the rest of it; the length stays.
    pub(super) fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.length);
        let page_bytes = PAGE_BYTES as u64;
        let touched: Vec<u64> = match offset < end {
            true => {
                self.pages.range(offset / page_bytes..end.div_ceil(page_bytes)).map(|(p, _)| *p).collect()
            }
            false => Vec::new(),
        };
        for page in touched {
            let start = page * page_bytes;
            let from = offset.saturating_sub(start) as usize;
            let to = (end - start).min(page_bytes) as usize;
            // What lies beyond the file's end is zero already.
            if from == 0 && (to == PAGE_BYTES || end == self.length) {
                self.pages.remove(&page);
            } else if let Some(page) = self.pages.get_mut(&page) {
                Arc::make_mut(page)[from..to].fill(0);
            }
        }
    }

    /// The first run of pages at or after `offset`, cut at `offset` and the file's end.
    pub(super) fn next_data(&self, offset: u64) -> Option<Range<u64>> {
        let page_bytes = PAGE_BYTES as u64;
        let (first, _) = self.pages.range(offset / page_bytes..).next()?;
        let run =
            self.pages.range(*first..).zip(*first..).take_while(|((page, _), expected)| *page == expected);
        let last = run.last().map_or(*first, |((page, _), _)| *page);
        let range = (first * page_bytes).max(offset)..((last + 1) * page_bytes).min(self.length);
        (range.start < range.end).then_some(range)
    }

    /// Extends to `length`, never cuts.
    pub(super) fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    /// Changes one byte with `xor`, adding a page where there was a hole.
    pub(super) fn corrupt(&mut self, offset: u64, xor: u8) {
        let mut byte = [0];
        if self.read(&mut byte, offset) == 1 {
            self.put(&[byte[0] ^ xor], offset);
        }
    }

    /// Takes the pages that the range touches, and the length, from `other`.
    pub(super) fn adopt(&mut self, other: &Contents, offset: u64, length: usize) {
        for run in runs(offset, length) {
            match other.pages.get(&run.page) {
                Some(page) => self.pages.insert(run.page, page.clone()),
                None => self.pages.remove(&run.page),
            };
        }
        self.length = other.length;
    }

    /// Saves memory: pages in the range that are equal to those of `other` are kept once.
    pub(super) fn share(&mut self, other: &Contents, offset: u64, length: usize) {
        for run in runs(offset, length) {
            if let (Some(mine), Some(theirs)) = (self.pages.get_mut(&run.page), other.pages.get(&run.page))
                && mine[..] == theirs[..]
            {
                *mine = theirs.clone();
            }
        }
    }
}
