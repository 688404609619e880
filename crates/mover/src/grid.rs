//! A file cut into blocks: what has arrived, what is on its way, what is to be sent next.

use std::collections::VecDeque;
use vazao_model::checksum::{ZERO_BLOCK, combine, crc32c};
use vazao_model::limits::BLOCK_BYTES;

/// Blocks of files up to [`SMALL_BYTES_MAX`].
const BLOCK_BYTES_MIN: u64 = 1 << 20;

/// Blocks of larger ones: two of them on their way fill the socket buffers that Linux grows by itself.
const BLOCK_BYTES_LARGE: u64 = 4 << 20;

/// From here on blocks are large.
const SMALL_BYTES_MAX: u64 = 64 << 20;

/// Blocks of one file: their bits and checksums fit into one attachment, and memory stays bounded for any file.
const BLOCKS_MAX: u64 = 512 * 1024;

/// Largest block: the smallest power that cuts the largest file into [`BLOCKS_MAX`].
const BLOCK_BYTES_MAX: u64 = 1 << 44;

/// How a file of a size is cut. Both ends have to agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of each block but the last.
    pub block_bytes: u64,
}

impl Grid {
    /// The grid for a file of `size` bytes.
    pub fn of(size: u64) -> Grid {
        let mut block_bytes = if size <= SMALL_BYTES_MAX { BLOCK_BYTES_MIN } else { BLOCK_BYTES_LARGE };
        while size.div_ceil(block_bytes) > BLOCKS_MAX {
            block_bytes *= 2;
        }
        Grid { size, block_bytes }
    }

    /// A grid that a peer chose; `None` where it is none that may be.
    pub fn checked(size: u64, block_bytes: u64) -> Option<Grid> {
        let is_fit =
            block_bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes);
        let grid = Grid { size, block_bytes };
        (is_fit && size <= vazao_model::limits::FILE_BYTES_MAX && grid.blocks_u64() <= BLOCKS_MAX)
            .then_some(grid)
    }

    fn blocks_u64(&self) -> u64 {
        self.size.div_ceil(self.block_bytes)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        // At most BLOCKS_MAX.
        self.blocks_u64() as usize
    }

    /// Where a block begins.
    pub fn start(&self, block: usize) -> u64 {
        block as u64 * self.block_bytes
    }

    /// Bytes of a block.
    pub fn length(&self, block: usize) -> u64 {
        self.block_bytes.min(self.size.saturating_sub(self.start(block)))
    }

    /// The block that has the byte at `offset`.
    pub fn block_of(&self, offset: u64) -> usize {
        (offset / self.block_bytes) as usize
    }
}

/// A set of blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockSet {
    words: Vec<u64>,
    count: usize,
}

impl BlockSet {
    /// An empty set for numbers below `blocks`.
    pub(crate) fn new(blocks: usize) -> BlockSet {
        BlockSet { words: vec![0; blocks.div_ceil(64)], count: 0 }
    }

