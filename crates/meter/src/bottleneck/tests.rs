//! The rules against scenes made up by hand, and properties that hold for any scene.

use super::*;
use crate::measures::{Change, Connection, Cpu, Disk, Link, Measures, Part, Peer};
use crate::occupancy::Occupied;
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;

fn busy(share: f64) -> Occupied {
    let ns = (share * SECOND_NS as f64) as u64;
    Occupied { busy_ns: ns, total_ns: ns, events: 100 }
}

fn process(name: &str, part: Part) -> Change {
    let cpu = Cpu { machine_cores: 4, used_ns: SECOND_NS / 10, ..Cpu::default() };
    let of = Measures { name: name.to_owned(), part, machine: name.to_owned(), cpu, ..Measures::default() };
    Change { seconds: 1.0, of }
}

/// A client that was blocked for `waits` of the time on one server, each answer taking 10 ms, 9 ms of it there.
fn client(waits: f64) -> Change {
    let mut client = process("client", Part::Client);
    client.of.waits = busy(waits);
    client.of.work.read_bytes = 1 << 20;
    let in_flight = Occupied { busy_ns: SECOND_NS, total_ns: SECOND_NS, events: 100 };
    client.of.peers = vec![Peer {
        name: "data1".to_owned(),
        address: "10.0.0.1:7000".to_owned(),
        local: "10.0.0.9".to_owned(),
        waits: busy(waits),
        in_flight,
        service_ns: SECOND_NS / 10 * 9,
        connections: vec![Connection {
            id: 1,
            received_bytes: 1 << 20,
            rtt_min_us: 100,
            ..Connection::default()
        }],
        ..Peer::default()
    }];
    client
}

#[test]
fn a_server_that_answered_nothing_is_the_limit_whatever_it_says_of_itself_afterwards() {
    let mut observer = client(0.9);
    observer.of.peers[0].silent_ns = SECOND_NS / 10 * 8;
    let seen = judge(Scene { observer: &observer, servers: &[process("data1", Part::Server)], beside: &[] });
    assert_eq!((seen.resource, seen.place.as_str()), (Resource::NoAnswer, "data1"));
    assert!(seen.line().starts_with("limit: no answer of data1 for "), "{}", seen.line());
}

/// A mount whose reader waited for a dead server for 15 s was idle: its few attempts were as short as housekeeping.
#[test]
fn a_process_that_waits_for_a_silent_server_is_not_idle_and_one_that_asks_nothing_of_it_is() {
    let mut waiting = process("/m", Part::Mount);
    waiting.of.cpu.used_ns = 0;
    let in_flight = Occupied { events: 2, ..Occupied::default() };
    let silent = Peer { name: "data1".to_owned(), silent_ns: SECOND_NS, in_flight, ..Peer::default() };
    waiting.of.peers = vec![silent];
    assert_eq!(verdict(&waiting, &[]).resource, Resource::NoAnswer);
    waiting.of.peers[0].in_flight = Occupied::default();
    assert_eq!(verdict(&waiting, &[]).resource, Resource::Idle);
}

fn disk(waits: f64, device: f64) -> Disk {
    Disk {
        place: "/srv/d1".to_owned(),
        device: "sdb".to_owned(),
        read_bytes: 28_000_000,
        device_busy_ns: (device * SECOND_NS as f64) as u64,
        waits: busy(waits),
        ..Disk::default()
    }
}

fn server_with_disk(waits: f64, device: f64) -> Change {
    let mut server = process("data1", Part::Server);
    server.of.disks = vec![disk(waits, device)];
    server
}

fn verdict(observer: &Change, servers: &[Change]) -> Verdict {
    judge(Scene { observer, servers, beside: &[] })
}

