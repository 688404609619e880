//! Distributions: pure functions between a file's bytes and its objects' bytes.
//!
//! Each maps every file offset to exactly one (slot, object offset) and back. A new distribution is a variant here,
//! a number in [`Distribution::number`], and a row in the bijection tests.

use crate::layout::{LayoutError, check_stripe_unit};

/// How bytes spread over slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Round robin: `unit_bytes` to each slot in turn, packed without gaps inside each object (PVFS's `simple_stripe`).
    SimpleStripe {
        /// Bytes that go to one slot before the next one's turn.
        unit_bytes: u64,
    },
}

/// A run of bytes that is contiguous both in the file and in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Slot of the layout.
    pub slot: u32,
    /// Where the run starts in the object.
    pub object_offset: u64,
    /// Where the run starts in the file.
    pub file_offset: u64,
    /// Its length.
    pub length: u64,
}

impl Distribution {
    /// The number of this distribution on the wire and on disk.
    pub fn number(&self) -> u32 {
        match self {
            Distribution::SimpleStripe { .. } => 1,
        }
    }

    /// The stripe unit.
    pub fn unit_bytes(&self) -> u64 {
        match self {
            Distribution::SimpleStripe { unit_bytes } => *unit_bytes,
        }
    }

    /// The distribution with this number and unit.
    pub fn from_number(number: u32, unit_bytes: u64) -> Result<Distribution, LayoutError> {
        match number {
            1 => Ok(Distribution::SimpleStripe { unit_bytes }),
            other => Err(LayoutError::Distribution(other)),
        }
    }

    /// Refuses parameters that the other functions could not work with.
    pub fn check(&self) -> Result<(), LayoutError> {
        check_stripe_unit(self.unit_bytes())
    }

    /// The slot and object offset of the file's byte `offset`, over `width` slots.
    pub fn locate(&self, offset: u64, width: u32) -> (u32, u64) {
        let Distribution::SimpleStripe { unit_bytes } = *self;
        let unit = offset / unit_bytes;
        let slot = (unit % u64::from(width)) as u32;
        (slot, unit / u64::from(width) * unit_bytes + offset % unit_bytes)
    }

    /// The file offset of byte `object_offset` of slot `slot`; the inverse of [`Distribution::locate`].
    /// `None` where no file offset of 64 bits maps there.
    pub fn file_offset(&self, slot: u32, object_offset: u64, width: u32) -> Option<u64> {
        let Distribution::SimpleStripe { unit_bytes } = *self;
        let unit =
            (object_offset / unit_bytes).checked_mul(u64::from(width))?.checked_add(u64::from(slot))?;
        unit.checked_mul(unit_bytes)?.checked_add(object_offset % unit_bytes)
    }

    /// The pieces of the file range `[offset, offset + length)` in file order.
    /// With one slot, neighbouring units join into one piece.
    pub fn pieces(&self, offset: u64, length: u64, width: u32) -> Pieces {
        let end = offset.saturating_add(length);
        Pieces { distribution: *self, width, position: offset, end }
    }

    /// Length that slot `slot`'s object has when the file is `size` bytes long and has no holes.
    pub fn object_length(&self, slot: u32, size: u64, width: u32) -> u64 {
        let Distribution::SimpleStripe { unit_bytes } = *self;
        let stripe = unit_bytes.saturating_mul(u64::from(width));
        let rest = size % stripe;
        let in_last = rest.saturating_sub(u64::from(slot) * unit_bytes).min(unit_bytes);
        size / stripe * unit_bytes + in_last
    }
}

/// Iterator over [`Distribution::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    distribution: Distribution,
    width: u32,
    position: u64,
    end: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.position >= self.end {
            return None;
        }
        let (slot, object_offset) = self.distribution.locate(self.position, self.width);
        let unit_bytes = self.distribution.unit_bytes();
        let left = self.end - self.position;
        let length = if self.width == 1 { left } else { left.min(unit_bytes - self.position % unit_bytes) };
        let piece = Piece { slot, object_offset, file_offset: self.position, length };
        self.position += length;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = 64 * 1024;

    fn any_stripe() -> impl Strategy<Value = (Distribution, u32)> {
        (1u64..40, 1u32..64)
            .prop_map(|(blocks, width)| (Distribution::SimpleStripe { unit_bytes: blocks * BLOCK }, width))
    }

    proptest! {
        #[test]
        fn every_offset_maps_to_one_place_and_back((d, width) in any_stripe(), offset in 0..u64::MAX / 2) {
            let (slot, object_offset) = d.locate(offset, width);
            prop_assert!(slot < width);
            prop_assert_eq!(d.file_offset(slot, object_offset, width), Some(offset));
        }

        #[test]
        fn every_place_maps_to_one_offset_and_back(
            (d, width) in any_stripe(), slot in 0u32..64, object_offset in 0..u64::MAX / 128,
        ) {
            let slot = slot % width;
            if let Some(offset) = d.file_offset(slot, object_offset, width) {
                prop_assert_eq!(d.locate(offset, width), (slot, object_offset));
            }
        }

        #[test]
        fn pieces_cover_the_range_without_gap_or_overlap(
            (d, width) in any_stripe(), offset in 0u64..1 << 40, length in 0u64..1 << 26,
        ) {
            let mut position = offset;
            for piece in d.pieces(offset, length, width) {
                prop_assert_eq!(piece.file_offset, position);
                prop_assert!(piece.length > 0);
                prop_assert_eq!(d.locate(position, width), (piece.slot, piece.object_offset));
                let last = piece.length - 1;
                prop_assert_eq!(d.locate(position + last, width), (piece.slot, piece.object_offset + last));
                position += piece.length;
            }
            prop_assert_eq!(position, offset + length);
        }

        #[test]
        fn object_lengths_are_where_the_last_bytes_lie((d, width) in any_stripe(), size in 0u64..1 << 28) {
            let mut ends = vec![0u64; width as usize];
            for piece in d.pieces(0, size, width) {
                ends[piece.slot as usize] = piece.object_offset + piece.length;
            }
            for slot in 0..width {
                prop_assert_eq!(d.object_length(slot, size, width), ends[slot as usize]);
            }
        }
    }
}
