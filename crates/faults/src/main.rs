//! `vazao-faults`: the real binaries under faults of the machine.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use vazao_faults::disk::shown;
use vazao_faults::{jump, load, members, partition, power};

#[derive(Debug, Parser)]
#[command(
    about = "Runs the real binaries under faults of the machine, and says what was lost that must not be."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve disks that lose power, as their user on standard input says.
    #[command(hide = true)]
    Disks(shown::Arguments),
    /// Have the wall clock of a daemon or a mount jump under load, again and again, and look at what came of it.
    Clock(jump::Arguments),
    /// Kill or freeze data servers or take their disks under load, again and again, and look at all copies.
    Members(members::Arguments),
    /// Cut links between the hosts of a cluster under load, again and again, and look at what is left.
    Partition(partition::Arguments),
    /// Take the power of a cluster's disks under load, again and again, and look at what is left.
    Power(power::Arguments),
    /// Work in directories of two mounts that are one, and tell on standard output what came of it.
    #[command(hide = true)]
    Share(load::SharerArguments),
    /// Write into one directory, and tell on standard output what was answered.
    #[command(hide = true)]
    Write(load::WriterArguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Disks(arguments) => shown::serve(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Clock(arguments) => jump::run(&arguments),
        Command::Members(arguments) => members::run(&arguments),
        Command::Partition(arguments) => partition::run(&arguments),
        Command::Power(arguments) => power::run(&arguments),
        Command::Share(arguments) => load::share(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Write(arguments) => load::write(&arguments).map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("vazao-faults: {failure}");
            ExitCode::FAILURE
        }
    }
}
