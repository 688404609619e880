//! Placement by zones: against a small model, and what is refused and told.

use super::harness::{TOP, World, options};
use crate::MetaOptions;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_model::zone::ZoneRanges;
use vazao_model::zone::{BitsPerSecond, Line};
use vazao_model::{Code, InodeId};
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

const EVERYWHERE: u32 = 1;
const NEAR_WRITER: u32 = 2;
const ZONE: u32 = 3;

const SERVING: u32 = 1;
const FULL: u32 = 2;

fn placement(kind: u32, zone: &str) -> proto::LayoutHint {
    let placement = Some(proto::Placement { kind, zone: zone.to_owned() });
    proto::LayoutHint { placement, ..Default::default() }
}

fn place(world: &World, inode: InodeId, hint: proto::LayoutHint) -> Result<(), Fault> {
    let request = proto::SetLayoutHintRequest {
        once: world.once(),
        inode: inode.0,
        hint: Some(hint),
        nodes_are_hosts: false,
    };
    world.try_call::<op::SetLayoutHint>(&request).map(|_| ())
}

/// A node with targets of these states; new ones where `ids` is empty.
fn report(world: &World, name: &str, zone: &str, ids: &[u32], states: &[(u32, u64)]) -> Vec<u32> {
    let target = |(at, &(state, available_bytes)): (usize, &(u32, u64))| proto::Target {
        id: ids.get(at).copied().unwrap_or(0),
        state,
        capacity_bytes: 1000,
        available_bytes,
        ..Default::default()
    };
    let request = proto::RegisterNodeRequest {
        name: name.to_owned(),
        address: format!("{name}:1"),
        roles: vec![2],
        zone: zone.to_owned(),
        targets: states.iter().enumerate().map(target).collect(),
        ..Default::default()
    };
    world.call::<op::RegisterNode>(&request).unwrap().targets
}

fn assign(world: &World, inode: InodeId, zone: &str) -> Result<Vec<u32>, Fault> {
    let zone = zone.to_owned();
    let request =
        proto::AssignLayoutRequest { once: world.once(), inode: inode.0, zone, ..Default::default() };
    world.try_call::<op::AssignLayout>(&request).map(|response| response.layout.unwrap().groups)
}

fn missed(world: &World, inode: InodeId) -> String {
    world.call::<op::GetLayoutHint>(&proto::GetLayoutHintRequest { inode: inode.0 }).unwrap().zone_missed
}

/// A node of the model.
#[derive(Clone, Debug)]
struct Machine {
    zone: &'static str,
    is_silent: bool,
    targets: Vec<(u32, u64)>,
}

/// The rules of docs/decisions/zones.md, in a few lines: a file has all of these targets, or as many as it is wide.
fn expected(machines: &[(Machine, Vec<u32>)], wanted: &str) -> BTreeSet<u32> {
    let of = |zone: &str| -> BTreeSet<u32> {
        let here = machines.iter().filter(|(machine, _)| !machine.is_silent);
        let here = here.filter(|(machine, _)| zone.is_empty() || machine.zone == zone);
        let targets = here.flat_map(|(machine, ids)| machine.targets.iter().zip(ids));
        let is_taken = |(state, left): (u32, u64)| state == SERVING && (zone.is_empty() || left > 0);
        targets.filter(|(target, _)| is_taken(**target)).map(|(_, id)| *id).collect()
    };
    Some(of(wanted)).filter(|targets| !targets.is_empty()).unwrap_or_else(|| of(""))
}

/// The zone that a file on these targets misses.
fn missing<'a>(machines: &[(Machine, Vec<u32>)], found: &BTreeSet<u32>, wanted: &'a str) -> &'a str {
    let away = machines.iter().filter(|(machine, _)| machine.zone != wanted);
    let is_away = away.flat_map(|(_, ids)| ids).any(|id| found.contains(id));
    if is_away { wanted } else { "" }
}

