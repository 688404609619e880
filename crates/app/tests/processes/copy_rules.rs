//! The options of copies that `vazao cp` carries out itself, in every pairing of places.

use crate::support::{self, Cluster, noise, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use vazao_testing::programs::WaitBounded;

/// A cluster whose node data2 exports `in`.
fn cluster() -> Cluster {
    let cluster = Cluster::start(2);
    let directory = cluster.local("in");
    fs::create_dir(&directory).expect("made");
    let (dir, directory) = (support::text(&cluster.dir()), support::text(&directory));
    cluster.ok(&["area", "add", "in", &directory, "--dir", &dir, "--node", "data2"]);
    cluster
}

fn local(cluster: &Cluster, name: &str) -> String {
    support::text(&cluster.local(name))
}

/// Contents of a file in any place.
fn contents(cluster: &Cluster, place: &str) -> Vec<u8> {
    match place.starts_with('/') {
        true => fs::read(place).expect("is there"),
        false => cluster.run(&["cat", place]).stdout,
    }
}

/// Pairs of places of which no daemon does the copy, as source and destination of a tree.
fn pairings(cluster: &Cluster) -> Vec<(String, String)> {
    let (here, back) = (local(cluster, "tree"), local(cluster, "back"));
    vec![
        (here.clone(), "data2:/in/t1".to_owned()),
        ("data2:/in/t1".to_owned(), back),
        (here.clone(), "vz:/t2".to_owned()),
        ("vz:/t2".to_owned(), "vz:/t3".to_owned()),
        ("vz:/t3".to_owned(), local(cluster, "back2")),
        (here, local(cluster, "back3")),
    ]
}

#[test]
fn every_pairing_keeps_to_filters_dry_runs_checksums_and_what_is_there() {
    let cluster = cluster();
    let tree = cluster.local("tree");
    fs::create_dir_all(tree.join("deep")).expect("made");
    let bytes = noise(2_500_000);
    fs::write(tree.join("deep/big"), &bytes).expect("written");
    fs::write(tree.join("a"), "first").expect("written");
    fs::write(tree.join("left.log"), "log").expect("written");
    for (from, to) in pairings(&cluster) {
        let planned = cluster.ok(&["cp", "-r", "--dry-run", "--exclude", "*.log", &from, &to]);
        assert!(planned.contains(&format!("{from}/a → {to}/a")) && !planned.contains("left"), "{planned}");
        assert_eq!(planned.lines().count(), 2, "{planned}");
        match to.starts_with('/') {
            true => assert!(!PathBuf::from(&to).exists()),
            false => drop(cluster.fails(&["ls", &to])),
        }
        cluster.ok(&["cp", "-rp", "--checksum", "--exclude", "*.log", &from, &to]);
        assert!(contents(&cluster, &format!("{to}/deep/big")) == bytes, "{from} to {to}");
        // What is there stays as the rule says, and the bytes that moved say whether it did.
        for (rule, moved) in [
            (&["--overwrite", "never"][..], 0),
            (&["--overwrite", "newer"], 0),
            (&["--overwrite", "different"], 0),
            (&["--resume"], 0),
            (&["--include", "a"], 5),
        ] {
            let (from, to) = (format!("{from}/a"), format!("{to}/a"));
            let arguments = [&["cp", "-rp", "--json"][..], rule, &[from.as_str(), &to]].concat();
            let said: serde_json::Value = serde_json::from_str(&cluster.ok(&arguments)).expect("JSON");
            assert_eq!(said["bytes"], moved, "{arguments:?}: {said}");
        }
    }
}

#[test]
fn what_a_killed_copy_left_is_gone_on_with() {
    let cluster = cluster();
    let bytes = noise(24_000_000);
    fs::create_dir(cluster.local("from")).expect("made");
    fs::write(cluster.local("from/f"), &bytes).expect("written");
    let here = local(&cluster, "from/f");
    for (from, to, directory) in [
        (here.as_str(), "data2:/in/f".to_owned(), cluster.local("in")),
        ("data2:/in/f", local(&cluster, "f"), cluster.local("")),
    ] {
        let arguments = ["cp", "--resume", "--bwlimit", "16M", from, &to];
        let mut child = support::spawn(cluster.command(&arguments));
        let part = || -> Option<PathBuf> {
            let names = fs::read_dir(&directory).expect("listed").map(|entry| entry.expect("one").path());
            names.into_iter().find(|path| support::text(path).ends_with(".part"))
        };
        let have = || part().and_then(|part| fs::metadata(part).ok()).map_or(0, |there| there.len());
        wait_until("half of it is there", || have() > 12_000_000);
        support::signal(child.id(), Signal::KILL);
        child.wait_bounded();
        let json = cluster.ok(&["cp", "--resume", "--json", "--checksum", from, &to]);
        let said: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert!(said["bytes"].as_u64().is_some_and(|moved| moved <= 13_100_000), "{said}");
        assert!(contents(&cluster, &to) == bytes, "{from} to {to}");
        assert!(part().is_none());
    }
}

#[test]
fn limits_of_rate_and_time_hold_and_what_means_nothing_is_refused() {
    let cluster = cluster();
    let here = support::noise_file(&cluster.local("f"), 3_000_000);
    let slow = ["cp", "--bwlimit", "1M", "--timeout", "1s", &here, "data2:/in/f"];
    let (said, seconds) = support::seconds(|| cluster.fails(&slow));
    assert!(said.contains("1000 ms") && seconds < 30.0, "{said}");
    assert!(!cluster.local("in/f").exists());
    for (option, word) in [("--detach", "area add"), ("--method=rpc", "between nodes")] {
        let said = support::failed(cluster.run(&["cp", option, &here, "data2:/in/f"]), 2);
        assert!(said.contains(word), "{said}");
    }
    let said = support::failed(cluster.run(&["cp", "--bwlimit", "fast", &here, "vz:/f"]), 2);
    assert!(said.contains("fast"), "{said}");
}
