//! docs/operations.md, done: its commands are read from the page and run by a shell on two machines, which are
//! directories here. A block of the page that no test runs fails, too.

use crate::support::{VAZAO, free_port, host, noise_file, succeeded, text, wait_until};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use vazao_meter::{Clock, SystemClock};
use vazao_testing::programs::RunBounded;

/// Directories of the page that each machine has for itself.
const OWN: [&str; 4] = ["/etc/vazao", "/var/lib/vazao", "/disk1", "/usr/local/bin"];

/// Those that all machines have together.
const SHARED: [&str; 2] = ["/backup", "/tmp/lost"];

/// A cluster is well again after so many looks.
const HEALTH_LOOKS_MAX: u32 = 60;

/// systemctl(1), as far as the page needs it. Like that one it does not wait until the node serves.
const SYSTEMCTL: &str = r#"#!/bin/bash
stop() {
    [ -e "$MACHINE/pid" ] || return 0
    kill -TERM "$(cat "$MACHINE/pid")" && while [ -e "/proc/$(cat "$MACHINE/pid")" ]; do sleep 0.05; done
    rm "$MACHINE/pid"
}
start() {
    setsid vazao serve --config "$MACHINE/etc/vazao/node.toml" </dev/null >/dev/null 2>>"$MACHINE/log" &
    echo $! >"$MACHINE/pid"
}
[ "$2" = vazao ] || exit 1
case "$1" in
    start) start ;;
    stop) stop ;;
    restart) stop; start ;;
    *) exit 1 ;;
esac
"#;

/// mail(1): keeps the subject.
const MAIL: &str = "#!/bin/bash\necho \"$2\" >>\"$MACHINE/mail\"\n";

/// The page: its blocks by heading.
struct Page {
    blocks: Vec<(String, Vec<String>)>,
    run: RefCell<BTreeSet<usize>>,
}

impl Page {
    fn read() -> Page {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
        let (mut heading, mut block, mut blocks) = (String::new(), None, Vec::new());
        for line in fs::read_to_string(file).expect("the page").lines() {
            if line.trim() == "```" {
                match block.take() {
                    Some(lines) => blocks.push((heading.clone(), lines)),
                    None => block = Some(Vec::new()),
                }
            } else if let Some(lines) = &mut block {
                lines.push(line.trim().to_owned());
            } else if let Some(title) = line.strip_prefix("## ") {
                title.clone_into(&mut heading);
            }
        }
        Page { blocks, run: RefCell::default() }
    }

    /// The commands of a block.
    fn block(&self, heading: &str, number: usize) -> Vec<String> {
        let mut under = self.blocks.iter().enumerate().filter(|(_, (title, _))| title == heading);
        let (index, (_, lines)) = under.nth(number).expect("the page has this block");
        self.run.borrow_mut().insert(index);
        lines.clone()
    }

    fn not_run(&self) -> Vec<&(String, Vec<String>)> {
        let run = self.run.borrow();
        self.blocks
            .iter()
            .enumerate()
            .filter(|(index, _)| !run.contains(index))
            .map(|(_, block)| block)
            .collect()
    }
}

/// Two machines: `host1` with the metadata and two targets, `host2` with the target t3 on /disk1.
struct Machines {
    scratch: TempDir,
    page: Page,
}

impl Drop for Machines {
    fn drop(&mut self) {
        for host in ["host1", "host2"] {
            if let Ok(pid) = fs::read_to_string(self.root(host).join("pid")) {
                Command::new("kill").args(["-KILL", pid.trim()]).run_bounded();
            }
        }
    }
}

impl Machines {
    fn new() -> Machines {
        let machines =
            Machines { scratch: tempfile::tempdir().expect("a temporary directory"), page: Page::read() };
        for host in ["host1", "host2"] {
            for directory in ["etc", "var/lib/vazao", "disk1", "usr/local/bin", "disks", "stubs"] {
                fs::create_dir_all(machines.root(host).join(directory)).expect("created");
            }
            for (name, script) in [("systemctl", SYSTEMCTL), ("mail", MAIL)] {
                let file = machines.root(host).join("stubs").join(name);
                fs::write(&file, script).expect("written");
                fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
            }
            std::os::unix::fs::symlink(VAZAO, machines.root(host).join("stubs/vazao")).expect("linked");
        }
        for directory in ["backup", "tmp"] {
            fs::create_dir(machines.root(directory)).expect("created");
        }
        machines.init();
        machines
    }

