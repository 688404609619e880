//! Reads: the range is cut at transfers, all parts are asked for at once, each piece is verified while it is copied.

use super::inode::{InodeState, OpenInode};
use super::layout_state::Contents;
use super::local::LocalPart;
use super::missing::{has_layout_still, missing};
use super::objects::{object_address, submit_read};
use super::read_ahead::{Chunk, ReadAhead};
use super::staging::transfer_at;
use super::{local, look, outgrow, write_out};
use crate::data::{DataCall, addressed, malformed};
use crate::{Error, Result};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vazao_meter::Cause;
use vazao_model::checksum::{crc32c, piece_count, piece_lengths};
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, Extents, Layout, TargetId};
use vazao_wire::transport::Buffer;
use vazao_wire::{Method, op, proto};

/// A longer read is cut into segments, so that no more than this is in flight for it beside what is read ahead.
const SEGMENT_BYTES: usize = 4 << 20;

/// A reader that found damage waits this long for its report to be taken.
const REPORT_NS_MAX: u64 = 1_000_000_000;

/// How long a read of damage waits for it to be repaired from another copy, and between two looks.
const REPAIR_NS_MAX: u64 = 6_000_000_000;
const REPAIR_PAUSE: Duration = Duration::from_millis(200);

/// After it has waited in vain for that, a file's other reads do not wait for this long.
const IN_VAIN_NS: u64 = 60_000_000_000;

/// How long a read waits to hear what another client has changed: without a metadata service what was known before can
/// still be read.
const LOOK_AGAIN_NS_MAX: u64 = 1_000_000_000;

/// How often a read starts again because the file was replaced by another life of it meanwhile.
const REPLACED_MAX: usize = 3;

/// What a read knows about the file, from the moment it began.
#[derive(Clone)]
pub(super) struct View {
    pub(super) layout: Arc<Layout>,
    pub(super) written_slots: u64,
    pub(super) size: u64,
    /// What reads as zeros whatever its objects hold.
    pub(super) unwritten: Extents,
    pub(super) write_count: u64,
    pub(super) has_unwritten: bool,
    pub(super) deadline_ns: u64,
}

/// A part that could not be read as it is.
pub(super) enum Trouble {
    /// The object is gone although it was written: the file was cut to nothing meanwhile, or it is lost.
    Missing(Box<DataCall>, u32),
    /// Anything else.
    Failed(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Failed(error)
    }
}

/// Where the bytes of a part come from.
pub(super) enum Source {
    /// Asked for.
    Flying(Fetch),
    /// Arrived.
    Here(Block),
    /// In a file of this machine, as far as known.
    Local(LocalPart),
    /// Failed for another reader of the same chunk, which had planned to read it, too: the next reader asks again.
    Failed,
}

/// A read request in flight.
pub(super) struct Fetch {
    range: Range<u64>,
    slot: u32,
    object_offset: u64,
    call: DataCall,
}

/// Bytes that arrived, with the checksums to verify them by.
pub(super) struct Block {
    range: Range<u64>,
    slot: u32,
    object_offset: u64,
    bytes: Buffer,
    checksums: Vec<u32>,
    /// Bit n: piece n has been verified. A transfer has at most 16 pieces.
    verified: u64,
    /// The request that it is the answer to; `None`: it was not asked for.
    call: Option<Box<DataCall>>,
}

/// One part of a read and where it comes from.
enum Part {
    Ahead(Range<u64>, Arc<Chunk>),
    Direct(Range<u64>, Source),
}

/// What a read finds when it looks.
enum Look<'a> {
    Inline(usize),
    Objects(MutexGuard<'a, InodeState>, Arc<Layout>),
}

