//! A lagging member gets again what it missed. Where that is known ([`super::missed`]), the primary sends it that;
//! else it compares all objects of the group with its own, block by block, and sends what differs.
//!
//! States of a member that lags, as its primary sees it:
//!
//! - *away*: it did not answer; it is tried again after [`AGAIN_NS`];
//! - *walked*: from the first step on each change is sent to it, too; it is answered also where that fails. The walk
//!   goes through what it missed, or removes what the primary has not and then compares. What fails makes the member
//!   away again;
//! - *promoted*: the walk is at its end. It syncs its whole disk and holds itself for current; then the primary counts
//!   it, all other current members do, it syncs once more what came meanwhile, and only then the metadata service is
//!   asked. It stays so until a newer record says what became of it.
//!
//! Each piece is compared under the lock of its blocks, so that no change comes in between.

use super::Key;
use super::change::{Body, Change, Touched, WHOLE};
use super::missed::Missed;
use crate::health::restore::SoundBlock;
use crate::lease::moment;
use crate::options::Defect;
use crate::service::{DataService, fault};
use crate::targets::Target;
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use vazao_model::checksum::piece_checksums;
use vazao_model::cluster::lagging::CatchUpWait;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, InodeId, ObjectId, TargetId};
use vazao_wire::op::{CatchUp, CompareBlocks, ListObjects};
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{call, submit};

/// When a member that did not answer is tried again.
const AGAIN_NS: u64 = 2_000_000_000;

/// How long it may take for one request; it syncs a whole disk in one of them.
const ANSWER_NS: u64 = 2_000_000_000;
const SYNC_NS: u64 = 30_000_000_000;

/// Objects of a page.
const PAGE: u32 = 64;

/// Bytes that are compared at once, under their lock.
const PIECE_BYTES: u64 = 1 << 20;

/// Bytes of a block's hash.
pub(super) const HASH_BYTES: usize = 16;

/// Where a walk stands.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Walk {
    /// What the member is known to have missed is sent.
    Missed,
    /// What the member has and the primary has not is removed: the page after this cookie comes next.
    Orphans(Vec<u8>),
    /// What the primary has is compared.
    Objects(Vec<u8>),
    /// Everything is the same.
    Over,
}

/// What became of a piece.
pub(super) struct Compared {
    sent_bytes: u64,
    /// Zeros were passed over.
    has_holes: bool,
}

/// A lagging member that is walked.
#[derive(Clone, Debug)]
pub(super) struct CatchingUp {
    pub(super) target: TargetId,
    process: u64,
    walk: Walk,
    sent_bytes: u64,
    begun_ns: u64,
}

/// Of a group, in the table of changes.
#[derive(Default)]
pub(super) struct Lagging {
    /// The one that is walked; from then on changes are sent to it.
    pub(super) walked: Option<CatchingUp>,
    /// No other one is begun before.
    not_before_ns: u64,
    /// A thread is at it.
    is_busy: bool,
}

impl Lagging {
    /// The member that is walked, and whether to the end.
    pub(super) fn walked_so_far(&self) -> Option<(TargetId, bool)> {
        self.walked.as_ref().map(|walked| (walked.target, walked.walk == Walk::Over))
    }

    /// The walk has failed.
    fn fail(&mut self, now_ns: u64) {
        self.walked = None;
        self.not_before_ns = now_ns + AGAIN_NS;
    }
}

impl DataService {
    /// The member that is walked and gets changes although it does not count.
    pub(super) fn walked(&self, key: Key) -> Option<TargetId> {
        let table = self.replication.table.lock();
        table.led.get(&key)?.lagging.walked.as_ref().map(|walked| walked.target)
    }

    /// A change did not reach the member that is walked, which therefore begins anew.
    pub(super) fn leave_behind(&self, key: Key, target: TargetId) {
        let now_ns = self.shell.clock().now_ns();
        let mut table = self.replication.table.lock();
        if let Some(led) = table.led.get_mut(&key)
            && led.lagging.walked.as_ref().is_some_and(|walked| walked.target == target)
        {
            led.lagging.fail(now_ns);
        }
    }

