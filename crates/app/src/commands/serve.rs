//! `vazao serve`: one node.

use crate::context::Context;
use crate::failure::Outcome;
use crate::logging;
use crate::node::config::NodeConfig;
use crate::node::daemon::{self, Settings};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `vazao serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example of a data server's node.toml; relative paths start at the file's directory:\n  name = \"data7\"\n  roles = [\"data\"]                     # \"meta\", \"data\" or both\n  listen = \"0.0.0.0:7001\"\n  advertise = \"host7:7001\"             # how others reach it; needed with 0.0.0.0\n  metadata = [\"host1:7000\"]            # the metadata service\n  key_file = \"cluster.key\"             # the same on all nodes, mode 600\n  metrics = \"127.0.0.1:9100\"           # /metrics and /healthz\n  [data]\n  targets = [\"/disk1/vazao\", \"/disk2/vazao\"]\n  # [meta] directory = \"/ssd/vazao\"     for the role meta\n  # [[area]] name = \"data\", path = \"/srv/data\", read_only = true   exported in place\n  # [log] level = \"info\", format = \"json\""
)]
pub(crate) struct Arguments {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Run without a cluster key: anybody who reaches the port may do anything
    #[arg(long)]
    insecure: bool,
    /// Log to a file, which is put aside as FILE.1 at 16 MiB [default: standard error]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Stop when standard input closes, that is: when whoever started it is gone
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// Serves until a signal comes.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let config = NodeConfig::load(&arguments.config)?;
    let level = config.log.level.as_deref().unwrap_or("info");
    logging::start(&context.common, level, config.log.format, arguments.log_file.as_deref())?;
    let directory = std::path::absolute(&arguments.config).ok();
    let directory = directory.and_then(|file| file.parent().map(PathBuf::from)).unwrap_or_default();
    let settings = Settings {
        directory,
        insecure: arguments.insecure,
        until_stdin_closes: arguments.until_stdin_closes,
    };
    daemon::run(&config, &settings)
}
