//! A data server with several disks: one more while it runs, and what is refused.

use crate::support::{Cluster, noise_file};
use std::fs;

fn targets(cluster: &Cluster) -> usize {
    let status: serde_json::Value = serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON");
    status["targets"].as_array().expect("a list").len()
}

#[test]
fn a_target_added_to_a_running_server_takes_new_files_and_is_there_after_a_restart() {
    let cluster = Cluster::start(1);
    let disk = cluster.local("disk2");
    fs::create_dir(&disk).expect("created");
    let (dir, disk) = (cluster.dir().display().to_string(), disk.display().to_string());
    assert_eq!(targets(&cluster), 1);
    let said = cluster.ok(&["target", "add", &disk, "--dir", &dir]);
    assert!(said.contains("is a target of node data1"), "{said}");
    assert_eq!(targets(&cluster), 2);
    let file = noise_file(&cluster.local("file"), 3_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let layout = cluster.ok(&["layout", "vz:/file"]);
    assert!(layout.contains("t1") && layout.contains("t2"), "{layout}");
    cluster.down();
    cluster.up(&[]);
    assert_eq!(targets(&cluster), 2);
    let output = cluster.run(&["cat", "vz:/file"]);
    assert!(output.stdout == fs::read(file).expect("readable"));
    let twice = cluster.fails(&["target", "add", &disk, "--dir", &dir]);
    assert!(twice.contains("already"), "{twice}");
}

#[test]
fn what_cannot_be_a_target_is_refused_with_a_reason() {
    let cluster = Cluster::start(1);
    let dir = cluster.dir().display().to_string();
    let file = noise_file(&cluster.local("file"), 10);
    assert!(cluster.fails(&["target", "add", &file, "--dir", &dir]).contains("not a directory"));
    let missing = cluster.local("missing").display().to_string();
    assert!(cluster.fails(&["target", "add", &missing, "--dir", &dir]).contains("missing"));
    let full = cluster.local("full");
    fs::create_dir(&full).expect("created");
    fs::write(full.join("somebody's file"), "x").expect("written");
    let said = cluster.fails(&["target", "add", &full.display().to_string(), "--dir", &dir]);
    assert!(said.contains("somebody's file"), "{said}");
    let meta = ["target", "add", &dir, "--dir", &dir, "--node", "meta1"];
    assert!(cluster.fails(&meta).contains("no data role"));
    assert_eq!(targets(&cluster), 1);
}

/// "Restore its files from copies" was the remedy for a lost disk, and no command told which files these were.
#[test]
fn the_files_on_a_target_are_listed_while_its_server_is_dead() {
    let cluster = Cluster::start(2);
    let size = 3_000_000;
    let wide = noise_file(&cluster.local("wide"), size);
    let small = noise_file(&cluster.local("small"), 100);
    cluster.ok(&["mkdir", "vz:/d"]);
    cluster.ok(&["cp", &wide, "vz:/d/wide"]);
    cluster.ok(&["ln", "vz:/d/wide", "vz:/second name"]);
    cluster.ok(&["cp", &small, "vz:/small"]);
    cluster.ok(&["mkdir", "vz:/one"]);
    cluster.ok(&["layout", "vz:/one", "--width", "1"]);
    cluster.ok(&["cp", &wide, "vz:/one/narrow"]);
    let of_narrow = cluster.ok(&["layout", "vz:/one/narrow"]);
    let (with, without) = if of_narrow.contains(" t1 ") { ("t1", "t2") } else { ("t2", "t1") };
    let status: serde_json::Value = serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON");
    let targets = status["targets"].as_array().expect("a list");
    let on = targets.iter().find(|target| format!("t{}", target["id"]) == with).expect("it is there");
    cluster.kill(on["node"].as_str().expect("a name"));
    let lines = |target| -> Vec<String> {
        let listed = cluster.ok(&["target", "files", target, "--lost"]);
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(with), ["vz:/d/wide", "vz:/one/narrow", "vz:/second name"]);
    assert_eq!(lines(without), ["vz:/d/wide", "vz:/second name"]);
    let told = cluster.ok(&["target", "files", without]);
    assert!(told.lines().all(|line| line.starts_with("only copy        vz:/")), "{told}");
    let bytes = |target| -> u64 {
        let listed = cluster.ok(&["target", "files", target, "--json"]);
        let found = listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let mut found = found.filter(|file| file["path"] == "vz:/d/wide");
        found.next().and_then(|file| file["target_bytes"].as_u64()).expect("a number")
    };
    assert_eq!(bytes("t1") + bytes("t2"), size as u64);
    assert!(cluster.fails(&["target", "files", "t9"]).contains("vazao status"));
}
