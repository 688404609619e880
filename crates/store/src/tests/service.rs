//! Opening, registration, requests that wait, and what the server says about itself.

use super::{CHUNK, Rig, address, options, pattern, start};
use crate::{DataService, OpenError, Options};
use proptest::prelude::*;
use std::sync::{Arc, mpsc};
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_meter::{Clock, Exposition, ManualClock};
use vazao_model::checksum::{first_mismatch, piece_checksums};
use vazao_model::{Code, TargetId};
use vazao_wire::local::{LentMemory, LocalService};
use vazao_wire::service::{Answer, Deferred, Fault, Request, Responder, Service};
use vazao_wire::{Method, op, proto};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::default())
}

fn open(disks: &[&MemoryDisk], options: &Options) -> Result<Arc<DataService>, OpenError> {
    let boot = |(i, disk): (usize, &&MemoryDisk)| (Arc::new(disk.boot()) as Arc<dyn Disk>, format!("/d{i}"));
    DataService::open(disks.iter().enumerate().map(boot).collect(), options.clone(), clock())
}

fn response(cluster_id: u64, node: u32, targets: &[u32]) -> proto::RegisterNodeResponse {
    proto::RegisterNodeResponse {
        cluster_id,
        node,
        targets: targets.to_vec(),
        epoch: 1,
        ..Default::default()
    }
}

/// Takes an answer in whatever way it comes.
#[derive(Default)]
struct Catch {
    answer: Option<Answer>,
    deferred: Option<mpsc::Receiver<Answer>>,
}

impl Responder for Catch {
    fn reply(&mut self, message: &[u8]) {
        self.answer = Some(Ok((message.to_vec(), Vec::new())));
    }

    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        let mut attachment = vec![0xEE; length];
        let filled = fill(&mut attachment);
        if let Ok(false) = filled {
            return false;
        }
        self.answer = Some(filled.map(|_| (message.to_vec(), attachment)));
        true
    }

    fn fail(&mut self, fault: &Fault) {
        self.answer = Some(Err(fault.clone()));
    }

    fn defer(&mut self) -> Deferred {
        let (done, wait) = mpsc::channel();
        self.deferred = Some(wait);
        Deferred::new(move |answer| drop(done.send(answer)))
    }
}

/// Sends a request; returns the answer and whether it was deferred.
fn send(
    service: &DataService,
    method: Method,
    message: &impl prost::Message,
    attachment: &[u8],
) -> (Answer, bool) {
    let message = message.encode_to_vec();
    let mut catch = Catch::default();
    let request = Request { method, id: 1, message: &message, attachment, deadline_ns: u64::MAX };
    service.handle(request, &mut catch);
    match (catch.answer, catch.deferred) {
        (Some(answer), None) => (answer, false),
        (None, Some(wait)) => (wait.recv().expect("is answered"), true),
        _ => panic!("exactly one answer"),
    }
}

fn write_request(inode: u64, bytes: &[u8], sync: bool) -> proto::WriteRequest {
    let checksums = piece_checksums(0, bytes);
    proto::WriteRequest {
        object: Some(address(inode)),
        offset: 0,
        checksums,
        sync,
        must_exist: false,
        lent: None,
    }
}

fn pooled() -> (MemoryDisk, Arc<DataService>) {
    let disk = MemoryDisk::new(1);
    let service = start(&disk, &Options { inline: false, ..options() }, &clock()).expect("opens");
    (disk, service)
}

