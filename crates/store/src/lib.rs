//! The data server: checksummed objects on one or many target directories.
//!
//! [`DataService`] serves the targets of one node. A *target* is a directory on one disk; an *object* is the part
//! of one file that lies on one target, kept as sparse chunk files, each with a *sidecar* that holds a CRC-32C
//! for every 64 KiB block. `docs/on-disk.md` specifies the files and argues what a crash can do to them.
//!
//! It knows no names, no directories and no clients. A request that needs no waiting is answered in the caller's
//! thread; the others go to threads of the target, and a disk that hangs holds up those alone (`targets/waits.rs`).

mod error;
mod fan_out;
mod health;
mod latest;
mod lease;
mod object;
mod ops;
mod options;
mod peers;
mod registration;
mod replication;
mod service;
mod targets;
mod unknown_groups;

pub use error::OpenError;
pub use lease::MemberView;
pub use options::{Defect, MissingTarget, Options};
pub use peers::Peers;
pub use registration::Registered;
pub use service::DataService;
pub use targets::identity::{Replacement, TargetName, begin_replacement, inspect};

#[cfg(test)]
mod tests;
