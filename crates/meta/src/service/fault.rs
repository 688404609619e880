//! From the engine's errors and broken records to the faults of the wire, and how things are named in them.

use crate::engine::EngineError;
use crate::schema::keys;
use vazao_model::{Code, InodeId};
use vazao_wire::service::Fault;

/// Result of an operation or a part of one.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// Bytes of a name that an error shows.
const SHOWN_BYTES_MAX: usize = 80;

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Fault {
        let code = match &error {
            EngineError::Io { .. } | EngineError::Failed(_) => Code::Io,
            EngineError::Corrupt(_) => Code::Corrupt,
            EngineError::Refused(_) => Code::VersionMismatch,
            EngineError::Full(_) => Code::NoSpace,
            EngineError::TooLarge(_) => Code::Internal,
            EngineError::Stopped(_) => Code::Unavailable,
        };
        Fault::new(code, format!("metadata engine: {error}"))
    }
}

/// A fault of reading `key`, or from there on: what it is that cannot be read.
pub(crate) fn damage_fault(error: EngineError, key: &[u8]) -> Fault {
    match error {
        EngineError::Corrupt(text) => Fault::new(Code::Corrupt, format!("{}: {text}", keys::described(key))),
        other => other.into(),
    }
}

/// A fault about a name in a directory.
pub(crate) fn name_fault(code: Code, parent: InodeId, name: &[u8]) -> Fault {
    Fault::new(code, format!("name {} in directory {parent}", shown(name)))
}

/// A fault about an inode.
pub(crate) fn inode_fault(code: Code, inode: InodeId) -> Fault {
    Fault::new(code, format!("inode {inode}"))
}

/// A name for people: quoted, without control characters, cut when long.
pub(crate) fn shown(name: &[u8]) -> String {
    let cut = name.get(..SHOWN_BYTES_MAX).unwrap_or(name);
    let more = if cut.len() < name.len() { "…" } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(cut))
}
