//! ObjectRanges: where an object has data, and where holes.

use crate::object::names::{self, Part};
use crate::object::{Mode, Stop};
use crate::targets::Target;
use vazao_model::ObjectId;
use vazao_wire::proto::{DataRange, ObjectRangesResponse};

/// Ranges in one answer.
const RANGES_MAX: usize = 1024;

impl Target {
    /// The first `limit` ranges at or after `offset` that may hold something else than zeros.
    pub(crate) fn ranges(&self, id: ObjectId, offset: u64, limit: u32) -> Result<ObjectRangesResponse, Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let body = self.open_to_read(&object, 0..=0, Mode::Blocking)?;
        let (exists, length) = (body.exists(), body.length);
        let mut response = ObjectRangesResponse { exists, length, ranges: Vec::new(), complete: true };
        let chunks: Vec<u64> =
            body.chunks.range(offset / self.chunk_bytes..).map(|(index, _)| *index).collect();
        drop(body);
        let limit = (limit as usize).clamp(1, RANGES_MAX);
        for chunk in chunks {
            if !self.add_ranges(id, chunk, offset, limit, &mut response)? {
                response.complete = false;
                break;
            }
        }
        Ok(response)
    }

    /// Adds the ranges of one chunk; false when there may be more of them than fit.
    fn add_ranges(
        &self,
        id: ObjectId,
        chunk: u64,
        offset: u64,
        limit: usize,
        response: &mut ObjectRangesResponse,
    ) -> Result<bool, Stop> {
        let object = self.cache.get(id);
        let body = self.open_to_read(&object, chunk..=chunk, Mode::Blocking)?;
        // A chunk that has been cut off meanwhile has no data.
        let Some(files) = body.files(chunk) else { return Ok(true) };
        let start = chunk * self.chunk_bytes;
        let mut position = offset.saturating_sub(start);
        loop {
            let found = files.data.next_data(position);
            let found = found.map_err(|e| self.read_fault(&names::path(id, chunk, Part::Data), &e))?;
            let Some(range) = found else { return Ok(true) };
            position = range.end;
            let (from, to) = (start + range.start, start + range.end);
            let is_full = response.ranges.len() >= limit;
            match response.ranges.last_mut() {
                // Data goes on over the boundary of two chunks.
                Some(last) if last.offset + last.length == from => last.length += to - from,
                _ if is_full => return Ok(false),
                _ => response.ranges.push(DataRange { offset: from, length: to - from }),
            }
        }
    }
}
