//! A cluster of the real binaries, each node on a disk of its own that can lose power.

use crate::clock::wait_until;
use crate::disk::Odds;
use crate::disk::shown::{Disks, Loss};
use crate::enclosure::Enclosure;
use crate::failure::{Failure, Outcome};
use crate::tool::{command, run, tool};
use crate::volume::{FileSystem, Volume};
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use vazao_disk::{Disk, Open, RealDisk};

/// Sparse in memory: what is never written takes nothing. More than XFS asks for, and room for the reserve of a data
/// server.
const DISK_BYTES: u64 = 768 << 20;

/// Lines of each log that are shown beside a finding.
const LAST_LINES: usize = 40;

/// The metadata service's node; the data servers come after it.
pub const META: usize = 0;

/// Nodes on disks that lose power.
#[derive(Debug)]
pub struct Cluster {
    vazao: PathBuf,
    directory: PathBuf,
    nodes: Vec<Node>,
    disks: Disks,
}

#[derive(Debug)]
struct Node {
    name: String,
    volume: Volume,
}

impl Cluster {
    /// Makes a cluster of one metadata service and `data_servers` in `scratch`, each on a disk with a file system of
    /// `kind`. It is running.
    pub fn make(vazao: &Path, scratch: &Path, kind: FileSystem, data_servers: usize) -> Outcome<Cluster> {
        let names = std::iter::once("meta1".to_owned()).chain((1..=data_servers).map(|n| format!("data{n}")));
        let names: Vec<String> = names.collect();
        let at = |directory: &str, name: &String| scratch.join(directory).join(name);
        let places: Vec<PathBuf> = names.iter().map(|name| at("disks", name)).collect();
        places
            .iter()
            .try_for_each(|place| fs::create_dir_all(place).map_err(Failure::at(place.display())))?;
        let program = std::env::current_exe().map_err(Failure::at("finding this program"))?;
        let disks = Disks::start(&program, DISK_BYTES, kind.sector_bytes(), &places)?;
        let directory = scratch.join("cluster");
        let mut nodes = Vec::new();
        for (number, name) in names.into_iter().enumerate() {
            let volume = Volume::make(kind, disks.file(number), directory.join("nodes").join(&name))?;
            nodes.push(Node { name, volume });
        }
        let cluster = Cluster { vazao: vazao.to_owned(), directory, nodes, disks };
        // Begun beside the disks and moved onto them: only `vazao up` knows what belongs into a node's directory.
        cluster.up(&["--data-servers", &data_servers.to_string()])?;
        cluster.down()?;
        cluster.nodes.iter().try_for_each(|node| cluster.move_onto_disk(node, scratch))?;
        cluster.nodes.iter().try_for_each(|node| {
            tool("sync", &["--file-system", &node.volume.path().to_string_lossy()]).map(drop)
        })?;
        cluster.up(&[])?;
        Ok(cluster)
    }

    fn move_onto_disk(&self, node: &Node, scratch: &Path) -> Outcome {
        let (place, aside) = (node.volume.path(), scratch.join(format!("{}-before", node.name)));
        fs::rename(place, &aside).map_err(Failure::at(place.display()))?;
        fs::create_dir(place).map_err(Failure::at(place.display()))?;
        node.volume.mount()?;
        let (from, to) = (format!("{}/.", aside.display()), place.to_string_lossy());
        tool("cp", &["-a", &from, &to]).map(drop)
    }

    /// How many nodes there are, the metadata service's included.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// What clients are given.
    pub fn client_file(&self) -> PathBuf {
        self.directory.join("client.toml")
    }

    /// Where a node keeps everything.
    pub fn place(&self, node: usize) -> &Path {
        self.nodes[node].volume.path()
    }

    /// From here on no flush of any disk is done.
    pub fn lie(&mut self) -> Outcome {
        let all: Vec<usize> = (0..self.nodes()).collect();
        self.disks.lie(&all)
    }

