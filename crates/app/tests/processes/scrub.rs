//! `vazao scrub` on a running cluster: sound, damaged, slowed down, stopped.

use crate::support::{self, Cluster, noise_file};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The data files below a directory.
fn data_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(data_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "data") {
            found.push(path);
        }
    }
    found
}

fn report(cluster: &Cluster) -> serde_json::Value {
    let output = cluster.run(&["scrub", "--report", "--json"]);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn damage_is_found_named_and_counted_and_a_sound_volume_passes() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 3_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    assert_eq!(report(&cluster)["targets"][0]["state"], "never");
    let said = cluster.ok(&["scrub", "--rate", "0"]);
    assert!(said.contains("t1") && said.contains("t2") && said.contains("100%"), "{said}");
    let damaged = data_files(&cluster.node("data1")).remove(0);
    let data = fs::OpenOptions::new().read(true).write(true).open(damaged).expect("opens");
    let mut byte = [0];
    data.read_exact_at(&mut byte, 70_000).expect("is there");
    data.write_all_at(&[byte[0] ^ 1], 70_000).expect("written");
    let output = cluster.run(&["scrub", "--rate", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("does not match its checksum") && said.contains("byte 65536"), "{said}");
    let report = report(&cluster);
    // Which of the targets is on data1 depends on who registered first.
    let damaged: Vec<u64> =
        (0..2).map(|n| report["targets"][n]["damaged"].as_u64().expect("a number")).collect();
    assert_eq!(damaged.iter().sum::<u64>(), 1, "{report}");
}

#[test]
fn a_slow_scrub_goes_on_in_the_background_until_it_is_stopped() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 8_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    cluster.ok(&["scrub", "--background", "--rate", "1K"]);
    assert_eq!(report(&cluster)["targets"][0]["state"], "running");
    let output = cluster.run(&["cat", "vz:/file"]);
    assert!(output.stdout == fs::read(&file).expect("readable"), "reading goes on meanwhile");
    cluster.ok(&["scrub", "--stop"]);
    support::wait_until("it has stopped", || report(&cluster)["targets"][0]["state"] == "stopped");
    assert!(cluster.fails(&["scrub", "t9"]).contains("vazao status"));
}

/// A cluster in which each new file has two copies.
fn cluster_with_copies() -> Cluster {
    let cluster = Cluster::unstarted();
    cluster.up(&["--data-servers", "3", "--copies", "2"]);
    cluster
}

/// Changes a byte of a file on a disk.
fn rot(path: &Path, at: u64) {
    let data = fs::OpenOptions::new().read(true).write(true).open(path).expect("opens");
    let mut byte = [0];
    data.read_exact_at(&mut byte, at).expect("is there");
    data.write_all_at(&[byte[0] ^ 1], at).expect("written");
}

/// The copies of the only object of a file: the nodes' data files.
fn copies(cluster: &Cluster) -> Vec<PathBuf> {
    let found =
        (1..=3).flat_map(|node| data_files(&cluster.node(&format!("data{node}")))).collect::<Vec<_>>();
    assert_eq!(found.len(), 2, "{found:?}");
    found
}

