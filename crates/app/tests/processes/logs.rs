//! A request is followed from the command that sent it into the log of the server that worked for it.

use crate::support::{Cluster, noise_file};
use std::fs;

/// The ids of requests in a log, of the lines that contain all of `words`.
fn ids(log: &str, words: &[&str]) -> Vec<String> {
    let lines = log.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    lines.filter_map(|line| Some(line.split_once("request=")?.1.get(..16)?.to_owned())).collect()
}

fn log_of(cluster: &Cluster, node: &str) -> String {
    fs::read_to_string(cluster.dir().join("log").join(format!("{node}.log"))).expect("the node has a log")
}

fn is_hexadecimal(id: &str) -> bool {
    id.bytes().all(|b| b.is_ascii_hexdigit())
}

#[test]
fn each_request_of_a_command_is_in_the_log_of_its_server_under_the_same_id() {
    let cluster = Cluster::unstarted();
    cluster.up(&["--data-servers", "1", "--log", "trace"]);
    let file = noise_file(&cluster.local("file"), 1_000_000);
    cluster.ok(&["cp", &file, "vz:/file"]);
    let output = cluster.run(&["--log", "trace", "cat", "vz:/file"]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    for (method, node) in [("method=\"Open\"", "meta1"), ("method=\"Read\"", "data1")] {
        let sent = ids(&said, &[method]);
        assert!(!sent.is_empty() && sent.iter().all(|id| is_hexadecimal(id)), "{said}");
        let received = ids(&log_of(&cluster, node), &[method]);
        assert!(sent.iter().all(|id| received.contains(id)), "{sent:?} {received:?}");
    }
}

#[test]
fn a_failed_request_is_logged_at_both_ends_with_its_method_and_server() {
    let cluster = Cluster::unstarted();
    cluster.up(&["--data-servers", "1", "--log", "debug"]);
    let output = cluster.run(&["stat", "vz:/nowhere", "--log", "debug"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    let failed = ids(&said, &["failed", "method=\"Resolve\"", "metadata service (127.0.0.1:"]);
    assert_eq!(failed.len(), 1, "{said}");
    let at_server = ids(&log_of(&cluster, "meta1"), &["failed", "method=\"Resolve\""]);
    assert_eq!(at_server, failed);
}

#[test]
fn without_being_asked_a_command_logs_nothing() {
    let cluster = Cluster::start(1);
    let output = cluster.run(&["stat", "vz:/nowhere"]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.starts_with("vazao: ") && said.lines().count() == 1, "{said}");
}
