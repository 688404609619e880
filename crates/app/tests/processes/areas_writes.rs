//! Writes through the mount of all areas: answered early, seen at once, and told of once when they fail.

use crate::support;
use crate::support::areas::Tree;
use crate::support::noise;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;
use vazao_meter::{Clock, SystemClock};
use vazao_testing::programs::{RunBounded, WaitBounded};

const MIB: usize = 1 << 20;

#[test]
fn what_was_written_is_read_at_once_through_every_file_of_the_mount() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "f");
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&mounted);
    let (one, other) = (open().expect("opened"), open().expect("opened"));
    let only_writes = OpenOptions::new().write(true).open(&mounted).expect("opened");
    let appends = OpenOptions::new().append(true).open(&mounted).expect("opened");
    let mut model: Vec<u8> = Vec::new();
    let mut random = 0x2545_f491_4f6c_dd1d_usize;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit.max(1)
    };
    let bytes = noise(3 * MIB);
    for step in 0..150 {
        let (at, length) = (below(4 * MIB), 1 + below(2 * MIB));
        let part = &bytes[below(MIB)..][..length];
        let writer = [&one, &other, &only_writes][step % 3];
        match below(10) {
            0 => {
                writer.set_len(at as u64).expect("cut");
                model.resize(at, 0);
            }
            1 | 2 => {
                (&appends).write_all(part).expect("appended");
                model.extend_from_slice(part);
            }
            _ => {
                writer.write_all_at(part, at as u64).expect("written");
                model.resize(model.len().max(at + length), 0);
                model[at..at + length].copy_from_slice(part);
            }
        }
        assert_eq!(mounted.metadata().expect("status").len(), model.len() as u64, "step {step}");
        let from = below(model.len());
        let mut read = vec![0; below(MIB).min(model.len() - from)];
        [&one, &other][step % 2].read_exact_at(&mut read, from as u64).expect("read");
        assert!(read == model[from..from + read.len()], "step {step}: {} bytes at {from}", read.len());
    }
    drop((one, other, only_writes, appends));
    assert!(fs::read(&local).expect("is there") == model, "closed, so it is with the node");
}

#[test]
fn files_written_and_closed_are_with_their_node_under_the_name_times_and_length_they_were_given() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "f");
    let mut file = File::create(&mounted).expect("made");
    (0..6).for_each(|_| file.write_all(&noise(MIB)).expect("written"));
    // Not one of the writes may arrive after this and change it again.
    let before = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    file.set_modified(before).expect("set");
    assert_eq!(file.metadata().expect("status").len(), 6 * MIB as u64);
    assert_eq!(local.metadata().expect("status").mtime(), 1_000_000);
    file.write_all(&noise(MIB)).expect("written");
    file.set_len(100).expect("cut");
    assert_eq!(local.metadata().expect("status").len(), 100);
    file.write_all_at(&noise(MIB), 0).expect("written");
    fs::rename(&mounted, mounted.with_file_name("g")).expect("renamed");
    assert!(fs::read(local.with_file_name("g")).expect("is there") == noise(MIB));
    file.write_all_at(b"last", 0).expect("written");
    fs::remove_file(mounted.with_file_name("g")).expect("removed");
    file.sync_all().expect("it was written before it was removed");
    // A listing begun before a write does not show the old size.
    let names: Vec<_> = (0..40).map(|i| mounted.with_file_name(format!("l{i}"))).collect();
    names.iter().for_each(|name| fs::write(name, b"1").expect("written"));
    let listing = fs::read_dir(mounted.parent().expect("has one")).expect("listed");
    names.iter().for_each(|name| fs::write(name, b"22").expect("written"));
    for entry in listing.map(|entry| entry.expect("an entry")) {
        assert_eq!(entry.metadata().expect("status").len(), 2, "{:?}", entry.file_name());
    }
}

/// The errors that a file's calls gave, of which there must be one for what was lost.
fn errors(outcomes: impl IntoIterator<Item = std::io::Result<()>>) -> Vec<std::io::Error> {
    outcomes.into_iter().filter_map(Result::err).collect()
}

