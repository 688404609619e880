//! The protocol over real sockets: many requests in flight, broken peers, limits.

use super::{Server, ServerOptions, TcpTransport, TransportOptions};
use crate::frame::{Header, METHOD_HELLO};
use crate::hello::ClientHandshake;
use crate::key::ClusterKey;
use crate::operation::{Method, op};
use crate::proto;
use crate::service::{Fault, Request, Responder, Service};
use crate::transport::{Presence, Transport, call, submit};
use parking_lot::Mutex;
use prost::Message;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};
use vazao_model::Code;

/// Echoes: a Read answers with as many bytes as asked for, a Write with the length it got, in ways that exercise the
/// server.
#[derive(Default)]
pub(super) struct Echo {
    flushes: AtomicU64,
    reads: AtomicU64,
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length).map(|i| (i as u64 ^ seed) as u8).collect()
}

impl Service for Echo {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        match request.method {
            Method::Ping => responder.reply(&[]),
            Method::Read => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                let read = proto::ReadRequest::decode(request.message).expect("the test sends good messages");
                if read.offset == 13 {
                    let deferred = responder.defer();
                    std::thread::spawn(move || {
                        SystemClock.sleep(Duration::from_millis(5));
                        deferred.finish(Ok((Vec::new(), pattern(read.length as usize, 13))));
                    });
                    return;
                }
                responder.reply_with(&[], read.length as usize, &mut |place| {
                    place.copy_from_slice(&pattern(read.length as usize, read.offset));
                    if read.offset == 99 { Err(Fault::new(Code::Corrupt, "block 7")) } else { Ok(()) }
                });
            }
            Method::Write => {
                let response =
                    proto::WriteResponse { object_length: request.attachment.len() as u64, boot: 0 };
                responder.reply(&response.encode_to_vec());
            }
            Method::Sync => std::mem::forget(responder.defer()),
            Method::Space => drop(responder.defer()),
            _ => responder.fail(&Fault::new(Code::NotFound, "thing in place")),
        }
    }

    fn flush(&self) -> Result<(), Fault> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

pub(super) fn serve(key: &ClusterKey) -> Server {
    serve_echo(key, Arc::new(Echo::default()))
}

fn serve_echo(key: &ClusterKey, echo: Arc<Echo>) -> Server {
    let options = ServerOptions { threads: 2, key: key.clone(), name: "echo".to_owned() };
    Server::start("127.0.0.1:0", echo, options, Arc::new(SystemClock)).expect("loopback")
}

/// A server where another one has been.
pub(super) fn serve_at(address: &str, key: &ClusterKey) -> Server {
    let options = ServerOptions { threads: 1, key: key.clone(), name: "again".to_owned() };
    Server::start(address, Arc::new(Echo::default()), options, Arc::new(SystemClock))
        .expect("it is free again")
}

/// Reads one frame from a blocking stream.
pub(super) fn next_frame(stream: &mut TcpStream) -> (Header, Vec<u8>) {
    let mut head = [0; 32];
    stream.read_exact(&mut head).expect("a header");
    let header = Header::decode(&head).expect("a good header");
    let mut body = vec![0; header.body_bytes()];
    stream.read_exact(&mut body).expect("a body");
    (header, body)
}

/// A stream that has proved the key.
pub(super) fn shake_hands(address: &str, key: &ClusterKey) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let send = |stream: &mut TcpStream, message: &[u8]| {
        let header =
            Header { method: METHOD_HELLO, message_bytes: message.len() as u32, ..Header::default() };
        stream.write_all(&header.encode()).expect("sent");
        stream.write_all(message).expect("sent");
    };
    let (handshake, hello) = ClientHandshake::begin(vec![1; 32]);
    send(&mut stream, &hello);
    let (_, answer) = next_frame(&mut stream);
    let (_, proof) = handshake.finish(key, &answer).expect("the right key");
    send(&mut stream, &proof);
    assert!(!next_frame(&mut stream).0.has(crate::frame::flags::ERROR));
    stream
}

