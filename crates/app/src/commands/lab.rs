//! `vazao lab`: the laboratory's commands, with a client and standard output of ours.

mod nullfs;

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::signals::{self, Stop};
use clap::{Args, Subcommand};
use std::io;
use vazao_lab::Command;

/// Arguments of `vazao lab`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

/// The laboratory's own commands, and those that take a door.
#[derive(Debug, Subcommand)]
enum LabCommand {
    #[command(flatten)]
    Laboratory(Command),
    Nullfs(nullfs::Arguments),
}

/// Runs one of its commands.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let command = match arguments.command {
        LabCommand::Laboratory(command) => command,
        LabCommand::Nullfs(arguments) => return nullfs::run(&arguments),
    };
    let mut output = io::stdout().lock();
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    let connect = || {
        let client = context.client().inspect(|client| stop.hangs_up(client));
        client.map_err(|failure| failure.message().unwrap_or_default().to_owned())
    };
    let mut laboratory = vazao_lab::Context {
        clock: vazao_meter::clock::system(),
        connect: &connect,
        stop: vazao_lab::place::Stop::new(stop.flag()),
        output: &mut output,
    };
    vazao_lab::run(command, &mut laboratory).map_err(|error| match error {
        vazao_lab::Error::Usage(message) => Failure::Usage(message),
        vazao_lab::Error::Failed(message) => Failure::Failed(message),
    })
}
