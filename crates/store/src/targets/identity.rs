//! The TARGET file: what says that a directory is a target, of which format, cluster and node. Specified in
//! docs/on-disk.md. Text, so that a person can tell what a disk found in a drawer was.

use crate::error::OpenError;
use crate::object::names::OBJECTS;
use crate::targets::epochs::{Epochs, STATE};
use crate::targets::{boot, incarnation};
use std::fmt::Write;
use std::io;
use vazao_disk::{Disk, DiskEntry, Open};
use vazao_model::TargetId;
use vazao_model::checksum::crc32c;

/// The format of a target without objects of placement groups.
pub(crate) const FORMAT: u32 = 1;

/// The format of one that may have some. Programs that know the other one only would not find them.
pub(crate) const FORMAT_WITH_GROUPS: u32 = 2;

const TARGET: &str = "TARGET";
const TARGET_NEW: &str = "TARGET.new";
const LOCK: &str = "LOCK";

/// Made by mkfs in the root of a file system, and no sign of other data.
const LOST_AND_FOUND: &str = "lost+found";

/// A TARGET file is some 200 bytes.
const FILE_BYTES_MAX: usize = 4096;

/// What the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Identity {
    /// Random, given at formatting.
    pub(crate) uuid: u128,
    /// Largest chunk.
    pub(crate) chunk_bytes: u64,
    /// The cluster it joined; 0 before.
    pub(crate) cluster_id: u64,
    /// The node it was registered with; 0 before.
    pub(crate) node: u32,
    /// Its id; 0 before.
    pub(crate) id: TargetId,
    /// It may have objects of placement groups.
    pub(crate) has_groups: bool,
    /// The number of the lost directory in whose place it began, empty; 0: of none.
    pub(crate) replaces: u128,
}

/// What a directory is, for those who do not serve it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetName {
    /// Random, given when it became a target.
    pub uuid: u128,
    /// The cluster it belongs to; 0: none yet.
    pub cluster_id: u64,
    /// Its id there; 0: none yet.
    pub id: u32,
    /// The number of the lost directory in whose place it began; 0: of none.
    pub replaces: u128,
}

/// An empty directory that takes the place of a lost target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replacement {
    /// The target's cluster.
    pub cluster_id: u64,
    /// Its node.
    pub node: u32,
    /// Its id.
    pub id: u32,
    /// The directory's own number, which the metadata service has written down.
    pub uuid: u128,
    /// That of the lost one.
    pub replaces: u128,
    /// Largest chunk.
    pub chunk_bytes: u64,
}

/// Makes an empty directory the target that was lost. It has nothing, and says so until the target's groups have it in
/// their records. Errors: it is not empty; the disk refuses.
pub fn begin_replacement(disk: &dyn Disk, label: &str, replacement: Replacement) -> Result<(), OpenError> {
    let Replacement { cluster_id, node, id, uuid, replaces, chunk_bytes } = replacement;
    let place = |source| OpenError::Io { path: label.to_owned(), source };
    let entries = disk.list("").map_err(place)?;
    if entries.iter().any(|entry| entry.name == TARGET) {
        return Err(OpenError::NotEmpty { label: label.to_owned(), found: TARGET.to_owned() });
    }
    check_empty(disk, label, &entries)?;
    let lock = disk.open(LOCK, Open::Create).map_err(place)?;
    if !lock.try_lock().map_err(place)? {
        return Err(OpenError::InUse { label: label.to_owned() });
    }
    boot::begin_empty(disk).map_err(place)?;
    let id = TargetId(id);
    make(disk, &Identity { uuid, chunk_bytes, cluster_id, node, id, has_groups: true, replaces })
        .map_err(place)
}

/// Says which target lies in `disk`, without a lock and without changing anything; `None` where there is none.
/// Errors: it cannot be read, or is damaged, or of another format.
pub fn inspect(disk: &dyn Disk, label: &str) -> Result<Option<TargetName>, OpenError> {
    let name = |identity: Identity| {
        let Identity { uuid, cluster_id, id, replaces, .. } = identity;
        TargetName { uuid, cluster_id, id: id.0, replaces }
    };
    Ok(Identity::load(disk, label)?.map(name))
}

