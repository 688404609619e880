//! Flipped bits in the metadata of a running cluster: errors, names, and a service that goes on.

use crate::support::{Cluster, noise};
use std::fs;
use std::path::PathBuf;

/// The checkpoint of the metadata service.
fn checkpoint(cluster: &Cluster) -> PathBuf {
    let mut directories = vec![cluster.node("meta1")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("readable").flatten() {
            if entry.file_name() == "checkpoint" {
                return entry.path();
            }
            if entry.path().is_dir() {
                directories.push(entry.path());
            }
        }
    }
    panic!("there is no checkpoint");
}

/// A small file's contents lie in the metadata: a flipped bit there was read as if it had been written.
#[test]
fn a_flipped_bit_in_the_metadata_is_an_error_that_status_scrub_and_check_name() {
    let cluster = Cluster::start(1);
    let contents = noise(300 * 1000);
    cluster.ok(&["mkdir", "vz:/deep"]);
    let local = cluster.local("files");
    fs::create_dir(&local).expect("made");
    for (n, contents) in contents.chunks(1000).enumerate() {
        fs::write(local.join(format!("file-{n:03}")), contents).expect("written");
    }
    cluster.ok(&["cp", "-r", &local.display().to_string(), "vz:/deep"]);
    let sound = cluster.ok(&["metadata", "check", "--rate", "0"]);
    assert!(sound.contains("no damage") && sound.contains("100%"), "{sound}");

    cluster.down();
    let mut bytes = fs::read(checkpoint(&cluster)).expect("readable");
    let flipped = &contents[200 * 1000..][..500];
    let at = bytes.windows(500).position(|window| window == flipped).expect("it lies there");
    bytes[at + 77] ^= 0x20;
    fs::write(checkpoint(&cluster), &bytes).expect("written");
    cluster.up(&[]);

    let said = cluster.fails(&["cat", "vz:/deep/files/file-200"]);
    assert!(said.contains("damaged") && said.contains("inode"), "{said}");
    let output = cluster.run(&["status", "--check"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("TROUBLE: the metadata is damaged\n"), "{said}");
    for command in [["meta", "check", "--rate", "0"].as_slice(), &["scrub", "--rate", "0"]] {
        let output = cluster.run(command);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("vz:/deep/files/file-200 (inode "), "{said}");
        assert!(said.contains("does not match its checksum") && said.contains("restore them"), "{said}");
    }
    let output = cluster.run(&["meta", "check", "--report", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((report["state"].as_str(), report["findings"].is_array()), (Some("done"), true), "{report}");

    // Whatever is not in that block is as it was, and new files are taken.
    let whole = (0..300).filter(|n| {
        let output = cluster.run(&["cat", &format!("vz:/deep/files/file-{n:03}")]);
        assert!(!output.status.success() || output.stdout == contents[n * 1000..][..1000], "file {n}");
        output.status.success()
    });
    assert!(whole.count() >= 290);
    cluster.ok(&["cp", &local.join("file-007").display().to_string(), "vz:/new"]);
}
