//! What is known to be out fails at once, what may only be late is waited for, and what is back is found.

use super::*;
use crate::{Error, OpenMode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::inline::Fate;
use vazao_wire::service::Fault;

const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };

/// A cluster of one data server with a file on it, and a client that has never read it.
fn cluster_with_file() -> (Cluster, u64) {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "f");
    file.write_at(&pattern(1, 3 * UNIT as usize), 0).unwrap();
    file.close().unwrap();
    let inode = client.lookup(ROOT, b"f").unwrap().inode.0;
    (cluster, inode)
}

impl Cluster {
    /// What the metadata service says of the only data server from now on.
    fn say_silent(&self, silent_ms: u64) {
        let node = &mut self.meta.state.lock().map.nodes[0];
        (node.state, node.silent_ms) = (if silent_ms < 10_000 { 1 } else { 2 }, silent_ms);
    }

    /// The same of its target.
    fn say_target(&self, state: u32, trouble: &str) {
        let target = &mut self.meta.state.lock().map.targets[0];
        (target.state, target.trouble) = (state, trouble.to_owned());
    }

    fn read(&self, client: &Client, inode: u64) -> (Result<usize, Error>, f64) {
        let started_ns = self.clock.now_ns();
        let file = client.open_file(vazao_model::InodeId(inode), READ).unwrap();
        let read = file.read_at(&mut [0; 1000], 0);
        (read, (self.clock.now_ns() - started_ns) as f64 / 1e9)
    }
}

/// `cat` of a file on a server that had been dead for long took 30 s to say so, each time.
#[test]
fn a_server_that_has_been_dead_for_long_fails_at_once_and_is_found_when_it_is_back() {
    let (cluster, inode) = cluster_with_file();
    cluster.say_silent(45_000);
    cluster.transport.stop("data:1");
    let client = cluster.client();
    for _ in 0..3 {
        let (read, seconds) = cluster.read(&client, inode);
        let error = read.expect_err("dead");
        assert_eq!(error.code, Code::Unreachable);
        assert!(error.to_string().contains("has not reported for 45 s"), "{error}");
        assert!(seconds < 0.1, "{seconds}");
    }
    cluster.transport.serve("data:1", Arc::clone(&cluster.data[0]) as Arc<dyn Service>);
    cluster.say_silent(0);
    cluster.clock.advance(Duration::from_secs(1));
    assert_eq!(cluster.read(&client, inode).0.expect("is back"), 1000);
}

/// For two seconds after a start of the metadata service, the state that it had recorded ended calls whose target was
/// back.
#[test]
fn a_state_of_before_the_metadata_service_started_ends_no_call() {
    let (cluster, inode) = cluster_with_file();
    let client = cluster.client();
    cluster.say_target(5, "/disk1 holds no target");
    cluster.meta.state.lock().map.targets[0].is_unreported = true;
    cluster.data[0].fail_next(Method::Read, Code::Unavailable, 3);
    cluster.data[0].fail_next(Method::Read, Code::WrongTarget, 5);
    assert_eq!(cluster.read(&client, inode).0.expect("is back"), 1000);
    // Its server says the same: now it is known.
    cluster.meta.state.lock().map.targets[0].is_unreported = false;
    cluster.clock.advance(Duration::from_secs(1));
    cluster.data[0].fail_next(Method::Read, Code::WrongTarget, 1);
    assert_eq!(cluster.read(&client, inode).0.expect_err("missing").code, Code::TargetFailed);
}

#[test]
fn a_server_that_may_be_back_within_the_deadline_is_waited_for() {
    let (cluster, inode) = cluster_with_file();
    cluster.say_silent(12_000);
    let client = cluster.client();
    let asked = AtomicUsize::new(0);
    cluster.transport.set_fates(Some(Box::new(move |_, method| {
        let is_down = method == Method::Read && asked.fetch_add(1, Ordering::Relaxed) < 12;
        if is_down { Fate::BreakBefore } else { Fate::Deliver }
    })));
    let (read, seconds) = cluster.read(&client, inode);
    assert_eq!(read.expect("a delay"), 1000);
    assert!(seconds > 1.0, "{seconds}");
}

