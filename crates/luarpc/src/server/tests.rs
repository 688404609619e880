//! The server against raw sockets: what other implementations send, and what attackers do.

use super::*;
use crate::Value;
use crate::client::{CallOptions, Client, Profile};
use crate::interface::Interface;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

const INTERFACE: &str = "interface{ name = 'test', methods = {
  boo = { args = { {direction='inout', type='double'} } },
  text = { resulttype = 'string', args = { {direction='in', type='string'} } },
  letter = { resulttype = 'char', args = { {direction='in', type='char'} } },
  give = { resulttype = 'double', args = { {direction='out', type='string'}, {direction='in', type='void'} } },
  fail = {}, panic = {}, wrong = { resulttype = 'double' }, marker = { resulttype = 'string' },
  slow = { resulttype = 'double' } } }";

/// No wait of a test is longer.
const WAIT: Duration = Duration::from_secs(20);

fn interface() -> Arc<Interface> {
    Arc::new(Interface::parse(INTERFACE.as_bytes()).expect("an interface"))
}

fn answer(method: &str, arguments: Vec<Value>) -> Result<Vec<Value>, String> {
    Ok(match method {
        "boo" => vec![Value::Nil, arguments[0].clone()],
        "text" | "letter" => arguments,
        "give" => vec![Value::Double(3.0), Value::from("two\nlines")],
        "fail" => return Err("no such thing; try another".to_owned()),
        "wrong" => vec![Value::from("no number")],
        "marker" => vec![Value::from("___ERRORPC: not an error")],
        _ => panic!("a defect"),
    })
}

fn start(options: Options) -> Running {
    start_with(options, Function::new(true, answer))
}

fn start_with(options: Options, service: impl Service) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    serve(listener, interface(), Arc::new(service), options, vazao_meter::clock::system()).expect("serves")
}

fn connect(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(WAIT)).expect("a timeout");
    stream.set_write_timeout(Some(WAIT)).expect("a timeout");
    stream
}

/// Sends bytes and returns all that comes until the server closes.
fn exchange(server: &Running, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    stream.write_all(bytes).expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("ended");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8(answer).expect("text")
}

/// Waits until `condition` holds, for a bounded time.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let clock = vazao_meter::clock::system();
    let begun_ns = clock.now_ns();
    while !condition() {
        assert!(clock.now_ns() - begun_ns < WAIT.as_nanos() as u64, "{what}: not within {WAIT:?}");
        clock.sleep(Duration::from_millis(2));
    }
}

#[test]
fn calls_are_answered_in_lines_one_after_the_other() {
    let server = start(Options::default());
    let answers = exchange(&server, b"boo\n1\ntext\n\"a\\\"b\\\\\\n\"\ngive\nnil\nboo\n1e+20\n");
    assert_eq!(answers, "nil\n1\n\"a\\\"b\\\\\\n\"\n3\n\"two\\nlines\"\nnil\n1e20\n");
    assert_eq!((server.statistics().calls(), server.statistics().errors()), (4, 0));
    assert!(server.stop());
}

#[test]
fn characters_are_answered_in_the_form_that_the_peer_sent_last() {
    let server = start(Options::default());
    assert_eq!(
        exchange(&server, b"letter\nx\nletter\n\"y\"\nletter\n\"\nletter\n\\n\n"),
        "x\n\"y\"\n\"\n\"\\n\"\n"
    );
}

#[test]
fn other_line_ends_and_number_forms_are_read() {
    let server = start(Options::default());
    assert_eq!(
        exchange(&server, b"boo\r\n1.0\r\ntext\r\n\"x\"\r\nletter\r\nz\r\nboo\r\n1.6e1\r\n"),
        "nil\n1\n\"x\"\nz\nnil\n16\n"
    );
}

#[test]
fn a_string_of_any_bytes_comes_back_as_it_was() {
    let server = start(Options::default());
    let all: Vec<u8> = (0..=255).collect();
    let mut client = Client::new(
        &server.address().to_string(),
        interface(),
        CallOptions::default(),
        vazao_meter::clock::system(),
    );
    let answer = client.call("text", &[Value::from(all.clone())]).expect("an answer");
    assert_eq!(answer, [Value::from(all)]);
    let large = vec![b'"'; 1 << 20];
    assert_eq!(client.call("text", &[Value::from(large.clone())]).expect("an answer"), [Value::from(large)]);
}