    /// Has members that lag walked, each group's by one thread. It waits for nothing itself.
    pub(crate) fn catch_up_all(&self) {
        if self.is_stopped() {
            return;
        }
        for (key, is_primary) in self.leases.members() {
            if !is_primary || !self.begin_or_go_on(key) {
                continue;
            }
            let walk = move |service: &DataService| {
                service.walk_on(key);
                if let Some(led) = service.replication.table.lock().led.get_mut(&key) {
                    led.lagging.is_busy = false;
                }
            };
            if self.options.inline {
                walk(self);
                continue;
            }
            let service = self.replication.service.get().and_then(std::sync::Weak::upgrade);
            match (self.replication.walks.reserve(0), service) {
                (Some(place), Some(service)) => place.submit(move || walk(&service)),
                _ => {
                    if let Some(led) = self.replication.table.lock().led.get_mut(&key) {
                        led.lagging.is_busy = false;
                    }
                    return;
                }
            }
        }
    }

    /// True where there is something to do for a member that lags; then the caller does it.
    fn begin_or_go_on(&self, key: Key) -> bool {
        let now_ns = self.shell.clock().now_ns();
        {
            let mut table = self.replication.table.lock();
            let Some(led) = table.led.get_mut(&key) else { return false };
            let may = led.is_ready && !led.lagging.is_busy;
            if !may || (led.lagging.walked.is_none() && now_ns < led.lagging.not_before_ns) {
                return false;
            }
        }
        let Ok(view) = self.view(key) else { return false };
        let record = self.leases.record(key);
        let current: Vec<TargetId> =
            record.iter().flat_map(|record| record.current()).map(|member| member.target).collect();
        let mut table = self.replication.table.lock();
        let Some(led) = table.led.get_mut(&key) else { return false };
        let lags = |walked: &CatchingUp| {
            view.lagging.contains(&(walked.target, walked.process)) || view.others.contains(&walked.target)
        };
        let counts = |walked: &CatchingUp| current.contains(&walked.target);
        if led.lagging.walked.as_ref().is_some_and(counts) {
            led.lagging.walked = None;
        } else if led.lagging.walked.as_ref().is_some_and(|walked| !lags(walked)) {
            led.lagging.fail(now_ns);
        }
        let is_due = led.lagging.walked.is_some() || !view.lagging.is_empty();
        led.lagging.is_busy = is_due;
        is_due
    }

    /// Goes on with the walk of one group's member, to its end where it may wait.
    fn walk_on(&self, key: Key) {
        loop {
            if let Err(fault) = self.walk_step(key) {
                tracing::debug!(group = %key.1, target_id = key.0.0, %fault, "a lagging member is tried again");
                let now_ns = self.shell.clock().now_ns();
                if let Some(led) = self.replication.table.lock().led.get_mut(&key) {
                    led.lagging.fail(now_ns);
                }
                return;
            }
            let is_over = self
                .replication
                .table
                .lock()
                .led
                .get(&key)
                .and_then(|led| led.lagging.walked.as_ref())
                .is_none_or(|walked| walked.walk == Walk::Over);
            if is_over || self.options.inline || self.is_stopped() {
                return;
            }
        }
    }

    /// The next step: a page of the walk, or of the promotion at its end.
    fn walk_step(&self, key: Key) -> Result<(), Fault> {
        let known = self.replication.table.lock().led.get(&key).and_then(|led| led.lagging.walked.clone());
        let Some(walked) = known else { return self.begin_walk(key) };
        match &walked.walk {
            Walk::Missed => {
                let (is_over, sent_bytes) = self.send_missed(key, walked.target)?;
                self.walked_to(key, if is_over { Walk::Over } else { Walk::Missed }, sent_bytes);
            }
            Walk::Orphans(cookie) => {
                let next = self.remove_orphans(key, walked.target, cookie)?;
                let first = || Walk::Objects(Vec::new());
                self.walked_to(key, next.map_or_else(first, Walk::Orphans), 0);
            }
            Walk::Objects(cookie) => {
                let (next, sent_bytes) = self.compare_page(key, walked.target, cookie)?;
                self.walked_to(key, next.map_or(Walk::Over, Walk::Objects), sent_bytes);
            }
            Walk::Over => self.promote(key, &walked)?,
        }
        Ok(())
    }

