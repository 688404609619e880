//! CopyObjectRange: bytes from one object of this server to another, without a client in between.
//!
//! They are verified by the checksums they are stored with, which go with them. What is zeros becomes a hole.

use crate::object::Mode;
use crate::object::attempts::Terms;
use crate::service::fault;
use crate::targets::Target;
use vazao_model::checksum::{first_mismatch, piece_count};
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, BLOCK_BYTES};
use vazao_model::{Code, ObjectId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// A range of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
}

/// Refuses what could not be copied piece by piece with its checksums.
pub(crate) fn check(from: Place, to: Place, length: u32) -> Result<(), Fault> {
    let block_bytes = BLOCK_BYTES as u64;
    if length as usize > ATTACHMENT_BYTES_MAX || from.offset % block_bytes != to.offset % block_bytes {
        let detail = format!("a copy of {length} bytes from {} to {}", from.offset, to.offset);
        return Err(Fault::new(Code::BadRequest, detail));
    }
    super::check_range(from.object, from.offset, u64::from(length))?;
    super::check_range(to.object, to.offset, u64::from(length))
}

impl Target {
    /// Puts what was read at `from` of another object, `bytes` with the checksums of its pieces, to `to` of this
    /// target; beyond the end of what was read there are zeros, up to `length` bytes.
    pub(crate) fn take_copy(
        &self,
        from: Place,
        to: Place,
        length: u32,
        answer: &proto::ReadResponse,
        bytes: &[u8],
        terms: Terms,
    ) -> Result<(), Fault> {
        if answer.missing {
            return Err(Fault::new(Code::NotFound, format!("object {}", from.object)));
        }
        let is_whole = answer.checksums.len() == piece_count(from.offset, bytes.len());
        if !is_whole || first_mismatch(from.offset, bytes, &answer.checksums).is_some() {
            let detail = format!("object {}: bytes to be copied do not match their checksums", from.object);
            return Err(Fault::new(Code::Corrupt, detail));
        }
        let (copied, mode) = (bytes.len() as u64, Mode::Blocking);
        // Also a copy of zeros makes the object: its readers expect one.
        self.write(to.object, 0, &[], &[], mode, terms).map_err(fault)?;
        let terms = Terms { must_exist: false, ..terms };
        if bytes.iter().any(|byte| *byte != 0) {
            self.write(to.object, to.offset, &answer.checksums, bytes, mode, terms).map_err(fault)?;
        } else {
            self.punch(to.object, to.offset, copied, terms).map_err(fault)?;
        }
        let rest = u64::from(length).saturating_sub(copied);
        self.punch(to.object, to.offset.saturating_add(copied), rest, terms).map_err(fault)
    }
}
