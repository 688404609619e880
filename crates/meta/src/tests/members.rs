//! The cluster: joining, coming back, being refused.

use super::harness::{TOP, World, options};
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_model::Code;
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

fn register(
    world: &World,
    request: &proto::RegisterNodeRequest,
) -> Result<proto::RegisterNodeResponse, Fault> {
    world.try_call::<op::RegisterNode>(request)
}

fn node(name: &str, targets: &[u32]) -> proto::RegisterNodeRequest {
    let target = |&id: &u32| proto::Target {
        id,
        state: 1,
        capacity_bytes: 1000,
        available_bytes: 600,
        ..Default::default()
    };
    proto::RegisterNodeRequest {
        name: name.to_owned(),
        address: format!("{name}:1"),
        roles: vec![2],
        targets: targets.iter().map(target).collect(),
        ..Default::default()
    }
}

fn map(world: &World) -> proto::ClusterMap {
    world.call::<op::GetClusterMap>(&proto::GetClusterMapRequest {}).unwrap().map.unwrap()
}

#[test]
fn the_first_report_joins_and_later_ones_are_heartbeats() {
    let world = World::new();
    let joined = register(&world, &node("a", &[0, 0])).unwrap();
    assert_eq!(joined.targets.len(), 2);
    let heartbeat = proto::RegisterNodeRequest {
        cluster_id: joined.cluster_id,
        node: joined.node,
        ..node("a", &joined.targets)
    };
    assert_eq!(register(&world, &heartbeat).unwrap(), joined, "no change of epoch");
    let map = map(&world);
    assert_eq!((map.nodes.len(), map.targets.len(), map.epoch), (2, 2, joined.epoch));
    assert_eq!((map.nodes[0].name.as_str(), &map.nodes[0].roles[..]), ("meta", &[1][..]));
    let moved = proto::RegisterNodeRequest { address: "elsewhere:1".to_owned(), ..heartbeat };
    assert_eq!(register(&world, &moved).unwrap().epoch, joined.epoch + 1);
}

#[test]
fn the_zone_of_a_node_is_recorded_and_changes_with_its_configuration() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let in_zone = |zone: &str| proto::RegisterNodeRequest { zone: zone.to_owned(), ..node("a", &[0]) };
    let joined = register(&world, &in_zone("rio")).unwrap();
    let heartbeat = |zone: &str| proto::RegisterNodeRequest {
        node: joined.node,
        zone: zone.to_owned(),
        ..node("a", &joined.targets)
    };
    assert_eq!(register(&world, &heartbeat("rio")).unwrap().epoch, joined.epoch);
    assert_eq!((map(&world).nodes[0].zone.as_str(), map(&world).nodes[1].zone.as_str()), ("", "rio"));
    let moved = register(&world, &heartbeat("bra")).unwrap();
    assert_eq!(moved.epoch, joined.epoch + 1, "clients get the new map");
    for wrong in ["a b", "../x", "-", &"z".repeat(33)] {
        let fault = register(&world, &heartbeat(wrong)).unwrap_err();
        assert!(fault.code == Code::Invalid && fault.detail.contains("zone name"), "{fault}");
    }
    world.service.close().unwrap();
    let again = World::on(Arc::new(disk.boot()), options("embedded"));
    assert_eq!(map(&again).nodes[1].zone, "bra", "before the node has reported");
    register(&again, &heartbeat("")).unwrap();
    assert_eq!(map(&again).nodes[1].zone, "");
}

/// Each heartbeat copied the whole cluster.
#[test]
fn a_heartbeat_copies_what_belongs_to_its_node_only() {
    let world = World::new();
    let join = |n: u32| register(&world, &node(&format!("n{n}"), &[0, 0])).unwrap();
    let joined: Vec<_> = (0..50).map(join).collect();
    let heartbeat = proto::RegisterNodeRequest { node: joined[7].node, ..node("n7", &joined[7].targets) };
    let (excerpt, _) = world.service.cluster().joined(&heartbeat, true, world.service.now()).unwrap();
    assert_eq!((excerpt.nodes.len(), excerpt.targets.len()), (1, 2));
    let renamed = proto::RegisterNodeRequest { name: "other".to_owned(), ..heartbeat };
    register(&world, &renamed).unwrap();
    let cluster = world.service.cluster();
    assert_eq!((cluster.named("n7"), cluster.named("other").map(|id| id.0)), (None, Some(joined[7].node)));
    assert_eq!((cluster.nodes.len(), cluster.targets.len()), (51, 100));
}

