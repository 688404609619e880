//! What peers that stall, do not read or say nothing cost a server, and what the others notice of it.

use super::bounds::Bounds;
use super::tests::{Echo, read, shake_hands, transport, within_ms};
use super::{Server, ServerOptions};
use crate::frame::Header;
use crate::key::ClusterKey;
use crate::operation::{Method, op};
use crate::proto;
use crate::service::Fault;
use crate::transport::{Transport, call, submit};
use prost::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};
use vazao_model::Code;
use vazao_model::limits::{
    CONNECTIONS_MAX, DEADLINE_MS_DEFAULT, UNFINISHED_BYTES_MAX, UNREAD_MS_MAX, UNSENT_BYTES_MAX,
    UNSENT_MS_MAX,
};
use vazao_testing::waiting::wait_until;

const MIB: usize = 1 << 20;

/// What one loop may have beyond the bounds: a frame of the largest size, and what it receives at once.
const OVERDRAFT_BYTES: usize = 2 * (6 * MIB);

/// Real time, and as much more as a test says has passed.
#[derive(Default)]
struct Skipping(AtomicU64);

impl Skipping {
    fn skip_ms(&self, ms: u32) {
        self.0.fetch_add(u64::from(ms) * 1_000_000, Ordering::SeqCst);
    }
}

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

fn serve_within(key: &ClusterKey, bounds: Bounds, clock: Arc<dyn Clock>) -> Server {
    let options = ServerOptions { threads: 2, key: key.clone(), name: "bounded".to_owned() };
    Server::start_within("127.0.0.1:0", Arc::new(Echo::default()), options, clock, bounds).expect("loopback")
}

fn key() -> ClusterKey {
    ClusterKey::generate().expect("randomness")
}

/// A write of `claimed` bytes of which only `sent` are.
fn begin_write(stream: &mut TcpStream, claimed: usize, sent: usize) {
    let message = proto::WriteRequest::default().encode_to_vec();
    let header = Header {
        method: Method::Write.number(),
        request_id: 1,
        message_bytes: message.len() as u32,
        attachment_bytes: claimed as u32,
        time: 60_000,
        ..Header::default()
    };
    let bytes = [&header.encode()[..], &message, &vec![7; sent]].concat();
    stream.write_all(&bytes).expect("sent");
}

fn ask_to_read(stream: &mut TcpStream, request_id: u64, length: usize) {
    let message = read(5, length as u32).encode_to_vec();
    let header = Header {
        method: Method::Read.number(),
        request_id,
        message_bytes: message.len() as u32,
        time: 60_000,
        ..Header::default()
    };
    stream.write_all(&[&header.encode()[..], &message].concat()).expect("sent");
}

/// True once the connection has been ended from the other side.
fn is_ended(stream: &TcpStream) -> bool {
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let looked = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    looked.is_ok() && fds[0].revents().intersects(ended)
}

fn write(transport: &dyn Transport, address: &str, length: usize) {
    let bytes = vec![9; length];
    let pending = submit::<op::Write>(transport, address, &Default::default(), &bytes, within_ms(20_000));
    assert_eq!(pending.wait().expect("written").0.object_length, length as u64);
}

/// 400 peers with the key that had sent the header of a write, and nothing more, cost a data server 1.6 GB.
#[test]
fn peers_that_announce_large_writes_and_send_nothing_cost_next_to_nothing() {
    let key = key();
    let server = serve_within(&key, Bounds::default(), Arc::new(SystemClock));
    let address = server.address().to_string();
    let mut stalled: Vec<TcpStream> = (0..400).map(|_| shake_hands(&address, &key)).collect();
    stalled.iter_mut().for_each(|stream| begin_write(stream, 4 * MIB, 100));
    let claimed = || server.bounds().unfinished.claimed_bytes();
    wait_until("the writes have begun", || claimed() >= 400 * 80 * 1024);
    assert!(claimed() < 40 * MIB, "{}", claimed());
    let transport = transport(&key);
    for length in [1, 100_000, MIB, 4 * MIB] {
        write(&*transport, &address, length);
    }
    assert!(!stalled.iter().any(is_ended), "nobody needs what they have");
}

