//! ReadList and WriteList: many ranges of one object in one request.

use crate::object::attempts::Terms;
use crate::object::{Mode, Stop, internal};
use crate::ops::check_range;
use crate::service::fault;
use crate::targets::Target;
use prost::Message;
use vazao_model::checksum::piece_count;
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, LIST_RANGES_MAX};
use vazao_model::{Code, ObjectId};
use vazao_wire::proto::{self, ByteRange};
use vazao_wire::service::{Answer, Fault};

/// Refuses lists beyond the limits. Returns the sum of the lengths.
pub(crate) fn check(id: ObjectId, ranges: &[ByteRange]) -> Result<usize, Fault> {
    let refuse = |what: String| Err(Fault::new(Code::BadRequest, format!("object {id}: {what}")));
    if ranges.is_empty() || ranges.len() > LIST_RANGES_MAX {
        return refuse(format!("a list of {} ranges; 1 to {LIST_RANGES_MAX}", ranges.len()));
    }
    let mut total = 0usize;
    for range in ranges {
        check_range(id, range.offset, u64::from(range.length))?;
        total = total.saturating_add(range.length as usize);
    }
    if total > ATTACHMENT_BYTES_MAX {
        return refuse(format!("a list of {total} bytes; at most {ATTACHMENT_BYTES_MAX}"));
    }
    Ok(total)
}

impl Target {
    /// The ranges' bytes one after the other. Each is read for itself: a writer may come in between.
    pub(crate) fn read_list(&self, id: ObjectId, ranges: &[ByteRange]) -> Answer {
        let mut answer = proto::ReadListResponse::default();
        let mut attachment = Vec::with_capacity(ranges.iter().map(|range| range.length as usize).sum());
        for range in ranges {
            let mut part: Result<proto::ReadResponse, Fault> =
                Err(internal("a read ended without an answer"));
            let before = attachment.len();
            let emit =
                &mut |message: &[u8],
                      length: usize,
                      fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>| {
                    attachment.resize(before + length, 0);
                    part = fill(&mut attachment[before..]).and_then(|_| {
                        proto::ReadResponse::decode(message).map_err(|e| internal(&e.to_string()))
                    });
                    true
                };
            self.read(id, range.offset, range.length, Mode::Blocking, emit).map_err(fault)?;
            let part = part?;
            answer.lengths.push((attachment.len() - before) as u32);
            answer.checksums.extend(part.checksums);
            (answer.object_length, answer.missing) = (part.object_length, part.missing);
        }
        Ok((answer.encode_to_vec(), attachment))
    }

    /// Writes checked bytes to the ranges, one after the other. Returns the length of the object.
    pub(crate) fn write_list(
        &self,
        id: ObjectId,
        ranges: &[ByteRange],
        checksums: &[u32],
        bytes: &[u8],
        terms: Terms,
    ) -> Result<u64, Stop> {
        let (mut checksums, mut bytes) = (checksums, bytes);
        let mut length = 0;
        for range in ranges {
            let short = || Stop::from(internal("a list that was checked does not fit its bytes"));
            let (now, later) = bytes.split_at_checked(range.length as usize).ok_or_else(short)?;
            let count = piece_count(range.offset, now.len());
            let (sums_now, sums_later) = checksums.split_at_checked(count).ok_or_else(short)?;
            length = self.write(id, range.offset, sums_now, now, Mode::Blocking, terms)?;
            (bytes, checksums) = (later, sums_later);
        }
        Ok(length)
    }

    /// Refuses bytes that are not those of the ranges, or not what the writer sent.
    pub(crate) fn check_list(
        &self,
        id: ObjectId,
        ranges: &[ByteRange],
        checksums: &[u32],
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let total = check(id, ranges)?;
        let pieces: usize = ranges.iter().map(|r| piece_count(r.offset, r.length as usize)).sum();
        if total != bytes.len() || pieces != checksums.len() {
            let (length, count) = (bytes.len(), checksums.len());
            let detail = format!("{count} checksums and {length} bytes for {pieces} pieces of {total} bytes");
            return Err(Fault::new(Code::BadRequest, detail));
        }
        let (mut checksums, mut bytes) = (checksums, bytes);
        for range in ranges {
            let (now, later) = bytes.split_at(range.length as usize);
            let (sums_now, sums_later) = checksums.split_at(piece_count(range.offset, now.len()));
            super::write::check(self, id, range.offset, sums_now, now)?;
            (bytes, checksums) = (later, sums_later);
        }
        Ok(())
    }
}