/// Reads at `offset`; fewer bytes than asked for only at the end of the file.
pub(crate) fn read(
    open: &OpenInode,
    ahead: &Mutex<ReadAhead>,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize> {
    let deadline_ns = open.core.context.deadline_ns();
    look_again(open, &(offset..offset.saturating_add(buffer.len() as u64)), deadline_ns)?;
    outgrow::follow_outgrown(open, deadline_ns)?;
    let mut done = 0;
    for segment in buffer.chunks_mut(SEGMENT_BYTES) {
        let read = read_segment(open, ahead, segment, offset.saturating_add(done as u64), deadline_ns)?;
        done += read;
        if read < segment.len() {
            break;
        }
    }
    Ok(done)
}

/// Asks what another client has made of the file, where it has changed it since it was last looked at.
fn look_again(open: &OpenInode, range: &Range<u64>, deadline_ns: u64) -> Result<()> {
    let (changes, is_shown) = (open.must_look_again(), open.is_shown_beyond(range));
    if changes.is_none() && !is_shown {
        return Ok(());
    }
    // A short answer would pass for zeros; and who has a lock is promised what was written under it before.
    let must_be_new = || is_shown || open.core.locks.has_any(open.id);
    let soon_ns = open.core.context.clock.now_ns() + LOOK_AGAIN_NS_MAX;
    let until_ns = if must_be_new() { deadline_ns } else { deadline_ns.min(soon_ns) };
    match look::look_again(open, until_ns) {
        Ok(()) => changes.into_iter().for_each(|changes| open.looked_again(changes)),
        // Also where the lock came meanwhile: its holder may be given the page that this read fills.
        Err(error) if must_be_new() => return Err(error.about(open.id)),
        // What was known before may still be read. The next read asks again.
        Err(_) => {}
    }
    Ok(())
}

fn read_segment(
    open: &OpenInode,
    ahead: &Mutex<ReadAhead>,
    buffer: &mut [u8],
    offset: u64,
    deadline_ns: u64,
) -> Result<usize> {
    for _ in 0..REPLACED_MAX {
        let (state, layout) = match look(open, buffer, offset) {
            Look::Inline(read) => return Ok(read),
            Look::Objects(state, layout) => (state, layout),
        };
        let end = state.size.min(offset.saturating_add(buffer.len() as u64));
        if end <= offset {
            return Ok(0);
        }
        let state = write_out::settle_to_read(open, state, &(offset..end), deadline_ns)?;
        let now = state.placed.read_layout().filter(|(now, _)| now.generation == layout.generation);
        let Some(written_slots) = now.map(|(_, slots)| slots).filter(|_| state.size >= end) else {
            continue;
        };
        if let Some(error) = state.sync.lost().within(&(offset..end)) {
            return Err(error.clone());
        }
        let view = View {
            layout,
            written_slots,
            size: state.size,
            unwritten: state.unwritten.clone(),
            write_count: state.write_count,
            has_unwritten: state.buffer.has_unwritten(),
            deadline_ns,
        };
        drop(state);
        let wanted = &mut buffer[..(end - offset) as usize];
        match read_objects(open, ahead, &view, wanted, offset) {
            Ok(()) => return Ok(wanted.len()),
            Err(trouble) => {
                ahead.lock().cancel();
                explain(open, trouble, &view)?;
            }
        }
    }
    Err(Error::new(Code::Stale, format!("{} is cut by others faster than it can be read", open.id)))
}

/// Serves inline contents; else tells where the objects are.
fn look<'a>(open: &'a OpenInode, buffer: &mut [u8], offset: u64) -> Look<'a> {
    let mut state = open.lock();
    loop {
        match state.placed.contents() {
            Contents::Moving => state = open.wait_turn(state),
            Contents::Inline(inline) => {
                return Look::Inline(copy_inline(inline.bytes(), state.size, buffer, offset));
            }
            Contents::Striped(layout) => {
                let layout = Arc::clone(state.placed.read_layout().map_or(layout, |(layout, _)| layout));
                return Look::Objects(state, layout);
            }
        }
    }
}

pub(super) fn read_objects(
    open: &OpenInode,
    ahead: &Mutex<ReadAhead>,
    view: &View,
    buffer: &mut [u8],
    offset: u64,
) -> std::result::Result<(), Trouble> {
    let range = offset..offset + buffer.len() as u64;
    if view.unwritten.covers(&range) {
        buffer.fill(0);
        return Ok(());
    }
    let chunks = ahead.lock().plan(open, view, &range);
    let parts = parts(open, view, &range, chunks)?;
    let mut rest = &mut *buffer;
    for part in parts {
        let (Part::Ahead(range, _) | Part::Direct(range, _)) = &part;
        let (now, later) = rest.split_at_mut((range.end - range.start) as usize);
        rest = later;
        match part {
            Part::Ahead(range, chunk) => chunk.copy(open, view, range.start, now)?,
            Part::Direct(range, mut source) => copy(open, view, &mut source, range.start, now)?,
        }
    }
    view.hide_unwritten(offset, buffer);
    Ok(())
}

impl View {
    /// Bytes that were read at `offset` become zeros where the file has nothing written.
    pub(super) fn hide_unwritten(&self, offset: u64, buffer: &mut [u8]) {
        for part in self.unwritten.within(&(offset..offset + buffer.len() as u64)) {
            buffer[(part.start - offset) as usize..(part.end - offset) as usize].fill(0);
        }
    }
}