#[test]
fn a_busy_disk_that_is_waited_for_limits_and_is_named_with_its_place_and_device() {
    let found = verdict(&client(0.95), &[server_with_disk(0.98, 0.99)]);
    assert_eq!((found.resource, found.place.as_str()), (Resource::Disk, "data1"));
    assert_eq!(
        found.line(),
        "limit: disk of data1 (/srv/d1, sdb): busy 99%, 28.0 MB/s, waited for 98% of the time (99% of its ceiling)"
    );
}

#[test]
fn a_disk_at_the_rate_it_may_move_limits_although_its_device_is_idle() {
    let mut server = server_with_disk(0.99, 0.1);
    server.of.disks[0].read_limit = Some(28e6);
    let found = verdict(&client(0.95), &[server]);
    assert_eq!((found.resource, found.share), (Resource::Disk, Some(1.0)));
    assert!(found.text.contains("28.0 MB/s of the 28.0 MB/s it may move"), "{}", found.text);
}

/// `./x demo`: "disk of client: busy 0%, 25 kB/s, waited for 96% of the time", for writes into the page cache.
#[test]
fn a_disk_that_what_is_done_passes_by_in_memory_does_not_limit() {
    let mut observer = client(0.0);
    observer.of.work.read_bytes = 500_000_000;
    observer.of.disks = vec![Disk { read_bytes: 0, written_bytes: 25_000, ..disk(0.96, 0.0) }];
    let found = verdict(&observer, &[]);
    assert_ne!(found.resource, Resource::Disk, "{found:?}");
    // Held back by something that is not seen, the device moves what is done.
    observer.of.disks[0].written_bytes = 400_000_000;
    let found = verdict(&observer, &[]);
    assert_eq!((found.resource, found.kind), (Resource::Disk, Kind::Unseen), "{found:?}");
    // Changes of names move few bytes, and are waited for at the disk.
    let mut server = server_with_disk(0.9, 0.02);
    server.of.disks[0].read_bytes = 10_000;
    assert_eq!(verdict(&client(0.9), &[server]).resource, Resource::Disk);
}

/// `lab verdicts` said "33.5 MB/s of the 28.0 MB/s it may move".
#[test]
fn a_rate_above_its_limit_says_where_it_comes_from() {
    let mut server = server_with_disk(0.99, 0.1);
    (server.of.disks[0].read_limit, server.of.disks[0].read_bytes) = (Some(28e6), 33_500_000);
    let found = verdict(&client(0.95), &[server]);
    assert_eq!((found.kind, found.direction), (Kind::Allowed, Some(Direction::OutOf)));
    assert!(
        found.text.contains("33.5 MB/s: the 28.0 MB/s it may move, and what was saved up"),
        "{}",
        found.text
    );
}

/// A copy with `--bwlimit` ended with "the program itself: nothing here had to be waited for".
#[test]
fn a_rate_that_was_set_and_waited_for_is_the_limit() {
    let set = |waited| SetRate { what: "--bwlimit", allowed: 1e6, moved: 0.99e6, waited };
    let found = verdict(&client(0.001), &[]).or_set_rate(set(0.95));
    assert_eq!(
        found.line(),
        "limit: the rate set for client by --bwlimit: 990 kB/s of 1.0 MB/s, waited for 95% of the time (99% of its \
         ceiling)"
    );
    assert_eq!((found.resource.name(), found.place.as_str()), ("bandwidth_limit", "client"));
    let disk = verdict(&client(0.95), &[server_with_disk(0.98, 0.99)]);
    assert_eq!(disk.clone().or_set_rate(set(0.6)), disk);
    assert_eq!(verdict(&client(0.001), &[]).or_set_rate(set(0.1)).resource, Resource::Caller);
}

/// A copy from an FTP server whose login took seconds ended with "nothing was asked for".
#[test]
fn a_server_of_another_system_whose_answers_were_waited_for_is_the_limit() {
    let server = "ftp://mirror";
    let found = verdict(&client(0.001), &[]).or_answers_of(server, 0.93);
    assert_eq!(found.line(), "limit: answers of ftp://mirror: waited for 93% of the time");
    assert_eq!((found.resource.name(), found.place.as_str()), ("round_trip", server));
    assert_eq!(verdict(&client(0.001), &[]).or_answers_of(server, 0.1).resource, Resource::Caller);
    let disk = verdict(&client(0.95), &[server_with_disk(0.98, 0.99)]);
    assert_eq!(disk.clone().or_answers_of(server, 0.9), disk);
}

