//! Damage of one copy is repaired from another one, where it lies.
//!
//! - What a target knows to be damaged is taken up place by place, by the member that has it: from reads, from scrubs,
//!   from reports of clients. Another member asks the primary; the primary asks the others itself.
//! - A block is compared and replaced under the primary's lock of it, so that no change comes in between, and only
//!   where it fails its checksum ([`restore_block`](crate::targets::Target::restore_block)), by bytes that match
//!   theirs.
//! - A missing object is sent as to a member that lags, piece by piece, and not read until it has everything.
//! - Where no other copy is good the damage stays, and is reported as that of a file with one copy.
//!
//! A disk that is bad as a whole makes no storm: one place at a time, with a pause, and later and later where it fails.

use super::change::{Body, Change, WHOLE, behind};
use super::{Key, even};
use crate::health::damage::Place;
use crate::health::restore::SoundBlock;
use crate::health::scrub::Repair;
use crate::object::Mode;
use crate::object::attempts::{Passed, Terms};
use crate::service::{DataService, fault, read_blocking};
use crate::targets::Target;
use prost::Message;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_model::checksum::{crc32c, first_mismatch, piece_count};
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, GroupId, ObjectId, TargetId};
use vazao_wire::op::{ObjectRanges, Read, RepairObject, RestoreBlock};
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{call, submit};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How long another member may take for a block, and the primary for what it is asked, which may be several of these.
const BLOCK_NS: u64 = 2_000_000_000;
const REPAIR_NS: u64 = 3 * BLOCK_NS;

/// Between two repairs of a scrub, on one target. Other damage is repaired once in a turn of [`crate::Peers`].
const PAUSE: Duration = Duration::from_millis(50);

/// Ranges of data that are looked at whether an object is new.
const RANGES_MAX: u32 = 1024;

/// Bytes of a missing object that are sent under one lock, and for one request.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: u64 = 8;

impl DataService {
    /// Repairs a place of each target that has damage and other copies. It waits for nothing: threads do.
    pub(crate) fn repair_all(&self) {
        if self.is_stopped() {
            return;
        }
        let now_ns = self.shell.clock().now_ns();
        for target in self.targets.iter() {
            let has_copies = |object: ObjectId| self.has_copies(target.id(), object.group);
            let Some((object, place)) = target.damage.next_to_repair(now_ns, has_copies) else { continue };
            let target = Arc::clone(target);
            let repair = move |service: &DataService| {
                let Some(_one) = target.restores.one_at_a_time.try_lock() else { return };
                if let Err(fault) = service.repair_place(&target, object, place) {
                    tracing::debug!(target_id = target.id().0, %object, ?place, %fault, "not repaired yet");
                    target.damage.put_off((object, place), service.shell.clock().now_ns());
                }
            };
            if self.options.inline {
                repair(self);
                continue;
            }
            let service = self.replication.service.get().and_then(Weak::upgrade);
            if let (Some(turn), Some(service)) = (self.replication.pool.reserve(0), service) {
                turn.submit(move || repair(&service));
            }
        }
    }

    /// What a scrub has its findings repaired by.
    pub(crate) fn repair_of_scrub(&self) -> Repair {
        let service = self.replication.service.get().cloned();
        Box::new(move |target, object, place| {
            let service = service.as_ref().and_then(Weak::upgrade);
            let gone = || Fault::new(Code::Unavailable, "the data server is stopping");
            let service = service.filter(|service| !service.is_stopped()).ok_or_else(gone)?;
            let _one = target.restores.one_at_a_time.lock();
            let is_repaired = service.repair_place(target, object, place)?;
            if service.shell.clock().can_wait() && !service.options.inline {
                service.shell.clock().sleep(PAUSE);
            }
            Ok(is_repaired)
        })
    }

    fn has_copies(&self, target: TargetId, group: GroupId) -> bool {
        self.agreed(group) == Some((target, group))
    }

