//! Scrub: it finds what rotted, and nothing else.

use super::{CHUNK, Rig, data_path, pattern, sums_path};
use std::io::ErrorKind;
use vazao_model::Code;
use vazao_wire::op;
use vazao_wire::proto::{ScrubRequest, ScrubResponse};

const DONE: u32 = 2;

fn scrub(rig: &Rig) -> ScrubResponse {
    let request = ScrubRequest { target: 1, action: 1, rate_bytes: 0 };
    rig.ask::<op::Scrub>(&request, &[]).expect("starts");
    rig.ask::<op::Scrub>(&ScrubRequest { target: 1, action: 0, rate_bytes: 0 }, &[]).expect("reports").0
}

/// Objects of several chunks, with a hole, short ones, an empty one.
fn rig() -> Rig {
    let mut rig = Rig::new(1);
    rig.write(1, 0, &pattern(1, 2 * CHUNK as usize + 777)).expect("writes");
    rig.write(2, 3 * CHUNK + 5, &pattern(2, 1000)).expect("writes");
    rig.write(3, 10, b"short").expect("writes");
    rig.write(4, 0, b"").expect("writes");
    rig.service.close();
    rig.restart();
    rig
}

#[test]
fn a_sound_target_is_gone_through_whole_and_nothing_is_found() {
    let rig = rig();
    let report = scrub(&rig);
    assert_eq!((report.state, report.objects), (DONE, 4));
    assert_eq!((report.damaged, report.unreadable, report.parts_done), (0, 0, report.parts));
    // The chunk before the last one of object 2 is a hole with an end of its own, or none.
    assert!(report.bytes >= 2 * CHUNK + 777 + 1005 + 15, "{report:?}");
}

#[test]
fn a_flipped_bit_in_data_or_sidecar_is_found_once_and_named() {
    for is_data in [true, false] {
        let rig = rig();
        let (path, at) = match is_data {
            true => (data_path(1, 1), 70_000),
            false => (sums_path(1, 1), 128 + 4),
        };
        rig.disk.corrupt(&path, at, 4).expect("is there");
        let report = scrub(&rig);
        assert_eq!((report.damaged, report.unreadable), (1, 0), "{report:?}");
        let found = &report.findings[0];
        assert_eq!((found.inode, found.offset), (1, CHUNK + 65_536));
        assert!(found.what.contains("does not match"), "{}", found.what);
        assert_eq!(rig.service.registration().targets[0].corrupt_blocks, 1, "status counts it too");
    }
}

#[test]
fn an_entry_in_a_hole_is_damage_as_bytes_are_missing_there() {
    let rig = Rig::new(1);
    rig.write(1, 200_000, b"after a hole of three blocks").expect("writes");
    assert_eq!(scrub(&rig).damaged, 0);
    rig.disk.corrupt(&sums_path(1, 0), 128 + 4, 1).expect("the sidecar has an entry there");
    let report = scrub(&rig);
    assert_eq!((report.damaged, report.findings[0].offset), (1, 65_536));
}

#[test]
fn what_the_disk_does_not_read_is_counted_and_the_rest_is_still_looked_at() {
    let rig = rig();
    rig.disk.fail_reads(&data_path(3, 0), ErrorKind::Other);
    let report = scrub(&rig);
    assert_eq!((report.state, report.unreadable, report.damaged), (DONE, 1, 0));
    assert_eq!(report.objects, 4);
}

#[test]
fn an_order_that_makes_no_sense_is_refused() {
    let rig = rig();
    let refused = rig.ask::<op::Scrub>(&ScrubRequest { target: 1, action: 9, rate_bytes: 0 }, &[]);
    assert_eq!(refused.expect_err("refused").code, Code::BadRequest);
    let elsewhere = rig.ask::<op::Scrub>(&ScrubRequest { target: 7, action: 0, rate_bytes: 0 }, &[]);
    assert_eq!(elsewhere.expect_err("refused").code, Code::WrongTarget);
}
