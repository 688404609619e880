//! File systems of the kernel on a disk that loses power: it loses what was not flushed, so that tests on it can fail,
//! and nothing else, so that they do not fail for want of a disk.
//!
//! Needs root, FUSE and loop devices. On a machine that has none of it, `VAZAO_TEST_NO_ROOT=1` says so and skips these
//! tests; without it they fail there.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use vazao_faults::disk::Odds;
use vazao_faults::disk::shown::Disks;
use vazao_faults::volume::{FileSystem, Volume, obstacle};

const DISK_BYTES: u64 = 512 << 20;

struct Machine {
    disks: Option<Disks>,
    volume: Volume,
    scratch: TempDir,
}

fn can_run() -> bool {
    if std::env::var_os("VAZAO_TEST_NO_ROOT").is_some_and(|it| it == "1") {
        eprintln!("skipped: VAZAO_TEST_NO_ROOT=1");
        return false;
    }
    if let Some(failure) = obstacle() {
        panic!("{failure}; VAZAO_TEST_NO_ROOT=1 leaves these tests out");
    }
    true
}

/// The file systems that can be made here: ext4 everywhere.
fn kinds() -> Vec<FileSystem> {
    let is_here = |kind: &FileSystem| match kind.obstacle() {
        Some(why) => {
            eprintln!("not tested: {why}");
            false
        }
        None => true,
    };
    let kinds: Vec<FileSystem> = FileSystem::ALL.into_iter().filter(is_here).collect();
    assert!(kinds.contains(&FileSystem::Ext4), "there is no ext4, which everybody has");
    kinds
}

impl Machine {
    fn new(kind: FileSystem) -> Machine {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let [disk, mountpoint] = ["disk", "mount"].map(|name| scratch.path().join(name));
        [&disk, &mountpoint].iter().for_each(|path| fs::create_dir(path).expect("made"));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_vazao-faults"));
        let disks = Disks::start(&program, DISK_BYTES, kind.sector_bytes(), &[disk]).expect("they start");
        let volume = Volume::make(kind, disks.file(0), mountpoint).expect("a file system");
        volume.mount().expect("mounts");
        Machine { disks: Some(disks), volume, scratch }
    }

    fn disks(&mut self) -> &mut Disks {
        self.disks.as_mut().expect("there until it is dropped")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.volume.path().join(name)
    }

    fn lose_power(&mut self, seed: u64, odds: Odds) {
        self.disks().lose_power(&[0], seed, odds).expect("obeys");
        self.volume.unmount().expect("nobody uses it");
        self.disks().gain_power(&[0]).expect("obeys");
        self.volume.mount().expect("the journal is replayed");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let unmounted = self.volume.unmount();
        drop(self.disks.take());
        if !std::thread::panicking() {
            unmounted.expect("nobody uses it");
            assert!(fs::read_dir(self.scratch.path().join("disk")).expect("is there").next().is_none());
        }
    }
}

fn put(path: &Path, bytes: &[u8], syncs: bool) {
    let mut file = File::create(path).expect("made");
    file.write_all(bytes).expect("written");
    if syncs {
        file.sync_all().expect("synced");
        File::open(path.parent().expect("below the root")).and_then(|it| it.sync_all()).expect("synced");
    }
}

#[test]
fn what_was_synced_is_there_after_a_loss_and_what_was_not_is_gone() {
    if !can_run() {
        return;
    }
    for kind in kinds() {
        let mut machine = Machine::new(kind);
        put(&machine.path("synced"), &[1; 100_000], true);
        put(&machine.path("unsynced"), &[2; 100_000], false);
        let changed = File::options().write(true).open(machine.path("synced")).expect("opened");
        changed.write_all_at(&[3; 4096], 8192).expect("written");
        drop(changed);
        machine.lose_power(1, Odds::ALL_LOST);
        let found = fs::read(machine.path("synced")).expect("was synced");
        assert!(found == [1; 100_000], "{kind:?}: what was synced is not as it was");
        assert!(!machine.path("unsynced").exists(), "{kind:?}: this disk has lost nothing");
    }
}

#[test]
fn file_systems_come_back_from_every_kind_of_loss_with_what_was_synced() {
    if !can_run() {
        return;
    }
    let odds = [(1000, 0), (500, 0), (0, 1000), (200, 400), (0, 0), (900, 50)];
    for kind in kinds() {
        let mut machine = Machine::new(kind);
        for (round, &(dropped, torn)) in (0u8..).zip(&odds) {
            for count in 0..20 {
                let bytes = vec![round.wrapping_mul(31) ^ count; 1000 * usize::from(count)];
                put(&machine.path(&format!("{round}-{count}")), &bytes, count % 2 == 0);
            }
            machine.lose_power(u64::from(round), Odds { dropped, torn });
            for earlier in 0..=round {
                for count in (0..20).step_by(2) {
                    let found = fs::read(machine.path(&format!("{earlier}-{count}"))).expect("was synced");
                    let expected = vec![earlier.wrapping_mul(31) ^ count; 1000 * usize::from(count)];
                    assert!(found == expected, "{kind:?}, round {round}: {earlier}-{count}");
                }
            }
        }
    }
}

#[test]
fn a_disk_that_lies_about_flushes_loses_what_was_synced() {
    if !can_run() {
        return;
    }
    let mut machine = Machine::new(FileSystem::Ext4);
    machine.disks().lie(&[0]).expect("obeys");
    put(&machine.path("synced"), &[1; 100_000], true);
    machine.lose_power(1, Odds::ALL_LOST);
    assert!(!machine.path("synced").exists());
}
