//! `vazao serve`: one node.

use crate::context::Context;
use crate::failure::{At, Outcome};
use crate::node::config::NodeConfig;
use crate::node::daemon;
use crate::node::memory::Wishes;
use crate::node::settings::Settings;
use crate::node::state;
use crate::process::logging;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  vazao serve --config /etc/vazao/node.toml
  vazao serve --config /etc/vazao/node.toml --luarpc 8080     # remote calls, from this machine only

A data server's node.toml; relative paths start at the file's directory:
  name = \"data7\"
  roles = [\"data\"]                     # or \"meta\", \"area\", or several
  listen = \"0.0.0.0:7001\"
  advertise = \"host7:7001\"             # how others reach it; needed with 0.0.0.0
  metadata = [\"host1:7000\"]            # the metadata service; not for the role meta
  key_file = \"cluster.key\"             # the same on all nodes, mode 600
  metrics = \"127.0.0.1:9100\"           # /metrics and /healthz
  [data]
  targets = [\"/disk1/vazao\", \"/disk2/vazao\"]
  # [copy]
  # listen = \"0.0.0.0:7101\"            # for copies between nodes; else a free port
  # [luarpc]                           # remote calls: docs/remote-calls-service.md
  # listen = \"127.0.0.1:8080\"
  # [[area]]                           # a directory that is exported in place
  # name = \"srv\"
  # path = \"/srv/data\"

The metadata server's node.toml; a cluster has one:
  name = \"meta1\"
  roles = [\"meta\"]
  listen = \"0.0.0.0:7000\"
  advertise = \"host1:7000\"
  key_file = \"cluster.key\"
  [meta]
  directory = \"/ssd/vazao\"

All settings: docs/configuration.md";

/// Arguments of `vazao serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Run without a cluster key: any host that reaches the port may do anything
    #[arg(long)]
    insecure: bool,
    /// Answer remote calls (LuaRPC) at this port of this machine, or at HOST:PORT; instead of [luarpc] listen
    #[arg(long, value_name = "[HOST:]PORT")]
    luarpc: Option<String>,
    #[command(flatten)]
    wishes: WishArguments,
    /// Log to a file, which is put aside as FILE.1 at 16 MiB [default: standard error]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Stop when standard input closes, that is: when the process that started it is gone
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// What to do about disks that are not there.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WishArguments {
    /// The target that was in DIR is gone for good: a new, empty one takes its place; may be repeated
    #[arg(long, value_name = "DIR")]
    new_target: Vec<PathBuf>,
    /// Serve the other targets although some are missing
    #[arg(long)]
    without_missing: bool,
    /// Begin a new, empty volume where the metadata of another one was
    #[arg(long)]
    new_volume: bool,
}

impl WishArguments {
    /// The same, with whole paths.
    pub(crate) fn wishes(&self) -> Outcome<Wishes> {
        let whole = |path: &PathBuf| std::path::absolute(path).at(path.display());
        Ok(Wishes {
            new_targets: self.new_target.iter().map(whole).collect::<Outcome<_>>()?,
            without_missing: self.without_missing,
            new_volume: self.new_volume,
        })
    }
}

/// Serves until a signal comes.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let mut config = NodeConfig::load(&arguments.config)?;
    arguments.luarpc.iter().try_for_each(|at| config.answer_calls_at(at))?;
    let level = config.log.level.as_deref().unwrap_or("info");
    logging::start(context.common.log.as_deref(), level, config.log.format, arguments.log_file.as_deref())?;
    let directory = std::path::absolute(&arguments.config).ok();
    let directory = directory.and_then(|file| file.parent().map(PathBuf::from)).unwrap_or_default();
    let state = state::directory(&config, &directory)?;
    state::make(&state, &config.name)?;
    let settings = Settings {
        directory,
        state,
        insecure: arguments.insecure,
        until_stdin_closes: arguments.until_stdin_closes,
        wishes: arguments.wishes.wishes()?,
    };
    daemon::run(&config, &settings)
}
