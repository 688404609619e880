//! The habits of the Unix commands, on names of every kind.

use crate::support::{Cluster, failed, noise_file, succeeded, text};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Output;
use vazao_testing::programs::RunBounded;

fn run(cluster: &Cluster, command: &str, path: &[u8]) -> Output {
    let mut command = cluster.command(&[command]);
    command.arg(OsStr::from_bytes(path)).run_bounded()
}

#[test]
fn names_of_every_kind_are_made_listed_and_removed() {
    let cluster = Cluster::start(1);
    let long = [b'n'; 255];
    let odd: [&[u8]; 7] =
        [b"with space", b"new\nline", b"\xff\xfe not UTF-8", b"-r", b"\xe2\x98\xba", b"*?$'\"\\", &long];
    for name in odd {
        succeeded(run(&cluster, "mkdir", &[b"vz:/", name].concat()));
    }
    let mut expected: Vec<&[u8]> = odd.to_vec();
    expected.sort_unstable();
    let listed = cluster.run(&["ls", "vz:/"]).stdout;
    assert_eq!(listed, [expected.join(&b'\n'), b"\n".to_vec()].concat());
    let json = cluster.ok(&["ls", "--json", "vz:/"]);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), odd.len());
    assert!(lines.iter().any(|line| line["name_hex"] == "fffe206e6f74205554462d38"), "{json}");
    for name in odd {
        let mut command = cluster.command(&["rm", "-r"]);
        let output = command.arg(OsString::from_vec([b"vz:/", name].concat())).run_bounded();
        succeeded(output);
    }
    assert_eq!(cluster.ok(&["ls", "-a", "vz:/"]), "");
}

#[test]
fn names_and_paths_that_are_too_long_are_refused_by_their_limit() {
    let cluster = Cluster::start(1);
    let name = format!("vz:/{}", "n".repeat(256));
    let said = cluster.fails(&["mkdir", &name]);
    assert!(said.contains("name too long") && said.contains("255"), "{said}");
    let path = format!("vz:{}", "/d".repeat(2048));
    let said = cluster.fails(&["ls", &path]);
    assert!(said.contains("name too long") && said.contains("4095"), "{said}");
    // The longest path there may be, made from one directory of it to the next.
    let deep = format!("vz:{}", format!("/{}", "d".repeat(250)).repeat(16));
    cluster.ok(&["mkdir", "-p", &deep]);
    assert!(cluster.ok(&["stat", &deep]).contains("directory"));
}

#[test]
fn a_path_of_this_machine_is_explained_and_is_wrong_usage() {
    let cluster = Cluster::start(1);
    for command in ["ls", "stat", "cat", "mkdir", "rm", "du", "layout"] {
        let said = failed(cluster.run(&[command, "/tmp"]), 2);
        assert!(said.contains("vz:/tmp"), "{command}: {said}");
    }
    failed(cluster.run(&["ls", "--no-such-option"]), 2);
    failed(cluster.run(&["mv", "vz:/a", "/tmp/b"]), 2);
    succeeded(cluster.run(&["--help"]));
    succeeded(cluster.run(&["cp", "--help"]));
}

#[test]
fn ls_shows_what_the_unix_command_would() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 5000);
    cluster.ok(&["mkdir", "-m", "750", "vz:/directory"]);
    cluster.ok(&["cp", &file, "vz:/directory/b"]);
    cluster.ok(&["cp", &file, "vz:/directory/.hidden"]);
    cluster.ok(&["ln", "-s", "b", "vz:/directory/a"]);
    assert_eq!(cluster.ok(&["ls", "vz:/directory"]), "a\nb\n");
    assert_eq!(cluster.ok(&["ls", "-a", "vz:/directory"]), ".hidden\na\nb\n");
    let long = cluster.ok(&["ls", "-lh", "vz:/directory"]);
    assert!(
        long.starts_with("lrwxrwxrwx") && long.contains("a -> b\n-rw") && long.contains("4.9K"),
        "{long}"
    );
    assert!(cluster.ok(&["ls", "-ld", "vz:/directory"]).starts_with("drwxr-x---"));
    assert_eq!(cluster.ok(&["ls", "-R", "vz:/"]), "vz:/:\ndirectory\n\nvz:/directory:\na\nb\n");
    assert_eq!(cluster.ok(&["ls", "vz:/directory/b"]), "vz:/directory/b\n");
    let said = cluster.fails(&["ls", "vz:/directory", "vz:/nothing"]);
    assert!(said.contains("vz:/nothing") && said.contains("no such file or directory"), "{said}");
}