#[test]
fn a_node_whose_first_answer_was_lost_gets_the_same_id() {
    let world = World::new();
    let first = register(&world, &node("a", &[])).unwrap();
    let second = register(&world, &node("a", &[0])).unwrap();
    assert_eq!(first.node, second.node);
}

#[test]
fn members_of_other_clusters_and_impostors_are_refused() {
    let world = World::new();
    let joined = register(&world, &node("a", &[0])).unwrap();
    let refused = |request: &proto::RegisterNodeRequest, word: &str| {
        let fault = register(&world, request).unwrap_err();
        assert_eq!(fault.code, Code::Invalid);
        assert!(fault.detail.contains(word), "{fault}");
    };
    refused(&proto::RegisterNodeRequest { cluster_id: 5, ..node("b", &[]) }, "belongs to cluster");
    refused(&node("b", &joined.targets), "is up, holds it");
    refused(&node("b", &[99]), "not in this cluster");
    refused(&proto::RegisterNodeRequest { node: 77, ..node("b", &[]) }, "not in this cluster");
    refused(&proto::RegisterNodeRequest { address: "x:2".to_owned(), ..node("a", &[]) }, "in use by node");
    refused(&node("", &[]), "node name");
    refused(&node("c", &[3, 3]), "twice");
    assert_eq!(map(&world).nodes.len(), 2);
    world.clock.advance(Duration::from_secs(11));
    let adopted = register(&world, &node("b", &joined.targets)).unwrap();
    assert_eq!(adopted.targets, joined.targets, "a disk may move when its node is silent");
}

/// `df` of a cluster on one machine showed its only disk once for each data server.
#[test]
fn a_file_system_that_holds_several_targets_counts_once() {
    let world = World::new();
    let mut request = node("a", &[0, 0, 0]);
    request.targets[0].file_system = 7;
    request.targets[1].file_system = 7;
    request.targets[1].available_bytes += 1;
    request.targets.iter_mut().for_each(|target| target.used_bytes = 300);
    let one = (request.targets[1].capacity_bytes, request.targets[1].available_bytes);
    let other = (request.targets[2].capacity_bytes, request.targets[2].available_bytes);
    register(&world, &request).unwrap();
    let space = world.call::<op::Space>(&proto::SpaceRequest {}).unwrap();
    assert_eq!((space.capacity_bytes, space.available_bytes), (one.0 + other.0, one.1 + other.1));
    assert_eq!(space.used_bytes, 600, "what is reserved is neither used nor available");
}

#[test]
fn the_map_shows_what_a_target_last_said_of_itself() {
    let world = World::new();
    let mut request = node("a", &[0]);
    let target = &mut request.targets[0];
    (target.used_bytes, target.reserve_bytes) = (350, 50);
    (target.corrupt_blocks, target.missing_objects) = (2, 1);
    register(&world, &request).unwrap();
    let shown = &map(&world).targets[0];
    assert_eq!((shown.id, shown.node), (1, 2));
    assert_eq!((shown.used_bytes, shown.reserve_bytes), (350, 50));
    assert_eq!((shown.corrupt_blocks, shown.missing_objects), (2, 1));
}

#[test]
fn silence_is_shown_and_space_is_summed() {
    let world = World::new();
    register(&world, &node("a", &[0, 0])).unwrap();
    let space = world.call::<op::Space>(&proto::SpaceRequest {}).unwrap();
    assert_eq!((space.capacity_bytes, space.available_bytes, space.inodes), (2000, 1200, 1));
    world.file(TOP, "f");
    assert_eq!(world.call::<op::Space>(&proto::SpaceRequest {}).unwrap().inodes, 2);
    assert_eq!(map(&world).nodes[1].state, 1);
    world.clock.advance(Duration::from_secs(12));
    let map = map(&world);
    assert_eq!((map.nodes[0].state, map.nodes[1].state, map.nodes[1].silent_ms), (1, 2, 12_000));
}

