//! Placement groups: who gets them, who is told of them, and whose files lie in them.

use super::harness::{Servers, TOP, World, options};
use crate::MetaService;
use crate::membership::cluster::Cluster;
use crate::placement::{Groups, PlacementGroup};
use crate::schema::records::{GroupRecord, VolumeRecord};
use crate::schema::{groups, keys};
use std::collections::BTreeSet;
use std::sync::Arc;
use vazao_disk::MemoryDisk;
use vazao_model::cluster::membership::{Change, Membership};
use vazao_model::{Code, GroupId, InodeId, TargetId, TargetState};
use vazao_wire::{op, proto};

/// A data server that knows groups, with the targets `targets` (0: a new one).
fn server(name: &str, targets: &[u32]) -> proto::RegisterNodeRequest {
    let target = |&id: &u32| proto::Target { id, state: 1, ..Default::default() };
    proto::RegisterNodeRequest {
        name: name.to_owned(),
        address: format!("{name}:1"),
        roles: vec![2],
        targets: targets.iter().map(target).collect(),
        follows_groups: true,
        ..Default::default()
    }
}

/// A server whose process has leave to serve its only target, a new one, and is its process of this number.
fn process(world: &World, name: &str, number: u64) -> proto::RegisterNodeRequest {
    let mut request = proto::RegisterNodeRequest { run: 1, ..server(name, &[0]) };
    request.targets[0].found = number - 1;
    request.targets[0].id = register(world, &request).targets[0];
    request.targets[0].incarnation = number;
    assert_eq!(register(world, &request).verdicts[0].process, number);
    request
}

fn register(world: &World, request: &proto::RegisterNodeRequest) -> proto::RegisterNodeResponse {
    world.call::<op::RegisterNode>(request).unwrap()
}

fn map(world: &World) -> proto::ClusterMap {
    world.call::<op::GetClusterMap>(&proto::GetClusterMapRequest {}).unwrap().map.unwrap()
}

/// A client that knows groups.
fn client(world: &World) -> World {
    let request = proto::OpenSessionRequest { follows_groups: true, ..Default::default() };
    world.as_session(world.call::<op::OpenSession>(&request).unwrap().session)
}

/// All clients but those that know groups are gone.
fn end_old_client(world: &World) {
    let request = proto::CloseSessionRequest { session: world.session };
    world.call::<op::CloseSession>(&request).unwrap();
}

fn members(map: &proto::ClusterMap, group: u32) -> Vec<u32> {
    map.groups.iter().find(|found| found.id == group).map(|found| found.members.clone()).unwrap_or_default()
}

#[test]
fn a_server_that_knows_groups_is_told_of_its_own_once_for_each_epoch_and_one_that_does_not_of_none() {
    let world = World::new();
    let old = register(&world, &proto::RegisterNodeRequest { follows_groups: false, ..server("old", &[0]) });
    assert!(old.groups.is_empty() && map(&world).groups.is_empty());
    let first = register(&world, &server("a", &[0, 0]));
    assert_eq!(first.groups.len(), 2 * 64);
    assert!(first.groups.iter().all(|group| group.id >= GroupId::FIRST && group.epoch == 1));
    let of = |response: &proto::RegisterNodeResponse| -> BTreeSet<u32> {
        response.groups.iter().flat_map(|group| group.members.clone()).collect()
    };
    assert_eq!(of(&first), first.targets.iter().copied().collect());
    let known = proto::RegisterNodeRequest { epoch: first.epoch, ..server("a", &first.targets) };
    let again = register(&world, &known);
    assert_eq!((again.epoch, again.groups.len()), (first.epoch, 0), "it knows them");
    let second = register(&world, &server("b", &[0]));
    assert_eq!(of(&second), second.targets.iter().copied().collect());
    let again = register(&world, &known);
    assert_eq!((again.epoch, again.groups), (second.epoch, first.groups.clone()), "the epoch is another");
    let all: Vec<proto::Group> = first.groups.into_iter().chain(second.groups).collect();
    assert_eq!(map(&world).groups, all);
    // The server that did not know them has been upgraded.
    assert_eq!(register(&world, &server("old", &old.targets)).groups.len(), 64);
}

#[test]
fn a_target_that_does_not_serve_gets_groups_once_it_does() {
    let world = World::new();
    let mut request = server("a", &[0]);
    request.targets[0].state = 3;
    let failed = register(&world, &request);
    assert!(failed.groups.is_empty());
    assert_eq!(register(&world, &server("a", &failed.targets)).groups.len(), 64);
}

