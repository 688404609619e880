//! One file for each kind of operation; each runs where it may wait for a disk, unless it says otherwise.

pub(crate) mod channel;
pub(crate) mod list;
pub(crate) mod names;
pub(crate) mod read;
pub(crate) mod write;
pub(crate) mod xattrs;

use prost::Message;
use vazao_wire::service::{Answer, Fault};

/// An answer without attachment.
pub(crate) fn message(message: &impl Message) -> Answer {
    Ok((message.encode_to_vec(), Vec::new()))
}

/// The answer to an operation that has nothing to say beyond success.
pub(crate) fn done(outcome: Result<(), Fault>, answer: &impl Message) -> Answer {
    outcome.and_then(|()| message(answer))
}
