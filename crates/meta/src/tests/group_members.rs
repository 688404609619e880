//! Members of placement groups with several of them: processes that start anew, and groups that are made.

use super::harness::{World, call, options};
use crate::schema::keys;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_model::cluster::membership::{Change, Membership, Standing};
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::service::Service;
use vazao_wire::{op, proto};

/// A data server with one target, on a machine of its own.
pub(super) struct Server {
    pub(super) request: proto::RegisterNodeRequest,
    /// The incarnation on its disk.
    disk: u64,
    /// The number of its process.
    pub(super) process: u64,
}

impl Server {
    pub(super) fn new(name: &str, host: u64) -> Server {
        let target =
            proto::Target { state: 1, capacity_bytes: 1000, available_bytes: 600, ..Default::default() };
        let request = proto::RegisterNodeRequest {
            name: name.to_owned(),
            address: format!("{name}:1"),
            roles: vec![2],
            targets: vec![target],
            host,
            run: host * 1000,
            follows_groups: true,
            ..Default::default()
        };
        Server { request, disk: 0, process: 0 }
    }

    pub(super) fn target(&self) -> TargetId {
        TargetId(self.request.targets[0].id)
    }

    /// The incarnation on its disk.
    pub(super) fn disk_of(&self) -> u64 {
        self.disk
    }

    /// Its disk is another one, on which nothing is.
    pub(super) fn empty(&mut self) {
        self.disk = 0;
    }

    /// A new process joins, after it was found out that the one before is gone.
    pub(super) fn start(&mut self, world: &World) {
        self.request.run += 1;
        (self.request.targets[0].found, self.request.targets[0].incarnation) = (self.disk, 0);
        self.request.epoch = 0;
        for _ in 0..2 {
            let (joined, _) = world.service.take_in(&self.request, true).unwrap();
            (self.request.node, self.request.targets[0].id) = (joined.node, joined.targets[0]);
            let verdict = &joined.verdicts[0];
            (self.disk, self.process) = (verdict.incarnation, verdict.process);
            self.request.targets[0].incarnation = self.disk;
        }
        world.service.flush().unwrap();
    }

    /// A heartbeat.
    pub(super) fn report(&mut self, world: &World) -> proto::RegisterNodeResponse {
        let response = call::<op::RegisterNode>(&world.service, &self.request).unwrap();
        self.request.epoch = response.epoch;
        response
    }
}

/// Servers that have joined, each with a process of its target.
pub(super) fn servers<const N: usize>(world: &World) -> [Server; N] {
    let mut host = 0;
    [(); N].map(|()| {
        host += 1;
        let mut server = Server::new(&format!("data{host}"), host);
        server.start(world);
        server
    })
}

/// A group of one target of each.
pub(super) fn group(world: &World, servers: &[Server]) -> GroupId {
    let targets: Vec<TargetId> = servers.iter().map(Server::target).collect();
    world.service.make_group(&targets).unwrap()
}

pub(super) fn membership(world: &World, id: GroupId) -> Membership {
    world.service.cluster().groups.membership(id).expect("it was made").clone()
}

pub(super) fn seconds(world: &World, seconds: u64) {
    world.clock.advance(Duration::from_secs(seconds));
}

fn current(membership: &Membership) -> Vec<u32> {
    membership.current().map(|member| member.target.0).collect()
}

#[test]
fn a_group_is_made_of_targets_on_different_machines_and_told() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut all: [Server; 3] = servers(&world);
    let id = group(&world, &all);
    let made = membership(&world, id);
    assert_eq!((made.epoch, current(&made)), (1, vec![1, 2, 3]));
    for (server, member) in all.iter_mut().zip(&made.members) {
        assert_eq!(member.run, server.process);
        let told = server.report(&world).groups;
        let told = told.iter().find(|group| group.id == id.0).expect("each of its servers is told");
        assert_eq!((told.epoch, &told.members[..]), (1, &[1, 2, 3][..]));
    }
    world.assert_consistent();
    // Power is lost as soon as it was made.
    disk.crash();
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(membership(&again, id), made);
    all.iter_mut().for_each(|server| drop(server.report(&again)));
    let next = again.service.make_group(&[TargetId(3), TargetId(1)]).unwrap();
    assert_eq!(next.0, id.0 + 1, "no number is given twice");
}

#[test]
fn targets_that_cannot_hold_copies_of_one_another_make_no_group() {
    let world = World::new();
    let all: [Server; 3] = servers(&world);
    let mut same = Server::new("beside", all[0].request.host);
    same.start(&world);
    let mut old = Server::new("old", 77);
    old.request.follows_groups = false;
    old.start(&world);
    let mut failed = Server::new("failed", 78);
    failed.start(&world);
    failed.request.targets[0].state = 3;
    failed.report(&world);
    let refused = |targets: &[u32], word: &str| {
        let targets: Vec<TargetId> = targets.iter().copied().map(TargetId).collect();
        let fault = world.service.make_group(&targets).unwrap_err();
        assert!(fault.code == Code::Invalid && fault.detail.contains(word), "{fault}");
    };
    refused(&[1], "name 2 to 3");
    refused(&[1, 2, 3, 4], "name 2 to 3");
    refused(&[1, 99], "t99 is not in this cluster");
    refused(&[1, 1], "t1 is on the machine of another one");
    refused(&[1, 4], "t4 is on the machine of another one");
    refused(&[1, 5], "t5 does not serve");
    refused(&[1, 6], "t6 does not serve");
    let before = world.service.cluster().membership;
    refused(&[2, 2], "different machines");
    assert_eq!(world.service.cluster().membership, before, "nothing was written");
}

