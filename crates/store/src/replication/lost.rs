//! An object that the primary lacks, and a member has that lags: it was removed while that one was away, or the primary
//! has lost it while no server ran. The servers cannot tell these apart; the metadata service can, whose record of the
//! file says which objects it has.
//!
//! - What was removed is removed there, too.
//! - What is lost is fetched from a member that has all of it: one that was current beside the process before this one,
//!   has lost nothing since, and this process has not changed the object. It is *unfinished* from then on, also for the
//!   next process ([`Fetching`](crate::targets::fetching::Fetching)).
//! - Else the other one's copy may be an older one. It is kept, and the member does not count: a person decides.
//!
//! While members lag behind a process that has started and gone on alone, no write makes an object that the file has
//! already: what it does not bring would be zeros, and pass for the object.

use super::change::{Change, WHOLE};
use super::missing::being_made_anew;
use super::{Body, Key};
use crate::health::damage::Place;
use crate::service::{DataService, fault};
use crate::targets::Target;
use crate::targets::fetching::Source;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use vazao_model::{Code, ObjectId, TargetId};
use vazao_wire::op::GetAttributes;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::call;

/// How long the metadata service may take to say what a file has.
const ANSWER_NS: u64 = 2_000_000_000;

/// Changed objects of a group that are kept; of more of them any may have changed.
const CHANGED_MAX: usize = 16 << 10;

/// The objects that a process has changed since it leads a group; `None`: it may be any.
#[derive(Debug)]
pub(super) struct Changed(Option<HashSet<ObjectId>>);

impl Changed {
    /// None.
    pub(super) fn new() -> Changed {
        Changed(Some(HashSet::new()))
    }

    pub(super) fn add(&mut self, object: ObjectId) {
        if let Some(objects) = &mut self.0 {
            objects.insert(object);
        }
        self.0 = self.0.take().filter(|objects| objects.len() <= CHANGED_MAX);
    }

    /// `None`: that is not known.
    fn has(&self, object: ObjectId) -> Option<bool> {
        self.0.as_ref().map(|objects| objects.contains(&object))
    }
}

/// What a member has kept of what it had as the primary's process began to lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Has {
    All,
    /// It was not asked yet.
    Unknown,
    Less,
}

impl DataService {
    /// Where the metadata service is, that says what files have.
    pub(crate) fn set_metadata(&self, address: &str) {
        let mut known = self.replication.metadata.lock();
        if *known != address {
            address.clone_into(&mut known);
        }
    }

    /// Whether a file has bytes in an object, so that it has to be there. Errors: that cannot be told now;
    /// `is_waited_for`: nor is it waited for until the metadata service is connected with.
    fn is_meant(&self, object: ObjectId, is_waited_for: bool) -> Result<bool, Fault> {
        let transport = self.replication.transport.get().filter(|_| !self.is_stopped());
        let none = || Fault::new(Code::Unavailable, "this server does not reach the metadata service");
        let transport = transport.ok_or_else(none)?;
        let address = self.replication.metadata.lock().clone();
        if address.is_empty() || is_waited_for && !transport.is_ready(&address) {
            return Err(none());
        }
        let request = proto::GetAttributesRequest { inode: object.inode.0, seat: 0 };
        let until_ns = transport.clock().now_ns() + ANSWER_NS;
        let inode = match call::<GetAttributes>(&**transport, &address, &request, until_ns) {
            Ok(response) => response.inode,
            Err(fault) if matches!(fault.code, Code::NotFound | Code::Stale) => return Ok(false),
            Err(fault) => return Err(Fault::new(Code::Unavailable, fault.to_string())),
        };
        let layout = inode.and_then(|inode| inode.layout);
        Ok(layout.is_some_and(|layout| {
            let slot = layout.groups.get(object.slot as usize);
            let is_written = layout.written_slots & 1u64.checked_shl(object.slot).unwrap_or(0) != 0;
            let is_same = slot == Some(&object.group.0) && layout.generation == object.generation;
            is_same && is_written
        }))
    }

