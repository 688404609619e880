//! Time and where it goes: clocks, counters, histograms, waiting accounts, and their exposition.
//!
//! Every part of Vazão takes its time from a [`Clock`] and charges what it waited for to an [`Accounts`] table, so
//! that a transfer can name its bottleneck. Recording is a relaxed atomic addition; nothing here blocks or allocates
//! per event.

pub mod accounts;
pub mod clock;
pub mod counter;
pub mod cpu;
pub mod exposition;
pub mod histogram;

pub use accounts::{Accounts, Cause};
pub use clock::{Clock, ManualClock, SystemClock};
pub use counter::{Counter, Gauge};
pub use exposition::Exposition;
pub use histogram::Histogram;
