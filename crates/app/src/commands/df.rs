//! `vazao df`: the space of the volume.

use crate::cli::Results;
use crate::context::Context;
use crate::failure::Outcome;
use crate::format::{self, Lean};
use crate::output::Output;
use clap::Args;
use serde_json::json;

/// Arguments of `vazao df`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao df -h\n  vazao df --json\n\nUSED is what is in use on the file systems of the targets, by the volume or by other files there; what the\nservers keep in reserve is neither used nor available. USE% is USED of USED and AVAILABLE, as with df(1).\n`vazao status` shows each target, and what to do when one is full."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Sizes as 1.5K, 23M, 4.0G; else in KiB
    #[arg(short)]
    human: bool,
}

/// Shows it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let client = context.client()?;
    let space = client.space()?;
    client.close()?;
    let mut output = Output::new(arguments.results.json);
    let used = space.used_bytes;
    if output.json {
        output.value(&json!({
            "volume": "vz:",
            "capacity_bytes": space.capacity_bytes,
            "used_bytes": used,
            "available_bytes": space.available_bytes,
            "inodes": space.inodes,
        }))?;
        return output.finish();
    }
    let size =
        |bytes: u64| if arguments.human { format::human(bytes) } else { bytes.div_ceil(1024).to_string() };
    let share = (used as f64 / (used + space.available_bytes).max(1) as f64 * 100.0).ceil();
    let unit = if arguments.human { "SIZE" } else { "1K-BLOCKS" };
    let head = [
        ("VOLUME", Lean::Left),
        (unit, Lean::Right),
        ("USED", Lean::Right),
        ("AVAILABLE", Lean::Right),
        ("USE%", Lean::Right),
        ("INODES", Lean::Right),
    ];
    let row = vec![
        "vz:".to_owned(),
        size(space.capacity_bytes),
        size(used),
        size(space.available_bytes),
        format!("{share}%"),
        space.inodes.to_string(),
    ];
    output.text(&format::table(&head, &[row]))?;
    output.finish()
}
