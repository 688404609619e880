//! A file system that hangs beneath one area, and all that goes on beside it.

use super::config;
use crate::{AreaService, Options};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tempfile::TempDir;
use vazao_meter::{Clock, ManualClock, SystemClock};
use vazao_model::Code;
use vazao_model::limits::{AREA_HANGS_MS, SLOW_DISK_MS};
use vazao_wire::proto;
use vazao_wire::service::{Answer, Deferred, Fault, Request, Responder, Service};
use vazao_wire::{Operation, op};

/// Nothing here takes that long.
const LONG: Duration = Duration::from_secs(60);

/// For loops that wait for other threads.
struct Deadline(u64);

impl Deadline {
    fn begin() -> Deadline {
        Deadline(SystemClock.now_ns() + LONG.as_nanos() as u64)
    }

    fn wait(&self, what: &str) {
        assert!(SystemClock.now_ns() < self.0, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Keeps the answer, whenever it comes.
struct Requester(Sender<Answer>);

impl Responder for Requester {
    fn reply(&mut self, message: &[u8]) {
        self.0.send(Ok((message.to_vec(), Vec::new()))).expect("is awaited");
    }
    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        let mut attachment = vec![0; length];
        let filled = fill(&mut attachment);
        if let Ok(false) = filled {
            return false;
        }
        self.0.send(filled.map(|_| (message.to_vec(), attachment))).expect("is awaited");
        true
    }
    fn fail(&mut self, fault: &Fault) {
        self.0.send(Err(fault.clone())).expect("is awaited");
    }
    fn defer(&mut self) -> Deferred {
        let sender = self.0.clone();
        Deferred::new(move |answer| drop(sender.send(answer)))
    }
}

/// A node with the areas `hung` and `well`. In the first everything waits until `gate` is dropped.
struct World {
    clock: Arc<ManualClock>,
    service: Arc<AreaService>,
    gate: Option<Sender<()>>,
    directory: TempDir,
}

impl World {
    fn new() -> World {
        World::with(Options { name: "n1".to_owned(), ..Options::default() })
    }

    fn with(options: Options) -> World {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let areas = ["hung", "well"].map(|name| {
            let path = directory.path().join(name);
            std::fs::create_dir(&path).expect("made");
            std::fs::write(path.join("f"), name).expect("written");
            config(name, &path, false)
        });
        let clock = Arc::new(ManualClock::default());
        let service = AreaService::open(areas.into(), options, Arc::clone(&clock) as Arc<dyn Clock>);
        World { clock, service: service.expect("opens"), gate: None, directory }
    }

    /// All threads of the area wait for its file system, as they would in a system call that does not return.
    fn hang(&mut self) {
        let (gate, waiting) = channel::<()>();
        let waiting = Arc::new(Mutex::new(waiting));
        let area = self.service.shared.area("hung").expect("is there");
        area.is_never_probed();
        for lane in area.lanes().chain(area.closing()) {
            let ends = Deadline::begin();
            while !lane.state().is_full {
                let waiting = Arc::clone(&waiting);
                let wait = move || {
                    let _ = waiting.lock().recv();
                };
                assert!(lane.run("a read", wait));
                while lane.state().queued > 0 {
                    ends.wait("the lane takes its work");
                }
            }
        }
        self.gate = Some(gate);
    }

    fn pass(&self, milliseconds: u32) {
        self.clock.advance(Duration::from_millis(u64::from(milliseconds)));
        self.service.tick();
    }

    fn ask<O: Operation>(&self, request: &O::Request) -> Receiver<Answer> {
        let (sender, answer) = channel();
        let message = request.encode_to_vec();
        let deadline_ns = self.clock.now_ns() + 30_000_000_000;
        let request = Request { method: O::METHOD, id: 1, message: &message, attachment: &[], deadline_ns };
        self.service.handle(request, &mut Requester(sender));
        answer
    }

    fn open(&self, area: &str, channel: u64) -> Result<(), Code> {
        let (area, path) = (area.to_owned(), b"f".to_vec());
        let request =
            proto::OpenChannelRequest { area, path, client: 7, channel, read: true, ..Default::default() };
        let answer = self.ask::<op::OpenChannel>(&request).recv_timeout(LONG).expect("an answer");
        answer.map(drop).map_err(|fault| fault.code)
    }

    fn close(&self, channel: u64) {
        let closed = self.ask::<op::CloseChannel>(&proto::CloseChannelRequest { channel });
        closed.recv_timeout(LONG).expect("at once").expect("is closed");
    }

    fn stat(&self, area: &str) -> Receiver<Answer> {
        let (area, path) = (area.to_owned(), b"f".to_vec());
        self.ask::<op::AreaStat>(&proto::AreaStatRequest { area, path, ..Default::default() })
    }

    fn code(answer: &Receiver<Answer>) -> Code {
        answer.recv_timeout(LONG).expect("an answer").expect_err("a fault").code
    }

    /// How often the file of an area is open in this process.
    fn open_files(&self, area: &str) -> usize {
        let file = self.directory.path().join(area).join("f");
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("listed").flatten();
        descriptors
            .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == file))
            .count()
    }

