//! `vazao lab …`: its commands, one line each. It stands above all of them.

use crate::experiment::{calls, sites};
use crate::{Context, Error, bench, experiment, mounts, psplit, report, verdicts};

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
    /// Serve or make the remote calls of experiments L1 and L2.
    #[command(hide = true)]
    CallsLoad(calls::load::Args),
    /// Carry out what experiments C1 and C2 order.
    #[command(hide = true)]
    SitesWorker(sites::worker::Args),
    /// Remove the hosts, disks and limits that killed runs have left behind. Those of runs under way stay.
    #[command(after_help = "Example:\n  vazao lab sweep")]
    Sweep,
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
        Command::CallsLoad(args) => calls::load::run(&args, context),
        Command::SitesWorker(args) => sites::worker::run(&args, context),
        Command::Sweep => experiment::sweep(),
        Command::Report(args) => report::command::run(args, context),
    }
}
