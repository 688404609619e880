//! Power loss and kills at random points: what was synced is intact, the rest is readable, nothing counts as corrupt.

use super::{Rig, data_path, options, pattern};
use crate::Options;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use vazao_disk::MemoryDisk;
use vazao_model::Code;

/// Two blocks: objects of these tests have several chunks and regions.
const CHUNK: u64 = 128 * 1024;
const OBJECT_BYTES_MAX: u64 = 300 * 1024;
const INODES: u64 = 3;

/// States that an object may be in after power loss: each byte has the value it has in one of them. The first is the
/// durable one. `None`: the object is missing.
type Versions = Vec<Option<Vec<u8>>>;

#[derive(Default)]
struct Model {
    objects: BTreeMap<u64, Versions>,
}

impl Model {
    fn versions(&mut self, inode: u64) -> &mut Versions {
        self.objects.entry(inode).or_insert_with(|| vec![None])
    }

    fn latest(&mut self, inode: u64) -> Option<Vec<u8>> {
        self.versions(inode).last().cloned().flatten()
    }

    /// After power loss every byte must come from one of the versions.
    fn check(&mut self, inode: u64, found: &Option<Vec<u8>>, seed: u64) {
        let versions = self.versions(inode);
        let Some(found) = found else {
            assert!(versions.contains(&None), "seed {seed}: object {inode} is lost");
            return;
        };
        let versions: Vec<&[u8]> = versions.iter().map(|v| v.as_deref().unwrap_or(&[])).collect();
        let lengths = versions.iter().map(|v| v.len());
        let (shortest, longest) = (lengths.clone().min().unwrap_or(0), lengths.max().unwrap_or(0));
        assert!(
            (shortest..=longest).contains(&found.len()),
            "seed {seed}: object {inode} has {} bytes, not {shortest} to {longest}",
            found.len()
        );
        for (at, byte) in found.iter().enumerate() {
            let is_known = versions.iter().any(|v| v.get(at).copied().unwrap_or(0) == *byte);
            assert!(is_known, "seed {seed}: object {inode} byte {at} of {} is {byte}", found.len());
        }
    }
}

/// Says which seed failed.
struct NameSeed(u64);

impl Drop for NameSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was seed {}", self.0);
        }
    }
}

