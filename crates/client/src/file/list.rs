//! Many ranges at once: those that lie on one server travel in one request, as in PVFS2's list I/O.
//!
//! Small ranges close to one another are read as one, with what lies between them (data sieving, Thakur, Gropp and Lusk
//! 1999): the bytes between cost less than the ranges apart.

use super::inode::{InodeState, OpenInode};
use super::moved::is_moved;
use super::objects::{object_address, submit_read};
use super::read::View;
use super::{local, moved, read, write, write_out};
use crate::data::{DataCall, addressed, malformed};
use crate::{Error, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use vazao_model::checksum::{first_mismatch, piece_checksums, piece_count};
use vazao_model::limits::{FILE_BYTES_MAX, LIST_RANGES_MAX};
use vazao_model::{Code, Layout};
use vazao_wire::{Method, op, proto};

/// A longer range gains nothing by company and goes its own way.
const SMALL_BYTES_MAX: usize = 256 * 1024;

/// Ranges are read as one when no more than this lies between them: what a server reads for each of them anyway is a
/// block of 64 KiB.
const GAP_BYTES_MAX: u64 = 16 * 1024;

/// Bytes of one request; as much as an ordinary one.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Equal ranges at equal distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strided {
    /// Where the first one begins.
    pub offset: u64,
    /// Bytes of each.
    pub length: usize,
    /// From the beginning of one to that of the next.
    pub stride: u64,
    /// How many.
    pub count: usize,
}

impl Strided {
    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.length.saturating_mul(self.count)
    }

    /// Where number `index` begins. Errors: beyond what a file can have.
    fn start(&self, index: usize) -> Result<u64> {
        let start = self.stride.checked_mul(index as u64).and_then(|far| self.offset.checked_add(far));
        let end = start.and_then(|start| start.checked_add(self.length as u64));
        match (start, end) {
            (Some(start), Some(end)) if end <= FILE_BYTES_MAX => Ok(start),
            _ => Err(Error::new(Code::TooLarge, format!("range {index} of {self:?}"))),
        }
    }

    /// Errors: a buffer of another length.
    fn check(&self, buffer_bytes: usize) -> Result<()> {
        if buffer_bytes == self.bytes() && (self.length > 0 || self.count == 0) {
            return Ok(());
        }
        Err(Error::new(Code::Invalid, format!("a buffer of {buffer_bytes} bytes for {self:?}")))
    }
}

/// A run of bytes of one part within one object.
struct Spot {
    object_offset: u64,
    length: usize,
    part: usize,
    /// Where in the part.
    at: usize,
}

/// Runs of one object that are asked for as one.
struct Joint {
    range: Range<u64>,
    spots: Vec<Spot>,
}

/// One request.
struct Listed {
    slot: u32,
    joints: Vec<Joint>,
}

impl Listed {
    fn ranges(&self) -> Vec<proto::ByteRange> {
        let range = |joint: &Joint| proto::ByteRange {
            offset: joint.range.start,
            length: (joint.range.end - joint.range.start) as u32,
        };
        self.joints.iter().map(range).collect()
    }
}

/// Puts the runs of each object into requests, joining those with at most `gap` bytes between them.
fn requests(by_slot: BTreeMap<u32, Vec<Spot>>, gap: Option<u64>) -> Vec<Listed> {
    let mut requests = Vec::new();
    for (slot, mut spots) in by_slot {
        spots.sort_by_key(|spot| spot.object_offset);
        let mut joints: Vec<Joint> = Vec::new();
        for spot in spots {
            let range = spot.object_offset..spot.object_offset + spot.length as u64;
            match (joints.last_mut(), gap) {
                (Some(last), Some(gap))
                    if range.start <= last.range.end.saturating_add(gap)
                        && range.end.saturating_sub(last.range.start) <= REQUEST_BYTES_MAX =>
                {
                    last.range.end = last.range.end.max(range.end);
                    last.spots.push(spot);
                }
                _ => joints.push(Joint { range, spots: vec![spot] }),
            }
        }
        let mut request = Listed { slot, joints: Vec::new() };
        let mut bytes = 0;
        for joint in joints {
            let length = joint.range.end - joint.range.start;
            if request.joints.len() == LIST_RANGES_MAX || bytes + length > REQUEST_BYTES_MAX {
                requests.push(std::mem::replace(&mut request, Listed { slot, joints: Vec::new() }));
                bytes = 0;
            }
            bytes += length;
            request.joints.push(joint);
        }
        requests.push(request);
    }
    requests.retain(|request| !request.joints.is_empty());
    requests
}

