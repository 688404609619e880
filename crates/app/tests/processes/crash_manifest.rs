//! What was recorded once `fsync` of a file and of its directory had returned survives a crash of any process: the
//! mount, a data server, the metadata service, or all of them, by SIGKILL at any moment.
//!
//! `VAZAO_CRASH_ROUNDS` (default 4: each kind of death once) makes it longer, the long form is 500;
//! `VAZAO_CRASH_SEED` draws other moments.

use crate::support::{Cluster, is_alive, noise, signal, text, wait_until};
use parking_lot::Mutex;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};

const DATA_SERVERS: usize = 2;

/// From files that lie in the inode record to those of several stripe units.
const LENGTHS: [usize; 6] = [0, 700, 16_384, 16_385, 200_000, 3_000_000];

/// A round's crash comes at most this long after its first file was recorded.
const CRASH_MS_MAX: u64 = 120;

/// A small generator, so that a round can be repeated by its seed (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().expect("a number"))
}

/// Files, each with what its bytes begin with and how many there are. Names are relative to the mount.
#[derive(Default)]
struct Manifest(Mutex<BTreeMap<String, (u64, usize)>>);

impl Manifest {
    fn record(&self, name: String, stamp: u64, length: usize) {
        self.0.lock().insert(name, (stamp, length));
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Everything recorded whose name begins with `prefix` is there, whole.
    fn check(&self, mountpoint: &Path, prefix: &str, pattern: &[u8]) {
        for (name, &(stamp, length)) in self.0.lock().iter() {
            if !name.starts_with(prefix) {
                continue;
            }
            let found =
                fs::read(mountpoint.join(name)).unwrap_or_else(|e| panic!("{name} was recorded: {e}"));
            assert!(found == bytes(pattern, stamp, length), "{name} has other bytes than were recorded");
        }
    }
}

fn bytes(pattern: &[u8], stamp: u64, length: usize) -> Vec<u8> {
    let mut bytes = pattern[..length].to_vec();
    bytes.iter_mut().zip(stamp.to_le_bytes()).for_each(|(byte, stamp)| *byte = stamp);
    bytes
}

/// Writes a file under a temporary name or under its own, syncs it and its directory.
fn write_durably(directory: &Path, name: &str, bytes: &[u8], renames: bool) -> std::io::Result<()> {
    let first = directory.join(if renames { format!("{name}.new") } else { name.to_owned() });
    let mut file = File::create(&first)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    if renames {
        fs::rename(&first, directory.join(name))?;
    }
    File::open(directory)?.sync_all()
}

/// Writes files until the stop flag is set, or something fails; records those that are durable.
fn write_files(
    place: &Path,
    round: u64,
    mut random: Random,
    manifest: &Manifest,
    is_busy: &Weak<()>,
    pattern: &[u8],
) {
    let directory = place.join(format!("r{round}"));
    let made = fs::create_dir(&directory).and_then(|()| File::open(place)?.sync_all());
    if made.is_err() {
        return;
    }
    for count in 0u64.. {
        let length = LENGTHS[random.below(LENGTHS.len() as u64) as usize];
        let (name, stamp) = (format!("f{count}"), random.below(u64::MAX));
        let written = write_durably(&directory, &name, &bytes(pattern, stamp, length), random.below(3) == 0);
        if written.is_err() || is_busy.strong_count() == 0 {
            // Not recorded: it may be there or not.
            return;
        }
        manifest.record(format!("r{round}/{name}"), stamp, length);
    }
}

struct Crashes {
    cluster: Cluster,
    mountpoint: PathBuf,
    manifest: Manifest,
    pattern: Vec<u8>,
}

impl Crashes {
    fn mount_process(&self) -> u32 {
        let place = text(&self.mountpoint);
        let is_it = |process: &u32| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            words.contains(&b"--foreground".as_slice()) && words.contains(&place.as_bytes())
        };
        let all = fs::read_dir("/proc").expect("readable").flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.find(is_it).expect("the mount runs")
    }

    fn kill_mount(&self) {
        let process = self.mount_process();
        signal(process, Signal::KILL);
        wait_until("the killed mount is gone", || !is_alive(process));
    }

    fn mount(&self) {
        self.cluster.ok(&["mount", "vz:/", &text(&self.mountpoint)]);
    }

    /// Kills what is this round's turn, and brings it back.
    fn crash(&self, kind: u64, random: &mut Random) {
        let data = format!("data{}", 1 + random.below(DATA_SERVERS as u64));
        match kind {
            0 => self.kill_mount(),
            1 => self.cluster.kill(&data),
            2 => self.cluster.kill("meta1"),
            _ => {
                self.kill_mount();
                self.cluster.kill("meta1");
                (1..=DATA_SERVERS).for_each(|number| self.cluster.kill(&format!("data{number}")));
            }
        }
        if kind != 0 {
            self.cluster.up(&[]);
        }
    }

    fn round(&self, round: u64, random: &mut Random) {
        let before = self.manifest.len();
        std::thread::scope(|scope| {
            // Dropped also when something is asserted in vain: the writer would never end otherwise.
            let busy = Arc::new(());
            let is_busy = Arc::downgrade(&busy);
            let own = Random((random.0 ^ (round + 1).rotate_left(40)) | 1);
            let write =
                move || write_files(&self.mountpoint, round, own, &self.manifest, &is_busy, &self.pattern);
            let writer = scope.spawn(write);
            wait_until("something is recorded", || self.manifest.len() > before || writer.is_finished());
            SystemClock.sleep(Duration::from_millis(random.below(CRASH_MS_MAX)));
            self.crash(round % 4, random);
            drop(busy);
        });
        assert!(self.manifest.len() > before, "round {round}: nothing was recorded");
        // Through a mount that knows nothing from before.
        self.cluster.ok(&["umount", &text(&self.mountpoint)]);
        self.mount();
        self.manifest.check(&self.mountpoint, &format!("r{round}/"), &self.pattern);
    }
}

#[test]
fn what_was_synced_is_there_whoever_was_killed() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: no /dev/fuse, or not root");
        return;
    }
    let (rounds, seed) = (number("VAZAO_CRASH_ROUNDS", 4), number("VAZAO_CRASH_SEED", 1));
    let cluster = Cluster::start(DATA_SERVERS);
    let mountpoint = cluster.local("mount");
    fs::create_dir(&mountpoint).expect("made");
    let pattern = noise(LENGTHS[LENGTHS.len() - 1]);
    let crashes = Crashes { cluster, mountpoint, manifest: Manifest::default(), pattern };
    crashes.mount();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        (0..rounds).for_each(|round| crashes.round(round, &mut random));
        crashes.manifest.check(&crashes.mountpoint, "", &crashes.pattern);
        eprintln!("{rounds} rounds, {} files recorded, all there", crashes.manifest.len());
    }));
    crashes.cluster.run(&["umount", &text(&crashes.mountpoint)]);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
