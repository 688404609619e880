//! What was recorded once `fsync` of a file and of its directory had returned survives a crash of any process: the
//! mount, a data server, the metadata service, or all of them, by SIGKILL at any moment. What a killed mount had
//! written behind the end of a file does not appear when the file grows. What is written, overwritten and appended is
//! also read back while the processes die.
//!
//! `VAZAO_CRASH_ROUNDS` (default 4: each kind of death once) makes it longer, the long form is 500;
//! `VAZAO_CRASH_SEED` draws other moments.

use crate::support::{Cluster, is_alive, noise, signal, text, wait_until};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};

const DATA_SERVERS: usize = 2;

/// From files that lie in the inode record to those of several stripe units.
const LENGTHS: [usize; 6] = [0, 700, 16_384, 16_385, 200_000, 3_000_000];

/// Records that are appended to a log: it leaves its inode record by any of them.
const RECORDS: [usize; 5] = [1, 100, 5_000, 70_000, 200_000];

/// A log is not appended to beyond this.
const LOG_BYTES_MAX: usize = 2_000_000;

/// A round's crash comes at most this long after its first file was recorded.
const CRASH_MS_MAX: u64 = 120;

/// One test at a time: a process that one of them starts has the files of the other one open until it runs its program,
/// and letting go of them there flushes them.
static ALONE: Mutex<()> = Mutex::new(());

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

/// What was written to a file by one call.
#[derive(Clone, Copy)]
struct Part {
    at: usize,
    /// What its bytes begin with.
    stamp: u64,
    length: usize,
}

impl Part {
    fn end(&self) -> usize {
        self.at + self.length
    }
}

/// What a file holds.
#[derive(Clone, Default)]
struct Contents {
    /// In the order in which they were written and synced.
    parts: Vec<Part>,
    /// One that is written over others, and not synced yet: each of its bytes may be there or not.
    under_way: Option<Part>,
}

impl Contents {
    fn of(parts: &[Part]) -> Contents {
        Contents { parts: parts.to_vec(), under_way: None }
    }

    fn length(&self) -> usize {
        self.parts.iter().map(Part::end).max().unwrap_or(0)
    }

    /// What is to be found where `found` was read.
    fn expected(&self, pattern: &[u8], found: &[u8]) -> Vec<u8> {
        let mut expected = bytes(pattern, &self.parts);
        if let Some(part) = self.under_way {
            let mut all = self.parts.clone();
            all.push(part);
            let written = bytes(pattern, &all);
            for at in (part.at..part.end()).filter(|&at| found.get(at) == Some(&written[at])) {
                expected[at] = written[at];
            }
        }
        expected
    }
}

/// Files with what they hold. Names are relative to the mount.
#[derive(Default)]
struct Manifest(Mutex<BTreeMap<String, Contents>>);

impl Manifest {
    fn record(&self, name: String, contents: Contents) {
        self.0.lock().insert(name, contents);
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Everything recorded whose name begins with `prefix` is there, whole. A log may have one record more: its writer
    /// was killed before it could note that.
    fn check(&self, mountpoint: &Path, prefix: &str, pattern: &[u8]) {
        for (name, contents) in self.0.lock().iter().filter(|(name, _)| name.starts_with(prefix)) {
            let found =
                fs::read(mountpoint.join(name)).unwrap_or_else(|e| panic!("{name} was recorded: {e}"));
            let expected = contents.expected(pattern, &found);
            let is_right = if name.ends_with(LOG) { found.starts_with(&expected) } else { found == expected };
            assert!(is_right, "{name} has other bytes than were recorded: {}", difference(&found, &expected));
        }
    }
}

/// The name of each round's log.
const LOG: &str = "log";

fn bytes(pattern: &[u8], parts: &[Part]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.resize(bytes.len().max(part.end()), 0);
        let written = &mut bytes[part.at..part.end()];
        written.copy_from_slice(&pattern[..part.length]);
        written.iter_mut().zip(part.stamp.to_le_bytes()).for_each(|(byte, stamp)| *byte = stamp);
    }
    bytes
}

