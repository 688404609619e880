//! Time and where it goes: clocks, counters, histograms, waiting accounts, and their exposition.
//!
//! Every part of Vazão takes its time from a [`Clock`] and charges what it waited for to an [`Accounts`] table, so
//! that a transfer can name its bottleneck. Recording is a relaxed atomic addition or a lock held for a few of them;
//! nothing here allocates per event. What one process has counted, with what its machine counts, are its [`Measures`];
//! [`bottleneck`] judges from those of all processes that take part what limited them.

pub mod accounts;
pub mod bottleneck;
pub mod clock;
pub mod counter;
pub mod cpu;
pub mod exposition;
pub mod histogram;
pub mod machine;
pub mod measures;
pub mod occupancy;
pub mod tcp_info;

pub use accounts::{Accounts, Cause};
pub use clock::{Clock, ManualClock, SystemClock};
pub use counter::{Counter, Gauge};
pub use exposition::Exposition;
pub use histogram::Histogram;
pub use measures::{Change, Measures};
pub use occupancy::{Occupancy, Occupied};
