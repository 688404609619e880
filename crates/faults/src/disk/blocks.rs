//! The bytes of a disk: blocks that are there, and zeros everywhere else. Copies share blocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Granularity of sharing, and of zeros that take no memory.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// Always [`BLOCK_BYTES`] long; a slice, because it is then allocated and copied in one step.
type Block = [u8];

/// What a disk holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    blocks: BTreeMap<u64, Arc<Block>>,
}

/// Cuts a range at block boundaries: number of the block, and the range within it.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let numbers = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
    numbers.filter_map(move |number| {
        let base = number * BLOCK_BYTES;
        let from = range.start.max(base) - base;
        let to = range.end.min(base + BLOCK_BYTES) - base;
        (from < to).then_some((number, from as usize..to as usize))
    })
}

impl Blocks {
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) {
        let mut rest = buffer;
        for (number, within) in pieces(offset..offset + rest.len() as u64) {
            let (piece, after) = rest.split_at_mut(within.len());
            match self.blocks.get(&number) {
                Some(block) => piece.copy_from_slice(&block[within]),
                None => piece.fill(0),
            }
            rest = after;
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut rest = bytes;
        for (number, within) in pieces(offset..offset + bytes.len() as u64) {
            let (piece, after) = rest.split_at(within.len());
            rest = after;
            let is_zero = piece.iter().all(|&byte| byte == 0);
            if is_zero && (within.len() == BLOCK_BYTES as usize || !self.blocks.contains_key(&number)) {
                self.blocks.remove(&number);
                continue;
            }
            let zeros = || Arc::from(&[0; BLOCK_BYTES as usize][..]);
            let block = self.blocks.entry(number).or_insert_with(zeros);
            Arc::make_mut(block)[within].copy_from_slice(piece);
        }
    }

    pub(super) fn zero(&mut self, range: Range<u64>) {
        let whole = range.start.div_ceil(BLOCK_BYTES)..(range.end / BLOCK_BYTES);
        if whole.start < whole.end {
            let mut behind = self.blocks.split_off(&whole.start);
            self.blocks.append(&mut behind.split_off(&whole.end));
        }
        for (number, within) in pieces(range) {
            if whole.contains(&number) {
                continue;
            }
            if let Some(block) = self.blocks.get_mut(&number) {
                Arc::make_mut(block)[within].fill(0);
            }
        }
    }

    /// Bytes of memory that blocks take, those shared with other copies included.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }
}