/// One that has not reported since may have lost its power together with the one that has started.
#[test]
fn a_process_that_has_started_is_entered_once_another_member_has_reported_since() {
    let world = World::new();
    let mut all: [Server; 3] = servers(&world);
    let id = group(&world, &all);
    seconds(&world, 2);
    all[1].start(&world);
    assert_eq!(membership(&world, id).epoch, 1);
    seconds(&world, 1);
    all[1].report(&world);
    assert_eq!(membership(&world, id).epoch, 1, "no other one has reported since");
    all[0].report(&world);
    let told = all[1].report(&world);
    let now = membership(&world, id);
    assert_eq!((now.epoch, current(&now)), (2, vec![1, 3]));
    let started = now.member(all[1].target()).copied().unwrap();
    assert_eq!((started.run, started.standing), (all[1].process, Standing::Lagging { since: 2 }));
    assert_eq!(now.why, Some(Change::Started { target: all[1].target(), run: all[1].process }));
    assert!(told.groups.iter().all(|group| group.id != id.0), "it serves nothing of it");
    let of_first = all[0].report(&world).groups;
    assert!(of_first.iter().any(|group| (group.id, group.epoch) == (id.0, 2)), "the epoch is another");
    all[1].report(&world);
    assert_eq!(membership(&world, id), now, "once");
    // One that lags is entered at once.
    all[1].start(&world);
    let again = membership(&world, id);
    assert_eq!((again.epoch, again.member(all[1].target()).unwrap().run), (3, all[1].process));
    assert_eq!(again.member(all[1].target()).unwrap().standing, Standing::Lagging { since: 2 });
    world.assert_consistent();
}

/// Two members that lose power, of which one disk stays dead, must not leave the group with that one.
#[test]
fn where_no_other_process_is_left_the_group_keeps_the_former_one() {
    type Ends<'a> = &'a dyn Fn(&World, &mut Server);
    let ends: [(&str, Ends<'_>); 4] = [
        ("silent", &|_, _| ()),
        ("started anew", &|world, other| {
            other.start(world);
            seconds(world, 1);
            other.report(world);
        }),
        ("failed", &|world, other| {
            other.request.targets[0].state = 3;
            other.report(world);
        }),
        ("silent since", &|world, other| {
            other.report(world);
            seconds(world, 10);
        }),
    ];
    for (how, end) in ends {
        let world = World::new();
        let mut all: [Server; 2] = servers(&world);
        let id = group(&world, &all);
        seconds(&world, 1);
        all[0].start(&world);
        seconds(&world, 1);
        end(&world, &mut all[1]);
        all[0].report(&world);
        assert_eq!(membership(&world, id).epoch, 1, "{how}");
        world.assert_consistent();
    }
}

#[test]
fn the_entry_of_a_process_is_durable_before_its_server_is_answered() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut all: [Server; 2] = servers(&world);
    let id = group(&world, &all);
    seconds(&world, 1);
    all[1].start(&world);
    seconds(&world, 1);
    all[0].report(&world);
    all[1].report(&world);
    disk.crash();
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    let now = membership(&again, id);
    assert_eq!((now.epoch, current(&now)), (2, vec![1]));
    again.assert_consistent();
}

#[test]
fn of_a_target_alone_no_process_is_noted() {
    let world = World::new();
    let [mut server] = servers(&world);
    let id = GroupId(GroupId::FIRST);
    let stored = || {
        let (found, _) = world.service.transact(None, |context| context.raw(&keys::group(id))).unwrap();
        found.unwrap()
    };
    let before = stored();
    for _ in 0..3 {
        seconds(&world, 2);
        server.start(&world);
        server.report(&world);
    }
    assert_eq!((stored(), membership(&world, id).epoch), (before, 1));
    world.assert_consistent();
}

#[test]
fn a_process_that_no_target_ever_had_is_found_by_the_check() {
    let world = World::new();
    let all: [Server; 2] = servers(&world);
    group(&world, &all);
    let key = keys::target(all[1].target());
    let (written, _) = world
        .service
        .transact(None, |context| {
            let record: Option<crate::schema::records::TargetRecord> = context.read(&key, "a target")?;
            context
                .write(key.clone(), &crate::schema::records::TargetRecord { process: 0, ..record.unwrap() });
            Ok(())
        })
        .unwrap();
    written.unwrap();
    let problems = world.service.check().unwrap().problems;
    assert!(problems.iter().any(|text| text.contains("of which 0 is the latest")), "{problems:?}");
}
