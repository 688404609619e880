//! A target whose disk hangs: it neither answers nor fails.

use super::{address, options, pattern};
use crate::targets::closing::CloseTimeouts;
use crate::{DataService, Options};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use vazao_disk::{Disk, MemoryDisk};
use vazao_meter::ManualClock;
use vazao_model::checksum::piece_checksums;
use vazao_model::limits::{SLOW_MS, TARGET_HANGS_MS};
use vazao_model::{Code, TargetState};
use vazao_wire::Method;
use vazao_wire::proto;
use vazao_wire::service::{Answer, Deferred, Fault, Request, Responder, Service};

/// Two targets with threads, by a clock that is moved by hand. The second one's disk hangs.
struct World {
    clock: Arc<ManualClock>,
    disks: [MemoryDisk; 2],
    service: Arc<DataService>,
}

/// Where an answer arrives.
#[derive(Default)]
struct Asked {
    now: Option<Answer>,
    later: Option<Receiver<Answer>>,
}

impl Responder for Asked {
    fn reply(&mut self, message: &[u8]) {
        self.now = Some(Ok((message.to_vec(), Vec::new())));
    }

    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        let mut bytes = vec![0; length];
        match fill(&mut bytes) {
            Ok(false) => return false,
            Ok(true) => self.now = Some(Ok((message.to_vec(), bytes))),
            Err(fault) => self.now = Some(Err(fault)),
        }
        true
    }

    fn fail(&mut self, fault: &Fault) {
        self.now = Some(Err(fault.clone()));
    }

    fn defer(&mut self) -> Deferred {
        let (sender, later) = channel();
        self.later = Some(later);
        Deferred::new(move |answer| drop(sender.send(answer)))
    }
}

impl Asked {
    fn answer(self) -> Answer {
        let wait = |later: Receiver<Answer>| later.recv().expect("is answered");
        self.now.or_else(|| self.later.map(wait)).expect("is answered")
    }

    fn code(self) -> Result<(), Code> {
        self.answer().map(drop).map_err(|fault| fault.code)
    }

    fn is_open(&self) -> bool {
        self.later.as_ref().is_some_and(|later| later.try_recv().is_err())
    }
}

impl World {
    fn new() -> World {
        let clock = Arc::new(ManualClock::default());
        let disks = [MemoryDisk::new(1), MemoryDisk::new(2)];
        let opened = disks.iter().zip(["/first", "/second"]);
        let opened = opened.map(|(disk, label)| (Arc::new(disk.boot()) as Arc<dyn Disk>, label.to_owned()));
        let options = Options { inline: false, ..options() };
        let service = DataService::open(opened.collect(), options, Arc::clone(&clock) as _).expect("opens");
        service.set_registration(0, &registered()).expect("fits");
        let world = World { clock, disks, service };
        for target in [1, 2] {
            assert_eq!(world.write(target, 1, false).code(), Ok(()));
            assert_eq!(world.write(target, 1, true).code(), Ok(()));
        }
        world
    }

    fn ask(&self, method: Method, message: &impl prost::Message, attachment: &[u8]) -> Asked {
        let (message, mut asked) = (message.encode_to_vec(), Asked::default());
        let deadline_ns = vazao_meter::Clock::now_ns(&*self.clock) + 30_000_000_000;
        let request = Request { method, id: 1, message: &message, attachment, deadline_ns };
        self.service.handle(request, &mut asked);
        asked
    }

    /// Whole blocks: with `sync` by a thread of the target, without it by the caller's own, as far as that may.
    fn write(&self, target: u32, inode: u64, sync: bool) -> Asked {
        let bytes = bytes();
        let object = Some(proto::ObjectAddress { target, ..address(inode) });
        let checksums = piece_checksums(0, &bytes);
        let request =
            proto::WriteRequest { object, offset: 0, checksums, sync, must_exist: false, lent: None };
        self.ask(Method::Write, &request, &bytes)
    }

    fn read(&self, target: u32) -> Asked {
        let object = Some(proto::ObjectAddress { target, ..address(1) });
        self.ask(Method::Read, &proto::ReadRequest { object, offset: 0, length: bytes().len() as u32 }, &[])
    }

    /// Lets time pass, with the looks and the background work of that time. What the first target's own threads had
    /// under way ends within each second: on a busy machine 15 s went by during one piece of it, and a sound disk
    /// counted as hanging.
    fn pass(&self, milliseconds: u32) {
        for _ in 0..milliseconds / 1000 {
            self.clock.advance(Duration::from_secs(1));
            self.service.look();
            self.service.tick();
            while self.service.targets[0].waits.silent_ns() > 0 {
                std::thread::yield_now();
            }
        }
    }

    fn hang(&self) {
        self.disks[1].set_hanging(true);
    }

    fn go_on(&self) {
        self.disks[1].set_hanging(false);
        while self.disks[1].held_operations() > 0 || self.service.targets[1].waits.trouble().is_some() {
            std::thread::yield_now();
        }
    }
}

fn bytes() -> Vec<u8> {
    pattern(1, 131_072)
}

fn registered() -> proto::RegisterNodeResponse {
    proto::RegisterNodeResponse {
        cluster_id: 7,
        node: 1,
        targets: vec![1, 2],
        epoch: 1,
        ..Default::default()
    }
}

