//! The `vazao` command: daemons, whole clusters of them on one machine, and the habits of the Unix commands for the
//! volume.
//!
//! Each command is one file under `commands/`. A command translates the command line into calls of the client library
//! and their results into text or JSON; what another door would need too belongs to the library.

mod cli;
mod cluster;
mod commands;
mod context;
mod copy;
mod failure;
mod format;
mod jobs;
mod location;
mod mounted;
mod node;
mod output;
mod parallel;
mod process;
mod signals;

use clap::FromArgMatches;
use std::process::ExitCode;

fn main() -> ExitCode {
    process::descriptors::raise();
    let mut arguments = std::env::args_os();
    if commands::mount_helper::is_called(arguments.next().as_deref()) {
        return commands::mount_helper::main(arguments);
    }
    let whole: Vec<_> = std::env::args_os().collect();
    if let Err(failure) = copy::credentials::hide(&whole) {
        failure::report(&failure);
        return ExitCode::from(failure.exit_code());
    }
    if cli::wants_json(&whole) {
        failure::tell_as_json();
    }
    let read = cli::command().try_get_matches_from(&whole);
    let line = match read.and_then(|matches| cli::Line::from_arg_matches(&matches)) {
        Ok(line) => line,
        Err(error) => cli::refuse(&error, &whole),
    };
    match commands::run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure::report(&failure);
            ExitCode::from(signals::exit_code().unwrap_or(failure.exit_code()))
        }
    }
}