    /// A `vazao` command for this cluster.
    pub fn vazao(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.vazao);
        command.args(arguments).env("VAZAO_CLUSTER", self.client_file()).env_remove("VAZAO_LOG");
        command.env("XDG_STATE_HOME", self.directory.join("state"));
        command
    }

    fn up_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.vazao(&["up", "--detach", "--dir"]);
        command.arg(&self.directory).args(arguments);
        command
    }

    /// Starts the nodes that do not run.
    pub fn up(&self, arguments: &[&str]) -> Outcome {
        run(self.up_command(arguments)).map(drop)
    }

    /// Begins to start the nodes, and does not wait for them.
    pub fn begin_up(&self) -> Outcome<Child> {
        let mut command = self.up_command(&[]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.spawn().map_err(Failure::at("vazao up"))
    }

    /// Stops the nodes in order.
    pub fn down(&self) -> Outcome {
        let mut command = self.vazao(&["down", "--dir"]);
        command.arg(&self.directory);
        run(command).map(drop)
    }

    /// Mounts the volume.
    pub fn mount(&self, mountpoint: &Path, cluster: &Path) -> Outcome {
        let mut command = self.vazao(&["mount", "vz:/"]);
        command.arg(mountpoint).env("VAZAO_CLUSTER", cluster);
        run(command).map(drop)
    }

    /// Ends a mount in order.
    pub fn unmount(&self, mountpoint: &Path) -> Outcome {
        let mut command = self.vazao(&["umount"]);
        command.arg(mountpoint);
        run(command).map(drop)
    }

    /// The processes of nodes: all that were told to serve from their directories.
    fn processes_of(&self, nodes: &[usize]) -> Vec<Pid> {
        let is_one = |words: &[&[u8]]| {
            let config = |node: &usize| self.place(*node).join("node.toml");
            words.contains(&b"serve".as_slice())
                && nodes.iter().any(|node| words.contains(&config(node).to_string_lossy().as_bytes()))
        };
        processes(is_one)
    }

    /// Stops the processes of nodes at one moment, so that none answers anything from then on.
    pub fn freeze(&self, nodes: &[usize]) -> Outcome {
        let pids = self.processes_of(nodes);
        pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
        wait_until("the stopped nodes stand still", || pids.iter().all(|pid| stands_still(*pid)))
    }

    /// Takes the power of the disks of `nodes`, unless it has gone already.
    pub fn lose_power(&mut self, nodes: &[usize], seed: u64, odds: Odds) -> Outcome<Loss> {
        self.disks.lose_power(nodes, seed, odds)
    }

    /// Power of the disks of `nodes` will go with one of the next writes.
    pub fn arm(&mut self, nodes: &[usize], writes: u64, seed: u64, odds: Odds) -> Outcome {
        self.disks.arm(nodes, writes, seed, odds)
    }

    /// Has the kernel write back some of what it has in memory of a node's files, as it may at any time: onto the disk,
    /// and not flushed.
    pub fn write_back(&self, node: usize, random: &mut StdRng) -> Outcome {
        let disk = RealDisk::open(self.place(node)).map_err(Failure::at(self.place(node).display()))?;
        let mut left = vec![String::new()];
        while let Some(directory) = left.pop() {
            // What disappears meanwhile is not written back.
            for entry in disk.list(&directory).unwrap_or_default() {
                let path = format!("{directory}/{}", entry.name).trim_start_matches('/').to_owned();
                if entry.is_directory {
                    left.push(path);
                } else if random.random_bool(0.5)
                    && let Ok(file) = disk.open(&path, Open::ReadOnly)
                {
                    let start = random.random_range(0..4u64) << 16;
                    file.start_write_back(start, 1 << 30);
                }
            }
        }
        Ok(())
    }

    /// Ends everything of `nodes` that power ends, and brings their disks back. The daemons do not run yet.
    pub fn recover_disks(&mut self, nodes: &[usize], enclosure: &mut Enclosure) -> Outcome {
        let pids = self.processes_of(nodes);
        kill(&pids)?;
        nodes.iter().try_for_each(|node| self.nodes[*node].volume.unmount())?;
        enclosure.boot()?;
        self.disks.gain_power(nodes)?;
        nodes.iter().try_for_each(|node| self.nodes[*node].volume.mount())
    }

    /// Unmounts the disks, once nothing runs on them.
    pub fn close(self) -> Outcome {
        self.nodes.iter().try_for_each(|node| node.volume.unmount())
    }

    /// Kills the process behind a mount, and clears the mountpoint away.
    pub fn kill_mount(&self, mountpoint: &Path) -> Outcome {
        let place = mountpoint.to_string_lossy().into_owned();
        let is_it = |words: &[&[u8]]| {
            words.contains(&b"--foreground".as_slice()) && words.contains(&place.as_bytes())
        };
        kill(&processes(is_it))?;
        tool("umount", &["--lazy", &place]).map(drop)
    }

    /// The ends of the nodes' logs.
    pub fn last_words(&self) -> String {
        let log = |node: &Node| self.directory.join("log").join(format!("{}.log", node.name));
        self.nodes.iter().map(|node| end_of(&log(node))).collect()
    }
}

/// The end of a log, under its name.
pub fn end_of(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ");
    format!("{}:\n  {last}\n", log.display())
}

/// Processes by the words that they were started with.
fn processes(is_one: impl Fn(&[&[u8]]) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").map(|it| it.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let pids = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found = Vec::new();
    for pid in pids {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        if is_one(&words) {
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}

fn signal(pid: Pid, signal: Signal) {
    // One that has ended meanwhile is what was wanted.
    let _ = kill_process(pid, signal);
}

fn state_of(stat: &str) -> char {
    stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next()).unwrap_or('X')
}

/// Kills processes and waits until they are gone.
pub fn kill(pids: &[Pid]) -> Outcome {
    pids.iter().for_each(|pid| signal(*pid, Signal::KILL));
    let is_gone = |pid: &Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        // Its files are closed when all of its threads are gone; until then it is a zombie with threads.
        let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).map_or(0, Iterator::count);
        stat.is_empty() || matches!(state_of(&stat), 'Z' | 'X') && threads <= 1
    };
    wait_until("the killed processes are gone", || pids.iter().all(is_gone))
}

/// True when no thread of a process can answer any more: stopped, ended, or in a call of the kernel that it
/// leaves stopped.
fn stands_still(pid: Pid) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else { return true };
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        matches!(state_of(&stat), 'T' | 't' | 'D' | 'Z' | 'X')
    })
}