    fn trouble(&self) -> Vec<String> {
        self.service.areas().into_iter().map(|area| area.trouble).collect()
    }
}

/// Twelve readers of an area whose file server was gone took the eight threads of all areas of the node.
#[test]
fn an_area_that_hangs_holds_up_no_other_and_after_a_while_nobody_for_long() {
    let mut world = World::new();
    world.hang();
    let waiting: Vec<_> = (0..12).map(|_| world.stat("hung")).collect();
    world.stat("well").recv_timeout(LONG).expect("an answer").expect("goes on");
    world.pass(SLOW_DISK_MS);
    world.stat("well").recv_timeout(LONG).expect("an answer").expect("goes on");
    assert_eq!(world.trouble(), ["", ""], "a slow disk is no trouble yet");
    world.pass(AREA_HANGS_MS - SLOW_DISK_MS);
    assert!(waiting.iter().all(|answer| World::code(answer) == Code::Hung));
    let fault = world.stat("hung").recv_timeout(LONG).expect("at once").expect_err("hangs");
    assert_eq!(fault.code, Code::Hung);
    assert!(fault.detail.contains("area hung of node n1") && fault.detail.contains("15 s"), "{fault}");
    world.stat("well").recv_timeout(LONG).expect("an answer").expect("goes on");
    let trouble = world.trouble();
    assert!(trouble[0].contains("has not answered for 15 s") && trouble[1].is_empty(), "{trouble:?}");
    let hanging: Vec<String> = world.service.hanging().into_iter().map(|(area, _)| area).collect();
    assert_eq!(hanging, ["hung"]);
    drop(world.gate.take());
    let area = world.service.shared.area("hung").expect("is there");
    let ends = Deadline::begin();
    while area.lanes().any(|lane| lane.state().running > 0) {
        ends.wait("its threads go on");
    }
    world.pass(1);
    world.stat("hung").recv_timeout(LONG).expect("an answer").expect("is used again");
    assert_eq!(world.trouble(), ["", ""]);
}

/// Regression: the thread that dropped the last reference closed an area's files: the background thread, or a
/// connection's.
#[test]
fn files_of_an_area_that_hangs_are_closed_by_nobody_else() {
    let mut world = World::new();
    (1..=2).for_each(|channel| world.open("hung", channel).expect("opens"));
    world.open("well", 3).expect("opens");
    let held = Arc::downgrade(&world.service.shared.descriptors.get(1).expect("is open"));
    world.hang();
    world.close(1);
    assert!(held.upgrade().is_none());
    world.pass(61_000);
    assert_eq!(world.service.shared.channels.len(), 0, "their client is gone");
    let ends = Deadline::begin();
    while world.open_files("well") > 0 {
        ends.wait("its files are closed");
    }
    assert_eq!(world.open_files("hung"), 2, "they wait for the area's own threads");
    drop(world.gate.take());
    let ends = Deadline::begin();
    while world.open_files("hung") > 0 {
        ends.wait("its files are closed");
    }
}