/// A disk that is mounted late is back without any change of the membership, so its server knows the epoch already: it
/// has to ask with none while a target is missing, or is never told the groups of that target.
#[test]
fn a_target_that_comes_back_changes_no_epoch_and_its_groups_are_told_to_a_server_that_knows_none() {
    let world = World::new();
    let joined = register(&world, &server("a", &[0, 0]));
    let mut missing = server("a", &joined.targets);
    missing.targets[1].state = TargetState::Missing as u32;
    let told = register(&world, &missing);
    assert_eq!(told.groups, joined.groups, "those of the missing one, too");
    let known = proto::RegisterNodeRequest { epoch: told.epoch, ..server("a", &joined.targets) };
    let back = register(&world, &known);
    assert_eq!((back.epoch, back.groups.len()), (told.epoch, 0), "its return is no change");
    let asked = register(&world, &server("a", &joined.targets));
    assert_eq!((asked.epoch, asked.groups), (told.epoch, joined.groups));
}

#[test]
fn files_lie_in_groups_unless_a_client_or_a_server_does_not_know_them() {
    let world = World::new();
    let a = register(&world, &server("a", &[0]));
    let plain = world.assign_layout(world.file(TOP, "plain")).unwrap();
    assert_eq!((plain.groups.as_slice(), plain.version), (&a.targets[..], 1), "an old client is there");
    let new = client(&world);
    end_old_client(&world);
    let layout = new.assign_layout(new.file(TOP, "grouped")).unwrap();
    assert_eq!(layout.version, 3);
    assert_eq!(members(&map(&new), layout.groups[0]), a.targets);
    let b = register(&new, &proto::RegisterNodeRequest { follows_groups: false, ..server("b", &[0]) });
    let layout = new.assign_layout(new.file(TOP, "both")).unwrap();
    let (alone, grouped): (Vec<u32>, Vec<u32>) =
        layout.groups.iter().partition(|group| **group < GroupId::FIRST);
    assert_eq!((alone, grouped.len()), (b.targets, 1));
}

#[test]
fn groups_and_their_numbers_survive_a_restart() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    register(&world, &server("a", &[0]));
    let before = map(&world);
    world.service.close().unwrap();
    drop(world);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(map(&world).groups, before.groups);
    let more = register(&world, &server("b", &[0]));
    let known: BTreeSet<u32> = before.groups.iter().map(|group| group.id).collect();
    assert!(more.groups.iter().all(|group| !known.contains(&group.id)) && more.groups.len() == 64);
    assert!(more.epoch > before.epoch);
    world.assert_consistent();
}

/// Keeps a record that this service did not come to by requests.
fn keep(world: &World, id: GroupId, membership: &Membership) {
    let mut cluster = Cluster::default();
    cluster.groups = Arc::new(Groups::new(vec![(id, PlacementGroup::new(membership.clone()))]));
    let (written, _) = world.service.transact(None, |context| cluster.write_groups(context, &[id])).unwrap();
    written.unwrap();
}

fn raw(world: &World, key: &[u8]) -> Vec<u8> {
    let (found, _) = world.service.transact(None, |context| context.raw(key)).unwrap();
    found.unwrap().expect("it is there")
}

fn schema(world: &World) -> u32 {
    <VolumeRecord as prost::Message>::decode(raw(world, keys::VOLUME).as_slice()).unwrap().schema
}

/// Volumes of before have this record; programs of before read it.
#[test]
fn the_record_of_a_target_alone_is_the_one_of_before_and_reads_as_one_current_member() {
    let world = World::new();
    let joined = register(&world, &server("a", &[0]));
    assert_eq!(joined.targets, [1]);
    let id = GroupId(GroupId::FIRST + 5);
    let of_before = [8, 1, 18, 1, 1];
    assert_eq!(raw(&world, &keys::group(id)), of_before);
    assert_eq!(schema(&world), 2);
    let record = <GroupRecord as prost::Message>::decode(&of_before[..]).unwrap();
    assert_eq!(groups::membership(id, &record).unwrap(), Membership::new(&[(TargetId(1), 0)]).unwrap());
}

#[test]
fn standings_runs_and_losses_survive_a_restart_and_only_current_members_are_told() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let servers = [process(&world, "a", 7), process(&world, "b", 9)];
    let (id, [a, b]) = (GroupId(GroupId::FIRST), [1, 2].map(TargetId));
    let both = Membership::new(&[(a, 7), (b, 8)]).unwrap();
    let kept = both.changed(1, Change::Leads { target: b, run: 9, kept_power: false }).unwrap();
    keep(&world, id, &kept);
    assert_eq!(schema(&world), 3, "older programs would take both for current");
    world.service.close().unwrap();
    drop(world);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(world.service.cluster().groups.membership(id), Some(&kept));
    assert_eq!(members(&map(&world), id.0), [b.0]);
    let of_a = register(&world, &servers[0]);
    assert_eq!(of_a.groups.len(), 63, "of one that lags its server is not told");
    let of_b = register(&world, &servers[1]);
    assert!(of_b.groups.iter().any(|group| (group.id, group.epoch) == (id.0, 2)));
    world.assert_consistent();
    // The schema stays.
    register(&world, &server("c", &[0]));
    assert_eq!(schema(&world), 3);
}