#[test]
fn a_cached_read_and_a_plain_overwrite_are_answered_at_once_and_the_rest_later() {
    let (disk, service) = pooled();
    let bytes = pattern(1, 200_000);
    let read = proto::ReadRequest { object: Some(address(1)), offset: 100, length: 150_000 };
    let (answer, deferred) = send(&service, Method::Write, &write_request(1, &bytes, false), &bytes);
    assert!(answer.is_ok() && deferred, "a new object is created by the pool");
    let (answer, deferred) = send(&service, Method::Write, &write_request(1, &bytes, false), &bytes);
    assert!(answer.is_ok() && !deferred);
    let (answer, deferred) = send(&service, Method::Read, &read, &[]);
    assert!(answer.expect("reads").1 == bytes[100..150_100] && !deferred);
    disk.set_cached(false);
    let (answer, deferred) = send(&service, Method::Read, &read, &[]);
    let (message, attachment) = answer.expect("reads");
    assert!(attachment == bytes[100..150_100] && deferred);
    let response: proto::ReadResponse = prost::Message::decode(message.as_slice()).expect("decodes");
    assert_eq!(first_mismatch(100, &attachment, &response.checksums), None);
    let (answer, deferred) =
        send(&service, Method::Write, &write_request(1, &bytes[..10], false), &bytes[..10]);
    assert!(answer.is_ok() && deferred, "a part of a block needs the old bytes");
    let (answer, deferred) = send(&service, Method::Write, &write_request(1, &bytes, true), &bytes);
    assert!(answer.is_ok() && deferred);
}

/// Lends memory that holds `bytes` under the number 7; the write request is for bytes at their place.
fn lend(service: &DataService, bytes: &[u8], request: proto::WriteRequest) -> proto::WriteRequest {
    let memory = LentMemory::new(1 << 20).expect("a descriptor");
    let mut buffer = memory.take(bytes.len()).expect("is empty");
    buffer.copy_from_slice(bytes);
    let descriptor = memory.descriptor().try_clone_to_owned().expect("a descriptor");
    service.borrow(7, descriptor).expect("taken");
    let offset = memory.place_of(&buffer).expect("lies within");
    let lent = Some(proto::LentBytes { memory: 7, offset, length: bytes.len() as u32 });
    proto::WriteRequest { lent, ..request }
}

#[test]
fn a_write_from_lent_memory_is_as_one_from_the_attachment_until_the_memory_is_given_back() {
    let (_, service) = pooled();
    let bytes = pattern(3, 200_000);
    let request = lend(&service, &bytes, write_request(1, &bytes, false));
    for is_deferred in [true, false] {
        let (answer, deferred) = send(&service, Method::Write, &request, &[]);
        assert!(answer.is_ok() && deferred == is_deferred);
    }
    let read = proto::ReadRequest { object: Some(address(1)), offset: 0, length: 200_000 };
    assert!(send(&service, Method::Read, &read, &[]).0.expect("reads").1 == bytes);
    service.give_back(7);
    let refused = send(&service, Method::Write, &request, &[]).0.expect_err("not lent any more");
    assert_eq!(refused.code, Code::Disconnected);
}

#[test]
fn lent_bytes_that_are_not_what_their_checksums_say_are_not_written() {
    let (_, service) = pooled();
    let bytes = pattern(4, 100_000);
    let mut other = bytes.clone();
    other[99_999] ^= 1;
    let request = lend(&service, &other, write_request(1, &bytes, false));
    let refused = send(&service, Method::Write, &request, &[]).0.expect_err("damaged");
    assert_eq!(refused.code, Code::Disconnected);
    let read = proto::ReadRequest { object: Some(address(1)), offset: 0, length: 10 };
    assert!(send(&service, Method::Read, &read, &[]).0.expect("reads").1.is_empty());
}

#[test]
fn more_work_than_the_pool_may_queue_is_refused_as_overload() {
    let disk = MemoryDisk::new(1);
    let limits = Options { inline: false, workers: 1, queued_requests_max: 2, ..options() };
    let service = start(&disk, &limits, &clock()).expect("opens");
    let object = service.targets[0].cache.get((&address(1)).into());
    let held = object.write(&service.targets[0]);
    let stat = proto::StatObjectRequest { object: Some(address(1)) };
    let mut catches: Vec<Catch> = (0..3).map(|_| Catch::default()).collect();
    for catch in &mut catches {
        let message = prost::Message::encode_to_vec(&stat);
        let request = Request {
            method: Method::StatObject,
            id: 1,
            message: &message,
            attachment: &[],
            deadline_ns: u64::MAX,
        };
        service.handle(request, catch);
    }
    let refused = catches[2].answer.take().expect("at once").expect_err("too much");
    assert_eq!(refused.code, Code::Overloaded);
    drop(held);
    for catch in &catches[..2] {
        assert!(catch.deferred.as_ref().expect("queued").recv().expect("answered").is_ok());
    }
}

