//! Two mounts of one volume by real processes, and what one sees of the other when something dies.

use crate::support::{Cluster, signal, text, wait_until};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Mounts need the device and, for these tests, root.
fn can_mount() -> bool {
    let possible = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !possible {
        eprintln!("not tested: no /dev/fuse, or not root");
    }
    possible
}

struct Mounts<'a> {
    cluster: &'a Cluster,
    places: [PathBuf; 2],
}

impl<'a> Mounts<'a> {
    fn new(cluster: &'a Cluster) -> Mounts<'a> {
        let places = ["a", "b"].map(|name| cluster.local(name));
        for place in &places {
            fs::create_dir(place).expect("made");
            cluster.ok(&["mount", "vz:/", &text(place)]);
        }
        Mounts { cluster, places }
    }

    fn a(&self, name: &str) -> PathBuf {
        self.places[0].join(name)
    }

    fn b(&self, name: &str) -> PathBuf {
        self.places[1].join(name)
    }
}

impl Drop for Mounts<'_> {
    fn drop(&mut self) {
        for place in &self.places {
            self.cluster.run(&["umount", &text(place)]);
        }
    }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).expect("opened")
}

fn try_lock(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[test]
fn what_a_mount_believes_ends_with_a_change_elsewhere_also_after_the_metadata_service_was_killed() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(1);
    let mounts = Mounts::new(&cluster);
    for round in 0..3 {
        let (name, next) = (format!("f{round}"), format!("g{round}"));
        assert!(!mounts.b(&name).exists());
        fs::write(mounts.a(&name), b"first").expect("written");
        wait_until("the name is there", || mounts.b(&name).exists());
        assert_eq!(fs::read(mounts.b(&name)).expect("readable"), b"first");
        cluster.kill("meta1");
        cluster.up(&[]);
        fs::write(mounts.a(&name), b"second time").expect("written");
        wait_until("the length is known", || fs::metadata(mounts.b(&name)).is_ok_and(|m| m.len() == 11));
        fs::rename(mounts.a(&name), mounts.a(&next)).expect("renamed");
        wait_until("the rename is seen", || !mounts.b(&name).exists() && mounts.b(&next).exists());
        cluster.ok(&["rm", &format!("vz:/{next}")]);
        wait_until("a removal by a command is seen", || {
            !mounts.a(&next).exists() && !mounts.b(&next).exists()
        });
    }
}

#[test]
fn a_lock_is_kept_over_a_restart_of_the_metadata_service() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(1);
    let mounts = Mounts::new(&cluster);
    let (a, b) = (open(&mounts.a("f")), open(&mounts.b("f")));
    assert!(try_lock(&a) && !try_lock(&b));
    cluster.kill("meta1");
    cluster.up(&[]);
    assert!(!try_lock(&b), "the one who had it has it still");
    flock(&a, FlockOperation::Unlock).expect("let go");
    wait_until("it can be had", || try_lock(&b));
    flock(&b, FlockOperation::Unlock).expect("let go");
    assert!(try_lock(&a));
    // A mount that dies leaves its locks until its lease is over: it might come back.
    let pids = mount_processes(&mounts.places[0]);
    assert_eq!(pids.len(), 1, "{pids:?}");
    signal(pids[0], Signal::KILL);
    assert!(!try_lock(&b), "nobody knows yet that it is gone");
    drop((a, b));
}

/// The processes behind a mount.
fn mount_processes(place: &Path) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("readable").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_behind = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.contains(&b"--foreground".as_slice()) && words.contains(&text(place).as_bytes())
    };
    pids.filter(is_behind).collect()
}