#[test]
fn new_files_lie_in_no_group_with_several_members() {
    let old = World::new();
    let joined = [register(&old, &server("a", &[0])), register(&old, &server("b", &[0]))];
    let world = client(&old);
    end_old_client(&old);
    let several = Membership::new(&[(TargetId(1), 7), (TargetId(2), 8)]).unwrap();
    let records = |groups: &[proto::Group]| -> Vec<(GroupId, Membership)> {
        groups.iter().map(|group| (GroupId(group.id), several.clone())).collect()
    };
    // All groups of the first server but one.
    let kept = records(&joined[0].groups[1..]);
    kept.iter().for_each(|(id, membership)| keep(&world, *id, membership));
    let groups = Groups::new(kept.into_iter().map(|(id, of)| (id, PlacementGroup::new(of))).collect());
    assert!(!groups.has_leader(TargetId(1)) && !groups.has_leader(TargetId(2)));
    assert_eq!(groups.led_by(TargetId(1), 3), GroupId(1), "the target alone");
    assert_eq!(groups.current(GroupId(joined[0].groups[1].id)), Some(vec![TargetId(1), TargetId(2)]));
}

/// A service that took such a record for what it can read of it would serve files from what is no copy of them.
#[test]
fn a_record_of_another_group_or_of_a_newer_program_keeps_the_service_from_starting() {
    let start = |spoil: &dyn Fn(&mut proto::GroupMembers)| {
        let disk = MemoryDisk::new(1);
        let world = World::on(Arc::new(disk.boot()), options("embedded"));
        register(&world, &server("a", &[0]));
        let id = GroupId(GroupId::FIRST + 3);
        keep(&world, id, &Membership::new(&[(TargetId(1), 7)]).unwrap());
        let key = keys::group(id);
        let mut record = <GroupRecord as prost::Message>::decode(raw(&world, &key).as_slice()).unwrap();
        spoil(record.membership.as_mut().unwrap());
        let (written, _) = world
            .service
            .transact(None, |context| {
                context.write(key.clone(), &record);
                Ok(())
            })
            .unwrap();
        written.unwrap();
        world.service.close().unwrap();
        MetaService::open(Arc::new(disk.boot()), options("embedded"), world.clock.clone())
    };
    assert!(start(&|_| ()).is_ok());
    let other = start(&|record| record.group += 1).unwrap_err();
    assert_eq!(other.code, Code::Corrupt);
    assert!(other.detail.contains("record of placement group g3: it is that of group g4"), "{other}");
    let newer = start(&|record| record.members[0].standing = 9).unwrap_err();
    assert_eq!(newer.code, Code::VersionMismatch);
    assert!(newer.detail.contains("use the same version"), "{newer}");
    let twice = start(&|record| record.members = vec![record.members[0]; 2]).unwrap_err();
    assert_eq!(twice.code, Code::Corrupt);
}

/// What is done to a record, with the group's target, and what is said of it then.
type Case<'a> = (&'a dyn Fn(&mut GroupRecord, u32), &'a str);

/// Records that no change of members makes, each in a volume of its own.
#[test]
fn a_group_that_is_missing_or_has_impossible_members_is_found_by_the_check() {
    let found = |change: &dyn Fn(&mut GroupRecord, u32)| -> Vec<String> {
        let world = World::new();
        let target = register(&world, &server("a", &[0])).targets[0];
        let new = client(&world);
        end_old_client(&world);
        let group = new.assign_layout(new.file(TOP, "file")).unwrap().groups[0];
        new.assert_consistent();
        let key = keys::group(GroupId(group));
        let (written, _) = new
            .service
            .transact(None, |context| {
                let mut record: GroupRecord = context.read(&key, "a placement group")?.expect("it was made");
                change(&mut record, target);
                match record.members.as_slice() {
                    [] => context.delete(key.clone()),
                    _ => context.write(key.clone(), &record),
                }
                Ok(())
            })
            .unwrap();
        written.unwrap();
        new.service.check().unwrap().problems
    };
    assert_eq!(found(&|_, _| ()), Vec::<String>::new());
    let cases: [Case<'_>; 6] = [
        (&|record, _| record.members.clear(), "which is missing"),
        (&|record, _| record.members.push(77), "the member t77, which is missing"),
        (&|record, target| record.members = vec![target; 2], "in epoch 1"),
        (&|record, target| record.members = vec![target, 77, 78, 79], "in epoch 1"),
        (&|record, _| record.epoch = 0, "in epoch 0"),
        (&|record, _| record.epoch = 2, "that schema 2 does not have"),
    ];
    for (change, expected) in cases {
        let problems = found(change);
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
    }
}

