//! A file system that hangs beneath one area of a node: a FUSE mount whose process is stopped.

use crate::support::{Cluster, freeze, noise, noise_file, signal, spawn, text, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use vazao_client::area::AreaClient;
use vazao_client::{Client, Config};
use vazao_model::Code;
use vazao_testing::programs::WaitBounded;

/// True where this test can mount.
fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("not tested: no /dev/fuse, or not root");
    }
    can
}

/// A mount of another cluster's volume, whose process can be stopped. It goes on, and is taken away, however the test
/// ends.
struct Mounted {
    behind: Cluster,
    mountpoint: PathBuf,
    process: Child,
}

impl Mounted {
    fn new() -> Mounted {
        let behind = Cluster::start(1);
        let mountpoint = behind.local("mounted");
        fs::create_dir(&mountpoint).expect("made");
        let arguments = ["mount", "vz:/", &text(&mountpoint), "--foreground"];
        let process = spawn(behind.command(&arguments));
        let device = |path: &Path| rustix::fs::stat(path).map(|status| status.st_dev).ok();
        wait_until("it is mounted", || device(&mountpoint) != device(behind.local("").as_path()));
        Mounted { behind, mountpoint, process }
    }

    fn hang(&self) {
        freeze(self.process.id());
    }

    fn go_on(&self) {
        signal(self.process.id(), Signal::CONT);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.go_on();
        // Lazily: a cluster that has just ended may still have files of it open.
        self.behind.run(&["umount", "--lazy", &text(&self.mountpoint)]);
        wait_until("the mount's process ends", || matches!(self.process.try_wait(), Ok(Some(_))));
    }
}

fn client_of(cluster: &Cluster) -> Client {
    let config = Config::load(&cluster.client_file()).expect("a configuration");
    Client::connect_with(&config, config.options()).expect("connects")
}

fn read(area: &AreaClient, name: &str) -> Result<Vec<u8>, vazao_client::Error> {
    let channel = area.open(name.as_bytes(), &vazao_client::area::ChannelOptions::default())?;
    let mut bytes = vec![0; 1 << 20];
    let count = channel.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Twelve readers of an area whose file system hung took the eight threads of all areas of the node: no other area of
/// it answered for as long as it hung.
#[test]
fn an_area_that_hangs_is_named_fails_fast_and_holds_up_nothing_else_of_its_node() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new();
    let cluster = Cluster::start(2);
    let hung = mounted.mountpoint.join("area");
    let well = cluster.local("well");
    for directory in [&hung, &well] {
        fs::create_dir(directory).expect("made");
        fs::write(directory.join("f"), noise(100_000)).expect("written");
    }
    for (name, directory) in [("hung", &hung), ("well", &well)] {
        let (directory, dir) = (text(directory), text(&cluster.dir()));
        cluster.ok(&["area", "add", name, &directory, "--dir", &dir, "--node", "data1"]);
    }
    wait_until("both are exported", || cluster.ok(&["area", "list"]).matches("serving").count() == 2);
    let file = noise_file(&cluster.local("file"), 3_000_000);
    let client = client_of(&cluster);
    let area = |name| client.area("data1", name);
    assert!(read(&area("hung"), "f").expect("answers") == noise(100_000));
    mounted.hang();
    // More than its threads, and more than a connection may have unanswered.
    let callers: Vec<_> = (0..80)
        .map(|number| {
            let hung = area("hung");
            std::thread::spawn(move || {
                read(&hung, if number % 2 == 0 { "f" } else { "none" }).expect_err("hangs")
            })
        })
        .collect();
    let status = || cluster.ok(&["status"]);
    let mut said = String::new();
    wait_until("the area is named", || {
        assert!(read(&area("well"), "f").expect("the area beside it goes on") == noise(100_000));
        said = status();
        said.contains("TROUBLE: area hung of data1")
    });
    assert!(said.contains("has not answered for"), "{said}");
    wait_until("its log names it, too", || {
        let log = fs::read_to_string(cluster.dir().join("log/data1.log")).expect("a log");
        log.lines().any(|line| line.contains("WARN") && line.contains("area hung of node data1"))
    });
    // The other roles of the node: its target, copies between its areas.
    cluster.ok(&["cp", &file, "vz:/file"]);
    cluster.ok(&["cp", "data1:/well/f", "vz:/copied"]);
    for caller in callers {
        let error = caller.join().expect("no panic");
        assert!(matches!(error.code, Code::Hung | Code::Timeout | Code::Overloaded), "{error}");
    }
    let error = read(&area("hung"), "f").expect_err("fails at once");
    assert_eq!(error.code, Code::Hung, "{error}");
    assert!(error.to_string().contains("area hung of node data1"), "{error}");
    mounted.go_on();
    wait_until("it is used again", || read(&area("hung"), "f").is_ok());
    wait_until("no trouble is left", || status().contains("no trouble"));
    client.close().expect("closed");
    mounted.hang();
    let last = spawn(cluster.command(&["cat", "data1:/hung/f"]));
    cluster.down();
    mounted.go_on();
    last.output_bounded();
}
