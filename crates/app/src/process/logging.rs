//! Structured logs, on standard error or in a file: for operators of daemons, and to diagnose commands.

use super::log_file::{LOG_BYTES_MAX, LogFile};
use crate::failure::{At, Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

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
/// Without a `file` it goes to standard error.
pub(crate) fn start(level: Option<&str>, default: &str, form: Form, file: Option<&Path>) -> Outcome {
    let from_environment = || std::env::var(LEVEL_VARIABLE).ok().filter(|level| !level.is_empty());
    let level = level.map(str::to_owned).or_else(from_environment).unwrap_or_else(|| default.to_owned());
    let level = LevelFilter::from_str(&level).map_err(|_| {
        Failure::usage(format!("log level '{level}' is unknown; take error, warn, info, debug or trace"))
    })?;
    let writer = match file {
        Some(path) => {
            log_panics();
            BoxMakeWriter::new(Arc::new(LogFile::open(path, LOG_BYTES_MAX).at(path.display())?))
        }
        None => BoxMakeWriter::new(io::stderr),
    };
    // https://no-color.org
    let may_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let is_terminal = file.is_none() && may_colour && io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(writer);
    let started = match form {
        Form::Text => builder.with_ansi(is_terminal).try_init(),
        Form::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| Failure::new(format!("starting the log: {e}")))
}

/// Standard error stays with the file it was opened for, which may have been put aside: a panic belongs into the log.
fn log_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!("{panic}");
        usual(panic);
    }));
}
