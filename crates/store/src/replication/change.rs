//! A request that changes one object, or makes it durable, as members send it to one another.

use prost::Message;
use std::ops::Range;
use vazao_model::{Code, ObjectId};
use vazao_wire::service::Fault;
use vazao_wire::{Method, proto};

/// What is asked. Requests for several objects are taken apart before: each of these has one.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Write(proto::WriteRequest),
    WriteList(proto::WriteListRequest),
    Truncate(proto::TruncateObjectRequest),
    Punch(proto::PunchObjectRequest),
    Sync(proto::SyncObjectsRequest),
    Remove(proto::RemoveObjectsRequest),
    Fence(proto::FenceObjectsRequest),
}

/// A request, whole in itself: it can be carried out here, and sent to others.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) body: Body,
    /// What is attached to it.
    pub(crate) bytes: Vec<u8>,
}

/// What a change may have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Touched {
    pub(super) object: ObjectId,
    pub(super) ranges: Vec<Range<u64>>,
}

/// The bytes that a change of `length` bytes touches, also one of none, which makes its object.
pub(crate) fn bytes(offset: u64, length: u64) -> Range<u64> {
    offset..offset.saturating_add(length.max(1))
}

/// Everything from an offset on, also where the end was before.
pub(crate) fn behind(offset: u64) -> Range<u64> {
    offset..u64::MAX
}

/// Everything of an object, also where its end was before.
pub(super) const WHOLE: Range<u64> = 0..u64::MAX;

impl Body {
    pub(super) fn method(&self) -> Method {
        match self {
            Body::Write(_) => Method::Write,
            Body::WriteList(_) => Method::WriteList,
            Body::Truncate(_) => Method::TruncateObject,
            Body::Punch(_) => Method::PunchObject,
            Body::Sync(_) => Method::SyncObjects,
            Body::Remove(_) => Method::RemoveObjects,
            Body::Fence(_) => Method::FenceObjects,
        }
    }

    pub(super) fn message(&self) -> Vec<u8> {
        match self {
            Body::Write(request) => request.encode_to_vec(),
            Body::WriteList(request) => request.encode_to_vec(),
            Body::Truncate(request) => request.encode_to_vec(),
            Body::Punch(request) => request.encode_to_vec(),
            Body::Sync(request) => request.encode_to_vec(),
            Body::Remove(request) => request.encode_to_vec(),
            Body::Fence(request) => request.encode_to_vec(),
        }
    }

    pub(super) fn address(&self) -> Option<&proto::ObjectAddress> {
        match self {
            Body::Write(request) => request.object.as_ref(),
            Body::WriteList(request) => request.object.as_ref(),
            Body::Truncate(request) => request.object.as_ref(),
            Body::Punch(request) => request.object.as_ref(),
            Body::Sync(request) => request.objects.first(),
            Body::Remove(request) => request.objects.first(),
            Body::Fence(request) => request.objects.first(),
        }
    }

    pub(super) fn address_mut(&mut self) -> Option<&mut proto::ObjectAddress> {
        match self {
            Body::Write(request) => request.object.as_mut(),
            Body::WriteList(request) => request.object.as_mut(),
            Body::Truncate(request) => request.object.as_mut(),
            Body::Punch(request) => request.object.as_mut(),
            Body::Sync(request) => request.objects.first_mut(),
            Body::Remove(request) => request.objects.first_mut(),
            Body::Fence(request) => request.objects.first_mut(),
        }
    }

    /// The request as the primary sends it to a member, also to itself.
    pub(super) fn forwarded(&self, forward: proto::Forward) -> Vec<u8> {
        let mut body = self.clone();
        if let Some(address) = body.address_mut() {
            // Its sender may have named the target that it came to; the member knows its own.
            address.target = 0;
            address.forward = Some(forward);
        }
        if let Body::Sync(request) = &mut body {
            // The primary has compared it: its group's number is none of a machine.
            request.boot = 0;
        }
        body.message()
    }
}

impl Change {
    pub(crate) fn new(body: Body) -> Change {
        Change { body, bytes: Vec::new() }
    }

    pub(super) fn method(&self) -> Method {
        self.body.method()
    }

    pub(super) fn address(&self) -> Option<&proto::ObjectAddress> {
        self.body.address()
    }

    /// True when a missing object is an error.
    pub(super) fn must_exist(&self) -> bool {
        match &self.body {
            Body::Write(request) => request.must_exist,
            Body::WriteList(request) => request.must_exist,
            Body::Truncate(request) => request.must_exist,
            Body::Punch(request) => request.must_exist,
            Body::Sync(_) | Body::Remove(_) | Body::Fence(_) => false,
        }
    }

    /// The bytes of the object that it may change; none: it changes nothing.
    pub(super) fn touched(&self) -> Vec<Range<u64>> {
        match &self.body {
            Body::Write(request) => vec![bytes(request.offset, self.bytes.len() as u64)],
            Body::WriteList(request) => {
                request.ranges.iter().map(|it| bytes(it.offset, u64::from(it.length))).collect()
            }
            Body::Truncate(request) => vec![behind(request.length)],
            Body::Punch(request) => vec![bytes(request.offset, request.length)],
            Body::Sync(_) => Vec::new(),
            Body::Remove(_) | Body::Fence(_) => vec![WHOLE],
        }
    }

    /// An answer to it, saying under which number what was changed is known: as `boot` of a server alone.
    pub(super) fn answered_under(&self, mut message: Vec<u8>, boot: u64) -> Vec<u8> {
        // Of a field that stands twice the later one counts (protobuf).
        message.extend(match &self.body {
            Body::Write(_) => proto::WriteResponse { boot, ..Default::default() }.encode_to_vec(),
            Body::WriteList(_) => proto::WriteListResponse { boot, ..Default::default() }.encode_to_vec(),
            Body::Truncate(_) => proto::TruncateObjectResponse { boot }.encode_to_vec(),
            Body::Punch(_) => proto::PunchObjectResponse { boot }.encode_to_vec(),
            Body::Sync(_) | Body::Remove(_) | Body::Fence(_) => Vec::new(),
        });
        message
    }
}

pub(super) fn decoded<M: Message + Default>(message: &[u8]) -> Result<M, Fault> {
    M::decode(message).map_err(|error| Fault::new(Code::BadRequest, error.to_string()))
}
