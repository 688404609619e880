//! `vazao cp`: what goes in comes out, and what is interrupted leaves no half file.

use crate::support::{Cluster, failed, noise, noise_file, signal, spawn, text, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use vazao_testing::programs::{RunBounded, WaitBounded};

fn same_trees(one: &Path, other: &Path) {
    let output = Command::new("diff").args(["-r", "--no-dereference"]).args([one, other]).run_bounded();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_tree_goes_in_and_comes_out_as_it_was() {
    let cluster = Cluster::start(3);
    let tree = cluster.local("tree");
    fs::create_dir_all(tree.join("deep/er/and deeper")).expect("made");
    fs::create_dir(tree.join("empty directory")).expect("made");
    for (name, length) in
        [("empty", 0), ("small", 100), ("inline", 16_384), ("over", 16_385), ("deep/big", 9_000_001)]
    {
        fs::write(tree.join(name), noise(length)).expect("written");
    }
    symlink("../big", tree.join("deep/er/link")).expect("linked");
    symlink("/nowhere", tree.join("dangling")).expect("linked");
    fs::set_permissions(tree.join("small"), fs::Permissions::from_mode(0o751)).expect("set");
    fs::set_permissions(tree.join("deep/er"), fs::Permissions::from_mode(0o555)).expect("set");
    cluster.ok(&["cp", "-rp", &text(&tree), "vz:/"]);
    cluster.ok(&["cp", "-rp", "vz:/tree", "vz:/again"]);
    let back = cluster.local("back");
    cluster.ok(&["cp", "-rp", "vz:/again", &text(&back)]);
    same_trees(&tree, &back);
    for name in ["small", "deep/er", "deep/big"] {
        let [was, is] = [&tree, &back].map(|root| fs::metadata(root.join(name)).expect("there"));
        assert_eq!(
            (was.mode(), was.mtime(), was.mtime_nsec()),
            (is.mode(), is.mtime(), is.mtime_nsec()),
            "{name}"
        );
    }
}

#[test]
fn holes_stay_holes_on_both_ways() {
    let cluster = Cluster::start(2);
    let sparse = cluster.local("sparse");
    let file = File::create(&sparse).expect("created");
    file.write_all_at(&noise(70_000), 50_000_000).expect("written");
    file.set_len(200_000_000).expect("extended");
    cluster.ok(&["cp", &text(&sparse), "vz:/sparse"]);
    let stat: serde_json::Value =
        serde_json::from_str(&cluster.ok(&["stat", "--json", "vz:/sparse"])).expect("JSON");
    assert_eq!(stat["size"], 200_000_000);
    let back = cluster.local("back");
    cluster.ok(&["cp", "vz:/sparse", &text(&back)]);
    same_trees(&sparse, &back);
    let blocks = cluster.dir().join("nodes");
    let output = Command::new("du").args(["-sk"]).arg(&blocks).run_bounded();
    let kib = String::from_utf8_lossy(&output.stdout).split('\t').next().and_then(|n| n.parse::<u64>().ok());
    assert!(kib.is_some_and(|kib| kib < 100_000), "{kib:?} KiB on disk");
}

#[test]
fn destinations_mean_what_they_mean_to_cp() {
    let cluster = Cluster::start(1);
    let (a, b) = (noise_file(&cluster.local("a"), 1000), noise_file(&cluster.local("b"), 2000));
    cluster.ok(&["mkdir", "vz:/d"]);
    cluster.ok(&["cp", &a, &b, "vz:/d"]);
    cluster.ok(&["cp", &a, "vz:/d/new-name"]);
    assert_eq!(cluster.ok(&["ls", "vz:/d"]), "a\nb\nnew-name\n");
    assert!(cluster.fails(&["cp", &a, &b, "vz:/nothing"]).contains("several sources"));
    assert!(cluster.fails(&["cp", &a, "vz:/nothing/"]).contains("no such directory"));
    assert!(cluster.fails(&["cp", "vz:/d", "vz:/e"]).contains("-r"));
    assert!(cluster.fails(&["cp", "vz:/d/a", "vz:/d/a"]).contains("same file"));
    assert!(cluster.fails(&["cp", "-r", "vz:/d", "vz:/d/inside"]).contains("into itself"));
    assert!(cluster.fails(&["cp", "-r", "vz:/d", "vz:/d/a"]).contains("not a directory"));
    cluster.ok(&["cp", "-r", "vz:/d", "vz:/e"]);
    cluster.ok(&["cp", "-r", "vz:/d", "vz:/e"]);
    assert_eq!(cluster.ok(&["ls", "vz:/e"]), "a\nb\nd\nnew-name\n");
    let said = cluster.fails(&["cp", &a, "/nonexistent/x"]);
    assert!(said.contains("/nonexistent"), "{said}");
    assert_eq!(
        fs::read_dir(cluster.local(""))
            .expect("listed")
            .filter(|e| e.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().contains(".part")))
            .count(),
        0
    );
}

#[test]
fn one_bad_file_does_not_hold_up_the_others() {
    let cluster = Cluster::start(1);
    let tree = cluster.local("tree");
    fs::create_dir(&tree).expect("made");
    for name in ["a", "c"] {
        fs::write(tree.join(name), name).expect("written");
    }
    let made = Command::new("mkfifo").arg(tree.join("b")).run_bounded().status;
    assert!(made.success());
    let said = cluster.fails(&["cp", "-r", &text(&tree), "vz:/"]);
    assert!(said.contains("is a fifo"), "{said}");
    assert_eq!(cluster.ok(&["ls", "vz:/tree"]), "a\nc\n");
}

/// The lines that only this program has were printed on terminals only: not into the logs of cron and CI.
#[test]
fn the_end_of_a_copy_says_what_limited_it_without_a_terminal_too() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 30_000_000);
    let copy = |more: &[&str]| cluster.run(&[&["cp"], more].concat());
    let copied = copy(&[&file, "vz:/file"]);
    let said = String::from_utf8_lossy(&copied.stderr).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    assert!(copied.stdout.is_empty() && lines.len() == 2, "{said}");
    assert!(lines[0].starts_with("1 file, 28.6 MiB in ") && lines[0].ends_with("/s"), "{said}");
    assert!(lines[1].starts_with("limit: "), "{said}");
    assert!(lines[1].starts_with("limit: unknown") || !said.contains("mostly"), "{said}");
    let quiet = copy(&["-q", &file, "vz:/file"]);
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{quiet:?}");
    // Directories are not files.
    let tree = cluster.local("tree");
    fs::create_dir(&tree).expect("made");
    let empty = String::from_utf8_lossy(&copy(&["-r", &text(&tree), "vz:/tree"]).stderr).into_owned();
    assert!(empty.starts_with("0 files in 1 directory, 0 B"), "{empty}");
    noise_file(&tree.join("a"), 10);
    noise_file(&tree.join("b"), 10);
    let two = String::from_utf8_lossy(&copy(&["-r", &text(&tree), "vz:/two"]).stderr).into_owned();
    assert!(two.starts_with("2 files in 1 directory, 20 B") && two.contains(" files/s\n"), "{two}");
}

