//! Another layout for a file, while it is in use.
//!
//! The old objects are watched, copied and sealed; then the layouts are exchanged in one metadata transaction, which
//! also has the old objects removed. A change of an old object between watch and seal makes all begin anew. Whatever
//! ends half-way leaves the file as it was: the metadata service has the new objects removed and the seals lifted, also
//! when this client is gone.

use super::holes::Seek;
use super::inode::OpenInode;
use super::objects::{How, object_address, submit_read};
use super::read::{Trouble, View};
use super::read_ahead::ReadAhead;
use super::staging::transfer_at;
use super::sync_ledger::power_lost;
use super::{commit, holes, look, objects, read, sync};
use crate::data::DataCall;
use crate::meta::decode;
use crate::{Error, File, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vazao_model::{Code, Extents, GroupId, Layout, LayoutHint};
use vazao_wire::{Method, op, proto};

/// Bytes copied at once.
const SEGMENT_BYTES: usize = 4 << 20;

/// How often a conversion begins anew because the file was written to.
const STARTS_MAX: u32 = 3;

/// How long to wait for the end of the earlier attempt to be cleaned up, and between two looks: servers that have just
/// started again take their time.
const CLEAN_UP_NS_MAX: u64 = 10_000_000_000;
const CLEAN_UP_PAUSE: Duration = Duration::from_millis(500);

/// How long a copy that keeps to a rate sleeps before it looks whether it is still wanted.
const RATE_PAUSE: Duration = Duration::from_millis(100);

/// Steps of `FenceObjects`.
const WATCH: u32 = 1;
const SEAL: u32 = 2;

/// How to convert.
#[derive(Clone, Debug)]
pub struct Convert {
    /// The layout wanted, nothing inherited.
    pub hint: LayoutHint,
    /// Only says what would be done.
    pub is_dry_run: bool,
    /// Bytes a second that are copied at most; 0: as fast as it goes.
    pub rate_bytes_max: u64,
}

/// What was, or would be, done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Converted {
    /// Bytes copied; of a dry run those that hold something.
    pub bytes: u64,
    /// The layout before; `None` of a file that is kept with its metadata.
    pub from: Option<Layout>,
    /// The layout now, or the one of a dry run; as before where nothing had to be done.
    pub to: Option<Layout>,
    /// True when the layout is another one.
    pub is_changed: bool,
}

/// One attempt.
struct Attempt<'a> {
    inode: &'a OpenInode,
    old: Arc<Layout>,
    new: Layout,
    rate_bytes_max: u64,
    progress: &'a dyn Fn(u64) -> bool,
}

/// What was copied.
#[derive(Default)]
struct Copied {
    bytes: u64,
    /// The start of the machine that took the bytes of each slot.
    boots: BTreeMap<u32, u64>,
}

impl Copied {
    fn slots(&self) -> u64 {
        self.boots.keys().map(|slot| 1u64.checked_shl(*slot).unwrap_or(0)).sum()
    }
}

impl File {
    /// Gives the file another layout; see [`crate::Client::convert`].
    pub(crate) fn convert(&self, how: &Convert, progress: &dyn Fn(u64) -> bool) -> Result<Converted> {
        let mut starts = 0;
        loop {
            starts += 1;
            match convert(&self.shared, how, progress) {
                Err(error) if error.code == Code::InUse && starts < STARTS_MAX => {
                    tracing::debug!(inode = %self.shared.id, %error, "converting it anew");
                    self.shared.core.context.clock.sleep(CLEAN_UP_PAUSE * starts);
                }
                other => return other,
            }
        }
    }
}

/// Begins, once an earlier attempt is cleaned up.
fn begin(
    open: &OpenInode,
    request: &proto::BeginConversionRequest,
    deadline_ns: u64,
) -> Result<proto::BeginConversionResponse> {
    let clock = &open.core.context.clock;
    let until_ns = deadline_ns.min(clock.now_ns().saturating_add(CLEAN_UP_NS_MAX));
    loop {
        match open.core.meta.change_until::<op::BeginConversion>(request.clone(), deadline_ns) {
            Err(error) if error.code == Code::InUse && clock.now_ns() < until_ns => {
                clock.sleep(CLEAN_UP_PAUSE);
            }
            begun => return begun,
        }
    }
}

