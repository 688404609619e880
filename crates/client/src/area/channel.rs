//! Channels: open remote files.
//!
//! A channel is used from any number of threads, and one thread may have several reads in flight. When the node has
//! forgotten it, because its daemon was restarted or we were silent for too long, it is opened again unnoticed, as
//! long as the file is still the same.

use super::{AreaClient, FileIdentity, attributes};
use crate::meta::decode;
use crate::{Error, Result};
use parking_lot::Mutex;
use prost::Message;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_model::checksum::{first_mismatch, piece_checksums, piece_count};
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, READ_LIST_RANGES_MAX};
use vazao_model::{Attributes, Code};
use vazao_wire::operation::Method;
use vazao_wire::transport::{Pending, Received};
use vazao_wire::{op, proto};

/// Bytes of one request: several of them in flight keep a link busy, and none holds others up for long.
pub(super) const REQUEST_BYTES: usize = 512 * 1024;

/// Requests of one call in flight.
const WINDOW: usize = 8;

/// A node that forgets a channel more often than this within one call has something else to say.
const REOPENINGS_MAX: u32 = 3;

/// Closing in passing does not hold up its caller longer than this; the lease does the rest.
const CLOSE_MS_MAX: u64 = 2_000;

/// How a channel is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelOptions {
    /// Reads are allowed.
    pub read: bool,
    /// Writes are allowed.
    pub write: bool,
    /// Make the file where it is missing.
    pub create: bool,
    /// With `create`: fail where it is there.
    pub exclusive: bool,
    /// Cut to nothing first.
    pub truncate: bool,
    /// Permission bits of a new file; the node's umask applies.
    pub mode: u32,
    /// Only this very file will do.
    pub identity: Option<FileIdentity>,
}

impl Default for ChannelOptions {
    fn default() -> ChannelOptions {
        ChannelOptions {
            read: true,
            write: false,
            create: false,
            exclusive: false,
            truncate: false,
            mode: 0o644,
            identity: None,
        }
    }
}

/// An open remote file. Closed when dropped.
pub struct Channel {
    area: AreaClient,
    path: Vec<u8>,
    options: ChannelOptions,
    identity: FileIdentity,
    /// What the node calls it at present.
    id: Mutex<u64>,
    /// Under which the writes since the last sync were answered; 0: none.
    boot: AtomicU64,
    is_closed: bool,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({})", self.area.reference(&self.path))
    }
}

/// A read under way.
pub struct PendingRead<'a> {
    channel: &'a Channel,
    id: u64,
    offset: u64,
    length: usize,
    deadline_ns: u64,
    first: Result<Box<dyn Pending>>,
}

impl std::fmt::Debug for PendingRead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PendingRead({} bytes at {})", self.length, self.offset)
    }
}

/// A write under way.
pub(super) struct PendingWrite {
    first: Box<dyn Pending>,
    request: proto::ChannelWriteRequest,
}

fn read_message(channel: u64, offset: u64, length: usize) -> Vec<u8> {
    proto::ChannelReadRequest { channel, offset, length: length as u32 }.encode_to_vec()
}

impl PendingRead<'_> {
    /// Waits for the bytes and puts them into `buffer`, which has room for what was asked. Returns their number, fewer
    /// than asked for only where the file ends.
    pub fn wait(self, buffer: &mut [u8]) -> Result<usize> {
        let PendingRead { channel, id, offset, length, deadline_ns, first } = self;
        let make = |id| read_message(id, offset, length);
        let received = channel.ask(Method::ChannelRead, id, &make, &[], deadline_ns, Some(first?))?;
        let received = match channel.check_read(&received, offset, length) {
            Ok(_) => received,
            // Damaged on its way: once more.
            Err(error) if error.code == Code::Corrupt => {
                channel.ask(Method::ChannelRead, channel.id(), &make, &[], deadline_ns, None)?
            }
            Err(error) => return Err(error),
        };
        channel.check_read(&received, offset, length)?;
        let count = received.attachment.len();
        let Some(place) = buffer.get_mut(..count) else {
            return Err(Error::new(
                Code::Invalid,
                format!("{}: a buffer of {} bytes", channel.shown(), buffer.len()),
            ));
        };
        place.copy_from_slice(&received.attachment);
        Ok(count)
    }
}

