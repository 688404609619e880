//! Structures that C fills in or reads. Their layout is part of the binary interface: new members take reserved ones.

use crate::exports::locks::{VAZAO_LOCK_EXCLUSIVE, VAZAO_LOCK_SHARED};
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use vazao_client::{Obstacle, VolumeSpace};
use vazao_handles::{ShownLayout, locked_bytes, mode_type};
use vazao_model::distribution::Pattern;
use vazao_model::limits::NAME_BYTES_MAX;
use vazao_model::locks::LockMode;
use vazao_model::{Attributes, Timestamp};

/// How a connection behaves. A structure of zeros stands for the cluster's configuration and the defaults.
#[repr(C)]
pub struct Options {
    /// How long one call may take, in milliseconds, repetitions included; 0: as configured, or 30000.
    pub deadline_ms: u32,
    /// Connections to each server; 0: as configured, or 8.
    pub connections_max: u32,
    /// Bytes written but not yet acknowledged, over all files; 0: as configured, or 64 MiB.
    pub dirty_bytes_max: u64,
    /// Bytes read ahead of one reader; 0: as configured, or 32 MiB.
    pub read_ahead_bytes_max: u64,
    /// What `vazao top` and the logs call this program; NULL: its process and host.
    pub name: *const c_char,
    /// The zone that this machine is in, as `zone` of client.toml names it; NULL: as configured.
    pub zone: *const c_char,
    /// Zero.
    pub reserved: [u64; 7],
}

// Programs that were compiled when `zone` was reserved give as many bytes, with zeros there.
const _: () = assert!(offset_of!(Options, zone) == 32 && size_of::<Options>() == 96);

/// A point in time since the beginning of 1970, UTC.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// After `seconds`, below 1000000000.
    pub nanoseconds: i64,
}

/// What stat(2) shows.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileAttributes {
    /// Its number in the volume.
    pub inode: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Bytes of storage in use, as far as known.
    pub allocated_bytes: u64,
    /// Type and permissions, as `st_mode`: S_ISDIR() and its like apply.
    pub mode: u32,
    /// Names of it; for a directory 2 and its subdirectories.
    pub link_count: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last read.
    pub accessed: Time,
    /// Last change of contents.
    pub modified: Time,
    /// Last change of contents or attributes.
    pub changed: Time,
    /// Grows with every change of the contents.
    pub version: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// One name in a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry {
    /// The number of what it names.
    pub inode: u64,
    /// The type alone, as in `st_mode`: S_ISDIR() and its like apply.
    pub mode_type: u32,
    /// Bytes of the name without its NUL.
    pub name_bytes: u32,
    /// The name, with a NUL behind it. Any bytes but `/` and NUL.
    pub name: [c_char; 256],
    /// Its attributes where VAZAO_WITH_ATTRIBUTES was given; zeros otherwise.
    pub attributes: FileAttributes,
}

/// Space of the volume.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Sum over all targets that serve.
    pub capacity_bytes: u64,
    /// What may still be written.
    pub available_bytes: u64,
    /// In use on the targets' file systems, by any program.
    pub used_bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// A range of a file and the memory for it, of vazao_read_list() and vazao_write_list().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes.
    pub buffer: *mut c_void,
    /// How many.
    pub buffer_bytes: usize,
    /// Receives how many of them were read or written.
    pub done_bytes: usize,
}

/// Equal ranges at equal distances.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StridedRanges {
    /// Where the first one begins.
    pub offset: u64,
    /// Bytes of each.
    pub range_bytes: usize,
    /// From the beginning of one to that of the next.
    pub stride_bytes: u64,
    /// How many.
    pub range_count: usize,
}

/// How a file is striped over targets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LayoutAttributes {
    /// Bytes that go to one target before the next one's turn; 0 where that is not what the distribution is about.
    pub stripe_unit_bytes: u64,
    /// Number of targets; 0 while the contents of a small file are with its metadata.
    pub width: u32,
    /// 1: simple stripes, 2: strips of own sizes, 3: groups of targets in turn, 4: all on the writer's machine.
    pub distribution: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

