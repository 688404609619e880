//! Shares of a line, and what is paced over real sockets.

use super::lines::*;
use super::peer::Place;
use super::tests::{serve, within_ms};
use super::{TcpTransport, TransportOptions, pacing};
use crate::key::ClusterKey;
use crate::operation::op;
use crate::proto;
use crate::transport::{Line, Transport, submit};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_meter::SystemClock;

const RATE: u64 = 1_000_000_000;

fn transport(key: &ClusterKey) -> Arc<TcpTransport> {
    let options = TransportOptions { local: false, ..TransportOptions::default() };
    TcpTransport::new(key.clone(), options, Arc::new(SystemClock))
}

fn line(addresses: &[&str]) -> Line {
    let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
    Line { name: "bra".to_owned(), addresses, send: RATE, receive: RATE / 2 }
}

fn write(transport: &TcpTransport, address: &str, bytes: usize) {
    let sent =
        submit::<op::Write>(transport, address, &Default::default(), &vec![7; bytes], within_ms(20_000));
    assert_eq!(sent.wait().expect("written").0.object_length, bytes as u64);
}

fn read(transport: &TcpTransport, address: &str, length: u32) {
    let request = proto::ReadRequest { length, ..Default::default() };
    // What it answers does not matter here.
    let _ = submit::<op::Read>(transport, address, &request, &[], within_ms(20_000)).wait();
}

/// What this end of each connection to a server sends at most; `None`: there is none in that place.
fn paces(transport: &TcpTransport, address: &str) -> Vec<Option<u64>> {
    let peer = transport.peer(address);
    let pace = |place: &Place| pacing::get(place.usable()?.socket().tcp()?);
    peer.links.iter().chain([&peer.bulk]).map(pace).collect()
}

#[test]
fn only_bulk_beyond_a_line_is_paced_and_has_a_connection_of_its_own() {
    let key = ClusterKey::generate().expect("randomness");
    let (server, other) = (serve(&key), serve(&key));
    let (address, near) = (server.address().to_string(), other.address().to_string());
    let transport = transport(&key);
    transport.set_lines(&[line(&[&address])]);
    write(&transport, &address, BULK_BYTES as usize);
    write(&transport, &near, 1 << 20);
    let bulk = transport.peer(&address).links.len();
    assert_eq!(paces(&transport, &address)[bulk], None, "nothing was bulk yet");
    write(&transport, &address, BULK_BYTES as usize + 1);
    let paced = paces(&transport, &address);
    assert_eq!(paced[bulk], Some(RATE));
    assert!(paced[..bulk].iter().flatten().all(|pace| *pace == UNPACED), "{paced:?}");
    assert!(paces(&transport, &near).iter().flatten().all(|pace| *pace == UNPACED));
}

#[test]
fn a_line_is_used_until_all_that_was_asked_for_should_have_passed() {
    let key = ClusterKey::generate().expect("randomness");
    let peer = transport(&key).peer("192.0.2.1:1") as Arc<dyn Beyond>;
    let paced = PacedLine::new("bra");
    paced.set_rates(&Line { send: 1000, receive: 500, ..Line::default() });
    let bulk = Bulk { send_bytes: 2000, receive_bytes: 500 };
    assert_eq!(paced.enter(&peer, bulk, 0), Pace { send: 1000, receive: 500 });
    let used = |now_ns| paced.used(now_ns).map(|used| (used.sent, used.received));
    assert_eq!(used(999_999_999), Some((true, true)));
    assert_eq!(used(1_000_000_000), Some((true, false)));
    assert_eq!(used(2_000_000_000), None);
}

#[test]
fn a_server_is_asked_to_send_no_faster_than_the_line_and_answers_as_ever() {
    let key = ClusterKey::generate().expect("randomness");
    let server = serve(&key);
    let address = server.address().to_string();
    let transport = transport(&key);
    transport.set_lines(&[line(&[&address])]);
    read(&transport, &address, 1 << 20);
    let link = transport.peer(&address).bulk.usable().expect("connected");
    assert_eq!(link.paced(), Pace { send: UNPACED, receive: RATE / 2 });
    assert!(link.is_usable() && link.has_receiver());
    // The same connection goes on, and no request was taken for the pace.
    write(&transport, &address, 1 << 20);
    assert!(link.is_usable());
    assert_eq!(server.paces(), [RATE / 2]);
}

