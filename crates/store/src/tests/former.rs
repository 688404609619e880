//! What a primary sends that has led until just now: nothing in the epoch of the one that leads since. Of its own
//! stream members would refuse whatever that one sends, without end.

use super::leases::{Connecting, Meta, OTHER, beat, group, rig, turns};
use super::{Rig, address};
use crate::{DataService, Peers};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use vazao_model::checksum::piece_checksums;
use vazao_model::cluster::membership::{Change, Membership};
use vazao_model::{Code, TargetId};
use vazao_wire::inline::InlineTransport;
use vazao_wire::messages::members::group_members;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::transport::Transport;
use vazao_wire::{Method, proto};

/// A moment in which this server hears that another member leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// While the first of two members is asked what it has of an object.
    Compared,
    /// While the first of two members is asked to hold a third one for current.
    Counts,
    /// While a block is read from another member of an object that this one has lost.
    Read,
}

/// The server of members 2 and 3.
struct Others {
    service: Arc<DataService>,
    /// What is heard, and when.
    next: Membership,
    when: Moment,
    /// The epochs and streams of what it was sent.
    sent: Mutex<Vec<(Method, u64, u64)>>,
    /// Whether member 1 might serve reads when it asked others to hold one for current.
    served: Mutex<Vec<bool>>,
}

impl Others {
    fn note(&self, method: Method, epoch: u64, stream: u64, moment: Option<Moment>) {
        self.sent.lock().push((method, epoch, stream));
        if moment == Some(self.when) {
            self.service.leases.learn(TargetId(1), group(2), &group_members(group(2), &self.next));
        }
    }

    fn note_forward(&self, method: Method, object: Option<proto::ObjectAddress>, moment: Option<Moment>) {
        let forward = object.and_then(|object| object.forward).expect("it comes from a primary");
        self.note(method, forward.epoch, forward.stream, moment);
    }

    fn sent(&self, method: Method) -> Vec<(u64, u64)> {
        let sent = self.sent.lock();
        sent.iter().filter(|it| it.0 == method).map(|&(_, epoch, stream)| (epoch, stream)).collect()
    }
}

impl Service for Others {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let method = request.method;
        match method {
            Method::KeepAlive => {
                let asked = proto::KeepAliveRequest::decode(request.message).expect("decodes");
                let grant = proto::MemberGrant { granted: true, ..Default::default() };
                let grants = vec![grant; asked.questions.len()];
                responder.reply(&proto::KeepAliveResponse { grants }.encode_to_vec());
            }
            Method::CollectUnconfirmed => {
                responder.reply(&proto::CollectUnconfirmedResponse::default().encode_to_vec());
            }
            Method::ListObjects => responder.reply(&proto::ListObjectsResponse::default().encode_to_vec()),
            Method::Write => {
                let write = proto::WriteRequest::decode(request.message).expect("decodes");
                self.note_forward(method, write.object, None);
                responder.fail(&Fault::new(Code::Timeout, "its server was killed"));
            }
            Method::CompareBlocks => {
                let compare = proto::CompareBlocksRequest::decode(request.message).expect("decodes");
                self.note_forward(method, compare.object, Some(Moment::Compared));
                let exists = self.when == Moment::Read;
                let length = if exists { 100 } else { 0 };
                let answer = proto::CompareBlocksResponse { exists, length, ..Default::default() };
                responder.reply(&answer.encode_to_vec());
            }
            Method::Read => {
                self.note(method, 0, 0, Some(Moment::Read));
                let (object_length, checksums) = (100, piece_checksums(0, &[7; 100]));
                let answer = proto::ReadResponse { object_length, checksums, ..Default::default() };
                responder.reply_with(&answer.encode_to_vec(), 100, &mut |place| {
                    place.fill(7);
                    Ok(())
                });
            }
            Method::CatchUp => {
                let step = proto::CatchUpRequest::decode(request.message).expect("decodes");
                if step.step == 3 {
                    self.served.lock().push(self.service.memberships()[0].may_serve);
                }
                self.note(method, step.epoch, 0, (step.step == 3).then_some(Moment::Counts));
                responder.reply(&proto::CatchUpResponse::default().encode_to_vec());
            }
            _ => responder.fail(&Fault::new(Code::Unsupported, "another request")),
        }
    }
}

/// A server whose member 1 leads by `record`, until it hears of `next`.
fn leads(record: &Membership, next: Membership, when: Moment) -> (Rig, Arc<Meta>, Arc<Others>, Peers) {
    leads_over(record, next, when, |carrier| carrier)
}

/// The same over a network of its own.
fn leads_over<T: Transport + 'static>(
    record: &Membership,
    next: Membership,
    when: Moment,
    network: impl FnOnce(Arc<InlineTransport>) -> Arc<T>,
) -> (Rig, Arc<Meta>, Arc<Others>, Peers) {
    let (rig, meta) = rig();
    {
        let mut told = meta.0.lock();
        let map = proto::Group { id: group(2).0, members: vec![1, 2], agreed: true, ..Default::default() };
        (told.epoch, told.maps, told.groups) = (2, vec![map], vec![group_members(group(2), record)]);
    }
    rig.service.set_transport(network(rig.transport.clone()));
    let (service, sent, served) = (Arc::clone(&rig.service), Mutex::default(), Mutex::default());
    let others = Arc::new(Others { service, next, when, sent, served });
    rig.transport.serve(OTHER, Arc::clone(&others) as _);
    beat(&rig);
    let mut peers = Peers::default();
    turns(&rig, &mut peers, 5_000);
    (rig, meta, others, peers)
}

