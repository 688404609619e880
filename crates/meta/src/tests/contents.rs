//! Sizes, inline contents, layouts, hints, extended attributes.

use super::harness::{TOP, World};
use vazao_model::{Code, InodeId, limits};
use vazao_wire::{op, proto};

fn commit(world: &World, request: proto::CommitRequest) -> Result<proto::Inode, Code> {
    let request = proto::CommitRequest { once: world.once(), ..request };
    world.call::<op::Commit>(&request).map(|response| response.inode.unwrap())
}

fn inline(inode: InodeId, contents: &[u8]) -> proto::CommitRequest {
    let size_at_least = contents.len() as u64;
    proto::CommitRequest {
        inode: inode.0,
        inline_writes: vec![proto::InlineWrite { offset: 0, data: contents.to_vec(), zeros: 0 }],
        base_version: u64::MAX,
        size_at_least,
        ..Default::default()
    }
}

fn set_size(world: &World, inode: InodeId, size: u64) -> Result<proto::Inode, Code> {
    let request = proto::SetAttributesRequest {
        once: world.once(),
        inode: inode.0,
        size: Some(size),
        ..Default::default()
    };
    world.call::<op::SetAttributes>(&request).map(|response| response.inode.unwrap())
}

fn size(inode: &proto::Inode) -> u64 {
    inode.attributes.as_ref().unwrap().size
}

#[test]
fn small_contents_live_in_the_inode() {
    let world = World::new();
    let f = world.file(TOP, "f");
    assert_eq!(world.open(f).unwrap().contents, Some(Vec::new()));
    let inode = commit(&world, inline(f, b"hello")).unwrap();
    assert_eq!((size(&inode), inode.contents), (5, Some(b"hello".to_vec())), "its base was another version");
    assert_eq!(world.open(f).unwrap().contents, Some(b"hello".to_vec()));
    let too_large = inline(f, &vec![0; limits::INLINE_BYTES_MAX + 1]);
    assert_eq!(commit(&world, too_large).map(|_| ()), Err(Code::TooLarge));
    assert!(commit(&world, inline(f, &vec![1; limits::INLINE_BYTES_MAX])).is_ok());
    assert_eq!(world.stat(f).unwrap().allocated_bytes, 16 * 1024);
}

#[test]
fn a_file_without_layout_is_cut_and_extended_by_the_service() {
    let world = World::new();
    let f = world.file(TOP, "f");
    commit(&world, inline(f, b"hello world")).unwrap();
    assert_eq!(size(&set_size(&world, f, 5).unwrap()), 5);
    assert_eq!(world.open(f).unwrap().contents, Some(b"hello".to_vec()));
    assert_eq!(size(&set_size(&world, f, 1 << 30).unwrap()), 1 << 30);
    let opened = world.open(f).unwrap();
    assert_eq!((size(&opened), opened.contents), (1 << 30, Some(b"hello".to_vec())));
    assert_eq!(set_size(&world, f, limits::FILE_BYTES_MAX + 1).map(|_| ()), Err(Code::TooLarge));
    assert_eq!(set_size(&world, TOP, 0).map(|_| ()), Err(Code::IsDirectory));
}

#[test]
fn a_layout_is_assigned_once_and_written_slots_add_up() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.data_server(name);
    }
    let f = world.file(TOP, "f");
    let layout = world.assign_layout(f).unwrap();
    assert_eq!(layout.groups.len(), 3);
    assert_eq!(world.assign_layout(f).unwrap(), layout);
    let report = |slots, size_at_least| proto::CommitRequest {
        inode: f.0,
        generation: layout.generation,
        written_slots: slots,
        size_at_least,
        ..Default::default()
    };
    commit(&world, report(0b001, 1000)).unwrap();
    let inode = commit(&world, report(0b1100, 500)).unwrap();
    assert_eq!(size(&inode), 1000);
    assert_eq!(inode.layout.unwrap().written_slots, 0b101, "only slots that exist");
}

