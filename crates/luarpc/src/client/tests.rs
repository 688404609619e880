//! The client against peers written by hand, as other implementations behave, and against a server that closes.

use super::connection::{Connection, Lost};
use super::*;
use crate::server::{Function, Options, Running, serve};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

const INTERFACE: &str = "interface{ name = 'test', methods = {
  boo = { args = { {direction='inout', type='double'} } },
  text = { resulttype = 'string', args = { {direction='in', type='string'} } },
  letter = { resulttype = 'char', args = { {direction='in', type='char'} } },
  none = {} } }";

const WAIT: Duration = Duration::from_secs(20);

fn interface() -> Arc<Interface> {
    Arc::new(Interface::parse(INTERFACE.as_bytes()).expect("an interface"))
}

fn client(address: SocketAddr, options: CallOptions) -> Client {
    Client::new(&address.to_string(), interface(), options, vazao_meter::clock::system())
}

/// A peer that has each connection handled by `handle`, and the number of connections so far.
fn peer(mut handle: impl FnMut(BufReader<TcpStream>) + Send + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let _ = stream.set_read_timeout(Some(WAIT));
            counted.fetch_add(1, Ordering::SeqCst);
            handle(BufReader::new(stream));
        }
    });
    (address, count)
}

/// Reads the two lines of a request with one argument.
fn request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut lines = String::new();
    for _ in 0..2 {
        stream.read_line(&mut lines).ok().filter(|&count| count > 0)?;
    }
    Some(lines)
}

/// A peer that answers every request with the same bytes.
fn answering(answer: &'static [u8]) -> SocketAddr {
    peer(move |mut stream| {
        while request(&mut stream).is_some() {
            let _ = stream.get_mut().write_all(answer);
        }
    })
    .0
}

