//! Identity of nodes and targets: copies beside the original, disks and metadata older than recorded, and nodes that
//! were silent before a restart.

use super::harness::{TOP, World, call, options};
use crate::MetaOptions;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_meter::Clock;
use vazao_model::{Code, Role, TargetState};
use vazao_wire::inline::InlineTransport;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::{op, proto};

/// A data server's process as far as Ping goes.
struct Process(u64);

impl Service for Process {
    fn handle(&self, _request: Request<'_>, responder: &mut dyn Responder) {
        responder.reply(&prost::Message::encode_to_vec(&proto::PingResponse { run: self.0 }));
    }
}

/// A data server with one target: what it would write on its disk, and what it says.
#[derive(Clone, Debug)]
struct Server {
    request: proto::RegisterNodeRequest,
    /// On its disk.
    incarnation: u64,
}

/// The uuid that a server's directory is given.
fn uuid(name: &str) -> Vec<u8> {
    format!("{name:-<16}").into_bytes()
}

impl Server {
    fn new(name: &str) -> Server {
        let target = proto::Target {
            state: 1,
            capacity_bytes: 1000,
            available_bytes: 600,
            uuid: uuid(name),
            directory: format!("/disks/{name}"),
            ..Default::default()
        };
        let request = proto::RegisterNodeRequest {
            name: name.to_owned(),
            address: format!("{name}:1"),
            roles: vec![2],
            targets: vec![target],
            ..Default::default()
        };
        Server { request, incarnation: 0 }
    }

    /// The process `run` on a copy of this one's disk, at `address`.
    fn started(&self, run: u64, address: &str) -> Server {
        let mut copy = self.clone();
        (copy.request.run, copy.request.address) = (run, address.to_owned());
        (copy.request.targets[0].found, copy.request.targets[0].incarnation) = (self.incarnation, 0);
        copy
    }

    /// One report; the server obeys the verdict.
    fn report(&mut self, world: &World) -> Result<proto::Verdict, Fault> {
        let response = world.try_call::<op::RegisterNode>(&self.request)?;
        (self.request.cluster_id, self.request.node) = (response.cluster_id, response.node);
        self.request.targets[0].id = response.targets[0];
        self.request.seen = response.mark.or(self.request.seen);
        let verdict = response.verdicts[0].clone();
        if verdict.what == 2 {
            self.set_incarnation(verdict.incarnation);
        }
        Ok(verdict)
    }

    fn set_incarnation(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
        self.request.targets[0].incarnation = incarnation;
    }

    /// Reports until there is nothing more to do. Returns the last verdict: 1 serve, 3 stale.
    fn join(&mut self, world: &World) -> Result<u32, Fault> {
        loop {
            match self.report(world)?.what {
                2 => {}
                what => return Ok(what),
            }
        }
    }

    fn advance(&mut self) {
        self.set_incarnation(self.incarnation + 1);
    }
}

fn map(world: &World) -> proto::ClusterMap {
    world.call::<op::GetClusterMap>(&proto::GetClusterMapRequest {}).unwrap().map.unwrap()
}

fn transport(world: &World, processes: &[(&str, u64)]) -> Arc<InlineTransport> {
    let transport = InlineTransport::new(Arc::clone(&world.clock) as Arc<dyn Clock>);
    for (address, run) in processes {
        transport.serve(address, Arc::new(Process(*run)));
    }
    transport
}

/// Joins after the holder of its identity was asked.
fn join_after_asking(server: &mut Server, world: &World, processes: &[(&str, u64)]) -> Result<u32, Fault> {
    let asked = server.join(world).expect_err("the holder is asked first");
    assert_eq!(asked.code, Code::Unavailable, "{asked}");
    world.service.settle_claims(&*transport(world, processes), Duration::ZERO);
    server.join(world)
}