    fn walked_to(&self, key: Key, walk: Walk, sent_bytes: u64) {
        if let Some(led) = self.replication.table.lock().led.get_mut(&key)
            && let Some(walked) = &mut led.lagging.walked
        {
            walked.walk = walk;
            walked.sent_bytes += sent_bytes;
        }
    }

    fn begin_walk(&self, key: Key) -> Result<(), Fault> {
        let view = self.view(key)?;
        let Some((target, process)) = view.lagging.first().copied() else { return Ok(()) };
        self.weigh(key, false);
        let kept_from = self.ask_catch_up(key, target, target, BEGIN, Vec::new(), ANSWER_NS)?;
        let begun_ns = self.shell.clock().now_ns();
        let missed_bytes = {
            // In one: each change either is under way here, or sees that the member is walked.
            let mut table = self.replication.table.lock();
            let led = table.led.entry(key).or_default();
            if self.options.defect == Some(Defect::ForgottenMisses) {
                led.missed.entry(target).and_modify(|missed| *missed = Missed::new(missed.run));
            }
            let is_known = led.missed.get(&target).is_some_and(|missed| missed.holds_since(kept_from));
            let walk = if is_known {
                led.missed_by_walked(target);
                Walk::Missed
            } else {
                led.missed.remove(&target);
                Walk::Orphans(Vec::new())
            };
            led.lagging.walked = Some(CatchingUp { target, process, walk, sent_bytes: 0, begun_ns });
            led.missed.get(&target).and_then(Missed::bytes)
        };
        if missed_bytes.is_none() {
            self.weigh(key, true);
        }
        self.replication.progress.begin(key, target, missed_bytes, begun_ns);
        Ok(())
    }

    /// Sends what the member missed of one object, and how many bytes that was. True: there is nothing more.
    fn send_missed(&self, key: Key, other: TargetId) -> Result<(bool, u64), Fault> {
        let next = {
            let mut table = self.replication.table.lock();
            let missed = table.led.get_mut(&key).and_then(|led| led.missed.get_mut(&other));
            // Then it is compared whole, from the beginning.
            let lost = || Fault::new(Code::Unavailable, "what the member missed is not known any more");
            missed.filter(|missed| !missed.is_too_much()).ok_or_else(lost)?.pop()
        };
        let Some(mut next) = next else { return Ok((true, 0)) };
        let sent = self.target(key.0.0).and_then(|target| self.send_touched(key, other, target, &mut next));
        if sent.is_err()
            && let Some(led) = self.replication.table.lock().led.get_mut(&key)
            && let Some(missed) = led.missed.get_mut(&other)
        {
            missed.add(&next);
        }
        Ok((false, sent?))
    }

    /// Makes the member's copy of an object as this one's in these bytes, and as long.
    fn send_touched(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        touched: &mut Touched,
    ) -> Result<u64, Fault> {
        let object = touched.object;
        {
            let _held = self.lock_blocks(object, &[WHOLE])?;
            if !target.exists(object).map_err(fault)? {
                return self.remove_there(key, other, object).map(|()| 0);
            }
        }
        self.compare_object(key, other, target, touched)
    }

    fn remove_there(&self, key: Key, other: TargetId, object: ObjectId) -> Result<(), Fault> {
        let objects = vec![super::even::address(object)];
        let remove = Change::new(Body::Remove(proto::RemoveObjectsRequest { objects }));
        self.send_one(key, other, &remove)
    }

    /// Removes a page of what the member has and this one has not; where the next page begins.
    fn remove_orphans(&self, key: Key, other: TargetId, cookie: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let (transport, address) = self.way_to(other)?;
        let (target, group, cookie) = (other.0, key.1.0, cookie.to_vec());
        let request = proto::ListObjectsRequest { target, cookie, limit: PAGE, group };
        let until_ns = transport.clock().now_ns() + ANSWER_NS;
        let page = call::<ListObjects>(transport, &address, &request, until_ns)?;
        let target = self.target(key.0.0)?;
        for object in objects_of(key, &page) {
            let _held = self.lock_blocks(object, &[WHOLE])?;
            if !target.exists(object).map_err(fault)? {
                self.remove_there(key, other, object)?;
            }
        }
        Ok(next_cookie(page))
    }

