//! Copies of new files: the placement groups that are made for them.

use super::group_members::{Server, group, membership, seconds, servers};
use super::harness::{Servers, World, options};
use std::collections::BTreeSet;
use std::sync::Arc;
use vazao_disk::MemoryDisk;
use vazao_model::{Code, GroupId, TargetId};

/// Groups with so many copies, and the targets of each.
fn groups_of(world: &World, copies: usize) -> Vec<Vec<u32>> {
    let cluster = world.service.cluster();
    let targets = |group: &crate::placement::PlacementGroup| {
        group.membership.members.iter().map(|member| member.target.0).collect()
    };
    cluster.groups.of_copies(copies).map(targets).collect()
}

/// Data servers that all are on one machine.
fn servers_of_one_machine(world: &World, count: usize) -> Vec<Server> {
    let start = |at| {
        let mut server = Server::new(&format!("data{at}"), 7);
        server.start(world);
        server
    };
    (0..count).map(start).collect()
}

#[test]
fn groups_of_several_targets_are_made_once_with_their_processes_and_survive_power_loss() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut all: [Server; 4] = servers(&world);
    assert_eq!(groups_of(&world, 2).len(), 0, "none is made before one is needed");
    world.service.provide_groups(2, false).unwrap();
    let made = groups_of(&world, 2);
    assert_eq!(made.len(), 4 * 64);
    for server in &all {
        let led = made.iter().filter(|targets| targets[0] == server.target().0);
        let partners: BTreeSet<u32> = led.map(|targets| targets[1]).collect();
        assert_eq!(partners.len(), 3);
    }
    world.service.provide_groups(2, false).unwrap();
    assert_eq!(groups_of(&world, 2), made, "once");
    world.service.provide_groups(3, false).unwrap();
    assert_eq!((groups_of(&world, 3).len(), groups_of(&world, 2).len()), (4 * 64, 4 * 64));
    let told = all[0].report(&world).groups;
    let shared = told.iter().filter(|group| group.members.len() > 1).count();
    assert!(shared > 2 * 64, "its server is told of them: {shared}");
    for group in &told {
        let membership = membership(&world, GroupId(group.id));
        let with_process = membership.members.iter().filter(|_| membership.members.len() > 1);
        assert!(with_process.clone().all(|member| member.run > 0), "{membership:?}");
    }
    world.assert_consistent();
    disk.crash();
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(groups_of(&again, 2), made);
    all.iter_mut().for_each(|server| drop(server.report(&again)));
    again.service.provide_groups(2, false).unwrap();
    assert_eq!(groups_of(&again, 2), made);
    again.assert_consistent();
}

#[test]
fn a_target_that_joins_later_gets_groups_of_each_number_of_copies_in_use_by_itself() {
    let world = World::new();
    let _first: [Server; 2] = servers(&world);
    world.service.provide_groups(2, false).unwrap();
    assert_eq!(groups_of(&world, 2).len(), 2 * 64);
    let mut third = Server::new("third", 3);
    third.start(&world);
    world.service.tick(&Servers::default());
    let made = groups_of(&world, 2);
    let of_third = |at: usize| made.iter().filter(|targets| targets[at] == third.target().0).count();
    assert_eq!((of_third(0), of_third(1)), (64, 48));
    let epoch = world.service.cluster().membership.epoch;
    world.service.tick(&Servers::default());
    assert_eq!(world.service.cluster().membership.epoch, epoch, "nothing more is to be made");
    assert!(groups_of(&world, 3).is_empty(), "three copies are not in use");
    world.assert_consistent();
}

/// Each transaction has a bound, so that a large cluster does not hold up the others.
#[test]
fn many_groups_are_made_in_steps() {
    let world = World::new();
    let _all: [Server; 8] = servers(&world);
    let before = world.service.cluster().membership.epoch;
    world.service.provide_groups(3, false).unwrap();
    assert_eq!(groups_of(&world, 3).len(), 8 * 64);
    assert_eq!(world.service.cluster().membership.epoch, before + 2);
}

#[test]
fn more_copies_than_hosts_are_refused_and_nothing_is_changed() {
    let world = World::new();
    let refused = |copies, same_host, words: &[&str]| {
        let before = world.service.cluster().membership;
        let fault = world.service.provide_groups(copies, same_host).unwrap_err();
        assert_eq!(fault.code, Code::Invalid);
        assert!(words.iter().all(|word| fault.detail.contains(word)), "{fault}");
        assert_eq!(world.service.cluster().membership, before);
    };
    refused(2, false, &["2 copies need 2 hosts, there are 0: no data server"]);
    let _all = servers_of_one_machine(&world, 4);
    refused(3, false, &["3 copies need 3 hosts, there are 1", "4 targets", "--same-host"]);
    let mut away: Server = Server::new("away", 8);
    away.start(&world);
    refused(3, false, &["3 copies need 3 hosts, there are 2"]);
    seconds(&world, 60);
    refused(2, true, &["there are 0"]);
}

#[test]
fn where_the_volume_is_for_trying_out_servers_of_one_machine_count_as_hosts() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut all = servers_of_one_machine(&world, 3);
    world.service.provide_groups(2, true).unwrap();
    assert_eq!(groups_of(&world, 2).len(), 3 * 64);
    world.service.close().unwrap();
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    all.iter_mut().for_each(|server| drop(server.report(&again)));
    let mut more = Server::new("more", 7);
    more.start(&again);
    again.service.tick(&Servers::default());
    let led = groups_of(&again, 2).into_iter().filter(|targets| targets[0] == more.target().0).count();
    assert_eq!(led, 64, "it is known after a restart");
}

/// Copies and losses are what people are told of a group: after a restart, too.
#[test]
fn since_when_a_member_is_lost_is_kept() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let mut all: [Server; 3] = servers(&world);
    let id = group(&world, &all);
    let lost = |world: &World| {
        let found = world.service.cluster().groups.get(id).cloned().unwrap();
        (found.copies, found.made_for, found.lost, found.membership.current().count())
    };
    let started_at = |world: &World| world.service.now().wall_seconds;
    assert_eq!(lost(&world), (3, TargetId(1), [].into(), 3));
    seconds(&world, 20);
    let first_at = started_at(&world);
    let start_anew = |world: &World, all: &mut [Server; 3], at: usize| {
        all[at].start(world);
        seconds(world, 1);
        all[(at + 1) % 3].report(world);
        all[at].report(world);
        started_at(world)
    };
    let first_lost = start_anew(&world, &mut all, 0);
    assert!(first_lost > first_at);
    seconds(&world, 20);
    let second_lost = start_anew(&world, &mut all, 1);
    let both = [(TargetId(1), first_lost), (TargetId(2), second_lost)].into();
    assert_eq!(lost(&world), (3, TargetId(1), both, 1));
    let before = lost(&world);
    world.assert_consistent();
    world.service.close().unwrap();
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(lost(&again), before);
}
