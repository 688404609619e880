//! One file an operation. Each has a function that does the work for one target and may be told not to wait.

pub(crate) mod copy;
pub(crate) mod list;
pub(crate) mod list_io;
mod open_local;
pub(crate) mod punch;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod scrub;
pub(crate) mod stat;
pub(crate) mod sync;
pub(crate) mod truncate;
pub(crate) mod write;

use vazao_model::limits::{FILE_BYTES_MAX, STRIPE_WIDTH_MAX};
use vazao_model::{Code, ObjectId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// The object that an address names. The one place that looks at its capability, which is empty. Its epoch is not
/// compared yet: a group has one member, so that no server can act in an older one.
pub(crate) fn object(address: &proto::ObjectAddress) -> Result<ObjectId, Fault> {
    if address.slot as usize >= STRIPE_WIDTH_MAX {
        return Err(Fault::new(Code::BadRequest, format!("slot {} of an object", address.slot)));
    }
    Ok(ObjectId::from(address))
}

/// Refuses a range that no file can have.
pub(crate) fn check_range(object: ObjectId, offset: u64, length: u64) -> Result<(), Fault> {
    match offset.checked_add(length) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(Fault::new(Code::TooLarge, format!("object {object}: {length} bytes at {offset}"))),
    }
}

/// A range of bytes within one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Which chunk.
    pub(crate) chunk: u64,
    /// Where it starts in the chunk.
    pub(crate) offset: u64,
    /// Its length.
    pub(crate) length: usize,
}

/// Cuts `length` bytes at `offset` of an object at chunk boundaries.
pub(crate) fn segments(offset: u64, length: usize, chunk_bytes: u64) -> impl Iterator<Item = Segment> {
    let mut position = offset;
    let mut left = length;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let within = position % chunk_bytes;
        let length = (left as u64).min(chunk_bytes - within) as usize;
        let segment = Segment { chunk: position / chunk_bytes, offset: within, length };
        position += length as u64;
        left -= length;
        Some(segment)
    })
}
