//! Copies of new files: the placement groups that are made for them.

use super::group_members::{Server, group, membership, seconds, servers};
use super::harness::{Servers, TOP, World, options};
use crate::objects::orphan_objects::by_holder;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use vazao_disk::MemoryDisk;
use vazao_model::cluster::membership::Change;
use vazao_model::{Code, GroupId, InodeId, ObjectId, TargetId};
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

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
    refused(3, false, &["3 copies need 3 hosts, there are 1", "4 targets", "other machines"]);
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
    let whole = world.call::<op::GetClusterMap>(&proto::GetClusterMapRequest {}).unwrap().map.unwrap();
    assert!(whole.away.is_empty() && !whole.groups.is_empty());
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
    let told = |world: &World| {
        let map = world.call::<op::GetClusterMap>(&proto::GetClusterMapRequest {}).unwrap().map.unwrap();
        map.away
    };
    seconds(&world, 10);
    let now = started_at(&world);
    let away = |target, since| proto::AwayMember { target, leaving: false, ago_ms: (now - since) * 1000 };
    let members = vec![away(1, first_lost), away(2, second_lost)];
    assert_eq!(told(&world), [proto::GroupAway { id: id.0, copies: 3, members }]);
    world.assert_consistent();
    world.service.close().unwrap();
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(lost(&again), before);
}

fn hint(copies: u32, width: u32) -> proto::LayoutHint {
    proto::LayoutHint { copies, width, ..Default::default() }
}

fn set(world: &World, inode: InodeId, hint: proto::LayoutHint) -> Result<(), Fault> {
    let (once, hint) = (world.once(), Some(hint));
    let request = proto::SetLayoutHintRequest { once, inode: inode.0, hint, nodes_are_hosts: false };
    world.try_call::<op::SetLayoutHint>(&request).map(|_| ())
}

fn hints(world: &World, inode: InodeId) -> proto::GetLayoutHintResponse {
    world.call::<op::GetLayoutHint>(&proto::GetLayoutHintRequest { inode: inode.0 }).unwrap()
}

/// A new file's groups, for a writer on this machine and in this zone.
fn placed(world: &World, parent: InodeId, name: &str, host: u64, zone: &str) -> Result<Vec<GroupId>, Fault> {
    let (inode, zone) = (world.file(parent, name).0, zone.to_owned());
    let once = world.once();
    let request = proto::AssignLayoutRequest { once, inode, host, zone, ..Default::default() };
    let layout = world.try_call::<op::AssignLayout>(&request)?.layout.unwrap();
    assert!(layout.version == 3 || layout.groups.iter().all(|group| *group < GroupId::FIRST));
    Ok(layout.groups.into_iter().map(GroupId).collect())
}

fn current(world: &World, group: GroupId) -> Vec<TargetId> {
    world.service.cluster().groups.current(group).unwrap()
}

/// The targets are taken out of all groups that can spare them.
fn put_out(world: &World, gone: &[TargetId]) {
    let changed = |cluster: &crate::membership::cluster::Cluster| {
        let mut excerpt = cluster.excerpt(None, std::iter::empty());
        for target in gone {
            let of_target: Vec<(GroupId, u64)> =
                cluster.groups.shared_by(*target).map(|(id, membership)| (id, membership.epoch)).collect();
            for (id, _) in of_target {
                let epoch = excerpt.groups.membership(id).unwrap().epoch;
                let change = Change::PutOut(vec![*target]);
                let _ = Arc::make_mut(&mut excerpt.groups).change(id, epoch, change, 7);
            }
        }
        Ok(excerpt)
    };
    world.service.change_cluster(changed, |_, _| Ok(())).unwrap();
}

