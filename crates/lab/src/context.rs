//! What every part of the laboratory works with: the caller's context, and how a command fails.

use crate::place::Stop;
use std::io::Write;
use std::sync::Arc;
use vazao_client::Client;
use vazao_meter::Clock;

/// What the caller provides to a command of the laboratory.
pub struct Context<'a> {
    /// The clock that every duration is taken from.
    pub clock: Arc<dyn Clock>,
    /// Opens the volume; called only when a `vz:` path is named. An error says what to do, for people.
    pub connect: &'a dyn Fn() -> Result<Client, String>,
    /// Ends a measurement early; what it has made is then removed.
    pub stop: Stop,
    /// Where tables and `--json -` go.
    pub output: &'a mut dyn Write,
}

/// Why a command of the laboratory failed. The text names the thing, the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments make no sense: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work, or what was read differs from what was written: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// A failure to do something with `thing`.
    pub(crate) fn at(thing: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
        move |error| Error::Failed(format!("{thing}: {error}"))
    }

    /// The command's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Failed(_) => 1,
        }
    }
}
