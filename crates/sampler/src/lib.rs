//! Samples of the machine: CPU, disks, network and memory while something runs, and the limit that they show.
//!
//! `vazao cp`, `vazao demo` and the laboratory record their work through it. It changes nothing in what it watches, and
//! knows no experiment.

pub mod loopback;
mod recorder;
pub mod servers;
mod snapshot;

pub use recorder::{DiskRecord, NetworkRecord, ProcessRecord, Record, Recorder, Sample, Watched};
pub use snapshot::machine_busy_s;
