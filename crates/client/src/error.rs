//! What a failed client call says.

use vazao_model::Code;
use vazao_model::error::has_remedy;
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

    /// The same error of a thing that its user calls `place`, without the number that servers call it by.
    pub fn at(self, place: impl std::fmt::Display) -> Error {
        let place = place.to_string();
        let error = without_number(self);
        if error.detail.starts_with(&place) { error } else { error.about(place) }
    }

    /// What it says, and what its reader can do about it. Doors show this.
    pub fn with_remedy(&self) -> String {
        let text = self.text();
        let remedy = remedy(self.code);
        // Where the message has a better one already, two at once leave it to the reader which to try.
        let said = remedy.is_empty() || text.contains("`vazao ") || has_remedy(&self.detail);
        if said { text } else { format!("{text}; {remedy}") }
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

/// What the reader of an error can do about it; empty where the error says it all.
fn remedy(code: Code) -> &'static str {
    match code {
        Code::Unreachable | Code::Disconnected | Code::Timeout | Code::Unavailable => {
            "`vazao status` tells which node is missing and how to start it"
        }
        Code::Unauthenticated => {
            "use the key file of that cluster: `key_file` in the client.toml given by --cluster or $VAZAO_CLUSTER"
        }
        Code::NoSpace => "remove something or add a target; `vazao df` and `vazao status` show the space",
        Code::TargetFailed => "`vazao status` says why the target failed",
        Code::Corrupt => "the stored bytes are damaged: restore the file from a copy",
        Code::VersionMismatch => "client and servers have to be of versions that understand each other",
        Code::Overloaded => "try again with less in parallel",
        _ => "",
    }
}

/// Where the path is known, the numbers by which servers call the same thing only puzzle: `name "x" in directory i1`,
/// `inode i5`, alone or in brackets behind the path, in front of what is wrong with it or behind what of it is meant.
/// Whatever else a server says of it stays.
fn without_number(error: Error) -> Error {
    let detail = &error.detail;
    let behind = [" (name \"", " (inode "].iter().filter_map(|begin| detail.find(begin)).min();
    let cut = behind.filter(|at| detail[at + 2..].strip_suffix(')').is_some_and(is_numbered));
    if is_numbered(detail) {
        return Error { detail: String::new(), ..error };
    }
    if let Some(at) = cut {
        return Error { detail: detail[..at].to_owned(), ..error };
    }
    let in_front = detail.split_once(": ").filter(|(thing, _)| is_numbered(thing)).map(|(_, what)| what);
    let of_it = |word: &str| detail.rsplit_once(word).filter(|(_, number)| is_number(number));
    let of_it = of_it(" of inode ").or_else(|| of_it(" of directory ")).map(|(what, _)| what);
    match in_front.or(of_it) {
        Some(what) => Error { detail: what.to_owned(), ..error },
        None => error,
    }
}

/// The number of an inode: `i17`.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('i').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A thing that is called by such a number and nothing else.
fn is_numbered(text: &str) -> bool {
    let name = text.strip_prefix("name \"").and_then(|rest| rest.rsplit_once("\" in directory "));
    let number = name.map(|(_, number)| number);
    let number = number.or_else(|| text.strip_prefix("inode ")).or_else(|| text.strip_prefix("directory "));
    number.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `vz:/d/x: name "x" in directory i17: no such file or directory` named the thing twice, once as no user knows it.
    #[test]
    fn a_path_is_not_followed_by_the_number_of_its_inode() {
        let said = |detail: &str| Error::new(Code::NotFound, detail).at("vz:/d/x").with_remedy();
        for detail in [
            "name \"x\" in directory i17",
            "name \"a\\\" in directory b\" in directory i1",
            "inode i5",
            "vz:/d/x (name \"x\" in directory i2)",
            "directory i1",
        ] {
            assert_eq!(said(detail), "vz:/d/x: no such file or directory", "{detail}");
        }
        assert_eq!(said("target t3 is missing"), "vz:/d/x: target t3 is missing: no such file or directory");
        assert_eq!(
            said("inode i5: 9 written ranges"),
            "vz:/d/x: 9 written ranges: no such file or directory"
        );
        let attribute = "extended attribute \"user.a\"";
        let expected = format!("vz:/d/x: {attribute}: no such file or directory");
        assert_eq!(said(&format!("{attribute} of inode i5")), expected);
        assert_eq!(
            said("subdirectories of directory i1"),
            "vz:/d/x: subdirectories: no such file or directory"
        );
    }
}
