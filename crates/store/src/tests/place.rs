//! Directories that are taken away under a running server.

use super::{Rig, address, data_path, pattern};
use std::time::Duration;
use vazao_disk::Disk;
use vazao_meter::Clock;
use vazao_model::{Code, TargetState};

fn is_failed(rig: &Rig, reason: &str) -> bool {
    let target = &rig.service.registration().targets[0];
    target.state == TargetState::Failed as u32 && target.trouble.contains(reason)
}

/// The directory of a target was removed under its running server: every write and every fsync went on succeeding, and
/// nothing of it was there after the next start.
#[test]
fn a_target_whose_directory_was_replaced_or_emptied_fails_fsync_and_says_why() {
    /// What takes a directory away.
    type Loss = fn(&Rig);
    let losses: [(&str, Loss); 2] = [
        ("directory was replaced", |rig| rig.disk.set_replaced(true)),
        ("LOCK", |rig| rig.disk.remove("LOCK").expect("removed")),
    ];
    for (reason, lose) in losses {
        for is_dirty in [true, false] {
            let rig = Rig::new(1);
            rig.write(1, 0, &pattern(1, 100_000)).expect("writes");
            if !is_dirty {
                rig.sync(1).expect("synced");
            }
            lose(&rig);
            let fault = rig.sync(1).expect_err("what was written is gone");
            assert!(fault.code == Code::TargetFailed && fault.detail.contains(reason), "{fault}");
            assert!(is_failed(&rig, reason), "{:?}", rig.service.registration());
        }
        let idle = Rig::new(1);
        lose(&idle);
        idle.clock.sleep(Duration::from_secs(1));
        idle.service.tick();
        assert!(is_failed(&idle, reason), "not noticed without an fsync");
    }
}

#[test]
fn a_target_that_was_put_back_serves_after_a_start() {
    let mut rig = Rig::new(2);
    rig.write(1, 0, &pattern(2, 100_000)).expect("writes");
    rig.disk.set_replaced(true);
    assert!(rig.sync(1).is_err());
    rig.disk.set_replaced(false);
    assert!(rig.sync(1).is_err(), "a failed target stays one until the next start");
    rig.restart();
    rig.sync(1).expect("synced");
    assert_eq!(rig.read_all(1).expect("reads"), Some(pattern(2, 100_000)));
}

/// The second fsync succeeded: the first one had noted the chunk as synced before it looked for its name.
#[test]
fn a_file_that_was_removed_beneath_the_server_fails_every_fsync_of_its_object_and_no_other() {
    let rig = Rig::new(3);
    rig.write(1, 0, &pattern(1, 100_000)).expect("writes");
    rig.write(2, 0, &pattern(2, 100_000)).expect("writes");
    rig.disk.remove(&data_path(1, 0)).expect("removed");
    for _ in 0..3 {
        let fault = rig.sync(1).expect_err("its file is gone");
        assert!(fault.code == Code::Io && fault.detail.contains("was removed"), "{fault}");
    }
    rig.sync(2).expect("the other is there");
    // Removed by a request it is no error.
    rig.write(4, 0, &pattern(4, 1_000)).expect("writes");
    rig.remove(4).expect("removed");
    rig.sync(4).expect("nothing is missing");
}

/// The answer that says so may be lost: what is asked again has to say the same.
#[test]
fn a_group_that_has_lost_files_beneath_the_server_says_so_until_it_has_everything() {
    let rig = Rig::new(5);
    rig.write(1, 0, &pattern(1, 100_000)).expect("writes");
    rig.disk.remove(&data_path(1, 0)).expect("removed");
    assert!(rig.sync(1).is_err());
    let target = &rig.service.targets[0];
    let group = vazao_model::ObjectId::from(&address(1)).group;
    for _ in 0..2 {
        target.forget_unnamed(group);
        assert!(target.has_lost_names(group));
    }
    target.has_all(group);
    target.forget_unnamed(group);
    assert!(!target.has_lost_names(group), "it has everything");
}

/// Lost beneath the server and no longer in its memory, it was synced like one that had been removed.
#[test]
fn a_sync_says_how_many_objects_are_missing_and_an_empty_one_is_not() {
    let mut rig = Rig::new(4);
    for inode in 1..=4 {
        rig.write(inode, 0, &pattern(inode, 100_000)).expect("writes");
    }
    rig.truncate(4, 0).expect("cut");
    assert_eq!(rig.sync_all(&[1, 2, 3, 4]).expect("synced"), 0);
    rig.disk.remove(&data_path(2, 0)).expect("removed");
    rig.restart();
    rig.remove(3).expect("removed");
    assert_eq!(rig.sync_all(&[1, 2, 3, 4, 5]).expect("synced"), 3);
    assert_eq!(rig.sync_all(&[1, 4]).expect("synced"), 0);
}
