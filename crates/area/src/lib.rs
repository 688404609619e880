//! The service of the role `area`: directories of a node exported in place, and channels into their files.
//!
//! An *area* is a directory under a name. Every path is opened beneath its root by the kernel's own rules
//! (`openat2(2)`, `RESOLVE_BENEATH`), with the rights of the daemon's user. A *channel* is a file opened for random
//! access: a small entry in a table, bounded by `channels_max`; descriptors are a cache beneath it.
//! `docs/grid.md` says what users may rely on.
//!
//! It knows no volumes, no other nodes and no copies.

mod area;
mod channels;
mod descriptors;
mod export;
mod fault;
mod files;
mod inside;
mod member;
mod metrics;
mod open_file;
mod ops;
mod options;
mod owner;
mod path;
mod replies;
mod service;

pub use area::Waiting;
pub use export::{AreaConfig, check_name, mount_point};
pub use files::origin;
pub use inside::{Inside, InsideStatus};
pub use member::Membership;
pub use open_file::AreaFile;
pub use options::Options;
pub use owner::Owner;
pub use service::AreaService;

#[cfg(test)]
mod tests;