/// The runs of `length` bytes at file offset `offset`.
fn spots(layout: &Layout, part: usize, offset: u64, length: usize, by_slot: &mut BTreeMap<u32, Vec<Spot>>) {
    for piece in layout.distribution.pieces(offset, length as u64, layout.width()) {
        by_slot.entry(piece.slot).or_default().push(Spot {
            object_offset: piece.object_offset,
            length: piece.length as usize,
            part,
            at: (piece.file_offset - offset) as usize,
        });
    }
}

fn overlap_each_other(parts: &[(u64, &[u8])]) -> bool {
    let mut ranges: Vec<(u64, u64)> =
        parts.iter().map(|(at, b)| (*at, at.saturating_add(b.len() as u64))).collect();
    ranges.sort_unstable();
    ranges.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

/// Reads each part; returns how many bytes of each there were.
pub(crate) fn read_list(open: &OpenInode, parts: &mut [(u64, &mut [u8])]) -> Result<Vec<usize>> {
    let mut done: Vec<Option<usize>> = vec![None; parts.len()];
    if let Some(view) = view_of(open, parts)? {
        read_listed(open, &view, parts, &mut done)?;
        for ((offset, bytes), done) in parts.iter_mut().zip(&done) {
            view.hide_unwritten(*offset, &mut bytes[..done.unwrap_or(0)]);
        }
    }
    // What is long, inline, missing or damaged: an ordinary read knows what to do or to say.
    let alone = Mutex::default();
    for (part, done) in parts.iter_mut().zip(&mut done) {
        if done.is_none() {
            *done = Some(read::read(open, &alone, part.1, part.0)?);
        }
    }
    Ok(done.into_iter().flatten().collect())
}

/// The file as it is once the parts' own writes are at the servers; `None` when it has no objects, or has to be looked
/// at again first.
fn view_of(open: &OpenInode, parts: &[(u64, &mut [u8])]) -> Result<Option<View>> {
    if open.must_look_again().is_some() {
        return Ok(None);
    }
    let deadline_ns = open.core.context.deadline_ns();
    let mut state = open.lock();
    for (offset, bytes) in parts {
        let range = *offset..offset.saturating_add(bytes.len() as u64);
        if state.shown.overlaps(&range) {
            return Ok(None);
        }
        state = write_out::settle_to_read(open, state, &range, deadline_ns)?;
        if let Some(error) = state.sync.lost().within(&range) {
            return Err(error.clone());
        }
    }
    let Some((layout, written_slots)) = state.placed.read_layout() else { return Ok(None) };
    Ok(Some(View {
        layout: Arc::clone(layout),
        written_slots,
        size: state.size,
        unwritten: state.unwritten.clone(),
        write_count: state.write_count,
        has_unwritten: state.buffer.has_unwritten(),
        deadline_ns,
    }))
}

fn read_listed(
    open: &OpenInode,
    view: &View,
    parts: &mut [(u64, &mut [u8])],
    done: &mut [Option<usize>],
) -> Result<()> {
    let mut by_slot = BTreeMap::new();
    for (index, (offset, buffer)) in parts.iter().enumerate() {
        let length = view.size.saturating_sub(*offset).min(buffer.len() as u64) as usize;
        if length <= SMALL_BYTES_MAX {
            done[index] = Some(length);
            spots(&view.layout, index, *offset, length, &mut by_slot);
        }
    }
    for (slot, spots) in &mut by_slot {
        spots.retain(|spot| !copy_spot_local(open, view, *slot, spot, parts));
    }
    let requests = requests(by_slot, Some(GAP_BYTES_MAX));
    let calls = requests.iter().map(|request| ask_list(open, view, request)).collect::<Result<Vec<_>>>()?;
    for (request, mut call) in requests.into_iter().zip(calls) {
        let received = open.core.data.finish_data(&mut call, &[], view.deadline_ns);
        let received = received.map_err(|error| error.about(open.id))?;
        let answer = crate::meta::decode::<op::ReadList>(&received)?;
        let is_lost = answer.missing && view.written_slots & 1u64.checked_shl(request.slot).unwrap_or(0) != 0;
        if answer.lengths.len() != request.joints.len() {
            return Err(malformed(&call, "not the ranges asked for"));
        }
        let mut bytes = &received.attachment[..];
        let mut checksums = &answer.checksums[..];
        for (joint, length) in request.joints.into_iter().zip(&answer.lengths) {
            let short = || malformed(&call, "fewer bytes than it speaks of");
            let (now, later) = bytes.split_at_checked(*length as usize).ok_or_else(short)?;
            let count = piece_count(joint.range.start, now.len());
            let (sums_now, sums_later) = checksums.split_at_checked(count).ok_or_else(short)?;
            (bytes, checksums) = (later, sums_later);
            let asked = joint.range.end - joint.range.start;
            let has_ended = joint.range.start + u64::from(*length) >= answer.object_length;
            if now.len() as u64 > asked || ((now.len() as u64) < asked && !has_ended) {
                return Err(malformed(&call, "not the bytes asked for"));
            }
            let is_good = !is_lost && first_mismatch(joint.range.start, now, sums_now).is_none();
            for spot in &joint.spots {
                match is_good {
                    true => copy_spot(spot, &joint.range, now, parts),
                    false => done[spot.part] = None,
                }
            }
        }
    }
    Ok(())
}

fn copy_spot_local(
    open: &OpenInode,
    view: &View,
    slot: u32,
    spot: &Spot,
    parts: &mut [(u64, &mut [u8])],
) -> bool {
    let Some((offset, buffer)) = parts.get_mut(spot.part) else { return false };
    let start = *offset + spot.at as u64;
    debug_assert_eq!(view.layout.distribution.locate(start, view.layout.width()).0, slot);
    let part = local::find_local(open, view, &(start..start + spot.length as u64));
    part.is_some_and(|part| {
        local::copy_local(open, &part, start, &mut buffer[spot.at..spot.at + spot.length])
    })
}

fn ask_list(open: &OpenInode, view: &View, request: &Listed) -> Result<DataCall> {
    let (layout, slot) = (&view.layout, request.slot);
    let object = listed_object(open, layout, slot)?;
    let ranges = request.ranges();
    let first =
        ranges.first().and_then(|range| layout.distribution.file_offset(slot, range.offset, layout.width()));
    let message = proto::ReadListRequest { object: Some(object), ranges };
    open.core.data.connect_ahead(layout, slot, view.deadline_ns);
    let place = (slot, first.unwrap_or(0));
    Ok(submit_read::<op::ReadList>(open, layout, place, &message, view.deadline_ns))
}

fn listed_object(open: &OpenInode, layout: &Layout, slot: u32) -> Result<proto::ObjectAddress> {
    let no_slot = || Error::new(Code::Internal, format!("{}: no slot {slot} in its layout", open.id));
    object_address(open.id.0, layout, slot).ok_or_else(no_slot)
}

/// Writes all parts; where they overlap the later one counts. What could not be stored is a loss as with any write.
pub(crate) fn write_list(open: &OpenInode, parts: &[(u64, &[u8])]) -> Result<()> {
    let is_beyond = |(offset, bytes): &(u64, &[u8])| {
        offset.checked_add(bytes.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX)
    };
    if let Some((offset, _)) = parts.iter().find(|part| is_beyond(part)) {
        return Err(Error::new(Code::TooLarge, format!("{}: writing at {offset}", open.id)));
    }
    let parts: Vec<(u64, &[u8])> = parts.iter().copied().filter(|(_, bytes)| !bytes.is_empty()).collect();
    let has_long = parts.iter().any(|(_, bytes)| bytes.len() > SMALL_BYTES_MAX);
    let is_listed = parts.len() > 1 && !has_long && !overlap_each_other(&parts);
    if is_listed && write_listed(open, &parts)? {
        return Ok(());
    }
    parts.iter().try_for_each(|(offset, bytes)| write::write(open, (*bytes).into(), *offset, &mut None))
}

/// False when the file has no objects yet.
fn write_listed(open: &OpenInode, parts: &[(u64, &[u8])]) -> Result<bool> {
    let deadline_ns = open.core.context.deadline_ns();
    write::make_room(open, deadline_ns);
    moved::adopt_layout(open, deadline_ns);
    let _gate = open.length_gate.read();
    let mut state = open.lock();
    let Some(layout) = state.layout().cloned() else { return Ok(false) };
    state.buffer.begin_writer();
    for (offset, bytes) in parts {
        let range = *offset..offset + bytes.len() as u64;
        state = write_out::settle(open, state, &range, deadline_ns);
        write::note_write(open, &mut state, range.start, range.end);
        state.kept.note(*offset, bytes, &open.core.kept);
    }
    let written_slots = state.placed.slots();
    drop(state);
    let sent = send_listed(open, &layout, written_slots, parts, deadline_ns);
    let mut state = open.lock();
    state.buffer.end_writer();
    // What was read ahead while the bytes were on their way may be older than they are.
    state.write_count += 1;
    drop(state);
    open.wake();
    sent.map(|()| true)
}

fn send_listed(
    open: &OpenInode,
    layout: &Layout,
    written_slots: u64,
    parts: &[(u64, &[u8])],
    deadline_ns: u64,
) -> Result<()> {
    let mut by_slot = BTreeMap::new();
    for (index, (offset, bytes)) in parts.iter().enumerate() {
        spots(layout, index, *offset, bytes.len(), &mut by_slot);
    }
    let mut calls = Vec::new();
    for request in requests(by_slot, None) {
        let mut bytes = Vec::new();
        let mut checksums = Vec::new();
        for spot in request.joints.iter().flat_map(|joint| &joint.spots) {
            let part = &parts[spot.part].1[spot.at..spot.at + spot.length];
            checksums.extend(piece_checksums(spot.object_offset, part));
            bytes.extend_from_slice(part);
        }
        let object = listed_object(open, layout, request.slot)?;
        let group = addressed(&object);
        let (object, ranges) = (open.core.data.numbered(object), request.ranges());
        let must_exist = written_slots & 1u64.checked_shl(request.slot).unwrap_or(0) != 0;
        let message = proto::WriteListRequest { object: Some(object), ranges, checksums, must_exist };
        let message = prost::Message::encode_to_vec(&message);
        open.core.data.connect_ahead(layout, request.slot, deadline_ns);
        let call = open.core.data.submit_data(group, Method::WriteList, message, &bytes, deadline_ns);
        calls.push((request, must_exist, call, bytes));
    }
    for (request, must_exist, mut call, bytes) in calls {
        let outcome = open.core.data.finish_data(&mut call, &bytes, deadline_ns).and_then(|received| {
            open.core.data.count_written(&call, bytes.len());
            Ok(crate::meta::decode::<op::WriteList>(&received)?.boot)
        });
        let outcome = follow_list(open, outcome, &request, parts, deadline_ns);
        let outcome = outcome.map(|boot| boot.map(|boot| (boot, must_exist)));
        complete_listed(open, &mut open.lock(), &request, parts, outcome);
    }
    Ok(())
}

/// As [`moved::follow_write`], for each run of a list.
fn follow_list(
    open: &OpenInode,
    written: Result<u64>,
    request: &Listed,
    parts: &[(u64, &[u8])],
    deadline_ns: u64,
) -> Result<Option<u64>> {
    let error = match written {
        Err(error) if is_moved(&error) => error,
        other => return other.map(Some),
    };
    for spot in request.joints.iter().flat_map(|joint| &joint.spots) {
        let part = &parts[spot.part].1[spot.at..spot.at + spot.length];
        let start = parts[spot.part].0 + spot.at as u64;
        moved::follow_write(open, Err(error.clone()), part, start, deadline_ns)?;
    }
    Ok(None)
}

fn complete_listed(
    open: &OpenInode,
    state: &mut MutexGuard<'_, InodeState>,
    request: &Listed,
    parts: &[(u64, &[u8])],
    outcome: Result<Option<(u64, bool)>>,
) {
    for spot in request.joints.iter().flat_map(|joint| &joint.spots) {
        let start = parts[spot.part].0 + spot.at as u64;
        let range = start..start + spot.length as u64;
        match &outcome {
            Ok(Some((boot, must_exist))) => state.note_written(&range, *boot, *must_exist),
            Ok(None) => state.sync.mend(&range),
            Err(error) => {
                let place = format!("{}, bytes {}-{}", open.id, range.start, range.end);
                state.write_failed(range, error.clone().about(place));
            }
        }
    }
}

/// Copies a run out of the joint it was read with; zeros where the object has ended.
fn copy_spot(spot: &Spot, joint: &Range<u64>, bytes: &[u8], parts: &mut [(u64, &mut [u8])]) {
    let Some((_, buffer)) = parts.get_mut(spot.part) else { return };
    let place = &mut buffer[spot.at..spot.at + spot.length];
    let from = ((spot.object_offset - joint.start) as usize).min(bytes.len());
    let there = &bytes[from..(from + spot.length).min(bytes.len())];
    place[..there.len()].copy_from_slice(there);
    place[there.len()..].fill(0);
}

impl super::File {
    /// Reads many ranges, each at its offset into its buffer, with one request for each server as far as they are
    /// small. Returns how many bytes of each there were: fewer than asked for only at the end of the file.
    pub fn read_list(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Vec<usize>> {
        if !self.mode.read {
            return Err(self.bad_handle("reading"));
        }
        let lengths = read_list(&self.shared, parts)?;
        self.shared.core.context.counters.bytes_read.add(lengths.iter().sum::<usize>() as u64);
        Ok(lengths)
    }

    /// Writes many ranges; where they overlap the later one counts. Errors as [`super::File::write_at`]; those of these
    /// very writes come out here.
    pub fn write_list(&self, parts: &[(u64, &[u8])]) -> Result<()> {
        if !self.mode.write {
            return Err(self.bad_handle("writing"));
        }
        self.report_failure()?;
        write_list(&self.shared, parts)?;
        self.report_failure()?;
        let bytes: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        self.shared.core.context.counters.bytes_written.add(bytes as u64);
        Ok(())
    }

    /// Reads equal ranges at equal distances into `buffer`, one after the other. Returns how many bytes there were in
    /// all: fewer than asked for only where the file ends, and zeros stand for the others. Errors also: a buffer of
    /// another length than the ranges.
    pub fn read_strided(&self, ranges: Strided, buffer: &mut [u8]) -> Result<usize> {
        ranges.check(buffer.len())?;
        buffer.fill(0);
        let mut parts = Vec::with_capacity(ranges.count);
        for (index, part) in buffer.chunks_mut(ranges.length.max(1)).enumerate() {
            parts.push((ranges.start(index)?, part));
        }
        Ok(self.read_list(&mut parts)?.into_iter().sum())
    }

    /// Writes equal ranges at equal distances from `bytes`. Errors also: bytes of another length than the ranges.
    pub fn write_strided(&self, ranges: Strided, bytes: &[u8]) -> Result<()> {
        ranges.check(bytes.len())?;
        let mut parts = Vec::with_capacity(ranges.count);
        for (index, part) in bytes.chunks(ranges.length.max(1)).enumerate() {
            parts.push((ranges.start(index)?, part));
        }
        self.write_list(&parts)
    }
}
