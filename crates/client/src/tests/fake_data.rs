//! A data server small enough to be obviously right: objects are vectors in memory.

use parking_lot::Mutex;
use prost::Message;
use std::collections::{HashMap, VecDeque};
use std::sync::Weak;
use vazao_model::checksum::{first_mismatch, piece_checksums};
use vazao_model::{Code, ObjectId};
use vazao_wire::service::{Deferred, Fault, Request, Responder, Service};
use vazao_wire::{Method, proto};

#[derive(Default)]
pub(super) struct DataState {
    pub(super) objects: HashMap<ObjectId, Vec<u8>>,
    pub(super) counts: HashMap<Method, usize>,
    /// Offset and length of each read.
    pub(super) reads: Vec<(u64, u32)>,
    /// Offset and length of each write.
    pub(super) writes: Vec<(u64, usize)>,
    /// Answers to give instead of carrying out the next requests of a method.
    pub(super) faults: VecDeque<(Method, Fault)>,
    /// The next so many reads have a flipped bit.
    pub(super) flips: usize,
    pub(super) synced: Vec<ObjectId>,
    pub(super) sync_writes: usize,
    /// The machine's; 0 for one that does not know.
    pub(super) boot: u64,
    /// Which attempt each change was.
    pub(super) attempts: Vec<u32>,
}

#[derive(Default)]
pub(super) struct FakeData {
    pub(super) state: Mutex<DataState>,
    /// The other members of its groups, which get what it is sent to change.
    pub(super) others: Mutex<Vec<Weak<FakeData>>>,
}

/// Takes an answer that goes nowhere.
struct Ignored;

impl Responder for Ignored {
    fn reply(&mut self, _: &[u8]) {}

    fn try_reply_with(
        &mut self,
        _: &[u8],
        _: usize,
        _: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        true
    }

    fn fail(&mut self, _: &Fault) {}

    fn defer(&mut self) -> Deferred {
        Deferred::new(|_| ())
    }
}

impl FakeData {
    pub(super) fn count(&self, method: Method) -> usize {
        self.state.lock().counts.get(&method).copied().unwrap_or(0)
    }

    pub(super) fn fail_next(&self, method: Method, code: Code, times: usize) {
        self.fail_next_with(method, &Fault::new(code, "as the test wants it"), times);
    }

    pub(super) fn fail_next_with(&self, method: Method, fault: &Fault, times: usize) {
        let mut state = self.state.lock();
        (0..times).for_each(|_| state.faults.push_back((method, fault.clone())));
    }

    pub(super) fn fail_no_more(&self) {
        self.state.lock().faults.clear();
    }
}

fn object(address: Option<proto::ObjectAddress>) -> ObjectId {
    ObjectId::from(&address.unwrap())
}

impl Service for FakeData {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let mut state = self.state.lock();
        *state.counts.entry(request.method).or_default() += 1;
        if state.faults.front().is_some_and(|(method, _)| *method == request.method) {
            let (_, fault) = state.faults.pop_front().unwrap();
            return responder.fail(&fault);
        }
        if matches!(
            request.method,
            Method::Write | Method::WriteList | Method::TruncateObject | Method::PunchObject
        ) {
            for other in self.others.lock().iter().filter_map(Weak::upgrade) {
                other.state.lock().carry_out(&request, &mut Ignored);
            }
        }
        state.carry_out(&request, responder);
    }
}

impl DataState {
    fn carry_out(&mut self, request: &Request<'_>, responder: &mut dyn Responder) {
        let state = self;
        match request.method {
            Method::Read => state.read(Message::decode(request.message).unwrap(), responder),
            Method::Write => {
                state.write(Message::decode(request.message).unwrap(), request.attachment, responder)
            }
            Method::ReadList => state.read_list(Message::decode(request.message).unwrap(), responder),
            Method::WriteList => {
                state.write_list(Message::decode(request.message).unwrap(), request.attachment, responder)
            }
            Method::TruncateObject => {
                let r: proto::TruncateObjectRequest = Message::decode(request.message).unwrap();
                if let Some(bytes) = state.objects.get_mut(&object(r.object)) {
                    bytes.truncate(r.length as usize);
                }
                let answer = proto::TruncateObjectResponse { boot: state.boot };
                responder.reply(&answer.encode_to_vec());
            }
            Method::PunchObject => {
                let r: proto::PunchObjectRequest = Message::decode(request.message).unwrap();
                if let Some(bytes) = state.objects.get_mut(&object(r.object)) {
                    let end = (r.offset.saturating_add(r.length) as usize).min(bytes.len());
                    bytes[(r.offset as usize).min(end)..end].fill(0);
                }
                responder.reply(&[]);
            }
            Method::ObjectRanges => {
                state.ranges(Message::decode(request.message).unwrap(), responder);
            }
            Method::StatObject => {
                let r: proto::StatObjectRequest = Message::decode(request.message).unwrap();
                let bytes = state.objects.get(&object(r.object));
                let allocated = bytes.map_or(0, |bytes| bytes.iter().filter(|byte| **byte != 0).count());
                let answer = proto::StatObjectResponse {
                    exists: bytes.is_some(),
                    length: bytes.map_or(0, |bytes| bytes.len() as u64),
                    allocated_bytes: allocated as u64,
                };
                responder.reply(&answer.encode_to_vec());
            }
            Method::SyncObjects => {
                let r: proto::SyncObjectsRequest = Message::decode(request.message).unwrap();
                if r.boot != 0 && r.boot != state.boot {
                    return responder.fail(&Fault::new(Code::Io, "the machine lost power"));
                }
                state.synced.extend(r.objects.iter().map(ObjectId::from));
                let is_missing = |id: &ObjectId| !state.objects.contains_key(id);
                let missing = r.objects.iter().map(ObjectId::from).filter(is_missing).count() as u64;
                responder.reply(&proto::SyncObjectsResponse { missing }.encode_to_vec());
            }
            other => responder.fail(&Fault::new(Code::Unsupported, other.name())),
        }
    }

