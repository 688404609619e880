//! Machines whose clocks drift, are set, and stand still.

use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_sim::clock::{Pause, RATE_PPM_MAX};
use vazao_sim::network::{End, Machine};
use vazao_sim::{Cluster, ClusterOptions};
use vazao_wire::transport::{Transport, call};
use vazao_wire::{op, proto};

fn cluster() -> Cluster {
    Cluster::new(ClusterOptions { seed: 1, data_servers: 3, down_ms_max: 500 })
}

/// A server asks another one and waits for a second, by its own clock.
fn ask(cluster: &Cluster, from: usize, address: &str) -> Result<(), Code> {
    let endpoint = cluster.endpoint(from);
    let deadline_ns = endpoint.clock().now_ns() + 1_000_000_000;
    let asked = call::<op::Ping>(&*endpoint, address, &proto::PingRequest::default(), deadline_ns);
    asked.map(drop).map_err(|fault| fault.code)
}

#[test]
fn each_machine_counts_at_a_rate_of_its_own_and_waits_by_its_own_clock() {
    let cluster = cluster();
    cluster.let_clocks_drift();
    let client = cluster.client(0);
    let machines = [Machine::Server(0), Machine::Server(1), Machine::Server(2), Machine::Client(0)];
    let shown = || machines.map(|machine| cluster.clock_of(machine).now_ns());
    let (before, before_ns) = (shown(), cluster.clock().now_ns());
    cluster.clock().sleep(Duration::from_secs(100));
    let passed_ns = cluster.clock().now_ns() - before_ns;
    let drifts: Vec<i64> =
        shown().iter().zip(before).map(|(now, before)| (now - before) as i64 - passed_ns as i64).collect();
    let allowed_ns = passed_ns as i64 / 1_000_000 * RATE_PPM_MAX;
    assert!(drifts.iter().all(|drift| (-allowed_ns..=allowed_ns).contains(drift)), "{drifts:?}");
    assert!(drifts.iter().any(|drift| *drift != drifts[0]), "all have the same rate: {drifts:?}");
    client.tick().expect("its session goes on");
    for number in 1..=3 {
        cluster.pause(0, Pause::Stopped, Duration::from_secs(10));
        cluster.clock().sleep(Duration::from_millis(1));
        let clock = cluster.clock_of(Machine::Server(number));
        let before_ns = clock.now_ns();
        assert_eq!(ask(&cluster, number, "meta:7070"), Err(Code::Timeout));
        let waited_ns = clock.now_ns() - before_ns;
        assert!((1_000_000_000..1_000_000_010).contains(&waited_ns), "server {number}: {waited_ns}");
        cluster.heal();
    }
}

#[test]
fn a_machine_that_stands_still_answers_nothing_and_goes_on_as_it_was() {
    for pause in [Pause::Stopped, Pause::Suspended, Pause::Frozen] {
        let cluster = cluster();
        let clock = cluster.clock_of(Machine::Server(1));
        let before_ns = clock.now_ns();
        cluster.pause(1, pause, Duration::from_secs(5));
        cluster.clock().sleep(Duration::from_secs(2));
        assert_eq!(ask(&cluster, 2, "data1:7070"), Err(Code::Timeout), "{pause:?}");
        assert_eq!(clock.now_ns() == before_ns, pause != Pause::Stopped, "{pause:?}");
        cluster.clock().sleep(Duration::from_secs(3));
        assert_eq!(ask(&cluster, 2, "data1:7070"), Ok(()), "{pause:?}");
    }
}

#[test]
fn no_server_starts_on_a_machine_that_stands_still() {
    let cluster = cluster();
    cluster.pause(0, Pause::Frozen, Duration::from_secs(60));
    cluster.end(0, End::Kill);
    cluster.clock().sleep(Duration::from_secs(50));
    assert!(cluster.meta().is_none());
    cluster.clock().sleep(Duration::from_secs(30));
    assert!(cluster.meta().is_some());
}

/// Servers are silent after 10 s, by whatever date.
#[test]
fn a_date_that_is_set_silences_no_server() {
    let cluster = cluster();
    let client = cluster.client(0);
    for (machine, by_ms) in [(Machine::Server(0), 86_400_000), (Machine::Server(1), -86_400_000)] {
        cluster.clock_of(machine).set_wall(by_ms);
        let map = client.refresh_map().expect("answered");
        assert!(map.nodes.iter().all(|node| node.silent_ms < 10_000), "{map:?}");
        cluster.clock().sleep(Duration::from_secs(3));
    }
}
