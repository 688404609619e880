//! `vazao man`: writes the manual pages, one for each command.

use crate::cli;
use crate::failure::{At, Outcome};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `vazao man`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao man /usr/local/share/man/man1\n  mkdir /tmp/m && vazao man /tmp/m && man /tmp/m/vazao-cp.1\n\n`./x install` of the source tree installs them."
)]
pub(crate) struct Arguments {
    /// The directory for the pages, which is there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes them.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    clap_mangen::generate_to(cli::command(), &arguments.directory).at(arguments.directory.display())
}
