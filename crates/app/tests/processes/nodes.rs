//! Clusters of nodes that `vazao node` has written: each from its files, as on a machine of its own.

use crate::support::{VAZAO, failed, free_port, host, noise_file, signal, succeeded, text, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use vazao_testing::programs::{RunBounded, WaitBounded};

/// Nodes that end with the test.
struct Nodes {
    scratch: TempDir,
    running: Vec<Child>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.running {
            child.kill_bounded();
        }
    }
}

impl Nodes {
    fn new() -> Nodes {
        Nodes { scratch: tempfile::tempdir().expect("a temporary directory"), running: Vec::new() }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// `vazao serve` with the files of a node, in the foreground; returns when it serves.
    fn start(&mut self, node: &str) {
        let directory = self.place(node);
        let log = fs::File::create(self.place(&format!("{node}.log"))).expect("a log");
        let mut command = Command::new(VAZAO);
        command.arg("serve").arg("--config").arg(directory.join("node.toml"));
        let child = command.stdin(Stdio::null()).stderr(log).spawn().expect("it starts");
        self.running.push(child);
        wait_until("it serves", || directory.join("running.json").exists());
    }

    fn vazao(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(VAZAO);
        command.args(arguments).current_dir(self.scratch.path()).env("XDG_STATE_HOME", self.place("state"));
        command.run_bounded()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        succeeded(self.vazao(arguments))
    }

    /// `vazao node init` for a node on this machine. Returns what it says as JSON.
    fn init(&self, node: &str, port: &str, more: &[&str]) -> Value {
        let common = ["node", "init", "--host", &host(), "--json", "--name", node, "--dir", node];
        json(&self.ok(&[&common[..], &["--port", port], more].concat()))
    }
}

/// What is served at `http://HOST:PORT/PATH`.
fn page(url: &str) -> String {
    let (at, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("an address");
    let mut stream = TcpStream::connect(at).expect("it is served");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn three_nodes_start_from_the_files_that_init_and_join_have_written() {
    let mut nodes = Nodes::new();
    let init = nodes.init("one", &free_port(), &["--data", "disk1"]);
    assert_eq!(mode(&nodes.place("one/cluster.key")), 0o600);
    assert!(!init.to_string().contains(fs::read_to_string(nodes.place("one/cluster.key")).unwrap().trim()));
    nodes.start("one");
    // `/metrics` was in the documents, and no port of it on a node that was set up as they say.
    let page = page(init["metrics"].as_str().expect("an address"));
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("vazao_"), "{page:.300}");
    // What it prints for the next machine is what is run, with that one's own name, port and disk.
    let next = init["next"].as_str().expect("a command").to_owned();
    for (name, disk) in [("two", "disk2"), ("three", "disk3")] {
        let line = next.replace("NAME", name).replace("PORT", &free_port());
        let line = line.replace("--dir DIR", &format!("--dir {name}")).replace("DIR", disk);
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let said = nodes.ok(&words);
        assert!(said.contains("vazao node join") && said.contains("vazao status --cluster"), "{said}");
        assert_eq!(mode(&nodes.place(&format!("{name}/cluster.key"))), 0o600);
        nodes.start(name);
    }
    let client = text(&nodes.place("three/client.toml"));
    let status = || json(&nodes.ok(&["status", "--json", "--cluster", &client]));
    wait_until("all are members", || status()["targets"].as_array().map(Vec::len) == Some(3));
    assert_eq!(status()["nodes"].as_array().map(Vec::len), Some(3));
    let file = noise_file(&nodes.place("file"), 3_000_000);
    nodes.ok(&["cp", &file, "vz:/file", "--cluster", &client]);
    let read = nodes.vazao(&["cat", "vz:/file", "--cluster", &text(&nodes.place("one/client.toml"))]);
    assert!(read.stdout == fs::read(&file).expect("readable"));
    // A name that is taken, and a key that is not the cluster's, are found before anything is written.
    let metadata = init["metadata"].as_str().expect("an address").to_owned();
    let join = |name: &str, key: &str| {
        let common = ["node", "join", &metadata, "--host", &host(), "--data", "disk4", "--dir", "four"];
        failed(nodes.vazao(&[&common[..], &["--name", name, "--key-file", key]].concat()), 1)
    };
    assert!(join("two", "one/cluster.key").contains("another name with --name"));
    nodes.init("other", &free_port(), &[]);
    assert!(join("four", "other/cluster.key").contains("has another key"));
    assert!(!nodes.place("four").exists());
    for child in &nodes.running {
        signal(child.id(), Signal::TERM);
    }
    assert!(nodes.running.iter_mut().all(|child| child.wait_bounded().success()));
}

#[test]
fn files_that_are_there_are_not_overwritten_and_a_key_never_is_by_a_new_one() {
    let nodes = Nodes::new();
    let port = free_port();
    nodes.init("one", &port, &[]);
    let [key, config] = ["one/cluster.key", "one/node.toml"].map(|file| nodes.place(file));
    let first = fs::read_to_string(&key).expect("a key");
    let again = nodes.init("one", &port, &[]);
    let files = again["files"].as_array().expect("a list").clone();
    assert!(files.len() == 4 && files.iter().all(|file| file["written"] == false), "{again}");
    let edited = fs::read_to_string(&config).expect("readable") + "# mine\n";
    fs::write(&config, &edited).expect("written");
    let arguments = ["node", "init", "--host", &host(), "--name", "one", "--dir", "one", "--port", &port];
    let said = failed(nodes.vazao(&arguments), 1);
    assert!(said.contains("one/node.toml") && said.contains("--force"), "{said}");
    assert_eq!(fs::read_to_string(&config).expect("readable"), edited);
    nodes.ok(&[&arguments[..], &["--force"]].concat());
    assert_ne!(fs::read_to_string(&config).expect("readable"), edited);
    assert_eq!(fs::read_to_string(&key).expect("a key"), first, "data servers still have this one");
    // Joining with another key is refused, too.
    nodes.init("two", &port, &[]);
    let join = ["node", "join", "127.0.0.1:7000", "--offline", "--host", &host(), "--name", "one"];
    let join = [&join[..], &["--data", "disk", "--dir", "one", "--key-file", "two/cluster.key"]].concat();
    assert!(failed(nodes.vazao(&join), 1).contains("cluster.key"));
    assert_eq!(fs::read_to_string(&key).expect("a key"), first);
}

#[test]
fn a_dry_run_shows_all_files_and_writes_none() {
    let nodes = Nodes::new();
    let arguments =
        ["node", "init", "--host", "host1", "--name", "n", "--dir", "n", "--data", "disk", "--dry-run"];
    let shown = nodes.ok(&[&arguments[..], &["--zone", "rio"]].concat());
    assert_eq!(shown.matches("zone = \"rio\"").count(), 2, "in node.toml and client.toml: {shown}");
    for words in [
        "roles = [\"meta\", \"data\"]",
        "advertise = \"host1:7000\"",
        "listen = \"0.0.0.0:7100\"",
        "ExecStart=",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(shown.contains("ssh root@host1 cat") && shown.contains("TCP 7000 and 7100"), "{shown}");
    assert_eq!(fs::read_dir(nodes.scratch.path()).expect("listed").count(), 0);
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_written() {
    let nodes = Nodes::new();
    fs::create_dir(nodes.place("full")).expect("created");
    fs::write(nodes.place("full/thesis"), "years").expect("written");
    let init = |more: &[&str]| {
        let common = ["node", "init", "--host", &host(), "--name", "n", "--dir", "n"];
        let output = nodes.vazao(&[&common[..], more].concat());
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(init(&["--data", "full"]).contains("thesis"));
    assert!(init(&["--data", "missing/disk"]).contains("mount the disk first"));
    assert!(init(&["--area", "missing"]).contains("NAME=DIR"));
    assert!(init(&["--port", "65500"]).contains("65335"));
    assert!(init(&["--host", "host:1"]).contains("cannot be used multiple times"));
    let join = |more: &[&str]| {
        let common = ["node", "join", "127.0.0.1:1", "--host", &host(), "--name", "n", "--dir", "n"];
        failed(nodes.vazao(&[&common[..], more].concat()), if more.contains(&"--key-file") { 1 } else { 2 })
    };
    assert!(join(&[]).contains("--data DIR"));
    assert!(join(&["--data", "d"]).contains("--key-file"));
    nodes.init("first", &free_port(), &[]);
    let said = join(&["--data", "d", "--key-file", "first/cluster.key"]);
    assert!(said.contains("--offline") && !nodes.place("n").exists(), "{said}");
}

/// A second metadata node began an empty volume of its own, and nobody was told.
#[test]
fn a_node_that_would_begin_a_second_volume_does_not_start() {
    let nodes = Nodes::new();
    nodes.init("two", &free_port(), &[]);
    let config = nodes.place("two/node.toml");
    let text = fs::read_to_string(&config).expect("readable");
    let text = text.replace("key_file", "metadata = [\"host1:7000\"]\nkey_file");
    fs::write(&config, text).expect("written");
    let said = failed(nodes.vazao(&["serve", "--config", "two/node.toml"]), 1);
    assert!(said.contains("host1:7000") && said.contains("[\"data\"]"), "{said}");
    assert!(!nodes.place("two/metadata").exists());
}

#[test]
fn state_is_kept_where_the_configuration_says() {
    let mut nodes = Nodes::new();
    nodes.init("one", &free_port(), &["--data", "disk"]);
    let config = nodes.place("one/node.toml");
    let text = fs::read_to_string(&config).expect("readable");
    fs::write(&config, text.replace("key_file", "state_dir = \"../state one\"\nkey_file")).expect("written");
    let log = fs::File::create(nodes.place("log")).expect("a log");
    let mut command = Command::new(VAZAO);
    command.arg("serve").arg("--config").arg(&config).stdin(Stdio::null()).stderr(log);
    nodes.running.push(command.spawn().expect("it starts"));
    let state = nodes.place("state one");
    wait_until("it serves", || state.join("running.json").exists());
    wait_until("it remembers its target", || {
        fs::read_to_string(state.join("member.json")).is_ok_and(|memory| memory.contains("targets"))
    });
    let beside = || {
        let entries = fs::read_dir(nodes.place("one")).expect("listed");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(beside(), ["client.toml", "cluster.key", "metadata", "node.toml", "vazao.service"]);
    // Without its state it would take an unmounted disk for a new one.
    fs::copy(state.join("member.json"), nodes.place("one/member.json")).expect("copied");
    fs::write(&config, fs::read_to_string(&config).expect("readable").replace("state one", "nowhere"))
        .expect("written");
    let said = failed(nodes.vazao(&["serve", "--config", "one/node.toml"]), 1);
    assert!(said.contains("move it there") && said.contains("member.json"), "{said}");
}