#[test]
fn servers_that_are_sent_to_at_the_same_time_share_the_line_until_one_rests() {
    let key = ClusterKey::generate().expect("randomness");
    let transport = transport(&key);
    let [a, b] = ["192.0.2.1:1", "192.0.2.2:1"].map(|address| transport.peer(address));
    let way = Way::default();
    way.bytes_per_s.store(1000, Ordering::Relaxed);
    let [a, b] = [a, b].map(|peer| peer as Arc<dyn Beyond>);
    let enter = |peer: &Arc<dyn Beyond>, bytes, now_ns| {
        let changed = way.enter(peer, bytes, now_ns).len();
        (way.share_now(peer), changed)
    };
    assert_eq!(enter(&a, 1000, 0), (1000, 1));
    assert_eq!(enter(&a, 1000, 0), (1000, 0), "nothing has changed");
    assert_eq!(enter(&b, 100, 0), (500, 2));
    assert_eq!((way.share_now(&a), way.share_now(&b)), (500, 500));
    // What `a` was asked for takes 2 s; a second later it has no share any more, where nothing else was asked for.
    let over_ns = 2_000_000_000 + REST_NS;
    assert_eq!(enter(&b, 10_000, over_ns - 1), (500, 0));
    assert_eq!(enter(&b, 10_000, over_ns), (1000, 1));
    assert_eq!(way.share_now(&a), UNPACED);
    drop(b);
}

#[test]
fn a_line_that_is_none_any_more_paces_nothing() {
    let key = ClusterKey::generate().expect("randomness");
    let server = serve(&key);
    let address = server.address().to_string();
    let transport = transport(&key);
    transport.set_lines(&[line(&[&address])]);
    write(&transport, &address, 1 << 20);
    let slower = Line { send: RATE / 4, ..line(&[&address]) };
    transport.set_lines(&[slower]);
    let bulk = transport.peer(&address).links.len();
    assert_eq!(paces(&transport, &address)[bulk], Some(RATE / 4));
    transport.set_lines(&[]);
    assert_eq!(paces(&transport, &address)[bulk], Some(UNPACED));
    write(&transport, &address, 1 << 20);
    assert_eq!(paces(&transport, &address)[bulk], Some(UNPACED));
    // A server that has left a line which stays is paced by it no more.
    transport.set_lines(&[line(&[&address])]);
    write(&transport, &address, 1 << 20);
    assert_eq!(paces(&transport, &address)[bulk], Some(RATE));
    transport.set_lines(&[line(&[])]);
    assert_eq!(paces(&transport, &address)[bulk], Some(UNPACED));
}

/// Bulk that waited for its turn beyond its deadline broke the connection, with all that was under way on it. So did
/// bulk that had its turn, where the kernel had taken all of the one before it, four seconds ahead.
#[test]
fn a_request_whose_time_is_over_before_its_turn_fails_alone() {
    let key = ClusterKey::generate().expect("randomness");
    let server = serve(&key);
    let address = server.address().to_string();
    let transport = transport(&key);
    // A megabyte takes a second: the first of these requests is still being sent when the time of the second is over.
    transport.set_lines(&[Line { send: 1_000_000, ..line(&[&address]) }]);
    write(&transport, &address, BULK_BYTES as usize + 1);
    let first = {
        let (transport, address) = (Arc::clone(&transport), address.clone());
        std::thread::spawn(move || write(&transport, &address, 4 << 20))
    };
    let link = transport.peer(&address).bulk.usable().expect("connected");
    // Credits are taken before the turn is: only what is being sent says whose it is.
    while !link.socket().has_untaken() {
        std::thread::yield_now();
    }
    let bytes = vec![7; 1 << 20];
    let late = submit::<op::Write>(&*transport, &address, &Default::default(), &bytes, within_ms(50));
    assert_eq!(late.wait().expect_err("it was not sent").code, vazao_model::Code::Timeout);
    first.join().expect("it was written");
    assert!(link.is_usable() && link.is_idle());
}
