//! Disks and servers that are not what they seem: copies beside the original, disks put back from an image, empty
//! directories in the place of disks, and servers that are gone for long.

use crate::support::{Cluster, VAZAO, failed, noise_file, seconds, spawn, succeeded, text, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use vazao_testing::programs::{RunBounded, WaitBounded};

/// Copies a directory as an operator would.
fn copy(from: &Path, to: &Path) {
    succeeded(Command::new("cp").arg("-a").arg(from).arg(to).run_bounded());
}

fn rename(from: &Path, to: &Path) {
    fs::rename(from, to).expect("renamed");
}

fn up(cluster: &Cluster, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(VAZAO);
    command.arg("up").arg("--dir").arg(cluster.dir()).arg("--detach").args(arguments);
    command.run_bounded()
}

fn cat(cluster: &Cluster, path: &str) -> Vec<u8> {
    let output = cluster.run(&["cat", path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    output.stdout
}

fn troubles(cluster: &Cluster) -> String {
    let status: serde_json::Value = serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON");
    status["troubles"].to_string()
}

fn log(cluster: &Cluster, node: &str) -> String {
    fs::read_to_string(cluster.dir().join("log").join(format!("{node}.log"))).expect("a log")
}

/// A copy of a data server's directory in `copies/`, from where its relative paths lead to the same key.
fn copied_node(cluster: &Cluster, name: &str) -> PathBuf {
    let copies = cluster.dir().join("copies");
    fs::create_dir_all(&copies).expect("created");
    let place = copies.join(name);
    copy(&cluster.node(name), &place);
    for left in ["lock", "running.json"] {
        let _ = fs::remove_file(place.join(left));
    }
    place
}

/// A second server with a copy of a target's directory registered within 50 ms while the first was up: 10 of 15
/// acknowledged files could not be read afterwards.
#[test]
fn a_copy_of_a_running_server_does_not_start_and_both_sides_say_so() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 2_000_000);
    cluster.ok(&["cp", &file, "vz:/before"]);
    let place = copied_node(&cluster, "data1");
    let mut command = Command::new(VAZAO);
    command.arg("serve").arg("--config").arg(place.join("node.toml"));
    let said = failed(spawn(command).output_bounded(), 1);
    let address = cluster.notice("data1")["address"].as_str().expect("an address").to_owned();
    assert!(said.contains("is served by another process") && said.contains(&address), "{said}");
    assert!(said.contains("stop this one"), "{said}");
    wait_until("the original has logged it", || log(&cluster, "data1").contains("claims to be this node"));
    let shown = troubles(&cluster);
    assert!(shown.contains("was refused") && shown.contains(&address), "{shown}");
    for number in 0..5 {
        cluster.ok(&["cp", &file, &format!("vz:/after{number}")]);
    }
    let bytes = fs::read(&file).expect("readable");
    for path in ["vz:/before", "vz:/after0", "vz:/after4"] {
        assert!(cat(&cluster, path) == bytes, "{path}");
    }
}

#[test]
fn a_server_that_is_killed_is_back_with_its_next_start() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 2_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    for _ in 0..3 {
        cluster.kill("data1");
        let started = up(&cluster, &[]);
        let said = String::from_utf8_lossy(&started.stderr).into_owned();
        assert!(started.status.success() && !said.contains("cannot register"), "{said}");
        assert!(cat(&cluster, "vz:/file") == fs::read(&file).expect("readable"));
    }
    let shown = cluster.ok(&["status", "--check"]);
    assert!(shown.contains("no trouble"), "{shown}");
}

