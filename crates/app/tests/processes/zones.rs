//! Two zones on one machine: where files go, and what is said of it.

use crate::support::{Cluster, failed, noise_file};
use serde_json::Value;
use std::collections::BTreeSet;
use vazao_meter::{Clock, SystemClock};

fn zones_of(cluster: &Cluster, path: &str) -> BTreeSet<String> {
    let layout: Value = serde_json::from_str(&cluster.ok(&["layout", "--json", path])).expect("JSON");
    let slots = layout["slots"].as_array().expect("slots").iter();
    slots.map(|slot| slot["zone"].as_str().unwrap_or("none").to_owned()).collect()
}

fn set(zones: &[&str]) -> BTreeSet<String> {
    zones.iter().map(|&zone| zone.to_owned()).collect()
}

#[test]
fn files_go_to_the_zone_that_their_directory_says_and_move_on_request() {
    let cluster = Cluster::unstarted();
    cluster.up(&["--data-servers", "4", "--zones", "rio,bra"]);
    let status: Value = serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON");
    assert_eq!(status["zones"][1]["nodes"], serde_json::json!(["data1", "data3"]));
    assert!(cluster.ok(&["status"]).contains("WITH ROOM"));
    let top: Value =
        serde_json::from_str(&cluster.ok(&["top", "--json", "-n", "1", "-i", "0.2"])).expect("JSON");
    let server = |name: &str| {
        let parts = top["parts"].as_array().expect("parts");
        parts.iter().find(|part| part["name"] == name).unwrap_or_else(|| panic!("{name}: {top}"))
    };
    assert_eq!(["data1", "data2"].map(|name| server(name)["zone"].as_str()), [Some("rio"), Some("bra")]);
    let file = noise_file(&cluster.local("f"), 1_000_000);
    cluster.ok(&["mkdir", "vz:/near", "vz:/rio", "vz:/old"]);
    let said = cluster.ok(&["layout", "vz:/near", "--place", "near-writer"]);
    assert!(said.contains("near-writer: the zone of the client that writes (set here)"), "{said}");
    cluster.ok(&["layout", "vz:/rio", "--place", "zone=rio"]);
    for (zone, path) in [("rio", "vz:/near/r"), ("bra", "vz:/near/b"), ("bra", "vz:/rio/b")] {
        cluster.ok(&["cp", &file, path, "--zone", zone]);
    }
    cluster.ok(&["cp", &file, "vz:/near/none"]);
    cluster.ok(&["cp", &file, "vz:/old/f"]);
    let expected = [
        ("vz:/near/r", &["rio"][..]),
        ("vz:/near/b", &["bra"]),
        ("vz:/rio/b", &["rio"]),
        ("vz:/near/none", &["bra", "rio"]),
        ("vz:/old/f", &["bra", "rio"]),
    ];
    for (path, zones) in expected {
        assert_eq!(zones_of(&cluster, path), set(zones), "{path}");
    }
    let moved = cluster.ok(&["layout", "vz:/old", "-r", "--place", "zone=bra", "--convert"]);
    assert!(moved.contains("in bra") && zones_of(&cluster, "vz:/old/f") == set(&["bra"]), "{moved}");
    let output = cluster.run(&["cat", "vz:/old/f"]);
    assert!(output.stdout == std::fs::read(&file).expect("readable"));
    what_cannot_be_is_refused(&cluster, &file);
}