#[test]
fn a_directory_of_several_pages_lists_whole() {
    let cluster = Cluster::start(1);
    let many = cluster.local("many");
    fs::create_dir(&many).expect("made");
    let mut names: Vec<String> = (0..5000).map(|number| format!("file-{number}")).collect();
    names.iter().for_each(|name| drop(fs::File::create(many.join(name)).expect("created")));
    cluster.ok(&["cp", "-r", &text(&many), "vz:/"]);
    names.sort_unstable();
    let sorted = cluster.ok(&["ls", "vz:/many"]);
    assert!(sorted.lines().eq(names.iter().map(String::as_str)));
    let unsorted = cluster.ok(&["ls", "-U", "vz:/many"]);
    let mut unsorted: Vec<&str> = unsorted.lines().collect();
    unsorted.sort_unstable();
    assert!(unsorted == names);
    cluster.ok(&["rm", "-r", "vz:/many"]);
    assert_eq!(cluster.ok(&["ls", "vz:/"]), "");
}

#[test]
fn files_get_further_names_and_lose_them() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 100_000);
    cluster.ok(&["cp", &file, "vz:/one"]);
    cluster.ok(&["ln", "vz:/one", "vz:/two"]);
    assert!(cluster.ok(&["stat", "--json", "vz:/two"]).contains("\"links\":2"));
    cluster.ok(&["mv", "vz:/one", "vz:/three"]);
    assert!(cluster.fails(&["mv", "-n", "vz:/two", "vz:/three"]).contains("exists"));
    cluster.ok(&["mkdir", "vz:/directory"]);
    cluster.ok(&["mv", "vz:/two", "vz:/three", "vz:/directory"]);
    assert_eq!(cluster.ok(&["ls", "vz:/directory"]), "three\ntwo\n");
    assert!(cluster.fails(&["rm", "vz:/directory"]).contains("-r"));
    cluster.ok(&["rm", "vz:/directory/two"]);
    assert_eq!(cluster.run(&["cat", "vz:/directory/three"]).stdout, fs::read(&file).expect("readable"));
    cluster.fails(&["rm", "vz:/nothing"]);
    cluster.ok(&["rm", "-rf", "vz:/nothing", "vz:/directory"]);
    assert!(cluster.fails(&["rm", "-r", "vz:/"]).contains("root of the volume"));
}

#[test]
fn mkdir_makes_those_above_only_when_told() {
    let cluster = Cluster::start(1);
    cluster.fails(&["mkdir", "vz:/a/b/c"]);
    cluster.ok(&["mkdir", "-p", "vz:/a/b/c"]);
    cluster.ok(&["mkdir", "-p", "vz:/a/b/c"]);
    assert!(cluster.fails(&["mkdir", "vz:/a/b/c"]).contains("exists"));
    let file = noise_file(&cluster.local("file"), 10);
    cluster.ok(&["cp", &file, "vz:/file"]);
    assert!(cluster.fails(&["mkdir", "-p", "vz:/file/d"]).contains("not a directory"));
}

#[test]
fn space_is_counted_once_for_several_names() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    cluster.ok(&["mkdir", "vz:/d"]);
    cluster.ok(&["cp", &file, "vz:/d/one"]);
    cluster.ok(&["ln", "vz:/d/one", "vz:/d/two"]);
    assert_eq!(cluster.ok(&["du", "-s", "--apparent-size", "vz:/d"]), "977\tvz:/d\n");
    let all = cluster.ok(&["du", "--apparent-size", "vz:/"]);
    assert_eq!(all, "977\tvz:/d\n977\tvz:/\n");
    let space: serde_json::Value = serde_json::from_str(&cluster.ok(&["df", "--json"])).expect("JSON");
    assert_eq!(space["inodes"], 3);
    assert!(cluster.ok(&["df", "-h"]).starts_with("VOLUME"));
}

#[test]
fn layout_shows_where_bytes_lie_and_sets_how_new_files_are_striped() {
    let cluster = Cluster::start(3);
    cluster.ok(&["mkdir", "vz:/wide", "vz:/narrow"]);
    let said = cluster.ok(&["layout", "vz:/narrow", "--stripe-unit", "128K", "--width", "2"]);
    assert!(said.contains("128.0 KiB (set here)") && said.contains("2 (set here)"), "{said}");
    let file = noise_file(&cluster.local("file"), 1_000_000);
    cluster.ok(&["cp", &file, "vz:/narrow/file"]);
    cluster.ok(&["cp", &file, "vz:/wide/file"]);
    let layout = |path: &str| -> serde_json::Value {
        serde_json::from_str(&cluster.ok(&["layout", "--json", path])).expect("JSON")
    };
    let narrow = layout("vz:/narrow/file");
    assert_eq!((&narrow["stripe_unit_bytes"], &narrow["width"]), (&131_072.into(), &2.into()));
    assert_eq!(layout("vz:/wide/file")["width"], 3);
    let bytes =
        narrow["slots"].as_array().expect("slots").iter().map(|slot| slot["bytes"].as_u64().expect("bytes"));
    assert_eq!(bytes.sum::<u64>(), 1_000_000);
    let small = noise_file(&cluster.local("small"), 100);
    cluster.ok(&["cp", &small, "vz:/small"]);
    assert!(cluster.ok(&["layout", "vz:/small"]).contains("kept with its metadata"));
    failed(cluster.run(&["layout", "vz:/narrow", "--stripe-unit", "1000"]), 2);
}