#[test]
fn sync_and_removal_reach_the_targets_of_all_objects() {
    let disks = [MemoryDisk::new(1), MemoryDisk::new(2)];
    let service = open(&[&disks[0], &disks[1]], &Options { inline: false, ..options() }).expect("opens");
    service.set_registration(0, &response(7, 1, &[4, 5])).expect("fits");
    let on = |target: u32, inode| proto::ObjectAddress { target, ..address(inode) };
    let bytes = pattern(1, 1000);
    for target in [4, 5] {
        let request = proto::WriteRequest { object: Some(on(target, 1)), ..write_request(1, &bytes, false) };
        send(&service, Method::Write, &request, &bytes).0.expect("writes");
    }
    let objects = vec![on(4, 1), on(5, 1), on(5, 2)];
    let (answer, _) = send(
        &service,
        Method::SyncObjects,
        &proto::SyncObjectsRequest { objects: objects.clone(), boot: 0 },
        &[],
    );
    answer.expect("syncs");
    let (answer, _) = send(&service, Method::RemoveObjects, &proto::RemoveObjectsRequest { objects }, &[]);
    let removed: proto::RemoveObjectsResponse =
        prost::Message::decode(answer.expect("removes").0.as_slice()).expect("decodes");
    assert_eq!(removed.removed, 2);
    let objects = vec![on(4, 1), on(6, 1)];
    let (answer, _) =
        send(&service, Method::SyncObjects, &proto::SyncObjectsRequest { objects, boot: 0 }, &[]);
    assert_eq!(answer.expect_err("no such target").code, Code::WrongTarget);
}

/// Asks for the object of a group.
fn stat_group(service: &DataService, group: u32) -> Result<(), Fault> {
    let object = proto::ObjectAddress { target: 0, group, ..address(1) };
    send(service, Method::StatObject, &proto::StatObjectRequest { object: Some(object) }, &[]).0.map(|_| ())
}

/// A server that had just started answered "not here" for every group: each of its callers asked the metadata service
/// for the whole map each time, while everything was starting.
///
/// A group's objects are asked for at the server, which knows the member it has: an address need not name a target.
#[test]
fn objects_of_a_placement_group_are_found_by_it_once_the_server_was_told_of_it() {
    let disks = [MemoryDisk::new(1), MemoryDisk::new(2)];
    let service = open(&[&disks[0], &disks[1]], &options()).expect("opens");
    let id = |number: u32| vazao_model::GroupId::FIRST + number;
    let group = |number: u32, member: u32| proto::Group {
        id: id(number),
        epoch: 1,
        members: vec![member],
        ..Default::default()
    };
    let groups = vec![group(0, 4), group(1, 5), group(2, 99)];
    let told = proto::RegisterNodeResponse { epoch: 6, groups, ..response(7, 1, &[4, 5]) };
    let before = stat_group(&service, id(0)).expect_err("not told yet");
    assert_eq!(before.code, Code::Unavailable);
    assert!(before.detail.contains("has not told"), "{before}");
    service.set_registration(0, &told).expect("fits");
    assert_eq!((service.registration().epoch, service.registration().follows_groups), (6, true));
    let of = |number: u32| proto::ObjectAddress { target: 0, group: id(number), ..address(1) };
    let bytes = pattern(1, 1000);
    let write = |address: proto::ObjectAddress| {
        let request = proto::WriteRequest { object: Some(address), ..write_request(1, &bytes, false) };
        send(&service, Method::Write, &request, &bytes).0.map_err(|fault| fault.code)
    };
    assert!(write(of(0)).is_ok() && write(of(1)).is_ok());
    assert_eq!(write(of(2)).expect_err("of another server"), Code::WrongTarget);
    assert_eq!(write(of(3)).expect_err("unknown"), Code::WrongTarget);
    for (disk, number) in disks.iter().zip(0..) {
        let names: Vec<String> =
            disk.list("groups").expect("made").into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, [format!("{:08x}", id(number))]);
        let identity = crate::inspect(disk, "/d").expect("is readable").expect("is a target");
        assert_eq!(identity.cluster_id, 7);
    }
    assert!(service.targets.iter().all(|target| target.identity().has_groups));
    // The same epoch: what it was told stays. Another one: what it is told now counts.
    let same = proto::RegisterNodeResponse { groups: vec![], ..told.clone() };
    service.set_registration(6, &same).expect("fits");
    assert!(write(of(0)).is_ok());
    let moved = proto::RegisterNodeResponse { epoch: 7, groups: vec![group(1, 5)], ..told };
    service.set_registration(6, &moved).expect("fits");
    assert_eq!(write(of(0)).expect_err("it has gone elsewhere"), Code::WrongTarget);
    assert_eq!(stat_group(&service, id(0)).expect_err("elsewhere").epoch, 7, "who asks learns as of when");
    assert!(write(of(1)).is_ok());
    // Another process of the metadata service, maybe with a backup: the same epoch may be another membership.
    let mark = Some(proto::HistoryMark { run: 3, ..Default::default() });
    let other = proto::RegisterNodeResponse { groups: vec![], mark, ..moved.clone() };
    service.set_registration(7, &other).expect("fits");
    assert!(write(of(1)).is_ok(), "until it tells");
    assert_eq!(service.registration().epoch, 0, "it is asked for all");
    let restored = proto::RegisterNodeResponse { groups: vec![group(0, 4)], mark, ..moved };
    service.set_registration(0, &restored).expect("fits");
    assert!(write(of(0)).is_ok() && write(of(1)).is_err());
    assert_eq!(service.registration().epoch, 7);
}

