//! Connections made ahead of the calls that need them, against servers that answer when the test wants it.

use super::tests::{next_frame, within_ms};
use super::{TcpTransport, TransportOptions};
use crate::frame::{Header, METHOD_HELLO, flags};
use crate::hello::{NONCE_BYTES, ServerHandshake};
use crate::key::ClusterKey;
use crate::operation::op;
use crate::proto;
use crate::service::Fault;
use crate::transport::{Transport, call, submit};
use parking_lot::{Condvar, Mutex};
use prost::Message;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};
use vazao_model::Code;

/// Longer than the round trip from which on a server is far away.
const FAR: Duration = Duration::from_millis(30);

/// What a server does between the steps of a connection; the number counts its connections from 0.
trait Manners: Send + Sync + 'static {
    /// It has received a hello.
    fn greeted(&self, _connection: usize) {}

    /// It has verified a proof; its answer leaves before that to the request behind it, but not before this returns.
    fn convinced(&self, _connection: usize, _stream: &mut TcpStream) -> Result<(), Fault> {
        Ok(())
    }

    /// A request has come: what goes along with its answer.
    fn answer(&self) -> Vec<u8> {
        Vec::new()
    }

    /// All of an answer has left, or its client has gone.
    fn answered(&self, _has_left: bool) {}

    /// The client has gone.
    fn ended(&self) {}
}

/// Answers pings and reads until its last client has gone, one thread for each connection.
fn serve(key: &ClusterKey, manners: Arc<dyn Manners>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let key = key.clone();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (key, manners) = (key.clone(), Arc::clone(&manners));
            std::thread::spawn(move || converse(stream.expect("accepted"), number, &key, &*manners));
        }
    });
    address
}

fn send(stream: &mut TcpStream, header: Header, message: &[u8]) {
    let header = Header { message_bytes: message.len() as u32, ..header };
    // The client may have gone.
    let _ = stream.write_all(&[&header.encode()[..], message].concat());
}

fn converse(mut stream: TcpStream, number: usize, key: &ClusterKey, manners: &dyn Manners) {
    let hello = Header { flags: flags::ANSWER, method: METHOD_HELLO, ..Header::default() };
    let (_, message) = next_frame(&mut stream);
    manners.greeted(number);
    let (handshake, answer) =
        ServerHandshake::answer(key, &message, vec![7; NONCE_BYTES]).expect("a good hello");
    send(&mut stream, hello, &answer);
    // A client with another key has gone by now.
    if stream.peek(&mut [0]).unwrap_or(0) == 0 {
        return;
    }
    let (_, proof) = next_frame(&mut stream);
    handshake.finish(key, &proof).expect("a good proof");
    if let Err(fault) = manners.convinced(number, &mut stream) {
        let failure = proto::Failure::from(&fault);
        return send(
            &mut stream,
            Header { flags: flags::ANSWER | flags::ERROR, ..hello },
            &failure.encode_to_vec(),
        );
    }
    send(&mut stream, hello, &[]);
    while stream.peek(&mut [0]).unwrap_or(0) > 0 {
        let (request, _) = next_frame(&mut stream);
        let Header { method, request_id, .. } = request;
        let bytes = manners.answer();
        let header = Header { flags: flags::ANSWER, method, request_id, ..Header::default() };
        let header = Header { attachment_bytes: bytes.len() as u32, ..header };
        let sent = stream.write_all(&[&header.encode()[..], &bytes].concat());
        manners.answered(sent.is_ok());
    }
    manners.ended();
}

fn transport(key: &ClusterKey) -> Arc<TcpTransport> {
    let options = TransportOptions { connect_ms_max: 20_000, ..TransportOptions::default() };
    TcpTransport::new(key.clone(), options, Arc::new(SystemClock))
}

fn key() -> ClusterKey {
    ClusterKey::generate().expect("randomness")
}

fn ping(transport: &TcpTransport, address: &str, ms: u64) -> Result<(), Fault> {
    call::<op::Ping>(transport, address, &Default::default(), within_ms(ms)).map(drop)
}

struct Polite;
impl Manners for Polite {}

/// Waits for a request before it says that the proof convinced it.
struct Reserved;
impl Manners for Reserved {
    fn convinced(&self, _: usize, stream: &mut TcpStream) -> Result<(), Fault> {
        assert!(stream.peek(&mut [0; 32]).expect("not closed") > 0);
        Ok(())
    }
}