#[test]
fn full_failed_and_unreported_targets_get_no_new_files() {
    let world = World::new();
    let joined = register(&world, &node("a", &[0, 0, 0])).unwrap();
    let mut report = proto::RegisterNodeRequest { node: joined.node, ..node("a", &joined.targets[..2]) };
    report.targets[0].state = 2;
    register(&world, &report).unwrap();
    let f = world.file(TOP, "f");
    assert_eq!(world.assign_layout(f).unwrap().groups, [joined.targets[1]]);
    report.targets[1].state = 3;
    report.targets[1].trouble = "disk on fire".to_owned();
    register(&world, &report).unwrap();
    let fault = world.assign_layout(world.file(TOP, "g")).unwrap_err();
    assert!(fault.detail.contains("full") && fault.detail.contains("disk on fire"), "{fault}");
}

/// For two seconds after a start, files on a target that was missing when the service ended failed for good, and so did
/// new ones, though its disk was back.
#[test]
fn a_state_of_before_the_start_is_not_final_until_it_was_reported_or_for_ten_seconds() {
    let started_with = |state: u32| {
        let disk = MemoryDisk::new(1);
        let world = World::on(Arc::new(disk.boot()), options("embedded"));
        let joined = register(&world, &node("a", &[0])).unwrap();
        let mut report = proto::RegisterNodeRequest { node: joined.node, ..node("a", &joined.targets) };
        report.targets[0].state = state;
        register(&world, &report).unwrap();
        world.service.close().unwrap();
        (World::on(Arc::new(disk.boot()), options("embedded")), report)
    };
    let none = |world: &World, name: &str| world.assign_layout(world.file(TOP, name)).unwrap_err().code;
    for state in [3, 4, 5, 6] {
        let (world, mut report) = started_with(state);
        let shown = map(&world).targets.remove(0);
        assert_eq!((shown.state, shown.is_unreported), (state, true));
        assert_eq!(none(&world, "f"), Code::Unavailable, "{state}");
        register(&world, &report).unwrap();
        let shown = map(&world).targets.remove(0);
        assert_eq!((shown.state, shown.is_unreported), (state, false), "its server has said so");
        assert_eq!(none(&world, "g"), Code::TargetFailed, "{state}");
        report.targets[0].state = 1;
        register(&world, &report).unwrap();
        assert!(world.assign_layout(world.file(TOP, "h")).is_ok());

        let (world, _) = started_with(state);
        world.clock.advance(Duration::from_millis(9_999));
        assert_eq!(none(&world, "f"), Code::Unavailable, "{state}");
        world.clock.advance(Duration::from_millis(1));
        assert!(!map(&world).targets[0].is_unreported);
    }
    let (world, _) = started_with(1);
    assert!(!map(&world).targets[0].is_unreported, "where it served it is asked at once");
    assert!(world.assign_layout(world.file(TOP, "f")).is_ok());
}

#[test]
fn membership_and_sessions_survive_a_restart() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let joined = register(&world, &node("a", &[0])).unwrap();
    let session = world.session;
    world.service.close().unwrap();
    drop(world);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let map = map(&world);
    assert_eq!((map.cluster_id, map.epoch), (joined.cluster_id, joined.epoch));
    assert_eq!((map.nodes.len(), map.targets.len()), (2, 1));
    assert!(world.assign_layout(world.file(TOP, "f")).is_ok(), "members count as heard from");
    let renewal = proto::RenewSessionRequest { session, ..Default::default() };
    assert!(world.call::<op::RenewSession>(&renewal).unwrap().map.is_some());
}

#[test]
fn a_renewal_brings_the_map_only_when_it_is_newer() {
    let world = World::new();
    let renewal =
        proto::RenewSessionRequest { session: world.session, epoch: map(&world).epoch, ..Default::default() };
    assert!(world.call::<op::RenewSession>(&renewal).unwrap().map.is_none());
    world.data_server("a");
    assert!(world.call::<op::RenewSession>(&renewal).unwrap().map.is_some());
}

