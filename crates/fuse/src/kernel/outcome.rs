//! What becomes of a request: nothing more to say, or why it failed and which errno the kernel gets.

use vazao_client::Error;
use vazao_model::Code;

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// A client call failed.
    Client(Error),
    /// Another owner holds the lock, and the caller did not want to wait for it.
    LockTaken,
    /// An outcome of the protocol itself.
    Errno(i32),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Client(error)
    }
}

impl Failure {
    /// errno for the kernel. `EAGAIN` is for non-blocking calls: a caller that waited for a lock, to append for
    /// example, and did not get it by the deadline gets a timeout.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Failure::Client(error) if error.code == Code::Locked => Code::Timeout.errno(),
            Failure::Client(error) => error.errno(),
            Failure::LockTaken => Code::Locked.errno(),
            Failure::Errno(errno) => *errno,
        }
    }
}

pub(crate) type Outcome = Result<(), Failure>;