fn three() -> Membership {
    Membership::new(&[(TargetId(1), 5), (TargetId(2), 9), (TargetId(3), 9)]).expect("legal")
}

/// A server that had been frozen as the primary asked other members what they had, with its own stream in the epoch of
/// the one that led since. That one refused its own changes from then on: writes of a group of which two members lived
/// failed after 30 s, until a third one came back.
#[test]
fn a_primary_that_hears_of_another_one_compares_nothing_in_the_others_epoch() {
    let next = three().changed(1, Change::PutOut(vec![TargetId(1)])).expect("legal");
    let (rig, _meta, others, mut peers) = leads(&three(), next, Moment::Compared);
    let write = proto::WriteRequest {
        object: Some(address(2)),
        checksums: piece_checksums(0, &[7; 100]),
        ..Default::default()
    };
    rig.write_response(&write, &[7; 100]).expect_err("no other member has it");
    assert!(others.sent(Method::Write).contains(&(1, 2)), "what was given up has raised its stream");
    assert_eq!(rig.service.memberships()[0].record.epoch, 1, "it leads");
    turns(&rig, &mut peers, 1_000);
    assert_eq!(rig.service.memberships()[0].record.epoch, 2, "it has heard of it");
    let compared = others.sent(Method::CompareBlocks);
    assert!(compared.iter().all(|&(epoch, stream)| epoch == 1 && stream > 0), "{compared:?}");
    assert_eq!(compared.len(), 1, "the second member is not asked any more");
}

/// Members held one for current that the new primary had not compared: nothing ended that before a later epoch.
#[test]
fn a_primary_that_hears_of_another_one_promotes_no_member_in_the_others_epoch() {
    let lags = three().changed(1, Change::PutOut(vec![TargetId(3)])).expect("legal");
    let next = lags.changed(2, Change::PutOut(vec![TargetId(1)])).expect("legal");
    let (rig, meta, others, _peers) = leads(&lags, next, Moment::Counts);
    assert_eq!(rig.service.memberships()[0].record.epoch, 3, "it has heard of it");
    let asked = others.sent(Method::CatchUp);
    assert!(asked.len() > 2 && asked.iter().all(|&(epoch, _)| epoch == 2), "{asked:?}");
    drop(meta);
}

/// A write waited for 4 s, as its primary made a connection to a frozen member first, which took 3 s: meanwhile nothing
/// looked whether the group had gone on without that one.
#[test]
fn a_primary_makes_no_connection_to_a_member_while_a_change_waits() {
    let mut network = None;
    let (rig, _meta, others, _peers) = leads_over(&three(), three(), Moment::Counts, |carrier| {
        let connecting = Arc::new(Connecting { carrier, gone: Mutex::new(vec![OTHER]) });
        network = Some(Arc::clone(&connecting));
        connecting
    });
    let write = || {
        let (object, checksums) = (Some(address(2)), piece_checksums(0, &[7; 100]));
        let write = proto::WriteRequest { object, checksums, ..Default::default() };
        rig.write_response(&write, &[7; 100])
    };
    let fault = write().expect_err("there is no connection yet");
    assert_eq!(fault.code, Code::Unavailable);
    network.expect("made").gone.lock().clear();
    write().expect_err("it is sent, and no member takes it");
    assert!(!others.sent(Method::Write).is_empty());
}

/// Reads waited for up to a second while a server that had been killed began to count again: the lease of that one was
/// asked for with the next keepalive, which had to connect first.
#[test]
fn a_primary_has_the_lease_of_a_member_as_soon_as_it_counts() {
    let lags = three().changed(1, Change::PutOut(vec![TargetId(3)])).expect("legal");
    let (_rig, _meta, others, _peers) = leads(&lags, lags.clone(), Moment::Counts);
    let served = others.served.lock();
    assert!(served.len() > 1 && served.iter().all(|served| *served), "{served:?}");
}

/// A primary that had lost an object read it from another member as that one began to lead. It wrote what it had read
/// in the epoch of that one, with its own stream, and took nothing of lower streams any more: it was never caught up.
#[test]
fn a_primary_that_hears_of_another_one_makes_nothing_anew_in_the_others_epoch() {
    let next = three().changed(1, Change::PutOut(vec![TargetId(3)])).expect("legal");
    let next = next.changed(2, Change::PutOut(vec![TargetId(1)])).expect("legal");
    let (rig, _meta, others, mut peers) = leads(&three(), next.clone(), Moment::Read);
    let write = |forward| {
        let (object, checksums) = (address(2), piece_checksums(0, &[7; 100]));
        let object = Some(proto::ObjectAddress { forward, ..object });
        let write = proto::WriteRequest { object, checksums, ..Default::default() };
        rig.write_response(&write, &[7; 100])
    };
    rig.service.replication.note_failure((TargetId(1), group(2)), Code::Timeout);
    let target = &rig.service.targets[0];
    target.note_missing((&address(2)).into());
    turns(&rig, &mut peers, 3_000);
    assert_eq!(others.sent(Method::Read).len(), 1, "it was read");
    assert_eq!(rig.service.memberships()[0].record.epoch, next.epoch, "and meanwhile another one led");
    let forward = proto::Forward { epoch: next.epoch, number: 1, ..Default::default() };
    let refused = write(Some(forward)).err().filter(|fault| fault.code == Code::WrongEpoch);
    assert_eq!(refused, None, "what the other one sends is taken");
}