/// A second server with a copy of a target took over a live node's target within 50 ms, and what was written to it was
/// gone when the first one took it back.
#[test]
fn a_copy_of_a_live_server_is_refused_and_both_are_told() {
    let world = World::new();
    let mut first = Server::new("a").started(1, "a:1");
    assert_eq!(first.join(&world).unwrap(), 1);
    let mut copy = first.started(2, "b:9");
    let refused = join_after_asking(&mut copy, &world, &[("a:1", 1), ("b:9", 2)]).unwrap_err();
    assert_eq!(refused.code, Code::InUse);
    assert!(refused.detail.contains("a:1") && refused.detail.contains("stop this one"), "{refused}");
    let response = world.try_call::<op::RegisterNode>(&first.request).unwrap();
    assert!(response.warnings[0].contains("b:9"), "{response:?}");
    let shown = map(&world);
    assert_eq!(shown.nodes[1].address, "a:1", "the first one keeps it");
    assert_eq!(shown.refusals[0].address, "b:9");
    assert!(shown.refusals[0].why.contains("a:1"));
}

#[test]
fn a_server_that_was_killed_and_started_again_is_back_after_one_question() {
    let world = World::new();
    let mut first = Server::new("a").started(1, "a:1");
    first.join(&world).unwrap();
    first.advance();
    first.report(&world).unwrap();
    let mut again = first.started(2, "a:1");
    assert_eq!(join_after_asking(&mut again, &world, &[("a:1", 2)]).unwrap(), 1);
    let mut elsewhere = again.started(3, "a:2");
    assert_eq!(join_after_asking(&mut elsewhere, &world, &[("a:2", 3)]).unwrap(), 1, "on another port");
    assert_eq!(map(&world).refusals, []);
}

#[test]
fn a_server_that_comes_to_itself_after_another_one_took_its_place_is_refused() {
    let world = World::new();
    let mut first = Server::new("a").started(1, "a:1");
    first.join(&world).unwrap();
    world.clock.advance(Duration::from_secs(11));
    let mut second = first.started(2, "b:1");
    assert_eq!(join_after_asking(&mut second, &world, &[("b:1", 2)]).unwrap(), 1);
    let refused = join_after_asking(&mut first, &world, &[("a:1", 1), ("b:1", 2)]).unwrap_err();
    assert_eq!(refused.code, Code::InUse);
}

/// A disk restored from an image returned old contents for 256 of 732 pages of a rewritten, synced file.
#[test]
fn an_image_of_a_disk_is_stale_until_an_operator_accepts_it() {
    let world = World::new();
    let mut server = Server::new("a").started(1, "a:1");
    server.join(&world).unwrap();
    let image = server.clone();
    server.advance();
    server.report(&world).unwrap();
    let mut restored = image.started(2, "a:1");
    restored.request.targets[0].found_seconds = 1_700_000_000;
    assert_eq!(join_after_asking(&mut restored, &world, &[("a:1", 2)]).unwrap(), 3);
    let shown = &map(&world).targets[0];
    assert_eq!((shown.state, shown.found, shown.incarnation), (TargetState::Stale as u32, 1, 2));
    assert!(shown.trouble.contains("2023-11-14") && shown.trouble.contains("accept-old t1"), "{shown:?}");
    let fault = world.assign_layout(world.file(TOP, "f")).unwrap_err();
    assert_eq!(fault.code, Code::TargetFailed, "known at once: {fault}");
    let accept =
        |incarnation| world.try_call::<op::AcceptOld>(&proto::AcceptOldRequest { target: 1, incarnation });
    assert_eq!(accept(7).unwrap_err().code, Code::Invalid, "not what the operator has seen");
    accept(1).unwrap();
    assert_eq!(restored.join(&world).unwrap(), 1);
    assert_eq!(restored.incarnation, 3, "beyond what the lost disk may have");
    assert!(world.assign_layout(world.file(TOP, "g")).is_ok());
    assert_eq!(accept(1).unwrap_err().code, Code::Invalid, "it is not stale any more");
    let mut original = server.started(3, "a:1");
    assert_eq!(join_after_asking(&mut original, &world, &[("a:1", 3)]).unwrap(), 3);
}

#[test]
fn what_was_recorded_of_a_target_survives_a_restart() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut server = Server::new("a").started(1, "a:1");
    server.join(&world).unwrap();
    let image = server.clone();
    server.advance();
    server.report(&world).unwrap();
    world.service.close().unwrap();
    drop(world);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(server.join(&world).unwrap(), 1, "the same process goes on");
    let mut restored = image.started(2, "a:1");
    assert_eq!(join_after_asking(&mut restored, &world, &[("a:1", 2)]).unwrap(), 3);
    world.service.close().unwrap();
    drop(world);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(map(&world).targets[0].state, TargetState::Stale as u32, "known before it reports");
}

