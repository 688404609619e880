//! An object that a member has lost is made anew there from another copy: sent as to a member that lags, piece by
//! piece, and not read until it has everything. A change of it waits for that.

use super::change::{Body, Change, WHOLE, behind};
use super::restore::{BLOCK, BLOCK_NS, no_copy, sound_blocks};
use super::{Key, even};
use crate::health::damage::Place;
use crate::service::{DataService, fault};
use crate::targets::Target;
use crate::targets::fetching::Source;
use std::ops::Range;
use std::sync::Arc;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, ObjectId, TargetId};
use vazao_wire::op::ObjectRanges;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::call;

/// Ranges of data that are looked at whether an object is new.
const RANGES_MAX: u32 = 1024;

/// Bytes of a missing object that are sent under one lock, and for one request.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: u64 = 8;

impl DataService {
    /// Sends some pieces of an object that another member lacks, from `offset` on.
    pub(super) fn send_missing(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        object: ObjectId,
        offset: u64,
    ) -> Result<proto::RepairObjectResponse, Fault> {
        if offset == 0 {
            self.compare_ends(key, other, target, object)?;
        }
        let mut at = offset;
        for _ in 0..PIECES {
            if self.compare_piece(key, other, target, object, at..at + PIECE_BYTES)?.is_none() {
                let _held = self.lock_blocks(object, &[WHOLE])?;
                let (exists, length) = target.extent(object).map_err(fault)?;
                if length <= at {
                    return Ok(proto::RepairObjectResponse { exists, length, next: 0 });
                }
            }
            at += PIECE_BYTES;
        }
        Ok(proto::RepairObjectResponse { exists: true, length: 0, next: at })
    }

    /// Why an object cannot be changed that is not here, and is to exist. Where another member that counts has it, this
    /// one has lost it, and makes it anew.
    pub(super) fn absent(&self, key: Key, target: &Arc<Target>, object: ObjectId) -> Fault {
        let not_found = || Fault::new(Code::NotFound, format!("object {object}"));
        self.lost_beside(key, target, object).unwrap_or_else(not_found)
    }

    /// An object is not here that another member that counts has, or may have.
    pub(super) fn lost_beside(&self, key: Key, target: &Arc<Target>, object: ObjectId) -> Option<Fault> {
        if target.restores.check_finished(object).is_err() {
            return Some(being_made_anew(object, key.0));
        }
        let others = match self.view(key) {
            Ok(view) => view.others,
            Err(fault) => return Some(fault),
        };
        for other in others {
            match self.ask_blocks(key, other, object, 0..0) {
                Ok(theirs) if theirs.exists && !self.is_uneven(key, object) => {
                    let _ = target.note_reported(object, Place::Missing);
                    return Some(being_made_anew(object, key.0));
                }
                Ok(theirs) if theirs.exists => return Some(being_made_anew(object, key.0)),
                Ok(_) => {}
                Err(fault) => return Some(Fault::new(Code::Unavailable, fault.to_string())),
            }
        }
        None
    }

    /// A member does not have an object that this one has, which it makes anew then.
    pub(super) fn lost_at(&self, change: &Change, other: TargetId) -> Fault {
        let object = change.address().map(crate::ops::object);
        let Some(Ok(object)) = object else { return Fault::new(Code::BadRequest, "a change of no object") };
        self.say_missing(other, object);
        being_made_anew(object, other)
    }

    /// Before what is uneven in an object is evened out: a member that has lost it, this one or another, makes it anew
    /// first, or the bytes that are sent would pass for all of it. Where there is nothing but these, in `sent`, it is
    /// new, or removed, and not lost. Returns whether it is here.
    pub(super) fn check_none_lost(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
        sent: &[Range<u64>],
    ) -> Result<bool, Fault> {
        let exists = target.extent(object).map_err(fault)?.0;
        for other in self.view(key)?.others {
            if self.ask_blocks(key, other, object, 0..0)?.exists == exists {
                continue;
            }
            let of_whole = if exists {
                target.ranges(object, 0, RANGES_MAX).map_err(fault)?
            } else {
                let (transport, server) = self.way_to(other)?;
                let address = Some(even::address(object));
                let request = proto::ObjectRangesRequest { object: address, offset: 0, limit: RANGES_MAX };
                call::<ObjectRanges>(transport, &server, &request, transport.clock().now_ns() + BLOCK_NS)?
            };
            if !has_more(&of_whole, sent) {
                continue;
            }
            if exists {
                self.say_missing(other, object);
                return Err(being_made_anew(object, other));
            }
            let _ = target.note_reported(object, Place::Missing);
            return Err(being_made_anew(object, key.0));
        }
        Ok(exists)
    }

