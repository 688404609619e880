//! A lost target and an empty directory in its place: what is refused, and that all copies are there again.

use crate::support::{Cluster, noise, wait_until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vazao_testing::waiting::wait_until_within;

/// Each copy of a group is synced before it counts, and other tests use the disk.
const WHOLE_MAX: Duration = Duration::from_secs(300);

fn status(cluster: &Cluster) -> Value {
    serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON")
}

/// The target of a node, and its directory.
fn target_of(cluster: &Cluster, node: &str) -> (String, PathBuf) {
    let status = status(cluster);
    let mut targets = status["targets"].as_array().expect("a list").iter();
    let found = targets.find(|target| target["node"] == node).expect("it has one");
    let directory = found["directory"].as_str().expect("a path");
    (format!("t{}", found["id"]), PathBuf::from(directory))
}

fn wait_until_whole(cluster: &Cluster) {
    wait_until_within("all copies are there", WHOLE_MAX, || {
        let status = status(cluster);
        let serve = |target: &Value| target["state"] == "serving";
        status["copies"]["short"] == 0
            && status["targets"].as_array().is_some_and(|all| all.iter().all(serve))
    });
}

/// Waits until the loss of a server is noticed. One that was killed counts for a second or two, also where it has
/// started again by then: what is killed next would be the only one that has everything.
fn wait_until_missed(cluster: &Cluster) {
    wait_until("copies are missing", || status(cluster)["copies"]["short"] != 0);
}

/// Lengths of the objects of placement groups in a target's directory.
fn bytes_of_groups(directory: &Path) -> u64 {
    let entries = |path: &Path| -> Vec<PathBuf> {
        fs::read_dir(path).expect("readable").map(|entry| entry.expect("an entry").path()).collect()
    };
    let leaves = entries(&directory.join("groups")).into_iter().flat_map(|group| entries(&group));
    let files = leaves.flat_map(|leaf| entries(&leaf));
    let is_data = |path: &PathBuf| path.extension().is_some_and(|it| it == "data");
    files.filter(is_data).map(|path| path.metadata().expect("it is there").len()).sum()
}

/// Waits until the bytes that have one copy without the target are told as the primaries of its groups count them.
fn see_it_lost(cluster: &Cluster, id: &str, directory: &Path) {
    let bytes = bytes_of_groups(directory);
    assert!(bytes > 0);
    wait_until("what is lost is told", || {
        let status = status(cluster);
        let lost = &status["copies"]["lost"][0];
        lost["target"] == id && lost["catches_up"] == false && lost["bytes"] == bytes
    });
    let said = cluster.run(&["status"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains(" ago: ") && said.contains("have 1 of 2 copies"), "{said}");
    let said = cluster.ok(&["top", "-n", "1", "-i", "1"]);
    assert!(said.starts_with(&format!("{id} lost ")) && said.contains("have 1 of 2 copies"), "{said}");
}

/// Waits until all copies are there; meanwhile the target is shown to catch up, with the bytes that are left.
fn see_it_catch_up(cluster: &Cluster, id: &str) {
    let mut seen = Vec::new();
    wait_until_within("all copies are there", WHOLE_MAX, || {
        let status = status(cluster);
        let lost = status["copies"]["lost"].as_array().expect("a list");
        seen.extend(lost.iter().filter(|it| it["target"] == id && it["catches_up"] == true).cloned());
        status["copies"]["short"] == 0
    });
    let is_told =
        |it: &&Value| it["bytes"].as_u64() >= it["left_bytes"].as_u64() && it["left_bytes"].is_u64();
    assert!(seen.iter().any(|it| is_told(&it) && it["bytes"].as_u64() > Some(0)), "{seen:?}");
    assert!(status(cluster)["copies"]["lost"].as_array().is_some_and(Vec::is_empty));
}

fn write(cluster: &Cluster, names: &[&str]) {
    for (index, name) in names.iter().enumerate() {
        let file = cluster.local("file");
        fs::write(&file, noise(4_000_000 + 300_000 * index)).expect("written");
        cluster.ok(&["cp", &file.display().to_string(), &format!("vz:/{name}")]);
    }
}

#[track_caller]
fn check(cluster: &Cluster, names: &[&str]) {
    for (index, name) in names.iter().enumerate() {
        let output = cluster.run(&["cat", &format!("vz:/{name}")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && output.stdout == noise(4_000_000 + 300_000 * index),
            "{name}: {said}"
        );
    }
}

fn empty(path: &Path) -> String {
    fs::create_dir_all(path).expect("made");
    path.display().to_string()
}

/// The lost disk's only copy of a file would have passed for a hole, and an empty disk for a full one.
#[test]
fn a_lost_target_is_replaced_by_an_empty_directory_and_its_copies_are_made_again() {
    let cluster = Cluster::start_on_own_ports(3);
    cluster.up(&["--copies", "2"]);
    let dir = cluster.dir().display().to_string();
    let names = ["a", "b", "c", "d"];
    write(&cluster, &names);
    let (id, lost) = target_of(&cluster, "data2");
    let new = empty(&cluster.local("new"));
    let replace = |target: &str, directory: &str, node: &str, more: &[&str]| {
        let arguments = ["target", "replace", target, directory, "--dir", &dir, "--node", node];
        cluster.run(&[&arguments, more].concat())
    };
    let refused = |target: &str, directory: &str, node: &str, words: &[&str]| {
        let said = crate::support::failed(replace(target, directory, node, &[]), 1);
        words.iter().for_each(|word| assert!(said.contains(word), "{word}: {said}"));
        assert!(!cluster.node(node).join("targets.toml").exists(), "nothing has changed");
    };
    refused(&id, &new, "data2", &["is there", "not lost"]);
    cluster.kill("data2");
    refused(&id, &new, "data2", &["is there", "not lost"]);
    see_it_lost(&cluster, &id, &lost);
    let kept = cluster.local("kept");
    fs::rename(&lost, &kept).expect("moved away");
    refused("t99", &new, "data2", &["t99", "vazao status"]);
    refused(&id, &new, "data1", &["is of node data2", "--node"]);
    let other = target_of(&cluster, "data1").1.display().to_string();
    refused(&id, &other, "data2", &["holds target", "give an empty directory"]);
    refused(&id, &kept.display().to_string(), "data2", &["holds", "give an empty directory"]);
    let letter = cluster.local("letters");
    empty(&letter);
    fs::write(letter.join("letter"), "x").expect("written");
    refused(&id, &letter.display().to_string(), "data2", &["holds letter", "give an empty directory"]);
    // All of its files lie elsewhere, too.
    let listed = cluster.ok(&["target", "files", &id]);
    assert!(
        listed.lines().count() > 0 && listed.lines().all(|line| line.starts_with("1 other copy ")),
        "{listed}"
    );
    assert_eq!(cluster.ok(&["target", "files", &id, "--lost"]), "");
    let said = crate::support::succeeded(replace(&id, &new, "data2", &["--json"]));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&said["directory"], &said["older_groups"]), (&new.as_str().into(), &0.into()));
    assert!(said["groups"].as_u64().is_some_and(|groups| groups > 64), "{said}");
    cluster.up(&[]);
    see_it_catch_up(&cluster, &id);
    wait_until_whole(&cluster);
    let at = target_of(&cluster, "data2");
    assert_eq!((at.0.as_str(), at.1.as_path()), (id.as_str(), Path::new(&new)), "the same number elsewhere");
    check(&cluster, &names);
    cluster.kill("data1");
    check(&cluster, &names);
    wait_until_missed(&cluster);
    cluster.up(&[]);
    wait_until_whole(&cluster);
    cluster.kill("data3");
    check(&cluster, &names);
    // The lost directory is back.
    cluster.up(&[]);
    fs::rename(&kept, &lost).expect("moved back");
    let said =
        cluster.fails(&["target", "add", &lost.display().to_string(), "--dir", &dir, "--node", "data2"]);
    assert!(said.contains("took its place") && said.contains("empty it"), "{said}");
    wait_until_whole(&cluster);
    check(&cluster, &names);
}

/// Files of one copy on it are lost, and say so: no consent, no replacement; and no zeros afterwards.
#[test]
fn a_running_node_takes_it_in_and_files_with_their_only_copy_there_fail_to_be_read() {
    let cluster = Cluster::start_on_own_ports(3);
    cluster.up(&["--copies", "2"]);
    let dir = cluster.dir().display().to_string();
    write(&cluster, &["a", "b"]);
    cluster.ok(&["mkdir", "vz:/one"]);
    cluster.ok(&["layout", "vz:/one", "--copies", "1"]);
    write(&cluster, &["one/a"]);
    let (id, lost) = target_of(&cluster, "data2");
    fs::remove_dir_all(&lost).expect("removed");
    wait_until("it is noticed", || status(&cluster).to_string().contains("\"failed\""));
    let again = empty(&lost);
    let replace = ["target", "replace", &id, &again, "--dir", &dir, "--node", "data2"];
    let said = cluster.fails(&replace);
    assert!(said.contains("1 file has no good copy elsewhere"), "{said}");
    assert!(said.contains("--yes-lose-last-copies") && said.contains("--lost"), "{said}");
    assert_eq!(fs::read_dir(&lost).expect("it is there").count(), 0, "nothing has changed");
    assert_eq!(cluster.ok(&["target", "files", &id, "--lost"]), "vz:/one/a\n");
    let said = cluster.ok(&[&replace[..], &["--yes-lose-last-copies"]].concat());
    assert!(said.contains("are made again") && said.contains("vazao status"), "{said}");
    wait_until_whole(&cluster);
    check(&cluster, &["a", "b"]);
    let said = cluster.fails(&["cat", "vz:/one/a"]);
    assert!(said.contains("is missing on") && said.contains("restore the file"), "{said}");
    // Whoever has a copy writes it again; the others go on without the server that had one before.
    write(&cluster, &["one/a"]);
    check(&cluster, &["one/a"]);
    cluster.kill("data3");
    check(&cluster, &["a", "b"]);
}
