//! Servers that die, disks that are full or lie: an error that names the culprit within the deadline, never wrong
//! bytes, and everything right again afterwards.

use crate::support::{Cluster, failed, freeze, noise_file, seconds, signal, spawn, wait_until};
use rustix::process::Signal;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use vazao_testing::programs::WaitBounded;

#[test]
fn a_data_server_killed_under_a_reader_is_named_and_reads_go_on_after_its_restart() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 60_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    cluster.set_deadline_ms(2000);
    let mut child = spawn(cluster.command(&["cat", "vz:/file"]));
    let mut begun = [0; 1000];
    child.stdout.as_mut().expect("piped").read_exact(&mut begun).expect("bytes come");
    cluster.kill("data2");
    let (output, seconds) = seconds(|| child.output_bounded());
    let said = failed(output, 1);
    assert!(said.contains("data2") && said.contains("vz:/file"), "{said}");
    assert!(seconds < 10.0, "{seconds}");
    cluster.up(&[]);
    assert!(cluster.run(&["cat", "vz:/file"]).stdout == fs::read(file).expect("readable"));
}

#[test]
fn a_data_server_killed_under_a_writer_is_named_and_leaves_no_half_file() {
    let cluster = Cluster::start(2);
    let file = noise_file(&cluster.local("file"), 300_000_000);
    cluster.set_deadline_ms(2000);
    let child = spawn(cluster.command(&["cp", &file, "vz:/file"]));
    wait_until("the copy is under way", || cluster.ok(&["ls", "-a", "vz:/"]).contains(".part"));
    cluster.kill("data1");
    let (output, seconds) = seconds(|| child.output_bounded());
    let said = failed(output, 1);
    assert!(said.contains("data1"), "{said}");
    assert!(seconds < 12.0, "{seconds}");
    assert_eq!(cluster.ok(&["ls", "-a", "vz:/"]), "");
    cluster.up(&[]);
    cluster.ok(&["cp", &file, "vz:/file"]);
    assert!(cluster.run(&["cat", "vz:/file"]).stdout == fs::read(file).expect("readable"));
}

#[test]
fn a_server_that_stops_answering_is_an_error_within_the_deadline() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    cluster.set_deadline_ms(1500);
    let pid = cluster.pid("data1");
    freeze(pid);
    let (output, seconds) = seconds(|| cluster.run(&["cat", "vz:/file"]));
    signal(pid, Signal::CONT);
    let said = failed(output, 1);
    assert!(said.contains("data1"), "{said}");
    assert!(seconds < 8.0, "{seconds}");
    assert!(cluster.run(&["cat", "vz:/file"]).stdout == fs::read(file).expect("readable"));
}

#[test]
fn what_the_metadata_service_answered_survives_its_kill() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    for round in 0..3 {
        cluster.ok(&["mkdir", &format!("vz:/d{round}")]);
        cluster.ok(&["cp", &file, &format!("vz:/d{round}/file")]);
        cluster.kill("meta1");
        cluster.up(&[]);
    }
    assert_eq!(cluster.ok(&["ls", "vz:/"]), "d0\nd1\nd2\n");
    for round in 0..3 {
        let read = cluster.run(&["cat", &format!("vz:/d{round}/file")]).stdout;
        assert!(read == fs::read(&file).expect("readable"));
    }
}

#[test]
fn a_full_target_is_an_error_that_says_so_and_small_files_still_fit() {
    let cluster = Cluster::start(1);
    cluster.down();
    let config = cluster.node("data1").join("node.toml");
    let text = fs::read_to_string(&config).expect("readable");
    fs::write(&config, text.replace("[data]", "[data]\nreserve = \"1000T\"")).expect("written");
    cluster.up(&[]);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    let said = cluster.fails(&["cp", &file, "vz:/file"]);
    assert!(said.contains("no space left") && said.contains("add a target"), "{said}");
    assert_eq!(cluster.ok(&["ls", "-a", "vz:/"]), "");
    let small = noise_file(&cluster.local("small"), 1000);
    cluster.ok(&["cp", &small, "vz:/small"]);
    let status = cluster.ok(&["status"]);
    assert!(
        status.contains("is full: reads go on, new data is refused (") && status.contains("add data"),
        "{status}"
    );
}

/// The largest file below a directory.
fn largest(directory: &Path) -> PathBuf {
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(path).expect("listed") {
            let entry = entry.expect("an entry");
            let metadata = entry.metadata().expect("there");
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else {
                found.push((metadata.len(), entry.path()));
            }
        }
    }
    found.into_iter().max().expect("there are files").1
}

#[test]
fn a_damaged_block_on_disk_is_an_error_that_names_file_and_block() {
    let cluster = Cluster::start(1);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let chunk = largest(&cluster.node("data1").join("target1"));
    let chunk = OpenOptions::new().read(true).write(true).open(chunk).expect("opened");
    let mut byte = [0];
    chunk.read_exact_at(&mut byte, 300_000).expect("read");
    chunk.write_all_at(&[byte[0] ^ 1], 300_000).expect("written");
    let said = cluster.fails(&["cp", "vz:/file", cluster.local("back").to_str().expect("UTF-8")]);
    assert!(said.contains("vz:/file") && said.contains("block") && said.contains("checksum"), "{said}");
    assert!(!cluster.local("back").exists());
    wait_until("the damage is in the status", || cluster.ok(&["status"]).contains("1 damaged block "));
    let status: serde_json::Value = serde_json::from_str(&cluster.ok(&["status", "--json"])).expect("JSON");
    assert_eq!(status["targets"][0]["corrupt_blocks"], 1, "{status}");
    chunk.write_all_at(&byte, 300_000).expect("written");
    assert!(cluster.run(&["cat", "vz:/file"]).stdout == fs::read(file).expect("readable"));
}

#[test]
fn status_names_a_hung_data_server_within_seconds_although_it_still_counts_as_up() {
    let cluster = Cluster::start(2);
    let pid = cluster.pid("data2");
    freeze(pid);
    let (output, seconds) = seconds(|| cluster.run(&["status", "--check", "--json"]));
    signal(pid, Signal::CONT);
    assert_eq!(output.status.code(), Some(1));
    assert!(seconds < 10.0, "{seconds}");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let trouble = status["troubles"][0].to_string();
    assert!(trouble.contains("node data2") && trouble.contains("has not answered for 2.0 s"), "{status}");
    assert_eq!(status["troubles"].as_array().map(Vec::len), Some(1), "{status}");
    let whole = cluster.ok(&["status", "--check"]);
    assert!(whole.contains("no trouble"), "{whole}");
}

#[test]
fn status_names_a_hung_metadata_service_within_seconds() {
    let cluster = Cluster::start(1);
    let pid = cluster.pid("meta1");
    freeze(pid);
    let (output, seconds) = seconds(|| cluster.run(&["status", "--json"]));
    signal(pid, Signal::CONT);
    assert!(seconds < 10.0, "{seconds}");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(status["troubles"][0]["what"].to_string().contains("metadata service"), "{status}");
    let said = failed(output, 1);
    assert!(said.contains("metadata service (127.0.0.1:") && said.contains("has not answered"), "{said}");
}