#[test]
fn a_request_that_comes_byte_by_byte_is_answered() {
    let server = start(Options::default());
    let mut stream = connect(&server);
    stream.set_nodelay(true).expect("no delay");
    for byte in b"text\n\"slow\\n\"\n" {
        stream.write_all(&[*byte]).expect("sent");
    }
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).expect("an answer");
    assert_eq!(line, "\"slow\\n\"\n");
}

#[test]
fn a_peer_that_closes_at_any_byte_begins_no_call_and_leaves_nothing() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let server = start_with(
        Options::default(),
        Function::new(true, |method, arguments| {
            CALLS.fetch_add(1, Ordering::SeqCst);
            answer(method, arguments)
        }),
    );
    let request = b"text\n\"abc\\\"\"\n";
    for length in 0..request.len() {
        let answer = exchange(&server, &request[..length]);
        let is_said =
            answer.starts_with("___ERRORPC: ") && answer.contains("before the end of the connection");
        assert!(is_said || (length == 0 && answer.is_empty()), "after {length} bytes: {answer}");
        // Without a word, too.
        connect(&server).write_all(&request[..length]).expect("sent");
    }
    assert_eq!(CALLS.load(Ordering::SeqCst), 0);
    assert_eq!(exchange(&server, request), "\"abc\\\"\"\n");
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
    eventually("all connections end", || server.statistics().connections() == 0);
    assert_eq!(server.statistics().memory_bytes(), 0);
}

#[test]
fn a_line_without_an_end_is_refused_at_its_limit_and_takes_no_memory() {
    let server = start(Options { line_bytes_max: 100_000, ..Options::default() });
    let mut stream = connect(&server);
    stream.write_all(b"text\n\"").expect("sent");
    let (mut sent, part) = (0, vec![b'x'; 64 * 1024]);
    // A gibibyte, or less when the server has had enough of it.
    while sent < 1 << 30 && stream.write_all(&part).is_ok() {
        sent += part.len();
        assert!(server.statistics().memory_bytes() < 1_000_000, "{}", server.statistics().memory_bytes());
    }
    assert!(sent < 64 << 20, "the server has read {sent} bytes");
    let mut line = String::new();
    BufReader::new(&stream)
        .read_line(&mut line)
        .expect("the reason lies there, although the connection is reset");
    assert!(line.starts_with("___ERRORPC: a line has more than 100000 bytes"), "{line}");
    assert_eq!(exchange(&server, b"boo\n2\n"), "nil\n2\n");
}

#[test]
fn nul_bytes_and_noise_are_no_methods() {
    let server = start(Options::default());
    for noise in
        [&b"\0\0\0\n"[..], b"\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff\xfe\n1\n", b"boo \n1\n"]
    {
        let answer = exchange(&server, noise);
        assert!(answer.starts_with("___ERRORPC: the interface test has no method "), "{answer}");
        assert!(answer.contains("it has boo, text, ") && answer.lines().count() == 1, "{answer}");
    }
}

/// Words that lead further into the server than noise does, and noise.
fn noise(state: &mut u64) -> Vec<u8> {
    let words: [&[u8]; 12] = [
        b"boo\n",
        b"text\n",
        b"letter\r\n",
        b"give\n",
        b"1\n",
        b"nil\n",
        b"\"a\"\n",
        b"\"\\",
        b"\n",
        b"\0",
        b"x\n",
        b"fail\n",
    ];
    let mut next = || {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    };
    let mut bytes = Vec::new();
    for _ in 0..next() % 24 {
        match next() % 4 {
            0 => bytes.extend_from_slice(&next().to_le_bytes()),
            _ => bytes.extend_from_slice(words[(next() % words.len() as u64) as usize]),
        }
    }
    bytes
}

#[test]
fn any_bytes_are_answered_or_refused_and_the_server_goes_on() {
    let server = start(Options::default());
    let seed = 0x6c75_6172_7063;
    let mut state = seed;
    for round in 0..500 {
        let bytes = noise(&mut state);
        let mut stream = connect(&server);
        // A server that has refused already may have closed.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let is_over = read.as_ref().is_ok_and(|_| answer.is_empty() || answer.ends_with(b"\n"));
        let is_reset = read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(is_over || is_reset, "seed {seed:#x}, round {round}: {}", bytes.escape_ascii());
    }
    assert_eq!(exchange(&server, b"boo\n1\n"), "nil\n1\n");
    eventually("all connections end", || server.statistics().connections() == 0);
    assert_eq!(server.statistics().memory_bytes(), 0);
}