#[test]
fn a_disk_that_writes_back_what_nobody_waits_for_does_not_limit() {
    let found = verdict(&client(0.95), &[server_with_disk(0.1, 1.0)]);
    assert_ne!(found.resource, Resource::Disk, "{found:?}");
}

#[test]
fn a_server_that_nobody_waits_for_is_not_named() {
    let mut scene = client(0.95);
    scene.of.peers.push(Peer { name: "data2".to_owned(), waits: busy(0.05), ..Peer::default() });
    let mut idle = process("data2", Part::Server);
    idle.of.disks = vec![disk(1.0, 1.0)];
    let found = verdict(&scene, &[process("data1", Part::Server), idle]);
    assert_ne!(found.place, "data2", "{found:?}");
}

#[test]
fn a_quota_that_is_used_up_limits_in_the_server_and_in_the_client() {
    let throttle = |change: &mut Change| {
        change.of.cpu.quota = Some(0.1);
        change.of.cpu.periods = 50;
        change.of.cpu.throttled_periods = 45;
    };
    let mut server = process("data1", Part::Server);
    throttle(&mut server);
    let found = verdict(&client(0.9), &[server]);
    assert_eq!((found.resource, found.place.as_str()), (Resource::Cpu, "data1"));
    let mut observer = client(0.9);
    throttle(&mut observer);
    let found = verdict(&observer, &[process("data1", Part::Server)]);
    assert_eq!((found.resource, found.place.as_str(), found.share), (Resource::Cpu, "client", Some(1.0)));
}

#[test]
fn a_full_machine_limits_when_its_processes_want_it() {
    let mut observer = client(0.2);
    observer.of.cpu.used_ns = 3 * SECOND_NS;
    observer.of.cpu.machine_busy_ns = 4 * SECOND_NS;
    let found = verdict(&observer, &[]);
    assert_eq!((found.resource, found.place.as_str()), (Resource::Cpu, "client"));
    assert!(found.text.contains("all 4 processors"), "{}", found.text);
    assert!(!found.by_others && found.text.ends_with("100% busy, 75% with this"), "{}", found.text);
}

/// `./x demo` told a person with an idle machine that other programs kept it busy: the cluster's own servers did, which
/// a `cp` through a mount does not ask.
#[test]
fn servers_and_mounts_of_ours_on_the_machine_are_named_and_no_other_programs() {
    let of_machine = |name: &str, used: f64| {
        let mut change = process(name, Part::Server);
        change.of.machine = "client".to_owned();
        change.of.cpu.used_ns = (used * SECOND_NS as f64) as u64;
        change
    };
    let mut observer = client(0.2);
    observer.of.cpu = Cpu { used_ns: SECOND_NS, delayed_ns: 3 * SECOND_NS, ..observer.of.cpu };
    observer.of.cpu.machine_busy_ns = 4 * SECOND_NS;
    let beside = [of_machine("data1", 1.2), of_machine("meta1+data2", 1.6), of_machine("data3", 0.001)];
    let found = judge(Scene { observer: &observer, servers: &[], beside: &beside });
    assert!(!found.by_others, "{found:?}");
    assert!(found.text.ends_with("100% busy, 95% with meta1+data2, data1, client"), "{}", found.text);
    // One that is asked and watched counts once.
    observer.of.peers[0].name = "data1".to_owned();
    let asked = [of_machine("data1", 1.2)];
    let found = judge(Scene { observer: &observer, servers: &asked, beside: &beside });
    assert!(found.text.ends_with("100% busy, 95% with meta1+data2, data1, client"), "{}", found.text);
}

