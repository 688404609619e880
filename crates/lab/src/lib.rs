//! The laboratory: psplit, the benchmarks of the foundation's goals and of mounts, and the published experiments.
//!
//! Everything here measures through the doors a user has — the client library, or a directory of this machine — and
//! changes nothing in them. An experiment is one module over four shared parts: a [`place`] does the I/O, `sampler`
//! records what the machine did meanwhile, and [`report`] sums repetitions up and writes them. It is not a
//! load generator for tests: correctness is tested elsewhere, though wrong bytes fail a run here too.

pub mod bench;
mod child;
mod command;
pub mod content;
mod context;
pub mod crew;
pub mod experiment;
pub mod hosts;
pub mod machine;
pub mod mounts;
mod nfs;
pub mod place;
pub mod psplit;
pub mod report;
pub mod verdicts;

pub use command::{Command, run};
pub use context::{Context, Error};
