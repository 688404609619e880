//! Names: listing, changing, repeating, areas that come and go.

use super::{World, config};
use crate::AreaConfig;
use std::collections::BTreeSet;
use std::path::Path;
use vazao_client::RenameMode;
use vazao_client::area::{AreaChanges, ChannelOptions};
use vazao_model::{Code, FileKind, Timestamp};
use vazao_wire::Method;
use vazao_wire::inline::Fate;

#[test]
fn a_large_directory_is_listed_in_pages_each_name_once() {
    let world = World::new();
    let expected: BTreeSet<Vec<u8>> = (0..5_000).map(|i| format!("name {i}").into_bytes()).collect();
    for name in &expected {
        world.put(&format!("data/{}", String::from_utf8_lossy(name)), b"");
    }
    for limit in [7, 4096, u32::MAX] {
        let (mut names, mut cookie, mut count) = (BTreeSet::new(), 0, 0);
        loop {
            let page = world.area.list(b"", cookie, limit, limit == 4096).expect("listed");
            assert!(page.entries.len() <= limit.min(4096) as usize);
            count += page.entries.len();
            cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
            for entry in page.entries {
                assert_eq!((entry.kind, entry.attributes.is_some()), (FileKind::File, limit == 4096));
                names.insert(entry.name);
            }
            if page.end {
                break;
            }
        }
        assert_eq!((names, count), (expected.clone(), 5_000));
    }
}

#[test]
fn entries_removed_between_pages_disturb_no_others() {
    let world = World::new();
    (0..1_000).for_each(|i| world.put(&format!("data/{i}"), b""));
    let (mut seen, mut cookie) = (0, 0);
    loop {
        let page = world.area.list(b"", cookie, 100, false).expect("listed");
        for entry in &page.entries {
            world.area.remove(&entry.name).expect("removed");
        }
        seen += page.entries.len();
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        if page.end {
            break;
        }
    }
    assert_eq!((seen, std::fs::read_dir(world.path("data")).expect("listed").count()), (1_000, 0));
}

#[test]
fn names_change_as_on_a_local_file_system() {
    let world = World::new();
    let area = &world.area;
    area.make_directory(b"d", 0o700).expect("made");
    world.put("data/d/x", b"12345");
    let changes = AreaChanges {
        mode: Some(0o640),
        size: Some(3),
        accessed: Some(Timestamp { seconds: -5, nanoseconds: 7 }),
        modified: Some(Timestamp { seconds: 1 << 33, nanoseconds: 999_999_999 }),
    };
    let changed = area.set_attributes(b"d/x", &changes).expect("changed");
    assert_eq!((changed.mode, changed.size, changed.links), (0o640, 3, 1));
    assert_eq!(
        (changed.accessed, changed.modified),
        (changes.accessed.expect("given"), changes.modified.expect("given"))
    );
    assert_eq!(area.remove_directory(b"d").expect_err("has x").code, Code::NotEmpty);
    assert_eq!(area.remove(b"d").expect_err("a directory").code, Code::IsDirectory);
    assert_eq!(area.rename(b"d/x", b"d", RenameMode::NoReplace).expect_err("taken").code, Code::Exists);
    area.rename(b"d/x", b"y", RenameMode::Replace).expect("moved");
    area.symlink(b"l", b"y").expect("made");
    assert_eq!(area.read_link(b"l"), Ok(b"y".to_vec()));
    assert_eq!(area.read_link(b"y").expect_err("no link").code, Code::Invalid);
    area.rename(b"l", b"y", RenameMode::Exchange).expect("swapped");
    assert_eq!(area.read_link(b"y"), Ok(b"y".to_vec()));
    assert_eq!(area.stat(b"y", true).expect_err("points to itself").code, Code::Loop);
    area.remove_directory(b"d").expect("is empty");
    assert!(area.space().expect("known").capacity_bytes > 0);
    let error = area.stat(b"d", false).expect_err("is gone");
    assert_eq!((error.code, error.detail.as_str()), (Code::NotFound, "/data/d"));
}

#[test]
fn a_change_whose_answer_was_lost_is_not_done_twice() {
    let world = World::new();
    world.lose_first(Method::AreaMakeDirectory);
    world.area.make_directory(b"d", 0o755).expect("made once, answered twice");
    world.lose_first(Method::AreaRename);
    world.area.rename(b"d", b"e", RenameMode::NoReplace).expect("renamed once");
    world.lose_first(Method::AreaRemove);
    world.area.remove_directory(b"e").expect("removed once");
    world.lose_first(Method::AreaSymlink);
    world.area.symlink(b"l", b"x").expect("made once");
    world.lose_first(Method::OpenChannel);
    let options = ChannelOptions { write: true, create: true, exclusive: true, ..ChannelOptions::default() };
    world.area.open(b"f", &options).expect("made once");
}

#[test]
fn unknown_nodes_and_areas_are_named_with_those_that_are_there() {
    let world = World::new();
    let error = world.client.area("n9", "data").stat(b"", false).expect_err("no such node").to_string();
    assert!(error.contains("\"n9\"") && error.contains("n1"), "{error}");
    let error = world.client.area("n1", "dat").stat(b"", false).expect_err("no such area").to_string();
    assert!(error.contains("\"dat\"") && error.contains("it exports data"), "{error}");
}

