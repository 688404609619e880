//! An empty directory in the place of a lost target, while its server runs.

use super::{CHUNK, Rig, address, pattern};
use crate::{DataService, OpenError, Replacement, begin_replacement};
use std::sync::Arc;
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_model::checksum::piece_checksums;
use vazao_model::{Code, TargetState};
use vazao_wire::proto;
use vazao_wire::service::{Request, Responder, Service};

/// A directory that takes the place of the one with the number `replaces`.
fn empty(seed: u64, replaces: u128) -> MemoryDisk {
    let disk = MemoryDisk::new(seed);
    let uuid = u128::from(seed);
    let replacement = Replacement { cluster_id: 7, node: 1, id: 1, uuid, replaces, chunk_bytes: CHUNK };
    begin_replacement(&disk.boot(), "/new", replacement).expect("it is empty");
    disk
}

fn number(rig: &Rig) -> u128 {
    rig.service.served_numbers()[0]
}

fn add(service: &DataService, disk: &MemoryDisk) -> Result<(), OpenError> {
    service.add_target(Arc::new(disk.boot()) as Arc<dyn Disk>, "/new")
}

fn response(verdict: u32) -> proto::RegisterNodeResponse {
    let verdict = proto::Verdict { what: verdict, ..Default::default() };
    let (targets, verdicts) = (vec![1], vec![verdict]);
    proto::RegisterNodeResponse { cluster_id: 7, node: 1, targets, verdicts, epoch: 1, ..Default::default() }
}

fn write(rig: &Rig) -> Result<proto::WriteResponse, Code> {
    let bytes = pattern(1, 1_000);
    let (object, checksums) = (Some(address(1)), piece_checksums(0, &bytes));
    let request = proto::WriteRequest { object, checksums, ..Default::default() };
    rig.write_response(&request, &bytes).map_err(|fault| fault.code)
}

#[test]
fn it_takes_the_place_of_one_that_failed_and_is_not_served_before_it_was_judged() {
    let rig = Rig::new(1);
    let (old, new) = (number(&rig), empty(2, number(&rig)));
    write(&rig).expect("serves");
    let refused = add(&rig.service, &new).expect_err("the one in its place serves");
    assert!(matches!(refused, OpenError::SameId { .. }), "{refused}");
    new.kill();
    rig.service.targets[0].fail_without_note("its disk is dead".to_owned());
    let other = empty(3, old + 1);
    assert!(matches!(add(&rig.service, &other), Err(OpenError::SameId { .. })), "it replaces another one");
    add(&rig.service, &new).expect("it is lost");
    let announced = rig.service.registration().targets;
    let [target] = announced.as_slice() else { panic!("one target: {announced:?}") };
    assert_eq!((target.id, target.state), (1, TargetState::Serving as u32));
    assert_eq!((target.uuid.clone(), target.found), (2u128.to_be_bytes().to_vec(), 0));
    assert_eq!(write(&rig), Err(Code::Unavailable));
    rig.service.set_registration(0, &response(1)).expect("fits");
    write(&rig).expect("serves");
}

/// Has the replacement added while its answer is under way: it is about the lost one.
struct Late {
    service: Arc<DataService>,
    new: MemoryDisk,
}

impl Service for Late {
    fn handle(&self, _request: Request<'_>, responder: &mut dyn Responder) {
        let _again = add(&self.service, &self.new);
        responder.reply(&prost::Message::encode_to_vec(&response(1)));
    }
}

#[test]
fn leave_that_was_given_to_the_lost_one_is_not_taken_for_its_own() {
    let rig = Rig::new(1);
    let new = empty(2, number(&rig));
    rig.service.targets[0].fail_without_note("its disk is dead".to_owned());
    rig.transport.serve("meta:1", Arc::new(Late { service: Arc::clone(&rig.service), new }));
    let beat = || rig.service.heartbeat(&*rig.transport, "meta:1", u64::MAX).map_err(|fault| fault.code);
    assert_eq!(beat().map(|_| ()), Err(Code::Unavailable), "it is asked again");
    assert_eq!(write(&rig).map(|_| ()), Err(Code::Unavailable));
    beat().expect("this one is its own");
    write(&rig).expect("serves");
}

/// The machine had not been started anew, so what was written to the lost disk and not synced counted as there.
#[test]
fn what_was_written_before_counts_as_lost_for_those_who_did_not_sync_it() {
    let old = Rig::new(1);
    let on_old = write(&old).expect("serves").boot;
    let mut rig = Rig::with(empty(2, number(&old)), super::options());
    let [first, again] = [(); 2].map(|()| {
        let boot = write(&rig).expect("serves").boot;
        rig.restart();
        boot
    });
    assert!(first != on_old && first != rig.disk.boot_id(), "{on_old} {first}");
    assert_eq!(again, first, "a kill loses nothing");
    assert!(rig.sync_since(1, on_old).is_err() && rig.sync_since(1, first).is_ok());
}

#[test]
fn a_directory_that_holds_anything_is_not_made_one() {
    let replacement = Replacement { cluster_id: 7, node: 1, id: 1, uuid: 9, replaces: 1, chunk_bytes: CHUNK };
    let refused = |disk: &MemoryDisk, word: &str| {
        let before = disk.list("").expect("listed");
        let error = begin_replacement(&disk.boot(), "/new", replacement).expect_err("refused");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(disk.list("").expect("listed"), before, "nothing has changed");
    };
    let disk = MemoryDisk::new(1);
    disk.open("letter", Open::Create).expect("made");
    refused(&disk, "letter");
    refused(&empty(2, 1), "TARGET");
    let served = Rig::new(3);
    refused(&served.disk, "TARGET");
}
