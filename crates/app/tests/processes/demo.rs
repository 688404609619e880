//! `vazao demo`, small: it has to pass, to leave nothing, and to notice an interruption.

use crate::support::{VAZAO, failed, noise, signal, spawn, succeeded, text, wait_until};
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use vazao_testing::programs::{RunBounded, WaitBounded};

#[test]
fn the_demo_compares_measures_and_leaves_nothing_behind() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).expect("made");
    fs::write(tree.join("a b"), noise(50_000)).expect("written");
    let temporary = scratch.path().join("tmp");
    fs::create_dir(&temporary).expect("made");
    let mut command = Command::new(VAZAO);
    command.args(["demo", "--generate", "8M", &text(&tree)]).env("TMPDIR", &temporary);
    let said = succeeded(command.run_bounded());
    for expected in
        ["the library: 2 files, all checksums equal", "loopback TCP", "SLOT", "library, out ", "OF TCP"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(fs::read_dir(&temporary).expect("listed").count(), 0);
}

#[test]
fn an_interrupted_demo_cleans_up_too() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(VAZAO);
    command.args(["demo", "--generate", "300M"]).env("TMPDIR", scratch.path());
    let child = spawn(command);
    let cluster = scratch.path().join(format!("vazao-demo-{}/cluster/client.toml", child.id()));
    wait_until("the cluster is being started", || cluster.exists());
    signal(child.id(), Signal::TERM);
    failed(child.output_bounded(), 143);
    assert_eq!(fs::read_dir(scratch.path()).expect("listed").count(), 0);
}
