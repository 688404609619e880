//! Ways into a server on the same machine.

use super::socket;
use super::tests::serve;
use super::{Server, TcpTransport, TransportOptions};
use crate::key::ClusterKey;
use crate::operation::op;
use crate::transport::{Transport, call};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_meter::{Clock, SystemClock};

fn transport(key: &ClusterKey, local: bool) -> Arc<TcpTransport> {
    let options = TransportOptions { local, ..TransportOptions::default() };
    TcpTransport::new(key.clone(), options, Arc::new(SystemClock))
}

fn ping(transport: &TcpTransport, server: &Server) {
    let (address, deadline_ns) = (server.address().to_string(), SystemClock.now_ns() + 20_000_000_000);
    call::<op::Ping>(transport, &address, &Default::default(), deadline_ns).expect("answered");
}

fn key() -> ClusterKey {
    ClusterKey::generate().expect("randomness")
}

#[test]
fn all_threads_of_a_client_on_the_servers_machine_go_in_by_its_entrances() {
    let key = key();
    let mut server = serve(&key);
    server.open_entrances().expect("nobody else has this port's names");
    let transport = transport(&key, true);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| (0..50).for_each(|_| ping(&transport, &server)));
        }
    });
    assert!(transport.peers().is_empty(), "no connection over TCP stays: {:?}", transport.peers());
}

#[test]
fn a_client_that_shall_not_or_cannot_go_in_comes_over_tcp() {
    let key = key();
    let mut server = serve(&key);
    let before = transport(&key, true);
    ping(&before, &server);
    assert_eq!(before.peers().len(), 1, "there is no entrance yet");
    server.open_entrances().expect("nobody else has this port's names");
    let told_not_to = transport(&key, false);
    ping(&told_not_to, &server);
    assert_eq!(told_not_to.peers().len(), 1);
}

/// Any process can take a name in the abstract namespace first: that must cost a moment, not the service.
#[test]
fn whoever_sits_at_the_entrance_without_being_the_server_is_passed_by() {
    let (key, other_key) = (key(), key());
    let server = serve(&key);
    let silent: Vec<_> = (0..socket::entrances())
        .map(|number| socket::open_entrance(server.address(), number).expect("free"))
        .collect();
    let transport_to_silent = transport(&key, true);
    ping(&transport_to_silent, &server);
    assert_eq!(transport_to_silent.peers().len(), 1);
    drop((silent, server));
    let mut impostor = serve(&other_key);
    impostor.open_entrances().expect("nobody else has this port's names");
    let (address, deadline_ns) = (impostor.address().to_string(), SystemClock.now_ns() + 20_000_000_000);
    let refused = call::<op::Ping>(&*transport(&key, true), &address, &Default::default(), deadline_ns);
    assert_eq!(refused.expect_err("it has another key").code, vazao_model::Code::Unauthenticated);
}

#[test]
fn a_server_with_fewer_cores_than_its_client_is_entered_all_the_same() {
    let server = serve(&key());
    let _entrance = socket::open_entrance(server.address(), 0).expect("free");
    let stream = std::net::TcpStream::connect(server.address()).expect("connects");
    assert!(socket::enter(&stream, 5).is_some());
}

#[test]
fn a_server_that_starts_again_is_found_by_clients_that_came_by_its_entrances() {
    let key = key();
    let mut server = serve(&key);
    server.open_entrances().expect("nobody else has this port's names");
    let transport = transport(&key, true);
    ping(&transport, &server);
    let address = server.address().to_string();
    drop(server);
    let ask = || {
        let deadline_ns = SystemClock.now_ns() + 20_000_000_000;
        call::<op::Ping>(&*transport, &address, &Default::default(), deadline_ns)
    };
    ask().expect_err("it is gone");
    let server = super::tests::serve_at(&address, &key);
    // The connection that is known to have ended may be found out about by the first call only.
    ask().or_else(|_| ask()).expect("it is back");
    drop(server);
}

/// A clock that advances ten milliseconds at each reading, so that every server seems to be far away.
#[derive(Default)]
struct Slow(AtomicU64);

impl Clock for Slow {
    fn now_ns(&self) -> u64 {
        SystemClock.now_ns() + self.0.fetch_add(10_000_000, Ordering::Relaxed)
    }

    fn wall_ns(&self) -> u64 {
        SystemClock.wall_ns()
    }

    fn sleep(&self, time: std::time::Duration) {
        SystemClock.sleep(time);
    }
}

/// A busy machine's own server took longer to greet than one far away: the thread that then received from it stayed
/// with its connection for good.
#[test]
fn a_way_in_that_took_long_is_let_go_of_when_the_client_is_closed() {
    let key = key();
    let mut server = serve(&key);
    server.open_entrances().expect("nobody else has this port's names");
    let options = TransportOptions { connect_ms_max: 20_000, ..TransportOptions::default() };
    let transport = TcpTransport::new(key, options, Arc::new(Slow::default()));
    let peer = transport.peer(&server.address().to_string());
    let wait_until = |so: &dyn Fn() -> bool| {
        let deadline_ns = SystemClock.now_ns() + 10_000_000_000;
        while !so() && SystemClock.now_ns() < deadline_ns {
            SystemClock.sleep(std::time::Duration::from_millis(10));
        }
        so()
    };
    // The first says that there is a way in, the second has it taken.
    ping(&transport, &server);
    ping(&transport, &server);
    assert!(wait_until(&|| peer.local_links().next().is_some()));
    let strong = peer.local_links().next().expect("it went in");
    assert!(strong.round_trip_ns() > super::ahead::FAR_NS);
    let link = Arc::downgrade(&strong);
    drop((transport, peer, strong));
    assert!(wait_until(&|| link.upgrade().is_none()), "the connection stays");
}
