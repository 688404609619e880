//! Commands that are interrupted or killed: what they leave, and what the next one makes of it.

use crate::support::{Cluster, failed, noise_file, signal, spawn, text, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Child;
use vazao_testing::programs::WaitBounded;

fn names(directory: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    fs::read_dir(directory).expect("listed").map(|entry| name(entry.expect("an entry"))).collect()
}

fn interrupt(child: Child, with: Signal) -> String {
    signal(child.id(), with);
    // As a shell tells it of a program that a signal has ended.
    failed(child.output_bounded(), 128 + with.as_raw())
}

#[test]
fn psplit_removes_its_directories_when_it_is_interrupted() {
    let cluster = Cluster::start(1);
    let local = cluster.local("place");
    fs::create_dir(&local).expect("made");
    let places = ["vz:/", &text(&local)];
    for (mode, with) in [("generate", Signal::INT), ("split", Signal::TERM), ("read", Signal::HUP)] {
        let line = ["lab", "psplit", mode, places[0], places[1], "--total", "200M", "--repeat", "1000"];
        let child = spawn(cluster.command(&line));
        // In the middle: the volume's place has its files, the local one is next or has them too.
        wait_until("psplit works", || cluster.ok(&["ls", "-R", "vz:/"]).lines().count() > 2);
        let said = interrupt(child, with);
        assert!(said.contains("interrupted"), "{mode}: {said}");
        assert_eq!((cluster.ok(&["ls", "-a", "vz:/"]), names(&local)), (String::new(), vec![]), "{mode}");
    }
}

#[test]
fn bench_removes_its_directory_when_it_is_interrupted() {
    let cluster = Cluster::start(1);
    let child = spawn(cluster.command(&["lab", "bench", "vz:/", "--only", "listing"]));
    wait_until("the benchmark works", || cluster.ok(&["ls", "-R", "vz:/"]).lines().count() > 100);
    let said = interrupt(child, Signal::INT);
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(cluster.ok(&["ls", "-a", "vz:/"]), "");
}

#[test]
fn cp_that_is_interrupted_leaves_nothing_and_one_that_is_killed_what_the_next_one_removes() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 300_000_000);
    let small = noise_file(&cluster.local("small"), 100_000);
    let place = cluster.local("place");
    fs::create_dir(&place).expect("made");
    let local_copy = text(&place.join("copy"));
    cluster.ok(&["cp", &file, "vz:/source"]);
    let in_volume = || cluster.ok(&["ls", "-a", "vz:/"]);
    let has_part = |to: &str| {
        let there = if to.starts_with("vz:") { in_volume() } else { names(&place).join("\n") };
        there.contains(".part")
    };
    for (from, to) in [(file.as_str(), "vz:/copy"), ("vz:/source", &local_copy)] {
        let child = spawn(cluster.command(&["cp", from, to]));
        wait_until("the copy is under way", || has_part(to));
        let said = interrupt(child, Signal::INT);
        assert!(said.contains("interrupted"), "{said}");
        assert!(!has_part(to));

        let mut child = spawn(cluster.command(&["cp", from, to]));
        wait_until("the copy is under way", || has_part(to));
        signal(child.id(), Signal::KILL);
        child.wait_bounded();
        assert!(has_part(to), "a killed process removes nothing");
        cluster.ok(&["cp", &small, to]);
        assert!(!has_part(to));
    }
    assert_eq!((in_volume().as_str(), names(&place)), ("copy\nsource\n", vec!["copy".to_owned()]));
}