/// Regression: a disk that was restored from an old image was served as if it were current.
#[test]
fn a_target_put_back_from_a_copy_is_refused_until_an_operator_accepts_what_it_lacks() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 2_000_000);
    cluster.ok(&["cp", &file, "vz:/old"]);
    let target = cluster.node("data1").join("target1");
    let (image, right) = (cluster.local("image"), cluster.local("right"));
    copy(&target, &image);
    let newer = noise_file(&cluster.local("newer"), 3_000_000);
    cluster.ok(&["cp", &newer, "vz:/new"]);
    cluster.down();
    rename(&target, &right);
    copy(&image, &target);
    cluster.up(&[]);
    let (said, seconds) = seconds(|| cluster.fails(&["cat", "vz:/new"]));
    assert!(said.contains("older copy") && seconds < 10.0, "{seconds} {said}");
    let shown = troubles(&cluster);
    assert!(shown.contains("stale") && shown.contains("vazao target accept-old t1"), "{shown}");
    let listed = cluster.run(&["target", "accept-old", "t1"]);
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(names.contains("vz:/new"), "{names}");
    assert!(failed(listed, 1).contains("--yes-lose-writes"));
    cluster.down();
    rename(&target, &cluster.local("image again"));
    rename(&right, &target);
    cluster.up(&[]);
    assert!(cat(&cluster, "vz:/new") == fs::read(newer).expect("readable"), "the right disk is back");
    cluster.down();
    rename(&target, &right);
    copy(&image, &target);
    cluster.up(&[]);
    cluster.ok(&["target", "accept-old", "t1", "--yes-lose-writes"]);
    wait_until("it is served", || !troubles(&cluster).contains("stale"));
    assert!(cat(&cluster, "vz:/old") == fs::read(file).expect("readable"));
    assert!(cluster.fails(&["cat", "vz:/new"]).contains("missing"), "what was given up");
}

/// An empty directory in the place of a disk that was not mounted silently became a new target and took new files; old
/// ones failed after 30 s, with EAGAIN. A disk that was mounted later stayed unreadable, where its server had been the
/// last to report.
#[test]
fn an_empty_directory_does_not_take_the_place_of_a_target() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 2_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    cluster.down();
    let (target, aside) = (cluster.node("data1").join("target1"), cluster.local("aside"));
    rename(&target, &aside);
    fs::create_dir(&target).expect("created");
    let said = failed(up(&cluster, &[]), 1);
    for words in ["is missing", "holds no target", &text(&target), "--without-missing", "--new-target"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(fs::read_dir(&target).expect("listed").count(), 0, "nothing was made in it");
    assert!(!cluster.node("data2").join("running.json").exists(), "what was started is stopped again");
    cluster.up(&["--without-missing"]);
    cluster.ok(&["cp", &file, "vz:/elsewhere"]);
    let (said, seconds) = seconds(|| cluster.fails(&["cat", "vz:/file"]));
    assert!(said.contains("missing") && said.contains("holds no target"), "{said}");
    assert!(seconds < 10.0, "{seconds}");
    assert!(troubles(&cluster).contains("is missing"));
    // Nothing changes the membership after its first report: it is not told its groups again by chance.
    cluster.kill("data1");
    cluster.up(&["--without-missing"]);
    // Its disk is mounted while the node runs.
    fs::remove_dir(&target).expect("removed");
    rename(&aside, &target);
    wait_until("it is taken back", || !troubles(&cluster).contains("is missing"));
    assert!(cat(&cluster, "vz:/file") == fs::read(&file).expect("readable"));
    cluster.down();
    rename(&target, &aside);
    let new = text(&target);
    let wrong = failed(up(&cluster, &["--new-target", "/elsewhere"]), 2);
    assert!(wrong.contains("no target directory"), "{wrong}");
    cluster.up(&["--new-target", &new]);
    cluster.ok(&["cp", &file, "vz:/again"]);
    let status: serde_json::Value = serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON");
    assert_eq!(status["targets"].as_array().map(Vec::len), Some(3), "{status}");
    cluster.down();
    let twice = failed(up(&cluster, &["--new-target", &new]), 1);
    assert!(twice.contains("is there, and is not replaced"), "{twice}");
    cluster.up(&[]);
}

/// A node that has lost its memory as well is stopped by the metadata service, which knows what it had.
#[test]
fn a_node_without_its_memory_does_not_begin_anew_either() {
    let cluster = Cluster::start(1);
    cluster.down();
    rename(&cluster.node("data1").join("target1"), &cluster.local("aside"));
    fs::remove_file(cluster.node("data1").join("member.json")).expect("is there");
    let said = failed(up(&cluster, &[]), 1);
    assert!(said.contains("had target t1") && said.contains("--new-target"), "{said}");
    fs::remove_dir_all(cluster.node("data1").join("target1")).expect("removed");
    rename(&cluster.local("aside"), &cluster.node("data1").join("target1"));
    cluster.up(&[]);
}

