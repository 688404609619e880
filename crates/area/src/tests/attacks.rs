//! Paths that try to get out of the area; `VAZAO_ESCAPE_ATTEMPTS` (default 4,000) times while the way is swapped.

use super::{WRITE, World, config};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use vazao_client::area::{AreaChanges, ChannelOptions};
use vazao_client::{RenameMode, XattrMode};
use vazao_meter::{Clock, SystemClock};
use vazao_model::{Code, FileKind};

/// Two threads have had a turn by then.
const LONG_NS: u64 = 30_000_000_000;

/// Every operation that takes a path is refused on this one; nothing outside is seen or changed.
fn all_refused(world: &World, path: &[u8], expected: Code) {
    let area = &world.area;
    let secret = world.path("outside/secret");
    let before = std::fs::read(&secret).expect("is there");
    let below = [path, b"/secret"].concat();
    let changes = AreaChanges { mode: Some(0o777), size: Some(0), ..AreaChanges::default() };
    let outcomes = [
        ("stat", area.stat(&below, true).map(drop)),
        ("list", area.list(path, 0, 10, true).map(drop)),
        ("mkdir", area.make_directory(&[path, b"/new"].concat(), 0o755).map(drop)),
        ("remove", area.remove(&below)),
        ("rmdir", area.remove_directory(&below)),
        ("rename from", area.rename(&below, b"stolen", RenameMode::Replace)),
        ("rename to", area.rename(b"own", &below, RenameMode::Replace)),
        ("read link", area.read_link(&below).map(drop)),
        ("symlink", area.symlink(&[path, b"/l"].concat(), b"x").map(drop)),
        ("link from", area.link(&below, b"stolen").map(drop)),
        ("link to", area.link(b"own", &below).map(drop)),
        ("get attribute", area.get_xattr(&below, b"user.a").map(drop)),
        ("set attribute", area.set_xattr(&below, b"user.a", b"x", XattrMode::Either)),
        ("list attributes", area.list_xattrs(&below).map(drop)),
        ("remove attribute", area.remove_xattr(&below, b"user.a")),
        ("set", area.set_attributes(&below, &changes).map(drop)),
        ("open", area.open(&below, &ChannelOptions::default()).map(drop)),
        ("create", area.open(&[path, b"/made"].concat(), &WRITE).map(drop)),
    ];
    for (operation, outcome) in outcomes {
        let error = outcome.expect_err(operation);
        assert_eq!(error.code, expected, "{operation}: {error}");
    }
    assert_eq!(std::fs::read(&secret).expect("is there"), before);
    assert_eq!(std::fs::read_dir(world.path("outside")).expect("listed").count(), 1);
}

fn world() -> World {
    let world = World::new();
    world.put("outside/secret", b"secret");
    world.put("data/own", b"own");
    world
}

#[test]
fn dot_dot_is_refused_by_every_operation() {
    let world = world();
    all_refused(&world, b"../outside", Code::AccessDenied);
    std::fs::create_dir(world.path("data/d")).expect("made");
    all_refused(&world, b"d/../../outside", Code::AccessDenied);
}

#[test]
fn links_that_lead_out_are_refused_by_every_operation() {
    let world = world();
    symlink(world.path("outside"), world.path("data/absolute")).expect("made");
    symlink("../outside", world.path("data/relative")).expect("made");
    symlink("absolute", world.path("data/twice")).expect("made");
    symlink("/proc/self/root", world.path("data/magic")).expect("made");
    for link in ["absolute", "relative", "twice"] {
        all_refused(&world, link.as_bytes(), Code::AccessDenied);
    }
    assert!(world.area.list(b"magic", 0, 10, false).is_err());
    let error = world.area.list(b"absolute", 0, 10, false).expect_err("leads out");
    assert!(error.to_string().contains("/data/absolute: a symbolic link on the way leads out"), "{error}");
}

#[test]
fn a_link_at_the_end_is_an_entry_and_never_a_way_out() {
    let world = world();
    symlink(world.path("outside/secret"), world.path("data/link")).expect("made");
    let area = &world.area;
    assert_eq!(area.stat(b"link", false).expect("the link").kind, FileKind::Symlink);
    assert_eq!(area.stat(b"link", true).expect_err("leads out").code, Code::AccessDenied);
    for options in [ChannelOptions::default(), WRITE, ChannelOptions { exclusive: true, ..WRITE }] {
        assert!(area.open(b"link", &options).is_err());
    }
    let changes = AreaChanges { mode: Some(0o777), ..AreaChanges::default() };
    assert!(area.set_attributes(b"link", &changes).is_err());
    assert!(area.set_attributes(b"link", &AreaChanges { size: Some(0), ..AreaChanges::default() }).is_err());
    // Names and attributes are of the link itself; the kernel refuses links attributes of users.
    assert_eq!(area.get_xattr(b"link", b"user.a").expect_err("the link has none").code, Code::NoAttribute);
    assert!(area.set_xattr(b"link", b"user.a", b"x", XattrMode::Either).is_err());
    assert_eq!(area.link(b"link", b"link too").expect("the link itself").0.kind, FileKind::Symlink);
    area.remove(b"link").expect("the link, not what it points to");
    assert_eq!(std::fs::read(world.path("outside/secret")).expect("is there"), b"secret");
}