fn difference(found: &[u8], expected: &[u8]) -> String {
    let wrong = found.iter().zip(expected).position(|(found, expected)| found != expected);
    format!("{} bytes of {}, first wrong {wrong:?}", found.len(), expected.len())
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

/// Appends to a log and syncs it, as programs do that open it anew each time.
fn append_durably(log: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(log)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    File::open(log.parent().expect("it lies in a directory"))?.sync_all()
}

/// Writes over a part of a file and syncs it, as a database does.
fn overwrite_durably(path: &Path, part: Part, pattern: &[u8]) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&bytes(pattern, &[Part { at: 0, ..part }]), part.at as u64)?;
    file.sync_all()
}

/// What a writer writes to, and what it writes.
struct Writer<'a> {
    directory: PathBuf,
    round: u64,
    random: Random,
    manifest: &'a Manifest,
    pattern: &'a [u8],
    log: Contents,
    /// The latest file that has anything in it.
    latest: Option<(String, Contents)>,
}

impl Writer<'_> {
    fn write_file(&mut self, count: u64) -> std::io::Result<()> {
        let length = LENGTHS[self.random.below(LENGTHS.len() as u64) as usize];
        let name = format!("f{count}");
        let contents = Contents::of(&[Part { at: 0, stamp: self.random.below(u64::MAX), length }]);
        let bytes = bytes(self.pattern, &contents.parts);
        write_durably(&self.directory, &name, &bytes, self.random.below(3) == 0)?;
        self.manifest.record(format!("r{}/{name}", self.round), contents.clone());
        self.latest = Some((name.clone(), contents)).filter(|_| length > 0).or(self.latest.take());
        self.look(&name, &bytes)
    }

    fn append(&mut self) -> std::io::Result<()> {
        let length = RECORDS[self.random.below(RECORDS.len() as u64) as usize];
        let part = Part { at: self.log.length(), stamp: self.random.below(u64::MAX), length };
        append_durably(&self.directory.join(LOG), &bytes(self.pattern, &[Part { at: 0, ..part }]))?;
        self.log.parts.push(part);
        self.manifest.record(format!("r{}/{LOG}", self.round), self.log.clone());
        self.look(LOG, &bytes(self.pattern, &self.log.parts))
    }

    fn overwrite(&mut self) -> std::io::Result<()> {
        let Some((name, mut contents)) = self.latest.clone() else { return Ok(()) };
        let at = self.random.below(contents.length() as u64) as usize;
        let length = RECORDS[self.random.below(RECORDS.len() as u64) as usize].min(contents.length() - at);
        let part = Part { at, stamp: self.random.below(u64::MAX), length };
        let recorded = format!("r{}/{name}", self.round);
        self.manifest.record(recorded.clone(), Contents { under_way: Some(part), ..contents.clone() });
        overwrite_durably(&self.directory.join(&name), part, self.pattern)?;
        contents.parts.push(part);
        self.manifest.record(recorded, contents.clone());
        self.latest = Some((name.clone(), contents.clone()));
        self.look(&name, &bytes(self.pattern, &contents.parts))
    }

    /// A program reads back what it has written, also while servers are away.
    fn look(&mut self, name: &str, expected: &[u8]) -> std::io::Result<()> {
        let found = fs::read(self.directory.join(name))?;
        assert!(found == expected, "r{}/{name} while it runs: {}", self.round, difference(&found, expected));
        Ok(())
    }
}

/// Writes files until the stop flag is set, or something fails; records those that are durable.
fn write_files(place: &Path, mut writer: Writer<'_>, is_busy: &Weak<()>) {
    let made = fs::create_dir(&writer.directory).and_then(|()| File::open(place)?.sync_all());
    if made.is_err() {
        return;
    }
    for count in 0u64.. {
        let written = match writer.random.below(4) {
            0 if writer.log.length() < LOG_BYTES_MAX => writer.append(),
            1 => writer.overwrite(),
            _ => writer.write_file(count),
        };
        if written.is_err() || is_busy.strong_count() == 0 {
            // Not recorded: it may be there or not.
            return;
        }
    }
}

