//! Damage of one copy is repaired from another one, where it lies.
//!
//! - What a target knows to be damaged is taken up place by place, by the member that has it: from reads, from scrubs,
//!   from reports of clients. Another member asks the primary; the primary asks the others itself.
//! - A block is compared and replaced under the primary's lock of it, so that no change comes in between, and only
//!   where it fails its checksum ([`restore_block`](crate::targets::Target::restore_block)), by bytes that match
//!   theirs.
//! - An object of which a file cannot be used is let go of, and then missing ([`super::missing`]), once another copy
//!   was read through and is whole.
//! - Where no other copy is good the damage stays, and is reported as that of a file with one copy.
//!
//! A disk that is bad as a whole makes no storm: one place at a time, with a pause, and later and later where it fails.

use super::change::behind;
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
use vazao_model::checksum::crc32c;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, GroupId, ObjectId, TargetId};
use vazao_wire::op::{RepairObject, RestoreBlock};
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{call, submit};

pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// How long another member may take for a block, and the primary for what it is asked, which may be several of these.
pub(super) const BLOCK_NS: u64 = 2_000_000_000;
const REPAIR_NS: u64 = 3 * BLOCK_NS;

/// Between two repairs of a scrub, on one target. Other damage is repaired once in a turn of [`crate::Peers`].
const PAUSE: Duration = Duration::from_millis(50);

