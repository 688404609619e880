//! Options that all commands have, or all that print results. The commands know these and not the command line.

use clap::{ArgAction, Args};
use std::path::PathBuf;

/// What every command understands.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Common {
    /// Which cluster: its client.toml [default: $VAZAO_CLUSTER, ~/.config/vazao/client.toml or that of /etc/vazao]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    pub(crate) cluster: Option<PathBuf>,
    /// Log level: error, warn, info, debug (requests that failed) or trace (all requests, with the ids they have in
    /// the logs of servers) [default: $VAZAO_LOG, else warn; info for serve]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Common options")]
    pub(crate) log: Option<String>,
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help, help_heading = "Common options")]
    pub(crate) help: Option<bool>,
}

/// What every command that prints results understands. Not among the common options, because the laboratory's
/// `--json` names a file.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Results {
    /// Print results as JSON; lists have one object a line
    #[arg(long)]
    pub(crate) json: bool,
}
