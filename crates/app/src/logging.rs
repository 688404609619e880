//! Structured logs on standard error: of daemons for their operator, of commands for whoever looks into a trouble.

use crate::cli::Common;
use crate::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal};
use std::str::FromStr;
use tracing_subscriber::filter::LevelFilter;

/// The environment variable with the level.
const LEVEL_VARIABLE: &str = "VAZAO_LOG";

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging: the level of the command line goes before that of the environment, and this before `default`.
pub(crate) fn start(common: &Common, default: &str, form: Form) -> Outcome {
    let from_environment = || std::env::var(LEVEL_VARIABLE).ok().filter(|level| !level.is_empty());
    let level = common.log.clone().or_else(from_environment).unwrap_or_else(|| default.to_owned());
    let level = LevelFilter::from_str(&level).map_err(|_| {
        Failure::usage(format!("log level '{level}' is unknown; take error, warn, info, debug or trace"))
    })?;
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
    let started = match form {
        Form::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        Form::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| Failure::new(format!("starting the log: {e}")))
}