#[test]
fn every_distribution_is_set_shown_inherited_and_reads_back() {
    let cluster = Cluster::start(3);
    let file = noise_file(&cluster.local("file"), 3_000_001);
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&cluster.ok(&[&["layout", "--json"], arguments].concat())).expect("JSON")
    };
    let strips = ["--distribution", "strips", "--strips", "64K,256K,128K"];
    let groups = ["--distribution", "groups", "--groups", "3", "--factor", "2"];
    let chosen: [(&str, &[&str], usize); 4] = [
        ("strips", &strips, 3),
        ("groups", &groups, 3),
        ("local", &["--distribution", "local"], 1),
        ("stripe", &["--distribution", "stripe"], 3),
    ];
    for (kind, options, width) in chosen {
        let directory = format!("vz:/{kind}");
        cluster.ok(&["mkdir", &directory]);
        let set = json(&[&[&directory[..]], options].concat());
        assert_eq!(set["effective"]["distribution"]["kind"], kind, "{set}");
        let below = format!("{directory}/below");
        let path = format!("{below}/file");
        cluster.ok(&["mkdir", &below]);
        cluster.ok(&["cp", &file, &path]);
        let layout = json(&[&path]);
        assert_eq!(
            (&layout["distribution"]["kind"], &layout["away"]),
            (&kind.into(), &false.into()),
            "{layout}"
        );
        let slots = layout["slots"].as_array().expect("slots");
        assert_eq!(slots.len(), width);
        assert_eq!(slots.iter().map(|slot| slot["bytes"].as_u64().expect("bytes")).sum::<u64>(), 3_000_001);
        let back = cluster.local(&format!("back-{kind}"));
        cluster.ok(&["cp", &path, back.to_str().expect("a path")]);
        assert!(std::fs::read(&back).expect("copied") == std::fs::read(&file).expect("written"), "{kind}");
    }
    failed(cluster.run(&["layout", "vz:/strips", "--strips", "64K"]), 2);
    failed(cluster.run(&["layout", "vz:/strips", "--distribution", "strips", "--strips", "65K"]), 2);
    failed(cluster.run(&["layout", "vz:/strips", "--distribution", "strips", "--strips", "1:64K"]), 2);
    failed(cluster.run(&["layout", "vz:/strips", "--distribution", "groups", "--factor", "0"]), 2);
    assert_eq!(
        json(&["vz:/strips/below", "--distribution", "inherit"])["set"]["distribution"],
        serde_json::Value::Null
    );
}

#[test]
fn files_are_converted_one_by_one_and_by_directory() {
    let cluster = Cluster::start(3);
    let file = noise_file(&cluster.local("file"), 3_000_001);
    cluster.ok(&["mkdir", "vz:/d", "vz:/d/below"]);
    for path in ["vz:/d/a", "vz:/d/below/b"] {
        cluster.ok(&["cp", &file, path]);
    }
    let kind = |path: &str| -> (serde_json::Value, serde_json::Value) {
        let layout: serde_json::Value =
            serde_json::from_str(&cluster.ok(&["layout", "--json", path])).expect("JSON");
        (layout["distribution"]["kind"].clone(), layout["width"].clone())
    };
    let is_same = |path: &str| {
        assert!(cluster.run(&["cat", path]).stdout == std::fs::read(&file).expect("written"), "{path}");
    };
    let dry = ["layout", "--convert", "vz:/d/a", "--distribution", "local", "--dry-run"];
    assert!(cluster.ok(&dry).contains("1 file to convert"), "{}", cluster.ok(&dry));
    assert_eq!(kind("vz:/d/a"), ("stripe".into(), 3.into()));
    let said = cluster.ok(&dry[..5]);
    assert!(said.contains("stripe over 3 → local over 1") && said.contains("1 file converted"), "{said}");
    assert_eq!(kind("vz:/d/a"), ("local".into(), 1.into()));
    is_same("vz:/d/a");
    assert!(cluster.fails(&["layout", "--convert", "vz:/d"]).contains("-r"));
    cluster.ok(&["layout", "vz:/d/below", "--distribution", "groups", "--groups", "3"]);
    // Each file gets what new files of its own directory get.
    let said = cluster.ok(&["layout", "--convert", "-r", "vz:/d", "--rate", "1G"]);
    assert!(said.contains("2 files converted") && said.contains("0 failed"), "{said}");
    assert_eq!(kind("vz:/d/a"), ("stripe".into(), 3.into()));
    assert_eq!(kind("vz:/d/below/b"), ("groups".into(), 3.into()));
    is_same("vz:/d/a");
    is_same("vz:/d/below/b");
    assert!(cluster.ok(&["layout", "--convert", "-r", "vz:/d"]).contains("2 left as they are"));
    assert!(cluster.ok(&["scrub", "--rate", "0"]).contains("done"));
}