    /// A machine's `/`; also a place that all of them have.
    fn root(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// `vazao node init` and `join`, with the places that a system has. Starts both.
    fn init(&self) {
        let port = free_port();
        let address = host();
        let one = format!("vazao node init --name host1 --host {address} --dir /etc/vazao");
        let disks = self.root("host1/disks").display().to_string();
        let more = format!("--metadata /var/lib/vazao/host1/metadata --data {disks}/1 --data {disks}/2");
        self.ok("host1", &format!("{one} --port {port} {more}"));
        let key = self.root("host1/etc/vazao/cluster.key").display().to_string();
        self.put_state_where_systems_have_it("host1");
        self.ok("host1", "systemctl start vazao");
        self.wait_for_targets(2);
        let two = format!("vazao node join {address}:{port} --name host2 --host {address} --dir /etc/vazao");
        self.ok("host2", &format!("{two} --port {} --key-file {key} --data /disk1/vazao", free_port()));
        self.put_state_where_systems_have_it("host2");
        self.ok("host2", "systemctl start vazao");
        self.wait_for_targets(3);
    }

    /// The default is what it is only for a configuration in /etc itself.
    fn put_state_where_systems_have_it(&self, host: &str) {
        let config = self.root(host).join("etc/vazao/node.toml");
        let state = self.root(host).join("var/lib/vazao").join(host);
        let line = format!("state_dir = \"{}\"\nkey_file", state.display());
        let text = fs::read_to_string(&config).expect("readable").replace("key_file", &line);
        fs::write(config, text).expect("written");
    }

    /// What a shell on a machine is given for a line of the page.
    fn here(&self, host: &str, line: &str) -> String {
        let own = OWN.iter().map(|path| (*path, text(&self.root(host)) + path));
        let shared = SHARED.iter().map(|path| (*path, text(self.scratch.path()) + path));
        // In one pass: what was put in must not be found again.
        let places: Vec<(&str, String)> = own.chain(shared).collect();
        let (mut rest, mut whole) = (line, String::new());
        while !rest.is_empty() {
            let known = places.iter().find(|(path, _)| rest.starts_with(path));
            let known = known.filter(|_| !whole.ends_with(|c: char| c.is_alphanumeric()));
            let length = known.map_or(rest.chars().next().map_or(0, char::len_utf8), |(path, _)| path.len());
            whole += known.map_or(&rest[..length], |(_, place)| place);
            rest = &rest[length..];
        }
        whole
    }

    fn shell(&self, host: &str, script: &str) -> Command {
        let root = self.root(host);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command.args(["-e", "-u", "-o", "pipefail", "-c"]).arg(self.here(host, script));
        command.current_dir(&root).env("MACHINE", &root).env("XDG_STATE_HOME", root.join("state"));
        command.env("VAZAO_CLUSTER", self.root("host1/etc/vazao/client.toml")).env_remove("VAZAO_LOG");
        command.env("PATH", format!("{0}/usr/local/bin:{0}/stubs:{path}", root.display()));
        command.env("TMPDIR", self.scratch.path());
        command
    }

    fn ok(&self, host: &str, script: &str) -> String {
        succeeded(self.shell(host, script).run_bounded())
    }

    /// Runs a block of the page as it stands there.
    fn follow(&self, host: &str, heading: &str, number: usize) -> String {
        self.ok(host, &self.page.block(heading, number).join("\n"))
    }

    fn status(&self) -> String {
        let output = self.shell("host1", "vazao status").run_bounded();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn wait_for_targets(&self, count: usize) {
        wait_until("the targets are there", || {
            let output = self.shell("host1", "vazao status --json").run_bounded();
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            status["targets"].as_array().is_some_and(|targets| {
                targets.len() == count && targets.iter().all(|target| target["state"] == "serving")
            })
        });
    }

    fn healthy(&self) {
        let mut status = String::new();
        let is_healthy = |status: &mut String| {
            *status = self.status();
            status.contains("no trouble")
        };
        (0..HEALTH_LOOKS_MAX).any(|_| {
            let is_healthy = is_healthy(&mut status);
            if !is_healthy {
                SystemClock.sleep(Duration::from_millis(500));
            }
            is_healthy
        });
        assert!(status.contains("no trouble"), "{status}");
    }

    /// A file of the volume of 2 MB, which is on all targets.
    fn write(&self, name: &str) -> Vec<u8> {
        let file = noise_file(&self.root("file"), 2_000_000 + name.len());
        self.ok("host1", &format!("vazao cp {file} vz:/{name}"));
        fs::read(file).expect("readable")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let output = self.shell("host1", &format!("vazao cat vz:/{name}")).run_bounded();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
        output.stdout
    }

    fn names(&self) -> Vec<String> {
        self.ok("host1", "vazao ls vz:/").lines().map(str::to_owned).collect()
    }

    fn watch_and_upgrade(&self) {
        let watch = "Watch";
        self.healthy();
        self.follow("host1", watch, 0);
        assert!(!self.root("host1/mail").exists(), "there is no trouble to write of");
        self.ok("host2", &self.page.block("Take a node out of service for a while", 0)[0]);
        wait_until("it is missed", || {
            self.status().contains("host2") && !self.status().contains("no trouble")
        });
        self.ok("host1", &self.page.block(watch, 0)[0]);
        let mail = fs::read_to_string(self.root("host1/mail")).expect("there is trouble to write of");
        assert!(mail.contains("in trouble"), "{mail}");
        self.ok("host2", &self.page.block("Take a node out of service for a while", 0)[1]);
        self.healthy();
        for host in ["host1", "host2"] {
            fs::copy(VAZAO, self.root(host).join("vazao")).expect("copied");
            self.follow(host, "Upgrade", 0);
            assert!(self.root(host).join("usr/local/bin/vazao").exists());
        }
    }

    fn back_up_and_restore_metadata(&self) {
        let restore = "Restore the metadata";
        let before = self.write("before");
        self.follow("host1", "Back up the metadata", 0);
        self.healthy();
        self.write("since");
        self.follow("host1", restore, 0);
        wait_until("it is noticed", || self.status().contains("older copy"));
        let listed = self.shell("host1", "vazao ls vz:/").run_bounded();
        assert!(!listed.status.success(), "nothing is served");
        self.follow("host1", restore, 1);
        self.wait_for_targets(3);
        assert_eq!(self.names(), ["before"]);
        assert!(self.read("before") == before);
        // The whole machine is lost.
        self.ok("host1", "systemctl stop vazao");
        fs::remove_dir_all(self.root("host1/etc/vazao")).expect("removed");
        fs::remove_dir_all(self.root("host1/var/lib/vazao")).expect("removed");
        self.follow("host1", restore, 2);
        self.ok("host1", "systemctl start vazao");
        wait_until("it serves, or asks", || {
            let status = self.status();
            status.contains("no trouble") || status.contains("older copy")
        });
        if self.status().contains("older copy") {
            self.follow("host1", restore, 1);
        }
        self.wait_for_targets(3);
        assert!(self.read("before") == before);
    }

    fn replace_a_disk(&self) {
        let lost = "A disk is lost";
        let before = self.write("second");
        self.follow("host1", "Back up files", 0);
        assert!(fs::read(self.root("backup/files/second")).expect("a backup") == before);
        self.ok("host2", "systemctl stop vazao && rm -r /disk1/vazao");
        wait_until("it is missed", || self.status().contains("t3"));
        self.follow("host1", lost, 0);
        let listed = fs::read_to_string(self.root("tmp/lost")).expect("a list");
        assert!(listed.lines().any(|line| line == "vz:/second"), "{listed}");
        self.follow("host2", lost, 1);
        self.wait_for_targets(3);
        assert!(!self.shell("host1", "vazao cat vz:/second").run_bounded().status.success());
        self.follow("host1", lost, 2);
        assert!(self.read("second") == before);
    }
}

/// The page was written from the code, and the backup it had us make twice into one directory was no backup: files of
/// the first that the second had no more stayed among its own.
#[test]
fn every_command_of_the_page_for_operators_works_as_printed() {
    let machines = Machines::new();
    machines.watch_and_upgrade();
    machines.back_up_and_restore_metadata();
    machines.replace_a_disk();
    assert!(machines.page.not_run().is_empty(), "no test runs {:?}", machines.page.not_run());
}
