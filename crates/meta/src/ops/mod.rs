//! The operations, one file a family. Each runs in a transaction, may be run again, and does no outside I/O.

pub(crate) mod accept;
pub(crate) mod attributes;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod commit;
pub(crate) mod convert;
pub(crate) mod create;
pub(crate) mod layout;
pub(crate) mod link;
pub(crate) mod list;
pub(crate) mod locks;
pub(crate) mod lookup;
pub(crate) mod members;
pub(crate) mod open;
pub(crate) mod rename;
pub(crate) mod replace;
pub(crate) mod resolve;
pub(crate) mod session;
pub(crate) mod space;
pub(crate) mod sync;
pub(crate) mod unlink;
pub(crate) mod watch;
pub(crate) mod xattr;