impl Identity {
    fn encode(&self) -> String {
        let Identity { uuid, chunk_bytes, cluster_id, node, id, has_groups, replaces } = *self;
        let format = if has_groups { FORMAT_WITH_GROUPS } else { FORMAT };
        let mut text = format!(
            "vazao target\nformat {format}\nuuid {uuid:032x}\nchunk_bytes {chunk_bytes}\n\
             cluster {cluster_id:016x}\nnode {node}\ntarget {}\n",
            id.0
        );
        if replaces != 0 {
            let _ = writeln!(text, "replaces {replaces:032x}");
        }
        let sum = crc32c(text.as_bytes());
        let _ = writeln!(text, "checksum {sum:08x}");
        text
    }

    fn decode(bytes: &[u8], label: &str) -> Result<Identity, OpenError> {
        let damaged = || OpenError::Damaged { path: format!("{label}/{TARGET}") };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let field = |key: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '));
            line.ok_or_else(damaged)
        };
        if text.lines().next() != Some("vazao target") {
            return Err(damaged());
        }
        // Of a damaged file nothing is believed, its format least of all. Only where there is no checksum as ours it
        // may be that of another format.
        let given = text.find("checksum ").map(|at| (text.split_at(at).0, field("checksum")));
        if let Some((body, sum)) = &given
            && sum.as_ref().ok() != Some(&format!("{:08x}", crc32c(body.as_bytes())).as_str())
        {
            return Err(damaged());
        }
        let format = field("format")?.parse().map_err(|_| damaged())?;
        if format != FORMAT && format != FORMAT_WITH_GROUPS {
            return Err(OpenError::Format {
                label: label.to_owned(),
                found: format,
                known: FORMAT_WITH_GROUPS,
            });
        }
        if given.is_none() {
            return Err(damaged());
        }
        Ok(Identity {
            uuid: u128::from_str_radix(field("uuid")?, 16).map_err(|_| damaged())?,
            chunk_bytes: field("chunk_bytes")?.parse().map_err(|_| damaged())?,
            cluster_id: u64::from_str_radix(field("cluster")?, 16).map_err(|_| damaged())?,
            node: field("node")?.parse().map_err(|_| damaged())?,
            id: TargetId(field("target")?.parse().map_err(|_| damaged())?),
            has_groups: format == FORMAT_WITH_GROUPS,
            replaces: match field("replaces") {
                Ok(number) => u128::from_str_radix(number, 16).map_err(|_| damaged())?,
                Err(_) => 0,
            },
        })
    }

    /// By what clients know whether what they wrote and did not sync is still there. The lost directory answered with
    /// the machine's start, and the one in its place may be served during the same.
    pub(crate) fn boot_of(&self, disk: &dyn Disk) -> u64 {
        match self.replaces {
            0 => disk.boot_id(),
            _ => disk.boot_id() ^ (self.uuid as u64 | 1),
        }
    }

    /// Replaces the file: after power loss it is the old or the new one.
    pub(crate) fn store(&self, disk: &dyn Disk) -> io::Result<()> {
        let file = disk.open(TARGET_NEW, Open::Create)?;
        file.set_length(0)?;
        file.write_at(self.encode().as_bytes(), 0)?;
        file.sync()?;
        disk.rename(TARGET_NEW, TARGET)?;
        disk.sync_directory("")
    }

    /// Reads the file of a target; `None` when there is none.
    fn load(disk: &dyn Disk, label: &str) -> Result<Option<Identity>, OpenError> {
        let place = |source| OpenError::Io { path: format!("{label}/{TARGET}"), source };
        let file = match disk.open(TARGET, Open::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(place(error)),
        };
        let mut bytes = vec![0; FILE_BYTES_MAX];
        let length = file.read_at(&mut bytes, 0).map_err(place)?;
        bytes.truncate(length);
        Identity::decode(&bytes, label).map(Some)
    }
}