fn machine() -> impl Strategy<Value = Machine> {
    let zone = prop_oneof![Just(""), Just("rio"), Just("bra")];
    let target =
        (prop_oneof![4 => Just(SERVING), 1 => Just(FULL)], prop_oneof![Just(0), Just(30), Just(600)]);
    (zone, prop::bool::weighted(0.2), prop::collection::vec(target, 1..4))
        .prop_map(|(zone, is_silent, targets)| Machine { zone, is_silent, targets })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn a_file_lies_in_the_zone_that_is_wanted_while_that_has_room(
        machines in prop::collection::vec(machine(), 1..6),
        kind in EVERYWHERE..=ZONE,
        named in prop_oneof![Just("rio"), Just("bra")],
        writer in prop_oneof![Just(""), Just("rio"), Just("oslo")],
        width in 0u32..4,
    ) {
        let world = World::new();
        let name = |at: usize| format!("n{at}");
        // In good health first: a zone is named while it has targets.
        let joined = |(at, machine): (usize, &Machine)| {
            report(&world, &name(at), machine.zone, &[], &vec![(SERVING, 600); machine.targets.len()])
        };
        let ids: Vec<Vec<u32>> = machines.iter().enumerate().map(joined).collect();
        let file = world.file(TOP, "f");
        let hint = proto::LayoutHint { width, ..placement(kind, if kind == ZONE { named } else { "" }) };
        let has_named = machines.iter().any(|machine| machine.zone == named);
        let set = place(&world, file, hint);
        prop_assert_eq!(set.is_ok(), kind != ZONE || has_named);
        world.clock.advance(Duration::from_secs(11));
        let machines: Vec<(Machine, Vec<u32>)> = machines.into_iter().zip(ids).collect();
        for (at, (machine, ids)) in machines.iter().enumerate().filter(|(_, (machine, _))| !machine.is_silent) {
            report(&world, &name(at), machine.zone, ids, &machine.targets);
        }
        let (wanted, width) = match (set.is_ok(), kind) {
            (false, _) => ("", 0),
            (true, EVERYWHERE) => ("", width),
            (true, NEAR_WRITER) => (writer, width),
            (true, _) => (named, width),
        };
        let expected = expected(&machines, wanted);
        match assign(&world, file, writer) {
            Err(_) => prop_assert!(expected.is_empty()),
            Ok(found) => {
                let wide = if width == 0 { expected.len() } else { expected.len().min(width as usize) };
                let distinct: BTreeSet<u32> = found.iter().copied().collect();
                prop_assert_eq!((found.len(), distinct.len()), (wide, wide));
                prop_assert!(distinct.is_subset(&expected), "{:?} of {:?}", found, expected);
                prop_assert_eq!(missed(&world, file), missing(&machines, &distinct, wanted));
            }
        }
    }
}

/// A world with one data server in each of two zones and one in none: t1 in rio, t2 in bra, t3.
fn three() -> World {
    let world = World::new();
    for (name, zone) in [("a", "rio"), ("b", "bra"), ("c", "")] {
        report(&world, name, zone, &[], &[(SERVING, 600)]);
    }
    world
}

#[test]
fn a_placement_is_inherited_and_changed_by_itself() {
    let world = three();
    let directory = world.directory(TOP, "d");
    place(&world, directory, placement(ZONE, "rio")).unwrap();
    let below = world.directory(directory, "below");
    let file = world.file(below, "f");
    assert_eq!(assign(&world, file, "bra").unwrap(), [1]);
    place(&world, below, placement(NEAR_WRITER, "")).unwrap();
    assert_eq!(assign(&world, world.file(below, "g"), "bra").unwrap(), [2]);
    assert_eq!(assign(&world, world.file(below, "h"), "").unwrap().len(), 3, "a writer of no zone");
    place(&world, below, placement(EVERYWHERE, "")).unwrap();
    assert_eq!(assign(&world, world.file(below, "i"), "bra").unwrap().len(), 3);
    // Inherited again.
    place(&world, below, proto::LayoutHint::default()).unwrap();
    assert_eq!(assign(&world, world.file(below, "j"), "bra").unwrap(), [1]);
    world.assert_consistent();
}

