//! Requests for several objects, of which some have several copies.

use super::change::{Body, Change, decoded};
use crate::service::DataService;
use prost::Message;
use vazao_model::GroupId;
use vazao_wire::Method;
use vazao_wire::proto;
use vazao_wire::service::{Answer, Fault, Request};

impl DataService {
    /// Whether a client asks for any object whose copies this server's groups agree on.
    pub(crate) fn are_led(&self, objects: &[proto::ObjectAddress]) -> bool {
        objects.iter().any(|object| self.is_led(object))
    }

    fn is_led(&self, object: &proto::ObjectAddress) -> bool {
        object.forward.is_none() && object.group != 0 && self.agreed(GroupId(object.group)).is_some()
    }

    /// Makes objects durable at all members that count.
    pub(crate) fn sync_all(&self, request: proto::SyncObjectsRequest, deadline_ns: u64) -> Answer {
        let boot = request.boot;
        let of = |objects| proto::SyncObjectsRequest { objects, boot };
        let missing = self.each(request.objects, deadline_ns, &|objects| Body::Sync(of(objects)))?;
        let missing = missing.iter().map(|answer| Ok(decoded::<proto::SyncObjectsResponse>(answer)?.missing));
        let missing = missing.sum::<Result<u64, Fault>>()?;
        Ok((proto::SyncObjectsResponse { missing }.encode_to_vec(), Vec::new()))
    }

    /// Removes objects at all members that count.
    pub(crate) fn remove_all(&self, request: proto::RemoveObjectsRequest, deadline_ns: u64) -> Answer {
        let of = |objects| Body::Remove(proto::RemoveObjectsRequest { objects });
        let removed = self.each(request.objects, deadline_ns, &of)?;
        let removed =
            removed.iter().map(|answer| Ok(decoded::<proto::RemoveObjectsResponse>(answer)?.removed));
        let removed = removed.sum::<Result<u64, Fault>>()?;
        Ok((proto::RemoveObjectsResponse { removed }.encode_to_vec(), Vec::new()))
    }

    /// Watches, seals or lifts objects at all members that count.
    pub(crate) fn fence_all(&self, request: proto::FenceObjectsRequest, deadline_ns: u64) -> Answer {
        let (token, step) = (request.token, request.step);
        let of = |objects| Body::Fence(proto::FenceObjectsRequest { objects, token, step });
        let changed = self.each(request.objects, deadline_ns, &of)?;
        let changed =
            changed.iter().map(|answer| Ok(decoded::<proto::FenceObjectsResponse>(answer)?.changed));
        let changed = changed.collect::<Result<Vec<bool>, Fault>>()?.contains(&true);
        Ok((proto::FenceObjectsResponse { changed }.encode_to_vec(), Vec::new()))
    }

    /// The answers for the objects of which there is one copy, together, and for each of the others.
    fn each(
        &self,
        objects: Vec<proto::ObjectAddress>,
        deadline_ns: u64,
        of: &dyn Fn(Vec<proto::ObjectAddress>) -> Body,
    ) -> Result<Vec<Vec<u8>>, Fault> {
        let (led, alone): (Vec<_>, Vec<_>) = objects.into_iter().partition(|object| self.is_led(object));
        let mut answers = Vec::new();
        if !alone.is_empty() {
            let body = of(alone);
            let (method, message): (Method, Vec<u8>) = (body.method(), body.message());
            let request = Request { method, id: 0, message: &message, attachment: &[], deadline_ns };
            answers.push(self.ask_oneself(&request)?.0);
        }
        for object in led {
            answers.push(self.make(&Change::new(of(vec![object])), deadline_ns)?.0);
        }
        Ok(answers)
    }
}
