//! Rename in its modes, and listings.

use super::harness::{TOP, World, options};
use std::collections::BTreeSet;
use vazao_model::{Code, FileKind, InodeId, limits};
use vazao_wire::{op, proto};

const REPLACE: u32 = 0;
const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

#[test]
fn rename_moves_between_directories_and_counts_subdirectories() {
    let world = World::new();
    let (a, b) = (world.directory(TOP, "a"), world.directory(TOP, "b"));
    let d = world.directory(a, "d");
    world.rename((a, "d"), (b, "e"), REPLACE).unwrap();
    assert_eq!(world.lookup(a, "d"), Err(Code::NotFound));
    assert_eq!(world.lookup(b, "e").unwrap().inode, d.0);
    assert_eq!(world.lookup(d, "..").unwrap().inode, b.0);
    assert_eq!((world.stat(a).unwrap().links, world.stat(b).unwrap().links), (2, 3));
    world.assert_consistent();
}

#[test]
fn rename_over_a_file_replaces_it() {
    let world = World::new();
    let (f, g) = (world.file(TOP, "f"), world.file(TOP, "g"));
    let renamed = world.rename((TOP, "f"), (TOP, "g"), REPLACE).unwrap();
    assert_eq!((renamed.inode, renamed.replaced, renamed.replaced_links), (f.0, g.0, 0));
    assert_eq!(world.stat(g), Err(Code::Stale));
    assert_eq!(world.names(TOP), ["g"]);
    world.assert_consistent();
}

#[test]
fn rename_over_a_nonempty_directory_is_refused_and_over_an_empty_one_done() {
    let world = World::new();
    let (a, b) = (world.directory(TOP, "a"), world.directory(TOP, "b"));
    world.file(b, "x");
    assert_eq!(world.rename((TOP, "a"), (TOP, "b"), REPLACE), Err(Code::NotEmpty));
    world.remove(b, "x", false).unwrap();
    world.rename((TOP, "a"), (TOP, "b"), REPLACE).unwrap();
    assert_eq!(world.lookup(TOP, "b").unwrap().inode, a.0);
    assert_eq!(world.stat(TOP).unwrap().links, 3);
    world.assert_consistent();
}

#[test]
fn rename_does_not_mix_files_and_directories() {
    let world = World::new();
    world.directory(TOP, "d");
    world.file(TOP, "f");
    assert_eq!(world.rename((TOP, "f"), (TOP, "d"), REPLACE), Err(Code::IsDirectory));
    assert_eq!(world.rename((TOP, "d"), (TOP, "f"), REPLACE), Err(Code::NotDirectory));
    assert_eq!(world.rename((TOP, "none"), (TOP, "f"), REPLACE), Err(Code::NotFound));
    assert_eq!(world.rename((TOP, "f"), (TOP, "."), REPLACE), Err(Code::InUse));
    assert_eq!(world.rename((TOP, "f"), (TOP, "g"), 9), Err(Code::Invalid));
}

#[test]
fn a_directory_never_moves_below_itself() {
    let world = World::new();
    let a = world.directory(TOP, "a");
    let b = world.directory(a, "b");
    let c = world.directory(b, "c");
    assert_eq!(world.rename((TOP, "a"), (c, "x"), REPLACE), Err(Code::Invalid));
    assert_eq!(world.rename((TOP, "a"), (a, "x"), REPLACE), Err(Code::Invalid));
    assert_eq!(world.rename((TOP, "a"), (b, "c"), EXCHANGE), Err(Code::Invalid));
    assert_eq!(world.rename((b, "c"), (TOP, "a"), EXCHANGE), Err(Code::Invalid));
    assert_eq!(world.rename((b, "c"), (TOP, "a"), REPLACE), Err(Code::NotEmpty));
    world.assert_consistent();
}

#[test]
fn two_names_of_one_inode_stay_both() {
    let world = World::new();
    let f = world.file(TOP, "f");
    world.link(f, TOP, "g").unwrap();
    for mode in [REPLACE, EXCHANGE] {
        assert_eq!(world.rename((TOP, "f"), (TOP, "g"), mode).unwrap().replaced, 0);
    }
    assert_eq!(world.names(TOP), ["f", "g"]);
    assert_eq!(world.stat(f).unwrap().links, 2);
}

#[test]
fn no_replace_refuses_a_taken_name() {
    let world = World::new();
    world.file(TOP, "f");
    world.file(TOP, "g");
    assert_eq!(world.rename((TOP, "f"), (TOP, "g"), NO_REPLACE), Err(Code::Exists));
    assert_eq!(world.rename((TOP, "f"), (TOP, "f"), NO_REPLACE), Err(Code::Exists));
    world.rename((TOP, "f"), (TOP, "h"), NO_REPLACE).unwrap();
    assert_eq!(world.names(TOP), ["g", "h"]);
}

#[test]
fn exchange_swaps_a_file_and_a_directory_of_different_parents() {
    let world = World::new();
    let (a, b) = (world.directory(TOP, "a"), world.directory(TOP, "b"));
    let (f, d) = (world.file(a, "f"), world.directory(b, "d"));
    assert_eq!(world.rename((a, "f"), (b, "none"), EXCHANGE), Err(Code::NotFound));
    world.rename((a, "f"), (b, "d"), EXCHANGE).unwrap();
    assert_eq!((world.lookup(a, "f").unwrap().inode, world.lookup(b, "d").unwrap().inode), (d.0, f.0));
    assert_eq!(world.lookup(d, "..").unwrap().inode, a.0);
    assert_eq!((world.stat(a).unwrap().links, world.stat(b).unwrap().links), (3, 2));
    world.assert_consistent();
}