struct Crashes {
    cluster: Cluster,
    mountpoint: PathBuf,
    manifest: Manifest,
    pattern: Vec<u8>,
}

/// The process that a mountpoint is mounted by.
fn mount_process(mountpoint: &Path) -> u32 {
    let place = text(mountpoint);
    let is_it = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.contains(&b"--foreground".as_slice()) && words.contains(&place.as_bytes())
    };
    let all = fs::read_dir("/proc").expect("readable").flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(is_it).expect("the mount runs")
}

fn kill_mount(mountpoint: &Path) {
    let process = mount_process(mountpoint);
    signal(process, Signal::KILL);
    wait_until("the killed mount is gone", || !is_alive(process));
}

impl Crashes {
    /// Each way that requests can come in turn.
    fn mount(&self, round: u64) {
        let transports = transports();
        let transport = transports[round as usize % transports.len()];
        self.cluster.ok(&["mount", "vz:/", &text(&self.mountpoint), "-o", transport]);
    }

    /// Kills what is this round's turn, and brings it back.
    fn crash(&self, kind: u64, random: &mut Random) {
        let data = format!("data{}", 1 + random.below(DATA_SERVERS as u64));
        match kind {
            0 => kill_mount(&self.mountpoint),
            1 => self.cluster.kill(&data),
            2 => self.cluster.kill("meta1"),
            _ => {
                kill_mount(&self.mountpoint);
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
            let writer = Writer {
                directory: self.mountpoint.join(format!("r{round}")),
                round,
                random: own,
                manifest: &self.manifest,
                pattern: &self.pattern,
                log: Contents::default(),
                latest: None,
            };
            let writer = scope.spawn(move || write_files(&self.mountpoint, writer, &is_busy));
            wait_until("something is recorded", || self.manifest.len() > before || writer.is_finished());
            SystemClock.sleep(Duration::from_millis(random.below(CRASH_MS_MAX)));
            self.crash(round % 4, random);
            drop(busy);
        });
        assert!(self.manifest.len() > before, "round {round}: nothing was recorded");
        // Through a mount that knows nothing from before.
        self.cluster.ok(&["umount", &text(&self.mountpoint)]);
        self.mount(round + 1);
        self.manifest.check(&self.mountpoint, &format!("r{round}/"), &self.pattern);
    }
}

fn can_mount() -> bool {
    let possible = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !possible {
        eprintln!("not tested: no /dev/fuse, or not root");
    }
    possible
}

#[test]
fn what_was_synced_is_there_whoever_was_killed() {
    if !can_mount() {
        return;
    }
    let _alone = ALONE.lock();
    let (rounds, seed) = (number("VAZAO_CRASH_ROUNDS", 4), number("VAZAO_CRASH_SEED", 1));
    let cluster = Cluster::start(DATA_SERVERS);
    let mountpoint = cluster.local("mount");
    fs::create_dir(&mountpoint).expect("made");
    let pattern = noise(LENGTHS[LENGTHS.len() - 1]);
    let crashes = Crashes { cluster, mountpoint, manifest: Manifest::default(), pattern };
    crashes.mount(0);
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

/// The ways requests can come here: io_uring only where the kernel module's switch is on.
fn transports() -> Vec<&'static str> {
    let switch = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").unwrap_or_default();
    if switch.trim() == "Y" { vec!["uring=off", "uring=on"] } else { vec!["uring=off"] }
}

/// By how much a file grows after its writer was killed; less than what that had written.
const GROWTH: usize = 700_000;

/// What is written at the end of a growth that writes.
const NEWS: &[u8] = b"new";

/// Makes a file longer that has `length` bytes; returns what its new part has to be.
type Growth = fn(&Path, u64) -> Vec<u8>;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

fn zeros_and_news() -> Vec<u8> {
    [&vec![0; GROWTH - NEWS.len()], NEWS].concat()
}

