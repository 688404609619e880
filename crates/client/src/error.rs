//! What a failed client call says.

use vazao_model::Code;
use vazao_wire::service::{Fault, RequestId};

/// A failed call: what happened, to what, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Error {
    /// The kind of failure; its errno and whether repeating can help come from it.
    pub code: Code,
    /// The thing and the place, for people. May be empty.
    pub detail: String,
    /// The request that failed, as the logs of its server have it; 0 when none was sent.
    pub request: RequestId,
}

/// Result of a client call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error about `detail`.
    pub fn new(code: Code, detail: impl Into<String>) -> Error {
        Error { code, detail: detail.into(), request: RequestId::default() }
    }

    /// The same error with the thing it concerns in front: `about("vz:/a/b")`.
    pub fn about(self, thing: impl std::fmt::Display) -> Error {
        let detail =
            if self.detail.is_empty() { thing.to_string() } else { format!("{thing}: {}", self.detail) };
        Error { detail, ..self }
    }

    /// The same error with what `other` adds to it.
    pub(crate) fn because(self, other: &Error) -> Error {
        if other.detail.is_empty() {
            self
        } else {
            Error { detail: format!("{} ({})", self.detail, other.detail), ..self }
        }
    }

    /// The same error as the outcome of `request`.
    pub(crate) fn of(self, request: RequestId) -> Error {
        Error { request, ..self }
    }

    /// errno for the kernel and for `io::Error`.
    pub fn errno(&self) -> i32 {
        self.code.errno()
    }

    fn text(&self) -> String {
        self.code.said_of(&self.detail)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::new(fault.code, fault.detail)
    }
}

impl From<Code> for Error {
    fn from(code: Code) -> Error {
        Error::new(code, "")
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}
