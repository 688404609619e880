//! `vazao metadata`: what an operator asks and decides about the metadata.

pub(crate) mod check;

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use clap::{Args, Subcommand};

/// Arguments of `vazao metadata`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Compare all metadata on the disk with its checksums, and name the files that damage concerns
    Check(check::Arguments),
    /// Go on with a metadata directory that is older than what data servers have been told
    #[command(
        after_help = "Example:\n  vazao metadata accept-old --yes-lose-writes\n\nFor a metadata directory that was restored from a backup and cannot be replaced by a newer one. All that was created,\nwritten, renamed or removed since is as it was then; data of files that it does not know is removed.\nIt takes effect with the next start of the metadata service."
    )]
    AcceptOld {
        /// What was done since is lost
        #[arg(long)]
        yes_lose_writes: bool,
    },
}

/// Does it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    match arguments.what {
        What::Check(arguments) => check::run(context, arguments),
        What::AcceptOld { yes_lose_writes } => accept_old(context, yes_lose_writes),
    }
}

fn accept_old(context: &Context, yes_lose_writes: bool) -> Outcome {
    let client = context.client()?;
    let trouble = client.refresh_map()?.trouble.clone();
    if trouble.is_empty() {
        return Err(Failure::new("the metadata is current, as far as known: there is nothing to accept"));
    }
    if !yes_lose_writes {
        return Err(Failure::new(format!(
            "{trouble}\nAll that was created, written, renamed or removed since would be lost, and data of files that the \
             old metadata does not know would be removed. If that is meant, add --yes-lose-writes"
        )));
    }
    println!("{}", client.administration().accept_old_metadata()?);
    Ok(())
}
