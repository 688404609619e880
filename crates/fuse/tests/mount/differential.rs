//! The same random operations on two mounts of one volume and on a tmpfs: each must end the same way, and trees must
//! be equal. A sequence that differs is made as short as it can be, shown and kept.
//!
//! `VAZAO_DIFFERENTIAL_OPERATIONS` (default 20,000) makes it longer; the long form is 1,000,000.
//! `VAZAO_DIFFERENTIAL_SEED` is the first seed (default 0); each stands for 2,000 operations.

use crate::cluster::{Cluster, Mounted, with_cluster};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Operations of one sequence; between two of them everything starts anew.
const SEQUENCE: usize = 2_000;
/// Operations after which all trees are compared.
const COMPARE_EVERY: usize = 250;
/// How long another mount's change may take to be seen before the test calls it lost.
const SEEN_NS_MAX: u64 = 20_000_000_000;

/// A thing to do; paths are relative to the root of each tree.
#[derive(Clone, PartialEq, Debug)]
enum Operation {
    Create(String, u32),
    MakeDirectory(String, u32),
    Symlink(String, String),
    Link(String, String),
    /// A file without a name that gets one.
    Unnamed(String, u8),
    Unlink(String),
    RemoveDirectory(String),
    Rename(String, String, u32),
    SetMode(String, u32),
    Write(String, u64, usize, u8),
    Append(String, usize, u8),
    /// Both mounts have it open and write parts of it that do not overlap.
    WriteInBoth(String, Vec<Part>),
    SetLength(String, u64),
    Punch(String, u64, u64),
    Read(String),
    Look(String),
    List(String),
    /// The other mount goes on.
    Switch,
}

/// What one of two writers does.
#[derive(Clone, PartialEq, Debug)]
struct Part {
    writer: usize,
    offset: u64,
    length: usize,
    byte: u8,
    is_synced: bool,
}

/// How late a mount may learn of another one's change on a machine that does much else.
const LATE_NS_MAX: u64 = 1_000_000_000;

type Outcome = Result<String, Errno>;

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// A name that is there, most of the time.
fn path(random: &mut StdRng, known: &[String]) -> String {
    if !known.is_empty() && random.random_bool(0.9) {
        return known[random.random_range(0..known.len())].clone();
    }
    any_path(random)
}

/// Any name, there or not.
fn any_path(random: &mut StdRng) -> String {
    let depth = [0, 0, 0, 1, 1, 2][random.random_range(0..6)];
    let mut parts: Vec<&str> = (0..depth).map(|_| ["d", "e"][random.random_range(0..2)]).collect();
    parts.push(["a", "b", "c", "f", "g", "h", "d", "e"][random.random_range(0..8)]);
    parts.join("/")
}

/// All paths below a directory.
fn paths(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("readable") {
            let entry = entry.expect("listed");
            let below = entry.path().strip_prefix(root).expect("below it").to_string_lossy().into_owned();
            if entry.file_type().expect("known").is_dir() {
                directories.push(entry.path());
            }
            found.push(below);
        }
    }
    found.sort();
    found
}

/// Draws operations, each of them against what those before it leave.
fn story(random: &mut StdRng, count: usize) -> Vec<Operation> {
    let scratch = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let mut operations = Vec::with_capacity(count);
    for _ in 0..count {
        let operation = draw(random, &paths(scratch.path()));
        // Only whether it is there afterwards counts here.
        let _ = perform(scratch.path(), &operation);
        operations.push(operation);
    }
    operations
}

/// Around the inode record's limit as often as over stripe units.
fn place(random: &mut StdRng) -> (u64, usize) {
    let reach = if random.random_bool(0.6) { 20_000 } else { 900_000 };
    (random.random_range(0..reach), random.random_range(1..reach as usize / 2))
}

/// A range cut into parts, in any order, each written by one of two.
fn parts(random: &mut StdRng) -> Vec<Part> {
    let (offset, length) = place(random);
    let count = random.random_range(2..7usize);
    let each = length.div_ceil(count);
    let mut parts: Vec<Part> = (0..count)
        .map(|number| (number * each, each.min(length.saturating_sub(number * each))))
        .filter(|(_, length)| *length > 0)
        .map(|(start, length)| Part {
            writer: random.random_range(0..2),
            offset: offset + start as u64,
            length,
            byte: random.random_range(1..=255),
            is_synced: random.random_bool(0.5),
        })
        .collect();
    for last in (1..parts.len()).rev() {
        parts.swap(last, random.random_range(0..=last));
    }
    parts
}