/// For a moment after each start all data on the node of the metadata service failed with EIO, though it only had not
/// reported yet.
#[test]
fn the_targets_of_the_services_own_node_are_not_missing_before_it_has_reported() {
    let disk = MemoryDisk::new(1);
    let started_as = |roles: &[Role]| {
        let named = MetaOptions { name: "a".to_owned(), address: "a:1".to_owned(), ..options("embedded") };
        World::on(Arc::new(disk.boot()), MetaOptions { roles: roles.to_vec(), ..named })
    };
    let world = started_as(&[Role::Meta, Role::Data]);
    Server::new("a").started(1, "a:1").join(&world).unwrap();
    world.service.close().unwrap();
    let world = started_as(&[Role::Meta, Role::Data]);
    assert_eq!(map(&world).targets[0].state, TargetState::Serving as u32);
    assert!(world.assign_layout(world.file(TOP, "f")).is_ok());
    world.service.close().unwrap();
    let world = started_as(&[Role::Meta]);
    assert_eq!(map(&world).targets[0].state, TargetState::Missing as u32, "it has none any more");
}

/// Every report of a target that is written to has something to record: without a disk to record it on, data servers at
/// work were taken for dead.
#[test]
fn a_data_server_is_heard_while_the_metadata_disk_has_failed() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut server = Server::new("a").started(1, "a:1");
    server.join(&world).unwrap();
    disk.fail_syncs("log-", std::io::ErrorKind::Other);
    world.service.engine().sync().unwrap_err();
    world.clock.advance(Duration::from_secs(40));
    assert_eq!(map(&world).nodes[1].state, 2);
    server.advance();
    server.request.targets[0].available_bytes = 555;
    server.report(&world).unwrap_err();
    let map = map(&world);
    assert_eq!((map.nodes[1].state, map.targets[0].available_bytes), (1, 555));
    let mut restarted = server.started(2, "a:2");
    restarted.report(&world).unwrap_err();
}

/// The answer to a first registration was lost: the retry gave its targets further ids, and the first ones stayed for
/// ever as targets without a server.
#[test]
fn a_target_whose_first_answer_was_lost_gets_the_same_id() {
    let world = World::new();
    let server = Server::new("a").started(1, "a:1");
    for _ in 0..3 {
        server.clone().report(&world).unwrap();
    }
    assert_eq!(map(&world).targets.len(), 1);
}

/// An empty directory in the place of a disk that was not mounted silently became a new target and took new files.
#[test]
fn an_empty_directory_in_the_place_of_a_target_is_refused_unless_it_is_meant() {
    let world = World::new();
    let mut server = Server::new("a").started(1, "a:1");
    server.join(&world).unwrap();
    let mut empty = Server::new("a").started(2, "a:1");
    empty.request.targets[0].uuid = uuid("empty");
    let refused = join_after_asking(&mut empty, &world, &[("a:1", 2)]).unwrap_err();
    assert_eq!(refused.code, Code::NotPermitted);
    assert!(refused.detail.contains("/disks/a") && refused.detail.contains("--new-target"), "{refused}");
    assert_eq!(map(&world).targets.len(), 1);
    empty.request.targets[0].is_meant = true;
    assert_eq!(join_after_asking(&mut empty, &world, &[("a:1", 2)]).unwrap(), 1);
    let targets = map(&world).targets;
    assert_eq!((targets.len(), targets[0].state), (2, TargetState::Missing as u32));
}

#[test]
fn a_target_that_its_node_says_is_missing_keeps_its_place() {
    let world = World::new();
    let mut server = Server::new("a").started(1, "a:1");
    server.join(&world).unwrap();
    let mut without = server.clone();
    without.request.targets[0] = proto::Target {
        id: 1,
        state: TargetState::Missing as u32,
        trouble: "/disks/a is empty".to_owned(),
        ..Default::default()
    };
    world.try_call::<op::RegisterNode>(&without.request).unwrap();
    let shown = map(&world).targets[0].clone();
    assert_eq!((shown.state, shown.trouble.as_str()), (TargetState::Missing as u32, "/disks/a is empty"));
    assert_eq!(server.join(&world).unwrap(), 1, "and is served when it is back");
}

