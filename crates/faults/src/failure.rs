//! Why a run could not go on. A loss that a run has found is no failure of the run: it is a finding.

use std::fmt::Display;

/// A failure, for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

/// What something ends with that can fail.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure that says this.
    pub fn new(text: impl Display) -> Failure {
        Failure(text.to_string())
    }

    /// A failure to do something with `thing`.
    pub fn at(thing: impl Display) -> impl FnOnce(std::io::Error) -> Failure {
        move |error| Failure(format!("{thing}: {error}"))
    }
}

impl From<vazao_client::Error> for Failure {
    fn from(error: vazao_client::Error) -> Failure {
        Failure(error.to_string())
    }
}