    /// Compares a page of this member's objects; where the next one begins, and how many bytes were sent.
    fn compare_page(
        &self,
        key: Key,
        other: TargetId,
        cookie: &[u8],
    ) -> Result<(Option<Vec<u8>>, u64), Fault> {
        let target = self.target(key.0.0)?;
        let page = target.list(cookie, PAGE, Some(key.1)).map_err(fault)?;
        let mut sent_bytes = 0;
        for object in objects_of(key, &page) {
            let mut all = Touched { object, ranges: vec![WHOLE] };
            sent_bytes += self.compare_object(key, other, target, &mut all)?;
        }
        Ok((next_cookie(page), sent_bytes))
    }

    fn compare_object(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        touched: &mut Touched,
    ) -> Result<u64, Fault> {
        let object = touched.object;
        // What this one lacks it must not take away elsewhere.
        target.restores.check_finished(object)?;
        let is_new = self.compare_ends(key, other, target, object);
        if !matches!(is_new, Ok(false)) {
            // Whatever it missed of it: it may have lost it. Also with the next attempt.
            touched.ranges = vec![WHOLE];
        }
        is_new?;
        let mut sent_bytes = 0;
        let mut has_holes = false;
        for range in &touched.ranges {
            let started_ns = self.shell.clock().now_ns();
            if range.end - range.start < BLOCK_BYTES as u64
                && let Some(sent) = self.send_exactly(key, other, target, object, range.clone())?
            {
                sent_bytes += sent;
                self.make_way(key, other, started_ns);
                continue;
            }
            let mut at = range.start / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
            let end = range.end.checked_next_multiple_of(BLOCK_BYTES as u64).unwrap_or(u64::MAX);
            while at < end {
                let started_ns = self.shell.clock().now_ns();
                let piece = at..end.min(at.saturating_add(PIECE_BYTES));
                at = piece.end;
                let Some(compared) = self.compare_piece(key, other, target, object, piece)? else {
                    break;
                };
                sent_bytes += compared.sent_bytes;
                has_holes |= compared.has_holes;
                self.make_way(key, other, started_ns);
            }
        }
        // Of one that became longer only the bytes behind its end were touched.
        if has_holes || touched.ranges != [WHOLE] {
            sent_bytes += self.send_end(key, other, target, object)?;
        }
        Ok(sent_bytes)
    }

