//! Further names and extended attributes.

use super::World;
use vazao_client::XattrMode;
use vazao_client::area::ChannelOptions;
use vazao_model::Code;
use vazao_wire::Method;

#[test]
fn a_further_name_is_the_same_file() {
    let world = World::new();
    world.put("data/a", b"contents");
    std::fs::create_dir(world.path("data/d")).expect("made");
    let (attributes, identity) = world.area.link(b"a", b"d/b").expect("linked");
    assert_eq!((attributes.links, attributes.size), (2, 8));
    assert_eq!(world.area.stat_identified(b"a", false).expect("is there").1, identity);
    assert_eq!(std::fs::read(world.path("data/d/b")).expect("is there"), b"contents");
    assert_eq!(world.area.link(b"a", b"d/b").expect_err("is there").code, Code::Exists);
    assert_eq!(world.area.link(b"none", b"c").expect_err("is not there").code, Code::NotFound);
    assert_eq!(world.area.link(b"d", b"c").expect_err("a directory").code, Code::NotPermitted);
    assert_eq!(world.area.link(b"", b"c").expect_err("the root").code, Code::NotPermitted);
    assert_eq!(world.area.link(b"a", b"").expect_err("the root").code, Code::NotPermitted);
}

#[test]
fn attributes_are_set_as_the_mode_says_listed_and_removed() {
    let world = World::new();
    world.put("data/f", b"");
    let area = &world.area;
    assert!(area.stat(b"f", false).expect("is there").without_xattrs);
    area.set_xattr(b"f", b"user.a", b"one\0two", XattrMode::Create).expect("set");
    assert_eq!(area.get_xattr(b"f", b"user.a").expect("is there"), b"one\0two");
    let exists = area.set_xattr(b"f", b"user.a", b"x", XattrMode::Create).expect_err("is there");
    assert_eq!(exists.code, Code::Exists);
    let missing = area.set_xattr(b"f", b"user.b", b"x", XattrMode::Replace).expect_err("is not there");
    assert_eq!(missing.code, Code::NoAttribute);
    area.set_xattr(b"f", b"user.a", b"", XattrMode::Replace).expect("replaced");
    area.set_xattr(b"f", b"user.b", &[7; 1000], XattrMode::Either).expect("set");
    assert_eq!(area.get_xattr(b"f", b"user.a").expect("empty, and there"), b"");
    let mut names = area.list_xattrs(b"f").expect("listed");
    names.retain(|name| name.starts_with(b"user."));
    names.sort();
    assert_eq!(names, [&b"user.a"[..], b"user.b"]);
    // Channels and listings report them as well.
    let channel = area.open(b"f", &ChannelOptions::default()).expect("opened");
    assert!(!channel.stat().expect("status").without_xattrs);
    let listed = area.list(b"", 0, 10, true).expect("listed").entries;
    assert!(!listed[0].attributes.as_ref().expect("asked for").without_xattrs);
    area.remove_xattr(b"f", b"user.a").expect("removed");
    assert_eq!(area.remove_xattr(b"f", b"user.a").expect_err("is gone").code, Code::NoAttribute);
    assert_eq!(area.get_xattr(b"f", b"user.a").expect_err("is gone").code, Code::NoAttribute);
    assert_eq!(area.get_xattr(b"none", b"user.a").expect_err("no file").code, Code::NotFound);
}

#[test]
fn names_and_values_beyond_the_limits_are_refused() {
    let world = World::new();
    world.put("data/f", b"");
    let set = |name: &[u8], value: &[u8]| {
        world.area.set_xattr(b"f", name, value, XattrMode::Either).expect_err("refused").code
    };
    assert_eq!((set(b"", b"x"), set(b"user.\0", b"x")), (Code::Invalid, Code::Invalid));
    assert_eq!(set(&[b'x'; 256], b"x"), Code::Range);
    assert_eq!(set(b"user.a", &vec![0; 65_537]), Code::Range);
    assert_eq!(set(b"no name space", b"x"), Code::Unsupported);
    assert!(world.area.list_xattrs(b"f").expect("listed").iter().all(|name| !name.starts_with(b"user.")));
}

#[test]
fn a_change_whose_answer_was_lost_is_done_once() {
    let world = World::new();
    world.put("data/f", b"");
    world.lose_first(Method::AreaLink);
    world.area.link(b"f", b"g").expect("linked, not there already");
    world.lose_first(Method::AreaSetXattr);
    world.area.set_xattr(b"f", b"user.a", b"x", XattrMode::Create).expect("set, not there already");
    world.lose_first(Method::AreaRemoveXattr);
    world.area.remove_xattr(b"f", b"user.a").expect("removed, not gone already");
}