#[test]
fn a_node_whose_area_hangs_stops() {
    let mut world = World::new();
    world.hang();
    let waiting = world.stat("hung");
    world.service.close(world.clock.now_ns());
    assert_eq!(World::code(&waiting), Code::Unavailable);
}

/// Regression: the background thread opened a directory on a dead file server, and requests for all areas blocked
/// meanwhile.
#[test]
fn areas_are_exchanged_while_one_hangs_and_threads_of_copies_are_refused_beyond_a_bound() {
    let mut world = World::new();
    world.hang();
    let hung = world.service.inside("hung", b"f", false).expect("a path");
    world.clock.advance(Duration::from_millis(u64::from(AREA_HANGS_MS)));
    let fault = hung.begin("a read of a copy").expect_err("enough threads wait");
    assert_eq!((fault.code, fault.detail.contains("area hung of node n1")), (Code::Hung, true));
    let well = world.service.inside("well", b"f", false).expect("a path");
    drop(well.begin("a read of a copy").expect("goes on"));
    let other = world.directory.path().join("other");
    std::fs::create_dir(&other).expect("made");
    std::fs::write(other.join("f"), "other").expect("written");
    let kept = config("hung", &world.directory.path().join("hung"), false);
    world.service.set_areas(vec![kept, config("other", &other, false)]).expect("taken");
    world.stat("other").recv_timeout(LONG).expect("an answer").expect("is there");
    assert_eq!(World::code(&world.stat("well")), Code::NotFound);
    assert_eq!(World::code(&world.stat("hung")), Code::Hung);
    let listed = world.ask::<op::ListAreas>(&proto::ListAreasRequest {});
    let listed = listed.recv_timeout(LONG).expect("an answer").expect("listed").0;
    assert_eq!(proto::ListAreasResponse::decode(&*listed).expect("decodes").areas.len(), 2);
}

/// One close that did not return kept all further files of its area open, until the daemon had no descriptor left.
#[test]
fn a_close_that_is_stuck_holds_up_no_other_and_too_many_of_them_hold_up_opens() {
    let world = World::with(Options { name: "n1".to_owned(), threads: 1, ..Options::default() });
    let area = world.service.shared.area("hung").expect("is there");
    let (gate, waiting) = channel::<()>();
    let stuck = move || waiting.recv().unwrap_or_default();
    assert!(area.closing().expect("has threads").run("a close", stuck));
    let files = || world.open("hung", 1).map(|()| world.close(1));
    let refused = (0..2000).find_map(|_| files().err()).expect("a bound");
    assert_eq!(refused, Code::Overloaded);
    world.open("well", 2).expect("the other area goes on");
    world.pass(AREA_HANGS_MS);
    // A look at its root says that the file system answers.
    let ends = Deadline::begin();
    while world.open_files("hung") > 0 {
        world.pass(1);
        ends.wait("another thread closes them");
    }
    world.open("hung", 1).expect("is used again");
    drop(gate);
}

/// Nobody looked after an area that was taken out: its requests were never answered.
#[test]
fn requests_of_an_area_that_is_taken_out_are_answered() {
    let mut world = World::new();
    let area = Arc::downgrade(&world.service.shared.area("hung").expect("is there"));
    let (gate, stuck) = channel::<()>();
    let (sender, running) = channel();
    let read = move || {
        let _ = stuck.recv();
        Ok(Default::default())
    };
    let deadline_ns = world.clock.now_ns() + 30_000_000_000;
    let exported = area.upgrade().expect("is exported");
    let lane = exported.lane(false).expect("has threads");
    lane.defer("a read", 1, deadline_ns, &mut Requester(sender), read).expect("taken");
    drop(exported);
    world.hang();
    let waiting = world.stat("hung");
    let well = config("well", &world.directory.path().join("well"), false);
    world.service.set_areas(vec![well]).expect("taken");
    assert_eq!(World::code(&waiting), Code::Unavailable);
    world.pass(31_000);
    assert!(matches!(World::code(&running), Code::Hung | Code::Timeout));
    drop((gate, world.gate.take()));
    let ends = Deadline::begin();
    while area.upgrade().is_some() {
        world.pass(1);
        ends.wait("the area is let go");
    }
}