/// Cuts a range into parts: those that are read ahead, and the rest, which is asked for here.
fn parts(open: &OpenInode, view: &View, range: &Range<u64>, chunks: Vec<Arc<Chunk>>) -> Result<Vec<Part>> {
    let mut parts = Vec::with_capacity(chunks.len().max(1));
    let mut position = range.start;
    for chunk in chunks {
        let (start, end) = (chunk.range.start.max(position), chunk.range.end.min(range.end));
        if start >= end {
            continue;
        }
        ask_direct(open, view, position..start, &mut parts)?;
        parts.push(Part::Ahead(start..end, chunk));
        position = end;
    }
    ask_direct(open, view, position..range.end, &mut parts)?;
    Ok(parts)
}

fn ask_direct(open: &OpenInode, view: &View, range: Range<u64>, parts: &mut Vec<Part>) -> Result<()> {
    let mut position = range.start;
    while position < range.end {
        let end = transfer_at(&view.layout, position).end.min(range.end);
        parts.push(Part::Direct(position..end, source(open, view, position..end)?));
        position = end;
    }
    Ok(())
}

/// Where a range within one transfer is read from: a file of this machine, or its server, which is asked at once.
pub(super) fn source(open: &OpenInode, view: &View, range: Range<u64>) -> Result<Source> {
    match local::find_local(open, view, &range) {
        Some(part) => Ok(Source::Local(part)),
        None => Ok(Source::Flying(fetch(open, view, range)?)),
    }
}

/// Asks for a range within one transfer.
pub(super) fn fetch(open: &OpenInode, view: &View, range: Range<u64>) -> Result<Fetch> {
    let layout = &view.layout;
    let (slot, object_offset) = layout.distribution.locate(range.start, layout.width());
    let no_slot = || Error::new(Code::Internal, format!("{}: no slot {slot} in its layout", open.id));
    let object = object_address(open.id.0, layout, slot).ok_or_else(no_slot)?;
    let length = (range.end - range.start) as u32;
    let request = proto::ReadRequest { object: Some(object), offset: object_offset, length };
    open.core.data.connect_ahead(layout, slot, view.deadline_ns);
    let call = submit_read::<op::Read>(open, layout, (slot, range.start), &request, view.deadline_ns);
    Ok(Fetch { range, slot, object_offset, call })
}

/// Waits for a request's answer.
fn arrive(open: &OpenInode, view: &View, mut fetch: Fetch) -> std::result::Result<Block, Trouble> {
    // A member of several that lacks the object.
    let mut lacks: Option<TargetId> = None;
    let (received, response) = loop {
        let received = match open.core.data.finish_data(&mut fetch.call, &[], view.deadline_ns) {
            Err(_) if lacks.is_some() => return Err(Trouble::Missing(Box::new(fetch.call), fetch.slot)),
            other => other.map_err(|e| {
                e.about(format!("{}, bytes {}-{}", open.id, fetch.range.start, fetch.range.end))
            })?,
        };
        let response = crate::meta::decode::<op::Read>(&received).map_err(Error::from)?;
        let is_lost = response.missing && view.written_slots & 1u64.checked_shl(fetch.slot).unwrap_or(0) != 0;
        let member = fetch.call.member();
        if !is_lost || !open.core.data.ask_other_copy(&mut fetch.call, view.deadline_ns) {
            break (received, response);
        }
        lacks = lacks.or(member);
    };
    if !response.missing
        && lacks.is_some()
        && has_layout_still(open, &view.layout, view.deadline_ns).is_ok_and(|has| has)
    {
        report_damage(open, view, (fetch.slot, 0), true, lacks);
    }
    let asked = fetch.range.end - fetch.range.start;
    let got = received.attachment.len() as u64;
    if response.missing {
        if view.written_slots & 1u64.checked_shl(fetch.slot).unwrap_or(0) != 0 {
            return Err(Trouble::Missing(Box::new(fetch.call), fetch.slot));
        }
    } else if got > asked || (got < asked && fetch.object_offset + got < response.object_length) {
        return Err(malformed(&fetch.call, "not the bytes asked for").into());
    }
    Ok(Block {
        range: fetch.range,
        slot: fetch.slot,
        object_offset: fetch.object_offset,
        bytes: received.attachment,
        checksums: response.checksums,
        verified: 0,
        call: Some(Box::new(fetch.call)),
    })
}