const GROWTHS: [(&str, Growth); 5] = [
    ("truncate", |path, length| {
        open(path).set_len(length + GROWTH as u64).expect("longer");
        vec![0; GROWTH]
    }),
    ("fallocate", |path, length| {
        fallocate(open(path), FallocateFlags::empty(), length, GROWTH as u64).expect("longer");
        vec![0; GROWTH]
    }),
    ("write", |path, length| {
        let at = length + (GROWTH - NEWS.len()) as u64;
        open(path).write_all_at(NEWS, at).expect("written");
        zeros_and_news()
    }),
    ("copy", |path, length| {
        let source = path.with_extension("source");
        fs::write(&source, NEWS).expect("written");
        let (mut from, mut to) = (0, length + (GROWTH - NEWS.len()) as u64);
        let (input, output) = (open(&source), open(path));
        let copied = rustix::fs::copy_file_range(&input, Some(&mut from), &output, Some(&mut to), NEWS.len());
        assert_eq!(copied.expect("copied"), NEWS.len());
        zeros_and_news()
    }),
    ("append", |path, _| {
        OpenOptions::new().append(true).open(path).expect("opened").write_all(NEWS).expect("appended");
        NEWS.to_vec()
    }),
];

/// Kills a mount that has just written behind the ends of files that no data server is slow to take, makes the files
/// longer through another one, and looks.
fn grow_after_a_kill(cluster: &Cluster, mountpoint: &Path, transport: &str, round: u64) {
    const LENGTHS: [usize; 3] = [9_000, 65_536, 333_391];
    let mount = || cluster.ok(&["mount", "vz:/", &text(mountpoint), "-o", transport]);
    mount();
    let kinds: Vec<_> =
        GROWTHS.iter().flat_map(|growth| LENGTHS.map(|length| (growth.0, growth.1, length))).collect();
    let path = |how: &str, length: usize| mountpoint.join(format!("{transport}-{round}-{how}-{length}"));
    let opened: Vec<File> = kinds
        .iter()
        .map(|&(how, _, length)| {
            fs::write(path(how, length), vec![b'a'; length]).expect("written");
            let file = open(&path(how, length));
            file.sync_all().expect("synced");
            file.write_all_at(&vec![b'X'; 2_000_000], length as u64).expect("taken over");
            file
        })
        .collect();
    kill_mount(mountpoint);
    drop(opened);
    cluster.ok(&["umount", &text(mountpoint)]);
    mount();
    let mut all_expected = Vec::new();
    for (how, grow, length) in kinds {
        let path = path(how, length);
        let left = fs::read(&path).expect("read");
        assert!(left == vec![b'a'; length], "{transport}, {how} of {length}: {} bytes are left", left.len());
        let expected = [left, grow(&path, length as u64)].concat();
        let what = format!("{transport}, {how} of {length}");
        assert_right(&path, &expected, &format!("{what}, here"));
        open(&path).sync_all().expect("synced");
        assert_right(&path, &expected, &format!("{what}, synced"));
        all_expected.push((path, expected, what));
    }
    cluster.ok(&["umount", &text(mountpoint)]);
    mount();
    for (path, expected, what) in all_expected {
        assert_right(&path, &expected, &format!("{what}, later"));
    }
    cluster.ok(&["umount", &text(mountpoint)]);
}

fn assert_right(path: &Path, expected: &[u8], what: &str) {
    let found = fs::read(path).expect("read");
    assert!(found == expected, "{what}: {}", difference(&found, expected));
}

/// A mount was killed while a write behind the end of a file was on its way: bytes were in its objects, the size was
/// not. Once the file was made longer, its new part read as those bytes, synced and for ever.
#[test]
fn what_a_killed_mount_wrote_behind_the_end_does_not_appear_when_the_file_grows() {
    if !can_mount() {
        return;
    }
    let _alone = ALONE.lock();
    let cluster = Cluster::start(DATA_SERVERS);
    let mountpoint = cluster.local("mount");
    fs::create_dir(&mountpoint).expect("made");
    // As many as there are kinds of death in the other test.
    let rounds = number("VAZAO_CRASH_ROUNDS", 4).div_ceil(4);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for (transport, round) in transports().into_iter().flat_map(|t| (0..rounds).map(move |r| (t, r))) {
            grow_after_a_kill(&cluster, &mountpoint, transport, round);
        }
    }));
    cluster.run(&["umount", &text(&mountpoint)]);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
