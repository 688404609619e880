//! A request that is sent twice has the effect of one, across restarts as well.

use super::harness::{TOP, World, call, options};
use crate::MetaService;
use std::sync::Arc;
use vazao_disk::MemoryDisk;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_wire::{op, proto};

fn create(once: Option<proto::Once>, name: &str) -> proto::CreateRequest {
    proto::CreateRequest {
        once,
        parent: TOP.0,
        name: name.into(),
        kind: 1,
        exclusive: true,
        ..Default::default()
    }
}

#[test]
fn a_repeated_request_gets_the_first_answer() {
    let world = World::new();
    let request = create(world.once(), "a");
    let first = world.call::<op::Create>(&request).unwrap();
    world.remove(TOP, "a", false).unwrap();
    let stale = world.call::<op::Create>(&request);
    assert_eq!(stale, Err(Code::BadRequest), "the slot has moved on");
    let request = create(world.once(), "b");
    let first_b = world.call::<op::Create>(&request).unwrap();
    assert_eq!(world.call::<op::Create>(&request).unwrap(), first_b);
    assert_ne!(first, first_b);
    assert_eq!(world.names(TOP), ["b"]);
}

#[test]
fn a_repeated_failure_stays_a_failure() {
    let world = World::new();
    world.file(TOP, "a");
    let request = create(world.once(), "a");
    let first = world.try_call::<op::Create>(&request).unwrap_err();
    assert_eq!(first.code, Code::Exists);
    // Without the slot's stored answer the repetition would now succeed, though its caller has seen a failure.
    let unlink = proto::UnlinkRequest { parent: TOP.0, name: b"a".to_vec(), ..Default::default() };
    world.call::<op::Unlink>(&unlink).unwrap();
    assert_eq!(world.try_call::<op::Create>(&request).unwrap_err(), first);
}

#[test]
fn a_repetition_as_another_method_or_in_a_slot_that_is_none_is_refused() {
    let world = World::new();
    let once = world.once();
    world.call::<op::Create>(&create(once, "a")).unwrap();
    let unlink = proto::UnlinkRequest { once, parent: TOP.0, name: b"a".to_vec(), ..Default::default() };
    assert_eq!(world.call::<op::Unlink>(&unlink).map(|_| ()), Err(Code::BadRequest));
    let outside = Some(proto::Once { slot: 64, ..once.unwrap() });
    assert_eq!(world.call::<op::Create>(&create(outside, "b")).map(|_| ()), Err(Code::BadRequest));
    let stranger = Some(proto::Once { session: 99, ..once.unwrap() });
    assert_eq!(world.call::<op::Create>(&create(stranger, "b")).map(|_| ()), Err(Code::SessionExpired));
}

#[test]
fn a_repetition_after_a_restart_gets_the_first_answer() {
    let disk = MemoryDisk::new(1);
    let world = World::on(Arc::new(disk.boot()), options("embedded"));
    let request = create(world.once(), "a");
    let first = world.call::<op::Create>(&request).unwrap();
    let clock: Arc<dyn Clock> = world.clock.clone();
    drop(world);
    disk.kill();
    let service = MetaService::open(Arc::new(disk.boot()), options("embedded"), clock).unwrap();
    assert_eq!(call::<op::Create>(&service, &request).unwrap(), first);
    let other = create(request.once.map(|once| proto::Once { sequence: 2, ..once }), "b");
    let second = call::<op::Create>(&service, &other).unwrap();
    let inode = |r: &proto::CreateResponse| r.inode.as_ref().unwrap().attributes.as_ref().unwrap().inode;
    assert!(inode(&second) > inode(&first));
    assert_eq!(service.check().unwrap().problems, Vec::<String>::new());
}