#[test]
fn areas_come_and_go_while_the_service_runs() {
    let world = World::new();
    world.put("data/x", b"x");
    let channel = world.area.open(b"x", &ChannelOptions::default()).expect("opens");
    let later = world.path("later");
    let data = config("data", &world.path("data"), false);
    world.service.set_areas(vec![data, config("later", &later, false)]).expect("valid");
    assert_eq!(channel.read_at(&mut [0], 0), Ok(1), "an area that stays keeps its channels");
    let areas = world.client.areas("n1").expect("listed");
    assert!(areas[0].trouble.is_empty() && areas[1].trouble.contains("No such file"), "{areas:?}");
    let later_area = world.client.area("n1", "later");
    assert!(later_area.stat(b"", false).expect_err("not there yet").to_string().contains("later"));
    std::fs::create_dir(&later).expect("made");
    world.service.tick();
    later_area.stat(b"", false).expect("has come");
    world.service.set_areas(vec![config("later", &later, false)]).expect("valid");
    let error = channel.read_at(&mut [0], 0).expect_err("gone");
    assert_eq!(error.code, Code::NotFound);
    for bad in ["", ".x", "a/b", "é", &"x".repeat(65)] {
        assert!(world.service.set_areas(vec![config(bad, &later, false)]).is_err(), "{bad}");
    }
    let twice = vec![config("a", &later, false), config("a", &later, true)];
    assert!(world.service.set_areas(twice).expect_err("twice").contains("its own name"));
    later_area.stat(b"", false).expect("a refused configuration changes nothing");
}

#[test]
fn a_million_references_send_nothing() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let world = World::new();
    let sent = std::sync::Arc::new(AtomicU64::new(0));
    let counting = std::sync::Arc::clone(&sent);
    world.transport.set_fates(Some(Box::new(move |_, _| {
        counting.fetch_add(1, Ordering::Relaxed);
        Fate::Deliver
    })));
    let before = world.meta.requests.load(Ordering::Relaxed);
    let root = world.area.reference(b"run7");
    let references: Vec<_> = (0..1_000_000).map(|i| root.join(format!("{i}").as_bytes())).collect();
    assert_eq!(references[999_999].to_string(), "n1:/data/run7/999999");
    assert_eq!((sent.load(Ordering::Relaxed), world.meta.requests.load(Ordering::Relaxed)), (0, before));
    assert_eq!((world.service.shared.channels.len(), world.service.shared.descriptors.len()), (0, 0));
}

/// The directories on a way further down come with the first, as far as there are any.
#[test]
fn a_look_at_a_directory_tells_of_those_on_a_way_below() {
    let world = World::new();
    let deep = "d/".repeat(300);
    std::fs::create_dir_all(world.path("data").join(&deep)).expect("made");
    let below = |below: &[u8]| world.area.stat_below(b"d", below).map(|(_, found)| found);
    assert_eq!(below(b"").expect("told").len(), 0);
    assert_eq!(below(b"d/d/d").expect("told").len(), 3);
    assert_eq!(below(b"d/none/d").expect("told").len(), 1);
    assert_eq!(below(deep.as_bytes()).expect("told").len(), 256);
    let (third, _) = world.area.stat_identified(b"d/d/d", false).expect("is there");
    assert_eq!(below(b"d/d").expect("told")[1], third);
    std::os::unix::fs::symlink(world.path("outside"), world.path("data/d/link")).expect("made");
    std::os::unix::fs::symlink("d", world.path("data/d/beside")).expect("made");
    world.put("data/d/file", b"");
    for name in [&b"link"[..], b"beside", b"file", b"link/x"] {
        assert_eq!(below(name).expect("told").len(), 0, "{name:?}");
    }
    assert_eq!(below(b"../outside").expect_err("leads out").code, Code::AccessDenied);
    assert_eq!(world.area.stat_below(b"none", b"d").expect_err("is not there").code, Code::NotFound);
}

/// A disk that was not mounted after a restart left an empty directory, which was exported in its place.
#[test]
fn an_area_whose_file_system_is_not_mounted_is_in_trouble_until_it_is() {
    let world = World::new();
    let path = world.path("data");
    let mounted_at = crate::mount_point(&path).expect("found");
    assert!(path.canonicalize().expect("is there").starts_with(&mounted_at));
    assert_eq!(crate::mount_point(Path::new("/proc/self")).expect("found"), Path::new("/proc"));
    let area = |mounted_at: &Path| AreaConfig {
        mounted_at: Some(mounted_at.to_owned()),
        ..config("data", &path, false)
    };
    world.service.set_areas(vec![config("other", &path, false)]).expect("names that can be");
    world.service.set_areas(vec![area(Path::new("/disks/not-mounted"))]).expect("names that can be");
    let trouble = world.service.areas()[0].trouble.clone();
    assert!(trouble.contains("/disks/not-mounted is not mounted"), "{trouble}");
    world.service.tick();
    assert_eq!(world.service.areas()[0].trouble, trouble);
    world.service.set_areas(vec![area(&mounted_at)]).expect("names that can be");
    assert_eq!(world.service.areas()[0].trouble, "");
}
