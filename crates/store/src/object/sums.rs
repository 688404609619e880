//! Arithmetic on block checksums: what a change of some bytes does to the checksum of their block.
//!
//! CRC-32C is linear once the effect of its initial value is taken out, which is what XORing with the checksum of the
//! zero block does. With `s(x)` the stored form of a block `x`: `s(x ^ y) = s(x) ^ s(y)`, and `s(0) = 0`. A write of
//! some bytes of a block therefore changes its entry by a term that depends on the old and the new bytes of that range
//! alone. The rest of the block is not read, and if it has rotted, the entry goes on saying so.

use vazao_model::checksum::crc32c;
use vazao_model::limits::BLOCK_BYTES;
pub(crate) use vazao_model::sidecar::stored;

/// The polynomial of CRC-32C, reflected (RFC 3720).
const POLYNOMIAL: u32 = 0x82F6_3B78;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Product of two polynomials modulo CRC-32C's; bit 31 is the coefficient of x^0.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        bit >>= 1;
        b = if b & 1 != 0 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// x^(8 * 2^k): what one, two, four … zero bytes multiply a checksum by.
const POWERS: [u32; 17] = {
    let mut powers = [0; 17];
    let mut power = 1 << 23; // x^8
    let mut k = 0;
    while k < powers.len() {
        powers[k] = power;
        power = multiply(power, power);
        k += 1;
    }
    powers
};

/// Moves `term` before `zeros` zero bytes (at most a block of them).
fn shift(mut term: u32, zeros: usize) -> u32 {
    for (k, power) in POWERS.iter().enumerate() {
        if zeros >> k & 1 != 0 {
            term = multiply(*power, term);
        }
    }
    term
}

/// Stored form of a block that is zero but for the `length` bytes at `start`, whose checksum is `checksum`.
pub(crate) fn placed(checksum: u32, start: usize, length: usize) -> u32 {
    replaced(zeros(length), checksum, start, length)
}

/// By what a block's entry changes when the `length` bytes at `start` go from checksum `old` to checksum `new`.
pub(crate) fn replaced(old: u32, new: u32, start: usize, length: usize) -> u32 {
    shift(old ^ new, BLOCK_BYTES.saturating_sub(start + length))
}

/// Checksum of `length` zero bytes, at most a block.
pub(crate) fn zeros(length: usize) -> u32 {
    crc32c(ZEROS.get(..length).unwrap_or(&ZEROS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vazao_model::checksum::block_checksum;

    proptest! {
        #[test]
        fn a_replaced_range_changes_the_entry_as_a_fresh_computation_does(
            mut block in proptest::collection::vec(any::<u8>(), 0..BLOCK_BYTES + 1),
            piece in proptest::collection::vec(any::<u8>(), 1..5000),
            at in any::<prop::sample::Index>(),
        ) {
            let before = stored(block_checksum(&block));
            block.resize(BLOCK_BYTES, 0);
            let start = at.index(BLOCK_BYTES - piece.len() + 1);
            let old = crc32c(&block[start..start + piece.len()]);
            block[start..start + piece.len()].copy_from_slice(&piece);
            let change = replaced(old, crc32c(&piece), start, piece.len());
            prop_assert_eq!(before ^ change, stored(crc32c(&block)));
        }

        #[test]
        fn a_piece_in_an_empty_block_needs_no_block(
            piece in proptest::collection::vec(any::<u8>(), 0..5000), at in any::<prop::sample::Index>(),
        ) {
            let start = at.index(BLOCK_BYTES - piece.len() + 1);
            let mut block = vec![0; start];
            block.extend_from_slice(&piece);
            prop_assert_eq!(placed(crc32c(&piece), start, piece.len()), stored(block_checksum(&block)));
        }
    }
}
