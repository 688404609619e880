//! One file for each kind of operation; each runs where it may wait for a disk, unless it says otherwise.

pub(crate) mod channel;
pub(crate) mod list;
pub(crate) mod names;
pub(crate) mod read;
pub(crate) mod write;
pub(crate) mod xattrs;

use prost::Message;
use vazao_wire::service::{Answer, Fault};

/// A request that names the area it is about.
pub(crate) trait InArea {
    /// Its name.
    fn area(&self) -> &str;
}

macro_rules! in_area {
    ($($message:ident)*) => {
        $(impl InArea for vazao_wire::proto::$message {
            fn area(&self) -> &str {
                &self.area
            }
        })*
    };
}

in_area! {
    AreaStatRequest AreaListRequest AreaReadLinkRequest AreaSpaceRequest AreaSetAttributesRequest
    AreaMakeDirectoryRequest AreaRemoveRequest AreaRenameRequest AreaLinkRequest AreaGetXattrRequest
    AreaListXattrsRequest AreaSetXattrRequest AreaRemoveXattrRequest AreaSymlinkRequest OpenChannelRequest
}

/// An answer without attachment.
pub(crate) fn message(message: &impl Message) -> Answer {
    Ok((message.encode_to_vec(), Vec::new()))
}

/// The answer to an operation that has nothing to say beyond success.
pub(crate) fn done(outcome: Result<(), Fault>, answer: &impl Message) -> Answer {
    outcome.and_then(|()| message(answer))
}
