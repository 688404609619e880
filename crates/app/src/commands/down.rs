//! `vazao down`: stops a cluster that `up` started.

use crate::cli::Results;
use crate::cluster::directory::{ClusterDirectory, META_NAME, NodePlace};
use crate::cluster::processes;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format::shell_quoted;
use crate::output::Output;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `vazao down`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  vazao down --dir /tmp/v")]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// The cluster's directory
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Stops the data servers, then the metadata service, so that no server loses its counterpart at work.
pub(crate) fn run(_context: &Context, arguments: Arguments) -> Outcome {
    let directory = ClusterDirectory::open(&arguments.dir)?;
    let clock = vazao_meter::clock::system();
    let nodes = directory.nodes()?;
    let mut stopped = Vec::new();
    for node in &nodes {
        if node.process()?.is_some() {
            stopped.push(node.name.clone());
        }
    }
    let (meta, data): (Vec<NodePlace>, Vec<NodePlace>) =
        nodes.into_iter().partition(|node| node.name == META_NAME);
    let mut killed = processes::stop(&data, &*clock)?;
    killed.extend(processes::stop(&meta, &*clock)?);
    let mut output = Output::new(arguments.results.json);
    if output.json {
        output.value(&json!({"stopped": stopped, "killed": killed}))?;
    } else if stopped.is_empty() {
        output.line("nothing was running")?;
    } else {
        output.line(&format!("stopped {}", stopped.join(", ")))?;
    }
    output.finish()?;
    if killed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} did not stop in time and had to be killed; what was synced is safe, `vazao up --dir {}` recovers the rest",
        killed.join(", "),
        shell_quoted(&directory.root().to_string_lossy())
    )))
}