fn convert(open: &OpenInode, how: &Convert, progress: &dyn Fn(u64) -> bool) -> Result<Converted> {
    let deadline_ns = open.core.context.deadline_ns();
    commit::flush(open, false)?;
    look::look_again(open, deadline_ns)?;
    let request = proto::BeginConversionRequest {
        once: None,
        inode: open.id.0,
        hint: Some(how.hint.clone().into()),
        host: open.core.context.options.host,
        dry_run: how.is_dry_run,
        zone: open.core.meta.zone(),
    };
    let begun = begin(open, &request, deadline_ns)?;
    let (Some(from), Some(to)) = (begun.from, begun.to) else {
        return Ok(Converted { bytes: 0, from: None, to: None, is_changed: false });
    };
    let (old, new) = (Layout::try_from(from)?, Layout::try_from(to)?);
    if begun.unchanged {
        return Ok(Converted { bytes: 0, from: Some(old.clone()), to: Some(old), is_changed: false });
    }
    let attempt = Attempt {
        inode: open,
        old: Arc::new(old.clone()),
        new: new.clone(),
        rate_bytes_max: how.rate_bytes_max,
        progress,
    };
    if how.is_dry_run {
        let bytes = attempt.stored_bytes(deadline_ns)?;
        return Ok(Converted { bytes, from: Some(old), to: Some(new), is_changed: false });
    }
    match attempt.run(begun.size) {
        Ok(bytes) => Ok(Converted { bytes, from: Some(old), to: Some(new), is_changed: true }),
        Err(error) => attempt.give_up(error).map(|bytes| Converted {
            bytes,
            from: Some(old),
            to: Some(new),
            is_changed: true,
        }),
    }
}