#[test]
fn an_argument_that_does_not_fit_is_refused_and_the_next_call_is_answered() {
    let server = start(Options::default());
    let requests: [(&[u8], &str); 7] = [
        (b"boo\none\n", "boo(inout double) -> void: argument 1: `one` is no double"),
        (b"boo\n0x10\n", "is no double: that is a decimal number"),
        (b"boo\n1e999\n", "is out of the range of a double"),
        (b"boo\nnil\n", "nil is no decimal number; give a value"),
        (b"text\nabc\n", "stands in double quotes"),
        (b"letter\nab\n", "is no char"),
        (b"give\n7\n", "is not nil"),
    ];
    for (request, part) in requests {
        let answer = exchange(&server, &[request, b"boo\n1\n"].concat());
        assert!(answer.starts_with("___ERRORPC: ") && answer.contains(part), "{answer}");
        assert!(answer.ends_with("\nnil\n1\n"), "{answer}");
    }
}

#[test]
fn too_few_arguments_are_named_when_their_time_is_over() {
    let server = start(Options { transfer_ms_max: 300, ..Options::default() });
    let mut stream = connect(&server);
    stream.write_all(b"boo\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, and the end");
    assert!(
        answer.contains("boo(inout double) -> void takes 1 lines of arguments, and 0 came within 300 ms"),
        "{answer}"
    );
}

#[test]
fn errors_panics_and_answers_that_do_not_fit_are_told_to_the_caller() {
    let server = start(Options::default());
    let answers = exchange(&server, b"fail\npanic\nwrong\nmarker\nboo\n1\n");
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(lines[0], "___ERRORPC: no such thing; try another");
    assert!(lines[1].contains("panic: the server has a defect here"), "{answers}");
    assert!(lines[2].contains("with a string as value 1 instead of a double"), "{answers}");
    assert!(lines[3].contains("begins like an error"), "{answers}");
    assert_eq!(lines[4..], ["nil", "1"]);
}

#[test]
fn silent_connections_make_room_for_callers() {
    let server = start(Options { connections_max: 16, ..Options::default() });
    let mut caller = connect(&server);
    let mut line = String::new();
    caller.write_all(b"boo\n1\n").expect("sent");
    BufReader::new(&caller).read_line(&mut line).expect("an answer");
    let silent: Vec<TcpStream> = (0..500).map(|_| connect(&server)).collect();
    assert_eq!(exchange(&server, b"boo\n2\n"), "nil\n2\n");
    assert!(server.statistics().connections() <= 16);
    eventually("others made room", || server.statistics().evicted() >= 480);
    // The one that had called is still there: those that said nothing went first.
    caller.write_all(b"boo\n3\n").expect("sent");
    let mut rest = [0; 8];
    BufReader::new(&caller).read_exact(&mut rest[..5]).expect("an answer");
    drop(silent);
    eventually("all connections end", || server.statistics().connections() <= 1);
}

#[test]
fn connections_that_rest_too_long_are_closed() {
    let server = start(Options { idle_ms_max: 200, ..Options::default() });
    let mut stream = connect(&server);
    stream.write_all(b"boo\n1\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the end");
    assert_eq!(answer, "nil\n1\n");
}

/// Strangers that sent lines without end took a third of a core from the files of a node with one.
#[test]
fn the_thread_that_reads_what_strangers_send_gives_way_and_no_other_does() {
    let server = start(Options { niceness: 7, ..Options::default() });
    assert_eq!(exchange(&server, b"boo\n1\n"), "nil\n1\n");
    let priority = |name: &str| {
        let mut found = Vec::new();
        for task in std::fs::read_dir("/proc/self/task").expect("threads") {
            let task = task.expect("a thread").path();
            // Threads of other tests come and go.
            let Ok(stat) = std::fs::read_to_string(task.join("stat")) else { continue };
            let Some((before, after)) = stat.rsplit_once(") ") else { continue };
            if before.ends_with(&format!("({name}")) {
                // The 19th field of proc(5), of which the third follows the name.
                found.extend(after.split(' ').nth(16).and_then(|nice| nice.parse::<i32>().ok()));
            }
        }
        found
    };
    let own = rustix::process::getpriority_process(None).expect("a priority");
    assert!(priority("luarpc").contains(&(own + 7).min(19)), "{:?}", priority("luarpc"));
    assert!(priority("luarpc-call").iter().all(|&nice| nice == own), "{:?}", priority("luarpc-call"));
}

/// It stayed as long as an answered connection may rest, five minutes: ten thousand of them cost nothing to make.
#[test]
fn a_connection_that_never_asks_is_closed_after_the_time_of_a_request() {
    let server = start(Options { transfer_ms_max: 200, ..Options::default() });
    let mut nothing = Vec::new();
    connect(&server).read_to_end(&mut nothing).expect("the end");
    assert_eq!(nothing, b"");
}

