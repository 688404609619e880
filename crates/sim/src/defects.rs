//! Defects that are put in on purpose: a story that does not find them would not find those of the code either.

use prost::Message;
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_wire::transport::{Pending, Transport};
use vazao_wire::{Method, proto};

/// What is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// Clients do not number their changes of objects: an earlier form of one that was sent again is carried out late.
    UnnumberedChanges,
}

/// Takes the numbers out of changes of objects.
pub(crate) struct Unnumbered(pub(crate) Arc<dyn Transport>);

fn without_number(object: Option<proto::ObjectAddress>) -> Option<proto::ObjectAddress> {
    object.map(|object| proto::ObjectAddress { change: 0, attempt: 0, ..object })
}

/// Has `forget` change an encoded message.
fn changed<M: Message + Default>(message: &[u8], forget: impl FnOnce(&mut M)) -> Vec<u8> {
    let mut decoded = M::decode(message).expect("a client's own request");
    forget(&mut decoded);
    decoded.encode_to_vec()
}

impl Transport for Unnumbered {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let message = match method {
            Method::Write => changed(message, |request: &mut proto::WriteRequest| {
                request.object = without_number(request.object.take());
            }),
            Method::TruncateObject => changed(message, |request: &mut proto::TruncateObjectRequest| {
                request.object = without_number(request.object.take());
            }),
            Method::PunchObject => changed(message, |request: &mut proto::PunchObjectRequest| {
                request.object = without_number(request.object.take());
            }),
            _ => message.to_vec(),
        };
        self.0.submit(address, method, &message, attachment, deadline_ns)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clock()
    }
}
