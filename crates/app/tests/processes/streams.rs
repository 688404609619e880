//! Many streams at once, and clients and servers that are killed under them.

use crate::support::{Cluster, noise_file, signal, spawn, succeeded, wait_until};
use rustix::process::Signal;
use std::fs;
use vazao_testing::programs::WaitBounded;

#[test]
fn a_data_server_killed_under_32_streams_is_noticed_only_as_a_delay() {
    let cluster = Cluster::start(2);
    let line = [
        "lab",
        "psplit",
        "generate",
        "vz:/",
        "--threads",
        "32",
        "--total",
        "64M",
        "--block",
        "64K",
        "--repeat",
        "2",
    ];
    let child = spawn(cluster.command(&line));
    wait_until("the streams flow", || cluster.ok(&["ls", "-R", "vz:/"]).lines().count() > 32);
    cluster.kill("data1");
    cluster.up(&[]);
    // It compares every byte that it has written.
    let said = succeeded(child.output_bounded());
    assert!(said.contains("all bytes compared"), "{said}");
    let scrubbed = cluster.ok(&["scrub", "--rate", "0"]);
    assert!(scrubbed.contains("done"), "{scrubbed}");
}

#[test]
fn a_client_killed_with_dirty_data_leaves_nothing_that_hinders_others() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 200_000_000);
    let mut child = spawn(cluster.command(&["cp", &file, "vz:/file"]));
    wait_until("the copy is under way", || cluster.ok(&["ls", "-a", "vz:/"]).contains(".part"));
    signal(child.id(), Signal::KILL);
    child.wait_bounded();
    let names = cluster.ok(&["ls", "-a", "vz:/"]);
    assert!(!names.lines().any(|name| name == "file"), "no half file under its name: {names}");
    cluster.ok(&["cp", &file, "vz:/file"]);
    assert!(cluster.run(&["cat", "vz:/file"]).stdout == fs::read(file).expect("readable"));
    let scrubbed = cluster.ok(&["scrub", "--rate", "0"]);
    assert!(scrubbed.contains("done"), "what it left half-written is whole blocks: {scrubbed}");
}
