//! Disks that rot, fill up, fail, and hold what nobody wrote.

use super::{CHUNK, Rig, address, data_path, options, pattern, sums_path};
use crate::Options;
use proptest::prelude::*;
use std::io::ErrorKind;
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_model::checksum::piece_checksums;
use vazao_model::{Code, TargetState};
use vazao_wire::op;
use vazao_wire::proto;

/// An object over three chunks, on a clean target that has just been started.
fn clean_rig(seed: u64) -> (Rig, Vec<u8>) {
    let mut rig = Rig::new(seed);
    let bytes = pattern(seed, CHUNK as usize * 2 + 100_000);
    rig.write(1, 0, &bytes).expect("writes");
    rig.service.close();
    rig.restart();
    (rig, bytes)
}

fn state(rig: &Rig) -> u32 {
    rig.service.registration().targets[0].state
}

/// Reads everything in small and in large pieces; true when either the server or the reader noticed a mismatch.
fn rot_is_seen(rig: &Rig, length: usize, step: u32) -> bool {
    (0..length as u64).step_by(step as usize).any(|offset| match rig.read_unverified(1, offset, step) {
        Ok((_, mismatch)) => mismatch.is_some(),
        Err(fault) => fault.code == Code::Corrupt,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_flipped_bit_of_data_is_always_reported(
        at in any::<prop::sample::Index>(), bit in 0u8..8, step in 1000u32..300_000,
    ) {
        let (rig, bytes) = clean_rig(1);
        let at = at.index(bytes.len()) as u64;
        rig.disk.corrupt(&data_path(1, at / CHUNK), at % CHUNK, 1 << bit).expect("is there");
        prop_assert!(rot_is_seen(&rig, bytes.len(), step));
    }

    #[test]
    fn a_flipped_bit_of_a_sidecar_never_gives_wrong_bytes(at in 0u64..144, chunk in 0u64..3, bit in 0u8..8) {
        let (rig, bytes) = clean_rig(2);
        let path = sums_path(1, chunk);
        prop_assume!(rig.disk.corrupt(&path, at, 1 << bit).is_ok());
        match rig.read_unverified(1, 0, bytes.len() as u32) {
            Ok((read, None)) => prop_assert!(read.bytes == bytes),
            Ok((_, Some(_))) => {}
            Err(fault) => prop_assert!(fault.code == Code::Corrupt && fault.detail.contains("i1.1.0"), "{fault}"),
        }
    }

    #[test]
    fn a_write_beside_rot_does_not_bless_it(at in 0u64..65_536, start in 0u64..65_000, length in 1usize..5000) {
        let (rig, _) = clean_rig(3);
        let length = length.min(65_536 - start as usize);
        rig.disk.corrupt(&data_path(1, 0), at, 1).expect("is there");
        if rig.write(1, start, &pattern(9, length)).is_ok() {
            let fault = rig.read(1, 1, 100).expect_err("the block is still rotten");
            prop_assert_eq!(fault.code, Code::Corrupt);
        }
        // A whole new block has nothing rotten left.
        rig.write(1, 0, &pattern(4, 65_536)).expect("writes");
        prop_assert!(rig.read(1, 1, 100).is_ok());
    }

    #[test]
    fn files_full_of_anything_never_panic(
        sums in proptest::collection::vec(any::<u8>(), 0..300), data in proptest::collection::vec(any::<u8>(), 0..300),
        state in proptest::collection::vec(any::<u8>(), 0..100), unclean: bool, header_kept: bool,
    ) {
        let (mut rig, _) = clean_rig(4);
        if unclean {
            rig.write(2, 0, b"dirty").expect("writes");
        }
        let put = |path: &str, bytes: &[u8], at: u64| {
            rig.disk.open(path, Open::Existing).and_then(|file| file.write_at(bytes, at)).expect("writes");
        };
        put(&sums_path(1, 0), &sums, if header_kept { 64 } else { 0 });
        put(&sums_path(1, 1), &sums, 0);
        put(&data_path(1, 0), &data, 0);
        put(crate::targets::epochs::STATE, &state, 4096);
        rig.restart();
        rig.service.tick();
        let _ = rig.read_unverified(1, 0, 300_000);
        let _ = rig.write(1, CHUNK - 10, &[1; 20]);
        let _ = rig.truncate(1, 5000);
        let _ = rig.stat(1);
        let _ = rig.sync(1);
        prop_assert!(rig.remove(1).expect("removes") == 1, "anything can be removed");
        prop_assert!(rig.read(1, 0, 10).expect("reads").missing);
    }
}

#[test]
fn corruption_is_reported_with_target_object_file_and_block() {
    let (rig, _) = clean_rig(5);
    rig.disk.corrupt(&data_path(1, 1), 70_000, 0x10).expect("is there");
    let fault = rig.read(1, CHUNK + 66_000, 10).expect_err("rotten");
    assert_eq!(fault.code, Code::Corrupt);
    for part in ["target t1", "/disk", "i1.1.0", &data_path(1, 1), "block 1"] {
        assert!(fault.detail.contains(part), "{part} in {fault}");
    }
}

#[test]
fn a_missing_sidecar_and_a_shortened_file_are_corruption() {
    let (rig, _) = clean_rig(6);
    rig.disk.remove(&sums_path(1, 1)).expect("is there");
    assert_eq!(rig.read(1, CHUNK, 10).expect_err("no sums").code, Code::Corrupt);
    let (rig, _) = clean_rig(7);
    let file = rig.disk.open(&data_path(1, 2), Open::Existing).expect("is there");
    file.set_length(1000).expect("cuts");
    assert_eq!(rig.read(1, 0, 10).expect_err("short").code, Code::Corrupt);
}

#[test]
fn sidecars_of_two_objects_are_not_taken_for_each_other() {
    let mut rig = Rig::new(8);
    rig.write(1, 0, &pattern(1, 100_000)).expect("writes");
    rig.write(2, 0, &pattern(2, 100_000)).expect("writes");
    rig.service.close();
    rig.restart();
    rig.disk.rename(&sums_path(1, 0), &sums_path(2, 0)).expect("renames");
    let fault = rig.read(2, 0, 10).expect_err("mixed up");
    assert!(fault.code == Code::Corrupt && fault.detail.contains("i1.1.0"), "{fault}");
}

#[test]
fn a_write_damaged_in_transit_changes_nothing_and_asks_to_be_sent_again() {
    let (rig, bytes) = clean_rig(9);
    let mut checksums = piece_checksums(10, &[1; 100_000]);
    checksums[1] ^= 1;
    let fault = rig.write_with(1, 10, &[1; 100_000], checksums, false).expect_err("damaged");
    assert_eq!(fault.code.action(), vazao_model::Action::Retry);
    assert!(rig.read_all(1).expect("reads").expect("exists") == bytes);
    let fault = rig.write_with(1, 0, &[1; 10], vec![], false).expect_err("no checksum");
    assert_eq!(fault.code, Code::BadRequest);
}

/// `status` and `df` said for seconds after a write had been refused that there was room: the next report had to come.
/// The number of full targets, by which it comes at once, changes with the refusal.
#[test]
fn a_full_target_refuses_growth_keeps_its_data_and_recovers() {
    let disk = MemoryDisk::new(1);
    disk.set_capacity(1 << 20);
    let rig = Rig::with(disk, Options { reserve_bytes: Some(200_000), ..options() });
    assert_eq!(rig.service.full_targets(), 0);
    let bytes = pattern(1, 100_000);
    let mut written = 0;
    let fault = loop {
        match rig.write(written + 1, 0, &bytes) {
            Ok(_) => written += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.code, Code::NoSpace);
    assert_eq!(rig.service.full_targets(), 1);
    assert!(fault.detail.contains("target t1") && fault.detail.contains("remove files"), "{fault}");
    assert!(rig.service.registration().targets[0].trouble.contains("reserve"));
    assert!((5..9).contains(&written), "{written}");
    assert_eq!(state(&rig), TargetState::Full as u32);
    rig.write(1, 5, &pattern(2, 1000)).expect("an overwrite needs no room");
    rig.sync(1).expect("syncs");
    for inode in 1..=written {
        assert_eq!(rig.read_all(inode).expect("reads").map(|o| o.len()), Some(100_000));
    }
    assert!(rig.remove(2).expect("removes") == 1);
    rig.service.tick();
    assert_eq!((state(&rig), rig.service.full_targets()), (TargetState::Serving as u32, 0));
    rig.write(99, 0, &bytes).expect("there is room again");
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_write_leaves_a_readable_object() {
    for capacity in (60_000..900_000u64).step_by(13_000) {
        let disk = MemoryDisk::new(capacity);
        let rig = Rig::with(disk, options());
        rig.disk.set_capacity(capacity);
        let bytes = pattern(3, 150_000);
        let mut offset = 0;
        while rig.write(1, offset, &bytes).is_ok() {
            offset += 140_001;
        }
        assert_ne!(state(&rig), TargetState::Failed as u32, "{}", rig.service.targets[0].trouble());
        rig.read_all(1).expect("reads, and every piece matches");
    }
}

#[test]
fn a_write_or_sync_error_fails_the_target_even_after_a_restart() {
    let fail: [fn(&MemoryDisk); 3] = [
        |disk| disk.fail_writes(".data", ErrorKind::Other),
        |disk| disk.fail_syncs(".data", ErrorKind::Other),
        |disk| disk.fail_syncs(".data", ErrorKind::StorageFull),
    ];
    for fail in fail {
        let (mut rig, _) = clean_rig(10);
        fail(&rig.disk);
        let outcome = rig.write(1, 0, &[7; 100]).and_then(|_| rig.sync(1));
        assert_eq!(outcome.expect_err("the disk failed").code, Code::TargetFailed);
        rig.disk.clear_faults();
        assert_eq!(rig.read(1, 0, 10).expect_err("out of service").code, Code::TargetFailed);
        let report = rig.service.registration().targets.remove(0);
        assert_eq!(report.state, TargetState::Failed as u32);
        assert!(report.trouble.contains(".data"), "{}", report.trouble);
        // What the page cache shows now need not be on the disk.
        rig.restart();
        let fault = rig.read(1, 0, 10).expect_err("still out of service");
        assert!(fault.code == Code::TargetFailed && fault.detail.contains("FAILED"), "{fault}");
        rig.disk.remove("FAILED").and_then(|()| rig.disk.sync_directory("")).expect("an operator acts");
        rig.crash();
        rig.read_all(1).expect("reads").expect("exists");
    }
}

#[test]
fn a_failing_checkpoint_fails_the_target() {
    let (rig, _) = clean_rig(11);
    rig.write(1, 0, &[7; 100]).expect("writes");
    rig.disk.fail_syncs("", ErrorKind::Other);
    rig.checkpoint();
    assert_eq!(state(&rig), TargetState::Failed as u32);
}

#[test]
fn an_unreadable_file_is_an_error_of_that_file_alone() {
    let (rig, _) = clean_rig(12);
    rig.write(2, 0, &[7; 100]).expect("writes");
    rig.disk.fail_reads(&data_path(1, 1), ErrorKind::Other);
    let fault = rig.read(1, CHUNK, 70_000).expect_err("unreadable");
    assert!(fault.code == Code::Io && fault.detail.contains(&data_path(1, 1)), "{fault}");
    assert!(rig.read(2, 0, 100).is_ok());
    assert_eq!(state(&rig), TargetState::Serving as u32);
}

/// A chunk that could not be read for a moment was passed over, and its torn blocks then counted as damaged for ever.
#[test]
fn a_sweep_that_could_not_read_a_chunk_goes_round_again() {
    let mut rig = Rig::new(31);
    rig.write(1, 0, &pattern(1, 200_000)).unwrap();
    rig.restart();
    let target = rig.service.targets[0].clone();
    rig.disk.fail_reads(&data_path(1, 0), ErrorKind::Other);
    rig.disk.fail_reads(&sums_path(1, 0), ErrorKind::Other);
    let sweeps = || {
        for _ in 0..3 {
            let _ = target.sweep_step();
        }
        target.is_swept()
    };
    assert!(!sweeps(), "a sweep is not over while a chunk is unread");
    rig.disk.clear_faults();
    assert!(sweeps());
}

#[test]
fn a_disk_that_has_run_out_of_descriptors_is_busy_and_not_broken() {
    let rig = Rig::new(13);
    let error = std::io::Error::from_raw_os_error(24);
    assert_eq!(rig.service.targets[0].write_fault("x", &error).code, Code::Overloaded);
    assert_eq!(state(&rig), TargetState::Serving as u32);
}

/// A full disk could not take the next incarnation, and a healthy target was out of service for good. Writes would go
/// on unseen by who looks for older copies.
#[test]
fn a_target_without_room_for_its_records_takes_no_writes_until_there_is_some_and_reads_and_removes_meanwhile()
{
    for record in [crate::targets::incarnation::FILE, crate::targets::epochs::STATE] {
        let (rig, bytes) = clean_rig(17);
        rig.write(2, 0, &pattern(2, 1000)).expect("writes");
        rig.checkpoint();
        rig.disk.fail_writes(record, ErrorKind::StorageFull);
        let incarnation = rig.service.registration().targets[0].incarnation;
        let _ = rig.write(2, 0, &pattern(3, 1000));
        rig.clock.advance(std::time::Duration::from_secs(5));
        rig.service.tick();
        assert_eq!(
            rig.write(2, 0, &pattern(4, 1000)).expect_err("not marked").code,
            Code::NoSpace,
            "{record}"
        );
        assert_eq!(state(&rig), TargetState::Full as u32);
        assert!(rig.read_all(1).expect("reads") == Some(bytes));
        assert_eq!(rig.remove(1).expect("removes"), 1);
        rig.disk.clear_faults();
        rig.clock.advance(std::time::Duration::from_secs(5));
        rig.service.tick();
        rig.write(2, 0, &pattern(5, 1000)).expect("there is room again");
        rig.sync(2).expect("synced");
        assert!(rig.service.registration().targets[0].incarnation > incarnation, "{record}");
        assert_eq!(state(&rig), TargetState::Serving as u32);
    }
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    let rig = Rig::new(14);
    let code = |outcome: Result<u64, vazao_wire::service::Fault>| outcome.expect_err("refused").code;
    assert_eq!(code(rig.write(1, i64::MAX as u64, &[1])), Code::TooLarge);
    assert_eq!(code(rig.write(1, u64::MAX, &[1])), Code::TooLarge);
    let read = |offset, length| rig.read(1, offset, length).expect_err("refused").code;
    assert_eq!(read(0, u32::MAX), Code::BadRequest);
    assert_eq!(read(u64::MAX, 1), Code::TooLarge);
    let stat = |object| rig.call::<op::StatObject>(&proto::StatObjectRequest { object });
    let code = |object| stat(object).expect_err("refused").code;
    assert_eq!(code(None), Code::BadRequest);
    assert_eq!(code(Some(proto::ObjectAddress { slot: 64, ..address(1) })), Code::BadRequest);
    assert_eq!(code(Some(proto::ObjectAddress { target: 2, ..address(1) })), Code::WrongTarget);
    assert_eq!(code(Some(proto::ObjectAddress { target: 0, ..address(1) })), Code::WrongTarget);
    let list = rig.call::<op::ListObjects>(&proto::ListObjectsRequest {
        target: 1,
        cookie: vec![1],
        limit: 9,
        group: 0,
    });
    assert_eq!(list.expect_err("refused").code, Code::BadRequest);
}

#[test]
fn the_last_byte_of_the_largest_object_can_be_written() {
    let mut rig = Rig::new(15);
    rig.write(1, i64::MAX as u64 - 5, b"tail!").expect("writes");
    assert_eq!(rig.read(1, i64::MAX as u64 - 5, 9).expect("reads").bytes, b"tail!");
    assert_eq!(rig.read(1, 1 << 40, 5).expect("reads").bytes, [0; 5]);
    rig.restart();
    rig.truncate(1, 3).expect("cuts");
    assert_eq!(rig.read_all(1).expect("reads"), Some(vec![0; 3]));
}

#[test]
fn a_sync_of_what_was_written_before_a_loss_of_power_is_refused_and_one_after_a_kill_is_not() {
    let (mut rig, _) = clean_rig(16);
    let checksums = piece_checksums(0, &[7; 100]);
    let request = proto::WriteRequest {
        object: Some(address(1)),
        offset: 0,
        checksums,
        sync: false,
        must_exist: false,
        lent: None,
    };
    let boot = rig.write_response(&request, &[7; 100]).expect("writes").boot;
    rig.restart();
    rig.sync_since(1, boot).expect("nothing was lost");
    rig.crash();
    let fault = rig.sync_since(1, boot).expect_err("something may be lost");
    assert!(fault.code == Code::Io && fault.detail.contains("lost power"), "{fault}");
    assert!(rig.write_response(&request, &[7; 100]).expect("writes").boot != boot);
}