    /// What becomes of objects that a member has which is walked: what this one lacks, and no file has, is removed
    /// there. Those that are lost here; of them those are fetched from now on that can be. Errors: that is not known of
    /// all of them.
    pub(super) fn settle_absent(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        objects: &[ObjectId],
    ) -> Result<Vec<ObjectId>, Fault> {
        let (mut lost, mut new) = (Vec::new(), Vec::new());
        for &object in objects {
            let held = self.lock_blocks(object, &[WHOLE])?;
            if target.restores.check_finished(object).is_err() {
                lost.push(object);
            } else if !target.exists(object).map_err(fault)? {
                drop(held);
                match self.is_meant(object, false)? {
                    true => new.push(object),
                    false => self.remove_there(key, other, target, object)?,
                }
            }
        }
        new.iter().for_each(|object| target.note_missing(*object));
        self.begin_fetching(key, target, &new)?;
        lost.append(&mut new);
        Ok(lost)
    }

    /// Objects that are lost here are fetched from now on, where that can be.
    fn begin_fetching(&self, key: Key, target: &Target, lost: &[ObjectId]) -> Result<(), Fault> {
        let lagging = self.view(key)?.lagging;
        let source = |&(target, _): &(TargetId, u64)| {
            let source = Source { target, had_all: self.leases.had_all(key, target)? };
            Some(source).filter(|source| self.has_kept(key, source) != Has::Less)
        };
        let sources: Vec<Source> = lagging.iter().filter_map(source).collect();
        if sources.is_empty() {
            return Ok(());
        }
        let mut fetched = Vec::new();
        for &object in lost {
            let _held = self.lock_blocks(object, &[WHOLE])?;
            let is_here =
                target.restores.check_finished(object).is_ok() && target.exists(object).map_err(fault)?;
            // What was changed here is newer than what others have.
            if !is_here && !self.has_changed(key, object) {
                fetched.push((object, sources.clone()));
            }
        }
        // No write makes any of them meanwhile: the files have them already.
        target.begin_fetching(&fetched)
    }

    /// Makes an object anew that is lost here. False: it cannot be had now.
    pub(super) fn is_fetched(&self, key: Key, target: &Arc<Target>, object: ObjectId) -> bool {
        let _one = target.restores.one_at_a_time.lock();
        match self.make_anew(key, target, object) {
            Ok(_) => true,
            Err(fault) => {
                tracing::debug!(target_id = key.0.0, %object, %fault, "a lost object cannot be had now");
                false
            }
        }
    }

    /// A member that lags from which an object is fetched that no member has which counts. Errors: none has it whole,
    /// or it cannot be asked now.
    pub(super) fn source_that_lags(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
    ) -> Result<Source, Fault> {
        if !self.is_meant(object, false)? {
            target.end_fetching(object)?;
            target.restores.end_object(object);
            target.damage.remove((object, Place::Missing));
            return Err(super::restore::no_copy(object));
        }
        let sources = target.restores.fetching.sources(object);
        if sources.is_none_or(|sources| sources.iter().all(|it| self.has_kept(key, it) == Has::Less)) {
            self.begin_fetching(key, target, &[object])?;
        }
        let (mut unknown, sources) = (None, target.restores.fetching.sources(object));
        for source in sources.into_iter().flatten() {
            match self.has_kept(key, &source) {
                Has::Less => continue,
                Has::Unknown => unknown = Some(being_made_anew(object, key.0)),
                Has::All => match self.ask_blocks(key, source.target, object, 0..0) {
                    Ok(theirs) if theirs.exists && !theirs.unfinished => return Ok(source),
                    Ok(_) => {}
                    Err(fault) if fault.code == Code::Corrupt => {}
                    Err(fault) => unknown = Some(fault),
                },
            }
        }
        Err(unknown.unwrap_or_else(|| super::restore::no_copy(object)))
    }

