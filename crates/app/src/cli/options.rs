//! Options that all commands have, or all that print results. The commands know these and not the command line.

use clap::{ArgAction, Args};
use std::path::PathBuf;
use vazao_model::zone;

/// What every command understands.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Common {
    /// Which cluster: its client.toml [default: $VAZAO_CLUSTER, ~/.config/vazao/client.toml or that of /etc/vazao]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    pub(crate) cluster: Option<PathBuf>,
    /// The zone that this machine is in, as in `vazao layout --place near-writer` [default: as client.toml says]
    #[arg(long, global = true, value_name = "NAME", value_parser = zone_name, help_heading = "Common options")]
    pub(crate) zone: Option<String>,
    /// Log level: error, warn, info, debug (requests that failed) or trace (all requests, with the ids they have in
    /// the logs of servers) [default: $VAZAO_LOG, else warn; info for serve]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Common options")]
    pub(crate) log: Option<String>,
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help, help_heading = "Common options")]
    pub(crate) help: Option<bool>,
}

/// Reads the name of a zone.
pub(crate) fn zone_name(text: &str) -> Result<String, String> {
    zone::check_name(text).map(|()| text.to_owned())
}

/// What every command that prints results understands. Not among the common options, because the laboratory's
/// `--json` names a file.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Results {
    /// Print results as JSON; lists have one object a line
    #[arg(long)]
    pub(crate) json: bool,
}