    /// Refuses to change an object that is made anew here where no other member counts any more, or from one that does
    /// not: the one that it is fetched from would lack the change, and could neither be sent it nor fetched from.
    pub(super) fn check_source(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
        change: &Change,
    ) -> Result<(), Fault> {
        let Err(unfinished) = target.restores.check_finished(object) else { return Ok(()) };
        let is_fetched = target.restores.fetching.sources(object).is_some();
        match matches!(change.body, Body::Remove(_)) || !is_fetched && !self.view(key)?.others.is_empty() {
            true => Ok(()),
            false => Err(unfinished),
        }
    }

    /// Makes an object anew that is missing here. False: it is there.
    pub(super) fn make_anew(&self, key: Key, target: &Arc<Target>, object: ObjectId) -> Result<bool, Fault> {
        if !target.is_missing(object).map_err(fault)? {
            return Ok(false);
        }
        let view = self.view(key)?;
        let lagging = match view.is_primary {
            true if self.source_that_counts(key, object)?.is_none() => {
                Some(self.source_that_lags(key, target, object)?)
            }
            // It is to lead, as the process before it did.
            false if view.primary == Some(key.0) => return Err(being_made_anew(object, key.0)),
            _ => None,
        };
        // Before it is there. Of what is fetched from one that lags, or was, FETCHING says so.
        if lagging.is_none() && target.restores.fetching.sources(object).is_none() {
            target.begin_object(object)?;
        }
        target.cache.get(object).forget_unnamed(target);
        let mut at = 0;
        loop {
            let sent = match self.view(key)?.is_primary {
                true => self.fetch_missing(key, target, object, at, lagging.as_ref())?,
                false => self.ask_repair(key, object, at, true)?,
            };
            if sent.next != 0 {
                at = sent.next;
                continue;
            }
            let here = target.extent(object).map_err(fault)?;
            if !here.0 {
                target.end_fetching(object)?;
                target.restores.end_object(object);
                return Err(no_copy(object));
            }
            // Also where the source has lost it meanwhile: a part of it is no object.
            if !sent.exists || here.1 < sent.length {
                let text = format!("object {object}: {} of its {} bytes are here", here.1, sent.length);
                return Err(Fault::new(Code::Unavailable, text));
            }
            // As durable as it is elsewhere.
            target.sync(object).map_err(fault)?;
            target.end_fetching(object)?;
            // Removed meanwhile: then it is no more on the list of those that are made anew, either.
            if target.restores.end_object(object) {
                target.restores.count_object();
                target.damage.remove((object, Place::Missing));
                tracing::warn!(target_id = key.0.0, %object, "a missing object was made anew from a copy");
            }
            if lagging.is_some() {
                self.say_fetched(key, object);
            }
            return Ok(true);
        }
    }

    /// A member beside this one that counts and has an object. Errors: none has, of those that answer.
    fn source_that_counts(&self, key: Key, object: ObjectId) -> Result<Option<TargetId>, Fault> {
        let mut unknown = None;
        for other in self.view(key)?.others {
            match self.ask_blocks(key, other, object, 0..0) {
                Ok(theirs) if theirs.exists && !theirs.unfinished => return Ok(Some(other)),
                Ok(_) => {}
                Err(fault) => unknown = Some(fault),
            }
        }
        unknown.map_or(Ok(None), Err)
    }