#[test]
fn ids_given_at_registration_are_kept() {
    let disks = [MemoryDisk::new(1), MemoryDisk::new(2)];
    let service = open(&[&disks[0], &disks[1]], &options()).expect("opens");
    let request = service.registration();
    assert_eq!((request.cluster_id, request.node), (0, 0));
    assert!(request.targets.iter().all(|t| t.id == 0 && t.capacity_bytes > 0));
    service.set_registration(0, &response(7, 3, &[11, 12])).expect("fits");
    for wrong in
        [response(8, 3, &[11, 12]), response(7, 3, &[11]), response(7, 3, &[11, 13]), response(0, 0, &[])]
    {
        assert_eq!(service.set_registration(0, &wrong).expect_err("wrong").code, Code::BadRequest);
    }
    disks.iter().for_each(MemoryDisk::crash);
    let service = open(&[&disks[0], &disks[1]], &options()).expect("opens");
    assert_eq!(service.target_ids(), [TargetId(11), TargetId(12)]);
    let request = service.registration();
    assert_eq!((request.cluster_id, request.node), (7, 3));
}

#[test]
fn a_directory_that_is_not_this_clusters_empty_or_ours_is_refused_with_its_reason() {
    let refusal = |disks: &[&MemoryDisk], options: &Options| {
        disks.iter().for_each(|disk| disk.kill());
        open(disks, options).expect_err("refused").to_string()
    };
    let (a, b) = (MemoryDisk::new(1), MemoryDisk::new(2));
    open(&[&a], &options()).expect("opens").set_registration(0, &response(7, 1, &[1])).expect("fits");
    open(&[&b], &options()).expect("opens").set_registration(0, &response(8, 1, &[1])).expect("fits");
    assert!(refusal(&[&a, &b], &options()).contains("/d1 belongs to cluster 0000000000000008"));
    let expecting = Options { cluster_id: Some(9), ..options() };
    assert!(refusal(&[&a], &expecting).contains("belongs to cluster 0000000000000007"));
    let other_chunks = Options { chunk_bytes: 65536, ..options() };
    assert!(refusal(&[&a], &other_chunks).contains("chunks of 262144 bytes"));
    let full = MemoryDisk::new(3);
    full.open("photo.jpg", Open::Create).expect("creates");
    assert!(refusal(&[&full], &options()).contains("\"photo.jpg\" but no TARGET file"));
    a.remove("TARGET").expect("is there");
    a.create_directory("objects/00").expect("creates");
    assert!(refusal(&[&a], &options()).contains("\"objects\" but no TARGET file"));
    b.corrupt("TARGET", 30, 1).expect("is there");
    assert!(refusal(&[&b], &options()).contains("/d0/TARGET is damaged"));
}

