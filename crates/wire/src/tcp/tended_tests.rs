//! Requests whose callers go on with something else.

use super::TcpTransport;
use super::TransportOptions;
use super::tests::{read, serve};
use crate::key::ClusterKey;
use crate::operation::Method;
use crate::transport::{Pending, Transport};
use prost::Message;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};
use vazao_model::Code;

const LONG: Duration = Duration::from_secs(20);

fn transport(key: &ClusterKey) -> Arc<TcpTransport> {
    TcpTransport::new(key.clone(), TransportOptions::default(), Arc::new(SystemClock))
}

/// Waits until requests to `address` need not be waited for.
fn get_ready(transport: &TcpTransport, address: &str) {
    let deadline_ns = SystemClock.now_ns() + LONG.as_nanos() as u64;
    while !transport.is_tended(address) {
        assert!(SystemClock.now_ns() < deadline_ns, "never connected");
        SystemClock.sleep(Duration::from_millis(5));
    }
}

/// Submits, and passes on what comes of it.
fn submit(
    transport: &TcpTransport,
    address: &str,
    method: Method,
    message: &[u8],
) -> mpsc::Receiver<Box<dyn Pending>> {
    let (send, receive) = mpsc::channel();
    let then = Box::new(move |pending| send.send(pending).expect("somebody waits"));
    let deadline_ns = SystemClock.now_ns() + LONG.as_nanos() as u64;
    transport.submit_then(address, method, message, &[], deadline_ns, then);
    receive
}

#[test]
fn answers_come_to_whom_they_were_asked_for_without_a_thread_that_waits() {
    let key = ClusterKey::generate().expect("randomness");
    let server = serve(&key);
    let (transport, address) = (transport(&key), server.address().to_string());
    get_ready(&transport, &address);
    let asked: Vec<_> = (1..200u64)
        .map(|length| {
            let message = read(length, length as u32).encode_to_vec();
            (length, submit(&transport, &address, Method::Read, &message))
        })
        .collect();
    for (length, answer) in asked {
        let pending = answer.recv_timeout(LONG).expect("answered");
        assert!(pending.is_done());
        match (pending.wait(), length) {
            (Err(fault), 99) => assert_eq!(fault.code, Code::Corrupt, "the server's own fault is passed on"),
            (outcome, _) => assert_eq!(outcome.expect("read").attachment.len() as u64, length),
        }
    }
}

#[test]
fn a_request_that_is_not_answered_soon_is_handed_over_and_can_be_waited_for() {
    let key = ClusterKey::generate().expect("randomness");
    let mut server = serve(&key);
    let (transport, address) = (transport(&key), server.address().to_string());
    get_ready(&transport, &address);
    // The server never answers this one.
    let pending = submit(&transport, &address, Method::Sync, &[]).recv_timeout(LONG).expect("handed over");
    assert!(!pending.is_done());
    // Others go on meanwhile.
    let other = submit(&transport, &address, Method::Ping, &[]).recv_timeout(LONG).expect("answered");
    other.wait().expect("pong");
    let waiting = std::thread::spawn(move || pending.wait());
    server.stop();
    assert_eq!(waiting.join().expect("no panic").map(|_| ()).map_err(|f| f.code), Err(Code::Disconnected));
}

#[test]
fn whoever_asked_is_told_when_the_server_goes_and_requests_are_waited_for_until_it_is_back() {
    let key = ClusterKey::generate().expect("randomness");
    let mut server = serve(&key);
    let (transport, address) = (transport(&key), server.address().to_string());
    get_ready(&transport, &address);
    let answer = submit(&transport, &address, Method::Sync, &[]);
    server.stop();
    let pending = answer.recv_timeout(LONG).expect("told");
    assert_eq!(pending.wait().map(|_| ()).map_err(|f| f.code), Err(Code::Disconnected));
    assert!(!transport.is_tended(&address));
    let _again = super::tests::serve_at(&address, &key);
    get_ready(&transport, &address);
    let pong = submit(&transport, &address, Method::Ping, &[]).recv_timeout(LONG).expect("answered");
    pong.wait().expect("pong");
}
