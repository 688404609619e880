//! File contents that can be checked at any offset: random bytes from a seed, with a stamp each 512 bytes that no other
//! offset or file has, so that a flipped byte, a lost write and a block at a wrong place are all found.
//!
//! Producing them costs a timed run next to nothing: the random bytes repeat each MiB and lie ready in a buffer, only
//! the stamps are written for each block. They do not compress within a MiB; a system that finds repetitions over
//! larger distances would be measured wrongly, and none of the compared ones does.

use crate::Error;
use crate::report::size::MIB;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// After so many bytes the random part repeats.
const PERIOD_BYTES: usize = 1 << 20;

/// Distance of the stamps: a disk's sector, the smallest piece that gets lost or misplaced as a whole.
const STAMP_DISTANCE_BYTES: usize = 512;

const STAMP_BYTES: usize = 8;

/// SplitMix64's mixing function (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream's number from a seed and what tells it apart from the seed's other streams.
pub fn stream(seed: u64, parts: &[u64]) -> u64 {
    parts.iter().fold(mix(seed), |state, &part| mix(state ^ mix(part)))
}

/// Where bytes differ from what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {offset} is {found:#04x} and was written as {written:#04x}")]
pub struct Difference {
    /// Offset in the stream of the first differing byte.
    pub offset: u64,
    /// What was read.
    pub found: u8,
    /// What was written.
    pub written: u8,
}

/// Produces and checks the bytes of one stream, in windows of a bounded length. One a thread.
#[derive(Debug)]
pub struct Generator {
    stream: u64,
    window_bytes_max: usize,
    buffer: Vec<u8>,
}

impl Generator {
    /// A generator of `stream` for windows of at most `window_bytes_max`.
    pub fn new(stream: u64, window_bytes_max: usize) -> Generator {
        let length =
            PERIOD_BYTES + window_bytes_max.next_multiple_of(STAMP_DISTANCE_BYTES) + STAMP_DISTANCE_BYTES;
        let mut buffer = vec![0; length];
        let mut state = mix(stream);
        for word in buffer[..PERIOD_BYTES].as_chunks_mut::<8>().0 {
            state = state.wrapping_add(1);
            *word = mix(state).to_le_bytes();
        }
        let mut filled = PERIOD_BYTES;
        while filled < length {
            let piece = (length - filled).min(PERIOD_BYTES);
            buffer.copy_within(..piece, filled);
            filled += piece;
        }
        Generator { stream, window_bytes_max, buffer }
    }

    /// The `length` bytes at `offset`. Panics when `length` is over the maximum given to [`Generator::new`].
    pub fn window(&mut self, offset: u64, length: usize) -> &[u8] {
        assert!(length <= self.window_bytes_max, "window of {length} bytes over its maximum");
        let start = (offset % PERIOD_BYTES as u64) as usize;
        let lead = start % STAMP_DISTANCE_BYTES;
        let first = (offset - lead as u64) / STAMP_DISTANCE_BYTES as u64;
        let stamped = self.buffer[start - lead..start + length].chunks_mut(STAMP_DISTANCE_BYTES);
        for (number, sector) in (first..).zip(stamped) {
            let stamp = mix(self.stream ^ number).to_le_bytes();
            let kept = sector.len().min(STAMP_BYTES);
            sector[..kept].copy_from_slice(&stamp[..kept]);
        }
        &self.buffer[start..start + length]
    }

    /// Compares `bytes`, read at `offset`, with the stream.
    pub fn check(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Difference> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let length = rest.len().min(self.window_bytes_max);
            let (piece, after) = rest.split_at(length);
            let expected = self.window(at, length);
            if let Some(index) = (expected != piece).then(|| first_difference(expected, piece)).flatten() {
                let (found, written) = (piece[index], expected[index]);
                return Err(Difference { offset: at + index as u64, found, written });
            }
            (at, rest) = (at + length as u64, after);
        }
        Ok(())
    }
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    left.iter().zip(right).position(|(l, r)| l != r)
}

/// Makes a file of so many bytes of a stream, on the disk when this returns.
pub(crate) fn write_file(path: &Path, stream: u64, bytes: u64) -> Result<(), Error> {
    let failed = || Error::at(path.display());
    let mut file = File::create(path).map_err(failed())?;
    let mut generator = Generator::new(stream, MIB as usize);
    for offset in (0..bytes).step_by(MIB as usize) {
        let length = MIB.min(bytes - offset) as usize;
        file.write_all(generator.window(offset, length)).map_err(failed())?;
    }
    file.sync_all().map_err(failed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_come_whatever_the_windows() {
        let length = 3 * PERIOD_BYTES + 777;
        let mut whole = Vec::new();
        let mut generator = Generator::new(7, 64 * 1024);
        while whole.len() < length {
            let piece = (length - whole.len()).min(64 * 1024);
            whole.extend_from_slice(generator.window(whole.len() as u64, piece));
        }
        let mut other = Generator::new(7, 5000);
        let mut at = 0;
        for step in [1usize, 7, 511, 512, 513, 4999, 5000].iter().cycle() {
            let piece = (*step).min(length - at);
            assert_eq!(other.window(at as u64, piece), &whole[at..at + piece], "at {at}");
            at += piece;
            if at == length {
                break;
            }
        }
    }

    #[test]
    fn a_flipped_byte_is_found_wherever_it_is() {
        let mut generator = Generator::new(1, 4096);
        let good = generator.window(8192, 4096).to_vec();
        assert_eq!(generator.check(8192, &good), Ok(()));
        for index in [0, 1, 511, 512, 4095] {
            let mut bad = good.clone();
            bad[index] ^= 0x10;
            let difference = generator.check(8192, &bad).expect_err("a byte differs");
            assert_eq!(difference.offset, 8192 + index as u64);
            assert_eq!(difference.found ^ difference.written, 0x10);
        }
    }

    #[test]
    fn a_block_from_elsewhere_is_found_even_a_whole_period_away() {
        let mut generator = Generator::new(1, 4096);
        let elsewhere = generator.window(PERIOD_BYTES as u64, 4096).to_vec();
        assert!(generator.check(0, &elsewhere).is_err());
        let other_stream = Generator::new(2, 4096).window(0, 4096).to_vec();
        assert!(generator.check(0, &other_stream).is_err());
    }

    #[test]
    fn every_sector_of_a_stream_is_unlike_the_others() {
        let mut generator = Generator::new(3, 1 << 20);
        let mut sectors = std::collections::HashSet::new();
        for mebibyte in 0..4u64 {
            for sector in generator.window(mebibyte << 20, 1 << 20).chunks(STAMP_DISTANCE_BYTES) {
                assert!(sectors.insert(sector[..STAMP_BYTES].to_vec()), "a stamp repeats");
            }
        }
    }

    #[test]
    fn more_than_a_window_is_checked_in_pieces() {
        let whole = Generator::new(4, 10_000).window(123, 10_000).to_vec();
        let mut generator = Generator::new(4, 512);
        assert_eq!(generator.check(123, &whole), Ok(()));
        let mut bad = whole;
        bad[9_999] ^= 1;
        assert_eq!(generator.check(123, &bad).map_err(|d| d.offset), Err(123 + 9_999));
    }

    #[test]
    fn streams_of_one_seed_differ_in_every_part() {
        let all =
            [stream(1, &[0, 0]), stream(1, &[0, 1]), stream(1, &[1, 0]), stream(2, &[0, 0]), stream(1, &[0])];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
