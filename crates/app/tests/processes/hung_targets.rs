//! A disk that hangs beneath one target of a node: a file system on a loop device, frozen.

use crate::support::{
    Cluster, VAZAO, noise, noise_file, seconds, signal, spawn, succeeded, text, wait_until,
};
use rustix::process::Signal;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use vazao_client::{Client, Config};
use vazao_testing::programs::{RunBounded, WaitBounded};

/// The file system in bytes: small, as its image is written once.
const IMAGE_BYTES: u64 = 128 << 20;

/// Whatever does not need the frozen disk is answered within this time, the start of a command on a busy
/// machine included. What waits for it waits until it is thawed, or its deadline of 30 s.
const SECONDS_MAX: f64 = 10.0;

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).run_bounded();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A file system of its own, which can be frozen. However the test ends, it is thawed and taken away.
struct Frozen {
    directory: PathBuf,
    device: String,
}

impl Frozen {
    /// `None` where this test cannot have one.
    fn new(cluster: &Cluster) -> Option<Frozen> {
        let (image, directory) = (cluster.local("image"), cluster.local("cold"));
        fs::create_dir(&directory).expect("made");
        fs::File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).expect("made");
        let image = text(&image);
        let made =
            run("mkfs.ext4", &["-q", &image]).and_then(|_| run("losetup", &["--find", "--show", &image]));
        let Some(device) = made else {
            eprintln!("not tested: no loop device, no ext4, or not root");
            return None;
        };
        let frozen = Frozen { directory, device };
        let is_mounted = run("mount", &[&frozen.device, &text(&frozen.directory)]).is_some();
        if !is_mounted {
            eprintln!("not tested: nothing can be mounted");
        }
        is_mounted.then_some(frozen)
    }

    /// Freezes it while `work` runs. It is thawed also where that panics: whoever waited for a process that it holds up
    /// would wait for ever.
    fn while_frozen<T>(&self, work: impl FnOnce() -> T) -> T {
        run("fsfreeze", &["--freeze", &text(&self.directory)]).expect("frozen");
        let worked = catch_unwind(AssertUnwindSafe(work));
        self.thaw();
        worked.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn thaw(&self) {
        run("fsfreeze", &["--unfreeze", &text(&self.directory)]);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        // Lazily: a daemon that has just been told to end may still have it open.
        run("umount", &["--lazy", &text(&self.directory)]);
        run("losetup", &["--detach", &self.device]);
    }
}

/// A node with all roles, two targets and an area; the second target lies on the frozen disk. Its volume may
/// be mounted.
struct Node {
    cluster: Cluster,
    process: Child,
    mount: Option<Child>,
}

impl Node {
    fn start(cluster: Cluster) -> Node {
        let path = |name: &str| text(&cluster.local(name));
        fs::create_dir(path("area")).expect("made");
        fs::write(cluster.local("area/f"), noise(10_000)).expect("written");
        let toml = format!(
            "name = \"all\"\nroles = [\"meta\", \"data\"]\nlisten = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\n\
             [meta]\ndirectory = \"m\"\n[data]\ntargets = [\"t\", \"cold/t\"]\n\
             [[area]]\nname = \"a\"\npath = {:?}\n",
            path("area")
        );
        fs::write(path("node.toml"), toml).expect("written");
        let process = Node::serve(&cluster);
        let node = Node { cluster, process, mount: None };
        let client = format!("meta = [{}]\ninsecure = true\n", node.notice()["address"]);
        fs::write(node.cluster.local("client.toml"), client).expect("written");
        node
    }

    fn serve(cluster: &Cluster) -> Child {
        let log = fs::File::options().create(true).append(true).open(cluster.local("log")).expect("made");
        let mut command = Command::new(VAZAO);
        command.args(["serve", "--insecure", "--until-stdin-closes", "--config"]);
        command.arg(cluster.local("node.toml")).env("VAZAO_LOG", "info");
        let process = command.stdin(Stdio::piped()).stderr(log).spawn().expect("it starts");
        wait_until("it serves", || cluster.local("running.json").exists());
        process
    }