fn draw(random: &mut StdRng, known: &[String]) -> Operation {
    let (offset, length) = place(random);
    let byte = random.random_range(1..=255u8);
    let mode = random.random_range(0..0o1000) | 0o600;
    match random.random_range(0..37) {
        0..5 => Operation::Create(any_path(random), mode),
        5..7 => Operation::MakeDirectory(any_path(random), mode | 0o100),
        7 => Operation::Symlink("a/b".to_owned(), any_path(random)),
        8 => Operation::Link(path(random, known), any_path(random)),
        9 => Operation::Unnamed(any_path(random), byte),
        10 => Operation::Unlink(path(random, known)),
        11 | 12 => Operation::RemoveDirectory(path(random, known)),
        13..16 => Operation::Rename(path(random, known), any_path(random), random.random_range(0..3)),
        16 => Operation::SetMode(path(random, known), mode | 0o100),
        17..22 => Operation::Write(path(random, known), offset, length, byte),
        22..24 => Operation::Append(path(random, known), length, byte),
        24 | 25 => Operation::SetLength(path(random, known), offset),
        26 => Operation::Punch(path(random, known), offset, length as u64),
        27..30 => Operation::Read(path(random, known)),
        30 | 31 => Operation::Look(path(random, known)),
        32 => Operation::List(path(random, known)),
        33..36 => Operation::WriteInBoth(path(random, known), parts(random)),
        _ => Operation::Switch,
    }
}

/// What both kinds of trees must agree on.
fn look(path: &Path) -> Outcome {
    let m = fs::symlink_metadata(path).map_err(errno)?;
    let size = if m.is_dir() { 0 } else { m.len() };
    let mode = if m.is_symlink() { 0o777 } else { m.mode() & 0o7777 };
    Ok(format!("{:?} {mode:o} {} links {size} bytes", m.file_type(), m.nlink()))
}

fn list(path: &Path) -> Outcome {
    let entries = fs::read_dir(path).map_err(errno)?;
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names.join(" "))
}

fn fingerprint(bytes: &[u8]) -> String {
    format!("{} bytes, sum {:08x}", bytes.len(), vazao_model::checksum::crc32c(bytes))
}

fn unnamed(directory: &Path, name: &Path, byte: u8) -> Outcome {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(directory, flags, Mode::from_raw_mode(0o600))?);
    file.write_all_at(&[byte; 30_000], 0).map_err(errno)?;
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(CWD, own, CWD, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(String::new())
}

/// Two writers, each with the file open below a root of its own, write their parts in turn and close it.
fn write_in_both(roots: [&Path; 2], path: &str, parts: &[Part]) -> Outcome {
    let open = |root: &Path| File::options().write(true).open(root.join(path)).map_err(errno);
    let files = [open(roots[0])?, open(roots[1])?];
    for part in parts {
        let file = &files[part.writer];
        file.write_all_at(&vec![part.byte; part.length], part.offset).map_err(errno)?;
        if part.is_synced {
            file.sync_all().map_err(errno)?;
        }
    }
    // An fsync reports the errors that a close reports, and closing a file reports none here.
    files.iter().try_for_each(File::sync_all).map(|()| String::new()).map_err(errno)
}