/// Each connection took three round trips before its first request, over which the last one only said yes.
#[test]
fn a_request_follows_the_proof_without_waiting_for_what_the_server_says_to_it() {
    let key = key();
    let address = serve(&key, Arc::new(Reserved));
    let transport = transport(&key);
    (0..3).for_each(|_| ping(&transport, &address, 10_000).expect("answered"));
}

/// Says hello after so many milliseconds.
struct Hesitant(u64);
impl Manners for Hesitant {
    fn greeted(&self, _: usize) {
        SystemClock.sleep(Duration::from_millis(self.0));
    }
}

#[test]
fn the_distance_of_a_server_is_that_of_its_machine_however_long_its_answers_take() {
    let key = key();
    let address = serve(&key, Arc::new(Hesitant(300)));
    let transport = transport(&key);
    assert_eq!(transport.distance_ns(&address), 0, "not known");
    ping(&transport, &address, 10_000).expect("answered");
    assert!(transport.round_trip_ns(&address) >= 300_000_000);
    assert!((1..300_000_000).contains(&transport.distance_ns(&address)));
}

/// Says no to every proof.
struct Unconvinced;
impl Manners for Unconvinced {
    fn convinced(&self, _: usize, _: &mut TcpStream) -> Result<(), Fault> {
        Err(Fault::new(Code::Unauthenticated, "not you"))
    }
}

#[test]
fn a_proof_that_is_refused_fails_the_requests_behind_it_with_the_reason() {
    let key = key();
    let address = serve(&key, Arc::new(Unconvinced));
    let fault = ping(&transport(&key), &address, 10_000).expect_err("refused");
    assert_eq!(fault.code, Code::Unauthenticated);
    assert!(fault.detail.contains("not you") && fault.detail.contains(&address), "{fault}");
}

/// Answers a hello when so many servers have received one.
struct Together(Arc<Barrier>);
impl Manners for Together {
    fn greeted(&self, _: usize) {
        self.0.wait();
    }
}

#[test]
fn connections_to_several_servers_are_made_at_the_same_time() {
    let key = key();
    let barrier = Arc::new(Barrier::new(4));
    let servers: Vec<String> =
        (0..4).map(|_| serve(&key, Arc::new(Together(Arc::clone(&barrier))))).collect();
    let transport = transport(&key);
    let addresses: Vec<&str> = servers.iter().map(String::as_str).collect();
    assert!(!transport.is_connected(addresses[0]));
    transport.connect_ahead(&addresses[1..], within_ms(10_000));
    for address in &addresses {
        ping(&transport, address, 10_000).expect("all four were greeted");
        assert!(transport.is_connected(address));
    }
    // Where all are there nothing is made: the barrier would hold it up for good.
    transport.connect_ahead(&addresses, within_ms(10_000));
    addresses.iter().for_each(|address| ping(&transport, address, 10_000).expect("answered"));
}

/// Takes connections and never says a word.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

#[test]
fn servers_that_are_dead_silent_or_strangers_fail_their_own_requests_and_no_others() {
    let key = key();
    let (_listener, silent) = silent();
    let dead = {
        let (listener, address) = self::silent();
        drop(listener);
        address
    };
    let stranger = serve(&self::key(), Arc::new(Polite));
    let good = serve(&key, Arc::new(Polite));
    let transport = transport(&key);
    transport.connect_ahead(&[&silent, &dead, &stranger, &good], within_ms(1_500));
    ping(&transport, &good, 10_000).expect("the silent one is still being waited for");
    let code = |address: &str| ping(&transport, address, 1_500).expect_err("no server").code;
    assert_eq!(code(&stranger), Code::Unauthenticated);
    assert_eq!(code(&dead), Code::Unreachable);
    let started_ns = SystemClock.now_ns();
    assert_eq!(code(&silent), Code::Timeout);
    let waited_ms = (SystemClock.now_ns() - started_ns) / 1_000_000;
    assert!(waited_ms < 10_000, "one attempt stands for both: {waited_ms} ms");
    // The next call that needs a failed connection retries it.
    assert_eq!(code(&dead), Code::Unreachable);
}

/// Who asks many servers in turn must not wait for one that is gone, also not while another thread's attempt lasts.
#[test]
fn a_server_is_ready_once_its_connection_stands_and_not_while_it_is_being_made() {
    let key = key();
    let (listener, silent) = silent();
    let good = serve(&key, Arc::new(Polite));
    let transport = transport(&key);
    assert!(!transport.is_ready(&silent));
    listener.accept().expect("a connection is being made in the background");
    assert!(!transport.is_ready(&silent), "it is not greeted");
    while !transport.is_ready(&good) {
        SystemClock.sleep(Duration::from_millis(1));
    }
    ping(&transport, &good, 10_000).expect("answered");
}