#[test]
fn answers_of_other_implementations_are_read() {
    let answers: [(&str, &'static [u8], Vec<Value>); 7] = [
        ("letter", b"x\n", vec![Value::Char(b'x')]),
        ("letter", b"\"x\"\r\n", vec![Value::Char(b'x')]),
        ("boo", b"nil\r\n1.0\r\n", vec![Value::Nil, Value::Double(1.0)]),
        ("boo", b"nil\n1e+20\n", vec![Value::Nil, Value::Double(1e20)]),
        ("boo", b"nil\nnil\n", vec![Value::Nil, Value::Nil]),
        ("text", b"nil\n", vec![Value::Nil]),
        ("text", b"\"a\\nb\\\\\\\"\"\n", vec![Value::from("a\nb\\\"")]),
    ];
    for (method, answer, expected) in answers {
        let argument = match method {
            "boo" => Value::Double(1.0),
            "letter" => Value::Char(b'x'),
            _ => Value::from("x"),
        };
        let mut client = client(answering(answer), CallOptions::default());
        for _ in 0..2 {
            assert_eq!(client.call(method, std::slice::from_ref(&argument)).as_ref(), Ok(&expected));
        }
    }
}

#[test]
fn errors_are_known_in_both_forms_and_the_connection_goes_on() {
    for answer in [&b"___ERRORPC: no \"x\"; ask for y\n"[..], b"\"___ERRORPC: no \\\"x\\\"; ask for y\"\r\n"]
    {
        let mut client = client(answering(answer), CallOptions::default());
        for _ in 0..2 {
            let report = client.call("text", &[Value::from("x")]).expect_err("an error");
            assert!(
                matches!(&report, Report::Remote { text, .. } if text == "no \"x\"; ask for y"),
                "{report}"
            );
            assert!(report.to_string().contains("127.0.0.1:"), "it names the peer: {report}");
        }
    }
}

#[test]
fn characters_are_sent_as_the_peer_wants_them() {
    let (address, _) = peer(|mut stream| {
        while let Some(lines) = request(&mut stream) {
            let line = lines.lines().nth(1).unwrap_or_default().to_owned();
            let _ = writeln!(stream.get_mut(), "\"{}\"", line.len());
        }
    });
    for (chars, length) in [(CharForm::Quoted, b'3'), (CharForm::Bare, b'1')] {
        let mut client = client(address, CallOptions { chars, ..CallOptions::default() });
        assert_eq!(client.call("letter", &[Value::Char(b'x')]), Ok(vec![Value::Char(length)]));
    }
}

#[test]
fn calls_that_do_not_fit_the_interface_are_refused_before_anything_is_sent() {
    let mut client = client("127.0.0.1:1".parse().expect("an address"), CallOptions::default());
    let none = client.call("poo", &[]).expect_err("no method").to_string();
    assert_eq!(none, "the interface test has no method poo; it has boo, text, letter, none");
    let count = client.call("boo", &[]).expect_err("no argument").to_string();
    assert!(count.starts_with("boo(inout double) -> void takes 1 arguments, and 0 were given"), "{count}");
    let kind = client.call("boo", &[Value::from("1")]).expect_err("a string").to_string();
    assert_eq!(kind, "boo(inout double) -> void: argument 1 has to be a double, and is a string");
    let infinite = client.call("boo", &[Value::Double(f64::NEG_INFINITY)]).expect_err("infinite").to_string();
    assert_eq!(infinite, "boo(inout double) -> void: argument 1 is not finite; such a number cannot be sent");
}

#[test]
fn a_peer_that_closes_at_any_byte_of_its_answer_is_reported_and_not_asked_again() {
    let answer = b"nil\n3.14";
    for length in 0..=answer.len() {
        let (address, connections) = peer(move |mut stream| {
            if request(&mut stream).is_some() {
                let _ = stream.get_mut().write_all(&answer[..length]);
            }
        });
        let report =
            client(address, CallOptions::default()).call("boo", &[Value::Double(1.0)]).expect_err("torn");
        assert!(
            matches!(report, Report::Network { may_have_begun: true, .. }),
            "after {length} bytes: {report}"
        );
        assert_eq!(connections.load(Ordering::SeqCst), 1, "after {length} bytes");
    }
}

#[test]
fn a_peer_that_resets_after_it_has_read_the_request_is_not_asked_again() {
    let (address, connections) = peer(|mut stream| {
        if request(&mut stream).is_some() {
            let _ = sockopt(&stream);
        }
    });
    let report =
        client(address, CallOptions::default()).call("boo", &[Value::Double(1.0)]).expect_err("reset");
    assert!(matches!(report, Report::Network { may_have_begun: true, .. }), "{report}");
    assert!(report.to_string().ends_with("the server may have carried it out"), "{report}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

fn sockopt(stream: &BufReader<TcpStream>) -> rustix::io::Result<()> {
    rustix::net::sockopt::set_socket_linger(stream.get_ref(), Some(Duration::ZERO))
}

/// The client sent its second request before the end of the first connection was there to be seen. The peer reset the
/// connection with the request in it, and the call failed: one in some dozens.
#[test]
fn a_client_that_keeps_connections_finds_out_that_the_server_closes_them() {
    let (address, connections) = peer(|mut stream| {
        if request(&mut stream).is_some() {
            let _ = stream.get_mut().write_all(b"nil\n1\n");
        }
    });
    let mut client = client(address, CallOptions::default());
    for number in 0..2_000 {
        client.call("boo", &[Value::Double(1.0)]).unwrap_or_else(|report| panic!("call {number}: {report}"));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2_000);
}

#[test]
fn a_request_that_reached_a_closed_connection_is_known_not_to_have_begun() {
    let (address, _) = peer(drop);
    let clock = vazao_meter::clock::system();
    let deadline_ns = clock.now_ns() + WAIT.as_nanos() as u64;
    let opened = Connection::open(&address.to_string(), &CallOptions::default(), &*clock, deadline_ns);
    let mut connection = opened.map_err(|_| "no connection").expect("connects");
    assert!(connection.ends_within(WAIT), "the peer closes");
    // As when the end comes between the look at the connection and the request.
    let interface = interface();
    let method = interface.method(b"boo").expect("a method");
    let sent = connection.send(b"boo\n1\n", &*clock, deadline_ns);
    let lost = sent.and_then(|()| connection.receive(method, &*clock, deadline_ns).map(|_| ()));
    assert!(matches!(lost, Err(Lost::Unbegun(_))));
}

fn counting(options: Options) -> (Running, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let service = Function::new(true, move |_: &str, arguments: Vec<Value>| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(vec![Value::Nil, arguments[0].clone()])
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let running = serve(listener, interface(), Arc::new(service), options, vazao_meter::clock::system());
    (running.expect("serves"), count)
}

#[test]
fn a_pool_of_one_connection_serves_two_clients_in_turn_and_carries_out_each_call_once() {
    let (server, count) = counting(Options { connections_max: 1, ..Options::default() });
    let mut clients = [0, 1].map(|_| client(server.address(), CallOptions::default()));
    for number in 0..1_000 {
        let called = clients[number % 2].call("boo", &[Value::Double(number as f64)]);
        assert_eq!(called, Ok(vec![Value::Nil, Value::Double(number as f64)]));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1_000);
}

#[test]
fn every_pairing_of_close_and_keepalive_works() {
    let profiles = [Profile::Close, Profile::Keepalive];
    for (server_profile, client_profile) in
        profiles.iter().flat_map(|&one| profiles.map(|other| (one, other)))
    {
        let (server, count) = counting(Options { profile: server_profile, ..Options::default() });
        let options = CallOptions { profile: client_profile, ..CallOptions::default() };
        let mut client = client(server.address(), options);
        // A client that closes waits a moment for a server that does not.
        let calls = if server_profile == Profile::Close { 3_000 } else { 20 };
        for number in 0..calls {
            client.call("boo", &[Value::Double(1.0)]).unwrap_or_else(|report| {
                panic!("{server_profile:?}, {client_profile:?}, {number}: {report}")
            });
        }
        assert_eq!(count.load(Ordering::SeqCst), calls);
    }
}

#[test]
fn a_server_that_says_nothing_or_little_ends_the_call_at_its_time() {
    let options = CallOptions { timeout: Duration::from_millis(300), ..CallOptions::default() };
    let (silent, _) = peer(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (dribbling, _) = peer(|mut stream| {
        let clock = vazao_meter::clock::system();
        while stream.get_mut().write_all(b"x").is_ok() {
            clock.sleep(Duration::from_millis(20));
        }
    });
    let clock = vazao_meter::clock::system();
    for (address, part) in
        [(silent, "there was no answer within 300 ms"), (dribbling, "only a part of the answer")]
    {
        let begun_ns = clock.now_ns();
        let report =
            client(address, options.clone()).call("boo", &[Value::Double(1.0)]).expect_err("too late");
        assert!(report.to_string().contains(part), "{report}");
        assert!(clock.now_ns() - begun_ns < WAIT.as_nanos() as u64);
    }
}

#[test]
fn a_refusal_that_comes_while_a_long_request_is_sent_is_what_the_caller_gets() {
    let (server, _) = counting(Options { line_bytes_max: 1_000, ..Options::default() });
    let mut client = client(server.address(), CallOptions::default());
    let report = client.call("text", &[Value::from(vec![b'x'; 8 << 20])]).expect_err("refused");
    assert!(report.to_string().contains("a line has more than 1000 bytes"), "{report}");
}

#[test]
fn an_answer_that_does_not_fit_or_does_not_end_is_reported() {
    let options = CallOptions { line_bytes_max: 1_000, ..CallOptions::default() };
    let (endless, _) = peer(|mut stream| {
        if request(&mut stream).is_some() {
            while stream.get_mut().write_all(&[b'x'; 100]).is_ok() {}
        }
    });
    let report = client(endless, options).call("text", &[Value::from("x")]).expect_err("too long");
    assert!(report.to_string().contains("a line has more than 1000 bytes in the answer"), "{report}");
    let report = client(answering(b"1\n2\n"), CallOptions::default())
        .call("boo", &[Value::Double(1.0)])
        .expect_err("no");
    assert!(
        report.to_string().contains("the result cannot be read as boo(inout double) -> void"),
        "{report}"
    );
    assert!(report.to_string().contains("does the server have another interface?"), "{report}");
}

#[test]
fn bytes_that_belong_to_no_call_are_not_taken_for_an_answer() {
    // A server with a smaller interface sends less than the client reads, one with a larger one more: what is left
    // would be the answer to the next call.
    let mut client = client(answering(b"\"one\"\n\"left over\"\n"), CallOptions::default());
    for _ in 0..3 {
        assert_eq!(client.call("text", &[Value::from("x")]), Ok(vec![Value::from("one")]));
    }
}

#[test]
fn a_port_without_a_server_and_a_name_without_a_host_say_what_to_do() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let report = client(closed, CallOptions::default()).call("none", &[]).expect_err("refused");
    assert!(report.to_string().contains("is the server running, and is that its port?"), "{report}");
    assert!(matches!(report, Report::Network { may_have_begun: false, .. }));
    let mut nameless =
        Client::new("no-port", interface(), CallOptions::default(), vazao_meter::clock::system());
    let report = nameless.call("none", &[]).expect_err("no address").to_string();
    assert!(report.contains("write HOST:PORT"), "{report}");
}

#[test]
fn a_peer_that_only_stops_sending_is_waited_for_no_longer_than_a_second() {
    // It may be reading still: the request was acknowledged, and may have been begun.
    let (address, connections) = peer(|stream| {
        let _ = stream.get_ref().shutdown(Shutdown::Write);
        let mut stream = stream;
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut client = client(address, CallOptions::default());
    let report = client.call("boo", &[Value::Double(1.0)]).expect_err("no answer");
    assert!(matches!(report, Report::Network { may_have_begun: true, .. }), "{report}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}