/// Takes the lock of a directory, reads what target it is, and makes an empty one a target.
pub(crate) fn open_or_format(
    disk: &dyn Disk,
    label: &str,
    chunk_bytes: u64,
) -> Result<(Identity, std::sync::Arc<dyn vazao_disk::DiskFile>), OpenError> {
    let place = |source| OpenError::Io { path: label.to_owned(), source };
    let entries = disk.list("").map_err(place)?;
    let is_target = entries.iter().any(|e| e.name == TARGET);
    if !is_target {
        check_empty(disk, label, &entries)?;
    }
    let lock = disk.open(LOCK, Open::Create).map_err(place)?;
    if !lock.try_lock().map_err(place)? {
        return Err(OpenError::InUse { label: label.to_owned() });
    }
    // Read under the lock: another process may just have made it a target.
    if let Some(identity) = Identity::load(disk, label)? {
        if identity.chunk_bytes != chunk_bytes {
            let (found, known) = (identity.chunk_bytes, chunk_bytes);
            return Err(OpenError::ChunkBytes { label: label.to_owned(), found, known });
        }
        return Ok((identity, lock));
    }
    let identity = format(disk, chunk_bytes).map_err(place)?;
    Ok((identity, lock))
}

/// Refuses a directory that has anything but the beginnings of a target in it.
fn check_empty(disk: &dyn Disk, label: &str, entries: &[DiskEntry]) -> Result<(), OpenError> {
    let place = |source| OpenError::Io { path: label.to_owned(), source };
    for entry in entries {
        let is_ours = match entry.name.as_str() {
            LOCK | STATE | TARGET_NEW | LOST_AND_FOUND | incarnation::FILE | boot::FILE => true,
            OBJECTS => disk.list(OBJECTS).map_err(place)?.is_empty(),
            _ => false,
        };
        if !is_ours {
            return Err(OpenError::NotEmpty { label: label.to_owned(), found: entry.name.clone() });
        }
    }
    Ok(())
}

/// Makes an empty directory a target. TARGET comes last: without it the rest counts as nothing.
fn format(disk: &dyn Disk, chunk_bytes: u64) -> io::Result<Identity> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|e| io::Error::other(e.to_string()))?;
    let identity = Identity { uuid: u128::from_le_bytes(uuid), chunk_bytes, ..Identity::default() };
    make(disk, &identity)?;
    Ok(identity)
}

fn make(disk: &dyn Disk, identity: &Identity) -> io::Result<()> {
    Epochs::format(disk)?;
    disk.create_directory(OBJECTS)?;
    disk.sync_directory(OBJECTS)?;
    disk.sync_directory("")?;
    identity.store(disk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Identity {
        Identity {
            uuid: 0xABCD,
            chunk_bytes: 1 << 30,
            cluster_id: 7,
            node: 2,
            id: TargetId(5),
            has_groups: false,
            replaces: 0,
        }
    }

    #[test]
    fn an_identity_is_read_back() {
        for (has_groups, replaces, format) in
            [(false, 0, "format 1"), (true, 0, "format 2"), (true, 9, "format 2")]
        {
            let identity = Identity { has_groups, replaces, ..example() };
            assert!(identity.encode().contains(format));
            assert_eq!(Identity::decode(identity.encode().as_bytes(), "/d").expect("valid"), identity);
        }
    }

    #[test]
    fn another_format_is_named_even_when_the_rest_is_unknown() {
        let refused = Identity::decode(b"vazao target\nformat 3\nnew things\n", "/d").expect_err("newer");
        assert!(refused.to_string().contains("format 3"), "{refused}");
    }

    /// A flipped bit in the format's number made it another format, and the operator was sent for another version.
    #[test]
    fn a_flipped_bit_is_damage_and_never_another_format() {
        let sound = example().encode().into_bytes();
        for (at, bit) in (0..sound.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << bit;
            let refused = Identity::decode(&bytes, "/d").expect_err("damaged");
            assert!(matches!(refused, OpenError::Damaged { .. }), "byte {at}, bit {bit}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_refused(at in 0usize..100, byte: u8) {
            let mut bytes = example().encode().into_bytes();
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            prop_assert!(Identity::decode(&bytes, "/d").is_err());
        }
    }
}