/// Far away, and slow to greet the second connection until the test releases it.
#[derive(Default)]
struct Distant {
    goes_on: Mutex<bool>,
    changed: Condvar,
}

impl Manners for Distant {
    fn greeted(&self, connection: usize) {
        SystemClock.sleep(FAR);
        if connection > 0 {
            self.changed.wait_while(&mut self.goes_on.lock(), |goes_on| !*goes_on);
        }
    }
}

/// Each thread of a daemon's pool that talked to a far node for the first time waited for a connection of its own. So
/// did later one in 30 under load: a place that another thread looked at just then counted as one that is being
/// connected.
#[test]
fn a_thread_without_a_connection_to_a_far_server_uses_anothers_until_its_own_stands() {
    let key = key();
    let manners = Arc::new(Distant::default());
    let address = serve(&key, Arc::clone(&manners) as Arc<dyn Manners>);
    let transport = transport(&key);
    ping(&transport, &address, 10_000).expect("answered");
    // Their own connections are not answered before the end.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| ping(&transport, &address, 10_000).expect("answered")));
        }
    });
    *manners.goes_on.lock() = true;
    manners.changed.notify_all();
    let connections: usize = transport.peers().iter().map(|peer| peer.connections.len()).sum();
    assert!(connections <= 5, "one for each thread at most: {connections}");
}

/// Far away. Its answers are long, or it answers when the long ones of another have left.
struct Far {
    bytes: usize,
    long_ones: Arc<(Mutex<usize>, Condvar)>,
}

impl Manners for Far {
    fn greeted(&self, _: usize) {
        SystemClock.sleep(FAR);
    }

    fn answer(&self) -> Vec<u8> {
        if self.bytes == 0 {
            let (left, changed) = &*self.long_ones;
            let is_short = |left: &mut usize| *left < LONG_ONES;
            let waited = changed.wait_while_for(&mut left.lock(), is_short, Duration::from_secs(20));
            assert!(!waited.timed_out(), "the long answers were not received");
        }
        vec![1; self.bytes]
    }

    fn answered(&self, has_left: bool) {
        if self.bytes > 0 && has_left {
            *self.long_ones.0.lock() += 1;
            self.long_ones.1.notify_all();
        }
    }
}

/// More than any buffer of a connection holds.
const LONG_ONES: usize = 16;

/// A reader of four servers over a long link took twice the time of one server: while it waited for the first, the
/// others' windows were shut after 96 KiB each.
#[test]
fn while_somebody_waits_for_one_far_server_the_answers_of_another_are_received() {
    let key = key();
    let long_ones = Arc::default();
    let far = |bytes| serve(&key, Arc::new(Far { bytes, long_ones: Arc::clone(&long_ones) }));
    let (first, second) = (far(0), far(4 << 20));
    let transport = transport(&key);
    let ask =
        |address: &str| submit::<op::Read>(&*transport, address, &Default::default(), &[], within_ms(30_000));
    let waited_for = ask(&first);
    let others: Vec<_> = (0..LONG_ONES).map(|_| ask(&second)).collect();
    waited_for.wait().expect("the long answers of the other have left");
    for other in others {
        assert_eq!(other.wait().expect("answered").1.len(), 4 << 20);
    }
}

/// Far away, and waits for its client to go.
#[derive(Default)]
struct Waiting {
    gone: Arc<(Mutex<bool>, Condvar)>,
}

impl Manners for Waiting {
    fn greeted(&self, _: usize) {
        SystemClock.sleep(FAR);
    }

    fn ended(&self) {
        *self.gone.0.lock() = true;
        self.gone.1.notify_all();
    }
}

#[test]
fn the_threads_that_receive_from_far_away_let_go_of_their_connection_when_the_client_is_closed() {
    let key = key();
    let manners = Waiting::default();
    let gone = Arc::clone(&manners.gone);
    let address = serve(&key, Arc::new(manners));
    let transport = transport(&key);
    ping(&transport, &address, 10_000).expect("answered");
    drop(transport);
    let waited = gone.1.wait_while_for(&mut gone.0.lock(), |gone| !*gone, Duration::from_secs(10));
    assert!(!waited.timed_out(), "the connection stays");
}
