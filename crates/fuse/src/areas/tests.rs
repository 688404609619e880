//! The tree of one node's area, tested without a kernel: what the node is asked, and when.

use super::{Areas, LEASE};
use crate::filesystem::arguments::{Caller, NewMode, Place};
use crate::filesystem::listing::Wanted;
use crate::filesystem::{FileSystem, Unsent};
use prost::Message;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use vazao_area::{AreaConfig, AreaService};
use vazao_client::{Client, OpenMode};
use vazao_meter::{Clock, SystemClock};
use vazao_model::{Attributes, Code, InodeId};
use vazao_wire::inline::InlineTransport;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::{Method, proto};

const META: &str = "meta:1";
const NODE: &str = "node:1";
const ROOT: InodeId = InodeId(1);

/// As much of a metadata service as a client of areas needs.
struct FakeMeta;

impl Service for FakeMeta {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let areas = vec![proto::Area { name: "data".into(), ..Default::default() }];
        let node =
            proto::Node { id: 1, name: "n1".into(), address: NODE.into(), areas, ..Default::default() };
        let node = proto::Node { roles: vec![3], state: 1, ..node };
        let map = Some(proto::ClusterMap {
            cluster_id: 1,
            epoch: 1,
            nodes: vec![node],
            targets: vec![],
            ..Default::default()
        });
        let answer = match request.method {
            Method::OpenSession => {
                let opened = proto::OpenSessionResponse { session: 1, slots: 8, map, ..Default::default() };
                proto::OpenSessionResponse { lease_ms: 60_000, ..opened }.encode_to_vec()
            }
            Method::GetClusterMap => proto::GetClusterMapResponse { map }.encode_to_vec(),
            _ => return responder.fail(&Fault::from(Code::Unsupported)),
        };
        responder.reply(&answer);
    }
}

/// A node `n1` with an area `data`, and the tree with it.
pub(super) struct World {
    pub(super) transport: Arc<InlineTransport>,
    service: Arc<AreaService>,
    pub(super) areas: Areas,
    pub(super) data: InodeId,
    pub(super) directory: TempDir,
}

impl World {
    pub(super) fn new() -> World {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = AreaConfig {
            name: "data".into(),
            path: directory.path().into(),
            read_only: false,
            owner: None,
            mounted_at: None,
        };
        let options = vazao_area::Options { name: "n1".into(), threads: 0, ..Default::default() };
        let service = AreaService::open(vec![config], options, Arc::clone(&clock)).expect("opens");
        let transport = InlineTransport::new(clock);
        transport.serve(META, Arc::new(FakeMeta));
        transport.serve(NODE, Arc::clone(&service) as Arc<dyn Service>);
        let options = vazao_client::Options {
            background: false,
            deadline_ms: 300,
            name: "test".into(),
            ..Default::default()
        };
        let client = Client::open(Arc::clone(&transport) as _, vec![META.into()], options).expect("opens");
        let areas = Areas::new(client, ROOT);
        let node = areas.lookup(Place { directory: ROOT, name: b"n1" }).expect("is there").inode;
        let data = areas.lookup(Place { directory: node, name: b"data" }).expect("is there").inode;
        World { transport, service, areas, data, directory }
    }

    fn place<'a>(&self, name: &'a str) -> Place<'a> {
        Place { directory: self.data, name: name.as_bytes() }
    }

    fn look_up(&self, name: &str) -> vazao_client::Result<Attributes> {
        self.areas.lookup(self.place(name))
    }

    /// Makes a file and opens it; its number and its handle.
    fn create(&self, name: &str) -> (InodeId, u64) {
        let (caller, mode) = (Caller { uid: 0, gid: 0, thread: 0 }, NewMode { bits: 0o644, umask: 0 });
        let opened = self.areas.create_file(self.place(name), caller, mode, true, false).expect("made");
        (opened.attributes.inode, opened.handle)
    }

    fn write(&self, handle: u64, bytes: &[u8]) -> Option<Unsent> {
        self.areas.write_later(handle, bytes, None, 0, None).expect("taken over")
    }

    /// What `ask` says, beside a write of 1000 bytes that is answered and not sent before `ask` has had some time.
    fn beside_a_write<T: Send>(&self, handle: u64, ask: impl FnOnce() -> T + Send) -> T {
        let unsent = self.write(handle, &[1; 1000]);
        thread::scope(|scope| {
            let asking = scope.spawn(ask);
            SystemClock.sleep(Duration::from_millis(100));
            drop(unsent);
            asking.join().expect("no panic")
        })
    }
}

