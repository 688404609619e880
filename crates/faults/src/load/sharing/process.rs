//! The threads of a load as a process of its own.
//!
//! A program that starts another one closes what it has open once more in between, and a mount that is cut off answers
//! a close late: who heals the network must have nothing open in a mount.

use super::calls::{Calls, FailedCall};
use super::{Done, Sharing};
use crate::clock::{sleep_ms, wait_until_within};
use crate::failure::{Failure, Outcome};
use crate::tool::command;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};

/// So many calls, and all threads have made some.
const CALLS_MIN: u64 = 40;

/// All of the load works after this, on a busy machine, too.
const START_MS_MAX: u64 = 60_000;

/// Threads of the load end when their calls do: after a deadline, or two.
const END_MS_MAX: u64 = 120_000;

/// Arguments of the process.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shared directory in each mount
    #[arg(long)]
    directory: Vec<PathBuf>,
    /// What every draw begins with
    #[arg(long)]
    seed: u64,
}

/// What the process says at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) done: Vec<Done>,
    /// Calls that failed.
    pub(crate) failed: Vec<FailedCall>,
    /// The call that took longest, and how many nanoseconds.
    pub(crate) slowest: Option<(u64, String)>,
    /// How many calls there were.
    pub(crate) count: u64,
}

/// Runs the load until standard input ends; says when all of it works, and then what it did.
pub fn run(arguments: &Arguments) -> Outcome {
    let sharing = Sharing::start(&arguments.directory, arguments.seed);
    wait_until_within("all of the load works", START_MS_MAX, || sharing.calls.count() > CALLS_MIN)
        .map_err(|failure| Failure::new(format!("{failure}: {:?}", sharing.calls.under_way())))?;
    say(b"works\n")?;
    // Nothing is ever said to it: its input ends when the round does, or with the process that started it.
    let _ = std::io::stdin().read(&mut [0]);
    let calls = std::sync::Arc::clone(&sharing.calls);
    let report = report(sharing.end(END_MS_MAX)?, &calls);
    say(&serde_json::to_vec(&report).map_err(Failure::new)?)
}

fn report(done: Vec<Done>, calls: &Calls) -> Report {
    Report { done, failed: calls.failed(), slowest: calls.slowest(), count: calls.count() }
}

fn say(bytes: &[u8]) -> Outcome {
    let mut output = std::io::stdout();
    output.write_all(bytes).and_then(|()| output.flush()).map_err(Failure::at("standard output"))
}

/// The process, as its starter has it.
#[derive(Debug)]
pub(crate) struct Sharer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Sharer {
    /// Starts it, and waits until all of its threads work.
    pub(crate) fn start(directories: &[PathBuf], seed: u64) -> Outcome<Sharer> {
        let program = std::env::current_exe().map_err(Failure::at("finding this program"))?;
        let mut command = command(program);
        command.args(["share", "--seed", &seed.to_string()]);
        for directory in directories {
            command.arg("--directory").arg(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::at("the load"))?;
        let mut output = BufReader::new(child.stdout.take().expect("its output was asked for"));
        let mut line = String::new();
        output.read_line(&mut line).map_err(Failure::at("the load"))?;
        let sharer = Sharer { child, output };
        if line != "works\n" {
            return Err(Failure::new("the load did not begin to work; standard error says why"));
        }
        Ok(sharer)
    }

    /// Ends it.
    pub(crate) fn end(mut self) -> Outcome<Report> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).map_err(Failure::at("the load"))?;
        serde_json::from_str(&text)
            .map_err(|error| Failure::new(format!("the load ended without a report: {error}")))
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        // Ended already, where all went well. One that hangs in a mount ends later, and is not waited for.
        let _ = self.child.kill();
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            sleep_ms(10);
        }
    }
}
