//! placeholder
use crate::context::Context;
use crate::failure::Outcome;
#[derive(Debug, clap::Args)]
#[command(after_help = "Example")]
pub(crate) struct Arguments {}
pub(crate) fn run(_context: &Context, _arguments: Arguments) -> Outcome { Ok(()) }
