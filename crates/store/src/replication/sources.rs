//! Where a copy is read from to repair another one.
//!
//! A member that counts has what its group has acknowledged: any block of it that matches its checksum is good. One
//! that lags may have an older block, which matches its own checksum just as well. Of such a member a block is good
//! only where it has the checksum that the damaged one should have here, or the bytes that are here: then it is the
//! checksum that has rotted.

use super::restore::is_soon;
use super::{Key, even};
use crate::health::restore::SoundBlock;
use crate::service::{DataService, fault};
use crate::targets::Target;
use std::ops::Range;
use vazao_model::checksum::{crc32c, first_mismatch, piece_count};
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, BLOCK_BYTES};
use vazao_model::{Code, ObjectId, TargetId};
use vazao_wire::op::{CompareBlocks, Read, StatObject};
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{call, submit};

/// How long another member may take for a block.
const BLOCK_NS: u64 = 2_000_000_000;

impl DataService {
    /// Bytes of another member's copy, at most those of a request; `None`: it is damaged there, or shorter.
    pub(super) fn read_of(
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

    /// The damaged block at `offset` here, which the caller has locked as the primary, as one of these members has it
    /// that lag: one that has it with the checksum that it should have, before one that has the same bytes. `None`:
    /// neither is among those that answer. Errors: also that one of them cannot say it yet.
    pub(super) fn confirmed_block(
        &self,
        key: Key,
        target: &Target,
        object: ObjectId,
        offset: u64,
        lagging: impl Iterator<Item = TargetId>,
    ) -> Result<Option<SoundBlock>, Fault> {
        let (mut unknown, mut same) = (None, None);
        let mut found = None;
        for other in lagging {
            match self.block_of_lagging(key, other, object, offset) {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) if target.is_noted(object, offset, &bytes).map_err(fault)? => {
                    found = Some(bytes);
                    break;
                }
                Ok(bytes) if target.is_here(object, offset, &bytes).map_err(fault)? => same = Some(bytes),
                Ok(_) => {}
                Err(fault) => {
                    tracing::debug!(%object, target_id = other.0, %fault, "a lagging member gives no block");
                    unknown = unknown.or(Some(fault).filter(|fault| is_soon(fault.code)));
                }
            }
        }
        let Some(mut bytes) = found.or(same) else {
            return unknown.map_or(Ok(None), Err);
        };
        let length = target.extent(object).map_err(fault)?.1;
        let present = length.saturating_sub(offset).min(BLOCK_BYTES as u64);
        // A whole one at the end may stand for what was cut off.
        if present < BLOCK_BYTES as u64 || offset + present < length {
            bytes.resize(bytes.len().max(present as usize), 0);
        }
        let checksum = crc32c(&bytes);
        Ok(Some(SoundBlock { bytes, checksum }))
    }

    /// A block of a member that lags; no bytes: it is damaged there, or is not there.
    pub(super) fn block_of_lagging(
        &self,
        key: Key,
        other: TargetId,
        object: ObjectId,
        offset: u64,
    ) -> Result<Vec<u8>, Fault> {
        let (transport, server) = self.way_to(other)?;
        // The walk connects: programs may wait for this block meanwhile.
        if !transport.is_ready(&server) {
            return Err(Fault::new(Code::Unavailable, format!("there is no connection to {server} yet")));
        }
        let forward = self.replication.forward(key, self.leading(key)?.epoch, 0, self.record(key));
        let object = Some(proto::ObjectAddress { forward: Some(forward), ..even::address(object) });
        let length = BLOCK_BYTES as u32;
        let request = proto::CompareBlocksRequest { object, offset, length, with_bytes: true };
        let until_ns = transport.clock().now_ns() + BLOCK_NS;
        let (_, bytes) = submit::<CompareBlocks>(transport, &server, &request, &[], until_ns).wait()?;
        Ok(bytes.to_vec())
    }

    /// Whether all of an object can be read at another member that counts. Errors: that cannot be told now.
    pub(super) fn is_whole_at(&self, other: TargetId, object: ObjectId) -> Result<bool, Fault> {
        let (transport, server) = self.way_to(other)?;
        let request = proto::StatObjectRequest { object: Some(even::address(object)) };
        let until_ns = transport.clock().now_ns() + BLOCK_NS;
        let length = match call::<StatObject>(transport, &server, &request, until_ns) {
            Ok(theirs) if theirs.exists => theirs.length,
            Ok(_) => return Ok(false),
            Err(fault) if fault.code == Code::Corrupt => return Ok(false),
            Err(fault) => return Err(fault),
        };
        let mut at = 0;
        while at < length {
            // Holes as well: an end that was cut off is one.
            let piece = at..length.min(at.saturating_add(ATTACHMENT_BYTES_MAX as u64));
            at = piece.end;
            if self.is_stopped() {
                return Err(Fault::new(Code::Unavailable, "the data server is stopping"));
            }
            if self.read_of(other, object, piece)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