#[test]
fn while_peers_stall_beyond_the_bound_others_are_served_and_those_who_stall_are_closed() {
    let key = key();
    let bounds = Bounds::new(CONNECTIONS_MAX, 16 * MIB, UNSENT_BYTES_MAX);
    let server = serve_within(&key, bounds, Arc::new(SystemClock));
    let address = server.address().to_string();
    let mut stalled: Vec<TcpStream> = (0..60).map(|_| shake_hands(&address, &key)).collect();
    stalled.iter_mut().for_each(|stream| begin_write(stream, 4 * MIB, 200_000));
    let unfinished = &server.bounds().unfinished;
    wait_until("there is no memory left", || unfinished.claimed_bytes() > 11 * MIB);
    let transport = transport(&key);
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for length in [300_000, 2 * MIB, 100, 300_000, 4 * MIB] {
                    write(&*transport, &address, length);
                    most.fetch_max(unfinished.claimed_bytes() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let most = most.into_inner() as usize;
    assert!(most <= 16 * MIB + OVERDRAFT_BYTES, "{most}");
    wait_until("some who stall are closed", || stalled.iter().any(is_ended));
}

#[test]
fn small_requests_arrive_in_pieces_however_much_memory_others_have() {
    let key = key();
    let bounds = Bounds::new(CONNECTIONS_MAX, MIB, UNSENT_BYTES_MAX);
    let server = serve_within(&key, bounds, Arc::new(SystemClock));
    let address = server.address().to_string();
    let mut stalled: Vec<TcpStream> = (0..20).map(|_| shake_hands(&address, &key)).collect();
    stalled.iter_mut().for_each(|stream| begin_write(stream, 4 * MIB, 70_000));
    wait_until("there is no memory left", || server.bounds().unfinished.claimed_bytes() > MIB / 2);
    let mut slow = shake_hands(&address, &key);
    begin_write(&mut slow, 9_000, 5_000);
    SystemClock.sleep(Duration::from_millis(100));
    slow.write_all(&[7; 4_000]).expect("sent");
    let (header, body) = super::tests::next_frame(&mut slow);
    let answer = proto::WriteResponse::decode(&body[..header.message_bytes as usize]).expect("an answer");
    assert_eq!(answer.object_length, 9_000);
}

/// 100 clients of the metadata service that did not read their answers were still connected after 75 s, as far as they
/// could see: the server had closed its side, and the kernel kept what they had not read, and the end behind it.
#[test]
fn a_peer_that_takes_no_answers_is_disconnected_and_notices() {
    let (key, clock) = (key(), Arc::new(Skipping::default()));
    let server = serve_within(&key, Bounds::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    let address = server.address().to_string();
    let mut stream = shake_hands(&address, &key);
    (0..50).for_each(|request_id| ask_to_read(&mut stream, request_id, 4 * MIB));
    let unsent = &server.bounds().unsent;
    wait_until("answers pile up", || unsent.claimed_bytes() > 2 * MIB);
    assert!(unsent.claimed_bytes() < 16 * MIB, "{}", unsent.claimed_bytes());
    clock.skip_ms(UNSENT_MS_MAX / 2);
    SystemClock.sleep(Duration::from_millis(1500));
    assert!(!is_ended(&stream), "it may still come to read them");
    clock.skip_ms(UNSENT_MS_MAX);
    wait_until("it is disconnected", || is_ended(&stream));
    wait_until("the memory is given back", || unsent.claimed_bytes() == 0);
}

/// Of 100 clients that did not read their answers 37 saw no end: the kernel kept the answers, and gave these
/// connections up after the same 60 s without a word.
#[test]
fn a_peer_whose_answers_the_kernel_keeps_is_disconnected_and_notices_too() {
    let (key, clock) = (key(), Arc::new(Skipping::default()));
    let server = serve_within(&key, Bounds::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    let address = server.address().to_string();
    let (mut unread, mut resting) = (shake_hands(&address, &key), shake_hands(&address, &key));
    // More than the peer's kernel takes unread, less than that of the server.
    for stream in [&mut unread, &mut resting] {
        ask_to_read(stream, 1, 500_000);
    }
    assert_eq!(super::tests::next_frame(&mut resting).0.attachment_bytes, 500_000);
    wait_until("the answer has begun to come", || unread.peek(&mut [0]).is_ok_and(|count| count > 0));
    let unsent = &server.bounds().unsent;
    wait_until("the server itself keeps nothing", || unsent.claimed_bytes() == 0);
    clock.skip_ms(UNSENT_MS_MAX + 1_000);
    wait_until("it is disconnected", || is_ended(&unread));
    assert!(!is_ended(&resting), "who has taken all may rest");
}

#[test]
fn peers_that_take_no_answers_get_bounded_memory_and_others_are_served() {
    let (key, clock) = (key(), Arc::new(Skipping::default()));
    let bounds = Bounds::new(CONNECTIONS_MAX, UNFINISHED_BYTES_MAX, 8 * MIB);
    let server = serve_within(&key, bounds, Arc::clone(&clock) as Arc<dyn Clock>);
    let address = server.address().to_string();
    let mut silent: Vec<TcpStream> = (0..30).map(|_| shake_hands(&address, &key)).collect();
    for stream in &mut silent {
        (0..4).for_each(|request_id| ask_to_read(stream, request_id, 4 * MIB));
    }
    let unsent = &server.bounds().unsent;
    wait_until("there is too much", || unsent.is_overdrawn());
    let transport = transport(&key);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            for length in [100, MIB, 4 * MIB] {
                // On a busy machine it may look as if this one took nothing, either: then it comes again.
                wait_until("it is served", || read_and_write(&*transport, &address, length).is_ok());
            }
        });
        while !served.is_finished() {
            assert!(unsent.claimed_bytes() <= 16 * MIB + OVERDRAFT_BYTES, "{}", unsent.claimed_bytes());
            // Between two looks at what peers have taken.
            SystemClock.sleep(Duration::from_millis(1200));
            clock.skip_ms(UNREAD_MS_MAX);
        }
    });
    assert!(silent.iter().any(is_ended), "who takes nothing made room");
}

