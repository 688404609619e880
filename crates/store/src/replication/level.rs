//! Makes the copy of a lagging member as the primary's, object by object: it asks what the member has, and sends what
//! differs. Each piece is compared under the lock of its blocks, so that no change comes in between.

use super::Key;
use super::change::{Body, Change, Touched, WHOLE};
use crate::health::restore::SoundBlock;
use crate::service::{DataService, fault};
use crate::targets::Target;
use sha2::{Digest, Sha256};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_model::checksum::piece_checksums;
use vazao_model::cluster::lagging::CatchUpWait;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, ObjectId, TargetId};
use vazao_wire::op::CompareBlocks;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::submit;

/// How long the member may take for one request.
const ANSWER_NS: u64 = 2_000_000_000;

/// Bytes that are compared at once, under their lock, for which programs wait: fewer where a piece takes long, as
/// behind a link that carries little.
const PIECE_BYTES: RangeInclusive<u64> = 128 << 10..=1 << 20;
const PIECE_NS: RangeInclusive<u64> = 60_000_000..=250_000_000;

/// Bytes of a block's hash.
pub(super) const HASH_BYTES: usize = 16;

/// How many bytes the next piece has.
pub(super) struct PieceBytes(AtomicU64);

impl Default for PieceBytes {
    fn default() -> PieceBytes {
        PieceBytes(AtomicU64::new(*PIECE_BYTES.end()))
    }
}

impl PieceBytes {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A piece of so many bytes, or of fewer and too long, took so long.
    fn took(&self, bytes: u64, taken_ns: u64) {
        let next = match taken_ns {
            ns if ns > *PIECE_NS.end() => bytes / 2,
            ns if ns < *PIECE_NS.start() => bytes * 2,
            _ => bytes,
        };
        self.0.store(next.clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end()), Ordering::Relaxed);
    }
}

/// What became of a piece.
pub(super) struct Compared {
    bytes: u64,
    /// How long it took to ask for hashes and to send what differs, without the way there and back.
    moved_ns: u64,
    sent_bytes: u64,
    /// Zeros were passed over.
    has_holes: bool,
}