/// Copies bytes at file offset `offset` out of a source, once they have arrived and been verified. Where each copy that
/// is read has damage, in other blocks, each block is read from one that has it whole; one that none has is waited for
/// for a while: it may be repaired from a copy that is not read.
pub(super) fn copy(
    open: &OpenInode,
    view: &View,
    source: &mut Source,
    offset: u64,
    buffer: &mut [u8],
) -> std::result::Result<(), Trouble> {
    match copy_at_once(open, view, source, offset, buffer) {
        Err(Trouble::Failed(error)) if error.code == Code::Corrupt && has_copies(open, view, offset) => {
            let mut at = offset;
            let clock = &open.core.context.clock;
            for piece in pieces(offset, buffer) {
                let end = at + piece.len() as u64;
                let until_ns = repaired_until_ns(open, view);
                let mut damage = None;
                loop {
                    let mut own = Source::Flying(fetch(open, view, at..end)?);
                    match copy_at_once(open, view, &mut own, at, piece) {
                        Err(Trouble::Failed(error))
                            if error.code == Code::Corrupt && clock.now_ns() < until_ns =>
                        {
                            damage = Some(error);
                            clock.sleep(REPAIR_PAUSE);
                        }
                        Ok(()) => break,
                        Err(Trouble::Failed(error))
                            if matches!(error.code, Code::Corrupt | Code::Timeout) =>
                        {
                            if damage.is_some() {
                                open.waited_in_vain_ns.store(clock.now_ns(), Ordering::Relaxed);
                            }
                            return Err(damage.unwrap_or(error).into());
                        }
                        Err(trouble) => return Err(trouble),
                    }
                }
                at = end;
            }
            Ok(())
        }
        copied => copied,
    }
}

/// Until when a read waits for damage to be repaired.
fn repaired_until_ns(open: &OpenInode, view: &View) -> u64 {
    let now_ns = open.core.context.clock.now_ns();
    let in_vain_ns = open.waited_in_vain_ns.load(Ordering::Relaxed);
    match in_vain_ns != 0 && now_ns < in_vain_ns.saturating_add(IN_VAIN_NS) {
        true => now_ns,
        false => view.deadline_ns.min(now_ns.saturating_add(REPAIR_NS_MAX)),
    }
}

/// The parts of a buffer that come from one block each: stripes are whole blocks.
fn pieces(offset: u64, buffer: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    let first = (BLOCK_BYTES - (offset % BLOCK_BYTES as u64) as usize).min(buffer.len());
    let (first, others) = buffer.split_at_mut(first);
    std::iter::once(first).chain(others.chunks_mut(BLOCK_BYTES))
}

/// Whether the object with these bytes of a file is to have copies on several members.
fn has_copies(open: &OpenInode, view: &View, offset: u64) -> bool {
    let (slot, _) = view.layout.distribution.locate(offset, view.layout.width());
    object_address(open.id.0, &view.layout, slot)
        .is_some_and(|object| open.core.servers.members(addressed(&object)).is_some())
}

fn copy_at_once(
    open: &OpenInode,
    view: &View,
    source: &mut Source,
    offset: u64,
    buffer: &mut [u8],
) -> std::result::Result<(), Trouble> {
    let block = match std::mem::replace(source, Source::Failed) {
        Source::Flying(fetch) => arrive(open, view, fetch)?,
        Source::Here(block) => block,
        Source::Local(part) if part.is_read_in_bits(buffer.len()) => match local::load_local(open, &part) {
            Some(block) => block,
            None => arrive(open, view, fetch(open, view, part.range)?)?,
        },
        Source::Local(part) if local::copy_local(open, &part, offset, buffer) => {
            *source = Source::Local(part);
            return Ok(());
        }
        Source::Local(part) => arrive(open, view, fetch(open, view, part.range)?)?,
        // Another reader has met the failure, and may have had it explained: this one asks for itself. What it gets
        // is its own part, and no source for others.
        Source::Failed => {
            let end = offset + buffer.len() as u64;
            let mut own = Source::Flying(fetch(open, view, offset..end)?);
            return copy_at_once(open, view, &mut own, offset, buffer);
        }
    };
    let started_ns = open.core.context.clock.now_ns();
    let mut block = block;
    if let Err(piece) = block.copy(offset, buffer) {
        block = copy_again(open, view, (block, piece), offset, buffer)?;
    }
    open.core.context.counters.accounts.charge(Cause::Compute, open.core.context.clock.now_ns() - started_ns);
    *source = Source::Here(block);
    Ok(())
}

