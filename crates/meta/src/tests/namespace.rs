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

#[test]
fn names_of_255_bytes_are_taken_and_256_refused() {
    let world = World::new();
    let longest = "x".repeat(255);
    world.file(TOP, &longest);
    assert!(world.lookup(TOP, &longest).is_ok());
    let longer = "x".repeat(256);
    assert_eq!(world.make(TOP, &longer, FileKind::File), Err(Code::NameTooLong));
    assert_eq!(world.lookup(TOP, &longer), Err(Code::NameTooLong));
    for bad in ["", "a/b", "a\0b", ".", ".."] {
        assert_eq!(world.make(TOP, bad, FileKind::File), Err(Code::Invalid), "{bad:?}");
    }
    let bytes = proto::CreateRequest {
        once: world.once(),
        parent: TOP.0,
        name: vec![0xFF, 0xFE],
        kind: 1,
        ..Default::default()
    };
    assert!(world.call::<op::Create>(&bytes).unwrap().created);
}

#[test]
fn errors_name_the_thing_and_the_place() {
    let world = World::new();
    let request = proto::LookupRequest { parent: TOP.0, name: b"x".to_vec(), seat: 0 };
    let fault = world.try_call::<op::Lookup>(&request).unwrap_err();
    assert_eq!(fault.detail, "name \"x\" in directory i1");
}

#[test]
fn an_inode_has_as_many_links_as_names() {
    let world = World::new();
    let d = world.directory(TOP, "d");
    let f = world.file(TOP, "a");
    assert_eq!(world.link(f, d, "b"), Ok(2));
    assert_eq!(world.link(f, d, "b"), Err(Code::Exists));
    assert_eq!(world.link(d, TOP, "hard"), Err(Code::NotPermitted));
    assert_eq!(world.link(f, f, "below"), Err(Code::NotDirectory));
    assert_eq!(world.link(InodeId(77_777), TOP, "gone"), Err(Code::Stale));
    assert_eq!(world.remove(TOP, "a", false), Ok(1));
    assert_eq!(world.lookup(d, "b").unwrap().links, 1);
    assert_eq!(world.remove(d, "b", false), Ok(0));
    assert_eq!(world.stat(f), Err(Code::Stale));
    world.assert_consistent();
}

#[test]
fn unlink_and_rmdir_keep_to_their_kinds() {
    let world = World::new();
    world.directory(TOP, "d");
    world.file(TOP, "f");
    assert_eq!(world.remove(TOP, "d", false), Err(Code::IsDirectory));
    assert_eq!(world.remove(TOP, "f", true), Err(Code::NotDirectory));
    assert_eq!(world.remove(TOP, "none", false), Err(Code::NotFound));
    assert_eq!(world.remove(TOP, ".", true), Err(Code::Invalid));
    assert_eq!(world.remove(TOP, "..", true), Err(Code::NotEmpty));
    assert_eq!(world.names(TOP), ["d", "f"]);
}

#[test]
fn a_symbolic_link_keeps_its_target_and_paths_stop_at_it() {
    let world = World::new();
    let d = world.directory(TOP, "d");
    let link = world.make(d, "link", FileKind::Symlink).unwrap();
    assert_eq!(world.stat(link).unwrap().size, 6);
    assert_eq!(world.open(link).unwrap().contents, Some(b"target".to_vec()));
    let resolve = |components: &[&str]| {
        let components = components.iter().map(|c| c.as_bytes().to_vec()).collect();
        world.call::<op::Resolve>(&proto::ResolveRequest { start: TOP.0, components })
    };
    let stopped = resolve(&["d", "link", "further"]).unwrap();
    assert_eq!((stopped.walked, stopped.parent), (2, d.0));
    assert_eq!(stopped.inode.unwrap().contents, Some(b"target".to_vec()));
    assert_eq!(resolve(&["d", "none"]), Err(Code::NotFound));
    assert_eq!(resolve(&["d", "..", "d"]).unwrap().inode.unwrap().attributes.unwrap().inode, d.0);
    world.file(d, "f");
    assert_eq!(resolve(&["d", "f", "x"]), Err(Code::NotDirectory));
    assert_eq!(resolve(&[]).unwrap().walked, 0);
    let long = "x".repeat(255);
    assert_eq!(resolve(&vec![long.as_str(); 17]), Err(Code::NameTooLong));
}

#[test]
fn a_link_target_is_1_to_4095_bytes() {
    let world = World::new();
    let make = |length: usize, name: &str| {
        let request = proto::CreateRequest {
            parent: TOP.0,
            name: name.into(),
            kind: 3,
            contents: vec![b'x'; length],
            ..Default::default()
        };
        world.create_as(request).map(|inode| inode.attributes.unwrap().size)
    };
    assert_eq!(make(4095, "longest"), Ok(4095));
    assert_eq!(make(4096, "longer"), Err(Code::NameTooLong));
    assert_eq!(make(0, "empty"), Err(Code::NotFound));
}