    /// The same for the primary's own: some pieces from another member, one that counts or `lagging`.
    fn fetch_missing(
        &self,
        key: Key,
        target: &Arc<Target>,
        object: ObjectId,
        offset: u64,
        lagging: Option<&Source>,
    ) -> Result<proto::RepairObjectResponse, Fault> {
        let source = match lagging {
            Some(source) => source.target,
            None => match self.source_that_counts(key, object)? {
                Some(source) => source,
                None => return Ok(proto::RepairObjectResponse::default()),
            },
        };
        let mut at = offset;
        for _ in 0..PIECES {
            // The end is not known here before the last piece.
            let _held = self.lock_blocks(object, &[behind(at)])?;
            let leads_since = self.leadership(key)?;
            if self.is_stopped() || target.restores.check_finished(object).is_ok() {
                // Removed meanwhile, also where the source has it still.
                return Err(Fault::new(
                    Code::Unavailable,
                    format!("object {object} is not made anew any more"),
                ));
            }
            let theirs = self.ask_blocks(key, source, object, 0..0)?;
            if !theirs.exists || theirs.unfinished {
                return Err(being_made_anew(object, source));
            }
            let length = theirs.length;
            if at == 0 {
                self.make_here((key, leads_since), object, Vec::new(), at)?;
            }
            if length <= at {
                return Ok(proto::RepairObjectResponse { exists: true, length, next: 0 });
            }
            let piece = at..length.min(at + PIECE_BYTES);
            let here = sound_blocks(target, object, piece.clone())?;
            for (index, offset) in piece.clone().step_by(BLOCK_BYTES).enumerate() {
                let range = offset..piece.end.min(offset + BLOCK);
                let good = match lagging {
                    Some(source) => self.fetched_block(key, source, object, range.clone())?,
                    None => {
                        let read = self.read_of(source, object, range.clone())?;
                        read.ok_or_else(|| no_copy(object))?.bytes
                    }
                };
                let is_last = range.end == length;
                let is_here = here.get(index).and_then(Option::as_ref).is_some_and(|it| it.bytes == good);
                let is_hole = good.iter().all(|byte| *byte == 0) && here.get(index).is_none();
                if !is_here && (!is_hole || is_last) {
                    self.make_here((key, leads_since), object, good, offset)?;
                }
            }
            at += PIECE_BYTES;
        }
        Ok(proto::RepairObjectResponse { exists: true, length: 0, next: at })
    }

    /// Writes into an object here, as the primary since then; of no bytes it makes it.
    fn make_here(
        &self,
        (key, leads_since): (Key, u64),
        object: ObjectId,
        bytes: Vec<u8>,
        offset: u64,
    ) -> Result<(), Fault> {
        let checksums = vazao_model::checksum::piece_checksums(offset, &bytes);
        let object = Some(even::address(object));
        let write = proto::WriteRequest { object, offset, checksums, ..Default::default() };
        let deadline_ns = self.shell.clock().now_ns() + BLOCK_NS;
        let change = Change { body: Body::Write(write), bytes };
        let view = self.view(key)?;
        self.check_leads(key, &view, leads_since)?;
        self.apply(&change, key, view.epoch, deadline_ns).map(drop)
    }
}

/// Whether an object has data outside of these bytes, whole blocks.
fn has_more(of: &proto::ObjectRangesResponse, sent: &[Range<u64>]) -> bool {
    let is_sent = |data: &proto::DataRange| {
        let (mut at, end) = (data.offset, data.offset + data.length);
        while at < end {
            let covers = |range: &&Range<u64>| range.start / BLOCK * BLOCK <= at && at < range.end;
            let Some(range) = sent.iter().find(covers) else { return false };
            at = range.end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
        }
        true
    };
    !of.complete || !of.ranges.iter().all(is_sent)
}

pub(super) fn being_made_anew(object: ObjectId, target: TargetId) -> Fault {
    let text = format!("object {object}: {target} has lost it, and makes it anew from another copy");
    Fault::new(Code::Unavailable, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_with_data_beside_what_is_sent_is_not_new() {
        let of = |ranges: &[(u64, u64)]| proto::ObjectRangesResponse {
            exists: true,
            length: 0,
            ranges: ranges.iter().map(|&(offset, length)| proto::DataRange { offset, length }).collect(),
            complete: true,
        };
        let sent = [100..300, 5 * BLOCK..7 * BLOCK];
        assert!(!has_more(&of(&[]), &sent), "it has none");
        assert!(!has_more(&of(&[(0, BLOCK), (5 * BLOCK, 2 * BLOCK)]), &sent), "the blocks that were touched");
        assert!(has_more(&of(&[(0, BLOCK + 1)]), &sent));
        assert!(has_more(&of(&[(4 * BLOCK, 3 * BLOCK)]), &sent));
        assert!(!has_more(&of(&[(0, 9 * BLOCK)]), &[WHOLE]), "it is removed");
        assert!(has_more(&proto::ObjectRangesResponse { complete: false, ..of(&[]) }, &sent));
    }
}
