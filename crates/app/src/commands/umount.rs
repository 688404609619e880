//! `vazao umount`: takes a mount away.

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `vazao umount`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  vazao umount /mnt/v")]
pub(crate) struct Arguments {
    /// Where it is mounted
    mountpoint: PathBuf,
}

/// Takes it away.
pub(crate) fn run(_context: &Context, arguments: Arguments) -> Outcome {
    vazao_fuse::unmount(&arguments.mountpoint).map_err(|error| Failure::new(error.to_string()))
}
