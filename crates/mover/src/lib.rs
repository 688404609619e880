//! Copies between nodes: bytes go straight from the node that has a file to the node that shall have it.
//!
//! A [`Mover`] is a daemon's part in this: it receives files into the node's areas, sends its own, and keeps a queue of
//! jobs on disk. A copy *method* is a way to get the blocks of one file across; `docs/grid.md` says what users may rely
//! on, `docs/wire.md` what travels.
//!
//! It knows nothing of the command line, and nothing of how an area checks its paths.

mod control;
mod engine;
pub mod ftp;
mod grid;
mod job;
mod method;
mod options;
mod outgoing;
mod place;
pub mod probing;
mod receive;
mod record;
mod service;
mod source;
mod volume;

#[cfg(test)]
mod tests;

pub use control::{Control, Counts, Order, Timeouts};
pub use grid::Grid;
pub use job::plan::{Destined, Planner, find};
pub use job::{Filter, JobState, remote};
pub use method::{CopyMethod, Done, Method, STREAMS_MAX};
pub use options::Options;
pub use outgoing::batch::{BatchFile, Sent, send_batch};
pub use outgoing::{
    Destination, Manner, Outgoing, Started, Surroundings, WHOLE_BYTES_MAX, begin, send_whole,
};
pub use place::Place;
pub use service::Mover;
pub use source::{FileSource, Source, Version, VolumeSource};