    fn notice(&self) -> serde_json::Value {
        let text = fs::read(self.cluster.local("running.json")).expect("it runs");
        serde_json::from_slice(&text).expect("JSON")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(VAZAO);
        command.args(arguments).env("VAZAO_CLUSTER", self.cluster.local("client.toml"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).run_bounded()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        succeeded(self.run(arguments))
    }

    /// Runs what does not need the frozen disk.
    fn soon(&self, arguments: &[&str]) -> Vec<u8> {
        let (output, took) = seconds(|| self.run(arguments));
        let said = String::from_utf8_lossy(&output.stderr);
        let is_well = output.status.success() && took < SECONDS_MAX;
        assert!(is_well, "{arguments:?} took {took:.1} s: {said}\n{}", self.log());
        output.stdout
    }

    fn mountpoint(&self) -> PathBuf {
        self.cluster.local("mnt")
    }

    fn mount(&mut self, name: &str) {
        fs::create_dir(self.mountpoint()).expect("made");
        let arguments = ["mount", "vz:/", &text(&self.mountpoint()), "--foreground"];
        self.mount = Some(spawn(self.command(&arguments)));
        wait_until("it is mounted", || self.mountpoint().join(name).exists());
    }

    fn unmount(&mut self) {
        let Some(mut mount) = self.mount.take() else { return };
        self.run(&["umount", "--lazy", &text(&self.mountpoint())]);
        mount.wait_bounded();
    }

    fn target_of(&self, file: &str) -> String {
        let said = self.ok(&["layout", file, "--json"]);
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        said["slots"][0]["target"].as_str().expect("a target").to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.cluster.local("log")).expect("a log")
    }

    fn ask_to_end(&self) {
        signal(self.process.id(), Signal::TERM);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.unmount();
        if let Ok(None) = self.process.try_wait() {
            self.process.kill_bounded();
        }
    }
}

/// Writes blocks to a file until its standard input ends, and then stores in another file what the first one has to
/// hold. Where the disk hung for so long that a write failed, all bytes are written again.
const WRITES_ON: &str = r#"
use IO::Handle;
my ($path, $expected) = @ARGV;
open(my $file, '+<:raw', $path) or die $!;
sysread($file, my $bytes, 3_000_000) or die $!;
my ($round, $is_whole, $waiting) = (0, 1, '');
vec($waiting, fileno(STDIN), 1) = 1;
until (select(my $ended = $waiting, undef, undef, 0)) {
    my ($at, $length) = ($round * 7 % 20 * 100_000, 100_000 + $round % 3);
    my $block = chr(65 + $round % 26) x $length;
    substr($bytes, $at, $length) = $block;
    sysseek($file, $at, 0);
    $is_whole &&= syswrite($file, $block) == $length;
    # Every now and then, so that others have some of the machine, too.
    $is_whole &&= $file->sync if $round % 4 == 3;
    $round++;
}
$is_whole &&= $file->sync;
for (1 .. 60) {
    last if $is_whole;
    sysseek($file, 0, 0);
    ($is_whole = syswrite($file, $bytes) == length($bytes) && $file->sync) or sleep 1;
}
$is_whole or die $!;
open(my $out, '>:raw', $expected) or die $!;
print($out $bytes) && close($out) or die $!;
"#;

/// A process that writes to a file of the mount. Of its own: a process that has files of a mount open and begins
/// another one waits until that one's copies of its descriptors are closed, which stores what was written.
struct Writer {
    process: Child,
    expected: PathBuf,
}

impl Writer {
    fn start(node: &Node, name: &str) -> Writer {
        let name = name.trim_start_matches("vz:/");
        let expected = node.cluster.local(&format!("expected-{name}"));
        let mut command = Command::new("perl");
        command.args(["-e", WRITES_ON]).arg(node.mountpoint().join(name)).arg(&expected);
        Writer { process: command.stdin(Stdio::piped()).spawn().expect("it starts"), expected }
    }

    /// Ends it; returns what the file has to hold.
    fn end(mut self) -> Vec<u8> {
        drop(self.process.stdin.take());
        assert!(self.process.wait_bounded().success(), "all is written");
        fs::read(&self.expected).expect("written")
    }
}