impl Attempt<'_> {
    /// Bytes that were copied.
    fn run(&self, size: u64) -> Result<u64> {
        self.fence(WATCH)?;
        let (slots, end) = self.extent(self.inode.core.context.deadline_ns())?;
        if slots & !self.old.written_slots != 0 {
            let text = "a client has written parts of it and not reported them yet, or died before it did: \
                        close or fsync it there, or write to it and close it";
            return Err(self.busy(text));
        }
        let copied = self.copy(slots, end)?;
        let deadline_ns = self.inode.core.context.deadline_ns();
        self.sync(&copied, deadline_ns)?;
        let allocated_bytes = holes::allocated_bytes(self.inode, &self.new, copied.slots(), deadline_ns);
        self.fence(SEAL)?;
        let request = proto::SwitchLayoutRequest {
            once: None,
            inode: self.inode.id.0,
            generation: self.new.generation,
            size,
            written_slots: copied.slots(),
            allocated_bytes,
        };
        self.inode.core.meta.change::<op::SwitchLayout>(request)?;
        Ok(copied.bytes)
    }

    fn busy(&self, why: &str) -> Error {
        Error::new(Code::InUse, format!("{}: {why}", self.inode.id))
    }

    /// Has the metadata service forget the conversion. Ok when it turns out that the layouts were exchanged: only the
    /// answer was lost.
    fn give_up(&self, error: Error) -> Result<u64> {
        let generation = self.new.generation;
        let request =
            proto::EndConversionRequest { once: None, inode: self.inode.id.0, generation, stalled: false };
        let ended = self.inode.core.meta.change::<op::EndConversion>(request);
        if ended.is_ok_and(|response| !response.ended) {
            let request = proto::GetAttributesRequest { inode: self.inode.id.0, seat: 0 };
            let now = self.inode.core.meta.ask::<op::GetAttributes>(&request)?;
            let layout = now.inode.and_then(|inode| inode.layout);
            if layout.is_some_and(|layout| layout.generation == generation) {
                return self.stored_bytes(self.inode.core.context.deadline_ns());
            }
        }
        Err(error)
    }

    /// Sends the old objects of each placement group a step of the fence.
    fn fence(&self, step: u32) -> Result<()> {
        let deadline_ns = self.inode.core.context.deadline_ns();
        let mut by_group: BTreeMap<GroupId, Vec<proto::ObjectAddress>> = BTreeMap::new();
        for (slot, group) in (0..).zip(&self.old.groups) {
            by_group.entry(*group).or_default().extend(object_address(self.inode.id.0, &self.old, slot));
        }
        let token = u64::from(self.new.generation);
        let calls: Vec<DataCall> = by_group
            .into_iter()
            .map(|(group, objects)| {
                let request = proto::FenceObjectsRequest { objects, token, step };
                let message = prost::Message::encode_to_vec(&request);
                self.inode.core.data.submit_data(group, Method::FenceObjects, message, &[], deadline_ns)
            })
            .collect();
        let mut outcome = Ok(());
        for mut call in calls {
            let answer = self.inode.core.data.finish_data(&mut call, &[], deadline_ns);
            let answer = answer.and_then(|received| Ok(decode::<op::FenceObjects>(&received)?));
            let answer = answer.and_then(|response| match response.changed {
                true => Err(self.busy("it was written to while it was converted")),
                false => Ok(()),
            });
            outcome = outcome.and(answer);
        }
        outcome.map_err(|error| error.about(self.inode.id))
    }

    /// The slots that have objects, and where in the file the furthest of them ends.
    fn extent(&self, deadline_ns: u64) -> Result<(u64, u64)> {
        let (mut slots, mut end) = (self.old.written_slots, 0);
        let width = self.old.width();
        for (slot, stat) in self.stat(deadline_ns)? {
            if !stat.exists {
                continue;
            }
            slots |= 1 << slot;
            let last = stat.length.checked_sub(1);
            let last = last.and_then(|last| self.old.distribution.file_offset(slot, last, width));
            end = end.max(last.map_or(0, |last| last + 1));
        }
        Ok((slots, end))
    }

    fn stat(&self, deadline_ns: u64) -> Result<Vec<(u32, proto::StatObjectResponse)>> {
        let ask = |slot| {
            let object = object_address(self.inode.id.0, &self.old, slot)?;
            let request = proto::StatObjectRequest { object: Some(object) };
            let call = submit_read::<op::StatObject>(self.inode, &self.old, (slot, 0), &request, deadline_ns);
            Some((slot, call))
        };
        let calls: Vec<(u32, DataCall)> = (0..self.old.width()).filter_map(ask).collect();
        let answers: Vec<Result<_>> = calls
            .into_iter()
            .map(|(slot, mut call)| {
                let is_unwritten = self.old.written_slots & (1 << slot) == 0;
                let exists = |stat: &proto::StatObjectResponse| stat.exists || is_unwritten;
                Ok((
                    slot,
                    self.inode.core.data.finish_found::<op::StatObject>(&mut call, exists, deadline_ns)?,
                ))
            })
            .collect();
        answers.into_iter().collect()
    }

    /// Storage that the old objects take.
    fn stored_bytes(&self, deadline_ns: u64) -> Result<u64> {
        Ok(self.stat(deadline_ns)?.iter().map(|(_, stat)| stat.allocated_bytes.min(stat.length)).sum())
    }

    /// Copies all data up to `end`; holes stay holes.
    fn copy(&self, slots: u64, end: u64) -> Result<Copied> {
        let core = &self.inode.core;
        let ahead = Mutex::new(ReadAhead::default());
        let mut buffer = core.pool.take(SEGMENT_BYTES);
        let started_ns = core.context.clock.now_ns();
        let mut copied = Copied::default();
        let mut position = 0;
        while let Some(start) = self.next(Seek::Data, slots, position, end)? {
            let stop = self.next(Seek::Hole, slots, start, end)?.unwrap_or(end);
            position = start;
            while position < stop {
                let length = ((stop - position) as usize).min(SEGMENT_BYTES);
                let part = &mut buffer[..length];
                self.read(&ahead, slots, end, part, position)?;
                self.write(part, position, &mut copied)?;
                position += length as u64;
                copied.bytes += length as u64;
                self.keep_to_rate(copied.bytes, started_ns)?;
            }
        }
        Ok(copied)
    }

    fn next(&self, seek: Seek, slots: u64, offset: u64, end: u64) -> Result<Option<u64>> {
        if offset >= end {
            return Ok(None);
        }
        holes::seek_objects(
            self.inode,
            seek,
            &self.old,
            slots,
            offset,
            end,
            self.inode.core.context.deadline_ns(),
        )
    }

    fn read(
        &self,
        ahead: &Mutex<ReadAhead>,
        slots: u64,
        end: u64,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<()> {
        let view = View {
            layout: Arc::clone(&self.old),
            written_slots: slots,
            size: end,
            // Its writers may not have reported it yet: all of it goes along, and stays hidden as far as it is.
            unwritten: Extents::default(),
            write_count: 0,
            has_unwritten: false,
            deadline_ns: self.inode.core.context.deadline_ns(),
        };
        read::read_objects(self.inode, ahead, &view, buffer, offset).map_err(|trouble| match trouble {
            Trouble::Failed(error) => error,
            Trouble::Missing(call, slot) => {
                let text = format!("the object of slot {slot} is missing at {}", call.server_name());
                Error::new(Code::Corrupt, format!("{}: {text}", self.inode.id))
            }
        })
    }

    /// Writes a part under the new layout.
    fn write(&self, bytes: &[u8], offset: u64, copied: &mut Copied) -> Result<()> {
        let deadline_ns = self.inode.core.context.deadline_ns();
        let (mut rest, mut position) = (bytes, offset);
        let mut calls = Vec::new();
        while !rest.is_empty() {
            let length = rest.len().min((transfer_at(&self.new, position).end - position) as usize);
            let (now, later) = rest.split_at(length);
            let (slot, _) = self.new.distribution.locate(position, self.new.width());
            let call =
                objects::submit_write(self.inode, &self.new, position, now, How::default(), deadline_ns)?;
            calls.push((slot, call, now));
            rest = later;
            position += length as u64;
        }
        let mut outcome = Ok(());
        for (slot, mut call, bytes) in calls {
            let written = objects::finish_write(self.inode, &mut call, bytes, deadline_ns);
            outcome = outcome.and(written.and_then(|written| self.note_boot(slot, written, copied)));
        }
        outcome.map_err(|error| error.about(self.inode.id))
    }

    /// A machine that started anew while it was written to may have lost the first part.
    fn note_boot(&self, slot: u32, boot: u64, copied: &mut Copied) -> Result<()> {
        match copied.boots.insert(slot, boot) {
            Some(before) if before != boot => Err(power_lost(&self.new, slot)),
            _ => Ok(()),
        }
    }

    /// Makes the new objects durable.
    fn sync(&self, copied: &Copied, deadline_ns: u64) -> Result<()> {
        let sync = |(slot, boot): (&u32, &u64)| {
            sync::submit_sync(self.inode, &self.new, &[*slot], *boot, deadline_ns)
        };
        let calls: Vec<DataCall> = copied.boots.iter().map(sync).collect();
        let mut outcome = Ok(());
        for mut call in calls {
            outcome = outcome.and(self.inode.core.data.finish_data(&mut call, &[], deadline_ns).map(|_| ()));
        }
        outcome.map_err(|error| error.about(self.inode.id))
    }

    /// Reports progress, and waits for as long as the rate demands.
    fn keep_to_rate(&self, bytes: u64, started_ns: u64) -> Result<()> {
        let clock = &self.inode.core.context.clock;
        let due_ns = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(self.rate_bytes_max));
        let due_ns = u64::try_from(due_ns.unwrap_or(0)).unwrap_or(u64::MAX).saturating_add(started_ns);
        loop {
            if !(self.progress)(bytes) {
                return Err(Error::new(Code::Cancelled, format!("{}: given up", self.inode.id)));
            }
            let early = Duration::from_nanos(due_ns.saturating_sub(clock.now_ns()));
            if early.is_zero() {
                return Ok(());
            }
            clock.sleep(early.min(RATE_PAUSE));
        }
    }
}
