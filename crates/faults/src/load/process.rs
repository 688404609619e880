//! The writers of a round, as their parent sees them.

use super::journal::{Journal, Line};
use super::writer::Way;
use crate::clock::wait_until;
use crate::failure::{Failure, Outcome};
use crate::tool::command;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A writer's process, and what it has said so far.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Where its directory is, from the volume's root.
    pub(crate) directory: String,
    child: Child,
    journal: Arc<Mutex<Journal>>,
    reader: Option<JoinHandle<()>>,
}

/// What a writer is started with.
#[derive(Clone, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) way: Way,
    pub(crate) seed: u64,
    /// Syncs in a thousand steps.
    pub(crate) syncs: u32,
    /// Opens files for appending, too.
    pub(crate) appends: bool,
    /// Gives names that are there to other nodes, too.
    pub(crate) replaces: bool,
    /// From the volume's root.
    pub(crate) directory: String,
    pub(crate) inode: u64,
    pub(crate) mountpoint: &'a Path,
    pub(crate) cluster: &'a Path,
    pub(crate) vazao: &'a Path,
}

impl Writer {
    /// Starts one.
    pub(crate) fn start(start: &Start<'_>) -> Outcome<Writer> {
        let program = std::env::current_exe().map_err(Failure::at("finding this program"))?;
        let (way, place): (&str, PathBuf) = match start.way {
            Way::Mount => ("mount", start.mountpoint.join(&start.directory)),
            Way::Library => ("library", PathBuf::from(&start.directory)),
            Way::Commands => ("commands", PathBuf::from(format!("/{}", start.directory))),
        };
        let mut command = command(program);
        command.args(["write", "--way", way, "--seed", &start.seed.to_string()]);
        command.args(["--syncs", &start.syncs.to_string()]);
        if !start.appends {
            command.arg("--no-appends");
        }
        if !start.replaces {
            command.arg("--no-replacing");
        }
        command.args(["--inode", &start.inode.to_string()]).arg("--directory").arg(place);
        command.arg("--cluster").arg(start.cluster).arg("--vazao").arg(start.vazao);
        command.env("VAZAO_CLUSTER", start.cluster).stdin(Stdio::piped()).stdout(Stdio::piped());
        Writer::spawn(command, &start.directory)
    }

    /// The commands that it runs belong to its group.
    fn spawn(mut command: Command, directory: &str) -> Outcome<Writer> {
        let mut child = command.process_group(0).spawn().map_err(Failure::at("a writer"))?;
        let output = child.stdout.take().expect("its output was asked for");
        let journal = Arc::new(Mutex::new(Journal::default()));
        let heard = Arc::clone(&journal);
        let reader = Some(std::thread::spawn(move || listen(output, &heard)));
        Ok(Writer { directory: directory.to_owned(), child, journal, reader })
    }

    /// Operations that were answered so far.
    pub(crate) fn answered(&self) -> usize {
        let journal = self.journal.lock();
        journal.entries.iter().filter(|entry| entry.is_answered()).count()
    }

    /// Kills it where it stands, with the command that it runs: that would go on once the cluster is back, and make
    /// what no journal has. What the writer had said by then.
    pub(crate) fn kill(mut self) -> Outcome<Journal> {
        let group = Pid::from_child(&self.child);
        kill_process_group(group, Signal::KILL).map_err(|error| Failure::at("a writer")(error.into()))?;
        self.finish()
    }

    /// Has it sync and close what is open, and end.
    pub(crate) fn end(mut self) -> Outcome<Journal> {
        drop(self.child.stdin.take());
        let child = &mut self.child;
        let mut status = None;
        wait_until("a writer ends", || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        })?;
        if status.is_none_or(|status| !status.success()) {
            return Err(Failure::new(format!("a writer ended with {status:?}")));
        }
        self.finish()
    }

    #[allow(clippy::disallowed_methods, reason = "writers end when their input does; the round has a limit")]
    fn finish(&mut self) -> Outcome<Journal> {
        self.child.wait().map_err(Failure::at("a writer"))?;
        if let Some(reader) = self.reader.take()
            && reader.join().is_err()
        {
            return Err(Failure::new("a writer's journal could not be read"));
        }
        Ok(std::mem::take(&mut *self.journal.lock()))
    }
}

impl Drop for Writer {
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    fn drop(&mut self) {
        // Ended already, where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(output: ChildStdout, journal: &Mutex<Journal>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // The last line of a writer that was killed may be torn: it was never reported.
        let Ok(line) = serde_json::from_str::<Line>(&line) else { return };
        journal.lock().hear(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command went on after its writer was killed, and copied its file into the cluster that had come back: a round
    /// of losses of power found a name that came after one that was lost.
    #[test]
    fn what_a_writer_runs_is_killed_with_it() {
        let mut command = command("sh");
        command.args(["-c", "sleep 1000 & echo $! >&2; wait"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut writer = Writer::spawn(command, "w").expect("there is a shell");
        let mut started = String::new();
        let said = writer.child.stderr.take().expect("was asked for");
        BufReader::new(said).read_line(&mut started).expect("says which");
        let process = PathBuf::from(format!("/proc/{}/stat", started.trim()));
        assert!(process.exists(), "{started}");
        writer.kill().expect("runs");
        let is_gone =
            || std::fs::read_to_string(&process).is_ok_and(|stat| stat.contains(") Z ")) || !process.exists();
        wait_until("the command is gone", is_gone).expect("killed");
    }
}