    /// A part of a block of an object that is fetched from a member.
    pub(super) fn fetched_block(
        &self,
        key: Key,
        source: &Source,
        object: ObjectId,
        range: Range<u64>,
    ) -> Result<Vec<u8>, Fault> {
        if self.has_kept(key, source) != Has::All {
            return Err(being_made_anew(object, key.0));
        }
        let bytes = self.block_of_lagging(key, source.target, object, range.start)?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes),
            false => Err(super::restore::no_copy(object)),
        }
    }

    /// Others that count may lack an object as well that was fetched.
    pub(super) fn say_fetched(&self, key: Key, object: ObjectId) {
        let others = self.view(key).map(|view| view.others).unwrap_or_default();
        for other in others {
            if self.ask_blocks(key, other, object, 0..0).is_ok_and(|theirs| !theirs.exists) {
                self.say_missing(other, object);
            }
        }
    }

    /// What a member has kept that lags since the process before this one was the primary.
    fn has_kept(&self, key: Key, source: &Source) -> Has {
        let Source { target, had_all } = source;
        let Ok(view) = self.view(key) else { return Has::Unknown };
        let process = view.lagging.iter().find(|(lagging, _)| lagging == target).map(|(_, process)| *process);
        let is_same = self.leases.lags_since(key, *target) == Some(had_all.since);
        // A disk that fails may have lost what it had answered, and take no note of that, either.
        let (Some(process), true, false) = (process, is_same, self.leases.was_out(key, *target)) else {
            return Has::Less;
        };
        let table = self.replication.table.lock();
        match table.led.get(&key).and_then(|led| led.lagging.kept.get(target)) {
            Some((of, from)) if *of == process => match *from != 0 && *from <= had_all.run {
                true => Has::All,
                false => Has::Less,
            },
            _ => Has::Unknown,
        }
    }

    /// Whether an object may have changed since this process leads.
    fn has_changed(&self, key: Key, object: ObjectId) -> bool {
        let table = self.replication.table.lock();
        let Some(led) = table.led.get(&key) else { return true };
        let is_unsettled = led.open.values().chain(led.uneven.values()).any(|it| it.object == object);
        is_unsettled || led.changed.as_ref().and_then(|changed| changed.has(object)).unwrap_or(true)
    }

    /// Refuses a change of an object that is lost here, where members lag that may have it. A sync of one that cannot
    /// be fetched is told that it is not there.
    pub(super) fn check_not_lost(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
        change: &Change,
    ) -> Result<(), Fault> {
        let is_known = {
            let table = self.replication.table.lock();
            let changed = table.led.get(&key).and_then(|led| led.changed.as_ref());
            // What was made here and is gone was removed since.
            changed.is_none_or(|changed| changed.has(object) == Some(true))
        };
        let is_removed = matches!(change.body, Body::Remove(_) | Body::Fence(_));
        if is_known || is_removed || target.exists(object).map_err(fault)? || !self.is_meant(object, true)? {
            return Ok(());
        }
        target.note_missing(object);
        let lagging = self.view(key)?.lagging;
        let may_have = |&(target, _): &(TargetId, u64)| {
            let had_all = self.leases.had_all(key, target);
            had_all.is_some_and(|had_all| self.has_kept(key, &Source { target, had_all }) != Has::Less)
        };
        match (!self.has_changed(key, object) && lagging.iter().any(may_have), &change.body) {
            (true, _) => Err(being_made_anew(object, key.0)),
            (false, Body::Sync(_)) => Ok(()),
            (false, _) => Err(super::restore::no_copy(object)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{GroupId, InodeId};

    #[test]
    fn of_more_changed_objects_than_are_kept_none_is_known_to_be_as_it_was() {
        let object = |inode: usize| ObjectId {
            inode: InodeId(inode as u64),
            generation: 1,
            slot: 0,
            group: GroupId(300),
        };
        let mut changed = Changed::new();
        (0..CHANGED_MAX).for_each(|inode| changed.add(object(inode)));
        assert_eq!((changed.has(object(1)), changed.has(object(CHANGED_MAX))), (Some(true), Some(false)));
        changed.add(object(CHANGED_MAX));
        assert_eq!((changed.has(object(1)), changed.has(object(CHANGED_MAX + 9))), (None, None));
    }
}
