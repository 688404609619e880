//! Proves that all copies of an object are equal: the primary compares hashes of its blocks with those of all other
//! current members, piece by piece, each under its lock.
//!
//! A block that fails its checksum on some members is repaired from one that does not ([`restore`](super::restore)).
//! Where checksums match and contents differ, the primary's copy counts, and replaces others only where that is asked
//! for. Members that lag are not compared: they get everything when they catch up.

use super::change::{Body, Change, WHOLE};
use super::level::{HASH_BYTES, hash};
use super::{Key, even};
use crate::health::damage::Place;
use crate::health::restore::SoundBlock;
use crate::service::{DataService, fault};
use crate::targets::Target;
use std::ops::Range;
use std::sync::Arc;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, ObjectId, TargetId};
use vazao_wire::op::ReportDamage;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::call;

/// Bytes that are compared under one lock, and for one request; a request takes about this long at most.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: u64 = 16;
const REQUEST_NS: u64 = 300_000_000;

/// How long another member may take to take note of something.
const NOTE_NS: u64 = 2_000_000_000;

/// In which way a copy is not as it should be, as in `CopyDifference.what`.
const DAMAGED: u32 = 1;
const DIFFERS: u32 = 2;
const MISSING: u32 = 3;
const OTHER_END: u32 = 4;

/// A comparison of one object.
struct Comparison<'a> {
    service: &'a DataService,
    key: Key,
    target: &'a Arc<Target>,
    object: ObjectId,
    /// Other members that have the object.
    others: Vec<TargetId>,
    may_replace: bool,
    answer: proto::CompareCopiesResponse,
}

impl DataService {
    /// Compares some of an object, from an offset on.
    pub(crate) fn compare_copies(
        &self,
        request: &proto::CompareCopiesRequest,
        deadline_ns: u64,
    ) -> Result<proto::CompareCopiesResponse, Fault> {
        let (target, object) = self.target_of(request.object.as_ref())?;
        if !request.offset.is_multiple_of(BLOCK_BYTES as u64) {
            let text = format!("object {object}: byte {} begins no block of 64 KiB", request.offset);
            return Err(Fault::new(Code::BadRequest, text));
        }
        if self.agreed(object.group).is_none() {
            // The only copy there is.
            let (exists, members) = (target.extent(object).map_err(fault)?.0, vec![target.id().0]);
            return Ok(proto::CompareCopiesResponse { exists, members, ..Default::default() });
        }
        let key = (target.id(), object.group);
        let view = self.view(key)?;
        if !view.is_primary {
            let text = format!("placement group {}: {} is not its primary", key.1, key.0);
            return Err(Fault::new(Code::Unavailable, text));
        }
        self.take_over(key, deadline_ns)?;
        // What is known to be uneven is no finding.
        self.even_out_known(key, deadline_ns)?;
        let answer = proto::CompareCopiesResponse {
            members: std::iter::once(key.0).chain(view.others.iter().copied()).map(|it| it.0).collect(),
            lagging: view.lagging.iter().map(|(target, _)| target.0).collect(),
            ..Default::default()
        };
        let (others, may_replace) = (view.others, request.repair);
        let mut comparison = Comparison { service: self, key, target, object, others, may_replace, answer };
        comparison.compare(request.offset)?;
        Ok(comparison.answer)
    }

    /// Whether an object has changes of which it is not known who has them.
    pub(super) fn is_uneven(&self, key: Key, object: ObjectId) -> bool {
        let table = self.replication.table.lock();
        let is_of = |led: &super::Led| led.uneven.values().any(|touched| touched.object == object);
        table.led.get(&key).is_some_and(is_of)
    }
}

