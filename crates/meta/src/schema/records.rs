//! What the values of the keys hold. Encoded as protocol buffers: a field that is new is absent in old records, a field
//! that is gone is skipped. Tags are part of the format (`docs/on-disk.md`) and never reused.

use prost::Message;
use std::ops::Range;
use vazao_model::{Extents, FileKind, Timestamp, limits};
use vazao_wire::proto;

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct TimeRecord {
    #[prost(sint64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(uint32, tag = "2")]
    pub(crate) nanoseconds: u32,
}

impl From<Timestamp> for TimeRecord {
    fn from(t: Timestamp) -> TimeRecord {
        TimeRecord { seconds: t.seconds, nanoseconds: t.nanoseconds }
    }
}

impl From<TimeRecord> for proto::Timestamp {
    fn from(t: TimeRecord) -> proto::Timestamp {
        proto::Timestamp { seconds: t.seconds, nanoseconds: t.nanoseconds }
    }
}

/// Where a file's bytes lie.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LayoutRecord {
    #[prost(uint32, tag = "1")]
    pub(crate) generation: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) distribution: u32,
    #[prost(uint64, tag = "3")]
    pub(crate) unit_bytes: u64,
    /// The placement group of each slot.
    #[prost(uint32, repeated, tag = "4")]
    pub(crate) groups: Vec<u32>,
    #[prost(fixed64, tag = "5")]
    pub(crate) written_slots: u64,
    #[prost(uint32, tag = "6")]
    pub(crate) version: u32,
    /// Absent: a simple stripe.
    #[prost(message, optional, tag = "7")]
    pub(crate) pattern: Option<PatternRecord>,
    /// Generation of the first layout of this life; 0: this one is.
    #[prost(uint32, tag = "8")]
    pub(crate) life: u32,
}

impl LayoutRecord {
    /// Whether a layout of this generation is one of the same life, converted since or not.
    pub(crate) fn is_of_life(&self, generation: u32) -> bool {
        let first = if self.life == 0 { self.generation } else { self.life };
        (first..=self.generation).contains(&generation)
    }
}

/// How slots take turns.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PatternRecord {
    #[prost(uint32, tag = "1")]
    pub(crate) distribution: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) strips: Vec<StripRecord>,
    #[prost(uint32, tag = "3")]
    pub(crate) groups: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) factor: u32,
    #[prost(bool, tag = "5")]
    pub(crate) away: bool,
}

/// One turn of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StripRecord {
    #[prost(uint32, tag = "1")]
    pub(crate) slot: u32,
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
}

impl From<&PatternRecord> for proto::Pattern {
    fn from(p: &PatternRecord) -> proto::Pattern {
        let strip = |strip: &StripRecord| proto::Strip { slot: strip.slot, bytes: strip.bytes };
        proto::Pattern {
            distribution: p.distribution,
            strips: p.strips.iter().map(strip).collect(),
            groups: p.groups,
            factor: p.factor,
            away: p.away,
        }
    }
}

impl From<proto::Pattern> for PatternRecord {
    fn from(p: proto::Pattern) -> PatternRecord {
        let strip = |strip: proto::Strip| StripRecord { slot: strip.slot, bytes: strip.bytes };
        PatternRecord {
            distribution: p.distribution,
            strips: p.strips.into_iter().map(strip).collect(),
            groups: p.groups,
            factor: p.factor,
            away: p.away,
        }
    }
}

impl From<&ExtentRecord> for proto::Extent {
    fn from(e: &ExtentRecord) -> proto::Extent {
        proto::Extent { start: e.start, length: e.length }
    }
}

impl From<&LayoutRecord> for proto::Layout {
    fn from(l: &LayoutRecord) -> proto::Layout {
        proto::Layout {
            generation: l.generation,
            distribution: l.distribution,
            unit_bytes: l.unit_bytes,
            groups: l.groups.clone(),
            written_slots: l.written_slots,
            version: l.version,
            pattern: l.pattern.as_ref().map(Into::into),
            life: l.life,
        }
    }
}

impl From<proto::Layout> for LayoutRecord {
    fn from(l: proto::Layout) -> LayoutRecord {
        LayoutRecord {
            generation: l.generation,
            distribution: l.distribution,
            unit_bytes: l.unit_bytes,
            groups: l.groups,
            written_slots: l.written_slots,
            version: l.version,
            pattern: l.pattern.map(Into::into),
            life: l.life,
        }
    }
}

