//! Clusters for tests: each in a temporary directory of its own, stopped when the test ends, however it ends.

pub(crate) mod areas;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use vazao_meter::{Clock, SystemClock};
use vazao_testing::addresses::own_ports;
use vazao_testing::programs::RunBounded;
use vazao_testing::waiting::is_within;
pub(crate) use vazao_testing::waiting::wait_until;

/// The program under test.
pub(crate) const VAZAO: &str = env!("CARGO_BIN_EXE_vazao");

/// How long the end of a cluster is waited for whose test has failed already.
const DOWN_MAX: Duration = Duration::from_secs(30);

/// A cluster in a temporary directory.
pub(crate) struct Cluster {
    scratch: TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.dir().join("FORMAT").exists() {
            return;
        }
        let mut down = Command::new(VAZAO);
        down.arg("down").arg("--dir").arg(self.dir());
        // A second panic while one is under way would abort, and hide the first.
        if std::thread::panicking() {
            let down = down.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let _ = down.map(|mut down| is_within(DOWN_MAX, || !matches!(down.try_wait(), Ok(None))));
            return;
        }
        if !down.run_bounded().status.success() {
            panic!("the cluster could not be stopped");
        }
    }
}

impl Cluster {
    /// A place for a cluster that is not there yet.
    pub(crate) fn unstarted() -> Cluster {
        Cluster { scratch: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A running cluster with `data_servers`.
    pub(crate) fn start(data_servers: usize) -> Cluster {
        let cluster = Cluster::unstarted();
        cluster.up(&["--data-servers", &data_servers.to_string()]);
        cluster
    }

    /// The same for a test that ends a node and starts it again under a mount, which knows no other port of it: no
    /// connection, and no server of another test, gets the port meanwhile.
    pub(crate) fn start_on_own_ports(data_servers: usize) -> Cluster {
        let cluster = Cluster::unstarted();
        let base = own_ports().to_string();
        cluster.up(&["--data-servers", &data_servers.to_string(), "--port", &base]);
        cluster
    }

    /// The cluster's directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.scratch.path().join("cluster")
    }

    /// A path for the test's own files.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// `vazao up --detach`, which has to work. Returns what it printed.
    pub(crate) fn up(&self, arguments: &[&str]) -> String {
        let mut up = Command::new(VAZAO);
        up.arg("up").arg("--dir").arg(self.dir()).arg("--detach").args(arguments);
        succeeded(up.run_bounded())
    }

    /// `vazao down`, which has to work.
    pub(crate) fn down(&self) -> String {
        let mut down = Command::new(VAZAO);
        down.arg("down").arg("--dir").arg(self.dir());
        succeeded(down.run_bounded())
    }

    /// A command for this cluster.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(VAZAO);
        command.args(arguments).env("VAZAO_CLUSTER", self.client_file()).env_remove("VAZAO_LOG");
        command.env("XDG_STATE_HOME", self.local("state"));
        command
    }

    /// Runs a command.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).run_bounded()
    }

    /// Runs a command that has to work. Returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        succeeded(self.run(arguments))
    }

    /// Runs a command that has to fail with exit code 1. Returns what it said on standard error.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        failed(self.run(arguments), 1)
    }

    /// The client's configuration.
    pub(crate) fn client_file(&self) -> PathBuf {
        self.dir().join("client.toml")
    }

    /// Makes clients give up after this long.
    pub(crate) fn set_deadline_ms(&self, deadline_ms: u32) {
        let text = fs::read_to_string(self.client_file()).expect("client.toml is there");
        fs::write(self.client_file(), format!("{text}deadline_ms = {deadline_ms}\n")).expect("written");
    }

    /// A node's directory.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.dir().join("nodes").join(name)
    }

    /// What a running node tells of itself.
    pub(crate) fn notice(&self, name: &str) -> serde_json::Value {
        let text = fs::read_to_string(self.node(name).join("running.json")).expect("the node runs");
        serde_json::from_str(&text).expect("JSON")
    }

    /// A running node's process.
    pub(crate) fn pid(&self, name: &str) -> u32 {
        self.notice(name)["pid"].as_u64().expect("a pid") as u32
    }

    /// Ends a node as a power failure would, and waits until it is gone.
    pub(crate) fn kill(&self, name: &str) {
        let pid = self.pid(name);
        signal(pid, Signal::KILL);
        wait_until("the killed node is gone", || !is_alive(pid));
    }
}

/// The output of a command that has to have worked.
pub(crate) fn succeeded(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a command said that has to have failed with `code`.
pub(crate) fn failed(output: Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// Sends a signal to a process that the test started.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    kill_process(pid, signal).expect("the process is there");
}

/// Stops a process as it is, and waits until none of its threads goes on: a signal is sent before it is obeyed.
pub(crate) fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    let tasks = || fs::read_dir(format!("/proc/{pid}/task")).expect("it is there").flatten();
    wait_until("all its threads stand still", || tasks().all(is_stopped));
}

/// Whether a process runs (one that is dead and not yet waited for does not).
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Seconds that `work` takes.
pub(crate) fn seconds<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let started_ns = SystemClock.now_ns();
    let result = work();
    (result, (SystemClock.now_ns() - started_ns) as f64 / 1e9)
}

/// Starts a command with its outputs kept.
pub(crate) fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Bytes that differ everywhere, the same in every run.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes a file of noise and returns its path as an argument.
pub(crate) fn noise_file(path: &Path, length: usize) -> String {
    fs::write(path, noise(length)).expect("written");
    text(path)
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// The address of this test's nodes.
pub(crate) fn host() -> String {
    vazao_testing::addresses::own_host().to_string()
}

/// A port of it that is free, and whose neighbour for copies is free as well.
pub(crate) fn free_port() -> String {
    loop {
        let first = TcpListener::bind((host(), 0)).expect("a port");
        let port = first.local_addr().expect("bound").port();
        let Some(copy_port) = port.checked_add(100) else { continue };
        if TcpListener::bind((host(), copy_port)).is_ok() {
            return port.to_string();
        }
    }
}