impl Comparison<'_> {
    fn compare(&mut self, offset: u64) -> Result<(), Fault> {
        if !self.compare_ends(offset == 0)? || self.others.is_empty() {
            return Ok(());
        }
        let started_ns = self.service.shell.clock().now_ns();
        let mut at = offset;
        for _ in 0..PIECES {
            if !self.compare_piece(at..at + PIECE_BYTES)? {
                return Ok(());
            }
            at += PIECE_BYTES;
            if self.service.shell.clock().now_ns().saturating_sub(started_ns) > REQUEST_NS {
                break;
            }
        }
        self.answer.next = at;
        Ok(())
    }

    /// Who has the object, and how long it is there. False: this member has not.
    fn compare_ends(&mut self, is_first: bool) -> Result<bool, Fault> {
        let _held = self.service.lock_blocks(self.object, &[WHOLE])?;
        // What is made anew here is not what the others are to have.
        self.target.restores.check_finished(self.object)?;
        let mut own = self.target.extent(self.object).map_err(fault)?;
        self.answer.exists = own.0;
        let (mut have, mut is_anywhere) = (Vec::new(), false);
        for other in self.others.clone() {
            let theirs = match self.service.ask_blocks(self.key, other, self.object, 0..0) {
                // A file there that cannot be used at all. The member makes it anew.
                Err(fault) if fault.code == Code::Corrupt => {
                    is_anywhere = true;
                    self.note(0, other, DAMAGED, false);
                    continue;
                }
                theirs => theirs?,
            };
            let is_there = theirs.exists && !theirs.unfinished;
            is_anywhere |= theirs.exists;
            if is_there {
                have.push(other);
            }
            if !is_first || is_there == own.0 && theirs.length == own.1 {
                continue;
            }
            self.check_even()?;
            if own.0
                && theirs.length != own.1
                && self.service.get_end_back(self.key, self.target, self.object)?
            {
                self.note(super::restore::last_block(own.1).start, self.key.0, DAMAGED, true);
                own = self.target.extent(self.object).map_err(fault)?;
                if theirs.length == own.1 {
                    continue;
                }
            }
            if own.0 && !is_there {
                self.service.say_missing(other, self.object);
                self.note(0, other, MISSING, false);
            } else if own.0 {
                let is_cut = self.may_replace && theirs.length > own.1;
                if is_cut && DataService::check_end(self.target, self.object).is_err() {
                    // How long it is no copy says.
                    self.note(super::restore::last_block(own.1).start, self.key.0, DAMAGED, false);
                    continue;
                }
                if is_cut {
                    let object = Some(even::address(self.object));
                    let cut = proto::TruncateObjectRequest { object, length: own.1, must_exist: false };
                    self.send(other, Change::new(Body::Truncate(cut)))?;
                }
                // One that ends earlier gets the rest with the blocks that differ.
                self.note(own.1.min(theirs.length), other, OTHER_END, self.may_replace);
            }
        }
        if !own.0 && is_anywhere && is_first {
            self.check_even()?;
            self.answer.exists = true;
            let _ = self.target.note_reported(self.object, Place::Missing);
            self.note(0, self.key.0, MISSING, false);
        }
        self.others = have;
        Ok(own.0)
    }

    /// A difference that is known of is none: it is tried again.
    fn check_even(&self) -> Result<(), Fault> {
        match self.service.is_uneven(self.key, self.object) {
            true => Err(Fault::new(
                Code::Overloaded,
                format!("object {}: a change is not the same everywhere yet", self.object),
            )),
            false => Ok(()),
        }
    }

    /// False: the object ends before this piece.
    fn compare_piece(&mut self, piece: Range<u64>) -> Result<bool, Fault> {
        let _held = self.service.lock_piece(self.target, self.object, piece.clone())?;
        let mut own = super::restore::own_blocks(self.target, self.object, piece.clone())?;
        if own.is_empty() {
            return self.check_kept().map(|()| false);
        }
        let mut theirs = Vec::new();
        for other in self.others.clone() {
            let told = self.service.ask_blocks(self.key, other, self.object, piece.clone())?;
            if !told.exists || told.unfinished {
                return Err(super::missing::being_made_anew(self.object, other));
            }
            theirs.push((other, told.hashes));
        }
        for (index, block) in own.iter_mut().enumerate() {
            let offset = piece.start + (index * BLOCK_BYTES) as u64;
            self.answer.bytes += block.as_ref().map_or(BLOCK_BYTES as u64, |it| it.bytes.len() as u64);
            if block.is_none() {
                self.check_even()?;
                let blocks = self.service.repaired_blocks(
                    self.key,
                    self.target,
                    self.object,
                    block_at(offset),
                    None,
                )?;
                *block = blocks.into_iter().next().flatten();
                self.note(offset, self.key.0, DAMAGED, block.is_some());
            }
            let own_hash = block.as_ref().map(|block| hash(&block.bytes));
            for (other, hashes) in &theirs {
                let hash = hashes.chunks_exact(HASH_BYTES).nth(index);
                if hash.is_none() || hash != own_hash.as_ref().map(|hash| &hash[..]) {
                    self.settle(*other, offset, block.as_ref(), hash)?;
                }
            }
        }
        Ok(true)
    }

    /// Refuses to take for removed what this member has lost since.
    fn check_kept(&self) -> Result<(), Fault> {
        if self.target.extent(self.object).map_err(fault)?.0 {
            return Ok(());
        }
        let absent = self.service.absent(self.key, self.target, self.object);
        if absent.code == Code::NotFound { Ok(()) } else { Err(absent) }
    }

    /// A block of another member is not the one here, which is damaged where there is none.
    fn settle(
        &mut self,
        other: TargetId,
        offset: u64,
        own: Option<&SoundBlock>,
        hash: Option<&[u8]>,
    ) -> Result<(), Fault> {
        let is_damaged = hash.is_some_and(|hash| hash.iter().all(|byte| *byte == 0));
        let Some(own) = own else {
            // No copy is good, or none of the others would not be.
            if is_damaged {
                self.note(offset, other, DAMAGED, false);
            }
            return Ok(());
        };
        self.check_even()?;
        if is_damaged {
            let sent = self.service.send_restore(self.key, other, self.object, offset, own.clone());
            return match sent {
                Ok(_) => {
                    self.note(offset, other, DAMAGED, true);
                    Ok(())
                }
                // A file there that cannot be used at all.
                Err(fault) if fault.code == Code::Corrupt => {
                    self.note(offset, other, DAMAGED, false);
                    Ok(())
                }
                Err(fault) => Err(fault),
            };
        }
        if self.may_replace {
            let (object, checksums) = (Some(even::address(self.object)), vec![own.checksum]);
            let must_exist = true;
            let write = proto::WriteRequest { object, offset, checksums, must_exist, ..Default::default() };
            self.send(other, Change { body: Body::Write(write), bytes: own.bytes.clone() })?;
        }
        self.note(offset, other, DIFFERS, self.may_replace);
        Ok(())
    }

    fn send(&self, other: TargetId, change: Change) -> Result<(), Fault> {
        let leads_since = self.service.leadership(self.key)?;
        self.service.send_one(self.key, leads_since, other, &change)
    }

    fn note(&mut self, offset: u64, member: TargetId, what: u32, repaired: bool) {
        let finding = proto::CopyDifference { offset, target: member.0, what, repaired };
        tracing::warn!(object = %self.object, target_id = member.0, offset, what, repaired, "copies are not equal");
        self.answer.differences.push(finding);
    }
}

impl DataService {
    /// Says to another member that it lacks an object, which it then makes anew.
    pub(super) fn say_missing(&self, other: TargetId, object: ObjectId) {
        let Ok((transport, server)) = self.way_to(other) else { return };
        let object = Some(even::address(object));
        let request = proto::ReportDamageRequest { object, missing: true, ..Default::default() };
        let until_ns = transport.clock().now_ns() + NOTE_NS;
        if let Err(fault) = call::<ReportDamage>(transport, &server, &request, until_ns) {
            tracing::debug!(target_id = other.0, %fault, "a missing object was not reported");
        }
    }
}

fn block_at(offset: u64) -> Range<u64> {
    offset..offset + BLOCK_BYTES as u64
}