/// 28 kB of requests made a server hold 2 GB of answers that the peer never read.
#[test]
fn a_peer_that_fetches_no_answers_gets_no_more_work_done_and_loses_nothing() {
    const REQUESTS: u64 = 200;
    let key = ClusterKey::generate().expect("randomness");
    let echo = Arc::new(Echo::default());
    let server = serve_echo(&key, Arc::clone(&echo));
    let mut stream = shake_hands(&server.address().to_string(), &key);
    let message = read(5, 4 << 20).encode_to_vec();
    for request_id in 0..REQUESTS {
        let header = Header {
            method: Method::Read.number(),
            request_id,
            message_bytes: message.len() as u32,
            time: 60_000,
            ..Header::default()
        };
        stream.write_all(&[&header.encode()[..], &message].concat()).expect("sent");
    }
    SystemClock.sleep(Duration::from_millis(300));
    let handled = echo.reads.load(Ordering::Relaxed);
    assert!(handled < 20, "{handled} answers of 4 MiB are held for a peer that fetches none");
    for request_id in 0..REQUESTS {
        let (header, body) = next_frame(&mut stream);
        assert_eq!((header.request_id, body.len()), (request_id, 4 << 20));
    }
    assert_eq!(echo.reads.load(Ordering::Relaxed), REQUESTS);
}

pub(super) fn transport(key: &ClusterKey) -> Arc<TcpTransport> {
    TcpTransport::new(key.clone(), TransportOptions::default(), Arc::new(SystemClock))
}

pub(super) fn within_ms(ms: u64) -> u64 {
    SystemClock.now_ns() + ms * 1_000_000
}

pub(super) fn read(offset: u64, length: u32) -> proto::ReadRequest {
    proto::ReadRequest { object: None, offset, length }
}

fn pair() -> (ClusterKey, Server, Arc<TcpTransport>, String) {
    let key = ClusterKey::generate().expect("randomness");
    let server = serve(&key);
    let address = server.address().to_string();
    (key.clone(), server, transport(&key), address)
}

#[test]
fn the_own_address_towards_a_server_is_known_before_there_is_a_connection_and_that_of_one_afterwards() {
    let (_, _server, transport, address) = pair();
    let own = Some(IpAddr::from([127, 0, 0, 1]));
    assert_eq!(transport.local_address(&address), own);
    call::<op::Ping>(&*transport, &address, &proto::PingRequest::default(), within_ms(5_000))
        .expect("answers");
    assert_eq!(transport.local_address(&address), own);
    assert_eq!(transport.local_address("no address"), None);
}