impl Channel {
    pub(super) fn open(area: AreaClient, path: &[u8], options: &ChannelOptions) -> Result<Channel> {
        let id = area.nodes.nonce();
        let response = request_open(&area, path, options, options.identity, id)?;
        area.lease.open.fetch_add(1, Ordering::Relaxed);
        let identity = response.identity.unwrap_or_default().into();
        let lease = std::sync::Arc::clone(&area.lease);
        let channel = Channel {
            area,
            path: path.to_vec(),
            options: *options,
            identity,
            id: Mutex::new(id),
            boot: AtomicU64::new(0),
            is_closed: false,
        };
        lease.keep()?;
        Ok(channel)
    }

    fn id(&self) -> u64 {
        *self.id.lock()
    }

    fn shown(&self) -> String {
        self.area.reference(&self.path).to_string()
    }

    /// What tells the file from later ones of its name.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Sends a read of at most 4 MiB without waiting for it.
    pub fn start_read(&self, offset: u64, length: usize) -> Result<PendingRead<'_>> {
        if length > ATTACHMENT_BYTES_MAX {
            let detail =
                format!("{}: one read of {length} bytes; at most {ATTACHMENT_BYTES_MAX}", self.shown());
            return Err(Error::new(Code::Invalid, detail));
        }
        let (id, nodes) = (self.id(), &self.area.nodes);
        let deadline_ns = nodes.context.deadline_ns();
        let message = read_message(id, offset, length);
        let first = nodes.submit_to_node(&self.area.node, Method::ChannelRead, &message, &[], deadline_ns);
        Ok(PendingRead { channel: self, id, offset, length, deadline_ns, first })
    }

    /// Reads at `offset`; fewer bytes than the buffer has only where the file ends.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut flying = VecDeque::new();
        let mut places = buffer.chunks_mut(REQUEST_BYTES).enumerate();
        let mut total = 0;
        let mut is_ended = false;
        loop {
            while flying.len() < WINDOW && !is_ended {
                let Some((index, place)) = places.next() else { break };
                let at = offset.saturating_add((index * REQUEST_BYTES) as u64);
                flying.push_back((self.start_read(at, place.len())?, place));
            }
            let Some((pending, place)) = flying.pop_front() else { return Ok(total) };
            if !is_ended {
                let length = place.len();
                let count = pending.wait(place)?;
                total += count;
                is_ended = count < length;
            }
        }
    }

    /// Reads several ranges of (offset, length), in as few requests as they fit into. Each comes back shorter only
    /// where the file ends.
    pub fn read_list(&self, ranges: &[(u64, usize)]) -> Result<Vec<Vec<u8>>> {
        let mut results = Vec::with_capacity(ranges.len());
        let mut rest = ranges;
        while !rest.is_empty() {
            let mut bytes = 0usize;
            let mut fits = |&(_, length): &(u64, usize)| {
                bytes = bytes.saturating_add(length);
                bytes <= ATTACHMENT_BYTES_MAX
            };
            let count = rest.iter().take(READ_LIST_RANGES_MAX).take_while(|range| fits(range)).count();
            if count == 0 {
                let detail = format!("{}: a range of more than {ATTACHMENT_BYTES_MAX} bytes", self.shown());
                return Err(Error::new(Code::Invalid, detail));
            }
            let (now, later) = rest.split_at(count);
            self.read_batch(now, &mut results)?;
            rest = later;
        }
        Ok(results)
    }

    fn read_batch(&self, ranges: &[(u64, usize)], results: &mut Vec<Vec<u8>>) -> Result<()> {
        let range = |&(offset, length): &(u64, usize)| proto::ByteRange { offset, length: length as u32 };
        let list: Vec<proto::ByteRange> = ranges.iter().map(range).collect();
        let make = |channel| proto::ChannelReadListRequest { channel, ranges: list.clone() }.encode_to_vec();
        let deadline_ns = self.area.nodes.context.deadline_ns();
        let received = self.ask(Method::ChannelReadList, self.id(), &make, &[], deadline_ns, None)?;
        let answer = decode::<op::ChannelReadList>(&received)?;
        let mut bytes = &*received.attachment;
        let mut sums = answer.checksums.as_slice();
        let broken =
            || Error::new(Code::BadRequest, format!("{}: an answer that does not fit", self.shown()));
        if answer.lengths.len() != ranges.len() {
            return Err(broken());
        }
        for (&(offset, asked), &length) in ranges.iter().zip(&answer.lengths) {
            let length = length as usize;
            let pieces = piece_count(offset, length);
            if length > asked || length > bytes.len() || pieces > sums.len() {
                return Err(broken());
            }
            let (now, later) = bytes.split_at(length);
            let (its, others) = sums.split_at(pieces);
            (bytes, sums) = (later, others);
            if first_mismatch(offset, now, its).is_some() {
                return Err(self.damaged(offset));
            }
            results.push(now.to_vec());
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let deadline_ns = self.area.nodes.context.deadline_ns();
        let mut flying = VecDeque::new();
        let mut parts = bytes.chunks(REQUEST_BYTES).enumerate();
        loop {
            while flying.len() < WINDOW {
                let Some((index, part)) = parts.next() else { break };
                let at = offset.saturating_add((index * REQUEST_BYTES) as u64);
                flying.push_back((self.start_write(part, at)?, part));
            }
            let Some((pending, part)) = flying.pop_front() else { return Ok(()) };
            self.finish_write(pending, part, deadline_ns)?;
        }
    }

    /// Sends a write that fits into one request, without waiting for it.
    pub(super) fn start_write(&self, bytes: &[u8], offset: u64) -> Result<PendingWrite> {
        let (id, nodes) = (self.id(), &self.area.nodes);
        let checksums = piece_checksums(offset, bytes);
        let request = proto::ChannelWriteRequest { channel: id, offset, checksums, sync: false };
        let (node, message) = (&self.area.node, request.encode_to_vec());
        let first =
            nodes.submit_to_node(node, Method::ChannelWrite, &message, bytes, nodes.context.deadline_ns())?;
        Ok(PendingWrite { first, request })
    }

    /// Waits for a write of `bytes`, and sends it again until `deadline_ns` where that can help.
    pub(super) fn finish_write(&self, pending: PendingWrite, bytes: &[u8], deadline_ns: u64) -> Result<()> {
        let PendingWrite { first, request } = pending;
        let make = |channel| proto::ChannelWriteRequest { channel, ..request.clone() }.encode_to_vec();
        let sent_to = request.channel;
        let received = self.ask(Method::ChannelWrite, sent_to, &make, bytes, deadline_ns, Some(first))?;
        self.note_boot(decode::<op::ChannelWrite>(&received)?.boot);
        Ok(())
    }

    /// The first since the last sync counts: a sync under another one would find nothing to write.
    fn note_boot(&self, boot: u64) {
        let _ = self.boot.compare_exchange(0, boot, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Makes durable what has been written.
    pub fn sync(&self) -> Result<()> {
        let boot = self.boot.load(Ordering::Acquire);
        let make = |channel| proto::ChannelSyncRequest { channel, boot }.encode_to_vec();
        self.ask_now(Method::ChannelSync, &make)?;
        // A write that came meanwhile keeps its mark: an equal one only names the machine more often than needed.
        let _ = self.boot.compare_exchange(boot, 0, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }

    /// Cuts or extends the file.
    pub fn set_length(&self, size: u64) -> Result<()> {
        let make = |channel| proto::ChannelTruncateRequest { channel, size }.encode_to_vec();
        let received = self.ask_now(Method::ChannelTruncate, &make)?;
        self.note_boot(decode::<op::ChannelTruncate>(&received)?.boot);
        Ok(())
    }

    /// The file's attributes.
    pub fn stat(&self) -> Result<Attributes> {
        let make = |channel| proto::ChannelStatRequest { channel }.encode_to_vec();
        let received = self.ask_now(Method::ChannelStat, &make)?;
        attributes(decode::<op::ChannelStat>(&received)?.attributes)
    }

    /// Ends the access. What was not synced is with the node's kernel.
    pub fn close(mut self) -> Result<()> {
        let deadline_ns = self.area.nodes.context.deadline_ns();
        self.end(deadline_ns)
    }

    fn end(&mut self, deadline_ns: u64) -> Result<()> {
        self.is_closed = true;
        self.area.lease.open.fetch_sub(1, Ordering::Relaxed);
        let channel = self.id();
        let message = proto::CloseChannelRequest { channel }.encode_to_vec();
        let (nodes, node) = (&self.area.nodes, &self.area.node);
        let ended = nodes.ask_node_raw(node, Method::CloseChannel, &message, &[], deadline_ns, None);
        ended.map(drop).inspect_err(|_| self.area.lease.leave(channel))
    }

    fn ask_now(&self, method: Method, make: &dyn Fn(u64) -> Vec<u8>) -> Result<Received> {
        self.ask(method, self.id(), make, &[], self.area.nodes.context.deadline_ns(), None)
    }

    /// Asks, and opens the channel again where the node has forgotten it. `id` is the one that `first` was sent with.
    fn ask(
        &self,
        method: Method,
        mut id: u64,
        make: &dyn Fn(u64) -> Vec<u8>,
        attachment: &[u8],
        deadline_ns: u64,
        mut first: Option<Box<dyn Pending>>,
    ) -> Result<Received> {
        let (nodes, node) = (&self.area.nodes, &self.area.node);
        let mut reopenings = 0;
        loop {
            let answer = nodes.ask_node_raw(node, method, &make(id), attachment, deadline_ns, first.take());
            match answer {
                Err(error) if error.code == Code::BadHandle && reopenings < REOPENINGS_MAX => {
                    reopenings += 1;
                    id = self.reopened(id).map_err(|again| again.because(&error))?;
                }
                other => return other,
            }
        }
    }

    /// The channel's present name; opens the file again where it is still `lost`.
    fn reopened(&self, lost: u64) -> Result<u64> {
        let mut id = self.id.lock();
        if *id == lost {
            let fresh = self.area.nodes.nonce();
            let plain = ChannelOptions { create: false, exclusive: false, truncate: false, ..self.options };
            request_open(&self.area, &self.path, &plain, Some(self.identity), fresh)?;
            *id = fresh;
        }
        Ok(*id)
    }

    fn check_read(&self, received: &Received, offset: u64, length: usize) -> Result<u64> {
        let answer = decode::<op::ChannelRead>(received)?;
        if received.attachment.len() > length {
            return Err(Error::new(Code::BadRequest, format!("{}: more bytes than asked for", self.shown())));
        }
        match first_mismatch(offset, &received.attachment, &answer.checksums) {
            Some(_) => Err(self.damaged(offset)),
            None => Ok(answer.size),
        }
    }

    fn damaged(&self, offset: u64) -> Error {
        let detail = format!("{}: bytes at {offset} did not arrive as they were sent", self.shown());
        Error::new(Code::Corrupt, detail)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_closed {
            let deadline_ns = self.area.nodes.context.clock.now_ns() + CLOSE_MS_MAX * 1_000_000;
            // No caller is left to get the error. The lease's next renewal or its end closes the channel if this fails.
            let _ = self.end(deadline_ns);
        }
    }
}

fn request_open(
    area: &AreaClient,
    path: &[u8],
    options: &ChannelOptions,
    identity: Option<FileIdentity>,
    channel: u64,
) -> Result<proto::OpenChannelResponse> {
    area.ask::<op::OpenChannel>(&proto::OpenChannelRequest {
        area: area.area.to_string(),
        path: path.to_vec(),
        client: area.lease.client,
        channel,
        read: options.read,
        write: options.write,
        create: options.create,
        exclusive: options.exclusive,
        truncate: options.truncate,
        mode: options.mode,
        identity: identity.map(Into::into),
    })
}
