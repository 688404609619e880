//! What tests of all crates share: addresses of their own, waits that end, programs that run within a time, and the
//! program around each test, which names what hangs and takes away what is left behind.
//!
//! It knows no noun of the file system, and is not shipped.

pub mod addresses;
pub mod left_behind;
pub mod programs;
pub mod report;
pub mod waiting;
