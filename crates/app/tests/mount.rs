//! `vazao mount` and `vazao umount` as a user meets them. What files do inside a mount is tested with the door itself.

mod support;

use std::fs;
use std::path::Path;
use support::{Cluster, failed, noise, text, wait_until};

/// Mounts need the device and, for these tests, root.
fn can_mount() -> bool {
    let possible = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !possible {
        eprintln!("not tested: no /dev/fuse, or not root");
    }
    possible
}

fn mounts() -> String {
    fs::read_to_string("/proc/mounts").expect("readable")
}

#[test]
fn a_mount_serves_when_the_command_returns_and_is_gone_after_umount() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(2);
    let mountpoint = cluster.local("mount point");
    fs::create_dir(&mountpoint).expect("made");
    cluster.ok(&["mkdir", "-p", "vz:/a/b"]);
    cluster.ok(&["mount", "vz:/a", &text(&mountpoint)]);
    let line = mounts().lines().find(|line| line.contains("mount\\040point")).map(str::to_owned);
    let umount = || cluster.ok(&["umount", &text(&mountpoint)]);
    let checked = std::panic::catch_unwind(|| {
        assert!(line.as_ref().is_some_and(|line| line.contains(" fuse.vazao ")), "{line:?}");
        fs::write(mountpoint.join("b/file"), noise(3_000_000)).expect("written");
        assert!(cluster.run(&["cat", "vz:/a/b/file"]).stdout == noise(3_000_000));
        let said = cluster.fails(&["mount", "vz:/", &text(&mountpoint)]);
        assert!(said.contains("already mounted"), "{said}");
    });
    umount();
    checked.expect("checked above");
    wait_until("the mount is gone", || !mounts().contains("mount\\040point"));
    let said = cluster.fails(&["umount", &text(&mountpoint)]);
    assert!(said.contains("nothing is mounted"), "{said}");
}

#[test]
fn a_mountpoint_that_is_missing_or_not_empty_is_refused() {
    let cluster = Cluster::start(1);
    let missing = cluster.fails(&["mount", "vz:/", &text(&cluster.local("missing"))]);
    assert!(missing.contains("no such directory") && missing.contains("mkdir"), "{missing}");
    let full = cluster.local("full");
    fs::create_dir_all(full.join("something")).expect("made");
    let full = cluster.fails(&["mount", "vz:/", &text(&full)]);
    assert!(full.contains("not empty"), "{full}");
    let empty = cluster.local("empty");
    fs::create_dir(&empty).expect("made");
    let said = failed(cluster.run(&["mount", "vz:/", &text(&empty), "-o", "rainbow"]), 2);
    assert!(said.contains("rainbow"), "{said}");
    let said = cluster.fails(&["mount", "vz:/nothing", &text(&empty)]);
    assert!(said.contains("vz:/nothing") || said.contains("/nothing"), "{said}");
}

#[test]
fn a_mount_goes_on_while_the_metadata_service_is_restarted_under_it() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::start(1);
    let mountpoint = cluster.local("m");
    fs::create_dir(&mountpoint).expect("made");
    cluster.ok(&["mount", "vz:/", &text(&mountpoint)]);
    let checked = std::panic::catch_unwind(|| {
        fs::write(mountpoint.join("before"), noise(200_000)).expect("written");
        cluster.kill("meta1");
        cluster.up(&[]);
        assert!(fs::read(mountpoint.join("before")).expect("readable") == noise(200_000));
        fs::write(mountpoint.join("after"), noise(200_000)).expect("written");
        assert_eq!(cluster.ok(&["ls", "vz:/"]), "after\nbefore\n");
    });
    cluster.ok(&["umount", &text(&mountpoint)]);
    checked.expect("checked above");
}
