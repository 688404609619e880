//! Which sessions may convert a file and end a conversion. Whole clusters (`crates/sim`) test what becomes of the
//! bytes.

use super::harness::World;
use vazao_model::Code;
use vazao_model::ids::ROOT;
use vazao_wire::{op, proto};

fn begin(world: &World, inode: u64) -> Result<proto::BeginConversionResponse, Code> {
    let hint = Some(proto::LayoutHint { stripe_unit_bytes: 1 << 20, width: 1, ..Default::default() });
    let request = proto::BeginConversionRequest { once: world.once(), inode, hint, ..Default::default() };
    world.call::<op::BeginConversion>(&request)
}

fn end(world: &World, inode: u64, stalled: bool) -> bool {
    let request = proto::EndConversionRequest { once: world.once(), inode, generation: 0, stalled };
    world.call::<op::EndConversion>(&request).expect("is asked").ended
}

/// A volume on two data servers with a file that has a layout, as its id.
fn volume() -> (World, u64) {
    let world = World::new();
    world.data_server("n1");
    world.data_server("n2");
    let inode = world.file(ROOT, "f");
    world.assign_layout(inode).expect("two targets");
    (world, inode.0)
}

fn follower(world: &World) -> World {
    let request = proto::OpenSessionRequest { follows_conversions: true, ..Default::default() };
    let session = world.call::<op::OpenSession>(&request).expect("opens").session;
    world.as_session(session)
}

#[test]
fn nothing_is_converted_while_a_client_is_here_that_would_write_to_the_old_objects() {
    let (old, inode) = volume();
    let new = follower(&old);
    assert_eq!(begin(&new, inode).map(drop), Err(Code::VersionMismatch));
    old.call::<op::CloseSession>(&proto::CloseSessionRequest { session: old.session }).expect("closes");
    assert!(begin(&new, inode).expect("all that are here follow").to.is_some());
}

#[test]
fn a_conversion_is_its_owners_until_somebody_has_waited_for_it() {
    let (old, inode) = volume();
    let (owner, other) = (follower(&old), follower(&old));
    old.call::<op::CloseSession>(&proto::CloseSessionRequest { session: old.session }).expect("closes");
    let generation = begin(&owner, inode).expect("begins").to.expect("a layout").generation;
    assert_eq!(begin(&other, inode).map(drop), Err(Code::InUse));
    assert!(!end(&other, inode, false), "it is not theirs");
    assert!(end(&other, inode, true) && !end(&other, inode, true), "once");
    let switch = proto::SwitchLayoutRequest { once: owner.once(), inode, generation, ..Default::default() };
    assert_eq!(owner.call::<op::SwitchLayout>(&switch).map(drop), Err(Code::Stale));
}
