//! What primaries say of members that lag, as people are told it.

use super::group_members::{Server, group, seconds, servers};
use super::harness::World;
use vazao_model::cluster::lagging::CatchUpWait;
use vazao_model::{GroupId, TargetId};
use vazao_wire::{op, proto};

fn lagging(world: &World) -> Vec<proto::LaggingTarget> {
    world.call::<op::GetClusterMap>(&proto::GetClusterMapRequest {}).unwrap().map.unwrap().lagging
}

fn metrics(world: &World) -> String {
    let mut exposition = vazao_meter::Exposition::new();
    world.service.expose(&mut exposition);
    exposition.finish()
}

fn says(server: &mut Server, members: &[(GroupId, u32, u64, u64)]) {
    let member = |&(group, target, bytes, left_bytes): &(GroupId, u32, u64, u64)| proto::LaggingMember {
        group: group.0,
        target,
        bytes,
        left_bytes,
    };
    server.request.lagging = members.iter().map(member).collect();
}

/// Three servers of which the second has started anew, and groups of all of them and of the first two.
fn world_with_one_that_lags() -> (World, [Server; 3], GroupId, GroupId) {
    let world = World::new();
    let mut all: [Server; 3] = servers(&world);
    let three = group(&world, &all);
    let two = world.service.make_group(&[TargetId(1), TargetId(2)]).unwrap();
    all[1].start(&world);
    seconds(&world, 1);
    all[0].report(&world);
    all[1].report(&world);
    (world, all, three, two)
}

#[test]
fn what_primaries_say_of_targets_that_lag_is_summed_up_by_target() {
    let (world, mut all, three, two) = world_with_one_that_lags();
    assert_eq!(lagging(&world), [], "nothing was said");
    let unknown = GroupId(three.0 + 999);
    says(&mut all[0], &[(three, 2, 100, 40), (two, 2, 30, 31), (three, 3, 5, 5), (unknown, 2, 7, 7)]);
    let time = proto::CatchUpTime { wait: CatchUpWait::TheirDisk as u32, ns: 9 };
    let work = proto::CatchUpWork { target: 2, bytes_per_second: 35, times: vec![time] };
    let of_another = proto::CatchUpWork { target: 3, ..work.clone() };
    all[0].request.catching_up = vec![work, of_another];
    all[0].report(&world);
    // It leads neither of the two.
    says(&mut all[2], &[(three, 2, 1000, 1000)]);
    all[2].report(&world);
    let short = |copies, of, bytes| proto::ShortBytes { copies, of, bytes };
    let limit = proto::CatchUpLimit { wait: CatchUpWait::TheirDisk as u32, primary: 0, percent: 100 };
    let told = proto::LaggingTarget {
        target: 2,
        groups: 2,
        short: vec![short(1, 2, 30), short(2, 3, 100)],
        left_bytes: 70,
        bytes_per_second: 35,
        left_ms: Some(2000),
        limit: Some(limit),
    };
    assert_eq!(lagging(&world), [told]);
    for line in [
        "vazao_meta_lagging_bytes{target=\"2\"} 130\n",
        "vazao_meta_catch_up_left_bytes{target=\"2\"} 70\n",
        "vazao_meta_catch_up_bytes_per_second{target=\"2\"} 35\n",
    ] {
        assert!(metrics(&world).contains(line), "{line}");
    }
    // The next heartbeat has what is so by then.
    says(&mut all[0], &[(two, 2, 30, 0)]);
    all[0].request.catching_up.clear();
    all[0].report(&world);
    let told = lagging(&world).remove(0);
    assert_eq!((told.groups, told.left_bytes, told.left_ms, told.limit), (1, 0, None, None));
}

#[test]
fn what_a_silent_primary_said_is_not_told_any_more() {
    let (world, mut all, three, _) = world_with_one_that_lags();
    says(&mut all[0], &[(three, 2, 100, 40)]);
    all[0].report(&world);
    assert_eq!(lagging(&world).len(), 1);
    seconds(&world, 60);
    all[2].report(&world);
    assert_eq!(lagging(&world), []);
}