#[test]
fn an_empty_directory_does_not_take_the_place_of_the_metadata() {
    let cluster = Cluster::start(1);
    cluster.ok(&["mkdir", "vz:/d"]);
    cluster.down();
    let (metadata, aside) = (cluster.node("meta1").join("meta"), cluster.local("aside"));
    rename(&metadata, &aside);
    let said = failed(up(&cluster, &[]), 1);
    assert!(said.contains("holds no metadata") && said.contains("--new-volume"), "{said}");
    assert!(!metadata.exists(), "nothing was begun");
    // Another volume, which data servers of this one do not join.
    fs::remove_file(cluster.node("meta1").join("member.json")).expect("is there");
    let said = failed(up(&cluster, &[]), 1);
    assert!(said.contains("belongs to cluster"), "{said}");
    cluster.down();
    fs::remove_dir_all(&metadata).expect("removed");
    fs::remove_file(cluster.node("meta1").join("member.json")).expect("is there");
    rename(&aside, &metadata);
    cluster.up(&[]);
    assert_eq!(cluster.ok(&["ls", "vz:/"]), "d\n");
}

#[test]
fn metadata_put_back_from_a_copy_serves_nothing_until_an_operator_accepts_it() {
    let cluster = Cluster::start(1);
    cluster.ok(&["mkdir", "vz:/then"]);
    cluster.down();
    let (metadata, image) = (cluster.node("meta1").join("meta"), cluster.local("image"));
    copy(&metadata, &image);
    cluster.up(&[]);
    cluster.ok(&["mkdir", "vz:/since"]);
    cluster.down();
    fs::remove_dir_all(&metadata).expect("removed");
    copy(&image, &metadata);
    cluster.up(&[]);
    wait_until("it is noticed", || troubles(&cluster).contains("older copy"));
    assert!(cluster.fails(&["ls", "vz:/"]).contains("older copy"));
    assert!(cluster.fails(&["metadata", "accept-old"]).contains("--yes-lose-writes"));
    assert!(cluster.ok(&["metadata", "accept-old", "--yes-lose-writes"]).contains("restart"));
    cluster.down();
    cluster.up(&[]);
    assert_eq!(cluster.ok(&["ls", "vz:/"]), "then\n");
    let file = noise_file(&cluster.local("file"), 2_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    assert!(cat(&cluster, "vz:/file") == fs::read(file).expect("readable"));
}

/// `cat` of a file on a server that had been dead for long took the whole deadline each time.
#[test]
fn a_file_on_a_server_that_is_gone_for_long_fails_at_once() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 2_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    cluster.set_deadline_ms(11_000);
    cluster.kill("data1");
    wait_until("it has been silent for longer than a request waits", || {
        let status: serde_json::Value =
            serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON");
        let nodes = status["nodes"].as_array().expect("a list").clone();
        let silent = nodes.iter().filter_map(|node| node["silent_ms"].as_u64()).max();
        silent.is_some_and(|ms| ms > 12_000)
    });
    let (said, seconds) = seconds(|| cluster.fails(&["cat", "vz:/file"]));
    assert!(said.contains("data1") && said.contains("has not reported for"), "{said}");
    assert!(seconds < 8.0, "{seconds}");
    cluster.up(&[]);
    assert!(cat(&cluster, "vz:/file") == fs::read(file).expect("readable"));
}

/// Takes a mount away however the test ends.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).run_bounded();
    }
}

/// An area whose disk was not mounted was exported as an empty directory, into which copies went.
#[test]
fn an_area_whose_disk_is_not_mounted_is_not_exported() {
    let cluster = Cluster::start(1);
    let (dir, disk) = (text(&cluster.dir()), cluster.local("disk"));
    fs::create_dir(&disk).expect("created");
    let mount = || Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&disk).run_bounded();
    if !mount().status.success() {
        eprintln!("not tested: this user may not mount");
        return;
    }
    let mounted = Mounted(disk.clone());
    fs::write(disk.join("file"), "x").expect("written");
    cluster.ok(&["area", "add", "a", &text(&disk), "--dir", &dir]);
    cluster.down();
    drop(mounted);
    cluster.up(&[]);
    wait_until("it is in trouble", || troubles(&cluster).contains("is not mounted"));
    assert!(cluster.fails(&["ls", "data1:/a"]).contains("is not mounted"));
    succeeded(mount());
    let _mounted = Mounted(disk.clone());
    wait_until("it is exported again", || !troubles(&cluster).contains("is not mounted"));
    assert_eq!(cluster.ok(&["ls", "data1:/a"]), "");
    cluster.down();
}
