//! A cluster of the real binaries on plain directories, each daemon and each mount a child of this process, in
//! surroundings of its own: its host's network, or its own wall clock.

use crate::clock::wait_until_within;
use crate::cluster;
use crate::failure::{Failure, Outcome};
use crate::tool::{command, run, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The metadata service's process and host; those of data servers come after it, and then those of clients.
pub(crate) const META: usize = 0;

/// How long daemons may take to start, on a busy machine.
const START_MS_MAX: u64 = 60_000;

/// How long they may take to end.
const END_MS_MAX: u64 = 30_000;

/// Port of each daemon on a host of its own.
pub(crate) const PORT: u16 = 7_000;

/// Where a process runs.
pub(crate) trait Surroundings {
    /// A command that will run there. `process`: its number.
    fn command(&self, process: usize, program: &Path) -> Command;
    /// The address of a daemon's host, where it is not that of all.
    fn address(&self, process: usize) -> Option<String>;
}

/// What a cluster has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) data_servers: usize,
    /// Mounts.
    pub(crate) clients: usize,
    /// Of each file.
    pub(crate) copies: usize,
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// The cluster and its mounts.
pub(crate) struct Daemons {
    vazao: PathBuf,
    directory: PathBuf,
    surroundings: Box<dyn Surroundings>,
    processes: Vec<Process>,
    mountpoints: Vec<PathBuf>,
}

/// The names of processes: the metadata service, data servers, mounts.
pub(crate) fn names(data_servers: usize, clients: usize) -> Vec<String> {
    let data = (1..=data_servers).map(|number| format!("data{number}"));
    let clients = (0..clients).map(|number| format!("client{number}"));
    std::iter::once("meta1".to_owned()).chain(data).chain(clients).collect()
}

impl Daemons {
    /// Starts a metadata service, data servers and a mount for each client, below `scratch`.
    pub(crate) fn start(
        vazao: &Path,
        scratch: &Path,
        surroundings: Box<dyn Surroundings>,
        shape: Shape,
    ) -> Outcome<Daemons> {
        let Shape { data_servers, clients, .. } = shape;
        let directory = scratch.join("cluster");
        let (processes, mountpoints) = (Vec::new(), Vec::new());
        let mut daemons =
            Daemons { vazao: vazao.to_owned(), directory, surroundings, processes, mountpoints };
        daemons.make(shape)?;
        let names = names(data_servers, clients);
        for (number, name) in names.iter().enumerate().take(1 + data_servers) {
            daemons.settle(number, name)?;
        }
        daemons.settle_clients()?;
        for (number, name) in names.iter().enumerate().take(1 + data_servers) {
            daemons.serve(number, name)?;
        }
        daemons.wait_until_ready()?;
        for (number, name) in names.iter().enumerate().skip(1 + data_servers) {
            daemons.mount(number, name, scratch)?;
        }
        Ok(daemons)
    }

    /// Only `vazao up` knows what belongs into a cluster's directory.
    fn make(&self, shape: Shape) -> Outcome {
        let place = self.directory.to_string_lossy().into_owned();
        let mut up = self.command(&["up", "--detach", "--dir", &place]);
        up.args(["--data-servers", &shape.data_servers.to_string()]);
        if shape.copies > 1 {
            up.args(["--copies", &shape.copies.to_string()]);
        }
        run(up)?;
        run(self.command(&["down", "--dir", &place])).map(drop)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.vazao);
        command.args(arguments);
        self.dress(&mut command);
        command
    }

    fn command_at(&self, process: usize, arguments: &[&str]) -> Command {
        let mut command = self.surroundings.command(process, &self.vazao);
        command.args(arguments).stdin(Stdio::null());
        self.dress(&mut command);
        command
    }

    fn dress(&self, command: &mut Command) {
        command.env("VAZAO_CLUSTER", self.client_file()).env_remove("VAZAO_LOG");
        command.env("XDG_STATE_HOME", self.directory.join("state"));
    }

    /// What clients are given.
    pub(crate) fn client_file(&self) -> PathBuf {
        self.directory.join("client.toml")
    }

    /// The program that is tested.
    pub(crate) fn vazao(&self) -> &Path {
        &self.vazao
    }

    /// Where the clients have the volume.
    pub(crate) fn mountpoints(&self) -> &[PathBuf] {
        &self.mountpoints
    }

    fn node(&self, name: &str) -> PathBuf {
        self.directory.join("nodes").join(name)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join("log").join(format!("{name}.log"))
    }

    /// Gives a node the address of its host.
    fn settle(&self, number: usize, name: &str) -> Outcome {
        let (Some(own), Some(metadata)) =
            (self.surroundings.address(number), self.surroundings.address(META))
        else {
            // Without hosts of their own all daemons keep what `vazao up` gave them, save that ports may be taken.
            return Ok(());
        };
        let other = |line: &str| match line.split_once(" = ").map(|(key, _)| key) {
            Some("listen") => format!("listen = \"{own}:{PORT}\""),
            Some("metrics") => format!("metrics = \"{own}:0\""),
            Some("metadata") if number != META => format!("metadata = [\"{metadata}:{PORT}\"]"),
            _ => line.to_owned(),
        };
        replace_lines(&self.node(name).join("node.toml"), other)
    }

    fn settle_clients(&self) -> Outcome {
        let Some(metadata) = self.surroundings.address(META) else { return Ok(()) };
        replace_lines(&self.client_file(), |line| match line.starts_with("meta = ") {
            true => format!("meta = [\"{metadata}:{PORT}\"]"),
            false => line.to_owned(),
        })
    }

    fn serve(&mut self, number: usize, name: &str) -> Outcome {
        let process = self.served(number, name)?;
        self.processes.push(process);
        Ok(())
    }

    fn served(&self, number: usize, name: &str) -> Outcome<Process> {
        let (config, log) = (self.node(name).join("node.toml"), self.log(name));
        let (config, log_words) = (config.to_string_lossy().into_owned(), log.to_string_lossy().into_owned());
        let mut command = self.command_at(number, &["serve", "--config", &config, "--log-file", &log_words]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(Failure::at("vazao serve"))?;
        Ok(Process { name: name.to_owned(), child, log })
    }

    fn wait_until_ready(&self) -> Outcome {
        let is_ready = || run(self.command_at(META, &["status", "--check"])).is_ok();
        wait_until_within("the cluster is without trouble", START_MS_MAX, is_ready)
            .map_err(|failure| Failure::new(format!("{failure}\n{}", self.last_words())))
    }

    fn mount(&mut self, number: usize, name: &str, scratch: &Path) -> Outcome {
        let (mountpoint, log) = (scratch.join(name), self.log(name));
        fs::create_dir(&mountpoint).map_err(Failure::at(mountpoint.display()))?;
        let (place, log_words) = (mountpoint.to_string_lossy(), log.to_string_lossy());
        let words = ["mount", "vz:/", &place, "--foreground", "--tell-ready", "--log-file", &log_words];
        let mut command = self.command_at(number, &words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::at("vazao mount"))?;
        let mut line = String::new();
        let said = child.stdout.as_mut().map(|output| BufReader::new(output).read_line(&mut line));
        if !matches!(said, Some(Ok(1..))) {
            let mut complaint = String::new();
            // What it says is better than nothing, also in part.
            let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut complaint));
            return Err(Failure::new(format!("vazao mount {place}: {}", complaint.trim())));
        }
        self.mountpoints.push(mountpoint.clone());
        self.processes.push(Process { name: name.to_owned(), child, log });
        Ok(())
    }

    /// The name of a process, which is that of its node.
    pub(crate) fn name(&self, process: usize) -> &str {
        &self.processes[process].name
    }

    /// Where a node keeps everything.
    pub(crate) fn place(&self, process: usize) -> PathBuf {
        self.node(self.name(process))
    }

    /// The directory of the cluster.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a `vazao` command says that works with the cluster from here.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome<String> {
        run(self.command(arguments))
    }

    /// Sends a signal to a process.
    pub(crate) fn signal(&self, process: usize, signal: Signal) -> Outcome {
        let Process { name, child, .. } = &self.processes[process];
        kill_process(Pid::from_child(child), signal).map_err(|error| Failure::at(name)(error.into()))
    }

    /// Kills a process and waits until nothing of it is left.
    pub(crate) fn kill(&mut self, process: usize) -> Outcome {
        self.signal(process, Signal::KILL)?;
        self.end_of(process).map(drop)
    }

    /// Starts a node whose process has ended.
    pub(crate) fn serve_again(&mut self, process: usize) -> Outcome {
        self.processes[process] = self.served(process, self.name(process))?;
        Ok(())
    }

    /// Waits until a process has ended by itself.
    pub(crate) fn end_of(&mut self, process: usize) -> Outcome<ExitStatus> {
        let Process { name, child, .. } = &mut self.processes[process];
        let mut status = None;
        wait_until_within(&format!("{name} ends"), END_MS_MAX, || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        })?;
        status.ok_or_else(|| Failure::new(format!("{name} has not ended")))
    }

    /// Processes that have ended, for people.
    pub(crate) fn ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        for process in &mut self.processes {
            if let Ok(Some(status)) = process.child.try_wait() {
                ended.push(format!("{} has ended: {status}", process.name));
            }
        }
        ended
    }

    /// Lines of logs that have one of these words, under the names of their processes.
    pub(crate) fn log_lines(&self, words: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        for process in &self.processes {
            let text = fs::read(&process.log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let fitting = text.lines().filter(|line| words.iter().any(|word| line.contains(word)));
            found.extend(fitting.map(|line| format!("{}: {line}", process.name)));
        }
        found
    }

    /// The ends of all logs.
    pub(crate) fn last_words(&self) -> String {
        self.processes.iter().map(|process| cluster::end_of(&process.log)).collect()
    }

    /// Copies all logs into a directory that outlives the enclosure.
    pub(crate) fn save_logs(&self, directory: &Path) -> Outcome {
        fs::create_dir_all(directory).map_err(Failure::at(directory.display()))?;
        for process in &self.processes {
            let copy = directory.join(format!("{}.log", process.name));
            fs::copy(&process.log, &copy).map_err(Failure::at(copy.display()))?;
        }
        Ok(())
    }

    /// Ends everything in order.
    pub(crate) fn stop(mut self) -> Outcome {
        for mountpoint in &self.mountpoints {
            run(self.command(&["umount", &mountpoint.to_string_lossy()]))?;
        }
        for process in self.processes.iter().take(self.processes.len() - self.mountpoints.len()) {
            if let Some(pid) = Pid::from_raw(process.child.id().cast_signed()) {
                // One that has ended meanwhile is found below.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        for process in 0..self.processes.len() {
            let status = self.end_of(process)?;
            if !status.success() {
                return Err(Failure::new(format!("{} ended with {status:?}", self.name(process))));
            }
        }
        Ok(())
    }
}

impl Drop for Daemons {
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    fn drop(&mut self) {
        for mountpoint in &self.mountpoints {
            // It may be gone; lazily, so that nothing that hangs in it is waited for.
            let _ = tool("umount", &["--lazy", &mountpoint.to_string_lossy()]);
        }
        for process in &mut self.processes {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

fn replace_lines(path: &Path, other: impl Fn(&str) -> String) -> Outcome {
    let text = fs::read_to_string(path).map_err(Failure::at(path.display()))?;
    let lines: Vec<String> = text.lines().map(other).collect();
    fs::write(path, lines.join("\n") + "\n").map_err(Failure::at(path.display()))
}