#[test]
fn storage_of_a_file_with_holes_is_what_its_writer_counted_and_else_its_size() {
    let world = World::new();
    world.data_server("a");
    let f = world.file(TOP, "f");
    set_size(&world, f, 1 << 20).unwrap();
    let generation = world.assign_layout(f).unwrap().generation;
    let storage = || world.stat(f).unwrap().allocated_bytes;
    assert_eq!(storage(), 0, "nothing has been written");
    let report = |size_at_least, allocated_bytes| proto::CommitRequest {
        inode: f.0,
        generation,
        written_slots: 1,
        size_at_least,
        allocated_bytes,
        ..Default::default()
    };
    commit(&world, report(0, Some(8192))).unwrap();
    assert_eq!(storage(), 8192);
    commit(&world, report((1 << 20) + 4096, None)).unwrap();
    assert_eq!(storage(), 8192 + 4096, "what is appended is new storage");
    set_size(&world, f, 1 << 30).unwrap();
    assert_eq!(storage(), 8192 + 4096);
    set_size(&world, f, 4096).unwrap();
    assert_eq!(storage(), 4096, "never more than fits");
    commit(&world, report(1 << 20, Some(u64::MAX))).unwrap();
    assert_eq!(storage(), 1 << 20);
}

/// A mount was killed with bytes behind the end of a file on their way. The file grew over them later, and showed them.
#[test]
fn what_a_file_grows_by_is_unwritten_but_for_what_reports_name() {
    let world = World::new();
    world.data_server("a");
    let f = world.file(TOP, "f");
    let generation = world.assign_layout(f).unwrap().generation;
    let report = |size_at_least, written: &[(u64, u64)]| proto::CommitRequest {
        inode: f.0,
        generation,
        size_at_least,
        written: written.iter().map(|&(start, length)| proto::Extent { start, length }).collect(),
        tells_written: true,
        ..Default::default()
    };
    let unwritten = |inode: proto::Inode| -> Vec<(u64, u64)> {
        inode.unwritten.iter().map(|extent| (extent.start, extent.length)).collect()
    };
    assert_eq!(unwritten(commit(&world, report(1000, &[(0, 1000)])).unwrap()), []);
    assert_eq!(unwritten(set_size(&world, f, 3000).unwrap()), [(1000, 2000)]);
    assert_eq!(unwritten(commit(&world, report(0, &[(900, 200)])).unwrap()), [(1100, 1900)]);
    let grown = commit(&world, report(6000, &[(2000, 100), (5000, 1000)])).unwrap();
    assert_eq!(unwritten(grown), [(1100, 900), (2100, 2900)], "a gap is unwritten, too");
    assert_eq!(unwritten(world.open(f).unwrap()), [(1100, 900), (2100, 2900)]);
    assert_eq!(unwritten(set_size(&world, f, 2500).unwrap()), [(1100, 900), (2100, 400)]);
    assert_eq!(unwritten(set_size(&world, f, 2600).unwrap()), [(1100, 900), (2100, 500)]);
    let many: Vec<(u64, u64)> = (0..65).map(|at| (at * 10, 1)).collect();
    assert_eq!(commit(&world, report(0, &many)).map(|_| ()), Err(Code::Invalid));
    let holes: Vec<(u64, u64)> = (0..64).map(|at| (10_000 + at * (at + 10), 1)).collect();
    commit(&world, report(20_000, &holes)).unwrap();
    let kept = unwritten(world.open(f).unwrap());
    assert_eq!(kept.len(), limits::UNWRITTEN_EXTENTS_MAX);
    assert!(!kept.iter().any(|&(_, length)| length < 11), "the shortest count as written");
    // A client from before does not tell where it has written.
    commit(&world, proto::CommitRequest { tells_written: false, ..report(30_000, &[]) }).unwrap();
    assert_eq!(unwritten(world.open(f).unwrap()), []);
    set_size(&world, f, 40_000).unwrap();
    assert_eq!(unwritten(set_size(&world, f, 0).unwrap()), []);
    assert_eq!(unwritten(set_size(&world, f, 1000).unwrap()), [], "there are no objects");
}

