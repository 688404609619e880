//! `vazao stat`: the attributes of inodes.

use super::ls::to_json;
use crate::cli::Results;
use crate::context::Context;
use crate::failure::Outcome;
use crate::format;
use crate::location::patterns;
use crate::location::place::{Place, places};
use crate::output::Output;
use clap::Args;
use std::ffi::OsString;
use vazao_client::Client;
use vazao_model::FileKind;

/// Arguments of `vazao stat`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao stat vz:/data/file\n  vazao stat n1:/scratch/file\n  vazao stat --json vz:/a vz:/b"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// What a symbolic link points to, not the link
    #[arg(short = 'L')]
    follow: bool,
    /// What to show
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Shows.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let paths = places(&arguments.paths)?;
    let client = context.client()?;
    let paths = patterns::expand(&client, paths)?;
    let mut output = Output::new(arguments.results.json);
    let outcome = output.each(&paths, |output, path| one(&client, output, path, arguments.follow));
    output.finish()?;
    client.close()?;
    outcome
}

fn one(client: &Client, output: &mut Output, path: &Place, follow: bool) -> Outcome {
    let attributes = path.stat(client, follow)?;
    let link = match attributes.kind {
        FileKind::Symlink => Some(path.read_link(client, attributes.inode)?),
        _ => None,
    };
    if output.json {
        return output.value(&to_json(path, attributes.kind, Some(&attributes), link.as_deref()));
    }
    output.text("  File: ")?;
    output.name(&path.to_bytes())?;
    if let Some(link) = link {
        output.text(" -> ")?;
        output.name(&link)?;
    }
    output.line(&format!(
        "\n  Size: {:<15} Allocated: {:<15} {}\n Inode: {:<15} Links: {:<10} Version: {}\nAccess: ({:04o}/{})  Uid: {}  Gid: {}",
        attributes.size,
        attributes.allocated_bytes,
        format::kind(attributes.kind),
        attributes.inode.0,
        attributes.links,
        attributes.version,
        attributes.mode,
        format::mode(attributes.kind, attributes.mode),
        attributes.uid,
        attributes.gid,
    ))?;
    output.line(&format!("Access: {}", format::instant(attributes.accessed)))?;
    output.line(&format!("Modify: {}", format::instant(attributes.modified)))?;
    output.line(&format!("Change: {}", format::instant(attributes.changed)))
}