#[test]
fn two_servers_cannot_have_one_directory() {
    let disk = MemoryDisk::new(1);
    let _first = open(&[&disk], &options()).expect("opens");
    let refused = open(&[&disk], &options()).expect_err("is in use");
    assert!(refused.to_string().contains("in use by another process"), "{refused}");
}

#[test]
fn a_crash_at_any_point_of_formatting_leaves_a_directory_that_opens() {
    for count in 0..40 {
        for seed in 0..5 {
            let disk = MemoryDisk::new(seed);
            disk.fail_after(count, std::io::ErrorKind::Other);
            let _ = open(&[&disk], &options());
            disk.clear_faults();
            disk.crash();
            open(&[&disk], &options())
                .unwrap_or_else(|e| panic!("after {count} operations, seed {seed}: {e}"));
        }
    }
}

#[test]
fn a_damaged_state_file_is_refused() {
    let disk = MemoryDisk::new(1);
    drop(open(&[&disk], &options()).expect("opens"));
    disk.corrupt("STATE", 20, 1).expect("is there");
    disk.corrupt("STATE", 4096 + 20, 1).expect("is there");
    let refused = open(&[&disk], &options()).expect_err("damaged");
    assert!(refused.to_string().contains("/d0/STATE is damaged"), "{refused}");
}

#[test]
fn a_stopped_server_says_so() {
    let rig = Rig::new(1);
    rig.write(1, 0, b"x").expect("writes");
    rig.service.close();
    assert_eq!(rig.read(1, 0, 1).expect_err("stopped").code, Code::Unavailable);
}