impl DataService {
    /// Makes the member's copy as this one's in the bytes that are touched, or in all where it lacks the object.
    pub(super) fn compare_object(
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
                let piece_bytes = self.replication.piece_bytes.get();
                let piece = at..end.min(at.saturating_add(piece_bytes));
                at = piece.end;
                let compared = self.compare_piece(key, other, target, object, piece);
                if compared.as_ref().is_err_and(|fault| fault.code.is_silence()) {
                    self.replication.piece_bytes.took(piece_bytes, ANSWER_NS);
                }
                let Some(compared) = compared? else { break };
                sent_bytes += compared.sent_bytes;
                has_holes |= compared.has_holes;
                if compared.bytes == piece_bytes || compared.moved_ns > *PIECE_NS.end() {
                    self.replication.piece_bytes.took(piece_bytes, compared.moved_ns);
                }
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
        let leads_since = self.leadership(key)?;
        let mut bytes = Vec::new();
        let found = self.repaired_blocks(key, target, object, whole, Some(other))?;
        for found in found {
            // No copy of it is good.
            let Some(found) = found else { return Ok(None) };
            bytes.extend(found.bytes);
        }
        let of = |at: u64| bytes.len().min((at - start) as usize);
        let sent = &bytes[of(range.start)..of(range.end)];
        if sent.is_empty() {
            self.check_kept(key, other, target, object)?;
            return Ok(Some(0));
        }
        let checksums = piece_checksums(range.start, sent);
        match self.send_blocks((key, leads_since), other, object, range.start, checksums, sent) {
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
        let leads_since = self.leadership(key)?;
        let length = target.extent(object).map_err(fault)?.1;
        target.restores.check_finished(object)?;
        self.check_kept(key, other, target, object)?;
        let last = length.saturating_sub(1) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        if self.ask_blocks(key, other, object, 0..0)?.length < length {
            let blocks = self.repaired_blocks(key, target, object, last..length, Some(other))?;
            let Some(block) = blocks.into_iter().next().flatten() else {
                return self.send_lost(key, other, target, object, last).map(|()| 0);
            };
            self.send_blocks((key, leads_since), other, object, last, vec![block.checksum], &block.bytes)?;
            return Ok(block.bytes.len() as u64);
        }
        Ok(0)
    }

    fn send_blocks(
        &self,
        (key, leads_since): (Key, u64),
        other: TargetId,
        object: ObjectId,
        offset: u64,
        checksums: Vec<u32>,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let object = Some(super::even::address(object));
        // One that has lost it since would make it of these bytes and zeros.
        let write = proto::WriteRequest { object, offset, checksums, must_exist: true, ..Default::default() };
        self.send_one(key, leads_since, other, &Change { body: Body::Write(write), bytes: bytes.to_vec() })
    }

    /// Makes an object where this one has it, and cuts it to the length that it has here. True: it was not there.
    /// Errors: also that this one has lost it, as [`check_kept`](Self::check_kept) says.
    pub(super) fn compare_ends(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        object: ObjectId,
    ) -> Result<bool, Fault> {
        let _held = self.lock_blocks(object, &[WHOLE])?;
        let leads_since = self.leadership(key)?;
        let (own, theirs) = (target.stat(object).map_err(fault)?, self.ask_blocks(key, other, object, 0..0)?);
        // It is made anew piece by piece, each under the lock.
        target.restores.check_finished(object)?;
        let address = || Some(super::even::address(object));
        if !own.exists && theirs.exists {
            return Err(self.absent(key, target, object));
        }
        let is_new = own.exists && !theirs.exists;
        if is_new {
            let make = proto::WriteRequest { object: address(), ..Default::default() };
            self.send_one(key, leads_since, other, &Change::new(Body::Write(make)))?;
        }
        if theirs.length > own.length {
            let length = self.known_end(key, target, object)?;
            let object = address();
            let cut = proto::TruncateObjectRequest { object, length, must_exist: false };
            self.send_one(key, leads_since, other, &Change::new(Body::Truncate(cut)))?;
        }
        Ok(is_new)
    }

    /// Refuses to take for removed what this one has lost: a removal, which the caller keeps out by its lock, would
    /// have been carried out by the other one, too.
    fn check_kept(
        &self,
        key: Key,
        other: TargetId,
        target: &Arc<Target>,
        object: ObjectId,
    ) -> Result<(), Fault> {
        match target.extent(object).map_err(fault)?.0 || !self.ask_blocks(key, other, object, 0..0)?.exists {
            true => Ok(()),
            false => Err(self.absent(key, target, object)),
        }
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
        let leads_since = self.leadership(key)?;
        watch.lap(CatchUpWait::Programs);
        let blocks = self.repaired_blocks(key, target, object, piece.clone(), Some(other))?;
        if blocks.is_empty() {
            return self.check_kept(key, other, target, object).map(|()| None);
        }
        watch.lap(CatchUpWait::OwnDisk);
        let (transport, server) = self.way_to(other)?;
        let (begun_ns, round_trip_ns) = (transport.clock().now_ns(), transport.distance_ns(&server));
        let theirs = self.ask_blocks(key, other, object, piece.clone())?;
        watch.skip();
        let (mut bytes, mut checksums, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        let length = target.extent(object).map_err(fault)?.1;
        for (index, block) in blocks.into_iter().enumerate() {
            let offset = piece.start + (index * BLOCK_BYTES) as u64;
            match block {
                Some(block) => {
                    bytes.extend_from_slice(&block.bytes);
                    checksums.push(block.checksum);
                }
                // Something in its place.
                None => {
                    lost.push(index);
                    bytes.resize(
                        bytes.len() + length.saturating_sub(offset).min(BLOCK_BYTES as u64) as usize,
                        0,
                    );
                    checksums.push(0);
                }
            }
        }
        let is_end = piece.start + bytes.len() as u64 >= length;
        let (runs, has_holes) = differing(&bytes, &theirs.hashes, is_end);
        watch.lap(CatchUpWait::OwnCpu);
        let mut compared = Compared { bytes: bytes.len() as u64, moved_ns: 0, sent_bytes: 0, has_holes };
        for run in runs.into_iter().flat_map(|run| without(run, &lost)) {
            let blocks = &bytes[run.start * BLOCK_BYTES..bytes.len().min(run.end * BLOCK_BYTES)];
            let offset = piece.start + (run.start * BLOCK_BYTES) as u64;
            self.send_blocks((key, leads_since), other, object, offset, checksums[run].to_vec(), blocks)?;
            compared.sent_bytes += blocks.len() as u64;
        }
        for index in lost {
            self.send_lost(key, other, target, object, piece.start + (index * BLOCK_BYTES) as u64)?;
        }
        let taken_ns = transport.clock().now_ns().saturating_sub(begun_ns);
        compared.moved_ns = taken_ns.saturating_sub(2 * round_trip_ns);
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
        let forward = self.replication.forward(key, self.leading(key)?.epoch, 0, self.record(key));
        let address = proto::ObjectAddress { forward: Some(forward), ..super::even::address(object) };
        let (offset, length) = (range.start, (range.end - range.start) as u32);
        let object = Some(address);
        let request = proto::CompareBlocksRequest { object, offset, length, with_bytes: false };
        let begun_ns = transport.clock().now_ns();
        let asked = submit::<CompareBlocks>(transport, &server, &request, &[], begun_ns + ANSWER_NS);
        let (answer, received) = asked.wait_timed()?;
        let taken_ns = transport.clock().now_ns().saturating_sub(begun_ns);
        let service_ns = u64::from(received.service_us) * 1000;
        self.replication.progress.answered(key, other, taken_ns, service_ns, answer.disk_ns);
        Ok(answer)
    }

    /// Has one other member carry out what is so here already, as was seen under the leadership `leads_since`.
    pub(super) fn send_one(
        &self,
        key: Key,
        leads_since: u64,
        other: TargetId,
        change: &Change,
    ) -> Result<(), Fault> {
        // Its epoch once, as it stands at one moment: another one may lead in the next.
        let view = self.view(key)?;
        self.check_leads(key, &view, leads_since)?;
        let forward = self.replication.forward(key, view.epoch, 0, self.record(key));
        let clock = self.shell.clock();
        let begun_ns = clock.now_ns();
        for (_, sent) in self.submit(change, &forward, &[other], &[], ANSWER_NS) {
            let answer = sent.and_then(|pending| pending.wait());
            let received = answer.inspect_err(|fault| self.replication.note_failure(key, fault.code))?;
            let (taken_ns, service_ns) =
                (clock.now_ns().saturating_sub(begun_ns), u64::from(received.service_us) * 1000);
            // What it does for a change is done by its disk, but for checking the bytes.
            self.replication.progress.answered(key, other, taken_ns, service_ns, service_ns);
        }
        Ok(())
    }

    /// What this member has of an object, and the bytes of its first block of the range where they are wanted.
    pub(crate) fn compare_blocks(
        target: &Target,
        id: ObjectId,
        range: Range<u64>,
        with_bytes: bool,
    ) -> Result<(proto::CompareBlocksResponse, Vec<u8>), Fault> {
        let begun_ns = target.clock.now_ns();
        let state = target.stat(id).map_err(fault)?;
        let is_asked = range.start < range.end;
        let blocks = if is_asked { super::restore::sound_blocks(target, id, range)? } else { Vec::new() };
        let disk_ns = target.clock.now_ns().saturating_sub(begun_ns);
        // One that is damaged is sent anew: no bytes have this hash.
        let hash_of =
            |block: &Option<SoundBlock>| block.as_ref().map_or([0; HASH_BYTES], |block| hash(&block.bytes));
        let hashes = blocks.iter().flat_map(hash_of).collect();
        let first = blocks.into_iter().next().flatten().filter(|_| with_bytes);
        let bytes = first.map(|block| block.bytes).unwrap_or_default();
        let (exists, length, unfinished) =
            (state.exists, state.length, target.restores.check_finished(id).is_err());
        Ok((proto::CompareBlocksResponse { exists, length, hashes, disk_ns, unfinished }, bytes))
    }
}

/// The parts of a run of blocks between those that are lost, in ascending order.
fn without(run: Range<usize>, lost: &[usize]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = run.start;
    for &index in lost.iter().filter(|index| run.contains(index)) {
        parts.push(start..index);
        start = index + 1;
    }
    parts.push(start..run.end);
    parts.retain(|part| part.start < part.end);
    parts
}

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
    fn lost_blocks_are_not_sent() {
        assert_eq!(without(3..6, &[]), vec![3..6]);
        assert_eq!(without(3..6, &[0, 4, 9]), vec![3..4, 5..6]);
        assert_eq!(without(3..6, &[3, 5]), vec![4..5]);
        assert_eq!(without(3..6, &[3, 4, 5]), vec![]);
    }

    #[test]
    fn pieces_get_smaller_behind_a_link_that_carries_little_and_larger_again() {
        let pieces = PieceBytes::default();
        for _ in 0..5 {
            pieces.took(pieces.get(), 700_000_000);
        }
        assert_eq!(pieces.get(), 128 << 10);
        pieces.took(pieces.get(), 100_000_000);
        assert_eq!(
            pieces.get(),
            128 << 10,
            "long enough not to be mostly round trips, short enough to wait for"
        );
        for _ in 0..5 {
            pieces.took(pieces.get(), 2_000_000);
        }
        assert_eq!(pieces.get(), 1 << 20);
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
