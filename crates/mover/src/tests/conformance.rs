//! What every method has to do, whatever it is.

use super::{METHODS, World, noise};
use crate::outgoing::{Manner, Started, begin};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

#[test]
fn files_of_all_sizes_arrive_as_they_are() {
    let world = World::new();
    for method in METHODS {
        for size in [0, 1, 4095, 65_535, 65_536, 65_537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_300_001] {
            let (name, bytes) = (format!("{method}-{size}"), noise(size));
            let source = world.put(&name, &bytes);
            world.copy(method, source, &name).unwrap_or_else(|fault| panic!("{name}: {fault}"));
            assert!(world.arrived(&name) == Some(bytes), "{name} differs");
        }
    }
    assert!(world.names().iter().all(|name| !name.ends_with(".part")), "{:?}", world.names());
}

#[test]
fn a_sparse_file_beyond_four_gibibytes_arrives_sparse() {
    let world = World::new();
    let size = (5u64 << 30) + 12_345;
    let marks = [0, 70_000, (4 << 30) + 123, size - 5];
    let file = File::create(world.path("out/sparse")).expect("made");
    file.set_len(size).expect("extended");
    marks.iter().for_each(|&at| file.write_all_at(b"mark!", at).expect("written"));
    for method in METHODS {
        world
            .copy(method, world.source("sparse"), method)
            .unwrap_or_else(|fault| panic!("{method}: {fault}"));
        let there = File::open(world.path("in").join(method)).expect("is there");
        let status = there.metadata().expect("status");
        assert_eq!(status.len(), size, "{method}");
        assert!(status.blocks() * 512 < 64 << 20, "{method}: {} blocks", status.blocks());
        for at in marks {
            let mut mark = [0; 5];
            there.read_exact_at(&mut mark, at).expect("read");
            assert_eq!(&mark, b"mark!", "{method} at {at}");
        }
        std::fs::remove_file(world.path("in").join(method)).expect("removed");
    }
}

#[test]
fn times_and_permissions_come_along_and_the_name_appears_last() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    for method in METHODS {
        let source = world.put(method, &noise(2_000_000));
        let path = world.path("out").join(method);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
        let source_now = world.source(method);
        drop(source);
        let started = begin(source_now, world.around(), world.to(method), Manner::default());
        let Started::Ready(copy) = started.expect("begins") else { panic!("{method}: complete") };
        world.send(method, &copy).expect("sent");
        assert_eq!(world.arrived(method), None, "{method}: visible before its end");
        copy.end().expect("ends");
        let (from, to) = (path.metadata(), world.path("in").join(method).metadata());
        let (from, to) = (from.expect("status"), to.expect("status"));
        assert_eq!((to.mode() & 0o777, to.mtime_nsec()), (0o640, from.mtime_nsec()), "{method}");
    }
}

#[test]
fn a_limit_of_bandwidth_is_kept_by_every_method() {
    let world = World::new();
    let bytes = noise(3 << 20);
    for method in METHODS {
        let source = world.put(method, &bytes);
        let around = world.around_with(Default::default(), 6 << 20);
        let started_ns = world.clock.now_ns();
        let started = begin(source, around.clone(), world.to(method), Manner::default());
        let Started::Ready(copy) = started.expect("begins") else { panic!("{method}: complete") };
        world.send(method, &copy).expect("sent");
        copy.end().expect("ends");
        let seconds = (world.clock.now_ns() - started_ns) as f64 / 1e9;
        // Three at six a second, but for the burst and the last record. A busy machine only makes it longer, and may by
        // itself be slower than the limit, which then is not waited for.
        assert!(seconds > 0.25, "{method}: {seconds}");
        assert!(around.counts.limit_ns.get() > 0 || seconds > 0.5, "{method}: {seconds}");
    }
}

#[test]
fn one_that_is_cancelled_stops_and_leaves_no_name() {
    let world = World::new();
    for method in METHODS {
        let source = world.put(method, &noise(8 << 20));
        let around = world.around_with(Default::default(), 1 << 20);
        let started = begin(source, around.clone(), world.to(method), Manner::default());
        let Started::Ready(copy) = started.expect("begins") else { panic!("{method}: complete") };
        around.control.set(crate::Order::Cancel);
        let fault = world.send(method, &copy).expect_err("stops");
        assert_eq!(fault.code, vazao_model::Code::Cancelled, "{method}");
        copy.give_up(true);
        assert_eq!(world.arrived(method), None);
    }
    assert_eq!(world.names(), Vec::<String>::new());
}
