//! Where the files of an object are: names and hashed directories. Specified in docs/on-disk.md.

mod directories;

pub(crate) use directories::Directories;

use vazao_model::checksum::crc32c;
use vazao_model::{GroupId, InodeId, ObjectId};

/// The directory above a target's own objects.
pub(crate) const OBJECTS: &str = "objects";

/// The directory above the objects of placement groups.
pub(crate) const GROUPS: &str = "groups";

/// Directories at each of the two levels beneath `objects`, and leaf directories of a group.
pub(crate) const FAN_OUT: u16 = 64;

/// Number of leaf directories beneath `objects`.
pub(crate) const LEAVES: u16 = FAN_OUT * FAN_OUT;

/// A leaf directory. Listings go through a target's own objects first, then through its groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Bucket {
    /// 0: beneath `objects`.
    pub(crate) group: GroupId,
    pub(crate) leaf: u16,
}

impl Bucket {
    /// The low 12 bits of the CRC-32C of inode, generation and slot, little-endian one after the other; of an object of
    /// a placement group the low 6 bits.
    pub(crate) fn of(object: ObjectId) -> Bucket {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&object.inode.0.to_le_bytes());
        key[8..12].copy_from_slice(&object.generation.to_le_bytes());
        key[12..].copy_from_slice(&object.slot.to_le_bytes());
        let leaves = if object.group == GroupId(0) { LEAVES } else { FAN_OUT };
        Bucket { group: object.group, leaf: (crc32c(&key) % u32::from(leaves)) as u16 }
    }

    /// True for a directory beneath `objects`.
    pub(crate) fn is_own(self) -> bool {
        self.group == GroupId(0)
    }

    /// The directory above the one above.
    pub(crate) fn root(self) -> &'static str {
        if self.is_own() { OBJECTS } else { GROUPS }
    }

    /// Path of the directory above.
    pub(crate) fn upper(self) -> String {
        match self.is_own() {
            true => format!("{OBJECTS}/{:02x}", self.leaf / FAN_OUT),
            false => group_path(self.group),
        }
    }

    /// Path of the directory itself.
    pub(crate) fn path(self) -> String {
        format!("{}/{:02x}", self.upper(), self.leaf % FAN_OUT)
    }

    /// What the name of a file in it says; `None` for a name that is none of ours.
    pub(crate) fn parse(self, name: &str) -> Option<(ObjectId, u64, Part)> {
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
        let object = ObjectId { inode: InodeId(inode), generation, slot, group: self.group };
        (fields.next().is_none() && file_name(object, chunk, part) == name).then_some((object, chunk, part))
    }
}

/// Path of the directory of a placement group.
fn group_path(group: GroupId) -> String {
    format!("{GROUPS}/{:08x}", group.0)
}

/// The placement group that a directory beneath `groups` is of; `None` for a name that is none of ours.
pub(crate) fn parse_group(name: &str) -> Option<GroupId> {
    let group = GroupId(u32::from_str_radix(name, 16).ok()?);
    (group.target().is_none() && group_path(group).ends_with(&format!("/{name}"))).then_some(group)
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

fn file_name(object: ObjectId, chunk: u64, part: Part) -> String {
    let ObjectId { inode, generation, slot, .. } = object;
    format!("{:016x}.{generation:08x}.{slot:02x}.{chunk:x}.{}", inode.0, part.suffix())
}

/// Path of a file of a chunk.
pub(crate) fn path(object: ObjectId, chunk: u64, part: Part) -> String {
    format!("{}/{}", Bucket::of(object).path(), file_name(object, chunk, part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(inode: u64, slot: u32, group: u32) -> ObjectId {
        ObjectId { inode: InodeId(inode), generation: 1, slot, group: GroupId(group) }
    }

    #[test]
    fn the_examples_of_the_format_document_are_right() {
        assert_eq!(path(object(1234, 3, 0), 0, Part::Data), EXAMPLE_DATA);
        assert_eq!(path(object(1234, 3, 0), 26, Part::Sums), EXAMPLE_SUMS);
        assert_eq!(path(object(1234, 3, GroupId::FIRST + 17), 0, Part::Data), EXAMPLE_GROUP);
    }

    const EXAMPLE_DATA: &str = "objects/3a/37/00000000000004d2.00000001.03.0.data";
    const EXAMPLE_SUMS: &str = "objects/3a/37/00000000000004d2.00000001.03.1a.sums";
    const EXAMPLE_GROUP: &str = "groups/00100011/37/00000000000004d2.00000001.03.0.data";

    #[test]
    fn neighbouring_inodes_spread_over_all_directories() {
        for (group, leaves) in [(0, LEAVES), (GroupId::FIRST, FAN_OUT)] {
            let mut counts = vec![0u32; usize::from(leaves)];
            for inode in 0..u64::from(leaves) * 16 {
                counts[usize::from(Bucket::of(object(inode, (inode % 4) as u32, group)).leaf)] += 1;
            }
            assert!(counts.iter().all(|&n| (1..=64).contains(&n)), "{:?}", counts.iter().max());
        }
    }

    #[test]
    fn names_of_groups_are_parsed_back_and_others_are_none() {
        for (name, group) in [
            ("00100000", Some(GroupId(GroupId::FIRST))),
            ("ffffffff", Some(GroupId(u32::MAX))),
            ("000fffff", None),
            ("100000", None),
            ("0010000A", None),
            ("lost+found", None),
        ] {
            assert_eq!(parse_group(name), group, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_parsed_back(
            inode: u64, generation: u32, slot in 0u32..64, group: u32, chunk: u64, sums: bool,
        ) {
            let part = if sums { Part::Sums } else { Part::Data };
            let object = ObjectId { inode: InodeId(inode), generation, slot, group: GroupId(group).shared() };
            let path = path(object, chunk, part);
            let name = path.rsplit('/').next().expect("has components");
            prop_assert_eq!(Bucket::of(object).parse(name), Some((object, chunk, part)));
            prop_assert_eq!(Bucket::of(object).parse(&format!("{name}x")), None);
        }
    }
}