/// An inode.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InodeRecord {
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) mode: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) uid: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) gid: u32,
    #[prost(uint64, tag = "5")]
    pub(crate) size: u64,
    /// Names of it; of a directory 1 until it is removed.
    #[prost(uint32, tag = "6")]
    pub(crate) links: u32,
    #[prost(uint32, tag = "7")]
    pub(crate) device: u32,
    #[prost(message, optional, tag = "8")]
    pub(crate) accessed: Option<TimeRecord>,
    /// Of a directory: absent, see [`DirectoryTimes`].
    #[prost(message, optional, tag = "9")]
    pub(crate) modified: Option<TimeRecord>,
    #[prost(message, optional, tag = "10")]
    pub(crate) changed: Option<TimeRecord>,
    #[prost(uint64, tag = "11")]
    pub(crate) version: u64,
    /// Of the last layout: the next one's is larger.
    #[prost(uint32, tag = "12")]
    pub(crate) generation: u32,
    #[prost(message, optional, tag = "13")]
    pub(crate) layout: Option<LayoutRecord>,
    /// A small file's bytes (zeros follow up to `size`), or a symbolic link's target.
    #[prost(bytes = "vec", tag = "14")]
    pub(crate) contents: Vec<u8>,
    /// Of a directory: the one above.
    #[prost(uint64, tag = "15")]
    pub(crate) parent: u64,
    #[prost(message, optional, tag = "16")]
    pub(crate) hint: Option<HintRecord>,
    /// Sum of the lengths of extended attributes' names; 0: there are none.
    #[prost(uint32, tag = "17")]
    pub(crate) xattr_names_bytes: u32,
    /// Storage that the objects of a file with holes take; absent: as much as its size.
    #[prost(uint64, optional, tag = "18")]
    pub(crate) allocated_bytes: Option<u64>,
    /// It never had a name, and may get one.
    #[prost(bool, tag = "19")]
    pub(crate) is_unnamed: bool,
    /// Of a file with a layout: what its size was made to include and no writer has reported. It reads as zeros,
    /// whatever the objects hold there.
    #[prost(message, repeated, tag = "20")]
    pub(crate) unwritten: Vec<ExtentRecord>,
    /// Of a file with a layout: the zone that it was to lie in, and where no target had room. Empty: it lies where it
    /// was to.
    #[prost(string, tag = "21")]
    pub(crate) zone_missed: String,
}

/// A range of a file's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ExtentRecord {
    #[prost(uint64, tag = "1")]
    pub(crate) start: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) length: u64,
}

impl InodeRecord {
    /// Its type; unknown numbers cannot be stored by us and are shown as files.
    pub(crate) fn file_kind(&self) -> FileKind {
        FileKind::from_number(self.kind).unwrap_or_default()
    }

    /// Earlier versions of the service assigned a layout before the inline contents were copied to it. Where a crash
    /// interrupted that, nothing was written under the layout: the contents count.
    pub(crate) fn without_half_moved_contents(mut self) -> InodeRecord {
        if self.is_file()
            && !self.contents.is_empty()
            && let Some(layout) = &self.layout
        {
            if layout.written_slots == 0 {
                self.layout = None;
            } else {
                self.contents = Vec::new();
            }
        }
        self
    }

    /// What reads as zeros whatever the objects hold.
    pub(crate) fn unwritten(&self) -> Extents {
        self.unwritten.iter().map(|extent| extent.start..extent.start.saturating_add(extent.length)).collect()
    }

    /// Keeps what is unwritten of a file that has a layout; of more extents than that the shortest count as written.
    pub(crate) fn set_unwritten(&mut self, mut unwritten: Extents) {
        unwritten.keep_longest(limits::UNWRITTEN_EXTENTS_MAX);
        let extent =
            |range: &Range<u64>| ExtentRecord { start: range.start, length: range.end - range.start };
        self.unwritten = match self.layout {
            Some(_) => unwritten.iter().map(extent).collect(),
            None => Vec::new(),
        };
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory.number()
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileKind::File.number()
    }
}