#[test]
fn metrics_are_exposed_by_method() {
    let world = World::new();
    world.file(TOP, "f");
    let _ = world.lookup(TOP, "none");
    let mut exposition = vazao_meter::Exposition::new();
    world.service.expose(&mut exposition);
    let text = exposition.finish();
    assert!(text.contains("vazao_meta_request_seconds_count{method=\"Create\"} 1\n"), "{text}");
    assert!(text.contains("vazao_meta_failures_total{method=\"Lookup\"} 1\n"));
    assert!(text.contains("vazao_meta_inodes 2\n"));
}

#[test]
fn layouts_follow_the_distribution_of_their_hint() {
    let world = World::new();
    for (host, name) in [(11, "a"), (12, "b"), (12, "c"), (13, "d"), (13, "e")] {
        register(&world, &proto::RegisterNodeRequest { host, ..node(name, &[0]) }).unwrap();
    }
    let strip = |slot| proto::Strip { slot, bytes: 65536 };
    let strips = (0..7).map(strip).collect();
    let pattern = |distribution| proto::Pattern { distribution, ..Default::default() };
    let set = |name: &str, pattern| {
        let id = world.file(TOP, name);
        let hint = Some(proto::LayoutHint { pattern: Some(pattern), ..Default::default() });
        let request =
            proto::SetLayoutHintRequest { once: world.once(), inode: id.0, hint, nodes_are_hosts: false };
        world.call::<op::SetLayoutHint>(&request).map(|_| id)
    };
    let assign = |id: vazao_model::InodeId, host| {
        let request =
            proto::AssignLayoutRequest { once: world.once(), inode: id.0, host, ..Default::default() };
        world.call::<op::AssignLayout>(&request).unwrap().layout.unwrap()
    };
    let layout = assign(set("strips", proto::Pattern { strips, ..pattern(2) }).unwrap(), 0);
    assert_eq!((layout.distribution, layout.groups.len(), layout.version), (2, 7, 2));
    assert_eq!(layout.groups[..2], layout.groups[5..], "seven slots share five targets");
    let groups = proto::Pattern { groups: 2, factor: 3, ..pattern(3) };
    let layout = assign(set("groups", groups).unwrap(), 0);
    assert_eq!((layout.distribution, layout.groups.len()), (3, 4), "the fifth fills no row");
    for (host, near, away) in [(11, &[1][..], false), (13, &[4, 5], false), (99, &[1, 2, 3, 4, 5], true)] {
        let layout = assign(set(&format!("local{host}"), pattern(4)).unwrap(), host);
        assert_eq!((layout.groups.len(), layout.pattern.as_ref().unwrap().away), (1, away));
        assert!(near.contains(&layout.groups[0]), "{host}: {layout:?}");
    }
    assert_eq!(set("unknown", pattern(9)).map(|_| ()), Err(Code::Invalid));
    let empty = proto::Pattern { strips: vec![], ..pattern(2) };
    assert_eq!(set("empty", empty).map(|_| ()), Err(Code::Invalid));
}

#[test]
fn the_distribution_of_a_directory_is_inherited_by_what_is_created_in_it() {
    let world = World::new();
    world.data_server("a");
    let d = world.directory(TOP, "d");
    let pattern = proto::Pattern { distribution: 4, ..Default::default() };
    let hint = Some(proto::LayoutHint { pattern: Some(pattern.clone()), ..Default::default() });
    let request =
        proto::SetLayoutHintRequest { once: world.once(), inode: d.0, hint, nodes_are_hosts: false };
    world.call::<op::SetLayoutHint>(&request).unwrap();
    let below = world.directory(d, "below");
    let layout = world.assign_layout(world.file(below, "file")).unwrap();
    assert_eq!(layout.distribution, 4);
    let hints = world.call::<op::GetLayoutHint>(&proto::GetLayoutHintRequest { inode: below.0 }).unwrap();
    assert_eq!(hints.hint.unwrap().pattern, None);
    assert_eq!(hints.effective.unwrap().pattern, Some(pattern));
}