#[test]
fn a_zone_that_no_target_is_in_is_refused_with_those_there_are() {
    let world = three();
    report(&world, "d", "oslo", &[], &[]);
    for zone in ["atlantis", "oslo"] {
        let fault = place(&world, TOP, placement(ZONE, zone)).unwrap_err();
        assert_eq!(fault.code, Code::Invalid);
        assert!(fault.detail.contains("zones with targets: bra, rio"), "{fault}");
    }
    assert_eq!(place(&world, TOP, placement(9, "")).unwrap_err().code, Code::Invalid);
    assert_eq!(assign(&world, world.file(TOP, "f"), "a b").unwrap_err().code, Code::Invalid);
    // What is set stays when its zone goes, and can be changed in other respects.
    place(&world, TOP, placement(ZONE, "rio")).unwrap();
    report(&world, "a", "", &[1], &[(SERVING, 600)]);
    place(&world, TOP, proto::LayoutHint { width: 1, ..placement(ZONE, "rio") }).unwrap();
    assert_eq!(place(&world, TOP, placement(ZONE, "gone")).unwrap_err().code, Code::Invalid);
}

#[test]
fn a_zone_without_room_is_missed_and_told_until_the_file_is_laid_out_anew() {
    let world = three();
    place(&world, TOP, placement(ZONE, "rio")).unwrap();
    report(&world, "a", "rio", &[1], &[(FULL, 0)]);
    let file = world.file(TOP, "f");
    let elsewhere: BTreeSet<u32> = assign(&world, file, "").unwrap().into_iter().collect();
    assert_eq!((elsewhere, missed(&world, file).as_str()), (BTreeSet::from([2, 3]), "rio"));
    let mut exposition = vazao_meter::Exposition::new();
    world.service.expose(&mut exposition);
    assert!(exposition.finish().contains("vazao_meta_zone_missed_files_total 1\n"));
    // A target that is nearly full is still nearer than another zone.
    report(&world, "a", "rio", &[1], &[(SERVING, 1)]);
    assert_eq!(assign(&world, world.file(TOP, "g"), "").unwrap(), [1]);
}

#[test]
fn a_local_file_lies_on_its_writers_machine_only_if_that_is_in_the_zone() {
    let world = World::new();
    for (name, zone, host) in [("a", "rio", 1), ("b", "rio", 2), ("c", "bra", 3)] {
        let target =
            proto::Target { state: SERVING, capacity_bytes: 9, available_bytes: 9, ..Default::default() };
        let request = proto::RegisterNodeRequest {
            name: name.to_owned(),
            address: format!("{name}:1"),
            roles: vec![2],
            zone: zone.to_owned(),
            targets: vec![target],
            host,
            ..Default::default()
        };
        world.call::<op::RegisterNode>(&request).unwrap();
    }
    let pattern = Some(proto::Pattern { distribution: 4, ..Default::default() });
    place(&world, TOP, proto::LayoutHint { pattern, ..placement(ZONE, "rio") }).unwrap();
    let written_at = |name: &str, host| {
        let inode = world.file(TOP, name);
        let request =
            proto::AssignLayoutRequest { once: world.once(), inode: inode.0, host, ..Default::default() };
        let layout = world.call::<op::AssignLayout>(&request).unwrap().layout.unwrap();
        (layout.groups[0], layout.pattern.unwrap().away)
    };
    assert_eq!((written_at("f", 1), written_at("g", 2)), ((1, false), (2, false)));
    let (target, is_away) = written_at("h", 3);
    assert!([1, 2].contains(&target) && is_away, "its machine is in another zone");
}

#[test]
fn a_conversion_goes_where_it_was_to_or_not_at_all() {
    let world = three();
    let session = world
        .call::<op::OpenSession>(&proto::OpenSessionRequest {
            follows_conversions: true,
            ..Default::default()
        })
        .unwrap();
    world.call::<op::CloseSession>(&proto::CloseSessionRequest { session: world.session }).unwrap();
    let world = world.as_session(session.session);
    let file = world.file(TOP, "f");
    place(&world, file, proto::LayoutHint { width: 1, ..placement(ZONE, "bra") }).unwrap();
    assert_eq!(assign(&world, file, "").unwrap(), [2]);
    let begin = |kind, zone: &str, writer: &str| {
        let request = proto::BeginConversionRequest {
            once: world.once(),
            inode: file.0,
            hint: Some(proto::LayoutHint { width: 1, ..placement(kind, zone) }),
            zone: writer.to_owned(),
            dry_run: true,
            ..Default::default()
        };
        world.try_call::<op::BeginConversion>(&request)
    };
    assert!(begin(ZONE, "bra", "").unwrap().unchanged);
    assert!(begin(NEAR_WRITER, "", "bra").unwrap().unchanged);
    let moved = begin(ZONE, "rio", "").unwrap();
    assert!(!moved.unchanged && moved.to.unwrap().groups == [1]);
    report(&world, "a", "rio", &[1], &[(FULL, 0)]);
    let fault = begin(NEAR_WRITER, "", "rio").unwrap_err();
    assert!(fault.code == Code::NoSpace && fault.detail.contains("stays as it is"), "{fault}");
}