/// A hung server is given half of the deadline at first; it counts as lost before that is over.
#[test]
fn a_hung_server_is_waited_for_until_it_counts_as_lost_and_no_longer() {
    let (cluster, inode) = cluster_with_file();
    cluster.say_silent(20_000);
    let client = cluster.client();
    let (meta, clock) = (Arc::clone(&cluster.meta), Arc::clone(&cluster.clock));
    let started_ns = clock.now_ns();
    cluster.transport.set_fates(Some(Box::new(move |_, method| {
        if method == Method::GetClusterMap {
            let waited_ms = (clock.now_ns() - started_ns) / 1_000_000;
            meta.state.lock().map.nodes[0].silent_ms = 20_000 + waited_ms;
        }
        if method == Method::Read { Fate::LoseRequest } else { Fate::Deliver }
    })));
    let (read, seconds) = cluster.read(&client, inode);
    assert_eq!(read.expect_err("hangs").code, Code::Unreachable);
    assert!((9.9..12.0).contains(&seconds), "{seconds}");
    let (read, seconds) = cluster.read(&client, inode);
    assert!(read.is_err() && seconds < 0.1, "and from then on at once: {seconds}");
}

/// A file on a target that its server did not have any more took 30 s to fail, with EAGAIN.
#[test]
fn a_target_that_does_not_serve_fails_at_once_with_its_cause_and_is_not_asked_meanwhile() {
    let (cluster, inode) = cluster_with_file();
    let client = cluster.client();
    cluster.say_target(5, "/disk1 holds no target");
    cluster.data[0].fail_next(Method::Read, Code::WrongTarget, 1);
    let (read, seconds) = cluster.read(&client, inode);
    let error = read.expect_err("missing");
    assert_eq!((error.code, error.errno()), (Code::TargetFailed, 5));
    assert!(error.to_string().contains("t1 of n1 is missing: /disk1 holds no target"), "{error}");
    assert!(seconds < 0.1, "{seconds}");
    let (asked, maps) = (cluster.data[0].count(Method::Read), cluster.meta.count(Method::GetClusterMap));
    for _ in 0..20 {
        assert!(cluster.read(&client, inode).0.is_err());
    }
    assert_eq!(cluster.data[0].count(Method::Read), asked, "what is known is not asked again");
    assert_eq!(cluster.meta.count(Method::GetClusterMap), maps, "nor is the map, within a second");
    cluster.say_target(1, "");
    cluster.clock.advance(Duration::from_secs(1));
    assert_eq!(cluster.read(&client, inode).0.expect("is back"), 1000);
}

#[test]
fn a_server_that_only_the_metadata_service_cannot_hear_is_read_from() {
    let (cluster, inode) = cluster_with_file();
    cluster.say_silent(100_000);
    let client = cluster.client();
    assert_eq!(cluster.read(&client, inode).0.expect("it answers here"), 1000);
}

/// A metadata service that came back with an empty directory was taken for the old one: a mount showed another volume
/// under the inode numbers that were open in it.
#[test]
fn a_metadata_service_with_another_volume_is_not_believed() {
    let (cluster, _) = cluster_with_file();
    let client = cluster.client();
    cluster.meta.state.lock().map.cluster_id = 8;
    cluster.meta.forget_sessions();
    let error = client.lookup(ROOT, b"f").and_then(|_| client.tick()).expect_err("another volume");
    assert_eq!(error.code, Code::Stale);
    assert!(error.to_string().contains("0000000000000008"), "{error}");
}