#[test]
fn the_number_of_copies_is_inherited_and_each_slot_has_a_group_of_so_many() {
    let world = World::new();
    let _all: [Server; 4] = servers(&world);
    let directory = world.directory(TOP, "d");
    set(&world, directory, hint(2, 0)).unwrap();
    let below = world.directory(directory, "below");
    let file = world.file(below, "none yet");
    for inode in [below, file] {
        let found = hints(&world, inode);
        assert_eq!((found.hint.unwrap().copies, found.effective.unwrap().copies), (0, 2));
    }
    assert_eq!(hints(&world, TOP).effective.unwrap().copies, 1, "where nothing is set");
    let groups = placed(&world, below, "f", 0, "").unwrap();
    assert_eq!(groups.len(), 4);
    let members: Vec<Vec<TargetId>> = groups.iter().map(|group| current(&world, *group)).collect();
    assert!(members.iter().all(|members| members.len() == 2), "{members:?}");
    let primaries: BTreeSet<TargetId> = members.iter().map(|members| members[0]).collect();
    assert_eq!(primaries.len(), 4, "each slot has a primary of its own");
    // One is changed by itself, and for files of one copy nothing is another.
    set(&world, below, hint(3, 1)).unwrap();
    let [group] = placed(&world, below, "g", 0, "").unwrap()[..] else { panic!("one slot") };
    assert_eq!(current(&world, group).len(), 3);
    set(&world, below, hint(1, 1)).unwrap();
    let [group] = placed(&world, below, "h", 0, "").unwrap()[..] else { panic!("one slot") };
    assert_eq!(current(&world, group).len(), 1);
    set(&world, below, hint(0, 1)).unwrap();
    let [group] = placed(&world, below, "i", 0, "").unwrap()[..] else { panic!("one slot") };
    assert_eq!(current(&world, group).len(), 2, "inherited again");
    world.assert_consistent();
}

#[test]
fn a_hint_of_copies_that_cannot_be_is_refused_and_nothing_is_set() {
    let world = World::new();
    let mut all: [Server; 2] = servers(&world);
    let refused = |inode: InodeId, copies: u32, word: &str| {
        let before = hints(&world, inode);
        let fault = set(&world, inode, hint(copies, 2)).unwrap_err();
        assert_eq!(fault.code, Code::Invalid);
        assert!(fault.detail.contains(word), "{fault}");
        assert_eq!(hints(&world, inode), before);
    };
    refused(TOP, 3, "3 copies need 3 hosts, there are 2");
    refused(TOP, 4, "a file has 1 to 3");
    set(&world, TOP, hint(2, 0)).unwrap();
    // What is set stays while hosts are away, and can be changed in other respects.
    seconds(&world, 60);
    set(&world, TOP, hint(2, 1)).unwrap();
    set(&world, world.directory(TOP, "d"), hint(2, 0)).unwrap();
    all.iter_mut().for_each(|server| drop(server.report(&world)));
    let file = world.file(TOP, "striped");
    world.assign_layout(file).unwrap();
    assert_eq!(set(&world, file, hint(1, 0)).unwrap_err().code, Code::InUse);
}

/// Files are not short of copies while others of the volume could take them.
/// The second copies of all slots could lie on one target: its link took as long as all others together.
#[test]
fn the_copies_of_a_files_slots_are_spread_over_all_targets() {
    let world = World::new();
    let _all: [Server; 4] = servers(&world);
    let directory = world.directory(TOP, "safe");
    for copies in [2, 3] {
        set(&world, directory, hint(copies, 4)).unwrap();
        let mut most = 0;
        for file in 0..50 {
            let groups = placed(&world, directory, &format!("{copies}.{file}"), 0, "").unwrap();
            let mut slots_of: std::collections::BTreeMap<TargetId, u32> = Default::default();
            let members = groups.iter().flat_map(|group| current(&world, *group));
            members.for_each(|member| *slots_of.entry(member).or_default() += 1);
            assert_eq!(slots_of.values().sum::<u32>(), 4 * copies);
            most += slots_of.values().max().unwrap();
        }
        let mean = f64::from(most) / 50.0;
        assert!(mean < f64::from(copies) + 0.4, "{mean} of {copies}");
    }
}

#[test]
fn groups_that_lack_a_copy_or_have_a_full_member_are_taken_only_where_there_are_no_others() {
    let world = World::new();
    let mut all: [Server; 4] = servers(&world);
    set(&world, TOP, hint(2, 0)).unwrap();
    let without = |world: &World, gone: u32, round: &str| {
        for at in 0..32 {
            let groups = placed(world, TOP, &format!("{round}{at}"), 0, "").unwrap();
            assert_eq!(groups.len(), 3, "{round}");
            for group in groups {
                let members = current(world, group);
                assert!(members.len() == 2 && !members.contains(&TargetId(gone)), "{round}: {members:?}");
            }
        }
    };
    all[0].request.targets[0].state = 2;
    all[0].report(&world);
    without(&world, 1, "full");
    all[0].request.targets[0].state = 1;
    all[0].report(&world);
    seconds(&world, 20);
    all[1..].iter_mut().for_each(|server| drop(server.report(&world)));
    without(&world, 1, "silent");
    put_out(&world, &[TargetId(1)]);
    without(&world, 1, "put out");
    all[0].report(&world);
    without(&world, 1, "back and lagging");
    // Without two more there is no group that has both of its members.
    put_out(&world, &[TargetId(2), TargetId(3)]);
    let counted = || world.service.metrics().short_of_copies.files.get();
    assert_eq!(counted(), 0);
    let groups = placed(&world, TOP, "short", 0, "").unwrap();
    assert!(groups.iter().all(|group| current(&world, *group).len() == 1), "the best there is");
    assert_eq!(counted(), 1, "and that shows");
}