    /// Sends a range that is shorter than a block as it is, without asking what the member has there. `None`: that
    /// cannot be done; its blocks are to be compared.
    fn send_exactly(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        object: ObjectId,
        range: Range<u64>,
    ) -> Result<Option<u64>, Fault> {
        let block = BLOCK_BYTES as u64;
        let start = range.start / block * block;
        let whole = start..range.end.checked_next_multiple_of(block).unwrap_or(u64::MAX);
        let _held = self.lock_blocks(object, std::slice::from_ref(&whole))?;
        let mut bytes = Vec::new();
        let found = self.repaired_blocks(key, target, object, whole, Some(other))?;
        for (offset, found) in (start..).step_by(BLOCK_BYTES).zip(found) {
            bytes.extend(found.ok_or_else(|| no_good_copy(object, offset))?.bytes);
        }
        let of = |at: u64| bytes.len().min((at - start) as usize);
        let sent = &bytes[of(range.start)..of(range.end)];
        if sent.is_empty() {
            return Ok(Some(0));
        }
        let checksums = piece_checksums(range.start, sent);
        match self.send_blocks(key, other, object, range.start, checksums, sent) {
            Ok(()) => {
                self.replication.progress.compared(key, other, sent.len() as u64, sent.len() as u64);
                Ok(Some(sent.len() as u64))
            }
            // The rest of the block is damaged there.
            Err(fault) if fault.code == Code::Corrupt => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Sends the last block of an object in which zeros were passed over: it may have become the last one meanwhile.
    fn send_end(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        object: ObjectId,
    ) -> Result<u64, Fault> {
        let _held = self.lock_blocks(object, &[WHOLE])?;
        let length = target.extent(object).map_err(fault)?.1;
        let last = length.saturating_sub(1) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        if self.ask_blocks(key, other, object, 0..0)?.length < length {
            let blocks = self.repaired_blocks(key, target, object, last..length, Some(other))?;
            let block = blocks.into_iter().next().flatten().ok_or_else(|| no_good_copy(object, last))?;
            self.send_blocks(key, other, object, last, vec![block.checksum], &block.bytes)?;
            return Ok(block.bytes.len() as u64);
        }
        Ok(0)
    }

    fn send_blocks(
        &self,
        key: Key,
        other: TargetId,
        object: ObjectId,
        offset: u64,
        checksums: Vec<u32>,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let object = Some(super::even::address(object));
        let write = proto::WriteRequest { object, offset, checksums, ..Default::default() };
        self.send_one(key, other, &Change { body: Body::Write(write), bytes: bytes.to_vec() })
    }

    /// Makes an object where this one has it, and cuts it to the length that it has here. True: it was not there.
    pub(super) fn compare_ends(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        object: ObjectId,
    ) -> Result<bool, Fault> {
        let _held = self.lock_blocks(object, &[WHOLE])?;
        let (own, theirs) = (target.stat(object).map_err(fault)?, self.ask_blocks(key, other, object, 0..0)?);
        let address = || Some(super::even::address(object));
        let is_new = own.exists && !theirs.exists;
        if is_new {
            let make = proto::WriteRequest { object: address(), ..Default::default() };
            self.send_one(key, other, &Change::new(Body::Write(make)))?;
        }
        if theirs.length > own.length {
            let (length, object) = (own.length, address());
            let cut = proto::TruncateObjectRequest { object, length, must_exist: false };
            self.send_one(key, other, &Change::new(Body::Truncate(cut)))?;
        }
        Ok(is_new)
    }

    /// Half of the time is for what programs ask, while they do.
    fn make_way(&self, key: Key, other: TargetId, started_ns: u64) {
        let is_busy = self.replication.table.lock().led.get(&key).is_some_and(|led| !led.open.is_empty());
        let clock = self.shell.clock();
        if is_busy && clock.can_wait() && !self.options.inline {
            let taken_ns = clock.now_ns().saturating_sub(started_ns);
            let mut watch = self.stopwatch(key, other);
            clock.sleep(Duration::from_nanos(taken_ns));
            watch.lap(CatchUpWait::Programs);
        }
    }

    /// Sends what differs in a piece; `None`: the object ends before it.
    pub(super) fn compare_piece(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        object: ObjectId,
        piece: Range<u64>,
    ) -> Result<Option<Compared>, Fault> {
        let mut watch = self.stopwatch(key, other);
        let _held = self.lock_blocks(object, std::slice::from_ref(&piece))?;
        watch.lap(CatchUpWait::Programs);
        let blocks = self.repaired_blocks(key, target, object, piece.clone(), Some(other))?;
        if blocks.is_empty() {
            return Ok(None);
        }
        watch.lap(CatchUpWait::OwnDisk);
        let theirs = self.ask_blocks(key, other, object, piece.clone())?;
        watch.skip();
        let (mut bytes, mut checksums) = (Vec::new(), Vec::new());
        for (index, block) in blocks.into_iter().enumerate() {
            let offset = piece.start + (index * BLOCK_BYTES) as u64;
            let block = block.ok_or_else(|| no_good_copy(object, offset))?;
            bytes.extend_from_slice(&block.bytes);
            checksums.push(block.checksum);
        }
        let is_end = piece.start + bytes.len() as u64 >= target.extent(object).map_err(fault)?.1;
        let (runs, has_holes) = differing(&bytes, &theirs.hashes, is_end);
        watch.lap(CatchUpWait::OwnCpu);
        let mut compared = Compared { sent_bytes: 0, has_holes };
        for run in runs {
            let blocks = &bytes[run.start * BLOCK_BYTES..bytes.len().min(run.end * BLOCK_BYTES)];
            let offset = piece.start + (run.start * BLOCK_BYTES) as u64;
            self.send_blocks(key, other, object, offset, checksums[run].to_vec(), blocks)?;
            compared.sent_bytes += blocks.len() as u64;
        }
        self.replication.progress.compared(key, other, bytes.len() as u64, compared.sent_bytes);
        Ok(Some(compared))
    }

    pub(super) fn ask_blocks(
        &self,
        key: Key,
        other: TargetId,
        object: ObjectId,
        range: Range<u64>,
    ) -> Result<proto::CompareBlocksResponse, Fault> {
        let (transport, server) = self.way_to(other)?;
        let forward = self.replication.forward(key, self.view(key)?.epoch, 0, self.record(key));
        let address = proto::ObjectAddress { forward: Some(forward), ..super::even::address(object) };
        let (offset, length) = (range.start, (range.end - range.start) as u32);
        let request = proto::CompareBlocksRequest { object: Some(address), offset, length };
        let begun_ns = transport.clock().now_ns();
        let asked = submit::<CompareBlocks>(transport, &server, &request, &[], begun_ns + ANSWER_NS);
        let (answer, received) = asked.wait_timed()?;
        let taken_ns = transport.clock().now_ns().saturating_sub(begun_ns);
        let service_ns = u64::from(received.service_us) * 1000;
        self.replication.progress.answered(key, other, taken_ns, service_ns, answer.disk_ns);
        Ok(answer)
    }

    /// Has one other member carry out what is so here already.
    pub(super) fn send_one(&self, key: Key, other: TargetId, change: &Change) -> Result<(), Fault> {
        let forward = self.replication.forward(key, self.view(key)?.epoch, 0, self.record(key));
        let clock = self.shell.clock();
        let begun_ns = clock.now_ns();
        for (_, sent) in self.submit(change, &forward, &[other]) {
            let answer = sent.and_then(|pending| pending.wait());
            let received = answer.inspect_err(|fault| self.replication.note_failure(key, fault.code))?;
            let (taken_ns, service_ns) =
                (clock.now_ns().saturating_sub(begun_ns), u64::from(received.service_us) * 1000);
            // What it does for a change is done by its disk, but for checking the bytes.
            self.replication.progress.answered(key, other, taken_ns, service_ns, service_ns);
        }
        Ok(())
    }

    /// Has a member that has everything count, in the order that the rule of members demands.
    fn promote(&self, key: Key, walked: &CatchingUp) -> Result<(), Fault> {
        if self.leases.is_said(key) {
            return Ok(());
        }
        let view = self.view(key)?;
        let is_begun = view.others.contains(&walked.target);
        if !is_begun {
            let target = self.target(key.0.0)?;
            let Some(gone) = target.gone_of_group(key.1) else {
                // It is over soon: nothing is lost by waiting.
                return Ok(());
            };
            self.ask_catch_up(key, walked.target, walked.target, HAS_ALL, gone, SYNC_NS)?;
            if !self.begin_promotion(key, walked, view.epoch) {
                return Ok(());
            }
        }
        for other in self.view(key)?.others {
            let limit_ns = if other == walked.target { SYNC_NS } else { ANSWER_NS };
            if self.ask_catch_up(key, other, walked.target, COUNTS, Vec::new(), limit_ns).is_err() {
                // Again with the next turn; the metadata service is asked once all hold it so.
                return Ok(());
            }
        }
        let seconds = self.shell.clock().now_ns().saturating_sub(walked.begun_ns) / 1_000_000_000;
        tracing::info!(
            group = %key.1,
            target_id = walked.target.0,
            sent_bytes = walked.sent_bytes,
            seconds,
            "a lagging member has caught up"
        );
        self.leases.say_caught_up(key, walked.target, walked.process, view.epoch);
        Ok(())
    }

    /// From now on the member counts here. False: a change has not reached it, or the leases are not held just now.
    fn begin_promotion(&self, key: Key, walked: &CatchingUp, epoch: u64) -> bool {
        let now = moment(&**self.shell.clock());
        let target = walked.target;
        // In one: a change that does not reach it either ends the walk before, or sees then that it counts.
        let mut table = self.replication.table.lock();
        let Some(led) = table.led.get_mut(&key) else { return false };
        let Some(walked) = led.lagging.walked.as_mut().filter(|it| it.target == target) else { return false };
        if led.missed.get(&target).is_some_and(|missed| !missed.is_empty()) {
            walked.walk = Walk::Missed;
            return false;
        }
        let begins = self.options.defect == Some(Defect::UncountedPromotion)
            || self.leases.promote(key, target, epoch, Some(now));
        if begins {
            led.missed.insert(target, Missed::new(walked.process));
        }
        begins
    }

    fn ask_catch_up(
        &self,
        key: Key,
        asked: TargetId,
        target: TargetId,
        step: u32,
        gone: Vec<proto::GoneObject>,
        limit_ns: u64,
    ) -> Result<u64, Fault> {
        let (transport, server) = self.way_to(asked)?;
        let (epoch, record) = (self.view(key)?.epoch, self.record(key));
        let request = proto::CatchUpRequest { group: key.1.0, epoch, record, target: target.0, step, gone };
        let until_ns = transport.clock().now_ns() + limit_ns;
        call::<CatchUp>(transport, &server, &request, until_ns).map(|answer| answer.kept_from)
    }

    /// The part of another member, or of the one that catches up: since which of its processes it has kept all.
    pub(crate) fn take_catch_up(&self, request: &proto::CatchUpRequest) -> Result<u64, Fault> {
        let group = vazao_model::GroupId(request.group);
        let no_member = || Fault::new(Code::WrongTarget, format!("placement group {group}"));
        let key = (self.leases.member(group).ok_or_else(no_member)?, group);
        self.check_sender(key, request.epoch, request.record.as_ref())?;
        let (target, other) = (self.target(key.0.0)?, TargetId(request.target));
        match request.step {
            BEGIN if other == key.0 => {
                target.forget_unnamed(group);
                target.forget_freezes(group).map_err(fault)?;
                let forgets = self.options.defect == Some(Defect::ForgottenPower);
                return Ok(if forgets { 1 } else { target.kept_from() });
            }
            HAS_ALL if other == key.0 => {
                target.keep_gone(group, &request.gone).map_err(fault)?;
                // What was sent is as durable as all that was synced elsewhere.
                target.sync_all()?;
            }
            // What came between that and the moment from which syncs wait for it may have been synced without it.
            COUNTS if other == key.0 => target.sync_all()?,
            COUNTS => {}
            step => {
                let text = format!("placement group {group}: step {step} of catching up for {other}");
                return Err(Fault::new(Code::BadRequest, text));
            }
        }
        match self.leases.promote(key, other, request.epoch, None) {
            true => Ok(0),
            false => {
                let text =
                    format!("placement group {group}: {other} does not lag, or another one is promoted");
                Err(Fault::new(Code::Unavailable, text))
            }
        }
    }

    /// What this member has of an object.
    pub(crate) fn compare_blocks(
        target: &Target,
        id: ObjectId,
        range: Range<u64>,
    ) -> Result<proto::CompareBlocksResponse, Fault> {
        let begun_ns = target.clock.now_ns();
        let state = target.stat(id).map_err(fault)?;
        let is_asked = range.start < range.end;
        let blocks = if is_asked { super::restore::sound_blocks(target, id, range)? } else { Vec::new() };
        let disk_ns = target.clock.now_ns().saturating_sub(begun_ns);
        // One that is damaged is sent anew: no bytes have this hash.
        let hash_of = |block: Option<SoundBlock>| block.map_or([0; HASH_BYTES], |block| hash(&block.bytes));
        let hashes = blocks.into_iter().flat_map(hash_of).collect();
        Ok(proto::CompareBlocksResponse { exists: state.exists, length: state.length, hashes, disk_ns })
    }
}

fn no_good_copy(object: ObjectId, offset: u64) -> Fault {
    Fault::new(Code::Corrupt, format!("object {object}: no current copy of its block at {offset} is good"))
}

const BEGIN: u32 = 1;
const HAS_ALL: u32 = 2;
const COUNTS: u32 = 3;

pub(super) fn hash(block: &[u8]) -> [u8; HASH_BYTES] {
    let digest = Sha256::digest(block);
    std::array::from_fn(|at| digest[at])
}

/// Runs of blocks that are not the same as those of which these are the hashes; true: zeros beyond the other's end were
/// passed over, of which it needs only the last block of an object (`is_end`: it is among these).
fn differing(bytes: &[u8], theirs: &[u8], is_end: bool) -> (Vec<Range<usize>>, bool) {
    let mut hashes = theirs.chunks_exact(HASH_BYTES);
    let (mut runs, mut has_holes): (Vec<Range<usize>>, bool) = (Vec::new(), false);
    let last = bytes.len().div_ceil(BLOCK_BYTES) - 1;
    for (at, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        let theirs = hashes.next();
        let is_hole = theirs.is_none() && !(is_end && at == last) && block.iter().all(|byte| *byte == 0);
        has_holes |= is_hole;
        if is_hole || theirs.is_some_and(|theirs| theirs == hash(block)) {
            continue;
        }
        match runs.last_mut().filter(|run| run.end == at) {
            Some(run) => run.end += 1,
            None => runs.push(at..at + 1),
        }
    }
    (runs, has_holes)
}

/// The objects of a page.
fn objects_of((_, group): Key, page: &proto::ListObjectsResponse) -> Vec<ObjectId> {
    let object = |it: &proto::ListedObject| {
        let (inode, generation, slot) = (InodeId(it.inode), it.generation, it.slot);
        (it.group == group.0).then_some(ObjectId { inode, generation, slot, group })
    };
    page.objects.iter().filter_map(object).collect()
}

/// Where the page after this one begins; `None`: there is none.
fn next_cookie(page: proto::ListObjectsResponse) -> Option<Vec<u8>> {
    Some(page.cookie).filter(|cookie| !cookie.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(bytes: &[u8]) -> Vec<u8> {
        bytes.chunks(BLOCK_BYTES).flat_map(hash).collect()
    }

    /// The first block of each run and the one after it.
    fn runs(bytes: &[u8], theirs: &[u8], is_end: bool) -> (Vec<(usize, usize)>, bool) {
        let (runs, has_holes) = differing(bytes, theirs, is_end);
        (runs.into_iter().map(|run| (run.start, run.end)).collect(), has_holes)
    }

    #[test]
    fn blocks_that_differ_are_sent_in_runs() {
        let mut bytes = vec![1; 5 * BLOCK_BYTES + 9];
        let theirs = hashes(&bytes);
        assert_eq!(runs(&bytes, &theirs, true), (vec![], false));
        assert_eq!(runs(&bytes, &[], true).0, [(0, 6)], "an object that the member lacks");
        assert_eq!(runs(&bytes, &theirs[..4 * HASH_BYTES], true).0, [(4, 6)], "a shorter one");
        (bytes[BLOCK_BYTES], bytes[3 * BLOCK_BYTES - 1], bytes[5 * BLOCK_BYTES + 8]) = (2, 2, 2);
        assert_eq!(runs(&bytes, &theirs, true), (vec![(1, 3), (5, 6)], false));
    }

    #[test]
    fn zeros_beyond_the_end_of_a_copy_are_not_sent_but_for_the_last_block() {
        let mut bytes = vec![0; 4 * BLOCK_BYTES];
        assert_eq!(runs(&bytes, &[], false), (vec![], true));
        assert_eq!(runs(&bytes, &[], true), (vec![(3, 4)], true));
        bytes[2 * BLOCK_BYTES] = 1;
        assert_eq!(runs(&bytes, &[], true), (vec![(2, 4)], true));
        let theirs = hashes(&vec![7; 4 * BLOCK_BYTES]);
        assert_eq!(runs(&bytes, &theirs, true), (vec![(0, 4)], false), "what it has is overwritten");
    }
}