impl DataService {
    /// Repairs a place of each target that has damage and other copies. It waits for nothing: threads do.
    pub(crate) fn repair_all(&self) {
        if self.is_stopped() {
            return;
        }
        let now_ns = self.shell.clock().now_ns();
        for target in self.targets.iter() {
            let may_be = |object: ObjectId, place| self.may_be_repaired((target.id(), object.group), place);
            let Some((object, place)) = target.damage.next_to_repair(now_ns, may_be) else { continue };
            let target = Arc::clone(target);
            let repair = move |service: &DataService| {
                let Some(_one) = target.restores.one_at_a_time.try_lock() else { return };
                if let Err(fault) = service.repair_place(&target, object, place) {
                    tracing::debug!(target_id = target.id().0, %object, ?place, %fault, "not repaired yet");
                    let (key, now_ns) = ((object, place), service.shell.clock().now_ns());
                    match is_soon(fault.code) {
                        true => target.damage.put_off_briefly(key, now_ns),
                        false => target.damage.put_off(key, now_ns),
                    }
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

    /// Whether a member counts beside others, or lags and has a file that cannot be used: all else it gets by its
    /// primary.
    fn may_be_repaired(&self, key: Key, place: Place) -> bool {
        match place {
            Place::Chunk(_) => key.1 != GroupId(0) && self.leases.member(key.1) == Some(key.0),
            _ => self.agreed(key.1) == Some(key) && self.leases.counts(key),
        }
    }

    /// Repairs a place. False: it is sound. Errors: there is no other copy, none of them is good, or none can be had
    /// at the moment.
    fn repair_place(&self, target: &Arc<Target>, object: ObjectId, place: Place) -> Result<bool, Fault> {
        target.check()?;
        let key = (target.id(), object.group);
        if !self.may_be_repaired(key, place) {
            return Err(no_copy(object));
        }
        let view = self.view(key)?;
        if view.others.is_empty() && view.lagging.is_empty() {
            return Err(no_copy(object));
        }
        let chunk = match place {
            Place::Chunk(chunk) => Some(chunk),
            Place::Block(block) => Some(block.saturating_mul(BLOCK) / target.chunk_bytes),
            Place::Missing => None,
        };
        if let Some(chunk) = chunk
            && target.is_damaged(object, Place::Chunk(chunk)).map_err(fault)?
        {
            return self.replace_unusable(key, target, object, chunk);
        }
        match place {
            Place::Chunk(_) => Ok(false),
            Place::Block(block) => {
                let offset = block.saturating_mul(BLOCK);
                if is_block_sound(target, object, offset)? {
                    return Ok(false);
                }
                if view.is_primary {
                    let _held = self.lock_piece(target, object, offset..offset + BLOCK)?;
                    return match self.restore_own(key, target, object, offset, None, true)? {
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

    /// Makes an object anew of which a file here cannot be used at all: of what is in it is not known what is good. One
    /// that lags only lets go of it, and gets it as it catches up. Errors: no other copy is whole, or that is not
    /// known.
    fn replace_unusable(
        &self,
        key: Key,
        target: &Arc<Target>,
        object: ObjectId,
        chunk: u64,
    ) -> Result<bool, Fault> {
        let mut unknown = no_copy(object);
        for other in self.view(key)?.others {
            match self.is_whole_at(other, object) {
                Ok(true) => {
                    let counts = || self.view(key).is_ok_and(|view| view.others.contains(&other));
                    target.let_go(object, chunk, &counts).map_err(fault)?;
                    return match self.leases.counts(key) {
                        true => self.make_anew(key, target, object),
                        false => Ok(true),
                    };
                }
                Ok(false) => {}
                Err(fault) => unknown = fault,
            }
        }
        Err(unknown)
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
            if self.restore_own(key, target, object, offset, except, false)? {
                *block = own_blocks(target, object, offset..offset + BLOCK)?.pop().flatten();
            }
        }
        Ok(blocks)
    }

    /// Replaces a damaged block here, which the caller has locked as the primary, by that of another member than
    /// `except`. False: none of them has a good one. Errors: that is not known; `asks_again`: nor, of members that lag
    /// and cannot be asked yet, is it taken for no.
    fn restore_own(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
        offset: u64,
        except: Option<TargetId>,
        asks_again: bool,
    ) -> Result<bool, Fault> {
        let length = target.extent(object).map_err(fault)?.1;
        let view = self.view(key)?;
        let mut unknown = None;
        for other in view.others.iter().filter(|other| Some(**other) != except) {
            let read = self
                .length_of(key, *other, object, offset, length)
                .and_then(|length| self.read_of(*other, object, offset..offset + length));
            match read {
                Ok(Some(good)) => {
                    target.restore_block(object, offset, &good, None).map_err(fault)?;
                    return Ok(true);
                }
                Ok(None) => {}
                Err(fault) if matches!(fault.code, Code::Corrupt | Code::NotFound) => {}
                Err(fault) => unknown = Some(fault),
            }
        }
        let lagging = view.lagging.iter().map(|(other, _)| *other);
        match self.confirmed_block(key, target, object, offset, lagging) {
            Ok(Some(good)) => {
                target.restore_block(object, offset, &good, None).map_err(fault)?;
                return Ok(true);
            }
            Ok(None) => {}
            // It is asked again, and what catches up does not wait for it: it gets the block then.
            Err(fault) if is_soon(fault.code) => unknown = unknown.or(Some(fault).filter(|_| asks_again)),
            Err(fault) => return Err(fault),
        }
        unknown.map_or(Ok(false), Err)
    }

    /// How long a damaged block is, of which there are `present` bytes here: where it is the last one of `length` bytes
    /// here, it may have been cut, or be what stands for an end that was cut off.
    fn length_of(
        &self,
        key: Key,
        other: TargetId,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<u64, Fault> {
        let present = length.saturating_sub(offset).min(BLOCK);
        if offset + present < length {
            return Ok(present);
        }
        let theirs = self.ask_blocks(key, other, object, 0..0)?.length.saturating_sub(offset);
        Ok(match theirs {
            // One that goes on behind the block is longer by more than was cut off here.
            theirs if theirs > BLOCK => present,
            theirs if theirs > 0 && present == BLOCK => theirs,
            theirs => theirs.max(present),
        })
    }

    /// Repairs the last block here, which the caller has locked with all of the object as the primary, where it is
    /// damaged: it may have been cut. True: it was damaged, and is as the others' now.
    pub(super) fn get_end_back(&self, key: Key, target: &Target, object: ObjectId) -> Result<bool, Fault> {
        if Self::check_end(target, object).is_ok() {
            return Ok(false);
        }
        let length = target.extent(object).map_err(fault)?.1;
        self.repaired_blocks(key, target, object, last_block(length), None)?;
        Ok(Self::check_end(target, object).is_ok())
    }

    /// To how many bytes a longer copy of an object is to be cut, of which the caller has locked all: where no copy of
    /// the last block here is good, to the end of that.
    pub(super) fn known_end(&self, key: Key, target: &Target, object: ObjectId) -> Result<u64, Fault> {
        self.get_end_back(key, target, object)?;
        let length = target.extent(object).map_err(fault)?.1;
        Ok(match Self::check_end(target, object) {
            Ok(()) => length,
            Err(_) => length.next_multiple_of(BLOCK),
        })
    }

    /// Refuses to take the length here for that of the object where its last block is damaged: it may have been cut.
    pub(super) fn check_end(target: &Target, object: ObjectId) -> Result<(), Fault> {
        let length = target.extent(object).map_err(fault)?.1;
        match sound_blocks(target, object, last_block(length))?.contains(&None) {
            true => Err(unknown_end(object)),
            false => Ok(()),
        }
    }

    /// Has the primary repair something here.
    pub(super) fn ask_repair(
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
        let SoundBlock { bytes, checksum } = block;
        let request = proto::RestoreBlockRequest { offset, checksum, ..Default::default() };
        self.ask_restore(key, other, object, request, &bytes)
    }

    /// Has a block of a member that lags be as damaged as it is here, and at all members that count. The caller has it
    /// locked. With all else it counts then: one block must not leave a placement group with fewer copies.
    pub(super) fn send_lost(
        &self,
        key: Key,
        other: TargetId,
        target: &Target,
        object: ObjectId,
        offset: u64,
    ) -> Result<(), Fault> {
        let (checksum, lost_bytes) = target.noted(object, offset).map_err(fault)?;
        tracing::error!(%object, target_id = other.0, offset, "no copy of a block is good");
        let request = proto::RestoreBlockRequest { offset, checksum, lost_bytes, ..Default::default() };
        self.ask_restore(key, other, object, request, &[]).map(drop)
    }

    fn ask_restore(
        &self,
        key: Key,
        other: TargetId,
        object: ObjectId,
        request: proto::RestoreBlockRequest,
        bytes: &[u8],
    ) -> Result<bool, Fault> {
        let (transport, server) = self.way_to(other)?;
        let forward = self.replication.forward(key, self.leading(key)?.epoch, 0, self.record(key));
        let object = Some(proto::ObjectAddress { forward: Some(forward), ..even::address(object) });
        let request = proto::RestoreBlockRequest { object, ..request };
        let until_ns = transport.clock().now_ns() + BLOCK_NS;
        let sent = submit::<RestoreBlock>(transport, &server, &request, bytes, until_ns);
        let sent = sent.wait().inspect_err(|fault| self.replication.note_failure(key, fault.code));
        Ok(sent?.0.restored)
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
        let lost_bytes = request.lost_bytes as usize;
        let length = bytes.len().max(lost_bytes);
        let is_either = bytes.is_empty() != (lost_bytes == 0);
        if !request.offset.is_multiple_of(BLOCK) || !is_either || length > BLOCK_BYTES {
            let text = format!("object {id}: {length} bytes at {} are no block", request.offset);
            return Err(Fault::new(Code::BadRequest, text));
        }
        if lost_bytes > 0 {
            target.lose_block(id, request.offset, lost_bytes, request.checksum, passed).map_err(fault)?;
            return Ok(proto::RestoreBlockResponse::default());
        }
        crate::ops::write::check(target, id, request.offset, &[request.checksum], &bytes)?;
        let good = SoundBlock { bytes, checksum: request.checksum };
        let restored = target.restore_block(id, request.offset, &good, passed).map_err(fault)?;
        Ok(proto::RestoreBlockResponse { restored })
    }
}

/// The bytes of the last block of so many.
pub(super) fn last_block(length: u64) -> Range<u64> {
    length.saturating_sub(1) / BLOCK * BLOCK..length
}

/// Whether a member that says so may answer soon.
pub(super) fn is_soon(code: Code) -> bool {
    matches!(code, Code::WrongEpoch | Code::Unavailable)
}

fn unknown_end(object: ObjectId) -> Fault {
    let text = format!("object {object}: its last block is damaged here, and other copies are longer");
    Fault::new(Code::Unavailable, text)
}

pub(super) fn no_copy(object: ObjectId) -> Fault {
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