/// Layout hints: what was set on the inode, and what its parent's were in effect when it was created.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct HintRecord {
    #[prost(uint64, tag = "1")]
    pub(crate) own_unit_bytes: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) own_width: u32,
    #[prost(uint64, tag = "3")]
    pub(crate) inherited_unit_bytes: u64,
    #[prost(uint32, tag = "4")]
    pub(crate) inherited_width: u32,
    #[prost(message, optional, tag = "5")]
    pub(crate) own_pattern: Option<PatternRecord>,
    #[prost(message, optional, tag = "6")]
    pub(crate) inherited_pattern: Option<PatternRecord>,
    #[prost(message, optional, tag = "7")]
    pub(crate) own_placement: Option<PlacementRecord>,
    #[prost(message, optional, tag = "8")]
    pub(crate) inherited_placement: Option<PlacementRecord>,
    #[prost(uint32, tag = "9")]
    pub(crate) own_copies: u32,
    #[prost(uint32, tag = "10")]
    pub(crate) inherited_copies: u32,
}

/// Which targets new files go to.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PlacementRecord {
    /// 1 everywhere, 2 the writer's zone, 3 `zone`.
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(string, tag = "2")]
    pub(crate) zone: String,
}

impl From<&PlacementRecord> for proto::Placement {
    fn from(p: &PlacementRecord) -> proto::Placement {
        proto::Placement { kind: p.kind, zone: p.zone.clone() }
    }
}

impl From<proto::Placement> for PlacementRecord {
    fn from(p: proto::Placement) -> PlacementRecord {
        PlacementRecord { kind: p.kind, zone: p.zone }
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct EntryRecord {
    #[prost(uint64, tag = "1")]
    pub(crate) inode: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) kind: u32,
}

impl EntryRecord {
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory.number()
    }
}

/// Times of a directory's entries.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct DirectoryTimes {
    #[prost(message, optional, tag = "1")]
    pub(crate) modified: Option<TimeRecord>,
    #[prost(message, optional, tag = "2")]
    pub(crate) changed: Option<TimeRecord>,
    #[prost(uint64, tag = "3")]
    pub(crate) version: u64,
}

/// A number: counters, epochs, subdirectories.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct NumberRecord {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}

/// Sessions that may have an unlinked inode open.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OrphanRecord {
    #[prost(fixed64, repeated, tag = "1")]
    pub(crate) sessions: Vec<u64>,
}

/// Objects to be removed.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReclaimRecord {
    /// Slot and target of each object that may still be there.
    #[prost(message, repeated, tag = "1")]
    pub(crate) objects: Vec<ReclaimObject>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ReclaimObject {
    #[prost(uint32, tag = "1")]
    pub(crate) slot: u32,
    /// Its placement group.
    #[prost(uint32, tag = "2")]
    pub(crate) group: u32,
}

/// Another layout that a file is about to get.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConversionRecord {
    /// Whose conversion it is.
    #[prost(fixed64, tag = "1")]
    pub(crate) session: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) layout: Option<LayoutRecord>,
    /// What the file had when it began.
    #[prost(message, optional, tag = "3")]
    pub(crate) from: Option<LayoutRecord>,
    /// It was given up: fences are being lifted.
    #[prost(bool, tag = "4")]
    pub(crate) is_ending: bool,
}

/// A client's stay.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SessionRecord {
    #[prost(string, tag = "1")]
    pub(crate) client: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) opened: Option<TimeRecord>,
    /// It may have locks on any file: after a restart it is waited for.
    #[prost(bool, tag = "3")]
    pub(crate) has_locks: bool,
    /// It finds its files again when they get other layouts.
    #[prost(bool, tag = "4")]
    pub(crate) follows_conversions: bool,
    /// Files on which it may have locks: after a restart they wait for it.
    #[prost(uint64, repeated, tag = "5")]
    pub(crate) locked_inodes: Vec<u64>,
    /// It knows layouts with placement groups.
    #[prost(bool, tag = "6")]
    pub(crate) follows_groups: bool,
}

/// The last answer of a slot.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplyRecord {
    #[prost(uint64, tag = "1")]
    pub(crate) sequence: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) method: u32,
    /// The encoded result, or a `Failure` when `failed`.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) answer: Vec<u8>,
    #[prost(bool, tag = "4")]
    pub(crate) failed: bool,
}

