//! Probes between two ends in one process.

use super::World;
use crate::probing::{Course, probe};
use vazao_model::Code;

fn course(from_disk: Option<&str>, to_disk: Option<&str>, streams: u32) -> Course {
    let owned = |area: Option<&str>| area.map(str::to_owned);
    Course {
        from_disk: owned(from_disk),
        to_disk: owned(to_disk),
        streams,
        milliseconds: 200,
        bytes_max: 8 << 20,
    }
}

#[test]
fn every_course_is_measured_and_leaves_nothing_behind() {
    let world = World::new();
    let address = world.address();
    for course in [
        course(None, None, 1),
        course(None, None, 5),
        course(Some(""), None, 2),
        course(Some("in"), Some("in"), 3),
        course(None, Some(""), 2),
    ] {
        let measured = probe(&*world.transport, &*world.clock, &address, &address, &course);
        let measured = measured.unwrap_or_else(|fault| panic!("{}: {fault}", course.name()));
        assert!(measured.bytes > 0 && measured.bytes <= 8 << 20, "{}: {measured:?}", course.name());
        assert!(measured.elapsed_ns > 0 && measured.round_trip_ns < 1_000_000_000 && measured.rate() > 0.0);
    }
    assert_eq!(world.names(), Vec::<String>::new());
    let own = std::fs::read_dir(world.path("own/arriving")).expect("listed").count();
    assert_eq!(own, 0);
}

#[test]
fn a_probe_that_cannot_be_is_refused_with_its_reason() {
    let world = World::new();
    let address = world.address();
    let ask = |course: Course| probe(&*world.transport, &*world.clock, &address, &address, &course);
    for wrong in [
        course(None, None, 0),
        course(None, None, 33),
        Course { milliseconds: 60_000, ..course(None, None, 1) },
        Course { bytes_max: 0, ..course(None, None, 1) },
    ] {
        assert_eq!(ask(wrong).expect_err("is refused").code, Code::BadRequest);
    }
    for place in [course(Some("none"), None, 1), course(None, Some("none"), 2)] {
        let fault = ask(place).expect_err("no such area");
        assert!(fault.detail.contains("none"), "{fault}");
    }
}