    /// Repairs a place. False: it is sound. Errors: there is no other copy, none of them is good, or none can be had
    /// at the moment.
    fn repair_place(&self, target: &Arc<Target>, object: ObjectId, place: Place) -> Result<bool, Fault> {
        target.check()?;
        if !self.has_copies(target.id(), object.group) {
            return Err(no_copy(object));
        }
        let key = (target.id(), object.group);
        let counts =
            self.leases.record(key).is_some_and(|record| record.current().any(|it| it.target == key.0));
        let view = self.view(key)?;
        if !counts || view.others.is_empty() {
            return Err(no_copy(object));
        }
        match place {
            // Of a file that cannot be used at all it is not known what in it is good.
            Place::Chunk(_) => Err(no_copy(object)),
            Place::Block(block) => {
                let offset = block.saturating_mul(BLOCK);
                if is_block_sound(target, object, offset)? {
                    return Ok(false);
                }
                if view.is_primary {
                    let _held = self.lock_piece(target, object, offset..offset + BLOCK)?;
                    return match self.restore_own(key, target, object, offset, None)? {
                        true => Ok(true),
                        false => Err(no_copy(object)),
                    };
                }
                self.ask_repair(key, object, offset, false)?;
                match is_block_sound(target, object, offset)? {
                    true => Ok(true),
                    false => Err(no_copy(object)),
                }
            }
            Place::Missing => self.make_anew(key, target, object),
        }
    }

