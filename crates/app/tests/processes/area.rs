//! Areas of nodes: exported, listed, changed, attacked, taken away.

use crate::support::{self, Cluster, failed};
use std::fs;
use std::os::unix::fs::symlink;

/// A running cluster whose node data1 exports a directory of the test as `data`.
fn cluster() -> Cluster {
    let cluster = Cluster::start(1);
    let directory = cluster.local("exported");
    fs::create_dir(&directory).expect("made");
    let said = area(&cluster, &["add", "data", directory.to_str().expect("text")]);
    assert!(said.contains("data1:/data is "), "{said}");
    cluster
}

fn area(cluster: &Cluster, arguments: &[&str]) -> String {
    let dir = cluster.dir();
    let all = [&["area"], arguments, &["--dir", dir.to_str().expect("text")]].concat();
    cluster.ok(&all)
}

#[test]
fn files_of_another_node_are_listed_read_and_changed_in_place() {
    let cluster = cluster();
    let exported = cluster.local("exported");
    cluster.ok(&["mkdir", "-p", "data1:/data/run7/deep"]);
    assert!(exported.join("run7/deep").is_dir());
    let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::write(exported.join("run7/x"), &bytes).expect("written");
    assert_eq!(cluster.run(&["cat", "data1:/data/run7/x"]).stdout, bytes);
    assert_eq!(cluster.ok(&["ls", "data1:/data/run7"]), "deep\nx\n");
    assert!(cluster.ok(&["ls", "-l", "data1:/data/run7"]).contains("5000000"));
    assert!(cluster.ok(&["ls", "-R", "data1:/data", "vz:/"]).contains("data1:/data/run7/deep:"));
    assert!(cluster.ok(&["stat", "data1:/data/run7/x"]).contains("File: data1:/data/run7/x"));
    let json = cluster.ok(&["stat", "--json", "data1:/data/run7/x"]);
    assert!(json.contains("\"path\":\"data1:/data/run7/x\"") && json.contains("5000000"), "{json}");
    let used = cluster.ok(&["du", "-s", "--apparent-size", "data1:/data"]);
    assert!(used.split('\t').next().is_some_and(|kib| kib.parse::<u32>().is_ok_and(|k| k >= 4882)), "{used}");
    cluster.ok(&["mv", "data1:/data/run7/x", "data1:/data/y"]);
    cluster.ok(&["mv", "data1:/data/y", "data1:/data/run7"]);
    assert!(exported.join("run7/y").exists());
    let said = cluster.fails(&["rm", "data1:/data/run7"]);
    assert!(said.contains("give -r"), "{said}");
    cluster.ok(&["rm", "-r", "data1:/data/run7"]);
    assert_eq!(fs::read_dir(&exported).expect("listed").count(), 0);
    cluster.ok(&["rm", "-f", "data1:/data/run7"]);
}

#[test]
fn nothing_outside_an_area_is_reached_and_errors_say_what_to_do() {
    let cluster = cluster();
    fs::write(cluster.local("secret"), "secret").expect("written");
    symlink(cluster.local("secret"), cluster.local("exported/link")).expect("made");
    let said = cluster.fails(&["cat", "data1:/data/link"]);
    assert!(said.contains("data1:/data/link: a symbolic link on the way leads out of the area"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let refused = failed(cluster.run(&["cat", "data1:/data/../secret"]), 2);
    assert!(refused.contains("`..`"), "{refused}");
    let said = cluster.fails(&["ls", "data1:/nothing"]);
    assert!(said.contains("it exports data"), "{said}");
    let said = cluster.fails(&["ls", "data9:/data"]);
    assert!(said.contains("no node is called \"data9\"") && said.contains("data1"), "{said}");
    let said = cluster.fails(&["cat", "data1:/data/none"]);
    assert_eq!(said.trim(), "vazao: data1:/data/none: no such file or directory");
    let said = failed(cluster.run(&["mv", "data1:/data/link", "vz:/x"]), 2);
    assert!(said.contains("copy, then remove"), "{said}");
}

#[test]
fn what_is_made_in_an_area_with_an_owner_is_the_owners() {
    use std::os::unix::fs::MetadataExt;
    let cluster = cluster();
    let dir = cluster.dir();
    let mine = cluster.local("owned");
    fs::create_dir(&mine).expect("made");
    let owned = ["area", "add", "owned", mine.to_str().expect("text"), "--dir", dir.to_str().expect("text")];
    let bad = failed(cluster.run(&[&owned[..], &["--owner", "no such user"]].concat()), 2);
    assert!(bad.contains("/etc/passwd"), "{bad}");
    if !rustix::process::geteuid().is_root() {
        let said = cluster.fails(&[&owned[..], &["--owner", "1:1"]].concat());
        assert!(said.contains("may not give files to 1:1"), "{said}");
        assert!(!cluster.ok(&["area", "list"]).contains("owned"));
        return;
    }
    cluster.ok(&[&owned[..], &["--owner", "12345:54321"]].concat());
    cluster.ok(&["mkdir", "-p", "data1:/owned/a/b"]);
    let here = cluster.local("exported");
    fs::write(here.join("small"), "small").expect("written");
    fs::write(here.join("large"), support::noise(3_000_000)).expect("written");
    symlink("small", here.join("link")).expect("made");
    cluster.ok(&["cp", "-r", "data1:/data", "data1:/owned/job"]);
    let local = cluster.local("exported/small");
    cluster.ok(&["cp", local.to_str().expect("text"), "data1:/owned/a/channel"]);
    for name in ["a", "a/b", "a/channel", "job", "job/small", "job/large", "job/link"] {
        let status = fs::symlink_metadata(mine.join(name)).expect("is there");
        assert_eq!((status.uid(), status.gid()), (12345, 54321), "{name}");
    }
}

#[test]
fn areas_are_shown_outlive_a_restart_and_go() {
    let cluster = cluster();
    let second = cluster.local("second");
    fs::create_dir(&second).expect("made");
    fs::write(second.join("f"), "contents").expect("written");
    area(&cluster, &["add", "ro", second.to_str().expect("text"), "--read-only"]);
    let said = cluster.fails(&["rm", "data1:/ro/f"]);
    assert!(said.contains("exported read-only"), "{said}");
    cluster.down();
    cluster.up(&[]);
    assert_eq!(cluster.ok(&["cat", "data1:/ro/f"]), "contents");
    let listed = cluster.ok(&["area", "list"]);
    assert!(listed.contains("data1:/data") && listed.contains("read-only"), "{listed}");
    let status = cluster.ok(&["status"]);
    assert!(status.contains("data+area") && status.contains("data1:/ro"), "{status}");
    let dir = cluster.dir();
    let dir = dir.to_str().expect("text");
    let again = cluster.fails(&["area", "add", "ro", second.to_str().expect("text"), "--dir", dir]);
    assert!(again.contains("already"), "{again}");
    let bad = failed(cluster.run(&["area", "add", "a/b", second.to_str().expect("text"), "--dir", dir]), 2);
    assert!(bad.contains("letters"), "{bad}");
    area(&cluster, &["remove", "ro"]);
    let said = cluster.fails(&["cat", "data1:/ro/f"]);
    assert!(said.contains("no area \"ro\""), "{said}");
    assert!(second.join("f").exists());
}
