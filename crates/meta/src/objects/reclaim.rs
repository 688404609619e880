//! The reclaimer: has data servers remove the objects of files that are gone.
//!
//! A reclaim record stays until every server has confirmed the removal; a later tick retries servers that are down.
//! Of a placement group with several members the primary is asked: it answers when all current ones have removed them.
//! Those that lag remove them when they catch up.
//! Nothing is removed before the record is durable: otherwise power loss could bring back a file whose objects are
//! gone.

use crate::engine::Pair;
use crate::schema::keys;
use crate::schema::records::{ReclaimObject, ReclaimRecord};
use crate::service::MetaService;
use crate::service::fault::Outcome;
use parking_lot::Mutex;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, submit};
use vazao_wire::{op, proto};

/// Files in one round: their objects fit into one message a target.
const FILES_AT_ONCE: usize = 128;

/// Rounds in one tick, so that it ends.
const ROUNDS_MAX: usize = 16;

/// How long a target may take to remove the objects of one round.
const DEADLINE_NS: u64 = 10_000_000_000;

/// Start of the next round. Records whose servers are down must not starve the others.
#[derive(Debug, Default)]
pub(crate) struct Reclaimer {
    cursor: Mutex<Option<Vec<u8>>>,
    /// Targets that did not confirm last time: only changes are reported.
    silent: Mutex<BTreeSet<TargetId>>,
}

impl Reclaimer {
    /// Notes whether a target confirmed; true when that has changed.
    fn note(&self, target: TargetId, confirmed: bool) -> bool {
        let mut silent = self.silent.lock();
        if confirmed { silent.remove(&target) } else { silent.insert(target) }
    }
}

struct File {
    key: Vec<u8>,
    record: ReclaimRecord,
    /// Which target was asked to remove each of its objects.
    asked: Vec<Holder>,
}

/// Who removes an object.
#[derive(Clone, Debug)]
enum Holder {
    /// Its group, or the target of it, is none of this cluster.
    NoGroup,
    NoTarget,
    /// It cannot be asked at present.
    Away,
    /// The primary of its group, and where that is served.
    At(TargetId, String),
}

/// One tick's work.
pub(crate) fn run(service: &MetaService, transport: &dyn Transport) -> Outcome<()> {
    for _ in 0..ROUNDS_MAX {
        let files = next_files(service)?;
        let last_round = service.reclaimer().cursor.lock().is_none();
        if !files.is_empty() {
            service.engine().sync()?;
            let removed = remove_objects(service, transport, &files)?;
            write_back(service, &files, &removed)?;
        }
        if last_round {
            break;
        }
    }
    Ok(())
}

/// The next records from the cursor on, which wraps around at the end. Unreadable records are skipped.
fn next_files(service: &MetaService) -> Outcome<Vec<File>> {
    let mut cursor = service.reclaimer().cursor.lock();
    let mut range = keys::reclaims();
    if let Some(next) = cursor.take() {
        range.start = next;
    }
    let (read, _) = service.transact(None, |context| {
        let mut pairs: Vec<Pair> = Vec::new();
        let visited = context
            .visit(&range, FILES_AT_ONCE, &mut |key, value| pairs.push((key.to_vec(), value.to_vec())));
        Ok((pairs, visited))
    })?;
    let (pairs, visited) = read?;
    if let Some((last, _)) = pairs.last() {
        range.start = keys::after(last);
    }
    *cursor = match visited {
        Ok(FILES_AT_ONCE) => Some(range.start),
        Ok(_) => None,
        Err(fault) if fault.code == Code::Corrupt => {
            tracing::debug!(%fault, "reclaim records cannot be read");
            let next = service.engine().next_reachable(&range.start, &range.end);
            Some(next.max(keys::after(&range.start))).filter(|next| *next < range.end)
        }
        Err(fault) => return Err(fault),
    };
    let decode = |(key, value): Pair| match ReclaimRecord::decode(value.as_slice()) {
        Ok(record) => {
            let asked = record.objects.iter().map(|object| holder(service, object)).collect();
            Some(File { key, record, asked })
        }
        Err(error) => {
            tracing::debug!(%error, "{} cannot be read", keys::described(&key));
            None
        }
    };
    Ok(pairs.into_iter().filter_map(decode).collect())
}