#[test]
fn many_requests_in_flight_come_back_whole_from_many_threads() {
    let (_, _server, transport, address) = pair();
    std::thread::scope(|scope| {
        for thread in 0..12u64 {
            let (transport, address) = (&transport, &address);
            scope.spawn(move || {
                for round in 0..20u64 {
                    let requests: Vec<_> = (0..8u64)
                        .map(|i| {
                            let length =
                                [0, 1, 4096, 262_144, 1_000_000][((thread + round + i) % 5) as usize];
                            let seed = if i == 3 { 13 } else { thread * 1000 + round * 10 + i };
                            let request = read(seed, length);
                            (
                                seed,
                                length,
                                submit::<op::Read>(&**transport, address, &request, &[], within_ms(20_000)),
                            )
                        })
                        .collect();
                    for (seed, length, pending) in requests {
                        let (_, bytes) = pending.wait().unwrap_or_else(|f| panic!("{seed} {length}: {f}"));
                        if seed != 99 {
                            assert!(*bytes == pattern(length as usize, seed), "wrong bytes for {seed}");
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn large_attachments_both_ways_do_not_deadlock() {
    let (_, _server, transport, address) = pair();
    let bytes = vec![7; 4 << 20];
    let pending: Vec<_> = (0..24)
        .map(|i| {
            let read = (i % 2 == 0).then(|| {
                submit::<op::Read>(&*transport, &address, &read(i, 4 << 20), &[], within_ms(20_000))
            });
            let write =
                submit::<op::Write>(&*transport, &address, &Default::default(), &bytes, within_ms(20_000));
            (read, write)
        })
        .collect();
    for (read, write) in pending {
        assert_eq!(write.wait().expect("written").0.object_length, 4 << 20);
        if let Some(read) = read {
            assert_eq!(read.wait().expect("read").1.len(), 4 << 20);
        }
    }
}

#[test]
fn a_failing_fill_answers_the_fault_and_nothing_of_the_frame() {
    let (_, _server, transport, address) = pair();
    let fault = submit::<op::Read>(&*transport, &address, &read(99, 300_000), &[], within_ms(5_000)).wait();
    assert_eq!(fault.expect_err("corrupt"), Fault::new(Code::Corrupt, "block 7"));
    call::<op::Ping>(&*transport, &address, &Default::default(), within_ms(5_000)).expect("still in step");
}

#[test]
fn a_request_that_is_never_answered_ends_at_its_deadline_and_the_connection_goes_on() {
    let (_, _server, transport, address) = pair();
    let started_ns = SystemClock.now_ns();
    let fault =
        call::<op::Sync>(&*transport, &address, &Default::default(), within_ms(100)).expect_err("late");
    assert_eq!(fault.code, Code::Timeout);
    assert!(fault.detail.contains(&address), "the error names the peer: {fault}");
    let elapsed_ms = (SystemClock.now_ns() - started_ns) / 1_000_000;
    assert!((100..5_000).contains(&elapsed_ms), "{elapsed_ms} ms");
    call::<op::Ping>(&*transport, &address, &Default::default(), within_ms(5_000)).expect("still usable");
}

/// While its only thread was busy with a dead server, the answers of living ones lay in their sockets; taking these for
/// time-outs blamed the wrong server.
#[test]
fn a_request_that_waits_long_is_told_of_once_while_it_waits() {
    let (key, _server, _, address) = pair();
    let options = TransportOptions { slow_ms: 50, ..TransportOptions::default() };
    let transport = TcpTransport::new(key, options, Arc::new(SystemClock));
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    transport.watch(Box::new(move |slow| {
        let line = (slow.address.to_owned(), slow.method, slow.id, slow.waited_ns / 1_000_000);
        telling.lock().push(line);
    }));
    call::<op::Ping>(&*transport, &address, &Default::default(), within_ms(5_000)).expect("answered");
    let pending = transport.submit(&address, Method::Sync, &[], &[], within_ms(300));
    let id = pending.id();
    pending.wait().expect_err("late");
    let told = told.lock();
    let [(at, method, slow, waited_ms)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((at, *method, *slow), (&address, Method::Sync, id));
    assert!(*waited_ms >= 50, "{waited_ms}");
}

#[test]
fn an_answer_that_came_in_time_counts_even_when_it_is_looked_at_after_the_deadline() {
    let (_, _server, transport, address) = pair();
    let call = || submit::<op::Read>(&*transport, &address, &read(7, 300_000), &[], within_ms(150));
    let pending = [call(), call(), call()];
    SystemClock.sleep(Duration::from_millis(300));
    for pending in pending {
        assert!(*pending.wait().expect("answered in time").1 == pattern(300_000, 7));
    }
}

#[test]
fn an_answer_dropped_by_the_service_is_an_internal_error_not_a_hang() {
    let (_, _server, transport, address) = pair();
    let fault =
        call::<op::Space>(&*transport, &address, &Default::default(), within_ms(5_000)).expect_err("dropped");
    assert_eq!(fault.code, Code::Internal);
}

#[test]
fn the_wrong_key_is_named_as_such_on_both_sides() {
    let (_, server, _, address) = pair();
    let other = transport(&ClusterKey::generate().expect("randomness"));
    let fault =
        call::<op::Ping>(&*other, &address, &Default::default(), within_ms(5_000)).expect_err("refused");
    assert_eq!(fault.code, Code::Unauthenticated);
    assert!(fault.detail.contains("key"), "{fault}");
    drop(server);
}

#[test]
fn a_server_that_is_not_there_is_unreachable_at_once() {
    let (key, mut server, _, address) = pair();
    server.stop();
    drop(server);
    let fault = call::<op::Ping>(&*transport(&key), &address, &Default::default(), within_ms(5_000))
        .expect_err("gone");
    assert_eq!(fault.code, Code::Unreachable);
    assert!(fault.detail.contains(&address));
}

#[test]
fn an_address_tells_whether_somebody_serves_there() {
    let (key, mut server, _, address) = pair();
    let transport = transport(&key);
    assert_eq!(transport.presence(&address, within_ms(5_000)), Presence::Somebody);
    server.stop();
    drop(server);
    assert_eq!(transport.presence(&address, within_ms(5_000)), Presence::Nobody);
    assert_eq!(transport.presence("no-such-host.invalid:1", within_ms(5_000)), Presence::Unknown);
}

#[test]
fn a_server_that_stops_fails_what_is_in_flight_and_is_found_again_after_its_restart() {
    let (key, mut server, transport, address) = pair();
    let (started, wait) = mpsc::channel();
    let waiter = {
        let (transport, address) = (Arc::clone(&transport), address.clone());
        std::thread::spawn(move || {
            let pending =
                submit::<op::Sync>(&*transport, &address, &Default::default(), &[], within_ms(20_000));
            started.send(()).expect("the test waits");
            pending.wait()
        })
    };
    wait.recv().expect("started");
    server.stop();
    drop(server);
    assert_eq!(waiter.join().expect("no panic").expect_err("lost").code, Code::Disconnected);
    let options = ServerOptions { threads: 1, key, name: "again".to_owned() };
    let _again = Server::start(&address, Arc::new(Echo::default()), options, Arc::new(SystemClock))
        .expect("same port");
    call::<op::Ping>(&*transport, &address, &Default::default(), within_ms(5_000)).expect("reconnected");
}

/// Sends raw bytes and returns what the server says until it closes the connection.
fn provoke(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    stream.write_all(bytes).expect("sent");
    let mut answer = Vec::new();
    // A reset after the refusal is as good an end as a close.
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn refusal(answer: &[u8]) -> Code {
    let header = Header::peek(answer).expect("a good header").expect("an answer");
    let failure = proto::Failure::decode(&answer[32..32 + header.message_bytes as usize]).expect("a failure");
    Code::from_number(failure.code)
}

#[test]
fn garbage_newer_versions_and_giant_frames_are_refused_with_a_word() {
    let (_, _server, _, address) = pair();
    assert_eq!(
        refusal(&provoke(&address, &b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n".repeat(2))),
        Code::BadRequest
    );
    let hello = Header { method: METHOD_HELLO, ..Header::default() };
    let mut newer = hello.encode();
    newer[4] = 9;
    assert_eq!(refusal(&provoke(&address, &newer)), Code::VersionMismatch);
    let giant = Header { attachment_bytes: u32::MAX, ..hello };
    assert_eq!(refusal(&provoke(&address, &giant.encode())), Code::BadRequest);
    let early = Header { method: Method::Ping.number(), ..Header::default() };
    assert_eq!(refusal(&provoke(&address, &early.encode())), Code::Unauthenticated);
}

#[test]
fn half_a_frame_then_silence_disturbs_nobody() {
    let (_, _server, transport, address) = pair();
    let mut silent = TcpStream::connect(&address).expect("connects");
    silent.write_all(&Header::default().encode()[..17]).expect("sent");
    call::<op::Ping>(&*transport, &address, &Default::default(), within_ms(5_000)).expect("served");
}

/// Fifty peers that send their requests byte by byte, and one that does not.
#[test]
fn peers_that_send_byte_by_byte_keep_nobody_waiting_and_are_served_in_the_end() {
    let (key, _server, transport, address) = pair();
    let mut slow: Vec<TcpStream> = (0..50).map(|_| shake_hands(&address, &key)).collect();
    let bytes = pattern(1000, 3);
    let request = proto::WriteRequest::default().encode_to_vec();
    let header = Header {
        method: Method::Write.number(),
        request_id: 1,
        message_bytes: request.len() as u32,
        attachment_bytes: bytes.len() as u32,
        time: 60_000,
        ..Header::default()
    };
    let frame = [header.encode().as_slice(), &request, &bytes].concat();
    for (at, byte) in frame.iter().enumerate() {
        slow.iter_mut().for_each(|stream| stream.write_all(&[*byte]).expect("sent"));
        if at % 50 == 0 {
            call::<op::Ping>(&*transport, &address, &Default::default(), within_ms(5_000)).expect("served");
        }
    }
    for stream in &mut slow {
        let (header, body) = next_frame(stream);
        let answer = proto::WriteResponse::decode(&body[..header.message_bytes as usize]).expect("an answer");
        assert_eq!(answer.object_length, 1000);
    }
}

#[test]
fn random_bytes_never_break_the_server() {
    use rand::{RngExt, SeedableRng};
    let (_, _server, transport, address) = pair();
    let mut random = rand::rngs::StdRng::seed_from_u64(0x5EED);
    for _ in 0..200 {
        let mut bytes = vec![0; random.random_range(0..200)];
        random.fill(&mut bytes[..]);
        if random.random() && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(b"VAZO");
        }
        let mut stream = TcpStream::connect(&address).expect("connects");
        let _ = stream.write_all(&bytes);
    }
    call::<op::Ping>(&*transport, &address, &Default::default(), within_ms(5_000)).expect("served");
}

mod reassembly {
    //! Frames cut at any place are put together again.

    use super::super::buffers::SharedPool;
    use super::super::inbound::Inbound;
    use crate::frame::Header;
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn frames_survive_any_cutting(
            sizes in proptest::collection::vec((0usize..40_000, 0usize..200_000), 1..8),
            cuts in proptest::collection::vec(1usize..70_000, 1..20),
        ) {
            let mut stream = Vec::new();
            for (id, &(message, attachment)) in sizes.iter().enumerate() {
                let header = Header {
                    request_id: id as u64,
                    message_bytes: message as u32,
                    attachment_bytes: attachment as u32,
                    ..Header::default()
                };
                stream.extend(header.encode());
                stream.extend((0..message + attachment).map(|i| (i * 7 + id) as u8));
            }
            let mut inbound = Inbound::new(Arc::<SharedPool>::default());
            let mut rest = &stream[..];
            let mut seen = 0;
            let mut cuts = cuts.iter().cycle();
            while seen < sizes.len() {
                if let Some(frame) = inbound.next_frame().expect("valid frames") {
                    let (message, attachment) = sizes[seen];
                    prop_assert_eq!(frame.header.request_id, seen as u64);
                    let body = [&frame.message[..], &frame.attachment[..]].concat();
                    prop_assert_eq!(body.len(), message + attachment);
                    prop_assert!(body.iter().enumerate().all(|(i, &b)| b == (i * 7 + seen) as u8));
                    seen += 1;
                    continue;
                }
                let space = inbound.space();
                let count = space.len().min(rest.len()).min(*cuts.next().expect("endless"));
                prop_assert!(count > 0, "no progress");
                space[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                inbound.received(count);
            }
        }
    }
}

#[test]
fn a_connection_to_itself_is_nobody_listening() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket};
    use std::net::{Ipv4Addr, SocketAddrV4};
    let own = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&own, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    connect(&own, &getsockname(&own).expect("its address")).expect("TCP connects it to itself");
    let refused = super::dial::refuse_itself(&TcpStream::from(own)).expect_err("refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = TcpStream::connect(listener.local_addr().expect("its address")).expect("connects");
    super::dial::refuse_itself(&other).expect("there is another end");
}

#[test]
fn a_wait_that_is_cut_short_leaves_the_request_in_flight() {
    let key = ClusterKey::generate().expect("random");
    let server = serve(&key);
    let transport = transport(&key);
    let (address, now_ns) = (server.address().to_string(), || SystemClock.now_ns());
    let second = 1_000_000_000;
    // Never answered.
    let silent = transport.submit(&address, Method::Sync, &[], &[], now_ns() + second / 2);
    assert!(!silent.settle_by(now_ns() + second / 100) && !silent.is_done());
    // Another one on the same connection, answered in a while.
    let read = proto::ReadRequest { object: None, offset: 13, length: 100 }.encode_to_vec();
    let late = transport.submit(&address, Method::Read, &read, &[], now_ns() + 20 * second);
    assert!(!late.settle_by(0));
    assert!(late.settle_by(now_ns() + 10 * second) && late.is_done());
    assert_eq!(late.wait().expect("answered").attachment.len(), 100);
    assert!(silent.settle_by(now_ns() + 10 * second), "its own deadline ends it");
    assert_eq!(silent.wait().expect_err("silent").code, Code::Timeout);
}
