//! A metadata disk whose syncs take long, or that is taken away: what is answered, and what power loss takes.

use super::harness::{Inbox, Servers, TOP, World, answer_of, options, send};
use crate::{Background, MetaOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::MemoryDisk;
use vazao_meter::Clock;
use vazao_model::{Code, FileKind};
use vazao_wire::service::Service;
use vazao_wire::{op, proto};

/// What power loss takes was made within so long (docs/semantics.md, "Durability").
const STRETCH: Duration = Duration::from_millis(10);

fn with_threads() -> MetaOptions {
    MetaOptions { background: Background::Threads, ..options("embedded") }
}

fn begin_create(world: &World, name: &str) -> Inbox {
    let request = proto::CreateRequest {
        once: world.once(),
        parent: TOP.0,
        name: name.into(),
        kind: FileKind::File.number(),
        mode: 0o644,
        ..Default::default()
    };
    let inbox = send::<op::Create>(&world.service, &request);
    world.service.flush().unwrap();
    inbox
}

/// Names answered 150 to 300 ms before a loss of power were lost: a sync took that long, and answers were still sent
/// meanwhile.
#[test]
fn changes_wait_for_a_slow_sync_once_the_oldest_unsynced_one_is_old_and_reads_do_not() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), with_threads());
    world.call::<op::Sync>(&proto::SyncRequest {}).unwrap();
    disk.hold_syncs("log-");
    assert!(begin_create(&world, "first").take().is_some());
    disk.await_held_sync();
    world.clock.advance(STRETCH);
    assert!(begin_create(&world, "within").take().is_some());
    world.clock.advance(Duration::from_millis(1));
    let late = begin_create(&world, "late");
    let later = begin_create(&world, "later");
    assert!(late.take().is_none() && later.take().is_none(), "answered while the disk is behind");
    assert!(world.lookup(TOP, "within").is_ok(), "reading waits, too");
    disk.release_syncs();
    world.service.engine().sync().unwrap();
    assert!(late.take().is_some() && later.take().is_some(), "not answered when durable");
    assert!(begin_create(&world, "after").take().is_some());
}

/// Random changes over a disk whose syncs end when they like, and a loss of power at any moment.
#[test]
fn power_loss_takes_answered_changes_of_one_short_stretch_only() {
    let mut taken = 0;
    for seed in 0..120 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = MemoryDisk::new(seed);
        let world = World::on(Arc::new(disk.boot()), with_threads());
        let mut made = Vec::new();
        for n in 0..random.random_range(5..60) {
            let is_held_now = random.random_bool(0.08);
            if is_held_now {
                disk.release_syncs();
                world.service.engine().sync().unwrap();
                disk.hold_syncs("log-");
            }
            world.clock.advance(Duration::from_micros(random.random_range(0..3_000)));
            let name = format!("f{n}");
            made.push((name.clone(), world.clock.now_ns(), begin_create(&world, &name).take().is_some()));
            if is_held_now {
                // The engine's own thread is to wait for the disk, and not this one.
                disk.await_held_sync();
            }
        }
        disk.crash();
        disk.release_syncs();
        let again = World::on(Arc::new(disk.boot()), options("embedded"));
        let is_lost = |name: &str| again.lookup(TOP, name).is_err();
        let lost: Vec<_> = made.iter().filter(|(name, ..)| is_lost(name)).collect();
        let Some((_, first_ns, _)) = lost.first() else { continue };
        for (name, at_ns, is_answered) in &lost {
            let after = Duration::from_nanos(at_ns - first_ns);
            assert!(
                !is_answered || after <= STRETCH,
                "seed {seed}: {name}, {after:?} after the first that is lost"
            );
            taken += u32::from(*is_answered);
        }
    }
    assert!(taken > 0, "nothing that was answered was ever lost: the test shows nothing");
}

/// The directory was removed under the running service, and fsync went on returning 0.
#[test]
fn a_directory_that_is_taken_away_fails_fsync_and_changes_with_the_reason_and_reading_goes_on() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let inode = world.file(TOP, "f");
    world.call::<op::Sync>(&proto::SyncRequest {}).unwrap();
    disk.set_replaced(true);
    for _ in 0..2 {
        let fault = world.try_call::<op::Sync>(&proto::SyncRequest {}).unwrap_err();
        assert!(fault.code == Code::Io && fault.detail.contains("directory was replaced"), "{fault}");
        assert_eq!(world.make(TOP, "g", FileKind::File), Err(Code::Io));
        assert!(world.lookup(TOP, "f").is_ok());
        // When this answer was withheld, an open blocked for the whole deadline.
        let open = proto::OpenRequest { inode: inode.0, ..Default::default() };
        assert!(send::<op::Open>(&world.service, &open).take().is_some());
        world.service.flush().unwrap();
        world.clock.advance(Duration::from_secs(1));
        world.service.tick(&Servers::default());
    }
    let opened = world.try_call::<op::OpenSession>(&proto::OpenSessionRequest::default()).unwrap_err();
    assert!(opened.detail.contains("directory was replaced"), "{opened}");
}

/// A create that waited for a checkpoint held up everything else that came over the connections of its event loop.
#[test]
fn a_change_that_waits_for_a_checkpoint_holds_up_no_event_loop() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), MetaOptions { overlay_bytes_max: 4000, ..with_threads() });
    let others = world.another_client();
    disk.hold_syncs("checkpoint");
    let mut made = 0;
    let waiting = loop {
        let inbox = begin_create(&world, &format!("f{made}"));
        match inbox.take() {
            Some(answer) => assert!(answer.is_ok(), "{answer:?}"),
            None => break inbox,
        }
        made += 1;
        assert!(made < 10_000, "the engine never waits for its checkpoint");
    };
    let other = begin_create(&others, "other");
    assert!(world.lookup(TOP, "f0").is_ok(), "reading waits, too");
    let renewal = proto::RenewSessionRequest { session: world.session, ..Default::default() };
    assert!(world.call::<op::RenewSession>(&renewal).is_ok());
    assert!(waiting.take().is_none() && other.take().is_none());
    disk.release_syncs();
    for inbox in [waiting, other] {
        assert!(answer_of(&inbox).is_some_and(|answer| answer.is_ok()));
    }
    assert_eq!(world.names(TOP).len(), made + 2);
    world.service.close().unwrap();
}
