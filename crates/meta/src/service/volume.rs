//! What a volume begins with, and which versions of it this program reads.

use super::context::Context;
use super::fault::Outcome;
use super::random::Random;
use crate::engine::{Engine, Writes};
use crate::schema::keys;
use crate::schema::records::{DirectoryTimes, InodeRecord, TimeRecord, VolumeRecord};
use prost::Message;
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{Code, FileKind};
use vazao_wire::service::Fault;

/// Version of keys and records while there are no placement groups, which older programs do not know.
const SCHEMA_WITHOUT_GROUPS: u32 = 1;

/// While each group is a target alone: programs that know no others would take every member for a current one.
const SCHEMA_OF_TARGETS_ALONE: u32 = 2;

/// The latest version.
const SCHEMA: u32 = 3;

/// An engine's power epoch as answers have it: few bytes, which differ as good as always.
pub(super) fn start_of(power_epoch: u64) -> u32 {
    if power_epoch == 0 { 0 } else { ((power_epoch >> 32) as u32 ^ power_epoch as u32).max(1) }
}

/// The volume's record.
pub(super) fn open_volume(engine: &dyn Engine) -> Outcome<VolumeRecord> {
    let bytes = engine.begin().get(keys::VOLUME)?.ok_or_else(|| {
        let text = "the metadata directory holds no volume record: its checkpoint or log is lost. Put the directory \
                    aside and restore it from a backup; only if it never held a volume, begin with an empty one";
        Fault::new(Code::Corrupt, text)
    })?;
    let volume = VolumeRecord::decode(bytes.as_slice())
        .map_err(|e| Fault::new(Code::Corrupt, format!("volume record: {e}")))?;
    if !(SCHEMA_WITHOUT_GROUPS..=SCHEMA).contains(&volume.schema) {
        let text = format!(
            "metadata of schema {}: this program reads {SCHEMA_WITHOUT_GROUPS} to {SCHEMA}; use the version of vazao \
             that wrote it, or a newer one",
            volume.schema
        );
        return Err(Fault::new(Code::VersionMismatch, text));
    }
    Ok(volume)
}

/// There are placement groups from now on; `with_epochs`: whose members have to agree.
pub(crate) fn note_groups(context: &mut Context<'_>, with_epochs: bool) -> Outcome<()> {
    let schema = schema_of_groups(with_epochs);
    let volume = context.read::<VolumeRecord>(keys::VOLUME, "volume")?;
    if let Some(volume) = volume.filter(|volume| volume.schema < schema) {
        context.write(keys::VOLUME.to_vec(), &VolumeRecord { schema, ..volume });
    }
    Ok(())
}

/// The first schema that has such groups.
pub(crate) fn schema_of_groups(with_epochs: bool) -> u32 {
    if with_epochs { SCHEMA } else { SCHEMA_OF_TARGETS_ALONE }
}

/// What a new volume begins with: its record and the root directory.
pub(super) fn new_volume(random: &Random, clock: &dyn Clock) -> Outcome<Writes> {
    let name_key = [random.number()?.to_le_bytes(), random.number()?.to_le_bytes()].concat();
    let volume = VolumeRecord { cluster_id: random.number()?, name_key, schema: SCHEMA_WITHOUT_GROUPS };
    let now_ns = clock.wall_ns();
    let now =
        TimeRecord { seconds: (now_ns / 1_000_000_000) as i64, nanoseconds: (now_ns % 1_000_000_000) as u32 };
    let root = InodeRecord {
        kind: FileKind::Directory.number(),
        mode: 0o755,
        links: 1,
        parent: ROOT.0,
        accessed: Some(now),
        changed: Some(now),
        version: 1,
        ..InodeRecord::default()
    };
    let times = DirectoryTimes { modified: Some(now), changed: Some(now), version: now_ns };
    Ok(Writes::from([
        (keys::VOLUME.to_vec(), Some(volume.encode_to_vec())),
        (keys::inode(ROOT), Some(root.encode_to_vec())),
        (keys::times(ROOT), Some(times.encode_to_vec())),
    ]))
}