/// How far a copy is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyProgress {
    /// Files that it found so far; all of them once it has listed them.
    pub files: u64,
    /// Files that are there, or were already.
    pub files_done: u64,
    /// Files that could not be copied.
    pub files_failed: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that are there.
    pub bytes_done: u64,
    /// Bytes a second, smoothed.
    pub bytes_per_second: u64,
    /// Milliseconds until the end; UINT64_MAX: not known.
    pub left_ms: u64,
    /// Zero.
    pub reserved: [u64; 5],
}

/// What limited a stretch of work.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// "disk", "network", "round_trip", "cpu", "bandwidth_limit", "lock", "no_answer", "caller" (the program itself),
    /// "idle" or "unknown".
    pub resource: [c_char; 32],
    /// The node where it is.
    pub place: [c_char; 256],
    /// One line for people, cut where it is longer.
    pub text: [c_char; 512],
    /// The share of its ceiling, 0 to 1; negative where the ceiling is not known.
    pub share: f64,
    /// How sure that is, 0 to 1.
    pub score: f64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// A lock that another owner has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LockInfo {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes; 0: to the end, however far that moves.
    pub bytes: u64,
    /// VAZAO_LOCK_SHARED or VAZAO_LOCK_EXCLUSIVE.
    pub mode: u32,
    /// Its process, where that is this one; 0: one of another client.
    pub process: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

// A name and its NUL have room in an entry.
const _: () = assert!(NAME_BYTES_MAX < 256);

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Time {
        Time { seconds: time.seconds, nanoseconds: i64::from(time.nanoseconds) }
    }
}

impl From<&Attributes> for FileAttributes {
    fn from(attributes: &Attributes) -> FileAttributes {
        FileAttributes {
            inode: attributes.inode.0,
            size_bytes: attributes.size,
            allocated_bytes: attributes.allocated_bytes,
            mode: mode_type(attributes.kind) | attributes.mode,
            link_count: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            accessed: attributes.accessed.into(),
            modified: attributes.modified.into(),
            changed: attributes.changed.into(),
            version: attributes.version,
            reserved: [0; 4],
        }
    }
}

impl From<VolumeSpace> for Space {
    fn from(space: VolumeSpace) -> Space {
        Space {
            capacity_bytes: space.capacity_bytes,
            available_bytes: space.available_bytes,
            used_bytes: space.used_bytes,
            inodes: space.inodes,
            reserved: [0; 4],
        }
    }
}

/// Text in an array with a NUL behind it, cut between two characters where it is too long.
fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut array = [0; N];
    array.iter_mut().zip(&text.as_bytes()[..end]).for_each(|(place, &byte)| *place = byte as c_char);
    array
}

impl Limit {
    /// A verdict.
    pub(crate) fn new(resource: &str, share: Option<f64>, score: f64, place: &str, text: &str) -> Limit {
        let (resource, place, text) = (array(resource), array(place), array(text));
        Limit { resource, place, text, share: share.unwrap_or(-1.0), score, reserved: [0; 4] }
    }
}

impl From<Obstacle> for LockInfo {
    fn from(obstacle: Obstacle) -> LockInfo {
        let (offset, bytes) = locked_bytes(obstacle.range);
        let mode = match obstacle.mode {
            LockMode::Shared => VAZAO_LOCK_SHARED,
            LockMode::Exclusive => VAZAO_LOCK_EXCLUSIVE,
        };
        LockInfo { offset, bytes, mode, process: obstacle.process, reserved: [0; 4] }
    }
}

impl From<ShownLayout> for LayoutAttributes {
    fn from(layout: ShownLayout) -> LayoutAttributes {
        let (distribution, stripe_unit_bytes) = match layout.pattern {
            Pattern::Stripe => (1, layout.stripe_unit_bytes),
            Pattern::Strips(_) => (2, 0),
            Pattern::Groups { .. } => (3, layout.stripe_unit_bytes),
            Pattern::Local => (4, 0),
        };
        LayoutAttributes { stripe_unit_bytes, width: layout.width, distribution, reserved: [0; 4] }
    }
}