fn perform(root: &Path, operation: &Operation) -> Outcome {
    let at = |path: &String| root.join(path);
    let for_writing = |path: &String| File::options().write(true).open(at(path)).map_err(errno);
    let mode = |bits: &u32| Mode::from_raw_mode(*bits);
    let done = |outcome: rustix::io::Result<()>| outcome.map(|()| String::new());
    match operation {
        Operation::Create(path, bits) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::open(at(path), flags, mode(bits)).map(|_| String::new())
        }
        Operation::MakeDirectory(path, bits) => done(rustix::fs::mkdir(at(path), mode(bits))),
        Operation::Symlink(target, path) => done(rustix::fs::symlink(target, at(path))),
        Operation::Link(from, to) => done(rustix::fs::link(at(from), at(to))),
        Operation::Unnamed(path, byte) => unnamed(root, &at(path), *byte),
        Operation::Unlink(path) => done(rustix::fs::unlink(at(path))),
        Operation::RemoveDirectory(path) => done(rustix::fs::rmdir(at(path))),
        Operation::Rename(from, to, flags) => {
            let flags = RenameFlags::from_bits_retain(*flags);
            done(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags))
        }
        Operation::SetMode(path, bits) => done(rustix::fs::chmod(at(path), mode(bits))),
        Operation::Write(path, offset, length, byte) => {
            let written = for_writing(path)?.write_all_at(&vec![*byte; *length], *offset);
            written.map(|()| String::new()).map_err(errno)
        }
        Operation::Append(path, length, byte) => {
            let mut file = File::options().append(true).open(at(path)).map_err(errno)?;
            file.write_all(&vec![*byte; *length]).map(|()| String::new()).map_err(errno)
        }
        Operation::WriteInBoth(path, parts) => write_in_both([root, root], path, parts),
        Operation::SetLength(path, length) => {
            for_writing(path)?.set_len(*length).map(|()| String::new()).map_err(errno)
        }
        Operation::Punch(path, offset, length) => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            done(rustix::fs::fallocate(for_writing(path)?, flags, *offset, *length))
        }
        Operation::Read(path) => fs::read(at(path)).map(|bytes| fingerprint(&bytes)).map_err(errno),
        Operation::Look(path) => look(&at(path)),
        Operation::List(path) => list(&at(path)),
        Operation::Switch => Ok(String::new()),
    }
}

/// Everything below a directory: what it is and what is in it.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory that was listed is there") {
            let path = entry.expect("listed").path();
            let mut shown = look(&path).expect("what was listed is there");
            let metadata = fs::symlink_metadata(&path).expect("what was listed is there");
            if metadata.is_dir() {
                directories.push(path.clone());
            } else if metadata.is_file() {
                shown += &fingerprint(&fs::read(&path).expect("readable"));
            }
            found.insert(path.strip_prefix(root).expect("below it").to_owned(), shown);
        }
    }
    found
}

/// The three trees of one run.
struct Trees<'a> {
    mounts: [&'a Mounted; 2],
    local: &'a Path,
    name: String,
    /// Operations that were not refused: a test of refusals alone would show little.
    succeeded: Cell<usize>,
}