/// JSON said that the place was `others` where the text named a server.
#[test]
fn a_machine_that_others_keep_full_is_named_after_ours_and_says_so() {
    let mut observer = client(0.2);
    (observer.of.cpu.used_ns, observer.of.cpu.delayed_ns) = (SECOND_NS, 3 * SECOND_NS);
    observer.of.cpu.machine_busy_ns = 4 * SECOND_NS;
    let found = verdict(&observer, &[]);
    assert_eq!((found.place.as_str(), found.by_others), ("client", true));
    assert!(found.text.starts_with("CPU of client: "), "{}", found.text);
    assert!(found.text.ends_with("100% busy, 75% with other programs"), "{}", found.text);
}

#[test]
fn a_link_at_its_stated_rate_limits() {
    let mut observer = client(0.9);
    observer.of.links = vec![Link {
        name: "eth0".to_owned(),
        received_bytes: 120_000_000,
        rate: Some(125e6),
        ..Link::default()
    }];
    let found = verdict(&observer, &[process("data1", Part::Server)]);
    assert_eq!((found.resource, found.place.as_str()), (Resource::Network, "client"));
    assert_eq!(found.share, Some(0.96));
}

#[test]
fn an_answer_that_takes_as_long_as_the_way_is_limited_by_round_trips() {
    let mut observer = client(0.98);
    let peer = &mut observer.of.peers[0];
    peer.in_flight = Occupied { busy_ns: SECOND_NS, total_ns: 2 * SECOND_NS, events: 40 };
    peer.service_ns = SECOND_NS / 100;
    peer.connections[0].rtt_min_us = 48_000;
    let found = verdict(&observer, &[]);
    assert_eq!((found.resource, found.place.as_str()), (Resource::RoundTrip, "data1"));
    assert!(found.text.starts_with("network to data1: one stream limited by its window"), "{}", found.text);
    assert_eq!(found.kind, Kind::Window);
}

/// Creates over a long way were called "8 streams, each limited by its window (0 KiB / 40.1 ms)".
#[test]
fn small_requests_that_follow_one_another_are_not_limited_by_a_window() {
    let mut observer = client(0.98);
    let peer = &mut observer.of.peers[0];
    let waits = Occupied { busy_ns: SECOND_NS, total_ns: 8 * SECOND_NS, events: 200 };
    (peer.in_flight, peer.waits, peer.service_ns) = (waits, waits, SECOND_NS / 100);
    let of = |id| Connection { id, sent_bytes: 5_000, rtt_min_us: 40_100, ..Connection::default() };
    peer.connections = (1..=8).map(of).collect();
    let found = verdict(&observer, &[]);
    assert_eq!((found.resource, found.kind), (Resource::RoundTrip, Kind::OneAtATime));
    let text = "network to data1: 8 answers are waited for at a time, and each takes as long as the round trip of 40.1 ms";
    assert_eq!(found.text, text);
}

/// `lab verdicts` was content with "network into data1" for a read, which comes out of it.
#[test]
fn the_direction_of_a_link_is_that_of_the_bytes() {
    let with_link = |change: &mut Change, received_bytes, sent_bytes| {
        let rate = Some(125e6);
        change.of.links =
            vec![Link { name: "eth0".to_owned(), received_bytes, sent_bytes, rate, ..Link::default() }];
    };
    let mut server = process("data1", Part::Server);
    with_link(&mut server, 1_000_000, 124_000_000);
    let read = verdict(&client(0.9), &[server.clone()]);
    assert_eq!((read.place.as_str(), read.direction), ("data1", Some(Direction::OutOf)), "{read:?}");
    assert!(read.text.starts_with("network out of data1"), "{}", read.text);
    with_link(&mut server, 124_000_000, 1_000_000);
    let mut writer = client(0.9);
    (writer.of.peers[0].connections[0].sent_bytes, writer.of.peers[0].connections[0].received_bytes) =
        (1 << 20, 9);
    let written = verdict(&writer, &[server]);
    assert_eq!((written.place.as_str(), written.direction), ("data1", Some(Direction::Into)), "{written:?}");
    // Of a server that says nothing only this end is known: what comes in does not go out.
    let mut reader = client(0.9);
    with_link(&mut reader, 124_000_000, 120_000_000);
    let read = verdict(&reader, &[]);
    assert_eq!((read.place.as_str(), read.direction), ("client", Some(Direction::Into)), "{read:?}");
}