/// Answers were measured as a whole: one line of several MiB went out, and the client, which reads no such line, lost
/// its connection instead of reading why.
#[test]
fn a_value_that_no_client_would_read_as_a_line_is_an_error_that_costs_no_connection() {
    let server = start(Options { line_bytes_max: 8, ..Options::default() });
    let answers = exchange(&server, b"give\nnil\nboo\n1\n");
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(
        lines[0],
        "___ERRORPC: give: value 2 of the answer has 12 bytes, more than 8 of a line; ask for less"
    );
    assert_eq!(lines[1..], ["nil", "1"]);
}

#[test]
fn a_server_that_closes_after_each_answer_answers_the_first_call_only() {
    let server = start(Options { profile: Profile::Close, ..Options::default() });
    let mut stream = connect(&server);
    stream.write_all(b"boo\n1\nboo\n2\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the end");
    assert_eq!(answer, "nil\n1\n");
}

/// A service whose calls wait until the test lets them go on.
fn held(server_options: Options) -> (Running, mpsc::Sender<()>, mpsc::Receiver<()>) {
    let ((release, released), (begun, has_begun)) = (mpsc::channel(), mpsc::channel());
    let released = parking_lot::Mutex::new(released);
    let service = Function::new(false, move |method: &str, arguments| {
        if method != "slow" {
            return answer(method, arguments);
        }
        begun.send(()).map_err(|_| "the test has ended")?;
        released.lock().recv_timeout(WAIT).map_err(|_| "the test let it wait")?;
        Ok(vec![Value::Double(7.0)])
    });
    (start_with(server_options, service), release, has_begun)
}

#[test]
fn a_slow_call_stops_no_other() {
    let (server, release, has_begun) = held(Options { workers: 2, ..Options::default() });
    let mut slow = connect(&server);
    slow.write_all(b"slow\n").expect("sent");
    has_begun.recv_timeout(WAIT).expect("begins");
    assert_eq!(exchange(&server, b"boo\n1\n"), "nil\n1\n");
    release.send(()).expect("released");
    let mut line = String::new();
    BufReader::new(&slow).read_line(&mut line).expect("an answer");
    assert_eq!(line, "7\n");
}

#[test]
fn peers_that_call_and_leave_queue_no_more_calls_than_there_may_be_connections() {
    let (server, release, has_begun) = held(Options { workers: 1, connections_max: 4, ..Options::default() });
    let mut first = connect(&server);
    first.write_all(b"slow\n").expect("sent");
    has_begun.recv_timeout(WAIT).expect("begins");
    for _ in 0..50 {
        let mut stream = connect(&server);
        stream.write_all(b"slow\n").expect("sent");
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    }
    eventually("the connections are full", || server.statistics().connections() == 4);
    for _ in 0..50 {
        let _ = release.send(());
    }
    eventually("the calls that were begun return", || server.statistics().connections() <= 1);
    // The first one and three at most of those that have left.
    let begun = 1 + has_begun.try_iter().count();
    assert!(begun <= 50, "{begun} calls were begun");
    assert_eq!(exchange(&server, b"boo\n1\n"), "nil\n1\n");
}

#[test]
fn all_connections_together_keep_a_bounded_number_of_bytes() {
    let server = start(Options { memory_bytes_max: 1 << 20, ..Options::default() });
    let mut half = vec![b'x'; 200_000];
    half.splice(0..0, *b"text\n\"");
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    for stream in &mut streams {
        let _ = stream.write_all(&half);
    }
    eventually("some are refused", || server.statistics().errors() > 0);
    let memory = server.statistics().memory_bytes();
    assert!(memory < 3 << 20, "{memory} bytes");
    assert_eq!(exchange(&server, b"boo\n1\n"), "nil\n1\n", "a small request gets in");
    let mut refused = String::new();
    for stream in streams {
        stream.shutdown(std::net::Shutdown::Write).expect("ended");
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        refused.push_str(&line);
    }
    assert!(
        refused.contains("1048576 bytes of unfinished requests, its limit; try again later"),
        "{refused}"
    );
    eventually("everything is given back", || server.statistics().memory_bytes() == 0);
}

#[test]
fn a_server_that_is_stopped_gives_its_port_back() {
    let server = start(Options::default());
    let address = server.address();
    let _resting = connect(&server);
    assert!(server.stop());
    assert!(TcpStream::connect(address).is_err());
}