#[test]
fn a_directory_with_the_set_group_bit_hands_on_its_group() {
    let world = World::new();
    let request = |name: &str, kind, mode| proto::CreateRequest {
        parent: TOP.0,
        name: name.into(),
        kind,
        mode,
        uid: 5,
        gid: 50,
        ..Default::default()
    };
    let top = world.create_as(request("shared", 2, 0o2775)).unwrap().attributes.unwrap();
    let within =
        |name: &str, kind| proto::CreateRequest { parent: top.inode, gid: 60, ..request(name, kind, 0o755) };
    let file = world.create_as(within("f", 1)).unwrap().attributes.unwrap();
    let directory = world.create_as(within("d", 2)).unwrap().attributes.unwrap();
    assert_eq!((file.gid, file.mode), (50, 0o755));
    assert_eq!((directory.gid, directory.mode), (50, 0o2755));
}

#[test]
fn special_files_keep_their_kind_and_device() {
    let world = World::new();
    for (kind, name) in [(FileKind::Fifo, "p"), (FileKind::Socket, "s"), (FileKind::CharDevice, "c")] {
        let request = proto::CreateRequest {
            parent: TOP.0,
            name: name.into(),
            kind: kind.number(),
            device: 0x103,
            ..Default::default()
        };
        let attributes = world.create_as(request).unwrap().attributes.unwrap();
        assert_eq!((attributes.kind, attributes.device), (kind.number(), 0x103));
    }
    let unknown = proto::CreateRequest { parent: TOP.0, name: b"u".to_vec(), kind: 9, ..Default::default() };
    assert_eq!(world.create_as(unknown).map(|_| ()), Err(Code::Invalid));
}

#[test]
fn a_directory_that_was_removed_while_open_takes_no_names() {
    let world = World::new();
    let _other = world.another_client();
    let d = world.directory(TOP, "d");
    world.remove_held(TOP, "d", true, d).unwrap();
    assert_eq!(world.stat(d).unwrap().links, 0);
    assert_eq!(world.make(d, "x", FileKind::File), Err(Code::NotFound));
    assert_eq!(world.list(d, 0, 10).entries.len(), 0);
    world.assert_consistent();
}

#[test]
fn times_change_where_posix_says_so() {
    let world = World::new();
    let d = world.directory(TOP, "d");
    let f = world.file(d, "f");
    let times = |id| {
        let a = world.stat(id).unwrap();
        (a.accessed.unwrap(), a.modified.unwrap(), a.changed.unwrap(), a.version)
    };
    let pass = || world.clock.advance(std::time::Duration::from_secs(1));
    let seconds = |t: proto::Timestamp| t.seconds;

    let (before_d, before_f) = (times(d), times(f));
    pass();
    world.link(f, d, "g").unwrap();
    let (after_d, after_f) = (times(d), times(f));
    assert_eq!(seconds(after_d.1), seconds(before_d.1) + 1, "a new name changes the directory's mtime");
    assert_eq!(seconds(after_d.2), seconds(before_d.2) + 1, "and its ctime");
    assert_eq!(after_f.1, before_f.1, "a link leaves the file's mtime");
    assert_eq!(seconds(after_f.2), seconds(before_f.2) + 1, "and changes its ctime");
    assert!(after_d.3 > before_d.3 && after_f.3 > before_f.3, "versions grow");

    pass();
    world.rename((d, "g"), (d, "h"), 0).unwrap();
    assert_eq!(seconds(times(f).2), seconds(after_f.2) + 1, "rename changes the ctime of what moves");
    let set = proto::SetAttributesRequest {
        once: world.once(),
        inode: d.0,
        accessed: Some(proto::Timestamp { seconds: -5, nanoseconds: 7 }),
        modified: Some(proto::Timestamp { seconds: 1 << 40, nanoseconds: 999_999_999 }),
        ..Default::default()
    };
    world.call::<op::SetAttributes>(&set).unwrap();
    let now = times(d);
    assert_eq!((seconds(now.0), now.1.seconds, now.1.nanoseconds), (-5, 1 << 40, 999_999_999));
}

#[test]
fn chown_takes_the_set_id_bits_and_chmod_gives_them() {
    let world = World::new();
    let f = world.file(TOP, "f");
    let set = |mode, uid| {
        let request =
            proto::SetAttributesRequest { once: world.once(), inode: f.0, mode, uid, ..Default::default() };
        let inode = world.call::<op::SetAttributes>(&request).unwrap().inode.unwrap();
        let attributes = inode.attributes.unwrap();
        (attributes.mode, attributes.uid)
    };
    assert_eq!(set(Some(0o6755), None), (0o6755, 0));
    assert_eq!(set(None, Some(7)), (0o755, 7));
    assert_eq!(set(Some(0o2744), None), (0o2744, 7));
    assert_eq!(set(None, Some(8)), (0o2744, 8), "without group execution the bit means locking");
    assert_eq!(set(Some(0o4755), Some(9)), (0o4755, 9));
}

#[test]
fn garbage_for_arguments_is_a_bad_request_for_every_method() {
    use super::harness::Inbox;
    use vazao_wire::service::{Request, Service};
    let world = World::new();
    for &method in vazao_wire::Method::ALL {
        let mut inbox = Inbox::default();
        let garbage = [0xFF; 37];
        let request = Request { method, id: 1, message: &garbage, attachment: &[], deadline_ns: u64::MAX };
        world.service.handle(request, &mut inbox);
        world.service.flush().unwrap();
        if let Err(fault) = inbox.take().expect("answered") {
            assert!(matches!(fault.code, Code::BadRequest | Code::Unsupported), "{fault}");
        }
    }
    world.assert_consistent();
}