/// Sends to all targets in parallel; returns those that confirmed the removal. Each target has a message of its own: a
/// server refuses one that names a target which failed or is missing, and nothing on its other targets would be removed
/// for as long as that lasts.
fn remove_objects(
    service: &MetaService,
    transport: &dyn Transport,
    files: &[File],
) -> Outcome<BTreeSet<TargetId>> {
    let mut by_target: BTreeMap<TargetId, (String, Vec<proto::ObjectAddress>)> = BTreeMap::new();
    for file in files {
        for (object, holder) in file.record.objects.iter().zip(&file.asked) {
            if let Holder::At(target, address) = holder {
                let named = object_address(file, object, *target)?;
                by_target.entry(*target).or_insert_with(|| (address.clone(), Vec::new())).1.push(named);
            }
        }
    }
    let deadline_ns = transport.clock().now_ns().saturating_add(DEADLINE_NS);
    let calls: Vec<_> = by_target
        .into_iter()
        .map(|(target, (address, objects))| {
            let count = objects.len() as u64;
            let request = proto::RemoveObjectsRequest { objects };
            let call = submit::<op::RemoveObjects>(transport, &address, &request, &[], deadline_ns);
            (target, address, count, call)
        })
        .collect();
    let mut done = BTreeSet::new();
    for (target, address, count, call) in calls {
        match call.wait() {
            Ok(_) => {
                service.metrics().objects_removed.add(count);
                if service.reclaimer().note(target, true) {
                    tracing::info!(target_id = target.0, server = address, "objects are removed again");
                }
                done.insert(target);
            }
            Err(fault) if service.reclaimer().note(target, false) => {
                let target_id = target.0;
                tracing::warn!(target_id, server = address, error = %fault, "objects stay until it answers");
            }
            Err(_) => {}
        }
    }
    Ok(done)
}

/// Who is to remove an object now. To be asked once for a round: the primary may change meanwhile.
fn holder(service: &MetaService, object: &ReclaimObject) -> Holder {
    let now_ns = service.clock().now_ns();
    let cluster = service.cluster();
    match cluster.primary_of(GroupId(object.group)) {
        None => Holder::NoGroup,
        Some(target) if !cluster.knows(target) => Holder::NoTarget,
        Some(target) => match cluster.address_of(target, now_ns) {
            Some(address) => Holder::At(target, address.to_owned()),
            None => Holder::Away,
        },
    }
}

fn object_address(file: &File, object: &ReclaimObject, target: TargetId) -> Outcome<proto::ObjectAddress> {
    let number = |index| {
        keys::number(&file.key, index).ok_or_else(|| Fault::new(Code::Corrupt, "reclaim record's key"))
    };
    Ok(proto::ObjectAddress {
        target: target.0,
        inode: number(0)?,
        generation: u32::try_from(number(1)?).unwrap_or(u32::MAX),
        slot: object.slot,
        group: GroupId(object.group).shared().0,
        ..Default::default()
    })
}

/// Removes the records of finished files, and keeps what is left of the others.
fn write_back(service: &MetaService, files: &[File], removed: &BTreeSet<TargetId>) -> Outcome<()> {
    let is_done = |holder: &Holder| match holder {
        Holder::NoGroup | Holder::Away => false,
        Holder::NoTarget => true,
        Holder::At(target, _) => removed.contains(target),
    };
    let (done, _) = service.transact(None, |context| {
        for file in files {
            let objects = file.record.objects.iter().zip(&file.asked);
            let left: Vec<ReclaimObject> =
                objects.filter(|(_, holder)| !is_done(holder)).map(|(object, _)| *object).collect();
            if left.is_empty() {
                context.delete(file.key.clone());
            } else if left.len() < file.record.objects.len() {
                context.write(file.key.clone(), &ReclaimRecord { objects: left });
            }
        }
        Ok(())
    })?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_target_is_reported_once_and_once_more_when_it_answers() {
        let reclaimer = Reclaimer::default();
        let heard = [true, false, false, false, true, true, false]
            .map(|answered| reclaimer.note(TargetId(1), answered));
        assert_eq!(heard, [false, true, false, false, true, false, true]);
    }
}
