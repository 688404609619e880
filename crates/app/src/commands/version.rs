//! `vazao version`: which program this is and which formats it understands.

use crate::cli::Results;
use crate::cluster::directory::FORMAT;
use crate::context::Context;
use crate::failure::Outcome;
use crate::output::Output;
use clap::Args;
use serde_json::json;

/// Arguments of `vazao version`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  vazao version --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
}

/// Shows it.
pub(crate) fn run(_context: &Context, arguments: Arguments) -> Outcome {
    let mut output = Output::new(arguments.results.json);
    let version = env!("CARGO_PKG_VERSION");
    if output.json {
        output.value(&json!({"version": version, "cluster_directory_format": FORMAT}))?;
    } else {
        output.line(&format!("vazao {version} (cluster directories of format {FORMAT})"))?;
    }
    output.finish()
}
