//! The header of a sidecar: which chunk it belongs to, and when each region of the chunk was last written to.
//! Specified in docs/on-disk.md; entries follow the header, four bytes a block.

use vazao_disk::DiskFile;
use vazao_model::checksum::crc32c;
use vazao_model::{GroupId, InodeId, ObjectId};

use vazao_model::sidecar::HEADER_BYTES;
pub(crate) use vazao_model::sidecar::{ENTRY_BYTES, entry_at};

/// Regions of a chunk, each with its own mark.
pub(crate) const REGIONS: usize = 16;

const MAGIC: [u8; 8] = *b"VZSUMS\0\x01";
const IDENTITY_BYTES: usize = 40;
const MARKS_AT: usize = 64;

/// For each region the epoch it was last made dirty in.
pub(crate) type Marks = [u32; REGIONS];

/// What the first bytes of a sidecar say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// The object.
    pub(crate) object: ObjectId,
    /// Which of its chunks.
    pub(crate) chunk: u64,
    /// In chunk 0: no chunk beyond this one exists. 0 in the others.
    pub(crate) last_chunk: u64,
    /// Epochs.
    pub(crate) marks: Marks,
}

/// A header as found on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// As it was written.
    Valid(Header),
    /// Never written: all zeros, or the file ends before.
    Absent,
    /// Something else.
    Damaged,
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Header {
    /// The bytes of the header.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.object.inode.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.object.generation.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.object.slot.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.last_chunk.to_le_bytes());
        let sum = crc32c(&bytes[..IDENTITY_BYTES]);
        bytes[IDENTITY_BYTES..IDENTITY_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
        for (region, mark) in self.marks.iter().enumerate() {
            let at = MARKS_AT + region * 4;
            bytes[at..at + 4].copy_from_slice(&mark.to_le_bytes());
        }
        bytes
    }

    /// What `bytes` say.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Found {
        if bytes.iter().all(|&b| b == 0) {
            return Found::Absent;
        }
        let sum = crc32c(&bytes[..IDENTITY_BYTES]);
        if bytes[..8] != MAGIC || u32_at(bytes, IDENTITY_BYTES) != sum {
            return Found::Damaged;
        }
        let mut marks = [0; REGIONS];
        for (region, mark) in marks.iter_mut().enumerate() {
            *mark = u32_at(bytes, MARKS_AT + region * 4);
        }
        Found::Valid(Header {
            object: ObjectId {
                inode: InodeId(u64_at(bytes, 8)),
                generation: u32_at(bytes, 16),
                slot: u32_at(bytes, 20),
                group: GroupId(0),
            },
            chunk: u64_at(bytes, 24),
            last_chunk: u64_at(bytes, 32),
            marks,
        })
    }

    /// True for the header of this chunk. A sidecar does not say which placement group its object is of.
    pub(crate) fn is_of(&self, object: ObjectId, chunk: u64) -> bool {
        ObjectId { group: object.group, ..self.object } == object && self.chunk == chunk
    }

    /// Reads the header of a sidecar.
    pub(crate) fn read(file: &dyn DiskFile) -> std::io::Result<Found> {
        let mut bytes = [0; HEADER_BYTES];
        let length = file.read_at(&mut bytes, 0)?;
        Ok(if length < HEADER_BYTES { Found::Absent } else { Header::decode(&bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_is_decoded_back_and_its_identity_is_guarded(
            inode: u64, generation: u32, slot: u32, chunk: u64, last_chunk: u64, marks: Marks,
            at in 0usize..44, bit in 0u8..8,
        ) {
            let object = ObjectId { inode: InodeId(inode), generation, slot, group: GroupId(0) };
            let header = Header { object, chunk, last_chunk, marks };
            let mut bytes = header.encode();
            prop_assert_eq!(Header::decode(&bytes), Found::Valid(header));
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(Header::decode(&bytes), Found::Damaged);
        }
    }
}
