//! The laboratory: psplit, the benchmarks of the foundation's goals and of mounts, and the published experiments.
//!
//! Everything here measures through the doors a user has — the client library, or a directory of this machine — and
//! changes nothing in them. An experiment is one module over four shared parts: a [`place`] does the I/O, `sampler`
//! records what the machine did meanwhile, [`statistics`] sums repetitions up, and [`report`] writes them. It is not a
//! load generator for tests: correctness is tested elsewhere, though wrong bytes fail a run here too.

use std::io::Write;
use std::sync::Arc;
use vazao_client::Client;
use vazao_meter::Clock;

pub mod bench;
mod child;
pub mod content;
pub mod crew;
pub mod experiment;
pub mod hosts;
pub mod machine;
pub mod mounts;
mod nfs;
pub mod place;
pub mod psplit;
pub mod report;
pub mod size;
pub mod statistics;
pub mod verdicts;

/// What the caller provides to a command of the laboratory.
pub struct Context<'a> {
    /// The clock that every duration is taken from.
    pub clock: Arc<dyn Clock>,
    /// Opens the volume; called only when a `vz:` path is named. An error says what to do, for people.
    pub connect: &'a dyn Fn() -> Result<Client, String>,
    /// Ends a measurement early; what it has made is then removed.
    pub stop: place::Stop,
    /// Where tables and `--json -` go.
    pub output: &'a mut dyn Write,
}

/// The experiments and tools of `vazao lab`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Read, split or generate large files with many threads, and say how fast it went (the PSplit tool).
    Psplit(psplit::Args),
    /// Measure what the file system has to reach on this machine, and print goals and ratios.
    Bench(bench::Args),
    /// Rerun published experiments by their ids, with tables, plots and a page.
    Run(experiment::Args),
    /// List the experiments that can be run.
    List(experiment::ListArgs),
    /// Make one resource slow on purpose, move data, and compare the verdict with what was made slow.
    Verdicts(verdicts::Args),
    /// Compare mounts and local directories in small operations and streams, in turns.
    Mounts(mounts::Args),
    /// Carry out what `vazao lab mounts` orders.
    #[command(hide = true)]
    MountsWorker(mounts::worker::Args),
    /// Print the tables of a result file again, or plots and page of a directory, without measuring anew.
    Report(report::command::Args),
}

/// Runs one command of the laboratory.
pub fn run(command: Command, context: &mut Context<'_>) -> Result<(), Error> {
    match command {
        Command::Psplit(args) => psplit::run(args, context),
        Command::Bench(args) => bench::run(args, context),
        Command::Run(args) => experiment::run(&args, context),
        Command::List(args) => experiment::list(&args, context),
        Command::Verdicts(args) => verdicts::run(&args, context),
        Command::Mounts(args) => mounts::run(&args, context),
        Command::MountsWorker(args) => mounts::worker::run(&args, context.output),
        Command::Report(args) => report::command::run(args, context),
    }
}

/// Why a command of the laboratory failed. The text names the thing, the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments make no sense: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work, or what was read differs from what was written: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// A failure to do something with `thing`.
    pub(crate) fn at(thing: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
        move |error| Error::Failed(format!("{thing}: {error}"))
    }

    /// The command's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Failed(_) => 1,
        }
    }
}