#[test]
fn writes_in_flight_to_a_node_that_dies_are_told_of_once_and_soon() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "f");
    let mut file = File::create(&mounted).expect("made");
    file.write_all(&noise(MIB)).expect("written");
    file.sync_all().expect("synced");
    tree.cluster.kill("data1");
    let start_ns = SystemClock.now_ns();
    // Taken over, if anything can be; the loss is reported here or by the sync.
    let mut outcomes: Vec<_> = Vec::new();
    for _ in 0..4 {
        outcomes.push(file.write_all(&noise(MIB)));
        if outcomes.last().is_some_and(Result::is_err) {
            break;
        }
    }
    let is_told = outcomes.iter().any(Result::is_err);
    if !is_told {
        outcomes.push(file.sync_all());
    }
    assert_eq!(errors(outcomes).len(), 1);
    let seconds = (SystemClock.now_ns() - start_ns) as f64 / 1e9;
    // Far beyond the time-out of one call: it must not be waited for once for each request.
    assert!(seconds < 30.0, "{seconds}");
    tree.cluster.up(&[]);
    support::wait_until("the node is back", || file.sync_all().is_ok());
    file.sync_all().expect("told once, not for ever");
    file.write_all_at(&noise(2 * MIB), 0).expect("written");
    file.sync_all().expect("synced");
    drop(file);
    assert!(fs::read(&local).expect("is there")[..2 * MIB] == noise(2 * MIB));
}

#[test]
fn a_node_that_is_restarted_in_time_gets_what_was_in_flight() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "f");
    let expected: Vec<u8> = (0..200).flat_map(|_| noise(MIB)).collect();
    let source = tree.cluster.local("source");
    fs::write(&source, &expected).expect("written");
    // A program of its own: what this one starts closes what it inherits, and that waits for what is in flight.
    let mut dd = std::process::Command::new("dd")
        .args([format!("if={}", source.display()), format!("of={}", mounted.display())])
        .args(["bs=1M", "conv=fsync"])
        .spawn()
        .expect("runs");
    support::wait_until("it writes", || local.metadata().is_ok_and(|status| status.len() > 0));
    tree.cluster.kill("data1");
    tree.cluster.up(&[]);
    assert!(dd.wait_bounded().success());
    let there = fs::read(local).expect("is there");
    let differs = there.iter().zip(&expected).position(|(one, other)| one != other);
    assert_eq!((there.len(), differs), (expected.len(), None));
}

#[test]
fn a_full_disk_is_told_of_once_by_a_write_or_by_the_sync_that_follows() {
    let Some(tree) = Tree::mount() else { return };
    let (small, local) = tree.both("data1", "one", "small");
    fs::create_dir(&local).expect("made");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", &local, "tmpfs", flags, Some(c"size=8m")).expect("mounted");
    let written = std::panic::catch_unwind(|| {
        let full = small.join("f");
        support::wait_until("the small disk is seen", || File::create(&full).is_ok());
        let mut file = OpenOptions::new().write(true).open(&full).expect("opened");
        let mut outcomes = Vec::new();
        for _ in 0..12 {
            outcomes.push(file.write_all(&noise(MIB)));
            if outcomes.last().is_some_and(Result::is_err) {
                break;
            }
        }
        outcomes.push(file.sync_all());
        let told = errors(outcomes);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].kind(), ErrorKind::StorageFull);
        file.set_len(0).expect("cut");
        file.write_all_at(b"fits", 0).expect("written");
        file.sync_all().expect("there is room again");
        drop(file);
        assert_eq!(fs::read(&full).expect("read"), b"fits");
    });
    rustix::mount::unmount(&local, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    written.expect("as it should be");
}

/// A root daemon's writes keep set-id bits, and the kernel leaves it to the mount to clear them. Otherwise a user with
/// write permission could replace another user's set-user-id program with a program of their own.
#[test]
fn writing_and_cutting_take_set_id_bits_away_from_who_may_not_keep_them() {
    let Some(tree) = Tree::mount() else { return };
    let (mounted, local) = tree.both("data1", "one", "program");
    let mode = || local.metadata().expect("status").mode() & 0o7777;
    let with_set_id = |mode| fs::set_permissions(&local, fs::Permissions::from_mode(mode)).expect("set");
    let unprivileged = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-fsetid", "sh", "-c", line, "sh"]).arg(&mounted);
        assert!(command.run_bounded().status.success(), "{line}");
    };
    File::create(&mounted).expect("made");
    for line in
        ["echo more >> $1", "printf over | dd of=$1 conv=notrunc status=none", "truncate -s 3 $1", ": > $1"]
    {
        with_set_id(0o6755);
        unprivileged(line);
        assert_eq!(format!("{:o}", mode()), "755", "{line}");
    }
    // Without group execution the second bit means mandatory locking and stays.
    with_set_id(0o6745);
    unprivileged("echo more >> $1");
    assert_eq!(format!("{:o}", mode()), "2745");
    // Set through the mount while a program writes.
    unprivileged("exec 3>>$1; chmod 4755 $1; echo more >&3");
    assert_eq!(format!("{:o}", mode()), "755");
    // Who may keep them does.
    with_set_id(0o6755);
    fs::write(&mounted, b"new").expect("written");
    assert_eq!(format!("{:o}", mode()), "6755");
}
