//! The client library: the namespace, striping, read-ahead, write-behind, retries and deadlines.
//!
//! A [`Client`] is a session with one volume; a [`File`] is an open file of it. All calls are synchronous in the
//! caller's thread and end by their deadline. The library knows nothing of FUSE or of the command line.
//!
//! From the ground up: `core::Context` (the way to the servers, the clock), [`statistics`]; `servers` (where each is,
//! which are out); `cache` (what may be believed); `meta` (calls to the metadata service); `data` (calls to data
//! servers) and `area` (calls to nodes); `locks`; `core::Core`, which holds them all; `file` (open files); `client`.

pub mod administration;
pub mod area;
mod cache;
mod client;
pub mod config;
mod core;
mod data;
pub mod error;
mod file;
mod locks;
pub mod measure;
mod meta;
mod servers;
pub mod statistics;

#[cfg(test)]
mod tests;

pub use administration::{
    ComparedCopies, CopyDifference, CopyFault, MetadataFinding, MetadataReport, Probe, ScrubFinding,
    ScrubOrder, ScrubReport, ScrubState,
};
pub use cache::{Asked, Listener};
pub use client::{
    Changes, Client, Entry, Listed, NamePage, NewInode, OpenMode, Page, PendingPage, RenameMode, SetTime,
    VolumeSpace, XattrMode,
};
pub use config::{Config, Options};
pub use data::SendBuffer;
pub use error::{Error, Result};
pub use file::{Convert, Converted, File, Seek, SharedBytes, Strided, Unsent, Unstored};
pub use locks::{LockPlace, Locks, Obstacle};
pub use measure::overview;
pub use meta::{Completion, Readiness};
pub use statistics::{ServerStatistics, Statistics};
pub use vazao_wire::interrupt;
