//! POSIX access control lists: their form in extended attributes, and how they and permission bits follow each other.
//!
//! The form is the kernel's (linux/posix_acl_xattr.h), the rules are those of acl(5) and POSIX 1003.1e draft 17. The
//! kernels of the mounts check permissions by them; here they are kept right when modes change and when inodes are
//! made.

use vazao_model::limits::XATTR_BYTES_MAX;

/// The attribute of the list that permissions are checked by.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of the list that new inodes of a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const PERMISSIONS: u16 = 0o7;
/// The id of entries that name no user or group.
const NOBODY: u32 = u32::MAX;

/// Whom an entry is about. The order is that of entries in a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: Tag,
    permissions: u16,
    id: u32,
}

/// A valid list: entries sorted by tag and id, one each for owner, owning group and others, and a mask where it names
/// users or groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl(Vec<Entry>);

fn tag(number: u16) -> Option<Tag> {
    [Tag::Owner, Tag::User, Tag::OwningGroup, Tag::Group, Tag::Mask, Tag::Other]
        .into_iter()
        .find(|tag| *tag as u16 == number)
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
    let [t0, t1, p0, p1, id @ ..] = *bytes;
    let (tag, permissions) = (tag(u16::from_le_bytes([t0, t1]))?, u16::from_le_bytes([p0, p1]));
    let is_named = matches!(tag, Tag::User | Tag::Group);
    let id = if is_named { u32::from_le_bytes(id) } else { NOBODY };
    let is_valid = permissions & !PERMISSIONS == 0 && (!is_named || id != NOBODY);
    is_valid.then_some(Entry { tag, permissions, id })
}

impl Acl {
    /// The list in an attribute's value; `None` when it is not a valid one.
    pub(crate) fn decode(value: &[u8]) -> Option<Acl> {
        let (version, entries) = value.split_first_chunk::<HEADER_BYTES>()?;
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() || value.len() > XATTR_BYTES_MAX {
            return None;
        }
        let acl = Acl(entries.iter().map(entry).collect::<Option<_>>()?);
        acl.is_valid().then_some(acl)
    }

    fn is_valid(&self) -> bool {
        let is_sorted = self.0.windows(2).all(|pair| match pair {
            [a, b] => (a.tag, a.id) < (b.tag, b.id),
            _ => true,
        });
        let has = |tag| self.0.iter().any(|entry| entry.tag == tag);
        let names = has(Tag::User) || has(Tag::Group);
        is_sorted && has(Tag::Owner) && has(Tag::OwningGroup) && has(Tag::Other) && (!names || has(Tag::Mask))
    }

    /// The value of the attribute.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    /// True when permission bits say all of it.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.tag, Tag::Owner | Tag::OwningGroup | Tag::Other))
    }

    fn permissions(&mut self, tag: Tag) -> Option<&mut u16> {
        self.0.iter_mut().find(|entry| entry.tag == tag).map(|entry| &mut entry.permissions)
    }

    /// The entry that the group bits of the mode stand for: the mask, where there is one.
    fn group_class(&self) -> Tag {
        if self.0.iter().any(|entry| entry.tag == Tag::Mask) { Tag::Mask } else { Tag::OwningGroup }
    }

    /// The entries that permission bits mirror, each with the place of its bits.
    fn mirrored(&self) -> [(Tag, u32); 3] {
        [(Tag::Owner, 6), (self.group_class(), 3), (Tag::Other, 0)]
    }

    /// `mode` with the permission bits that this list gives it.
    pub(crate) fn mode(&self, mode: u32) -> u32 {
        let bits = self.mirrored().iter().fold(0, |bits, (tag, shift)| {
            let entry = self.0.iter().find(|entry| entry.tag == *tag);
            bits | entry.map_or(0, |entry| u32::from(entry.permissions)) << shift
        });
        mode & !0o777 | bits
    }

    /// chmod(2): owner, group class and others get the permissions of `mode`.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        for (tag, shift) in self.mirrored() {
            if let Some(permissions) = self.permissions(tag) {
                *permissions = (mode >> shift) as u16 & PERMISSIONS;
            }
        }
    }

    /// Limits a directory's default list to `mode` for a new inode: no entry grants more than the program asked for.
    /// Returns the mode to go with it.
    pub(crate) fn restrict(&mut self, mode: u32) -> u32 {
        for (tag, shift) in self.mirrored() {
            if let Some(permissions) = self.permissions(tag) {
                *permissions &= (mode >> shift) as u16;
            }
        }
        self.mode(mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acl(entries: &[(Tag, u16, u32)]) -> Acl {
        Acl(entries.iter().map(|&(tag, permissions, id)| Entry { tag, permissions, id }).collect())
    }

    fn extended() -> Acl {
        acl(&[
            (Tag::Owner, 7, NOBODY),
            (Tag::User, 6, 1000),
            (Tag::OwningGroup, 5, NOBODY),
            (Tag::Mask, 7, NOBODY),
            (Tag::Other, 4, NOBODY),
        ])
    }

    fn minimal() -> Acl {
        acl(&[(Tag::Owner, 6, NOBODY), (Tag::OwningGroup, 4, NOBODY), (Tag::Other, 0, NOBODY)])
    }

    #[test]
    fn lists_are_decoded_back_and_broken_ones_are_refused() {
        for list in [extended(), minimal()] {
            assert_eq!(Acl::decode(&list.encode()), Some(list));
        }
        let mut unsorted = extended();
        unsorted.0.swap(0, 1);
        let mut twice = extended();
        twice.0.insert(2, twice.0[1]);
        let mut unmasked = extended();
        unmasked.0.remove(3);
        let mut greedy = extended();
        greedy.0[0].permissions = 8;
        let mut ownerless = minimal();
        ownerless.0.remove(0);
        for list in [unsorted, twice, unmasked, greedy, ownerless, acl(&[])] {
            assert_eq!(Acl::decode(&list.encode()), None, "{list:?}");
        }
        assert_eq!(Acl::decode(&[]), None);
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), None);
    }

    #[test]
    fn the_group_bits_are_the_mask_where_there_is_one() {
        assert!(minimal().is_minimal() && !extended().is_minimal());
        assert_eq!(minimal().mode(0o4777), 0o4640);
        assert_eq!(extended().mode(0), 0o774);
        let mut list = extended();
        list.set_mode(0o2750);
        assert_eq!(list.mode(0), 0o750);
        assert_eq!(list.0[2].permissions, 5, "the owning group's entry stays");
    }

    #[test]
    fn an_inherited_list_gives_no_more_than_was_asked_for() {
        let mut list = extended();
        assert_eq!(list.restrict(0o100_640), 0o100_640);
        assert_eq!((list.0[0].permissions, list.0[3].permissions, list.0[4].permissions), (6, 4, 0));
        assert_eq!(list.0[1].permissions, 6, "named users keep theirs, behind the mask");
    }

    proptest! {
        #[test]
        fn no_bytes_are_taken_for_a_list_that_is_not_written_back_the_same(
            mut value in proptest::collection::vec(any::<u8>(), 0..64), is_versioned: bool,
        ) {
            if is_versioned && value.len() >= 4 {
                value[..4].copy_from_slice(&2u32.to_le_bytes());
            }
            if let Some(list) = Acl::decode(&value) {
                prop_assert_eq!(Acl::decode(&list.encode()), Some(list));
            }
        }
    }
}
