//! Daemons and commands end soon after they were asked to, whatever their peers do.

use crate::support::{Cluster, freeze, is_alive, noise_file, seconds, signal, spawn, text, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use vazao_testing::programs::WaitBounded;

/// They end within 5 s. This machine may be busy with something else, and what they waited for took 30 s and more.
const SOON_S: f64 = 15.0;

/// Asks a process to stop; seconds until it has.
fn stop(pid: u32, by: Signal) -> f64 {
    let ((), seconds) = seconds(|| {
        signal(pid, by);
        wait_until("it ends", || !is_alive(pid));
    });
    seconds
}

/// A node that had copied into the volume said goodbye to its metadata service for 30 s when that was gone.
#[test]
fn a_node_whose_metadata_service_is_gone_or_mute_stops_soon() {
    for by in [Signal::KILL, Signal::STOP] {
        let cluster = Cluster::start(1);
        let area = cluster.local("area");
        fs::create_dir(&area).expect("made");
        noise_file(&area.join("file"), 1_000_000);
        cluster.ok(&["area", "add", "a", &text(&area), "--dir", &text(&cluster.dir())]);
        wait_until("the area is known", || cluster.ok(&["area", "list"]).contains("data1"));
        cluster.ok(&["cp", "data1:/a/file", "vz:/file"]);
        let (meta, data) = (cluster.pid("meta1"), cluster.pid("data1"));
        signal(meta, by);
        let seconds = stop(data, Signal::TERM);
        if by == Signal::STOP {
            signal(meta, Signal::CONT);
        }
        assert!(seconds < SOON_S, "{by:?}: {seconds} s");
    }
}

/// Objects of removed files are taken away by a thread that waited 10 s for a data server.
#[test]
fn a_metadata_service_whose_data_server_is_mute_stops_soon() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let (meta, data) = (cluster.pid("meta1"), cluster.pid("data1"));
    freeze(data);
    cluster.ok(&["rm", "vz:/file"]);
    let seconds = stop(meta, Signal::TERM);
    signal(data, Signal::CONT);
    assert!(seconds < SOON_S, "{seconds} s");
}

/// The first Ctrl-C was looked at when the servers had answered, or their deadline had passed.
#[test]
fn a_copy_from_a_mute_server_ends_soon_after_ctrl_c() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 50_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let data = cluster.pid("data1");
    freeze(data);
    let copy = text(&cluster.local("copy"));
    let mut child = spawn(cluster.command(&["cp", "vz:/file", &copy]));
    wait_until("it has begun", || {
        let left = fs::read_dir(cluster.local("")).expect("listed").flatten();
        left.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().contains("copy"))
    });
    let ((), seconds) = seconds(|| {
        signal(child.id(), Signal::INT);
        assert!(!child.wait_bounded().success());
    });
    signal(data, Signal::CONT);
    assert!(seconds < SOON_S, "{seconds} s");
    let left = fs::read_dir(cluster.local("")).expect("listed").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("copy")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_mount_whose_metadata_service_is_mute_ends_soon_when_nothing_is_open() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: no /dev/fuse, or not root");
        return;
    }
    let cluster = Cluster::start(1);
    let mountpoint = cluster.local("mount");
    fs::create_dir(&mountpoint).expect("made");
    let child = spawn(cluster.command(&["mount", "--foreground", "vz:/", &text(&mountpoint)]));
    wait_until("it is mounted", || {
        fs::read_to_string("/proc/mounts").expect("readable").contains(&text(&mountpoint))
    });
    fs::write(mountpoint.join("file"), "bytes").expect("written");
    let meta = cluster.pid("meta1");
    freeze(meta);
    let seconds = stop(child.id(), Signal::TERM);
    signal(meta, Signal::CONT);
    assert!(seconds < SOON_S, "{seconds} s");
    child.output_bounded();
}
