//! Why a stand-in could not be made, kept or removed, with what to do about it.

use std::fmt::Display;
use std::io;

/// Why a stand-in could not be made, kept or removed. The text names the thing and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller is not root.
    #[error("{thing} needs root: run this as root, or do without stand-ins for hardware")]
    NotRoot {
        /// What was to be made.
        thing: &'static str,
    },
    /// A command of the operating system is not installed.
    #[error("the command {tool} is not installed: install the package {package}")]
    ToolMissing {
        /// The command.
        tool: &'static str,
        /// The package of Debian and its relatives that has it.
        package: &'static str,
    },
    /// A command of the operating system was run and failed.
    #[error("{command}: {output}")]
    Tool {
        /// The command with its arguments.
        command: String,
        /// What it wrote.
        output: String,
    },
    /// The kernel, or the container that runs this, lacks something.
    #[error("{thing} is missing: {remedy}")]
    Missing {
        /// What is missing.
        thing: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// An argument is out of range, or a measurement contradicts a setting.
    #[error("{0}")]
    Refused(String),
    /// The operating system refused something.
    #[error("{thing}: {source}")]
    Io {
        /// What was tried, on what.
        thing: String,
        /// Its answer.
        source: io::Error,
    },
}

impl Error {
    /// A failure of the operating system to do something with `thing`.
    pub(crate) fn at(thing: impl Display) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { thing: thing.to_string(), source }
    }

    /// As [`Error::at`], for the answers of system calls.
    pub(crate) fn at_call(thing: impl Display) -> impl FnOnce(rustix::io::Errno) -> Error {
        move |errno| Error::Io { thing: thing.to_string(), source: errno.into() }
    }
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> crate::Error {
        crate::Error::Failed(error.to_string())
    }
}

/// Refuses to go on without root.
pub(crate) fn require_root(thing: &'static str) -> Result<(), Error> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(Error::NotRoot { thing }) }
}