/// Waits until so many operations are held up by a disk.
fn await_held(disk: &MemoryDisk, count: u64) {
    while disk.held_operations() < count {
        std::thread::yield_now();
    }
}

/// Background work of all targets was done by one thread, and reports waited for the identity of each target:
/// a disk that hung kept the node from reporting, and the others from their checkpoints.
#[test]
fn a_target_that_hangs_is_reported_fails_its_own_requests_and_holds_up_no_other() {
    let world = World::new();
    world.hang();
    let stuck: Vec<Asked> = (0..3).map(|_| world.write(2, 1, true)).collect();
    await_held(&world.disks[1], 1);
    world.pass(SLOW_MS + 1000);
    assert_eq!([world.write(1, 1, true).code(), world.write(1, 2, false).code()], [Ok(()); 2]);
    let report = world.service.registration().targets;
    assert!(report[0].trouble.is_empty() && report[1].trouble.contains("has not answered for"), "{report:?}");
    assert_eq!([report[0].state, report[1].state], [TargetState::Serving as u32; 2], "it may only be slow");
    world.service.set_registration(0, &registered()).expect("reports go on");
    world.pass(TARGET_HANGS_MS);
    let report = world.service.registration().targets;
    assert_eq!([report[0].state, report[1].state], [TargetState::Serving as u32, TargetState::Hung as u32]);
    for asked in stuck {
        assert_eq!(asked.code(), Err(Code::Hung));
    }
    let fault = world.write(2, 1, true).answer().expect_err("fails at once");
    assert!(fault.code == Code::Hung && fault.detail.contains("target /second of node data"), "{fault}");
    assert_eq!(world.service.failed_targets(), 0, "nothing is wrong with what was read");
    world.go_on();
    assert_eq!(world.write(2, 1, true).code(), Ok(()));
    assert!(world.read(2).answer().expect("reads").1 == bytes());
    assert_eq!(world.service.registration().targets[1].state, TargetState::Serving as u32);
    assert!(world.service.close());
}

#[test]
fn a_slow_disk_that_answers_a_look_does_not_count_as_hanging() {
    let world = World::new();
    world.disks[1].hold_syncs(".data");
    let slow = world.write(2, 1, true);
    world.disks[1].await_held_sync();
    for _ in 0..2 * TARGET_HANGS_MS / 1000 {
        world.pass(1000);
        // The look is another thread's.
        while world.service.targets[1].waits.silent_ns() > 4_000_000_000 {
            std::thread::yield_now();
        }
        assert_eq!(world.service.registration().targets[1].state, TargetState::Serving as u32);
    }
    world.disks[1].release_syncs();
    drop(slow);
    assert!(world.service.close());
}

/// A request for two objects on two targets, one of which hung, kept its place on the connection until it was back.
#[test]
fn a_request_for_several_targets_is_answered_though_one_of_them_hangs() {
    let world = World::new();
    world.hang();
    let objects = [1, 2].map(|target| proto::ObjectAddress { target, ..address(1) }).to_vec();
    // There must be something to sync.
    world.disks[1].set_hanging(false);
    assert_eq!([world.write(1, 1, false).code(), world.write(2, 1, false).code()], [Ok(()); 2]);
    world.hang();
    let asked = world.ask(Method::SyncObjects, &proto::SyncObjectsRequest { objects, boot: 0 }, &[]);
    await_held(&world.disks[1], 1);
    assert!(asked.is_open());
    world.pass(TARGET_HANGS_MS + 1000);
    assert_eq!(asked.code(), Err(Code::Hung));
    world.go_on();
    assert!(world.service.close());
}

#[test]
fn copies_from_a_target_that_hangs_take_no_thread_of_the_one_they_go_to() {
    let world = World::new();
    world.hang();
    let copy = proto::CopyObjectRangeRequest {
        source: Some(proto::ObjectAddress { target: 2, ..address(1) }),
        object: Some(proto::ObjectAddress { target: 1, ..address(9) }),
        length: bytes().len() as u32,
        ..Default::default()
    };
    let copies: Vec<Asked> = (0..8).map(|_| world.ask(Method::CopyObjectRange, &copy, &[])).collect();
    await_held(&world.disks[1], 4);
    assert_eq!(world.write(1, 3, true).code(), Ok(()), "its threads are free");
    world.go_on();
    for asked in copies {
        assert_eq!(asked.code(), Ok(()));
    }
    assert!(world.service.close());
}

/// The end of a node closed one target after the other, and waited for each as long as its disk took.
#[test]
fn the_end_makes_the_others_clean_and_waits_a_bounded_time_for_a_disk_that_hangs() {
    let world = World::new();
    for target in [1, 2] {
        assert_eq!(world.write(target, 5, false).code(), Ok(()));
    }
    world.hang();
    let timeout = CloseTimeouts { silent: Duration::from_millis(50), whole: Duration::from_millis(100) };
    assert!(!world.service.close_within(timeout), "one is left behind");
    let suspects = |disk: &MemoryDisk| {
        crate::targets::epochs::Epochs::open(disk).expect("readable").expect("not damaged").suspects()
    };
    assert_eq!(suspects(&world.disks[0]), None, "the other one is clean");
    let first = vec![(Arc::new(world.disks[0].clone()) as Arc<dyn Disk>, "/first".to_owned())];
    DataService::open(first, options(), Arc::clone(&world.clock) as _)
        .expect("and another process can have it");
    world.go_on();
}
