//! The local door over real sockets: which clients are admitted, what is handed out, how it ends.

use super::{LentMemory, LocalServer, LocalService, Visit};
use crate::key::ClusterKey;
use crate::proto::{OpenLocalRequest, OpenLocalResponse};
use crate::service::Fault;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vazao_meter::{Clock, SystemClock};
use vazao_model::Code;
use vazao_model::limits::LOCAL_VISITORS_MAX;

/// Chunk 0 is there, chunk 1 is not, anything else fails. What is lent at present is noted.
struct Keeper(tempfile::TempDir, Mutex<Vec<(u64, OwnedFd)>>);

impl Keeper {
    fn new() -> Arc<Keeper> {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("data"), "bytes").expect("written");
        std::fs::write(directory.path().join("sums"), "sums!").expect("written");
        Arc::new(Keeper(directory, Mutex::default()))
    }
}

impl LocalService for Keeper {
    fn hand_out(
        &self,
        request: &OpenLocalRequest,
    ) -> Result<(OpenLocalResponse, Option<[OwnedFd; 2]>), Fault> {
        let open = |name| std::fs::File::open(self.0.path().join(name)).expect("is there").into();
        match request.chunk {
            0 => {
                Ok((OpenLocalResponse { missing: false, chunk_bytes: 7 }, Some([open("data"), open("sums")])))
            }
            1 => Ok((OpenLocalResponse { missing: true, chunk_bytes: 7 }, None)),
            _ => Err(Fault::new(Code::TargetFailed, "on fire")),
        }
    }

    fn borrow(&self, number: u64, memory: OwnedFd) -> Result<(), Fault> {
        self.1.lock().push((number, memory));
        Ok(())
    }