    fn read_list(&mut self, r: proto::ReadListRequest, responder: &mut dyn Responder) {
        let bytes = self.objects.get(&object(r.object));
        let mut answer = proto::ReadListResponse { missing: bytes.is_none(), ..Default::default() };
        let bytes = bytes.map_or(&[][..], Vec::as_slice);
        answer.object_length = bytes.len() as u64;
        let mut attachment = Vec::new();
        for range in &r.ranges {
            let start = (range.offset as usize).min(bytes.len());
            let part = &bytes[start..(start + range.length as usize).min(bytes.len())];
            answer.lengths.push(part.len() as u32);
            answer.checksums.extend(piece_checksums(range.offset, part));
            attachment.extend_from_slice(part);
        }
        if self.flips > 0 && !attachment.is_empty() {
            self.flips -= 1;
            attachment[0] ^= 1;
        }
        responder.reply_with(&answer.encode_to_vec(), attachment.len(), &mut |place| {
            place.copy_from_slice(&attachment);
            Ok(())
        });
    }

    fn write_list(&mut self, r: proto::WriteListRequest, attachment: &[u8], responder: &mut dyn Responder) {
        let bytes = self.objects.entry(object(r.object)).or_default();
        let (mut rest, mut checksums) = (attachment, &r.checksums[..]);
        for range in &r.ranges {
            let (now, later) = rest.split_at(range.length as usize);
            let count = vazao_model::checksum::piece_count(range.offset, now.len());
            assert_eq!(first_mismatch(range.offset, now, &checksums[..count]), None);
            (rest, checksums) = (later, &checksums[count..]);
            let start = range.offset as usize;
            bytes.resize(bytes.len().max(start + now.len()), 0);
            bytes[start..start + now.len()].copy_from_slice(now);
        }
        assert!(rest.is_empty() && checksums.is_empty());
        let answer = proto::WriteListResponse { object_length: bytes.len() as u64, boot: self.boot };
        responder.reply(&answer.encode_to_vec());
    }

    fn read(&mut self, r: proto::ReadRequest, responder: &mut dyn Responder) {
        self.reads.push((r.offset, r.length));
        let Some(bytes) = self.objects.get(&object(r.object)) else {
            let answer = proto::ReadResponse { missing: true, ..Default::default() };
            return responder.reply(&answer.encode_to_vec());
        };
        let from = (r.offset as usize).min(bytes.len());
        let to = (from + r.length as usize).min(bytes.len());
        let mut part = bytes[from..to].to_vec();
        let checksums = piece_checksums(r.offset, &part);
        let answer = proto::ReadResponse { checksums, object_length: bytes.len() as u64, missing: false };
        if self.flips > 0 && !part.is_empty() {
            self.flips -= 1;
            let middle = part.len() / 2;
            part[middle] ^= 4;
        }
        responder.reply_with(&answer.encode_to_vec(), part.len(), &mut |place| {
            place.copy_from_slice(&part);
            Ok(())
        });
    }

    /// Every byte that is not zero is data.
    fn ranges(&mut self, r: proto::ObjectRangesRequest, responder: &mut dyn Responder) {
        let bytes = self.objects.get(&object(r.object));
        let rest = bytes.map_or(&[][..], |bytes| &bytes[(r.offset as usize).min(bytes.len())..]);
        let range = rest.iter().position(|byte| *byte != 0).map(|start| {
            let length = rest[start..].iter().position(|byte| *byte == 0).unwrap_or(rest.len() - start);
            proto::DataRange { offset: r.offset + start as u64, length: length as u64 }
        });
        let answer = proto::ObjectRangesResponse {
            exists: bytes.is_some(),
            length: bytes.map_or(0, |bytes| bytes.len() as u64),
            complete: range.is_none(),
            ranges: range.into_iter().collect(),
        };
        responder.reply(&answer.encode_to_vec());
    }

    fn write(&mut self, r: proto::WriteRequest, attachment: &[u8], responder: &mut dyn Responder) {
        assert_eq!(first_mismatch(r.offset, attachment, &r.checksums), None);
        self.writes.push((r.offset, attachment.len()));
        self.attempts.extend(r.object.as_ref().map(|object| object.attempt));
        self.sync_writes += usize::from(r.sync);
        let boot = self.boot;
        let bytes = self.objects.entry(object(r.object)).or_default();
        let (from, to) = (r.offset as usize, r.offset as usize + attachment.len());
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        bytes[from..to].copy_from_slice(attachment);
        let answer = proto::WriteResponse { object_length: bytes.len() as u64, boot };
        responder.reply(&answer.encode_to_vec());
    }
}