/// After all servers have started anew, one after the other, some lead nothing: files have to be as wide as before.
#[test]
fn a_target_that_leads_no_group_any_more_takes_its_share_of_files() {
    let world = World::new();
    let _all: [Server; 3] = servers(&world);
    set(&world, TOP, hint(2, 0)).unwrap();
    let changed = |cluster: &crate::membership::cluster::Cluster| {
        let mut excerpt = cluster.excerpt(None, std::iter::empty());
        let led: Vec<GroupId> = cluster.groups.led_with(TargetId(1), 2).to_vec();
        for id in led {
            let groups = Arc::make_mut(&mut excerpt.groups);
            groups.change(id, 1, Change::PutOut(vec![TargetId(1)]), 7).unwrap().unwrap();
            let primary = *groups.membership(id).unwrap().primary().unwrap();
            let run = groups.membership(id).unwrap().member(TargetId(1)).unwrap().run;
            let by = (primary.target, primary.run);
            let back = Change::Promote { target: TargetId(1), run, by, instead_of: None };
            groups.change(id, 2, back, 9).unwrap().unwrap();
            assert!(groups.get(id).unwrap().lost.is_empty(), "it is not lost any more");
        }
        Ok(excerpt)
    };
    world.service.change_cluster(changed, |_, _| Ok(())).unwrap();
    assert!(world.service.cluster().groups.led_with(TargetId(1), 2).is_empty());
    let groups = placed(&world, TOP, "f", 0, "").unwrap();
    assert_eq!(groups.len(), 3);
    let with_it = groups.iter().filter(|group| current(&world, **group).contains(&TargetId(1)));
    assert!(with_it.count() >= 1);
    // It does not get groups to lead again for that.
    let epoch = world.service.cluster().membership.epoch;
    world.service.tick(&Servers::default());
    assert_eq!(world.service.cluster().membership.epoch, epoch);
}

#[test]
fn a_local_file_has_its_primary_on_the_writers_machine_and_other_copies_elsewhere() {
    let world = World::new();
    let all: [Server; 3] = servers(&world);
    let local = Some(proto::Pattern { distribution: 4, ..Default::default() });
    set(&world, TOP, proto::LayoutHint { pattern: local, ..hint(2, 0) }).unwrap();
    for (at, server) in all.iter().enumerate() {
        let [group] = placed(&world, TOP, &format!("f{at}"), server.request.host, "").unwrap()[..] else {
            panic!("one slot")
        };
        assert_eq!(current(&world, group)[0], server.target());
    }
    assert_eq!(placed(&world, TOP, "away", 99, "").unwrap().len(), 1);
}

#[test]
fn files_with_copies_have_groups_also_beside_a_client_that_knows_none() {
    let world = World::new();
    let _all: [Server; 2] = servers(&world);
    set(&world, TOP, hint(2, 1)).unwrap();
    let group = placed(&world, TOP, "f", 0, "").unwrap()[0];
    assert_eq!(current(&world, group).len(), 2, "a session of such a client is open");
}

#[test]
fn a_conversion_keeps_the_number_of_copies_and_another_one_is_refused() {
    let world = World::new();
    let _all: [Server; 3] = servers(&world);
    set(&world, TOP, hint(2, 2)).unwrap();
    let file = world.file(TOP, "f");
    world.assign_layout(file).unwrap();
    let ask = |copies, width| {
        let hint = Some(proto::LayoutHint { stripe_unit_bytes: 1 << 20, ..hint(copies, width) });
        let request =
            proto::BeginConversionRequest { inode: file.0, hint, dry_run: true, ..Default::default() };
        world.try_call::<op::BeginConversion>(&request)
    };
    for copies in [1, 3] {
        let fault = ask(copies, 1).unwrap_err();
        assert_eq!(fault.code, Code::Unsupported);
        assert!(
            fault.detail.contains("it has 2 copies") && fault.detail.contains("copy it to a new file"),
            "{fault}"
        );
    }
    for copies in [0, 2] {
        let to = ask(copies, 1).unwrap().to.unwrap();
        assert_eq!(current(&world, GroupId(to.groups[0])).len(), 2);
    }
    // A local file that is on its writer's machine already is not copied for another partner.
    let local = Some(proto::Pattern { distribution: 4, ..Default::default() });
    let here = world.file(TOP, "local");
    set(&world, here, proto::LayoutHint { pattern: local.clone(), ..hint(2, 0) }).unwrap();
    let request =
        proto::AssignLayoutRequest { once: world.once(), inode: here.0, host: 1, ..Default::default() };
    world.call::<op::AssignLayout>(&request).unwrap();
    let hint = Some(proto::LayoutHint { pattern: local, ..Default::default() });
    let request =
        proto::BeginConversionRequest { inode: here.0, hint, host: 1, dry_run: true, ..Default::default() };
    for _ in 0..8 {
        assert!(world.call::<op::BeginConversion>(&request).unwrap().unchanged);
    }
}

