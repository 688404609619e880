//! Whole clusters in one process under a seed, with faults of network, disk and process.
//!
//! [`Cluster`] is a metadata service and data servers on disks in memory, with a clock that moves only during sleeps,
//! over a transport that handles each request in its caller's thread: one seed decides a whole run. [`Story`] lets
//! clients do random things to such a cluster during faults, and compares everything they see with a [`model`].

pub mod clock;
pub mod cluster;
pub mod contents;
pub mod copies;
pub mod defects;
pub mod model;
pub mod network;
mod orphan_objects;
pub mod parted;
pub mod starts;
pub mod story;

pub use cluster::{Cluster, ClusterOptions};
pub use defects::Defect;
pub use parted::Parted;
pub use starts::Starts;
pub use story::{Profile, Story};
