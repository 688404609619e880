//! What must not be believed, and who must not be waited for.

use super::{World, noise, wait_until};
use crate::control::Timeouts;
use crate::outgoing::{Manner, Started, begin, send_whole};
use crate::record::{Greeting, Header, Kind};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use vazao_model::Code;

fn data_address(world: &World, name: &str, size: usize) -> (Arc<crate::Outgoing>, String) {
    let source = world.put(name, &noise(size));
    let started = begin(source, world.around(), world.to(name), Manner::default()).expect("begins");
    let Started::Ready(copy) = started else { panic!("complete") };
    let address = copy.data_address.clone();
    (copy, address)
}

/// All that the peer says until it closes.
fn hear(mut socket: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said);
    said
}

#[test]
fn bytes_that_are_no_greeting_are_refused() {
    let world = World::new();
    let (_, address) = data_address(&world, "x", 5 << 20);
    for bytes in [
        vec![0; 64],
        b"GET / HTTP/1.1\r\nHost: somebody\r\nAccept: */*\r\nConnection: close\r\n\r\n..".to_vec(),
    ] {
        let mut socket = TcpStream::connect(&address).expect("connects");
        socket.write_all(&bytes).expect("sent");
        let said = hear(socket);
        assert!(String::from_utf8_lossy(&said).contains("greeting"), "{said:?}");
    }
}

#[test]
fn a_wrong_token_opens_nothing() {
    let world = World::new();
    let (copy, address) = data_address(&world, "x", 5 << 20);
    let greeting = Greeting { kind: Kind::Loop, copy: copy.id, token: [9; 16], buffer_bytes: 0 };
    let mut socket = TcpStream::connect(&address).expect("connects");
    socket.write_all(&greeting.to_bytes()).expect("sent");
    assert!(String::from_utf8_lossy(&hear(socket)).contains("knows no copy"));
}

#[test]
fn damaged_and_impossible_records_are_refused_and_nothing_is_written() {
    let world = World::new();
    let (copy, address) = data_address(&world, "x", 5 << 20);
    let data = |offset, sum: u32| {
        let mut bytes = Header::Data { offset, length: 4096 }.to_bytes().to_vec();
        bytes.extend(sum.to_le_bytes());
        bytes.extend([7; 4096]);
        bytes
    };
    let right = vazao_model::checksum::crc32c(&[7; 4096]);
    let cases = [
        (data(0, 1), "another checksum"),
        (data(100 << 20, right), "of a file of"),
        (data(1, right), "cut within"),
        (Header::Zeros { offset: 4096, length: 4096 }.to_bytes().to_vec(), "no whole blocks"),
        (Header::Zeros { offset: 1 << 20, length: u64::MAX }.to_bytes().to_vec(), "of a file of"),
        (Header::Welcome.to_bytes().to_vec(), "from a sender"),
    ];
    for kind in [Kind::Loop, Kind::Thread] {
        for (record, word) in &cases {
            let greeting = Greeting { kind, copy: copy.id, token: copy.token, buffer_bytes: 0 };
            let mut socket = TcpStream::connect(&address).expect("connects");
            socket.write_all(&greeting.to_bytes()).expect("sent");
            socket.write_all(record).expect("sent");
            let said = hear(socket);
            assert!(String::from_utf8_lossy(&said).contains(word), "{word}: {said:?}");
        }
    }
    let part = world.names();
    assert_eq!(part.len(), 1, "{part:?}");
    assert!(world.arrived(&part[0]).is_some_and(|bytes| bytes.iter().all(|&b| b == 0)));
}

#[test]
fn a_thousand_idle_connections_hold_up_nobody() {
    let world = World::new();
    let (_, address) = data_address(&world, "y", 5 << 20);
    let idle: Vec<TcpStream> = (0..1000).map(|_| TcpStream::connect(&address).expect("connects")).collect();
    for method in super::METHODS {
        world.copy(method, world.put(method, &noise(3_000_000)), method).expect("copied");
        assert!(world.arrived(method) == Some(noise(3_000_000)));
    }
    drop(idle);
}

