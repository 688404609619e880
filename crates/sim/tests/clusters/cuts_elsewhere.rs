//! One client writes a file that another one cuts to nothing again and again.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;
use vazao_client::{Client, File, NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{Code, FileKind, InodeId};
use vazao_sim::network::Weather;
use vazao_sim::{Cluster, ClusterOptions};

const SEEDS: u64 = 12;
const STEPS: usize = 120;
const END: usize = 300_000;

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// What is known of each byte of the file.
struct Expected {
    /// Those written since the last cut.
    after: Vec<Option<u8>>,
    /// Those written before it that may have been reported after it, with their last value.
    before: Vec<Option<u8>>,
}

struct World {
    cluster: Cluster,
    random: StdRng,
    witness: Client,
    cutter: Client,
    inode: InodeId,
    file: File,
    expected: Expected,
    /// A flush has failed since the last one that was answered: what was written then may be lost.
    has_failed: bool,
    synced: usize,
}

impl World {
    fn new(seed: u64, weather: Weather) -> World {
        let cluster = Cluster::new(ClusterOptions { seed, data_servers: 3, down_ms_max: 2_000 });
        let [writer, cutter, witness] = [1, 2, 3].map(|number| cluster.client(number));
        let new = NewInode { kind: FileKind::File, mode: 0o600, ..NewInode::default() };
        let inode = writer.create(ROOT, b"log", &new).expect("all are up").inode;
        let file = writer.open_file(inode, MODE).expect("all are up");
        cluster.set_weather(weather);
        let expected = Expected { after: vec![None; END], before: vec![None; END] };
        let random = StdRng::seed_from_u64(seed);
        World { cluster, random, witness, cutter, inode, file, expected, has_failed: false, synced: 0 }
    }

    fn write(&mut self) {
        let length = self.random.random_range(1..6_000);
        let offset = self.random.random_range(0..END - length);
        let byte = self.random.random_range(1..=255);
        if self.file.write_at(&vec![byte; length], offset as u64).is_ok() {
            self.expected.after[offset..offset + length].fill(Some(byte));
        } else {
            self.has_failed = true;
        }
    }

    fn cut(&mut self) {
        let mode = OpenMode { truncate: true, ..MODE };
        let cut = self.cutter.open_file(self.inode, mode).and_then(File::close);
        // Where the answer is lost it may have been cut, and may yet be.
        self.has_failed |= cut.is_err();
        for (before, after) in self.expected.before.iter_mut().zip(&mut self.expected.after) {
            *before = after.take().or(*before);
        }
    }

    fn flush(&mut self, seed: u64) {
        let is_synced = self.random.random_bool(0.5);
        let outcome = if is_synced { self.file.sync() } else { self.file.flush() };
        match outcome {
            Ok(()) if !self.has_failed => self.check(seed),
            Ok(()) => self.forget(),
            Err(error) => {
                assert_ne!(error.code, Code::Stale, "seed {seed}: so little is kept: {error}");
                self.has_failed = true;
            }
        }
    }

    /// What failed is not expected any more: the file begins anew.
    fn forget(&mut self) {
        self.expected.after.fill(None);
        if self.file.set_length(0).and_then(|()| self.file.sync()).is_ok() {
            self.expected.before.fill(None);
            self.has_failed = false;
        }
    }

    fn check(&mut self, seed: u64) {
        let mut shown = vec![0; END];
        let read = self.witness.fetch_changes().and_then(|()| self.witness.open_file(self.inode, MODE));
        let Ok(length) = read.and_then(|file| file.read_at(&mut shown, 0)) else { return };
        shown[length..].fill(0);
        for (at, byte) in shown.iter().enumerate() {
            let (after, before) = (self.expected.after[at], self.expected.before[at]);
            let is_right = match after {
                Some(after) => *byte == after,
                None => *byte == 0 || Some(*byte) == before,
            };
            assert!(
                is_right,
                "seed {seed}: byte {at} is {byte}, written: {after:?}, before the cut: {before:?}"
            );
        }
        self.synced += 1;
    }

    fn run(mut self, seed: u64) -> usize {
        for _ in 0..STEPS {
            match self.random.random_range(0..20) {
                0..2 => self.cut(),
                2..6 => self.flush(seed),
                // Objects of the former life are removed.
                6..8 => self.cluster.clock().sleep(Duration::from_secs(self.random.random_range(1..5))),
                _ => self.write(),
            }
        }
        self.synced
    }
}

/// A flush ended with ESTALE, and what was written after the cut was gone.
#[test]
fn every_byte_written_after_the_cut_is_in_the_file_once_a_flush_has_returned() {
    let quiet = Weather { lost: 0, broken: 0, killed: 0, power_lost: 0, late: 0, doubled: 0 };
    let bad = Weather { lost: 10, broken: 20, killed: 6, power_lost: 0, late: 10, doubled: 10 };
    for weather in [quiet, bad] {
        let synced: usize = (0..SEEDS).map(|seed| World::new(seed, weather).run(seed)).sum();
        assert!(synced as u64 > 10 * SEEDS, "{synced} flushes were checked");
    }
}