    /// Locks a piece of an object, which begins with a block; where the object ends in it or before, everything behind
    /// as well: a change that moves the end would make the same block look longer on one member.
    pub(super) fn lock_piece(
        &self,
        target: &Target,
        object: ObjectId,
        piece: Range<u64>,
    ) -> Result<super::locks::Held<'_>, Fault> {
        let (start, end) = (piece.start, piece.end);
        let held = self.lock_blocks(object, &[piece])?;
        if target.extent(object).map_err(fault)?.1 >= end {
            return Ok(held);
        }
        drop(held);
        self.lock_blocks(object, &[behind(start)])
    }

    /// Blocks of an object here, which the caller has locked as the primary: those that are damaged repaired from other
    /// members than `except`. `None`: no copy of the block is good. Errors: also that the object is being made anew.
    pub(super) fn repaired_blocks(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
        range: Range<u64>,
        except: Option<TargetId>,
    ) -> Result<Vec<Option<SoundBlock>>, Fault> {
        let mut blocks = own_blocks(target, object, range.clone())?;
        for (index, block) in blocks.iter_mut().enumerate().filter(|(_, block)| block.is_none()) {
            let offset = range.start + (index * BLOCK_BYTES) as u64;
            if self.restore_own(key, target, object, offset, except)? {
                *block = own_blocks(target, object, offset..offset + BLOCK)?.pop().flatten();
            }
        }
        Ok(blocks)
    }

    /// Replaces a damaged block here, which the caller has locked as the primary, by that of another member than
    /// `except`. False: none of them has a good one. Errors: that is not known.
    fn restore_own(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
        offset: u64,
        except: Option<TargetId>,
    ) -> Result<bool, Fault> {
        let present = target.extent(object).map_err(fault)?.1.saturating_sub(offset).min(BLOCK);
        let mut unknown = None;
        for other in self.view(key)?.others.iter().filter(|other| Some(**other) != except) {
            let read = self
                .length_of(key, *other, object, offset, present)
                .and_then(|length| self.read_of(*other, object, offset..offset + length));
            match read {
                Ok(Some(good)) => {
                    target.restore_block(object, offset, &good, None).map_err(fault)?;
                    return Ok(true);
                }
                Ok(None) => {}
                Err(fault) => unknown = Some(fault),
            }
        }
        unknown.map_or(Ok(false), Err)
    }

    /// How long a damaged block is, of which there are `present` bytes here: where that is the last one here, and is
    /// longer at a member, it was cut.
    fn length_of(
        &self,
        key: Key,
        other: TargetId,
        object: ObjectId,
        offset: u64,
        present: u64,
    ) -> Result<u64, Fault> {
        if present == BLOCK {
            return Ok(present);
        }
        let theirs = self.ask_blocks(key, other, object, 0..0)?.length.saturating_sub(offset);
        // One that goes on behind the block is longer by more than was cut off here.
        Ok(if theirs > BLOCK { present } else { theirs.max(present) })
    }

    /// Repairs the last block here, which the caller has locked with all of the object as the primary, where it is
    /// damaged: it may have been cut. True: it was damaged, and is as the others' now.
    pub(super) fn get_end_back(&self, key: Key, target: &Target, object: ObjectId) -> Result<bool, Fault> {
        if Self::check_end(target, object).is_ok() {
            return Ok(false);
        }
        let length = target.extent(object).map_err(fault)?.1;
        self.repaired_blocks(key, target, object, length / BLOCK * BLOCK..length, None)?;
        Ok(Self::check_end(target, object).is_ok())
    }

    /// Refuses to take the length here for that of the object where its last block is damaged: it may have been cut.
    pub(super) fn check_end(target: &Target, object: ObjectId) -> Result<(), Fault> {
        let length = target.extent(object).map_err(fault)?.1;
        match sound_blocks(target, object, length / BLOCK * BLOCK..length)?.contains(&None) {
            true => Err(unknown_end(object)),
            false => Ok(()),
        }
    }

    /// Bytes of another member's copy, at most those of a request; `None`: it is damaged there, or shorter.
    fn read_of(
        &self,
        other: TargetId,
        object: ObjectId,
        range: Range<u64>,
    ) -> Result<Option<SoundBlock>, Fault> {
        let (transport, server) = self.way_to(other)?;
        let (offset, length) = (range.start, (range.end - range.start) as u32);
        let request = proto::ReadRequest { object: Some(even::address(object)), offset, length };
        let until_ns = transport.clock().now_ns() + BLOCK_NS;
        let (answer, bytes) = match submit::<Read>(transport, &server, &request, &[], until_ns).wait() {
            Ok(read) => read,
            Err(fault) if matches!(fault.code, Code::Corrupt | Code::Io | Code::NotFound) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let is_whole = bytes.len() as u64 == range.end - range.start
            && answer.checksums.len() == piece_count(offset, bytes.len())
            && first_mismatch(offset, &bytes, &answer.checksums).is_none();
        let checksum = answer.checksums.first().copied().unwrap_or_else(|| crc32c(&[]));
        Ok(is_whole.then(|| SoundBlock { bytes: bytes.to_vec(), checksum }))
    }

    /// Has the primary repair something here.
    fn ask_repair(
        &self,
        key: Key,
        object: ObjectId,
        offset: u64,
        missing: bool,
    ) -> Result<proto::RepairObjectResponse, Fault> {
        let view = self.view(key)?;
        let no_primary =
            || Fault::new(Code::Unavailable, format!("placement group {}: its primary is not known", key.1));
        let primary = view.primary.filter(|primary| *primary != key.0).ok_or_else(no_primary)?;
        let (transport, server) = self.way_to(primary)?;
        let (object, member, epoch) = (Some(even::address(object)), key.0.0, view.epoch);
        let request = proto::RepairObjectRequest { object, offset, missing, member, epoch };
        call::<RepairObject>(transport, &server, &request, transport.clock().now_ns() + REPAIR_NS)
    }

    /// The primary's part: sends another member what it has lost.
    pub(crate) fn repair_of_other(
        &self,
        request: &proto::RepairObjectRequest,
        deadline_ns: u64,
    ) -> Result<proto::RepairObjectResponse, Fault> {
        let (target, object) = self.target_of(request.object.as_ref())?;
        let (key, other) = ((target.id(), object.group), TargetId(request.member));
        let view = self.view(key)?;
        if !view.is_primary || view.epoch != request.epoch || !view.others.contains(&other) {
            let text = format!("placement group {}: {} does not lead it with {other} now", key.1, key.0);
            return Err(Fault::new(Code::Unavailable, text));
        }
        if !request.offset.is_multiple_of(BLOCK) {
            let text = format!("object {object}: byte {} begins no block of 64 KiB", request.offset);
            return Err(Fault::new(Code::BadRequest, text));
        }
        if request.missing {
            // Also before it has evened out what was under way: that may wait for this.
            return self.send_missing(key, other, target, object, request.offset);
        }
        self.take_over(key, deadline_ns)?;
        let range = request.offset..request.offset.saturating_add(BLOCK);
        let _held = self.lock_piece(target, object, range.clone())?;
        let exists = target.extent(object).map_err(fault)?.0;
        let blocks = self.repaired_blocks(key, target, object, range, Some(other))?;
        match blocks.into_iter().next() {
            Some(Some(block)) => {
                self.send_restore(key, other, object, request.offset, block)?;
                Ok(proto::RepairObjectResponse { exists, ..Default::default() })
            }
            _ => Err(no_copy(object)),
        }
    }

    /// Has a block of another member replaced, which the caller has locked. False: it was not damaged.
    pub(super) fn send_restore(
        &self,
        key: Key,
        other: TargetId,
        object: ObjectId,
        offset: u64,
        block: SoundBlock,
    ) -> Result<bool, Fault> {
        let (transport, server) = self.way_to(other)?;
        let forward = self.replication.forward(key, self.leading(key)?.epoch, 0, self.record(key));
        let object = Some(proto::ObjectAddress { forward: Some(forward), ..even::address(object) });
        let request = proto::RestoreBlockRequest { object, offset, checksum: block.checksum };
        let until_ns = transport.clock().now_ns() + BLOCK_NS;
        let sent = submit::<RestoreBlock>(transport, &server, &request, &block.bytes, until_ns);
        let sent = sent.wait().inspect_err(|fault| self.replication.note_failure(key, fault.code));
        Ok(sent?.0.restored)
    }

    /// Sends some pieces of an object that another member lacks, from `offset` on.
    fn send_missing(
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
    /// one has lost it, and makes it anew. Where none counts beside this one, that cannot be told from a removal.
    pub(super) fn absent(&self, key: Key, target: &Arc<Target>, object: ObjectId) -> Fault {
        let not_found = || Fault::new(Code::NotFound, format!("object {object}"));
        if target.restores.check_finished(object).is_err() {
            return being_made_anew(object, key.0);
        }
        let others = match self.view(key) {
            Ok(view) => view.others,
            Err(fault) => return fault,
        };
        for other in others {
            match self.ask_blocks(key, other, object, 0..0) {
                Ok(theirs) if theirs.exists && !self.is_uneven(key, object) => {
                    let _ = target.note_reported(object, Place::Missing);
                    return being_made_anew(object, key.0);
                }
                Ok(theirs) if theirs.exists => return being_made_anew(object, key.0),
                Ok(_) => {}
                Err(fault) => return Fault::new(Code::Unavailable, fault.to_string()),
            }
        }
        not_found()
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

    /// Refuses to change an object that is made anew here where no other member counts any more: the one that it is
    /// fetched from would lack the change when it comes back, and could neither be sent it nor fetched from.
    pub(super) fn check_source(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
        change: &Change,
    ) -> Result<(), Fault> {
        let Err(unfinished) = target.restores.check_finished(object) else { return Ok(()) };
        match matches!(change.body, Body::Remove(_)) || !self.view(key)?.others.is_empty() {
            true => Ok(()),
            false => Err(unfinished),
        }
    }

    /// Makes an object anew that is missing here. False: it is there.
    fn make_anew(&self, key: Key, target: &Arc<Target>, object: ObjectId) -> Result<bool, Fault> {
        if !target.is_missing(object).map_err(fault)? {
            return Ok(false);
        }
        // Before it is there.
        target.begin_object(object)?;
        target.cache.get(object).forget_unnamed(target);
        let mut at = 0;
        loop {
            let sent = match self.view(key)?.is_primary {
                true => self.fetch_missing(key, target, object, at)?,
                false => self.ask_repair(key, object, at, true)?,
            };
            if sent.next != 0 {
                at = sent.next;
                continue;
            }
            let here = target.extent(object).map_err(fault)?;
            if !here.0 {
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
            // Removed meanwhile: then it is no more on the list of those that are made anew, either.
            if target.restores.end_object(object) {
                target.restores.count_object();
                target.damage.remove((object, Place::Missing));
                tracing::warn!(target_id = key.0.0, %object, "a missing object was made anew from a copy");
            }
            return Ok(true);
        }
    }

    /// The same for the primary's own: some pieces from another member.
    fn fetch_missing(
        &self,
        key: Key,
        target: &Arc<Target>,
        object: ObjectId,
        offset: u64,
    ) -> Result<proto::RepairObjectResponse, Fault> {
        let others = self.view(key)?.others;
        let (mut unknown, mut source) = (None, None);
        for other in others {
            match self.ask_blocks(key, other, object, 0..0) {
                Ok(theirs) if theirs.exists && !theirs.unfinished => source = source.or(Some(other)),
                Ok(_) => {}
                Err(fault) => unknown = Some(fault),
            }
        }
        let Some(source) = source else {
            return unknown.map_or_else(|| Ok(proto::RepairObjectResponse::default()), Err);
        };
        let mut at = offset;
        for _ in 0..PIECES {
            // The end is not known here before the last piece.
            let _held = self.lock_blocks(object, &[behind(at)])?;
            let leads_since = self.leadership(key)?;
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
                let good = self.read_of(source, object, range.clone())?.ok_or_else(|| no_copy(object))?;
                let is_last = range.end == length;
                let is_here = here.get(index).and_then(Option::as_ref).is_some_and(|it| *it == good);
                let is_hole = good.bytes.iter().all(|byte| *byte == 0) && here.get(index).is_none();
                if !is_here && (!is_hole || is_last) {
                    self.make_here((key, leads_since), object, good.bytes, offset)?;
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

    /// The part of another member: its block is replaced where it fails its checksum.
    pub(crate) fn restored(
        target: &Target,
        request: &proto::RestoreBlockRequest,
        bytes: Vec<u8>,
    ) -> Result<proto::RestoreBlockResponse, Fault> {
        let object = request.object.as_ref().ok_or_else(|| Fault::new(Code::BadRequest, "no object"))?;
        let (id, passed): (ObjectId, Option<Passed>) =
            (crate::ops::object(object)?, Terms::of(Some(object), false).passed);
        if !request.offset.is_multiple_of(BLOCK) || bytes.is_empty() || bytes.len() > BLOCK_BYTES {
            let text = format!("object {id}: {} bytes at {} are no block", bytes.len(), request.offset);
            return Err(Fault::new(Code::BadRequest, text));
        }
        crate::ops::write::check(target, id, request.offset, &[request.checksum], &bytes)?;
        let good = SoundBlock { bytes, checksum: request.checksum };
        let restored = target.restore_block(id, request.offset, &good, passed).map_err(fault)?;
        Ok(proto::RestoreBlockResponse { restored })
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

fn unknown_end(object: ObjectId) -> Fault {
    let text = format!("object {object}: its last block is damaged here, and other copies are longer");
    Fault::new(Code::Unavailable, text)
}

fn no_copy(object: ObjectId) -> Fault {
    Fault::new(Code::Corrupt, format!("object {object}: no other copy is good"))
}

/// The blocks of `range`, which begins with one, up to the object's end. `None`: it fails its checksum.
pub(crate) fn sound_blocks(
    target: &Target,
    id: ObjectId,
    range: Range<u64>,
) -> Result<Vec<Option<SoundBlock>>, Fault> {
    let (message, bytes) = match read_blocking(target, id, range.start, (range.end - range.start) as u32) {
        Ok(read) => read,
        // Of a last block that is short the server itself finds that it is damaged, and answers nothing.
        Err(fault) if fault.code == Code::Corrupt && range.end - range.start > BLOCK => {
            let pieces = (range.start..range.end).step_by(BLOCK_BYTES);
            let mut blocks = Vec::new();
            for start in pieces {
                blocks.extend(sound_blocks(target, id, start..(start + BLOCK).min(range.end))?);
            }
            return Ok(blocks);
        }
        Err(fault) if fault.code == Code::Corrupt => return Ok(vec![None]),
        Err(fault) => return Err(fault),
    };
    let broken = |error: prost::DecodeError| Fault::new(Code::Internal, error.to_string());
    let read = proto::ReadResponse::decode(&*message).map_err(broken)?;
    let block = |((index, bytes), &checksum): ((usize, &[u8]), &u32)| {
        if crc32c(bytes) == checksum {
            return Some(SoundBlock { bytes: bytes.to_vec(), checksum });
        }
        let offset = range.start + (index * BLOCK_BYTES) as u64;
        // Noted, as by any reader.
        let _ = target.corrupt_block(id, offset / target.chunk_bytes, offset % target.chunk_bytes / BLOCK);
        None
    };
    Ok(bytes.chunks(BLOCK_BYTES).enumerate().zip(&read.checksums).map(block).collect())
}

/// The same for what others are to have, too: of an object that is being made anew the rest would pass for zeros.
pub(crate) fn own_blocks(
    target: &Target,
    id: ObjectId,
    range: Range<u64>,
) -> Result<Vec<Option<SoundBlock>>, Fault> {
    target.restores.check_finished(id)?;
    let blocks = sound_blocks(target, id, range)?;
    // That may have begun while they were read.
    target.restores.check_finished(id).map(|()| blocks)
}

/// Whether the block at `offset` matches its checksum.
fn is_block_sound(target: &Target, id: ObjectId, offset: u64) -> Result<bool, Fault> {
    // A part of a block is verified before it is answered.
    match target.read(id, offset, 1, Mode::Blocking, &mut |_, _, _| true).map_err(fault) {
        Ok(()) => Ok(true),
        Err(fault) if fault.code == Code::Corrupt => Ok(false),
        Err(fault) => Err(fault),
    }
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