/// A member of the cluster.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeRecord {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    #[prost(uint32, repeated, tag = "3")]
    pub(crate) roles: Vec<u32>,
    /// Random number of the process that has this identity; 0: it reported none.
    #[prost(fixed64, tag = "4")]
    pub(crate) run: u64,
    /// Unix time since which it has it.
    #[prost(uint64, tag = "5")]
    pub(crate) since_seconds: u64,
    /// Unix time since which it has been silent; 0 while it reports.
    #[prost(uint64, tag = "6")]
    pub(crate) silent_since_seconds: u64,
    /// The zone it is in; empty: none.
    #[prost(string, tag = "7")]
    pub(crate) zone: String,
}

/// A target of the cluster, and the last that is known of its disk.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TargetRecord {
    #[prost(uint32, tag = "1")]
    pub(crate) node: u32,
    /// The random number of its directory, 16 bytes; empty: not reported yet.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) uuid: Vec<u8>,
    /// A disk with a smaller incarnation is an older copy.
    #[prost(uint64, tag = "3")]
    pub(crate) incarnation: u64,
    /// Random number of the process that was given leave to serve it.
    #[prost(fixed64, tag = "4")]
    pub(crate) run: u64,
    /// Unix time at which this record last changed.
    #[prost(uint64, tag = "5")]
    pub(crate) seen_seconds: u64,
    /// `TargetState`; 2 is kept as 1.
    #[prost(uint32, tag = "6")]
    pub(crate) state: u32,
    /// Why it does not serve, for people.
    #[prost(string, tag = "7")]
    pub(crate) trouble: String,
    /// Where it lies on its node, for people.
    #[prost(string, tag = "8")]
    pub(crate) directory: String,
    /// An operator goes on with an older copy, if it has at least this incarnation.
    #[prost(uint64, optional, tag = "9")]
    pub(crate) accepted_from: Option<u64>,
    /// The number of that process: the incarnation with which it was given leave, so they grow. 0: none was recorded.
    #[prost(uint64, tag = "10")]
    pub(crate) process: u64,
    /// The random number of the directory in whose place this one was given, 16 bytes; empty: of none.
    #[prost(bytes = "vec", tag = "11")]
    pub(crate) former: Vec<u8>,
}

/// A start of the metadata service.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StartRecord {
    /// Its random number.
    #[prost(fixed64, tag = "1")]
    pub(crate) run: u64,
    /// Commits that it found.
    #[prost(uint64, tag = "2")]
    pub(crate) position: u64,
}

/// The volume.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeRecord {
    #[prost(fixed64, tag = "1")]
    pub(crate) cluster_id: u64,
    /// Key of the names' hash, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) name_key: Vec<u8>,
    /// Version of the schema: keys and records.
    #[prost(uint32, tag = "3")]
    pub(crate) schema: u32,
}

/// Membership.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct MembershipRecord {
    #[prost(uint64, tag = "1")]
    pub(crate) epoch: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) last_node: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) last_target: u32,
    /// Placement groups made so far.
    #[prost(uint32, tag = "4")]
    pub(crate) groups: u32,
    /// Copies may lie on several nodes of one machine: the volume is for trying out.
    #[prost(bool, tag = "5")]
    pub(crate) nodes_are_hosts: bool,
}

/// A placement group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupRecord {
    /// Version of what follows; 0 where `membership` is there.
    #[prost(uint64, tag = "1")]
    pub(crate) epoch: u64,
    /// A target alone, of which no process was noted; none where `membership` is there.
    #[prost(uint32, repeated, tag = "2")]
    pub(crate) members: Vec<u32>,
    /// All that is known of a group whose members have to agree.
    #[prost(message, optional, tag = "3")]
    pub(crate) membership: Option<proto::GroupMembers>,
    /// Copies that it was made with; 0: as many as it has members.
    #[prost(uint32, tag = "4")]
    pub(crate) copies: u32,
    /// The target that it was made for, as its primary; 0: the first member.
    #[prost(uint32, tag = "5")]
    pub(crate) made_for: u32,
    /// Members that are not current, and since when.
    #[prost(message, repeated, tag = "6")]
    pub(crate) lost: Vec<LostMemberRecord>,
}

/// A member of a placement group that is not current.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LostMemberRecord {
    #[prost(uint32, tag = "1")]
    pub(crate) target: u32,
    /// Unix time.
    #[prost(uint64, tag = "2")]
    pub(crate) seconds: u64,
}