/// Writes went into the page cache by the thread that had the connection: one to a disk that hung held up whoever else
/// that thread served, and the thread of background work held up all targets, areas and the metadata.
#[test]
fn a_target_whose_disk_hangs_is_named_and_holds_up_nothing_else_of_its_node() {
    let cluster = Cluster::unstarted();
    let Some(frozen) = Frozen::new(&cluster) else { return };
    let mut node = Node::start(cluster);
    node.ok(&["layout", "vz:/", "--width", "1"]);
    let source = noise_file(&node.cluster.local("source"), 2_100_000);
    let names: Vec<String> = (0..4).map(|number| format!("vz:/f{number}")).collect();
    names.iter().for_each(|name| drop(node.ok(&["cp", &source, name])));
    let (cold, well): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| node.target_of(name) == "t2");
    assert!(!cold.is_empty() && !well.is_empty());
    node.mount("f0");
    let writers = [cold[0], well[0]].map(|name| Writer::start(&node, name));
    frozen.while_frozen(|| look_around(&node, &source, &well));
    let written = writers.map(Writer::end);
    for (name, written) in [cold[0], well[0]].into_iter().zip(&written) {
        assert!(node.run(&["cat", name]).stdout == *written, "{name}");
    }
    cold[1..].iter().for_each(|name| assert!(node.run(&["cat", name]).stdout == noise(2_100_000), "{name}"));
    wait_until("no trouble is left", || node.ok(&["status"]).contains("no trouble"));
    node.unmount();
    ends_with_a_disk_that_hangs(node, &frozen, cold[0], &written[0]);
}

/// What has to go on while the disk hangs.
fn look_around(node: &Node, source: &str, well: &[&String]) {
    let mut status = String::new();
    let mut round = 0;
    wait_until("status names it", || {
        round += 1;
        assert!(node.soon(&["cat", "all:/a/f"]) == noise(10_000));
        node.soon(&["ls", "vz:/"]);
        node.soon(&["mkdir", &format!("vz:/d{round}")]);
        well[1..].iter().for_each(|name| assert!(node.soon(&["cat", name]) == noise(2_100_000)));
        status = String::from_utf8(node.soon(&["status"])).expect("text");
        status.contains("TROUBLE: target t2 of all")
    });
    assert!(status.contains("has not answered for") && !status.contains("silent"), "{status}");
    let is_logged = |line: &str| line.contains("WARN") && line.contains("cold/t of node all");
    wait_until("its log names it, too", || node.log().lines().any(is_logged));
    // The status asks the node itself; where new files go is decided by what its reports have said.
    let config = Config::load(&node.cluster.local("client.toml")).expect("a configuration");
    let client = Client::connect_with(&config, config.options()).expect("connects");
    wait_until("the metadata service has heard of it", || {
        let map = client.refresh_map().expect("it answers");
        map.targets.iter().any(|target| !target.trouble.is_empty())
    });
    client.close().expect("closed");
    for name in ["vz:/new1", "vz:/new2", "vz:/new3"] {
        node.soon(&["cp", source, name]);
        assert_eq!(node.target_of(name), "t1", "new files avoid it");
    }
}

/// The other target is clean at the end, though the first disk hangs, and the end comes as soon as that answers.
fn ends_with_a_disk_that_hangs(mut node: Node, frozen: &Frozen, file: &str, bytes: &[u8]) {
    // Something that the end has to write.
    node.ok(&["cp", "vz:/f0", "vz:/last0"]);
    node.ok(&["cp", "vz:/f0", "vz:/last1"]);
    frozen.while_frozen(|| {
        node.ask_to_end();
        wait_until("it says which disk it waits for", || {
            node.log().lines().any(|line| line.contains("waiting for its disk") && line.contains("cold/t"))
        });
    });
    assert!(node.process.wait_bounded().success());
    fs::remove_file(node.cluster.local("log")).expect("removed");
    let _ = fs::remove_file(node.cluster.local("running.json"));
    node.process = Node::serve(&node.cluster);
    let client = format!("meta = [{}]\ninsecure = true\n", node.notice()["address"]);
    fs::write(node.cluster.local("client.toml"), client).expect("written");
    wait_until("the file is there again", || node.run(&["cat", file]).stdout == bytes);
    assert!(!node.log().contains("unclean"), "{}", node.log());
    node.ask_to_end();
    assert!(node.process.wait_bounded().success());
}