#[test]
fn links_within_the_area_are_followed() {
    let world = world();
    std::fs::create_dir(world.path("data/d")).expect("made");
    world.put("data/d/x", b"inside");
    symlink("d", world.path("data/link")).expect("made");
    let channel = world.area.open(b"link/x", &ChannelOptions::default()).expect("stays within");
    let mut bytes = [0; 6];
    assert_eq!((channel.read_at(&mut bytes, 0), &bytes), (Ok(6), b"inside"));
}

#[test]
fn percent_encoded_dots_are_only_a_name() {
    let world = world();
    world.area.make_directory(b"%2e%2e", 0o755).expect("a name as any other");
    assert!(world.path("data/%2e%2e").is_dir());
    assert_eq!(world.area.stat(b"%2e%2e/outside", true).expect_err("is not there").code, Code::NotFound);
}

#[test]
fn the_root_stays_and_names_have_limits() {
    let world = world();
    let area = &world.area;
    for path in [&b""[..], b".", b"./"] {
        assert!(
            area.remove_directory(path).is_err() && area.rename(path, b"x", RenameMode::Replace).is_err()
        );
        assert_eq!(area.make_directory(path, 0o755).expect_err("is there").code, Code::Exists);
        assert_eq!(area.stat(path, false).expect("is there").kind, FileKind::Directory);
    }
    assert_eq!(area.make_directory(&[b'x'; 256], 0o755).expect_err("too long").code, Code::NameTooLong);
    assert_eq!(area.make_directory(b"a\0b", 0o755).expect_err("NUL").code, Code::Invalid);
    area.make_directory(&[b'x'; 255], 0o755).expect("just fits");
    area.make_directory(b"\xff\n", 0o755).expect("any bytes");
}

/// A directory on the way is a link to outside half of the time, swapped while paths through it are opened.
#[test]
fn an_ancestor_swapped_during_the_open_never_leads_out() {
    let world = world();
    for name in ["data/way", "data/spare"] {
        std::fs::create_dir(world.path(name)).expect("made");
        world.put(&format!("{name}/secret"), b"inside");
    }
    symlink(world.path("outside"), world.path("data/link")).expect("made");
    let (mut inside, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let (way, link) = (world.path("data/way"), world.path("data/link"));
        let busy = Arc::new(());
        let is_busy = Arc::downgrade(&busy);
        scope.spawn(move || {
            while is_busy.strong_count() > 0 {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &way, cwd, &link, flags).expect("swapped");
            }
        });
        let wanted = std::env::var("VAZAO_ESCAPE_ATTEMPTS").ok();
        let wanted = wanted.map_or(4_000, |count| count.parse().expect("a number"));
        let ends_ns = SystemClock.now_ns() + LONG_NS;
        for attempt in 0u64.. {
            // On a busy machine the thread that swaps may not run for as long as all of these take.
            let has_both = inside > 0 && refused > 0;
            if attempt >= wanted && (has_both || SystemClock.now_ns() > ends_ns) {
                break;
            }
            match world.area.open(b"way/secret", &ChannelOptions::default()) {
                Ok(channel) => {
                    let mut bytes = [0; 6];
                    // Opened again by path it may meet the link, and is then refused too.
                    if channel.read_at(&mut bytes, 0) == Ok(6) {
                        assert_eq!(&bytes, b"inside");
                        inside += 1;
                    }
                }
                Err(error) => {
                    assert_eq!(error.code, Code::AccessDenied, "{error}");
                    refused += 1;
                }
            }
            let _ = world.area.make_directory(b"way/made", 0o755);
            let _ = world.area.remove_directory(b"way/made");
        }
        drop(busy);
    });
    assert!(inside > 0 && refused > 0, "{inside} inside, {refused} refused");
    assert_eq!(std::fs::read_dir(world.path("outside")).expect("listed").count(), 1);
}

#[test]
fn a_read_only_area_changes_in_no_way() {
    let world = world();
    world.service.set_areas(vec![config("data", &world.path("data"), true)]).expect("valid");
    let area = &world.area;
    let changes = AreaChanges { mode: Some(0o777), ..AreaChanges::default() };
    let outcomes = [
        area.make_directory(b"d", 0o755).map(drop),
        area.remove(b"own"),
        area.remove_directory(b"own"),
        area.rename(b"own", b"other", RenameMode::Replace),
        area.symlink(b"l", b"own").map(drop),
        area.link(b"own", b"other").map(drop),
        area.set_xattr(b"own", b"user.a", b"x", XattrMode::Either),
        area.remove_xattr(b"own", b"user.a"),
        area.set_attributes(b"own", &changes).map(drop),
        area.open(b"own", &WRITE).map(drop),
        area.open(b"new", &WRITE).map(drop),
    ];
    for outcome in outcomes {
        let error = outcome.expect_err("read-only");
        assert_eq!(error.code, Code::ReadOnly);
        assert!(error.to_string().contains("exported read-only"), "{error}");
    }
    let mut bytes = [0; 3];
    let channel = area.open(b"own", &ChannelOptions::default()).expect("reads");
    assert_eq!((channel.read_at(&mut bytes, 0), &bytes), (Ok(3), b"own"));
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let world = world();
    let fifo = world.path("data/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o644.into(), 0).expect("made");
    std::fs::create_dir(world.path("data/d")).expect("made");
    for options in [ChannelOptions::default(), WRITE] {
        assert_eq!(world.area.open(b"fifo", &options).expect_err("a pipe").code, Code::Invalid);
        assert_eq!(world.area.open(b"d", &options).expect_err("a directory").code, Code::IsDirectory);
    }
}