/// Seen when a client began to ask for more at once over long links: answers waited behind one another for the sender's
/// window, took three times the round trip, and nothing was conclusive.
#[test]
fn answers_that_wait_for_the_window_of_a_free_way_are_limited_by_round_trips() {
    let mut observer = client(0.98);
    let peer = &mut observer.of.peers[0];
    peer.in_flight = Occupied { busy_ns: SECOND_NS, total_ns: 58 * SECOND_NS / 10, events: 50 };
    peer.service_ns = SECOND_NS / 100;
    peer.connections[0].rtt_min_us = 40_000;
    let named = |rtt_us| {
        let sent = Connection { id: 1, sent_bytes: 1 << 20, rtt_us, ..Connection::default() };
        let mut server = process("data1", Part::Server);
        server.of.peers =
            vec![Peer { address: "10.0.0.9".to_owned(), connections: vec![sent], ..Peer::default() }];
        verdict(&observer, &[server]).resource
    };
    assert_eq!(named(41_000), Resource::RoundTrip);
    assert_ne!(named(100_000), Resource::RoundTrip, "what queues on the way waits for the way");
}

/// Seen with four threads writing over a link of 100 Mb/s: they blocked in `send`, and the program was blamed.
#[test]
fn standing_still_until_a_request_can_be_handed_over_is_waiting_too() {
    let mut observer = client(0.1);
    observer.of.peers[0].credit = busy(0.9);
    let found = verdict(&observer, &[server_with_disk(0.98, 0.99)]);
    assert_eq!((found.resource, found.place.as_str()), (Resource::Disk, "data1"));
}

/// Seen with a client of a tenth of a processor: what it did not fetch stayed under way, and the network was blamed.
#[test]
fn a_way_that_seems_full_because_an_end_is_throttled_is_not_named() {
    let mut observer = client(0.9);
    observer.of.peers[0].service_ns = SECOND_NS / 100;
    let mut server = process("data1", Part::Server);
    let sent =
        Connection { id: 1, sent_bytes: 1 << 20, busy_us: 990_000, rtt_us: 900, ..Connection::default() };
    server.of.peers =
        vec![Peer { address: "10.0.0.9".to_owned(), connections: vec![sent], ..Peer::default() }];
    let servers = [server];
    assert_eq!(verdict(&observer, &servers).resource, Resource::Network);
    // Seen with random reads over loopback: what waited for a processor seemed to wait to get through.
    let mut within = observer.clone();
    within.of.peers[0].local = "10.0.0.1".to_owned();
    assert_ne!(verdict(&within, &servers).resource, Resource::Network);
    observer.of.cpu = Cpu { quota: Some(0.1), periods: 50, throttled_periods: 48, ..observer.of.cpu };
    let found = verdict(&observer, &servers);
    assert_eq!((found.resource, found.place.as_str()), (Resource::Cpu, "client"));
}

#[test]
fn nothing_done_is_idle_and_a_program_that_never_waits_limits_itself() {
    let mut idle = process("client", Part::Client);
    idle.of.cpu.used_ns = 0;
    assert_eq!(verdict(&idle, &[]).resource, Resource::Idle);
    // `top` called a metadata service that did nothing but renew sessions limited by the program itself.
    idle.of.work.operations = (idle.seconds * 2.0) as u64;
    idle.of.waits.busy_ns = 1;
    assert_eq!(verdict(&idle, &[]).resource, Resource::Idle);
    // One answer that never comes is no idleness.
    idle.of.waits.busy_ns = (idle.seconds * 1e9) as u64;
    assert_ne!(verdict(&idle, &[]).resource, Resource::Idle);
    let caller = verdict(&client(0.05), &[]);
    assert_eq!(caller.resource, Resource::Caller);
    assert_eq!(caller.text, "the program itself: here it had to be waited for only 5% of the time");
    assert!(verdict(&client(0.001), &[]).text.ends_with("nothing here had to be waited for"));
    assert_eq!(verdict(&Change::default(), &[]).resource, Resource::Unknown);
}