    /// Whether it has this one.
    pub(crate) fn has(&self, block: usize) -> bool {
        self.words.get(block / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Puts one in; false when it was there or does not fit.
    pub(crate) fn insert(&mut self, block: usize) -> bool {
        let Some(word) = self.words.get_mut(block / 64) else { return false };
        let is_new = *word >> (block % 64) & 1 == 0;
        *word |= 1 << (block % 64);
        self.count += usize::from(is_new);
        is_new
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// True when there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its bits, eight to a byte, the lowest first.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A set of numbers below `blocks` from its bits.
    pub(crate) fn from_bytes(bytes: &[u8], blocks: usize) -> BlockSet {
        let mut set = BlockSet::new(blocks);
        for block in 0..blocks {
            if bytes.get(block / 8).is_some_and(|byte| byte >> (block % 8) & 1 == 1) {
                set.insert(block);
            }
        }
        set
    }
}

/// CRC-32C of `length` zeros.
pub(crate) fn zero_checksum(length: u64) -> u32 {
    static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let (mut unit, mut unit_bytes) = (ZERO_BLOCK, BLOCK_BYTES as u64);
    let tail = (length % unit_bytes) as usize;
    let mut sum = crc32c(&ZEROS[..tail]);
    let mut units = length / unit_bytes;
    while units > 0 {
        if units & 1 == 1 {
            sum = combine(sum, unit, unit_bytes);
        }
        units >>= 1;
        if units > 0 {
            unit = combine(unit, unit, unit_bytes);
            unit_bytes *= 2;
        }
    }
    sum
}

/// The checksum over a whole file: CRC-32C over the checksums of its blocks in order.
pub(crate) fn whole_checksum(blocks: &[u32]) -> u32 {
    let bytes: Vec<u8> = blocks.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    crc32c(&bytes)
}

/// The blocks of one copy from the sender's point of view.
#[derive(Debug)]
pub(crate) struct Work {
    grid: Grid,
    /// Confirmed by the receiver.
    finished: BlockSet,
    checksums: Vec<u32>,
    /// The next block that has not been given out yet.
    next: usize,
    /// Given out and given back.
    returned: VecDeque<usize>,
    finished_bytes: u64,
}

impl Work {
    /// All blocks but those that are `finished`, whose checksums are in `checksums`.
    pub(crate) fn new(grid: Grid, finished: BlockSet, checksums: Vec<u32>) -> Work {
        let bytes = |block| if finished.has(block) { grid.length(block) } else { 0 };
        let finished_bytes = (0..grid.blocks()).map(bytes).sum();
        Work { grid, finished, checksums, next: 0, returned: VecDeque::new(), finished_bytes }
    }

    /// A block to be sent; `None` when all are under way or finished.
    pub(crate) fn take(&mut self) -> Option<usize> {
        if let Some(block) = self.returned.pop_front() {
            return Some(block);
        }
        while self.next < self.grid.blocks() {
            self.next += 1;
            if !self.finished.has(self.next - 1) {
                return Some(self.next - 1);
            }
        }
        None
    }

    /// A block whose sender gave up.
    pub(crate) fn give_back(&mut self, block: usize) {
        if !self.finished.has(block) {
            self.returned.push_back(block);
        }
    }

    /// A block is at the receiver.
    pub(crate) fn finish(&mut self, block: usize, checksum: u32) {
        if !self.finished.insert(block) {
            return;
        }
        if let Some(place) = self.checksums.get_mut(block) {
            *place = checksum;
        }
        self.finished_bytes += self.grid.length(block);
    }

    /// Bytes at the receiver.
    pub(crate) fn finished_bytes(&self) -> u64 {
        self.finished_bytes
    }

    /// True when all blocks are at the receiver.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.len() == self.grid.blocks()
    }

    /// The checksum of a block at the receiver.
    pub(crate) fn checksum_of(&self, block: usize) -> u32 {
        self.checksums.get(block).copied().unwrap_or(0)
    }

    /// The checksum over all blocks.
    pub(crate) fn checksum(&self) -> u32 {
        whole_checksum(&self.checksums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_size_is_cut_into_a_bounded_number_of_blocks() {
        for size in [0, 1, 1 << 20, (64 << 20) + 1, 5 << 30, 3 << 40, vazao_model::limits::FILE_BYTES_MAX] {
            let grid = Grid::of(size);
            assert_eq!(Grid::checked(size, grid.block_bytes), Some(grid), "{size}");
            let last = grid.blocks().saturating_sub(1);
            assert_eq!(grid.start(last) + grid.length(last), size);
        }
        assert_eq!(Grid::checked(1 << 40, 1 << 20), None);
        assert_eq!(Grid::checked(1, 3 << 20), None);
    }

    proptest! {
        #[test]
        fn zeros_have_the_checksum_of_zeros(length in 0usize..300_000) {
            prop_assert_eq!(zero_checksum(length as u64), crc32c(&vec![0; length]));
        }

        #[test]
        fn each_block_is_given_out_once_and_again_only_when_given_back(
            size in 0u64..40 << 20, done in proptest::collection::vec(0usize..40, 0..20), every in 2usize..7,
        ) {
            let grid = Grid::of(size);
            let mut finished = BlockSet::new(grid.blocks());
            done.iter().filter(|&&block| block < grid.blocks()).for_each(|&block| { finished.insert(block); });
            prop_assert_eq!(&BlockSet::from_bytes(&finished.to_bytes(), grid.blocks()), &finished);
            let mut work = Work::new(grid, finished.clone(), vec![0; grid.blocks()]);
            let (mut given, mut turns) = (finished, 0);
            while let Some(block) = work.take() {
                turns += 1;
                if turns % every == 0 {
                    work.give_back(block);
                } else {
                    prop_assert!(given.insert(block), "block {} twice", block);
                    work.finish(block, 1);
                }
            }
            prop_assert!(work.is_finished());
            prop_assert_eq!(work.finished_bytes(), size);
        }
    }
}