fn what_cannot_be_is_refused(cluster: &Cluster, file: &str) {
    let said = cluster.fails(&["layout", "vz:/old", "--place", "zone=atlantis"]);
    assert!(said.contains("zones with targets: bra, rio") && said.contains("vz:/old"), "{said}");
    for wrong in ["rio", "zone=a b"] {
        assert!(!cluster.run(&["layout", "vz:/old", "--place", wrong]).status.success(), "{wrong}");
    }
    let unknown = cluster.run(&["cp", file, "vz:/near/o", "--zone", "oslo"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.success() && said.contains("no node is in zone oslo"), "{said}");
    let said = cluster.ok(&["layout", "vz:/near/o"]);
    assert!(said.contains("not in zone oslo, where it was to lie"), "{said}");
    // A running node has no other zone before it is started again.
    let mut up = std::process::Command::new(crate::support::VAZAO);
    up.arg("up").arg("--dir").arg(cluster.dir()).args(["--detach", "--zones", "oslo"]);
    let said = failed(vazao_testing::programs::RunBounded::run_bounded(&mut up), 1);
    assert!(said.contains("runs and is to get another zone"), "{said}");
}

/// Every machine's file had to name its zone.
#[test]
fn nodes_and_clients_that_name_no_zone_are_in_that_of_their_address() {
    let cluster = Cluster::unstarted();
    cluster.up(&["--data-servers", "2"]);
    cluster.down();
    let configured = |node: &str, line: &str| {
        let file = cluster.dir().join("nodes").join(node).join("node.toml");
        let text = std::fs::read_to_string(&file).expect("it has one");
        std::fs::write(&file, format!("{line}\n{text}")).expect("written");
    };
    configured("data1", "zone = \"rio\"");
    configured("meta1", "zones = { here = [\"127.0.0.1/32\"], lab = [\"127.0.0.0/8\"] }");
    cluster.up(&[]);
    let status: Value = serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON");
    let nodes = |zone: usize| (status["zones"][zone]["name"].clone(), status["zones"][zone]["nodes"].clone());
    let expected = [("here", ["data2", "meta1"].as_slice()), ("rio", &["data1"])];
    for (number, (zone, names)) in expected.into_iter().enumerate() {
        assert_eq!(nodes(number), (zone.into(), names.into()), "{status}");
    }
    let top: Value =
        serde_json::from_str(&cluster.ok(&["top", "--json", "-n", "1", "-i", "0.2"])).expect("JSON");
    let parts = top["parts"].as_array().expect("parts");
    let zone_of =
        |name: &str| parts.iter().find(|part| part["name"] == name).map(|part| part["zone"].clone());
    assert_eq!((zone_of("data1"), zone_of("data2")), (Some("rio".into()), Some("here".into())), "{top}");
    let file = noise_file(&cluster.local("f"), 1_000_000);
    cluster.ok(&["mkdir", "vz:/near"]);
    cluster.ok(&["layout", "vz:/near", "--place", "near-writer"]);
    cluster.ok(&["cp", &file, "vz:/near/here"]);
    cluster.ok(&["cp", &file, "vz:/near/rio", "--zone", "rio"]);
    assert_eq!(zones_of(&cluster, "vz:/near/here"), set(&["here"]));
    assert_eq!(zones_of(&cluster, "vz:/near/rio"), set(&["rio"]), "what a client names comes first");
    cluster.down();
    configured("data2", "zones = { rio = [\"10.0.0.0/8\"] }");
    let mut up = std::process::Command::new(crate::support::VAZAO);
    up.arg("up").arg("--dir").arg(cluster.dir()).arg("--detach");
    let said = failed(vazao_testing::programs::RunBounded::run_bounded(&mut up), 1);
    assert!(said.contains("section [zones] is used by the role meta"), "{said}");
}

/// A stat beside a file that was written over 2 Mb/s waited for 300 ms: its router's queue was full of that file.
#[test]
fn over_a_line_that_carries_little_no_more_is_sent() {
    let cluster = Cluster::unstarted();
    cluster.up(&["--data-servers", "2", "--zones", "rio,bra"]);
    cluster.down();
    let append = |node: &str, section: &str| {
        let file = cluster.dir().join("nodes").join(node).join("node.toml");
        let text = std::fs::read_to_string(&file).expect("it has one");
        std::fs::write(&file, format!("{text}\n{section}\n")).expect("written");
        text
    };
    let up = || {
        let mut up = std::process::Command::new(crate::support::VAZAO);
        up.arg("up").arg("--dir").arg(cluster.dir()).arg("--detach");
        failed(vazao_testing::programs::RunBounded::run_bounded(&mut up), 1)
    };
    let line = |rate: &str| format!("[[line]]\nzones = [\"rio\", \"bra\"]\nrate = \"{rate}\"");
    for (node, section, word) in [
        ("meta1", line("2 MB/s"), "write one as"),
        ("meta1", line("1 kb/s"), "at least 64 kb/s"),
        ("data1", line("2 Mb/s"), "is used by the role meta"),
    ] {
        let before = append(node, &section);
        let said = up();
        assert!(said.contains("[[line]]") && said.contains(word), "{said}");
        std::fs::write(cluster.dir().join("nodes").join(node).join("node.toml"), before).expect("written");
    }
    append("meta1", &line("16 Mb/s"));
    let client = cluster.dir().join("client.toml");
    let text = std::fs::read_to_string(&client).expect("it has one");
    // Else all of it would pass within this machine.
    std::fs::write(&client, format!("{text}\nshort_circuit = false\n")).expect("written");
    cluster.up(&[]);
    cluster.ok(&["mkdir", "vz:/bra"]);
    cluster.ok(&["layout", "vz:/bra", "--place", "zone=bra"]);
    let file = noise_file(&cluster.local("f"), 4_000_000);
    let back = cluster.local("back");
    let back = back.to_str().expect("UTF-8");
    for copy in [["cp", &file, "vz:/bra/f", "--zone", "rio"], ["cp", "vz:/bra/f", back, "--zone", "rio"]] {
        let begun_ns = SystemClock.now_ns();
        cluster.ok(&copy);
        // The line carries 2 MB/s: in less than two seconds it is not through, however fast this machine is.
        let taken_ms = (SystemClock.now_ns() - begun_ns) / 1_000_000;
        assert!(taken_ms > 1_900, "{copy:?}: {taken_ms} ms");
    }
    assert!(std::fs::read(back).expect("written") == std::fs::read(&file).expect("written"));
}

/// Which line between two sites is full could only be guessed from the servers' rates.
#[test]
fn top_shows_what_moves_between_zones() {
    let cluster = Cluster::unstarted();
    cluster.up(&["--data-servers", "2", "--zones", "rio,bra"]);
    cluster.ok(&["mkdir", "vz:/bra"]);
    cluster.ok(&["layout", "vz:/bra", "--place", "zone=bra"]);
    let file = noise_file(&cluster.local("f"), 8_000_000);
    let rounds = ["top", "-i", "1", "-n", "12"];
    let (json, text) = std::thread::scope(|scope| {
        let json = scope.spawn(|| cluster.ok(&[&rounds[..], &["--json"]].concat()));
        let text = scope.spawn(|| cluster.ok(&rounds));
        // Slow enough that several reports fall into the copy.
        cluster.ok(&["cp", &file, "vz:/bra/f", "--zone", "rio", "--bwlimit", "1M"]);
        (json.join().expect("it ended"), text.join().expect("it ended"))
    });
    let rounds = json.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let pairs: Vec<Value> =
        rounds.flat_map(|round| round["between_zones"].as_array().cloned()).flatten().collect();
    let is_right = |pair: &Value| {
        let rate = |name: &str| pair[name].as_f64().expect("a rate");
        let (written, all) = (rate("written_bytes_per_second"), rate("bytes_per_second"));
        pair["from"] == "rio" && pair["to"] == "bra" && written > 0.0 && written <= all
    };
    assert!(!pairs.is_empty() && pairs.iter().all(is_right), "{json}");
    let has_row = text.lines().any(|line| line.starts_with("rio        bra"));
    assert!(text.contains("FROM ZONE  TO ZONE") && has_row, "{text}");
}