/// Not read from because of others' answers, peers in the middle of a write were reset after a second as if they had
/// stopped; and those that had an fsync under way were not read from again before that was answered.
#[test]
fn a_peer_that_is_not_read_from_is_not_late_and_goes_on_when_there_is_memory() {
    const LENGTH: usize = 256 * 1024;
    let (key, clock) = (key(), Arc::new(Skipping::default()));
    let bounds = Bounds::new(CONNECTIONS_MAX, UNFINISHED_BYTES_MAX, 2 * MIB);
    let server = serve_within(&key, bounds, Arc::clone(&clock) as Arc<dyn Clock>);
    let address = server.address().to_string();
    let (mut writer, mut slow) = (shake_hands(&address, &key), shake_hands(&address, &key));
    // It is never answered.
    let sync = Header { method: Method::Sync.number(), request_id: 2, time: 60_000, ..Header::default() };
    writer.write_all(&sync.encode()).expect("sent");
    begin_write(&mut writer, LENGTH, LENGTH / 4);
    let Bounds { unfinished, unsent, .. } = server.bounds();
    wait_until("the write has begun", || unfinished.claimed_bytes() > 0);
    (0..8).for_each(|request_id| ask_to_read(&mut slow, request_id, 4 * MIB));
    wait_until("answers take too much", || unsent.is_short());
    for _ in 0..25 {
        SystemClock.sleep(Duration::from_millis(100));
        slow.read_exact(&mut [0; 100_000]).expect("slow, but steady");
        writer.write_all(&[7; LENGTH / 100]).expect("sent");
        assert!(!is_ended(&writer));
    }
    // Too long for the one that reads too little, and for any half request.
    clock.skip_ms(DEADLINE_MS_DEFAULT + 1_000);
    wait_until("there is memory again", || !unsent.is_short());
    let rest = LENGTH - LENGTH / 4 - 25 * (LENGTH / 100);
    writer.write_all(&vec![7; rest]).expect("sent");
    let (header, body) = super::tests::next_frame(&mut writer);
    let answer = proto::WriteResponse::decode(&body[..header.message_bytes as usize]).expect("an answer");
    assert_eq!(answer.object_length, LENGTH as u64);
}

fn read_and_write(transport: &dyn Transport, address: &str, length: usize) -> Result<(), Fault> {
    let asked = read(3, length as u32);
    let reading = submit::<op::Read>(transport, address, &asked, &[], within_ms(20_000));
    assert_eq!(reading.wait()?.1.len(), length);
    let bytes = vec![9; length];
    let writing = submit::<op::Write>(transport, address, &Default::default(), &bytes, within_ms(20_000));
    assert_eq!(writing.wait()?.0.object_length, length as u64);
    Ok(())
}

#[test]
fn strangers_do_not_keep_those_who_have_the_key_out() {
    let key = key();
    let bounds = Bounds::new(40, UNFINISHED_BYTES_MAX, UNSENT_BYTES_MAX);
    let server = serve_within(&key, bounds, Arc::new(SystemClock));
    let address = server.address().to_string();
    let strangers: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(&address).expect("connects")).collect();
    let friends: Vec<TcpStream> = (0..40).map(|_| shake_hands(&address, &key)).collect();
    wait_until("strangers made room", || strangers.iter().all(is_ended));
    assert!(!friends.iter().any(is_ended));
    let fault = call::<op::Ping>(&*transport(&key), &address, &Default::default(), within_ms(5_000));
    assert_eq!(fault.expect_err("one too many").code, Code::Overloaded);
}

/// A node that was stopped while a peer did not answer waited for it until its deadline.
#[test]
fn hanging_up_ends_every_wait() {
    let key = key();
    let server = serve_within(&key, Bounds::default(), Arc::new(SystemClock));
    // Accepted by the kernel, and never greeted.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addresses = [server.address().to_string(), mute.local_addr().expect("bound").to_string()];
    let transport = transport(&key);
    call::<op::Ping>(&*transport, &addresses[0], &Default::default(), within_ms(5_000)).expect("connected");
    let started_ns = SystemClock.now_ns();
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..6)
            .map(|number| {
                let (transport, address) = (&transport, &addresses[number % 2]);
                // A request that is never answered.
                scope.spawn(move || {
                    call::<op::Sync>(&**transport, address, &Default::default(), within_ms(60_000))
                })
            })
            .collect();
        SystemClock.sleep(Duration::from_millis(100));
        transport.hang_up();
        for wait in waits {
            assert_eq!(wait.join().expect("no panic").expect_err("given up").code, Code::Cancelled);
        }
    });
    let later = call::<op::Ping>(&*transport, &addresses[0], &Default::default(), within_ms(60_000));
    assert_eq!(later.expect_err("nothing more is sent").code, Code::Cancelled);
    let elapsed_ms = (SystemClock.now_ns() - started_ns) / 1_000_000;
    assert!(elapsed_ms < 2_500, "{elapsed_ms} ms, less than a connection may take");
}