struct Run {
    rig: Rig,
    model: Model,
    random: StdRng,
    seed: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let options = Options { chunk_bytes: CHUNK, open_chunks_max: 3, ..options() };
        let rig = Rig::with(MemoryDisk::new(seed), options);
        Run { rig, model: Model::default(), random: StdRng::seed_from_u64(seed), seed }
    }

    fn inode(&mut self) -> u64 {
        self.random.random_range(1..=INODES)
    }

    fn write(&mut self, inode: u64) -> bool {
        let offset = self.random.random_range(0..OBJECT_BYTES_MAX);
        let offset = if self.random.random_bool(0.3) { offset / 65536 * 65536 } else { offset };
        let room = (OBJECT_BYTES_MAX - offset) as usize;
        let most = if self.random.random_bool(0.5) { 3000 } else { 150_000 };
        let bytes = pattern(self.random.random(), self.random.random_range(1..=most).min(room));
        let mut version = self.model.latest(inode).unwrap_or_default();
        let end = offset as usize + bytes.len();
        version.resize(version.len().max(end), 0);
        version[offset as usize..end].copy_from_slice(&bytes);
        self.model.versions(inode).push(Some(version));
        self.rig.write(inode, offset, &bytes).is_ok()
    }

    fn truncate(&mut self, inode: u64) -> bool {
        let length = self.random.random_range(0..OBJECT_BYTES_MAX);
        if let Some(mut version) = self.model.latest(inode) {
            version.truncate(length as usize);
            self.model.versions(inode).push(Some(version));
        }
        self.rig.truncate(inode, length).is_ok()
    }

    fn punch(&mut self, inode: u64) -> bool {
        let offset = self.random.random_range(0..OBJECT_BYTES_MAX);
        let length = self.random.random_range(1..OBJECT_BYTES_MAX);
        if let Some(mut version) = self.model.latest(inode) {
            let end = ((offset + length) as usize).min(version.len());
            version[(offset as usize).min(end)..end].fill(0);
            self.model.versions(inode).push(Some(version));
        }
        self.rig.punch(inode, offset, length).is_ok()
    }

    /// What is known to be durable is the only version from here on.
    fn settle(&mut self, inode: u64) {
        let latest = self.model.latest(inode);
        *self.model.versions(inode) = vec![latest];
    }

    fn sync(&mut self, inode: u64) -> bool {
        let done = self.rig.sync(inode).is_ok();
        if done {
            self.settle(inode);
        }
        done
    }

    fn remove(&mut self, inode: u64) -> bool {
        self.model.versions(inode).push(None);
        let done = self.rig.remove(inode).is_ok();
        if done {
            self.settle(inode);
        }
        done
    }

    /// One operation; false when the disk failed it.
    fn step(&mut self) -> bool {
        let inode = self.inode();
        match self.random.random_range(0..20) {
            0..9 => self.write(inode),
            9..11 => self.truncate(inode),
            11..13 => self.punch(inode),
            13..16 => self.sync(inode),
            16 => self.remove(inode),
            17 => self.rig.read_all(inode).is_ok(),
            _ => {
                self.rig.checkpoint();
                let state = self.rig.service.registration().targets[0].state;
                let done = state == vazao_model::TargetState::Serving as u32;
                if done {
                    (1..=INODES).for_each(|inode| self.settle(inode));
                }
                done
            }
        }
    }

    /// Operations until the disk fails in the middle of one, or for a while.
    fn live(&mut self) {
        if self.random.random_bool(0.7) {
            self.rig.disk.fail_after(self.random.random_range(0..400), ErrorKind::Other);
        }
        for _ in 0..self.random.random_range(1..25) {
            if !self.step() {
                break;
            }
        }
    }

    /// The end of a life, and what the next one finds.
    fn die(&mut self) {
        // After a failed sync the page cache shows what the disk has lost, until the machine is restarted. The target
        // is out of service for that long, unless the disk could not even note that; see the tests of faults.
        let failed = self.rig.service.targets[0].check().is_err();
        let loses_power = failed || self.random.random_bool(0.4);
        if loses_power {
            self.rig.disk.crash()
        } else {
            self.rig.disk.kill()
        }
        self.rig.disk.clear_faults();
        self.rig.start_again();
        if self.random.random_bool(0.3) {
            self.rig.service.tick();
        }
        for inode in 1..=INODES {
            let found =
                self.rig.read_all(inode).unwrap_or_else(|fault| panic!("seed {}: {fault}", self.seed));
            self.model.check(inode, &found, self.seed);
            // After a kill the unsynced versions may still be lost by the next power loss.
            let versions = self.model.versions(inode);
            if loses_power {
                *versions = vec![found];
            } else {
                versions.push(found);
            }
        }
    }
}

#[test]
fn nothing_synced_is_lost_and_nothing_is_corrupt_after_any_crash() {
    for seed in 0..1500 {
        let _named = NameSeed(seed);
        let mut run = Run::new(seed);
        for _ in 0..4 {
            run.live();
            run.die();
        }
    }
}

#[test]
fn a_swept_target_is_clean_and_reports_rot_again() {
    for seed in 0..40 {
        let mut run = Run::new(seed);
        while run.model.latest(1).is_none_or(|object| object.len() < 1000) {
            run.live();
            run.die();
        }
        run.rig.write(1, 0, &pattern(seed, 1000)).expect("writes");
        run.rig.checkpoint();
        assert!(run.rig.service.targets[0].epochs.suspects().is_none(), "seed {seed}");
        let path = data_path(1, 0);
        run.rig.restart();
        run.rig.disk.corrupt(&path, 500, 4).expect("is there");
        let fault = run.rig.read(1, 400, 200).expect_err("rotten");
        assert_eq!(fault.code, Code::Corrupt, "seed {seed}: {fault}");
    }
}

#[test]
fn a_torn_overwrite_is_repaired_and_counted() {
    let mut repaired = 0;
    for seed in 0..60 {
        let mut rig = Rig::new(seed);
        rig.write(1, 0, &pattern(seed, 200_000)).expect("writes");
        rig.checkpoint();
        rig.write(1, 0, &pattern(seed + 1, 200_000)).expect("writes");
        rig.crash();
        assert_eq!(rig.read_all(1).expect("reads").map(|o| o.len()), Some(200_000));
        repaired += rig.service.targets[0].repairs().1;
    }
    assert!(repaired > 20, "only {repaired}: the disk tears nothing");
}
