//! Ids as types of their own, so that a target's number is never taken for a node's.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A file, directory or any other inode of the volume. Never reused.
    InodeId(u64),
    "i"
);
id!(
    /// A machine's daemon. Given out by the metadata service when a node first registers.
    NodeId(u32),
    "n"
);
id!(
    /// One directory on one disk of a data server. Given out by the metadata service, kept in the directory.
    TargetId(u32),
    "t"
);
/// A placement group: the targets that hold copies of the same objects. Those below [`GroupId::FIRST`] are targets that
/// stand for themselves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The first that is not a target of its own.
    pub const FIRST: u32 = 1 << 20;

    /// The group that a target alone is.
    pub fn of(target: TargetId) -> GroupId {
        GroupId(target.0)
    }

    /// The target that this group is, if it is one alone.
    pub fn target(self) -> Option<TargetId> {
        (self.0 < GroupId::FIRST).then_some(TargetId(self.0))
    }

    /// This group as an object's address and its directory name it: 0 for a target's own objects.
    pub fn shared(self) -> GroupId {
        if self.target().is_some() { GroupId(0) } else { self }
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target() {
            Some(target) => target.fmt(f),
            None => write!(f, "g{}", self.0 - GroupId::FIRST),
        }
    }
}

id!(
    /// A client's stay with the metadata service: holds its leases, its open unlinked files and its request slots.
    SessionId(u64),
    "s"
);
id!(
    /// A version of the cluster's membership: it grows with every change that moves data or duties.
    Epoch(u64),
    "e"
);

/// The root directory of every volume.
pub const ROOT: InodeId = InodeId(1);

/// The part of one file that lies on one target: which file, which of its lives, which slot of its layout.
///
/// `generation` grows each time the file is truncated to nothing and gets fresh objects, so that a late write
/// to the old contents can never show up in the new.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct ObjectId {
    /// The file.
    pub inode: InodeId,
    /// Which of the file's lives.
    pub generation: u32,
    /// Index into the layout's list of placement groups.
    pub slot: u32,
    /// Its placement group, which the three above decide; 0: its target's own.
    pub group: GroupId,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.inode, self.generation, self.slot)
    }
}