/// The primary forwards a removal to the others, so that it is in one order with writes; those that lag catch up.
#[test]
fn objects_with_copies_are_removed_by_the_primary_which_may_be_another_one_the_next_time() {
    let world = World::new();
    let _all: [Server; 3] = servers(&world);
    set(&world, TOP, hint(2, 1)).unwrap();
    let file = world.file(TOP, "f");
    let layout = world.assign_layout(file).unwrap();
    let [primary, other] = current(&world, GroupId(layout.groups[0]))[..] else { panic!("two") };
    let object = |target: TargetId| (target.0, file.0, layout.generation, 0);
    world.remove(TOP, "f", false).unwrap();
    let data = Servers::default();
    data.set_down(&format!("data{}:1", primary.0), true);
    world.service.tick(&data);
    assert_eq!(data.removed(), [], "the other one is not asked");
    put_out(&world, &[primary]);
    data.set_down(&format!("data{}:1", primary.0), false);
    world.service.tick(&data);
    assert_eq!(data.removed(), [object(other)]);
    assert_eq!(data.groups(), BTreeSet::from([layout.groups[0]]));
    let calls = data.calls();
    world.service.tick(&data);
    assert_eq!(data.calls(), calls, "nothing is left to do");
    world.assert_consistent();
}

#[test]
fn an_orphan_object_is_removed_by_its_primary_wherever_it_was_found_but_at_a_member_that_lags() {
    let world = World::new();
    let all: [Server; 3] = servers(&world);
    let shared = group(&world, &all);
    let orphan = |group| ObjectId { inode: InodeId(77), generation: 3, slot: 0, group };
    let found_at = |server: &Server, group| {
        let place = (server.target(), server.request.address.as_str());
        let now_ns = world.service.now().ns;
        let asked = by_holder(&world.service, place, now_ns, BTreeSet::from([orphan(group)]));
        asked.into_keys().collect::<Vec<(TargetId, String)>>()
    };
    let at = |server: &Server| vec![(server.target(), server.request.address.clone())];
    assert_eq!(found_at(&all[1], shared), at(&all[0]));
    assert_eq!(found_at(&all[0], shared), at(&all[0]));
    put_out(&world, &[all[0].target()]);
    assert_eq!(found_at(&all[2], shared), at(&all[1]), "the primary is another one");
    assert_eq!(found_at(&all[0], shared), [], "it catches up first");
    for alone in [GroupId(0), GroupId(GroupId::FIRST), GroupId(GroupId::FIRST + 999_999)] {
        assert_eq!(found_at(&all[0], alone), at(&all[0]), "{alone}");
    }
}

#[test]
fn fences_of_an_abandoned_conversion_are_lifted_by_the_primary_of_each_group() {
    let old = World::new();
    let _all: [Server; 3] = servers(&old);
    let request = proto::OpenSessionRequest { follows_conversions: true, ..Default::default() };
    let world = old.as_session(old.call::<op::OpenSession>(&request).unwrap().session);
    old.call::<op::CloseSession>(&proto::CloseSessionRequest { session: old.session }).unwrap();
    set(&world, TOP, hint(3, 2)).unwrap();
    let inode = world.file(TOP, "f").0;
    let layout = world.assign_layout(InodeId(inode)).unwrap();
    let hint = Some(proto::LayoutHint { stripe_unit_bytes: 1 << 20, width: 1, ..Default::default() });
    let begin = proto::BeginConversionRequest { once: world.once(), inode, hint, ..Default::default() };
    let to = world.call::<op::BeginConversion>(&begin).unwrap().to.unwrap();
    assert_eq!(current(&world, GroupId(to.groups[0])).len(), 3, "as many copies as before");
    let end = proto::EndConversionRequest { once: world.once(), inode, generation: 0, stalled: true };
    assert!(world.call::<op::EndConversion>(&end).unwrap().ended);
    let data = Servers::default();
    world.service.tick(&data);
    let mut fenced = data.fenced();
    fenced.sort_unstable();
    let mut primaries: Vec<u32> =
        layout.groups.iter().map(|group| current(&world, GroupId(*group))[0].0).collect();
    primaries.sort_unstable();
    assert_eq!(fenced, primaries);
    world.service.tick(&data);
    assert_eq!(data.fenced().len(), 2, "once");
}