#[test]
fn requests_are_counted_and_exposed() {
    let rig = Rig::new(1);
    rig.write(1, 0, &pattern(1, 1000)).expect("writes");
    rig.read(1, 0, 600).expect("reads");
    rig.read(1, u64::MAX, 600).expect_err("refused");
    let mut out = Exposition::new();
    rig.service.expose(&mut out);
    let text = out.finish();
    for line in [
        "vazao_data_requests_total{method=\"Read\"} 2",
        "vazao_data_failures_total{method=\"Read\"} 1",
        "vazao_data_bytes_total{direction=\"read\"} 600",
        "vazao_data_bytes_total{direction=\"write\"} 1000",
        "vazao_data_open_chunks 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn no_more_files_stay_open_than_allowed() {
    let rig = Rig::new(1);
    for inode in 0..50 {
        rig.write(inode, 0, &pattern(inode, 100)).expect("writes");
        assert!(rig.service.targets[0].cache.open_chunks() <= 7);
    }
    for inode in 0..50 {
        assert_eq!(rig.read_all(inode).expect("reads"), Some(pattern(inode, 100)));
    }
    let mut inodes = rig.list(7).expect("lists");
    inodes.sort_unstable();
    assert_eq!(inodes, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_read_only_workload_writes_nothing() {
    let mut rig = Rig::new(1);
    rig.write(1, 0, &pattern(1, 1000)).expect("writes");
    rig.service.close();
    rig.restart();
    let before = rig.disk.operations();
    rig.read_all(1).expect("reads");
    rig.checkpoint();
    let after = rig.disk.operations();
    assert_eq!((before.writes, before.syncs), (after.writes, after.syncs));
}

#[test]
fn overwriting_a_marked_region_and_new_objects_cost_no_sync() {
    let rig = Rig::new(1);
    rig.write(1, 0, &pattern(1, 1000)).expect("writes");
    let before = rig.disk.operations().syncs;
    for inode in 1..20 {
        rig.write(inode, 500, &pattern(2, 5000)).expect("writes");
    }
    assert_eq!(rig.disk.operations().syncs, before);
    rig.checkpoint();
    let before = rig.disk.operations().syncs;
    rig.write(1, 500, &pattern(2, 5000)).expect("writes");
    assert_eq!(rig.disk.operations().syncs, before + 2, "the epoch is announced, the region is marked");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn messages_full_of_anything_never_panic(
        method in proptest::sample::select(Method::ALL), message in proptest::collection::vec(any::<u8>(), 0..60),
        attachment in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        thread_local! {
            static RIG: Rig = Rig::new(1);
        }
        RIG.with(|rig| {
            let mut catch = Catch::default();
            let deadline_ns = rig.clock.now_ns() + 1;
            let request = Request { method, id: 1, message: &message, attachment: &attachment, deadline_ns };
            rig.service.handle(request, &mut catch);
            assert!(catch.answer.is_some());
        });
    }
}

#[test]
fn a_punched_range_gives_its_space_back_and_stays_a_part_of_the_object() {
    let rig = Rig::new(5);
    let length = CHUNK as usize * 3;
    let bytes = pattern(9, length);
    rig.write(1, 0, &bytes).expect("writes");
    let before = rig.stat(1).expect("is there").allocated_bytes;
    rig.punch(1, 70_000, CHUNK * 2).expect("punches");
    let stat = rig.stat(1).expect("is there");
    assert_eq!(stat.length, length as u64);
    assert!(stat.allocated_bytes <= before - CHUNK * 2 + 16_384, "{} of {before}", stat.allocated_bytes);
    let mut expected = bytes;
    expected[70_000..70_000 + CHUNK as usize * 2].fill(0);
    assert!(rig.read_all(1).expect("reads") == Some(expected));
    assert_eq!(rig.ranges(1, 1).expect("tells").len(), 2);
    rig.punch(2, 0, 100).expect("what is not there has nothing to punch");
    assert!(!rig.stat(2).expect("answers").exists);
}

fn copy(rig: &Rig, from: (u64, u64), to: (u64, u64), length: u32) -> Result<(), Fault> {
    let request = proto::CopyObjectRangeRequest {
        source: Some(address(from.0)),
        source_offset: from.1,
        object: Some(address(to.0)),
        offset: to.1,
        length,
        must_exist: false,
    };
    rig.call::<op::CopyObjectRange>(&request).map(drop)
}

#[test]
fn a_copy_between_objects_brings_bytes_and_holes_and_never_rotten_bytes() {
    let rig = Rig::new(6);
    let mut bytes = pattern(4, CHUNK as usize * 2);
    bytes[70_000..400_000].fill(0);
    rig.write(1, 0, &bytes).expect("writes");
    rig.write(2, 0, &pattern(5, 300_000)).expect("writes");
    copy(&rig, (1, 1000), (2, 65_536 + 1000), 300_000).expect("copies");
    let mut expected = pattern(5, 300_000);
    expected.resize(65_536 + 301_000, 0);
    expected[65_536 + 1000..].copy_from_slice(&bytes[1000..301_000]);
    assert!(rig.read_all(2).expect("reads") == Some(expected));
    copy(&rig, (1, 131_072), (3, 0), 65_536).expect("copies zeros");
    assert_eq!(rig.read_all(3).expect("reads"), Some(Vec::new()), "an object, all of it a hole");
    copy(&rig, (1, CHUNK * 2 - 65_536), (2, 0), 131_072).expect("copies the end and zeros behind it");
    let back = rig.read(2, 0, 131_072).expect("reads").bytes;
    assert!(back[..65_536] == bytes[bytes.len() - 65_536..] && back[65_536..].iter().all(|byte| *byte == 0));
    let refused = |result: Result<(), Fault>| result.expect_err("refused").code;
    assert_eq!(refused(copy(&rig, (1, 1), (2, 0), 100)), Code::BadRequest);
    assert_eq!(refused(copy(&rig, (1, 0), (2, 0), u32::MAX)), Code::BadRequest);
    assert_eq!(refused(copy(&rig, (9, 0), (2, 0), 100)), Code::NotFound);
    rig.disk.corrupt(&super::data_path(1, 0), 500, 4).expect("is there");
    assert_eq!(refused(copy(&rig, (1, 0), (2, 0), 65_536)), Code::Corrupt);
}