#[test]
fn when_nothing_is_conclusive_it_says_so() {
    let found = verdict(&client(0.9), &[server_with_disk(0.3, 0.3)]);
    assert_eq!(found.resource, Resource::Unknown);
    assert!(found.text.contains("nearest"), "{}", found.text);
}

prop_compose! {
    fn any_scene()(
        waits in 0.0f64..1.0, disk_waits in 0.0f64..1.0, device in 0.0f64..1.0, used in 0.0f64..4.0,
        machine in 0.0f64..4.0, quota in proptest::option::of(0.05f64..2.0), throttled in 0u64..50,
        rtt_us in 0u32..100_000, received in 0u64..1 << 30, rate in proptest::option::of(1e6f64..1e10),
    ) -> (Change, Change) {
        let mut observer = client(waits);
        observer.of.peers[0].connections[0].rtt_min_us = rtt_us;
        observer.of.links =
            vec![Link { name: "eth0".to_owned(), received_bytes: received, rate, ..Link::default() }];
        let mut server = server_with_disk(disk_waits, device);
        server.of.cpu.used_ns = (used * SECOND_NS as f64) as u64;
        server.of.cpu.machine_busy_ns = (machine.max(used) * SECOND_NS as f64) as u64;
        (server.of.cpu.quota, server.of.cpu.periods) = (quota, 50);
        server.of.cpu.throttled_periods = throttled;
        (observer, server)
    }
}

proptest! {
    #[test]
    fn the_same_scene_gives_the_same_verdict_and_scores_are_shares((observer, server) in any_scene()) {
        let servers = [server];
        let found = verdict(&observer, &servers);
        prop_assert_eq!(&found, &verdict(&observer, &servers));
        prop_assert!((0.0..=1.0).contains(&found.score));
        prop_assert!(found.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        // JSON and text name the same place.
        let has_place = !matches!(found.resource, Resource::Caller | Resource::Idle | Resource::Unknown);
        prop_assert!(!has_place || found.text.contains(&found.place), "{:?}", found);
    }

    #[test]
    fn a_disk_that_moved_nothing_is_never_named((observer, mut server) in any_scene()) {
        server.of.disks[0].read_bytes = 0;
        prop_assert_ne!(verdict(&observer, &[server]).resource, Resource::Disk);
    }

    #[test]
    fn more_of_what_limits_does_not_clear_it((observer, server) in any_scene(), more in 0.0f64..1.0) {
        let mut servers = [server];
        if verdict(&observer, &servers).resource == Resource::Disk {
            let disk = &mut servers[0].of.disks[0];
            let grow = |ns: u64| ns + (more * (SECOND_NS - ns.min(SECOND_NS)) as f64) as u64;
            disk.device_busy_ns = grow(disk.device_busy_ns);
            disk.waits.busy_ns = grow(disk.waits.busy_ns);
            prop_assert_eq!(verdict(&observer, &servers).resource, Resource::Disk);
        }
    }

    #[test]
    fn a_server_that_was_not_waited_for_is_never_named((mut observer, server) in any_scene()) {
        observer.of.waits = Occupied::default();
        observer.of.peers[0].waits = Occupied::default();
        // Its machine may be the observer's own; here it is not.
        observer.of.machine = "other".to_owned();
        let found = verdict(&observer, &[server]);
        prop_assert!(found.place != "data1" || found.text.contains("processors of its machine"), "{:?}", found);
    }
}