/// A checksum did not match: asks the other copies. In the end asks once more, since it may have been hit on its way.
fn copy_again(
    open: &OpenInode,
    view: &View,
    (mut bad, mut piece): (Block, usize),
    offset: u64,
    buffer: &mut [u8],
) -> std::result::Result<Block, Trouble> {
    let server = bad.server_name();
    tracing::warn!(inode = %open.id, server, "bytes that do not match their checksum; reading again");
    let (range, slot, object_offset) = (bad.range.clone(), bad.slot, bad.object_offset);
    while let Some(mut call) = bad.call.take().map(|call| *call) {
        let damaged = call.member();
        if !open.core.data.ask_other_copy(&mut call, view.deadline_ns) {
            break;
        }
        let other = arrive(open, view, Fetch { range: range.clone(), slot, object_offset, call });
        report_damage(open, view, (slot, bad.at(piece)), false, damaged);
        let Ok(mut block) = other else { break };
        match block.copy(offset, buffer) {
            Ok(()) => return Ok(block),
            Err(next) => (bad, piece) = (block, next),
        }
    }
    let mut block = arrive(open, view, fetch(open, view, range)?)?;
    block.copy(offset, buffer).map_err(|piece| corrupt(open, view, &block, piece))?;
    Ok(block)
}

/// Where the object of a slot lies: on the member that answered, where there are several.
fn place_of(open: &OpenInode, view: &View, slot: u32, member: Option<TargetId>) -> String {
    member
        .map_or_else(|| open.core.servers.place_name(&view.layout, slot), |target| format!("target {target}"))
}

fn corrupt(open: &OpenInode, view: &View, block: &Block, piece: usize) -> Error {
    let member = block.call.as_ref().and_then(|call| call.member());
    let place = place_of(open, view, block.slot, member);
    let at = block.at(piece);
    let detail = format!(
        "{}: block at {at} of object {}.{}.{} on {place} at {} is damaged; \
         restore the file from another copy",
        open.id,
        open.id,
        view.layout.generation,
        block.slot,
        block.server_name()
    );
    report_damage(open, view, (block.slot, at), false, member);
    Error::new(Code::Corrupt, detail)
}

/// Tells the server of damage, so that `vazao status` can show it: of several that of `member`. The reader's own error
/// does not depend on it.
fn report_damage(
    open: &OpenInode,
    view: &View,
    (slot, offset): (u32, u64),
    missing: bool,
    member: Option<TargetId>,
) {
    let Some(object) = object_address(open.id.0, &view.layout, slot) else { return };
    let group = addressed(&object);
    let until_ns = view.deadline_ns.min(open.core.context.clock.now_ns().saturating_add(REPORT_NS_MAX));
    let request = proto::ReportDamageRequest { object: Some(object), offset, missing };
    let message = prost::Message::encode_to_vec(&request);
    let mut call = open.core.data.submit_to_member(group, member, Method::ReportDamage, message, until_ns);
    if let Err(error) = open.core.data.finish_data(&mut call, &[], until_ns) {
        tracing::debug!(%error, "damage could not be reported");
    }
}

/// Ok when the read may start again; else the error to report.
fn explain(open: &OpenInode, trouble: Trouble, view: &View) -> Result<()> {
    let (call, slot) = match trouble {
        Trouble::Failed(error) => return Err(error),
        Trouble::Missing(call, slot) => (call, slot),
    };
    look::look_again(open, view.deadline_ns)?;
    let generation = open.lock().placed.read_layout().map(|(layout, _)| layout.generation);
    if generation != Some(view.layout.generation) {
        return Ok(());
    }
    let place = place_of(open, view, slot, call.member());
    let detail = format!(
        "{}: object {}.{}.{slot} is missing on {place} at {}; restore the file from another copy",
        open.id,
        open.id,
        view.layout.generation,
        call.server_name()
    );
    report_damage(open, view, (slot, 0), true, call.member());
    match is_made_anew(open, view, slot)? {
        true => Ok(()),
        false => Err(Error::new(Code::Corrupt, detail)),
    }
}