/// What a file had grown by before it got objects counted as written from then on: zeros that had been synced could not
/// be read any more once an object with something that was not synced was lost with power.
#[test]
fn what_a_file_has_grown_by_is_unwritten_also_when_it_gets_its_objects_later() {
    let world = World::new();
    world.data_server("a");
    let f = world.file(TOP, "f");
    set_size(&world, f, 99_846).unwrap();
    world.assign_layout(f).unwrap();
    let unwritten = world.open(f).unwrap().unwritten;
    assert_eq!(unwritten, [proto::Extent { start: 0, length: 99_846 }]);
}

/// Two mounts wrote different parts of one small file and fsynced them: each reported the contents as it saw them, and
/// the later report destroyed what the earlier one had stored.
#[test]
fn reports_of_two_clients_change_only_the_bytes_that_they_tell_of() {
    let world = World::new();
    let f = world.file(TOP, "f");
    let base_version = world.stat(f).unwrap().version;
    let report = |offset: u64, data: &[u8]| {
        let write = proto::InlineWrite { offset, data: data.to_vec(), zeros: 0 };
        let inline_writes = vec![write];
        commit(&world, proto::CommitRequest { inode: f.0, inline_writes, base_version, ..Default::default() })
    };
    let first = report(0, b"first").unwrap();
    assert_eq!(first.contents, None, "its copy is what the file has");
    let second = report(7, b"second").unwrap();
    assert_eq!(
        (size(&second), second.contents),
        (13, Some(b"first\0\0second".to_vec())),
        "its copy is stale"
    );
    let zeros = |offset, zeros| {
        let write = proto::InlineWrite { offset, data: Vec::new(), zeros };
        let inline_writes = vec![write];
        commit(&world, proto::CommitRequest { inode: f.0, inline_writes, ..Default::default() })
    };
    assert_eq!(zeros(1, 2).unwrap().contents, Some(b"f\0\0st\0\0second".to_vec()));
    let cut = zeros(4, 9).unwrap();
    assert_eq!((size(&cut), cut.contents), (13, Some(b"f\0\0s".to_vec())), "a hole at the end");
    let beyond = report(limits::INLINE_BYTES_MAX as u64, b"x");
    assert_eq!(beyond.map(|_| ()), Err(Code::TooLarge));
    assert_eq!(report(u64::MAX, b"x").map(|_| ()), Err(Code::TooLarge));
}

/// Two mounts made one file outgrow its record: each copied the contents as it saw them to the object, over what the
/// other one had written there.
#[test]
fn a_layout_is_installed_only_while_the_contents_are_those_that_were_copied() {
    let world = World::new();
    world.data_server("a");
    let f = world.file(TOP, "f");
    commit(&world, inline(f, b"first")).unwrap();
    let proposed = world.outgrow(f, None).unwrap();
    assert_eq!(proposed.contents, Some(b"first".to_vec()));
    assert_eq!(world.open(f).unwrap().layout, None, "it is only proposed");
    let copied = |answer: &proto::AssignLayoutResponse| {
        let layout = answer.layout.clone().map(|layout| proto::Layout { written_slots: 1, ..layout });
        Some(proto::CopiedContents { layout, version: answer.version })
    };
    commit(&world, inline(f, b"other")).unwrap();
    let again = world.outgrow(f, copied(&proposed)).unwrap();
    assert_eq!(again.contents, Some(b"other".to_vec()), "they have changed meanwhile");
    let generation = |answer: &proto::AssignLayoutResponse| answer.layout.as_ref().unwrap().generation;
    assert!(generation(&again) > generation(&proposed));
    let theirs = world.outgrow(f, None).unwrap();
    let installed = world.outgrow(f, copied(&again)).unwrap();
    assert_eq!((generation(&installed), installed.contents.clone()), (generation(&again), None));
    let late = world.outgrow(f, copied(&theirs)).unwrap();
    assert_eq!((installed.version, late.version), (again.version, again.version + 1));
    assert_eq!((generation(&late), late.contents), (generation(&again), None), "it is told who was first");
    let opened = world.open(f).unwrap();
    assert_eq!((opened.contents, opened.layout.unwrap().written_slots), (None, 1));
    let unknown = world.outgrow(f, Some(proto::CopiedContents::default()));
    assert_eq!(unknown.map(|_| ()).map_err(|fault| fault.code), Err(Code::Invalid));
    world.assert_consistent();
}