impl Trees<'_> {
    fn root(&self, mount: usize) -> PathBuf {
        self.mounts[mount].path(&self.name)
    }

    /// Waits until mount `next` has been told of everything that the other one has done: a name that it knows to be
    /// absent appears.
    fn hand_over(&self, next: usize, step: usize) {
        let clock = vazao_meter::clock::system();
        let marker = format!("{}-marker-{step}", self.name);
        let seen = self.mounts[next].path(&marker);
        assert!(fs::metadata(&seen).is_err(), "a marker is new");
        fs::write(self.mounts[1 - next].path(&marker), b"").expect("writable");
        let deadline_ns = clock.now_ns() + SEEN_NS_MAX;
        while fs::metadata(&seen).is_err() {
            assert!(clock.now_ns() < deadline_ns, "a name that one mount made is not seen by the other");
            clock.sleep(std::time::Duration::from_micros(200));
        }
        fs::remove_file(&seen).expect("there");
    }

    /// Does it on a mount. The other mount's changes arrive within milliseconds, asynchronously. So an operation that
    /// was refused, or only read, is retried for a while when it does not end as it should.
    fn perform_in_time(&self, mount: usize, operation: &Operation, theirs: &Outcome) -> Outcome {
        let clock = vazao_meter::clock::system();
        let deadline_ns = clock.now_ns() + LATE_NS_MAX;
        loop {
            let ours = match operation {
                Operation::WriteInBoth(path, parts) => {
                    write_in_both([&self.root(mount), &self.root(1 - mount)], path, parts)
                }
                operation => perform(&self.root(mount), operation),
            };
            let only_looks =
                matches!(operation, Operation::Read(_) | Operation::Look(_) | Operation::List(_));
            let may_be_late = ours != *theirs && (ours.is_err() || only_looks);
            if !may_be_late || clock.now_ns() > deadline_ns {
                return ours;
            }
            clock.sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Does it; the first difference, if there is one.
    fn run(&self, operations: &[Operation]) -> Option<String> {
        fs::create_dir(self.root(0)).expect("writable");
        let local = self.local.join(&self.name);
        fs::create_dir(&local).expect("writable");
        let mut mount = 0;
        for (step, operation) in operations.iter().enumerate() {
            if *operation == Operation::Switch {
                mount = 1 - mount;
                self.hand_over(mount, step);
                continue;
            }
            if matches!(operation, Operation::WriteInBoth(..)) {
                self.hand_over(1 - mount, step);
            }
            let theirs = perform(&local, operation);
            let ours = self.perform_in_time(mount, operation, &theirs);
            self.succeeded.set(self.succeeded.get() + usize::from(ours.is_ok()));
            if ours != theirs {
                return Some(format!(
                    "step {step}, mount {mount}: {operation:?}: {ours:?}, tmpfs: {theirs:?}"
                ));
            }
            if (step + 1) % COMPARE_EVERY == 0 || step + 1 == operations.len() {
                self.hand_over(1 - mount, step);
                for number in [0, 1] {
                    let (ours, theirs) = (tree(&self.root(number)), tree(&local));
                    if ours != theirs {
                        let differs = |(path, shown): &(&PathBuf, &String)| ours.get(*path) != Some(shown);
                        let first = theirs.iter().find(differs);
                        return Some(format!(
                            "after step {step}, mount {number}: tmpfs has {first:?}, {ours:?}"
                        ));
                    }
                }
            }
        }
        None
    }
}

/// Leaves out whatever the difference does not need, half of it at a time, then less.
fn shrink(mut operations: Vec<Operation>, differs: &mut dyn FnMut(&[Operation]) -> bool) -> Vec<Operation> {
    let mut size = operations.len() / 2;
    while size > 0 {
        let mut start = 0;
        while start < operations.len() {
            let mut fewer = operations.clone();
            fewer.drain(start..(start + size).min(operations.len()));
            if differs(&fewer) {
                operations = fewer;
            } else {
                start += size;
            }
        }
        size /= 2;
    }
    operations
}

fn compare(cluster: &Cluster, seed: u64, count: usize) {
    let mounts = [cluster.mount(), cluster.mount()];
    let local = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let mut random = StdRng::seed_from_u64(seed);
    let operations = story(&mut random, count);
    let (mut attempt, mut succeeded) = (0, 0);
    let mut differs = |operations: &[Operation]| {
        attempt += 1;
        let name = format!("run-{seed}-{attempt}");
        let mounts = [&mounts[0], &mounts[1]];
        let trees = Trees { mounts, local: local.path(), name, succeeded: Cell::new(0) };
        let difference = trees.run(operations);
        succeeded = trees.succeeded.get();
        difference
    };
    if let Some(difference) = differs(&operations) {
        eprintln!("seed {seed}: {difference}; looking for the shortest sequence");
        let short = shrink(operations, &mut |fewer| differs(fewer).is_some());
        let text: String = short.iter().map(|operation| format!("{operation:?}\n")).collect();
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("differential-{seed}.txt"));
        fs::write(&kept, &text).expect("writable");
        panic!("seed {seed}: {difference}\nshortest sequence, kept in {}:\n{text}", kept.display());
    }
    // By draw between a third and a half.
    assert!(succeeded > count / 4, "only {succeeded} of {count} operations did something");
    let [first, second] = mounts;
    first.unmount();
    second.unmount();
}

#[test]
fn two_mounts_and_a_local_file_system_agree_on_every_random_operation() {
    let wanted = std::env::var("VAZAO_DIFFERENTIAL_OPERATIONS").ok();
    let total: usize = wanted.map_or(20_000, |number| number.parse().expect("a number"));
    with_cluster(|cluster| {
        let sequences = total.div_ceil(SEQUENCE);
        let first: u64 =
            std::env::var("VAZAO_DIFFERENTIAL_SEED").map_or(0, |seed| seed.parse().expect("a number"));
        (first..first + sequences as u64).for_each(|seed| compare(cluster, seed, SEQUENCE.min(total)));
    });
}

#[test]
fn a_sequence_is_shrunk_to_what_matters() {
    let operations: Vec<Operation> = (0..100).map(|number| Operation::Look(number.to_string())).collect();
    let wanted = [Operation::Look("17".to_owned()), Operation::Look("83".to_owned())];
    let short = shrink(operations, &mut |fewer| wanted.iter().all(|operation| fewer.contains(operation)));
    assert_eq!(short, wanted);
}
