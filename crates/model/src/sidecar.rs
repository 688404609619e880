//! Where the checksum of a block is in the sidecar of its chunk, and in which form: what a data server and a client
//! that reads objects itself have to agree on. Specified in docs/on-disk.md.

use crate::checksum::{ZERO_BLOCK, block_checksum};

/// Where the entries start.
pub const HEADER_BYTES: usize = 128;

/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 4;

/// Where the entry of block number `block` of a chunk is.
pub fn entry_at(block: u64) -> u64 {
    HEADER_BYTES as u64 + block * ENTRY_BYTES
}

/// The stored form of a whole block's checksum, and the checksum of a stored form.
pub fn stored(checksum: u32) -> u32 {
    checksum ^ ZERO_BLOCK
}

/// The entry that a block has when it begins with `bytes` and the rest of it is zeros.
pub fn entry_of(bytes: &[u8]) -> u32 {
    stored(block_checksum(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BLOCK_BYTES;

    #[test]
    fn an_entry_of_zero_stands_for_a_block_of_zeros_however_much_of_it_there_is() {
        let zeros = [0; BLOCK_BYTES];
        for length in [0, 1, 4096, BLOCK_BYTES] {
            assert_eq!(entry_of(&zeros[..length]), 0);
        }
        assert_ne!(entry_of(b"x"), 0);
    }
}