#[test]
fn a_report_about_an_earlier_life_of_the_file_changes_nothing() {
    let world = World::new();
    world.data_server("a");
    let f = world.file(TOP, "f");
    let old = world.assign_layout(f).unwrap();
    let cut = set_size(&world, f, 0).unwrap();
    assert_eq!((cut.layout, cut.attributes.unwrap().size), (None, 0));
    let late = proto::CommitRequest {
        inode: f.0,
        generation: old.generation,
        size_at_least: 999,
        written_slots: 1,
        ..Default::default()
    };
    assert_eq!(size(&commit(&world, late.clone()).unwrap()), 0);
    let new = world.assign_layout(f).unwrap();
    assert!(new.generation > old.generation);
    assert_eq!(size(&commit(&world, late).unwrap()), 0);
    let inline_too_late = commit(&world, inline(f, b"late")).unwrap();
    assert!(inline_too_late.layout.is_some() && size(&inline_too_late) == 0);
    world.assert_consistent();
}

#[test]
fn open_with_truncation_is_one_operation() {
    let world = World::new();
    let f = world.file(TOP, "f");
    commit(&world, inline(f, b"old")).unwrap();
    let request = proto::OpenRequest { once: world.once(), inode: f.0, truncate: true, ..Default::default() };
    let opened = world.call::<op::Open>(&request).unwrap().inode.unwrap();
    assert_eq!((size(&opened), opened.contents), (0, Some(Vec::new())));
    let directory =
        proto::OpenRequest { once: world.once(), inode: TOP.0, truncate: true, ..Default::default() };
    assert_eq!(world.call::<op::Open>(&directory).map(|_| ()), Err(Code::IsDirectory));
}

#[test]
fn hints_are_inherited_by_what_is_created_later() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.data_server(name);
    }
    let d = world.directory(TOP, "d");
    let before = world.file(d, "before");
    let set = |inode: InodeId, stripe_unit_bytes, width| {
        let hint = Some(proto::LayoutHint { stripe_unit_bytes, width, ..Default::default() });
        let request =
            proto::SetLayoutHintRequest { once: world.once(), inode: inode.0, hint, nodes_are_hosts: false };
        world.call::<op::SetLayoutHint>(&request).map(|_| ())
    };
    assert_eq!(set(d, 65536, 2), Ok(()));
    assert_eq!(set(d, 1000, 2), Err(Code::Invalid));
    assert_eq!(set(d, 65536, 65), Err(Code::Invalid));
    let below = world.directory(d, "below");
    let after = world.file(below, "after");
    let layout = world.assign_layout(after).unwrap();
    assert_eq!((layout.unit_bytes, layout.groups.len()), (65536, 2));
    let layout = world.assign_layout(before).unwrap();
    assert_eq!((layout.unit_bytes, layout.groups.len()), (limits::STRIPE_UNIT_BYTES_DEFAULT, 3));
    assert_eq!(set(before, 65536, 1), Err(Code::InUse), "striped already");
    let get = proto::GetLayoutHintRequest { inode: below.0 };
    let hints = world.call::<op::GetLayoutHint>(&get).unwrap();
    assert_eq!(hints.hint.unwrap(), proto::LayoutHint::default());
    assert_eq!(
        hints.effective.unwrap(),
        proto::LayoutHint {
            stripe_unit_bytes: 65536,
            width: 2,
            pattern: Some(proto::Pattern { distribution: 1, ..Default::default() }),
            placement: Some(proto::Placement { kind: 1, ..Default::default() }),
            copies: 1,
        }
    );
    let own = world.file(below, "own");
    assert_eq!(set(own, 0, 1), Ok(()));
    let layout = world.assign_layout(own).unwrap();
    assert_eq!((layout.unit_bytes, layout.groups.len()), (65536, 1));
}

