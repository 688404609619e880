//! Bytes that tell which write they are of, and where in the file they belong.

/// The byte that the write `stamp` puts at `position`. Never zero, which is what holes read as.
fn byte(stamp: u64, position: u64) -> u8 {
    let mut x =
        stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (position / 8).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 32)).to_le_bytes()[(position % 8) as usize] | 1
}

/// What the write `stamp` puts at `offset`.
pub(crate) fn bytes(stamp: u64, offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length).map(|position| byte(stamp, position)).collect()
}

/// Whether the write `stamp` puts this there.
pub(crate) fn is_of(stamp: u64, position: u64, found: u8) -> bool {
    byte(stamp, position) == found
}