#[test]
fn a_scrub_repairs_damage_of_one_copy_from_the_other_and_status_counts_it() {
    let cluster = cluster_with_copies();
    let file = noise_file(&cluster.local("file"), 500_000);
    cluster.ok(&["mkdir", "vz:/d"]);
    cluster.ok(&["layout", "vz:/d", "--width", "1"]);
    cluster.ok(&["cp", &file, "vz:/d/file"]);
    let copies = copies(&cluster);
    // Other blocks of each, also the last one, which is short.
    rot(&copies[0], 200_000);
    rot(&copies[1], 10);
    rot(&copies[1], 499_999);
    let said = cluster.ok(&["scrub", "--rate", "0"]);
    assert!(said.contains("REPAIRED") && said.contains("repaired from another copy"), "{said}");
    assert!(
        copies.iter().all(|copy| fs::read(copy).expect("is there") == fs::read(&file).expect("is there"))
    );
    support::wait_until("status says so", || cluster.ok(&["status"]).contains("repaired from a copy: 3"));
    // Of a block that is damaged in both copies none is good.
    copies.iter().for_each(|copy| rot(copy, 300_000));
    let output = cluster.run(&["scrub", "--rate", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("restore the file from a copy"), "{said}");
}

fn json(output: &std::process::Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn damage_of_one_copy_is_repaired_by_a_scrub_and_by_a_comparison_of_copies() {
    let cluster = cluster_with_copies();
    let file = noise_file(&cluster.local("file"), 500_000);
    cluster.ok(&["mkdir", "vz:/d"]);
    cluster.ok(&["layout", "vz:/d", "--width", "1"]);
    cluster.ok(&["cp", &file, "vz:/d/file"]);
    let said = cluster.ok(&["scrub", "--compare", "vz:/d"]);
    assert!(said.contains("1 object,") && said.contains("all copies are equal"), "{said}");
    let copies = copies(&cluster);
    // Other blocks of each, also the last one, which is short.
    rot(&copies[0], 70_000);
    rot(&copies[1], 10);
    rot(&copies[1], 499_999);
    let output = cluster.run(&["scrub", "--compare", "--rate", "0", "vz:/d/file", "--json"]);
    let found = json(&output);
    assert_eq!(output.status.code(), Some(0), "{found}");
    assert_eq!(
        (&found["damaged"], &found["repaired"], &found["equal"]),
        (&3.into(), &3.into(), &true.into()),
        "{found}"
    );
    assert_eq!(found["differences"][0]["path"], "vz:/d/file");
    assert!(
        copies.iter().all(|copy| fs::read(copy).expect("is there") == fs::read(&file).expect("is there"))
    );
    let said = cluster.ok(&["scrub", "--compare"]);
    assert!(said.ends_with("all copies are equal\n"), "{said}");
    // What a scrub of the disks finds is repaired as well.
    rot(&copies[0], 200_000);
    let said = cluster.ok(&["scrub", "--rate", "0"]);
    assert!(said.contains("repaired from another copy"), "{said}");
    assert!(fs::read(&copies[0]).expect("is there") == fs::read(&file).expect("is there"));
    support::wait_until("status says so", || cluster.ok(&["status"]).contains("repaired from a copy: 4"));
    // Of both copies of a block none is good.
    copies.iter().for_each(|copy| rot(copy, 300_000));
    let output = cluster.run(&["scrub", "--compare", "--json"]);
    let found = json(&output);
    assert_eq!(
        (output.status.code(), &found["damaged"], &found["repaired"]),
        (Some(1), &2.into(), &0.into()),
        "{found}"
    );
}

#[test]
fn copies_that_differ_are_reported_and_made_equal_only_where_that_is_asked_for() {
    let cluster = cluster_with_copies();
    let file = noise_file(&cluster.local("file"), 500_000);
    cluster.ok(&["mkdir", "vz:/d"]);
    cluster.ok(&["layout", "vz:/d", "--width", "1"]);
    cluster.ok(&["cp", &file, "vz:/d/file"]);
    let copies = copies(&cluster);
    // A block and its checksum from elsewhere in the file: nothing that a checksum could tell.
    let bytes = fs::read(&copies[1]).expect("is there");
    let write = |path: &Path, bytes: &[u8], at: u64| {
        let file = fs::OpenOptions::new().write(true).open(path).expect("opens");
        file.write_all_at(bytes, at).expect("written");
    };
    let sums = copies[1].with_extension("sums");
    let entry = fs::read(&sums).expect("is there")[128 + 4..128 + 8].to_vec();
    write(&copies[1], &bytes[65_536..2 * 65_536], 0);
    write(&sums, &entry, 128);
    let output = cluster.run(&["scrub", "--compare", "vz:/d", "--json"]);
    let found = json(&output);
    assert_eq!(
        (output.status.code(), &found["differing"], &found["repaired"]),
        (Some(1), &1.into(), &0.into()),
        "{found}"
    );
    assert_eq!((&found["equal"], &found["differences"][0]["what"]), (&false.into(), &"differs".into()));
    let output = cluster.run(&["scrub", "--compare", "vz:/d", "--repair"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("replaced by the primary's"), "{said}");
    assert!(cluster.ok(&["scrub", "--compare", "vz:/d"]).ends_with("all copies are equal\n"));
    // Whichever of the two leads.
    assert!(fs::read(&copies[0]).expect("is there") == fs::read(&copies[1]).expect("is there"));
    // A copy that lags passed for equal, though nothing was compared with it.
    let mut nodes = (1..=3).map(|node| format!("data{node}"));
    let holder = nodes.find(|node| copies[1].starts_with(cluster.node(node))).expect("one has it");
    cluster.kill(&holder);
    support::wait_until("its copy lags", || {
        let output = cluster.run(&["scrub", "--compare", "vz:/d", "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let found = json(&output);
        assert_eq!(found["equal"], false);
        found["lagging"] != serde_json::json!([]) && found["failed"] == 0
    });
}

/// The server that led first removed what its disk had lost from the other one, too.
#[test]
fn what_is_gone_from_a_disk_while_no_server_runs_comes_back_from_the_other_copy() {
    let cluster = cluster_with_copies();
    let file = noise_file(&cluster.local("file"), 500_000);
    cluster.ok(&["mkdir", "vz:/d"]);
    cluster.ok(&["layout", "vz:/d", "--width", "1"]);
    cluster.ok(&["cp", &file, "vz:/d/file"]);
    let copies = copies(&cluster);
    let take = |copy: &Path| {
        fs::remove_file(copy).expect("is there");
        fs::remove_file(copy.with_extension("sums")).expect("is there");
    };
    let all_are_there = || cluster.ok(&["status"]).contains("all copies are there");
    for copy in &copies {
        cluster.down();
        take(copy);
        cluster.up(&[]);
        assert!(cluster.run(&["cat", "vz:/d/file"]).stdout == fs::read(&file).expect("is there"));
        support::wait_until("all copies are there", all_are_there);
        assert!(cluster.ok(&["scrub", "--compare"]).ends_with("all copies are equal\n"));
        assert!(
            copies.iter().all(|copy| fs::read(copy).expect("is there") == fs::read(&file).expect("is there"))
        );
    }
    // Nothing is left of it.
    cluster.down();
    copies.iter().for_each(|copy| take(copy));
    cluster.up(&[]);
    support::wait_until("all copies are there", all_are_there);
    let output = cluster.run(&["scrub", "--compare", "--json"]);
    let found = json(&output);
    assert_eq!(
        (output.status.code(), &found["missing"], &found["equal"]),
        (Some(1), &1.into(), &false.into())
    );
    assert_eq!(found["differences"][0]["what"], "lost");
    support::wait_until("status says so", || cluster.ok(&["status"]).contains("lacks 1 object of files"));
    cluster.ok(&["rm", "vz:/d/file"]);
    assert!(cluster.ok(&["scrub", "--compare"]).contains("there are no copies"));
}

#[test]
fn what_cannot_be_compared_is_said_in_words() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 500_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let said = cluster.ok(&["scrub", "--compare"]);
    assert!(said.contains("1 object with one copy: nothing to compare"), "{said}");
    let said = cluster.fails(&["scrub", "--compare", "vz:/none"]);
    assert!(said.contains("vz:/none"), "{said}");
    let said = support::failed(cluster.run(&["scrub", "--compare", "t1"]), 2);
    assert!(said.contains("vz:"), "{said}");
    let said = support::failed(cluster.run(&["scrub", "--repair"]), 2);
    assert!(said.contains("--compare"), "{said}");
    let said = support::failed(cluster.run(&["scrub", "--compare", "--report"]), 2);
    assert!(said.contains("--report"), "{said}");
}