#[test]
fn objects_in_groups_are_removed_from_the_targets_that_hold_them() {
    let old = World::new();
    let joined = [register(&old, &server("a", &[0])), register(&old, &server("b", &[0]))];
    let world = client(&old);
    end_old_client(&old);
    let f = world.file(TOP, "f");
    let layout = world.assign_layout(f).unwrap();
    let servers = Servers::default();
    servers.set_down("b:1", true);
    world.remove(TOP, "f", false).unwrap();
    let object = |slot: u32| {
        let member = members(&map(&world), layout.groups[slot as usize])[0];
        (member, f.0, layout.generation, slot)
    };
    let on = |target: u32| (0..2).map(object).find(|object| object.0 == target).unwrap();
    world.service.tick(&servers);
    assert_eq!(servers.removed(), [on(joined[0].targets[0])], "of the server that is up");
    servers.set_down("b:1", false);
    world.service.tick(&servers);
    assert!(servers.removed().contains(&on(joined[1].targets[0])));
    assert_eq!(servers.groups(), layout.groups.iter().copied().collect(), "named with their groups");
    let count = servers.removed().len();
    world.service.tick(&servers);
    assert_eq!(servers.removed().len(), count, "nothing is left to do");
    world.assert_consistent();
}

/// One message went to each server, which refuses it whole where one of the targets in it failed or is missing: nothing
/// of removed files was given back on the server's other targets for as long as that disk was out.
#[test]
fn a_target_that_failed_keeps_no_objects_on_the_other_targets_of_its_server() {
    let old = World::new();
    let joined = register(&old, &server("a", &[0, 0]));
    let world = client(&old);
    end_old_client(&old);
    let f = world.file(TOP, "f");
    let layout = world.assign_layout(f).unwrap();
    assert_eq!(layout.groups.len(), 2, "a slot on each target");
    let servers = Servers::default();
    servers.set_failed(&joined.targets[1..]);
    world.remove(TOP, "f", false).unwrap();
    let targets = || servers.removed().into_iter().map(|(target, ..)| target).collect::<Vec<u32>>();
    world.service.tick(&servers);
    assert_eq!(targets(), joined.targets[..1]);
    servers.set_failed(&[]);
    world.service.tick(&servers);
    assert_eq!(targets(), joined.targets, "and the rest once it is back");
    let calls = servers.calls();
    world.service.tick(&servers);
    assert_eq!(servers.calls(), calls, "nothing is left to do");
    world.assert_consistent();
}

#[test]
fn a_local_file_stays_on_its_machine_in_whichever_group_of_it() {
    let old = World::new();
    let here = register(&old, &proto::RegisterNodeRequest { host: 11, ..server("a", &[0]) });
    register(&old, &proto::RegisterNodeRequest { host: 12, ..server("b", &[0]) });
    let world = client(&old);
    end_old_client(&old);
    for n in 0..8 {
        let id = world.file(TOP, &format!("f{n}"));
        let pattern = Some(proto::Pattern { distribution: 4, ..Default::default() });
        let hint = Some(proto::LayoutHint { pattern, ..Default::default() });
        let set =
            proto::SetLayoutHintRequest { once: world.once(), inode: id.0, hint, nodes_are_hosts: false };
        world.call::<op::SetLayoutHint>(&set).unwrap();
        let request =
            proto::AssignLayoutRequest { once: world.once(), inode: id.0, host: 11, ..Default::default() };
        let layout = world.call::<op::AssignLayout>(&request).unwrap().layout.unwrap();
        assert_eq!(members(&map(&world), layout.groups[0]), here.targets);
        assert_eq!(converted_unchanged(&world, id), Some(true), "a conversion to the same place is none");
    }
}

/// Whether a conversion of a file to what it has already would change nothing.
fn converted_unchanged(world: &World, id: InodeId) -> Option<bool> {
    let pattern = Some(proto::Pattern { distribution: 4, ..Default::default() });
    let hint = Some(proto::LayoutHint { pattern, ..Default::default() });
    let request = proto::BeginConversionRequest {
        once: world.once(),
        inode: id.0,
        hint,
        host: 11,
        dry_run: true,
        zone: String::new(),
    };
    Some(world.call::<op::BeginConversion>(&request).ok()?.unchanged)
}
