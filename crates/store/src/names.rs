//! Where the files of an object are: names and hashed directories. Specified in docs/on-disk.md.

use vazao_model::checksum::crc32c;
use vazao_model::{InodeId, ObjectId};

/// The directory above all objects.
pub(crate) const OBJECTS: &str = "objects";

/// Directories at each of the two levels.
pub(crate) const FAN_OUT: u16 = 64;

/// Number of leaf directories.
pub(crate) const BUCKETS: u16 = FAN_OUT * FAN_OUT;

/// A leaf directory, numbered from 0 in the order that listings go through them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Bucket(pub(crate) u16);

impl Bucket {
    /// The low 12 bits of the CRC-32C of inode, generation and slot, little-endian one after the other.
    pub(crate) fn of(object: ObjectId) -> Bucket {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&object.inode.0.to_le_bytes());
        key[8..12].copy_from_slice(&object.generation.to_le_bytes());
        key[12..].copy_from_slice(&object.slot.to_le_bytes());
        Bucket((crc32c(&key) % u32::from(BUCKETS)) as u16)
    }

    /// Path of the directory of the first level.
    pub(crate) fn upper(self) -> String {
        format!("{OBJECTS}/{:02x}", self.0 / FAN_OUT)
    }

    /// Path of the directory itself.
    pub(crate) fn path(self) -> String {
        format!("{OBJECTS}/{:02x}/{:02x}", self.0 / FAN_OUT, self.0 % FAN_OUT)
    }
}

/// Which of a chunk's two files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The bytes.
    Data,
    /// The sidecar.
    Sums,
}

impl Part {
    fn suffix(self) -> &'static str {
        match self {
            Part::Data => "data",
            Part::Sums => "sums",
        }
    }
}

/// Path of a file of a chunk.
pub(crate) fn path(object: ObjectId, chunk: u64, part: Part) -> String {
    let ObjectId { inode, generation, slot } = object;
    let directory = Bucket::of(object).path();
    format!("{directory}/{:016x}.{generation:08x}.{slot:02x}.{chunk:x}.{}", inode.0, part.suffix())
}

/// The inverse of [`path`] for the last component; `None` for a name that is none of ours.
pub(crate) fn parse(name: &str) -> Option<(ObjectId, u64, Part)> {
    let mut fields = name.split('.');
    let inode = u64::from_str_radix(fields.next()?, 16).ok()?;
    let generation = u32::from_str_radix(fields.next()?, 16).ok()?;
    let slot = u32::from_str_radix(fields.next()?, 16).ok()?;
    let chunk = u64::from_str_radix(fields.next()?, 16).ok()?;
    let part = match fields.next()? {
        "data" => Part::Data,
        "sums" => Part::Sums,
        _ => return None,
    };
    let object = ObjectId { inode: InodeId(inode), generation, slot };
    (fields.next().is_none() && path(object, chunk, part).ends_with(name)).then_some((object, chunk, part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_format_document_is_right() {
        let object = ObjectId { inode: InodeId(1234), generation: 1, slot: 3 };
        assert_eq!(path(object, 0, Part::Data), EXAMPLE_DATA);
        assert_eq!(path(object, 26, Part::Sums), EXAMPLE_SUMS);
    }

    const EXAMPLE_DATA: &str = "objects/3a/37/00000000000004d2.00000001.03.0.data";
    const EXAMPLE_SUMS: &str = "objects/3a/37/00000000000004d2.00000001.03.1a.sums";

    #[test]
    fn neighbouring_inodes_spread_over_all_directories() {
        let mut counts = vec![0u32; usize::from(BUCKETS)];
        for inode in 0..u64::from(BUCKETS) * 16 {
            let object = ObjectId { inode: InodeId(inode), generation: 1, slot: (inode % 4) as u32 };
            counts[usize::from(Bucket::of(object).0)] += 1;
        }
        assert!(counts.iter().all(|&n| (1..=64).contains(&n)), "{:?}", counts.iter().max());
    }

    proptest! {
        #[test]
        fn a_name_is_parsed_back(inode: u64, generation: u32, slot in 0u32..64, chunk: u64, sums: bool) {
            let part = if sums { Part::Sums } else { Part::Data };
            let object = ObjectId { inode: InodeId(inode), generation, slot };
            let path = path(object, chunk, part);
            let name = path.rsplit('/').next().expect("has components");
            prop_assert_eq!(parse(name), Some((object, chunk, part)));
            prop_assert_eq!(parse(&format!("{name}x")), None);
        }
    }
}
