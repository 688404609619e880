//! Jobs: what users ask for, as many files as it may be, kept in the daemon's own directory until all is done.
//!
//! A job is planned once, then its files are begun one after the other, many at once, within limits for the node and
//! for each pair of nodes. Steps that wait for other nodes are done by a small pool of threads; the bytes are moved by
//! the copy's method. A file that fails for a reason that may pass is tried again, any other is noted and the rest goes
//! on. All that is needed to go on after a restart is written down before it is answered.

mod directories;
mod files;
mod filter;
mod itself;
mod limit;
pub(crate) mod plan;
mod progress;
mod queue;
pub mod remote;
mod state;
mod step;

#[cfg(test)]
pub(crate) use crate::control::may_pass;
pub use filter::Filter;
pub(crate) use queue::{Queue, Setup};
pub use state::JobState;

/// Jobs of one daemon that are not over; the next one is refused.
pub(crate) const JOBS_MAX: usize = 20_000;

/// Jobs that are over and still shown.
pub(crate) const ENDED_MAX: usize = 1_000;