#[test]
fn a_receiver_that_says_nothing_is_given_up_in_time() {
    let world = World::new();
    let silent = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = silent.local_addr().expect("bound").to_string();
    for method in ["blocking", "streams:2", "nonblocking"] {
        let source = world.put(method, &noise(5 << 20));
        let around = world.around_with(Timeouts { connect_ms: 200, block_ms: 200 }, 0);
        let started = begin(source, around, world.to(method), Manner::default()).expect("begins");
        let Started::Ready(copy) = started else { panic!("complete") };
        let mut copy = Arc::try_unwrap(copy).expect("is ours alone");
        copy.data_address = address.clone();
        let fault = world.send(method, &Arc::new(copy)).expect_err("is given up");
        assert_eq!(fault.code, Code::Timeout, "{method}: {fault}");
        assert!(fault.detail.contains("n9") && fault.detail.contains("200 ms"), "{method}: {fault}");
    }
    drop(silent);
}

#[test]
fn a_receiver_that_is_not_there_is_named() {
    let world = World::new();
    let port = TcpListener::bind("127.0.0.1:0").expect("listens").local_addr().expect("bound");
    for method in ["blocking", "nonblocking"] {
        let source = world.put(method, &noise(5 << 20));
        let started = begin(source, world.around(), world.to(method), Manner::default()).expect("begins");
        let Started::Ready(copy) = started else { panic!("complete") };
        let mut copy = Arc::try_unwrap(copy).expect("is ours alone");
        copy.data_address = port.to_string();
        let fault = world.send(method, &Arc::new(copy)).expect_err("fails");
        assert_eq!(fault.code, Code::Unreachable, "{method}: {fault}");
        assert!(fault.detail.contains("node n9"), "{fault}");
    }
}

#[test]
fn more_files_than_may_arrive_are_told_to_come_again() {
    let world = World::with(2);
    let copies: Vec<_> = (0..2).map(|i| data_address(&world, &format!("a{i}"), 5 << 20)).collect();
    let third = world.put("third", &noise(5 << 20));
    let fault = begin(Arc::clone(&third), world.around(), world.to("third"), Manner::default());
    let fault = fault.expect_err("is full");
    assert_eq!(fault.code, Code::Overloaded);
    assert!(fault.detail.contains("copies_in_max"), "{fault}");
    world.send("blocking", &copies[0].0).expect("sent");
    copies[0].0.end().expect("ends");
    world.copy("blocking", third, "third").expect("there is room now");
}

#[test]
fn a_directory_in_the_way_and_a_place_outside_are_refused() {
    let world = World::new();
    std::fs::create_dir(world.path("in/d")).expect("made");
    let source = world.put("x", &noise(100));
    for (name, code) in [
        ("d", Code::IsDirectory),
        ("../out/y", Code::AccessDenied),
        ("missing/y", Code::NotFound),
        ("", Code::IsDirectory),
    ] {
        let begun = begin(Arc::clone(&source), world.around(), world.to(name), Manner::default());
        assert_eq!(begun.expect_err("is refused").code, code, "{name}");
        let sent = send_whole(&*source, &world.around(), &world.to(name), Manner::default());
        assert_eq!(sent.expect_err("is refused").code, code, "{name}");
    }
    let kept = Manner { no_replace: true, ..Manner::default() };
    std::fs::write(world.path("in/there"), "old").expect("written");
    let refused = send_whole(&*source, &world.around(), &world.to("there"), kept).expect_err("is there");
    assert_eq!(refused.code, Code::Exists);
    assert_eq!(world.arrived("there"), Some(b"old".to_vec()));
    wait_until("no part is left", || world.names().iter().all(|name| !name.ends_with(".part")));
}

#[test]
fn a_peer_with_another_key_is_refused_by_name_and_gets_nothing() {
    use vazao_wire::key::ClusterKey;
    use vazao_wire::tcp::{TcpTransport, TransportOptions};
    let world = World::new();
    let other = ClusterKey::generate().expect("a key");
    let transport = TcpTransport::new(other, TransportOptions::default(), Arc::clone(&world.clock));
    let around = crate::Surroundings { transport, ..world.around() };
    let source = world.put("x", &noise(5 << 20));
    let begun = begin(source, around.clone(), world.to("x"), Manner::default());
    let small = world.put("small", b"small");
    let files = [crate::BatchFile { source: small, to: world.to("small"), overwrite: 0 }];
    let (sent, _) = crate::send_batch(&files, &around, false);
    for fault in [begun.map(drop).expect_err("refused"), sent[0].clone().map(drop).expect_err("refused")] {
        assert_eq!(fault.code, Code::Unauthenticated, "{fault}");
        assert!(fault.detail.contains("n9"), "{fault}");
    }
    assert_eq!(world.names(), Vec::<String>::new());
}