/// Where messages carry an address, also of a client in its session.
#[test]
fn a_session_and_a_node_are_told_apart_by_the_ranges_of_the_cluster() {
    let zones = [("rio", "10.1.0.0/16"), ("bra", "10.0.0.0/8")];
    let zones = zones.map(|(zone, range)| (zone.to_owned(), vec![range.to_owned()])).into_iter().collect();
    let options = MetaOptions { zones: ZoneRanges::new(&zones).unwrap(), ..options("memory") };
    let world = World::on(Arc::new(MemoryDisk::new(1)), options);
    let zone_of = |address: &str| {
        let request = proto::OpenSessionRequest { address: address.to_owned(), ..Default::default() };
        world.call::<op::OpenSession>(&request).unwrap().zone
    };
    assert_eq!(["10.1.0.7", "10.2.0.7", "192.168.0.7", ""].map(zone_of), ["rio", "bra", "", ""]);
    let node = |name: &str, zone: &str, address: &str, source: &str| proto::RegisterNodeRequest {
        name: name.to_owned(),
        address: address.to_owned(),
        source: source.to_owned(),
        roles: vec![2],
        zone: zone.to_owned(),
        ..Default::default()
    };
    for (number, (zone, address, source, expected)) in [
        ("", "10.1.0.1:7", "", "rio"),
        ("", "host:7", "10.2.0.1", "bra"),
        ("", "10.1.0.3:7", "10.2.0.1", "bra"),
        ("lab", "10.1.0.4:7", "10.2.0.1", "lab"),
        ("", "host:8", "", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("n{number}");
        world.call::<op::RegisterNode>(&node(&name, zone, address, source)).unwrap();
        let map = world.call::<op::GetClusterMap>(&proto::GetClusterMapRequest {}).unwrap().map.unwrap();
        let found = map.nodes.iter().find(|node| node.name == name).unwrap();
        assert_eq!(found.zone, expected, "{name}");
    }
}

/// Each client sends no more over a line than its share of what that carries: it has to know both.
#[test]
fn sessions_hear_of_the_lines_and_of_those_that_share_one() {
    let line = Line { zones: ["rio".to_owned(), "bra".to_owned()], rate: BitsPerSecond(2_000_000) };
    let options = MetaOptions { lines: vec![line], ..options("memory") };
    let world = World::on(Arc::new(MemoryDisk::new(1)), options);
    let open = || world.call::<op::OpenSession>(&proto::OpenSessionRequest::default()).unwrap();
    let opened = open();
    let expected = proto::Line { zones: vec!["rio".to_owned(), "bra".to_owned()], bits_per_s: 2_000_000 };
    assert_eq!(opened.lines, [expected]);
    let (one, other) = (opened.session, open().session);
    let renew = |session: u64, uses: &[(&str, &str)]| -> Vec<u32> {
        let told = |&(from, to): &(&str, &str)| proto::LineUse {
            from: from.to_owned(),
            to: to.to_owned(),
            sessions: 0,
        };
        let lines = uses.iter().map(told).collect();
        let request = proto::RenewSessionRequest { session, lines, ..Default::default() };
        let told = world.call::<op::RenewSession>(&request).unwrap().lines;
        told.iter().map(|line| line.sessions).collect()
    };
    assert_eq!(renew(one, &[("rio", "bra")]), [1]);
    assert_eq!(renew(other, &[("rio", "bra"), ("bra", "rio")]), [2, 1]);
    let closed = world.call::<op::CloseSession>(&proto::CloseSessionRequest { session: one });
    closed.unwrap();
    assert_eq!(renew(other, &[("rio", "bra")]), [1]);
}