    fn give_back(&self, number: u64) {
        self.1.lock().retain(|(other, _)| *other != number);
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

fn soon() -> u64 {
    SystemClock.now_ns() + 20_000_000_000
}

fn open(key: &ClusterKey) -> LocalServer {
    LocalServer::open(Keeper::new(), key.clone(), clock()).expect("abstract sockets")
}

fn visit(door: &LocalServer, key: &ClusterKey) -> Result<Visit, Fault> {
    Visit::begin(&door.announcement().name, key, clock(), soon())
}

fn ask(visit: &Visit, chunk: u64) -> Result<super::Handed, Fault> {
    visit.open(&OpenLocalRequest { object: None, chunk }, soon())
}

fn contents(file: OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 5];
    std::fs::File::from(file).read_exact_at(&mut bytes, 0).expect("readable");
    bytes
}

/// A connection that has said nothing yet.
fn stranger(door: &LocalServer) -> UnixStream {
    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    let address = SocketAddrUnix::new_abstract_name(&door.announcement().name).expect("a name");
    connect(&socket, &address).expect("the door is open");
    UnixStream::from(socket)
}

#[test]
fn whoever_has_the_key_is_handed_both_files_of_a_chunk() {
    let key = ClusterKey::generate().expect("randomness");
    let door = open(&key);
    let visit = visit(&door, &key).expect("let in");
    for _ in 0..3 {
        let handed = ask(&visit, 0).expect("handed out");
        let [data, sums] = handed.files.expect("is there");
        assert_eq!((contents(data), contents(sums)), (b"bytes".to_vec(), b"sums!".to_vec()));
        assert_eq!(handed.response.chunk_bytes, 7);
    }
    assert!(ask(&visit, 1).expect("answered").files.is_none());
    assert_eq!(ask(&visit, 2).expect_err("refused").code, Code::TargetFailed);
    assert!(visit.is_alive(), "a refusal is no end");
}

#[test]
fn memory_is_lent_once_for_as_long_as_the_visit_lasts() {
    let (key, keeper) = (ClusterKey::insecure(), Keeper::new());
    let door = LocalServer::open(Arc::clone(&keeper) as _, key.clone(), clock()).expect("abstract sockets");
    let memory = LentMemory::new(8192).expect("a descriptor");
    memory.take(5).expect("is empty").copy_from_slice(b"lent!");
    let [first, second] = [0, 1].map(|_| visit(&door, &key).expect("let in"));
    let numbers = [&first, &second].map(|visit| visit.lend(&memory, soon()).expect("taken"));
    assert_eq!(first.lend(&memory, soon()), Some(numbers[0]), "not again");
    assert_ne!(numbers[0], numbers[1]);
    let lent = || keeper.1.lock().iter().map(|(number, _)| *number).collect::<Vec<_>>();
    assert_eq!(lent(), numbers);
    let descriptor = keeper.1.lock().remove(0).1;
    assert_eq!(contents(descriptor), b"lent!");
    assert!(ask(&second, 0).is_ok(), "files are handed out as before");
    drop((first, second));
    let until_ns = soon();
    while !lent().is_empty() {
        assert!(SystemClock.now_ns() < until_ns, "it is given back");
        std::thread::yield_now();
    }
}

/// A server from before memory could be lent.
struct Old;

impl LocalService for Old {
    fn hand_out(
        &self,
        _request: &OpenLocalRequest,
    ) -> Result<(OpenLocalResponse, Option<[OwnedFd; 2]>), Fault> {
        Ok((OpenLocalResponse { missing: true, chunk_bytes: 7 }, None))
    }
}

#[test]
fn a_server_that_takes_no_memory_is_asked_once_and_serves_on() {
    let key = ClusterKey::insecure();
    let door = LocalServer::open(Arc::new(Old), key.clone(), clock()).expect("abstract sockets");
    let visit = visit(&door, &key).expect("let in");
    let memory = LentMemory::new(4096).expect("a descriptor");
    for _ in 0..2 {
        assert_eq!(visit.lend(&memory, soon()), None);
    }
    assert!(ask(&visit, 0).expect("answered").files.is_none() && visit.is_alive());
}

#[test]
fn another_key_is_refused_by_both_sides() {
    let key = ClusterKey::generate().expect("randomness");
    let door = open(&key);
    let refused = visit(&door, &ClusterKey::insecure()).expect_err("refused");
    assert_eq!(refused.code, Code::Unauthenticated);
}

#[test]
fn a_visitor_learns_at_once_that_the_door_was_closed_or_that_it_was_sent_away() {
    let key = ClusterKey::insecure();
    let mut door = open(&key);
    let first = visit(&door, &key).expect("let in");
    door.send_away();
    assert!(!first.is_alive());
    let again = visit(&door, &key).expect("let in again");
    assert!(again.is_alive());
    door.close();
    assert!(!again.is_alive());
    assert_eq!(ask(&again, 0).expect_err("over").code, Code::Disconnected);
    assert_eq!(visit(&door, &key).expect_err("closed").code, Code::Unreachable);
}

#[test]
fn garbage_and_requests_before_the_handshake_end_the_connection_without_an_answer() {
    use crate::frame::Header;
    use std::io::Write;
    let key = ClusterKey::insecure();
    let door = open(&key);
    let request = Header { method: 0x0221, ..Header::default() }.encode();
    for bytes in [vec![0xA5; 64], request.to_vec()] {
        let mut stream = stranger(&door);
        stream.write_all(&bytes).expect("sent");
        let mut answer = Vec::new();
        // A reset is an end as well: the server did not read everything.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    assert!(visit(&door, &key).is_ok(), "others are let in");
}

#[test]
fn silent_strangers_take_no_more_places_than_there_are() {
    let key = ClusterKey::insecure();
    let door = open(&key);
    let strangers: Vec<UnixStream> = (0..LOCAL_VISITORS_MAX).map(|_| stranger(&door)).collect();
    // Those before it have been let in once this one is answered, one way or the other.
    assert!(visit(&door, &key).is_err(), "there is no place left");
    drop(strangers);
    let until_ns = soon();
    while visit(&door, &key).is_err() {
        assert!(SystemClock.now_ns() < until_ns, "places become free");
    }
}
