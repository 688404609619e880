//! What goes wrong in a command, told to the person at the terminal: the thing, the place, the remedy.

use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use vazao_model::error::without_remedy;

/// Why a command ends without success.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line makes no sense: exit code 2.
    Usage(String),
    /// It was tried and failed: exit code 1.
    Failed(String),
    /// Failed, and everything there is to say has been said: exit code 1.
    Reported,
}

/// What a command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure to be shown as `message`.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Failed(message.into())
    }

    /// A misuse to be shown as `message`.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(message.into())
    }

    /// The same of a thing by another name: `ours` in the message becomes `theirs`.
    pub(crate) fn renamed(self, ours: &str, theirs: &str) -> Failure {
        match self {
            Failure::Failed(message) => Failure::Failed(message.replace(ours, theirs)),
            other => other,
        }
    }

    /// The same, with the place where it happened in front.
    pub(crate) fn about(self, place: impl Display) -> Failure {
        match self {
            Failure::Failed(message) => Failure::Failed(format!("{place}: {message}")),
            other => other,
        }
    }

    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) | Failure::Reported => 1,
        }
    }

    /// The message, where it has not been shown yet.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => Some(message),
            Failure::Reported => None,
        }
    }
}

/// Failures are told as JSON: the command was given `--json`.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on failures are told as JSON.
pub(crate) fn tell_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Prints a failure the way every command does: on standard error, as text or as an object in a line.
pub(crate) fn report(failure: &Failure) {
    if let Some(message) = failure.message() {
        say(message, failure.exit_code());
    }
}

/// Prints what went wrong; with the exit code that it means.
pub(crate) fn say(message: &str, exit_code: u8) {
    match AS_JSON.load(Ordering::Relaxed) {
        true => eprintln!("{}", serde_json::json!({ "error": message, "exit_code": exit_code })),
        false => eprintln!("vazao: {message}"),
    }
}

impl From<vazao_client::Error> for Failure {
    fn from(error: vazao_client::Error) -> Failure {
        Failure::Failed(error.with_remedy())
    }
}

/// What happened, for a place that knows better what to do about it.
pub(crate) fn without_advice(error: &vazao_client::Error) -> String {
    error.code.said_of(without_remedy(&error.detail))
}

/// Gives an error of the system the place where it happened.
pub(crate) trait At<T> {
    /// The error in front of which `place` is put.
    fn at(self, place: impl Display) -> Outcome<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, place: impl Display) -> Outcome<T> {
        self.map_err(|error| Failure::Failed(format!("{place}: {}", plain(&error))))
    }
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, place: impl Display) -> Outcome<T> {
        self.map_err(io::Error::from).at(place)
    }
}

impl<T> At<T> for vazao_client::Result<T> {
    fn at(self, place: impl Display) -> Outcome<T> {
        self.map_err(|error| error.at(place).into())
    }
}

/// An error of the system in the words that Unix commands use, without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::Code;

    #[test]
    fn an_error_of_the_system_names_its_place_and_no_number() {
        let failed: io::Result<()> = Err(io::Error::from_raw_os_error(2));
        let failure = failed.at("/a/b").expect_err("it failed");
        assert_eq!(failure.message(), Some("/a/b: no such file or directory"));
        assert_eq!(failure.exit_code(), 1);
    }

    /// "…; use another name; `vazao status` tells which node is missing": two remedies, and the cause behind them.
    #[test]
    fn one_message_has_one_remedy() {
        let detail = "reading the key file k of the cluster; give --cluster FILE";
        let failure = Failure::from(vazao_client::Error::new(Code::Unauthenticated, detail));
        let message = failure.message().unwrap_or_default();
        assert!(
            message.ends_with("; give --cluster FILE") && message.matches("; ").count() == 1,
            "{message}"
        );
        let error =
            vazao_client::Error::new(Code::Timeout, "n1 has not answered for 30 s; see `vazao status`");
        assert_eq!(without_advice(&error), format!("n1 has not answered for 30 s: {}", Code::Timeout.text()));
    }

    #[test]
    fn an_unreachable_server_comes_with_a_remedy() {
        let error = vazao_client::Error::new(Code::Unreachable, "metadata service host:1");
        let failure = Failure::from(error);
        assert!(
            failure.message().is_some_and(|m| m.starts_with("metadata service host:1: peer unreachable; "))
        );
    }
}