/// They were called `process 7050 on host1`.
#[test]
fn top_names_clients_by_command_user_and_process() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 30_000_000);
    let mut top = spawn(cluster.command(&["top", "--json", "-i", "0.5"]));
    let mut copy = spawn(cluster.command(&["cp", "--bwlimit", "1M", &file, "vz:/file"]));
    let name = format!(", process {})", copy.id());
    let lines = BufReader::new(top.stdout.take().expect("piped")).lines();
    let mut lines = lines.map(|line| line.expect("readable"));
    let seen = lines.find(|line| line.contains(&name)).expect("it is shown");
    let round: serde_json::Value = serde_json::from_str(&seen).expect("JSON");
    let parts = round["parts"].as_array().expect("a list");
    let client = parts.iter().find(|part| part["kind"] == "client").expect("a client");
    let shown = client["name"].as_str().expect("a name");
    assert!(shown.starts_with("cp (") && shown.contains('@') && shown.ends_with(&name), "{shown}");
    assert!(round["written_bytes_per_second"].is_number(), "{round}");
    for child in [&mut top, &mut copy] {
        signal(child.id(), Signal::TERM);
        child.wait_bounded();
    }
}

#[test]
fn the_summary_in_json_names_rate_and_bottleneck() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 20_000_000);
    let summary: serde_json::Value =
        serde_json::from_str(&cluster.ok(&["cp", "--json", &file, "vz:/file"])).expect("JSON");
    assert_eq!((&summary["bytes"], &summary["files"]), (&20_000_000.into(), &1.into()));
    assert!(summary["bytes_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    assert!(summary["limit"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{summary}");
}

#[test]
fn an_interrupted_copy_into_the_volume_leaves_nothing() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 400_000_000);
    let child = spawn(cluster.command(&["cp", &file, "vz:/file"]));
    wait_until("the copy is under way", || cluster.ok(&["ls", "-a", "vz:/"]).contains(".part"));
    signal(child.id(), Signal::INT);
    let said = failed(child.output_bounded(), 130);
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(cluster.ok(&["ls", "-a", "vz:/"]), "");
}

#[test]
fn an_interrupted_copy_out_of_the_volume_keeps_what_was_there() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 400_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let out = cluster.local("out");
    fs::create_dir(&out).expect("made");
    fs::write(out.join("file"), "old").expect("written");
    let child = spawn(cluster.command(&["cp", "vz:/file", &text(&out)]));
    wait_until("the copy is under way", || fs::read_dir(&out).expect("listed").count() > 1);
    signal(child.id(), Signal::TERM);
    failed(child.output_bounded(), 143);
    assert_eq!(fs::read_dir(&out).expect("listed").count(), 1);
    assert_eq!(fs::read(out.join("file")).expect("readable"), b"old");
}
