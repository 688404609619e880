//! CRC-32C of data blocks (RFC 3720, the iSCSI polynomial).
//!
//! A *block* is [`BLOCK_BYTES`] of an object at a multiple of that size. Its checksum covers all 64 KiB, with zeros
//! where the object ends earlier, so that growing an object changes no checksum. On disk an entry is stored XORed with
//! the checksum of an all-zero block: a hole in the file that keeps the entries then stands for a hole in the data.
//!
//! A *piece* is the part of one block that a request covers; on the wire each piece has the checksum of its own bytes.

use crate::limits::BLOCK_BYTES;
use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

/// CRC-32C of two runs of bytes one after the other, from the checksum of each and the length of the second.
pub fn combine(first: u32, second: u32, second_length: u64) -> u32 {
    crc_fast::checksum_combine(Crc32Iscsi, u64::from(first), u64::from(second), second_length) as u32
}

/// CRC-32C of an all-zero block. A test recomputes it.
pub const ZERO_BLOCK: u32 = 0x72C0_C4A4;

/// Checksum of a block of which only the first bytes are given and the rest is zeros.
pub fn block_checksum(bytes: &[u8]) -> u32 {
    debug_assert!(bytes.len() <= BLOCK_BYTES);
    let head = crc32c(bytes);
    if bytes.len() == BLOCK_BYTES {
        return head;
    }
    static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let rest = BLOCK_BYTES - bytes.len();
    combine(head, crc32c(&ZEROS[..rest]), rest as u64)
}

/// The lengths of the pieces that `length` bytes at `offset` are cut into by block boundaries.
pub fn piece_lengths(offset: u64, length: usize) -> impl Iterator<Item = usize> {
    let mut position = (offset % BLOCK_BYTES as u64) as usize;
    let mut left = length;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let piece = left.min(BLOCK_BYTES - position);
        position = 0;
        left -= piece;
        Some(piece)
    })
}

/// Number of pieces of `length` bytes at `offset`.
pub fn piece_count(offset: u64, length: usize) -> usize {
    if length == 0 {
        return 0;
    }
    ((offset % BLOCK_BYTES as u64) as usize + length).div_ceil(BLOCK_BYTES)
}

/// Checksums of the pieces of `bytes` when they lie at `offset`.
pub fn piece_checksums(offset: u64, bytes: &[u8]) -> Vec<u32> {
    let mut rest = bytes;
    piece_lengths(offset, bytes.len())
        .map(|length| {
            let (piece, after) = rest.split_at(length);
            rest = after;
            crc32c(piece)
        })
        .collect()
}

/// Index of the first piece whose checksum is not the given one, or `None` when all match and their number is right.
pub fn first_mismatch(offset: u64, bytes: &[u8], checksums: &[u32]) -> Option<usize> {
    if checksums.len() != piece_count(offset, bytes.len()) {
        return Some(checksums.len().min(piece_count(offset, bytes.len())));
    }
    let mut rest = bytes;
    for (index, length) in piece_lengths(offset, bytes.len()).enumerate() {
        let (piece, after) = rest.split_at(length);
        rest = after;
        if crc32c(piece) != checksums[index] {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_of_the_rfc_is_computed() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn the_zero_block_constant_is_right() {
        assert_eq!(crc32c(&[0; BLOCK_BYTES]), ZERO_BLOCK);
    }

    proptest! {
        #[test]
        fn a_short_block_counts_as_padded_with_zeros(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            let mut padded = bytes.clone();
            padded.resize(BLOCK_BYTES, 0);
            prop_assert_eq!(block_checksum(&bytes), crc32c(&padded));
        }

        #[test]
        fn pieces_are_cut_at_block_boundaries(offset in 0u64..1 << 20, length in 0usize..1 << 20) {
            let lengths: Vec<usize> = piece_lengths(offset, length).collect();
            prop_assert_eq!(lengths.len(), piece_count(offset, length));
            prop_assert_eq!(lengths.iter().sum::<usize>(), length);
            let mut position = offset;
            for piece in lengths {
                prop_assert_eq!(position / BLOCK_BYTES as u64, (position + piece as u64 - 1) / BLOCK_BYTES as u64);
                position += piece as u64;
            }
        }

        #[test]
        fn a_flipped_bit_is_found_in_its_piece(
            offset in 0u64..1 << 18,
            mut bytes in proptest::collection::vec(any::<u8>(), 1..200_000),
            at in any::<prop::sample::Index>(),
        ) {
            let checksums = piece_checksums(offset, &bytes);
            prop_assert_eq!(first_mismatch(offset, &bytes, &checksums), None);
            let at = at.index(bytes.len());
            bytes[at] ^= 1;
            let piece = ((offset % BLOCK_BYTES as u64) as usize + at) / BLOCK_BYTES;
            prop_assert_eq!(first_mismatch(offset, &bytes, &checksums), Some(piece));
        }
    }
}