/// Waits for an object that is missing where it is read: one that a copy is left of may be made anew.
fn is_made_anew(open: &OpenInode, view: &View, slot: u32) -> Result<bool> {
    let clock = &open.core.context.clock;
    let object = object_address(open.id.0, &view.layout, slot);
    let group = object.as_ref().map(addressed);
    if group.is_none_or(|group| open.core.servers.members(group).is_none()) {
        return Ok(false);
    }
    let until_ns = repaired_until_ns(open, view);
    while clock.now_ns() < until_ns {
        clock.sleep(REPAIR_PAUSE);
        if missing(open, &view.layout, &[slot], until_ns).is_ok_and(|missing| missing.is_empty()) {
            return Ok(true);
        }
        if clock.now_ns() >= until_ns {
            open.waited_in_vain_ns.store(clock.now_ns(), Ordering::Relaxed);
            // Removed, cut or converted meanwhile.
            return Ok(!has_layout_still(open, &view.layout, view.deadline_ns)?);
        }
    }
    Ok(false)
}

impl Block {
    /// Bytes that have been verified already.
    pub(super) fn verified(range: Range<u64>, place: (u32, u64), bytes: Buffer) -> Block {
        let (slot, object_offset) = place;
        let checksums = vec![0; piece_count(object_offset, bytes.len())];
        Block { range, slot, object_offset, bytes, checksums, verified: u64::MAX, call: None }
    }

    /// Who sent it, for messages.
    fn server_name(&self) -> String {
        self.call.as_ref().map_or_else(String::new, |call| call.server_name())
    }

    /// Where in the object the block of a piece begins.
    fn at(&self, piece: usize) -> u64 {
        let block_bytes = BLOCK_BYTES as u64;
        (self.object_offset / block_bytes + piece as u64) * block_bytes
    }

    /// Copies verified bytes; zeros where the object has ended. Err: the first piece that does not match.
    fn copy(&mut self, offset: u64, buffer: &mut [u8]) -> std::result::Result<(), usize> {
        let have = self.bytes.len();
        let pieces = piece_count(self.object_offset, have);
        if self.checksums.len() != pieces {
            return Err(self.checksums.len().min(pieces));
        }
        let from = ((offset - self.range.start) as usize).min(have);
        let to = (from + buffer.len()).min(have);
        let mut piece_start = 0;
        for (index, length) in piece_lengths(self.object_offset, have).enumerate() {
            let piece = piece_start..piece_start + length;
            piece_start = piece.end;
            if piece.end <= from || piece.start >= to {
                continue;
            }
            if self.verified & (1 << index) == 0 {
                if self.checksums.get(index) != Some(&crc32c(&self.bytes[piece.clone()])) {
                    return Err(index);
                }
                self.verified |= 1 << index;
            }
            // Right after it was verified the piece is in the cache.
            let part = piece.start.max(from)..piece.end.min(to);
            buffer[part.start - from..part.end - from].copy_from_slice(&self.bytes[part]);
        }
        buffer[to - from..].fill(0);
        Ok(())
    }
}

fn copy_inline(contents: &[u8], size: u64, buffer: &mut [u8], offset: u64) -> usize {
    let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
    let wanted = &mut buffer[..length];
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
    let there = (contents.len() - from).min(length);
    wanted[..there].copy_from_slice(&contents[from..from + there]);
    wanted[there..].fill(0);
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Cluster, create, pattern};

    /// After a loss of power two reads of one file shared what was read ahead of them. The first was told that the
    /// object is missing, which a look at the file may also explain; the second came upon what the first had left, and
    /// was told of an input/output error.
    #[test]
    fn a_reader_that_comes_upon_what_failed_for_another_asks_for_itself() {
        let cluster = Cluster::new(1);
        let client = cluster.client();
        let file = create(&client, "f");
        file.write_at(&pattern(6, 300_000), 0).unwrap();
        file.flush().unwrap();
        let Look::Objects(state, layout) = look(&file.shared, &mut [0; 1], 0) else {
            panic!("it is striped")
        };
        let (size, write_count, deadline_ns) = (state.size, state.write_count, u64::MAX);
        let unwritten = Extents::default();
        let view = View {
            layout,
            written_slots: 1,
            size,
            unwritten,
            write_count,
            has_unwritten: false,
            deadline_ns,
        };
        drop(state);
        let (mut shared, mut bytes) = (Source::Failed, [0; 1_000]);
        let read = copy(&file.shared, &view, &mut shared, 70_000, &mut bytes);
        assert!(read.is_ok() && bytes == pattern(6, 300_000)[70_000..71_000]);
        assert!(matches!(shared, Source::Failed), "a part is no source for what lies beside it");
        cluster.lose_objects();
        let read = copy(&file.shared, &view, &mut shared, 70_000, &mut bytes);
        assert!(matches!(read, Err(Trouble::Missing(_, 0))));
    }
}