/// A whole cluster restarted under a mount: its data servers had not been told their groups yet and sent callers for
/// the map, and the metadata service, which was not up yet either, ended their calls after a second of the thirty they
/// had.
#[test]
fn a_map_that_cannot_be_had_ends_no_call_that_has_time_left() {
    let (cluster, inode) = cluster_with_file();
    let client = cluster.client();
    let file = client.open_file(vazao_model::InodeId(inode), READ).unwrap();
    cluster.transport.stop(META);
    assert!(client.refresh_map().is_err(), "calls after this one are given a second");
    cluster.data[0].fail_next(Method::Read, Code::WrongTarget, 1_000_000);
    let started_ns = cluster.clock.now_ns();
    let error = file.read_at(&mut [0; 1000], 0).expect_err("it is nowhere");
    let seconds = (cluster.clock.now_ns() - started_ns) as f64 / 1e9;
    assert_eq!(error.code, Code::WrongTarget);
    assert!((29.9..31.0).contains(&seconds), "{seconds}");
    assert!(error.to_string().contains("there is no newer map: metadata service (meta:1)"), "{error}");
    cluster.data[0].fail_no_more();
    cluster.data[0].fail_next(Method::Read, Code::WrongTarget, 6);
    assert_eq!(file.read_at(&mut [0; 1000], 0).expect("the old map is right"), 1000);
}

/// Every attempt of every caller at a server that had not been told of its groups asked for the whole map, although no
/// newer one was to be had: just when everything had restarted.
#[test]
fn a_server_that_is_behind_is_waited_for_and_one_that_is_ahead_has_the_map_asked_for() {
    let (cluster, inode) = cluster_with_file();
    let client = cluster.client();
    let maps_asked_for = |epoch: u64| {
        let before = cluster.meta.count(Method::GetClusterMap);
        let fault = Fault::new(Code::WrongTarget, "placement group").as_of(epoch);
        cluster.data[0].fail_next_with(Method::Read, &fault, 6);
        assert_eq!(cluster.read(&client, inode).0.expect("it is there at last"), 1000);
        cluster.meta.count(Method::GetClusterMap) - before
    };
    let epoch = cluster.meta.state.lock().map.epoch;
    assert_eq!(maps_asked_for(epoch), 0, "the client knows of no older membership than the server");
    cluster.meta.state.lock().map.epoch = epoch + 1;
    assert_eq!(maps_asked_for(epoch + 1), 1, "and then it knows of the same");
    assert_eq!(maps_asked_for(epoch), 0, "of a newer one");
    assert!(maps_asked_for(0) > 1, "a server that does not say");
}

/// A server that was killed found its port taken and moved: the program that had the port, of another cluster, answered
/// those who had the old map, and they took that as final.
#[test]
fn another_program_at_the_address_of_a_server_is_final_only_once_the_server_is_known_to_be_there() {
    let (cluster, inode) = cluster_with_file();
    cluster.say_silent(5_000);
    let client = cluster.client();
    let stranger = Arc::new(fake_data::FakeData::default());
    stranger.fail_next(Method::Read, Code::Unauthenticated, 1_000_000);
    cluster.transport.serve("data:1", stranger);
    cluster.transport.serve("data:9", Arc::clone(&cluster.data[0]) as Arc<dyn Service>);
    let (meta, maps) = (Arc::clone(&cluster.meta), AtomicUsize::new(0));
    cluster.transport.set_fates(Some(Box::new(move |_, method| {
        let is_map = method == Method::GetClusterMap;
        if is_map && maps.fetch_add(1, Ordering::Relaxed) == 4 {
            meta.state.lock().map.nodes[0].address = "data:9".into();
        }
        Fate::Deliver
    })));
    let (read, seconds) = cluster.read(&client, inode);
    assert_eq!(read.expect("found where it is now"), 1000);
    assert!(seconds < 5.0, "{seconds}");
    // It has reported from there: the key is another one for good.
    cluster.transport.set_fates(None);
    cluster.say_silent(0);
    let again = cluster.client();
    let stranger = Arc::new(fake_data::FakeData::default());
    stranger.fail_next(Method::Read, Code::Unauthenticated, 1_000_000);
    cluster.transport.serve("data:9", stranger);
    let (read, seconds) = cluster.read(&again, inode);
    assert_eq!(read.expect_err("refused").code, Code::Unauthenticated);
    assert!(seconds < 2.0, "{seconds}");
}
