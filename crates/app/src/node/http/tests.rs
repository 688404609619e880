//! The metrics port as scrapers, people and enemies see it.

use super::{Page, Pages, serve};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};
use vazao_model::limits::{HTTP_CONNECTIONS_MAX, HTTP_HEAD_BYTES_MAX, HTTP_MS_MAX, HTTP_REQUESTS_MAX};

/// `/long` is longer than sockets take at once, `/broken` cannot be made.
struct Book;

const LONG_BYTES: usize = 20 << 20;

impl Pages for Book {
    fn page(&self, path: &str) -> Page {
        match path {
            "/ok" => Page::text(200, "ok\n"),
            "/long" => Page::metrics("x".repeat(LONG_BYTES)),
            "/broken" => panic!("this page is broken"),
            _ => Page::text(404, "nothing\n"),
        }
    }
}

/// Real time, and as much more as a test says has passed.
#[derive(Default)]
struct Skipping(AtomicU64);

impl Clock for Skipping {
    fn now_ns(&self) -> u64 {
        SystemClock.now_ns() + self.0.load(Ordering::SeqCst)
    }

    fn wall_ns(&self) -> u64 {
        SystemClock.wall_ns()
    }

    fn sleep(&self, time: Duration) {
        SystemClock.sleep(time);
    }
}

fn start() -> SocketAddr {
    serve("127.0.0.1:0", Arc::new(Book), Arc::new(SystemClock)).expect("a port")
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    stream
}

/// The next answer: its status, its header, its body. `HEAD` answers have none.
fn answer(stream: &mut TcpStream, head_only: bool) -> (u16, String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a header");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    let mut body = vec![0; if head_only { 0 } else { length.expect("a length") }];
    stream.read_exact(&mut body).expect("a body");
    (status, head, body)
}

fn ask(to: SocketAddr, request: &[u8]) -> (u16, String, Vec<u8>) {
    let mut stream = connect(to);
    stream.write_all(request).expect("sent");
    answer(&mut stream, false)
}

fn is_well(to: SocketAddr) -> bool {
    ask(to, b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n").2 == b"ok\n"
}

/// All that still comes, until the connection is closed.
fn rest(mut stream: TcpStream) -> usize {
    let mut rest = Vec::new();
    // A reset is as good an end as a close.
    let _ = stream.read_to_end(&mut rest);
    rest.len()
}

#[test]
fn a_scraper_keeps_its_connection_and_hears_when_it_ends() {
    let to = start();
    let mut stream = connect(to);
    for _ in 1..HTTP_REQUESTS_MAX {
        stream.write_all(b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let (status, head, body) = answer(&mut stream, false);
        assert_eq!((status, &body[..]), (200, &b"ok\n"[..]));
        assert!(head.contains("Connection: keep-alive") && head.contains("Date: "), "{head}");
    }
    stream.write_all(b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let (_, head, _) = answer(&mut stream, false);
    assert!(head.contains("Connection: close"), "{head}");
    assert_eq!(rest(stream), 0);
}

#[test]
fn requests_that_come_together_are_answered_in_order_and_head_has_no_body() {
    let mut stream = connect(start());
    let requests =
        "HEAD /ok HTTP/1.1\r\nHost: x\r\n\r\nGET /else HTTP/1.1\r\nHost: x\r\n\r\nGET /ok HTTP/1.0\r\n\r\n";
    // In pieces, as a network may cut them.
    for piece in requests.as_bytes().chunks(7) {
        stream.write_all(piece).expect("sent");
    }
    let (status, head, _) = answer(&mut stream, true);
    assert!(status == 200 && head.contains("Content-Length: 3"), "{head}");
    assert_eq!(answer(&mut stream, false).0, 404);
    let (status, head, _) = answer(&mut stream, false);
    assert!(status == 200 && head.contains("Connection: close"), "{head}");
    assert_eq!(rest(stream), 0);
}

/// `POST` with `Content-Length: 10000000000000` ended the process: the library made room for what had not been read.
#[test]
fn a_body_of_ten_terabytes_is_refused_and_nothing_else_happens() {
    let to = start();
    for (method, status) in [("POST", 405), ("GET", 413)] {
        let request =
            format!("{method} /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000000\r\n\r\nbody");
        let (seen, head, _) = ask(to, request.as_bytes());
        assert_eq!(seen, status);
        assert_eq!(head.contains("Allow: GET, HEAD"), status == 405);
        assert!(is_well(to));
    }
}

#[test]
fn whoever_sends_a_body_all_the_same_hears_why_it_was_not_wanted() {
    let mut stream = connect(start());
    stream.write_all(b"PUT /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n").expect("sent");
    stream.write_all(&[b'x'; 100_000]).expect("sent");
    assert_eq!(answer(&mut stream, false).0, 405);
    assert_eq!(rest(stream), 0);
}

#[test]
fn a_request_line_without_end_is_refused_when_it_is_too_long() {
    let to = start();
    let mut stream = connect(to);
    let mut sent = 0;
    // Long before 100 MB the other side has closed.
    while sent < 100 << 20 && stream.write_all(&[b'a'; 4096]).is_ok() {
        sent += 4096;
    }
    assert!(sent < 16 << 20, "{sent} bytes were taken");
    assert!(is_well(to));
    let mut stream = connect(to);
    stream.write_all(&[b'a'; HTTP_HEAD_BYTES_MAX]).expect("sent");
    assert_eq!(answer(&mut stream, false).0, 431);
}

/// Regression: a body that never came blocked `/metrics` and `/healthz` for all clients, and 9,000 connections had a
/// thread each.
#[test]
fn a_thousand_connections_that_say_nothing_or_half_a_request_keep_nobody_out() {
    let to = start();
    let threads = || std::fs::read_dir("/proc/self/task").expect("there").count();
    let before = threads();
    let mut silent: Vec<TcpStream> = (0..1000).map(|_| connect(to)).collect();
    for stream in &mut silent[500..] {
        // Many have been closed to make room.
        let _ = stream.write_all(b"GET /ok HTTP/1.1\r\nHo");
    }
    assert!(is_well(to));
    // Tests beside this one have threads, too.
    assert!(threads() < before + 200, "{} threads", threads());
    let is_open = |stream: &TcpStream| {
        stream.set_nonblocking(true).is_ok()
            && matches!(stream.peek(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(silent.iter().filter(|stream| is_open(stream)).count() <= HTTP_CONNECTIONS_MAX);
}

#[test]
fn who_takes_long_is_closed_in_time_and_does_not_hold_up_others() {
    let clock = Arc::new(Skipping::default());
    let to = serve("127.0.0.1:0", Arc::new(Book), Arc::clone(&clock) as Arc<dyn Clock>).expect("a port");
    let (mut half, mut reader) = (connect(to), connect(to));
    half.write_all(b"GET /ok HTTP/1.1\r\n").expect("sent");
    reader.write_all(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    assert!(is_well(to), "they block nothing");
    clock.0.fetch_add(u64::from(HTTP_MS_MAX) * 1_000_000, Ordering::SeqCst);
    assert_eq!(rest(half), 0);
    assert!(rest(reader) < LONG_BYTES, "it was closed before all was taken");
    assert!(is_well(to));
}

#[test]
fn a_long_answer_arrives_whole() {
    let (status, _, body) = ask(start(), b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((status, body.len()), (200, LONG_BYTES));
}

#[test]
fn a_page_that_cannot_be_made_does_not_take_the_port_with_it() {
    let to = start();
    assert_eq!(ask(to, b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n").0, 500);
    assert!(is_well(to));
}