#[test]
fn a_listing_in_pages_of_any_size_shows_every_entry_once() {
    // A name's hash of 4 bits: most entries share theirs with others.
    for bits in [4, 62] {
        let world = World::with(crate::MetaOptions { name_hash_bits: bits, ..options("memory") });
        let d = world.directory(TOP, "d");
        for n in 0..150 {
            world.file(d, &format!("f{n}"));
        }
        for limit in [1, 2, 7, 50, 149, 150, 151, 10_000] {
            let mut seen = Vec::new();
            let mut cookie = 0;
            loop {
                let page = world.list(d, cookie, limit);
                assert_eq!(page.parent, TOP.0);
                let cookies: Vec<u64> = page.entries.iter().map(|e| e.cookie).collect();
                assert!(cookies.is_sorted() && cookies.iter().all(|&c| c > cookie && c >= 16));
                seen.extend(page.entries.iter().map(|e| e.name.clone()));
                cookie = cookies.last().copied().unwrap_or(cookie);
                if page.end {
                    break;
                }
                assert!(!page.entries.is_empty());
            }
            let distinct: BTreeSet<_> = seen.iter().cloned().collect();
            assert_eq!((seen.len(), distinct.len()), (150, 150), "pages of {limit}, {bits} bits");
        }
    }
}

#[test]
fn cookies_stay_valid_while_entries_come_and_go() {
    let world = World::new();
    let d = world.directory(TOP, "d");
    for n in 0..200 {
        world.file(d, &format!("stays{n}"));
        world.file(d, &format!("goes{n}"));
    }
    let mut seen = Vec::new();
    let (mut cookie, mut round) = (0, 0);
    loop {
        let page = world.list(d, cookie, 10);
        seen.extend(page.entries.iter().map(|e| String::from_utf8(e.name.clone()).unwrap()));
        cookie = page.entries.last().map_or(cookie, |e| e.cookie);
        if page.end {
            break;
        }
        // The entry that the cookie stands for disappears as well.
        let last = page.entries.last().unwrap();
        if last.name.starts_with(b"goes") {
            world.remove(d, std::str::from_utf8(&last.name).unwrap(), false).unwrap();
        }
        let _ = world.remove(d, &format!("goes{round}"), false);
        world.file(d, &format!("comes{round}"));
        round += 1;
    }
    let stays: Vec<_> = seen.iter().filter(|name| name.starts_with("stays")).collect();
    assert_eq!(stays.len(), 200);
    assert_eq!(stays.iter().collect::<BTreeSet<_>>().len(), 200);
    assert_eq!(seen.len(), seen.iter().collect::<BTreeSet<_>>().len(), "no entry twice");
}

#[test]
fn pages_of_long_names_stay_below_the_message_limit() {
    use prost::Message;
    let world = World::new();
    let d = world.directory(TOP, "d");
    for n in 0..4200 {
        world.file(d, &format!("{n:0>255}"));
    }
    let (mut cookie, mut total) = (0, 0);
    loop {
        let request =
            proto::ListRequest { directory: d.0, cookie, limit: u32::MAX, with_attributes: true, seat: 0 };
        let page = world.call::<op::List>(&request).unwrap();
        assert!(page.encoded_len() < limits::MESSAGE_BYTES_MAX);
        assert!(page.entries.iter().all(|e| e.attributes.as_ref().unwrap().inode == e.inode));
        total += page.entries.len();
        cookie = page.entries.last().map_or(cookie, |e| e.cookie);
        if page.end {
            break;
        }
    }
    assert_eq!(total, 4200);
}

#[test]
fn attributes_in_a_listing_are_those_of_each_inode_however_far_apart_they_are() {
    let world = World::new();
    let [near, far] = ["near", "far"].map(|name| world.directory(TOP, name));
    for n in 0..60 {
        world.file(near, &format!("file{n}"));
        match n % 20 {
            0 => drop(world.directory(far, &format!("directory{n}"))),
            1 => drop(world.file(far, &format!("file{n}"))),
            _ => {}
        }
    }
    let inner = world.directory(near, "inner");
    world.directory(inner, "innermost");
    let twice = world.file(near, "twice");
    world.link(twice, near, "again").unwrap();
    for (directory, count) in [(near, 63), (far, 6)] {
        let request = proto::ListRequest {
            directory: directory.0,
            limit: 100,
            with_attributes: true,
            ..Default::default()
        };
        let page = world.call::<op::List>(&request).unwrap();
        assert_eq!(page.entries.len(), count);
        for entry in page.entries {
            assert_eq!(entry.attributes, Some(world.stat(InodeId(entry.inode)).unwrap()));
        }
    }
}

#[test]
fn listing_what_is_no_directory_or_gone_fails() {
    let world = World::new();
    let f = world.make(TOP, "f", FileKind::File).unwrap();
    let list = |directory| {
        let request = proto::ListRequest { directory, cookie: 0, limit: 10, with_attributes: false, seat: 0 };
        world.call::<op::List>(&request).map(|page| page.entries.len())
    };
    assert_eq!(list(f.0), Err(Code::NotDirectory));
    assert_eq!(list(12_345_678), Err(Code::Stale));
    let page = world.list(TOP, u64::MAX, 10);
    assert!(page.end && page.entries.is_empty());
}