/// A data server of the model.
#[derive(Clone, Debug)]
struct Machine {
    zone: &'static str,
    is_silent: bool,
    is_full: bool,
    is_put_out: bool,
}

fn machine() -> impl Strategy<Value = Machine> {
    let rarely = || prop::bool::weighted(0.2);
    (prop_oneof![Just("rio"), Just("bra")], rarely(), rarely(), rarely())
        .prop_map(|(zone, is_silent, is_full, is_put_out)| Machine { zone, is_silent, is_full, is_put_out })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Against the rules of `placement::copies`, looked up in all groups.
    #[test]
    fn a_file_takes_groups_that_lack_least_and_of_these_such_of_its_zone(
        machines in prop::collection::vec(machine(), 3..7),
        copies in 2usize..4,
        width in 0u32..4,
        zone in prop_oneof![Just(""), Just("rio"), Just("oslo")],
    ) {
        let world = World::new();
        let start = |(at, machine): (usize, &Machine)| {
            let mut server = Server::new(&format!("n{at}"), at as u64 + 1);
            server.request.zone = machine.zone.to_owned();
            server.start(&world);
            server
        };
        let mut servers: Vec<Server> = machines.iter().enumerate().map(start).collect();
        let placement = Some(proto::Placement { kind: 2, ..Default::default() });
        set(&world, TOP, proto::LayoutHint { placement, ..hint(copies as u32, width) }).unwrap();
        seconds(&world, 11);
        for (server, machine) in servers.iter_mut().zip(&machines).filter(|(_, machine)| !machine.is_silent) {
            server.request.targets[0].state = if machine.is_full { 2 } else { 1 };
            server.report(&world);
        }
        let gone = machines.iter().zip(&servers).filter(|(machine, _)| machine.is_put_out);
        put_out(&world, &gone.map(|(_, server)| server.target()).collect::<Vec<_>>());
        let machine_of = |target: TargetId| &machines[target.0 as usize - 1];
        let takes = |target: &TargetId| !machine_of(*target).is_silent && !machine_of(*target).is_full;
        let lacks = |members: &[TargetId]| (!members.iter().all(takes), copies - members.len());
        let all: Vec<Vec<TargetId>> = {
            let cluster = world.service.cluster();
            let current = |group: &crate::placement::PlacementGroup| {
                group.membership.current().map(|member| member.target).collect()
            };
            cluster.groups.of_copies(copies).map(current).collect()
        };
        let usable = all.iter().filter(|members| members.iter().any(takes));
        let least = usable.map(|members| lacks(members)).min();
        let found = placed(&world, TOP, "f", 0, zone);
        let Some(least) = least else {
            prop_assert!(found.is_err());
            return Ok(());
        };
        let places: BTreeSet<TargetId> = all.iter().filter(|members| lacks(members) == least)
            .flat_map(|members| members.iter().copied().filter(takes)).collect();
        let in_zone: BTreeSet<TargetId> =
            places.iter().copied().filter(|target| machine_of(*target).zone == zone).collect();
        let places = if in_zone.is_empty() { places } else { in_zone.clone() };
        let wide = if width == 0 { places.len() } else { places.len().min(width as usize) };
        let found: Vec<Vec<TargetId>> = found.unwrap().iter().map(|group| current(&world, *group)).collect();
        prop_assert_eq!(found.len(), wide);
        for members in &found {
            prop_assert_eq!(lacks(members), least);
            prop_assert!(members.iter().any(|target| places.contains(target)), "{:?} of {:?}", members, places);
        }
        let is_missed = !zone.is_empty() && found.iter().any(|members| machine_of(members[0]).zone != zone);
        let inode = InodeId(world.lookup(TOP, "f").unwrap().inode);
        prop_assert_eq!(hints(&world, inode).zone_missed, if is_missed { zone } else { "" });
        let is_short = found.iter().any(|members| members.len() < copies);
        prop_assert_eq!(world.service.metrics().short_of_copies.files.get(), u64::from(is_short));
        world.assert_consistent();
    }
}
