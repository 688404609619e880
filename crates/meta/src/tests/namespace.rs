//! Names: create, lookup, link, unlink, resolve.

use super::harness::{TOP, World};
use vazao_model::{Code, FileKind, InodeId};
use vazao_wire::{op, proto};

#[test]
fn a_created_file_is_found_again() {
    let world = World::new();
    let id = world.file(TOP, "a");
    let attributes = world.lookup(TOP, "a").unwrap();
    assert_eq!(attributes.inode, id.0);
    assert_eq!((attributes.links, attributes.mode, attributes.kind), (1, 0o644, 1));
    assert_eq!(world.lookup(TOP, "b"), Err(Code::NotFound));
    world.assert_consistent();
}

#[test]
fn an_exclusive_create_of_a_taken_name_fails_and_another_opens_the_file() {
    let world = World::new();
    let id = world.file(TOP, "a");
    assert_eq!(world.make(TOP, "a", FileKind::File), Err(Code::Exists));
    assert_eq!(world.make(TOP, "a", FileKind::Directory), Err(Code::Exists));
    let request = proto::CreateRequest {
        once: world.once(),
        parent: TOP.0,
        name: b"a".to_vec(),
        kind: 1,
        ..Default::default()
    };
    let response = world.call::<op::Create>(&request).unwrap();
    assert!(!response.created);
    assert_eq!(response.inode.unwrap().attributes.unwrap().inode, id.0);
}

#[test]
fn directories_count_their_subdirectories() {
    let world = World::new();
    let d = world.directory(TOP, "d");
    let e = world.directory(d, "e");
    assert_eq!(world.stat(d).unwrap().links, 3);
    assert_eq!(world.stat(TOP).unwrap().links, 3);
    assert_eq!(world.lookup(e, "..").unwrap().inode, d.0);
    assert_eq!(world.lookup(e, ".").unwrap().inode, e.0);
    assert_eq!(world.lookup(TOP, "..").unwrap().inode, TOP.0);
    assert_eq!(world.remove(TOP, "d", true), Err(Code::NotEmpty));
    world.remove(d, "e", true).unwrap();
    assert_eq!(world.stat(d).unwrap().links, 2);
    world.remove(TOP, "d", true).unwrap();
    assert_eq!(world.stat(d), Err(Code::Stale));
    world.assert_consistent();
}

#[test]
fn a_name_below_a_file_is_refused_as_not_a_directory() {
    let world = World::new();
    let file = world.file(TOP, "f");
    assert_eq!(world.lookup(file, "x"), Err(Code::NotDirectory));
    assert_eq!(world.make(file, "x", FileKind::File), Err(Code::NotDirectory));
    assert_eq!(world.lookup(InodeId(999_999), "x"), Err(Code::NotFound));
}