#[test]
fn a_node_that_was_silent_before_a_restart_is_silent_after_it() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut server = Server::new("a").started(1, "a:1");
    server.join(&world).unwrap();
    world.clock.advance(Duration::from_secs(100));
    world.service.tick(&*transport(&world, &[]));
    let clock = Arc::clone(&world.clock);
    world.service.close().unwrap();
    let world = world.started_again(&disk, options("embedded"));
    clock.advance(Duration::from_secs(5));
    let node = map(&world).nodes[1].clone();
    assert_eq!((node.state, node.silent_ms / 1000), (2, 105));
    assert_eq!(server.join(&world).unwrap(), 1);
    assert_eq!(map(&world).nodes[1].state, 1);
}

/// A metadata directory restored from an old image went on as if nothing had happened, and had the objects of files
/// that it did not know removed.
#[test]
fn metadata_that_is_older_than_what_a_data_server_was_told_serves_nothing_until_accepted() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut server = Server::new("a").started(1, "a:1");
    server.join(&world).unwrap();
    world.service.tick(&*transport(&world, &[]));
    let image = disk.image().unwrap();
    for number in 0..20 {
        world.file(TOP, &format!("f{number}"));
    }
    let last = world.file(TOP, "last");
    world.service.tick(&*transport(&world, &[]));
    world.call::<op::Sync>(&proto::SyncRequest::default()).unwrap();
    server.report(&world).unwrap();
    drop(world);
    let world = World::on(Arc::new(image.boot()), options("embedded"));
    assert!(map(&world).trouble.is_empty(), "nobody has said anything yet");
    server.report(&world).unwrap();
    assert!(map(&world).trouble.contains("older copy"), "{}", map(&world).trouble);
    let refused = |world: &World| call::<op::Lookup>(&world.service, &lookup("f1")).unwrap_err();
    assert_eq!(refused(&world).code, Code::Io);
    assert_eq!(world.make(TOP, "new", vazao_model::FileKind::File), Err(Code::Io));
    let note = world.try_call::<op::AcceptOld>(&proto::AcceptOldRequest::default()).unwrap().note;
    assert!(note.contains("restart"), "{note}");
    assert_eq!(refused(&world).code, Code::Io, "not before it is started again");
    world.service.close().unwrap();
    drop(world);
    let world = World::on(Arc::new(image.boot()), options("embedded"));
    server.report(&world).unwrap();
    assert_eq!(refused(&world).code, Code::NotFound, "f1 is lost");
    assert!(world.file(TOP, "new") > last, "a number that the lost files cannot have had");
}

fn lookup(name: &str) -> proto::LookupRequest {
    proto::LookupRequest { parent: TOP.0, name: name.into(), seat: 0 }
}

#[test]
fn a_restart_of_the_metadata_service_is_never_taken_for_an_older_copy() {
    // With power lost at every start: every verdict that a data server received was durable.
    let disk = MemoryDisk::new(5);
    let mut server = Server::new("a").started(1, "a:1");
    for round in 0..12 {
        let world = World::on(Arc::new(disk.boot()), options("embedded"));
        server.report(&world).unwrap();
        for number in 0..5 {
            world.file(TOP, &format!("f{round}-{number}"));
        }
        if round % 2 == 0 {
            world.call::<op::Sync>(&proto::SyncRequest::default()).unwrap();
        }
        world.clock.advance(Duration::from_millis(20));
        server.report(&world).unwrap();
        assert_eq!(map(&world).trouble, "");
        drop(world);
        disk.crash();
    }
}

#[test]
fn a_node_of_another_cluster_is_shown_as_refused() {
    let world = World::new();
    let mut stranger = Server::new("a").started(1, "a:1");
    stranger.request.cluster_id = 99;
    assert_eq!(stranger.join(&world).unwrap_err().code, Code::Invalid);
    let refusals = map(&world).refusals;
    assert!(refusals[0].why.contains("belongs to cluster 0000000000000063"), "{refusals:?}");
}