#[test]
fn files_begin_on_different_targets() {
    let world = World::new();
    for name in ["a", "b", "c", "d"] {
        world.data_server(name);
    }
    let first = |n| world.assign_layout(world.file(TOP, &format!("f{n}"))).unwrap().groups[0];
    let firsts: std::collections::BTreeSet<u32> = (0..4).map(first).collect();
    assert_eq!(firsts.len(), 4);
}

#[test]
fn without_data_servers_there_is_no_layout_and_the_error_says_why() {
    let world = World::new();
    let f = world.file(TOP, "f");
    let none = || world.assign_layout(f).unwrap_err();
    assert_eq!(none().code, Code::Unavailable, "one may be about to report");
    world.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(none().code, Code::NoSpace);
    assert!(none().detail.contains("no data server has joined"), "{}", none());
    world.data_server("a");
    world.clock.advance(std::time::Duration::from_secs(11));
    let fault = world.assign_layout(f).unwrap_err();
    assert!(fault.detail.contains("silent"), "{fault}");
}

#[test]
fn extended_attributes_keep_to_their_modes_and_limits() {
    let world = World::new();
    let f = world.file(TOP, "f");
    let set = |name: &str, value: &[u8], mode| {
        let request = proto::SetXattrRequest {
            once: world.once(),
            inode: f.0,
            name: name.into(),
            value: value.to_vec(),
            mode,
            clear_set_group: false,
        };
        world.call::<op::SetXattr>(&request).map(|_| ())
    };
    let get = |name: &str| {
        let request = proto::GetXattrRequest { inode: f.0, name: name.into() };
        world.call::<op::GetXattr>(&request).map(|response| response.value)
    };
    assert_eq!(set("user.a", b"1", 2), Err(Code::NoAttribute));
    assert_eq!(set("user.a", b"1", 1), Ok(()));
    assert_eq!(set("user.a", b"2", 1), Err(Code::Exists));
    assert_eq!(set("user.a", b"", 0), Ok(()));
    assert_eq!(get("user.a"), Ok(Vec::new()));
    assert_eq!(get("user.b"), Err(Code::NoAttribute));
    assert_eq!(set("user.big", &vec![7; limits::XATTR_BYTES_MAX], 0), Ok(()));
    assert_eq!(set("user.bigger", &vec![7; limits::XATTR_BYTES_MAX + 1], 0), Err(Code::TooLarge));
    assert_eq!(set(&"n".repeat(256), b"", 0), Err(Code::Range));
    let names = world.call::<op::ListXattrs>(&proto::ListXattrsRequest { inode: f.0 }).unwrap().names;
    assert_eq!(names, [b"user.a".to_vec(), b"user.big".to_vec()]);
    let remove = |name: &str| {
        let request = proto::RemoveXattrRequest { once: world.once(), inode: f.0, name: name.into() };
        world.call::<op::RemoveXattr>(&request).map(|_| ())
    };
    assert_eq!(remove("user.a"), Ok(()));
    assert_eq!(remove("user.a"), Err(Code::NoAttribute));
    world.assert_consistent();
    world.remove(TOP, "f", false).unwrap();
    world.assert_consistent();
}

#[test]
fn the_names_of_extended_attributes_fit_into_one_listing() {
    let world = World::new();
    let f = world.file(TOP, "f");
    let set = |n: usize| {
        let request = proto::SetXattrRequest {
            once: world.once(),
            inode: f.0,
            name: format!("{n:0>255}").into_bytes(),
            ..Default::default()
        };
        world.call::<op::SetXattr>(&request).map(|_| ())
    };
    assert_eq!((0..256).map(set).filter(Result::is_ok).count(), 256);
    assert_eq!(set(256), Err(Code::NoSpace));
    let names = world.call::<op::ListXattrs>(&proto::ListXattrsRequest { inode: f.0 }).unwrap().names;
    assert_eq!(names.len(), 256);
}