/// The kernel cut the file to the size that came back with its new name, and read no further.
#[test]
fn a_further_name_comes_back_with_the_size_that_was_written() {
    let world = World::new();
    let (inode, handle) = world.create("f");
    let linked = world.beside_a_write(handle, || world.areas.link(inode, world.place("g")));
    let linked = linked.expect("linked");
    assert_eq!((linked.inode, linked.size), (inode, 1000));
}

#[test]
fn a_file_that_is_written_under_one_name_is_found_under_another_with_the_size_that_was_written() {
    let world = World::new();
    let (inode, handle) = world.create("f");
    std::fs::hard_link(world.directory.path().join("f"), world.directory.path().join("g")).expect("linked");
    world.look_up("f").expect("seen to have two names");
    let found = world.beside_a_write(handle, || world.look_up("g")).expect("found");
    assert_eq!((found.inode, found.size), (inode, 1000));
}

/// `ls -l` of a large directory showed files as empty that had been written and closed meanwhile.
#[test]
fn a_listing_does_not_tell_the_size_of_before_of_what_was_written_and_closed_since() {
    let world = World::new();
    let (_, handle) = world.create("f");
    let (_, appended) = world.create("g");
    let listing = world.areas.open_directory(world.data);
    let unsent = world.write(handle, &[1; 1000]);
    let read = |cookie, take: &mut dyn FnMut(&vazao_client::Listed<'_>) -> bool| {
        let wanted = Wanted::Attributes(usize::MAX);
        world.areas.read_directory(world.data, listing, cookie, wanted, &mut |entry, _| take(entry))
    };
    let begun_ns = SystemClock.now_ns();
    read(0, &mut |_| false).expect("listed");
    drop(unsent);
    world.areas.append(appended, &[1; 1000], None).expect("appended");
    for handle in [handle, appended] {
        world.areas.flush(handle).expect("written");
        world.areas.release(handle).expect("closed");
    }
    let mut seen = 0;
    let mut look = |entry: &vazao_client::Listed<'_>| {
        seen += 1;
        assert!(entry.attributes.is_none_or(|attributes| attributes.size == 1000), "{:?}", entry.name);
        true
    };
    read(2, &mut look).expect("listed");
    assert_eq!(seen, 2);
    assert!(SystemClock.now_ns() - begun_ns < LEASE.as_nanos() as u64, "too slow a machine to tell");
}

#[test]
fn nothing_is_kept_of_files_that_were_closed_at_the_same_time() {
    let world = World::new();
    let (inode, one) = world.create("f");
    let other =
        world.areas.open(inode, OpenMode { read: true, ..OpenMode::default() }).expect("opened").handle;
    // Both are still there while both are being closed; then the file's status is read.
    let closed = [one, other].map(|handle| world.areas.files.remove(handle).expect("is open"));
    let looked_at = Arc::clone(&closed[0].shared);
    closed.iter().for_each(|open| world.areas.released(open).expect("closed"));
    drop(looked_at);
    assert!(world.areas.files.is_empty());
}

/// Regression: a close half an hour after the node had been away made the node silent for all callers.
#[test]
fn an_error_of_long_ago_does_not_make_a_node_silent_that_answers() {
    let world = World::new();
    let (_, handle) = world.create("f");
    world.transport.stop(NODE);
    drop(world.write(handle, b"lost"));
    world.areas.files.get(handle).expect("is open").shared.behind.settle();
    world.transport.serve(NODE, Arc::clone(&world.service) as Arc<dyn Service>);
    world.look_up("f").expect("the node is back");
    world.areas.flush(handle).expect_err("lost");
    world.look_up("f").expect("the node answers");
    world.areas.sync(handle).expect_err("lost");
    world.look_up("f").expect("the node answers");
    world.areas.sync(handle).expect("told once");
}
