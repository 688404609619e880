//! Handles over the client, for libraries of other languages: connections, files, listings, copies and watches.
//!
//! A handle can be closed while it is in use, refuses to work after that, and refuses to work in a child of the process
//! that made it. Calls take paths and flags as open(2) does, and their errors name what they were about. How a language
//! shows all that is in its own crate.

mod area;
mod connection;
mod file;
mod job;
mod listing;
mod locks;
mod names;
mod ranges;
mod watch;
mod xattrs;

pub use area::{Area, AreaListing};
pub use connection::{Connection, zone_name};
pub use file::{File, Opened};
pub use job::{CopyOptions, Job, job_place};
pub use listing::Listing;
pub use locks::{lock_range, locked_bytes};
pub use names::{PERMISSIONS, ShownLayout, mode_type};
pub use ranges::{RANGES_MAX, check_apart, strided};
pub use watch::Watch;
